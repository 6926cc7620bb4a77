"""The batches of a fetch to rows and Arrow columns. See ``_kernel_decode.pxi``."""

from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from raylog.storage.buffers import Buffer
from raylog.storage.errors import CorruptRecord, InvalidRecord
from raylog.storage.limits import MAX_LONG
from raylog.storage.records._kernel_py_bytes import Malformed, get_varint, wrap
from raylog.storage.records.batch import check_crc as _check_crc
from raylog.storage.records.batch import iter_batches
from raylog.storage.records.compression import MAX_PLAIN_BYTES, decompress
from raylog.storage.records.layout import HEADER_SIZE, LOG_APPEND_TIME, MAGIC, MIN_RECORD_SIZE
from raylog.storage.records.legacy import as_records
from raylog.storage.records.record import Header, Record

Text: TypeAlias = tuple[bytearray, bytearray, bytearray | None]  # ends, data, validity
# rows, offsets, timestamps, timestamp types, keys, values, (ends, count, names, values) of headers
Columns: TypeAlias = tuple[
    int,
    bytearray,
    bytearray,
    bytearray,
    Text,
    Text,
    tuple[bytearray, int, Text | None, Text | None] | None,
]


class Raw(NamedTuple):
    """A record as it is in the bytes, but its offset and timestamp."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]


class Batch(NamedTuple):
    """What is needed of a batch to read its records."""

    position: int
    base_offset: int
    base_timestamp: int
    append_time: int | None  # of every record, under LogAppendTime
    timestamp_type: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    plain: Buffer
    next_offset: int  # the first behind it
    end: int  # of its bytes


def _records(
    buffer: Buffer,
    start_offset: int,
    end_offset: int,
    check_crc: bool,
    control: bool,
    max_batch_bytes: int,
) -> Iterator[Raw]:
    plain_bytes = 0
    view = memoryview(buffer).cast("B")
    for batch in batches_of(view, start_offset, end_offset, check_crc, control, max_batch_bytes):
        plain_bytes += len(batch.plain)
        if plain_bytes > MAX_PLAIN_BYTES:
            raise InvalidRecord(
                f"these batches hold over {MAX_PLAIN_BYTES} bytes: decode fewer at once"
            )
        try:
            for record in parse_records(batch.plain, batch.count):
                delta, offset_delta, key, value, headers, _ = record
                offset = wrap(batch.base_offset + offset_delta)
                if start_offset <= offset < end_offset:
                    timestamp = batch.append_time
                    if timestamp is None:
                        timestamp = wrap(batch.base_timestamp + delta)
                    yield Raw(offset, timestamp, batch.timestamp_type, key, value, headers)
        except Malformed as error:
            raise CorruptRecord(f"position {batch.position}", str(error)) from None


def batches_of(
    view: memoryview,
    start_offset: int,
    end_offset: int,
    check_crc: bool,
    control: bool,
    max_batch_bytes: int,
) -> Iterator[Batch]:
    """The batches with records for the reader, checked and decompressed."""
    for position, header in iter_batches(view):
        if header.magic < MAGIC:
            records = as_records(view, position, header, start_offset, check_crc)
            if records is None:
                continue
            if records.base_offset >= end_offset:
                return
            yield Batch(
                position=position,
                base_offset=records.base_offset,
                base_timestamp=0,
                append_time=None,
                timestamp_type=records.timestamp_type,
                count=records.count,
                plain=records.plain,
                next_offset=wrap(header.next_offset),
                end=position + header.size_bytes,
            )
            continue
        if header.base_offset >= end_offset:
            return
        if check_crc:
            _check_crc(view, position, header)
        if (header.is_control and not control) or wrap(header.next_offset) <= start_offset:
            continue
        plain: Buffer = view[position + HEADER_SIZE : position + header.size_bytes]
        if header.codec and header.count:
            plain = memoryview(decompress(header.codec, plain, max_batch_bytes))
        if not 0 <= header.count <= len(plain) // MIN_RECORD_SIZE:
            raise CorruptRecord(
                f"position {position}", "its bytes cannot hold its count of records"
            )
        kind = int(bool(header.attributes & LOG_APPEND_TIME))
        append_time = header.max_timestamp if kind else None
        yield Batch(
            position=position,
            base_offset=header.base_offset,
            base_timestamp=header.base_timestamp,
            append_time=append_time,
            timestamp_type=kind,
            count=header.count,
            plain=plain,
            next_offset=wrap(header.next_offset),
            end=position + header.size_bytes,
        )


def parse_records(
    plain: Buffer, count: int
) -> Iterator[tuple[int, int, bytes | None, bytes | None, list, int]]:
    """Timestamp delta, offset delta, key, value, headers and bytes of each record."""
    position = 0
    for _ in range(count):
        start = position
        length, position = get_varint(plain, position, len(plain), 5)
        end = position + length
        if length < MIN_RECORD_SIZE - 1 or end > len(plain):
            raise Malformed("a record is longer than what is left of the batch, or too short")
        delta, position = get_varint(plain, position + 1, end, 10)
        offset_delta, position = get_varint(plain, position, end, 5)
        key, position = _get_field(plain, position, end)
        value, position = _get_field(plain, position, end)
        header_count, position = get_varint(plain, position, end, 5)
        if not 0 <= header_count <= end - position:
            raise Malformed("a record's header count is negative or more than its bytes")
        headers = []
        for _ in range(header_count):
            name, position = _get_field(plain, position, end)
            if name is None:
                raise Malformed("a header's name is null")
            header_value, position = _get_field(plain, position, end)
            headers.append((name, header_value))
        if position != end:
            raise Malformed("a record is shorter than its length")
        yield delta, offset_delta, key, value, headers, position - start
    if position != len(plain):
        raise Malformed("bytes are left behind its last record")


def _get_field(data: Buffer, position: int, end: int) -> tuple[bytes | None, int]:
    size, position = get_varint(data, position, end, 5)
    if size < 0:
        return None, position
    if size > end - position:
        raise Malformed("a field is longer than its record")
    return bytes(data[position : position + size]), position + size


def decode_rows(
    buffer: Buffer,
    start_offset: int,
    check_crc: bool,
    control: bool,
    max_batch_bytes: int = MAX_PLAIN_BYTES,
) -> list[Record]:
    rows = _records(buffer, start_offset, MAX_LONG, check_crc, control, max_batch_bytes)
    return [
        Record(
            raw.offset,
            raw.timestamp,
            raw.key,
            raw.value,
            tuple(Header(name.decode(errors="replace"), value) for name, value in raw.headers),
        )
        for raw in rows
    ]


def decode_columns(
    buffer: Buffer,
    start_offset: int,
    end_offset: int,
    check_crc: bool,
    headers: bool,
    max_batch_bytes: int = MAX_PLAIN_BYTES,
) -> Columns:
    rows = list(_records(buffer, start_offset, end_offset, check_crc, False, max_batch_bytes))
    return columns_of(rows, headers)


def columns_of(rows: Sequence[Raw], headers: bool) -> Columns:
    ends, entries = array("i", [0]), []
    for row in rows:
        entries += row.headers
        ends.append(len(entries))
    names = _text([name for name, _ in entries]) if entries else None
    values = _text([value for _, value in entries]) if entries else None
    return (
        len(rows),
        bytearray(array("q", [row.offset for row in rows])),
        bytearray(array("q", [row.timestamp for row in rows])),
        bytearray(array("i", [row.timestamp_type for row in rows])),
        _text([row.key for row in rows]),
        _text([row.value for row in rows]),
        (bytearray(ends), len(entries), names, values) if headers else None,
    )


def _text(fields: Sequence[bytes | None]) -> Text:
    ends, data = array("i", [0]), bytearray()
    valid = bytearray(b"\xff" * ((len(fields) + 7) >> 3))
    nulls = 0
    for row, field in enumerate(fields):
        if field is None:
            valid[row >> 3] &= ~(1 << (row & 7))
            nulls += 1
        else:
            data += field
        ends.append(len(data))
    return bytearray(ends), data, valid if nulls else None
