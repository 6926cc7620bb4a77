"""The five codecs of a batch's records, as streams that Kafka's clients read and write.

======  ======  ==============================================================================
id      name    the stream
======  ======  ==============================================================================
0       none    the records as they are
1       gzip    RFC 1952 members
2       snappy  xerial framing: 16 bytes of header, then [int32 size][snappy block of 32 KiB of
                plain bytes] again and again. A bare snappy block is read too.
3       lz4     an LZ4 frame: independent blocks of 64 KiB, no checksums, no content size
4       zstd    zstd frames
======  ======  ==============================================================================

A stream is decompressed chunk by chunk, up to a limit, so that a small batch cannot fill the memory
of its reader: no more than a chunk beyond the limit is ever made. A block of snappy is unpacked
whole, since it says its size before: it is one chunk, and within the limit. No block holds more
than 21 times its own bytes, so ``max.message.bytes`` bounds it, too. What a library is given at a
time is bounded, since some copy what they did not use yet. A codec's library is loaded with its
first batch: a partition is a process, and most see one codec or none.
Source: ``org.apache.kafka.common.compress``.
"""

import re
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Final

from raylog.storage.buffers import Buffer
from raylog.storage.errors import (
    CorruptRecord,
    PlainBatchTooLarge,
    UnsupportedCompressionType,
    no_memory,
)
from raylog.storage.records.zstd_frames import are_whole_frames

CODECS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

MAX_PLAIN_BYTES: Final = 2**30  # of a decompressed batch, and of a fetch: Arrow's offsets are int32
SNAPPY_BLOCK_BYTES: Final = 32 * 1024
CHUNK_BYTES: Final = 128 * 1024  # decompressed at a time
PIECE_BYTES: Final = 16 * 1024  # of a stream, given to a library at a time
MAX_ZSTD_WINDOW_BYTES: Final = 1 << 27  # zstd's own default, which Kafka's clients keep to

# What zstandard and lz4 say of it in an error of any kind.
_NO_MEMORY: Final = re.compile("not enough memory|allocation_failed")

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_LZ4_FAST_LEVEL: Final = 9  # Kafka's default; any other level means lz4's high-compression variant
_LZ4_LOWEST_HIGH_COMPRESSION: Final = 3  # liblz4's: below, a level means the fast variant


def codec_id(compression_type: str) -> int:
    """The id of a codec by its name in Kafka's configs."""
    try:
        return CODECS[compression_type]
    except KeyError:
        raise UnsupportedCompressionType(compression_type) from None


def compress(codec: int, plain: Buffer, level: int | None = None) -> Buffer:
    """``plain`` as one stream of the codec with this id. ``level`` is Kafka's; snappy has none."""
    return _COMPRESS[codec](plain, level)


def decompress(codec: int, stream: Buffer, max_bytes: int = MAX_PLAIN_BYTES) -> Buffer:
    """The plain bytes. Raises as ``plain_chunks``."""
    if codec == CODECS["none"]:
        return stream
    chunks = plain_chunks(codec, stream, max_bytes)
    first = next(chunks, b"")
    second = next(chunks, None)
    if second is None:
        return first
    plain = bytearray(first)
    plain += second
    for chunk in chunks:
        plain += chunk
    return plain


def plain_chunks(codec: int, stream: Buffer, max_bytes: int = MAX_PLAIN_BYTES) -> Iterator[Buffer]:
    """The plain bytes, in chunks of about ``CHUNK_BYTES``.

    Raises CorruptRecord for a malformed stream, PlainBatchTooLarge once there are more than
    ``max_bytes``, and OutOfResources where the process has no memory for a codec.
    """
    if codec == CODECS["none"]:
        yield stream
        return
    if codec not in _CHUNKS:
        raise CorruptRecord("its records", f"unknown codec {codec}")
    size = 0
    try:
        for chunk in _CHUNKS[codec](memoryview(stream), max_bytes):
            size += len(chunk)
            if size > max_bytes:
                raise _too_large(max_bytes)
            yield chunk
    except Exception as error:
        if isinstance(error, MemoryError) or _NO_MEMORY.search(str(error)):
            raise no_memory("its records") from error
        if not isinstance(error, _malformed(codec)):
            raise
        raise CorruptRecord("its records", f"malformed stream of codec {codec}: {error}") from error


def _too_large(max_bytes: int) -> PlainBatchTooLarge:
    return PlainBatchTooLarge("its records", f"they decompress to more than {max_bytes} bytes")


def _pieces(stream: memoryview) -> Iterator[memoryview]:
    for start in range(0, len(stream), PIECE_BYTES):
        yield stream[start : start + PIECE_BYTES]


