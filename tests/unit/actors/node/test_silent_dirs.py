"""A log dir that is silent when its node begins holds up no other; it is used when it answers."""

import sys
import threading
from collections.abc import Callable, Mapping
from types import SimpleNamespace

import pytest

from raylog.actors.control import DirReport
from raylog.actors.node import dir_openings as openings_module
from raylog.actors.node import dirs as dirs_module
from raylog.actors.node.dir_openings import in_threads
from raylog.actors.node.dirs import Found
from raylog.storage.errors import (
    DuplicateLogDir,
    IdentityMissing,
    InconsistentClusterId,
    LogLocked,
)
from raylog.storage.log_dir import LOCK_FILE, LogDir
from raylog.storage.state.properties import CLEAN_SHUTDOWN, random_id
from raylog.storage.testing.waiting import DEADLINE_S, wait_for
from tests.harness.in_turn import in_turn
from tests.harness.interleaving import Meeting, Outcome, Schedule, schedules
from tests.unit.actors.node.disks import CLUSTER, LOG, A, B, Disks, HangingFileSystem

NO_PATIENCE = in_threads(0.0)


class Late:
    """What is told of a dir that answers late."""

    def __init__(self) -> None:
        self._told = threading.Event()
        self._found: Found | None = None

    def __call__(self, found: Found) -> None:
        self._found = found
        self._told.set()

    @property
    def found(self) -> Found:
        assert self._told.wait(DEADLINE_S)
        assert self._found is not None
        return self._found


class Silent:
    """Two log dirs, with a log in each; the first one's disk hangs when the node begins."""

    def __init__(self) -> None:
        self.fs = HangingFileSystem()
        before = Disks(self.fs).start()
        before.make()
        before.work.let_go()
        self.ids = {path: before.id_of(path) for path in (A, B)}
        self.disks = Disks(self.fs, beside=NO_PATIENCE)
        self.late = Late()

    def open(self) -> tuple[DirReport, ...]:
        self.fs.hang(A)
        return self.disks.work.open([A, B], self.late).dirs


@pytest.fixture
def silent() -> Silent:
    return Silent()


def test_a_dir_that_is_silent_holds_up_no_other(silent: Silent) -> None:
    [online, offline] = silent.open()
    assert (online.path, online.state) == (B, "online")
    assert (offline.path, offline.state, offline.directory_id) == (A, "offline", None)
    assert "has not answered" in offline.why
    assert silent.disks.work.online() == [silent.ids[B]]
    [unusable] = silent.disks.work.unusable()
    assert (unusable.path, unusable.advice.split(":")[0]) == (A, "wait")
    silent.fs.let_go()


def test_it_is_used_when_it_answers(silent: Silent) -> None:
    silent.open()
    silent.fs.let_go()
    [dir] = silent.late.found.dirs
    assert (dir.directory_id, dir.state, dir.is_read_back) == (silent.ids[A], "online", False)
    assert [folder.partition for folder in silent.late.found.folders] == [LOG.partition]
    assert silent.disks.work.online() == [silent.ids[B], silent.ids[A]]
    assert silent.disks.work.unusable() == []
    assert silent.disks.work.checkpointed(silent.ids[A], LOG.partition).log_start_offset == 0


def test_one_that_answers_late_and_cannot_be_used_is_told_why(silent: Silent) -> None:
    silent.open()
    silent.fs.write_file(f"{A}/meta.properties", silent.fs.read_file(f"{B}/meta.properties"))
    silent.fs.let_go()
    [dir] = silent.late.found.dirs
    assert (dir.path, dir.state) == (A, "offline")
    assert dir.why.startswith(DuplicateLogDir(A, B, "have the same directory.id").problem)
    LogDir(silent.fs, A, CLUSTER, 1)  # it is unlocked


def test_a_copy_that_answers_late_does_not_take_the_place_of_a_dir_that_has_failed(
    silent: Silent,
) -> None:
    silent.open()
    silent.fs.write_file(f"{A}/meta.properties", silent.fs.read_file(f"{B}/meta.properties"))
    silent.disks.work.close_dir(silent.ids[B])
    silent.fs.let_go()
    [dir] = silent.late.found.dirs
    assert (dir.path, dir.state, dir.directory_id) == (A, "offline", None)
    assert dir.why.startswith(DuplicateLogDir(A, B, "have the same directory.id").problem)
    assert silent.disks.work.folder(silent.ids[B], LOG.partition).startswith(B)


class HangsAfterItsIdentity(HangingFileSystem):
    """A disk that hangs when the file is read again that says which log dir A is."""

    def read_file(self, path: str) -> bytes:
        content = super().read_file(path)
        if path == f"{A}/meta.properties":
            self.hang(path)
        return content

    def is_over(self, thread: threading.Thread) -> bool:
        """Whether the thread has ended, or hangs."""
        return self.has_begun.is_set() or not thread.is_alive()


def test_a_dir_that_cannot_be_used_and_then_hangs_holds_up_no_other() -> None:
    """What is read of it all the same, is read in the thread of the dir."""
    fs = HangsAfterItsIdentity()

    def beside(jobs: Mapping[str, Callable[[], None]], _: Callable[[], bool]) -> None:
        jobs[B]()
        opening = threading.Thread(target=jobs[A], daemon=True)
        opening.start()
        wait_for(lambda: fs.is_over(opening))

    Disks(fs, beside=in_turn).start().work.let_go()
    fs.write_file(f"{A}/meta.properties", b"damaged")
    late = Late()
    [online, offline] = Disks(fs, beside=beside).work.open([A, B], late).dirs
    assert (online.path, online.state) == (B, "online")
    assert (offline.path, offline.state) == (A, "offline")
    assert "has not answered" in offline.why
    fs.let_go()
    [dir] = late.found.dirs
    assert (dir.path, dir.state, dir.directory_id) == (A, "offline", None)
    assert "meta.properties" in dir.why


