"""Records to one v2 batch: from rows, or from Arrow columns.

The kernel writes the records and leaves room for the header; here they are compressed and the
header is put before them. Rows make a bytearray; a table's batches, which are large, are each a
``pyarrow.Buffer``, whose memory is recycled. Both are writable, so that a leader can ``stamp`` them
in place.

The base timestamp is the first record's, even under LogAppendTime, unless there is a delete
horizon. Source of the rules: ``org.apache.kafka.common.record.MemoryRecordsBuilder``.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from raylog.storage.errors import InvalidRecord
from raylog.storage.limits import MAX_INT
from raylog.storage.records import kernel
from raylog.storage.records.batch import BatchHeader, seal
from raylog.storage.records.compression import codec_id, compress
from raylog.storage.records.layout import (
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    TRANSACTIONAL,
)

if TYPE_CHECKING:
    import pyarrow as pa

# (timestamp, key, value, headers)
Row = tuple[int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]


def encode_records(
    records: Sequence[Row],
    *,
    compression_type: str = "none",
    level: int | None = None,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    log_append_time: int | None = None,
    transactional: bool = False,
    control: bool = False,
    offsets: Sequence[int] | None = None,
    last_offset: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """One batch of all ``records``; no records, no bytes.

    The last three are compaction's: the records' ``offsets`` where some are missing between them,
    the batch's ``last_offset`` where the records behind are gone, and when its tombstones may go
    too. Raises InvalidRecord for rows and combinations that no batch can have.
    """
    # By position: names would cost a batch of one record 5 % of its time.
    batch, count, base_timestamp, max_timestamp, last_delta = kernel.ops.encode_rows(
        records, delete_horizon_ms, offsets, base_offset
    )
    if count == 0:
        return bytearray()
    if last_offset is not None:
        last_delta = _last_delta(last_offset - base_offset, last_delta)
    kind = _BatchKind(
        codec=codec_id(compression_type),
        level=level,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        log_append_time=log_append_time,
        transactional=transactional,
        control=control,
        delete_horizon_ms=delete_horizon_ms,
    )
    return kind.close(
        batch,
        count=count,
        base_offset=base_offset,
        last_offset_delta=last_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        base_sequence=base_sequence,
    )


class _EncodedColumns(NamedTuple):
    """What the kernel makes of a table's next rows, behind the room for a header."""

    batch: Any
    rows: int
    base_timestamp: int
    max_timestamp: int


class TableEncoder:
    """A table ready to be cut into batches, which then costs nothing but the encoding.

    ``columns`` holds ``value`` and may hold ``key``, ``timestamp`` and ``headers`` (types:
    ``columns.py``). Raises InvalidRecord for other columns and types.
    """

    def __init__(
        self,
        columns: "pa.Table | pa.RecordBatch",
        *,
        default_timestamp: int,
        compression_type: str = "none",
        level: int | None = None,
        leader_epoch: int = -1,
        producer_id: int = -1,
        producer_epoch: int = -1,
        log_append_time: int | None = None,
        transactional: bool = False,
        control: bool = False,
    ) -> None:
        # 50 MB of memory, which rows can do without
        from raylog.storage.records import columns as arrow

        self._as_buffer = arrow.as_buffer
        self.num_rows = columns.num_rows
        self._encoder = arrow.encoder(columns, default_timestamp)
        self._kind = _BatchKind(
            codec=codec_id(compression_type),
            level=level,
            leader_epoch=leader_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            log_append_time=log_append_time,
            transactional=transactional,
            control=control,
            delete_horizon_ms=None,
        )

    def encode(
        self,
        start: int = 0,
        *,
        max_bytes: int = 1_000_000,
        base_offset: int = 0,
        base_sequence: int = -1,
    ) -> "tuple[pa.Buffer, int]":
        """(batch, rows in it) of the rows from ``start`` on that fit in ``max_bytes``.

        ``max_bytes`` is before compression. The batch has at least one row. No rows, no bytes.
        """
        if start >= self.num_rows:
            return self._as_buffer(b""), 0
        encoded = _EncodedColumns._make(self._encoder.encode(start, max_bytes))
        closed = self._kind.close(
            encoded.batch,
            count=encoded.rows,
            base_offset=base_offset,
            last_offset_delta=encoded.rows - 1,
            base_timestamp=encoded.base_timestamp,
            max_timestamp=encoded.max_timestamp,
            base_sequence=base_sequence,
        )
        return self._as_buffer(closed), encoded.rows


