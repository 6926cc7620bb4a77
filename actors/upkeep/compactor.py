"""What the CompactionActor does: rounds of compaction over the logs of one node. It knows no Ray.

::

    an order's logs -> facts of the free ones -> the filthiest due, at most one -> compaction
                    -> checkpoint -> retention of all compacted logs that are not compacted now
                    -> nothing was compacted: this thread waits for the next order

Its LogManager orders rounds (:meth:`Compactor.order`). An order that comes while the one before is
worked at replaces its logs. Each of ``log.cleaner.threads`` calls :meth:`Compactor.turn` again and
again, until nothing is left to compact; together they keep to
``log.cleaner.io.max.bytes.per.second``. Compacted logs get their retention only here, after rounds,
as in Kafka: with ``log.cleaner.enable=false`` they get none.

**Who checks what.** Nothing depends on this process being the only one, alive, or right about what
is served. The log's own process refuses a swap whose sources or round are not the current ones. The
LogManager refuses a checkpoint of another topic, and is asked for the right to each removal. But
two compactions of one log would write to the same ``.cleaned`` files, so each holds a lock on its
log dir (``flock`` on the folder itself), which ends with its process. A topic that was deleted and
made again has the same folders, so what runs goes by the partition's name. What is known of a log
is forgotten when another topic has its name, or an order does not name it.

Source: ``LogCleaner.CleanerThread`` of Kafka.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from os.path import dirname
from typing import Protocol

from raylog.actors.control import LogId
from raylog.actors.events import event, warn
from raylog.actors.messages import (
    CompactionRound,
    CompactionStatus,
    RemovedSegments,
    RetentionStatus,
)
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node_messages import UpkeepLog, UpkeepOrder
from raylog.actors.upkeep.orders import RememberedLogs
from raylog.actors.upkeep.retention import RetentionTally
from raylog.storage.cleaner.cleanable import LogFacts, cleanable
from raylog.storage.cleaner.cleaner import Buffers, Cleaned, clean
from raylog.storage.cleaner.remote import LogOwner, LogView, RemoteLog
from raylog.storage.cleaner.schedule import Candidate, CompactionSchedule
from raylog.storage.clock import Clock
from raylog.storage.errors import RaylogError
from raylog.storage.files import FileSystem, Lock
from raylog.storage.names import TopicPartition
from raylog.storage.throttle import Throttle

logger = logging.getLogger(__name__)
# The metrics that count what rounds did, as raylog_compaction_...
_TOTALS = ("rounds", "bytes_read", "bytes_written", "records_dropped", "busy_seconds")


class Node(Protocol):
    """The logs of one node, and the LogManager that writes their checkpoints.

    A method that asks many logs returns an error in the place of an answer.
    """

    def cleaner_offsets(self) -> Mapping[TopicPartition, int]: ...
    def record_cleaner_offset(self, log: LogId, offset: int) -> None: ...
    def facts(
        self, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, LogFacts | Exception]: ...
    def view(self, partition: TopicPartition) -> LogView: ...
    def calls(self, partition: TopicPartition) -> LogOwner: ...
    def delete_old_segments(
        self, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, RemovedSegments | Exception]: ...


class Compactor:
    """See the module's head.

    ``fs``: writes. ``reading``: opens what is compacted. ``lock``: takes a folder's lock, or raises
    LogLocked.
    """

    def __init__(
        self,
        node: Node,
        node_id: str,
        config: BrokerConfig,
        clock: Clock,
        fs: FileSystem,
        reading: FileSystem,
        lock: Callable[[str], Lock],
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._node, self._node_id = node, node_id
        self._clock = clock
        self._fs, self._reading = fs, reading
        self._buffers = Buffers.share(
            threads=max(config.log_cleaner_threads, 1),
            dedupe_bytes=config.log_cleaner_dedupe_buffer_size,
            load_factor=config.log_cleaner_io_buffer_load_factor,
            io_bytes=config.log_cleaner_io_buffer_size,
        )
        self._lock = threading.Lock()  # of all below
        self._schedule = CompactionSchedule[TopicPartition]()
        self._retention = RetentionTally(node_id)
        self._remembered = RememberedLogs()
        self._ordered: dict[TopicPartition, UpkeepLog] = {}  # what may be touched now
        self._done_bytes: dict[TopicPartition, int] = {}  # of the rounds that run
        self._totals = dict.fromkeys(_TOTALS, 0.0)
        # held over its sleep: all threads together keep the rate
        self._throttle_lock = threading.Lock()
        self._throttle = Throttle(config.log_cleaner_io_max_bytes_per_second, now, sleep)
        self._dir_locks = SharedLocks(lock)

    # -- a round -----------------------------------------------------------------------------------

    def order(self, order: UpkeepOrder) -> None:
        """From now on these logs are compacted, and no others."""
        logs = [ordered for ordered in order.logs if ordered.config.is_compacted]
        with self._lock:
            same = self._remembered.update(logs, order.others)
            self._schedule.keep(same)
            self._retention.keep(same)
            self._ordered = {ordered.log.partition: ordered for ordered in logs}

    def turn(self) -> bool:
        """At most one log's compaction, then retention; returns whether a log was compacted."""
        with self._lock:
            ordered = self._ordered
        chosen = self._choose(ordered)
        was_cleaned = chosen is not None and self._compact(ordered[chosen])
        self._delete_old_segments(ordered)
        return was_cleaned

    def _choose(self, ordered: Mapping[TopicPartition, UpkeepLog]) -> TopicPartition | None:
        with self._lock:
            free = self._schedule.states.free(ordered)
        if not free:
            return None
        answers, offsets = self._node.facts(free), self._node.cleaner_offsets()
        candidates = {}
        for partition, answer in answers.items():
            if isinstance(answer, Exception):
                self._handle_failure(ordered[partition], answer)
                continue
            candidate = Candidate(answer, offsets.get(partition), ordered[partition].config)
            candidates[partition] = candidate
            if candidate.corrected_checkpoint is not None:
                self._record_checkpoint(ordered[partition], candidate.corrected_checkpoint)
        with self._lock:
            return self._schedule.begin(candidates, self._clock.now_ms())

    def _compact(self, ordered: UpkeepLog) -> bool:
        """Make the round that has begun over a log; returns whether its end was checkpointed."""
        partition = ordered.log.partition
        try:
            with self._dir_locks.held(dirname(ordered.folder)):
                cleaned = self._clean(partition)
        except Exception as error:
            with self._lock:
                self._schedule.broken_off(partition, error, self._clock.now_ms())
            self._handle_failure(ordered, error)
            return False
        finally:
            self._done_bytes.pop(partition, None)
        now_ms = self._clock.now_ms()
        round_fields = _round_of(now_ms, cleaned)._asdict()
        event(logger, "log-compacted", partition=partition, **round_fields)
        with self._lock:
            may_checkpoint = self._schedule.ended(partition, cleaned, now_ms)
            self._count(cleaned)
        if may_checkpoint:
            self._record_checkpoint(ordered, cleaned.end_offset)
        return may_checkpoint

    def _count(self, cleaned: Cleaned) -> None:
        grown = {
            "rounds": 1,
            "bytes_read": cleaned.map_bytes_read + cleaned.bytes_read,
            "bytes_written": cleaned.bytes_written,
            "records_dropped": cleaned.records_read - cleaned.records_kept,
            "busy_seconds": cleaned.elapsed_ms / 1000,
        }
        for name in _TOTALS:
            self._totals[name] += grown[name]

    def _record_checkpoint(self, ordered: UpkeepLog, offset: int) -> None:
        """Write down where a log's compaction goes on.

        A full disk is no more than a problem to show: retention comes next, and may make room.
        """
        try:
            self._node.record_cleaner_offset(ordered.log, offset)
        except RaylogError as error:
            self._handle_failure(ordered, error)

    def _clean(self, partition: TopicPartition) -> Cleaned:
        view = self._node.view(partition)
        checkpoint, now_ms = self._node.cleaner_offsets().get(partition), self._clock.now_ms()
        section = cleanable(view.facts, checkpoint, view.config, now_ms)
        with closing(RemoteLog(self._reading, view, self._node.calls(partition))) as log:
            return clean(
                self._fs,
                self._clock,
                log,
                section,
                self._buffers,
                pace=partial(self._pace, partition),
            )

    def _pace(self, partition: TopicPartition, size_bytes: int) -> None:
        """Called by a round after every chunk: it counts, gives up, and keeps to the rate."""
        with self._lock:
            self._schedule.states.check(partition)
            self._done_bytes[partition] = self._done_bytes.get(partition, 0) + size_bytes
        with self._throttle_lock:
            self._throttle(size_bytes)

    def _delete_old_segments(self, ordered: Mapping[TopicPartition, UpkeepLog]) -> None:
        with self._lock:
            quiet = [
                partition for partition in ordered if self._schedule.states.is_quiet(partition)
            ]
        answers = self._node.delete_old_segments(quiet) if quiet else {}
        for partition, answer in answers.items():
            with self._lock:
                self._retention.add(partition, answer, self._clock.now_ms())
            if isinstance(answer, Exception):
                self._handle_failure(ordered[partition], answer)

    def _handle_failure(self, ordered: UpkeepLog, error: Exception) -> None:
        """Have the schedule know of an error; log it if it is news."""
        partition = ordered.log.partition
        with self._lock:
            if not self._remembered.is_same(ordered):
                return  # it is gone, or another topic's by now
            is_news = self._schedule.failed(partition, error)
            is_given_up = partition in self._schedule.states.uncleanable
        if is_news:
            name = "log-uncleanable" if is_given_up else "compaction-failed"
            warn(logger, name, trace=is_given_up, partition=partition, why=error)

    # -- what others ask ---------------------------------------------------------------------------

    def status(self) -> list[CompactionStatus]:
        """The status of every compacted log that was looked at."""
        with self._lock:
            seen = {*self._schedule.cleanables, *self._schedule.problems}
            return [self._status_of(partition) for partition in sorted(seen)]

    def _status_of(self, partition: TopicPartition) -> CompactionStatus:
        schedule = self._schedule
        log, last = schedule.cleanables.get(partition), schedule.last_rounds.get(partition)
        return CompactionStatus(
            partition=str(partition),
            node_id=self._node_id,
            dirty_ratio=log.dirty_ratio if log else 0.0,
            first_dirty_offset=log.first_dirty_offset if log else -1,
            bound=log.bound if log else -1,
            overdue_ms=log.overdue_ms if log else 0,
            is_running=not schedule.states.is_quiet(partition),
            done_bytes=self._done_bytes.get(partition, 0),
            uncleanable=schedule.states.uncleanable.get(partition),
            problem=schedule.problems.get(partition),
            last_round=None if last is None else _round_of(*last),
        )

    def numbers(self) -> dict[str, float]:
        """The metrics of a node's compaction, and of the retention of its compacted logs."""
        with self._lock:
            logs, rounds = self._schedule.cleanables.values(), self._schedule.last_rounds.values()
            numbers = {
                **self._totals,
                "max_dirty_ratio": max((log.dirty_ratio for log in logs), default=0.0),
                "lag_seconds": max((log.overdue_ms for log in logs), default=0) / 1000,
                "uncleanable": len(self._schedule.states.uncleanable),
            }
            if rounds:
                numbers["last_round_seconds"] = max(when_ms for when_ms, _ in rounds) / 1000
            removed = self._retention.numbers()
        return {f"raylog_compaction_{name}": value for name, value in numbers.items()} | removed

    def retention(self) -> list[RetentionStatus]:
        """The retention of the compacted logs."""
        with self._lock:
            return self._retention.statuses()


