"""Partition folders that raylog writes for Kafka to read, each with what is in it.

Each function of ``SCENARIOS`` writes one log through ``raylog.storage`` and nothing else, and notes
beside it what it appended: that, and not what raylog reads back, is what Kafka must find. Records
are a week away from any limit: their times begin an hour ago, and the clock moves a second a batch.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from raylog.storage.cleaner.cleanable import Cleanable
from raylog.storage.cleaner.cleaner import Buffers, clean
from raylog.storage.config import LogConfig
from raylog.storage.files import RealFileSystem
from raylog.storage.loader import create_log, open_log
from raylog.storage.log import Log
from raylog.storage.names import TopicPartition
from raylog.storage.records.control import Marker, encode_marker
from raylog.storage.records.encode import Row, encode_records
from raylog.storage.state.properties import random_id
from raylog.storage.testing.clock import ManualClock
from raylog.storage.validation import COORDINATOR
from raylog.storage.writer import AppendInfo

START_MS = time.time_ns() // 1_000_000 - 3_600_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CREATE_TIME, LOG_APPEND_TIME = 0, 1
SMALL_SEGMENT_BYTES = 6000
KEYS = 40


class Seen(NamedTuple):
    """One record as a reader of any kind sees it."""

    offset: int
    timestamp: int
    timestamp_type: int  # 0 CreateTime, 1 LogAppendTime
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass
class Written:
    """A log that is being written, and what is in it."""

    folder: Path
    config: dict[str, Any]
    records: list[Seen] = field(default_factory=list)
    aborted: set[int] = field(default_factory=set)
    last_stable_offset: int = 0
    log_start_offset: int = 0
    log_end_offset: int = 0
    batches: dict[int, bytes] = field(default_factory=dict)  # by base offset, as they were sent

    @property
    def topic(self) -> str:
        return self.folder.name.rpartition("-")[0]

    @property
    def is_compacted(self) -> bool:
        return bool(self.config.get("cleanup_policy") == "compact")

    @property
    def committed(self) -> list[Seen]:
        """What a reader of committed records may see."""
        return [
            record
            for record in self.records
            if record.offset < self.last_stable_offset and record.offset not in self.aborted
        ]


class Rows:
    """Rows to write, one after the other; among them all kinds of null, empty, repeated and
    not-ASCII."""

    def __init__(self, *, with_keys: bool = False) -> None:
        self._with_keys, self._count = with_keys, 0

    def take(self, count: int, now_ms: int) -> list[Row]:
        """The next rows, of about this time."""
        return [self._next(now_ms) for _ in range(count)]

    def _next(self, now_ms: int) -> Row:
        n = self._count
        self._count += 1
        digest = sha256(b"%d" % n)
        key = (
            None
            if n % 7 == 3 and not self._with_keys
            else b"key-%04d" % (digest.digest()[0] % KEYS)
        )
        value: bytes | None = b"value-%06d-" % n + digest.hexdigest()[: n % 9 * 7].encode()
        if n % 11 == 5:
            value = None
        elif n % 11 == 6:
            value = b"" if n % 2 else "grüß-dich-€".encode()
        headers: list[tuple[str, bytes | None]] = []
        if n % 5 == 0:
            headers = [
                ("h", b"\x00\xff"),
                ("h", b"again"),
                ("empty", b""),
                ("nil", None),
                ("übrig", b"x"),
            ]
        return (now_ms + n % 3 * 100, key, value, headers)


class Writer:
    """Appends to one log and notes it. To be closed, which is an orderly stop."""

    def __init__(self, folder: Path, *, with_keys: bool = False, **config: Any) -> None:
        self.clock, self._fs = ManualClock(START_MS), RealFileSystem()
        self.written = Written(folder, config)
        create_log(self._fs, str(folder), random_id())
        self.log = self._open(is_clean=True)
        self._rows = Rows(with_keys=with_keys)
        self._open_transactions: dict[int, list[int]] = {}
        self._sequences: dict[int, int] = {}

    def _open(self, *, is_clean: bool) -> Log:
        log = open_log(
            self._fs,
            self.clock,
            str(self.written.folder),
            TopicPartition(self.written.topic, 0),
            LogConfig(**self.written.config),
            is_clean=is_clean,
            log_start_offset=self.written.log_start_offset,
        )
        log.epochs.assign(log.epochs.latest + 1, log.log_end_offset)
        return log

    def reopen(self, *, is_clean: bool = True) -> None:
        """Open the log again, which begins a leader epoch. If not ``is_clean``, it was not closed
        before."""
        if is_clean:
            self.log.close()
        self.log = self._open(is_clean=is_clean)

    def send(
        self,
        count: int = 20,
        *,
        producer: int | None = None,
        epoch: int = 0,
        sequence: int | None = None,
        transactional: bool = False,
        **fields: Any,
    ) -> AppendInfo:
        """Append one batch. A producer's sequence goes on by itself; ``fields`` as of
        ``encode_records``."""
        sent = self._rows.take(count, self.clock.ms)
        if producer is not None:
            first = self._sequences.get(producer, 0) if sequence is None else sequence
            fields |= {"producer_id": producer, "producer_epoch": epoch, "base_sequence": first}
            self._sequences[producer] = (first + len(sent)) % 2**31
        batch = bytes(encode_records(sent, transactional=transactional, **fields))
        info = self.log.append(batch, self.log.epochs.latest)
        self.clock.advance(1000)
        if info.is_duplicate:
            return info
        self.written.batches[info.base_offset] = batch
        self._note(sent, info)
        if transactional:
            assert producer is not None
            self._open_transactions.setdefault(producer, []).extend(
                range(info.base_offset, info.last_offset + 1)
            )
        return info

    def _note(self, rows: list[Row], info: AppendInfo) -> None:
        is_create_time = info.log_append_time < 0
        self.written.records += [
            Seen(
                info.base_offset + n,
                timestamp if is_create_time else info.log_append_time,
                CREATE_TIME if is_create_time else LOG_APPEND_TIME,
                key,
                value,
                tuple(headers),
            )
            for n, (timestamp, key, value, headers) in enumerate(rows)
        ]

    def end(
        self, producer: int, *, abort: bool = False, epoch: int = 0, coordinator_epoch: int = 3
    ) -> None:
        """Write the marker that ends a producer's transaction, as its coordinator does."""
        marker = Marker(abort, coordinator_epoch, self.clock.ms)
        content = encode_marker(marker, producer_id=producer, producer_epoch=epoch)
        self.log.append(content, self.log.epochs.latest, COORDINATOR)
        self.clock.advance(1000)
        if abort:
            self.written.aborted.update(self._open_transactions[producer])
        self._open_transactions.pop(producer)

    def truncate_to(self, offset: int) -> None:
        """Cut the log back. ``offset`` is the first of a batch."""
        assert self.log.truncate_to(offset)
        assert self.log.log_end_offset == offset
        self.written.records = [record for record in self.written.records if record.offset < offset]

    def compact(self) -> None:
        """One round over all sealed segments: of what is not aborted there, the last record of each
        key stays."""
        bound = self.log.segments[-1].base_offset
        assert bound > 0
        clean(
            self._fs,
            self.clock,
            self.log,
            Cleanable(0, bound, 0, 1),
            Buffers(1 << 20, 0.9, 1 << 16),
        )
        sealed = [
            record
            for record in self.written.records
            if record.offset < bound and record.offset not in self.written.aborted
        ]
        last = {record.key: record.offset for record in sealed}
        kept = set(last.values())
        self.written.records = [
            record
            for record in self.written.records
            if record.offset >= bound or record.offset in kept
        ]

    def close(self) -> Written:
        """Close the log in order. What was written."""
        opened = [offset for offsets in self._open_transactions.values() for offset in offsets]
        end = self.log.log_end_offset
        start = self.log.log_start_offset
        self.written.last_stable_offset = min(opened, default=end)
        self.written.log_start_offset, self.written.log_end_offset = start, end
        self.written.records = [record for record in self.written.records if record.offset >= start]
        self.log.close()
        return self.written


