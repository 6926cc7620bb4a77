"""What a log remembers of its producers, so that a batch sent twice is written once.

For each producer id: its epoch and its last five batches by sequence. A batch that repeats one of
the five is a duplicate and is answered with the offsets it got the first time; one that follows the
last is taken; any other is out of order. Sequences count records, are int32 and wrap from 2^31-1 to
0.

At a roll and at close the state is written to ``<next offset>.snapshot``, one batch a producer,
big-endian::

    int16 version = 1 | uint32 crc32c of all that follows | int32 entries | entries of 46 bytes:
    int64 producer id, int16 epoch, int32 last sequence, int64 last offset, int32 offset delta,
    int64 timestamp, int32 coordinator epoch, int64 first offset of the open transaction (-1: none)

A transaction is open from its producer's first transactional batch to its marker, which a
coordinator writes. The first offset of the oldest open one is where readers of committed records
must stop.

Source: ``ProducerStateManager`` and ``ProducerAppendInfo`` of Kafka; KIP-98, KIP-360.
"""

import os
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from raylog.storage.errors import (
    CorruptCheckpoint,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTxnState,
    OutOfOrderSequence,
    StorageError,
    TransactionCoordinatorFenced,
)
from raylog.storage.files import FileSystem
from raylog.storage.indexes.transaction_index import AbortedTransaction
from raylog.storage.limits import MAX_LONG
from raylog.storage.names import SNAPSHOT_SUFFIX, offset_of, segment_file
from raylog.storage.records.batch import BatchHeader, increment_sequence
from raylog.storage.records.control import Marker
from raylog.storage.records.layout import MAX_SEQUENCE
from raylog.storage.wire import message

# Kafka keeps five, because its producers have at most five requests in flight.
CACHED_BATCHES = 5
NO_PRODUCER = -1
NEVER_MS = MAX_LONG
# One call under the lock of appends: 1,000 take about half a millisecond.
EXPIRED_AT_ONCE = 1000

_HEAD = Struct(">hIi")
_ENTRY = Struct(">qhiqiqiq")
_VERSION = 1


class CachedBatch(NamedTuple):
    """One written batch, by sequence and offset."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        last, delta = self.last_sequence, self.offset_delta
        return last - delta if last >= delta else MAX_SEQUENCE - (delta - last) + 1


# of a producer whose last batch is not known
_NO_BATCH = CachedBatch(last_sequence=-1, last_offset=-1, offset_delta=0, timestamp=-1)


class _SnapshotEntry(NamedTuple):
    """A producer in a snapshot file, field by field; ``_ENTRY`` is its format."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    transaction_start: int


class LastRecord(NamedTuple):
    """Where a producer stands: compaction keeps the batch that tells it."""

    offset: int  # of its last record, -1 if only its marker is known
    epoch: int


class ProducerStanding(NamedTuple):
    """A producer as its log knows it; -1 for what is not known, or is not."""

    producer_id: int
    epoch: int
    last_sequence: int
    timestamp: int  # ms, of its last batch or marker
    coordinator_epoch: int
    transaction_start: int  # the first offset of its open transaction


@dataclass(slots=True)
class ProducerState:
    """What is known of one producer id."""

    epoch: int = -1
    # When it last wrote, by the broker's clock: this expires. Its records may be of any age.
    seen_ms: int = 0
    batches: deque[CachedBatch] = field(default_factory=lambda: deque(maxlen=CACHED_BATCHES))
    timestamp: int = -1
    coordinator_epoch: int = -1
    transaction_start: int = -1

    def duplicate_of(self, header: BatchHeader) -> CachedBatch | None:
        """The cached batch that ``header`` repeats."""
        if header.producer_epoch != self.epoch:
            return None
        last = header.last_sequence
        for batch in self.batches:
            if batch.last_sequence == last and batch.first_sequence == header.base_sequence:
                return batch
        return None

    @property
    def last_batch(self) -> CachedBatch:
        """The last one that is known. Any thread may ask: a new epoch may drop them meanwhile."""
        batches = self.batches.copy()
        return batches[-1] if batches else _NO_BATCH

    def end(self, header: BatchHeader, marker: Marker) -> None:
        """Remember the end of its transaction."""
        self._take_epoch(header.producer_epoch)
        self.timestamp, self.coordinator_epoch = marker.timestamp, marker.coordinator_epoch
        self.transaction_start = -1

    def _take_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()

    def add(self, header: BatchHeader, base_offset: int) -> None:
        """Remember a batch that was written at ``base_offset``."""
        self._take_epoch(header.producer_epoch)
        self.timestamp = header.max_timestamp
        last_offset = base_offset + header.last_offset_delta
        self.batches.append(
            CachedBatch(
                last_sequence=header.last_sequence,
                last_offset=last_offset,
                offset_delta=header.last_offset_delta,
                timestamp=header.max_timestamp,
            )
        )
        if header.is_transactional and self.transaction_start < 0:
            self.transaction_start = base_offset


