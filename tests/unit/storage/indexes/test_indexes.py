"""The two sparse indexes: their bytes, their lookups, what they refuse."""

import os
from collections.abc import Callable
from itertools import product
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.storage.errors import CorruptIndex, DiskFull
from raylog.storage.files import RealFileSystem
from raylog.storage.indexes.builder import IndexBuilder
from raylog.storage.indexes.offset_index import OffsetIndex, OffsetPosition
from raylog.storage.indexes.time_index import TimeIndex, TimestampOffset
from raylog.storage.testing.clock import T0
from raylog.storage.testing.memory import MemoryFile, MemoryFileSystem
from tests.harness.interleaving import Meeting, Outcome, Schedule, schedules

MAX_BYTES = 10 << 20


@pytest.fixture
def fs() -> MemoryFileSystem:
    return MemoryFileSystem()


def offset_index(fs: MemoryFileSystem, *entries: tuple[int, int], base: int = 0) -> OffsetIndex:
    index = OffsetIndex(fs, "/index", base, MAX_BYTES)
    index.create()
    for entry in entries:
        index.append(*entry)
    return index


def time_index(fs: MemoryFileSystem, *entries: tuple[int, int], base: int = 0) -> TimeIndex:
    index = TimeIndex(fs, "/index", base, MAX_BYTES)
    index.create()
    for entry in entries:
        index.maybe_append(*entry)
    return index


# -- by offset -------------------------------------------------------------------------------------


def test_an_offset_entry_is_kafkas_eight_bytes(fs: MemoryFileSystem) -> None:
    offset_index(fs, (1005, 4200), base=1000).close()
    assert fs.read_file("/index").hex() == "0000000500001068"


def test_an_offset_is_looked_up_at_or_below(fs: MemoryFileSystem) -> None:
    index = offset_index(fs, (110, 10), (120, 20), (135, 37), base=100)
    assert index.lookup(100) == index.lookup(109) == OffsetPosition(100, 0)
    assert index.lookup(110) == index.lookup(119) == OffsetPosition(110, 10)
    assert index.lookup(135) == index.lookup(10**9) == OffsetPosition(135, 37)
    assert index.lookup_position(9) == OffsetPosition(100, 0)
    assert index.lookup_position(20) == index.lookup_position(36) == OffsetPosition(120, 20)


def test_an_empty_index_points_to_the_segments_head(fs: MemoryFileSystem) -> None:
    assert offset_index(fs, base=7).lookup(99) == OffsetPosition(7, 0)
    assert time_index(fs, base=7).lookup(99) == TimestampOffset(-1, 7)


@pytest.mark.parametrize("count", [1, 1023, 1024, 1025, 1026, 1027, 3000])
def test_the_warm_end_and_the_cold_rest_meet(fs: MemoryFileSystem, count: int) -> None:
    index = offset_index(fs, *((2 * n + 10, 100 * n + 50) for n in range(count)))
    index.close()
    for entries in (index, OffsetIndex(fs, "/index", 0, MAX_BYTES)):
        for wanted in (0, 1, 2, count - 1026, count - 1025, count - 1024, count - 2, count - 1):
            if 0 <= wanted < count:
                expected = OffsetPosition(2 * wanted + 10, 100 * wanted + 50)
                assert (
                    entries.lookup(2 * wanted + 10) == entries.lookup(2 * wanted + 11) == expected
                )
                assert entries.lookup_position(100 * wanted + 50) == expected
                assert entries.entry_from(100 * wanted + 50) == expected
        assert entries.lookup(9) == OffsetPosition(0, 0)
        assert entries.entry_from(100 * count) is None


@pytest.mark.parametrize(
    ("position", "size", "expected"),
    [(0, 5, 101), (0, 10, 101), (0, 22, 102), (0, 23, 102), (10, 24, 103), (37, 1, None)],
)
def test_kafkas_scenario_of_upper_bounds(
    fs: MemoryFileSystem, position: int, size: int, expected: int | None
) -> None:
    """13.6: entries (b, 0), (b+1, 10), (b+2, 23), (b+3, 37); what a fetch of so many bytes from
    there ends before."""
    index = offset_index(fs, (100, 0), (101, 10), (102, 23), (103, 37), base=100)
    entry = index.entry_from(position + size)
    assert (entry and entry.offset) == expected


