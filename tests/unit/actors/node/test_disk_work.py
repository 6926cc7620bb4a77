"""What each instruction does on the disks: once, twice, and where it cannot."""

from collections.abc import Callable
from contextlib import suppress

import pytest

from raylog.actors.control import LogId
from raylog.actors.errors import NotLeader
from raylog.actors.node.dirs import Found
from raylog.actors.node.events import Folder
from raylog.actors.node.instructions import Doom, MakeFolder, ReadDir, RetireDir, WriteEpoch
from raylog.storage.config import LogConfig
from raylog.storage.errors import (
    DiskFull,
    InvalidLogDir,
    LogDirOffline,
    LogLocked,
    LogMissing,
    OutOfResources,
    StorageError,
)
from raylog.storage.loader import open_log
from raylog.storage.names import TopicPartition
from raylog.storage.state.checkpoints import CLEANER_OFFSETS, LOG_START_OFFSETS
from raylog.storage.state.properties import (
    CLEAN_SHUTDOWN,
    PARTITION_METADATA,
    MetaProperties,
    random_id,
    read_meta,
    read_topic_id,
    write_meta,
)
from raylog.storage.testing.memory import Stopped
from tests.unit.actors.node.disks import (
    DELAY_MS,
    LATER_LOG,
    LOG,
    OFFSETS,
    ORDERS,
    OTHER_LOG,
    OTHER_TOPIC,
    OTHERS,
    TOPIC,
    A,
    B,
    Disks,
    io_error,
    shortage,
)


@pytest.fixture
def disks() -> Disks:
    return Disks().start()


def with_checkpoints() -> Disks:
    """One dir with two logs, of which all checkpoint files speak."""
    disks = Disks().start(A)
    for log in (LOG, OTHER_LOG):
        disks.make(log)
        disks.work.record_offsets(log, disks.id_of(A), OFFSETS)
        disks.work.record_cleaner_offset(log, disks.id_of(A), 5)
    disks.write_checkpoints()
    assert disks.checkpoints() == [
        {ORDERS: 7, OTHERS: 7},
        {ORDERS: 3, OTHERS: 3},
        {ORDERS: 5, OTHERS: 5},
    ]
    return disks


# -- MakeFolder ------------------------------------------------------------------------------------


def test_a_new_folder_is_an_empty_log_and_is_made_once(disks: Disks) -> None:
    for _ in range(2):
        disks.make()
    assert disks.folders() == ["orders-0"]
    log = open_log(disks.fs, disks.clock, f"{A}/{ORDERS}", ORDERS, LogConfig(), topic_id=TOPIC)
    assert log.log_end_offset == 0


def test_a_folder_of_another_topic_is_in_the_way(disks: Disks) -> None:
    disks.make()
    with pytest.raises(InvalidLogDir, match="already exists"):
        disks.make(LATER_LOG)
    disks.fs.make_dir(f"{A}/{OTHERS}")
    with pytest.raises(InvalidLogDir, match="already exists"):
        disks.make(OTHER_LOG)


def test_a_new_log_is_listed_as_never_compacted_soon(disks: Disks) -> None:
    disks.make()
    disks.make(OTHER_LOG)
    assert disks.checkpoint(A, CLEANER_OFFSETS) == {}
    disks.work.remove_deleted(disks.id_of(A))
    assert disks.checkpoint(A, CLEANER_OFFSETS) == {ORDERS: 0, OTHERS: 0}


def test_a_full_disk_takes_no_folder(disks: Disks) -> None:
    with disks.fs.failing(DiskFull, "append"), pytest.raises(DiskFull):
        disks.make()
    assert "orders-0" not in disks.folders()
    disks.work.remove_deleted(disks.id_of(A))
    assert disks.folders() == []
    disks.make()
    assert disks.folders() == ["orders-0"]


