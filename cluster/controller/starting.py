"""A Controller that runs on Ray: its shell, the watch over the nodes, and the metadata's home."""

import logging
from collections.abc import Callable

from raylog.actors.errors import NotLeader
from raylog.actors.events import warn
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.runtime.names import Node
from raylog.actors.runtime.nodes import is_still_own_actor
from raylog.cluster.controller.asking import Commanding, Lookups
from raylog.cluster.controller.copies import Home
from raylog.cluster.controller.events import Event
from raylog.cluster.controller.instructions import AskWhether
from raylog.cluster.controller.kept_log_dirs import KeptLogDirs
from raylog.cluster.controller.metadata_log import MetadataLog
from raylog.cluster.controller.ray_managers import RayManagers
from raylog.cluster.controller.ray_nodes import NodeWatch
from raylog.cluster.controller.ray_reach import RayNotes
from raylog.cluster.controller.shell import ControllerShell
from raylog.cluster.controller.witness import Notes, Witness
from raylog.storage.clock import SystemClock
from raylog.storage.errors import RaylogError
from raylog.storage.files import RealFileSystem
from raylog.storage.state.properties import random_id

logger = logging.getLogger(__name__)

# A copy of the metadata that hangs is waited for so long at the end of a broker. Without its answer
# the next start has to find all copies.
STOP_TIMEOUT_S = 5.0


class RunningController:
    """The parts of a Controller on Ray, from the opening of its metadata on."""

    def __init__(
        self,
        namespace: str,
        config: BrokerConfig,
        node: Node,
        home: Home,
        failed: Callable[[BaseException], None],
        start: str,
    ) -> None:
        """Open the metadata at ``home``. ``node``: that this runs on. ``failed``: as of the loop.

        Raises as ``MetadataLog`` and ``begin_witness`` do.
        """
        metadata = MetadataLog(
            RealFileSystem(),
            SystemClock(),
            home.log_dir,
            new_cluster=home.new_cluster,
            least_epoch=home.least_epoch,
        )
        try:
            self.cluster_id = metadata.desired.cluster_id
            witness = begin_witness(RayNotes(), namespace, metadata, is_still_own_actor)
            kept = KeptLogDirs(RayNotes(), namespace, start)
            self._watch = NodeWatch(namespace, self.put)
            managers = RayManagers(
                namespace,
                lambda: _note_log_dirs(kept, self._shell.lookups.broker_config()),
                self.cluster_id,
                self._watch.node,
            )
            self._shell = ControllerShell(
                config,
                metadata,
                node.key,
                managers,
                failed=failed,
                others=lambda: self._watch.others,
                least_epoch=home.least_epoch,
                accepts_older=home.accepts_older,
                is_controller=lambda question: tell_and_ask(
                    witness, metadata, question, is_still_own_actor
                ),
                start=start,
            )
        except BaseException:  # the next try must find the log unlocked
            metadata.close()
            raise

    @property
    def lookups(self) -> Lookups:
        return self._shell.lookups

    @property
    def commanding(self) -> Commanding:
        return self._shell.commanding

    def put(self, event: Event) -> None:
        """Something happened. Returns at once."""
        self._shell.put(event)

    def begin(self) -> None:
        """Start the threads."""
        self._shell.begin()
        self._watch.start()

    def wait_until_serving(self, is_stopped_after: Callable[[float], bool]) -> None:
        """See ``ControllerShell.wait_until_serving``."""
        self._shell.wait_until_serving(is_stopped_after)

    def leave(self, why: RaylogError, *, is_end: bool = True) -> None:
        """See ``ControllerShell.leave``; the end of the broker is written down first."""
        if is_end:
            self._shell.write_stopped(STOP_TIMEOUT_S)
        self._watch.stop()
        self._shell.leave(why, is_end=is_end)

    def make_room(self) -> None:
        """See ``ControllerShell.make_room``."""
        self._shell.make_room()

    def close(self) -> bool:
        """Close the metadata, after ``leave``; returns whether that was in order."""
        return self._shell.close()


def begin_witness(
    notes: Notes, namespace: str, metadata: MetadataLog, is_controller: Callable[[], bool]
) -> Witness:
    """The witness of a life that begins over this metadata. ``is_controller``: as of
    ``Witness.begin``.

    Raises NotLeader where Ray has started another Controller, or has not begun this one yet.
    """
    found = metadata.desired
    witness = Witness(notes, namespace, random_id(), found.cluster_id)
    try:
        is_still = witness.begin(found.controller_epoch, metadata.copies_at, is_controller)
    except Exception as error:  # whatever Ray raises; before a copy is left out it must answer
        warn(logger, "no-witness", why=error)
        return witness
    if not is_still:
        raise NotLeader("the broker", "Ray does not take this process for its Controller now")
    return witness


def _note_log_dirs(kept: KeptLogDirs, config: BrokerConfig) -> BrokerConfig:
    """Have Ray's head keep the log dirs that a node begins with; returns its config.

    Raises NotLeader where it does not keep them.
    """
    try:
        kept.keep(config.log_dirs)
    except Exception as error:  # whatever Ray raises; the node is started again
        raise NotLeader("log.dirs", f"Ray's head does not keep them: {error}") from error
    return config


def tell_and_ask(
    witness: Witness,
    metadata: MetadataLog,
    question: AskWhether,
    is_controller: Callable[[], bool],
) -> bool:
    """Whether this process is still the Controller. Raises what Ray raises.

    What the question says of copies that are left out Ray's head knows then: before it is asked, so
    that nobody who begins meanwhile misses it. A process that was replaced leaves no such note; it
    would speak against the copies of its successor.
    """
    if question.leaves_out:
        if not is_controller():
            return False
        witness.ask(metadata.end)
    is_still = is_controller()
    if is_still and question.copies_at is not None:
        witness.take_back(question.copies_at)
    return is_still
