"""The Controller's log: what it replays, and that it does not go on after a failed fsync."""

import itertools
from contextlib import suppress
from typing import Any

import pytest

from raylog.actors.control import LogId
from raylog.actors.errors import UnsupportedLevel
from raylog.actors.levels import Levels
from raylog.cluster.controller.copies import choose
from raylog.cluster.controller.metadata_log import MetadataLog
from raylog.cluster.controller.records import (
    LevelRecord,
    PartitionRecord,
    PartitionRemovedRecord,
    ProducerIdsRecord,
    Record,
    TopicRecord,
    TopicRemovedRecord,
    encode,
)
from raylog.cluster.controller.reserve import METADATA_RESERVE, PIECE_BYTES, RESERVE_BYTES
from raylog.cluster.controller.surveying import Surveyor
from raylog.storage.buffers import Buffer
from raylog.storage.config import LogConfig
from raylog.storage.errors import (
    DiskFull,
    LogLocked,
    LogMissing,
    RaylogError,
    StorageError,
    UndoFailed,
)
from raylog.storage.loader import create_log, open_log
from raylog.storage.log_dir import METADATA_PARTITION
from raylog.storage.names import LOG_SUFFIX, TopicPartition, segment_file
from raylog.storage.records.batch import read_header
from raylog.storage.records.encode import encode_records
from raylog.storage.state.properties import MetaProperties, random_id, write_meta
from raylog.storage.testing.clock import T0, ManualClock
from raylog.storage.testing.memory import MemoryFile, MemoryFileSystem, Stopped, Survives
from raylog.storage.wire import RELEASE
from tests.harness.old_metadata import (
    old_cluster,
    old_producer_ids,
    old_topic,
    old_topic_removed,
)

TOPIC = TopicRecord(name="t", topic_id="id", config={"retention.ms": -1}, version=3)
PARTITION = PartitionRecord(
    log=LogId(partition=TopicPartition("t", 0), topic_id="id"), state="creating", node="a"
)
FOLDER = "/disk/log/__cluster_metadata-0"
RESERVE = f"/disk/log/{METADATA_RESERVE}"
CLUSTER = random_id()


def ids(next_id: int) -> Record:
    return ProducerIdsRecord(epoch=1, next_id=next_id)


def broken(path: str) -> StorageError:
    return StorageError(path, "I/O error")


def torn(path: str) -> StorageError:
    return UndoFailed(path, "the disk is gone")


def opened(fs: MemoryFileSystem) -> MetadataLog:
    return MetadataLog(fs, ManualClock(), "/disk/log", new_cluster=CLUSTER)


@pytest.fixture
def fs() -> MemoryFileSystem:
    made = MemoryFileSystem()
    made.make_dir("/disk")
    return made


def test_what_was_appended_is_what_shall_be_after_any_reopening(fs: MemoryFileSystem) -> None:
    log = opened(fs)
    assert log.desired.cluster_id == CLUSTER
    gone = TopicRecord(name="gone", topic_id="id-2", config={})
    log.append([TOPIC, PARTITION, gone])
    log.append([TopicRemovedRecord(topic_id="id-2"), ids(1000)])
    log.close()
    desired = MetadataLog(fs, ManualClock(), "/disk/log").desired
    assert (desired.cluster_id, desired.topics) == (CLUSTER, {"id": TOPIC})
    assert list(desired.partitions.values()) == [PARTITION]
    assert desired.next_producer_id == 1000


def without_cluster(fs: MemoryFileSystem) -> None:
    """Metadata whose first batch was damaged, and taken out by a person."""
    create_log(fs, FOLDER, random_id())
    log = open_log(fs, ManualClock(), FOLDER, METADATA_PARTITION, LogConfig(retention_ms=-1))
    log.epochs.assign(log.epochs.next, 0)
    log.append(encode_records([(T0, None, encode(TOPIC), ())]))
    log.close()