@pytest.mark.parametrize("fault", [io_error, shortage, DiskFull])
def test_whatever_fails_nothing_is_left_under_the_name_of_a_new_log(
    fault: Callable[[str], StorageError],
) -> None:
    failures = 0
    for operation in range(30):
        disks = Disks().start()
        disks.fs.fail_at(disks.fs.operations + operation, fault)
        try:
            disks.make()
        except StorageError:
            failures += 1
        else:
            break
        if not fault("").is_disk_failure:
            assert not disks.fs.exists(f"{A}/{ORDERS}")
            disks.make()
            disks.work.remove_deleted(disks.id_of(A))
            assert disks.folders() == ["orders-0"]
    assert failures > 8


def test_a_crash_leaves_a_whole_folder_or_none() -> None:
    whole = Disks().start()
    first = whole.fs.operations
    whole.make()
    for stop in range(first, whole.fs.operations + 1):
        for seed in range(3):
            disks = Disks().start()
            disks.fs.stop_at(stop)
            with suppress(Stopped):
                disks.make()
            later = Disks(disks.fs.crash("torn", names="torn", seed=seed + stop))
            for folder in later.open().folders:
                assert (folder.partition, folder.topic_id) == (ORDERS, TOPIC)
                assert not folder.is_copy
                open_log(later.fs, later.clock, f"{A}/{ORDERS}", ORDERS, LogConfig())
            later.clock.advance(DELAY_MS)
            later.work.remove_deleted(later.id_of(A))
            assert later.folders() in ([], ["orders-0"])


def test_no_folder_is_made_where_the_disk_was_unmounted(disks: Disks) -> None:
    directory_id = disks.id_of(A)
    disks.fs.rename(A, "/disk/elsewhere")
    with pytest.raises(StorageError, match="the folder is gone") as raised:
        disks.work.carry_out(MakeFolder(token=1, log=LOG, directory_id=directory_id))
    assert raised.value.is_disk_failure
    assert not disks.fs.exists(A)


# -- stale checkpoints -----------------------------------------------------------------------------


def test_a_new_log_does_not_begin_where_the_checkpoints_of_an_older_one_end() -> None:
    disks = with_checkpoints()
    disks.doom()
    disks.make(LATER_LOG)
    assert disks.checkpoints() == [{OTHERS: 7}, {OTHERS: 3}, {OTHERS: 5}]
    assert disks.work.checkpointed(disks.id_of(A), ORDERS) == (0, 0, 0)
    disks.work.remove_deleted(disks.id_of(A))
    assert disks.checkpoint(A, CLEANER_OFFSETS) == {ORDERS: 0, OTHERS: 5}


def test_nor_where_a_crash_came_between() -> None:
    disks = with_checkpoints()
    disks.doom()
    later = disks.again().start(A)
    assert later.checkpoints()[0] == {ORDERS: 7, OTHERS: 7}, "it is stale"
    later.make(LATER_LOG)
    assert later.checkpoints() == [{OTHERS: 7}, {OTHERS: 3}, {OTHERS: 5}]


def test_a_full_disk_does_not_keep_a_log_from_going_nor_its_name_from_a_fresh_start() -> None:
    disks = with_checkpoints()
    with disks.fs.failing(DiskFull, "append"):
        disks.doom()
        with pytest.raises(DiskFull):
            disks.make()
    disks.make()
    assert disks.checkpoints() == [{OTHERS: 7}, {OTHERS: 3}, {OTHERS: 5}]


def test_what_an_old_topics_actor_says_is_not_written_for_the_new_one() -> None:
    disks = with_checkpoints()
    disks.doom()
    disks.make(LATER_LOG)
    disks.work.record_offsets(LOG, disks.id_of(A), OFFSETS)
    disks.work.record_cleaner_offset(LOG, disks.id_of(A), 5)
    disks.write_checkpoints()
    assert disks.checkpoint() == {OTHERS: 7}
    assert disks.work.cleaner_offsets() == {ORDERS: 0, OTHERS: 5}