@message
class ProducerExpiration(NamedTuple):
    """When producers are forgotten: Kafka's ``producer.id.expiration.*``."""

    after_ms: int  # without a write
    check_interval_ms: int = 0  # from the end of one look at all to the next


class ProducerStates:
    """The producers of one log, up to ``end_offset``.

    They stand in the order of their last writes, so that the silent ones are at the head.
    """

    def __init__(self, partition: str) -> None:
        self._partition = partition
        self._producers: OrderedDict[int, ProducerState] = OrderedDict()
        # Of those that may expire, none wrote last before this. Any thread may ask.
        self.oldest_ms = NEVER_MS
        # producer id -> first offset of its open transaction, oldest first
        self._open: dict[int, int] = {}
        self.first_unstable_offset: int | None = None  # where the oldest open transaction begins
        self.end_offset = 0
        self._snapshot_offset = 0

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> ProducerState | None:
        """What is known of a producer."""
        return self._producers.get(producer_id)

    @property
    def open_transactions(self) -> Mapping[int, int]:
        """The first offset of each open transaction, by producer id."""
        return self._open

    def borrow(self, producer_id: int, others: "ProducerStates") -> None:
        """Take what others know of a producer, unless it is known here. Theirs does not change."""
        theirs = others.get(producer_id)
        if theirs is not None and producer_id not in self._producers:
            self._producers[producer_id] = replace(theirs, batches=theirs.batches.copy())

    def recall(self, earlier: "ProducerStates") -> None:
        """Know the batches before each producer's last one that others have read, up to that."""
        for producer_id, state in self._producers.items():
            theirs = earlier.get(producer_id)
            if theirs is not None and theirs.last_batch.last_offset == state.last_batch.last_offset:
                state.batches = theirs.batches

    def check(
        self, header: BatchHeader, marker: Marker | None = None, *, is_client: bool = True
    ) -> CachedBatch | None:
        """The batch that ``header`` repeats, or None if it may be written; raises if it may not.

        ``marker``: of a control batch. The coordinators' own batches (offset commits) have no
        sequence to check.
        """
        if marker is not None:
            self._check_marker(header, marker)
            return None
        producer = self._producers.get(header.producer_id)
        if is_client and header.base_sequence < 0:
            raise InvalidRecord(
                f"{self._partition}: a batch with a producer id needs a base sequence of 0 or more"
            )
        if producer is None:
            return None
        self._check_epoch(producer, header)
        duplicate = producer.duplicate_of(header) if is_client else None
        if duplicate is not None:
            return duplicate
        if is_client:
            self._check_sequence(producer, header)
        if producer.transaction_start >= 0 and not header.is_transactional:
            raise InvalidTxnState(self._partition, header.producer_id, producer.transaction_start)
        return None

    def _check_marker(self, header: BatchHeader, marker: Marker) -> None:
        """Raise unless this marker may be written.

        It may if nobody has taken over from its producer or its coordinator.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return
        self._check_epoch(producer, header)
        if marker.coordinator_epoch < producer.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                self._partition, producer.coordinator_epoch, marker.coordinator_epoch
            )

    def needs_verification(self, header: BatchHeader) -> bool:
        """Whether a transactional batch would begin a transaction here.

        Then its coordinator must have said that the partition is in it (KIP-890). One that repeats
        a batch, or has an old epoch, begins nothing.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return True
        if header.producer_epoch < producer.epoch or producer.duplicate_of(header) is not None:
            return False
        return producer.transaction_start < 0 or header.producer_epoch != producer.epoch

    def check_raises_epoch(self, producer_id: int, marker_epoch: int) -> None:
        """Raise InvalidProducerEpoch for a marker that has the epoch of the open transaction.

        Where each end raises the epoch it comes late: it was for a transaction before this one.
        """
        producer = self._producers.get(producer_id)
        if producer is None or producer.transaction_start < 0:
            return
        if marker_epoch == producer.epoch:
            raise InvalidProducerEpoch(
                self._partition, producer_id, producer.epoch + 1, marker_epoch
            )

    def _check_epoch(self, producer: ProducerState, header: BatchHeader) -> None:
        if header.producer_epoch < producer.epoch:
            raise InvalidProducerEpoch(
                self._partition, header.producer_id, producer.epoch, header.producer_epoch
            )

    def _check_sequence(self, producer: ProducerState, header: BatchHeader) -> None:
        if producer.epoch == -1:
            return
        fresh = header.producer_epoch != producer.epoch or not producer.batches
        expected = 0 if fresh else increment_sequence(producer.batches[-1].last_sequence, 1)
        if header.base_sequence != expected:
            raise OutOfOrderSequence(
                self._partition, header.producer_id, expected, header.base_sequence
            )

    def aborted_by(
        self, header: BatchHeader, marker: Marker, offset: int
    ) -> AbortedTransaction | None:
        """The transaction that this marker, at ``offset``, aborts.

        None if it commits, or if nothing was open.
        """
        first = self._open.get(header.producer_id)
        if first is None or not marker.is_abort:
            return None
        others = (
            start for producer_id, start in self._open.items() if producer_id != header.producer_id
        )
        return AbortedTransaction(
            producer_id=header.producer_id,
            first_offset=first,
            last_offset=offset,
            last_stable_offset=min(others, default=offset + 1),
        )

    def add(
        self, header: BatchHeader, base_offset: int, now_ms: int, marker: Marker | None = None
    ) -> None:
        """A batch was written at ``base_offset``; a control batch with its ``marker``."""
        self.end_offset = base_offset + header.last_offset_delta + 1
        producer_id = header.producer_id
        if producer_id == NO_PRODUCER or (header.is_control and marker is None):
            return
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = ProducerState()
            self.oldest_ms = min(self.oldest_ms, now_ms)
        else:
            self._producers.move_to_end(producer_id)
        producer.seen_ms = now_ms
        if marker is not None:
            producer.end(header, marker)
            self._open.pop(producer_id, None)
            self._see_oldest()
            return
        producer.add(header, base_offset)
        if producer.transaction_start >= 0:
            self._open.setdefault(producer_id, producer.transaction_start)
            self._see_oldest()

    def _see_oldest(self) -> None:
        """For readers, who must not look into a dict that changes."""
        self.first_unstable_offset = next(iter(self._open.values()), None)

    def expire(self, now_ms: int, expiration_ms: int) -> bool:
        """Forget producers that wrote nothing for ``expiration_ms``, but not too many at once.

        Returns whether more may be due.

        By the time of writing, where Kafka takes the records' own: a producer of old records would
        be forgotten at once, and its next retry be written twice.
        """
        for _ in range(EXPIRED_AT_ONCE):
            producer_id, producer = next(iter(self._producers.items()), (NO_PRODUCER, None))
            self.oldest_ms = NEVER_MS if producer is None else producer.seen_ms
            if producer is None or now_ms - producer.seen_ms < expiration_ms:
                return False
            if producer.transaction_start < 0:
                del self._producers[producer_id]
            else:
                # It stays. Its marker will count as a write; until then it must not be in the way.
                producer.seen_ms = now_ms
                self._producers.move_to_end(producer_id)
        return True

    def last_records(self) -> dict[int, LastRecord]:
        """By producer id, where each one stands."""
        return {
            producer_id: LastRecord(state.last_batch.last_offset, state.epoch)
            for producer_id, state in self._copied()
        }

    def standings(self) -> list[ProducerStanding]:
        """Each producer. Any thread may ask; of one that is writing the fields may not fit."""
        return [
            ProducerStanding(
                producer_id=producer_id,
                epoch=state.epoch,
                last_sequence=state.last_batch.last_sequence,
                timestamp=state.timestamp,
                coordinator_epoch=state.coordinator_epoch,
                transaction_start=state.transaction_start,
            )
            for producer_id, state in self._copied()
        ]

    def _copied(self) -> Iterable[tuple[int, ProducerState]]:
        return dict.copy(self._producers).items()  # in one step: appends go on meanwhile

    # -- snapshots ---------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """The snapshot file's bytes."""
        entries = b"".join(_encode_entry(*item) for item in self._producers.items())
        body = len(self._producers).to_bytes(4, "big") + entries
        return _VERSION.to_bytes(2, "big") + crc32c(body).to_bytes(4, "big") + body

    def decode(self, path: str, content: bytes, end_offset: int, now_ms: int) -> None:
        """Take the state of a snapshot file, or raise CorruptCheckpoint."""
        self._take(decode_snapshot(path, content, now_ms), end_offset, now_ms)

    def _take(self, producers: dict[int, ProducerState], end_offset: int, now_ms: int) -> None:
        self._producers = OrderedDict(producers)
        self.oldest_ms = now_ms if self._producers else NEVER_MS
        starts = [(producer.transaction_start, key) for key, producer in self._producers.items()]
        self._open = {key: start for start, key in sorted(starts) if start >= 0}
        self._see_oldest()
        self.end_offset = self._snapshot_offset = end_offset

    def write_snapshot(self, fs: FileSystem, folder: str) -> str | None:
        """Write ``<end offset>.snapshot``; returns its path, None if it is there already.

        It is written in place, and not flushed: its CRC shows whether it is whole.
        """
        if self.end_offset <= self._snapshot_offset:
            return None
        path = os.path.join(folder, segment_file(self.end_offset, SNAPSHOT_SUFFIX))
        try:
            fs.write_file(path, self.encode(), flush=False)
        except StorageError:
            fs.remove(path)
            raise
        self._snapshot_offset = self.end_offset
        return path

    def load_newest(
        self, fs: FileSystem, folder: str, up_to: int, now_ms: int, lowest: int = 0
    ) -> None:
        """Take the newest snapshot from ``lowest`` to ``up_to`` that can be read.

        Without one no producer is known, and the end offset is 0. Snapshots that cannot be read are
        removed.
        """
        self._take({}, 0, now_ms)
        names = [name for name in fs.list_dir(folder) if name.endswith(SNAPSHOT_SUFFIX)]
        for name in reversed(names):
            offset, path = offset_of(name), os.path.join(folder, name)
            if offset is None or not lowest <= offset <= up_to:
                continue
            try:
                return self.decode(path, fs.read_file(path), offset, now_ms)
            except CorruptCheckpoint:
                fs.remove(path)
        return None


