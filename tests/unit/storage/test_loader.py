"""Opening a folder: after an orderly stop, after a crash, with files missing or damaged."""

import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from raylog.storage.config import LogConfig
from raylog.storage.errors import (
    CorruptCheckpoint,
    CorruptIndex,
    CorruptRecord,
    LogMissing,
    StorageError,
    TopicIdUnreadable,
)
from raylog.storage.files import RealFileSystem
from raylog.storage.indexes.time_index import TimestampOffset
from raylog.storage.loader import create_log, open_log
from raylog.storage.log import Log
from raylog.storage.names import TopicPartition
from raylog.storage.records.batch import stamp
from raylog.storage.records.control import Marker, encode_marker
from raylog.storage.records.decode import decode_records
from raylog.storage.recovery import check_indexes
from raylog.storage.report import Progress
from raylog.storage.state.checkpoints import write_epochs
from raylog.storage.testing.clock import T0, ManualClock
from raylog.storage.testing.logs import (
    FOLDER,
    PARTITION,
    TOPIC_ID,
    Disk,
    batch,
    batch_of_size,
    flip,
    of_producer,
    offsets_of,
)
from raylog.storage.testing.memory import MemoryFileSystem
from raylog.storage.validation import COORDINATOR
from tests.harness.small_logs import SMALL, counted_reads, written

INDEXES = (".index", ".timeindex")


def holds_everything(log: Log, batches: int = 20) -> None:
    """Reads and lookups all answer right."""
    assert offsets_of(log) == list(range(log.log_start_offset, 2 * batches))
    for offset in range(2 * batches):
        assert offsets_of(log, offset, max_bytes=1)[:1] == [offset]
    for number in range(batches):
        found = log.offset_for_timestamp(T0 + 1000 * number)
        assert found == TimestampOffset(T0 + 1000 * number, 2 * number)
    assert log.offset_for_timestamp(T0 + 1000 * batches) is None


# -- whole folders ---------------------------------------------------------------------------------


def test_a_new_log_has_kafkas_files_and_is_empty(disk: Disk) -> None:
    first = [f"00000000000000000000{suffix}" for suffix in (".index", ".log", ".timeindex")]
    assert disk.names() == [*first, "partition.metadata"]
    assert Disk(disk.fs.crash("flushed", names="flushed")).names() == disk.names()
    log = disk.open()
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (0, 0, 0)


def test_after_an_orderly_stop_all_is_there_and_flushed(disk: Disk) -> None:
    written(disk).close()
    after = Disk(disk.fs.crash("flushed", names="all"))
    log = after.open(**SMALL)
    holds_everything(log)
    assert (log.recovery_point, log.log_end_offset) == (40, 40)
    assert log.append(batch()).base_offset == 40


def test_after_a_kill_all_is_there_and_the_recovery_point_stays(disk: Disk) -> None:
    """Kafka's: recovery point 10 and 100 good records: the end is 100, the recovery point 10
    (13.6)."""
    written(disk)
    log = disk.open(is_clean=False, recovery_point=10, **SMALL)
    holds_everything(log)
    assert log.recovery_point == 10
    log.flush()
    assert log.recovery_point == 40


def test_an_empty_log_is_opened_after_a_crash(disk: Disk) -> None:
    assert disk.open(is_clean=False).log_end_offset == 0


def test_the_start_offset_of_the_checkpoint_counts(disk: Disk) -> None:
    written(disk)
    log = disk.open(is_clean=False, log_start_offset=7, **SMALL)
    assert (log.log_start_offset, log.recovery_point) == (7, 7)
    assert offsets_of(log) == list(range(7, 40))


# -- missing data is never an empty log ------------------------------------------------------------


def test_a_missing_folder_is_an_error(disk: Disk) -> None:
    disk.fs.remove_dir(FOLDER)
    with pytest.raises(LogMissing, match="the partition's folder does not exist"):
        disk.open()


def test_a_file_in_its_place_is_an_error(disk: Disk) -> None:
    disk.fs.remove_dir(FOLDER)
    disk.fs.write_file(FOLDER, b"")
    with pytest.raises(LogMissing):
        disk.open()


@pytest.mark.parametrize("left", [[], ["abc.log"], ["1.log"]])
def test_a_folder_without_a_log_file_is_an_error(disk: Disk, left: list[str]) -> None:
    written(disk).close()
    for name in disk.names(".log"):
        disk.fs.remove(disk.path(name))
    for name in left:
        disk.write(name, b"")
    with pytest.raises(LogMissing, match=r"has no \.log file"):
        disk.open()


def test_a_log_that_ends_before_its_start_is_an_error(disk: Disk) -> None:
    with pytest.raises(LogMissing, match="ends at offset 0, but it began at 5"):
        disk.open(log_start_offset=5)


def test_so_is_one_without_any_record_after_a_crash(disk: Disk) -> None:
    with pytest.raises(LogMissing, match="it began at 50"):
        disk.open(is_clean=False, log_start_offset=50)


