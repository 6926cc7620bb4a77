"""Arrow columns of records as the buffers that the kernel reads, and back.

In, by name (``value`` is required, the others may be missing)::

    value      binary or string; null is a tombstone
    key        binary or string
    timestamp  int64 (ms) or timestamp of any unit, cut to ms; null is the default
    headers    list<struct<key: string, value: binary>>

Out, ``DECODED`` and, if asked for, headers. What Arrow casts to these is taken too, with a copy:
large, view, dictionary and fixed-size variants of binary and string, and of lists; as long as a
column then holds under 2 GiB.
"""

from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from raylog.storage.buffers import Buffer
from raylog.storage.errors import InvalidRecord
from raylog.storage.records import kernel

HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
DECODED: Final = pa.schema(
    [
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),  # ms since 1970
        ("timestampType", pa.int32()),  # 0 CreateTime, 1 LogAppendTime, -1 none
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)
DECODED_WITH_HEADERS: Final = DECODED.append(pa.field("headers", HEADERS))

# pa.array would import pandas: 30 MB, a third of a second
_NO_ENTRIES: Final = pa.nulls(0, HEADERS.value_type)
_NAMES: Final = ("key", "value", "timestamp", "headers")
_NARROW: Final = (pa.binary(), pa.string())


class _Decoded(NamedTuple):
    """``kernel.Columns`` by name."""

    rows: int
    offsets: Buffer
    timestamps: Buffer
    timestamp_types: Buffer
    keys: "kernel.Text"
    values: "kernel.Text"
    headers: "tuple[Any, ...] | None"


class _DecodedHeaders(NamedTuple):
    """The headers in ``kernel.Columns`` by name."""

    ends: Buffer
    count: int  # type: ignore[assignment]  # hides tuple.count
    names: "kernel.Text | None"
    values: "kernel.Text | None"


def encoder(columns: pa.Table | pa.RecordBatch, default_timestamp: int) -> "kernel.TableEncoder":
    """The kernel's encoder over the columns.

    Raises InvalidRecord for a column that records do not have.
    """
    names = columns.schema.names
    for name in names:
        if name not in _NAMES:
            raise InvalidRecord(
                f"unknown column {name!r}; rename it to one of {', '.join(_NAMES)}, or drop it"
            )
        if names.count(name) > 1:
            raise InvalidRecord(f"column {name!r} exists more than once; drop all but one")
    arrays = {name: one_array(name, columns.column(name)) for name in names}
    if "value" not in arrays:
        raise InvalidRecord("the column 'value' is missing; add it (a null value is a tombstone)")
    lists, names, values = (
        _header_columns(arrays["headers"]) if "headers" in arrays else (None, None, None)
    )
    return kernel.ops.TableEncoder(
        columns.num_rows,
        _timestamps(arrays["timestamp"], default_timestamp) if "timestamp" in arrays else None,
        default_timestamp,
        text_column("key", arrays["key"]) if "key" in arrays else None,
        text_column("value", arrays["value"]),
        lists,
        names,
        values,
    )


def text_column(name: str, array: pa.Array) -> "kernel.TextColumn":
    """A binary or string array for the kernel.

    Nothing is copied, except the offsets of a large variant.
    """
    narrow = _narrow(array.type)
    if narrow is not None:
        try:
            array = array.cast(narrow)
        except (pa.ArrowInvalid, pa.ArrowCapacityError) as error:
            raise InvalidRecord(
                f"column {name!r} holds over 2 GiB: encode the table in slices"
            ) from error
    if array.type not in _NARROW:
        raise InvalidRecord(f"column {name!r} is {array.type}: cast it to binary or string")
    valid, ends, data = array.buffers()
    return _text_column(array, valid, ends, data)


def _narrow(kind: pa.DataType) -> pa.DataType | None:
    """To what an array must be cast to be binary or string; None if it is, or cannot be."""
    if pa.types.is_dictionary(kind):
        values = kind.value_type
        return values if values in _NARROW else _narrow(values)
    is_binary = (
        pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )
    if is_binary:
        return pa.binary()
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    return None


def _text_column(array: pa.Array, valid: Any, ends: Any, data: Any) -> "kernel.TextColumn":
    ends = ends.slice(4 * array.offset, 4 * (len(array) + 1)) if len(array) else bytes(4)
    return kernel.ops.TextColumn(ends, data, valid, array.offset, len(array))


