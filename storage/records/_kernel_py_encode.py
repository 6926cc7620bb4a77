"""Rows and Arrow columns to batches, and to partitions. See ``_kernel_encode.pxi``."""

from array import array
from collections.abc import Sequence
from typing import Any

from raylog.storage.buffers import Buffer
from raylog.storage.errors import InvalidRecord
from raylog.storage.limits import MAX_INT
from raylog.storage.records._kernel_py_bytes import Malformed, wrap
from raylog.storage.records.compression import MAX_PLAIN_BYTES
from raylog.storage.records.layout import HEADER_SIZE
from raylog.storage.records.varints import put_varint


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
        put_record(
            out,
            wrap(timestamp - base),
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


def put_record(
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
            raise Malformed(f"{what} points outside of the column's data: validate(full=True) it")
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
                self._put_row(out, row, timestamp, wrap(timestamp - base), row - start)
            except Malformed as error:
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
            raise Malformed("its timestamp is negative: use ms since 1970, or -1 for none")
        key = None if self.keys is None else self.keys.get(row, "its key")
        put_record(
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
            raise Malformed("its headers point outside of their array: validate(full=True) it")
        headers: list[tuple[Buffer | None, Buffer | None]] = []
        for i in range(start, end):
            name = names.get(i, "a header's name")
            if name is None:
                raise Malformed("a header's name is null: give it one")
            headers.append((name, values.get(i, "a header's value")))
        return headers


def murmur2(key: Buffer) -> int:
    data = memoryview(key).cast("B")
    m, mask, size = 0x5BD1E995, 0xFFFFFFFF, len(data)
    h = 0x9747B28C ^ (size & mask)
    tail = size & ~3
    for i in range(0, tail, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if tail < size:
        h = (h ^ int.from_bytes(data[tail:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    h ^= h >> 15
    return h - 2**32 if h >= 2**31 else h


def partition_column(keys: TextColumn, partitions: int) -> bytearray:
    if not 1 <= partitions <= MAX_INT:
        raise ValueError(f"{partitions} partitions; give at least one, and under 2^31")
    out = array("i")
    for row in range(keys.rows):
        try:
            key = keys.get(row, "its key")
        except Malformed as error:
            raise InvalidRecord(f"row {row}: {error}") from None
        out.append(-1 if key is None else (murmur2(key) & 0x7FFFFFFF) % partitions)
    return bytearray(out)
