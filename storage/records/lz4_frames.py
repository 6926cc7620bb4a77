"""The header checksum of LZ4 frames, which every writer of message version 0 computed wrongly.

::

    0        4     5     6 ...                      h
    +--------+-----+-----+--------------------------+----------+--------
    | magic  | FLG | BD  | [content size 8] [id 4]  | checksum | blocks
    +--------+-----+-----+--------------------------+----------+--------

The checksum is the second byte of the xxh32 of FLG to ``h``. Kafka's first LZ4 writer took the four
magic bytes in, and its reader of version 0 never looks. A library does look, so the frame is mended
before it is read. Source: ``KafkaLZ4BlockOutputStream`` of Kafka, KAFKA-3160; the LZ4 frame format
1.5.1.
"""

import struct
from typing import Final

from raylog.storage.buffers import Buffer

_MAGIC: Final = bytes.fromhex("04224d18")
_HAS_CONTENT_SIZE: Final = 0x08
_HAS_DICTIONARY: Final = 0x01
_PRIMES: Final = (2654435761, 2246822519, 3266489917, 668265263, 374761393)
_MASK: Final = 0xFFFFFFFF


def with_right_checksum(frame: Buffer) -> bytearray:
    """The frame with the checksum that the format demands; what is no frame comes back as it is."""
    return _with_checksum(frame, len(_MAGIC))


def with_broken_checksum(frame: Buffer) -> bytearray:
    """The frame as version 0 has it."""
    return _with_checksum(frame, 0)


def _with_checksum(frame: Buffer, start: int) -> bytearray:
    changed = bytearray(frame)
    if len(changed) < 7 or changed[:4] != _MAGIC:
        return changed
    flags = changed[4]
    at = 6 + (8 if flags & _HAS_CONTENT_SIZE else 0) + (4 if flags & _HAS_DICTIONARY else 0)
    if at < len(changed):
        changed[at] = xxh32(changed[start:at]) >> 8 & 0xFF
    return changed


def xxh32(content: Buffer) -> int:
    """The xxHash, with seed 0, of at most 18 bytes: no frame's header has more."""
    prime_1, prime_2, prime_3, prime_4, prime_5 = _PRIMES
    h, position = prime_5, 0
    if len(content) >= 16:
        lanes = [prime_1 + prime_2 & _MASK, prime_2, 0, -prime_1 & _MASK]
        for i, word in enumerate(struct.unpack_from("<4I", content)):
            lanes[i] = _rotated(lanes[i] + word * prime_2, 13) * prime_1 & _MASK
        h = sum(_rotated(lane, turn) for lane, turn in zip(lanes, (1, 7, 12, 18), strict=True))
        position = 16
    h += len(content)
    while len(content) - position >= 4:
        (word,) = struct.unpack_from("<I", content, position)
        h = _rotated(h + word * prime_3, 17) * prime_4
        position += 4
    for byte in content[position:]:
        h = _rotated(h + byte * prime_5, 11) * prime_1
    h &= _MASK
    h = (h ^ h >> 15) * prime_2 & _MASK
    h = (h ^ h >> 13) * prime_3 & _MASK
    return h ^ h >> 16


def _rotated(n: int, bits: int) -> int:
    n &= _MASK
    return (n << bits | n >> (32 - bits)) & _MASK
