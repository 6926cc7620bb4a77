"""The highest epoch of a Controller that a log dir has seen."""

import pytest

from raylog.storage.errors import CorruptCheckpoint, DiskFull, StorageError
from raylog.storage.log_dir import LogDir
from raylog.storage.state.controller_epoch import (
    CONTROLLER_EPOCH,
    read_controller_epoch,
    write_controller_epoch,
)
from raylog.storage.testing.memory import MemoryFileSystem, Stopped

PATH = f"/logs/{CONTROLLER_EPOCH}"


@pytest.fixture
def fs() -> MemoryFileSystem:
    memory = MemoryFileSystem()
    memory.make_dir("/logs")
    memory.sync_dir("/")
    return memory


def test_without_a_file_none_was_seen(fs: MemoryFileSystem) -> None:
    assert read_controller_epoch(fs, "/logs") == -1


def test_the_file_is_two_lines_with_a_crc(fs: MemoryFileSystem) -> None:
    write_controller_epoch(fs, "/logs", 17)
    assert fs.list_dir("/logs") == ["controller-epoch"]
    assert fs.read_file(PATH) == b"0\n17 46a4d07c\n"


@pytest.mark.parametrize("epoch", [0, 1, 2**31 - 1])
def test_an_epoch_comes_back_after_a_loss_of_power(fs: MemoryFileSystem, epoch: int) -> None:
    write_controller_epoch(fs, "/logs", epoch)
    assert read_controller_epoch(fs.crash("flushed", names="flushed"), "/logs") == epoch


def test_a_crash_leaves_the_old_epoch_or_the_new_one(fs: MemoryFileSystem) -> None:
    for operations in range(7):
        disk = fs.crash()
        write_controller_epoch(disk, "/logs", 4)
        disk.stop_at(disk.operations + operations)
        try:
            write_controller_epoch(disk, "/logs", 5)
        except Stopped:
            pass
        for seed in range(5):
            found = read_controller_epoch(disk.crash("torn", names="torn", seed=seed), "/logs")
            assert found in (4, 5), operations


def test_every_byte_that_changes_and_every_cut_is_noticed(fs: MemoryFileSystem) -> None:
    write_controller_epoch(fs, "/logs", 1234567890)
    whole = fs.read_file(PATH)
    damaged = [whole[:size] for size in range(len(whole))] + [whole + b"\n", whole + whole]
    for at in range(len(whole)):
        damaged += [
            whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :] for bit in range(8)
        ]
    for content in damaged:
        fs.write_file(PATH, content)
        with pytest.raises(CorruptCheckpoint, match=PATH):
            read_controller_epoch(fs, "/logs")


def full(path: str) -> StorageError:
    return DiskFull(path)


@pytest.fixture
def appended(fs: MemoryFileSystem) -> MemoryFileSystem:
    """A log dir whose disk was full when it was to write its second and third epoch."""
    write_controller_epoch(fs, "/logs", 17)
    fs.sync_dir("/")
    with fs.failing(full, "append", f"{PATH}.tmp"):
        for epoch in (18, 123):
            write_controller_epoch(fs, "/logs", epoch)
    return fs


def test_on_a_full_disk_an_epoch_is_appended_to_the_file(appended: MemoryFileSystem) -> None:
    assert appended.list_dir("/logs") == ["controller-epoch"]
    assert appended.read_file(PATH).startswith(b"0\n17 46a4d07c\n18 ")
    assert read_controller_epoch(appended.crash("flushed", names="flushed"), "/logs") == 123
    write_controller_epoch(appended, "/logs", 124)
    assert appended.read_file(PATH).count(b"\n") == 2, "there is room again"


def test_an_epoch_that_a_crash_cut_off_was_obeyed_by_nobody(appended: MemoryFileSystem) -> None:
    whole = appended.read_file(PATH)
    second = whole.rindex(b"\n", 0, -1) + 1
    for size in range(second, len(whole)):
        appended.write_file(PATH, whole[:size])
        assert read_controller_epoch(appended, "/logs") == 18, size
        with appended.failing(full, "append", f"{PATH}.tmp"):
            write_controller_epoch(appended, "/logs", 19)
        assert read_controller_epoch(appended, "/logs") == 19, size


@pytest.mark.parametrize("kept", [0, 1, 3, 11])
def test_zeros_in_the_place_of_what_was_appended_are_cut_off(
    appended: MemoryFileSystem, kept: int
) -> None:
    """A loss of power kept the new size of the file, and not all of its bytes."""
    whole = appended.read_file(PATH)
    last = whole.rindex(b"\n", 0, -1) + 1
    size = len(whole) - last
    assert kept < size
    torn = whole[: last + kept] + bytes(size - kept)
    appended.write_file(PATH, torn)
    assert read_controller_epoch(appended, "/logs") == 18
    with appended.failing(full, "append", f"{PATH}.tmp"):
        write_controller_epoch(appended, "/logs", 19)
    assert appended.read_file(PATH).startswith(torn[:last])
    assert read_controller_epoch(appended, "/logs") == 19
    assert b"\0" not in appended.read_file(PATH)


@pytest.mark.parametrize("content", [b"\0" * 13, b"0\n" + b"\0" * 12, b"0\n17 46a4d07c\n\0\0x\n"])
def test_zeros_where_no_whole_line_is_or_before_one_are_damage(
    fs: MemoryFileSystem, content: bytes
) -> None:
    fs.write_file(PATH, content)
    with pytest.raises(CorruptCheckpoint, match=PATH):
        read_controller_epoch(fs, "/logs")


def test_every_byte_that_changes_in_a_file_of_several_lines_is_noticed(
    appended: MemoryFileSystem,
) -> None:
    whole = appended.read_file(PATH)
    for at in range(len(whole)):
        for bit in range(8):
            content = whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :]
            appended.write_file(PATH, content)
            with pytest.raises(CorruptCheckpoint, match=PATH):
                read_controller_epoch(appended, "/logs")


def test_where_there_is_no_file_yet_a_full_disk_takes_no_epoch(fs: MemoryFileSystem) -> None:
    with fs.failing(full, "append"), pytest.raises(DiskFull):
        write_controller_epoch(fs, "/logs", 1)
    assert read_controller_epoch(fs, "/logs") == -1


def test_a_log_dir_never_lowers_it(fs: MemoryFileSystem) -> None:
    log_dir = LogDir(fs, "/logs", "uHx_mWK3Sji2MLBMLyjjfg", 1)
    assert log_dir.controller_epoch() == -1
    for epoch, kept in ((3, 3), (5, 5), (4, 5), (5, 5), (6, 6)):
        log_dir.write_controller_epoch(epoch)
        assert log_dir.controller_epoch() == kept


def test_a_damaged_one_is_not_replaced_by_one_that_may_be_lower(fs: MemoryFileSystem) -> None:
    log_dir = LogDir(fs, "/logs", "uHx_mWK3Sji2MLBMLyjjfg", 1)
    fs.write_file(PATH, b"nonsense")
    with pytest.raises(CorruptCheckpoint):
        log_dir.write_controller_epoch(9)
    assert fs.read_file(PATH) == b"nonsense"
