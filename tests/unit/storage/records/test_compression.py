"""The codecs' streams: what Kafka writes, what it reads, and what it would choke on."""

import gzip
import random
import struct
import tracemalloc

import cramjam
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from raylog.storage.errors import (
    CorruptRecord,
    PlainBatchTooLarge,
    UnsupportedCompressionType,
)
from raylog.storage.records.compression import (
    CHUNK_BYTES,
    CODECS,
    SNAPPY_BLOCK_BYTES,
    codec_id,
    compress,
    decompress,
    plain_chunks,
)

HELLO = b"hello hello hello hello"
LZ4 = "04224d18 60 40 82 0f000000 6868656c6c6f2006005068656c6c6f 00000000"
XERIAL = "82534e4150505900 00000001 00000001 0000000b 171468656c6c6f20420600"


@given(
    st.sampled_from(list(CODECS.values())),
    st.binary() | st.binary(max_size=20).map(lambda b: b * 5000),
)
def test_a_stream_decompresses_to_what_was_compressed(codec: int, plain: bytes) -> None:
    assert bytes(decompress(codec, compress(codec, memoryview(plain)))) == plain


@pytest.mark.parametrize(("codec", "expected"), [(2, XERIAL), (3, LZ4)])
def test_a_stream_is_kafkas_byte_for_byte(codec: int, expected: str) -> None:
    assert bytes(compress(codec, HELLO)).hex() == bytes.fromhex(expected).hex()
    assert bytes(decompress(codec, bytes.fromhex(expected))) == HELLO


def test_streams_of_other_writers_are_read() -> None:
    assert bytes(decompress(2, bytes(cramjam.snappy.compress_raw(HELLO)))) == HELLO
    assert bytes(decompress(1, gzip.compress(HELLO) + gzip.compress(HELLO))) == HELLO + HELLO
    assert (
        bytes(decompress(4, zstandard.compress(HELLO) + zstandard.compress(HELLO))) == HELLO + HELLO
    )
    streamed = zstandard.ZstdCompressor().compressobj()
    assert bytes(decompress(4, streamed.compress(HELLO) + streamed.flush())) == HELLO


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_bomb_is_refused(codec: int) -> None:
    bomb = compress(codec, bytes(10_000_000))
    with pytest.raises(CorruptRecord, match="more than 9999999 bytes"):
        decompress(codec, bomb, max_bytes=9_999_999)
    assert len(decompress(codec, bomb, max_bytes=10_000_000)) == 10_000_000


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_bomb_takes_no_more_memory_than_its_limit(codec: int) -> None:
    bomb = bytes(compress(codec, bytes(40_000_000)))
    limit = 4_000_000
    tracemalloc.start()
    try:
        with pytest.raises(PlainBatchTooLarge):
            decompress(codec, bomb, max_bytes=limit)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.25 * limit + 4 * CHUNK_BYTES, "a buffer that grows takes an eighth ahead"


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_chunks_are_small_and_make_up_the_whole(codec: int) -> None:
    plain = bytes(range(256)) * 8_000
    chunks = [bytes(chunk) for chunk in plain_chunks(codec, compress(codec, plain))]
    assert b"".join(chunks) == plain
    assert len(chunks) > 10
    assert max(map(len, chunks)) <= CHUNK_BYTES


@pytest.mark.parametrize("size", [CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES])
@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_chunk_may_end_where_the_stream_does(codec: int, size: int) -> None:
    for plain in (bytes(size), random.Random(size).randbytes(size)):
        assert bytes(decompress(codec, compress(codec, plain))) == plain


def test_many_members_and_frames_are_one_stream() -> None:
    members = b"".join(gzip.compress(b"%d," % n) for n in range(3_000))
    assert bytes(decompress(1, members)) == b"".join(b"%d," % n for n in range(3_000))
    skippable = bytes.fromhex("52 2a 4d 18 03 00 00 00 61 62 63")
    frames = zstandard.compress(HELLO) + skippable + zstandard.compress(b"")
    assert bytes(decompress(4, frames)) == HELLO


def test_a_raw_block_says_its_size_before_it_is_unpacked() -> None:
    huge = bytes.fromhex("ff ff ff ff 0f") + b"garbage"  # a varint of 2^32 - 1
    with pytest.raises(PlainBatchTooLarge):
        decompress(2, huge, max_bytes=1000)


def test_a_window_beyond_kafkas_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=28)
    writer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    with pytest.raises(CorruptRecord):
        decompress(4, writer.compress(HELLO) + writer.flush())


def test_a_block_that_lies_about_its_size_is_refused() -> None:
    xerial = bytes.fromhex(XERIAL)
    for length in (-1, 12, 2**31 - 1):
        with pytest.raises(CorruptRecord):
            decompress(2, xerial[:16] + struct.pack(">i", length) + xerial[20:])
    with pytest.raises(CorruptRecord):
        decompress(2, xerial + b"\x00")


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_cut_stream_does_not_decompress_to_everything(codec: int) -> None:
    stream = bytes(compress(codec, HELLO))
    for size in range(len(stream)):
        try:
            assert len(decompress(codec, stream[:size])) < len(HELLO)
        except CorruptRecord:
            pass


@pytest.mark.parametrize(("codec", "levels"), [(1, (1, 9, -1)), (3, (1, 9, 17)), (4, (-5, 1, 22))])
def test_kafkas_levels_are_taken(codec: int, levels: tuple[int, ...]) -> None:
    for level in levels:
        assert bytes(decompress(codec, compress(codec, HELLO, level))) == HELLO


def test_codecs_have_names() -> None:
    assert codec_id("snappy") == 2
    with pytest.raises(UnsupportedCompressionType):
        codec_id("brotli")


def test_a_snappy_block_cannot_promise_more_than_it_can_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is promised is allocated first."""

    def allocates(*_: object) -> int:
        raise AssertionError("it must not come here")

    monkeypatch.setattr(cramjam.snappy, "decompress_raw_into", allocates)
    promise = b"\x80\x80\x80\x2d" + b"\x00a"  # 90 MiB
    with pytest.raises(CorruptRecord, match="promise"):
        list(plain_chunks(CODECS["snappy"], promise))


def test_no_snappy_block_is_unpacked_beyond_the_limit_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A block is unpacked whole: the limit counts those before it, too."""
    plain = bytes(SNAPPY_BLOCK_BYTES)
    stream = compress(CODECS["snappy"], plain * 3)
    unpacked: list[int] = []
    unpack = cramjam.snappy.decompress_raw_into

    def counted(block: memoryview, to: bytearray) -> int:
        unpacked.append(len(to))
        size: int = unpack(block, to)
        return size

    monkeypatch.setattr(cramjam.snappy, "decompress_raw_into", counted)
    with pytest.raises(PlainBatchTooLarge):
        list(plain_chunks(CODECS["snappy"], stream, max_bytes=3 * len(plain) - 1))
    assert len(unpacked) == 2


def test_the_densest_snappy_block_is_read() -> None:
    plain = bytes(1 << 22)
    block = bytes(cramjam.snappy.compress_raw(plain))
    assert b"".join(plain_chunks(CODECS["snappy"], block)) == plain
