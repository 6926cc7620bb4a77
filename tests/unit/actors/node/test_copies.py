"""A log that moves to another log dir of its node: the rounds, the last one, the adoption."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from raylog.actors.control import LogId
from raylog.actors.errors import NotLeader
from raylog.actors.node.copier import COPIES_AT_ONCE, MAX_ROUNDS, SMALL_BYTES
from raylog.actors.node.events import Folder
from raylog.actors.node.instructions import Copy
from raylog.storage.errors import (
    DiskFull,
    InvalidLogDir,
    LogDirOffline,
    LogLocked,
    NoRoom,
    StorageError,
)
from raylog.storage.names import TopicPartition
from raylog.storage.state.properties import PARTITION_METADATA, read_topic_id
from raylog.storage.testing.memory import Stopped
from raylog.storage.testing.waiting import DEADLINE_S, wait_for
from tests.unit.actors.node.disks import (
    LATER_LOG,
    LOG,
    OFFSETS,
    ORDERS,
    OTHER_LOG,
    OTHER_TOPIC,
    TOPIC,
    A,
    B,
    Disks,
    HangingFileSystem,
    io_error,
    shortage,
)

DATA = f"{ORDERS}/00000000000000000000.log"
COPY = "orders-0.*-future"


@pytest.fixture(name="disks")
def served_disks() -> Disks:
    return served()


def served() -> Disks:
    """A log in A, with data and offsets."""
    disks = Disks().start()
    disks.make()
    disks.work.began_opening(LOG, disks.id_of(A))
    disks.fs.write_file(f"{A}/{DATA}", b"records")
    disks.work.record_offsets(LOG, disks.id_of(A), OFFSETS)
    disks.work.record_cleaner_offset(LOG, disks.id_of(A), 4)
    return disks


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(COPIES_AT_ONCE + 2) as executor:
        yield executor


# -- the rounds ------------------------------------------------------------------------------------


def test_a_copy_is_made_beside_the_log_and_again_where_it_is_asked_for_again(disks: Disks) -> None:
    for _ in range(2):
        disks.copy()
        assert disks.folders(A) == ["orders-0"]
        assert disks.folders(B) == [COPY]
    assert disks.rolled == [LOG, LOG]


def test_the_rounds_end_when_little_is_left_and_keep_to_the_rate() -> None:
    sizes = iter([SMALL_BYTES + 1, SMALL_BYTES + 1, 5])

    def roll(log: LogId) -> None:
        disks.rolled.append(log)
        disks.time.now += 1
        disks.fs.write_file(f"{A}/{DATA}", bytes(next(sizes)))

    disks = Disks(served().fs.crash(), roll=roll).start()
    disks.copy()
    assert len(disks.rolled) == 3
    assert disks.time.now > 2 * SMALL_BYTES / 1e6 * 0.9


def test_a_log_that_grows_faster_than_it_is_copied_is_copied_for_so_many_rounds_only() -> None:
    def roll(log: LogId) -> None:
        disks.rolled.append(log)
        disks.fs.write_file(f"{A}/{DATA}", bytes([len(disks.rolled)]) * (SMALL_BYTES + 1))

    disks = Disks(served().fs.crash(), roll=roll).start()
    disks.copy()
    assert len(disks.rolled) == MAX_ROUNDS


def test_a_log_that_cannot_roll_on_a_full_disk_is_copied_all_the_same() -> None:
    def roll(log: LogId) -> None:
        raise DiskFull(A)

    disks = Disks(served().fs.crash(), roll=roll).start()
    disks.copy()
    assert disks.folders(B) == [COPY]


def test_a_log_whose_actor_is_gone_is_not_copied() -> None:
    def roll(log: LogId) -> None:
        raise NotLeader(str(log.partition), "its LogActor is not running")

    disks = Disks(served().fs.crash(), roll=roll).start()
    with pytest.raises(NotLeader):
        disks.copy()


def test_a_copy_needs_room(disks: Disks) -> None:
    disks.fs.usable_bytes = 3
    with pytest.raises(NoRoom):
        disks.copy()


def test_the_log_must_be_there_and_its_name_free(disks: Disks) -> None:
    with pytest.raises(NotLeader):
        disks.copy(LATER_LOG)
    disks.make(LATER_LOG, B)
    with pytest.raises(InvalidLogDir, match="already exists"):
        disks.copy()
    disks.work.close_dir(disks.id_of(B))
    with pytest.raises(LogDirOffline):
        disks.copy()


# -- giving up -------------------------------------------------------------------------------------


def copy_of(disks: Disks, token: int, log: LogId = LOG) -> Copy:
    return Copy(
        token=token,
        log=log,
        directory_id=disks.id_of(A),
        target_id=disks.id_of(B),
        is_last=False,
    )


def test_a_copy_that_is_given_up_ends_and_others_do_not(disks: Disks) -> None:
    disks.work.give_up_copy(7)
    with pytest.raises(NotLeader, match="given up"):
        disks.work.carry_out(copy_of(disks, 7))
    disks.work.carry_out(copy_of(disks, 8))
    disks.work.give_up_copy(8)  # it has ended
    disks.work.carry_out(copy_of(disks, 9))


def test_a_copy_that_is_given_up_while_it_copies_ends_soon(pool: ThreadPoolExecutor) -> None:
    fs = HangingFileSystem()
    disks = Disks(fs).start()
    disks.make()
    copy = copy_of(disks, 7)
    fs.hang(f"{B}/orders-0.")
    copying = pool.submit(disks.work.carry_out, copy)
    assert fs.has_begun.wait(DEADLINE_S)
    disks.work.give_up_copy(7)
    fs.let_go()
    with pytest.raises(NotLeader, match="given up"):
        copying.result(DEADLINE_S)


def test_only_so_many_copies_run_at_once_and_one_that_waits_can_be_given_up(
    pool: ThreadPoolExecutor,
) -> None:
    may_end = threading.Event()
    running: list[LogId] = []

    def roll(log: LogId) -> None:
        running.append(log)
        assert may_end.wait(DEADLINE_S)

    disks = Disks(roll=roll).start()
    copies: list[Copy] = []
    for number in range(COPIES_AT_ONCE + 2):
        log = LogId(partition=TopicPartition("orders", number), topic_id=TOPIC)
        disks.make(log)
        copies.append(copy_of(disks, number, log))
    copying = [pool.submit(disks.work.carry_out, copy) for copy in copies[:COPIES_AT_ONCE]]
    wait_for(lambda: len(running) == COPIES_AT_ONCE)
    waiting = [pool.submit(disks.work.carry_out, copy) for copy in copies[COPIES_AT_ONCE:]]
    disks.work.give_up_copy(copies[-1].token)
    with pytest.raises(NotLeader, match="given up"):
        waiting[-1].result(DEADLINE_S)
    assert len(running) == COPIES_AT_ONCE
    may_end.set()
    for done in [*copying, waiting[0]]:
        done.result(DEADLINE_S)
    assert len(running) == COPIES_AT_ONCE + 1


def test_a_copy_whose_dir_goes_out_of_use_ends(pool: ThreadPoolExecutor) -> None:
    fs = HangingFileSystem()
    disks = Disks(fs).start()
    disks.make()
    copy = copy_of(disks, 7)
    fs.hang(f"{B}/orders-0.")
    copying = pool.submit(disks.work.carry_out, copy)
    assert fs.has_begun.wait(DEADLINE_S)
    disks.work.close_dir(copy.target_id)
    fs.let_go()
    with pytest.raises(NotLeader, match="not in use"):
        copying.result(DEADLINE_S)


# -- the last round --------------------------------------------------------------------------------


def test_the_last_copy_is_equal_however_often_it_is_made(disks: Disks) -> None:
    disks.copy()
    disks.fs.write_file(f"{A}/{DATA}", b"more records")
    for _ in range(2):
        disks.copy(is_last=True)
    disks.adopt()
    assert disks.fs.read_file(f"{B}/{DATA}") == b"more records"
    assert disks.fs.list_dir(f"{A}/{ORDERS}") == disks.fs.list_dir(f"{B}/{ORDERS}")


def test_a_log_that_a_process_still_has_is_not_copied_for_good(disks: Disks) -> None:
    disks.copy()
    lock = disks.fs.lock(f"{A}/{ORDERS}")
    with pytest.raises(LogLocked):
        disks.copy(is_last=True)
    lock.release()
    with pytest.raises(NotLeader, match="not whole"):
        disks.adopt()
    disks.copy(is_last=True)
    disks.adopt()


# -- Adopt -----------------------------------------------------------------------------------------


def test_an_adopted_copy_has_the_logs_name_and_its_checkpoints(disks: Disks) -> None:
    disks.copy(is_last=True)
    for _ in range(2):
        disks.adopt()
    assert disks.folders(B) == ["orders-0"]
    assert disks.checkpoints(B) == [{ORDERS: 7}, {ORDERS: 3}, {ORDERS: 4}]
    assert disks.work.checkpointed(disks.id_of(B), ORDERS) == OFFSETS.checkpointed()
    assert disks.folders(A) == ["orders-0"], "the Controller's record decides which one goes"
    disks.doom(LOG, A)
    assert disks.again().open().folders == (
        Folder(partition=ORDERS, topic_id=TOPIC, directory_id=disks.id_of(B)),
    )


def test_a_copy_is_not_adopted_where_its_log_is_out_of_sight(disks: Disks) -> None:
    disks.copy(is_last=True)
    disks.work.close_dir(disks.id_of(A))
    with pytest.raises(NotLeader, match="not in use"):
        disks.adopt()
    assert disks.folders(B) == [COPY]


@pytest.mark.parametrize("fault", [DiskFull, shortage, io_error])
def test_a_copy_that_cannot_be_adopted_is_in_nobodys_way(
    fault: Callable[[str], StorageError],
) -> None:
    failures = 0
    for operation in range(40):
        disks = served()
        disks.copy(is_last=True)
        disks.fs.fail_at(disks.fs.operations + operation, fault)
        try:
            disks.adopt()
        except StorageError:
            failures += 1
        else:
            break
        if fault("").is_disk_failure:
            continue
        assert disks.folders(B) == [COPY]
        disks.drop_copy()
        disks.work.remove_deleted(disks.id_of(B))
        assert disks.folders(B) == []
        disks.make(LATER_LOG, B)
        assert disks.checkpoints(B)[:2] == [{}, {}]
    assert failures > 8


def test_a_crash_leaves_a_copy_or_a_log_with_all_its_checkpoints() -> None:
    whole = served()
    whole.copy(is_last=True)
    first = whole.fs.operations
    whole.adopt()
    for stop in range(first, whole.fs.operations + 1):
        for seed in range(3):
            disks = served()
            disks.copy(is_last=True)
            disks.fs.stop_at(stop)
            with suppress(Stopped):
                disks.adopt()
            later = Disks(disks.fs.crash("torn", names="torn", seed=seed + stop))
            for folder in later.open([B]).folders:
                if folder.is_copy:
                    continue
                known = later.work.checkpointed(later.id_of(B), ORDERS)
                assert known == OFFSETS.checkpointed()
                assert later.work.cleaner_offsets() == {ORDERS: 4}


# -- DropCopy --------------------------------------------------------------------------------------


def test_a_copy_that_nobody_wants_is_removed(disks: Disks) -> None:
    disks.copy(is_last=True)
    disks.drop_copy(OTHER_TOPIC)
    disks.drop_copy(None)
    disks.work.remove_deleted(disks.id_of(B))
    assert disks.folders(B) == [COPY]
    for _ in range(2):
        disks.drop_copy()
        disks.work.remove_deleted(disks.id_of(B))
        assert disks.folders(B) == []
    with pytest.raises(NotLeader, match="not whole"):
        disks.adopt()
    disks.copy()
    disks.copy(is_last=True)
    disks.adopt()


def test_a_copy_that_a_crash_interrupted_is_found_and_dropped(disks: Disks) -> None:
    disks.copy()
    later = disks.again()
    copy = Folder(partition=ORDERS, topic_id=TOPIC, directory_id=later.id_of(B), is_copy=True)
    assert copy in later.open().folders
    later.drop_copy()
    later.work.remove_deleted(later.id_of(B))
    assert later.folders(B) == []


def test_a_copy_that_does_not_say_whose_it_is_is_dropped_too(disks: Disks) -> None:
    disks.copy()
    [name] = [name for name in disks.fs.list_dir(B) if name.endswith("-future")]
    disks.fs.remove(f"{B}/{name}/{PARTITION_METADATA}")
    assert read_topic_id(disks.fs, f"{B}/{name}") is None
    later = disks.again()
    copy = Folder(partition=ORDERS, topic_id=None, directory_id=later.id_of(B), is_copy=True)
    assert copy in later.open().folders
    later.drop_copy(None)
    later.work.remove_deleted(later.id_of(B))
    assert later.folders(B) == []


def test_copies_of_two_logs_are_told_apart(disks: Disks) -> None:
    disks.make(OTHER_LOG)
    for log in (LOG, OTHER_LOG):
        disks.copy(log)
    disks.drop_copy()
    disks.work.remove_deleted(disks.id_of(B))
    assert disks.folders(B) == ["others-0.*-future"]
