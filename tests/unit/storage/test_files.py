"""What every FileSystem promises, held against the real one and the one in memory."""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from raylog.storage.descriptors import MAX_UNFLUSHED
from raylog.storage.errors import (
    DiskFull,
    LogClosed,
    LogLocked,
    SegmentDeleted,
    StorageError,
    UndoFailed,
)
from raylog.storage.files import (
    FileSystem,
    ReadOnlyFileSystem,
    RealFile,
    RealFileSystem,
    write_atomically,
)
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


def test_a_stamp_takes_the_place_of_a_batchs_first_bytes(
    fs: FileSystem, at: Callable[[str], str]
) -> None:
    fs.write_file(at("f"), b"ab")
    file = fs.open(at("f"))
    file.append_stamped(b"XY", b"..cd")
    file.append_stamped(b"Z", b".e")
    assert (file.size, fs.read_file(at("f"))) == (8, b"abXYcdZe")


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


def test_the_facts_of_a_file_tell_whether_it_has_changed(
    fs: FileSystem, at: Callable[[str], str]
) -> None:
    fs.write_file(at("f"), b"abcd")
    fs.set_mtime_ms(at("f"), 1_700_000_000_123)
    assert fs.stat(at("f")) == (fs.open(at("f")).inode, 4, 1_700_000_000_123)
    assert fs.mtime_ms(at("f")) == 1_700_000_000_123
    assert fs.stat(at("g")) is None


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
    lock = fs.lock_dir(at("d"))
    assert fs.list_dir(at("d")) == []
    with pytest.raises(LogLocked, match="d is locked by another process"):
        fs.lock(at("d"))
    lock.release()
    fs.lock(at("d")).release()


def test_the_lock_of_a_folder_that_is_gone_makes_nothing_and_removes_nothing(
    fs: FileSystem, at: Callable[[str], str]
) -> None:
    with pytest.raises(StorageError):
        fs.lock_dir(at("d"))
    assert not fs.exists(at("d"))
    fs.write_file(at("d"), b"what somebody has put there")
    with pytest.raises(StorageError):
        fs.lock_dir(at("d"))
    assert fs.read_file(at("d")) == b"what somebody has put there"


def test_whether_a_folder_can_be_written_is_tried(fs: FileSystem, at: Callable[[str], str]) -> None:
    assert fs.can_write(at(""))
    assert fs.list_dir(at("")) == []


def test_a_reference_reads_on_after_a_rename_a_close_and_a_removal(
    fs: FileSystem, at: Callable[[str], str]
) -> None:
    file = fs.open(at("f"), create=True)
    file.append([b"abcd"])
    reference = file.opened()
    file.rename(at("g"))
    assert (file.path, fs.exists(at("f"))) == (at("g"), False)
    file.close()
    fs.remove(at("g"))
    other = fs.open(at("h"), create=True)  # would get the number of a closed descriptor
    other.append([b"other"])
    buffer = bytearray(6)
    assert reference.read(2, 1) == b"bc"
    assert (reference.read_into(buffer, 1), bytes(buffer)) == (3, b"bcd\0\0\0")
    assert reference.inode == file.inode


def test_a_closed_file_says_so(fs: FileSystem, at: Callable[[str], str]) -> None:
    file = fs.open(at("f"), create=True)
    file.append([b"abcd"])
    file.close()
    file.close()
    calls: list[Callable[[], object]] = [
        file.opened,
        file.flush,
        lambda: file.read(1, 0),
        lambda: file.read_into(bytearray(1), 0),
        lambda: file.append([b"x"]),
        lambda: file.truncate(0),
    ]
    for call in calls:
        with pytest.raises(LogClosed):
            call()
    assert fs.read_file(at("f")) == b"abcd"


def test_a_removed_file_was_deleted_and_its_log_is_not_closed(
    fs: FileSystem, at: Callable[[str], str]
) -> None:
    file = fs.open(at("f"), create=True)
    file.append([b"abcd"])
    file.remove()
    file.close()
    with pytest.raises(SegmentDeleted):
        file.read(1, 0)
    assert not fs.exists(at("f"))


def test_a_sealed_file_is_read_and_becomes_writable_with_a_change(
    fs: FileSystem, at: Callable[[str], str]
) -> None:
    file = fs.open(at("f"), create=True)
    file.append([b"abcd"])
    file.seal()
    file.seal()
    file.flush()
    assert file.read(9, 0) == b"abcd"
    file.truncate(2)
    file.append([b"X"])
    assert (file.size, file.read(9, 0)) == (3, b"abX")


# -- the real one ----------------------------------------------------------------------------------


def is_writable(file: RealFile) -> bool:
    return file.opened().is_writable


def open_paths() -> list[str]:
    """What this process has open, by path."""
    paths = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            paths.append(os.readlink(f"/proc/self/fd/{number}"))
    return paths


def count_open(folder: Path) -> int:
    return sum(path.startswith(str(folder)) for path in open_paths())