def test_metadata_that_has_lost_its_first_record_stays_that_of_its_log_dirs(
    fs: MemoryFileSystem,
) -> None:
    fs.make_dir("/disk/log")
    without_cluster(fs)
    write_meta(fs, "/disk/log", MetaProperties(CLUSTER, 1, random_id()))
    (found,) = Surveyor(fs).survey("n", ["/disk/log"])
    assert found.copy is not None
    assert (found.copy.cluster_id, found.copy.topics) == (CLUSTER, 1)
    log = MetadataLog(fs, ManualClock(), "/disk/log")
    log.close()
    desired = MetadataLog(fs, ManualClock(), "/disk/log").desired
    assert (desired.cluster_id, desired.topics) == (CLUSTER, {"id": TOPIC})


def test_records_are_numbered_anew_where_damaged_ones_were_taken_out(fs: MemoryFileSystem) -> None:
    """The copies of other nodes take an offset for how many records come before."""
    fs.make_dir("/disk/log")
    without_cluster(fs)
    write_meta(fs, "/disk/log", MetaProperties(CLUSTER, 1, random_id()))
    behind_a_gap = encode_records([(T0, None, encode(ids(7)), ())], base_offset=5)
    file = fs.open(f"{FOLDER}/{segment_file(0, LOG_SUFFIX)}")
    file.append([behind_a_gap])
    file.close()
    for _ in range(2):
        log = MetadataLog(fs, ManualClock(), "/disk/log")
        assert (log.desired.topics, log.desired.next_producer_id) == ({"id": TOPIC}, 7)
        assert [read_header(batch).base_offset for batch in log.batches(0, 9, 1 << 20)] == [0, 1, 2]
        log.close()
    kept = [name for name in fs.list_dir("/disk/log") if name.endswith("-stray")]
    assert len(kept) == 1


def test_a_new_cluster_may_begin_where_damaged_metadata_lies_and_keeps_it(
    fs: MemoryFileSystem,
) -> None:
    log = opened(fs)
    log.append([TOPIC])
    log.close()
    segment = fs.open(f"{FOLDER}/{segment_file(0, LOG_SUFFIX)}")
    content = bytearray(segment.view())
    content[70] ^= 1  # in the first batch
    segment.truncate(0)
    segment.append([bytes(content)])
    segment.flush()
    segment.close()
    with pytest.raises(LogMissing, match="damaged at byte"):
        MetadataLog(fs, ManualClock(), "/disk/log")
    other = random_id()
    begun = MetadataLog(fs, ManualClock(), "/disk/log", new_cluster=other)
    assert (begun.desired.cluster_id, begun.desired.topics) == (other, {})
    (kept,) = [name for name in fs.list_dir("/disk/log") if name.endswith("-stray")]
    assert fs.read_file(f"/disk/log/{kept}/{segment_file(0, LOG_SUFFIX)}") == bytes(content)


def test_metadata_of_which_nobody_knows_the_cluster_is_left_alone(fs: MemoryFileSystem) -> None:
    fs.make_dir("/disk/log")
    without_cluster(fs)
    (before,) = Surveyor(fs).survey("n", ["/disk/log"])
    with pytest.raises(LogMissing, match="`raylog log-dirs identify`"):
        MetadataLog(fs, ManualClock(), "/disk/log")
    assert Surveyor(fs).survey("n", ["/disk/log"]) == [before]


LOSSES: list[tuple[Survives, Survives]] = [
    ("all", "all"),
    ("flushed", "flushed"),
    ("torn", "torn"),
    ("flushed", "all"),
]


@pytest.mark.parametrize(("contents", "names"), LOSSES)
def test_a_first_start_that_ends_anywhere_is_harmless_to_the_next(
    contents: Survives, names: Survives
) -> None:
    for operation in itertools.count():
        fs = MemoryFileSystem()
        fs.make_dir("/disk")
        fs.sync_dir("/")
        fs.stop_at(fs.operations + operation)
        is_whole = False
        with suppress(Stopped):
            opened(fs)
            is_whole = True
        later = fs.crash(contents, names=names, seed=operation)
        home = choose(Surveyor(later).survey("n", ["/disk/log"]), "n", new_id=CLUSTER)
        log = MetadataLog(later, ManualClock(), home.log_dir, new_cluster=home.new_cluster)
        assert log.desired.cluster_id == CLUSTER
        log.close()
        if is_whole:
            assert not home.new_cluster
            assert operation > 10
            return