def test_neither_making_nor_dooming_reads_or_writes_a_checkpoint_of_others(disks: Disks) -> None:
    """Else the creation of many logs would take the square of their number."""
    disks.make(OTHER_LOG)
    disks.write_checkpoints()
    directory_id = disks.id_of(A)
    before, reads = disks.fs.operations, disks.fs.reads
    for number in range(5):
        log = LogId(partition=TopicPartition("many", number), topic_id=TOPIC)
        disks.work.carry_out(MakeFolder(token=number, log=log, directory_id=directory_id))
        disks.work.carry_out(Doom(token=number, log=log, directory_id=directory_id))
    assert not [line for line in disks.fs.log[before:] if "checkpoint" in line]
    assert disks.fs.reads - reads <= 5, "each reads meta.properties once"


# -- Doom ------------------------------------------------------------------------------------------


def test_a_doomed_folder_is_renamed_at_once_and_removed_when_its_delay_is_over(
    disks: Disks,
) -> None:
    disks.make()
    for _ in range(2):
        disks.doom()
    assert disks.folders() == ["orders-0.*-delete"]
    disks.clock.advance(DELAY_MS - 1)
    disks.work.remove_deleted(disks.id_of(A))
    assert disks.folders() == ["orders-0.*-delete"]
    disks.clock.advance(1)
    disks.work.remove_deleted(disks.id_of(A))
    assert disks.folders() == []


def test_what_waits_to_be_removed_is_found_by_the_next_start(disks: Disks) -> None:
    disks.make()
    disks.doom()
    later = disks.again()
    assert later.open().folders == ()
    later.clock.advance(DELAY_MS)
    later.work.remove_deleted(later.id_of(A))
    assert later.folders() == []


def test_another_topics_folder_is_not_doomed(disks: Disks) -> None:
    disks.make()
    disks.doom(LATER_LOG)
    assert disks.folders() == ["orders-0"]


def test_a_log_that_a_process_still_has_is_not_renamed(disks: Disks) -> None:
    disks.make()
    lock = disks.fs.lock(f"{A}/{ORDERS}")
    for rename in (disks.doom, disks.put_aside):
        with pytest.raises(LogLocked):
            rename()
    assert disks.folders() == ["orders-0"]
    lock.release()
    disks.doom()
    assert disks.folders() == ["orders-0.*-delete"]


@pytest.mark.parametrize("doing", ["doom", "put_aside"])
def test_a_folder_that_somebody_removed_is_gone(disks: Disks, doing: str) -> None:
    disks.make()
    disks.fs.remove_dir(f"{A}/{ORDERS}")
    getattr(disks, doing)()
    assert disks.folders() == []
    disks.make(LATER_LOG)
    assert disks.folders() == ["orders-0"]


def test_a_folder_is_not_gone_because_its_whole_disk_is(disks: Disks) -> None:
    disks.make()
    directory_id = disks.id_of(A)
    disks.fs.rename(A, "/disk/elsewhere")
    disks.fs.make_dir(A)
    assert "the folder is gone" in str(disks.work.check(directory_id))
    disks.fs.write_file(f"{A}/meta.properties", disks.fs.read_file(f"{B}/meta.properties"))
    assert "another log dir" in str(disks.work.check(directory_id))


def test_nor_is_it_forgotten_when_the_disk_is_back(disks: Disks) -> None:
    disks.make()
    doom = Doom(token=disks.token(), log=LOG, directory_id=disks.id_of(A))
    disks.fs.rename(A, "/disk/elsewhere")
    with pytest.raises(StorageError):
        disks.work.carry_out(doom)
    disks.fs.rename("/disk/elsewhere", A)
    disks.work.carry_out(doom)
    assert disks.folders() == ["orders-0.*-delete"]


def test_a_folder_that_could_not_be_removed_for_a_shortage_is_removed_later(disks: Disks) -> None:
    disks.make()
    disks.doom()
    disks.clock.advance(DELAY_MS)
    with disks.fs.failing(shortage, "remove"):
        disks.work.remove_deleted(disks.id_of(A))
    assert disks.folders() == ["orders-0.*-delete"]
    disks.work.remove_deleted(disks.id_of(A))
    assert disks.folders() == []


