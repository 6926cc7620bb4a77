"""A log dir that could not be used when its node began is used when somebody has it looked at."""

import threading

import pytest

from raylog.actors.control import DirReport
from raylog.actors.node.dirs import Found
from raylog.actors.node.instructions import ReadDir
from raylog.storage.errors import InvalidLogDir, LogLocked, OutOfResources
from raylog.storage.log_dir import LOCK_FILE, LogDir
from raylog.storage.state.properties import MetaProperties, random_id, write_meta
from raylog.storage.testing.memory import MemoryFileSystem
from raylog.storage.testing.waiting import DEADLINE_S
from tests.unit.actors.node.disks import CLUSTER, LOG, A, B, Disks, HangingFileSystem, io_error

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


# -- another log dir is at its path ----------------------------------------------------------------


def test_the_disk_of_another_cluster_gets_no_record_and_the_right_one_is_used_after_it() -> None:
    fs = MemoryFileSystem()
    disks, identity = without_identity(fs)
    write_meta(fs, A, MetaProperties(random_id(), 1, random_id()))
    told = Told()
    assert "belongs to cluster" in disks.work.look_again(A, told)
    assert [(dir.path, dir.state, dir.directory_id) for dir in told] == [(A, "offline", None)]
    fs.write_file(IDENTITY, identity)
    assert disks.work.look_again(A, told) == ""
    assert (told[-1].directory_id, told[-1].state) == (disks.id_of(A), "online")


def failed_at_the_start(fs: MemoryFileSystem) -> Disks:
    """A node that has begun without A, whose id could be read."""
    Disks(fs).start().work.let_go()
    disks = Disks(fs)
    with fs.failing(io_error, under=A):
        disks.open()
    assert [dir.directory_id for dir in disks.work.unusable()] == [disks.id_of(A)]
    return disks


def test_a_locked_dir_of_another_cluster_gets_no_record() -> None:
    disks, told, cluster = failed_at_the_start(MemoryFileSystem()), Told(), random_id()
    write_meta(disks.fs, A, MetaProperties(cluster, 1, random_id()))
    LogDir(disks.fs, A, cluster, 1)
    assert "is locked" in disks.work.look_again(A, told)
    assert [dir.directory_id for dir in told] == [None]


def test_a_dir_whose_id_is_known_is_looked_at_again() -> None:
    disks, told = failed_at_the_start(MemoryFileSystem()), Told()
    assert disks.work.look_again(A, told) == ""
    assert [(dir.directory_id, dir.state) for dir in told] == [(disks.id_of(A), "online")]
    assert disks.work.unusable() == []


def test_another_dir_in_its_place_is_used_and_the_one_before_has_no_path() -> None:
    disks = failed_at_the_start(MemoryFileSystem())
    before, other = disks.id_of(A), random_id()
    write_meta(disks.fs, A, MetaProperties(CLUSTER, 1, other))
    assert disks.work.look_again(A, Told()) == ""
    assert other in disks.work.online()
    with pytest.raises(InvalidLogDir):
        disks.work.folder(before, LOG.partition)


def test_a_look_that_meets_its_reading_back_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    fs, told = HangingFileSystem(), Told()
    disks = failed_at_the_start(fs)
    read_back = ReadDir(token=1, directory_id=disks.id_of(A))
    reading = threading.Thread(target=disks.work.carry_out, args=[read_back], daemon=True)
    fs.hang(A)
    reading.start()
    assert fs.has_begun.wait(DEADLINE_S)
    lock_dir = disks.work._lock_dir

    def locked(path: str) -> LogDir:
        if threading.current_thread() is reading:
            return lock_dir(path)
        fs.let_go()
        reading.join(DEADLINE_S)
        raise LogLocked(path)

    monkeypatch.setattr(disks.work._dirs, "_lock_dir", locked)
    assert disks.work.look_again(A, told) == ""
    assert (told, disks.work.unusable()) == ([], [])
    assert disks.id_of(A) in disks.work.online()


def test_a_look_that_begins_when_it_was_read_back_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disks, told = failed_at_the_start(MemoryFileSystem()), Told()
    read_back = ReadDir(token=1, directory_id=disks.id_of(A))
    start = threading.Thread.start

    def late_start(thread: threading.Thread) -> None:
        disks.work.carry_out(read_back)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", late_start)
    assert disks.work.look_again(A, told) == ""
    assert (told, disks.work.unusable()) == ([], [])
    assert disks.work.folder(disks.id_of(A), LOG.partition).startswith(A)


# -- a look that does not end as it should ---------------------------------------------------------


def test_a_look_that_ends_by_our_mistake_says_so_and_the_next_one_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fs, told = MemoryFileSystem(), Told()
    disks, identity = without_identity(fs)

    def mistake(path: str) -> LogDir:
        raise ValueError(path)

    with monkeypatch.context() as patch:
        patch.setattr(disks.work._dirs, "_lock_dir", mistake)
        assert "ValueError" in disks.work.look_again(A, told)
    assert [(dir.path, dir.state) for dir in told] == [(A, "offline")]
    fs.write_file(IDENTITY, identity)
    assert disks.work.look_again(A, told) == ""


def test_where_no_thread_can_be_started_nothing_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = MemoryFileSystem()
    disks, identity = without_identity(fs)

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(OutOfResources, match="can't start new thread"):
            disks.work.look_again(A, Told())
    with pytest.raises(LogLocked):  # nobody gives it an identity beside the broker
        fs.lock(f"{A}/{LOCK_FILE}")
    fs.write_file(IDENTITY, identity)
    assert disks.work.look_again(A, Told()) == ""