def one_array(name: str, column: Any) -> pa.Array:
    """A column of a table or batch, in one piece."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if isinstance(column, pa.ChunkedArray):  # one array could not hold it
        raise InvalidRecord(f"column {name!r} holds over 2 GiB: encode the table in slices")
    return column


def indices(rows: Any) -> pa.Array:
    """Numbers of rows, an int64 array of numpy, for ``take``. Nothing is copied."""
    # pa.array would import pandas
    return pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(rows)])


def _timestamps(array: pa.Array, default_timestamp: int) -> pa.Buffer | bytes:
    if pa.types.is_timestamp(array.type):
        try:
            array = array.cast(pa.timestamp("ms", array.type.tz), safe=False).view(pa.int64())
        except pa.ArrowInvalid as error:
            raise InvalidRecord(f"column 'timestamp': {error}; cast it to int64 (ms)") from error
    if array.type != pa.int64():
        raise InvalidRecord(
            f"column 'timestamp' is {array.type}: cast it to int64 (ms) or timestamp[ms]"
        )
    if array.null_count:
        array = pc.fill_null(array, default_timestamp)
    data = array.buffers()[1]
    return data.slice(8 * array.offset, 8 * len(array)) if len(array) else b""


def _header_columns(array: pa.Array) -> tuple["kernel.TextColumn", ...]:
    kind = array.type
    if pa.types.is_large_list(kind) or pa.types.is_map(kind) or pa.types.is_list_view(kind):
        try:
            array = array.cast(HEADERS)
        except pa.ArrowException as error:
            raise InvalidRecord(f"column 'headers' is {kind}: cast it to {HEADERS}") from error
        kind = array.type
    if (
        not pa.types.is_list(kind)
        or not pa.types.is_struct(kind.value_type)
        or kind.value_type.num_fields != 2
    ):
        raise InvalidRecord(f"column 'headers' is {kind}: cast it to {HEADERS}")
    if {field.name for field in kind.value_type.fields} != {"key", "value"}:
        raise InvalidRecord(f"column 'headers' is {kind}: cast it to {HEADERS}")
    headers = array.values
    # with the struct's own nulls: a null header is one without a name
    names, values = headers.flatten()
    if kind.value_type.field(0).name == "value":
        names, values = values, names
    if _narrow(names.type) != pa.string() and names.type != pa.string():
        raise InvalidRecord(f"the names of column 'headers' are {names.type}: cast them to string")
    valid, ends = array.buffers()[:2]
    lists = _text_column(array, valid, ends, None)
    return lists, text_column("headers.key", names), text_column("headers.value", values)


def decoded_batch(columns: "kernel.Columns") -> pa.RecordBatch:
    """What the kernel decoded, as a RecordBatch over the same memory."""
    decoded = _Decoded._make(columns)
    rows = decoded.rows
    arrays = [
        _fixed(pa.int64(), rows, decoded.offsets),
        _fixed(pa.int64(), rows, decoded.timestamps),
        _fixed(pa.int32(), rows, decoded.timestamp_types),
        _binary(pa.binary(), rows, decoded.keys),
        _binary(pa.binary(), rows, decoded.values),
    ]
    if decoded.headers is None:
        return pa.RecordBatch.from_arrays(arrays, schema=DECODED)
    headers = _DecodedHeaders._make(decoded.headers)
    entries = _NO_ENTRIES
    if headers.names is not None and headers.values is not None:
        entries = _entries(headers.count, headers.names, headers.values)
    ends = as_buffer(headers.ends)
    lists = pa.Array.from_buffers(HEADERS, rows, [None, ends], children=[entries])
    return pa.RecordBatch.from_arrays([*arrays, lists], schema=DECODED_WITH_HEADERS)


def _entries(count: int, names: "kernel.Text", values: "kernel.Text") -> pa.Array:
    arrays = [_names(count, names), _binary(pa.binary(), count, values)]
    return pa.StructArray.from_arrays(arrays, fields=list(HEADERS.value_type))


def as_buffer(memory: Buffer | pa.Buffer) -> pa.Buffer:
    return memory if isinstance(memory, pa.Buffer) else pa.py_buffer(memory)


def _fixed(kind: pa.DataType, rows: int, data: Buffer) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [None, as_buffer(data)], null_count=0)


def _binary(kind: pa.DataType, rows: int, column: "kernel.Text") -> pa.Array:
    ends, data, valid = column
    bitmap = None if valid is None else as_buffer(valid)
    return pa.Array.from_buffers(kind, rows, [bitmap, as_buffer(ends), as_buffer(data)])


def _names(count: int, column: "kernel.Text") -> pa.Array:
    """Header names; what is not UTF-8 in them becomes U+FFFD, as in Kafka."""
    names = _binary(pa.string(), count, column)
    try:
        names.validate(full=True)
    except pa.ArrowInvalid:
        raw = _binary(pa.binary(), count, column).to_pylist()
        return pa.array([name.decode(errors="replace") for name in raw], pa.string())
    return names
