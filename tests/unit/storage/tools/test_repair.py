"""Repairing a folder by hand: a copy first, only under lock, and never more than was allowed."""

import os

import pytest

from raylog.storage.errors import (
    CorruptCheckpoint,
    DiskFull,
    LogLocked,
    NotAPartitionFolder,
    RepairRefused,
)
from raylog.storage.state.checkpoints import LOG_START_OFFSETS, write_offsets
from raylog.storage.testing.logs import (
    FOLDER,
    PARTITION,
    Disk,
    batch,
    flip,
    of_producer,
    offsets_of,
)
from raylog.storage.tools.repair import Repaired, repair_folder
from raylog.storage.tools.verify import verify_folder

FIRST, SECOND = "00000000000000000000.log", "00000000000000000006.log"


def fill(disk: Disk) -> None:
    """Two segments of three batches with two records each."""
    log = disk.open(index_interval_bytes=60)
    for number in range(6):
        if number == 3:
            log.roll()
        log.append(batch(2), leader_epoch=0)
    log.close()


def files(disk: Disk, folder: str = FOLDER) -> dict[str, bytes]:
    return {name: disk.fs.read_file(f"{folder}/{name}") for name in disk.fs.list_dir(folder)}


def repair(disk: Disk, **options: object) -> Repaired | None:
    return repair_folder(disk.fs, disk.clock, FOLDER, **options)  # type: ignore[arg-type]


def taken(done: Repaired) -> list[tuple[str, str]]:
    """What left the log: how, and from which file."""
    return [(entry.kind, entry.file) for entry in done.mended if entry.kind in ("cut", "set_aside")]


def is_whole(disk: Disk) -> bool:
    return not any(report.problems for report in verify_folder(disk.fs, FOLDER))


def test_where_nothing_is_wrong_nothing_is_changed(disk: Disk) -> None:
    fill(disk)
    before = files(disk)
    assert repair(disk) is None
    assert files(disk) == before
    assert disk.fs.list_dir("/logs") == ["orders-0"], "no copy, and the lock is gone"


def test_a_bad_tail_is_cut_after_a_copy_of_everything(disk: Disk) -> None:
    fill(disk)
    disk.damage(SECOND, flip(len(batch(2)) * 2 + 30))
    before = files(disk)
    copies: list[str] = []
    done = repair(disk, on_copy=copies.append)
    assert done is not None
    assert (done.copy, taken(done), done.end_offset) == (copies[0], [("cut", SECOND)], 10)
    [cut] = done.of_kind("cut")
    assert (cut.size_bytes, cut.kept_as) == (len(batch(2)), SECOND + ".aside-0")
    assert done.lost == ()
    assert files(disk, done.copy) == before
    assert os.path.dirname(done.copy) == "/logs"
    assert os.path.basename(done.copy).startswith("orders-0.")
    assert done.copy.endswith("-stray"), "a name that brokers leave alone"
    assert is_whole(disk)
    assert offsets_of(disk.open()) == list(range(10))


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_damaged_index_is_made_anew_and_no_record_lost(disk: Disk, suffix: str) -> None:
    fill(disk)
    before = disk.read(FIRST.replace(".log", suffix))
    disk.damage(FIRST.replace(".log", suffix), lambda content: content[:-1] + b"\x7f")
    done = repair(disk)
    assert done is not None
    assert (taken(done), done.end_offset) == ([], 12)
    assert is_whole(disk)
    assert before or suffix == ".index"
    assert offsets_of(disk.open()) == list(range(12))


def test_a_snapshot_that_tells_something_else_goes(disk: Disk) -> None:
    log = disk.open()
    for sequence in range(3):
        log.append(of_producer(sequence), leader_epoch=0)
        log.roll()
    log.close()
    first, second, last = disk.names(".snapshot")
    whole = disk.read(last)
    disk.write(first, disk.read(second))
    disk.damage(second, flip(20))
    assert not is_whole(disk)
    assert repair(disk) is not None
    assert disk.names(".snapshot") == [last]
    assert disk.read(last) == whole
    assert is_whole(disk)


