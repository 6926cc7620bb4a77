"""The kernel in plain Python, some 30 times slower.

It has the functions, checks and results of ``_kernel.pyx``.

It serves where no compiler was found, and it is the oracle that the compiled kernel is tested
against. The format is drawn in ``_kernel.pyx``.
"""

import os
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias

from raylog.storage.buffers import Buffer
from raylog.storage.errors import CorruptRecord, InvalidRecord
from raylog.storage.limits import MAX_INT, MAX_LONG
from raylog.storage.records._kernel_py_accumulate import (
    BATCH_IS_FULL as BATCH_IS_FULL,
)
from raylog.storage.records._kernel_py_accumulate import (
    MEMORY_IS_FULL as MEMORY_IS_FULL,
)
from raylog.storage.records._kernel_py_accumulate import (
    TOPIC_HAS_CHANGED as TOPIC_HAS_CHANGED,
)
from raylog.storage.records._kernel_py_accumulate import (
    Accumulator as Accumulator,
)
from raylog.storage.records._kernel_py_accumulate import (
    OpenBatch as OpenBatch,
)
from raylog.storage.records._kernel_py_accumulate import (
    OpenTopic as OpenTopic,
)
from raylog.storage.records._kernel_py_accumulate import (
    Receipt as Receipt,
)
from raylog.storage.records._kernel_py_accumulate import (
    record_size as record_size,
)
from raylog.storage.records._kernel_py_hash import murmur2 as murmur2
from raylog.storage.records.batch import BatchHeader, iter_batches, read_header
from raylog.storage.records.batch import check_crc as _check_crc
from raylog.storage.records.compression import MAX_PLAIN_BYTES, decompress
from raylog.storage.records.layout import (
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    MIN_BATCH_LENGTH,
    MIN_RECORD_SIZE,
)
from raylog.storage.records.legacy import as_records
from raylog.storage.records.record import Header, Record
from raylog.storage.records.rules import RecordRules
from raylog.storage.records.varints import put_varint

KERNEL: Final = "pure Python"

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


# -- checking an append ----------------------------------------------------------------------------

_MAX_NAMED: Final = 10

# What a walk reads next, in the order of a record's fields.
(
    _LENGTH,
    _ATTRIBUTES,
    _TIMESTAMP,
    _OFFSET,
    _KEY,
    _VALUE,
    _HEADER_COUNT,
    _NAME,
    _HEADER_VALUE,
) = range(9)


def check_batch(records: Any, rules: RecordRules, now_ms: int) -> BatchHeader | None:
    """See ``_kernel_append.pxi``. Never sure: the closer look that follows is in Python already."""
    return None


