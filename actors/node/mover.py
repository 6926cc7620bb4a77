"""How a LogManager moves a partition to another of its log dirs, while its LogActor serves it.

::

    source                          target
    orders-0/      --- rounds --->  orders-0.<id>-future/   the LogActor goes on appending
    orders-0/  (closed) --last--->  orders-0.<id>-future/   from here nobody serves
    orders-0/                       orders-0/               equal: the Controller's record decides
    orders-0.<id>-delete/           orders-0/               the target opens, the source goes

The Controller's next ``open_partition`` decides: the dir that it names keeps the partition. A crash
before the rename leaves a ``-future`` folder, which the next start removes. A crash after it leaves
two equal folders; the Controller has the one set aside that its record does not name.
"""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from raylog.actors.errors import MoveRunning, NotLeader
from raylog.actors.events import event
from raylog.actors.messages import PartitionOffsets, Placed
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node.dir_keeper import DirKeeper
from raylog.actors.node.online_dir import OnlineDir
from raylog.actors.partition.locking import lock_patiently
from raylog.actors.runtime.calls import OPEN_TIMEOUT_S
from raylog.actors.runtime.handles import kill
from raylog.actors.runtime.names import log_actor_name
from raylog.actors.runtime.stubs import LogActorStub, find_compaction_actor, find_log_actor
from raylog.storage.clock import SystemClock
from raylog.storage.errors import DiskFull, InvalidLogDir, LogDirOffline
from raylog.storage.mirror import Mirror
from raylog.storage.names import TopicPartition
from raylog.storage.throttle import Throttle

logger = logging.getLogger(__name__)

# The most that is left for the last round, in which the partition does not serve.
SMALL_BYTES = 16 << 20
# Where appends are faster than copies, the rest never gets small, and the last round takes longer.
MAX_ROUNDS = 20
# In a node, and in a broker: each holds a thread of its LogManager, and one of the Controller.
MOVES_AT_ONCE = 4


@dataclass(slots=True)
class Move:
    """A move that has begun and that the Controller has not ended yet."""

    source: OnlineDir
    target: OnlineDir
    folder: str  # of the copy
    is_closing: bool = False  # from now on nobody opens the partition, until the copy is whole
    is_whole: bool = False  # the copy has the partition's name


