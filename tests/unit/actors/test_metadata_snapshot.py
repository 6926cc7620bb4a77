"""The file of a snapshot: there and back, every damage, every crash, and versions."""

import itertools
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgpack
import pytest

from raylog.actors.errors import NewerRecord
from raylog.actors.metadata_history import EpochStart, HistoryPoint
from raylog.actors.metadata_snapshot import (
    BATCH_BYTES,
    FoundSnapshots,
    MetadataSnapshot,
    SnapshotId,
    check_snapshots,
    from_bytes,
    newest_snapshot,
    read_snapshot,
    remove_newer,
    remove_older,
    snapshot_ids,
    to_bytes,
    write_snapshot,
)
from raylog.storage.errors import CorruptCheckpoint, DiskFull, FileGone, StorageError
from raylog.storage.records.batch import iter_batches
from raylog.storage.records.encode import encode_records
from raylog.storage.testing.clock import T0
from raylog.storage.testing.memory import MemoryFileSystem, Stopped, Survives

FOLDER = "/log"


def snapshot(end: int, *values: bytes, epoch: int = 3) -> MetadataSnapshot:
    point = HistoryPoint(
        cluster_id="c",
        end=end,
        digest=b"8 bytes.",
        epochs=(EpochStart(1, 1), EpochStart(epoch, 40)),
        ruled_from=2,
        copies_at=41,
    )
    return MetadataSnapshot(point=point, next_kafka_id=7, values=values)


OLD, NEW = snapshot(100, b"a", b"b"), snapshot(200, b"c", b"", b"d", epoch=4)


@pytest.fixture
def fs() -> MemoryFileSystem:
    made = MemoryFileSystem()
    made.make_dir(FOLDER)
    made.sync_dir("/")
    return made


def put(fs: MemoryFileSystem, *snapshots: MetadataSnapshot) -> None:
    for entry in snapshots:
        write_snapshot(fs, FOLDER, entry, T0)


