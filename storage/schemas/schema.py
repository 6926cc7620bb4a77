"""Kafka's message schemas, in a few words each, and messages read by them into what JSON can say.

Kafka describes the records of its internal topics by schemas: fields in an order, each of some
versions. Here a schema is a text, one line a field, the fields of a struct indented below it::

    offset int64                       name, type
    leaderEpoch int32 3+               of version 3 and later
    expireTimestamp int64 1-1          of version 1 alone
    protocol ?string                   may be null
    members []                         an array of structs,
      memberId string                  with this field
    leader int32 0+ tag=1 default=-2   written only where it is not the default

Types: bool, int8 ... int64, uint16, float64, string, bytes, uuid, struct (of the fields below),
each with ``[]`` before it for an array and ``?`` before that where null is a value. From its
*flexible* version on, a message has its lengths as unsigned varints of length + 1, and behind each
struct a list of tagged fields: (tag, size, bytes). Tags that are not known are skipped.

JSON is as Kafka's tools have it: fields in the schema's order, tagged ones only where they differ
from the default, bytes as base64, UUIDs as Kafka writes them. Source: Kafka's message generator and
its JSON converters; KIP-482.
"""

import base64
import uuid
from collections.abc import Callable
from struct import Struct
from typing import Any, Final, NamedTuple

from raylog.storage.errors import InvalidRecord
from raylog.storage.records.record import Buffer
from raylog.storage.state.properties import id_text
from raylog.storage.tools.dump.java_text import utf8_text

NEVER: Final = 2**15
_NUMBERS: Final = {
    "bool": Struct(">?"),
    "int8": Struct(">b"),
    "int16": Struct(">h"),
    "uint16": Struct(">H"),
    "int32": Struct(">i"),
    "int64": Struct(">q"),
    "float64": Struct(">d"),
}
_DEFAULTS: Final = {"string": "", "bytes": "", "uuid": id_text(uuid.UUID(int=0)), "bool": False}


class Field(NamedTuple):
    """One field of a struct."""

    name: str
    kind: str
    is_array: bool
    is_nullable: bool
    first_version: int
    last_version: int
    tag: int | None
    default: Any
    fields: tuple["Field", ...]


class Schema(NamedTuple):
    """One message."""

    name: str
    last_version: int
    flexible_version: int
    fields: tuple[Field, ...]


def schema(name: str, text: str = "", *, last_version: int = 0, flexible: int = NEVER) -> Schema:
    """A schema of its text. ``flexible``: the first flexible version."""
    lines = [line for line in text.splitlines() if line.strip()]
    fields, rest = _parse(lines, _depth(lines[0]) if lines else 0)
    assert not rest, rest
    return Schema(name, last_version, flexible, fields)


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _parse(lines: list[str], depth: int) -> tuple[tuple[Field, ...], list[str]]:
    """The fields at this depth, and the lines behind them."""
    fields = []
    while lines and _depth(lines[0]) == depth:
        line, lines = lines[0], lines[1:]
        inner: tuple[Field, ...] = ()
        if lines and _depth(lines[0]) > depth:
            inner, lines = _parse(lines, _depth(lines[0]))
        fields.append(_field(line.split(), inner))
    return tuple(fields), lines


def _field(words: list[str], inner: tuple[Field, ...]) -> Field:
    name, kind = words[:2]
    options = dict(word.split("=") for word in words[2:] if "=" in word)
    first, _, last = next((word for word in words[2:] if "=" not in word), "0+").partition("-")
    is_nullable, kind = kind.startswith("?"), kind.removeprefix("?")
    is_array, kind = kind.startswith("[]"), kind.removeprefix("[]") or "struct"
    default = None if is_nullable else [] if is_array else _DEFAULTS.get(kind, 0)
    if "default" in options:
        default = int(options["default"])
    tag = int(options["tag"]) if "tag" in options else None
    return Field(
        name,
        kind,
        is_array,
        is_nullable,
        int(first.rstrip("+")),
        int(last or NEVER),
        tag,
        default,
        inner,
    )


def read_message(schema: Schema, content: Buffer, version: int) -> dict[str, Any]:
    """A message's fields, as JSON has them; what follows it is not looked at. Raises
    InvalidRecord."""
    return Reader(content).message(schema, version)


class Reader:
    """Reads one message from its bytes."""

    def __init__(self, content: Buffer, position: int = 0) -> None:
        self._content, self.position = memoryview(content), position

    def message(self, schema: Schema, version: int) -> dict[str, Any]:
        return self._struct(schema.fields, version, version >= schema.flexible_version)

    def versioned(self, schema: Schema) -> tuple[int, dict[str, Any]]:
        """A message behind its version, an int16, which must be one that the schema has."""
        version = self.number("int16")
        if not 0 <= version <= schema.last_version:
            raise InvalidRecord(
                f"{schema.name} of version {version}, {schema.last_version} is the last known"
            )
        return version, self.message(schema, version)

    def _struct(self, fields: tuple[Field, ...], version: int, flexible: bool) -> dict[str, Any]:
        present = [
            field for field in fields if field.first_version <= version <= field.last_version
        ]
        found = {
            field.name: self._value(field, version, flexible)
            for field in present
            if field.tag is None
        }
        if flexible:
            found |= self._tagged({field.tag: field for field in present}, version)
            return {field.name: found[field.name] for field in present if field.name in found}
        return found

    def _tagged(self, known: dict[int | None, Field], version: int) -> dict[str, Any]:
        found = {}
        for _ in range(self.unsigned()):
            tag, size = self.unsigned(), self.unsigned()
            end = self.position + size
            field = known.get(tag)
            if field is not None:
                found[field.name] = self._value(field, version, True)
                if found[field.name] == field.default:
                    del found[field.name]
            self.position = end
        return found

    def _value(self, field: Field, version: int, flexible: bool) -> Any:
        if not field.is_array:
            return self._scalar(field, version, flexible)
        count = self.unsigned() - 1 if flexible else self.number("int32")
        if count < 0:
            return None
        if count > len(self._content):
            raise InvalidRecord(
                f"{field.name} of {count} entries in a message of {len(self._content)} bytes"
            )
        return [
            self._scalar(field._replace(is_nullable=False), version, flexible) for _ in range(count)
        ]

    def _scalar(self, field: Field, version: int, flexible: bool) -> Any:
        if field.kind in _NUMBERS:
            return self.number(field.kind)
        if field.kind == "uuid":
            return id_text(uuid.UUID(bytes=self._take(16)))
        if field.kind == "struct":
            if field.is_nullable and self.number("int8") < 0:
                return None
            return self._struct(field.fields, version, flexible)
        width = "int16" if field.kind == "string" else "int32"
        size = self.unsigned() - 1 if flexible else self.number(width)
        return None if size < 0 else _TEXT[field.kind](self._take(size))

    def number(self, kind: str) -> Any:
        form = _NUMBERS[kind]
        return form.unpack(self._take(form.size))[0]

    def unsigned(self) -> int:
        """An unsigned varint of at most five bytes."""
        number = 0
        for shift in range(0, 35, 7):
            (byte,) = self._take(1)
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise InvalidRecord("an unsigned varint of more than five bytes")

    def _take(self, size: int) -> bytes:
        taken = bytes(self._content[self.position : self.position + size])
        if len(taken) < size:
            raise InvalidRecord(f"a message that ends {size - len(taken)} bytes too early")
        self.position += size
        return taken


_TEXT: Final[dict[str, Callable[[bytes], str]]] = {
    "string": utf8_text,
    "bytes": lambda content: base64.b64encode(content).decode(),
}
