"""Kafka's hash of keys, in plain Python: see ``_kernel.pyx``."""

from raylog.storage.buffers import Buffer


def murmur2(key: Buffer) -> int:
    data = memoryview(key).cast("B")
    m, mask, size = 0x5BD1E995, 0xFFFFFFFF, len(data)
    h = 0x9747B28C ^ (size & mask)
    tail = size & ~3
    for i in range(0, tail, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if tail < size:
        h = (h ^ int.from_bytes(data[tail:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    h ^= h >> 15
    return h - 2**32 if h >= 2**31 else h