def test_kafkas_scenario_of_a_log_that_a_recovery_cut_before_its_start(disk: Disk) -> None:
    """13.6: five segments of a record each, log start offset 4, garbage in the second: one empty
    segment at 4."""
    log = disk.open()
    for _ in range(5):
        log.append(batch())
        log.roll()
    disk.write("00000000000000000001.log", b"garbage" * 20)
    # Kafka's test has five segments, and none after them
    disk.fs.remove(disk.path("00000000000000000005.log"))
    opened = disk.open(is_clean=False, log_start_offset=4)
    assert [segment.base_offset for segment in opened.segments] == [4]
    assert (opened.log_start_offset, opened.log_end_offset, opened.size_bytes) == (4, 4, 0)
    assert disk.names(".log") == ["00000000000000000004.log"]
    assert opened.epochs.entries == ()
    assert opened.append(batch()).base_offset == 4
    opened.close()
    assert offsets_of(disk.open(log_start_offset=4)) == [4]


def test_kafkas_scenario_of_a_recovery_point(disk: Disk) -> None:
    """13.6: an unclean reopen with recovery point 10 and 100 good records."""
    log = disk.open(segment_bytes=1000)
    for _ in range(100):
        log.append(batch_of_size(100))
    opened = disk.open(is_clean=False, recovery_point=10)
    assert (opened.log_end_offset, opened.recovery_point) == (100, 10)
    opened.flush()
    assert opened.recovery_point == 100


def test_another_topics_folder_is_refused(disk: Disk) -> None:
    args = (disk.fs, disk.clock, FOLDER, PARTITION, LogConfig())
    open_log(*args, topic_id=TOPIC_ID)
    with pytest.raises(LogMissing, match=f"belongs to topic id {TOPIC_ID}, not other"):
        open_log(*args, topic_id="other")


def test_creating_a_log_again_is_fine_while_it_is_empty(disk: Disk) -> None:
    create_log(disk.fs, FOLDER, TOPIC_ID)
    assert disk.open().log_end_offset == 0


# -- leftovers -------------------------------------------------------------------------------------


def test_leftovers_are_removed(disk: Disk) -> None:
    written(disk).close()
    before = disk.names()
    for name in (
        "00000000000000000007.index",
        "00000000000000000007.timeindex",
        "00000000000000000007.txnindex",
    ):
        disk.write(name, b"")
    disk.write("00000000000000000000.log.deleted", b"x")
    disk.write("00000000000000000003.snapshot.deleted", b"x")
    disk.write("00000000000000000000.log.cleaned", b"x")
    disk.write("leader-epoch-checkpoint.tmp", b"x")
    holds_everything(disk.open(**SMALL))
    assert [name for name in disk.names() if name not in before] in (
        [],
        ["leader-epoch-checkpoint"],
    )


def test_files_of_others_are_left_alone(disk: Disk) -> None:
    disk.write("notes.txt", b"x")
    disk.open()
    assert disk.read("notes.txt") == b"x"


@pytest.mark.parametrize(
    "content", [b"x", b"x" * 100, bytes(batch(3))[:-1], flip(70)(bytes(batch(3)))]
)
def test_an_unfinished_compaction_of_a_damaged_segment_is_not_guessed_at(
    disk: Disk, content: bytes
) -> None:
    written(disk).close()
    disk.write("00000000000000000000.log.swap", content)
    before = {name: disk.read(name) for name in disk.names()}
    with pytest.raises(StorageError, match="an unfinished compaction left a damaged segment"):
        disk.open(**SMALL)
    assert {name: disk.read(name) for name in disk.names()} == before


# -- torn and damaged tails ------------------------------------------------------------------------


@pytest.mark.parametrize("lost_bytes", [1, 10, 39, 60, 99, 100, 101, 250, 999, 1000])
def test_a_torn_tail_is_cut_at_the_last_whole_batch(disk: Disk, lost_bytes: int) -> None:
    written(disk)
    disk.damage("00000000000000000020.log", lambda content: content[: 1000 - lost_bytes])
    log = disk.open(is_clean=False, **SMALL)
    kept = 10 + (1000 - lost_bytes) // 100
    holds_everything(log, kept)
    assert log.append(batch(timestamp=T0)).base_offset == 2 * kept
    log.close()
    assert offsets_of(disk.open(**SMALL)) == list(range(2 * kept + 1))


@pytest.mark.parametrize("position", [*range(8), *range(8, 100, 3)])
def test_a_flipped_bit_in_the_tail_ends_the_log_before_its_batch(disk: Disk, position: int) -> None:
    """Save in the fields that no CRC covers: the low bits of the offset (a gap) and the leader
    epoch."""
    written(disk)
    disk.damage("00000000000000000020.log", flip(700 + position, 7))
    log = disk.open(is_clean=False, **SMALL)
    offsets = offsets_of(log)
    assert offsets[:34] == list(range(34))
    if position not in (5, 6, 7, 12, 13, 14, 15):
        assert log.log_end_offset == 34


