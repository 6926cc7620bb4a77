"""The types that fields of Kafka's messages have: each reads its value from bytes, and writes it.

A type is written in one of two ways, by whether the message's version is *flexible*:

==========  ==================  =============================  ================================
type        value in Python     not flexible                   flexible
==========  ==================  =============================  ================================
numbers     int, float, bool    fixed width, big-endian        the same
uuid        ``uuid.UUID``       16 bytes                       the same
string      str                 int16 length, UTF-8            unsigned varint length + 1, UTF-8
bytes       bytes               int32 length, bytes            unsigned varint length + 1, bytes
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

What was read has every field: the default stands for a tagged field that was not written, and for
a field that the version does not have. What is written may leave those out, and nothing else.

A type refuses by ``Refusal``, which collects the path to the field; ``schema.py`` turns it into an
error. Source: Kafka's message generator; KIP-482.
"""

import uuid
from collections.abc import Mapping
from functools import cached_property
from struct import Struct as Form
from struct import error as FormError
from typing import Any, Final, NamedTuple, TypeAlias

from raylog.storage.schemas.binary import MAX_UNSIGNED, ByteReader, put_unsigned

Value: TypeAlias = dict[str, Any]

UNKNOWN_TAGS: Final = "unknown_tags"  # in a struct: dict of tag to bytes
MAX_STRING_BYTES: Final = 2**15 - 1  # Kafka's limit in flexible versions, too

_BAD_UTF8: Final = "surrogateescape"
_INT16: Final = Form(">h")
_INT32: Final = Form(">i")
_NULL, _PRESENT = b"\xff", b"\x01"


class Refusal(Exception):
    """A value that cannot be written, or bytes that are no value: where, and why."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
        self.path = ""

    def below(self, step: str) -> "Refusal":
        """The same refusal, as seen from one level further out."""
        self.path = f"{step}{self.path}"
        return self


class Version(NamedTuple):
    """A message's version, and whether it is flexible."""

    number: int
    is_flexible: bool


class Number:
    """A number of fixed width, or a bool."""

    def __init__(self, name: str, form: str) -> None:
        self.name = name
        self.default: Any = False if name == "bool" else 0
        self._form = Form(form)

    def read(self, reader: ByteReader, version: Version) -> Any:
        return reader.number(self._form)

    def write(self, out: bytearray, value: Any, version: Version) -> None:
        if isinstance(value, bool) != (self.name == "bool"):
            raise Refusal(f"{value!r} is no {self.name}")
        try:
            out += self._form.pack(value)
        except (FormError, OverflowError):
            raise Refusal(f"{value!r} is no {self.name}") from None


class Uuid:
    """A UUID; all zeros where none is meant."""

    default: Final = uuid.UUID(int=0)

    def read(self, reader: ByteReader, version: Version) -> uuid.UUID:
        return uuid.UUID(bytes=reader.take(16))

    def write(self, out: bytearray, value: Any, version: Version) -> None:
        if not isinstance(value, uuid.UUID):
            raise Refusal(f"{value!r} is no uuid")
        out += value.bytes


class String:
    """Text of at most ``MAX_STRING_BYTES``."""

    def __init__(self, is_nullable: bool) -> None:
        self.is_nullable = is_nullable
        self.default = None if is_nullable else ""

    def read(self, reader: ByteReader, version: Version) -> str | None:
        size = _read_size(reader, _INT16, version, self.is_nullable)
        if size is None:
            return None
        if size > MAX_STRING_BYTES:
            raise Refusal(f"a string of {size} bytes, more than {MAX_STRING_BYTES}")
        return reader.take(size).decode(errors=_BAD_UTF8)

    def write(self, out: bytearray, value: Any, version: Version) -> None:
        if value is None:
            _write_null(out, _INT16, version, self.is_nullable)
            return
        if not isinstance(value, str):
            raise Refusal(f"{value!r} is no string")
        try:
            content = value.encode(errors=_BAD_UTF8)
        except UnicodeEncodeError:
            raise Refusal(f"{value!r} contains an unpaired surrogate") from None
        if len(content) > MAX_STRING_BYTES:
            raise Refusal(f"a string of {len(content)} bytes, more than {MAX_STRING_BYTES}")
        _write_size(out, len(content), _INT16, version)
        out += content


class Bytes:
    """Bytes of any kind."""

    def __init__(self, is_nullable: bool) -> None:
        self.is_nullable = is_nullable
        self.default = None if is_nullable else b""

    def read(self, reader: ByteReader, version: Version) -> bytes | None:
        size = _read_size(reader, _INT32, version, self.is_nullable)
        return None if size is None else reader.take(size)

    def write(self, out: bytearray, value: Any, version: Version) -> None:
        if value is None:
            _write_null(out, _INT32, version, self.is_nullable)
            return
        if not isinstance(value, bytes | bytearray | memoryview):
            raise Refusal(f"{value!r} is no bytes")
        content = bytes(value)
        _write_size(out, len(content), _INT32, version)
        out += content