@pytest.mark.parametrize(
    "entry",
    [OLD, NEW, snapshot(1), snapshot(3, *[bytes(BATCH_BYTES // 3)] * 10)],
    ids=["small", "other epoch", "empty", "several batches"],
)
def test_a_snapshot_is_the_same_after_the_disk(
    fs: MemoryFileSystem, entry: MetadataSnapshot
) -> None:
    put(fs, entry)
    assert read_snapshot(fs.crash("flushed", names="flushed"), FOLDER, entry.id) == entry


def test_its_name_is_that_of_kafka(fs: MemoryFileSystem) -> None:
    put(fs, NEW)
    assert fs.list_dir(FOLDER) == ["00000000000000000200-0000000004.checkpoint"]


def test_the_newest_is_the_one_with_the_highest_end(fs: MemoryFileSystem) -> None:
    put(fs, NEW, OLD)
    fs.write_file(f"{FOLDER}/00000000000000000300.log", b"")
    fs.write_file(f"{FOLDER}/00000000000000000300-0000000009.checkpoint.tmp", b"")
    assert snapshot_ids(fs.list_dir(FOLDER)) == [SnapshotId(200, 4), SnapshotId(100, 3)]
    assert newest_snapshot(fs, FOLDER) == FoundSnapshots(NEW, proven_end=200)
    assert newest_snapshot(fs, FOLDER, before=NEW.id) == FoundSnapshots(OLD, proven_end=100)
    assert newest_snapshot(fs, FOLDER, before=OLD.id) == FoundSnapshots(None)


def test_a_large_state_is_in_batches_of_limited_size() -> None:
    content = to_bytes(snapshot(3, *[bytes(BATCH_BYTES // 3)] * 10), T0)
    sizes = [header.size_bytes for _, header in iter_batches(content)]
    assert len(sizes) == 4
    assert max(sizes) < BATCH_BYTES * 1.1


def test_any_byte_that_is_changed_and_any_cut_is_noticed() -> None:
    content = to_bytes(NEW, T0)
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1
        # A batch's leader epoch is outside of its CRC, and nobody reads it here.
        with suppress(CorruptCheckpoint):
            assert from_bytes(bytes(damaged), "path") == NEW, place
            assert place in range(12, 16), place
        with pytest.raises(CorruptCheckpoint):
            from_bytes(content[:place], "path")
        with pytest.raises(CorruptCheckpoint):
            from_bytes(content + content[: place + 1], "path")


def test_batches_that_are_missing_or_in_another_order_are_noticed() -> None:
    content = to_bytes(snapshot(3, *[bytes(BATCH_BYTES // 3)] * 10), T0)
    batches = [content[at : at + header.size_bytes] for at, header in iter_batches(content)]
    for order in itertools.chain(
        itertools.combinations(batches, 3), list(itertools.permutations(batches))[1:]
    ):
        with pytest.raises(CorruptCheckpoint):
            from_bytes(b"".join(order), "path")


def test_a_damaged_snapshot_falls_back_to_the_one_before_and_stays(fs: MemoryFileSystem) -> None:
    put(fs, OLD, NEW)
    path = f"{FOLDER}/{NEW.id.file_name}"
    content = fs.read_file(path)[:-1]
    fs.write_file(path, content)
    found = newest_snapshot(fs, FOLDER)
    assert found.newest == OLD
    assert len(found.damaged) == 1
    assert path in found.damaged[0]
    assert found.proven_end == NEW.id.end
    assert fs.read_file(path) == content


def test_one_that_the_disk_cannot_read_is_damaged(fs: MemoryFileSystem) -> None:
    put(fs, OLD, NEW)
    fs.fail_read_at(fs.reads, lambda path: StorageError(path, "I/O error"))
    found = newest_snapshot(fs, FOLDER)
    assert (found.newest, len(found.damaged), found.proven_end) == (OLD, 1, NEW.id.end)


def test_one_with_the_name_of_another_is_damaged(fs: MemoryFileSystem) -> None:
    put(fs, OLD)
    fs.rename(f"{FOLDER}/{OLD.id.file_name}", f"{FOLDER}/{NEW.id.file_name}")
    found = newest_snapshot(fs, FOLDER)
    assert found.newest is None
    assert OLD.id.file_name in found.damaged[0]


def newer(kind: str) -> bytes:
    rows = [(T0, None, msgpack.packb({"kind": kind, "v": 2, "end": 200}), ())]
    return bytes(encode_records(rows))


def test_one_of_a_newer_raylog_is_refused_by_name_and_not_taken_for_damaged(
    fs: MemoryFileSystem,
) -> None:
    put(fs, OLD)
    fs.write_file(f"{FOLDER}/{NEW.id.file_name}", newer("snapshot") + b"whatever follows")
    with pytest.raises(NewerRecord, match="newer raylog wrote a 'snapshot' record of version 2"):
        newest_snapshot(fs, FOLDER)


def test_what_is_no_snapshot_is_damaged() -> None:
    for content in (b"", b"\0" * 100, newer("topic"), newer("snapshot-end")):
        with pytest.raises(CorruptCheckpoint):
            from_bytes(content, "path")


def kafkas() -> bytes:
    """Kafka's snapshots begin with a control record."""
    rows: list[Any] = [(T0, b"\0\0\0\4", b"\0" * 10, ())]
    return bytes(encode_records(rows, control=True) + encode_records(rows))


def test_each_snapshot_is_checked_and_only_damage_is_called_so(fs: MemoryFileSystem) -> None:
    put(fs, OLD, NEW)
    oldest, damaged, of_newer = SnapshotId(1, 1), SnapshotId(150, 3), SnapshotId(300, 5)
    fs.write_file(f"{FOLDER}/{oldest.file_name}", kafkas())
    fs.write_file(f"{FOLDER}/{damaged.file_name}", kafkas()[1:])
    fs.write_file(f"{FOLDER}/{of_newer.file_name}", newer("snapshot") + b"whatever follows")
    checked = check_snapshots(fs, FOLDER)
    assert [entry.id for entry in checked] == [OLD.id, damaged, NEW.id, of_newer]
    assert [bool(entry.damage) for entry in checked] == [False, True, False, False]
    assert [bool(entry.newer) for entry in checked] == [False, False, False, True]
    assert checked[0].size_bytes == len(to_bytes(OLD, T0))
    assert checked[1].told.startswith(f"{damaged.file_name}: its first record batch is damaged")


def test_a_snapshot_of_kafkas_proves_nothing_of_the_log_and_is_never_removed(
    fs: MemoryFileSystem,
) -> None:
    put(fs, OLD, NEW)
    kafkas_path = f"{FOLDER}/{SnapshotId(300, 5).file_name}"
    fs.write_file(kafkas_path, kafkas())
    found = newest_snapshot(fs, FOLDER)
    assert (found.newest, found.proven_end) == (NEW, NEW.id.end)
    remove_newer(fs, FOLDER, OLD.id.end)
    assert snapshot_ids(fs.crash("flushed", names="flushed").list_dir(FOLDER)) == [
        SnapshotId(300, 5),
        OLD.id,
    ]


def test_one_that_the_disk_cannot_read_is_told_by_the_check(fs: MemoryFileSystem) -> None:
    put(fs, OLD, NEW)
    fs.fail_read_at(fs.reads, lambda path: StorageError(path, "I/O error"))
    old, new = check_snapshots(fs, FOLDER)
    assert "I/O error" in old.damage
    assert new.damage == ""


def test_one_that_is_removed_while_it_is_checked_is_no_damage(fs: MemoryFileSystem) -> None:
    put(fs, OLD, NEW)
    fs.fail_read_at(fs.reads, FileGone)
    assert [entry.id for entry in check_snapshots(fs, FOLDER)] == [NEW.id]


LOSSES: list[tuple[Survives, Survives]] = [
    ("all", "all"),
    ("flushed", "flushed"),
    ("torn", "torn"),
    ("flushed", "all"),
    ("all", "flushed"),
]


@pytest.mark.parametrize(("contents", "names"), LOSSES)
def test_a_crash_between_any_two_steps_leaves_the_old_ones_or_the_new_one_whole(
    fs: MemoryFileSystem, contents: Survives, names: Survives
) -> None:
    put(fs, OLD)
    for step in itertools.count(1):
        disk = fs.crash()
        disk.stop_at(disk.operations + step)
        is_whole = False
        with suppress(Stopped):
            put(disk, NEW)
            is_whole = True
        later = disk.crash(contents, names=names, seed=step)
        found = newest_snapshot(later, FOLDER)
        assert found.damaged == ()
        assert found.newest in ((NEW,) if is_whole else (OLD, NEW))
        put(later, NEW)
        assert newest_snapshot(later, FOLDER).newest == NEW
        if is_whole:
            assert step > 3
            return


def test_a_full_disk_leaves_what_was_there(fs: MemoryFileSystem) -> None:
    put(fs, OLD)
    before = fs.list_dir(FOLDER)
    with fs.failing(DiskFull, "append"), pytest.raises(DiskFull):
        put(fs, NEW)
    assert fs.list_dir(FOLDER) == before


def test_older_ones_are_removed_the_oldest_first(fs: MemoryFileSystem) -> None:
    put(fs, replace(OLD, point=OLD.point._replace(end=50)), OLD, NEW)
    fs.stop_at(fs.operations + 1)
    with suppress(Stopped):
        remove_older(fs, FOLDER, NEW.id)
    later = fs.crash()
    assert snapshot_ids(later.list_dir(FOLDER)) == [NEW.id, OLD.id]
    remove_older(later, FOLDER, NEW.id)
    assert snapshot_ids(later.list_dir(FOLDER)) == [NEW.id]