@pytest.mark.parametrize(
    "tail", [b"\0", b"\0" * 11, b"\0" * 61, b"\0" * 5000, b"\xff" * 200, b"garbage" * 40]
)
def test_what_lies_behind_the_last_batch_is_cut(disk: Disk, tail: bytes) -> None:
    written(disk)
    disk.damage("00000000000000000020.log", lambda content: content + tail)
    holds_everything(disk.open(is_clean=False, **SMALL))
    assert len(disk.read("00000000000000000020.log")) == 1000


def test_a_clean_marker_is_not_believed_against_a_torn_tail(disk: Disk) -> None:
    written(disk).close()
    disk.damage("00000000000000000020.log", lambda content: content[:-30])
    log = disk.open(**SMALL)
    assert log.log_end_offset == 38
    log.append(batch(timestamp=T0))
    assert offsets_of(log) == list(range(39))


def test_an_older_file_in_the_place_of_a_segment_is_no_range_of_its_offsets(disk: Disk) -> None:
    written(disk).close()
    first, second = (f"{base:020d}.log" for base in (0, 20))
    disk.write(second, disk.read(first))
    log = disk.open(is_clean=False, recovery_point=20, **SMALL)
    (cut,) = (mended for mended in log.mended if mended.kind == "cut")
    assert (cut.kept_as, cut.first_offset, cut.end_offset) == (second + ".aside-0", -1, -1)
    assert offsets_of(log) == list(range(20))


def test_damage_in_an_unflushed_segment_drops_those_behind_it(disk: Disk) -> None:
    log = written(disk, 30)
    log.append(of_producer(0, timestamp=T0))
    disk.damage("00000000000000000020.log", flip(350))
    again = disk.open(is_clean=False, **SMALL)
    assert offsets_of(again) == list(range(26))
    assert disk.names(".log") == ["00000000000000000000.log", "00000000000000000020.log"]
    assert all(int(name[:20]) <= 26 for name in disk.names(".snapshot"))
    assert again.append(of_producer(5)).base_offset == 26  # the producer went with its batch


def test_a_tail_lost_at_the_end_of_a_batch_is_seen_by_the_gap_behind_it(disk: Disk) -> None:
    written(disk, 30)
    for kept in (5, 0):
        crashed = Disk(disk.fs.crash())
        crashed.damage("00000000000000000020.log", lambda content, kept=kept: content[: 100 * kept])  # type: ignore[misc]
        # Above its base, the flush below has no reason of its own to sync the folder.
        log = crashed.open(is_clean=False, recovery_point=21 if kept else 0, **SMALL)
        assert offsets_of(log) == list(range(20 + 2 * kept))
        log.append(batch(timestamp=T0))
        log.flush()
        later = Disk(crashed.fs.crash("flushed", names="flushed"))
        again = later.open(is_clean=False, recovery_point=log.recovery_point, **SMALL)
        assert offsets_of(again) == list(range(21 + 2 * kept))


def test_gaps_that_compaction_left_are_no_loss(disk: Disk) -> None:
    disk.write("00000000000000000000.log", bytes(batch(2)) + bytes(batch(2, base_offset=7)))
    disk.write("00000000000000000010.log", bytes(batch(2, base_offset=11)))
    disk.write("00000000000000000020.log", bytes(batch(2, base_offset=20)))
    assert offsets_of(disk.open(is_clean=False)) == [0, 1, 7, 8, 11, 12, 20, 21]


def test_where_compaction_was_is_unknown_a_gap_is_no_loss(disk: Disk) -> None:
    disk.write("00000000000000000000.log", bytes(batch(2)))
    disk.write("00000000000000000010.log", bytes(batch(2, base_offset=11)))
    disk.fs.write_file("/logs/cleaner-offset-checkpoint", b"0\n0\n")
    disk.fs.write_file("/logs/cleaner-offset-checkpoint.corrupt", b"garbage")
    assert offsets_of(disk.open(is_clean=False)) == [0, 1, 11, 12]


def test_a_tail_lost_behind_a_compacted_segment_is_seen_too(disk: Disk) -> None:
    disk.write("00000000000000000000.log", bytes(batch(2)) + bytes(batch(2, base_offset=18)))
    disk.write("00000000000000000020.log", bytes(batch(2, base_offset=20)))
    disk.write("00000000000000000030.log", bytes(batch(2, base_offset=30)))
    assert offsets_of(disk.open(is_clean=False)) == [0, 1, 18, 19, 20, 21]
    assert disk.names(".log") == ["00000000000000000000.log", "00000000000000000020.log"]


