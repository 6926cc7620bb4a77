"""Varints and numbers that wrap: what the parts of the twin share. See ``_kernel_bytes.pxi``."""

from raylog.storage.buffers import Buffer


class Malformed(Exception):
    """What is wrong with a record; whoever knows where it is says so too."""


def get_varint(data: Buffer, position: int, end: int, max_size: int) -> tuple[int, int]:
    """(number, position behind it) of a varint of at most ``max_size`` bytes (5: an int32)."""
    z = 0
    for i in range(min(max_size, end - position)):
        byte = data[position + i]
        z |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            z &= 0xFFFFFFFF if max_size == 5 else 0xFFFFFFFFFFFFFFFF
            return (z >> 1) ^ -(z & 1), position + i + 1
    raise Malformed("a varint is longer than its type, or than what is left")


def wrap(n: int) -> int:
    """As an int64, as Java adds."""
    return (n + 2**63) % 2**64 - 2**63