@pytest.mark.parametrize("operation", range(2))
def test_a_shortage_leaves_a_doomed_log_where_it_is_or_takes_it_away(
    disks: Disks, operation: int
) -> None:
    disks.make()
    disks.fs.fail_at(disks.fs.operations + operation, shortage)
    with suppress(OutOfResources):
        disks.doom()
    disks.doom()
    assert disks.folders() == ["orders-0.*-delete"]
    disks.make(LATER_LOG)


# -- PutAside --------------------------------------------------------------------------------------


def test_a_folder_that_is_put_aside_is_kept(disks: Disks) -> None:
    disks.make()
    for _ in range(2):
        disks.put_aside()
    assert disks.folders() == ["orders-0.*-stray"]
    [name] = disks.work.status(disks.id_of(A), "node").strays
    assert name.endswith("-stray")
    assert disks.again().open().folders == ()


def test_the_status_tells_whether_others_may_look_into_a_log_dir(disks: Disks) -> None:
    assert disks.work.status(disks.id_of(A), "node").is_private
    disks.fs.shared.add(A)
    assert not disks.work.status(disks.id_of(A), "node").is_private
    assert disks.work.status(disks.id_of(B), "node").is_private


def test_another_topics_folder_is_not_put_aside(disks: Disks) -> None:
    disks.make()
    disks.put_aside(OTHER_TOPIC)
    assert disks.folders() == ["orders-0"]


def test_a_folder_that_does_not_say_whose_it_is_is_put_aside_and_no_other(disks: Disks) -> None:
    disks.make()
    disks.make(OTHER_LOG)
    disks.fs.write_file(f"{A}/{ORDERS}/{PARTITION_METADATA}", b"garbage")
    for _ in range(2):
        disks.put_aside(None)
    with pytest.raises(LogMissing, match="belongs to a topic"):
        disks.put_aside(None, OTHERS)
    assert disks.folders() == ["orders-0.*-stray", "others-0"]


# -- WriteIdentity ---------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [b"garbage", None])
def test_a_lost_identity_is_found_and_written_again(disks: Disks, damage: bytes | None) -> None:
    disks.make()
    path = f"{A}/{ORDERS}/{PARTITION_METADATA}"
    if damage is None:
        disks.fs.remove(path)
    else:
        disks.fs.write_file(path, damage)
    assert disks.work.lost_identities(disks.id_of(A)) == [ORDERS]
    for _ in range(2):
        disks.write_identity()
        assert read_topic_id(disks.fs, f"{A}/{ORDERS}") == TOPIC
    assert disks.work.lost_identities(disks.id_of(A)) == []


@pytest.mark.parametrize("is_started_again", [False, True])
def test_a_folder_whose_identity_was_restored_is_told(disks: Disks, is_started_again: bool) -> None:
    disks.make()
    path = f"{A}/{ORDERS}/{PARTITION_METADATA}"
    good = disks.fs.read_file(path)
    disks.fs.write_file(path, b"nonsense")
    now = disks
    if is_started_again:
        now = disks.again()
        now.open()
    here = now.id_of(A)
    now.work.lost_identities(here)
    assert now.work.identities_found(here) == []
    now.fs.write_file(path, good)
    found = Folder(partition=ORDERS, topic_id=TOPIC, directory_id=here)
    for _ in range(2):
        assert now.work.identities_found(here) == [found]
    now.doom()
    assert now.work.identities_found(here) == []


def test_a_folder_that_was_found_without_identity_gets_that_of_its_actor(disks: Disks) -> None:
    disks.make()
    disks.fs.remove(f"{A}/{ORDERS}/{PARTITION_METADATA}")
    later = disks.again()
    [folder] = later.open().folders
    assert folder == Folder(partition=ORDERS, topic_id=None, directory_id=later.id_of(A))
    later.write_identity()
    later.doom()
    assert later.folders() == ["orders-0.*-delete"]


