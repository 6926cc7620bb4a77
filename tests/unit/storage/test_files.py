"""What every FileSystem promises, held against the real one and the one in memory."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raylog.storage.errors import DiskFull, LogLocked, StorageError, UndoFailed
from raylog.storage.files import FileSystem, ReadOnlyFileSystem, RealFileSystem, write_atomically
from raylog.storage.testing.memory import MemoryFileSystem


@pytest.fixture(params=["real", "memory"])
def fs(request: pytest.FixtureRequest, tmp_path: Path) -> FileSystem:
    if request.param == "real":
        return RealFileSystem()
    memory = MemoryFileSystem()
    memory.make_dir(str(tmp_path))
    return memory


@pytest.fixture
def at(tmp_path: Path) -> Callable[[str], str]:
    return lambda name: str(tmp_path / name)


def test_an_append_puts_all_buffers_behind_each_other(
    fs: FileSystem, at: Callable[[str], str]
) -> None:
    file = fs.open(at("f"), create=True)
    file.append([b"ab", bytearray(b"cd"), memoryview(b"xefx")[1:3]])
    file.append([b"g"])
    assert (file.size, file.read(100, 0), file.read(2, 3)) == (7, b"abcdefg", b"de")
    assert bytes(file.view()) == fs.read_file(at("f")) == b"abcdefg"


def test_allocated_room_is_no_size_and_is_given_back(tmp_path: Path) -> None:
    file = RealFileSystem().open(str(tmp_path / "f"), create=True)
    file.allocate(1 << 20)
    blocks = os.stat(file.path).st_blocks
    file.append([b"abc"])
    assert (file.size, os.path.getsize(file.path)) == (3, 3)
    assert RealFileSystem().open(file.path).read(9, 0) == b"abc"
    file.truncate(file.size)
    # 0: a file system that cannot allocate
    assert os.stat(file.path).st_blocks < blocks or blocks == 0


def test_an_empty_file_has_an_empty_view(fs: FileSystem, at: Callable[[str], str]) -> None:
    assert bytes(fs.open(at("f"), create=True).view()) == b""


def test_truncation_cuts_and_the_next_append_goes_to_the_new_end(
    fs: FileSystem, at: Callable[[str], str]
) -> None:
    file = fs.open(at("f"), create=True)
    file.append([b"abcdef"])
    file.truncate(2)
    file.append([b"X"])
    file.flush()
    assert (file.size, fs.read_file(at("f"))) == (3, b"abX")


def test_an_open_file_outlives_its_name(fs: FileSystem, at: Callable[[str], str]) -> None:
    file = fs.open(at("f"), create=True)
    file.append([b"ab"])
    fs.rename(at("f"), at("g"))
    file.append([b"cd"])
    assert fs.read_file(at("g")) == b"abcd"
    fs.remove(at("g"))
    assert file.read(4, 0) == b"abcd"
    assert not fs.exists(at("g"))


def test_two_files_have_two_inodes(fs: FileSystem, at: Callable[[str], str]) -> None:
    first, second = fs.open(at("f"), create=True), fs.open(at("g"), create=True)
    assert first.inode != second.inode
    assert fs.open(at("f")).inode == first.inode


def test_folders_are_made_listed_renamed_and_removed_with_all_in_them(
    fs: FileSystem, at: Callable[[str], str]
) -> None:
    fs.make_dir(at("d/e"))
    fs.make_dir(at("d/e"))
    fs.write_file(at("d/e/f"), b"x", flush=False)
    fs.write_file(at("d/a"), b"")
    assert fs.list_dir(at("d")) == ["a", "e"]
    assert fs.is_dir(at("d/e"))
    assert not fs.is_dir(at("d/a"))
    fs.rename(at("d"), at("moved"))
    assert fs.read_file(at("moved/e/f")) == b"x"
    fs.remove_dir(at("moved"))
    fs.remove_dir(at("moved"))
    assert not fs.exists(at("moved"))


def test_a_rename_replaces_its_target(fs: FileSystem, at: Callable[[str], str]) -> None:
    fs.write_file(at("new"), b"new")
    fs.write_file(at("old"), b"a longer old")
    fs.rename(at("new"), at("old"))
    fs.sync_dir(at(""))
    assert fs.read_file(at("old")) == b"new"
    write_atomically(fs, at("old"), b"n")
    assert fs.read_file(at("old")) == b"n"


def test_removing_what_is_gone_is_fine(fs: FileSystem, at: Callable[[str], str]) -> None:
    fs.remove(at("nothing"))


@pytest.mark.parametrize("work", ["open", "read_file", "list_dir", "sync_dir", "mtime_ms"])
def test_what_is_not_there_is_a_named_error(
    fs: FileSystem, at: Callable[[str], str], work: str
) -> None:
    with pytest.raises(StorageError, match="nothing: No such file"):
        getattr(fs, work)(at("nothing"))
    with pytest.raises(StorageError):
        fs.rename(at("nothing"), at("x"))


def test_a_file_in_the_place_of_a_folder_is_a_named_error(
    fs: FileSystem, at: Callable[[str], str]
) -> None:
    fs.write_file(at("f"), b"")
    for work in (fs.make_dir, fs.list_dir):
        with pytest.raises(StorageError):
            work(at("f"))


def test_the_mtime_is_in_ms(fs: FileSystem, at: Callable[[str], str]) -> None:
    fs.write_file(at("f"), b"")
    assert 1_600_000_000_000 < fs.mtime_ms(at("f")) < 4_000_000_000_000


def test_a_lock_is_held_against_every_other_owner(fs: FileSystem, at: Callable[[str], str]) -> None:
    lock = fs.lock(at(".lock"))
    with pytest.raises(LogLocked):
        fs.lock(at(".lock"))
    lock.release()
    assert not fs.exists(at(".lock"))
    lock.release()
    fs.lock(at(".lock")).release()


def test_a_folder_is_locked_without_a_file_of_ours(
    fs: FileSystem, at: Callable[[str], str]
) -> None:
    fs.make_dir(at("d"))
    lock = fs.lock(at("d"))
    assert fs.list_dir(at("d")) == []
    with pytest.raises(LogLocked, match="d is locked by another process"):
        fs.lock(at("d"))
    lock.release()
    fs.lock(at("d")).release()


def test_whether_a_folder_can_be_written_is_tried(fs: FileSystem, at: Callable[[str], str]) -> None:
    assert fs.can_write(at(""))
    assert fs.list_dir(at("")) == []


# -- the real one ----------------------------------------------------------------------------------


def test_a_lock_on_a_file_that_its_owner_has_just_removed_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / ".lock")
    opened = os.open

    def open_then_lose(name: Any, *args: Any) -> int:
        descriptor = opened(name, *args)
        os.unlink(name)
        os.close(opened(name, *args))
        return descriptor

    monkeypatch.setattr(os, "open", open_then_lose)
    with pytest.raises(LogLocked):
        RealFileSystem().lock(path)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_write_without_space_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    file = RealFileSystem().open(str(tmp_path / "f"), create=True)
    file.append([b"good"])
    half_written = iter([3])

    def write(descriptor: int, content: Any) -> int:
        raise OSError(code, "full")

    def writev(descriptor: int, buffers: Any) -> int:
        return os.pwrite(descriptor, buffers[0][: next(half_written)], 0)

    monkeypatch.setattr(os, "writev", writev)
    monkeypatch.setattr(os, "write", write)
    with pytest.raises(DiskFull):
        file.append([b"half of this"])
    assert (file.size, (tmp_path / "f").read_bytes()) == (4, b"good")


def test_a_write_that_cannot_be_undone_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> int:
        raise OSError(errno.EIO, "Input/output error")

    file = RealFileSystem().open(str(tmp_path / "f"), create=True)
    monkeypatch.setattr(os, "writev", fail)
    with pytest.raises(StorageError, match="Input/output error") as caught:
        file.append([b"x"])
    assert type(caught.value) is StorageError
    monkeypatch.setattr(os, "ftruncate", fail)
    with pytest.raises(UndoFailed, match="Input/output error"):
        file.append([b"x"])


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
def test_a_read_only_folder_is_told_from_a_full_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(*_: Any) -> int:
        raise OSError(code, "no")

    monkeypatch.setattr(os, "open", refuse)
    assert not RealFileSystem().can_write(str(tmp_path))
    code = errno.ENOSPC
    assert RealFileSystem().can_write(str(tmp_path)), "some day"
    code = errno.EIO
    with pytest.raises(StorageError):
        RealFileSystem().can_write(str(tmp_path))


# -- the one in memory -----------------------------------------------------------------------------


def test_power_takes_what_was_never_flushed() -> None:
    fs = MemoryFileSystem()
    fs.make_dir("/d")
    fs.sync_dir("/")
    file = fs.open("/d/f", create=True)
    file.append([b"flushed"])
    file.flush()
    fs.sync_dir("/d")
    file.append([b" and not"])
    fs.open("/d/unsynced", create=True)
    assert fs.crash("all").read_file("/d/f") == b"flushed and not"
    assert fs.crash("flushed").read_file("/d/f") == b"flushed"
    torn = {fs.crash("torn", seed=seed).read_file("/d/f") for seed in range(200)}
    assert torn == {b"flushed and not"[:size] for size in range(7, 16)}
    assert fs.crash(names="flushed").list_dir("/d") == ["f"]
    assert fs.crash(names="all").list_dir("/d") == ["f", "unsynced"]
    assert {len(fs.crash(names="torn", seed=seed).list_dir("/d")) for seed in range(20)} == {1, 2}


def test_a_truncated_tail_may_come_back() -> None:
    fs = MemoryFileSystem()
    file = fs.open("/f", create=True)
    file.append([b"abcdef"])
    file.flush()
    file.truncate(2)
    file.append([b"X"])
    assert fs.crash("flushed", names="all").read_file("/f") == b"abcdef"
    torn = {fs.crash("torn", names="all", seed=seed).read_file("/f") for seed in range(50)}
    assert torn == {b"ab", b"abX"}


def test_faults_come_when_ordered_and_count_every_change() -> None:
    fs = MemoryFileSystem()
    fs.fail_at(1, DiskFull)
    file = fs.open("/f", create=True)
    with pytest.raises(DiskFull):
        file.append([b"x"])
    file.append([b"y"])
    assert fs.log == ["create /f", "append /f", "append /f"]
    with fs.failing(lambda path: StorageError(path, "gone")), pytest.raises(StorageError):
        file.flush()


def test_who_only_looks_cannot_write(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"content")
    file = ReadOnlyFileSystem().open(str(path))
    assert bytes(file.view()) == file.read(99, 0) == b"content"
    with pytest.raises(StorageError):
        file.append([b"more"])
    with pytest.raises(StorageError):
        ReadOnlyFileSystem().open(str(tmp_path / "none"))
    file.close()


@pytest.mark.parametrize("errno_", [errno.ENOSPC, errno.EDQUOT])
def test_an_fsync_that_finds_no_room_is_a_disk_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, errno_: int
) -> None:
    """What was written before it, and maybe acknowledged, may be gone."""
    fs = RealFileSystem()
    file = fs.open(str(tmp_path / "f"), create=True)
    file.append([b"abc"])

    def full(_: int) -> None:
        raise OSError(errno_, os.strerror(errno_))

    monkeypatch.setattr(os, "fdatasync", full)
    monkeypatch.setattr(os, "fsync", full)
    for sync in (file.flush, lambda: fs.sync_dir(str(tmp_path))):
        with pytest.raises(StorageError, match="data may be lost") as raised:
            sync()
        assert raised.value.is_disk_failure
        assert not isinstance(raised.value, DiskFull)
