"""A stub of Ray for the simulation: named LogActors, which die, hang, and are started again.

Ray starts an actor again that died by itself, after a while, and with the arguments of its first
start; not one that was killed for good. What it says is dead may live on for a moment, and then
still has the lock of its folder.
"""

from collections.abc import Callable
from dataclasses import dataclass

from raylog.actors.control import LogId
from raylog.actors.node.events import Served
from raylog.storage.config import LogConfig
from raylog.storage.names import TopicPartition
from tests.simulation.clockwork import Clockwork
from tests.simulation.disks import SimDir, SimFolder

RESTART_MS = 4000
LINGER_MS = 3000


@dataclass(slots=True, eq=False)
class SimActor:
    """A LogActor's process. It serves when it has learned its config in this life."""

    log: LogId
    node: str
    dir: SimDir
    folder: SimFolder
    config: LogConfig
    config_version: int
    is_alive: bool = True
    is_paused: bool = False
    is_learning: bool = False
    leader_epoch: int = 0

    def says(self) -> Served:
        return Served(
            log=self.log,
            directory_id=self.dir.directory_id,
            config=self.config,
            config_version=self.config_version,
            leader_epoch=self.leader_epoch,
        )


class SimRay:
    """The LogActors of a cluster, by their names."""

    def __init__(
        self,
        clockwork: Clockwork,
        gone: Callable[[SimActor], None],
        reborn: Callable[[SimActor], None],
    ) -> None:
        """``gone``: hears of actors that will not come back by themselves; ``reborn``: of those
        that Ray has started again, which do not know what to obey."""
        self._clockwork, self._gone, self._reborn = clockwork, gone, reborn
        self.named: dict[TopicPartition, SimActor] = {}

    def start(self, actor: SimActor) -> None:
        """Give an actor its name and its folder's lock; both are free."""
        assert actor.log.partition not in self.named, "Ray's names are unique"
        assert actor.folder.owner is None, "two processes have one folder"
        self.named[actor.log.partition] = actor
        self._own(actor)

    def kill(self, actor: SimActor) -> int:
        """End it for good. Its name is free at once; its process lives so many ms longer."""
        if self.named.get(actor.log.partition) is actor:
            del self.named[actor.log.partition]
        linger_ms = self._clockwork.some(LINGER_MS)
        self._clockwork.after(linger_ms, lambda: self._die(actor))
        return linger_ms

    def close(self, actor: SimActor) -> None:
        """End it in order: its log is clean."""
        actor.folder.is_clean = True
        if self.named.get(actor.log.partition) is actor:
            del self.named[actor.log.partition]
        self._die(actor)

    def crash(self, actor: SimActor) -> None:
        """It dies by itself; Ray starts another in its place, unless somebody ends that."""
        self._die(actor)
        self._clockwork.soon(lambda: self._restart(actor), most_ms=RESTART_MS)

    def vanish(self, actor: SimActor) -> None:
        """Its node is gone, and it with it, for good."""
        self.named.pop(actor.log.partition, None)
        self._die(actor)

    def _restart(self, dead: SimActor) -> None:
        if self.named.get(dead.log.partition) is not dead or dead.is_alive:
            return
        if dead.folder.owner is not None or dead.folder not in dead.dir.folders:
            del self.named[dead.log.partition]  # it raised in its __init__
            self._gone(dead)
            return
        dead.is_alive, dead.is_paused, dead.is_learning = True, False, True
        self._own(dead)
        self._reborn(dead)

    def _own(self, actor: SimActor) -> None:
        actor.folder.owner = actor
        actor.folder.is_clean = False
        actor.folder.served_by += 1
        actor.leader_epoch = actor.folder.served_by

    def _die(self, actor: SimActor) -> None:
        actor.is_alive = False
        if actor.folder.owner is actor:
            actor.folder.owner = None