def test_a_folder_without_identity_is_told_until_its_actors_could_be_written(disks: Disks) -> None:
    disks.make()
    disks.fs.write_file(f"{A}/{ORDERS}/{PARTITION_METADATA}", b"garbage")
    later = disks.again()
    later.open()
    here = later.id_of(A)
    assert later.work.lost_identities(here) == [ORDERS]
    with later.fs.failing(DiskFull), pytest.raises(DiskFull):
        later.write_identity()
    assert later.work.lost_identities(here) == [ORDERS]
    later.write_identity()
    assert later.work.lost_identities(here) == []


def test_a_folder_that_is_gone_or_anothers_gets_no_identity(disks: Disks) -> None:
    disks.make()
    for log in (LATER_LOG, OTHER_LOG):
        with pytest.raises(LogMissing):
            disks.write_identity(log)
    assert read_topic_id(disks.fs, f"{A}/{ORDERS}") == TOPIC


# -- WriteEpoch ------------------------------------------------------------------------------------


def write_epoch(disks: Disks, epoch: int, *paths: str) -> None:
    for path in paths or (A, B):
        directory_id = disks.id_of(path)
        work = WriteEpoch(token=disks.token(), controller_epoch=epoch, directory_id=directory_id)
        assert disks.work.carry_out(work) is None


def test_the_highest_epoch_is_found_by_the_next_start(disks: Disks) -> None:
    assert disks.again().open().controller_epoch == -1
    for _ in range(2):
        write_epoch(disks, 7)
    write_epoch(disks, 5)
    write_epoch(disks, 9, B)
    assert disks.again().open().controller_epoch == 9
    assert disks.again().open([A]).controller_epoch == 7


@pytest.mark.parametrize(
    "fault", [io_error, DiskFull, lambda path: OutOfResources(path, "no descriptor is left")]
)
def test_a_dir_that_cannot_take_an_epoch_says_why(
    disks: Disks, fault: Callable[[str], StorageError]
) -> None:
    with disks.fs.failing(fault, under=A), pytest.raises(type(fault(A))):
        write_epoch(disks, 7, A)
    write_epoch(disks, 7, B)
    assert disks.again().open([A]).controller_epoch == -1


def test_a_dir_that_was_closed_takes_no_epoch(disks: Disks) -> None:
    disks.work.close_dir(disks.id_of(A))
    with pytest.raises(LogDirOffline):
        write_epoch(disks, 8, A)


# -- CloseDir, UnlockDir, ReadDir ------------------------------------------------------------------


def read_dir(disks: Disks, path: str = A) -> Found:
    work = ReadDir(token=disks.token(), directory_id=disks.id_of(path))
    found = disks.work.carry_out(work)
    assert isinstance(found, Found)
    return found


def test_a_closed_dir_is_written_to_no_more_and_locked_as_long_as_actors_may_serve() -> None:
    disks = with_checkpoints()
    directory_id = disks.id_of(A)
    for _ in range(2):
        disks.work.close_dir(directory_id)
    assert is_locked(disks, A)
    check_closed(disks, directory_id)
    for _ in range(2):
        disks.work.unlock_dir(directory_id)
    assert not is_locked(disks, A)
    check_closed(disks, directory_id)


def test_the_end_unlocks_a_dir_that_was_closed(disks: Disks) -> None:
    disks.work.close_dir(disks.id_of(A))
    assert not disks.work.unlock({}, set())
    assert not is_locked(disks, A)


def test_a_dir_in_use_is_not_unlocked(disks: Disks) -> None:
    disks.work.unlock_dir(disks.id_of(A))
    assert is_locked(disks, A)


# -- RetireDir -------------------------------------------------------------------------------------


def retire(disks: Disks, *clean: TopicPartition) -> None:
    work = RetireDir(token=1, directory_id=disks.id_of(A), clean=frozenset(clean))
    disks.work.carry_out(work)