def _codec(name: str, folder: Path) -> Written:
    """Several segments of one codec; a batch of one record, and one of a hundred."""
    writer = Writer(folder, segment_bytes=SMALL_SEGMENT_BYTES, index_interval_bytes=500)
    for count in (20, 1, 80, *(20,) * 20):
        writer.send(count, compression_type=name)
    assert len(writer.log.segments) > 1
    return writer.close()


def _idempotent(folder: Path) -> Written:
    """Producers that interleave, repeat themselves, take a new epoch and wrap their sequence."""
    writer = Writer(folder, segment_bytes=SMALL_SEGMENT_BYTES)
    for n in range(6):
        writer.send(10, producer=4000)
        writer.send(5, producer=4001, compression_type=CODECS[n % 5])
    *_, last = writer.written.batches.values()
    assert writer.log.append(last).is_duplicate
    writer.send(10, producer=4000, epoch=1, sequence=0)
    writer.send(10, producer=4002, sequence=2**31 - 5)
    writer.send(10, producer=4002)
    writer.send(10)
    return writer.close()


def _transactions(folder: Path) -> Written:
    """Committed and aborted ones, interleaved, over several segments, with other records between
    them."""
    writer = Writer(folder, segment_bytes=SMALL_SEGMENT_BYTES)
    for n in range(5):
        writer.send(10, producer=5000, transactional=True, compression_type=CODECS[n])
        writer.send(10, producer=5001, transactional=True)
        writer.send(7)
        writer.end(5001, abort=n % 2 == 0)
        writer.send(10, producer=5000, transactional=True)
        writer.send(3, producer=5002, transactional=True)
        writer.end(5000, abort=n % 2 == 1)
        writer.send(3, producer=5002, transactional=True)
        writer.end(5002, abort=n == 3)
    assert len(writer.log.segments) > 2
    return writer.close()


