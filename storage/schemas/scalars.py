"""The types of Kafka's messages that hold no other fields: numbers, uuids, strings and bytes.

How each is written ``types.py`` draws; it makes arrays and structs of these. Every type has:

============================  =====================================================================
``default``                   the value of a field that is not there
``least_bytes(version)``      the fewest bytes that a value can have, so that a count of values is
                              checked before the first one is read
``read``, ``write``           a value from a reader, and a value to a buffer
============================  =====================================================================

A type refuses by ``Refusal``. Source: Kafka's message generator; KIP-482.
"""

import uuid
from struct import Struct as Form
from struct import error as FormError
from typing import Any, Final, NamedTuple

from raylog.storage.schemas.binary import MAX_UNSIGNED, ByteReader, put_unsigned

MAX_STRING_BYTES: Final = 2**15 - 1  # Kafka's limit in flexible versions, too
NEVER: Final = 2**15  # above every version, which are int16

_KEPT: Final = "surrogateescape"  # bytes that are no UTF-8 are written as they were read
_INT16: Final = Form(">h")
_INT32: Final = Form(">i")


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

    def least_bytes(self, version: Version) -> int:
        return self._form.size

    def read(self, reader: ByteReader, version: Version) -> Any:
        return reader.number(self._form)

    def write(self, out: bytearray, value: Any, version: Version) -> None:
        if isinstance(value, bool) != (self.name == "bool"):
            raise Refusal(f"{value!r} is no {self.name}")
        try:
            out += self._form.pack(value)
        except (FormError, OverflowError):
            raise Refusal(f"{value!r} is no {self.name}") from None


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


class Uuid:
    """A UUID; all zeros where none is meant."""

    default: Final = uuid.UUID(int=0)

    def least_bytes(self, version: Version) -> int:
        return 16

    def read(self, reader: ByteReader, version: Version) -> uuid.UUID:
        return uuid.UUID(bytes=reader.take(16))

    def write(self, out: bytearray, value: Any, version: Version) -> None:
        if not isinstance(value, uuid.UUID):
            raise Refusal(f"{value!r} is no uuid")
        out += value.bytes


class Sized:
    """What begins with its length or its count, so that null can be a value of it."""

    form: Form  # of the length in versions that are not flexible

    def __init__(self, null_since: int = NEVER) -> None:
        self.null_since = null_since  # the first version in which null is a value

    @property
    def is_nullable(self) -> bool:
        """Whether null is a value in any version."""
        return self.null_since < NEVER

    def least_bytes(self, version: Version) -> int:
        return 1 if version.is_flexible else self.form.size

    def read_size(self, reader: ByteReader, version: Version) -> int | None:
        """A length or a count; None is null, for which Kafka takes every negative one."""
        size = reader.unsigned() - 1 if version.is_flexible else reader.number(self.form)
        if size >= 0:
            return int(size)
        self._check_null(version)
        return None

    def write_size(self, out: bytearray, size: int, version: Version) -> None:
        if size >= MAX_UNSIGNED:
            raise Refusal(f"a size of {size}, more than {MAX_UNSIGNED - 1}")
        if version.is_flexible:
            put_unsigned(out, size + 1)
        else:
            out += self.form.pack(size)

    def write_null(self, out: bytearray, version: Version) -> None:
        self._check_null(version)
        if version.is_flexible:
            put_unsigned(out, 0)
        else:
            out += self.form.pack(-1)

    def _check_null(self, version: Version) -> None:
        if version.number < self.null_since:
            raise Refusal("the field is not nullable")


class String(Sized):
    """Text of at most ``MAX_STRING_BYTES``."""

    form = _INT16

    @property
    def default(self) -> str | None:
        return None if self.is_nullable else ""

    def read(self, reader: ByteReader, version: Version) -> str | None:
        size = self.read_size(reader, version)
        if size is None:
            return None
        if size > MAX_STRING_BYTES:
            raise Refusal(f"a string of {size} bytes, more than {MAX_STRING_BYTES}")
        content = reader.take(size)
        try:
            return content.decode(errors=reader.rules.utf8_errors)
        except UnicodeDecodeError:
            raise Refusal("a string that is no UTF-8") from None

    def write(self, out: bytearray, value: Any, version: Version) -> None:
        if value is None:
            self.write_null(out, version)
            return
        if not isinstance(value, str):
            raise Refusal(f"{value!r} is no string")
        try:
            content = value.encode(errors=_KEPT)
        except UnicodeEncodeError:
            raise Refusal(f"{value!r} contains an unpaired surrogate") from None
        if len(content) > MAX_STRING_BYTES:
            raise Refusal(f"a string of {len(content)} bytes, more than {MAX_STRING_BYTES}")
        self.write_size(out, len(content), version)
        out += content


class Bytes(Sized):
    """Bytes of any kind."""

    form = _INT32

    @property
    def default(self) -> bytes | None:
        return None if self.is_nullable else b""

    def read(self, reader: ByteReader, version: Version) -> bytes | memoryview | None:
        size = self.read_size(reader, version)
        return None if size is None else reader.take(size)

    def write(self, out: bytearray, value: Any, version: Version) -> None:
        if value is None:
            self.write_null(out, version)
            return
        if not isinstance(value, bytes | bytearray | memoryview):
            raise Refusal(f"{value!r} is no bytes")
        self.write_size(out, len(value), version)
        out += value


class Records(Bytes):
    """Record batches. They are read as a part of the buffer that they came in: no copy is made."""

    def read(self, reader: ByteReader, version: Version) -> memoryview | None:
        size = self.read_size(reader, version)
        return None if size is None else reader.view(size)
