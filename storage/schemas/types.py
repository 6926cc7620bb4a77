"""The types that fields of Kafka's messages have: each reads its value from bytes, and writes it.

A type is written in one of two ways, by whether the message's version is *flexible*:

==========  ==================  =============================  ================================
type        value in Python     not flexible                   flexible
==========  ==================  =============================  ================================
numbers     int, float, bool    fixed width, big-endian        the same
uuid        ``uuid.UUID``       16 bytes                       the same
string      str                 int16 length, UTF-8            unsigned varint length + 1, UTF-8
bytes       bytes               int32 length, bytes            unsigned varint length + 1, bytes
records     memoryview          the same as bytes              the same as bytes
array       list                int32 count, entries           unsigned varint count + 1, entries
struct      dict by field name  fields in order                fields in order, tagged fields
==========  ==================  =============================  ================================

A null has the length -1; a struct that may be null has an int8 before it, -1 for null, else 1.
Tagged fields are an unsigned varint count and, by rising tag, (tag, size, bytes). They are written
only where they differ from their default.

What was read is written as the same bytes, but for the forms that ``schema.py`` lists. Two things
are kept for this:

- A tagged field that the schema does not know is kept under ``UNKNOWN_TAGS`` in its struct.
- A string whose bytes are no UTF-8 is read with ``surrogateescape``: the str that this gives is
  written as the same bytes.

Both are so with the rules of bytes that are stored; a reader may have others (``binary.py``).

A count is checked against the bytes that are left before anything is read or allocated for it. So
what a message takes in memory is bounded by its own bytes, and by ``ReadRules.max_entries``.

What was read has every field: the default stands for a tagged field that was not written, and for
a field that the version does not have. What is written may leave those out, and nothing else. A
field that the version does not have may be given with its default. With another value it is left
out if the field is *ignorable*, and refused if it is not.

Numbers, uuids, strings and bytes are in ``scalars.py``. A type refuses by ``Refusal``, which
collects the path to the field; ``schema.py`` turns it into an error. Source: Kafka's message
generator; KIP-482.
"""

from collections.abc import Mapping
from functools import cached_property
from struct import Struct as Form
from typing import Any, Final, NamedTuple, TypeAlias

from raylog.storage.schemas.binary import MAX_UNSIGNED, ByteReader, put_unsigned
from raylog.storage.schemas.scalars import (
    NEVER,
    Bytes,
    Number,
    Refusal,
    Sized,
    String,
    Uuid,
    Version,
)

Value: TypeAlias = dict[str, Any]

UNKNOWN_TAGS: Final = "unknown_tags"  # in a struct: dict of tag to bytes

_INT32: Final = Form(">i")
_NULL, _PRESENT = b"\xff", b"\x01"
_LEAST_TAG_BYTES: Final = 2  # a tag and a size


class Array(Sized):
    """Entries of one type, in an order."""

    form = _INT32

    def __init__(self, entry: "Type", null_since: int = NEVER) -> None:
        super().__init__(null_since)
        self.entry = entry

    @property
    def default(self) -> list[Any] | None:
        return None if self.is_nullable else []

    def read(self, reader: ByteReader, version: Version) -> list[Any] | None:
        count = self.read_size(reader, version)
        if count is None:
            return None
        # An entry that needs no byte counts as one of a byte: no schema of Kafka's has such.
        if count * max(1, self.entry.least_bytes(version)) > reader.left:
            raise Refusal(f"an array of {count} entries in {reader.left} bytes")
        _count_entries(reader, count)
        entries = []
        for index in range(count):
            try:
                entries.append(self.entry.read(reader, version))
            except Refusal as refusal:
                raise refusal.below(f"[{index}]") from None
        return entries

    def write(self, out: bytearray, value: Any, version: Version) -> None:
        if value is None:
            self.write_null(out, version)
            return
        if not isinstance(value, list | tuple):
            raise Refusal(f"{value!r} is no array")
        self.write_size(out, len(value), version)
        for index, entry in enumerate(value):
            try:
                self.entry.write(out, entry, version)
            except Refusal as refusal:
                raise refusal.below(f"[{index}]") from None


class Field(NamedTuple):
    """One field of a struct."""

    name: str
    type: "Type"
    first_version: int
    last_version: int
    tag: int | None
    own_default: int | None  # None: the default of the type
    is_ignorable: bool = False  # left out of a version that does not have it

    @property
    def default(self) -> Any:
        """The value of a field that is not there: a new one, which may be changed."""
        return self.type.default if self.own_default is None else self.own_default

    def is_in(self, version: int) -> bool:
        return self.first_version <= version <= self.last_version

    def read(self, reader: ByteReader, version: Version) -> Any:
        try:
            return self.type.read(reader, version)
        except Refusal as refusal:
            raise refusal.below(f".{self.name}") from None

    def write(self, out: bytearray, value: Any, version: Version) -> None:
        try:
            self.type.write(out, value, version)
        except Refusal as refusal:
            raise refusal.below(f".{self.name}") from None


class _Layout(NamedTuple):
    """What one version of a struct has."""

    untagged: tuple[Field, ...]
    tagged: dict[int, Field]  # by rising tag
    absent: tuple[Field, ...]
    least_bytes: int


