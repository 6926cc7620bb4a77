"""The codecs' streams: what Kafka writes, what it reads, and what it would choke on."""

import gzip
import struct

import cramjam
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from raylog.storage.errors import CorruptRecord, UnsupportedCompressionType
from raylog.storage.records.compression import CODECS, codec_id, compress, decompress

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
            assert len(decompress(codec, stream[:size])) < len(HELLO) or codec == 4
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