def test_a_dir_that_is_taken_out_of_use_in_order_has_checkpoints_mark_and_no_lock() -> None:
    disks = with_checkpoints()
    disks.work.record_offsets(LOG, disks.id_of(A), OFFSETS._replace(recovery_point=9))
    disks.work.withdraw(disks.id_of(A))
    assert disks.work.online() == []
    assert is_locked(disks, A), "until its checkpoints are written"
    for _ in range(2):
        retire(disks, ORDERS, OTHERS)
    assert disks.fs.exists(f"{A}/{CLEAN_SHUTDOWN}")
    assert not is_locked(disks, A)
    assert disks.checkpoints()[0] == {ORDERS: 9, OTHERS: 7}
    found = disks.work.carry_out(ReadDir(token=2, directory_id=disks.id_of(A)))
    assert found is not None
    assert [folder.is_clean for folder in found.folders] == [True, True]


def test_a_dir_with_a_log_that_was_not_closed_in_order_has_no_mark() -> None:
    disks = with_checkpoints()
    with pytest.raises(LogDirOffline, match="not closed in order"):
        retire(disks, ORDERS)
    assert not disks.fs.exists(f"{A}/{CLEAN_SHUTDOWN}")
    assert not is_locked(disks, A)


@pytest.mark.parametrize("is_in_order", [True, False])
def test_a_node_ends_in_order_only_if_its_dirs_out_of_use_were_closed_so(
    is_in_order: bool,
) -> None:
    disks = Disks().start()
    disks.make(LOG)
    with suppress(LogDirOffline):
        retire(disks, *([ORDERS] if is_in_order else []))
    assert disks.work.unlock({}, set()) == is_in_order


def is_locked(disks: Disks, path: str) -> bool:
    try:
        disks.fs.lock(f"{path}/.lock").release()
    except LogLocked:
        return True
    return False


def check_closed(disks: Disks, directory_id: str) -> None:
    """Nothing is done in the dir."""
    before = disks.fs.operations
    disks.work.record_offsets(LOG, directory_id, OFFSETS)
    disks.work.record_cleaner_offset(LOG, directory_id, 6)
    disks.write_checkpoints()
    disks.work.remove_deleted(directory_id)
    assert disks.fs.operations == before
    with pytest.raises(LogDirOffline):
        disks.make()
    with pytest.raises(LogDirOffline):
        disks.work.checkpointed(directory_id, ORDERS)
    assert disks.work.online() == []
    assert disks.work.usable_bytes(directory_id) == -1
    assert not disks.work.status(directory_id, "node").is_online


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_dir_that_is_read_back_has_what_the_disk_has(disks: Disks, is_closed: bool) -> None:
    disks.make()
    file = disks.fs.open(f"{A}/{ORDERS}/00000000000000000000.log")
    file.append([b"never on the disk"])
    with disks.fs.failing(io_error, "flush"), pytest.raises(StorageError):
        file.flush()
    if is_closed:
        disks.work.close_dir(disks.id_of(A))
    for _ in range(2):
        found = read_dir(disks)
        [dir] = found.dirs
        assert (dir.path, dir.state, dir.is_read_back) == (A, "online", True)
        assert found.folders == (
            Folder(partition=ORDERS, topic_id=TOPIC, directory_id=disks.id_of(A)),
        )
    assert disks.fs.read_file(f"{A}/{ORDERS}/00000000000000000000.log").strip(b"\0") == b""
    assert sorted(disks.work.online()) == sorted([disks.id_of(A), disks.id_of(B)])
    disks.make(OTHER_LOG)


def test_a_dir_that_cannot_be_read_back_stays_out_of_use(disks: Disks) -> None:
    disks.make()
    with disks.fs.failing(io_error, under=A), pytest.raises(StorageError):
        read_dir(disks)
    assert disks.work.online() == [disks.id_of(B)]
    read_dir(disks)