class Mover(DirKeeper):
    """The part of the LogManager that moves partitions."""

    def __init__(self, namespace: str, config: BrokerConfig) -> None:
        super().__init__(namespace, config)
        self._moves: dict[TopicPartition, Move] = {}
        rate = config.replica_alter_log_dirs_io_max_bytes_per_second
        self._throttle = Throttle(rate, time.monotonic, time.sleep)
        self._throttle_lock = threading.Lock()

    def _check_running(self, what: str) -> None:
        if self._stopped.is_set():
            raise NotLeader(what, "the LogManager of its node is stopping")

    def move(self, partition: TopicPartition, topic_id: str, directory_id: str) -> Placed:
        """Copy a partition to another dir and close it; returns where it is to be opened next.

        Raises MoveRunning, NoRoom, InvalidLogDir, LogDirOffline, NotLeader, StorageError. Then
        nothing is left in the other dir, and the partition is to be opened again where it was.
        """
        begin_s = time.monotonic()
        move = self._begin_move(partition, topic_id, directory_id)
        try:
            mirror = Mirror(
                self._fs,
                SystemClock(),
                move.source.folder(partition),
                move.folder,
                self._pace(move),
            )
            mirror.check_room()
            rounds = self._copy(partition, mirror)
            closing_s = time.monotonic()
            offsets = self._close_for_move(partition, move)
            lock = lock_patiently(lambda: self._fs.lock(move.source.folder(partition)))
            try:
                mirror.round(is_last=True)
            finally:
                lock.release()
            self._adopt(partition, move, offsets)
        except BaseException:
            self._give_up(partition, move)
            raise
        event(
            logger,
            "partition-copied",
            partition=partition,
            source=move.source.log_dir.path,
            target=move.target.log_dir.path,
            rounds=rounds,
            seconds=closing_s - begin_s,
            closed_seconds=time.monotonic() - closing_s,
        )
        return Placed(self._node.node_id, directory_id, move.target.folder(partition))

    def _begin_move(self, partition: TopicPartition, topic_id: str, directory_id: str) -> Move:
        with self._lock:
            self._check_running(str(partition))
            opened = self._dirs.opened.get(partition)
            if opened is None or opened.topic_id != topic_id:
                raise NotLeader(str(partition), "no LogActor serves it")
            if partition in self._moves:
                raise MoveRunning(str(partition), self._moves[partition].target.log_dir.path)
            source, target = self._dirs.online(opened.directory_id), self._dirs.online(directory_id)
            if target.has(partition):
                raise InvalidLogDir(
                    target.folder(partition),
                    "a folder of this partition already exists; move it away",
                )
            move = Move(source, target, target.log_dir.future_folder(partition))
            self._moves[partition] = move
            return move

    def _pace(self, move: Move) -> Callable[[int], None]:
        """What the copy calls after each chunk: it keeps to the rate, except in the last round."""

        def pace(size_bytes: int) -> None:
            self._check_running("a move")
            if not move.is_closing:  # in the last round callers wait for the partition
                with self._throttle_lock:
                    self._throttle(size_bytes)

        return pace

    def _copy(self, partition: TopicPartition, mirror: Mirror) -> int:
        """Copy in rounds until little is left; returns how many rounds it took.

        The log rolls before each, so that the segment that grows meanwhile is small. On a full disk
        it can neither roll nor grow.
        """
        for number in range(1, MAX_ROUNDS + 1):
            with suppress(DiskFull):
                self._log(partition).roll().get()
            if mirror.round() <= SMALL_BYTES:
                return number
        return MAX_ROUNDS

    def _close_for_move(self, partition: TopicPartition, move: Move) -> PartitionOffsets:
        with self._lock:
            self._check_running(str(partition))
            move.is_closing = True
        self._abandon_compaction(partition)
        log = self._log(partition)
        try:
            return log.close().get(OPEN_TIMEOUT_S)
        finally:  # an actor that is half closed must not stay
            kill(log_actor_name(partition), self._namespace)

    def _log(self, partition: TopicPartition) -> LogActorStub:
        log = find_log_actor(partition, self._namespace)
        if log is None:
            raise NotLeader(str(partition), "its LogActor is not running")
        return log

    def _adopt(self, partition: TopicPartition, move: Move, offsets: PartitionOffsets) -> None:
        with self._lock:
            self._check_running(str(partition))
            if self._moves.get(partition) is not move:
                raise NotLeader(str(partition), "it was deleted during the move")
            cleaner_offset = move.source.cleaner_offsets().get(partition)
            target = self._dirs.online(move.target.directory_id)
            with self._dirs.using(target):
                target.adopt(partition, move.folder, offsets.checkpointed(), cleaner_offset)
            move.is_whole = True

    def _give_up(self, partition: TopicPartition, move: Move) -> None:
        with self._lock:
            if self._moves.get(partition) is move:
                del self._moves[partition]
            with suppress(LogDirOffline, InvalidLogDir):
                self._dirs.online(move.target.directory_id).drop_copy(move.folder)

    def _settle_move(self, partition: TopicPartition, directory_id: str) -> None:
        """End the partition's move, if any: the Controller has named the dir that keeps it.

        Raises NotLeader if the copy is not whole yet.
        """
        move = self._moves.get(partition)
        if move is None or not move.is_closing:
            return
        if not move.is_whole:
            raise NotLeader(str(partition), "it is being moved to another log dir")
        del self._moves[partition]
        is_moved = directory_id == move.target.directory_id
        other = move.source if is_moved else move.target
        with suppress(LogDirOffline, InvalidLogDir):
            dir = self._dirs.online(other.directory_id)
            with self._dirs.using(dir):
                dir.delete(partition)

    def _abandon_compaction(self, partition: TopicPartition) -> None:
        """Have the partition's round of compaction given up, whose swap would be refused anyway.

        This saves work; nobody waits for it.
        """
        compaction = find_compaction_actor(self._node.key, self._namespace)
        if compaction is not None:
            compaction.abandon(partition).ignore()
