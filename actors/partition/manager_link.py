"""What a LogActor asks its LogManager, and what it tells it.

Whatever Ray answers, the LogActor goes on: only ``order``, ``confirmed`` and ``record_log_start``
raise, by raylog's names.
"""

import logging

from raylog.actors.cluster_image import Endpoint
from raylog.actors.control import Confirmed
from raylog.actors.errors import ConfigUnconfirmed, NotLeader
from raylog.actors.events import warn
from raylog.actors.messages import DataAddress, PartitionOffsets
from raylog.actors.node_messages import LogOrder, LogSays
from raylog.actors.partition.spec import LogSpec
from raylog.actors.plane.sasl.scram import Verifier
from raylog.actors.runtime.names import log_manager_name
from raylog.actors.runtime.nodes import own_node_id
from raylog.actors.runtime.stubs import LogManagerStub, find_log_actor, find_log_manager
from raylog.storage.errors import RaylogError, StorageError
from raylog.storage.names import TopicPartition
from raylog.storage.report import Progress

logger = logging.getLogger(__name__)

# How long the LogManager is waited for.
MANAGER_TIMEOUT_S = 5.0
# The same where it writes to a disk, and says so if that hangs.
START_TIMEOUT_S = 10.0


class ManagerLink:
    """See the module's head."""

    def __init__(self, spec: LogSpec) -> None:
        self._spec = spec

    def _manager(self) -> LogManagerStub | None:
        return find_log_manager(self._spec.node, self._spec.namespace) if self._spec.node else None

    def order(self, timeout_s: float) -> LogOrder:
        """What the log shall obey now. Raises RequestTimedOut, or NotLeader."""
        name = log_manager_name(self._spec.node)
        manager = self._manager()
        if manager is None:
            raise NotLeader(name, "it is not running")
        order = manager.order_of(self._spec.log).get(timeout_s)
        if order is None:
            raise NotLeader(name, f"it has not been told yet to open {self._spec.partition}")
        return order

    def endpoint(self) -> Endpoint | None:
        """What the LogActor is to clients; None where that cannot be learned now."""
        try:
            manager = self._manager()
            if manager is None:
                return None
            return manager.endpoint_of(self._spec.log).get(MANAGER_TIMEOUT_S)
        except Exception:  # whatever Ray raises, or an older LogManager: it is asked again
            return None

    def verifier_of(self, mechanism: str, user: str) -> Verifier | None:
        """What is kept of a user's password; None where there is no such user.

        Raises NotLeader where the LogManager cannot be asked, RequestTimedOut and ClusterUnknown.
        """
        manager = self._manager()
        if manager is None:
            raise NotLeader(log_manager_name(self._spec.node), "it is not running")
        return manager.verifier_of(mechanism, user).get(MANAGER_TIMEOUT_S)

    def address_of(self, partition: TopicPartition, topic_id: str) -> DataAddress:
        """Where the process of another partition listens. Raises RaylogError."""
        actor = find_log_actor(partition, self._spec.namespace)
        if actor is None:
            raise NotLeader(str(partition), "its process is not running")
        return actor.data_address(topic_id, own_node_id()).get(MANAGER_TIMEOUT_S)

    def confirmed(self) -> Confirmed | None:
        """The config version that the Controller has confirmed. Raises ConfigUnconfirmed."""
        partition = self._spec.partition
        try:
            manager = self._manager()
            if manager is None:
                return None
            return manager.confirmed([partition]).get(MANAGER_TIMEOUT_S).get(partition)
        except RaylogError as error:
            why = f"its LogManager cannot be asked ({error.problem})"
            raise ConfigUnconfirmed(str(partition), why) from error

    def record_log_start(self, offsets: PartitionOffsets) -> None:
        """Have it written where the log begins now.

        Raises NotLeader where the LogManager cannot be asked, RequestTimedOut, and StorageError.
        """
        name = log_manager_name(self._spec.node)
        manager = self._manager()
        if manager is None:
            raise NotLeader(name, "it is not running")
        try:
            call = manager.record_log_start(self._spec.log, offsets)
        except AttributeError:  # of its handle
            raise NotLeader(name, "it is of an older release of raylog") from None
        call.get(START_TIMEOUT_S)

    def report(self, error: StorageError, *, is_loud: bool = True) -> bool:
        """Tell the LogManager that a disk has failed; returns whether it has heard.

        It takes the whole dir offline then. ``is_loud``: a failure to tell it is logged.
        """
        try:
            manager = self._manager()
            if manager is None:
                return False
            manager.failed(self._spec.log, error).get(MANAGER_TIMEOUT_S)
        except Exception as failure:  # whatever Ray raises: the failure is reported again
            if is_loud:
                warn(logger, "failure-not-reported", partition=self._spec.partition, why=failure)
            return False
        return True

    def say(self, says: LogSays) -> None:
        """Tell what the LogActor would say when it is asked next. Waits for no answer."""
        try:
            manager = self._manager()
            if manager is not None:
                manager.said(says).ignore()
        except Exception as failure:  # whatever Ray raises, or an older LogManager: it asks
            warn(logger, "not-said", partition=self._spec.partition, why=failure)

    def tell_progress(self, progress: Progress | None) -> None:
        """Tell how far the recovery has come; None: it is over. Waits for no answer."""
        try:
            manager = self._manager()
            if manager is not None:
                manager.recovering(self._spec.partition, progress).ignore()
        except Exception as failure:  # whatever Ray raises: the recovery goes on
            warn(logger, "progress-not-told", partition=self._spec.partition, why=failure)