class RecordWalk:
    """See ``_kernel_check.pxi``. Byte by byte, but for what is passed over."""

    def __init__(self, count: int, base_timestamp: int, rules: RecordRules, now_ms: int) -> None:
        self._count, self._base_timestamp = count, base_timestamp
        self._rules, self._now_ms = rules, now_ms
        self.largest_timestamp = -1
        self.outside: int | None = None
        self.keyless = 0
        self.named: list[int] = []
        self._seen = 0
        self._field = _LENGTH
        self._varint, self._varint_size = 0, 0
        self._left = self._skip = self._headers = 0

    def feed(self, chunk: Buffer) -> None:
        view = memoryview(chunk).cast("B")
        try:
            self._feed(view)
        except _Malformed as error:
            raise InvalidRecord(f"record {self._seen}: {error}") from None

    def _feed(self, view: memoryview) -> None:
        position = 0
        while position < len(view):
            if self._skip:
                passed = min(self._skip, len(view) - position)
                position += passed
                self._skip -= passed
                self._left -= passed
            else:
                if self._field != _LENGTH:
                    self._left -= 1
                self._take_byte(view[position])
                position += 1
            if self._field == _NAME and not self._headers and not self._skip:
                if self._left:
                    raise _Malformed("bytes are left behind its last field")
                self._field = _LENGTH
                self._seen += 1
            elif not self._left and self._field != _LENGTH:
                raise _Malformed("it is shorter than its fields")

    def _take_byte(self, byte: int) -> None:
        if self._field == _ATTRIBUTES:
            self._field = _TIMESTAMP
            if byte:
                raise _Malformed("its attributes are not 0")
            return
        max_size = 10 if self._field == _TIMESTAMP else 5
        self._varint |= (byte & 0x7F) << (7 * self._varint_size)
        self._varint_size += 1
        if byte >= 0x80:
            if self._varint_size == max_size:
                raise _Malformed("a number is longer than its type")
            return
        z = self._varint & (2**32 - 1 if max_size == 5 else 2**64 - 1)
        self._varint, self._varint_size = 0, 0
        self._take_number((z >> 1) ^ -(z & 1))

    def _take_number(self, number: int) -> None:
        if self._field == _LENGTH:
            if self._seen == self._count:
                raise _Malformed("the header has a smaller count of records")
            if number < MIN_RECORD_SIZE - 1:
                raise _Malformed("its length is too small")
            self._left = number
        elif self._field == _TIMESTAMP:
            self._take_timestamp(_wrap(self._base_timestamp + number))
        elif self._field == _OFFSET:
            if number != self._seen:
                raise _Malformed("its offset delta is not its place in the batch: 0, 1, 2, ...")
        elif self._field == _HEADER_COUNT:
            if not 0 <= number <= self._left:
                raise _Malformed("its header count is negative or more than its bytes")
            self._headers = number
        else:
            self._take_size(number)
        if self._field == _HEADER_VALUE:
            self._headers -= 1
            self._field = _NAME
        else:
            self._field += 1

    def _take_timestamp(self, timestamp: int) -> None:
        self.largest_timestamp = max(self.largest_timestamp, timestamp)
        is_early = self._now_ms - timestamp > self._rules.before_max_ms
        is_late = timestamp - self._now_ms > self._rules.after_max_ms
        if timestamp != -1 and self.outside is None and (is_early or is_late):
            self.outside = timestamp

    def _take_size(self, size: int) -> None:
        """Of a key, a value, or a header's name or value."""
        if size > self._left:
            raise _Malformed("a field is longer than what is left of it")
        self._skip = max(size, 0)
        if size >= 0:
            return
        if self._field == _NAME:
            raise _Malformed("the name of a header is null")
        if self._field == _KEY and self._rules.needs_keys:
            if self.keyless < _MAX_NAMED:
                self.named.append(self._seen)
            self.keyless += 1

    def finish(self) -> None:
        if self._field != _LENGTH or self._varint_size:
            raise InvalidRecord(f"record {self._seen}: the batch ends within it")
        if self._seen != self._count:
            raise InvalidRecord(
                f"the batch has {self._seen} records, but its header says {self._count}"
            )


# -- varints ---------------------------------------------------------------------------------------


def get_varint(data: Buffer, position: int, end: int, max_size: int) -> tuple[int, int]:
    """(number, position behind it) of a varint of at most ``max_size`` bytes (5: an int32)."""
    z = 0
    for i in range(min(max_size, end - position)):
        byte = data[position + i]
        z |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            z &= 0xFFFFFFFF if max_size == 5 else 0xFFFFFFFFFFFFFFFF
            return (z >> 1) ^ -(z & 1), position + i + 1
    raise _Malformed("a varint is longer than its type, or than what is left")


def _wrap(n: int) -> int:
    """As an int64, as Java adds."""
    return (n + 2**63) % 2**64 - 2**63


# -- encoding --------------------------------------------------------------------------------------