@pytest.mark.parametrize("suffixes", [(".log",), (".log", *INDEXES)])
@pytest.mark.parametrize("recovery_point", [0, 60])
def test_a_retention_that_was_torn_is_no_loss(
    disk: Disk, recovery_point: int, suffixes: tuple[str, ...]
) -> None:
    """The new names of the second segment survived, those of the first did not."""
    written(disk, 30).flush()
    for suffix in suffixes:
        name = disk.path(f"00000000000000000020{suffix}")
        disk.fs.rename(name, name + ".deleted")
    for _ in range(2):  # the renamed .log explains the gap as long as there is one
        disk.fs = disk.fs.crash()
        log = disk.open(is_clean=False, recovery_point=recovery_point, **SMALL)
        assert offsets_of(log) == [*range(20), *range(40, 60)]
        assert disk.names(".deleted") == ["00000000000000000020.log.deleted"]
    for suffix in (".log", *INDEXES):
        disk.fs.remove(disk.path(f"00000000000000000000{suffix}"))
    assert offsets_of(disk.open(is_clean=False, **SMALL)) == list(range(40, 60))
    assert disk.names(".deleted") == []


def test_what_was_flushed_is_not_read_again(disk: Disk) -> None:
    written(disk)
    disk.damage("00000000000000000000.log", flip(350))
    log = disk.open(is_clean=False, recovery_point=20, **SMALL)
    assert log.log_end_offset == 40


def test_a_batch_whose_offset_goes_back_ends_the_log(disk: Disk) -> None:
    again = batch(2)
    stamp(again, 1, 0)
    disk.write("00000000000000000000.log", bytes(batch(2)) + bytes(again))
    assert offsets_of(disk.open(is_clean=False)) == [0, 1]


# -- damaged indexes -------------------------------------------------------------------------------

