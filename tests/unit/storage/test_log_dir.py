"""A log dir: whose it is, who has it, what it says of its partitions, and how partitions leave
it."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from raylog.storage.errors import (
    CorruptCheckpoint,
    InconsistentClusterId,
    InvalidLogDir,
    LogLocked,
    StorageError,
)
from raylog.storage.files import RealFileSystem
from raylog.storage.log_dir import CheckpointedOffsets, LogDir
from raylog.storage.names import TopicPartition
from raylog.storage.state.properties import write_meta
from raylog.storage.testing.memory import MemoryFileSystem

CLUSTER, OTHER = "uHx_mWK3Sji2MLBMLyjjfg", "7AYb80xjaRsOgecNp41_gw"
ORDERS = TopicPartition("orders", 0)


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
    assert fs.list_dir("/disk/logs") == [".lock", "meta.properties"]
    assert (log_dir.meta.cluster_id, log_dir.meta.node_id, log_dir.was_clean) == (CLUSTER, 1, False)
    assert log_dir.partitions() == []
    assert log_dir.offsets() == {}


def test_its_directory_id_stays(fs: MemoryFileSystem) -> None:
    first = opened(fs)
    first.close(clean=True)
    assert opened(fs).directory_id == first.directory_id


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


def test_a_corrupt_checkpoint_is_set_aside_and_its_logs_are_recovered_from_their_data(
    fs: MemoryFileSystem,
) -> None:
    log_dir = opened(fs)
    log_dir.write_offsets({ORDERS: CheckpointedOffsets(10, 4, 12)})
    fs.write_file("/disk/logs/recovery-point-offset-checkpoint", b"garbage")
    assert log_dir.offsets() == {ORDERS: CheckpointedOffsets(0, 4, 12)}
    assert fs.read_file("/disk/logs/recovery-point-offset-checkpoint.corrupt") == b"garbage"
    assert log_dir.offsets() == {ORDERS: CheckpointedOffsets(0, 4, 12)}


def test_the_cleaners_offsets_are_kept_for_the_partitions_that_are_here(
    fs: MemoryFileSystem,
) -> None:
    log_dir, other = opened(fs), TopicPartition("orders", 1)
    assert log_dir.cleaner_offsets() == {}
    for partition in (ORDERS, other):
        fs.make_dir(f"/disk/logs/{partition}")
    log_dir.write_cleaner_offset(ORDERS, 7)
    log_dir.write_cleaner_offset(other, 9)
    assert fs.read_file("/disk/logs/cleaner-offset-checkpoint") == b"0\n2\norders 0 7\norders 1 9\n"
    log_dir.write_cleaner_offset(ORDERS, 8)
    assert log_dir.cleaner_offsets() == {ORDERS: 8, other: 9}
    log_dir.write_cleaner_offset(ORDERS, None)
    assert log_dir.cleaner_offsets() == {other: 9}
    fs.remove_dir("/disk/logs/orders-1")
    log_dir.write_cleaner_offset(ORDERS, 1)
    assert log_dir.cleaner_offsets() == {ORDERS: 1}


def test_a_doomed_partition_is_gone_at_once_and_listed_for_deletion(fs: MemoryFileSystem) -> None:
    log_dir = opened(fs)
    fs.make_dir("/disk/logs/orders-0")
    fs.write_file("/disk/logs/orders-0/x", b"1")
    fs.sync_dir("/disk/logs")
    target = log_dir.doom(ORDERS)
    assert fs.crash(names="flushed").exists(target)
    assert fs.list_dir(target) == ["x"]
    fs.make_dir("/disk/logs/keep-delete")  # a user's folder, however it is called
    assert log_dir.listing() == ([], [target], [], ["keep-delete"])


def test_a_stray_is_set_aside_and_kept(fs: MemoryFileSystem) -> None:
    log_dir = opened(fs)
    fs.make_dir("/disk/logs/orders-0")
    target = log_dir.doom(ORDERS, stray=True)
    assert target.endswith("-stray")
    assert fs.exists(target)
    assert log_dir.listing() == ([], [], [], [])


def test_a_copy_is_no_partition_until_it_is_adopted(fs: MemoryFileSystem) -> None:
    log_dir = opened(fs)
    future = log_dir.future_folder(ORDERS)
    assert future.startswith("/disk/logs/orders-0.")
    assert future.endswith("-future")
    fs.make_dir(future)
    assert log_dir.listing() == ([], [], [future], [])
    log_dir.adopt(ORDERS, future)
    assert fs.crash("flushed", names="flushed").is_dir("/disk/logs/orders-0")
    assert log_dir.listing() == ([ORDERS], [], [], [])


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
