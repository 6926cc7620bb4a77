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

``decompress`` has a limit, so that a small batch cannot fill the memory of its reader. A codec's
library is loaded with its first batch: a partition is a process, and most see one codec or none.
Source: ``org.apache.kafka.common.compress``.
"""

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Final

from raylog.storage.buffers import Buffer
from raylog.storage.errors import CorruptRecord, UnsupportedCompressionType

CODECS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

MAX_PLAIN_BYTES: Final = 2**30  # of a decompressed batch, and of a fetch: Arrow's offsets are int32
SNAPPY_BLOCK_BYTES: Final = 32 * 1024
CHUNK_BYTES: Final = 1024 * 1024  # decompressed at a time where a stream does not say its size

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
    """The plain bytes. Raises CorruptRecord for a malformed stream or one of over ``max_bytes``."""
    if codec == CODECS["none"]:
        return stream
    if codec not in _CHUNKS:
        raise CorruptRecord("its records", f"unknown codec {codec}")
    chunks, size = [], 0
    try:
        for chunk in _CHUNKS[codec](memoryview(stream)):
            size += len(chunk)
            if size > max_bytes:
                raise CorruptRecord(
                    "its records", f"they decompress to more than {max_bytes} bytes"
                )
            chunks.append(chunk)
    except Exception as error:
        if not isinstance(error, _malformed()):
            raise
        raise CorruptRecord("its records", f"malformed stream of codec {codec}: {error}") from error
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _malformed() -> tuple[type[Exception], ...]:
    """What the libraries raise for bytes that are no stream of theirs."""
    import cramjam
    import zstandard

    return zlib.error, zstandard.ZstdError, cramjam.DecompressionError, RuntimeError, EOFError


def _identity(plain: Buffer, _: int | None) -> Buffer:
    return plain


def _gzip(plain: Buffer, level: int | None) -> Buffer:
    deflate = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return deflate.compress(plain) + deflate.flush()


def _gunzip(stream: memoryview) -> Iterator[bytes]:
    left: Buffer = stream
    while len(left):
        member = zlib.decompressobj(16 + zlib.MAX_WBITS)
        while not member.eof:
            chunk = member.decompress(left, CHUNK_BYTES)
            left = member.unconsumed_tail
            if not chunk and not left and not member.eof:
                raise EOFError("it ends too early")
            yield chunk
        left = member.unused_data


def _snappy(plain: Buffer, _: int | None) -> Buffer:
    import cramjam

    view = memoryview(plain)
    parts: list[Buffer] = [_XERIAL_HEADER]
    for start in range(0, len(view), SNAPPY_BLOCK_BYTES):
        block = cramjam.snappy.compress_raw(view[start : start + SNAPPY_BLOCK_BYTES])
        parts += [struct.pack(">i", len(block)), memoryview(block)]
    return b"".join(parts)


def _unsnappy(stream: memoryview) -> Iterator[Buffer]:
    import cramjam

    framed = bytes(stream[: len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC
    for block in _xerial_blocks(stream) if framed else (stream,):
        if cramjam.snappy.decompress_raw_len(block) > MAX_PLAIN_BYTES:
            raise EOFError("a block says that it is too large to be one")
        yield memoryview(cramjam.snappy.decompress_raw(block))


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


def _unlz4(stream: memoryview) -> Iterator[bytes]:
    import lz4.frame

    frame = lz4.frame.LZ4FrameDecompressor()
    yield frame.decompress(stream, CHUNK_BYTES)
    while not frame.eof:
        if frame.needs_input:
            raise EOFError("it ends too early")
        yield frame.decompress(b"", CHUNK_BYTES)


def _zstd(plain: Buffer, level: int | None) -> Buffer:
    import zstandard

    return zstandard.ZstdCompressor(level=3 if level is None else level).compress(plain)


def _unzstd(stream: memoryview) -> Iterator[bytes]:
    import zstandard

    with zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True) as reader:
        while chunk := reader.read(CHUNK_BYTES):
            yield chunk


_COMPRESS: Final[dict[int, Callable[[Buffer, int | None], Buffer]]] = {
    0: _identity, 1: _gzip, 2: _snappy, 3: _lz4, 4: _zstd,
}  # fmt: skip
_CHUNKS: Final[dict[int, Callable[[memoryview], Iterator[Buffer]]]] = {
    1: _gunzip, 2: _unsnappy, 3: _unlz4, 4: _unzstd,
}  # fmt: skip