@pytest.mark.parametrize("is_folder", [True, False])
def test_no_log_dir_is_made_where_one_is_to_be_read_back(disks: Disks, is_folder: bool) -> None:
    """Its disk is not mounted: there is an empty folder, or nothing."""
    directory_id = disks.id_of(A)
    disks.work.close_dir(directory_id)
    disks.work.unlock_dir(directory_id)
    disks.fs.remove_dir(A)
    if is_folder:
        disks.fs.make_dir(A)
    with pytest.raises(InvalidLogDir, match=f"{directory_id} is not there: its disk is not mount"):
        disks.work.carry_out(ReadDir(token=1, directory_id=directory_id))
    assert disks.fs.list_dir(A) == [] if is_folder else not disks.fs.exists(A)
    assert disks.work.online() == [disks.id_of(B)]


def test_another_log_dir_at_the_path_is_not_taken_for_it(disks: Disks) -> None:
    directory_id, other = disks.id_of(A), random_id()
    disks.work.close_dir(directory_id)
    disks.work.unlock_dir(directory_id)
    meta = read_meta(disks.fs, A)
    assert meta is not None
    write_meta(disks.fs, A, MetaProperties(meta.cluster_id, 1, other))
    with pytest.raises(InvalidLogDir, match=f"another log dir, {other}, is now at this path"):
        disks.work.carry_out(ReadDir(token=1, directory_id=directory_id))
    assert disks.work.online() == [disks.id_of(B)]


# -- offsets ---------------------------------------------------------------------------------------


def test_offsets_are_known_from_memory_and_by_the_next_start(disks: Disks) -> None:
    disks.make()
    directory_id = disks.id_of(A)
    assert disks.work.checkpointed(directory_id, ORDERS) == (0, 0, 0)
    disks.work.record_offsets(LOG, directory_id, OFFSETS)
    assert disks.work.checkpointed(directory_id, ORDERS) == OFFSETS.checkpointed()
    disks.write_checkpoints()
    later = disks.again().start()
    assert later.work.checkpointed(later.id_of(A), ORDERS) == OFFSETS.checkpointed()
    assert later.work.cleaner_offsets() == {ORDERS: 0}


def test_a_checkpoint_that_cannot_be_written_is_an_error_and_is_written_later(disks: Disks) -> None:
    disks.make()
    disks.work.record_offsets(LOG, disks.id_of(A), OFFSETS)
    for fault in (io_error, DiskFull, shortage):
        with disks.fs.failing(fault, under=A), pytest.raises(StorageError, match=A):
            disks.write_checkpoints()
    disks.write_checkpoints()
    assert disks.checkpoints() == [{ORDERS: 7}, {ORDERS: 3}, {ORDERS: 0}]


def test_where_compaction_goes_on_is_written_later_where_it_cannot_be_written_now(
    disks: Disks,
) -> None:
    disks.make()
    disks.write_checkpoints()
    directory_id = disks.id_of(A)
    with disks.fs.failing(DiskFull, under=A), pytest.raises(DiskFull):
        disks.work.record_cleaner_offset(LOG, directory_id, 4)
    disks.work.remove_deleted(directory_id)
    assert disks.checkpoint(A, CLEANER_OFFSETS) == {ORDERS: 4}


def test_a_checkpoint_of_a_dir_that_vanished_is_a_failed_disk(disks: Disks) -> None:
    directory_id = disks.id_of(A)
    disks.fs.rename(A, "/disk/elsewhere")
    with pytest.raises(StorageError, match="the folder is gone") as raised:
        disks.work.write_recovery_points(directory_id)
    assert raised.value.is_disk_failure


def test_where_a_log_begins_is_on_the_disk_at_once_and_no_older_word_changes_it() -> None:
    disks = with_checkpoints()
    directory_id, later = disks.id_of(A), OFFSETS._replace(log_start_offset=8)
    disks.work.record_log_start(LOG, directory_id, later)
    assert disks.checkpoint(A, LOG_START_OFFSETS) == {ORDERS: 8, OTHERS: 3}
    disks.work.record_offsets(LOG, directory_id, OFFSETS)  # was said before, and comes late
    disks.write_checkpoints()
    assert disks.checkpoint(A, LOG_START_OFFSETS) == {ORDERS: 8, OTHERS: 3}
    lost = OFFSETS._replace(log_start_offset=0, high_watermark=5)
    disks.work.record_offsets(LOG, directory_id, lost)  # it has lost its end since
    disks.write_checkpoints()
    assert disks.checkpoint(A, LOG_START_OFFSETS) == {OTHERS: 3}