class Array:
    """Entries of one type, in an order."""

    def __init__(self, entry: "Type", is_nullable: bool) -> None:
        self.entry = entry
        self.is_nullable = is_nullable

    @property
    def default(self) -> list[Any] | None:
        return None if self.is_nullable else []

    def read(self, reader: ByteReader, version: Version) -> list[Any] | None:
        count = _read_size(reader, _INT32, version, self.is_nullable)
        if count is None:
            return None
        if count > reader.left:
            raise Refusal(f"an array of {count} entries in {reader.left} bytes")
        entries = []
        for index in range(count):
            try:
                entries.append(self.entry.read(reader, version))
            except Refusal as refusal:
                raise refusal.below(f"[{index}]") from None
        return entries

    def write(self, out: bytearray, value: Any, version: Version) -> None:
        if value is None:
            _write_null(out, _INT32, version, self.is_nullable)
            return
        if not isinstance(value, list | tuple):
            raise Refusal(f"{value!r} is no array")
        _write_size(out, len(value), _INT32, version)
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


class StructType:
    """Fields by name."""

    def __init__(self, fields: tuple[Field, ...], is_nullable: bool = False) -> None:
        self.fields = fields
        self.is_nullable = is_nullable
        self._layouts: dict[int, _Layout] = {}

    @property
    def default(self) -> Value | None:
        return None if self.is_nullable else {field.name: field.default for field in self.fields}

    def read(self, reader: ByteReader, version: Version) -> Value | None:
        if self.is_nullable and reader.take(1)[0] >= 0x80:
            return None
        layout = self._layout(version.number)
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
        layout = self._layout(version.number)
        self._check_names(value, layout, version)
        for field in layout.untagged:
            field.write(out, value[field.name], version)
        if version.is_flexible:
            _write_tagged(out, value, layout.tagged, version)

    def _layout(self, version: int) -> _Layout:
        layout = self._layouts.get(version)
        if layout is None:
            present = [field for field in self.fields if field.is_in(version)]
            tagged = {field.tag: field for field in present if field.tag is not None}
            layout = self._layouts[version] = _Layout(
                untagged=tuple(field for field in present if field.tag is None),
                tagged=dict(sorted(tagged.items())),
                absent=tuple(field for field in self.fields if not field.is_in(version)),
            )
        return layout

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(field.name for field in self.fields)

    def _read_tagged(
        self, reader: ByteReader, value: Value, tagged: dict[int, Field], version: Version
    ) -> None:
        seen: set[int] = set()
        unknown = {}
        for _ in range(reader.unsigned()):
            tag = reader.unsigned()
            content = reader.take(reader.unsigned())
            if tag in seen:
                raise Refusal(f"tag {tag} occurs twice")
            seen.add(tag)
            field = tagged.get(tag)
            if field is None:
                unknown[tag] = content
                continue
            inner = ByteReader(content)
            value[field.name] = field.read(inner, version)
            if inner.left:
                raise Refusal(f"a size that is {inner.left} bytes too large").below(
                    f".{field.name}"
                )
        if unknown:
            value[UNKNOWN_TAGS] = unknown

    def _check_names(self, value: Mapping[str, Any], layout: _Layout, version: Version) -> None:
        for field in layout.untagged:
            if field.name not in value:
                raise Refusal("is missing").below(f".{field.name}")
        for field in layout.absent:
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

NUMBERS: Final = {
    name: Number(name, form)
    for name, form in {
        "bool": ">?",
        "int8": ">b",
        "int16": ">h",
        "uint16": ">H",
        "int32": ">i",
        "int64": ">q",
        "float64": ">d",
    }.items()
}


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


def _read_size(reader: ByteReader, form: Form, version: Version, is_nullable: bool) -> int | None:
    """A length or a count; None is null, for which Kafka takes every negative one."""
    size = reader.unsigned() - 1 if version.is_flexible else reader.number(form)
    if size >= 0:
        return int(size)
    if not is_nullable:
        raise Refusal("the field is not nullable")
    return None


def _write_size(out: bytearray, size: int, form: Form, version: Version) -> None:
    if size >= MAX_UNSIGNED:
        raise Refusal(f"a size of {size}, more than {MAX_UNSIGNED - 1}")
    if version.is_flexible:
        put_unsigned(out, size + 1)
    else:
        out += form.pack(size)


def _write_null(out: bytearray, form: Form, version: Version, is_nullable: bool) -> None:
    if not is_nullable:
        raise Refusal("the field is not nullable")
    if version.is_flexible:
        put_unsigned(out, 0)
    else:
        out += form.pack(-1)
