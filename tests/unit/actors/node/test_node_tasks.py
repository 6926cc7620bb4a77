"""Tasks are repeated; a disk that hangs holds up only its own."""

import threading
from collections.abc import Set

import pytest

from raylog.actors.control import DirReport
from raylog.actors.messages import LogDirStatus
from raylog.actors.node.dir_statuses import DirStatuses
from raylog.actors.node.dirs import Unusable
from raylog.actors.node.events import DirFailed, Event
from raylog.actors.node.tasks import EachDir, Repeating
from raylog.storage.errors import DiskFull, StorageError
from raylog.storage.names import TopicPartition
from raylog.storage.testing.waiting import wait_for
from tests.harness.log_actors import A, B, QuickTimer

FAILED = StorageError("/a", "EIO")


def test_a_task_that_fails_is_done_again() -> None:
    done: list[int] = []

    def task() -> None:
        done.append(1)
        raise ZeroDivisionError("a mistake of ours")

    tasks = Repeating(QuickTimer())
    tasks.every(3.0, "task", task)
    wait_for(lambda: len(done) > 3)
    tasks.stop()


def test_a_disk_that_hangs_holds_up_only_itself_and_one_thread() -> None:
    gate = threading.Event()
    done: list[str] = []

    def job(directory_id: str) -> None:
        if directory_id == A:
            assert gate.wait(10)
        done.append(directory_id)

    told: list[Event] = []
    each = EachDir(lambda: [A, B], told.append)
    for round in range(1, 4):
        each.run("job", job)
        wait_for(lambda round=round: done.count(B) == round)  # type: ignore[misc]
        wait_for(lambda: sum(not future.done() for future in each.run("other", print)) == 0)
    assert A not in done
    gate.set()
    wait_for(lambda: done.count(A) == 1)


def test_a_failed_disk_is_told_and_a_full_one_is_not() -> None:
    told: list[Event] = []
    each = EachDir(lambda: [A, B], told.append)

    def job(directory_id: str) -> None:
        raise FAILED if directory_id == A else DiskFull("/b", "no space left")

    for future in each.run("job", job):
        future.result(timeout=10)
    assert told == [DirFailed(directory_id=A, why=FAILED.problem)]


def status(directory_id: str, partitions: int) -> LogDirStatus:
    return LogDirStatus(
        node_id="node",
        path=f"/{directory_id}",
        directory_id=directory_id,
        is_online=True,
        problem=None,
        partitions=partitions,
        size_bytes=1,
        total_bytes=2,
        usable_bytes=3,
        loaded=0,
        to_load=0,
    )


class FakeMeasure:
    """Measures dirs; A only when the gate is open."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.partitions = 1

    def status(
        self, directory_id: str, node_id: str, opening: Set[TopicPartition] | None
    ) -> LogDirStatus:
        assert opening == {TopicPartition(directory_id, 0)}
        if directory_id == A:
            assert self.gate.wait(10)
        return status(directory_id, self.partitions)

    def unusable(self) -> list[Unusable]:
        return [Unusable(path="/c", directory_id=None, why="EACCES", advice="mount it")]


def test_a_dir_that_hangs_is_told_as_it_was_measured_last() -> None:
    disk = FakeMeasure()
    dirs = [
        DirReport(directory_id=A, path="/dir-a", state="online", usable_bytes=9),
        DirReport(directory_id=B, path="/dir-b", state="online"),
        DirReport(directory_id=None, path="/c", state="offline", why="EACCES"),
    ]
    told: list[Event] = []
    each = EachDir(lambda: [A, B], told.append)
    statuses = DirStatuses(
        disk,
        each,
        node_id="node",
        dirs=lambda: dirs,
        opening=lambda directory_id: {TopicPartition(directory_id, 0)},
    )
    first = statuses.fresh(timeout_s=0.01)
    assert [(dir.path, dir.is_online) for dir in first] == [
        ("/dir-a", True),
        ("/dir-b", True),
        ("/c", False),
    ]
    assert (first[0].usable_bytes, first[2].problem, first[2].todo) == (9, "EACCES", "mount it")
    disk.gate.set()
    wait_for(lambda: [dir.partitions for dir in statuses.fresh()] == [1, 1, 0])
    disk.partitions = 2
    wait_for(lambda: [dir.partitions for dir in statuses.fresh()] == [2, 2, 0])


def test_a_shortage_of_threads_ends_one_round_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    each = EachDir(lambda: [A], lambda event: None)

    def no_thread(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as shortage:
        shortage.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(RuntimeError):
            each.run("look", done.append)
    for future in each.run("look", done.append):
        future.result(timeout=10)
    assert done == [A], "and what failed is not done behind anybody's back"