class SharedLocks:
    """Locks on folders, each taken by the first round that needs it and given back by the last."""

    def __init__(self, take: Callable[[str], Lock]) -> None:
        self._take = take
        self._mutex = threading.Lock()
        self._held: dict[str, tuple[Lock, int]] = {}

    @contextmanager
    def held(self, folder: str) -> Iterator[None]:
        """Hold the folder's lock meanwhile. Raises LogLocked."""
        with self._mutex:
            lock, rounds = self._held.get(folder) or (self._take(folder), 0)
            self._held[folder] = (lock, rounds + 1)
        try:
            yield
        finally:
            with self._mutex:
                lock, rounds = self._held.pop(folder)
                if rounds > 1:
                    self._held[folder] = (lock, rounds - 1)
                else:
                    lock.release()


def _round_of(when_ms: int, cleaned: Cleaned) -> CompactionRound:
    return CompactionRound(
        when_ms=when_ms,
        seconds=cleaned.elapsed_ms / 1000,
        end_offset=cleaned.end_offset,
        bytes_before=cleaned.bytes_read,
        bytes_after=cleaned.bytes_written,
        records_read=cleaned.records_read,
        records_dropped=cleaned.records_read - cleaned.records_kept,
        map_utilization=cleaned.map_utilization,
    )
