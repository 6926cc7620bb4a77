"""What a LogManager knows of its dirs: which can be used, what lies in them, what is written down, what is due."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from raylog.actors.messages import Configured, NoLogDirs
from raylog.actors.node_dirs import NodeDirs, Opened
from raylog.storage.config import LogConfig
from raylog.storage.errors import (
    DiskFull,
    DuplicateLogDir,
    InvalidLogDir,
    LogDirOffline,
    LogLocked,
    LogMissing,
    RaylogError,
    StorageError,
)
from raylog.storage.loader import create_log
from raylog.storage.log_dir import LogDir, PartitionOffsets
from raylog.storage.names import TopicPartition
from raylog.storage.state.checkpoints import CLEANER_OFFSETS, LOG_START_OFFSETS, RECOVERY_POINTS, read_offsets
from raylog.storage.state.properties import CLEAN_SHUTDOWN, random_id
from raylog.storage.testing.clock import ManualClock
from raylog.storage.testing.memory import MemoryFileSystem
from raylog.storage.testing.waiting import wait_for

CLUSTER, TOPIC, OTHER_TOPIC = random_id(), random_id(), random_id()
ORDERS, OTHERS = TopicPartition("orders", 0), TopicPartition("others", 0)
A, B = "/disk/a", "/disk/b"
DELAY_MS = 60_000


class Node:
    """A node's dirs on a disk in memory."""

    def __init__(self, fs: MemoryFileSystem | None = None) -> None:
        if fs is None:
            fs = MemoryFileSystem()
            fs.make_dir("/disk")
        self.fs, self.clock = fs, ManualClock()
        self.dirs = NodeDirs(fs, self.clock, DELAY_MS)

    def start(self, *paths: str) -> "Node":
        self.dirs.lock(paths or (A, B), lambda path: LogDir(self.fs, path, CLUSTER, 1))
        return self

    def again(self, *paths: str) -> "Node":
        """The node of the next process, after a crash of the one before."""
        return Node(self.fs.crash()).start(*paths)

    def id_of(self, path: str) -> str:
        return next(directory_id for directory_id, known in self.dirs.paths.items() if known == path)

    def make(self, partition: TopicPartition = ORDERS, topic_id: str = TOPIC) -> str:
        """A new partition that is served; returns the path of its dir."""
        dir = self.dirs.create(partition, topic_id)
        self.open(partition, topic_id)
        return dir.log_dir.path

    def open(self, partition: TopicPartition = ORDERS, topic_id: str = TOPIC) -> bool:
        """Returns whether an orderly stop left the log."""
        directory_id = self.dirs.dir_of(partition).directory_id
        return self.dirs.open(partition, topic_id, directory_id, Configured(LogConfig(), 0))[1]

    def note(self, partition: TopicPartition, *offsets: int) -> None:
        self.dirs.note(partition, self.dirs.opened[partition], PartitionOffsets(*offsets))

    def checkpoint(self, path: str, name: str = RECOVERY_POINTS) -> dict[TopicPartition, int]:
        return read_offsets(self.fs, f"{path}/{name}")


@pytest.fixture
def node() -> Node:
    return Node().start()


def io_error(path: str) -> RaylogError:
    return StorageError(path, "Input/output error")


# -- start ---------------------------------------------------------------------------------------------------


def test_a_dir_that_cannot_be_used_is_offline_with_its_reason_as_long_as_another_can() -> None:
    node = Node().start(A, "/nowhere/b")
    assert list(node.dirs.paths.values()) == [A]
    [(path, directory_id, why)] = node.dirs.offline
    assert (path, directory_id) == ("/nowhere/b", None)
    assert "neither it nor its parent folder exists" in why
    assert node.make() == A


def test_a_dir_whose_identity_cannot_be_read_is_offline() -> None:
    node = Node()
    node.fs.make_dir(B)
    node.fs.write_file(f"{B}/meta.properties", b"nonsense")
    node.start()
    assert [dir.path for dir in node.dirs.offline] == [B]


def test_a_dir_whose_disk_fails_at_the_start_is_offline_and_unlocked() -> None:
    node = Node()
    node.fs.make_dir(A)
    with node.fs.failing(io_error, under=A):
        node.start()
    assert [dir.path for dir in node.dirs.offline] == [A]
    LogDir(node.fs, A, CLUSTER, 1)


