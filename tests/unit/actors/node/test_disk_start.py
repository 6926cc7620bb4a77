"""How a node takes its log dirs into use, and how it ends in order."""

import pytest

from raylog.actors.control import DirReport, LogId
from raylog.actors.messages import PartitionOffsets
from raylog.actors.node.events import Folder
from raylog.actors.node.instructions import ReadDir
from raylog.storage.errors import (
    DiskFull,
    DuplicateLogDir,
    IdentityMissing,
    InconsistentClusterId,
    InvalidLogDir,
    LogLocked,
    OutOfResources,
    StorageError,
)
from raylog.storage.loader import create_log
from raylog.storage.log_dir import LogDir
from raylog.storage.losses import accept_losses
from raylog.storage.names import TopicPartition, aside_file
from raylog.storage.state.checkpoints import (
    ACCEPTED_LOSSES,
    CLEANER_OFFSETS,
    LOG_START_OFFSETS,
)
from raylog.storage.state.properties import CLEAN_SHUTDOWN, PARTITION_METADATA, random_id
from raylog.storage.testing.memory import MemoryFileSystem
from raylog.storage.tools.identify import identify
from tests.unit.actors.node.disks import (
    CLUSTER,
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

NO_OFFSETS = PartitionOffsets(
    log_start_offset=0, recovery_point=0, high_watermark=0, log_end_offset=0
)


@pytest.fixture
def disks() -> Disks:
    return Disks().start()


def states(dirs: tuple[DirReport, ...]) -> dict[str, str]:
    return {dir.path: dir.state for dir in dirs}


# -- open ------------------------------------------------------------------------------------------


def test_what_lies_in_the_dirs_is_found() -> None:
    disks = Disks()
    found = disks.open()
    assert (states(found.dirs), found.folders) == ({A: "online", B: "online"}, ())
    assert [dir.directory_id for dir in found.dirs] == [disks.id_of(A), disks.id_of(B)]
    assert all(dir.usable_bytes > 0 and not dir.is_read_back for dir in found.dirs)
    disks.make()
    disks.make(OTHER_LOG, B)
    later = disks.again()
    assert later.open().folders == (
        Folder(partition=ORDERS, topic_id=TOPIC, directory_id=later.id_of(A)),
        Folder(partition=OTHERS, topic_id=TOPIC, directory_id=later.id_of(B)),
    )


def test_a_dir_that_cannot_be_used_is_offline_with_its_reason_if_another_can() -> None:
    disks = Disks()
    [online, offline] = disks.open([A, "/nowhere/b"]).dirs
    assert (online.path, online.state) == (A, "online")
    assert (offline.path, offline.state, offline.directory_id) == ("/nowhere/b", "offline", None)
    assert "neither the folder nor its parent exists" in offline.why


def test_a_dir_that_was_nobodys_before_is_said_to_be_new(disks: Disks) -> None:
    later = disks.again()
    later.fs.make_dir("/disk")
    dirs = later.open([A, "/disk/typo"]).dirs
    assert {dir.path: dir.is_new for dir in dirs} == {A: False, "/disk/typo": True}


def test_a_dir_that_is_offline_has_advice_where_no_disk_failed_and_its_id_where_that_is_known(
    disks: Disks,
) -> None:
    later = disks.again()
    later.fs.write_file(f"{A}/meta.properties", b"not the file")
    later.open()
    [damaged] = later.work.unusable()
    assert damaged.directory_id is None
    assert damaged.advice.startswith("restore the file from a copy")

    later = disks.again()
    with later.fs.failing(io_error, under=A):
        later.open()
    [failed] = later.work.unusable()
    assert (failed.directory_id, failed.advice) == (later.id_of(A), "")
    status = later.work.status(later.id_of(A), "node")
    assert (status.is_online, status.problem) == (False, failed.why)


def test_a_dir_whose_disk_failed_at_the_start_can_be_read_back(disks: Disks) -> None:
    disks.make()
    later = disks.again()
    with later.fs.failing(io_error, under=A):
        later.open()
    later.work.carry_out(ReadDir(token=1, directory_id=later.id_of(A)))
    assert later.work.unusable() == []
    later.doom()


def test_where_no_dir_can_be_used_the_first_ones_reason_is_raised() -> None:
    with pytest.raises(InvalidLogDir, match="/nowhere/a"):
        Disks().open(["/nowhere/a", "/nowhere/b"])


def test_a_dir_that_lost_its_identity_is_not_used(disks: Disks) -> None:
    disks.make()
    later = disks.again()
    later.fs.remove(f"{A}/meta.properties")
    assert states(later.open().dirs) == {A: "offline", B: "online"}
    again = disks.again()
    again.fs.remove(f"{A}/meta.properties")
    with pytest.raises(IdentityMissing):
        again.open([A])


def test_a_dir_that_lost_its_identity_gets_none_while_its_broker_runs(disks: Disks) -> None:
    disks.make()
    later = disks.again()
    directory_id = later.id_of(A)
    later.fs.remove(f"{A}/meta.properties")
    later.open()
    with pytest.raises(LogLocked, match=A):
        identify(later.fs, A, directory_id, cluster_id=CLUSTER, node_id=1)
    later.work.let_go()
    identify(later.fs, A, directory_id, cluster_id=CLUSTER, node_id=1)
    assert states(disks.again().open().dirs) == {A: "online", B: "online"}


def test_a_locked_dir_is_no_dir_that_failed_and_no_dir_stays_locked() -> None:
    disks = Disks()
    LogDir(disks.fs, B, CLUSTER, 1)
    with pytest.raises(LogLocked):
        disks.open()
    LogDir(disks.fs, A, CLUSTER, 1)


def test_a_dir_of_another_cluster_is_refused() -> None:
    disks = Disks()
    LogDir(disks.fs, B, random_id(), 1).close(clean=False)
    with pytest.raises(InconsistentClusterId):
        disks.open()


def test_a_shortage_at_the_start_is_no_dirs_fault() -> None:
    disks = Disks().start().again()
    with disks.fs.failing(shortage, under=A), pytest.raises(OutOfResources):
        disks.open()
    assert states(disks.open().dirs) == {A: "online", B: "online"}


@pytest.mark.parametrize("twin", ["/disk/a", "/disk/../disk/a", "/disk/a/"])
def test_one_folder_given_twice_is_refused(twin: str) -> None:
    with pytest.raises(DuplicateLogDir, match="are the same folder"):
        Disks().open([A, twin])


def test_a_copy_of_a_log_dir_beside_it_is_refused(disks: Disks) -> None:
    disks.fs.write_file(f"{B}/meta.properties", disks.fs.read_file(f"{A}/meta.properties"))
    with pytest.raises(DuplicateLogDir, match=r"have the same directory\.id"):
        disks.again().open()


def test_folders_that_are_no_partitions_are_left_alone_and_told(
    disks: Disks, caplog: pytest.LogCaptureFixture
) -> None:
    disks.fs.make_dir(f"{A}/lost+found")
    later = disks.again()
    assert later.open().folders == ()
    assert "lost+found" in caplog.text
    assert later.folders() == ["lost+found"]


def test_a_folder_that_does_not_say_whose_it_is_is_found_without_a_topic(disks: Disks) -> None:
    disks.make()
    disks.fs.write_file(f"{A}/{ORDERS}/{PARTITION_METADATA}", b"garbage")
    [folder] = disks.again().open().folders
    assert (folder.partition, folder.topic_id) == (ORDERS, None)


def test_a_damaged_checkpoint_is_told_and_stays_in_the_status(
    disks: Disks, caplog: pytest.LogCaptureFixture
) -> None:
    disks.fs.write_file(f"{A}/{LOG_START_OFFSETS}", b"0\n2\norders 0 4\n")
    disks.fs.write_file(f"{A}/{CLEANER_OFFSETS}", b"garbage")
    later = disks.again().start()
    (told, _) = [record.msg for record in caplog.records if "damaged" in str(record.msg)]
    assert told == {
        "event": "checkpoint-damaged",
        "log_dir": A,
        "file": LOG_START_OFFSETS,
        "why": "it has 1 entries, but its header says 2",
        "kept_as": f"{LOG_START_OFFSETS}.corrupt",
        "entries_used": 1,
    }
    status = later.work.status(later.id_of(A), "node")
    assert status.damaged_files == (CLEANER_OFFSETS, LOG_START_OFFSETS)
    assert later.work.status(later.id_of(B), "node").damaged_files == ()


def test_what_was_taken_out_of_a_copy_of_the_metadata_is_in_the_status(disks: Disks) -> None:
    folder = f"{A}/__cluster_metadata-0"
    disks.fs.make_dir(folder)
    for number, content in enumerate((b"torn", bytes(100))):
        disks.fs.write_file(f"{folder}/{aside_file(0, number)}", content)
    asides = disks.work.status(disks.id_of(A), "node").metadata_asides
    assert [(aside.size_bytes, aside.is_unfinished) for aside in asides] == [
        (4, True),
        (100, False),
    ]
    assert disks.work.status(disks.id_of(B), "node").metadata_asides == ()


class ShortFileSystem(MemoryFileSystem):
    """Once it is short, there is no descriptor for another folder."""

    is_short = False

    def list_dir(self, path: str) -> list[str]:
        if self.is_short:
            raise shortage(path)
        return super().list_dir(path)


def test_a_dir_that_cannot_be_looked_at_for_a_shortage_is_online() -> None:
    fs = ShortFileSystem()
    disks = Disks(fs).start()
    fs.is_short = True
    status = disks.work.status(disks.id_of(A), "node")
    assert (status.is_online, status.problem) == (True, shortage(A).problem)


def test_a_status_counts_the_logs_and_their_bytes(disks: Disks) -> None:
    disks.make()
    disks.fs.write_file(f"{A}/{ORDERS}/00000000000000000000.log", bytes(1000))
    status = disks.work.status(disks.id_of(A), "node")
    assert (status.partitions, status.size_bytes > 1000, status.strays) == (1, True, ())


# -- the orderly end -------------------------------------------------------------------------------


def two_logs() -> Disks:
    """A log in each dir, and one that nobody opens in A."""
    disks = Disks().start()
    disks.make()
    disks.make(OTHER_LOG, B)
    disks.work.began_opening(LOG, disks.id_of(A))
    disks.work.began_opening(OTHER_LOG, disks.id_of(B))
    return disks


def marked(disks: Disks) -> list[str]:
    return [path for path in (A, B) if disks.fs.exists(f"{path}/{CLEAN_SHUTDOWN}")]


def test_logs_that_were_closed_leave_markers_and_checkpoints() -> None:
    disks = two_logs()
    assert disks.work.unlock({LOG: OFFSETS, OTHER_LOG: OFFSETS}, set())
    assert marked(disks) == [A, B]
    assert disks.checkpoints(A) == [{ORDERS: 7}, {ORDERS: 3}, {ORDERS: 0}]
    assert disks.checkpoints(B) == [{OTHERS: 7}, {OTHERS: 3}, {OTHERS: 0}]
    later = Disks(disks.fs)
    assert [folder.is_clean for folder in later.open().folders] == [True, True]
    assert [folder.is_clean for folder in later.again().open().folders] == [False, False]


def test_a_log_that_was_not_closed_leaves_its_dir_without_a_marker() -> None:
    disks = two_logs()
    assert not disks.work.unlock({OTHER_LOG: OFFSETS}, set())
    assert marked(disks) == [B]


def test_a_log_that_nobody_opened_does_not_cost_its_dir_the_marker() -> None:
    disks = two_logs()
    unopened = LogId(partition=TopicPartition("unopened", 0), topic_id=TOPIC)
    disks.make(unopened)
    assert disks.work.unlock({LOG: OFFSETS, OTHER_LOG: OFFSETS}, {unopened})
    assert marked(disks) == [A, B]


def test_but_one_of_which_a_crash_came_before_does() -> None:
    disks = two_logs().again().start()
    assert not disks.work.unlock({LOG: OFFSETS}, {OTHER_LOG})
    assert marked(disks) == [A]


def test_a_log_whose_opening_was_refused_is_as_the_machine_says() -> None:
    disks = two_logs()
    assert disks.work.unlock({OTHER_LOG: OFFSETS}, {LOG})
    disks = two_logs()
    assert not disks.work.unlock({OTHER_LOG: OFFSETS}, set())


def test_a_log_that_lies_in_two_dirs_was_closed_in_one() -> None:
    disks = two_logs()
    disks.copy(is_last=True)
    disks.adopt()
    later = Disks(disks.fs.crash()).start()
    later.work.began_opening(LOG, later.id_of(B))
    later.work.began_opening(OTHER_LOG, later.id_of(B))
    assert not later.work.unlock({LOG: OFFSETS, OTHER_LOG: OFFSETS}, set())
    assert marked(later) == [B]
    unsaid = Disks(disks.fs.crash()).start()
    assert not unsaid.work.unlock({LOG: OFFSETS, OTHER_LOG: OFFSETS}, set())
    assert marked(unsaid) == []


def test_a_dir_whose_checkpoints_cannot_be_written_gets_no_marker() -> None:
    for fault in (io_error, DiskFull, shortage):
        disks = two_logs()
        with disks.fs.failing(fault, under=A):
            assert not disks.work.unlock({LOG: OFFSETS, OTHER_LOG: OFFSETS}, set())
        assert marked(disks) == [B]
        disks.again().open()


def test_an_orderly_end_writes_nothing_into_a_dir_that_came_to_its_path() -> None:
    """The node began over an empty folder, and the disk was mounted there since."""
    disks = two_logs()
    disks.work.record_offsets(LOG, disks.id_of(A), OFFSETS)
    disks.work.write_log_start_offsets(disks.id_of(A))
    fs = disks.fs.crash()
    fs.rename(A, f"{A}-real")
    later = Disks(fs).start()
    fs.rename(A, f"{A}-empty")
    fs.rename(f"{A}-real", A)
    assert not later.work.unlock({OTHER_LOG: OFFSETS}, set())
    assert marked(later) == [B]
    assert later.checkpoints(A)[1] == {ORDERS: 3}


def test_a_dir_that_is_out_of_use_makes_the_end_unclean() -> None:
    disks = two_logs()
    disks.work.close_dir(disks.id_of(A))
    assert not disks.work.unlock({LOG: OFFSETS, OTHER_LOG: OFFSETS}, set())
    assert marked(disks) == [B]


def test_a_folder_that_does_not_say_whose_it_is_is_clean_where_it_was_found_clean() -> None:
    disks = Disks().start(A)
    disks.make()
    disks.fs.remove(f"{A}/{ORDERS}/{PARTITION_METADATA}")
    assert disks.work.unlock({}, {LOG})
    later = Disks(disks.fs).start(A)
    assert later.work.unlock({}, set())
    crashed = Disks(later.fs).start(A).again().start(A)
    assert not crashed.work.unlock({}, set())


def test_a_folder_that_came_from_outside_costs_its_dir_the_marker() -> None:
    disks = two_logs()
    create_log(disks.fs, f"{A}/copied-0", OTHER_TOPIC)
    assert not disks.work.unlock({LOG: OFFSETS, OTHER_LOG: OFFSETS}, set())
    assert marked(disks) == [B]


def test_dirs_that_are_let_go_are_as_they_were_found() -> None:
    disks = two_logs()
    disks.work.unlock({LOG: OFFSETS}, set())
    assert marked(disks) == [A]
    for _ in range(2):
        later = Disks(disks.fs).start()
        assert marked(later) == []
        later.work.let_go()
        assert marked(later) == [A]


# -- accepted losses -------------------------------------------------------------------------------


def lose_records(disks: Disks) -> str:
    """LOG ends at 0 with a recovery point of 7, which was accepted; returns its folder."""
    folder = f"{A}/{ORDERS}"
    disks.make()
    disks.work.record_offsets(LOG, disks.id_of(A), OFFSETS)
    disks.work.write_recovery_points(disks.id_of(A))
    assert len(accept_losses(disks.fs, folder)) == 1
    return folder


def test_a_log_that_was_opened_in_spite_of_a_loss_gets_its_checkpoint_at_once(
    disks: Disks,
) -> None:
    folder = lose_records(disks)
    for log in (LOG, OTHER_LOG):  # the other one is gone
        disks.work.settle_losses(log, disks.id_of(A), NO_OFFSETS)
    assert disks.checkpoint() == {ORDERS: 0}
    assert disks.fs.read_file(f"{folder}/{ACCEPTED_LOSSES}") == b"0\n0\n"


def test_a_checkpoint_that_finds_no_room_leaves_the_loss_accepted(disks: Disks) -> None:
    folder = lose_records(disks)
    accepted = disks.fs.read_file(f"{folder}/{ACCEPTED_LOSSES}")
    for fault in (DiskFull, shortage):
        with disks.fs.failing(fault, under=A):
            disks.work.settle_losses(LOG, disks.id_of(A), NO_OFFSETS)
    with disks.fs.failing(io_error, under=A), pytest.raises(StorageError):
        disks.work.settle_losses(LOG, disks.id_of(A), NO_OFFSETS)
    assert disks.checkpoint() == {ORDERS: 7}
    assert disks.fs.read_file(f"{folder}/{ACCEPTED_LOSSES}") == accepted
