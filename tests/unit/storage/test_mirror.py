"""A copy of a partition's folder that follows the original round by round, and is equal at the
end."""

import os
from pathlib import Path

import pytest

from raylog.storage.errors import NoRoom, StorageError
from raylog.storage.files import FileSystem, RealFileSystem
from raylog.storage.mirror import SETTLED_MS, Mirror, folder_bytes
from raylog.storage.testing.clock import ManualClock
from raylog.storage.testing.memory import MemoryFileSystem

SOURCE, TARGET = "/a/orders-0", "/b/orders-0.0-future"


class Copying:
    """A folder, its copy, and what was copied of it."""

    def __init__(self) -> None:
        self.fs, self.clock = MemoryFileSystem(), ManualClock()
        self.fs.make_dir(SOURCE)
        self.fs.make_dir("/b")
        self.told: list[int] = []
        self.mirror = Mirror(self.fs, self.clock, SOURCE, TARGET, self.told.append)

    def write(self, name: str, content: bytes) -> None:
        """Append to a file, now."""
        self.fs.now_ms = self.clock.now_ms()
        file = self.fs.open(f"{SOURCE}/{name}", create=True)
        file.append([content])
        file.close()

    def later(self, ms: int = SETTLED_MS) -> None:
        self.clock.advance(ms)

    def copied(self) -> dict[str, bytes]:
        return contents(self.fs, TARGET)


def contents(fs: FileSystem, folder: str) -> dict[str, bytes]:
    return {name: fs.read_file(os.path.join(folder, name)) for name in fs.list_dir(folder)}


@pytest.fixture
def copying() -> Copying:
    made = Copying()
    made.write("00.log", b"sealed")
    made.write("00.index", b"i")
    made.write("07.log", b"active")
    made.later()
    return made


def test_a_round_copies_what_changed_since_the_last(copying: Copying) -> None:
    assert copying.mirror.round() == 13
    assert copying.mirror.round() == 0
    copying.write("07.log", b"+more")
    copying.write("09.log", b"new")
    copying.later()
    assert copying.mirror.round() == 14
    assert copying.copied() == contents(copying.fs, SOURCE)
    assert copying.told == [1, 6, 6, 11, 3]
    assert copying.fs.mtime_ms(f"{TARGET}/09.log") == copying.fs.mtime_ms(f"{SOURCE}/09.log")


def test_what_changed_a_moment_ago_is_copied_again(copying: Copying) -> None:
    copying.write("07.log", b"!")
    copying.later(SETTLED_MS - 1)
    assert copying.mirror.round() == 14
    # An append was taken back, and another of its size came in the same tick of the disk's clock.
    file = copying.fs.open(f"{SOURCE}/07.log")
    file.truncate(6)
    copying.fs.now_ms = copying.fs.mtime_ms(f"{SOURCE}/07.log")
    file.append([b"?"])
    assert copying.mirror.round() == 7
    assert copying.copied()["07.log"] == b"active?"


def test_a_file_that_another_replaced_is_copied_though_size_and_time_are_the_same(
    copying: Copying,
) -> None:
    copying.mirror.round()
    mtime_ms = copying.fs.mtime_ms(f"{SOURCE}/00.log")
    copying.fs.write_file(f"{SOURCE}/00.log.swap", b"SEALED")
    copying.fs.set_mtime_ms(f"{SOURCE}/00.log.swap", mtime_ms)
    copying.fs.rename(f"{SOURCE}/00.log.swap", f"{SOURCE}/00.log")
    copying.mirror.round()
    assert copying.copied()["00.log"] == b"SEALED"


def test_what_left_the_log_leaves_the_copy(copying: Copying) -> None:
    copying.mirror.round()
    copying.fs.rename(f"{SOURCE}/00.log", f"{SOURCE}/00.log.deleted")
    copying.fs.remove(f"{SOURCE}/00.index")
    copying.mirror.round()
    assert list(copying.copied()) == ["07.log"]