def _malformed(codec: int) -> tuple[type[Exception], ...]:
    """What a codec's library, which is loaded by then, raises for bytes that are no stream of it.

    EOFError is our own.
    """
    if codec == CODECS["snappy"]:
        import cramjam

        return cramjam.DecompressionError, EOFError
    if codec == CODECS["zstd"]:
        import zstandard

        return zstandard.ZstdError, EOFError
    return (zlib.error if codec == CODECS["gzip"] else RuntimeError), EOFError


def _identity(plain: Buffer, _: int | None) -> Buffer:
    return plain


def _gzip(plain: Buffer, level: int | None) -> Buffer:
    deflate = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return deflate.compress(plain) + deflate.flush()


def _gunzip(stream: memoryview, _: int) -> Iterator[bytes]:
    member = None
    for piece in _pieces(stream):
        left: Buffer = piece
        while len(left):
            if member is None:
                member = zlib.decompressobj(16 + zlib.MAX_WBITS)
            chunk = member.decompress(left, CHUNK_BYTES)
            yield chunk
            while len(chunk) == CHUNK_BYTES and not member.eof and not member.unconsumed_tail:
                chunk = member.decompress(b"", CHUNK_BYTES)  # what zlib holds back
                yield chunk
            left = member.unconsumed_tail
            if member.eof:
                left = member.unused_data
                member = None
    if member is not None:
        raise EOFError("it ends too early")


def _snappy(plain: Buffer, _: int | None) -> Buffer:
    import cramjam

    view = memoryview(plain)
    parts: list[Buffer] = [_XERIAL_HEADER]
    for start in range(0, len(view), SNAPPY_BLOCK_BYTES):
        block = cramjam.snappy.compress_raw(view[start : start + SNAPPY_BLOCK_BYTES])
        parts += [struct.pack(">i", len(block)), memoryview(block)]
    return b"".join(parts)


# The best of Snappy's elements: three bytes that copy 64.
_SNAPPY_MOST_PLAIN: Final = 64 / 3


def _unsnappy(stream: memoryview, max_bytes: int) -> Iterator[Buffer]:
    import cramjam

    framed = bytes(stream[: len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC
    left = max_bytes
    for block in _xerial_blocks(stream) if framed else (stream,):
        size = cramjam.snappy.decompress_raw_len(block)
        if size > left:
            raise _too_large(max_bytes)
        left -= size
        if size > len(block) * _SNAPPY_MOST_PLAIN:
            raise EOFError(f"{len(block)} bytes cannot hold the {size} that they promise")
        plain = bytearray(size)  # the library's own memory: without it, that ends the process
        yield memoryview(plain)[: cramjam.snappy.decompress_raw_into(block, plain)]


def _xerial_blocks(stream: memoryview) -> Iterator[memoryview]:
    position = len(_XERIAL_HEADER)
    while position < len(stream):
        if len(stream) - position < 4:
            raise EOFError("it ends within a block's size")
        (size,) = struct.unpack_from(">i", stream, position)
        position += 4
        if not 0 <= size <= len(stream) - position:
            raise EOFError(f"a block of {size} bytes does not fit")
        yield stream[position : position + size]
        position += size


def _lz4(plain: Buffer, level: int | None) -> Buffer:
    import lz4.frame

    fast = level is None or level == _LZ4_FAST_LEVEL
    return lz4.frame.compress(
        plain,
        compression_level=0 if fast else max(level or 0, _LZ4_LOWEST_HIGH_COMPRESSION),
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )


def _unlz4(stream: memoryview, _: int) -> Iterator[bytes]:
    import lz4.frame

    frame = lz4.frame.LZ4FrameDecompressor()
    for piece in _pieces(stream):
        yield frame.decompress(piece, CHUNK_BYTES)
        while not frame.eof and not frame.needs_input:
            yield frame.decompress(b"", CHUNK_BYTES)
        if frame.eof:
            return
    raise EOFError("it ends too early")


def _zstd(plain: Buffer, level: int | None) -> Buffer:
    import zstandard

    return zstandard.ZstdCompressor(level=3 if level is None else level).compress(plain)


def _unzstd(stream: memoryview, _: int) -> Iterator[bytes]:
    import zstandard

    if not are_whole_frames(stream):
        raise EOFError("it ends too early")  # of which the library says nothing
    decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW_BYTES)
    with decompressor.stream_reader(stream, read_across_frames=True) as reader:
        while chunk := reader.read(CHUNK_BYTES):
            yield chunk


_COMPRESS: Final[dict[int, Callable[[Buffer, int | None], Buffer]]] = {
    0: _identity, 1: _gzip, 2: _snappy, 3: _lz4, 4: _zstd,
}  # fmt: skip
_CHUNKS: Final[dict[int, Callable[[memoryview, int], Iterator[Buffer]]]] = {
    1: _gunzip, 2: _unsnappy, 3: _unlz4, 4: _unzstd,
}  # fmt: skip