def encode_rows(
    rows: Sequence[Any], base_timestamp: int | None, offsets: Sequence[int] | None, base_offset: int
) -> tuple[bytearray, int, int, int, int]:
    out, items = bytearray(HEADER_SIZE), tuple(rows)
    base, max_timestamp, last = base_timestamp, -1, -1
    for i, row in enumerate(items):
        if not isinstance(row, tuple) or len(row) != 4:
            raise InvalidRecord(f"record {i} must be a tuple (timestamp, key, value, headers)")
        timestamp = _integer(row[0], "timestamp", i)
        if timestamp < -1:
            raise InvalidRecord(
                f"record {i}: timestamp {timestamp}: use ms since 1970, or -1 for none"
            )
        base = timestamp if base is None else base
        max_timestamp = max(max_timestamp, timestamp)
        delta = i if offsets is None else _integer(offsets[i], "offset", i) - base_offset
        if not last < delta <= MAX_INT:
            raise InvalidRecord(f"record {i}: offset delta {delta} after {last}: offsets must rise")
        last = delta
        headers = [(_name(name, i), _bytes(value, "header's value", i)) for name, value in row[3]]
        _put_record(
            out,
            _wrap(timestamp - base),
            delta,
            _bytes(row[1], "key", i),
            _bytes(row[2], "value", i),
            headers,
        )
        if len(out) > MAX_PLAIN_BYTES:
            raise InvalidRecord(
                f"record {i}: a batch of over {MAX_PLAIN_BYTES} bytes: encode fewer records"
            )
    return out, len(items), base or 0, max_timestamp, last


def _put_record(
    out: bytearray,
    timestamp_delta: int,
    offset_delta: int,
    key: Buffer | None,
    value: Buffer | None,
    headers: Sequence[tuple[Buffer | None, Buffer | None]],
) -> None:
    body = bytearray(1)
    put_varint(body, timestamp_delta)
    put_varint(body, offset_delta)
    _put_field(body, key)
    _put_field(body, value)
    put_varint(body, len(headers))
    for name, header_value in headers:
        _put_field(body, name)
        _put_field(body, header_value)
    put_varint(out, len(body))
    out += body


def _put_field(out: bytearray, field: Buffer | None) -> None:
    if field is None:
        out.append(1)
    else:
        put_varint(out, len(field))
        out += field


def _integer(number: Any, what: str, row: int) -> int:
    if not isinstance(number, int):
        raise InvalidRecord(f"record {row}: its {what} is {type(number).__name__}: it must be int")
    if not -(2**63) <= number < 2**63:
        raise OverflowError(f"record {row}: its {what} does not fit in 64 bits")
    return number


def _bytes(field: Any, what: str, row: int) -> bytes | None:
    if field is not None and not isinstance(field, bytes | bytearray | memoryview):
        raise InvalidRecord(
            f"record {row}: its {what} is {type(field).__name__}: encode it to bytes, or None"
        )
    return None if field is None else bytes(field)


def _name(field: Any, row: int) -> bytes:
    if not isinstance(field, str):
        raise InvalidRecord(
            f"record {row}: a header's name is {type(field).__name__}: it must be str"
        )
    return field.encode()


class TextColumn:
    """A binary or string Arrow array by its buffers."""

    def __init__(self, ends: Any, data: Any, valid: Any, valid_start: int, rows: int) -> None:
        ends_view = memoryview(ends).cast("B")
        self.valid = None if valid is None else memoryview(valid).cast("B")
        has_ends = 0 <= rows < len(ends_view) // 4
        has_validity = self.valid is None or 0 <= valid_start <= 8 * len(self.valid) - rows
        if not has_ends or not has_validity:
            raise InvalidRecord(
                "an Arrow array's buffers are too small for its rows: validate() it"
            )
        self.ends = ends_view[: 4 * (rows + 1)].cast("i")
        self.data = memoryview(b"" if data is None else data).cast("B")
        self.valid_start, self.rows = valid_start, rows

    def is_null(self, row: int) -> bool:
        bit = self.valid_start + row
        return self.valid is not None and not self.valid[bit >> 3] >> (bit & 7) & 1

    def get(self, row: int, what: str) -> memoryview | None:
        start, end = self.ends[row], self.ends[row + 1]
        if not 0 <= start <= end <= len(self.data):
            raise _Malformed(f"{what} points outside of the column's data: validate(full=True) it")
        return None if self.is_null(row) else self.data[start:end]