def test_where_the_node_cannot_begin_a_dir_without_identity_is_not_locked() -> None:
    silent = Silent()
    silent.fs.remove(f"{A}/meta.properties")
    silent.fs.remove(f"{B}/meta.properties")
    LogDir(silent.fs, B, random_id(), 1).close(clean=False)
    with pytest.raises(IdentityMissing):
        Disks(silent.fs).open()
    assert not is_locked(silent, A)


def test_a_node_all_of_whose_dirs_are_silent_waits_for_the_first(silent: Silent) -> None:
    silent.fs.hang(A)
    found: list[Found] = []
    starting = threading.Thread(
        target=lambda: found.append(silent.disks.work.open([A], silent.late)), daemon=True
    )
    starting.start()
    assert silent.fs.has_begun.wait(DEADLINE_S)
    assert not found
    silent.fs.let_go()
    starting.join(DEADLINE_S)
    assert [dir.state for dir in found[0].dirs] == ["online"]


def test_where_the_node_cannot_begin_a_silent_dir_is_unlocked_when_it_answers() -> None:
    silent = Silent()
    silent.fs.remove(f"{B}/meta.properties")
    LogDir(silent.fs, B, random_id(), 1).close(clean=False)
    with pytest.raises(InconsistentClusterId):
        silent.open()
    silent.fs.let_go()
    wait_for(lambda: is_free(silent))


def test_one_that_answers_after_the_end_is_unlocked_and_the_end_was_not_clean(
    silent: Silent,
) -> None:
    silent.open()
    assert not silent.disks.work.unlock({}, set())
    silent.fs.let_go()
    wait_for(lambda: is_free(silent))
    assert silent.fs.exists(f"{B}/{CLEAN_SHUTDOWN}")
    assert silent.disks.work.online() == []


def is_answered() -> bool:
    """Whether the thread that opens the first dir is over."""
    return all(thread.name != f"open-{A}" for thread in threading.enumerate())


def is_free(silent: Silent) -> bool:
    """Whether nobody has the lock of the dir that was silent, once its thread is over."""
    if not is_answered():
        return False
    try:
        LogDir(silent.fs, A, CLUSTER, 1)
    except LogLocked:
        return False
    return True


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_ends_without_a_word_holds_up_nothing() -> None:
    in_threads()({A: sys.exit}, lambda: True)
    wait_for(is_answered)


# -- it answers while the node ends ----------------------------------------------------------------


def has_no_trouble(_: Silent) -> None:
    """The dir is as it was."""


def has_lost_its_identity(silent: Silent) -> None:
    silent.fs.remove(f"{A}/meta.properties")


def answers_while_the_node_ends(
    schedule: Schedule, harm: Callable[[Silent], None], patch: pytest.MonkeyPatch
) -> tuple[Outcome, list[str]]:
    """What the two threads did, and the paths of the dirs that are still locked then."""
    silent, jobs = Silent(), dict[str, Callable[[], None]]()

    def beside(wanted: Mapping[str, Callable[[], None]], _: Callable[[], bool]) -> None:
        jobs.update(wanted)
        jobs[B]()

    meeting = Meeting(["/node/dirs.py"], schedule)
    patch.setattr(dirs_module, "threading", SimpleNamespace(Lock=meeting.lock))
    node = Disks(silent.fs, beside=beside).work
    node.open([A, B])
    harm(silent)
    outcome = meeting.run(jobs[A], node.let_go)
    assert node.online() == []
    return outcome, [path for path in (A, B) if is_locked(silent, path)]


def is_locked(silent: Silent, path: str) -> bool:
    try:
        silent.fs.lock(f"{path}/{LOCK_FILE}").release()
    except LogLocked:
        return True
    return False


@pytest.mark.parametrize("harm", [has_no_trouble, has_lost_its_identity])
def test_one_that_answers_while_the_node_ends_is_unlocked_whoever_is_first(
    harm: Callable[[Silent], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, _ = answers_while_the_node_ends(Schedule(), harm, monkeypatch)
    for schedule in schedules(alone.lines, pre_emptions=1):
        outcome, locked = answers_while_the_node_ends(schedule, harm, monkeypatch)
        assert (outcome.errors, locked) == ([None, None], []), (schedule, outcome.places)


def test_one_that_answers_while_the_node_begins_is_used_whoever_is_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def begins(schedule: Schedule) -> Outcome:
        silent, jobs = Silent(), dict[str, Callable[[], None]]()

        def beside(wanted: Mapping[str, Callable[[], None]], _: Callable[[], bool]) -> None:
            wanted[B]()
            jobs.update(wanted)

        def answer() -> None:
            if A in jobs:
                jobs.pop(A)()

        meeting = Meeting(["/node/dirs.py", "/node/dir_openings.py"], schedule)
        patched = SimpleNamespace(**{**vars(threading), "Lock": meeting.lock})
        monkeypatch.setattr(dirs_module, "threading", patched)
        monkeypatch.setattr(openings_module, "threading", patched)
        node = Disks(silent.fs, beside=beside).work
        outcome = meeting.run(lambda: node.open([A, B]), answer)
        answer()
        assert sorted(node.online()) == sorted(silent.ids.values()), (schedule, outcome.places)
        return outcome

    alone = begins(Schedule())
    assert alone.lines[1] > 0
    for begin in range(1, alone.lines[0]):
        outcome = begins(Schedule(0, (begin,)))
        assert outcome.errors == [None, None]