def test_lookups_agree_with_a_plain_search(fs: MemoryFileSystem) -> None:
    random = Random(5)
    offsets = sorted(random.sample(range(1, 20_000), 3000))
    index = offset_index(fs, *((offset, 10 * offset) for offset in offsets))
    for wanted in random.sample(range(21_000), 500):
        expected = max((offset for offset in offsets if offset <= wanted), default=0)
        assert index.lookup(wanted) == OffsetPosition(expected, 10 * expected)


def test_offsets_beyond_the_largest_relative_one_are_looked_up_too(fs: MemoryFileSystem) -> None:
    index = offset_index(fs, (2**31 - 1, 5))
    assert index.lookup(2**40) == OffsetPosition(2**31 - 1, 5)


def test_an_index_is_read_back_as_it_was_closed(fs: MemoryFileSystem) -> None:
    entries = [(offset, 3 * offset) for offset in range(10, 2000, 7)]
    offset_index(fs, *entries, base=5).close()
    again = OffsetIndex(fs, "/index", 5, MAX_BYTES)
    assert [tuple(again[number]) for number in range(len(again))] == entries
    again.append(3000, 10_000)
    again.close()
    assert OffsetIndex(fs, "/index", 5, MAX_BYTES).lookup(4000) == OffsetPosition(3000, 10_000)


def test_truncation_drops_what_is_at_and_above(fs: MemoryFileSystem) -> None:
    index = offset_index(fs, (10, 100), (20, 200), (30, 300))
    index.truncate_to_position(200)
    assert index.lookup(99) == OffsetPosition(10, 100)
    index.append(15, 150)
    index.close()
    assert fs.read_file("/index").hex() == "0000000a000000640000000f00000096"


def test_an_index_is_full_at_its_size_rounded_down(fs: MemoryFileSystem) -> None:
    index = OffsetIndex(fs, "/index", 0, 23)
    index.append(1, 1)
    assert not index.is_full
    index.append(2, 2)
    assert index.is_full


def test_the_time_index_is_full_one_slot_early(fs: MemoryFileSystem) -> None:
    index = TimeIndex(fs, "/index", 0, 3 * 12)
    index.maybe_append(1, 1)
    assert not index.is_full
    index.maybe_append(2, 2)
    assert index.is_full
    index.maybe_append(3, 3)  # the slot kept for roll and close
    assert len(index) == 3


# -- by time ---------------------------------------------------------------------------------------


def test_a_time_entry_is_kafkas_twelve_bytes(fs: MemoryFileSystem) -> None:
    time_index(fs, (T0 + 5, 1005), base=1000).close()
    assert fs.read_file("/index").hex() == "0000018bcfe5680500000005"


def test_a_time_is_looked_up_at_or_below(fs: MemoryFileSystem) -> None:
    index = time_index(fs, (50, 9), (60, 12))
    assert index.lookup(49) == TimestampOffset(-1, 0)
    assert index.lookup(50) == index.lookup(59) == TimestampOffset(50, 9)
    assert index.lookup(2**62) == index.last == TimestampOffset(60, 12)


def test_only_a_later_time_makes_an_entry(fs: MemoryFileSystem) -> None:
    index = time_index(fs, (50, 9), (50, 12), (49, 13), (51, 14))
    assert [tuple(index[number]) for number in range(len(index))] == [(50, 9), (51, 14)]


def test_records_without_timestamps_make_no_entry(fs: MemoryFileSystem) -> None:
    assert len(time_index(fs, (-1, 9))) == 0


def test_times_are_truncated_by_offset(fs: MemoryFileSystem) -> None:
    index = time_index(fs, (50, 9), (60, 12), (70, 20))
    index.truncate_to(12)
    assert index.last == TimestampOffset(50, 9)


