"""What a LogManager knows of its dirs: which can be used, what lies in them, what is written down,
what is due."""

from contextlib import suppress

import pytest

from raylog.actors.errors import NoLogDirs
from raylog.actors.messages import Configured, PartitionOffsets
from raylog.actors.node.dirs import Opened
from raylog.storage.config import LogConfig
from raylog.storage.errors import (
    DiskFull,
    DuplicateLogDir,
    FileGone,
    InvalidLogDir,
    LogDirOffline,
    LogLocked,
    LogMissing,
    OutOfResources,
    RaylogError,
    StorageError,
)
from raylog.storage.loader import create_log, open_log
from raylog.storage.log_dir import CheckpointedOffsets, LogDir
from raylog.storage.losses import accept_losses
from raylog.storage.names import TopicPartition
from raylog.storage.state.checkpoints import (
    ACCEPTED_LOSSES,
    CLEANER_OFFSETS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
)
from raylog.storage.state.properties import CLEAN_SHUTDOWN
from raylog.storage.testing.memory import Fault, Stopped, Survives
from tests.unit.actors.node.nodes import (
    CLUSTER,
    DELAY_MS,
    ORDERS,
    OTHER_TOPIC,
    OTHERS,
    TOPIC,
    A,
    B,
    Node,
)

# What survives of contents, what of names, and a seed.
CRASHES: list[tuple[Survives, Survives, int]] = [
    ("all", "all", 0),
    ("flushed", "flushed", 0),
    ("all", "flushed", 0),
    ("torn", "torn", 1),
]


@pytest.fixture
def node() -> Node:
    return Node().start()


def io_error(path: str) -> RaylogError:
    return StorageError(path, "Input/output error")


def shortage(path: str) -> RaylogError:
    return OutOfResources(path, "no file descriptor is left")


# -- a shortage, which is no disk's fault ----------------------------------------------------------


def test_a_node_without_descriptors_does_not_start_with_a_dir_less() -> None:
    node = Node()
    node.fs.make_dir(A)
    with node.fs.failing(shortage, under=A), pytest.raises(OutOfResources):
        node.start()
    assert node.dirs.offline == []
    assert node.start().dirs.offline == []


@pytest.mark.parametrize("operation", range(30))
def test_a_shortage_takes_no_dir_offline_and_leaves_no_half_of_a_partition(
    node: Node, operation: int
) -> None:
    node.fs.fail_at(node.fs.operations + operation, shortage)
    with suppress(OutOfResources):
        node.make()
    assert node.dirs.offline == []
    if ORDERS not in node.dirs.opened:
        node.make()
    assert [found.partition for found in node.dirs.partitions_on_disk()] == [ORDERS]