def encode_table(
    columns: "pa.Table | pa.RecordBatch",
    *,
    default_timestamp: int,
    start: int = 0,
    max_bytes: int = 1_000_000,
    compression_type: str = "none",
    level: int | None = None,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    log_append_time: int | None = None,
    transactional: bool = False,
    control: bool = False,
) -> "tuple[pa.Buffer, int]":
    """One batch of ``columns``, as by ``TableEncoder.encode``.

    To cut a table into many batches, keep a TableEncoder.
    """
    encoder = TableEncoder(
        columns,
        default_timestamp=default_timestamp,
        compression_type=compression_type,
        level=level,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        log_append_time=log_append_time,
        transactional=transactional,
        control=control,
    )
    return encoder.encode(
        start, max_bytes=max_bytes, base_offset=base_offset, base_sequence=base_sequence
    )


def close_batch(
    records: Any,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    *,
    compression_type: str = "none",
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> Any:
    """A batch of ``records``, which the kernel has written behind 61 free bytes.

    The header is written in place, unless the records are compressed.
    """
    kind = _BatchKind(
        codec=codec_id(compression_type),
        level=level,
        leader_epoch=-1,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        log_append_time=None,
        transactional=transactional,
        control=False,
        delete_horizon_ms=None,
    )
    return kind.close(
        records,
        count=count,
        base_offset=0,
        last_offset_delta=count - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        base_sequence=base_sequence,
    )


class _BatchKind(NamedTuple):
    """What the batches of one encoder have in common."""

    codec: int
    level: int | None
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    log_append_time: int | None
    transactional: bool
    control: bool
    delete_horizon_ms: int | None

    def close(
        self,
        batch: Any,
        *,
        count: int,
        base_offset: int,
        last_offset_delta: int,
        base_timestamp: int,
        max_timestamp: int,
        base_sequence: int,
    ) -> Any:
        """Compress the records behind the free header, and write the header."""
        self._check_producer(base_sequence)
        if self.log_append_time is not None:
            max_timestamp = self.log_append_time
        if self.codec:
            stream = compress(self.codec, memoryview(batch)[HEADER_SIZE:], self.level)
            batch = bytearray().join((bytes(HEADER_SIZE), stream))
        header = BatchHeader(
            base_offset=base_offset,
            batch_length=0,
            leader_epoch=self.leader_epoch,
            magic=MAGIC,
            crc=0,
            attributes=self._attributes(),
            last_offset_delta=last_offset_delta,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=base_sequence,
            count=count,
        )
        return seal(batch, header)

    def _attributes(self) -> int:
        return (
            self.codec
            | (LOG_APPEND_TIME if self.log_append_time is not None else 0)
            | (TRANSACTIONAL if self.transactional else 0)
            | (CONTROL if self.control else 0)
            | (DELETE_HORIZON if self.delete_horizon_ms is not None else 0)
        )

    def _check_producer(self, base_sequence: int) -> None:
        if self.producer_id < 0:
            if self.transactional:
                raise InvalidRecord("a transactional batch needs a producer id; give producer_id")
        elif self.producer_epoch < 0:
            raise InvalidRecord(
                f"a batch of producer {self.producer_id} needs an epoch; give producer_epoch"
            )
        elif base_sequence < 0 and not self.control:
            raise InvalidRecord(
                f"a batch of producer {self.producer_id} needs a sequence; give base_sequence"
            )


def _last_delta(wanted: int, of_records: int) -> int:
    if not of_records <= wanted <= MAX_INT:
        raise InvalidRecord(
            f"last offset delta {wanted} is before the last record's, {of_records}, or over 2^31"
        )
    return wanted