def test_where_the_log_of_another_topic_began_is_forgotten() -> None:
    disks = with_checkpoints()
    directory_id = disks.id_of(A)
    disks.work.record_log_start(LOG, directory_id, OFFSETS._replace(log_start_offset=8))
    disks.work.carry_out(Doom(token=1, log=LOG, directory_id=directory_id))
    disks.make(LATER_LOG)
    disks.work.record_offsets(LATER_LOG, directory_id, OFFSETS)
    disks.write_checkpoints()
    assert disks.checkpoint(A, LOG_START_OFFSETS) == {ORDERS: 3, OTHERS: 3}


def test_where_a_log_begins_waits_for_room_on_a_full_disk() -> None:
    disks = with_checkpoints()
    with disks.fs.failing(DiskFull, under=A):
        disks.work.record_log_start(LOG, disks.id_of(A), OFFSETS._replace(log_start_offset=8))
    assert disks.checkpoint(A, LOG_START_OFFSETS) == {ORDERS: 3, OTHERS: 3}
    disks.write_checkpoints()
    assert disks.checkpoint(A, LOG_START_OFFSETS) == {ORDERS: 8, OTHERS: 3}


def test_where_a_log_begins_is_refused_where_it_does_not_lie() -> None:
    disks = with_checkpoints()
    with pytest.raises(NotLeader, match="does not lie"):
        disks.work.record_log_start(LATER_LOG, disks.id_of(A), OFFSETS)
    with pytest.raises(NotLeader, match="not in use"):
        disks.work.record_log_start(LOG, "nowhere", OFFSETS)
    failing = disks.fs.failing(io_error, under=A)
    with failing, pytest.raises(StorageError):
        disks.work.record_log_start(LOG, disks.id_of(A), OFFSETS)


def test_compaction_goes_on_where_the_dir_that_serves_says(disks: Disks) -> None:
    disks.make()
    disks.work.record_cleaner_offset(LOG, disks.id_of(A), 4)
    assert disks.checkpoint(A, CLEANER_OFFSETS) == {ORDERS: 4}
    disks.copy(is_last=True)
    disks.adopt()
    disks.work.record_cleaner_offset(LOG, disks.id_of(B), 9)
    for path, offset in ((A, 4), (B, 9)):
        disks.work.began_opening(LOG, disks.id_of(path))
        assert disks.work.cleaner_offsets() == {ORDERS: offset}


# -- openings --------------------------------------------------------------------------------------


def test_the_progress_of_the_start_counts_what_was_found(disks: Disks) -> None:
    disks.make()
    disks.make(OTHER_LOG)
    later = disks.again().start()
    directory_id = later.id_of(A)

    def progress() -> tuple[int, int]:
        status = later.work.status(directory_id, "node")
        return status.loaded, status.to_load

    assert progress() == (0, 2)
    later.work.began_opening(LOG, directory_id)
    assert later.work.opened(directory_id, ORDERS)
    assert not later.work.opened(directory_id, ORDERS)
    assert progress() == (1, 2)
    later.put_aside(TOPIC, OTHERS)
    assert progress() == (1, 1)


def test_what_nobody_is_to_open_is_not_waited_for(disks: Disks) -> None:
    """No config opens its topic, for example, or its folder does not say whose it is."""
    disks.make()
    disks.make(OTHER_LOG)
    later = disks.again().start()
    directory_id = later.id_of(A)

    def to_load(*opening: TopicPartition) -> int:
        return later.work.status(directory_id, "node", set(opening)).to_load

    assert to_load(ORDERS) == 1
    later.work.opened(directory_id, ORDERS)
    assert to_load(ORDERS) == 1, "it is counted once"
    assert to_load() == 1
    assert to_load(OTHERS) == 2
