"""The Controller's log with snapshots: what it is opened from, what it removes, and every crash."""

import itertools
from contextlib import suppress

import pytest

from raylog.actors.errors import MetadataUnreadable, NewerRecord, UnsupportedLevel
from raylog.actors.levels import CHAINED_LEVEL, Levels
from raylog.actors.metadata_history import MetadataHistory
from raylog.actors.metadata_snapshot import MetadataSnapshot, snapshot_ids
from raylog.cluster.controller.metadata_log import MetadataLog
from raylog.cluster.controller.records import ControllerRecord, Record, TopicRecord, encode
from raylog.cluster.controller.snapshots import snapshot_of
from raylog.storage.errors import CorruptCheckpoint, DiskFull, LogMissing, RaylogError, StorageError
from raylog.storage.names import LOG_SUFFIX, base_offsets, segment_file
from raylog.storage.state.properties import random_id
from raylog.storage.testing.clock import ManualClock
from raylog.storage.testing.memory import MemoryFileSystem, Stopped, Survives

FOLDER = "/disk/log/__cluster_metadata-0"
CLUSTER = random_id()
NEW = Levels(1, CHAINED_LEVEL)


class Writer:
    """A Controller that writes, and makes snapshots; another one may go on after it."""

    def __init__(self, fs: MemoryFileSystem, *, is_new: bool = False) -> None:
        cluster = CLUSTER if is_new else ""
        self.log = MetadataLog(fs, ManualClock(), "/disk/log", new_cluster=cluster, levels=NEW)
        self.desired, self.history = self.log.desired, self.log.history()

    def write(self, *records: Record) -> None:
        self.log.append(records)
        for record in records:
            self.desired.apply(record)
            self.history.add(encode(record))

    def write_topics(self, *versions: int) -> None:
        for version in versions:
            self.write(TopicRecord(name="t", topic_id="id", config={}, version=version))

    def snapshot(self) -> MetadataSnapshot:
        return snapshot_of(self.desired, self.history.point())

    def save(self) -> MetadataSnapshot:
        made = self.snapshot()
        self.log.save(made)
        return made


@pytest.fixture
def fs() -> MemoryFileSystem:
    made = MemoryFileSystem()
    made.make_dir("/disk")
    made.sync_dir("/")
    return made


def segments(fs: MemoryFileSystem) -> list[int]:
    return base_offsets(fs.list_dir(FOLDER))


def snapshots(fs: MemoryFileSystem) -> list[int]:
    return [which.end for which in snapshot_ids(fs.list_dir(FOLDER))]