def decode_snapshot(path: str, content: bytes, now_ms: int = 0) -> dict[int, ProducerState]:
    """The producers in a snapshot file's bytes, by id, in its order. Raises CorruptCheckpoint."""
    if len(content) < _HEAD.size:
        raise CorruptCheckpoint(path, f"{len(content)} bytes are too few for a producer snapshot")
    version, crc, count = _HEAD.unpack_from(content)
    if version != _VERSION or crc32c(content[6:]) != crc:
        raise CorruptCheckpoint(
            path, f"the version ({version}) or the CRC of this producer snapshot is wrong"
        )
    if len(content) != _HEAD.size + count * _ENTRY.size:
        raise CorruptCheckpoint(
            path, f"{len(content)} bytes are the wrong size for {count} producers"
        )
    entries = map(_SnapshotEntry._make, _ENTRY.iter_unpack(content[_HEAD.size :]))
    return dict(_decode_entry(entry, now_ms) for entry in entries)


def _encode_entry(producer_id: int, producer: ProducerState) -> bytes:
    last = producer.batches[-1] if producer.batches else _NO_BATCH
    entry = _SnapshotEntry(
        producer_id=producer_id,
        epoch=producer.epoch,
        last_sequence=last.last_sequence,
        last_offset=last.last_offset,
        offset_delta=last.offset_delta,
        timestamp=producer.timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        transaction_start=producer.transaction_start,
    )
    return _ENTRY.pack(*entry)


def _decode_entry(entry: _SnapshotEntry, now_ms: int) -> tuple[int, ProducerState]:
    producer = ProducerState(
        entry.epoch,
        now_ms,
        timestamp=entry.timestamp,
        coordinator_epoch=entry.coordinator_epoch,
    )
    producer.transaction_start = entry.transaction_start
    if entry.last_offset >= 0:
        last = CachedBatch(
            last_sequence=entry.last_sequence,
            last_offset=entry.last_offset,
            offset_delta=entry.offset_delta,
            timestamp=entry.timestamp,
        )
        producer.batches.append(last)
    return entry.producer_id, producer
