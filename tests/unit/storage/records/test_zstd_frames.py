"""A zstd stream is whole if its last frame is, whatever frames it is made of."""

import pytest
import zstandard

from raylog.storage.records.zstd_frames import are_whole_frames

SKIPPABLE = bytes.fromhex("5f 2a 4d 18 03 00 00 00 61 62 63")


def frame(plain: bytes, *, write_checksum: bool = False, write_content_size: bool = True) -> bytes:
    compressor = zstandard.ZstdCompressor(
        write_checksum=write_checksum, write_content_size=write_content_size
    )
    return compressor.compress(plain)


def streamed(plain: bytes) -> bytes:
    writer = zstandard.ZstdCompressor().compressobj()
    return writer.compress(plain) + writer.flush()


STREAMS = {
    "small": frame(b"hello"),
    "empty": frame(b""),
    "checksum": frame(b"hello" * 99, write_checksum=True),
    "no content size": frame(b"hello" * 99, write_content_size=False),
    "one byte again and again": frame(bytes(300_000)),
    "several blocks": frame(bytes(range(256)) * 2_000),
    "streamed": streamed(b"hello" * 99),
    "two frames": frame(b"hello") + streamed(b"hello"),
    "skippable": SKIPPABLE + frame(b"hello") + SKIPPABLE,
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_frame_is_whole_with_all_of_its_bytes_only(name: str) -> None:
    stream = STREAMS[name]
    assert are_whole_frames(memoryview(stream))
    whole = [size for size in range(len(stream)) if are_whole_frames(memoryview(stream)[:size])]
    starts = {0, len(frame(b"hello")), len(SKIPPABLE), len(SKIPPABLE + frame(b"hello"))}
    assert set(whole) <= starts, "between two frames a stream may end"
    assert not are_whole_frames(memoryview(stream + b"(")), "nor with the begin of a next one"


def test_what_is_unknown_is_left_to_the_library() -> None:
    assert are_whole_frames(memoryview(b"garbage"))
    assert are_whole_frames(memoryview(b""))
