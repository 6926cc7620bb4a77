"""The segment that is appended to: several batches in one write, or the segment as it was."""

from typing import Any

import pytest

from raylog.storage.config import LogConfig
from raylog.storage.errors import DiskFull, OutOfResources, StorageError, UndoFailed
from raylog.storage.indexes.transaction_index import AbortedTransaction
from raylog.storage.log_end import Bound
from raylog.storage.records.batch import read_header
from raylog.storage.recovery import check_indexes
from raylog.storage.segment import Segment
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import Disk, batch
from raylog.storage.testing.memory import MemoryFile, MemoryFileSystem
from raylog.storage.writer import Piece, SegmentWriter


class Box:
    """A segment in memory with its writer."""

    def __init__(self, base_offset: int = 0, **config: Any) -> None:
        self.fs = MemoryFileSystem()
        self.segment = Segment(self.fs, "/", base_offset, LogConfig(**config), create=True)
        self.writer = SegmentWriter(self.segment, T0)

    def state(self) -> Any:
        offsets, times = self.segment.offset_index, self.segment.time_index
        return (
            self.segment.size,
            [tuple(offsets[number]) for number in range(len(offsets))],
            [tuple(times[number]) for number in range(len(times))],
            list(self.segment.txn_index.entries),
            self.segment.max_timestamp,
            self.writer._state,
        )


def piece(last_offset: int, size: int = 100, **fields: Any) -> Piece:
    return Piece(
        stamp=b"s" * 16,
        body=b"b" * (size - 16),
        size_bytes=size,
        last_offset=last_offset,
        max_timestamp=fields.pop("max_timestamp", T0 + last_offset),
        **fields,
    )


def marker(offset: int) -> Piece:
    return piece(offset, aborted=AbortedTransaction(7, 0, offset, offset + 1))


def test_many_pieces_are_one_append() -> None:
    box = Box(index_interval_bytes=1 << 20)
    begin = box.fs.operations
    box.writer.append([piece(number) for number in range(500)])
    assert box.fs.log[begin:] == ["append /00000000000000000000.log"]
    assert box.fs.read_file(box.segment.path) == (b"s" * 16 + b"b" * 84) * 500


def test_pieces_together_make_the_entries_that_they_make_alone() -> None:
    pieces = [piece(number, 50 + 10 * (number % 7)) for number in range(60)]
    alone, together = Box(index_interval_bytes=200), Box(index_interval_bytes=200)
    for one in pieces:
        alone.writer.append([one])
    for begin in range(0, 60, 7):
        together.writer.append(pieces[begin : begin + 7])
    assert together.state() == alone.state()
    assert alone.state()[1]


@pytest.mark.parametrize("interval", [0, 150])
def test_a_write_that_fails_anywhere_leaves_the_segment_as_it_was(interval: int) -> None:
    failures = 0
    for operation in range(12):
        box = Box(index_interval_bytes=interval)
        first = [piece(number) for number in range(510)]
        box.writer.append(first)
        before = box.state()
        begin = box.fs.operations
        box.fs.fail_at(begin + operation, DiskFull)
        has_failed = False
        more = [marker(510), *(piece(number) for number in range(511, 1022))]
        try:
            box.writer.append(more)
        except DiskFull:
            failures += 1
            has_failed = True
            assert box.state() == before, (operation, box.fs.log[begin:])
            box.writer.append(more)
        if not has_failed:
            break  # there are no more operations
        again = box.state()
        whole = Box(index_interval_bytes=interval)
        whole.writer.append(first)
        whole.writer.append(more)
        assert again == whole.state()
        box.writer.finish()
        whole.writer.finish()
        for name in box.fs.list_dir("/"):
            assert box.fs.read_file("/" + name) == whole.fs.read_file("/" + name), name
    assert failures >= 3


def test_what_cannot_be_taken_back_is_told_apart() -> None:
    box = Box(index_interval_bytes=0)
    box.writer.append([piece(0)])
    begin = box.fs.operations
    box.fs.fail_at(begin + 1, DiskFull)  # the transaction index
    box.fs.fail_at(begin + 2, lambda path: StorageError(path, "Input/output error"))
    with pytest.raises(UndoFailed):
        box.writer.append([marker(1)])


def test_a_first_write_that_fails_begins_no_time() -> None:
    box = Box(segment_ms=1000)
    box.fs.fail_at(box.fs.operations, DiskFull)
    with pytest.raises(DiskFull):
        box.writer.append([piece(0)])
    assert not box.writer.should_roll(1, T0 + 5000, 1, T0)
    box.writer.append([piece(0)])
    assert box.writer.should_roll(1, T0 + 5000, 1, T0)


def test_finish_may_be_repeated_after_a_full_disk() -> None:
    box = Box(index_interval_bytes=0)
    for number in range(5):
        box.writer.append([piece(number)])
    with box.fs.failing(DiskFull, "append"), pytest.raises(DiskFull):
        box.writer.finish()
    box.writer.append([piece(5)])
    box.writer.finish()
    box.segment.seal()
    assert [entry[0] for entry in box.state()[1]] == [1, 2, 3, 4, 5]
    assert box.state()[2][-1] == (T0 + 5, 5)


def test_a_full_index_asks_for_a_new_segment_before_the_next_batch() -> None:
    box = Box(index_interval_bytes=0, segment_index_bytes=40)
    taken = 0
    while not box.writer.should_roll(100, T0, taken, T0):
        box.writer.append([piece(taken)])
        taken += 1
    assert len(box.segment.time_index) == 2  # of three, one of which finish may need
    assert box.writer.may_fill_up(0)
    end = Bound(taken, 0, box.segment.size)
    assert box.writer.append_one(batch(), read_header(batch()), end, 0, 0) is None


def test_how_many_batches_could_fill_an_index() -> None:
    box = Box(index_interval_bytes=0, segment_index_bytes=80)
    assert [box.writer.may_fill_up(count) for count in (0, 4, 5, 6)] == [False, False, True, True]
    box.writer.append([piece(0), piece(1), piece(2)])
    assert [box.writer.may_fill_up(count) for count in (2, 3)] == [False, True]


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
def test_a_segment_that_could_not_be_sealed_is_written_on(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    log = disk.open(index_interval_bytes=0)
    for number in range(3):
        log.append(batch(timestamp=T0 + number))

    def shortage(file: MemoryFile) -> None:
        if file.path.endswith(suffix):
            raise OutOfResources(file.path, "no file descriptor left")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryFile, "seal", shortage)
        with pytest.raises(OutOfResources):
            log.roll()
    for number in range(3, 6):
        log.append(batch(timestamp=T0 + number))
    assert log.offset_for_timestamp(T0 + 5) == (T0 + 5, 5)
    log.roll()
    sealed = log.segments[0]
    assert sealed.max_timestamp == (T0 + 5, 5)
    assert len(sealed.offset_index) == 5
    check_indexes(sealed)


def test_an_append_goes_on_after_a_roll_that_failed(disk: Disk) -> None:
    """The roll has given the time index its last entry already."""
    log = disk.open(index_interval_bytes=100)
    for number in range(4):
        log.append(batch(timestamp=T0 + number))
    with disk.fs.failing(DiskFull, "create"), pytest.raises(DiskFull):
        log.roll()
    for _ in range(6):
        log.append(batch(timestamp=T0))
    log.append(batch(timestamp=T0 + 9))
    log.roll()
    log.segments[0].time_index.check()
    check_indexes(log.segments[0])
