"""Batches and logs for tests: what to append, where, and what is in it afterwards."""

from collections.abc import Callable
from typing import Any

from raylog.storage.config import LogConfig
from raylog.storage.loader import create_log, open_log
from raylog.storage.log import Log
from raylog.storage.names import TopicPartition
from raylog.storage.records.batch import empty_batch, iter_batches, read_header
from raylog.storage.records.decode import decode_records
from raylog.storage.records.encode import encode_records
from raylog.storage.records.layout import AT_ATTRIBUTES, LOG_APPEND_TIME
from raylog.storage.records.record import Record
from raylog.storage.testing.clock import T0, ManualClock
from raylog.storage.testing.memory import MemoryFileSystem

FOLDER = "/logs/orders-0"
PARTITION = TopicPartition("orders", 0)
TOPIC_ID = "5eGdu6PVSRS-s9xHKXlyPg"


def batch(
    count: int = 1, *, timestamp: int = T0, step_ms: int = 0, value: bytes = b"v", **fields: Any
) -> bytearray:
    """One batch of ``count`` records, ``step_ms`` apart; ``fields`` as of ``encode_records``."""
    return encode_records(
        [(timestamp + n * step_ms, None, value, ()) for n in range(count)], **fields
    )


def batch_of_size(size_bytes: int, count: int = 1, timestamp: int = T0) -> bytearray:
    """A batch of exactly this many bytes.

    Raises ValueError where no batch of ``count`` records has this size: a length that needs one
    more byte makes a batch two bytes larger than the next smaller one.
    """
    rows = [(timestamp, None, b"", ())] * (count - 1)
    filling = size_bytes - len(encode_records([*rows, (timestamp, None, b"", ())]))
    # A longer value makes two lengths of 1 to 5 bytes longer.
    for length in range(filling, max(filling - 9, -1), -1):
        made = encode_records([*rows, (timestamp, None, b"x" * length, ())])
        if len(made) == size_bytes:
            return made
    raise ValueError(f"no batch of {count} records has {size_bytes} bytes")


def of_producer(
    sequence: int, count: int = 1, *, producer: int = 7, epoch: int = 0, **fields: Any
) -> bytearray:
    """A batch of an idempotent producer."""
    return batch(
        count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, **fields
    )


def encoded_again(batch: bytes) -> bytearray:
    """A v2 batch without a codec, encoded again from its records alone.

    Timestamps and offsets are the records', the producer is the header's.
    """
    header = read_header(batch)
    if not header.count:
        return empty_batch(header)
    as_created = bytearray(batch)
    as_created[
        AT_ATTRIBUTES + 1
    ] &= ~LOG_APPEND_TIME  # under it a reader cannot see the timestamps that were sent
    records = decode_records(as_created, check_crc=False, control=True)
    return encode_records(
        [record[1:] for record in records],
        offsets=[record.offset for record in records],
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        control=header.is_control,
        log_append_time=header.max_timestamp if header.timestamp_type == "LogAppendTime" else None,
        delete_horizon_ms=header.delete_horizon_ms,
    )


class Disk:
    """A new partition's folder in memory, and how to open, damage and look at it."""

    def __init__(self, fs: MemoryFileSystem | None = None) -> None:
        self.clock = ManualClock()
        self.fs = fs or MemoryFileSystem()
        if fs is None:
            self.fs.make_dir("/logs")
            self.fs.sync_dir("/")
            create_log(self.fs, FOLDER, TOPIC_ID)

    def open(
        self,
        *,
        is_clean: bool = True,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        **config: Any,
    ) -> Log:
        """Open the log; ``config`` by the fields of LogConfig."""
        return open_log(
            self.fs,
            self.clock,
            FOLDER,
            PARTITION,
            LogConfig(**config),
            is_clean=is_clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
        )

    def path(self, name: str) -> str:
        return f"{FOLDER}/{name}"

    def names(self, suffix: str = "") -> list[str]:
        return [name for name in self.fs.list_dir(FOLDER) if name.endswith(suffix)]

    def read(self, name: str) -> bytes:
        return self.fs.read_file(self.path(name))

    def write(self, name: str, content: bytes) -> None:
        self.fs.write_file(self.path(name), content)

    def damage(self, name: str, change: Callable[[bytes], bytes]) -> None:
        self.write(name, change(self.read(name)))


def records_of(log: Log, start: int | None = None, max_bytes: int = 1 << 20) -> list[Record]:
    """All records from ``start`` on, by reads that follow each other.

    The default is the log start offset.

    Batches may be without records for a reader: emptied by compaction, or markers.
    """
    offset = log.log_start_offset if start is None else start
    records: list[Record] = []
    while (found := log.read(offset, max_bytes)).size_bytes:
        content = found.read()
        records += decode_records(content, start_offset=offset)
        *_, (_, last) = iter_batches(content)
        assert last.next_offset > offset, "a read answers with something"
        offset = last.next_offset
    return records


def offsets_of(log: Log, start: int | None = None, max_bytes: int = 1 << 20) -> list[int]:
    """As ``records_of``, only the offsets."""
    return [record.offset for record in records_of(log, start, max_bytes)]


def flip(position: int, bit: int = 0) -> Callable[[bytes], bytes]:
    """A change that flips one bit."""

    def change(content: bytes) -> bytes:
        changed = bytearray(content)
        changed[position] ^= 1 << bit
        return bytes(changed)

    return change
