"""The bytes below Kafka's messages: a reader with a position, and unsigned varints.

An unsigned varint holds seven bits a byte, the lowest first; all bytes but the last have their top
bit set. It is at most five bytes long, and Kafka keeps what it holds below 2^31. (The varints of
records are zigzag: ``records/varints.py``.)

What a field is, and how a type is made of these bytes, is ``types.py``'s business. Source:
``ByteUtils`` and ``ByteBufferAccessor`` of Kafka; KIP-482.
"""

from struct import Struct
from typing import Any, Final

from raylog.storage.buffers import Buffer
from raylog.storage.errors import InvalidRecord
from raylog.storage.limits import MAX_INT

MAX_UNSIGNED: Final = MAX_INT
_MAX_VARINT_BITS: Final = 35  # five bytes of seven bits


class ByteReader:
    """Reads from the head of a buffer on.

    Every method raises InvalidRecord for bytes that end too early.
    """

    def __init__(self, content: Buffer, position: int = 0) -> None:
        self._content = memoryview(content)
        self.position = position

    @property
    def left(self) -> int:
        """How many bytes are not read yet."""
        return len(self._content) - self.position

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes."""
        if size > self.left:
            raise InvalidRecord(f"the message ends {size - self.left} bytes too early")
        start = self.position
        self.position += size
        return bytes(self._content[start : self.position])

    def number(self, form: Struct) -> Any:
        """The next number of this form."""
        return form.unpack(self.take(form.size))[0]

    def unsigned(self) -> int:
        """The next unsigned varint."""
        number = 0
        for shift in range(0, _MAX_VARINT_BITS, 7):
            (byte,) = self.take(1)
            number |= (byte & 0x7F) << shift
            if byte >= 0x80:
                continue
            if number > MAX_UNSIGNED:
                raise InvalidRecord(f"an unsigned varint of {number} exceeds {MAX_UNSIGNED}")
            return number
        raise InvalidRecord("an unsigned varint has more than five bytes")


def put_unsigned(out: bytearray, number: int) -> None:
    """Append an unsigned varint."""
    assert 0 <= number <= MAX_UNSIGNED, number
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
