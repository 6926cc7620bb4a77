"""Reading slices of segment files: which file a location means, and whose the bytes are."""

import os
from pathlib import Path
from types import ModuleType

import pytest

from raylog.cluster.client.fetch import FETCH_BYTES, FetchBuffer
from raylog.storage.readable import Slice
from raylog.storage.records import _kernel, _kernel_py, kernel
from raylog.storage.records.decode import decode_records, decode_table
from raylog.storage.records.encode import encode_records
from raylog.storage.records.legacy import encode_legacy
from raylog.storage.testing.clock import T0


def written(path: Path, content: bytes) -> Slice:
    path.write_bytes(content)
    return Slice(str(path), path.stat().st_ino, 0, len(content))


def test_a_slice_is_read_and_the_buffer_used_again(tmp_path: Path) -> None:
    location, buffer = written(tmp_path / "a", b"0123456789"), FetchBuffer()
    first = buffer.read(location._replace(position=2, size_bytes=3))
    assert first is not None
    assert bytes(first) == b"234"
    second = buffer.read(location._replace(position=5, size_bytes=2))
    assert second is not None
    assert bytes(second) == b"56"
    assert second.obj is first.obj


def test_a_file_that_is_gone_or_foreign_or_short_gives_nothing(tmp_path: Path) -> None:
    location, buffer = written(tmp_path / "a", b"x" * 10), FetchBuffer()
    folder = Slice(str(tmp_path), tmp_path.stat().st_ino, 0, 1)
    assert buffer.read(location._replace(inode=location.inode + 1)) is None
    assert buffer.read(location._replace(size_bytes=11)) is None
    assert buffer.read(location._replace(path=str(tmp_path / "none"))) is None
    assert buffer.read(folder) is None


def test_a_file_that_is_cut_after_it_was_read_ends_no_process(tmp_path: Path) -> None:
    location, buffer = written(tmp_path / "a", b"x" * 10_000), FetchBuffer()
    content = buffer.read(location)
    os.truncate(location.path, 0)
    assert content is not None
    assert bytes(content) == b"x" * 10_000
    assert buffer.read(location) is None


def test_no_file_stays_open(tmp_path: Path) -> None:
    location, buffer = written(tmp_path / "a", b"x"), FetchBuffer()
    before = len(os.listdir("/proc/self/fd"))
    assert buffer.read(location) is not None
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_batch_that_is_larger_than_a_fetch_gets_a_buffer_of_its_own(tmp_path: Path) -> None:
    large = b"x" * (FETCH_BYTES + 1)
    location, buffer = written(tmp_path / "a", large), FetchBuffer()
    content = buffer.read(location)
    small = buffer.read(location._replace(size_bytes=1))
    assert content is not None
    assert small is not None
    assert len(content) == len(large)
    assert small.obj is not content.obj


ROWS = [
    (T0, b"key", b"value", [("name", b"of header"), ("none", None)]),
    (T0 + 1, None, b"x" * 3000, []),
    (T0 + 2, b"tombstone", None, []),
]
OLD_ROWS = [(timestamp, key, value) for timestamp, key, value, _ in ROWS]


@pytest.mark.parametrize("kernel_ops", [_kernel, _kernel_py])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_what_is_decoded_refers_to_no_byte_of_the_buffer(
    monkeypatch: pytest.MonkeyPatch, kernel_ops: ModuleType, codec: str, magic: int
) -> None:
    if magic < 2 and codec == "zstd":
        return  # which old messages cannot have
    monkeypatch.setattr(kernel, "ops", kernel_ops)
    if magic == 2:
        encoded = encode_records(ROWS, compression_type=codec)
    else:
        encoded = encode_legacy(OLD_ROWS, magic=magic, compression_type=codec)
    buffer = bytearray(encoded)
    records, table = decode_records(buffer), decode_table(buffer)
    before = (repr(records), table.to_pylist())
    assert len(before[1]) == 3
    buffer[:] = b"\xff" * len(buffer)
    assert (repr(records), table.to_pylist()) == before
    buffer.clear()  # raises BufferError if somebody still looks into it
