"""Where the frames of a zstd stream end, by the sizes that they say; nothing is decompressed.

The library that decompresses takes a stream that was cut off for one that ends, and Kafka's clients
refuse it. A frame::

    +-------+------------+--------------------+--------+--------+-----+----------+
    | magic | descriptor | window 0-1, dict   | block  | block  | ... | checksum |
    | 4     | 1          | 0-4, content 0-8   |        | (last) |     | 0 or 4   |
    +-------+------------+--------------------+--------+--------+-----+----------+

    block   3 bytes, little-endian: bit 0 last, bits 1-2 type, the rest size; then the content

A skippable frame is a magic, a size and as many bytes. Source: RFC 8878.
"""

from typing import Final

_MAGIC: Final = 0xFD2FB528
_SKIPPABLE: Final = 0x184D2A50  # its last four bits are free
_RLE: Final = 1  # a block of this type has one byte, whatever its size
_HEAD: Final = 5  # magic and descriptor
_SKIPPABLE_HEAD: Final = 8
_BLOCK_HEAD: Final = 3
_CHECKSUM: Final = 4
_DICT_SIZES: Final = (0, 1, 2, 4)
_CONTENT_SIZES: Final = (0, 2, 4, 8)


def are_whole_frames(stream: memoryview) -> bool:
    """Whether a frame ends where the stream does; True too if one of a kind unknown here is in it.

    What is unknown is for the library to judge.
    """
    position = 0
    while position < len(stream):
        magic = _number(stream, position, 4)
        if magic == _MAGIC:
            position = _frame_end(stream, position)
        elif magic & ~0xF == _SKIPPABLE:
            position += _SKIPPABLE_HEAD + _number(stream, position + 4, 4)
        else:
            return position + 4 <= len(stream)
    return position == len(stream)


def _frame_end(stream: memoryview, position: int) -> int:
    """Behind the frame at ``position``; behind the stream if it does not end there."""
    behind = len(stream) + 1
    if position + _HEAD > len(stream):
        return behind
    descriptor = stream[position + 4]
    is_single_segment = descriptor >> 5 & 1
    content_size = _CONTENT_SIZES[descriptor >> 6] or is_single_segment
    has_checksum = descriptor >> 2 & 1
    position += _HEAD + (1 - is_single_segment) + _DICT_SIZES[descriptor & 3] + content_size
    is_last = False
    while not is_last:
        if position + _BLOCK_HEAD > len(stream):
            return behind
        block = _number(stream, position, _BLOCK_HEAD)
        is_last = bool(block & 1)
        position += _BLOCK_HEAD + (1 if block >> 1 & 3 == _RLE else block >> 3)
    return position + _CHECKSUM * has_checksum


def _number(stream: memoryview, position: int, size: int) -> int:
    return int.from_bytes(stream[position : position + size], "little")