def test_segments_behind_a_damaged_one_go_only_if_that_is_allowed(disk: Disk) -> None:
    fill(disk)
    disk.damage(FIRST, lambda content: content[:-1])
    before = files(disk)
    with pytest.raises(
        RepairRefused,
        match=f"{FIRST} is damaged after offset 3, and .* would set aside the 1 segments after it",
    ):
        repair(disk)
    assert files(disk) == before
    assert disk.fs.list_dir("/logs") == ["orders-0"]
    done = repair(disk, drop_segments=True)
    assert done is not None
    assert sorted(taken(done)) == [("cut", FIRST), ("set_aside", SECOND)]
    assert done.end_offset == 4
    assert is_whole(disk)
    assert offsets_of(disk.open()) == [0, 1, 2, 3]


@pytest.mark.parametrize("surplus", [b"\0" * 33, b"torn", bytes(batch(1, base_offset=6))])
def test_bytes_behind_the_batch_that_leads_to_the_next_segment_end_no_log(
    disk: Disk, surplus: bytes
) -> None:
    fill(disk)
    disk.damage(FIRST, lambda content: content + surplus)
    whole = Disk(disk.fs.crash())
    done = repair(disk)
    assert done is not None
    assert taken(done) == [("cut", FIRST)]
    assert [cut.size_bytes for cut in done.of_kind("cut")] == [len(surplus)]
    assert is_whole(disk)
    assert offsets_of(disk.open()) == offsets_of(whole.open(is_clean=False))


def test_gaps_of_a_compacted_log_are_no_damage_to_who_says_so(disk: Disk) -> None:
    """As in a folder of Kafka, whose cleaner has emptied a segment, without its checkpoint."""
    log = disk.open()
    for _ in range(3):
        log.append(batch(2))
        log.roll()
    log.append(batch(2))
    log.append(batch(2))
    log.close()
    for suffix in (".log", ".index", ".timeindex"):
        disk.write(f"{2:020d}{suffix}", b"")
    assert verify_folder(disk.fs, FOLDER)[1].problems
    assert not any(r.problems for r in verify_folder(disk.fs, FOLDER, is_compacted=True))
    disk.damage(f"{6:020d}.log", lambda content: content[:-1])
    with pytest.raises(RepairRefused, match="if the topic is compacted, give --compacted"):
        repair(disk)
    write_offsets(disk.fs, "/logs/recovery-point-offset-checkpoint", {PARTITION: 8})
    done = repair(disk, is_compacted=True)
    assert done is not None
    assert (done.of_kind("set_aside"), done.lost, done.end_offset) == ([], (), 8)
    assert offsets_of(disk.open(cleanup_policy="compact")) == [0, 1, 4, 5, 6, 7]


def test_who_repairs_accepts_that_flushed_records_are_lost(disk: Disk) -> None:
    fill(disk)
    write_offsets(disk.fs, "/logs/recovery-point-offset-checkpoint", {PARTITION: 12})
    disk.damage(FIRST, lambda content: content[:-1])
    done = repair(disk, drop_segments=True)
    assert done is not None
    assert [(lost.first_offset, lost.end_offset) for lost in done.lost] == [(4, 12)]
    log = disk.open(is_clean=False, recovery_point=12)
    assert (log.log_end_offset, log.recovery_point) == (4, 4)
    assert "lost" in [mended.kind for mended in log.mended]


def test_without_the_checkpoint_of_recovery_points_nothing_was_flushed_for_sure(
    disk: Disk,
) -> None:
    """A start sets the damaged file aside, and opens all logs."""
    fill(disk)
    disk.fs.write_file("/logs/recovery-point-offset-checkpoint", b"garbage")
    disk.damage(SECOND, lambda content: content[:-1])
    done = repair(disk)
    assert done is not None
    assert (done.end_offset, done.lost) == (10, ())


def test_a_gap_between_segments_is_damage_too(disk: Disk) -> None:
    fill(disk)
    disk.damage(FIRST, lambda content: content[: len(batch(2)) * 2])
    with pytest.raises(RepairRefused, match=r"or a segment that is gone lacks records after .* 3"):
        repair(disk)
    done = repair(disk, drop_segments=True)
    assert done is not None
    assert (taken(done), done.end_offset) == ([("set_aside", SECOND)], 4)
    assert is_whole(disk)


