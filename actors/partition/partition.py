"""What a partition does: append, fetch with long poll, flush, retention, compaction's swap, close.

A ``Partition`` puts locks around one ``Log``. Today it is called by the LogActor's Ray methods; a
socket will be the second way in, to this same object. It knows no Ray.

**Locks**, in the order in which they may be taken::

    _purge_lock     removes files of deleted segments
    _old_lock       owns the old segments: retention, compaction's swap, delete_records
    _flush_lock     fsyncs the log
    _append_lock    owns the log's end: append, roll; nothing under it waits for a disk to sync
    log.locks.list  the list of segments, for two assignments
    log.epochs.lock the leader epochs' file; an append takes it only after the disk was full

Readers take none. An append takes ``_append_lock``, and only for the write into the page cache. So
what hangs under the first three delays no append, except its own fsync where the topic asks for
one. A batch is checked (its CRC) before the lock.

**Bounds**: bytes of appends in flight and parked fetches are limited (``bounds.py``); the rest is
refused.

**An ack** means that the batch is in the page cache; once ``flush.messages`` records are unflushed,
it means that the batch is fsynced, and nobody reads it or is woken by it before. Appends that wait
for an fsync share it: the thread that gets ``_flush_lock`` flushes everything written so far, and
the next ones find their records flushed.

**A long poll** waits here, not in the client: ``waiters.py``.

**After a failed fsync** nothing is retried, since the kernel may have dropped the pages: the
partition goes offline, and every call raises StorageError until its disk is repaired and the broker
started again.

**A full disk** takes nothing offline. The partition opens, reads, and its retention makes room.
Appends raise DiskFull; they do so, too, while the file of leader epochs cannot be written
(``storage/state/epochs.py``).
"""

import threading
import time
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from raylog.actors.errors import (
    InternalTopic,
    InvalidRequest,
    NotInTransaction,
    NotLeader,
    TooManyAppends,
)
from raylog.actors.messages import AppendResult, FetchResult, PartitionOffsets, RemovedSegments
from raylog.actors.partition.bounds import IN_FLIGHT_BYTES, PARKED_FETCHES, InFlight
from raylog.actors.partition.meters import Meters, name_of
from raylog.actors.partition.removal import Permit, any_version
from raylog.actors.partition.transaction_end import TransactionEnd
from raylog.actors.partition.verifications import Verifications
from raylog.actors.partition.waiters import Waiters
from raylog.storage.buffers import Buffer
from raylog.storage.cleaner.cleanable import LogFacts, facts_of
from raylog.storage.cleaner.remote import LogView, view_of
from raylog.storage.clock import Clock
from raylog.storage.config import LogConfig
from raylog.storage.errors import (
    CleaningAborted,
    FileGone,
    LogClosed,
    OutOfResources,
    RaylogError,
    StorageError,
    SwapUnfinished,
    UndoFailed,
)
from raylog.storage.indexes.time_index import TimestampOffset
from raylog.storage.indexes.transaction_index import AbortedTransaction
from raylog.storage.log import HIGH_WATERMARK, Log
from raylog.storage.names import INTERNAL_TOPICS
from raylog.storage.readable import COMMITTED, EARLIEST_PENDING_UPLOAD, Isolation, LogRead
from raylog.storage.records.batch import BatchHeader
from raylog.storage.records.control import Marker, encode_marker
from raylog.storage.records.layout import TRANSACTIONAL
from raylog.storage.segment import SegmentId
from raylog.storage.state.epochs import NO_EPOCH
from raylog.storage.state.producers import ProducerExpiration
from raylog.storage.swap import RoundId
from raylog.storage.validation import CLIENT, COORDINATOR, CheckedBatch, Origin, check_append
from raylog.storage.writer import AppendInfo

