"""Reading slices of segment files: which file a location means, and whose the bytes are."""

import os
from pathlib import Path

import numpy as np
import pytest

from raylog.cluster.client.buffers import MOST_KEPT, MOST_KEPT_BYTES, Buffers
from raylog.cluster.client.segment_files import SegmentFiles
from raylog.storage.errors import SegmentDeleted
from raylog.storage.readable import Slice


def written(path: Path, content: bytes) -> Slice:
    path.write_bytes(content)
    return Slice(str(path), path.stat().st_ino, 0, len(content))


def test_a_buffer_is_used_again_when_nobody_refers_to_its_bytes(tmp_path: Path) -> None:
    location, files = written(tmp_path / "a", b"0123456789"), SegmentFiles(Buffers())
    first = files.read(location._replace(position=2, size_bytes=3))
    assert bytes(first) == b"234"
    buffer = first.obj
    del first
    second = files.read(location._replace(position=5, size_bytes=2))
    assert bytes(second) == b"56"
    assert second.obj is buffer


def test_bytes_that_are_referred_to_stay_as_they_are(tmp_path: Path) -> None:
    location, files = written(tmp_path / "a", b"0123456789"), SegmentFiles(Buffers())
    kept = [np.frombuffer(files.read(location), np.uint8)[n:] for n in range(3 * MOST_KEPT)]
    other = written(tmp_path / "b", b"x" * 10)
    for _ in range(3 * MOST_KEPT):
        files.read(other)
    assert [bytes(content) for content in kept] == [b"0123456789"[n:] for n in range(3 * MOST_KEPT)]


def test_a_buffer_that_is_too_small_is_replaced(tmp_path: Path) -> None:
    location, files = written(tmp_path / "a", b"x" * 5000), SegmentFiles(Buffers())
    for size_bytes in (1, 2, 16, 5000, 300, 5000):
        assert len(files.read(location._replace(size_bytes=size_bytes))) == size_bytes


def test_a_batch_that_is_larger_than_a_fetch_gets_a_buffer_of_its_own(tmp_path: Path) -> None:
    location, files = written(tmp_path / "a", b"x" * (MOST_KEPT_BYTES + 1)), SegmentFiles(Buffers())
    large = files.read(location)
    assert len(large) == MOST_KEPT_BYTES + 1
    assert files.read(location._replace(size_bytes=1)).obj is not large.obj


def test_a_file_that_is_gone_or_foreign_or_short_is_told(tmp_path: Path) -> None:
    location, files = written(tmp_path / "a", b"x" * 10), SegmentFiles(Buffers())
    folder = Slice(str(tmp_path), tmp_path.stat().st_ino, 0, 1)
    for wrong in (
        location._replace(inode=location.inode + 1),
        location._replace(size_bytes=11),
        location._replace(path=str(tmp_path / "none")),
        folder,
    ):
        with pytest.raises(SegmentDeleted):
            files.read(wrong)


def test_a_file_that_is_cut_after_it_was_read_ends_no_process(tmp_path: Path) -> None:
    location, files = written(tmp_path / "a", b"x" * 10_000), SegmentFiles(Buffers())
    content = files.read(location)
    os.truncate(location.path, 0)
    assert bytes(content) == b"x" * 10_000
    with pytest.raises(SegmentDeleted):
        files.read(location)


def test_no_file_stays_open(tmp_path: Path) -> None:
    location, files = written(tmp_path / "a", b"x"), SegmentFiles(Buffers())
    before = len(os.listdir("/proc/self/fd"))
    files.read(location)
    assert len(os.listdir("/proc/self/fd")) == before