@pytest.mark.parametrize("path", ["/logs/.lock", FOLDER])
def test_a_folder_that_a_broker_serves_is_left_alone(disk: Disk, path: str) -> None:
    fill(disk)
    disk.damage(SECOND, lambda content: content[:-1])
    before, lock = files(disk), disk.fs.lock(path)
    with pytest.raises(LogLocked):
        repair(disk)
    assert files(disk) == before
    lock.release()
    assert repair(disk) is not None
    disk.fs.lock(path).release()


def test_a_copy_that_does_not_fit_leaves_all_as_it_was(disk: Disk) -> None:
    fill(disk)
    disk.damage(SECOND, lambda content: content[:-1])
    before = files(disk)
    with disk.fs.failing(DiskFull, "append"), pytest.raises(DiskFull):
        repair(disk)
    assert files(disk) == before
    assert disk.fs.list_dir("/logs") == ["orders-0"], "half a copy helps nobody"


def test_the_copy_goes_where_it_is_told_unless_something_is_there(disk: Disk) -> None:
    fill(disk)
    disk.damage(SECOND, lambda content: content[:-1])
    before = files(disk)
    with pytest.raises(RepairRefused, match="already exists"):
        repair(disk, copy_to="/logs")
    for inside in (FOLDER, f"{FOLDER}/copy"):
        with pytest.raises(RepairRefused, match="is inside; give another"):
            repair(disk, copy_to=inside)
    assert files(disk) == before
    done = repair(disk, copy_to="/elsewhere/copy")
    assert done is not None
    assert done.copy == "/elsewhere/copy"
    assert files(disk, "/elsewhere/copy") == before


def test_nothing_is_begun_that_recovery_could_not_end(disk: Disk) -> None:
    fill(disk)
    disk.damage(SECOND, lambda content: content[:30])
    write_offsets(disk.fs, f"/logs/{LOG_START_OFFSETS}", {PARTITION: 8})
    with pytest.raises(RepairRefused, match="ends at offset 6, before the log start offset 8"):
        repair(disk)
    disk.fs.remove(f"/logs/{LOG_START_OFFSETS}")
    identity = disk.read("partition.metadata")
    disk.write("partition.metadata", b"nonsense\n")
    with pytest.raises(CorruptCheckpoint):
        repair(disk)
    disk.write("partition.metadata", identity)
    disk.write(SECOND + ".swap", b"")
    with pytest.raises(RepairRefused, match="a compaction is unfinished"):
        repair(disk)
    assert disk.fs.list_dir("/logs") == ["orders-0"]


@pytest.mark.parametrize("content", [b"nonsense\n", b"0\n2\n0 0\n3 8\n"])
def test_leader_epochs_that_are_wrong_are_made_anew_from_the_batches(
    disk: Disk, content: bytes
) -> None:
    fill(disk)
    disk.write("leader-epoch-checkpoint", content)
    assert not is_whole(disk)
    done = repair(disk)
    assert done is not None
    assert (taken(done), done.end_offset) == ([], 12)
    assert disk.fs.read_file(f"{done.copy}/leader-epoch-checkpoint") == content
    assert is_whole(disk)
    assert offsets_of(disk.open()) == list(range(12))


def test_the_log_start_offset_stays(disk: Disk) -> None:
    fill(disk)
    disk.write("leader-epoch-checkpoint", b"0\n1\n0 0\n")
    write_offsets(disk.fs, f"/logs/{LOG_START_OFFSETS}", {PARTITION: 8})
    disk.damage(SECOND, lambda content: content[:-1])
    assert repair(disk) is not None
    assert disk.read("leader-epoch-checkpoint") == b"0\n1\n0 8\n"
    assert offsets_of(disk.open(log_start_offset=8)) == [8, 9]


def test_only_a_partitions_folder_is_repaired(disk: Disk) -> None:
    disk.fs.write_file("/logs/file-0", b"")
    disk.fs.make_dir("/logs/empty-0")
    for folder, why in (
        ("/logs", "its name is not <topic>-<partition>"),
        ("/logs/none-0", "the folder does not exist"),
        ("/logs/file-0", "this is a file"),
        ("/logs/empty-0", "it has no .log file"),
    ):
        with pytest.raises(NotAPartitionFolder, match=why):
            repair_folder(disk.fs, disk.clock, folder)