class TableEncoder:
    """Arrow columns by their buffers, ready to be cut into batches."""

    def __init__(
        self,
        rows: int,
        timestamps: Any,
        default_timestamp: int,
        keys: TextColumn | None,
        values: TextColumn,
        header_lists: TextColumn | None,
        header_names: TextColumn | None,
        header_values: TextColumn | None,
    ) -> None:
        self.rows, self.default_timestamp = rows, default_timestamp
        self.timestamps = None if timestamps is None else memoryview(timestamps).cast("B").cast("q")
        if self.timestamps is not None and len(self.timestamps) < rows:
            raise InvalidRecord(
                "the timestamp column's buffer is too small for its rows: validate() it"
            )
        if rows < 0 or any(
            column is not None and column.rows < rows for column in (keys, values, header_lists)
        ):
            raise InvalidRecord(f"a column has fewer than the table's {rows} rows")
        self.keys, self.values = keys, values
        self.headers: tuple[TextColumn, TextColumn, TextColumn] | None = None
        if header_lists is not None:
            if header_names is None or header_values is None:
                raise InvalidRecord("lists of headers have no names, or no values: give both")
            self.headers = header_lists, header_names, header_values

    def encode(self, start: int, max_bytes: int) -> tuple[bytearray, int, int, int]:
        if not 0 <= start < self.rows:
            raise IndexError(f"row {start} of {self.rows}")
        out = bytearray(HEADER_SIZE)
        base, max_timestamp = self._timestamp(start), -1
        for row in range(start, min(self.rows, start + MAX_INT)):
            size_before, timestamp = len(out), self._timestamp(row)
            try:
                self._put_row(out, row, timestamp, _wrap(timestamp - base), row - start)
            except _Malformed as error:
                raise InvalidRecord(f"row {row}: {error}") from None
            if len(out) > max_bytes and row > start:
                del out[size_before:]
                return out, row - start, base, max_timestamp
            if len(out) > MAX_PLAIN_BYTES:
                raise InvalidRecord(
                    f"row {start}: a batch of over {MAX_PLAIN_BYTES} bytes: lower max_bytes"
                )
            max_timestamp = max(max_timestamp, timestamp)
        return out, min(self.rows - start, MAX_INT), base, max_timestamp

    def _timestamp(self, row: int) -> int:
        return self.default_timestamp if self.timestamps is None else self.timestamps[row]

    def _put_row(
        self, out: bytearray, row: int, timestamp: int, delta: int, offset_delta: int
    ) -> None:
        if timestamp < -1:
            raise _Malformed("its timestamp is negative: use ms since 1970, or -1 for none")
        key = None if self.keys is None else self.keys.get(row, "its key")
        _put_record(
            out, delta, offset_delta, key, self.values.get(row, "its value"), self._headers(row)
        )

    def _headers(self, row: int) -> list[tuple[Buffer | None, Buffer | None]]:
        if self.headers is None:
            return []
        lists, names, values = self.headers
        if lists.is_null(row):
            return []
        start, end = lists.ends[row], lists.ends[row + 1]
        if not 0 <= start <= end <= min(names.rows, values.rows):
            raise _Malformed("its headers point outside of their array: validate(full=True) it")
        headers: list[tuple[Buffer | None, Buffer | None]] = []
        for i in range(start, end):
            name = names.get(i, "a header's name")
            if name is None:
                raise _Malformed("a header's name is null: give it one")
            headers.append((name, values.get(i, "a header's value")))
        return headers


# -- decoding --------------------------------------------------------------------------------------


class _Malformed(Exception):
    """What is wrong with a record; whoever knows where it is says so too."""