def written(fs: RealFileSystem, path: Path, content: bytes = b"abcd") -> RealFile:
    file = fs.open(str(path), create=True)
    file.append([content])
    return file


def test_the_last_reference_closes(tmp_path: Path) -> None:
    file = written(RealFileSystem(), tmp_path / "f")
    reference = file.opened()
    file.close()
    assert count_open(tmp_path) == 1
    del reference
    assert count_open(tmp_path) == 0


def test_a_sealed_file_is_open_read_only_from_then_on(tmp_path: Path) -> None:
    file = written(RealFileSystem(), tmp_path / "f")
    assert is_writable(file)
    file.seal()
    assert not is_writable(file)
    file.append([b"e"])
    assert is_writable(file)
    assert file.read(9, 0) == b"abcde"


def test_a_file_that_nobody_changes_is_open_read_only(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abcd")
    file = RealFileSystem().open(str(tmp_path / "f"))
    assert not is_writable(file)
    file.truncate(1)
    assert is_writable(file)


def test_sealed_files_share_a_bounded_number_of_descriptors(tmp_path: Path) -> None:
    fs = RealFileSystem(max_sealed=4)
    files = [written(fs, tmp_path / str(n), b"%d" % n) for n in range(20)]
    assert count_open(tmp_path) == 20
    for file in files:
        file.flush()
        file.seal()
    assert count_open(tmp_path) == 4
    assert [file.read(9, 0) for file in files] == [b"%d" % n for n in range(20)]
    assert count_open(tmp_path) == 4
    for file in files:
        file.close()
    assert count_open(tmp_path) == 0


def test_the_files_used_last_stay_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = RealFileSystem(max_sealed=2)
    paths = [tmp_path / str(n) for n in range(3)]
    for path in paths:
        path.write_bytes(b"x")
    first, second = fs.open(str(paths[0])), fs.open(str(paths[1]))
    first.read(1, 0)
    third = fs.open(str(paths[2]))
    opened = count_calls(monkeypatch, "open")
    first.read(1, 0)
    third.read(1, 0)
    assert opened == []
    second.read(1, 0)
    assert len(opened) == 1


def count_calls(monkeypatch: pytest.MonkeyPatch, name: str) -> list[Any]:
    """The arguments of every call of a function of ``os`` from now on."""
    calls: list[Any] = []
    real = getattr(os, name)

    def counted(*args: Any) -> Any:
        calls.append(args)
        return real(*args)

    monkeypatch.setattr(os, name, counted)
    return calls


@pytest.mark.parametrize(
    "change",
    [
        lambda file: file.append([b"abcd"]),
        lambda file: file.append_stamped(b"ab", b"..cd"),
        lambda file: [file.append([b"abcdef"]), file.flush(), file.truncate(4)],
    ],
    ids=["append", "stamped", "truncate"],
)
def test_a_sealed_file_keeps_its_descriptor_until_it_is_flushed(
    tmp_path: Path, change: Callable[[RealFile], None]
) -> None:
    """The system tells an error of writing back only to those who have had the file open."""
    file = RealFileSystem(max_sealed=0).open(str(tmp_path / "f"), create=True)
    change(file)
    file.seal()
    assert count_open(tmp_path) == 1
    file.flush()
    assert count_open(tmp_path) == 0
    assert file.read(9, 0) == b"abcd"


def test_a_file_that_was_never_written_waits_for_no_flush(tmp_path: Path) -> None:
    file = RealFileSystem(max_sealed=0).open(str(tmp_path / "f"), create=True)
    file.seal()
    assert count_open(tmp_path) == 0


def test_a_flush_that_failed_is_not_taken_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(RealFileSystem(max_sealed=0), tmp_path / "f")

    def fails(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fails)
        with pytest.raises(StorageError):
            file.flush()
    file.seal()
    assert count_open(tmp_path) == 1


def test_sealing_flushes_where_too_many_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = RealFileSystem(max_sealed=0)
    flushed = count_calls(monkeypatch, "fdatasync")
    files = [written(fs, tmp_path / str(n)) for n in range(MAX_UNFLUSHED + 10)]
    for file in files:
        file.seal()
    assert (count_open(tmp_path), len(flushed)) == (MAX_UNFLUSHED, 10)
    for file in files:
        file.flush()
    assert count_open(tmp_path) == 0


def test_an_append_beside_a_flush_is_not_taken_for_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = RealFileSystem(max_sealed=0)
    file = written(fs, tmp_path / "f")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", lambda _: file.append([b"late"]))
        file.flush()
    file.seal()
    assert count_open(tmp_path) == 1


def test_a_file_that_is_opened_again_is_found_under_its_new_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = RealFileSystem(max_sealed=0)
    (tmp_path / "f").write_bytes(b"abcd")
    file = fs.open(str(tmp_path / "f"))
    real = os.replace

    def replace_then_read(source: str, target: str) -> None:
        assert file.read(9, 0) == b"abcd"
        real(source, target)
        assert file.read(9, 0) == b"abcd", "before its owner has noted the new name"

    monkeypatch.setattr(os, "replace", replace_then_read)
    file.rename(str(tmp_path / "g"))
    assert file.read(9, 0) == b"abcd"


def test_a_copy_has_the_bytes_and_the_mtime_and_leaves_nothing_open(tmp_path: Path) -> None:
    fs, source, target = RealFileSystem(), str(tmp_path / "f"), str(tmp_path / "g")
    fs.write_file(source, b"abcd")
    fs.set_mtime_ms(source, 12345)
    fs.write_file(target, b"something longer")
    copied: list[int] = []
    fs.copy_file(source, target, copied.append, flush=True)
    assert (fs.read_file(target), fs.mtime_ms(target), copied) == (b"abcd", 12345, [4])
    assert count_open(tmp_path) == 0


def test_another_file_under_its_name_is_not_read(tmp_path: Path) -> None:
    fs = RealFileSystem(max_sealed=0)
    (tmp_path / "f").write_bytes(b"abcd")
    file = fs.open(str(tmp_path / "f"))
    (tmp_path / "new").write_bytes(b"foreign")
    os.replace(tmp_path / "new", tmp_path / "f")
    for call in (lambda: file.read(9, 0), lambda: file.append([b"x"]), file.opened):
        with pytest.raises(SegmentDeleted):
            call()
    assert (tmp_path / "f").read_bytes() == b"foreign"


def test_without_descriptors_those_that_are_only_kept_make_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = RealFileSystem(max_sealed=4)
    (tmp_path / "f").write_bytes(b"abcd")
    fs.open(str(tmp_path / "f"))
    real = os.open

    def limited(*args: Any) -> int:
        if count_open(tmp_path):
            raise OSError(errno.EMFILE, "Too many open files")
        return real(*args)

    monkeypatch.setattr(os, "open", limited)
    other = fs.open(str(tmp_path / "g"), create=True)
    assert count_open(tmp_path) == 1
    other.close()


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


def test_what_a_failed_flush_could_not_write_is_read_but_is_not_on_the_disk() -> None:
    fs = MemoryFileSystem()
    file = fs.open("/f", create=True)
    file.append([b"good"])
    file.flush()
    file.append([b"lost"])
    with fs.failing(broken_disk), pytest.raises(StorageError):
        file.flush()
    assert fs.read_file("/f") == b"goodlost"
    assert fs.crash("flushed", names="all").read_file("/f") == b"good"
    file.append([b"next"])
    file.flush()
    assert fs.read_file("/f") == b"goodlostnext"
    assert fs.crash("flushed", names="all").read_file("/f") == b"good\0\0\0\0next"
    assert fs.crash("torn", names="all").read_file("/f") == b"good\0\0\0\0next"
    successor = fs.crash("all")
    assert successor.read_file("/f") == b"goodlostnext"
    successor.open("/f").flush()
    assert successor.crash("flushed").read_file("/f") == b"good\0\0\0\0next"
    successor.open("/f").drop_cache()
    assert successor.read_file("/f") == b"good\0\0\0\0next"


def test_dropping_the_cache_keeps_what_is_not_flushed(
    fs: FileSystem, at: Callable[[str], str]
) -> None:
    file = fs.open(at("f"), create=True)
    file.append([b"flushed"])
    file.flush()
    file.append([b" and not"])
    file.drop_cache()
    assert fs.read_file(at("f")) == b"flushed and not"
    assert file.size == 15


def test_the_cache_is_dropped(tmp_path: Path) -> None:
    file = RealFileSystem().open(str(tmp_path / "f"), create=True)
    file.append([b"x" * 100_000])
    file.flush()
    assert is_cached(file.opened().fileno())
    file.drop_cache()
    assert not is_cached(file.opened().fileno())
    assert file.read(3, 0) == b"xxx"


def is_cached(number: int) -> bool:
    """Whether a file's first page is in memory."""
    try:
        return os.preadv(number, (bytearray(1),), 0, os.RWF_NOWAIT) == 1
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        pytest.skip("this file system is memory, and has no disk")


def test_a_system_that_drops_no_cache_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(os, "posix_fadvise", refuse)
    file = RealFileSystem().open(str(tmp_path / "f"), create=True)
    file.append([b"x"])
    file.drop_cache()
    assert file.read(1, 0) == b"x"


def broken_disk(path: str) -> StorageError:
    return StorageError(path, "Input/output error during an fsync")


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


def test_a_rename_that_the_disk_refuses_is_the_disks_failure() -> None:
    fs = MemoryFileSystem()
    fs.write_file("/f", b"old")
    with (
        fs.failing(lambda path: StorageError(path, "Input/output error"), "rename"),
        pytest.raises(StorageError) as raised,
    ):
        write_atomically(fs, "/f", b"new")
    assert type(raised.value) is StorageError
    assert raised.value.is_disk_failure
    assert fs.read_file("/f") == b"old"


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
        with pytest.raises(StorageError, match="written may be lost") as raised:
            sync()
        assert raised.value.is_disk_failure
        assert not isinstance(raised.value, DiskFull)
