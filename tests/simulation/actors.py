"""A stub of Ray for the simulation: named LogActors, which die, hang, and are started again.

Ray starts an actor again that died by itself, after a while, and with the arguments of its first
start; not one that was killed for good. What it says is dead may live on for a moment, and then
still has the lock of its folder. One that was started again has no lock before it has learned what
to obey. Nobody is told that an actor has died: whoever asks it finds out.
"""

from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass

from raylog.actors.control import LogId
from raylog.actors.errors import NotLeader, RequestTimedOut
from raylog.actors.messages import PartitionOffsets
from raylog.actors.node_messages import LogOrder, LogSays
from raylog.storage.config import LogConfig
from raylog.storage.errors import LogMissing, RaylogError, TopicIdUnreadable
from raylog.storage.files import Lock
from raylog.storage.names import TopicPartition
from tests.simulation.clockwork import Clockwork
from tests.simulation.disks import CLOSED, OPENED, SimDir, SimDisks

RESTART_MS = 4000
LINGER_MS = 3000
PATIENCE_MS = 10_000


def ray_id(node: str) -> str:
    """Ray's id of a node."""
    return f"ray-{node}"


@dataclass(slots=True, eq=False, kw_only=True)
class SimActor:
    """A LogActor's process. It serves when it has learned its config in this life.

    ``is_adopted``: its LogManager has found it, and has not started it.
    """

    log: LogId
    node: str
    disks: SimDisks
    dir: SimDir
    config: LogConfig
    config_version: int
    is_alive: bool = True
    is_paused: bool = False
    is_learning: bool = False
    is_adopted: bool = False
    leader_epoch: int = 0
    lock: Lock | None = None

    @property
    def path(self) -> str:
        return f"{self.dir.path}/{self.log.partition}"

    def says(self) -> LogSays:
        end = self.leader_epoch
        offsets = PartitionOffsets(0, recovery_point=end, high_watermark=end, log_end_offset=end)
        return LogSays(
            log=self.log,
            directory_id=self.dir.directory_id,
            folder=self.path,
            node_id=ray_id(self.node),
            state="learning" if self.is_learning else "serving",
            config=None if self.is_learning else self.config,
            config_version=-1 if self.is_learning else self.config_version,
            leader_epoch=self.leader_epoch,
            offsets=None if self.is_learning else offsets,
        )

    def own(self) -> None:
        """Take the folder's lock, and begin a life in it. Raises RaylogError."""
        folder = self.disks.folder(self.path, self.log.partition)
        if folder is not None and folder.read_id is None:
            raise TopicIdUnreadable(self.path, self.log.topic_id, "is damaged")
        if folder is None or folder.read_id != self.log.topic_id:
            raise LogMissing(self.dir.path, f"{self.log} is not here")
        lock = self.disks.lock(self.path)
        try:
            self.disks.leave_line(self.path, self.log.topic_id, OPENED)
        except RaylogError:
            lock.release()
            raise
        self.lock, self.leader_epoch = lock, folder.lives + 1

    def let_go(self) -> None:
        """The process ends."""
        self.is_alive = False
        if self.lock is not None:
            self.lock.release()
            self.lock = None


class SimRay:
    """The LogActors of a cluster, by their names."""

    def __init__(
        self,
        clockwork: Clockwork,
        learned: Callable[[SimActor], None],
        reborn: Callable[[SimActor], None],
    ) -> None:
        """``reborn``: hears of actors that Ray has started again, which do not know what to obey;
        ``learned``: of those that know it now."""
        self._clockwork, self._learned, self._reborn = clockwork, learned, reborn
        self.named: dict[TopicPartition, SimActor] = {}
        self._lingering: list[SimActor] = []

    def start(self, actor: SimActor) -> None:
        """Give an actor its name and its folder's lock. Raises RaylogError, and it is gone."""
        assert actor.log.partition not in self.named, "Ray's names are unique"
        self.await_end(actor.path)
        actor.own()
        self.named[actor.log.partition] = actor

    def await_end(self, path: str) -> None:
        """Whoever waits for a folder's lock gets it when the process ends that was killed."""
        for actor in [actor for actor in self._lingering if actor.path == path]:
            self._end(actor)

    def owner(self, path: str) -> SimActor | None:
        """The actor that has the lock of this folder."""
        holders = [actor for actor in self.named.values() if actor.path == path]
        return next((actor for actor in holders if actor.lock is not None), None)

    def kill(self, actor: SimActor) -> int:
        """End it for good. Its name is free at once; its process lives so many ms longer."""
        if self.named.get(actor.log.partition) is actor:
            del self.named[actor.log.partition]
        linger_ms = self._clockwork.some(LINGER_MS)
        self._lingering.append(actor)
        self._clockwork.after(linger_ms, lambda: self._end(actor))
        return linger_ms

    def close(self, actor: SimActor) -> None:
        """End it in order: its log is clean. Raises StorageError, and it lives."""
        actor.disks.leave_line(actor.path, actor.log.topic_id, CLOSED)
        self.vanish(actor)

    def crash(self, actor: SimActor) -> None:
        """It dies by itself; Ray starts another in its place, unless somebody ends that."""
        actor.let_go()
        self._clockwork.soon(lambda: self._restart(actor), most_ms=RESTART_MS)

    def vanish(self, actor: SimActor) -> None:
        """It is gone at once, and for good."""
        if self.named.get(actor.log.partition) is actor:
            del self.named[actor.log.partition]
        self._end(actor)

    def _end(self, actor: SimActor) -> None:
        actor.let_go()
        if actor in self._lingering:
            self._lingering.remove(actor)

    def _restart(self, dead: SimActor) -> None:
        if self.named.get(dead.log.partition) is not dead or dead.is_alive:
            return
        dead.is_alive, dead.is_paused, dead.is_learning = True, False, True
        self._reborn(dead)

    # -- what is asked (``AskedActors``) -----------------------------------------------------------

    def running(self) -> Set[TopicPartition]:
        return self.named.keys()

    def says_all(
        self, partitions: Collection[TopicPartition], timeout_s: float = PATIENCE_MS / 1000
    ) -> Mapping[TopicPartition, LogSays | RaylogError | None]:
        return {partition: self._says(partition, timeout_s) for partition in partitions}

    def _says(self, partition: TopicPartition, timeout_s: float) -> LogSays | RaylogError | None:
        actor = self.named.get(partition)
        if actor is None:
            return None
        if actor.is_paused or not actor.is_alive:
            return RequestTimedOut(str(partition), timeout_s)
        return actor.says()

    def learn(self, order: LogOrder) -> LogSays:
        actor = self.named.get(order.log.partition)
        is_its = actor is not None and actor.log == order.log and actor.is_alive
        if actor is None or not is_its or actor.dir.directory_id != order.directory_id:
            raise NotLeader(str(order.log.partition), "it serves another log, or is gone")
        if actor.is_paused:
            raise RequestTimedOut(str(order.log.partition), PATIENCE_MS / 1000)
        if actor.is_learning:
            self._open(actor)
        if order.config_version >= actor.config_version:
            actor.config, actor.config_version = order.config, order.config_version
        return actor.says()

    def _open(self, actor: SimActor) -> None:
        """Open its log, by an order. Raises why that is refused, and the actor ends."""
        self.await_end(actor.path)
        try:
            actor.own()
        except RaylogError:
            self.vanish(actor)
            raise
        actor.is_learning = False
        self._learned(actor)