class StructType:
    """Fields by name."""

    def __init__(self, fields: tuple[Field, ...], is_nullable: bool = False) -> None:
        self.fields = fields
        self.is_nullable = is_nullable
        self._layouts: dict[int, _Layout] = {}

    @property
    def default(self) -> Value | None:
        return None if self.is_nullable else {field.name: field.default for field in self.fields}

    def least_bytes(self, version: Version) -> int:
        return 1 if self.is_nullable else self._layout(version).least_bytes

    def read(self, reader: ByteReader, version: Version) -> Value | None:
        if self.is_nullable and reader.take(1)[0] >= 0x80:
            return None
        layout = self._layout(version)
        value: Value = {}
        for field in layout.untagged:
            value[field.name] = field.read(reader, version)
        for field in (*layout.tagged.values(), *layout.absent):
            value[field.name] = field.default
        if version.is_flexible:
            self._read_tagged(reader, value, layout.tagged, version)
        return value

    def write(self, out: bytearray, value: Any, version: Version) -> None:
        if value is None and self.is_nullable:
            out += _NULL
            return
        if not isinstance(value, Mapping):
            raise Refusal(f"{value!r} is no struct")
        if self.is_nullable:
            out += _PRESENT
        layout = self._layout(version)
        self._check_names(value, layout, version)
        for field in layout.untagged:
            field.write(out, value[field.name], version)
        if version.is_flexible:
            _write_tagged(out, value, layout.tagged, version)

    def _layout(self, version: Version) -> _Layout:
        layout = self._layouts.get(version.number)
        if layout is None:
            layout = self._layouts[version.number] = self._made_layout(version)
        return layout

    def _made_layout(self, version: Version) -> _Layout:
        present = [field for field in self.fields if field.is_in(version.number)]
        untagged = tuple(field for field in present if field.tag is None)
        tagged = {field.tag: field for field in present if field.tag is not None}
        tags_bytes = 1 if version.is_flexible else 0
        return _Layout(
            untagged=untagged,
            tagged=dict(sorted(tagged.items())),
            absent=tuple(field for field in self.fields if not field.is_in(version.number)),
            least_bytes=tags_bytes + sum(field.type.least_bytes(version) for field in untagged),
        )

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(field.name for field in self.fields)

    def _read_tagged(
        self, reader: ByteReader, value: Value, tagged: dict[int, Field], version: Version
    ) -> None:
        count = reader.unsigned()
        if count * _LEAST_TAG_BYTES > reader.left:
            raise Refusal(f"{count} tagged fields in {reader.left} bytes")
        _count_entries(reader, count)
        seen: set[int] = set()
        unknown = {}
        for _ in range(count):
            tag = reader.unsigned()
            size = reader.unsigned()
            if tag in seen:
                raise Refusal(f"tag {tag} occurs twice")
            seen.add(tag)
            field = tagged.get(tag)
            if field is not None:
                value[field.name] = _read_sized(reader, field, size, version)
            elif reader.rules.keeps_unknown_tags:
                unknown[tag] = reader.take(size)
            else:
                reader.skip(size)
        if unknown:
            value[UNKNOWN_TAGS] = unknown

    def _check_names(self, value: Mapping[str, Any], layout: _Layout, version: Version) -> None:
        for field in layout.untagged:
            if field.name not in value:
                raise Refusal("is missing").below(f".{field.name}")
        for field in layout.absent:
            if field.is_ignorable:
                continue
            if value.get(field.name, field.default) != field.default:
                raise Refusal(
                    f"{value[field.name]!r}, but version {version.number} has no such field"
                ).below(f".{field.name}")
        for name in value.keys() - self._names:
            if name != UNKNOWN_TAGS:
                raise Refusal("no field has this name").below(f".{name}")
        if UNKNOWN_TAGS in value:
            _check_unknown_tags(value[UNKNOWN_TAGS], layout, version)


Type: TypeAlias = Number | Uuid | String | Bytes | Array | StructType


def _count_entries(reader: ByteReader, count: int) -> None:
    """Take entries from those that the message may have."""
    reader.entries_left -= count
    if reader.entries_left < 0:
        raise Refusal(f"more than {reader.rules.max_entries} entries in one message")


def _read_sized(reader: ByteReader, field: Field, size: int, version: Version) -> Any:
    """The value of a tagged field, which must fill its bytes."""
    outer_end = reader.narrow(size)
    value = field.read(reader, version)
    if reader.left:
        raise Refusal(f"a size that is {reader.left} bytes too large").below(f".{field.name}")
    reader.widen(outer_end)
    return value


def _check_unknown_tags(unknown: Any, layout: _Layout, version: Version) -> None:
    if not isinstance(unknown, Mapping):
        raise Refusal(f"{unknown!r} is no dict of tags").below(f".{UNKNOWN_TAGS}")
    if unknown and not version.is_flexible:
        raise Refusal(f"version {version.number} is not flexible").below(f".{UNKNOWN_TAGS}")
    for tag, content in unknown.items():
        if isinstance(tag, bool) or not isinstance(tag, int) or not 0 <= tag <= MAX_UNSIGNED:
            why = f"{tag!r} is no tag"
        elif tag in layout.tagged:
            why = f"tag {tag} is the field {layout.tagged[tag].name}"
        elif not isinstance(content, bytes):
            why = f"tag {tag} with {content!r}, which is no bytes"
        else:
            continue
        raise Refusal(why).below(f".{UNKNOWN_TAGS}")


def _write_tagged(
    out: bytearray, value: Mapping[str, Any], tagged: dict[int, Field], version: Version
) -> None:
    contents: dict[int, bytes | bytearray] = dict(value.get(UNKNOWN_TAGS, {}))
    for tag, field in tagged.items():
        default = field.default
        tagged_value = value.get(field.name, default)
        if tagged_value != default:
            content = contents[tag] = bytearray()
            field.write(content, tagged_value, version)
    put_unsigned(out, len(contents))
    for tag in sorted(contents):
        put_unsigned(out, tag)
        put_unsigned(out, len(contents[tag]))
        out += contents[tag]
