"""Kafka's message schemas, in a few words each; messages are read and written by them.

Kafka describes the records of its internal topics, and the requests of its protocol, by schemas:
fields in an order, each of some versions. Here a schema is a text, one line a field, the fields of
a struct indented below it::

    offset int64                       name, type
    leaderEpoch int32 3+ default=-1    of version 3 and later
    expireTimestamp int64 1-1          of version 1 alone
    protocol ?string                   may be null
    members []                         an array of structs,
      memberId string                  with this field
    leader int32 0+ tag=1 default=-2   tagged: written only where it is not the default
    name ?string null=12+              may be null in version 12 and later
    leaderEpoch int32 7+ ignorable     may be given to a version that does not have it

Types: bool, int8 ... int64, uint16, float64, string, bytes, records, uuid, struct (of the fields
below), each with ``[]`` before it for an array and ``?`` before that where null is a value. How
each is written, and which Python value it is, ``types.py`` draws. A default is 0, "", an empty
array or, where null is a value, null, if the line gives no other.

``Schema.read`` and ``Schema.write`` are inverse to each other: what was read is written as the same
bytes, with tagged fields and strings that this schema does not understand. This is so for all that
Kafka writes. Kafka also reads a few forms that it never writes. They are read as Kafka reads them,
and written in Kafka's form:

===============================================================  ===============================
another writer's form                                            is written as
===============================================================  ===============================
a varint of needless length                                      the shortest one
tagged fields out of order                                       by rising tag
a tagged field that has its default                              nothing
a bool that is neither 0 nor 1 (true)                            1
a byte before a nullable struct: 0 or 2 to 127 (it is there)     1
a byte before a nullable struct: -128 to -2 (null)               -1
a null length below -1                                           -1
===============================================================  ===============================

A tag that occurs twice in one struct is refused, since rising tags do not repeat (KIP-482).

Two errors, by where a fault comes from:

- ``InvalidRecord``: bytes that are no message of this schema.
- ``UnwritableValue``: a value that the schema cannot say. Values hold what users sent (group ids,
  the text of a commit), so it is an exception, not an assertion, and no record is written.

A version that the schema does not have is an assertion in ``write`` (we choose it) and an
``InvalidRecord`` in ``read_versioned`` (the bytes name it).

As JSON a message is shown by ``tools/dump/``. Source: Kafka's message generator; KIP-482.
"""

from struct import Struct as Form
from typing import Final, NamedTuple

from raylog.storage.buffers import Buffer
from raylog.storage.errors import InvalidRecord, UnwritableValue
from raylog.storage.schemas.binary import ByteReader
from raylog.storage.schemas.scalars import (
    NEVER,
    NUMBERS,
    Bytes,
    Records,
    Refusal,
    String,
    Uuid,
    Version,
)
from raylog.storage.schemas.types import Array, Field, StructType, Type, Value

_VERSION: Final = Form(">h")
_SIZED: Final[dict[str, type[String] | type[Bytes]]] = {
    "string": String,
    "bytes": Bytes,
    "records": Records,
}


class Schema(NamedTuple):
    """One message, in all of its versions."""

    name: str
    last_version: int
    flexible_version: int  # the first flexible one
    struct: StructType

    def read(self, source: Buffer | ByteReader, version: int) -> Value:
        """The message at the head of ``source``, every field by its name.

        A reader stands behind the message afterwards; of a buffer, what follows the message is not
        looked at. Raises InvalidRecord.
        """
        reader = source if isinstance(source, ByteReader) else ByteReader(source)
        try:
            value = self.struct.read(reader, self._version(version))
        except Refusal as refusal:
            raise InvalidRecord(f"{self.name}{refusal.path}: {refusal.why}") from None
        assert value is not None, "a message is no nullable struct"
        return value

    def write(self, value: Value, version: int) -> bytes:
        """The bytes of a message. Raises UnwritableValue."""
        out = bytearray()
        try:
            self.struct.write(out, value, self._version(version))
        except Refusal as refusal:
            raise UnwritableValue(f"{self.name}{refusal.path}", version, refusal.why) from None
        return bytes(out)

    def read_versioned(self, source: Buffer | ByteReader) -> tuple[int, Value]:
        """A message behind its version, an int16, and that version. Raises InvalidRecord."""
        reader = source if isinstance(source, ByteReader) else ByteReader(source)
        version = read_version(reader)
        if not 0 <= version <= self.last_version:
            raise InvalidRecord(
                f"{self.name} of version {version} is unknown; the last one is {self.last_version}"
            )
        return version, self.read(reader, version)

    def write_versioned(self, value: Value, version: int) -> bytes:
        """The bytes of a message behind its version. Raises UnwritableValue."""
        return _VERSION.pack(version) + self.write(value, version)

    def _version(self, number: int) -> Version:
        assert 0 <= number <= self.last_version, f"{self.name} has no version {number}"
        return Version(number, number >= self.flexible_version)


def read_version(reader: ByteReader) -> int:
    """The version before a message. Raises InvalidRecord."""
    return int(reader.number(_VERSION))


def schema(name: str, text: str = "", *, last_version: int = 0, flexible: int = NEVER) -> Schema:
    """A schema by its text. ``flexible``: the first flexible version."""
    lines = [line for line in text.splitlines() if line.strip()]
    fields, rest = _parse(lines, _depth(lines[0]) if lines else 0)
    assert not rest, rest
    return Schema(
        name=name, last_version=last_version, flexible_version=flexible, struct=StructType(fields)
    )


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
    name, type_text, *rest = words
    options: dict[str, str] = {}
    versions = "0+"
    is_ignorable = False
    for word in rest:
        key, is_option, text = word.partition("=")
        if is_option:
            options[key] = text
        elif word == "ignorable":
            is_ignorable = True
        else:
            versions = word
    first, _, last = versions.partition("-")
    return Field(
        name=name,
        type=_type(type_text, inner, int(options.get("null", "0").rstrip("+"))),
        first_version=int(first.rstrip("+")),
        last_version=int(last or NEVER),
        tag=int(options["tag"]) if "tag" in options else None,
        own_default=_default(options["default"]) if "default" in options else None,
        is_ignorable=is_ignorable,
    )


def _default(text: str) -> int:
    return True if text == "true" else int(text)


def _type(text: str, inner: tuple[Field, ...], null_since: int = 0) -> Type:
    """A type by its text. ``null_since``: the first version with null, where it has a ``?``."""
    is_nullable = text.startswith("?")
    null_since = null_since if is_nullable else NEVER
    text = text.removeprefix("?")
    if text.startswith("[]"):
        return Array(_type(text.removeprefix("[]") or "struct", inner), null_since)
    if text == "struct":
        return StructType(inner, is_nullable)
    if text in _SIZED:
        return _SIZED[text](null_since)
    assert not is_nullable, f"a {text} is never null"
    return Uuid() if text == "uuid" else NUMBERS[text]
