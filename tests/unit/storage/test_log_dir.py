"""A log dir: whose it is, who has it, what it says of its partitions, and how partitions leave
it."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from raylog.storage.errors import (
    CorruptCheckpoint,
    DiskFull,
    FileGone,
    IdentityMissing,
    InconsistentClusterId,
    InvalidLogDir,
    LogLocked,
    StorageError,
)
from raylog.storage.files import RealFileSystem
from raylog.storage.log_dir import CheckpointedOffsets, LogDir
from raylog.storage.names import TopicPartition
from raylog.storage.state.properties import write_meta
from raylog.storage.testing.memory import MemoryFileSystem, Stopped

CLUSTER, OTHER = "uHx_mWK3Sji2MLBMLyjjfg", "7AYb80xjaRsOgecNp41_gw"
ORDERS = TopicPartition("orders", 0)
CHECKPOINTS = [
    "cleaner-offset-checkpoint",
    "log-start-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
]


@pytest.fixture
def fs() -> MemoryFileSystem:
    memory = MemoryFileSystem()
    memory.make_dir("/disk")
    memory.sync_dir("/")
    return memory


def opened(fs: MemoryFileSystem, cluster_id: str = CLUSTER) -> LogDir:
    return LogDir(fs, "/disk/logs", cluster_id, 1)


def test_a_new_log_dir_is_made_and_marked_as_this_clusters(fs: MemoryFileSystem) -> None:
    log_dir = opened(fs)
    assert fs.list_dir("/disk/logs") == [
        ".lock",
        *CHECKPOINTS[:2],
        "meta.properties",
        *CHECKPOINTS[2:],
    ]
    for name in CHECKPOINTS:
        assert fs.read_file(f"/disk/logs/{name}") == b"0\n0\n"
    assert (log_dir.meta.cluster_id, log_dir.meta.node_id, log_dir.was_clean) == (CLUSTER, 1, False)
    assert log_dir.partitions() == []
    assert log_dir.offsets() == {}


def test_its_directory_id_stays_and_it_is_new_once(fs: MemoryFileSystem) -> None:
    first = opened(fs)
    first.close(clean=True)
    again = opened(fs)
    assert again.directory_id == first.directory_id
    assert (first.is_new, again.is_new) == (True, False)


def test_a_second_broker_finds_it_locked(fs: MemoryFileSystem) -> None:
    first = opened(fs)
    with pytest.raises(LogLocked, match="/disk/logs is locked"):
        opened(fs)
    first.close(clean=False)
    opened(fs)


def test_a_foreign_clusters_dir_is_refused_and_left_as_it_was(fs: MemoryFileSystem) -> None:
    opened(fs).close(clean=True)
    before = fs.list_dir("/disk/logs")
    with pytest.raises(InconsistentClusterId, match=f"belongs to cluster {CLUSTER}, not {OTHER}"):
        opened(fs, OTHER)
    assert fs.list_dir("/disk/logs") == before
    assert opened(fs).was_clean


def test_corrupt_meta_properties_are_refused_and_the_dir_unlocked(fs: MemoryFileSystem) -> None:
    fs.make_dir("/disk/logs")
    fs.write_file("/disk/logs/meta.properties", b"nonsense")
    for _ in range(2):
        with pytest.raises(CorruptCheckpoint, match=r"meta\.properties"):
            opened(fs)


def test_the_clean_marker_is_kafkas_and_is_believed_once(fs: MemoryFileSystem) -> None:
    opened(fs).close(clean=True)
    marker = "/disk/logs/.kafka_cleanshutdown"
    assert fs.read_file(marker) == b'{"version":0,"brokerEpoch":-1}'
    fs = fs.crash("flushed", names="flushed")
    second = opened(fs)
    assert second.was_clean
    fs = fs.crash("flushed", names="flushed")  # no orderly stop
    assert not fs.exists(marker)
    assert not opened(fs).was_clean


def test_an_unclean_stop_leaves_no_marker(fs: MemoryFileSystem) -> None:
    opened(fs).close(clean=False)
    assert not opened(fs).was_clean


def test_a_dir_whose_parent_is_missing_is_refused(fs: MemoryFileSystem) -> None:
    with pytest.raises(
        InvalidLogDir, match="/nowhere/logs: neither the folder nor its parent exists"
    ):
        LogDir(fs, "/nowhere/logs", CLUSTER, 1)
    assert not fs.exists("/nowhere")


def test_a_file_is_no_log_dir(fs: MemoryFileSystem) -> None:
    fs.write_file("/disk/logs", b"")
    with pytest.raises(InvalidLogDir, match="this is a file; give a folder"):
        opened(fs)


def test_a_read_only_dir_is_refused(fs: MemoryFileSystem) -> None:
    fs.make_dir("/disk/logs")
    fs.is_read_only = True
    with pytest.raises(InvalidLogDir, match="is read-only"):
        opened(fs)
    assert fs.list_dir("/disk/logs") == []


@pytest.fixture
def read_only_mount(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "disk").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "ro,size=1m", "tmpfs", str(tmp_path / "disk")]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    yield tmp_path / "disk"
    subprocess.run(["umount", str(tmp_path / "disk")], check=True)


def test_a_read_only_disk_is_refused_for_root_too(read_only_mount: Path) -> None:
    with pytest.raises(InvalidLogDir, match="is read-only"):
        LogDir(RealFileSystem(), str(read_only_mount), CLUSTER, 1)
    with pytest.raises(StorageError, match="Read-only"):
        LogDir(RealFileSystem(), str(read_only_mount / "new"), CLUSTER, 1)


# -- partitions ------------------------------------------------------------------------------------


def test_partitions_are_the_folders_that_are_named_so(fs: MemoryFileSystem) -> None:
    log_dir = opened(fs)
    for name in ("orders-0", "a-b-2", "__cluster_metadata-0", "lost+found", "orders-01", "x-1.tmp"):
        fs.make_dir(f"/disk/logs/{name}")
    fs.write_file("/disk/logs/file-3", b"")
    fs.make_dir(f"/disk/logs/gone-1.{'0' * 32}-delete")
    fs.make_dir(f"/disk/logs/odd-1.{'0' * 32}-stray")
    assert sorted(log_dir.partitions()) == [TopicPartition("a-b", 2), ORDERS]
    assert log_dir.folder(ORDERS) == "/disk/logs/orders-0"


def test_checkpoints_come_back_as_written(fs: MemoryFileSystem) -> None:
    log_dir = opened(fs)
    offsets = {
        ORDERS: CheckpointedOffsets(10, 4, 12),
        TopicPartition("other", 3): CheckpointedOffsets(7, 0, 7),
    }
    log_dir.write_offsets(offsets)
    assert log_dir.offsets() == offsets
    assert (
        fs.read_file("/disk/logs/recovery-point-offset-checkpoint")
        == b"0\n2\norders 0 10\nother 3 7\n"
    )
    assert fs.read_file("/disk/logs/log-start-offset-checkpoint") == b"0\n1\norders 0 4\n"
    assert (
        fs.read_file("/disk/logs/replication-offset-checkpoint")
        == b"0\n2\norders 0 12\nother 3 7\n"
    )


def test_the_checkpoints_of_a_new_dir_survive_a_loss_of_power(fs: MemoryFileSystem) -> None:
    opened(fs)
    after = fs.crash("flushed", names="flushed")
    assert {*CHECKPOINTS} <= {*after.list_dir("/disk/logs")}


def test_a_full_disk_keeps_nobody_from_opening_a_dir_without_checkpoints(
    fs: MemoryFileSystem,
) -> None:
    opened(fs).close(clean=True)
    for name in CHECKPOINTS:
        fs.remove(f"/disk/logs/{name}")
    with fs.failing(DiskFull, "append"):
        log_dir = opened(fs)
    assert log_dir.offsets() == {}


@pytest.mark.parametrize(
    "name", ["recovery-point-offset-checkpoint", "replication-offset-checkpoint"]
)
def test_a_damaged_checkpoint_is_kept_aside_and_its_logs_are_recovered_from_their_data(
    fs: MemoryFileSystem, name: str
) -> None:
    log_dir, path = opened(fs), f"/disk/logs/{name}"
    log_dir.write_offsets({ORDERS: CheckpointedOffsets(10, 4, 12)})
    damaged = fs.read_file(path) + b"garbage\n"
    fs.write_file(path, damaged)
    recovery_point, start, high_watermark = log_dir.offsets()[ORDERS]
    assert (recovery_point, high_watermark) == ((0, 12) if "recovery" in name else (10, 0))
    assert start == 4
    assert fs.read_file(path + ".corrupt") == damaged
    assert log_dir.damaged_files() == [name]
    (damage,) = log_dir.take_damages()
    assert (damage.file, damage.kept_as, damage.entries) == (name, name + ".corrupt", 0)
    assert damage.why.startswith("not a checkpoint file")
    assert log_dir.take_damages() == []


@pytest.mark.parametrize("name", ["log-start-offset-checkpoint", "cleaner-offset-checkpoint"])
@pytest.mark.parametrize(
    ("damaged", "known"),
    [
        (b"0\n2\norders 0 4\nother 1 1", {ORDERS: 4}),  # its last line was cut: 1, or 1000
        (b"0\n3\norders 0 4\n", {ORDERS: 4}),
        (b"\xff\n1\norders 0 4\n", {}),
        (b"0\nx\norders 0 4\nother 1 -7\nother 2 01\nother\n\xff 0 1\n", {ORDERS: 4}),
        (b"0\n3\norders 0 4\nother 1 5\nother 1 6\n", {ORDERS: 4}),
        (b"garbage", {}),
    ],
)
def test_of_a_damaged_checkpoint_that_no_data_tells_the_lines_that_are_whole_are_used(
    fs: MemoryFileSystem, name: str, damaged: bytes, known: dict[TopicPartition, int]
) -> None:
    log_dir, path = opened(fs), f"/disk/logs/{name}"
    fs.write_file(path, damaged)

    def read() -> dict[TopicPartition, int]:
        if name.startswith("cleaner"):
            return log_dir.cleaner_offsets()
        return {partition: kept.log_start_offset for partition, kept in log_dir.offsets().items()}

    assert read() == known
    assert fs.read_file(path + ".corrupt") == damaged
    assert read() == known, "they are in the new file"
    assert [damage.entries for damage in log_dir.take_damages()] == [len(known)]
    log_dir.close(clean=True)
    assert opened(fs).damaged_files() == [name], "until somebody removes the .corrupt file"


@pytest.mark.parametrize("content", [b"", b"0", b"0\n"])
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_that_was_cut_off_before_its_count_is_damaged(
    fs: MemoryFileSystem, name: str, content: bytes
) -> None:
    log_dir = opened(fs)
    log_dir.write_controller_epoch(1)
    log_dir.close(clean=True)
    fs.write_file(f"/disk/logs/{name}", content)
    log_dir = opened(fs)
    assert (log_dir.offsets(), log_dir.cleaner_offsets()) == ({}, {})
    assert log_dir.damaged_files() == [name]
    assert fs.read_file(f"/disk/logs/{name}.corrupt") == content
    (damage,) = log_dir.take_damages()
    assert damage.why == "it was cut off before the number of its entries"


def test_the_empty_checkpoints_that_kafka_begins_with_are_none(fs: MemoryFileSystem) -> None:
    opened(fs).close(clean=True)
    for name in CHECKPOINTS:
        fs.write_file(f"/disk/logs/{name}", b"")
    log_dir = opened(fs)
    log_dir.write_controller_epoch(1)
    assert (log_dir.offsets(), log_dir.cleaner_offsets()) == ({}, {})
    log_dir.close(clean=False)
    assert opened(fs).damaged_files() == [], "they are whole now"


def test_no_crash_while_a_damaged_checkpoint_is_set_aside_loses_what_can_be_used() -> None:
    path = "/disk/logs/log-start-offset-checkpoint"
    for stop_at in range(12):
        fs = MemoryFileSystem()
        fs.make_dir("/disk")
        fs.sync_dir("/")
        log_dir = opened(fs)
        fs.write_file(path, b"0\n2\norders 0 4\n")
        fs.stop_at(fs.operations + stop_at)
        with suppress(Stopped):
            log_dir.offsets()
        for survives in ("all", "flushed"):
            crashed = opened(fs.crash("all", names=survives))
            assert crashed.offsets() == {ORDERS: CheckpointedOffsets(0, 4, 0)}, stop_at


def test_on_a_full_disk_a_damaged_checkpoint_is_used_as_it_is(fs: MemoryFileSystem) -> None:
    log_dir, path = opened(fs), "/disk/logs/log-start-offset-checkpoint"
    fs.write_file(path, b"0\n2\norders 0 4\n")
    with fs.failing(DiskFull, "append"):
        assert log_dir.offsets() == {ORDERS: CheckpointedOffsets(0, 4, 0)}
    assert log_dir.damaged_files() == []
    assert log_dir.offsets() == {ORDERS: CheckpointedOffsets(0, 4, 0)}
    assert log_dir.damaged_files() == ["log-start-offset-checkpoint"]


def test_a_second_damage_does_not_replace_what_was_kept_of_the_first(fs: MemoryFileSystem) -> None:
    log_dir, path = opened(fs), "/disk/logs/log-start-offset-checkpoint"
    for number in range(3):
        fs.write_file(path, b"garbage %d" % number)
        log_dir.offsets()
    kept = [name for name in fs.list_dir("/disk/logs") if ".corrupt" in name]
    assert [fs.read_file(f"/disk/logs/{name}") for name in kept] == [
        b"garbage 0",
        b"garbage 1",
        b"garbage 2",
    ]
    assert log_dir.damaged_files() == ["log-start-offset-checkpoint"]


def test_the_cleaners_offsets_are_what_was_written_last(fs: MemoryFileSystem) -> None:
    log_dir, other = opened(fs), TopicPartition("orders", 1)
    assert log_dir.cleaner_offsets() == {}
    log_dir.write_cleaner_offsets({ORDERS: 7, other: 9})
    assert fs.read_file("/disk/logs/cleaner-offset-checkpoint") == b"0\n2\norders 0 7\norders 1 9\n"
    with fs.failing(DiskFull, "append"), pytest.raises(DiskFull):
        log_dir.write_cleaner_offsets({ORDERS: 8})
    assert log_dir.cleaner_offsets() == {ORDERS: 7, other: 9}
    log_dir.write_cleaner_offsets({other: 9})
    assert log_dir.cleaner_offsets() == {other: 9}


def test_a_doomed_partition_is_gone_at_once_and_listed_for_deletion(fs: MemoryFileSystem) -> None:
    log_dir = opened(fs)
    fs.make_dir("/disk/logs/orders-0")
    fs.write_file("/disk/logs/orders-0/x", b"1")
    fs.sync_dir("/disk/logs")
    target = log_dir.doom(ORDERS)
    assert fs.crash(names="flushed").exists(target)
    assert fs.list_dir(target) == ["x"]
    fs.make_dir("/disk/logs/keep-delete")  # a user's folder, however it is called
    assert log_dir.listing() == ([], [target], [], [], ["keep-delete"])


def test_a_stray_is_set_aside_and_kept(fs: MemoryFileSystem) -> None:
    log_dir = opened(fs)
    fs.make_dir("/disk/logs/orders-0")
    target = log_dir.doom(ORDERS, stray=True)
    assert target.endswith("-stray")
    assert fs.exists(target)
    assert log_dir.listing() == ([], [], [], [os.path.basename(target)], [])


def test_a_copy_is_no_partition_until_it_is_adopted(fs: MemoryFileSystem) -> None:
    log_dir = opened(fs)
    future = log_dir.future_folder(ORDERS)
    assert future.startswith("/disk/logs/orders-0.")
    assert future.endswith("-future")
    fs.make_dir(future)
    assert log_dir.listing() == ([], [], [future], [], [])
    log_dir.adopt(ORDERS, future)
    assert fs.crash("flushed", names="flushed").is_dir("/disk/logs/orders-0")
    assert log_dir.listing() == ([ORDERS], [], [], [], [])


def test_a_dir_knows_whether_it_is_still_there_and_the_same(fs: MemoryFileSystem) -> None:
    log_dir = opened(fs)
    log_dir.check()
    fs.rename("/disk/logs", "/disk/elsewhere")
    with pytest.raises(StorageError, match="/disk/logs: the folder is gone"):
        log_dir.check()
    fs.make_dir("/disk/logs")
    write_meta(fs, "/disk/logs", log_dir.meta._replace(directory_id=OTHER))
    with pytest.raises(StorageError, match="is now at this path"):
        log_dir.check()


def test_dooming_what_is_not_there_is_a_named_error(fs: MemoryFileSystem) -> None:
    with pytest.raises(StorageError):
        opened(fs).doom(ORDERS)


# -- identity --------------------------------------------------------------------------------------


def lose_identity(fs: MemoryFileSystem) -> None:
    opened(fs).close(clean=True)
    fs.remove("/disk/logs/meta.properties")


def test_a_dir_that_nothing_has_used_gets_an_identity(fs: MemoryFileSystem) -> None:
    lose_identity(fs)
    fs.make_dir("/disk/logs/__cluster_metadata-0")
    fs.make_dir("/disk/logs/lost+found")
    assert opened(fs).directory_id


@pytest.mark.parametrize(
    ("path", "content", "sign"),
    [
        ("orders-0", None, r"there are folders of partitions \(orders-0\)"),
        ("controller-epoch", b"", "there is the file controller-epoch"),
        ("controller-epoch", b"0\n17 46a4d07c\n", "there is the file controller-epoch"),
        ("cleaner-offset-checkpoint", b"0\n1\norders 0 4\n", "cleaner-offset-checkpoint names"),
        ("replication-offset-checkpoint", b"damaged", "replication-offset-checkpoint names"),
    ],
)
def test_a_dir_in_use_that_has_lost_its_identity_gets_no_other_one(
    fs: MemoryFileSystem, path: str, content: bytes | None, sign: str
) -> None:
    lose_identity(fs)
    if content is None:
        fs.make_dir(f"/disk/logs/{path}")
    else:
        fs.write_file(f"/disk/logs/{path}", content)
    before = fs.list_dir("/disk/logs")
    for _ in range(2):
        with pytest.raises(IdentityMissing, match=sign) as raised:
            opened(fs)
    command = "`raylog log-dirs identify /disk/logs --directory-id ID --like DIR`"
    assert command in raised.value.advice, "with all that it needs"
    assert fs.list_dir("/disk/logs") == before, "nor does the clean-shutdown marker go"


# -- what is gone ----------------------------------------------------------------------------------


def test_a_file_that_is_gone_is_no_failure_of_the_disk(fs: MemoryFileSystem) -> None:
    log_dir = opened(fs)
    with pytest.raises(FileGone) as raised:
        fs.read_file("/disk/logs/orders-0/x.log")
    assert not raised.value.is_disk_failure
    assert log_dir.disk_failure(raised.value) is None


def test_a_dir_that_is_gone_with_its_files_has_failed(fs: MemoryFileSystem) -> None:
    log_dir = opened(fs)
    fs.remove_dir("/disk/logs")
    with pytest.raises(FileGone) as raised:
        log_dir.listing()
    failure = log_dir.disk_failure(raised.value)
    assert failure is not None
    assert failure.is_disk_failure
    assert "the folder is gone" in str(failure)


def test_another_error_says_itself_whether_the_disk_failed(fs: MemoryFileSystem) -> None:
    log_dir, broken = opened(fs), StorageError("/disk/logs/x", "Input/output error")
    assert log_dir.disk_failure(broken) is broken
    assert log_dir.disk_failure(DiskFull("/disk/logs/x")) is None


# -- another dir at the path -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "write",
    [
        lambda log_dir: log_dir.write_recovery_points({}),
        lambda log_dir: log_dir.write_log_start_offsets({}),
        lambda log_dir: log_dir.write_cleaner_offsets({}),
        lambda log_dir: log_dir.write_controller_epoch(9),
        lambda log_dir: log_dir.close(clean=True),
    ],
)
@pytest.mark.parametrize("is_gone", [False, True])
def test_nothing_is_written_into_another_dir_at_its_path(
    fs: MemoryFileSystem, write: Callable[[LogDir], None], *, is_gone: bool
) -> None:
    """The disk was not mounted at the start, and is mounted now; or the other way round."""
    real = opened(fs)
    real.write_log_start_offsets({ORDERS: CheckpointedOffsets(500, 500, 500)})
    real.close(clean=False)
    fs.rename("/disk/logs", "/disk/real")
    log_dir = opened(fs)
    fs.rename("/disk/logs", "/disk/empty")
    if is_gone:
        fs.make_dir("/disk/logs")
    else:
        fs.rename("/disk/real", "/disk/logs")
    before = {name: fs.read_file(f"/disk/logs/{name}") for name in fs.list_dir("/disk/logs")}
    with pytest.raises(StorageError, match="the folder is gone" if is_gone else "another log dir"):
        write(log_dir)
    after = {name: fs.read_file(f"/disk/logs/{name}") for name in fs.list_dir("/disk/logs")}
    assert after == before
