"""Which actors serve: partitions' LogActors and the Controller, looked for once and kept.

To look for an actor is to wait for Ray's head, so it is done in the background.
"""

from collections.abc import Callable
from functools import partial

from raylog.actors.errors import BrokerNotFound, NotLeader, UnknownTopicOrPartition
from raylog.actors.runtime.clusters import stay_joined
from raylog.actors.runtime.stubs import LogActorStub, find_log_actor
from raylog.cluster.client.background import Work
from raylog.cluster.controller.stub import ControllerStub, find_controller
from raylog.storage.names import TopicPartition

Failed = Callable[[BaseException], None]


class Lookup:
    """The actors of one broker. Safe for threads.

    Whoever asks for one gives two functions, which raise nothing. ``use`` gets the actor: at once
    if it is known here, else in the background. ``failed`` is told why there is none.
    """

    def __init__(self, namespace: str, address: str | None, run: Callable[[Work], None]) -> None:
        """``address``: of the Ray cluster, which a process that is connected to none joins.

        ``run``: does work in the background, one piece after another.
        """
        self._namespace, self._address, self._run = namespace, address, run
        self._log_actors: dict[TopicPartition, LogActorStub] = {}
        self._controller: ControllerStub | None = None

    def log_actor(
        self, partition: TopicPartition, use: Callable[[LogActorStub], None], failed: Failed
    ) -> None:
        """The actor that serves a partition. NotLeader where there is none."""
        if not isinstance(partition.partition, int) or partition.partition < 0:
            # ``t`` and -1 would find the actor of ``t-`` and 1.
            failed(UnknownTopicOrPartition(*partition, "a partition is a number from 0 on"))
            return
        known = self._log_actors.get(partition)
        if known is not None:
            use(known)
        else:
            self._run(partial(self._find_log_actor, partition, use, failed))

    def controller(self, use: Callable[[ControllerStub], None], failed: Failed) -> None:
        """The Controller. BrokerNotFound where there is none."""
        known = self._controller
        if known is not None:
            use(known)
        else:
            self._run(partial(self._find_controller, use, failed))

    def forget(self, partition: TopicPartition) -> None:
        """Its actor did not answer: look for it afresh."""
        self._log_actors.pop(partition, None)

    def forget_controller(self) -> None:
        self._controller = None

    # -- in the background -------------------------------------------------------------------------

    def _find_log_actor(
        self, partition: TopicPartition, use: Callable[[LogActorStub], None], failed: Failed
    ) -> None:
        found = self._log_actors.get(partition)  # maybe the work before this has found it
        try:
            stay_joined(self._address)
            found = found or find_log_actor(partition, self._namespace)
        except Exception as error:
            failed(error)
            return
        if found is None:
            failed(NotLeader(str(partition), "no actor serves it now"))
            return
        self._log_actors[partition] = found
        use(found)

    def _find_controller(self, use: Callable[[ControllerStub], None], failed: Failed) -> None:
        try:
            stay_joined(self._address)
            found = self._controller or find_controller(self._namespace)
        except Exception as error:
            failed(error)
            return
        if found is None:
            failed(BrokerNotFound(self._namespace))
            return
        self._controller = found
        use(found)
