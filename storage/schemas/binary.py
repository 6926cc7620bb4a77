"""The bytes below Kafka's messages: a reader with a position, and unsigned varints.

An unsigned varint holds seven bits a byte, the lowest first; all bytes but the last have their top
bit set. It is at most five bytes long, and Kafka keeps what it holds below 2^31. (The varints of
records are zigzag: ``records/varints.py``.)

A reader also carries how strictly bytes are taken. Bytes of a disk are written back as they were,
so nothing of them may be lost: ``STORED``. Bytes of a peer are answered and forgotten, and the peer
may be hostile: it has rules of its own.

What a field is, and how a type is made of these bytes, is ``types.py``'s business. Source:
``ByteUtils`` and ``ByteBufferAccessor`` of Kafka; KIP-482.
"""

from struct import Struct
from typing import Any, Final, NamedTuple

from raylog.storage.buffers import Buffer
from raylog.storage.errors import InvalidRecord
from raylog.storage.limits import MAX_INT

MAX_UNSIGNED: Final = MAX_INT
_MAX_VARINT_BITS: Final = 35  # five bytes of seven bits


class ReadRules(NamedTuple):
    """What a reader does where the schema leaves a choice."""

    utf8_errors: str  # how a string is decoded that is no UTF-8, as ``bytes.decode`` has it
    keeps_unknown_tags: bool
    max_entries: int  # of all arrays and tagged fields of a message together


STORED: Final = ReadRules("surrogateescape", keeps_unknown_tags=True, max_entries=MAX_INT)


class ByteReader:
    """Reads from the head of a buffer on.

    Every method raises InvalidRecord for bytes that end too early; ``position`` is then where the
    part begins that could not be read.
    """

    def __init__(self, content: Buffer, position: int = 0, rules: ReadRules = STORED) -> None:
        self._content = memoryview(content)
        self._end = len(self._content)
        self.position = position
        self.rules = rules
        self.entries_left = rules.max_entries

    @property
    def left(self) -> int:
        """How many bytes are not read yet."""
        return self._end - self.position

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes."""
        return bytes(self.view(size))

    def view(self, size: int) -> memoryview:
        """The next ``size`` bytes, as a part of the buffer itself."""
        start = self.position
        self.skip(size)
        return self._content[start : self.position]

    def skip(self, size: int) -> None:
        """Pass over the next ``size`` bytes."""
        end = self.position + size
        if end > self._end:
            raise InvalidRecord(f"the message ends {end - self._end} bytes too early")
        self.position = end

    def number(self, form: Struct) -> Any:
        """The next number of this form."""
        start = self.position
        self.skip(form.size)
        return form.unpack_from(self._content, start)[0]

    def unsigned(self) -> int:
        """The next unsigned varint."""
        number = 0
        for shift in range(0, _MAX_VARINT_BITS, 7):
            start = self.position
            self.skip(1)
            byte = self._content[start]
            if byte < 0x80:
                return self._bounded(number | byte << shift)
            number |= (byte & 0x7F) << shift
        raise InvalidRecord("an unsigned varint has more than five bytes")

    def narrow(self, size: int) -> int:
        """Let the next ``size`` bytes be the last ones, until ``widen`` gets what this returns."""
        outer_end, start = self._end, self.position
        self.skip(size)
        self._end, self.position = self.position, start
        return outer_end

    def widen(self, outer_end: int) -> None:
        """Go on behind a part that ``narrow`` began."""
        self._end = outer_end

    @staticmethod
    def _bounded(number: int) -> int:
        if number > MAX_UNSIGNED:
            raise InvalidRecord(f"an unsigned varint of {number} exceeds {MAX_UNSIGNED}")
        return number


def put_unsigned(out: bytearray, number: int) -> None:
    """Append an unsigned varint."""
    assert 0 <= number <= MAX_UNSIGNED, number
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
