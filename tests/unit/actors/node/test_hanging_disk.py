"""A disk that hangs holds up no other dir of its node, and what waits for it ends right."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from raylog.actors.messages import Configured
from raylog.actors.node.dirs import NodeDirs
from raylog.storage.config import LogConfig
from raylog.storage.state.checkpoints import CLEANER_OFFSETS, RECOVERY_POINTS
from raylog.storage.testing.memory import MemoryFileSystem
from raylog.storage.testing.waiting import DEADLINE_S, wait_for
from tests.unit.actors.node.nodes import DELAY_MS, ORDERS, OTHER_TOPIC, OTHERS, TOPIC, A, B, Node


class Hang:
    """The first that is done to one dir's disk does not end until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, under: str) -> None:
        self.has_begun, self.may_end = threading.Event(), threading.Event()
        self._under = under
        for name in ("exists", "read_file", "list_dir", "is_dir", "change"):
            monkeypatch.setattr(
                MemoryFileSystem, name, self._hanging(getattr(MemoryFileSystem, name))
            )

    def _hanging(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(fs: MemoryFileSystem, *arguments: Any) -> Any:
            if not self.has_begun.is_set() and str(arguments[-1]).startswith(self._under):
                self.has_begun.set()
                assert self.may_end.wait(DEADLINE_S), "a test that let nobody go"
            return real(fs, *arguments)

        return call

    def let_go(self) -> None:
        self.may_end.set()


UPKEEP: dict[str, Callable[[NodeDirs], object]] = {
    "look": lambda dirs: dirs.check(),
    "recovery points": lambda dirs: dirs.write_recovery_points(),
    "starts": lambda dirs: dirs.write_log_start_offsets(),
    "cleaner offsets": lambda dirs: dirs.cleaner_offsets(),
    "cleaned": lambda dirs: dirs.record_cleaner_offset(ORDERS, TOPIC, 5),
    "open": lambda dirs: dirs.dir_of(ORDERS, next(iter(dirs.paths))),
}


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as executor:
        yield executor


def locked_node() -> tuple[Node, threading.RLock]:
    """A node whose dirs have the lock of a LogManager, with a partition in each."""
    node, lock = Node(), threading.RLock()
    node.dirs = NodeDirs(node.fs, node.clock, DELAY_MS, lock)
    node.start()
    assert (node.make(ORDERS), node.make(OTHERS)) == (A, B)
    for partition in (ORDERS, OTHERS):
        node.record_offsets(partition, 7, 3, 9)
    return node, lock


def make_anew(node: Node, lock: threading.RLock) -> None:
    """The partition goes, and one of another topic comes under its name."""
    with lock:
        node.dirs.delete(ORDERS, TOPIC)
        node.dirs.create(ORDERS, OTHER_TOPIC)


@pytest.mark.parametrize("task", UPKEEP)
def test_a_disk_that_hangs_under_upkeep_holds_up_no_other_dir(
    task: str, monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor
) -> None:
    node, lock = locked_node()
    hang, home = Hang(monkeypatch, A), node.id_of(B)
    stuck = pool.submit(UPKEEP[task], node.dirs)
    assert hang.has_begun.wait(DEADLINE_S)

    def open_another() -> bool:
        with lock:
            return node.dirs.open(OTHERS, TOPIC, home, Configured(LogConfig(), 0))[1]

    try:
        opened = pool.submit(open_another)
        assert opened.result(DEADLINE_S) is False
    finally:
        hang.let_go()
    stuck.result(DEADLINE_S)
    assert node.dirs.offline == []


def test_a_partition_that_leaves_while_a_checkpoint_is_being_written_is_out_of_it(
    monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor
) -> None:
    """Its offsets were taken down before: one that comes under its name must not begin there."""
    node, lock = locked_node()
    hang = Hang(monkeypatch, f"{A}/{RECOVERY_POINTS}")
    writing = pool.submit(node.dirs.write_recovery_points)
    assert hang.has_begun.wait(DEADLINE_S)

    made = pool.submit(make_anew, node, lock)
    wait_for(lambda: not node.fs.exists(f"{A}/{ORDERS}"))
    assert not made.done(), "it waits for the checkpoint"
    hang.let_go()
    writing.result(DEADLINE_S)
    made.result(DEADLINE_S)
    assert node.checkpoint(A) == {}


def test_what_compaction_says_of_a_topic_that_goes_meanwhile_is_not_heard(
    monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor
) -> None:
    node, lock = locked_node()
    hang = Hang(monkeypatch, f"{A}/{RECOVERY_POINTS}")
    writing = pool.submit(node.dirs.write_recovery_points)
    assert hang.has_begun.wait(DEADLINE_S)
    cleaned = pool.submit(node.dirs.record_cleaner_offset, ORDERS, TOPIC, 5)

    made = pool.submit(make_anew, node, lock)
    wait_for(lambda: not node.fs.exists(f"{A}/{ORDERS}"))
    hang.let_go()
    for one in (writing, cleaned, made):
        one.result(DEADLINE_S)
    assert node.checkpoint(A, CLEANER_OFFSETS) == {ORDERS: 0}


def test_the_end_of_a_dir_waits_for_the_checkpoint_that_is_being_written(
    monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor
) -> None:
    """What is written after the unlocking would be another process's file."""
    node, lock = locked_node()
    hang = Hang(monkeypatch, f"{A}/{RECOVERY_POINTS}")
    writing = pool.submit(node.dirs.write_recovery_points)
    assert hang.has_begun.wait(DEADLINE_S)
    node.record_offsets(ORDERS, 9, 3, 9)

    def end() -> bool:
        with lock:
            return node.dirs.unlock({ORDERS, OTHERS})

    ended = pool.submit(end)
    hang.let_go()
    writing.result(DEADLINE_S)
    assert ended.result(DEADLINE_S)
    assert node.checkpoint(A) == {ORDERS: 9}
