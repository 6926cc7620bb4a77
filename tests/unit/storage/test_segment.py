"""A segment: index cadence, roll conditions, finding, recovery."""

from struct import pack

import pytest

from raylog.storage.config import LogConfig
from raylog.storage.errors import (
    CorruptIndex,
    CorruptRecord,
    DiskFull,
    StorageError,
    UndoFailed,
)
from raylog.storage.indexes.time_index import TimestampOffset
from raylog.storage.limits import MAX_INT
from raylog.storage.records.batch import read_header, stamp
from raylog.storage.recovery import check_indexes
from raylog.storage.segment import Segment
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import batch, batch_of_size, flip
from raylog.storage.testing.memory import MemoryFileSystem
from raylog.storage.writer import Piece, SegmentWriter


class Box:
    """A segment and its next offset."""

    def __init__(self, base_offset: int = 0, now_ms: int = T0, **config: int) -> None:
        self.fs, self.config = MemoryFileSystem(), LogConfig(**config)  # type: ignore[arg-type]
        self.segment = Segment(self.fs, "/", base_offset, self.config, create=True)
        self.writer = SegmentWriter(self.segment, now_ms)
        self.next_offset = base_offset

    def append(self, records: bytearray) -> None:
        stamp(records, self.next_offset, 0)
        header = read_header(records)
        piece = Piece(
            stamp=bytes(records[:16]),
            body=records[16:],
            size_bytes=len(records),
            last_offset=header.last_offset,
            max_timestamp=header.max_timestamp,
        )
        self.writer.append([piece])
        self.next_offset = header.next_offset

    def seal(self) -> None:
        self.writer.finish()
        self.segment.seal()

    def reopen(self) -> Segment:
        return Segment(self.fs, "/", self.segment.base_offset, self.config)

    def entries(self) -> list[tuple[int, ...]]:
        index = self.segment.offset_index
        return [(*index[number],) for number in range(len(index))]

    def times(self) -> list[tuple[int, ...]]:
        index = self.segment.time_index
        return [(*index[number],) for number in range(len(index))]