def test_a_first_start_on_a_full_disk_leaves_nothing_behind() -> None:
    for operation in itertools.count():
        fs = MemoryFileSystem()
        fs.make_dir("/disk/log")
        fs.fail_at(fs.operations + operation, DiskFull)
        try:
            opened(fs)
        except DiskFull:
            assert fs.list_dir("/disk/log") in ([], [str(METADATA_PARTITION)])
            opened(fs.crash())
            continue
        return


def test_the_log_of_the_raylog_before_is_read_and_gone_on_with(fs: MemoryFileSystem) -> None:
    written(
        fs,
        old_cluster(CLUSTER),
        old_topic("t", "id-t", "dir-a", "dir-b", config={"retention.ms": 5}, version=2),
        old_topic("gone", "id-g", "dir-a", version=None),
        old_topic_removed("gone"),
        old_producer_ids(3000),
    )
    log = MetadataLog(fs, ManualClock(), "/disk/log")
    log.append([TopicRecord(name="new", topic_id="id-n", config={})])
    log.close()
    desired = MetadataLog(fs, ManualClock(), "/disk/log").desired
    desired.validate()
    assert [topic.name for topic in desired.topics.values()] == ["t", "new"]
    assert desired.cluster_id == CLUSTER
    assert desired.topics["id-t"] == TopicRecord(
        name="t", topic_id="id-t", config={"retention.ms": 5}, version=2
    )
    places = [(entry.state, entry.directory) for entry in desired.partitions.values()]
    assert places == [("online", "dir-a"), ("online", "dir-b")]
    assert desired.next_producer_id == 3000


def written(fs: MemoryFileSystem, *values: bytes) -> None:
    """A log with these records."""
    fs.make_dir("/disk/log")
    create_log(fs, FOLDER, random_id())
    log = open_log(fs, ManualClock(), FOLDER, METADATA_PARTITION, LogConfig(retention_ms=-1))
    log.epochs.assign(0, 0)
    for value in values:
        rows: list[Any] = [(0, None, value, ())]
        log.append(encode_records(rows))
    log.close()


SEGMENT = f"{FOLDER}/{segment_file(0, LOG_SUFFIX)}"


def test_a_record_that_is_damaged_in_the_middle_is_not_taken_for_the_end(
    fs: MemoryFileSystem,
) -> None:
    log = opened(fs)
    log.append([TOPIC])
    damaged_at = len(fs.read_file(SEGMENT)) - 1
    log.append([PARTITION])
    log.close()
    content = bytearray(fs.read_file(SEGMENT))
    content[damaged_at] ^= 1
    fs.write_file(SEGMENT, content)
    with pytest.raises(LogMissing, match="is damaged at byte"):
        MetadataLog(fs, ManualClock(), "/disk/log")
    assert fs.read_file(SEGMENT) == content, "nothing is cut off"
    content[damaged_at] ^= 1
    fs.write_file(SEGMENT, content)
    assert PARTITION.log in MetadataLog(fs, ManualClock(), "/disk/log").desired.partitions


def test_an_append_that_a_crash_cut_off_is_the_end(fs: MemoryFileSystem) -> None:
    log = opened(fs)
    log.append([TOPIC])
    whole = fs.read_file(SEGMENT)
    log.append([PARTITION])
    log.close()
    for size_bytes in range(len(whole), len(fs.read_file(SEGMENT))):
        disk = fs.crash()
        disk.write_file(SEGMENT, fs.read_file(SEGMENT)[:size_bytes])
        desired = MetadataLog(disk, ManualClock(), "/disk/log").desired
        assert (list(desired.topics), list(desired.partitions)) == (["id"], []), size_bytes