DAMAGES: dict[str, Callable[[bytes], bytes] | None] = {
    "missing": None,
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "cut to whole entries": lambda content: content[:24],
    "zero tail": lambda content: content + b"\0" * 48,
    "zeros": lambda content: b"\0" * len(content),
    "garbage": lambda content: b"\x7f" * len(content),
    "another's": lambda content: content[24:],
}


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("base", [0, 20])
@pytest.mark.parametrize("suffix", INDEXES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_index_is_made_again_and_gives_no_wrong_record(
    disk: Disk, damage: str, suffix: str, base: int, is_clean: bool
) -> None:
    written(disk).close()
    name = f"{base:020d}{suffix}"
    right = disk.read(name)
    change = DAMAGES[damage]
    if change is None:
        disk.fs.remove(disk.path(name))
    else:
        disk.damage(name, change)
    log = disk.open(is_clean=is_clean, recovery_point=40, **SMALL)
    holds_everything(log)
    if base == 20 and not is_clean:
        assert disk.read(name) == right


@pytest.mark.parametrize("suffix", INDEXES)
def test_no_flipped_bit_in_an_index_gives_a_wrong_record(disk: Disk, suffix: str) -> None:
    written(disk).close()
    for base in (0, 20):
        name = f"{base:020d}{suffix}"
        right = disk.read(name)
        for position in range(len(right)):
            disk.write(name, flip(position, position % 8)(right))
            log = disk.open(**SMALL)
            for offset in range(0, 40, 7):
                where = log.read(offset, 1)
                assert where.position == offset // 2 % 10 * 100
            for number in range(0, 20, 5):
                found = log.offset_for_timestamp(T0 + 1000 * number)
                assert found == TimestampOffset(T0 + 1000 * number, 2 * number)
        disk.write(name, right)


@pytest.mark.parametrize(("base", "recovery_point"), [(0, 20), (20, 30)])
@pytest.mark.parametrize("suffix", INDEXES)
def test_after_a_crash_readers_find_nothing_wrong_with_what_no_flush_wrote_of_an_index(
    disk: Disk, suffix: str, base: int, recovery_point: int
) -> None:
    """A roll writes the last entries of an index. The log may have been flushed just before it."""
    written(disk).close()
    name = f"{base:020d}{suffix}"
    right = disk.read(name)
    for position in range(len(right)):
        disk.write(name, flip(position, position * 3 % 8)(right))
        log = disk.open(is_clean=False, recovery_point=recovery_point, **SMALL)
        holds_everything(log)
        for segment in log.segments:
            check_indexes(segment)
            assert segment.index_problem is None, f"byte {position}"


def test_both_indexes_missing_everywhere(disk: Disk) -> None:
    written(disk, 40).close()
    for suffix in INDEXES:
        for name in disk.names(suffix):
            disk.fs.remove(disk.path(name))
    holds_everything(disk.open(**SMALL), 40)


@pytest.mark.parametrize("suffixes", [INDEXES[:1], INDEXES[1:], INDEXES])
def test_a_missing_index_of_the_active_segment_is_made_again_and_told(
    disk: Disk, suffixes: tuple[str, ...]
) -> None:
    written(disk).close()
    names = [f"00000000000000000020{suffix}" for suffix in suffixes]
    whole = [disk.read(name) for name in names]
    for name in names:
        disk.fs.remove(disk.path(name))
    log = disk.open(**SMALL)
    assert [disk.read(name) for name in names] == whole
    assert {*names} <= {mended.file for mended in log.mended if mended.kind == "rebuilt"}


def test_without_snapshots_the_producers_of_all_segments_are_known(disk: Disk) -> None:
    log = disk.open()
    for producer in (7, 8, 9):
        log.append(of_producer(0, producer=producer))
        log.roll()
    log.close()
    for name in disk.names(".snapshot"):
        disk.fs.remove(disk.path(name))
    assert {*disk.open().last_records()} == {7, 8, 9}


# -- what is read, and what is told ----------------------------------------------------------------


def test_a_clean_start_reads_segments_from_their_last_index_entry_on(
    disk: Disk,
) -> None:
    written(disk, 38).close()
    with counted_reads() as reads:
        log = disk.open(**SMALL)
    active = disk.path("00000000000000000060.log")
    sealed = {disk.path(f"{base:020d}.log") for base in (0, 20, 40)}
    of_logs = {path for path, _, _ in reads if path.endswith(".log")}
    assert of_logs == {active, *sealed}
    assert {position for path, position, _ in reads if path in sealed} == {800}
    # but for the time of its first batch, by which it is rolled
    assert min(position for path, position, _ in reads if path == active and position) == 600
    assert (log.log_end_offset, log.mended) == (76, ())


def test_after_a_crash_flushed_segments_are_read_from_their_last_index_entry_on(
    disk: Disk,
) -> None:
    written(disk, 38).close()
    with counted_reads() as reads:
        log = disk.open(is_clean=False, recovery_point=76, **SMALL)
    # the last entries of the third may never have been flushed
    for path in (disk.path(f"{base:020d}.log") for base in (0, 20)):
        assert min(position for name, position, _ in reads if name == path) == 800
    assert log.log_end_offset == 76


def test_recovery_tells_how_far_it_has_come(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    written(disk, 25)
    monkeypatch.setattr("raylog.storage.report.PROGRESS_BYTES", 400)
    monkeypatch.setattr("raylog.storage.recovery.PIECE_BYTES", 200)
    told: list[Progress] = []
    args = (disk.fs, disk.clock, FOLDER, PARTITION, LogConfig(**SMALL))
    open_log(*args, recovery_point=25, progress=told.append)
    assert told == [
        Progress(400, 1500, 0, 2),
        Progress(800, 1500, 0, 2),
        Progress(1000, 1500, 1, 2),
        Progress(1400, 1500, 1, 2),
        Progress(1500, 1500, 2, 2),
    ]


def test_the_memory_of_recovery_does_not_grow_with_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raylog.storage.recovery.PIECE_BYTES", 1 << 16)
    fs, clock = RealFileSystem(), ManualClock()
    records = bytearray(batch_of_size(100, 2))
    peaks = []
    for segments in (2, 8):
        folder = f"{tmp_path}/orders-{segments}"
        partition = TopicPartition("orders", segments)
        create_log(fs, folder, TOPIC_ID)
        for base in range(0, segments * 10_000, 10_000):
            content = bytearray()
            for offset in range(base, base + 10_000, 2):
                stamp(records, offset, 0)
                content += records
            fs.write_file(f"{folder}/{base:020d}.log", content)
        open_log(fs, clock, folder, partition, LogConfig()).close()  # the epochs are written
        tracemalloc.start()
        log = open_log(fs, clock, folder, partition, LogConfig())
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert log.log_end_offset == segments * 10_000
        log.close()
    assert peaks[1] < 1.5 * peaks[0] < 2_000_000


def test_recovery_holds_the_entries_of_no_sealed_segment(disk: Disk) -> None:
    written(disk, 30)
    for suffix in INDEXES:
        for name in disk.names(suffix):
            disk.write(name, b"")
    log = disk.open(is_clean=False, **SMALL)
    for segment in log.segments[:-1]:
        assert not segment.offset_index._held
        assert not segment.time_index._held
    files = {name: disk.read(name) for suffix in INDEXES for name in disk.names(suffix)}
    assert all(files.values())
    after = Disk(disk.fs.crash("flushed", names="all"))
    sealed = [name for name in files if not name.startswith("00000000000000000040")]
    assert {name: after.read(name) for name in sealed} == {name: files[name] for name in sealed}
    holds_everything(log, 30)


def test_all_that_recovery_did_is_told(disk: Disk) -> None:
    written(disk).close()
    disk.write("00000000000000000000.log.deleted", b"x")
    disk.write("leader-epoch-checkpoint.tmp", b"x")
    disk.write("00000000000000000007.index", b"")
    disk.write("00000000000000000005.snapshot", b"x")
    disk.write("00000000000000000020.txnindex", b"x")
    disk.damage("00000000000000000020.timeindex", lambda content: content[:12])
    disk.fs.remove(disk.path("00000000000000000000.index"))
    log = disk.open(is_clean=False, recovery_point=40, **SMALL)
    told = {(mended.kind, mended.file) for mended in log.mended}
    assert told == {
        ("removed", "00000000000000000000.log.deleted"),
        ("removed", "leader-epoch-checkpoint.tmp"),
        ("removed", "00000000000000000007.index"),
        ("removed", "00000000000000000005.snapshot"),
        ("rebuilt", "00000000000000000020.txnindex"),
        ("rebuilt", "00000000000000000020.timeindex"),
        ("rebuilt", "00000000000000000000.index"),
        ("rebuilt", "00000000000000000000.timeindex"),
    }
    log.close()
    assert disk.open(is_clean=False, recovery_point=40, **SMALL).mended == ()


def fail_once(monkeypatch: pytest.MonkeyPatch, paths: set[str]) -> None:
    """The first time that one of these files is read there is a bad sector."""
    read_file = MemoryFileSystem.read_file

    def failing(self: MemoryFileSystem, path: str) -> bytes:
        if path in paths:
            paths.discard(path)
            raise StorageError(path, "Input/output error")
        return read_file(self, path)

    monkeypatch.setattr(MemoryFileSystem, "read_file", failing)


def test_a_bad_sector_in_an_index_ends_in_a_rebuild(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(disk).close()
    bad = {disk.path(f"{base:020d}{suffix}") for base in (0, 20) for suffix in INDEXES}
    fail_once(monkeypatch, bad)
    log = disk.open(is_clean=False, recovery_point=30, **SMALL)
    holds_everything(log)
    assert len(log.mended) == 4


@pytest.mark.parametrize("suffix", INDEXES)
def test_after_an_orderly_stop_the_active_segments_indexes_are_tried_before_they_are_mapped(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    """A bad sector under a map would end the process."""
    written(disk).close()
    fail_once(monkeypatch, {disk.path(f"00000000000000000020{suffix}")})
    log = disk.open(**SMALL)
    holds_everything(log)
    assert [mended.kind for mended in log.mended] == ["rebuilt", "rebuilt"]


def test_an_index_made_again_is_on_the_disk_before_a_segment_behind_it(disk: Disk) -> None:
    log = disk.open(index_interval_bytes=0)
    for _ in range(3):
        log.append(batch())
    log.close()
    lies = (2).to_bytes(4, "big") + (7).to_bytes(4, "big")
    disk.write(f"{0:020d}.index", lies)
    again = disk.open(is_clean=False, recovery_point=3, index_interval_bytes=0)
    again.roll()
    disk.fs = disk.fs.crash("flushed", names="all")
    last = disk.open(is_clean=False, recovery_point=3, index_interval_bytes=0)
    check_indexes(last.segments[0])


@pytest.mark.parametrize("file", ["index", "timeindex"])
def test_the_last_entries_of_a_segment_that_was_flushed_before_its_roll_are_tried(
    disk: Disk, file: str
) -> None:
    """The roll writes them behind the last flush, and a loss of power leaves anything there."""
    log = disk.open(index_interval_bytes=0)
    for number in range(3):
        log.append(batch(timestamp=T0 + number))
    log.flush()
    log.roll()
    disk.damage(f"{0:020d}.{file}", lambda content: content[:-4] + b"\0\0\0\x7b")
    again = disk.open(is_clean=False, recovery_point=3, index_interval_bytes=0)
    check_indexes(again.segments[0])
    assert [
        (mended.kind, mended.file[-5:]) for mended in again.mended if "snap" not in mended.file
    ] == [
        ("rebuilt", "index"),
        ("rebuilt", "index"),
    ]


# -- epochs, snapshots -----------------------------------------------------------------------------


def test_of_epochs_beyond_the_end_the_newest_number_stays(disk: Disk) -> None:
    log = written(disk)
    log.epochs.assign(1, 0)
    log.epochs.assign(2, 38)
    log.epochs.assign(3, 40)
    disk.damage("00000000000000000020.log", lambda content: content[:900])
    assert disk.open(is_clean=False, **SMALL).epochs.entries == ((1, 0), (3, 38))


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("recovery_point", [0, 45, 90, 100])
@pytest.mark.parametrize(
    "known", [(), ((3, 0),), ((3, 0), (7, 90)), ((7, 90),), ((3, 0), (7, 50)), ((3, 0), (7, 70))]
)
def test_every_change_of_the_leader_epoch_counts(
    disk: Disk, known: tuple[tuple[int, int], ...], recovery_point: int, is_clean: bool
) -> None:
    log = disk.open(**SMALL)
    for number in range(50):
        log.append(batch_of_size(100, 2, T0 + number), leader_epoch=3 if number < 25 else 7)
    log.close()
    write_epochs(disk.fs, disk.path("leader-epoch-checkpoint"), known)
    log = disk.open(is_clean=is_clean, recovery_point=recovery_point, **SMALL)
    late = known[-1][1] if known else 0
    if late > 50 and (is_clean or (late == 70 and recovery_point > 80)):
        assert log.epochs.entries[-1] == known[-1], "what was flushed is not read again"
        return
    assert log.epochs.entries == ((3, 0), (7, 50))
    is_told = ("rebuilt", "leader-epoch-checkpoint") in [mended[:2] for mended in log.mended]
    assert is_told == (known != ((3, 0), (7, 50)))


def test_an_epoch_whose_first_batches_compaction_removed_keeps_its_start(disk: Disk) -> None:
    for base, epoch in ((0, 3), (20, 7)):
        content = batch(2, base_offset=base + 8, leader_epoch=epoch)
        disk.write(f"{base:020d}.log", bytes(content))
    write_epochs(disk.fs, disk.path("leader-epoch-checkpoint"), [(3, 0), (5, 12), (7, 15)])
    log = disk.open(is_clean=False, cleanup_policy="compact")
    assert log.epochs.entries == ((3, 0), (5, 12), (7, 15))


def test_no_epoch_is_dropped_for_a_lower_one(disk: Disk) -> None:
    """No CRC covers the epoch of a batch; a number that was given out is not given out again."""
    disk.write("00000000000000000000.log", bytes(batch(20, leader_epoch=3)))
    write_epochs(disk.fs, disk.path("leader-epoch-checkpoint"), [(3, 0), (9, 10)])
    assert disk.open(is_clean=False).epochs.entries == ((3, 0), (9, 10))


def test_lost_epochs_are_taken_from_the_last_batch(disk: Disk) -> None:
    log = disk.open()
    log.append(batch(), leader_epoch=4)
    log.append(batch(), leader_epoch=5)
    log.close()
    assert disk.open().epochs.latest == 5


def test_a_corrupt_epoch_file_is_named_and_can_be_deleted(disk: Disk) -> None:
    log = disk.open()
    log.append(batch(), leader_epoch=4)
    log.close()
    disk.write("leader-epoch-checkpoint", b"x y z")
    with pytest.raises(CorruptCheckpoint, match="Delete it only if docs"):
        disk.open()
    disk.fs.remove(disk.path("leader-epoch-checkpoint"))
    assert disk.open().epochs.latest == 4


@pytest.mark.parametrize("is_clean", [True, False])
def test_snapshots_beyond_the_end_are_removed(disk: Disk, is_clean: bool) -> None:
    log = disk.open()
    log.append(of_producer(0))
    log.close()
    disk.write("00000000000000000009.snapshot", disk.read("00000000000000000001.snapshot"))
    disk.open(is_clean=is_clean)
    assert disk.names(".snapshot") == ["00000000000000000001.snapshot"]


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_damaged_batch_in_a_sealed_segment_keeps_no_log_from_opening(
    disk: Disk, is_clean: bool
) -> None:
    """Below the recovery point nothing is checked; what is whole is served, with and without its
    indexes."""
    written(disk).close()
    disk.damage("00000000000000000000.log", flip(16 + 500))
    for suffix in (*INDEXES, ""):
        log = disk.open(is_clean=is_clean, recovery_point=40, **SMALL)
        with pytest.raises(CorruptRecord):
            offsets_of(log)
        assert offsets_of(log, 20) == list(range(20, 40))
        found = log.read(0, 100)
        assert [record.offset for record in decode_records(found.read())] == [0, 1]
        if suffix:
            disk.fs.remove(disk.path("00000000000000000000" + suffix))


def of_producers(disk: Disk) -> None:
    """Two sealed segments and the active one, of 16 batches by producers 7 and 8 in turn."""
    log = disk.open(**SMALL)
    for number in range(16):
        log.append(of_producer(number // 2, producer=7 + number % 2, timestamp=T0))
        if number in (5, 10):
            log.roll()
    log.close()
    disk.fs.remove(disk.path(f"{16:020d}.snapshot"))


@pytest.mark.parametrize("damage", ["a batch's length", "a batch's offset", "a cut"])
@pytest.mark.parametrize("has_indexes", [True, False])
@pytest.mark.parametrize("is_clean", [True, False])
def test_a_damaged_sealed_segment_and_lost_snapshots_keep_no_log_from_opening(
    disk: Disk, damage: str, has_indexes: bool, is_clean: bool
) -> None:
    """What the good batches tell of the producers is known, and what is not is told."""
    of_producers(disk)
    for name in disk.names(".snapshot"):
        disk.write(name, b"lost")
    name = f"{6:020d}.log"
    size_bytes = len(disk.read(name)) // 5
    changes = {
        "a batch's length": flip(3 * size_bytes + 11),
        "a batch's offset": flip(3 * size_bytes + 7, 6),
        "a cut": lambda content: content[: 3 * size_bytes + 30],
    }
    disk.damage(name, changes[damage])
    if not has_indexes:
        disk.write(f"{6:020d}.index", b"garbage")
    log = disk.open(is_clean=is_clean, recovery_point=16, **SMALL)
    (told,) = [mended for mended in log.mended if mended.kind == "damaged"]
    assert (told.file, told.size_bytes) == (name, 0)
    assert "corrupt record batch" in told.why
    assert "producer must" not in told.why
    assert offsets_of(log, 11) == list(range(11, 16))
    for producer in (7, 8):
        again = log.append(of_producer(7, producer=producer, timestamp=T0))
        assert (again.is_duplicate, again.last_offset) == (True, 7 + producer)
    log.close()
    assert all(mended.kind != "damaged" for mended in disk.open(**SMALL).mended)


def test_a_damaged_marker_tells_nothing_of_its_transaction(disk: Disk) -> None:
    """It is not believed: whether it was a commit or an abort is not known."""
    log = disk.open(**SMALL)
    log.append(of_producer(0, transactional=True))
    marker = encode_marker(Marker(False, 1, T0), producer_id=7, producer_epoch=0)
    position = log.segments[0].size
    log.append(marker, 0, "coordinator")
    log.roll()
    log.append(batch(timestamp=T0))
    log.close()
    for name in disk.names(".snapshot"):
        disk.fs.remove(disk.path(name))
    disk.damage(f"{0:020d}.log", flip(position + len(marker) - 12))
    log = disk.open(recovery_point=3, **SMALL)
    assert [mended.kind for mended in log.mended] == ["damaged"]
    assert log.last_stable_offset == 0


def test_a_damaged_transaction_index_of_a_damaged_segment_stays_damaged(disk: Disk) -> None:
    """What the batches behind the damage abort is not known: an index made of the others would let
    a reader of committed records take aborted ones."""
    log = disk.open(**SMALL)
    log.append(batch(timestamp=T0))
    for sequence in range(2):
        log.append(of_producer(sequence, transactional=True))
        marker = encode_marker(Marker(True, 1, T0), producer_id=7, producer_epoch=0)
        log.append(marker, 0, COORDINATOR)
    log.roll()
    log.append(batch(timestamp=T0))
    log.close()
    for name in disk.names(".snapshot"):
        disk.fs.remove(disk.path(name))
    disk.damage(f"{0:020d}.log", flip(11))
    disk.damage(f"{0:020d}.txnindex", lambda content: content[:-1])
    log = disk.open(recovery_point=6, **SMALL)
    with pytest.raises(CorruptIndex):
        log.aborted()
    assert len(disk.read(f"{0:020d}.txnindex")) == 2 * 34 - 1


def test_what_a_recovery_cut_never_comes_back(disk: Disk) -> None:
    """A torn tail is cut, a new segment begins behind it, and the power goes before anything else
    is flushed."""
    written(disk, 3).flush()
    disk.damage("00000000000000000000.log", lambda content: content + content[:33])
    disk.fs = disk.fs.crash("all")
    log = disk.open(is_clean=False, recovery_point=6, **SMALL)
    log.roll()
    disk.fs = disk.fs.crash("flushed", names="all")
    assert len(disk.read("00000000000000000000.log")) == 300
    assert offsets_of(disk.open(is_clean=False, recovery_point=6, **SMALL)) == list(range(6))


@pytest.mark.parametrize(("content", "why"), [(None, "is missing"), (b"version: 7", "is damaged")])
def test_a_folder_that_does_not_say_whose_it_is_opens_when_the_advice_is_followed(
    content: bytes | None, why: str
) -> None:
    disk = Disk()
    log = disk.open()
    log.append(batch())
    log.close()
    disk.fs.remove(disk.path("partition.metadata"))
    if content is not None:
        disk.write("partition.metadata", content)
    with pytest.raises(TopicIdUnreadable, match=why) as refused:
        open_as(disk, TOPIC_ID)
    advice = re.findall(r"'([^']*)'", refused.value.advice)
    disk.write("partition.metadata", "\n".join(advice).encode())
    assert offsets_of(open_as(disk, TOPIC_ID)) == [0]


def open_as(disk: Disk, topic_id: str) -> Log:
    return open_log(disk.fs, disk.clock, FOLDER, PARTITION, LogConfig(), topic_id=topic_id)


@pytest.mark.parametrize("left", ["a torn tail", "an unfinished swap"])
def test_a_damaged_file_of_leader_epochs_is_found_before_anything_is_changed(
    disk: Disk, left: str
) -> None:
    """What is changed is told by the opening that succeeds: one that fails must change nothing."""
    disk.open().append(batch())
    if left == "a torn tail":
        disk.damage("00000000000000000000.log", lambda content: content + b"torn")
    else:
        disk.write("00000000000000000000.log.swap", disk.read("00000000000000000000.log"))
    disk.write("leader-epoch-checkpoint", b"0\n1\n")
    before = {name: disk.read(name) for name in disk.names()}
    with pytest.raises(CorruptCheckpoint):
        disk.open(is_clean=False)
    assert {name: disk.read(name) for name in disk.names()} == before


def test_a_batch_that_is_there_twice_is_no_range_of_new_offsets(disk: Disk) -> None:
    """What was cut off ends where the log ends: it lacks nothing."""
    written(disk, 5)
    disk.damage("00000000000000000000.log", lambda content: content + content[-100:])
    (cut,) = (entry for entry in disk.open(is_clean=False).mended if entry.kind == "cut")
    assert (cut.first_offset, cut.end_offset) == (-1, -1)


def test_starts_and_stops_in_order_find_nothing(disk: Disk) -> None:
    """The snapshot that each stop leaves is of no use after the next one; that is no finding."""
    for sequence in range(3):
        log = disk.open(recovery_point=sequence)
        assert log.mended == ()
        log.append(of_producer(sequence))
        log.close()
    assert disk.names(".snapshot") == [f"{offset:020d}.snapshot" for offset in (2, 3)]
