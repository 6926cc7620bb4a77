"""Zigzag varints, as in records of version 2, for code that writes a few.

The kernels have their own loops.

A number of 64 bits, signed, is folded to an unsigned one (0, -1, 1, -2 to 0, 1, 2, 3) and written
seven bits a byte, the lowest first; all bytes but the last have their top bit set. Source:
``org.apache.kafka.common.utils.ByteUtils``.
"""


def put_varint(out: bytearray, n: int) -> None:
    z = n << 1 if n >= 0 else (-n << 1) - 1
    while z >= 0x80:
        out.append(z & 0x7F | 0x80)
        z >>= 7
    out.append(z)