def test_metadata_without_its_first_records_is_refused(fs: MemoryFileSystem) -> None:
    opened(fs).close()
    fs.rename(SEGMENT, f"{FOLDER}/{segment_file(1, LOG_SUFFIX)}")
    with pytest.raises(LogMissing, match="offset 0"):
        MetadataLog(fs, ManualClock(), "/disk/log")


def test_after_a_failed_fsync_nothing_is_retried_until_the_log_is_read_back(
    fs: MemoryFileSystem,
) -> None:
    log = opened(fs)
    failing = fs.failing(broken, "flush", FOLDER)
    with failing, pytest.raises(StorageError):
        log.append([TOPIC])
    with pytest.raises(StorageError, match="I/O error"):
        log.append([ids(1000)])
    log.close()
    again = opened(fs)
    assert again.desired.topics == {}, "the page cache's copy does not count"
    again.append([ids(2000)])


def test_nothing_is_begun_where_a_log_must_be(fs: MemoryFileSystem) -> None:
    with pytest.raises(LogMissing):
        MetadataLog(fs, ManualClock(), "/disk/log")
    assert not fs.exists("/disk/log")
    opened(fs).close()
    MetadataLog(fs, ManualClock(), "/disk/log").close()


def test_a_new_cluster_never_has_an_epoch_that_is_lower_than_its_log_dirs(
    fs: MemoryFileSystem,
) -> None:
    """Wherever a crash cuts its beginning off: there is no record, or the epoch is there."""

    def begun(disk: MemoryFileSystem) -> MetadataLog:
        return MetadataLog(disk, ManualClock(), "/disk/log", new_cluster=CLUSTER, least_epoch=7)

    assert begun(fs).desired.controller_epoch == 7
    whole = fs.read_file(SEGMENT)
    for size_bytes in range(len(whole) + 1):
        disk = fs.crash()
        disk.write_file(SEGMENT, whole[:size_bytes])
        (found,) = Surveyor(disk).survey("n", ["/disk/log"])
        assert found.copy is not None
        is_begun = found.copy.end > 0
        assert found.copy.controller_epoch == (7 if is_begun else 0), size_bytes
        again = MetadataLog(disk, ManualClock(), "/disk/log") if is_begun else begun(disk)
        assert (again.desired.cluster_id, again.desired.controller_epoch) == (CLUSTER, 7)
        again.close()


def test_a_first_cluster_begins_without_an_epoch(fs: MemoryFileSystem) -> None:
    opened(fs).close()
    (found,) = Surveyor(fs).survey("n", ["/disk/log"])
    assert found.copy is not None
    assert (found.copy.end, found.copy.controller_epoch) == (2, 0)


def test_where_the_metadata_is_missing_it_is_said_whose_it_is(fs: MemoryFileSystem) -> None:
    fs.make_dir("/disk/log")
    write_meta(fs, "/disk/log", MetaProperties(CLUSTER, 1, random_id()))
    with pytest.raises(LogMissing, match=CLUSTER):
        MetadataLog(fs, ManualClock(), "/disk/log")
    assert fs.list_dir("/disk/log") == ["meta.properties"]