@pytest.mark.parametrize("suffix", [".deleted", ".cleaned", ".swap", ".tmp"])
def test_what_is_on_its_way_in_or_out_is_not_copied(copying: Copying, suffix: str) -> None:
    copying.write("00.log" + suffix, b"x")
    copying.later()
    copying.mirror.round(is_last=True)
    assert sorted(copying.copied()) == ["00.index", "00.log", "07.log"]


def test_a_file_that_vanishes_under_the_copy_is_no_error_while_the_log_is_served(
    copying: Copying,
) -> None:
    copy = copying.fs.copy_file

    def vanishing(source: str, *arguments: object, **options: bool) -> None:
        if source.endswith("00.log") and copying.fs.exists(source):
            copying.fs.remove(source)
        copy(source, *arguments, **options)  # type: ignore[arg-type]

    copying.fs.copy_file = vanishing  # type: ignore[method-assign, assignment]
    copying.mirror.round()
    assert sorted(copying.copied()) == ["00.index", "07.log"]
    copying.write("00.log", b"again")
    with pytest.raises(StorageError):
        copying.mirror.round(is_last=True)


def test_the_last_round_copies_what_an_earlier_one_may_have_seen_half(copying: Copying) -> None:
    copying.write("07.log", b"!")
    copying.mirror.round()
    assert copying.mirror.round(is_last=True) == 7
    assert copying.copied() == contents(copying.fs, SOURCE)


@pytest.mark.parametrize("survives", ["flushed", "torn", "all"])
def test_after_the_last_round_a_loss_of_power_takes_nothing_of_the_copy(
    copying: Copying, survives: str
) -> None:
    copying.mirror.round()
    copying.write("07.log", b"+more")
    copying.mirror.round(is_last=True)
    copying.fs.sync_dir("/b")
    copying.fs.sync_dir("/")
    found = copying.fs.crash(survives, names="flushed")  # type: ignore[arg-type]
    assert contents(found, TARGET) == contents(copying.fs, SOURCE)


def test_a_copy_that_would_not_fit_is_refused_before_it_begins(copying: Copying) -> None:
    copying.fs.usable_bytes = 12
    with pytest.raises(NoRoom, match="/b: the copy needs 13 bytes, but only 12 are free"):
        copying.mirror.check_room()
    assert not copying.fs.exists(TARGET)
    copying.fs.usable_bytes = 13
    copying.mirror.check_room()


def test_whoever_is_told_of_the_bytes_can_end_it(copying: Copying) -> None:
    def stop(size_bytes: int) -> None:
        raise StorageError("/b", "stopped")

    with pytest.raises(StorageError, match="stopped"):
        Mirror(copying.fs, copying.clock, SOURCE, TARGET, stop).round(is_last=True)


def test_on_a_real_disk(tmp_path: Path) -> None:
    fs, told = RealFileSystem(), list[int]()
    source, target = tmp_path / "orders-0", tmp_path / "copy"
    source.mkdir()
    (source / "00.log").write_bytes(os.urandom(9 << 20))
    (source / "empty").touch()
    os.utime(source / "00.log", ns=(1, 1_234_567_890))
    mirror = Mirror(fs, ManualClock(1 << 60), str(source), str(target), told.append)
    assert mirror.round(is_last=True) == 9 << 20 == folder_bytes(fs, str(source))
    assert contents(fs, str(target)) == contents(fs, str(source))
    assert (target / "00.log").stat().st_mtime_ns == 1_234_567_890
    assert (sum(told), len(told) > 1) == (9 << 20, True)
    (source / "00.log").write_bytes(b"shorter")
    mirror.round(is_last=True)
    assert (target / "00.log").read_bytes() == b"shorter"
    assert fs.stat(str(source / "gone")) is None
    room = fs.room(str(tmp_path))
    assert 0 < room.usable_bytes <= room.total_bytes