# -- cadence ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("appends", "size", "count", "interval", "entries"),
    [
        (12, 100, 10, 200, [(39, 300), (69, 600), (99, 900)]),
        (20, 1000, 5, 4096, [(29, 5000), (54, 10000), (79, 15000)]),
    ],
)
def test_an_entry_comes_behind_every_interval(
    appends: int, size: int, count: int, interval: int, entries: list[tuple[int, int]]
) -> None:
    box = Box(index_interval_bytes=interval)
    for number in range(appends):
        box.writer.append([Piece(b"", bytes(size), size, (number + 1) * count - 1, T0 + number)])
    assert box.entries() == entries
    assert box.times() == [(T0 + (offset + 1) // count - 1, offset) for offset, _ in entries]


def test_equal_timestamps_make_no_time_entry_but_the_seal_does() -> None:
    box = Box(index_interval_bytes=0)
    for timestamp in (T0, T0, T0, T0 - 5, T0 + 1):
        box.append(batch(2, timestamp=timestamp))
    assert box.times() == [(T0, 1), (T0 + 1, 9)]
    box.append(batch(2, timestamp=T0 + 9))
    assert box.times()[-1] == (T0 + 9, 11)
    box.seal()
    box.seal()
    assert len(box.times()) == 3


def test_the_first_batch_never_has_an_entry_and_reopening_starts_the_count_again() -> None:
    box = Box(index_interval_bytes=150)
    for _ in range(4):
        box.append(batch_of_size(100))
    assert box.entries() == [(2, 200)]
    box.segment.close()
    box.segment = box.reopen()
    box.writer = SegmentWriter(box.segment, T0)
    for _ in range(3):
        box.append(batch_of_size(100))
    assert box.entries() == [(2, 200), (6, 600)]


# -- roll ------------------------------------------------------------------------------------------


def test_a_segment_may_become_exactly_full() -> None:
    box = Box(segment_bytes=300)
    box.append(batch_of_size(200))
    assert not box.writer.should_roll(100, T0, 1, T0)
    assert box.writer.should_roll(101, T0, 1, T0)


def test_a_roll_by_time_goes_by_the_records_clock() -> None:
    box = Box(segment_ms=1000)
    assert not box.writer.should_roll(1, T0 + 5000, 0, T0 + 10**9)  # empty: never
    box.append(batch(timestamp=T0))
    assert not box.writer.should_roll(1, T0 + 1000, 1, T0 + 10**9)
    assert box.writer.should_roll(1, T0 + 1001, 1, T0)
    assert not box.writer.should_roll(1, T0 - 10**9, 1, T0)
    assert SegmentWriter(box.reopen(), T0).should_roll(
        1, T0 + 1001, 1, T0
    )  # the first batch is read from the file


def test_without_timestamps_a_roll_goes_by_the_wall_clock() -> None:
    box = Box(segment_ms=1000)
    box.append(batch(timestamp=-1))
    assert not box.writer.should_roll(1, T0 + 9999, 1, T0 + 1000)
    assert box.writer.should_roll(1, -1, 1, T0 + 1001)


def test_jitter_brings_a_roll_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.randrange", lambda below: below - 1)
    box = Box(segment_ms=1000, segment_jitter_ms=400)
    box.append(batch(timestamp=T0))
    assert not box.writer.should_roll(1, T0 + 601, 1, T0)
    assert box.writer.should_roll(1, T0 + 602, 1, T0)


def test_a_full_index_rolls() -> None:
    box = Box(index_interval_bytes=0, segment_index_bytes=24)
    box.append(batch(timestamp=T0))
    assert not box.writer.should_roll(1, T0, 1, T0)
    box.append(batch(timestamp=T0 + 1))  # one time entry of two, the last of which is kept
    assert box.writer.should_roll(1, T0, 2, T0)


def test_an_offset_that_is_too_far_from_the_base_rolls() -> None:
    box = Box(base_offset=10)
    assert not box.writer.should_roll(1, T0, 10 + MAX_INT, T0)
    assert box.writer.should_roll(1, T0, 11 + MAX_INT, T0)


# -- finding ---------------------------------------------------------------------------------------


@pytest.fixture
def dense() -> Box:
    """Base 40, ten batches of 10 records of 1000 bytes, an entry at every third."""
    box = Box(base_offset=40, index_interval_bytes=2500)
    for number in range(10):
        box.append(batch_of_size(1000, 10, T0 + number))
    return box


def test_every_offset_is_found_in_its_batch(dense: Box) -> None:
    for offset in range(40, 140):
        found = dense.segment.find_batch(offset)
        assert found is not None
        assert found[0] == (offset - 40) // 10 * 1000
    assert dense.segment.find_batch(140) is None
    assert dense.segment.find_batch(0) is not None
    assert dense.segment.find_batch(135, end=9000) is None


def test_a_slice_ends_with_a_batch_and_has_one_at_least(dense: Box) -> None:
    for start in (0, 3000, 9000):
        for max_bytes in (0, 1, 999, 1000, 1001, 3500, 6999, 10**6):
            expected = max(1, min(max_bytes // 1000, 10 - start // 1000))
            found = dense.segment.slice(40 + start // 100, max_bytes, 10_000)
            assert found == (start, 1000 * expected)


def test_a_batch_that_repeats_the_offset_before_it_is_corrupt(dense: Box) -> None:
    again = batch_of_size(1000, 10)
    stamp(again, 49, 0)
    dense.segment.log.truncate(1000)
    dense.segment.log.append([again])
    with pytest.raises(CorruptRecord, match="offsets 49 to 58 where 50 to"):
        list(dense.segment.batches())


@pytest.mark.parametrize(
    ("offset", "is_held"), [(40 + MAX_INT - 9, True), (40 + MAX_INT - 8, False)]
)
def test_a_batch_beyond_what_an_index_can_count_is_corrupt(
    dense: Box, offset: int, is_held: bool
) -> None:
    far = batch_of_size(1000, 10)
    stamp(far, offset, 0)
    dense.segment.log.truncate(1000)
    dense.segment.log.append([far])
    if is_held:
        assert len(list(dense.segment.batches())) == 2
    else:
        with pytest.raises(CorruptRecord, match="can be"):
            list(dense.segment.batches())


def test_a_lookup_by_time_enters_at_the_index_and_finds_the_first_record() -> None:
    box = Box(base_offset=40, index_interval_bytes=2 * len(batch()) - 1)
    for number in range(40, 50):
        box.append(batch(timestamp=10 * number))
    answers = {420: 42, 421: 43, 430: 43, 431: 44, 401: 41, 399: 40, 0: 40, 490: 49}
    for timestamp, offset in answers.items():
        found = box.segment.offset_for_timestamp(timestamp, 0)
        assert found == TimestampOffset(10 * offset, offset), timestamp
    assert box.segment.offset_for_timestamp(491, 0) is None
    assert box.segment.offset_for_timestamp(400, 45) == TimestampOffset(450, 45)
    assert box.segment.offset_for_timestamp(420, 0, end=2 * len(batch())) is None


def test_unordered_timestamps_are_found_at_the_first_record_that_reaches_them() -> None:
    box = Box(index_interval_bytes=0)
    for timestamp in (50, 40, 90, 10, 90, 95):
        box.append(batch(2, timestamp=timestamp))
    for wanted, offset in {10: 0, 50: 0, 51: 4, 90: 4, 91: 10, 95: 10}.items():
        found = box.segment.offset_for_timestamp(wanted, 0)
        assert found is not None
        assert found.offset == offset, wanted
    assert box.segment.max_timestamp == TimestampOffset(95, 11)


def test_the_largest_timestamp_falls_back_to_the_files_mtime() -> None:
    box = Box()
    box.fs.now_ms = 12345
    box.append(batch(timestamp=-1))
    assert box.segment.largest_timestamp == 12345
    box.append(batch(timestamp=0))
    assert box.segment.largest_timestamp == 0
    box.append(batch(timestamp=77))
    assert box.segment.largest_timestamp == 77


@pytest.mark.parametrize("lost", [0, 12, 24])
def test_the_largest_timestamp_is_right_when_entries_are_missing_at_the_end(lost: int) -> None:
    box = Box(index_interval_bytes=0)
    for timestamp in (50, 60, 70, 65):
        box.append(batch(timestamp=timestamp))
    box.seal()
    box.segment.close()
    path = "/00000000000000000000.timeindex"
    box.fs.write_file(path, box.fs.read_file(path)[: 24 - lost])
    assert box.reopen().max_timestamp == TimestampOffset(70, 2)


def test_by_the_index_no_batch_before_a_position_reaches_an_offset(dense: Box) -> None:
    assert dense.segment.offset_beyond(1000) == dense.segment.offset_beyond(3000) == 79
    assert dense.segment.offset_beyond(9500) is None


def test_both_indexes_of_a_flushed_segment_survive_a_loss_of_power(dense: Box) -> None:
    dense.seal()
    dense.segment.flush()
    dense.fs.sync_dir("/")
    crashed = dense.fs.crash("flushed", names="flushed")
    for suffix in ("log", "index", "timeindex"):
        path = f"/00000000000000000040.{suffix}"
        assert crashed.read_file(path) == dense.fs.read_file(path) != b""


def test_a_truncation_takes_the_entries_of_what_goes_from_both_indexes(dense: Box) -> None:
    assert (len(dense.entries()), len(dense.times())) == (3, 3)
    dense.segment.truncate_to(105)
    assert dense.segment.size == 6000
    assert dense.entries() == [(79, 3000)]
    assert dense.times() == [(T0 + 3, 79)]


# -- damaged indexes -------------------------------------------------------------------------------


def closed(box: Box) -> Box:
    box.seal()
    box.segment.close()
    return box


def test_no_flipped_bit_in_the_offset_index_gives_a_wrong_batch(dense: Box) -> None:
    path = "/00000000000000000040.index"
    closed(dense)
    content = dense.fs.read_file(path)
    refused = 0
    for position in range(len(content)):
        for bit in range(8):
            dense.fs.write_file(path, flip(position, bit)(content))
            refused += answers_rightly_or_refuses(dense)
    assert refused > len(content)


def test_an_entry_that_leads_into_a_batch_ends_no_slice_there_and_is_noted(dense: Box) -> None:
    closed(dense).fs.write_file("/00000000000000000040.index", pack(">ii", 29, 2500))
    segment = dense.reopen()
    assert segment.slice(40, 3500, 10_000) == (0, 3000)
    assert segment.index_problem is not None
    assert segment.index_problem.args[0] == 40


def test_an_entry_may_have_an_offset_within_its_batch(dense: Box) -> None:
    """Kafka made such entries for the first offset, long ago."""
    closed(dense).fs.write_file("/00000000000000000040.index", pack(">ii", 30, 3000))
    segment = dense.reopen()
    for offset in (70, 75, 79):
        assert segment.find(offset) == (3000, 1000)
    assert segment.index_problem is None


def test_an_entry_that_leads_out_of_the_file_tells_no_offset_and_is_noted(dense: Box) -> None:
    closed(dense).fs.write_file("/00000000000000000040.index", pack(">ii", 29, 10_000))
    segment = dense.reopen()
    assert segment.offset_beyond(1000) is None
    assert segment.index_problem is not None
    assert segment.index_problem.args[0] == 40


def test_a_last_time_entry_that_lies_is_not_believed(dense: Box) -> None:
    path = "/00000000000000000040.timeindex"
    content = closed(dense).fs.read_file(path)
    dense.fs.write_file(path, flip(len(content) - 12 + 5)(content))
    segment = dense.reopen()
    assert segment.max_timestamp == TimestampOffset(T0 + 9, 139)
    assert segment.index_problem is not None


def test_without_a_time_index_the_largest_timestamp_is_the_batches() -> None:
    box = Box(base_offset=40)
    for timestamp in (-1, 7, 5):
        box.append(batch(timestamp=timestamp))
    closed(box).fs.write_file("/00000000000000000040.timeindex", b"damaged")
    assert box.reopen().max_timestamp == TimestampOffset(7, 41)


def answers_rightly_or_refuses(box: Box) -> int:
    segment, refused = box.reopen(), 0
    for offset in range(40, 140, 5):
        start = (offset - 40) // 10 * 1000
        found = segment.slice(offset, 2500, 10_000)
        assert found == (start, min(2000, 10_000 - start))
        refused += segment.index_problem is not None
        segment.index_problem = None
    return refused


def test_no_flipped_bit_in_the_time_index_gives_a_wrong_record(dense: Box) -> None:
    path = "/00000000000000000040.timeindex"
    closed(dense)
    content = dense.fs.read_file(path)
    refused = 0
    for position in range(len(content)):
        for bit in range(8):
            dense.fs.write_file(path, flip(position, bit)(content))
            segment = dense.reopen()
            for number in range(10):
                assert segment.max_timestamp == TimestampOffset(T0 + 9, 139)
                found = segment.offset_for_timestamp(T0 + number, 0)
                assert found == TimestampOffset(T0 + number, 40 + 10 * number)
                refused += segment.index_problem is not None
                segment.index_problem = None
    assert refused > len(content)


# -- recovery --------------------------------------------------------------------------------------


# -- failing disks ---------------------------------------------------------------------------------


def test_a_failed_append_leaves_the_segment_as_it_was() -> None:
    box = Box(index_interval_bytes=0)
    box.append(batch(timestamp=T0))
    box.append(batch(timestamp=T0 + 1))
    before = (box.segment.size, box.entries(), box.times(), box.segment.max_timestamp)
    operation = box.fs.operations
    box.fs.fail_at(operation, DiskFull)
    with pytest.raises(DiskFull):
        box.append(batch(timestamp=T0 + 2))
    assert (box.segment.size, box.entries(), box.times(), box.segment.max_timestamp) == before
    box.append(batch(timestamp=T0 + 3))
    check_indexes(box.segment)


def test_a_segment_that_cannot_be_made_whole_leaves_no_file() -> None:
    fs = MemoryFileSystem()
    made = 0
    for operation in range(20):
        fs = MemoryFileSystem()
        fs.fail_at(operation, DiskFull)
        try:
            Segment(fs, "/", 0, LogConfig(), create=True)
            made += 1
        except DiskFull:
            assert fs.list_dir("/") == []
    assert 0 < made < 20


def test_a_failure_that_cannot_be_undone_is_told_apart() -> None:
    box = Box(index_interval_bytes=0)
    fs = MemoryFileSystem()
    for operation in range(1, 4):
        fs.fail_at(operation, lambda path: StorageError(path, "Input/output error"))
    with pytest.raises(UndoFailed, match="Input/output error"):
        Segment(fs, "/", 0, box.config, create=True)


def test_a_doomed_segment_can_be_read_to_its_end() -> None:
    box = Box()
    box.append(batch())
    box.fs.write_file("/00000000000000000000.txnindex", b"")
    box.segment.rename(".deleted")
    assert {name.rpartition(".")[2] for name in box.fs.list_dir("/")} == {"deleted"}
    assert len(box.fs.list_dir("/")) == 4
    assert box.segment.path == "/00000000000000000000.log.deleted"
    assert box.segment.find_batch(0) is not None
    box.segment.delete()
    assert box.fs.list_dir("/") == []


def test_a_damaged_segment_can_be_doomed(dense: Box) -> None:
    stem = "/00000000000000000040"
    content = closed(dense).fs.read_file(stem + ".log")
    dense.fs.write_file(stem + ".log", flip(4000 + 9)(content))
    for suffix in (".index", ".timeindex", ".txnindex"):
        dense.fs.write_file(stem + suffix, b"\xff" * 7)
    segment = dense.reopen()
    segment.rename(".deleted")
    segment.delete()
    assert dense.fs.list_dir("/") == []


def test_a_damaged_transaction_index_stays_damaged_while_it_is_renamed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A reader that found no file there would take aborted records for committed ones."""
    box = Box()
    box.append(batch())
    closed(box).fs.write_file("/00000000000000000000.txnindex", b"\xff" * 7)
    segment, rename = box.reopen(), MemoryFileSystem.rename
    names: list[str] = []

    def rename_and_look(fs: MemoryFileSystem, source: str, target: str) -> None:
        rename(fs, source, target)
        names.append(target)
        with pytest.raises(CorruptIndex):
            segment.txn_index.collect(0, 1)

    monkeypatch.setattr(MemoryFileSystem, "rename", rename_and_look)
    segment.rename(".deleted")
    assert names[-1] == "/00000000000000000000.txnindex.deleted"
    segment.delete()
    with pytest.raises(CorruptIndex):
        segment.txn_index.collect(0, 1)
    segment.txn_index.replace([])
    assert segment.txn_index.entries == ()