# Half of what an int32 position can address: no reader needs more in one answer.
MAX_FETCH_BYTES = 1 << 30
# The longest that one fetch may hold its place among the parked.
MAX_WAIT_MS = 300_000
# Clocks may be set: upkeep looks again after this, even if nothing is due for longer.
MAX_REST_S = 3600.0
# Between two slices of producers that are forgotten.
EXPIRY_PAUSE_S = 0.001

Answer = TypeVar("Answer")


class Written(NamedTuple):
    """A batch that is in the log, and may not be on the disk yet."""

    batch: CheckedBatch
    info: AppendInfo
    size_bytes: int
    began_s: float


class Partition:
    """One log, made safe for many callers at once."""

    def __init__(
        self,
        log: Log,
        clock: Clock,
        config_version: int = 0,
        *,
        in_flight_bytes: int = IN_FLIGHT_BYTES,
        parked_fetches: int = PARKED_FETCHES,
    ) -> None:
        """``in_flight_bytes`` and ``parked_fetches`` are limits; see ``bounds.py``."""
        self.log, self._clock, self._config_version = log, clock, config_version
        self._round_version = config_version  # of the config that a round of compaction goes by
        log.epochs.lock = threading.Lock()
        self.leader_epoch = log.epochs.next
        # On a full disk this is written before the first append.
        log.epochs.assign(self.leader_epoch, log.log_end_offset)
        log.locks.use(threading.Lock)
        self._append_lock = log.locks.end
        self._flush_lock = log.locks.flush
        self._old_lock = log.locks.old
        self._purge_lock = threading.Lock()
        self._in_flight = InFlight(str(log.partition), in_flight_bytes)
        self._most_waiters = parked_fetches
        # set when something was asked of the partition since upkeep looked at it
        self._upkeep_wanted = threading.Event()
        self._is_upkeep_wanted = False  # the same, cheaper: to look at an Event is a call
        self.meters = Meters()
        self.waiters = Waiters(str(log.partition), lambda: log.readable_bytes)
        self._offline: RaylogError | None = None
        self.is_closed = False
        self._is_internal = log.partition.topic in INTERNAL_TOPICS
        self.verifications = Verifications()

    # -- append ------------------------------------------------------------------------------------

    def append(self, records: Buffer) -> AppendResult:
        """Append one v2 record batch; returns when it is as durable as the topic asks.

        Raises TooManyAppends, and the errors of ``Log.append``, with nothing written.
        """
        size_bytes = _size_of(records)
        try:
            self._in_flight.enter(size_bytes)
        except TooManyAppends as error:
            self._append_failed(error)
            raise
        try:
            return self.append_admitted(records)
        finally:
            self._in_flight.leave(size_bytes)

    def append_admitted(self, records: Buffer) -> AppendResult:
        """``append``, of a request for whose bytes its caller has room (``plane/room.py``)."""
        return self.settle([self.write_admitted(records)])[0]

    def write_admitted(self, records: Buffer, *, is_own: bool = False) -> Written:
        """Append a batch that ``settle`` makes durable. Raises as ``append``.

        ``is_own``: of the coordinator whose log this is; ``settle_own`` makes it durable.
        """
        began_s = time.perf_counter()
        try:
            if self._is_internal and not is_own:
                raise InternalTopic(self.log.partition.topic)
            batch, info = self._write(records, COORDINATOR if is_own else CLIENT)
        except BaseException as error:
            self._append_failed(error)
            raise
        return Written(batch, info, _size_of(records), began_s)

    def settle(self, written: Sequence[Written]) -> list[AppendResult]:
        """The answers for batches, once they are as durable as the topic asks: with one fsync.

        Raises as ``append``; then the fate of all of them is not known.
        """
        try:
            self._make_durable(max(one.info.last_offset for one in written))
        except BaseException as error:
            for _ in written:
                self._append_failed(error)
            raise
        self.waiters.wake_due()
        now_s = time.perf_counter()
        for one in written:
            self._measure(one, now_s)
        self._ask_for_upkeep()
        # By position: keywords would take 0.8 µs more, a sixth of a small append without a call.
        return [
            AppendResult(
                info.base_offset,
                info.last_offset,
                info.log_append_time,
                info.log_start_offset,
                self.leader_epoch,
                info.is_duplicate,
            )
            for _, info, _, _ in written
        ]

    def write_own(self, records: Buffer) -> AppendInfo:
        """Append a batch of the coordinator whose log this is. Raises as ``append``.

        ``settle_own`` makes it durable.
        """
        written = self.write_admitted(records, is_own=True)
        self._note_own(written)
        return written.info

    def _note_own(self, written: Written) -> None:
        """Nobody may wait for it: where it need not be on the disk, it is readable now."""
        self._measure(written, time.perf_counter())
        self.waiters.wake_due()
        self._ask_for_upkeep()

    def settle_own(self, up_to: int) -> None:
        """Return when what is written below ``up_to`` is as durable as the topic asks.

        Raises StorageError and OutOfResources; then its fate is not known.
        """
        try:
            self._make_durable(up_to - 1)
        except BaseException as error:
            self._append_failed(error)
            raise
        self.waiters.wake_due()

    def _measure(self, written: Written, now_s: float) -> None:
        batch, info, size_bytes, began_s = written
        measured = (now_s - began_s, size_bytes, batch.header.count, info.is_duplicate)
        self.meters.appends.append(measured)

    def _append_failed(self, error: BaseException) -> None:
        self.meters.failed_appends.append(name_of(error))
        self._ask_for_upkeep()

    def _write(self, records: Buffer, origin: Origin) -> tuple[CheckedBatch, AppendInfo]:
        self.check_online()
        now_ms = self._clock.now_ms()
        batch = check_append(records, self.log.config, now_ms, origin)
        with self._append_lock:
            self.check_online()
            if batch.header.attributes & TRANSACTIONAL:
                self._check_transaction(batch.header)
            return batch, self._append_checked(batch, now_ms, origin)

    def _append_checked(self, batch: CheckedBatch, now_ms: int, origin: Origin) -> AppendInfo:
        try:
            return self.log.append_checked(batch, now_ms, self.leader_epoch, origin)
        except StorageError as error:
            self._judge(error, UndoFailed)
            raise

    # -- transactions ------------------------------------------------------------------------------

    def _check_transaction(self, header: BatchHeader) -> None:
        """Raise NotInTransaction for a batch whose transaction may not begin here.

        Nor with this batch, while an earlier one of its producer was refused and is on its way
        (KAFKA-14920): what refused that one is raised again.
        """
        producer_id, epoch = header.producer_id, header.producer_epoch
        if not self.log.needs_verification(header):
            return
        if not self.verifications.allow(producer_id, epoch):
            raise NotInTransaction(str(self.log.partition), producer_id, epoch)
        refusal = self.log.missing_before(header)
        if refusal is not None:
            raise copy(refusal)

    def end_transaction(self, end: TransactionEnd) -> AppendResult:
        """Write the marker of a transaction; returns when it is as durable as the topic asks.

        Raises as ``write_end``.
        """
        return self.settle([self.write_end(end)])[0]

    def write_end(self, end: TransactionEnd, *, is_own: bool = False) -> Written:
        """Write the marker of a transaction; fine if it is there, or if nothing was written.

        A marker that was asked for before the transaction began may be of the one before, which has
        the same epoch in version 1: a coordinator that had no answer has asked again, and this is
        the older copy. It is refused by what is tried again: who still waits for it asks anew.

        ``is_own``: see ``write_admitted``. Raises NotLeader for such a one, InvalidProducerEpoch,
        TransactionCoordinatorFenced, InternalTopic, DiskFull and StorageError.
        """
        if self._is_internal and not is_own:
            raise InternalTopic(self.log.partition.topic)
        began_s = time.perf_counter()
        self.check_online()
        now_ms = self._clock.now_ms()
        marker = Marker(not end.is_commit, end.coordinator_epoch, now_ms)
        records = bytes(
            encode_marker(marker, producer_id=end.producer_id, producer_epoch=end.epoch)
        )
        batch = check_append(records, self.log.config, now_ms, COORDINATOR)
        with self._append_lock:
            self.check_online()
            start = self.log.transaction_start(end.producer_id)
            if start is not None and end.asked_at is not None and end.asked_at <= start:
                raise NotLeader(str(self.log.partition), "the marker is older than the transaction")
            if end.raises_epoch:
                self.log.check_raises_epoch(end.producer_id, end.epoch)
            info = self._append_checked(batch, now_ms, COORDINATOR)
            self.verifications.void(end.producer_id, end.ended_epoch)
        written = Written(batch, info, len(records), began_s)
        if is_own:
            self._note_own(written)
        return written

    def refuse(self, header: BatchHeader, error: RaylogError) -> None:
        """A batch is not taken since nobody says whether it may be: those behind it wait, too."""
        with self._append_lock:
            self.log.refuse(header, error)

    def _make_durable(self, last_offset: int) -> None:
        """Of a duplicate, too: its first copy may wait for an fsync."""
        unflushed = last_offset + 1 - self.log.recovery_point
        is_hidden = last_offset >= self.log.high_watermark  # though upkeep has flushed since
        if is_hidden or unflushed >= self.log.config.flush_messages:
            self.flush(last_offset + 1)

    @property
    def in_flight_bytes(self) -> int:
        """Of appends that are not answered yet."""
        return self._in_flight.size_bytes

    # -- fetch -------------------------------------------------------------------------------------

    def fetch(
        self,
        offset: int,
        max_bytes: int = 1 << 20,
        min_bytes: int = 1,
        max_wait_ms: int = 0,
        *,
        isolation: Isolation = "high_watermark",
        last_fetched_epoch: int = NO_EPOCH,
    ) -> FetchResult:
        """Batches from ``offset`` on, up to about ``max_bytes``; at least one if there is one.

        Waits up to ``max_wait_ms`` until there are ``min_bytes``. ``isolation``: how far the
        reader may see. ``last_fetched_epoch``: see ``ReadableLog.read``; a log that parts from what
        the reader has answers where, at once. Raises OffsetOutOfRange, and TooManyPolls if it had
        to wait and as many fetches as allowed wait already.
        """
        try:
            return self._fetch(
                offset, max_bytes, min_bytes, max_wait_ms, isolation, last_fetched_epoch
            )
        except BaseException as error:
            self.meters.failed_fetches.append(name_of(error))
            raise
        finally:
            self._ask_for_upkeep()

    def read(
        self, offset: int, max_bytes: int, isolation: Isolation, last_fetched_epoch: int
    ) -> LogRead:
        """What is there now: ``ReadableLog.read``, of a partition that is online."""
        began_s = time.perf_counter()
        try:
            self.check_online()
            found = self.log.read(offset, max_bytes, isolation, last_fetched_epoch)
        except BaseException as error:
            self.meters.failed_fetches.append(name_of(error))
            raise
        finally:
            self._ask_for_upkeep()
        self.meters.fetches.append((time.perf_counter() - began_s, found.size_bytes))
        return found

    def _fetch(
        self,
        offset: int,
        max_bytes: int,
        min_bytes: int,
        max_wait_ms: int,
        isolation: Isolation,
        last_fetched_epoch: int,
    ) -> FetchResult:
        began_s = time.perf_counter()
        _check_integers(
            offset=offset,
            max_bytes=max_bytes,
            min_bytes=min_bytes,
            max_wait_ms=max_wait_ms,
            last_fetched_epoch=last_fetched_epoch,
        )
        max_bytes = max(0, min(max_bytes, MAX_FETCH_BYTES))
        min_bytes, max_wait_ms = min(min_bytes, max_bytes), min(max_wait_ms, MAX_WAIT_MS)
        self.check_online()
        seen_bytes = self.log.readable_bytes  # before the read: a later append wakes this fetch
        found = self.log.read(offset, max_bytes, isolation, last_fetched_epoch)
        available = found.size_bytes
        is_behind = available > 0 and found.segment_base != self.log.segments[-1].base_offset
        is_over = is_behind or found.diverging is not None
        if max_wait_ms > 0 and available < max(min_bytes, 1) and not is_over:
            parked_s = time.perf_counter()
            self._wait(seen_bytes + max(min_bytes, 1) - available, max_wait_ms)
            began_s += time.perf_counter() - parked_s
            self.check_online()
            found = self.log.read(offset, max_bytes, isolation, last_fetched_epoch)
        records = None
        if found.size_bytes:
            records = np.frombuffer(found.read(), np.uint8)
        self.meters.fetches.append((time.perf_counter() - began_s, found.size_bytes))
        return FetchResult(
            records=records,
            high_watermark=found.high_watermark,
            log_start_offset=found.log_start_offset,
            end_offset=found.end_offset,
            last_stable_offset=found.last_stable_offset,
            aborted=_marks(found.aborted) if isolation == COMMITTED else None,
            leader_epoch=found.leader_epoch,
            diverging=found.diverging,
        )

    def _wait(self, wanted_bytes: int, max_wait_ms: int) -> None:
        """Park until so many bytes were ever readable, or the time is up. Raises TooManyPolls."""
        woken = threading.Event()
        waiter = self.waiters.add(wanted_bytes, woken.set, most=self._most_waiters)
        if not woken.wait(max_wait_ms / 1000):
            self.waiters.remove(waiter)

    @property
    def waiting(self) -> int:
        """How many wait for bytes."""
        return len(self.waiters)

    # -- the rest ----------------------------------------------------------------------------------

    def offset_for_timestamp(
        self, timestamp: int, isolation: Isolation = "high_watermark"
    ) -> TimestampOffset | None:
        """See :meth:`raylog.storage.log.Log.offset_for_timestamp`."""
        _check_integers(timestamp=timestamp)
        if timestamp < EARLIEST_PENDING_UPLOAD:
            raise InvalidRequest(
                "timestamp",
                timestamp,
                "must be ms since the epoch, or a special value from -6 to -1",
            )
        self.check_online()
        return self.log.offset_for_timestamp(timestamp, isolation)

    def offsets(self) -> PartitionOffsets:
        log = self.log
        return PartitionOffsets(
            log_start_offset=log.log_start_offset,
            recovery_point=log.recovery_point,
            high_watermark=log.high_watermark,
            log_end_offset=log.log_end_offset,
        )

    def flush(self, up_to: int | None = None) -> None:
        """Return when everything below ``up_to`` (default: the log's end) is fsynced."""
        wanted = self.log.log_end_offset if up_to is None else up_to
        with self._flush_lock:
            self.check_online()
            if min(self.log.recovery_point, self.log.high_watermark) < wanted:
                with self.meters.fsync():
                    self._or_offline(self.log.flush)
        self.waiters.wake_due()

    def maintain(self, expiration: ProducerExpiration) -> None:
        """What is due now: flush sealed segments, unlink deleted ones, forget silent producers."""
        # In this order: what is asked in between is looked at below.
        self._upkeep_wanted.clear()
        self._is_upkeep_wanted = False
        if self._offline is not None:
            self._upkeep_wanted.set()  # an offline partition must not rest
            return
        with self._flush_lock:
            if self._offline is not None:
                return  # the fsync failed that had the lock: a second one would succeed, and lie
            self._or_offline(self.log.flush_due)
        self.waiters.wake_due()
        with self._purge_lock:
            if not self.is_closed:
                self.log.purge_deleted()
        self._expire_producers(expiration)
        self._mend_indexes()  # last: a full disk, which it may meet, must not hold up the rest

    def _mend_indexes(self) -> None:
        """Make the indexes again that a reader found lying."""
        if not self.log.wrong_indexes:
            return
        if self.log.segments[-1] in self.log.wrong_indexes:
            self.roll()  # only a sealed segment's can be made again beside appends
        with self._old_lock, self._flush_lock:
            if self._offline is None:
                self._or_offline(self.log.mend_indexes, UndoFailed)

    def _expire_producers(self, expiration: ProducerExpiration) -> None:
        while True:
            with self._append_lock:
                if not self.log.expire_producers(expiration):
                    return
            # Python's locks are not fair: without this a waiting append would not get its turn.
            time.sleep(EXPIRY_PAUSE_S)

    def rest(self, expiration: ProducerExpiration, at_most_s: float = MAX_REST_S) -> None:
        """Return when upkeep may be due: something was asked of the partition, or time passed."""
        self._upkeep_wanted.wait(min(self.rest_s(expiration), at_most_s))

    def rest_s(self, expiration: ProducerExpiration) -> float:
        """How long nothing is due if nothing is asked."""
        if self._offline is not None:
            return MAX_REST_S
        due_ms = self.log.next_due_ms(expiration)
        return min(max((due_ms - self._clock.now_ms()) / 1000, 0.0), MAX_REST_S)

    def _ask_for_upkeep(self) -> None:
        """Have upkeep look at the partition: something was asked of it, which may make work due."""
        if not self._is_upkeep_wanted:
            self._is_upkeep_wanted = True
            self._upkeep_wanted.set()

    def delete_old_segments(self, permit: Permit = any_version) -> RemovedSegments:
        """Remove the segments that retention no longer keeps; returns what was removed.

        ``permit``: see ``removal.py``, here and below. Raises ConfigUnconfirmed.
        """
        begin_s = time.monotonic()
        with self._old_lock:
            self.check_online()
            permit(self._config_version)
            before = self.log.segments
            count = self._or_offline(self.log.delete_old_segments, UndoFailed)
        if count:
            self._ask_for_upkeep()
        size_bytes = sum(segment.size for segment in before[:count])
        return RemovedSegments(count, size_bytes, time.monotonic() - begin_s)

    def delete_records(
        self, before_offset: int = HIGH_WATERMARK, permit: Permit = any_version
    ) -> int:
        """Make records below an offset unreadable; returns the log start offset.

        See ``Log.delete_records``. Raises ConfigUnconfirmed.
        """
        _check_integers(before_offset=before_offset)
        with self._old_lock, self._flush_lock:
            self.check_online()
            permit(self._config_version)
            delete = partial(self.log.delete_records, before_offset)
            return self._or_offline(delete, UndoFailed)

    # -- compaction, which is another process's work -----------------------------------------------

    def cleaning_facts(self) -> LogFacts:
        """What the CompactionActor chooses a log by."""
        self.check_online()
        return facts_of(self.log)

    def cleaning_view(self, permit: Permit = any_version) -> LogView:
        """Begin a round of compaction; returns what it must know.

        No round that began before can swap any more. Raises ConfigUnconfirmed.
        """
        with self._old_lock:
            self.check_online()
            permit(self._config_version)
            round_id = self.log.begin_round()
            self._round_version = self._config_version
        return view_of(self.log, round_id)

    def check_unchanged(self, segments: Sequence[SegmentId], round_id: RoundId) -> None:
        """See ``Log.check_unchanged``. Raises CleaningAborted, too, if the config has changed."""
        self.check_online()
        self._check_round()
        self.log.check_unchanged(segments, round_id)

    def _check_round(self) -> None:
        """Raise CleaningAborted if the round that began last goes by an older config."""
        if self._round_version != self._config_version:
            raise CleaningAborted(
                str(self.log.partition), "the topic's config has changed during the round"
            )

    def replace_segments(
        self, old: Sequence[SegmentId], round_id: RoundId, permit: Permit = any_version
    ) -> None:
        """Put the segment in place that a round has written.

        Raises CleaningAborted or ConfigUnconfirmed with nothing changed.
        """
        with self._old_lock:
            self.check_online()
            if not self.log.config.is_compacted:
                raise CleaningAborted(
                    str(self.log.partition), "cleanup.policy does not contain compact any more"
                )
            self._check_round()
            permit(self._config_version)
            self._or_offline(partial(self.log.replace_segments, old, round_id), SwapUnfinished)
        self._ask_for_upkeep()

    def reconfigure(self, config: LogConfig, version: int) -> int:
        """Obey another config from the next append on, unless a newer ``version`` came before.

        Returns the version that it obeys now. What is being removed under the one before is gone
        when this returns, and nothing more is.
        """
        with self._old_lock, self._append_lock:
            self.check_online()
            if version >= self._config_version:
                self._config_version = version
                self.log.reconfigure(config)
            obeyed = self._config_version
        self._ask_for_upkeep()
        return obeyed

    def roll(self) -> None:
        """Begin a new segment."""
        with self._append_lock:
            self.check_online()
            self._or_offline(self.log.roll, UndoFailed)
        self._ask_for_upkeep()

    def close(self) -> None:
        """Orderly end. Every later call raises StorageError."""
        with self._purge_lock, self._old_lock, self._flush_lock, self._append_lock:
            self.check_online()
            self._or_offline(self.log.close)
            self.is_closed = True
            self._go_offline(LogClosed(self.log.folder))

    # -- offline -----------------------------------------------------------------------------------

    @property
    def is_offline(self) -> bool:
        return self._offline is not None

    def check_online(self) -> None:
        """Raise why the partition is offline, if it is."""
        if self._offline is not None:
            raise copy(self._offline)  # raised itself, it would keep the frames of every call

    def _go_offline(self, error: StorageError) -> None:
        self._offline = error
        self._upkeep_wanted.set()
        self.waiters.end()

    def _or_offline(
        self, work: Callable[[], Answer], on: type[StorageError] = StorageError
    ) -> Answer:
        """Do ``work``; go offline if an error demands it."""
        try:
            return work()
        except StorageError as error:
            self._judge(error, on)
            raise

    def _judge(self, error: StorageError, on: type[StorageError]) -> None:
        """Go offline on an error of the kind ``on``, or of the disk.

        Such an error leaves a log that must not be used again, and so does a file of the log that
        is gone. A shortage of descriptors or of memory changes nothing: the same work may be tried
        again.
        """
        if isinstance(error, OutOfResources):
            return
        if error.is_disk_failure or isinstance(error, on | FileGone):
            self._go_offline(error)

    @property
    def is_stuck(self) -> bool:
        """Whether it is offline for a reason other than a disk; opening the log again fixes it."""
        return self._offline is not None and not self.is_closed and self.disk_failure is None

    @property
    def disk_failure(self) -> StorageError | None:
        """What the disk did to this log, if it did."""
        is_disk = isinstance(self._offline, StorageError) and self._offline.is_disk_failure
        return self._offline if is_disk else None  # type: ignore[return-value]


def _marks(aborted: Sequence[AbortedTransaction]) -> tuple[tuple[int, int], ...]:
    """What a reader needs to know of them, as in Kafka's Fetch answer."""
    return tuple((entry.producer_id, entry.first_offset) for entry in aborted)


def _size_of(records: Buffer) -> int:
    """The bytes of a request; 0 for what is no buffer, which the check of the batch refuses."""
    if type(records) is bytes:
        return len(records)
    try:
        return memoryview(records).nbytes
    except (TypeError, ValueError):
        return 0


def _check_integers(**arguments: int) -> None:
    for name, value in arguments.items():
        if not isinstance(value, int):
            raise InvalidRequest(name, value, "must be an integer")