# -- damage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        "0000000a0000",
        "0000000a0000006400",
        "0000000a000000640000000a000000c8",
        "0000000a000000640000000b00000064",
        "0000000b000000640000000a000000c8",
        "0000000a000000c80000000b00000064",
        "ffffffff00000064",
        "0000000affffff00",
        "00000000000000000000000000000000",
    ],
)
def test_what_is_no_offset_index_is_corrupt(fs: MemoryFileSystem, content: str) -> None:
    fs.write_file("/index", bytes.fromhex(content))
    with pytest.raises(CorruptIndex, match="index of segment 7, entry"):
        OffsetIndex(fs, "/index", 7, MAX_BYTES).lookup(0)


@pytest.mark.parametrize(
    "content",
    [
        "000000000000000a",
        "000000000000000a00000001000000000000000a00000002",
        "000000000000000a00000001000000000000000b00000001",
        "ffffffffffffff0000000001",
        "000000000000000affffffff",
        "00" * 24,
    ],
)
def test_what_is_no_time_index_is_corrupt(fs: MemoryFileSystem, content: str) -> None:
    fs.write_file("/index", bytes.fromhex(content))
    with pytest.raises(CorruptIndex, match="can be rebuilt"):
        TimeIndex(fs, "/index", 7, MAX_BYTES).lookup(0)


def test_an_entry_is_added_while_somebody_looks_into_the_others(fs: MemoryFileSystem) -> None:
    """They cannot grow then: the writer goes on with a copy."""
    index = offset_index(fs, (1, 10))
    with memoryview(index.changeable()) as looked_into:
        index.append(2, 20)
        assert bytes(looked_into) == bytes.fromhex("000000010000000a")
    assert (len(index), index.lookup(2)) == (2, OffsetPosition(2, 20))
    index.close()
    assert len(fs.read_file("/index")) == 16


def test_an_index_that_is_missing_is_empty(fs: MemoryFileSystem) -> None:
    assert len(OffsetIndex(fs, "/gone", 0, MAX_BYTES)) == 0


def test_a_rebuilt_index_takes_the_place_of_the_old_and_goes_on(fs: MemoryFileSystem) -> None:
    index = offset_index(fs, (10, 100))
    index.replace(bytes.fromhex("0000000b00000065"))
    assert fs.crash("flushed").read_file("/index").hex() == "0000000b00000065"
    index.append(12, 200)
    index.close()
    assert fs.read_file("/index").hex() == "0000000b000000650000000c000000c8"


@given(
    batches=st.lists(
        st.tuples(st.integers(61, 300), st.integers(1, 9), st.integers(-1, 6)), max_size=30
    ),
    cut=st.integers(0, 30),
    interval=st.integers(0, 700),
)
def test_batches_told_all_at_once_make_the_entries_of_batches_told_one_by_one(
    batches: list[tuple[int, int, int]], cut: int, interval: int
) -> None:
    rows, position, offset = [], 0, 99
    for size, count, timestamp in batches:
        offset += count
        rows.append((position, offset, timestamp))
        position += size
    single, many = IndexBuilder(100, interval), IndexBuilder(100, interval)
    for row in rows:
        single.add(*row)
    for some in (rows[:cut], rows[cut:]):
        table = np.array(some, np.int64).reshape(-1, 3)
        many.add_all(table[:, 0], table[:, 1], table[:, 2])
    assert many.largest == single.largest
    assert bytes(many.offsets) == bytes(single.offsets)
    assert many.times() == single.times()


# -- two threads -----------------------------------------------------------------------------------


def owner_mends(index: OffsetIndex) -> None:
    index.replace(index.entry.pack(2, 20))
    index.drop()


def owner_cuts(index: OffsetIndex) -> None:
    index.truncate_to_position(20)
    index.changeable().extend(index.entry.pack(2, 20))