def _open_transaction(folder: Path) -> Written:
    """One that nobody has ended: readers of committed records stop before it."""
    writer = Writer(folder)
    writer.send(10, producer=6000, transactional=True)
    writer.end(6000, abort=True)
    writer.send(10)
    writer.send(10, producer=6000, transactional=True)
    writer.send(10)
    return writer.close()


def _append_time(folder: Path) -> Written:
    """The log's own clock stamps the records."""
    writer = Writer(
        folder, message_timestamp_type="LogAppendTime", segment_bytes=SMALL_SEGMENT_BYTES
    )
    for n in range(15):
        writer.send(20, compression_type=CODECS[n % 5])
    return writer.close()


def _recompressed(folder: Path) -> Written:
    """The topic's codec, whatever the producer's."""
    writer = Writer(folder, compression_type="zstd", segment_bytes=SMALL_SEGMENT_BYTES)
    for n in range(15):
        writer.send(20, compression_type=CODECS[n % 5])
    return writer.close()


def _epochs(folder: Path) -> Written:
    """A leader epoch for each opening, the last after a crash."""
    writer = Writer(folder, segment_bytes=SMALL_SEGMENT_BYTES)
    writer.send(50, producer=7000)
    writer.reopen()
    writer.send(50, producer=7000)
    writer.reopen(is_clean=False)
    writer.send(50, producer=7000)
    assert [epoch for epoch, _ in writer.log.epochs.entries] == [0, 1, 2]
    return writer.close()


def _truncated(folder: Path) -> Written:
    """The end was cut off, in another segment than the last, and written anew."""
    writer = Writer(folder, segment_bytes=SMALL_SEGMENT_BYTES, index_interval_bytes=500)
    for _ in range(20):
        writer.send(20, producer=8000)
    segments = len(writer.log.segments)
    writer.truncate_to(220)
    assert len(writer.log.segments) < segments
    for _ in range(3):
        writer.send(20, producer=8001)
    return writer.close()


def _retention(folder: Path) -> Written:
    """Old segments are gone, and some records of the first that is left."""
    writer = Writer(
        folder,
        segment_bytes=SMALL_SEGMENT_BYTES,
        retention_bytes=SMALL_SEGMENT_BYTES,
        file_delete_delay_ms=0,
    )
    for _ in range(20):
        writer.send(20, producer=9000)
    assert writer.log.delete_old_segments() > 0
    writer.log.purge_deleted()
    base = writer.log.segments[0].base_offset
    assert writer.log.delete_records(base + 7) == base + 7
    return writer.close()


def _empty(folder: Path) -> Written:
    """Nothing was ever written."""
    return Writer(folder).close()


def _emptied(folder: Path) -> Written:
    """All was deleted: the log goes on at its end."""
    writer = Writer(folder, retention_ms=60_000, file_delete_delay_ms=0)
    writer.send(20)
    writer.clock.advance(10 * 60_000)
    assert writer.log.delete_old_segments() == 1
    writer.log.purge_deleted()
    return writer.close()


def _compacted(folder: Path) -> Written:
    """Forty keys in hundreds of records of every codec, tombstones among them; two rounds."""
    writer = Writer(
        folder, with_keys=True, segment_bytes=SMALL_SEGMENT_BYTES, cleanup_policy="compact"
    )
    for n in range(25):
        writer.send(20, compression_type=CODECS[n % 5])
    writer.compact()
    for n in range(25):
        writer.send(20, compression_type=CODECS[n % 5])
    writer.compact()
    assert len(writer.written.records) < 250
    return writer.close()


def _compacted_transactions(folder: Path) -> Written:
    """What was aborted is gone; markers, and the last batch of each producer, are not."""
    writer = Writer(
        folder, with_keys=True, segment_bytes=SMALL_SEGMENT_BYTES, cleanup_policy="compact"
    )
    for n in range(20):
        writer.send(10, producer=5500, transactional=True)
        writer.send(10, producer=5501, transactional=True)
        writer.end(5500, abort=n % 2 == 0)
        writer.end(5501, abort=n % 3 == 0)
    writer.log.roll()
    writer.compact()
    assert len(writer.written.records) < 300
    return writer.close()


def _dense_index(folder: Path) -> Written:
    """An index entry a batch, in one segment of a few hundred."""
    writer = Writer(folder, index_interval_bytes=0)
    for _ in range(300):
        writer.send(3, compression_type="lz4")
    return writer.close()


Scenario = Callable[[Path], Written]
SCENARIOS: Mapping[str, Scenario] = {
    **{f"codec-{name}": partial(_codec, name) for name in CODECS},
    "idempotent": _idempotent,
    "transactions": _transactions,
    "open-transaction": _open_transaction,
    "append-time": _append_time,
    "recompressed": _recompressed,
    "epochs": _epochs,
    "truncated": _truncated,
    "retention": _retention,
    "compacted": _compacted,
    "compacted-transactions": _compacted_transactions,
    "empty": _empty,
    "emptied": _emptied,
    "dense-index": _dense_index,
}


def write_all(root: Path) -> dict[str, Written]:
    """Every scenario, each in its own folder ``<name>-0``."""
    return {name: scenario(root / f"{name}-0") for name, scenario in SCENARIOS.items()}
