"""A log dir that could not be used when its node began is used when somebody has it looked at."""

from raylog.actors.control import DirReport
from raylog.actors.node.dirs import Found
from raylog.storage.log_dir import LogDir
from raylog.storage.testing.memory import MemoryFileSystem
from tests.unit.actors.node.disks import CLUSTER, LOG, A, B, Disks

IDENTITY = f"{A}/meta.properties"


class Told(list[DirReport]):
    def __call__(self, found: Found) -> None:
        self.extend(found.dirs)


def without_identity(fs: MemoryFileSystem) -> tuple[Disks, bytes]:
    """A node that has begun without A, whose identity is lost, and the file that A had."""
    before = Disks(fs).start()
    before.make()
    before.work.let_go()
    identity = fs.read_file(IDENTITY)
    fs.remove(IDENTITY)
    disks = Disks(fs)
    disks.open()
    return disks, identity


def test_a_file_that_is_there_again_is_found_and_the_dir_is_used() -> None:
    fs = MemoryFileSystem()
    disks, identity = without_identity(fs)
    fs.write_file(IDENTITY, identity)
    told = Told()
    assert disks.work.look_again(A, told) == ""
    [dir] = told
    assert (dir.path, dir.state) == (A, "online")
    assert disks.work.unusable() == []
    assert len(disks.work.online()) == 2


def test_what_is_still_missing_is_said_and_the_dir_stays_locked() -> None:
    fs = MemoryFileSystem()
    disks, identity = without_identity(fs)
    told = Told()
    assert "meta.properties is missing" in disks.work.look_again(A, told)
    assert [dir.state for dir in told] == ["offline"]
    fs.write_file(IDENTITY, identity)
    assert disks.work.look_again(A, Told()) == ""


def test_a_dir_whose_folder_could_not_be_made_is_a_new_log_dir_when_it_can() -> None:
    disks = Disks()
    fs = disks.fs
    disks.open([A, "/nowhere/c"])
    assert "neither the folder" in disks.work.look_again("/nowhere/c", Told())
    fs.make_dir("/nowhere")
    told = Told()
    assert disks.work.look_again("/nowhere/c", told) == ""
    assert [(dir.path, dir.state) for dir in told] == [("/nowhere/c", "online")]


def test_a_copy_of_a_dir_in_use_is_refused_and_unlocked() -> None:
    fs = MemoryFileSystem()
    disks, _ = without_identity(fs)
    fs.write_file(IDENTITY, fs.read_file(f"{B}/meta.properties"))
    assert "have the same directory.id" in disks.work.look_again(A, Told())
    LogDir(fs, A, CLUSTER, 1)


def test_a_dir_that_is_in_use_is_left_alone() -> None:
    disks = Disks().start()
    disks.make()
    told = Told()
    assert (disks.work.look_again(A, told), told) == ("", [])
    assert disks.work.checkpointed(disks.id_of(A), LOG.partition).log_start_offset == 0