def damage(fs: MemoryFileSystem, which: MetadataSnapshot) -> None:
    path = f"{FOLDER}/{which.id.file_name}"
    content = bytearray(fs.read_file(path))
    content[len(content) // 2] ^= 1
    fs.write_file(path, content)


def is_read_back(fs: MemoryFileSystem, before: Writer) -> None:
    """Whoever opens it has what the one before had, and goes on from there."""
    again = Writer(fs)
    assert again.desired.topics == before.desired.topics
    assert again.desired.controller == before.desired.controller
    assert again.desired.next_kafka_id == before.desired.next_kafka_id
    assert again.log.end == before.history.end
    assert again.history.point() == before.history.point()
    again.write_topics(1000)
    again.log.close()


def test_it_is_opened_from_the_snapshot_and_the_records_behind(fs: MemoryFileSystem) -> None:
    writer = Writer(fs, is_new=True)
    writer.write(ControllerRecord(epoch=1, node="a", directory="d"))
    writer.write_topics(1, 2)
    writer.save()
    writer.write_topics(3)
    writer.log.close()
    is_read_back(fs, writer)


def test_the_log_begins_where_the_older_of_two_snapshots_ends(fs: MemoryFileSystem) -> None:
    writer = Writer(fs, is_new=True)
    ends = []
    for version in range(5):
        writer.write_topics(version)
        ends.append(writer.save().point.end)
        assert snapshots(fs) == ends[::-1][:2]
        assert segments(fs) == ([0, *ends] if version == 0 else ends[-2:])
    writer.log.close()
    is_read_back(fs, writer)


def test_its_files_do_not_grow_with_its_history(fs: MemoryFileSystem) -> None:
    writer = Writer(fs, is_new=True)
    names, sizes = [], []
    for _ in range(20):
        writer.write_topics(*range(1 << 40, (1 << 40) + 50))
        writer.save()
        kept = [name for name in fs.list_dir(FOLDER) if not name.endswith(".deleted")]
        names.append(len(kept))
        logs = [name for name in kept if name.endswith(LOG_SUFFIX)]
        sizes.append(sum(len(fs.read_file(f"{FOLDER}/{name}")) for name in logs))
    assert len(set(names[2:])) == len(set(sizes[2:])) == 1


def test_a_damaged_snapshot_falls_back_to_the_one_before_and_stays(fs: MemoryFileSystem) -> None:
    writer = Writer(fs, is_new=True)
    for version in range(3):
        writer.write_topics(version)
        newest = writer.save()
    writer.write_topics(7)
    writer.log.close()
    damage(fs, newest)
    is_read_back(fs, writer)
    assert newest.point.end in snapshots(fs)


def test_a_snapshot_that_is_damaged_while_the_log_is_open_is_not_handed_out(
    fs: MemoryFileSystem,
) -> None:
    writer = Writer(fs, is_new=True)
    writer.write_topics(1)
    newest = writer.save()
    assert writer.log.snapshot_file(newest.point)
    damage(fs, newest)
    with pytest.raises(CorruptCheckpoint, match=f"{FOLDER}/{newest.id.file_name}"):
        writer.log.snapshot_file(newest.point)
    writer.log.save(writer.snapshot())
    assert writer.log.snapshot_file(newest.point), "of no more records: the file is made anew"
    writer.log.close()
    is_read_back(fs, writer)


def test_a_damaged_snapshot_falls_back_to_the_log_that_has_all_records(
    fs: MemoryFileSystem,
) -> None:
    writer = Writer(fs, is_new=True)
    writer.write_topics(1)
    only = writer.save()
    writer.write_topics(2)
    writer.log.close()
    damage(fs, only)
    is_read_back(fs, writer)


def test_without_a_snapshot_that_reaches_the_log_nothing_is_begun(fs: MemoryFileSystem) -> None:
    writer = Writer(fs, is_new=True)
    made = []
    for version in range(3):
        writer.write_topics(version)
        made.append(writer.save())
    writer.log.close()
    damage(fs, made[1])
    damage(fs, made[2])
    before = {name: fs.read_file(f"{FOLDER}/{name}") for name in fs.list_dir(FOLDER)}
    with pytest.raises(MetadataUnreadable, match="in no snapshot that can be read"):
        Writer(fs)
    assert {name: fs.read_file(f"{FOLDER}/{name}") for name in fs.list_dir(FOLDER)} == before
    Writer(fs, is_new=True).log.close()
    assert [name for name in fs.list_dir("/disk/log") if name.endswith("-stray")]


@pytest.mark.parametrize("is_damaged", [False, True])
@pytest.mark.parametrize("saves", [1, 3])
def test_a_log_that_ends_before_its_newest_snapshot_has_lost_records(
    fs: MemoryFileSystem, saves: int, *, is_damaged: bool
) -> None:
    """A damaged one, too: its name says how many records were on the disk."""
    writer = Writer(fs, is_new=True)
    for version in range(saves):
        writer.write_topics(version)
        made = writer.save()
    writer.log.close()
    last = segments(fs)[-1]
    fs.remove(f"{FOLDER}/{segment_file(last, LOG_SUFFIX)}")
    path = f"{FOLDER}/{segment_file(segments(fs)[-1], LOG_SUFFIX)}"
    fs.write_file(path, fs.read_file(path)[:-1])
    if is_damaged:
        damage(fs, made)
    before = {name: fs.read_file(f"{FOLDER}/{name}") for name in fs.list_dir(FOLDER)}
    with pytest.raises(
        MetadataUnreadable, match=f"its snapshot is of {made.point.end} records"
    ) as refused:
        Writer(fs)
    assert (made.id.file_name in str(refused.value)) == is_damaged
    assert {name: fs.read_file(f"{FOLDER}/{name}") for name in fs.list_dir(FOLDER)} == before


def test_an_older_raylog_refuses_the_snapshot_by_its_level(fs: MemoryFileSystem) -> None:
    writer = Writer(fs, is_new=True)
    for version in range(2):
        writer.write_topics(version)
        writer.save()
    writer.log.close()
    with pytest.raises(UnsupportedLevel):
        MetadataLog(fs, ManualClock(), "/disk/log", levels=Levels(1, 1))


def test_a_snapshot_of_a_newer_raylog_is_refused_by_name(
    fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(fs, is_new=True)
    writer.write_topics(1)
    with monkeypatch.context() as newer:
        newer.setattr("raylog.actors.metadata_snapshot.VERSION", 2)
        writer.save()
    writer.log.close()
    with pytest.raises(NewerRecord, match="a newer raylog wrote a 'snapshot' record"):
        Writer(fs)


def test_records_that_a_person_took_out_are_numbered_anew_behind_the_snapshot(
    fs: MemoryFileSystem,
) -> None:
    writer = Writer(fs, is_new=True)
    for version in range(3):
        writer.write_topics(version)
        newest = writer.save()
    writer.write_topics(7, 8, 9)
    writer.log.close()
    path = f"{FOLDER}/{segment_file(segments(fs)[-1], LOG_SUFFIX)}"
    content = fs.read_file(path)
    third = len(content) // 3
    fs.write_file(path, content[:third] + content[2 * third :])
    for _ in range(2):
        again = Writer(fs)
        assert again.desired.topics["id"].version == 9
        assert again.log.end == newest.point.end + 2
        again.log.close()


LOSSES: list[tuple[Survives, Survives]] = [
    ("all", "all"),
    ("flushed", "flushed"),
    ("torn", "torn"),
    ("flushed", "all"),
    ("all", "flushed"),
]


@pytest.mark.parametrize(("contents", "names"), LOSSES)
def test_a_crash_between_any_two_steps_loses_nothing(
    fs: MemoryFileSystem, contents: Survives, names: Survives
) -> None:
    writer = Writer(fs, is_new=True)
    writer.write(ControllerRecord(epoch=1, node="a", directory="d"))
    for version in range(2):
        writer.write_topics(version)
        writer.save()
    writer.write_topics(2)
    writer.log.close()
    for step in itertools.count():
        disk = fs.crash()
        going_on = Writer(disk)
        disk.stop_at(disk.operations + step)
        is_whole = False
        with suppress(Stopped):
            going_on.save()
            is_whole = True
        for seed in range(3):
            later = disk.crash(contents, names=names, seed=100 * step + seed)
            is_read_back(later, writer)
            once_more = Writer(later)
            once_more.save()
            once_more.log.close()
            assert len(segments(later)) <= 3
        if is_whole:
            assert step > 10
            return


@pytest.mark.parametrize("fault", [DiskFull, lambda path: StorageError(path, "I/O error")])
def test_whichever_step_fails_nothing_is_lost(fs: MemoryFileSystem, fault: type[DiskFull]) -> None:
    writer = Writer(fs, is_new=True)
    for version in range(2):
        writer.write_topics(version)
        writer.save()
    writer.write_topics(2)
    writer.log.close()
    for step in itertools.count():
        disk = fs.crash()
        going_on = Writer(disk)
        disk.fail_at(disk.operations + step, fault)
        try:
            going_on.save()
        except RaylogError:
            with suppress(RaylogError):  # after an I/O error it may have to be read back first
                going_on.write_topics(3)
            with suppress(RaylogError):
                going_on.log.close()
            if going_on.desired.topics["id"].version == 3:
                again = Writer(disk.crash("flushed", names="flushed"))
                assert again.desired.topics == going_on.desired.topics
                again.log.close()
            else:
                is_read_back(disk.crash("flushed", names="flushed"), writer)
            continue
        assert step > 10
        return


def test_a_log_that_is_gone_beside_its_snapshot_is_missing(fs: MemoryFileSystem) -> None:
    writer = Writer(fs, is_new=True)
    writer.write_topics(1)
    writer.save()
    writer.log.close()
    for base in segments(fs):
        fs.remove(f"{FOLDER}/{segment_file(base, LOG_SUFFIX)}")
    with pytest.raises(LogMissing):
        Writer(fs)


def test_a_history_from_the_snapshot_is_that_of_all_records(fs: MemoryFileSystem) -> None:
    writer = Writer(fs, is_new=True)
    writer.write_topics(1, 2)
    whole = MetadataHistory(writer.log.values())
    writer.save()
    writer.log.close()
    assert Writer(fs).history.point() == whole.point()