@pytest.mark.timeout(600)  # thousands of schedules: 4 s, and a minute on a busy machine
@pytest.mark.parametrize("own", [owner_mends, owner_cuts])
def test_a_first_reader_beside_the_owner_leaves_the_owners_entries_in_place(
    own: Callable[[OffsetIndex], None],
) -> None:
    fs = MemoryFileSystem()
    offset_index(fs, (1, 10), (3, 30)).close()
    content = fs.read_file("/index")

    def meet(schedule: Schedule) -> Outcome:
        fs.write_file("/index", content)
        index = OffsetIndex(fs, "/index", 0, MAX_BYTES)
        outcome = Meeting(["sparse.py"], schedule).run(lambda: index.lookup(9), lambda: own(index))
        assert outcome.errors == [None, None], (schedule, outcome.places)
        assert outcome.answers[0] in ((3, 30), (2, 20), (1, 10)), outcome.places
        assert index.lookup(9) == (2, 20), (schedule, outcome.places)
        return outcome

    lines = meet(Schedule()).lines
    for schedule in schedules(lines):
        meet(schedule)
    for first, second in product(range(1, lines[0]), range(1, lines[1])):
        third, outcome = 1, meet(Schedule(0, (first, second, 1)))
        while len(outcome.places) == 3:  # until the reader was over before
            third += 1
            outcome = meet(Schedule(0, (first, second, third)))


def test_entries_that_are_written_beside_a_flush_are_flushed_by_the_next() -> None:
    def meet(schedule: Schedule) -> list[int]:
        fs = MemoryFileSystem()
        index = offset_index(fs, (1, 10))
        index.write()

        def seal() -> None:
            index.append(2, 20)
            index.write()
            index.seal()
            index.drop()

        outcome = Meeting(["sparse.py"], schedule).run(index.flush, seal)
        assert outcome.errors == [None, None], (schedule, outcome.places)
        index.flush()
        fs.sync_dir("/")
        written = fs.read_file("/index")
        assert fs.crash("flushed").read_file("/index") == written, (schedule, outcome.places)
        return outcome.lines

    for schedule in schedules(meet(Schedule())):
        meet(schedule)


# -- maps ------------------------------------------------------------------------------------------

ENTRIES = 1500  # three pages: a look behind the end of a file that was cut to one is a SIGBUS


def mapped_and_grown(path: str) -> tuple[OffsetIndex, memoryview, bytes]:
    """An index that a reader has mapped, and its owner has added to; the map and its bytes."""
    fs = RealFileSystem()
    index = OffsetIndex(fs, path, 0, MAX_BYTES)
    index.create()
    for number in range(ENTRIES):
        index.append(number + 1, number + 1)
    index.close()
    index = OffsetIndex(fs, path, 0, MAX_BYTES)
    view = index._loaded()
    assert isinstance(view, memoryview)
    content = bytes(view)
    index.changeable()
    index.append(ENTRIES + 1, ENTRIES + 1)
    index.write()
    return index, view, content


def test_what_a_reader_has_mapped_is_never_cut_nor_written_over(tmp_path: Path) -> None:
    path = str(tmp_path / "index")
    index, view, content = mapped_and_grown(path)
    mapped = os.stat(path).st_ino
    for kept in (1000, 10):
        index.truncate(kept)
        index.append(10**6, 10**6)
        index.write()
        assert os.stat(path).st_ino != mapped
        assert (tmp_path / "index").read_bytes() == bytes(index.changeable())
        assert len(index) == kept + 1
    assert bytes(view) == content
    index.close()


def test_a_cut_that_finds_a_full_disk_keeps_the_entries_in_memory(fs: MemoryFileSystem) -> None:
    offset_index(fs, *((n + 1, n + 1) for n in range(ENTRIES))).close()
    index = OffsetIndex(fs, "/index", 0, MAX_BYTES)
    index.changeable()
    with fs.failing(DiskFull, "append"):
        index.truncate(10)
    assert len(index) == 10
    assert not fs.exists("/index"), "it would have entries of what was cut"
    index.append(100, 100)
    index.close()
    assert len(fs.read_file("/index")) == 11 * 8


def test_an_index_that_its_owner_renames_while_a_reader_opens_it_is_no_error_of_the_disk(
    fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs.write_file("/index", OffsetIndex.entry.pack(5, 100))
    index = OffsetIndex(fs, "/index", 0, 1000)
    real = fs.open

    def renamed_before(path: str, *, create: bool = False) -> MemoryFile:
        fs.rename("/index", "/index.deleted")
        try:
            return real(path, create=create)
        finally:
            index.path = "/index.deleted"

    monkeypatch.setattr(fs, "open", renamed_before)
    assert index.lookup(7) == (0, 0), "the reader goes on without it"