class _Raw(NamedTuple):
    """A record as it is in the bytes, but its offset and timestamp."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]


class _Batch(NamedTuple):
    """What is needed of a batch to read its records."""

    position: int
    base_offset: int
    base_timestamp: int
    append_time: int | None  # of every record, under LogAppendTime
    timestamp_type: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    plain: Buffer


def _records(
    buffer: Buffer,
    start_offset: int,
    end_offset: int,
    check_crc: bool,
    control: bool,
    max_batch_bytes: int,
) -> Iterator[_Raw]:
    plain_bytes = 0
    view = memoryview(buffer).cast("B")
    for batch in _batches(view, start_offset, end_offset, check_crc, control, max_batch_bytes):
        plain_bytes += len(batch.plain)
        if plain_bytes > MAX_PLAIN_BYTES:
            raise InvalidRecord(
                f"these batches hold over {MAX_PLAIN_BYTES} bytes: decode fewer at once"
            )
        try:
            for delta, offset_delta, key, value, headers in _parse(batch.plain, batch.count):
                offset = _wrap(batch.base_offset + offset_delta)
                if start_offset <= offset < end_offset:
                    timestamp = batch.append_time
                    if timestamp is None:
                        timestamp = _wrap(batch.base_timestamp + delta)
                    yield _Raw(offset, timestamp, batch.timestamp_type, key, value, headers)
        except _Malformed as error:
            raise CorruptRecord(f"position {batch.position}", str(error)) from None


def _batches(
    view: memoryview,
    start_offset: int,
    end_offset: int,
    check_crc: bool,
    control: bool,
    max_batch_bytes: int,
) -> Iterator[_Batch]:
    """The batches with records for the reader, checked and decompressed."""
    for position, header in iter_batches(view):
        if header.magic < MAGIC:
            records = as_records(view, position, header, start_offset, check_crc)
            if records is None:
                continue
            if records.base_offset >= end_offset:
                return
            yield _Batch(
                position=position,
                base_offset=records.base_offset,
                base_timestamp=0,
                append_time=None,
                timestamp_type=records.timestamp_type,
                count=records.count,
                plain=records.plain,
            )
            continue
        if header.base_offset >= end_offset:
            return
        if check_crc:
            _check_crc(view, position, header)
        if (header.is_control and not control) or _wrap(header.last_offset) < start_offset:
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
        yield _Batch(
            position=position,
            base_offset=header.base_offset,
            base_timestamp=header.base_timestamp,
            append_time=append_time,
            timestamp_type=kind,
            count=header.count,
            plain=plain,
        )


def _parse(
    plain: Buffer, count: int
) -> Iterator[tuple[int, int, bytes | None, bytes | None, list]]:
    position = 0
    for _ in range(count):
        length, position = get_varint(plain, position, len(plain), 5)
        end = position + length
        if length < MIN_RECORD_SIZE - 1 or end > len(plain):
            raise _Malformed("a record is longer than what is left of the batch, or too short")
        delta, position = get_varint(plain, position + 1, end, 10)
        offset_delta, position = get_varint(plain, position, end, 5)
        key, position = _get_field(plain, position, end)
        value, position = _get_field(plain, position, end)
        header_count, position = get_varint(plain, position, end, 5)
        if not 0 <= header_count <= end - position:
            raise _Malformed("a record's header count is negative or more than its bytes")
        headers = []
        for _ in range(header_count):
            name, position = _get_field(plain, position, end)
            if name is None:
                raise _Malformed("a header's name is null")
            header_value, position = _get_field(plain, position, end)
            headers.append((name, header_value))
        if position != end:
            raise _Malformed("a record is shorter than its length")
        yield delta, offset_delta, key, value, headers
    if position != len(plain):
        raise _Malformed("bytes are left behind its last record")


def _get_field(data: Buffer, position: int, end: int) -> tuple[bytes | None, int]:
    size, position = get_varint(data, position, end, 5)
    if size < 0:
        return None, position
    if size > end - position:
        raise _Malformed("a field is longer than its record")
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


# -- compaction ------------------------------------------------------------------------------------

_SLOT: Final = Struct("16sq")


def leading_headers(chunk: Buffer) -> list[BatchHeader]:
    """See ``_kernel_clean.pxi``."""
    headers = []
    try:
        for position, header in iter_batches(chunk):
            _check_crc(chunk, position, header)
            headers.append(header)
    except CorruptRecord:
        pass
    return headers


class OffsetTable:
    """See ``_kernel_clean.pxi``; only the hash is another."""

    def __init__(self, slots: int, capacity: int, secret: bytes) -> None:
        if not 0 < capacity < slots:
            raise ValueError(f"capacity {capacity} of {slots} slots: a search ends at a free one")
        if len(secret) != 16:
            raise ValueError(f"a secret of {len(secret)} bytes: give 16")
        self.capacity, self.size = capacity, 0
        self._slots, self._secret, self._bytes = slots, secret, bytearray(slots * _SLOT.size)

    def _find(self, key: bytes) -> tuple[int, bytes, int]:
        """(position, hash, last offset + 1) of the key's slot.

        If the key has none, of the free slot that it would take.
        """
        wanted = blake2b(key, digest_size=16, key=self._secret).digest()
        slot = int.from_bytes(wanted[:8], "little") % self._slots
        while True:
            digest, next_offset = _SLOT.unpack_from(self._bytes, slot * _SLOT.size)
            if not next_offset or digest == wanted:
                return slot * _SLOT.size, wanted, next_offset
            slot = (slot + 1) % self._slots

    def put_records(
        self, plain: Buffer, count: int, base_offset: int, start_offset: int
    ) -> tuple[int, int, bool]:
        _check_start(start_offset)
        last, keyless = -1, 0
        for offset, _, key, _, _ in _whole_records(plain, count, base_offset):
            if offset < start_offset:
                continue
            if key is None:
                keyless += 1
                continue
            if self.size >= self.capacity:
                return last, keyless, True
            position, digest, next_offset = self._find(key)
            self.size += next_offset == 0
            _SLOT.pack_into(self._bytes, position, digest, _wrap(offset + 1))
            last = offset
        return last, keyless, False

    def put_batches(
        self,
        chunk: Buffer,
        headers: list[BatchHeader],
        first: int,
        position: int,
        start_offset: int,
    ) -> tuple[int, int, int, bool]:
        last, view = -1, memoryview(chunk)
        _check_start(start_offset)
        if first < 0 or not 0 <= position <= len(view):
            raise ValueError(f"header {first} at position {position} of {len(view)} bytes")
        while first < len(headers) and _is_plain(header := headers[first]):
            plain = _records_of(view, position, header)
            last_put, _, is_full = self.put_records(
                plain, header.count, header.base_offset, start_offset
            )
            last = max(last, last_put)
            if is_full:
                return first, position, last, True
            first, position = first + 1, position + header.size_bytes
        return first, position, last, False

    def get(self, key: Buffer) -> int:
        return _wrap(self._find(bytes(memoryview(key)))[2] - 1)

    def judge_records(
        self, plain: Buffer, count: int, base_offset: int, latest_offset: int, drop_tombstones: bool
    ) -> tuple[int, int, int, bytearray]:
        if not 0 <= count <= len(plain) // MIN_RECORD_SIZE:
            raise CorruptRecord(
                f"offset {base_offset}", "its bytes cannot hold its count of records"
            )
        flags, tombstones, keyless = bytearray(), 0, 0
        for offset, _, key, value, _ in _whole_records(plain, count, base_offset):
            if offset > latest_offset:
                keep = True
            elif key is None:
                keep = False
                keyless += 1
            else:
                keep = offset >= self.get(key) and not (drop_tombstones and value is None)
            flags.append(keep)
            tombstones += keep and value is None
        return sum(flags), tombstones, keyless, flags

    def judge_batches(
        self, chunk: Buffer, headers: list[BatchHeader], latest_offset: int
    ) -> tuple[bytearray, int]:
        verdicts = bytearray(len(headers))
        view = memoryview(chunk)
        all_keyless = position = 0
        for number, header in enumerate(headers):
            plain = _records_of(view, position, header)
            if _is_plain(header):
                kept, tombstones, keyless, _ = self.judge_records(
                    plain, header.count, header.base_offset, latest_offset, False
                )
                if not tombstones and kept in (0, header.count):
                    verdicts[number] = 1 if kept else 2
                    all_keyless += keyless
            position += header.size_bytes
        return verdicts, all_keyless


def _is_plain(header: BatchHeader) -> bool:
    return not header.attributes & ~LOG_APPEND_TIME and header.count > 0


def _records_of(chunk: memoryview, position: int, header: BatchHeader) -> memoryview:
    if not MIN_BATCH_LENGTH <= header.batch_length <= len(chunk) - position - LOG_OVERHEAD:
        raise CorruptRecord(f"offset {header.base_offset}", "its batch is not within the chunk")
    return chunk[position + HEADER_SIZE : position + header.size_bytes]


def _check_start(start_offset: int) -> None:
    if start_offset < 0:
        raise ValueError(f"start offset {start_offset}: a record's offset is 0 or more")


def _whole_records(plain: Buffer, count: int, base_offset: int) -> Iterator[tuple]:
    """(offset, timestamp delta, key, value, headers) of each."""
    try:
        for delta, offset_delta, key, value, headers in _parse(plain, count):
            yield _wrap(base_offset + offset_delta), delta, key, value, headers
    except _Malformed as error:
        raise CorruptRecord(f"offset {base_offset}", str(error)) from None


def rebuild_records(
    plain: Buffer,
    kept: Buffer,
    base_timestamp: int,
    new_base_timestamp: int | None,
    append_time: int | None,
) -> tuple[bytearray, int, int]:
    out, base, max_timestamp = bytearray(HEADER_SIZE), new_base_timestamp, -1
    for keep, record in zip(memoryview(kept), _whole_records(plain, len(kept), 0), strict=False):
        if keep:
            offset_delta, delta, key, value, headers = record
            timestamp = _wrap(base_timestamp + delta) if append_time is None else append_time
            base = timestamp if base is None else base
            max_timestamp = max(max_timestamp, timestamp)
            _put_record(out, _wrap(timestamp - base), offset_delta, key, value, headers)
    return out, base or 0, max_timestamp


# -- partitioning ----------------------------------------------------------------------------------


def partition_column(keys: TextColumn, partitions: int) -> bytearray:
    if not 1 <= partitions <= MAX_INT:
        raise ValueError(f"{partitions} partitions; give at least one, and under 2^31")
    out = array("i")
    for row in range(keys.rows):
        try:
            key = keys.get(row, "its key")
        except _Malformed as error:
            raise InvalidRecord(f"row {row}: {error}") from None
        out.append(-1 if key is None else (murmur2(key) & 0x7FFFFFFF) % partitions)
    return bytearray(out)


# -- scanning --------------------------------------------------------------------------------------


def scan_batches(buffer: Buffer, position: int, check_crc: bool) -> tuple[bytes, int]:
    """(rows, end): six int64 for each v2 batch from ``position`` on.

    ``end`` is the first position that has no such batch.
    """
    view, rows = memoryview(buffer), array("q")
    try:
        while True:
            header = read_header(view, position)
            if header.magic != MAGIC or position + header.size_bytes > len(view):
                break
            if check_crc:
                _check_crc(view, position, header)
            last_offset = _wrap(header.last_offset)
            rows.extend((position, header.base_offset, last_offset, header.max_timestamp))
            rows.extend((header.producer_id, header.count))
            position += header.size_bytes
    except CorruptRecord:
        pass
    return rows.tobytes(), position


WALK_FOUND, WALK_MORE, WALK_ODD = range(3)


def walk(block: Buffer, offset: int, limit: int, next_offset: int) -> tuple[int, int, int, int]:
    """(state, position, size, next offset) of the first v2 batch that reaches ``offset`` or ends
    behind ``limit``.

    The first batch begins at the block's begin; positions count from there. Offsets must rise from
    ``next_offset`` on. Only headers have to be in the block. The state is WALK_FOUND; WALK_MORE:
    the header at ``position`` is not whole in the block; or WALK_ODD: it is no header of version 2
    that can stand there.
    """
    view, position = memoryview(block), 0
    while position <= len(view) - HEADER_SIZE:
        try:
            header = read_header(view, position)
        except CorruptRecord:
            return WALK_ODD, position, 0, next_offset
        last_offset = _wrap(header.last_offset)
        if header.magic != MAGIC or not next_offset <= header.base_offset <= last_offset:
            return WALK_ODD, position, 0, next_offset
        if last_offset >= offset or position + header.size_bytes > limit:
            return WALK_FOUND, position, header.size_bytes, next_offset
        next_offset = last_offset + 1
        position += header.size_bytes
    return WALK_MORE, position, 0, next_offset


def count_up_to(
    entries: Buffer, entry_size: int, at: int, width: int, wanted: int, warm_bytes: int
) -> int:
    """How many entries have at most ``wanted`` in the column of ``width`` bytes at byte ``at``.

    The column rises. The last ``warm_bytes`` are looked at first: see ``sparse.py``.
    """
    if entry_size <= 0 or at < 0 or width not in (4, 8) or at + width > entry_size:
        raise ValueError(f"no column of {width} bytes at {at} in entries of {entry_size}")
    if warm_bytes < 0:
        raise ValueError(f"a warm end of {warm_bytes} bytes")

    def column(number: int) -> int:
        """By a copy: a view would keep the writer from adding to the entries meanwhile."""
        begin = number * entry_size + at
        return int.from_bytes(entries[begin : begin + width], "big", signed=True)

    count = len(entries) // entry_size
    first, end = 0, count
    warm = count - 1 - warm_bytes // entry_size
    if warm > 0:
        first, end = (warm + 1, count) if column(warm) <= wanted else (0, warm)
    return bisect_right(range(count), wanted, first, end, key=column)


# -- writing ---------------------------------------------------------------------------------------


def write_stamped(descriptor: int, stamp: Buffer, batch: Buffer) -> int:
    """Write ``batch`` with ``stamp`` in the place of its first bytes; returns its size.

    One call of the system, if it takes all. Raises OSError.
    """
    head, body = memoryview(stamp), memoryview(batch)
    if len(head) > len(body):
        raise ValueError(f"a stamp of {len(head)} bytes is longer than a batch of {len(body)}")
    written = os.writev(descriptor, (head, body[len(head) :]))
    rest = memoryview(b"".join((head, body[len(head) :])) if written < len(body) else b"")
    while written < len(rest):
        written += os.write(descriptor, rest[written:])
    return len(body)


class Appender:
    """See ``_kernel_write.pxi``. Refuses everything: the writer is in Python already."""

    largest: Any = None
    since_entry = timed_timestamp = 0

    def __init__(
        self, write: Callable[[bytes, Buffer], None], moment: type, answer: type, base_offset: int
    ):
        pass

    def arm(
        self,
        offsets: bytearray,
        times: bytearray,
        entries_left: int,
        limits: tuple[int, int, int],
        interval: int,
        since_entry: int,
        largest: Any,
        timed: int,
        rules: RecordRules,
    ) -> None:
        self.largest, self.since_entry, self.timed_timestamp = largest, since_entry, timed
        self._rules = rules

    def append(
        self,
        batch: Buffer,
        header: BatchHeader,
        end: tuple[int, int, int, int],
        epoch: int,
        log_start_offset: int,
    ) -> Any:  # (the end's own kind, answer), or None
        return None

    def check_and_append(
        self,
        records: Any,
        now_ms: int,
        end: tuple[int, int, int, int],
        epoch: int,
        log_start_offset: int,
    ) -> Any:  # (the end's own kind, answer), a BatchHeader, or None
        return check_batch(records, self._rules, now_ms)