def test_where_no_dir_can_be_used_the_first_ones_reason_is_raised() -> None:
    with pytest.raises(InvalidLogDir, match="/nowhere/a"):
        Node().start("/nowhere/a", "/nowhere/b")


def test_a_locked_dir_is_no_dir_that_failed() -> None:
    node = Node()
    LogDir(node.fs, B, CLUSTER, 1)
    with pytest.raises(LogLocked):
        node.start()
    LogDir(node.fs, A, CLUSTER, 1)  # which is unlocked again


@pytest.mark.parametrize("twin", ["/disk/a", "/disk/../disk/a", "/disk/a/"])
def test_one_folder_given_twice_is_refused(twin: str) -> None:
    with pytest.raises(DuplicateLogDir, match="are one folder"):
        Node().start(A, twin)


def test_a_copy_of_a_log_dir_beside_it_is_refused(node: Node) -> None:
    node.fs.write_file(f"{B}/meta.properties", node.fs.read_file(f"{A}/meta.properties"))
    with pytest.raises(DuplicateLogDir, match=r"have one directory\.id"):
        node.again()


def test_folders_that_are_no_partitions_are_left_alone(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.fs.make_dir(f"{A}/lost+found")
    again = node.again()
    assert "lost+found" in caplog.text
    assert again.dirs.found() == []
    assert again.fs.is_dir(f"{A}/lost+found")


# -- new partitions ------------------------------------------------------------------------------------------


def test_a_new_partition_goes_to_the_dir_with_the_fewest_copies_on_their_way_counted(node: Node) -> None:
    made = [node.make(TopicPartition("orders", number)) for number in range(3)]
    assert made == [A, B, A]
    node.fs.make_dir(node.dirs.online(node.id_of(B)).log_dir.future_folder(OTHERS))
    assert node.make(TopicPartition("orders", 3)) == A


def test_where_the_disk_fails_another_takes_the_partition(node: Node) -> None:
    with node.fs.failing(io_error, under=A):
        assert node.make() == B
    assert [dir.path for dir in node.dirs.offline] == [A]


def test_without_a_dir_there_is_no_partition(node: Node) -> None:
    for path in (A, B):
        node.dirs.fail(node.id_of(path), "I/O error")
    with pytest.raises(NoLogDirs, match="/disk/a: I/O error; /disk/b: I/O error"):
        node.make()


def test_a_full_disk_takes_no_partition_and_stays_online(node: Node) -> None:
    with node.fs.failing(DiskFull, "append"), pytest.raises(DiskFull):
        node.make()
    assert node.dirs.offline == []
    assert node.dirs.found() == []
    assert node.make() == A


# -- failure -------------------------------------------------------------------------------------------------


def test_a_dir_that_fails_takes_its_partitions_along_and_no_others(node: Node) -> None:
    assert (node.make(ORDERS), node.make(OTHERS)) == (A, B)
    failed = node.id_of(A)
    node.dirs.fail(failed, "Input/output error")
    assert node.dirs.take_orphans() == [ORDERS]
    assert node.dirs.take_orphans() == []
    assert list(node.dirs.opened) == [OTHERS]
    with pytest.raises(
        LogDirOffline, match="log dir /disk/a is offline: Input/output error; repair or replace"
    ):
        node.dirs.dir_of(ORDERS, failed)
    node.dirs.fail(failed, "again")
    assert len(node.dirs.offline) == 1


def test_partitions_are_counted_as_offline_until_they_are_deleted_or_served_again(node: Node) -> None:
    for number in range(4):
        node.make(TopicPartition("orders", number))
    assert node.dirs.offline_count == 0
    node.dirs.fail(node.id_of(A), "Input/output error")
    assert node.dirs.offline_count == 2
    node.dirs.delete(ORDERS, OTHER_TOPIC)
    assert node.dirs.offline_count == 2
    node.dirs.delete(ORDERS, TOPIC)
    assert node.dirs.offline_count == 1
    node.make(TopicPartition("orders", 2))
    assert node.dirs.offline_count == 0


def test_a_dir_that_failed_is_written_to_no_more_but_unlocked(node: Node) -> None:
    for partition in (ORDERS, OTHERS):
        node.make(partition)
        node.note(partition, 5, 0, 5)
    node.dirs.write_recovery_points()
    node.note(ORDERS, 9, 3, 9)
    node.dirs.fail(node.id_of(A), "I/O error")
    operations = node.fs.operations
    node.dirs.write_recovery_points()
    assert not node.dirs.unlock({ORDERS, OTHERS})
    assert not any(line.split()[-1].startswith(A) for line in node.fs.log[operations:])
    assert node.checkpoint(A) == {ORDERS: 5}
    assert not node.fs.exists(f"{A}/{CLEAN_SHUTDOWN}")
    assert node.fs.exists(f"{B}/{CLEAN_SHUTDOWN}")
    assert not node.fs.exists(f"{A}/.lock")


def test_a_checkpoint_that_cannot_be_written_takes_the_dir_offline_and_the_next_is_written(
    node: Node,
) -> None:
    for partition in (ORDERS, OTHERS):
        node.make(partition)
        node.note(partition, 5, 0, 5)
    with node.fs.failing(io_error, under=A):
        node.dirs.write_recovery_points()
    assert [dir.path for dir in node.dirs.offline] == [A]
    assert node.checkpoint(B) == {OTHERS: 5}


def test_a_full_disk_loses_a_checkpoint_and_no_dir(node: Node) -> None:
    node.make()
    node.note(ORDERS, 5, 0, 5)
    with node.fs.failing(DiskFull):
        node.dirs.write_recovery_points()
    assert node.dirs.offline == []
    node.dirs.write_recovery_points()
    assert node.checkpoint(A) == {ORDERS: 5}


@pytest.mark.parametrize("new_owner", [False, True])
def test_a_dir_that_vanishes_is_offline(node: Node, new_owner: bool) -> None:
    node.make()
    node.fs.rename(A, "/disk/elsewhere")
    if new_owner:
        node.fs.make_dir(A)
    node.dirs.check()
    assert node.dirs.take_orphans() == [ORDERS]
    assert list(node.dirs.paths.values()) == [B]


def test_a_repaired_dir_is_back_at_the_next_start(node: Node) -> None:
    node.make()
    node.fs.rename(A, "/disk/elsewhere")
    node.dirs.check()
    node.fs.rename("/disk/elsewhere", A)
    again = node.again()
    assert again.dirs.offline == []
    assert [(entry.partition, entry.topic_id) for entry in again.dirs.found()] == [(ORDERS, TOPIC)]


# -- loading -------------------------------------------------------------------------------------------------


def test_the_progress_of_the_start_counts_what_was_found(node: Node) -> None:
    for number in range(4):
        node.make(TopicPartition("orders", number))
    again = node.again()
    dir = again.dirs.online(again.id_of(A))
    assert (dir.loaded, sorted(dir.to_load)) == (0, [ORDERS, TopicPartition("orders", 2)])
    assert dir.opened(ORDERS)
    assert not dir.opened(ORDERS)
    assert (dir.loaded, dir.to_load) == (1, {TopicPartition("orders", 2)})
    again.make(OTHERS)
    dir.set_aside(TopicPartition("orders", 2))
    assert (dir.loaded, dir.to_load) == (1, set())


def test_the_clean_marker_is_believed_once_for_each_partition(node: Node) -> None:
    node.make()
    assert node.dirs.unlock({ORDERS})
    again = Node(node.fs).start()
    assert again.open()
    assert not again.open()
    assert not again.again().open()


def test_one_log_that_was_not_closed_leaves_its_dir_without_a_marker(node: Node) -> None:
    for partition in (ORDERS, OTHERS):
        node.make(partition)
    assert not node.dirs.unlock({OTHERS})
    assert [node.fs.exists(f"{path}/{CLEAN_SHUTDOWN}") for path in (A, B)] == [False, True]


def test_a_folder_that_nobody_opened_does_not_cost_its_dir_the_marker(node: Node) -> None:
    node.make()
    node.dirs.create(OTHERS, TOPIC)  # as a topic whose creation failed half way leaves it
    assert node.dirs.unlock({ORDERS})


def test_a_partition_is_looked_for_in_the_dir_that_it_is_said_to_be_in(node: Node) -> None:
    node.make()
    create_log(node.fs, f"{B}/{ORDERS}", TOPIC)  # as a move that was not committed leaves it
    assert [node.dirs.dir_of(ORDERS, node.id_of(path)).log_dir.path for path in (A, B)] == [A, B]
    with pytest.raises(LogMissing, match="another topic's"):
        node.dirs.set_aside(ORDERS, "of a topic before it", node.id_of(A))
    node.dirs.set_aside(ORDERS, TOPIC, node.id_of(A))
    with pytest.raises(LogMissing):
        node.dirs.dir_of(ORDERS, node.id_of(A))


# -- deletion ------------------------------------------------------------------------------------------------


def doomed(node: Node, path: str = A) -> list[str]:
    return node.dirs.online(node.id_of(path)).log_dir.listing().doomed


def test_a_deleted_partition_is_renamed_at_once_and_removed_when_its_delay_is_over(node: Node) -> None:
    node.make()
    node.dirs.delete(ORDERS, TOPIC)
    assert (node.dirs.found(), node.dirs.opened) == ([], {})
    [folder] = doomed(node)
    node.clock.advance(DELAY_MS - 1)
    assert node.dirs.due_deletions() == []
    node.clock.advance(1)
    assert node.dirs.due_deletions() == [folder]
    assert node.dirs.due_deletions() == []
    assert node.make() == A  # its name is free


def test_what_waits_for_deletion_is_found_by_the_next_start(node: Node) -> None:
    node.make()
    node.dirs.delete(ORDERS, TOPIC)
    again = node.again()
    assert again.dirs.due_deletions() == []
    again.clock.advance(DELAY_MS)
    assert again.dirs.due_deletions() == doomed(again)


def test_a_copy_that_a_crash_interrupted_is_removed_at_once(node: Node) -> None:
    future = node.dirs.online(node.id_of(B)).log_dir.future_folder(ORDERS)
    node.fs.make_dir(future)
    assert node.again().dirs.due_deletions() == [future]


def test_another_topics_folder_is_not_deleted(node: Node) -> None:
    node.make()
    node.dirs.delete(ORDERS, OTHER_TOPIC)
    assert [entry.partition for entry in node.dirs.found()] == [ORDERS]
    assert list(node.dirs.opened) == [ORDERS]


CHECKPOINTS = (RECOVERY_POINTS, LOG_START_OFFSETS, CLEANER_OFFSETS)


def written(node: Node) -> list[dict[TopicPartition, int]]:
    return [node.checkpoint(A, name) for name in CHECKPOINTS]


@pytest.fixture
def with_checkpoints() -> Node:
    node = Node().start(A)
    for partition in (ORDERS, OTHERS):
        node.make(partition)
        node.note(partition, 7, 3, 9)
        node.dirs.cleaned(partition, TOPIC, 5)
    node.dirs.write_recovery_points()
    node.dirs.write_log_start_offsets()
    assert written(node) == [{ORDERS: 7, OTHERS: 7}, {ORDERS: 3, OTHERS: 3}, {ORDERS: 5, OTHERS: 5}]
    return node


def test_a_deleted_partition_leaves_the_checkpoints(with_checkpoints: Node) -> None:
    with_checkpoints.dirs.delete(ORDERS, TOPIC)
    assert written(with_checkpoints) == [{OTHERS: 7}, {OTHERS: 3}, {OTHERS: 5}]


def test_a_full_disk_does_not_keep_a_partition_from_being_deleted_nor_its_name_from_a_fresh_start(
    with_checkpoints: Node,
) -> None:
    node = with_checkpoints
    with node.fs.failing(DiskFull, "append"):
        node.dirs.delete(ORDERS, TOPIC)
        assert [entry.partition for entry in node.dirs.found()] == [OTHERS]
        with pytest.raises(DiskFull):
            node.make()
    node.make()
    assert written(node) == [{OTHERS: 7}, {OTHERS: 3}, {OTHERS: 5}]


# -- checkpoints ---------------------------------------------------------------------------------------------


def test_what_an_old_topics_actor_says_is_not_written_for_the_new_one(node: Node) -> None:
    node.make(topic_id=OTHER_TOPIC)
    asked = node.dirs.opened[ORDERS]
    node.dirs.delete(ORDERS, OTHER_TOPIC)
    node.make()
    node.dirs.note(ORDERS, asked, PartitionOffsets(7, 0, 7))
    node.dirs.cleaned(ORDERS, OTHER_TOPIC, 7)
    node.dirs.write_recovery_points()
    assert node.checkpoint(A) == {}
    assert node.dirs.cleaner_offsets() == {}


def test_cleaner_offsets_are_those_of_the_dir_that_serves(node: Node) -> None:
    node.make()
    node.dirs.cleaned(ORDERS, TOPIC, 4)
    create_log(node.fs, f"{B}/{ORDERS}", TOPIC)
    node.dirs.online(node.id_of(B)).log_dir.write_cleaner_offset(ORDERS, 9)
    assert node.dirs.cleaner_offsets() == {ORDERS: 4}


def test_a_restarted_manager_adopts_what_lies_there(node: Node) -> None:
    node.make()
    again = node.again()
    again.dirs.adopt()
    assert again.dirs.opened == {ORDERS: Opened(TOPIC, again.id_of(A), None)}
    assert again.dirs.hosted() == []
    again.open()
    assert [(one.partition, one.folder) for one in again.dirs.hosted()] == [(ORDERS, f"{A}/{ORDERS}")]


def test_the_newest_config_counts_however_late_an_older_one_comes(node: Node) -> None:
    node.make()
    old, new = Configured(LogConfig(retention_ms=1), 1), Configured(LogConfig(retention_ms=2), 2)
    assert node.dirs.configure(ORDERS, TOPIC, new) == new
    assert node.dirs.configure(ORDERS, TOPIC, old) == new
    assert node.dirs.hosted()[0].config == new.config
    assert node.dirs.configure(ORDERS, OTHER_TOPIC, new) is None
    assert node.dirs.configure(OTHERS, TOPIC, new) is None


# -- a partition that moves in ---------------------------------------------------------------------------------


def copied(node: Node, path: str = B) -> str:
    """A copy of a partition, as a move has it when it is whole."""
    copy = node.dirs.online(node.id_of(path)).log_dir.future_folder(ORDERS)
    create_log(node.fs, copy, TOPIC)
    return copy


@pytest.mark.parametrize("cleaner_offset", [None, 4])
def test_an_adopted_copy_brings_its_checkpoints(node: Node, cleaner_offset: int | None) -> None:
    target = node.dirs.online(node.id_of(B))
    target.adopt(ORDERS, copied(node), PartitionOffsets(7, 3, 9), cleaner_offset)
    assert (node.checkpoint(B), node.checkpoint(B, LOG_START_OFFSETS)) == ({ORDERS: 7}, {ORDERS: 3})
    assert node.checkpoint(B, CLEANER_OFFSETS) == ({ORDERS: 4} if cleaner_offset else {})
    assert target.open(ORDERS), "as an orderly end left it"


def test_a_copy_whose_checkpoints_find_no_room_is_in_nobodys_way(node: Node) -> None:
    target = node.dirs.online(node.id_of(B))
    failures = 0
    for fault in range(30):
        node.fs.fail_at(node.fs.operations + 10**6, DiskFull)
        copy = copied(node)
        node.fs.fail_at(node.fs.operations + fault, DiskFull)
        try:
            target.adopt(ORDERS, copy, PartitionOffsets(7, 3, 9), 4)
        except DiskFull:
            failures += 1
        else:
            break
        target.drop_copy(copy)  # as the move does that has failed
        assert not target.has(ORDERS), "the next move is not refused"
        for folder in node.dirs.due_deletions():
            node.fs.remove_dir(folder)
        assert node.fs.list_dir(B) == [name for name in node.fs.list_dir(B) if "orders" not in name]
        assert not target.open(ORDERS)
    assert failures > 8
    assert node.checkpoint(B) == {ORDERS: 7}


# -- a disk that hangs -----------------------------------------------------------------------------------------


class Hang:
    """The first that is done to one dir's disk does not end until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, under: str) -> None:
        self.has_begun, self.may_end = threading.Event(), threading.Event()
        self._under = under
        for name in ("exists", "read_file", "list_dir", "is_dir", "change"):
            monkeypatch.setattr(MemoryFileSystem, name, self._hanging(getattr(MemoryFileSystem, name)))

    def _hanging(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(fs: MemoryFileSystem, *arguments: Any) -> Any:
            if not self.has_begun.is_set() and str(arguments[-1]).startswith(self._under):
                self.has_begun.set()
                assert self.may_end.wait(30), "a test that let nobody go"
            return real(fs, *arguments)

        return call

    def let_go(self) -> None:
        self.may_end.set()


UPKEEP: dict[str, Callable[[NodeDirs], object]] = {
    "look": lambda dirs: dirs.check(),
    "recovery points": lambda dirs: dirs.write_recovery_points(),
    "starts": lambda dirs: dirs.write_log_start_offsets(),
    "cleaner offsets": lambda dirs: dirs.cleaner_offsets(),
    "cleaned": lambda dirs: dirs.cleaned(ORDERS, TOPIC, 5),
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
        node.note(partition, 7, 3, 9)
    return node, lock


@pytest.mark.parametrize("task", UPKEEP)
def test_a_disk_that_hangs_under_upkeep_holds_up_no_other_dir(
    task: str, monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor
) -> None:
    node, lock = locked_node()
    hang, home = Hang(monkeypatch, A), node.id_of(B)
    stuck = pool.submit(UPKEEP[task], node.dirs)
    assert hang.has_begun.wait(10)

    def open_another() -> bool:
        with lock:
            return node.dirs.open(OTHERS, TOPIC, home, Configured(LogConfig(), 0))[1]

    try:
        opened = pool.submit(open_another)
        assert opened.result(10) is False
    finally:
        hang.let_go()
    stuck.result(10)
    assert node.dirs.offline == []


def test_a_partition_that_leaves_while_a_checkpoint_is_being_written_is_out_of_it(
    monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor
) -> None:
    """Its offsets were taken down before: one that comes under its name must not begin there."""
    node, lock = locked_node()
    hang = Hang(monkeypatch, f"{A}/{RECOVERY_POINTS}")
    writing = pool.submit(node.dirs.write_recovery_points)
    assert hang.has_begun.wait(10)

    def make_anew() -> None:
        with lock:
            node.dirs.delete(ORDERS, TOPIC)
            node.dirs.create(ORDERS, OTHER_TOPIC)

    made = pool.submit(make_anew)
    wait_for(lambda: not node.fs.exists(f"{A}/{ORDERS}"))
    assert not made.done(), "it waits for the checkpoint"
    hang.let_go()
    writing.result(10)
    made.result(10)
    assert node.checkpoint(A) == {}


def test_what_compaction_says_of_a_topic_that_goes_meanwhile_is_not_heard(
    monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor
) -> None:
    node, lock = locked_node()
    hang = Hang(monkeypatch, f"{A}/{RECOVERY_POINTS}")
    writing = pool.submit(node.dirs.write_recovery_points)
    assert hang.has_begun.wait(10)
    cleaned = pool.submit(node.dirs.cleaned, ORDERS, TOPIC, 5)

    def make_anew() -> None:
        with lock:
            node.dirs.delete(ORDERS, TOPIC)
            node.dirs.create(ORDERS, OTHER_TOPIC)

    made = pool.submit(make_anew)
    wait_for(lambda: not node.fs.exists(f"{A}/{ORDERS}"))
    hang.let_go()
    for one in (writing, cleaned, made):
        one.result(10)
    assert node.checkpoint(A, CLEANER_OFFSETS) == {}


def test_the_end_of_a_dir_waits_for_the_checkpoint_that_is_being_written(
    monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor
) -> None:
    """What is written after the unlocking would be another process's file."""
    node, lock = locked_node()
    hang = Hang(monkeypatch, f"{A}/{RECOVERY_POINTS}")
    writing = pool.submit(node.dirs.write_recovery_points)
    assert hang.has_begun.wait(10)
    node.note(ORDERS, 9, 3, 9)

    def end() -> bool:
        with lock:
            return node.dirs.unlock({ORDERS, OTHERS})

    ended = pool.submit(end)
    hang.let_go()
    writing.result(10)
    assert ended.result(10)
    assert node.checkpoint(A) == {ORDERS: 9}