def test_two_do_not_write_it_and_one_that_cannot_be_opened_is_unlocked(
    fs: MemoryFileSystem,
) -> None:
    log = opened(fs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("raylog.actors.partition.locking.LOCK_PATIENCE_S", 0.0)
        with pytest.raises(LogLocked):
            opened(fs)
    log.close()
    with fs.failing(broken), pytest.raises(StorageError):
        opened(fs)
    opened(fs).close()


def test_it_opens_on_a_full_disk_and_is_written_when_there_is_room(fs: MemoryFileSystem) -> None:
    log = opened(fs)
    log.append([TOPIC])
    log.close()
    with fs.failing(DiskFull, "append"):
        again = opened(fs)
        assert again.desired.topics == {"id": TOPIC}
        for _ in range(2):
            with pytest.raises(DiskFull):
                again.append([ids(1000)])
    again.append([ids(2000)])
    again.close()
    assert opened(fs).desired.next_producer_id == 2000


def filled(fs: MemoryFileSystem) -> None:
    """Another program takes all the room that is left."""
    fs.size_bytes = 64 << 20
    taken(fs, "/disk/ballast")


def taken(fs: MemoryFileSystem, path: str) -> None:
    """A file takes all the room that there is."""
    fs.write_file(path, bytes(fs.room("/disk").usable_bytes))
    fs.sync_dir("/disk")


class CountedFiles(MemoryFileSystem):
    """Knows which files are open, but for those that are written whole."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[MemoryFile] = []

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        self.files.append(super().open(path, create=create))
        return self.files[-1]

    def write_file(self, path: str, content: Buffer, *, flush: bool = True) -> None:
        count = len(self.files)
        try:
            super().write_file(path, content, flush=flush)
        finally:
            del self.files[count:]

    @property
    def left_open(self) -> list[str]:
        return [file.path for file in self.files if is_open(file)]


def is_open(file: MemoryFile) -> bool:
    try:
        file.read(1, 0)
    except RaylogError:
        return False
    return True


@pytest.mark.parametrize("verb", ["append", "flush"])
def test_after_a_failed_write_its_end_closes_every_file_and_writes_nothing(verb: str) -> None:
    fs = CountedFiles()
    fs.make_dir("/disk")
    log = opened(fs)
    log.append([TOPIC])
    with fs.failing(broken, verb, FOLDER), pytest.raises(StorageError):
        log.append([PARTITION])
    assert fs.left_open
    before = fs.read_file(SEGMENT)
    log.close()
    assert fs.left_open == []
    assert fs.read_file(SEGMENT) == before


@pytest.mark.parametrize("verb", ["append", "flush", ""])
def test_one_that_cannot_begin_or_end_leaves_no_file_open(verb: str) -> None:
    fs = CountedFiles()
    fs.make_dir("/disk/log")
    create_log(fs, FOLDER, random_id())
    with fs.failing(broken, verb, FOLDER), pytest.raises(StorageError):
        opened(fs)
    assert fs.left_open == []
    log = opened(fs)
    log.append([TOPIC])
    with fs.failing(broken, "", FOLDER), pytest.raises(StorageError):
        log.close()
    assert fs.left_open == []
    opened(fs).close()
    assert fs.left_open == []


def test_on_a_full_disk_a_record_that_may_uses_the_reserve_and_others_do_not(
    fs: MemoryFileSystem,
) -> None:
    log = opened(fs)
    log.make_reserve()
    filled(fs)
    with pytest.raises(DiskFull):
        log.append([TOPIC])
    assert isinstance(log.append([ids(1000)], may_use_reserve=True), DiskFull)
    assert len(fs.read_file(RESERVE)) == RESERVE_BYTES - PIECE_BYTES
    log.append([ids(2000)], may_use_reserve=True)


def test_on_a_disk_that_stays_full_lives_go_on_while_there_are_pieces(
    fs: MemoryFileSystem,
) -> None:
    """Whoever else writes takes what is free, and the process is killed each time."""
    log = opened(fs)
    log.make_reserve()
    filled(fs)
    fs.sync_dir("/")
    for number in range(RESERVE_BYTES // PIECE_BYTES):
        taken(fs, f"/disk/before-{number}")
        assert log.append([ids(number)], may_use_reserve=True) is not None
        taken(fs, f"/disk/after-{number}")
        fs = fs.crash("flushed", names="flushed")
        log = MetadataLog(fs, ManualClock(), "/disk/log")
        assert log.desired.next_producer_id == number
    taken(fs, "/disk/all")
    with pytest.raises(DiskFull):
        log.append([ids(1000)], may_use_reserve=True)


def test_the_deletion_of_the_largest_topic_fits_in_the_reserve(fs: MemoryFileSystem) -> None:
    log = opened(fs)
    log.make_reserve()
    filled(fs)
    logs = [
        LogId(partition=TopicPartition("n" * 100, number), topic_id="i" * 22)
        for number in range(10_000)
    ]
    removing = [
        PartitionRecord(
            log=each, state="removing", node="f" * 56, directory="d" * 22, kafka_id=1, port=9092
        )
        for each in logs
    ]
    log.append([*removing, TopicRemovedRecord(topic_id="i" * 22)], may_use_reserve=True)
    for first in range(0, 10_000, 100):
        log.append(
            [PartitionRemovedRecord(log=each) for each in logs[first : first + 100]],
            may_use_reserve=True,
        )
    assert fs.exists(RESERVE)
    log.close()
    assert opened(fs).desired.partitions == {}


def test_a_piece_of_the_reserve_is_given_up_for_an_orderly_stop_where_the_disk_is_full(
    fs: MemoryFileSystem,
) -> None:
    log = opened(fs)
    log.make_reserve()
    log.make_room()
    filled(fs)
    assert fs.room("/disk").usable_bytes == 0
    log.make_room()
    assert fs.room("/disk").usable_bytes == PIECE_BYTES


def test_after_a_write_that_could_not_be_undone_nothing_is_written_behind_it(
    fs: MemoryFileSystem,
) -> None:
    log = opened(fs)
    failing = fs.failing(torn, "append", FOLDER)
    with failing, pytest.raises(UndoFailed):
        log.append([TOPIC])
    with pytest.raises(UndoFailed):
        log.append([ids(1000)])
    log.close()
    assert opened(fs).desired.topics == {}


def test_a_shortage_that_has_left_records_behind_is_no_shortage_any_more(
    fs: MemoryFileSystem,
) -> None:
    """As one it would say that nothing was written, and that it may be tried again."""
    log = opened(fs)
    with fs.failing(DiskFull, "flush", FOLDER), pytest.raises(StorageError) as raised:
        log.append([TOPIC])
    assert not isinstance(raised.value, DiskFull)
    with pytest.raises(StorageError):
        log.append([ids(1000)])
    log.close()


# -- the level of the cluster ----------------------------------------------------------------------

OLD, NEW, NEWEST = Levels(1, 1), Levels(1, 2), Levels(2, 3)


def of_release(fs: MemoryFileSystem, levels: Levels) -> MetadataLog:
    """Opened by a release that knows these levels."""
    return MetadataLog(fs, ManualClock(), "/disk/log", new_cluster=CLUSTER, levels=levels)


def level_of(fs: MemoryFileSystem, levels: Levels) -> int:
    log = of_release(fs, levels)
    log.close()
    return log.desired.level


def test_a_new_cluster_begins_at_the_newest_level(fs: MemoryFileSystem) -> None:
    assert level_of(fs, NEWEST) == 3
    assert level_of(fs, NEWEST) == 3


def test_a_cluster_stays_at_its_level_when_a_newer_release_opens_it(fs: MemoryFileSystem) -> None:
    assert level_of(fs, OLD) == 1
    assert level_of(fs, NEW) == 1
    assert level_of(fs, OLD) == 1


def test_a_level_that_the_release_does_not_know_yet_is_refused_by_name(
    fs: MemoryFileSystem,
) -> None:
    level_of(fs, NEW)
    for _ in range(2):  # it is unlocked again
        with pytest.raises(UnsupportedLevel, match=f"of level 2.*install raylog {RELEASE} there"):
            of_release(fs, OLD)
    assert level_of(fs, NEW) == 2


def test_a_level_that_the_release_knows_no_more_is_refused_by_name(fs: MemoryFileSystem) -> None:
    level_of(fs, OLD)
    with pytest.raises(UnsupportedLevel, match=r"of level 1.*install raylog 0\.1\.0 there"):
        of_release(fs, NEWEST)
    log = of_release(fs, OLD)
    log.append([LevelRecord(level=2, release="1.0.0")])
    with suppress(RaylogError):
        log.close()
    assert level_of(fs, NEWEST) == 2