def test_a_dir_whose_state_cannot_be_looked_at_now_is_online(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    [dir, _] = node.dirs.dirs()

    def fail(path: str) -> list[str]:
        raise shortage(path)

    monkeypatch.setattr(node.fs, "list_dir", fail)
    status = dir.status("node")
    assert (status.is_online, status.problem) == (True, shortage(A).problem)


def test_a_folder_that_could_not_be_removed_is_due_again(node: Node) -> None:
    node.make()
    node.dirs.delete(ORDERS, TOPIC)
    node.clock.advance(DELAY_MS)
    [folder] = node.dirs.due_deletions()
    node.dirs.remove_later(folder)
    assert node.dirs.due_deletions() == [folder]


# -- start -----------------------------------------------------------------------------------------


def test_a_dir_that_cannot_be_used_is_offline_with_its_reason_as_long_as_another_can() -> None:
    node = Node().start(A, "/nowhere/b")
    assert list(node.dirs.paths.values()) == [A]
    [(path, directory_id, why, _)] = node.dirs.offline
    assert (path, directory_id) == ("/nowhere/b", None)
    assert "neither the folder nor its parent exists" in why
    assert node.make() == A


def test_a_dir_that_is_offline_has_advice_where_no_disk_failed_and_says_nothing_twice() -> None:
    node = Node().start()
    node.dirs.unlock(set())
    node.fs.write_file(f"{A}/meta.properties", b"not the file")
    node.start()
    [damaged] = node.dirs.offline
    assert damaged.why.startswith(f"{A}/meta.properties: not a meta.properties file")
    assert damaged.todo.startswith("restore the file from a copy")
    node.dirs.fail(node.id_of(B), io_error("/disk").problem)
    failed = node.dirs.offline[-1]
    assert (failed.why, failed.todo) == ("/disk: Input/output error", "")


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
    with pytest.raises(DuplicateLogDir, match="are the same folder"):
        Node().start(A, twin)


def test_a_copy_of_a_log_dir_beside_it_is_refused(node: Node) -> None:
    node.fs.write_file(f"{B}/meta.properties", node.fs.read_file(f"{A}/meta.properties"))
    with pytest.raises(DuplicateLogDir, match=r"have the same directory\.id"):
        node.again()


def test_folders_that_are_no_partitions_are_left_alone(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.fs.make_dir(f"{A}/lost+found")
    again = node.again()
    assert "lost+found" in caplog.text
    assert again.dirs.partitions_on_disk() == []
    assert again.fs.is_dir(f"{A}/lost+found")


# -- new partitions --------------------------------------------------------------------------------


def test_a_new_partition_goes_to_the_dir_with_the_fewest_copies_on_their_way_counted(
    node: Node,
) -> None:
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
    assert node.dirs.partitions_on_disk() == []
    assert node.make() == A


# -- failure ---------------------------------------------------------------------------------------


def test_a_dir_that_fails_takes_its_partitions_along_and_no_others(node: Node) -> None:
    assert (node.make(ORDERS), node.make(OTHERS)) == (A, B)
    failed = node.id_of(A)
    node.dirs.fail(failed, "Input/output error")
    assert node.dirs.take_orphans() == [ORDERS]
    assert node.dirs.take_orphans() == []
    assert list(node.dirs.opened) == [OTHERS]
    with pytest.raises(
        LogDirOffline,
        match="log dir /disk/a is offline: Input/output error; repair its disk, or replace",
    ):
        node.dirs.dir_of(ORDERS, failed)
    node.dirs.fail(failed, "again")
    assert len(node.dirs.offline) == 1


def test_partitions_are_counted_as_offline_until_they_are_deleted_or_served_again(
    node: Node,
) -> None:
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
        node.record_offsets(partition, 5, 0, 5)
    node.dirs.write_recovery_points()
    node.record_offsets(ORDERS, 9, 3, 9)
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
        node.record_offsets(partition, 5, 0, 5)
    with node.fs.failing(io_error, under=A):
        node.dirs.write_recovery_points()
    assert [dir.path for dir in node.dirs.offline] == [A]
    assert node.checkpoint(B) == {OTHERS: 5}


def lose_records(node: Node) -> str:
    """ORDERS ends at 0 with a recovery point of 5, which was accepted; returns its folder."""
    folder = f"{node.make()}/{ORDERS}"
    node.record_offsets(ORDERS, 5, 0, 5)
    node.dirs.write_recovery_points()
    assert len(accept_losses(node.fs, folder)) == 1
    return folder


def test_a_log_that_was_opened_in_spite_of_a_loss_gets_its_checkpoint_at_once(node: Node) -> None:
    folder = lose_records(node)
    node.dirs.settle_losses(ORDERS, PartitionOffsets(0, 0, 0, 0))
    assert node.checkpoint(A) == {ORDERS: 0}
    assert node.fs.read_file(f"{folder}/{ACCEPTED_LOSSES}") == b"0\n0\n"
    node.dirs.settle_losses(OTHERS, PartitionOffsets(0, 0, 0, 0))  # it went meanwhile


def test_wherever_that_is_stopped_the_loss_is_accepted_or_settled() -> None:
    begun = Node().start()
    lose_records(begun)
    whole = begun.again()
    whole.open()
    first = whole.fs.operations
    whole.dirs.settle_losses(ORDERS, PartitionOffsets(0, 0, 0, 0))
    assert whole.fs.operations > first + 5
    for stop in range(first, whole.fs.operations + 1):
        for survives, names, seed in CRASHES:
            node = begun.again()
            node.open()
            node.fs.stop_at(stop)
            with suppress(Stopped):
                node.dirs.settle_losses(ORDERS, PartitionOffsets(0, 0, 0, 0))
            fs = node.fs.crash(survives, names=names, seed=seed + stop)
            later = Node(fs).start()
            point = later.checkpoint(A)[ORDERS]
            assert point in (0, 5)
            folder = f"{A}/{ORDERS}"
            log = open_log(
                fs, later.clock, folder, ORDERS, LogConfig(), is_clean=False, recovery_point=point
            )
            assert ["lost"] * (point == 5) == [m.kind for m in log.mended if m.kind == "lost"]
            assert (len(fs.read_file(f"{folder}/{ACCEPTED_LOSSES}")) > 4) == (point == 5)


@pytest.mark.parametrize(
    "fault", [DiskFull, lambda path: OutOfResources(path, "no descriptor is left")]
)
def test_a_checkpoint_that_cannot_be_written_leaves_the_loss_accepted(
    node: Node, fault: Fault
) -> None:
    folder = lose_records(node)
    accepted = node.fs.read_file(f"{folder}/{ACCEPTED_LOSSES}")
    with node.fs.failing(fault, under=A):
        node.dirs.settle_losses(ORDERS, PartitionOffsets(0, 0, 0, 0))
    assert node.checkpoint(A) == {ORDERS: 5}
    assert node.fs.read_file(f"{folder}/{ACCEPTED_LOSSES}") == accepted


def test_a_full_disk_loses_a_checkpoint_and_no_dir(node: Node) -> None:
    node.make()
    node.record_offsets(ORDERS, 5, 0, 5)
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
    assert [(entry.partition, entry.topic_id) for entry in again.dirs.partitions_on_disk()] == [
        (ORDERS, TOPIC)
    ]


# -- loading ---------------------------------------------------------------------------------------


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


def test_an_opening_that_was_refused_leaves_the_log_as_an_orderly_stop_did(node: Node) -> None:
    """Else the Controller's next try would believe what only a crash explains."""
    node.make()
    assert node.dirs.unlock({ORDERS})
    again = Node(node.fs).start()
    for _ in range(3):
        assert again.open()
        again.dirs.online(again.id_of(A)).refused(ORDERS)
    assert again.dirs.unlock(set())
    later = Node(node.fs).start()
    assert later.open()
    dir = later.dirs.online(later.id_of(A))
    dir.opened(ORDERS)
    dir.refused(ORDERS)  # of a try that is over
    assert not later.open()
    dir.refused(ORDERS)
    assert not later.open()


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
    with pytest.raises(LogMissing, match="another topic"):
        node.dirs.set_aside(ORDERS, "of a topic before it", node.id_of(A))
    node.dirs.set_aside(ORDERS, TOPIC, node.id_of(A))
    with pytest.raises(LogMissing):
        node.dirs.dir_of(ORDERS, node.id_of(A))


def test_a_log_that_was_set_aside_is_no_longer_the_nodes_to_close(node: Node) -> None:
    """A later topic of the name may serve on another node, and the actors' names are the same."""
    node.make()
    node.open()
    assert list(node.dirs.opened) == [ORDERS]
    create_log(node.fs, f"{B}/{ORDERS}", TOPIC)
    node.dirs.set_aside(ORDERS, TOPIC, node.id_of(B))
    assert list(node.dirs.opened) == [ORDERS], "the one that is open lies in the other dir"
    node.dirs.set_aside(ORDERS, TOPIC, node.id_of(A))
    assert node.dirs.opened == {}


# -- deletion --------------------------------------------------------------------------------------


def doomed(node: Node, path: str = A) -> list[str]:
    return node.dirs.online(node.id_of(path)).log_dir.listing().doomed


def test_a_deleted_partition_is_renamed_at_once_and_removed_when_its_delay_is_over(
    node: Node,
) -> None:
    node.make()
    node.dirs.delete(ORDERS, TOPIC)
    assert (node.dirs.partitions_on_disk(), node.dirs.opened) == ([], {})
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
    assert [entry.partition for entry in node.dirs.partitions_on_disk()] == [ORDERS]
    assert list(node.dirs.opened) == [ORDERS]


CHECKPOINTS = (RECOVERY_POINTS, LOG_START_OFFSETS, CLEANER_OFFSETS)


def written(node: Node) -> list[dict[TopicPartition, int]]:
    return [node.checkpoint(A, name) for name in CHECKPOINTS]


@pytest.fixture
def with_checkpoints() -> Node:
    node = Node().start(A)
    for partition in (ORDERS, OTHERS):
        node.make(partition)
        node.record_offsets(partition, 7, 3, 9)
        node.dirs.record_cleaner_offset(partition, TOPIC, 5)
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
        assert [entry.partition for entry in node.dirs.partitions_on_disk()] == [OTHERS]
        with pytest.raises(DiskFull):
            node.make()
    node.make()
    assert written(node) == [{OTHERS: 7}, {OTHERS: 3}, {ORDERS: 0, OTHERS: 5}]


# -- damaged checkpoints ---------------------------------------------------------------------------


def test_a_damaged_checkpoint_is_an_event_and_stays_in_the_status(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.fs.write_file(f"{A}/{LOG_START_OFFSETS}", b"0\n2\norders 0 4\n")
    node.fs.write_file(f"{A}/{CLEANER_OFFSETS}", b"garbage")
    again = node.again()
    (told, _) = [record.msg for record in caplog.records if "damaged" in str(record.msg)]
    assert told == {
        "event": "checkpoint-damaged",
        "log_dir": A,
        "file": LOG_START_OFFSETS,
        "why": "it has 1 entries, but its header says 2",
        "kept_as": f"{LOG_START_OFFSETS}.corrupt",
        "entries_used": 1,
    }
    for _ in range(2):
        statuses = {dir.log_dir.path: dir.status("node") for dir in again.dirs.dirs()}
        assert statuses[A].damaged_files == (CLEANER_OFFSETS, LOG_START_OFFSETS)
        assert statuses[B].damaged_files == ()
        again = again.again()
    assert len([record for record in caplog.records if "damaged" in str(record.msg)]) == 2


# -- checkpoints -----------------------------------------------------------------------------------


def test_what_an_old_topics_actor_says_is_not_written_for_the_new_one(node: Node) -> None:
    node.make(topic_id=OTHER_TOPIC)
    asked = node.dirs.opened[ORDERS]
    node.dirs.delete(ORDERS, OTHER_TOPIC)
    node.make()
    node.dirs.record_offsets(ORDERS, asked, CheckpointedOffsets(7, 0, 7))
    node.dirs.record_cleaner_offset(ORDERS, OTHER_TOPIC, 7)
    node.dirs.write_recovery_points()
    assert node.checkpoint(A) == {}
    assert node.dirs.cleaner_offsets() == {ORDERS: 0}


def test_cleaner_offsets_are_those_of_the_dir_that_serves(node: Node) -> None:
    node.make()
    node.dirs.record_cleaner_offset(ORDERS, TOPIC, 4)
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
    assert [(one.partition, one.folder) for one in again.dirs.hosted()] == [
        (ORDERS, f"{A}/{ORDERS}")
    ]


def test_the_newest_config_counts_however_late_an_older_one_comes(node: Node) -> None:
    node.make()
    old, new = Configured(LogConfig(retention_ms=1), 1), Configured(LogConfig(retention_ms=2), 2)
    assert node.dirs.configure(ORDERS, TOPIC, new) == new
    assert node.dirs.configure(ORDERS, TOPIC, old) == new
    assert node.dirs.hosted()[0].config == new.config
    assert node.dirs.configure(ORDERS, OTHER_TOPIC, new) is None
    assert node.dirs.configure(OTHERS, TOPIC, new) is None


# -- a partition that moves in ---------------------------------------------------------------------


def copied(node: Node, path: str = B) -> str:
    """A copy of a partition, as a move has it when it is whole."""
    copy = node.dirs.online(node.id_of(path)).log_dir.future_folder(ORDERS)
    create_log(node.fs, copy, TOPIC)
    return copy


@pytest.mark.parametrize("cleaner_offset", [None, 4])
def test_an_adopted_copy_brings_its_checkpoints(node: Node, cleaner_offset: int | None) -> None:
    target = node.dirs.online(node.id_of(B))
    target.adopt(ORDERS, copied(node), CheckpointedOffsets(7, 3, 9), cleaner_offset)
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
            target.adopt(ORDERS, copy, CheckpointedOffsets(7, 3, 9), 4)
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


def test_a_folder_that_was_set_aside_is_in_the_status(node: Node) -> None:
    name = f"orders-0.{'0' * 32}-stray"
    node.fs.make_dir(f"{A}/{name}")
    statuses = {dir.log_dir.path: dir.status("node") for dir in node.again().dirs.dirs()}
    assert (statuses[A].strays, statuses[B].strays) == ((name,), ())


def test_a_dir_that_has_lost_its_identity_is_offline_and_its_partitions_are_left_alone() -> None:
    node = Node().start()
    home = node.make()
    node.dirs.unlock(set())
    node.fs.remove(f"{home}/meta.properties")
    node.start()
    [lost] = node.dirs.offline
    assert (lost.path, lost.directory_id) == (home, None)
    assert "meta.properties is missing, but there are folders of partitions" in lost.why
    assert "raylog log-dirs identify" in lost.todo
    assert "orders-0" in node.fs.list_dir(home)


def test_a_file_that_is_gone_takes_its_dir_offline_only_if_the_dir_is_gone_too() -> None:
    node = Node().start()
    dir = node.dirs.online(node.id_of(A))
    with pytest.raises(FileGone), node.dirs.using(dir):
        node.fs.read_file(f"{A}/orders-0/none")
    assert node.dirs.offline == []
    node.fs.remove_dir(A)
    with pytest.raises(LogDirOffline, match="the folder is gone"), node.dirs.using(dir):
        node.fs.read_file(f"{A}/orders-0/none")
    assert [failed.path for failed in node.dirs.offline] == [A]
