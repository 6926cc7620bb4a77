"""What readers see: the bound, one snapshot, lying indexes, and how few calls it costs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from raylog.storage.errors import CorruptRecord, OffsetOutOfRange, StorageError
from raylog.storage.locks import NoLock
from raylog.storage.log import Log
from raylog.storage.readable import COMMITTED, LATEST, LOG_END, LogRead
from raylog.storage.records.batch import read_header, stamp
from raylog.storage.records.control import Marker, encode_marker
from raylog.storage.records.decode import decode_records
from raylog.storage.recovery import check_indexes
from raylog.storage.segment import Segment
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import (
    FOLDER,
    Disk,
    batch,
    batch_of_size,
    flip,
    of_producer,
    offsets_of,
    records_of,
)
from raylog.storage.testing.memory import MemoryFileSystem, Stopped
from raylog.storage.validation import COORDINATOR
from tests.harness.paths import GOLDEN
from tests.harness.small_logs import counted_reads


@contextmanager
def at(
    monkeypatch: pytest.MonkeyPatch, verb: str, look: Callable[[str], Any], part: str = ""
) -> Iterator[None]:
    """Have ``look`` called with the path just before every operation of a kind."""
    real, is_looking = MemoryFileSystem.change, [False]

    def change(fs: MemoryFileSystem, done: str, path: str) -> None:
        if done == verb and part in path and not is_looking[0]:
            is_looking[0] = True
            look(path)
            is_looking[0] = False
        real(fs, done, path)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryFileSystem, "change", change)
        yield


def abort(log: Log, producer: int, *, is_abort: bool = True) -> int:
    marker = encode_marker(Marker(is_abort, 0, T0), producer_id=producer, producer_epoch=0)
    return log.append(marker, origin=COORDINATOR).base_offset


# -- the bound -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("flush_messages", "hidden"), [(1, 1), (3, 1), (1, 4), (3, 5)])
def test_what_waits_for_an_fsync_is_not_there_for_consumers(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, flush_messages: int, hidden: int
) -> None:
    log = disk.open(flush_messages=flush_messages)
    log.append(batch(2))
    log.flush()
    for _ in range(flush_messages - 1):
        log.append(batch())
    begin = log.high_watermark
    assert begin == log.log_end_offset
    before = log.readable_bytes
    for _ in range(hidden):
        log.append(batch(timestamp=T0 + 5))
    seen: list[Any] = []

    def look(path: str) -> None:
        seen.append(path)
        assert log.high_watermark == log.last_stable_offset == begin
        assert log.log_end_offset == begin + hidden
        found = log.read(begin, 1000)
        assert (found.size_bytes, found.file, found.read()) == (0, None, b"")
        assert (found.high_watermark, found.log_end_offset) == (begin, begin + hidden)
        assert log.read(begin, 1000, COMMITTED).size_bytes == 0
        assert log.read(0, 10_000).size_bytes == log.read(0, 10_000, COMMITTED).size_bytes
        assert len(decode_records(log.read(0, 10_000).read())) == begin
        assert len(decode_records(log.read(0, 10_000, LOG_END).read())) == begin + hidden
        assert log.read(begin, 10_000, LOG_END).size_bytes > 0
        latest = log.offset_for_timestamp(LATEST)
        assert latest is not None
        assert latest.offset == begin
        assert log.offset_for_timestamp(T0 + 5) is None
        at_end = log.offset_for_timestamp(LATEST, LOG_END)
        assert at_end is not None
        assert at_end.offset == begin + hidden
        by_time = log.offset_for_timestamp(T0 + 5, LOG_END)
        assert by_time is not None
        assert by_time.offset == begin
        assert log.readable_bytes == before
        with pytest.raises(OffsetOutOfRange, match=rf"\[0, {begin}\)"):
            log.delete_records(begin + 1)

    with at(monkeypatch, "flush", look, ".log"):
        log.flush()
    assert len(seen) == 1
    assert log.high_watermark == log.last_stable_offset == begin + hidden
    assert log.read(begin, 1000).size_bytes > 0
    assert log.readable_bytes > before
    assert log.offset_for_timestamp(T0 + 5) == (T0 + 5, begin)


def test_records_of_a_failed_fsync_never_become_readable(disk: Disk) -> None:
    log = disk.open(flush_messages=1)
    log.append(batch())
    with disk.fs.failing(lambda path: StorageError(path, "Input/output error"), "flush"):
        with pytest.raises(StorageError):
            log.flush()
        log.append(batch())
    assert (log.high_watermark, log.recovery_point, log.log_end_offset) == (0, 0, 2)
    assert log.read(0, 1000).size_bytes == 0


def test_who_read_something_finds_it_again_after_a_loss_of_power(disk: Disk) -> None:
    """The power goes before every operation."""
    for operation in range(60):
        one = Disk()
        one.fs.stop_at(one.fs.operations + operation)
        read: list[bytes] = []
        try:
            log = one.open(flush_messages=1, segment_bytes=150)
            for number in range(4):
                log.append(batch(value=b"%d" % number))
                read.append(log.read(0, 1000).read())
                log.flush()
                read.append(log.read(log.high_watermark - 1, 1000).read())
        except Stopped:
            pass
        offsets = [record.offset for one_read in read for record in decode_records(one_read)]
        last = max(offsets, default=-1)
        after = Disk(one.fs.crash("flushed", names="flushed"))
        if last >= 0:
            again = after.open(is_clean=False, flush_messages=1)
            assert [record.value for record in records_of(again, 0)][: last + 1] == [
                b"%d" % number for number in range(last + 1)
            ], operation


def test_opening_fsyncs_the_recovered_tail_before_a_reader_sees_it(disk: Disk) -> None:
    log = disk.open()
    log.append(batch())
    after = Disk(disk.fs.crash("all"))
    again = after.open(is_clean=False, flush_messages=1)
    assert (again.high_watermark, again.recovery_point) == (1, 1)
    assert any(done.startswith("flush") and done.endswith(".log") for done in after.fs.log)
    found = again.read(0, 100).read()
    third = Disk(after.fs.crash("flushed", names="flushed")).open(is_clean=False, flush_messages=1)
    assert third.read(0, 100).read() == found


def test_a_config_may_come_to_ask_for_fsyncs_and_cease_to(disk: Disk) -> None:
    log = disk.open()
    log.append(batch())
    log.reconfigure(log.config.__class__(flush_messages=1))
    assert log.high_watermark == 1, "what was readable stays"
    log.append(batch())
    assert (log.high_watermark, log.log_end_offset) == (1, 2)
    log.reconfigure(log.config.__class__())
    log.append(batch())
    assert log.high_watermark == log.log_end_offset == 3


def test_a_bound_stays_right_when_the_segment_is_rolled_meanwhile(disk: Disk) -> None:
    log = disk.open(flush_messages=1)
    log.append(batch())
    log.flush()
    log.append(batch())
    log.roll()
    log.append(batch())
    assert (log.high_watermark, log.log_end_offset) == (1, 3)
    assert offsets_of(log) == [0]
    assert len(decode_records(log.read(0, 1000, LOG_END).read())) == 2
    log.flush(2)
    assert offsets_of(log) == [0, 1, 2]


def test_retention_keeps_what_waits_for_an_fsync(disk: Disk) -> None:
    log = disk.open(flush_messages=1, retention_bytes=0, segment_bytes=100)
    for _ in range(3):
        log.append(batch())
    assert log.high_watermark == 0
    assert log.delete_old_segments() == 0
    log.flush()
    assert log.delete_old_segments() > 0


def test_a_marker_that_waits_for_an_fsync_decides_nothing(disk: Disk) -> None:
    log = disk.open(flush_messages=1)
    log.append(of_producer(0, 2, transactional=True))
    log.append(batch())
    log.flush()
    assert (log.high_watermark, log.last_stable_offset) == (3, 0)
    abort(log, 7, is_abort=False)
    assert log.last_stable_offset == 0
    assert log.read(0, 1000, COMMITTED).size_bytes == 0
    log.flush()
    assert log.last_stable_offset == 4
    assert log.read(0, 1000, COMMITTED).size_bytes > 0


def test_a_gap_below_the_bound_leads_to_nothing_behind_it(disk: Disk) -> None:
    """Compaction took offsets 1 to 4, at 5 a transaction is open, and later segments have more."""
    first, second = batch(), of_producer(0, transactional=True)
    stamp(first, 0, 0)
    stamp(second, 5, 0)
    disk.write("00000000000000000000.log", bytes(first + second))
    log = disk.open(is_clean=False)
    log.roll()
    log.append(batch())
    assert log.last_stable_offset == 5
    for offset in (1, 3, 4, 5):
        assert log.read(offset, 1000, COMMITTED).size_bytes == 0
        assert log.read(offset, 1000).size_bytes > 0


# -- one snapshot ----------------------------------------------------------------------------------


def with_transactions(disk: Disk) -> Log:
    """0-1 aborted at 2, 3-4 open, 5 plain; then 6 which waits for an fsync."""
    log = disk.open(flush_messages=1)
    log.epochs.assign(4, 0)
    log.append(of_producer(0, 2, transactional=True))
    abort(log, 7)
    log.append(of_producer(0, 2, producer=8, transactional=True))
    log.append(batch())
    log.flush()
    log.append(batch())
    return log


@pytest.mark.parametrize(
    ("isolation", "end", "aborted"),
    [("log_end", 7, []), ("high_watermark", 6, []), ("committed", 3, [(7, 0, 2, 3)])],
)
def test_a_read_answers_all_that_a_fetch_needs(
    disk: Disk, isolation: Any, end: int, aborted: list[tuple[int, ...]]
) -> None:
    log = with_transactions(disk)
    found = log.read(0, 10_000, isolation)
    *_, (_, last) = log.segments[0].batches(0, found.size_bytes)
    assert last.next_offset == end
    expected = LogRead(
        file=found.file,
        path=f"{FOLDER}/00000000000000000000.log",
        segment_base=0,
        position=0,
        size_bytes=found.size_bytes,
        end_offset=end,
        log_start_offset=0,
        high_watermark=6,
        last_stable_offset=3,
        log_end_offset=7,
        leader_epoch=4,
        aborted=tuple(aborted),  # type: ignore[arg-type]
    )
    assert found == expected
    nothing = log.read(end, 10_000, isolation)
    assert nothing == expected._replace(
        file=None, path="", segment_base=-1, size_bytes=0, end_offset=-1, aborted=()
    )


def test_a_file_that_was_read_stays_whatever_becomes_of_it(disk: Disk) -> None:
    log = disk.open(segment_bytes=100, retention_bytes=0, file_delete_delay_ms=0)
    log.append(batch())
    log.append(batch())
    found = log.read(0, 1000)
    content = found.read()
    assert len(content) == found.size_bytes > 0
    log.delete_old_segments()
    assert found.read() == content, "renamed"
    log.purge_deleted()
    assert disk.names(".deleted") == []
    assert found.read() == content, "removed"
    log.close()
    assert found.read() == content, "closed"


def test_epochs_are_looked_up(disk: Disk) -> None:
    log = disk.open()
    for epoch in (3, 7):
        log.epochs.assign(epoch, log.log_end_offset)
        log.append(batch(5), leader_epoch=epoch)
    assert [log.epoch_at(offset) for offset in (0, 4, 5, 9)] == [3, 3, 7, 7]
    assert log.end_offset_for(3) == (3, 5)
    assert log.end_offset_for(7) == (7, 10)
    assert log.end_offset_for(5) == (3, 5)
    assert log.read(0, 100).leader_epoch == 7


def test_a_read_tells_where_the_log_parts_from_its_reader(disk: Disk) -> None:
    log = disk.open()
    for epoch in (3, 7):
        log.epochs.assign(epoch, log.log_end_offset)
        log.append(batch(5), leader_epoch=epoch)

    def read(offset: int, epoch: int) -> tuple[int, int] | int | None:
        """Where they part; None if they do not; 1 for an offset out of range."""
        try:
            found = log.read(offset, 10_000, last_fetched_epoch=epoch)
        except OffsetOutOfRange as error:
            return error.code
        assert found.diverging is None or found.size_bytes == 0
        return found.diverging

    assert [read(offset, 3) for offset in (0, 5, 6, 10, 11)] == [None, None, (3, 5), (3, 5), (3, 5)]
    assert [read(offset, 7) for offset in (0, 10, 11)] == [None, None, (7, 10)]
    assert [read(offset, 5) for offset in (4, 9)] == [(3, 5), (3, 5)], "an epoch that is gone"
    assert [read(offset, 8) for offset in (4, 10)] == [1, 1], "above all of this log"
    assert [read(offset, -1) for offset in (0, 10, 11)] == [None, None, 1]
    with log.locks.old, log.locks.flush:
        log.delete_records(7)
    assert [read(offset, 3) for offset in (6, 7)] == [1, None], "the start comes first"


# -- retention beside a read -----------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["sync_dir", "rename", "remove"])
def test_no_offset_is_answered_with_a_later_one_while_retention_runs(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    log = disk.open(segment_bytes=100, retention_bytes=0)
    for _ in range(4):
        log.append(batch())
    seen = []

    def look(path: str) -> None:
        try:
            found = decode_records(log.read(0, 1000).read())
        except OffsetOutOfRange:
            seen.append("out of range")
        else:
            assert found[0].offset == 0
            seen.append("0")

    with at(monkeypatch, verb, look):
        assert log.delete_old_segments() == 4
    assert seen
    with pytest.raises(OffsetOutOfRange):
        log.read(0, 1000)


def test_the_start_is_raised_before_the_list_is_shorter(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list lock of the test's own looks at both whenever one of them changes."""
    log = disk.open(segment_bytes=100, retention_bytes=0)
    for _ in range(4):
        log.append(batch())
    states = []

    class Look(NoLock):
        def __enter__(self) -> bool:
            states.append((log.log_start_offset, log.segments[0].base_offset))
            return True

        def __exit__(self, *_: object) -> None:
            states.append((log.log_start_offset, log.segments[0].base_offset))

    log.locks.list = Look()
    log.delete_old_segments()
    assert (4, 0) in states
    assert all(start >= first for start, first in states)


def test_the_start_is_not_recorded_before_the_names_of_what_is_left_are_on_the_disk() -> None:
    """Power fails at every step, and checkpoints were written just before it."""
    for operation in range(40):
        disk = Disk()
        log = disk.open(segment_bytes=100, retention_bytes=100)
        for _ in range(4):
            log.append(batch())
        disk.fs.stop_at(disk.fs.operations + operation)
        try:
            log.delete_old_segments()
        except Stopped:
            pass
        start, recovery_point = log.log_start_offset, log.recovery_point
        after = Disk(disk.fs.crash("flushed", names="flushed"))
        again = after.open(is_clean=False, log_start_offset=start, recovery_point=recovery_point)
        assert again.log_end_offset >= max(start, recovery_point), operation


@pytest.mark.parametrize("cut", [Log.truncate_to, Log.truncate_fully])
def test_a_read_that_a_truncation_comes_into_answers_from_one_moment(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, cut: Callable[[Log, int], Any]
) -> None:
    log = disk.open()
    for _ in range(6):
        log.append(batch(2))
    calls = []
    real = log._stable

    def stable(high_watermark: int) -> int:
        """Called when the bound was taken, and the list of segments was not."""
        calls.append(high_watermark)
        if len(calls) == 1:
            cut(log, 4)
        return real(high_watermark)

    monkeypatch.setattr(log, "_stable", stable)
    start = 0 if cut is Log.truncate_to else 4
    found = log.read(start, 1000)
    assert len(calls) == 2
    assert (found.high_watermark, found.last_stable_offset, found.log_end_offset) == (4, 4, 4)
    assert len(decode_records(found.read())) == 4 - start


def cut_after(monkeypatch: pytest.MonkeyPatch, log: Log, name: str, offset: int) -> None:
    """The log is truncated when the first call of a method has its answer."""
    real, calls = getattr(log, name), []

    def then_cut(*args: Any) -> Any:
        answer = real(*args)
        calls.append(args)
        if len(calls) == 1:
            log.truncate_to(offset)
        return answer

    monkeypatch.setattr(log, name, then_cut)


def test_batches_that_are_cut_when_they_were_found_are_not_the_answer(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = disk.open()
    for _ in range(6):
        log.append(batch(2))
    cut_after(monkeypatch, log, "_find", 4)
    found = log.read(0, 1000)
    assert (found.high_watermark, len(decode_records(found.read()))) == (4, 4)


def test_a_time_that_is_cut_when_it_was_found_is_not_the_answer(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = disk.open()
    for number in range(6):
        log.append(batch(timestamp=T0 + number))
    cut_after(monkeypatch, log, "_first_at", 4)
    assert log.offset_for_timestamp(T0 + 5) is None


# -- lying indexes ---------------------------------------------------------------------------------


def lying(disk: Disk, name: str, change: Callable[[bytes], bytes]) -> Log:
    """Three segments of 40 batches; an index of the first was damaged after a clean stop."""
    log = disk.open(index_interval_bytes=100)
    for number in range(120):
        if number in (40, 80):
            log.roll()
        log.append(batch_of_size(100, timestamp=T0 + number))
    log.close()
    log = disk.open(index_interval_bytes=100)
    disk.damage(name, change)
    return log


def swapped(content: bytes) -> bytes:
    """Every offset says the position of the entry behind: it rises, and lies."""
    return b"".join(
        content[at : at + 4] + content[at + 12 : at + 16] for at in range(0, len(content) - 8, 8)
    )


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("00000000000000000000.index", swapped),
        ("00000000000000000000.index", flip(8 * 9 + 3, 1)),
        ("00000000000000000000.index", flip(8 * 9 + 6)),
        ("00000000000000000000.index", lambda content: content[:-3]),
        ("00000000000000000000.timeindex", flip(12 * 5 + 7)),
        ("00000000000000000000.timeindex", lambda content: content[12:] + content[:12]),
    ],
)
def test_a_lying_index_is_read_past_and_noted_and_its_owner_makes_it_again(
    disk: Disk, name: str, change: Callable[[bytes], bytes]
) -> None:
    log = lying(disk, name, change)
    begin = disk.fs.operations
    for offset in range(40):
        assert decode_records(log.read(offset, 100).read())[0].offset == offset
        assert len(decode_records(log.read(offset, 350).read())) == min(3, 40 - offset)
        assert log.offset_for_timestamp(T0 + offset) == (T0 + offset, offset)
    assert disk.fs.operations == begin, "who reads writes nothing"
    assert log.wrong_indexes == {log.segments[0]}
    assert log.mend_indexes() == [log.segments[0].id]
    assert log.wrong_indexes == set()
    assert offsets_of(log, 0, 350) == list(range(120))
    assert log.wrong_indexes == set()
    check_indexes(log.segments[0])
    assert not isinstance(log.segments[0].offset_index._loaded(), bytearray)


def test_an_index_file_that_is_gone_is_noted_too(disk: Disk) -> None:
    log = lying(disk, "00000000000000000000.index", lambda content: content)
    disk.fs.remove(disk.path("00000000000000000000.index"))
    assert offsets_of(log, 5, 100)[:3] == [5, 6, 7]
    assert log.wrong_indexes == {log.segments[0]}
    log.mend_indexes()
    assert disk.names(".index")[0] == "00000000000000000000.index"
    assert offsets_of(log, 5, 100)[:3] == [5, 6, 7]
    assert log.wrong_indexes == set()


def test_the_active_segment_waits_until_it_is_sealed(disk: Disk) -> None:
    log = lying(disk, "00000000000000000000.index", lambda content: content)
    log.wrong_indexes.add(log.segments[-1])
    assert log.mend_indexes() == []
    active = log.segments[-1]
    assert log.wrong_indexes == {active}
    log.roll()
    assert log.mend_indexes() == [active.id]


def test_indexes_of_a_damaged_log_are_tried_once_and_hold_up_no_other(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = lying(disk, "00000000000000000040.index", swapped)
    disk.damage("00000000000000000000.log", flip(100 * 7 + 16, 3))
    log = disk.open(index_interval_bytes=100)
    first, second = log.segments[:2]
    log.wrong_indexes |= {first, second}
    assert log.mend_indexes() == [second.id]
    assert log.wrong_indexes == set()
    log.wrong_indexes.add(first)
    monkeypatch.setattr("raylog.storage.log.rebuild_indexes", pytest.fail)
    assert log.mend_indexes() == []
    with pytest.raises(CorruptRecord):
        log.read(7, 100)


@pytest.mark.parametrize("interval", [50, 150, 4096])
def test_a_length_that_leads_out_of_the_segment_is_an_error_not_its_end(
    disk: Disk, interval: int
) -> None:
    """It would be a silent jump to the next segment."""
    log = disk.open(index_interval_bytes=interval)
    for number in range(20):
        if number == 10:
            log.roll()
        log.append(batch_of_size(100))
    disk.damage("00000000000000000000.log", flip(100 * 5 + 9))
    with pytest.raises(CorruptRecord):
        log.read(5, 50)
    for offset in (6, 7, 9):
        try:
            found = log.read(offset, 50)
        except CorruptRecord:
            continue
        assert interval < 4096, "only an entry behind the damage leads past it"
        assert decode_records(found.read())[0].offset == offset
    assert decode_records(log.read(10, 50).read())[0].offset == 10


def test_what_aborted_is_not_taken_from_an_entry_that_lies(disk: Disk) -> None:
    """An entry behind the slice tells how far to look. Too low, it would hide a transaction."""
    log = disk.open(index_interval_bytes=0)
    for _ in range(3):
        log.append(batch())
    log.append(of_producer(0, 1, transactional=True))
    for _ in range(3):
        log.append(batch())
    abort(log, 7)
    log.roll()
    log.close()

    def lower(content: bytes) -> bytes:
        """The entries from the fourth batch on say 2, 3, ... for 4, 5 ..."""
        entries = [content[at : at + 8] for at in range(0, len(content), 8)]
        kept = [entry for entry in entries if int.from_bytes(entry[:4], "big") < 2]
        wrong = [
            (int.from_bytes(entry[:4], "big") - 2).to_bytes(4, "big") + entry[4:]
            for entry in entries
            if int.from_bytes(entry[:4], "big") >= 4
        ]
        return b"".join(kept + wrong)

    log = disk.open(index_interval_bytes=0)
    expected = log.read(0, 4 * len(batch()) + 10, COMMITTED)
    disk.damage("00000000000000000000.index", lower)
    log.segments[0].offset_index._held = {}  # it was read when the log was opened
    found = log.read(0, 4 * len(batch()) + 10, COMMITTED)
    assert found.size_bytes == expected.size_bytes
    assert [entry.producer_id for entry in found.aborted] == [7]
    assert log.wrong_indexes == {log.segments[0]}


# -- what it costs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("is_reopened", [False, True])
@pytest.mark.parametrize(
    ("size", "count", "records"),
    [
        (78, 30_000, 1),
        (1000, 2500, 3),
        (4096, 600, 2),
        (5000, 500, 4),
        (16_000, 150, 1),
        (16_000, 150, 20),
        (100_000, 30, 1),
        (100_000, 30, 50),
        (1_000_000, 5, 1),
        (1_000_000, 5, 100),
    ],
)
def test_a_fetch_of_a_megabyte_is_three_calls_at_most(
    disk: Disk,
    size: int,
    count: int,
    records: int,
    is_reopened: bool,
) -> None:
    log = disk.open()
    content = bytes(batch_of_size(size, records))
    for _ in range(count):
        log.append(content)
    if is_reopened:
        log.roll()
    for number in {0, 2, 3, 7, 11, 20, count // 3, count // 2, count - 2, count - 1}:
        if number >= count or number < 0:
            continue
        for within in {0, records // 2, records - 1}:
            offset = number * records + within
            with counted_reads() as calls:
                found = log.read(offset, 1 << 20)
            assert found.position == number * size
            fits = min(max((1 << 20) // size, 1), count - number)
            assert found.size_bytes == fits * size
            assert len(calls) <= 2, (offset, calls)  # and one for the data


def test_a_fetch_of_all_that_is_left_looks_for_no_end(disk: Disk) -> None:
    log = disk.open()
    for _ in range(20):
        log.append(batch_of_size(1000))
    for max_bytes in (10_000, 10_001, 1 << 20):
        with counted_reads() as calls:
            assert log.read(10, max_bytes).size_bytes == 10_000
        assert len(calls) == 1


def test_the_newest_offset_costs_the_same_with_many_segments(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = []
    for segments in (1, 2500):
        one = Disk()
        log = one.open(segment_bytes=100)
        for _ in range(segments):
            log.append(batch())
        slices: list[Segment] = []
        real = Segment.slice

        def noted(segment: Segment, *arguments: Any, seen: Any = slices, real: Any = real) -> Any:
            seen.append(segment)
            return real(segment, *arguments)

        with monkeypatch.context() as patch, counted_reads() as calls:
            patch.setattr(Segment, "slice", noted)
            log.read(segments - 1, 1000)
            log.read(segments, 1000)
        costs.append((len(calls), len(slices)))
    assert costs[0] == costs[1]
    assert costs[0] <= (1, 1)


def test_a_find_works_among_old_messages(disk: Disk) -> None:
    path, *_ = sorted(GOLDEN.glob("kafka-clients-3.9.1-batches/m1-none-*.bin"))
    content = path.read_bytes()
    first = int.from_bytes(content[:8], "big")
    segment = Segment(disk.fs, "/", first, disk.open().config, create=True)
    size = 12 + int.from_bytes(content[8:12], "big")
    segment.log.append([content[:size], (first + 1).to_bytes(8, "big") + content[8:size]])
    assert segment.find(first) == (0, size)
    assert segment.find(first + 1) == (size, size)
    assert segment.find(first + 2) is None


# -- what is kept in memory ------------------------------------------------------------------------


def test_a_sealed_segments_entries_leave_the_memory(disk: Disk) -> None:
    log = disk.open(index_interval_bytes=0, segment_bytes=2000)
    for number in range(400):
        log.append(batch_of_size(100, timestamp=T0 + number))
    sealed = log.segments[:-1]
    assert len(sealed) == 19
    assert all(not segment.offset_index._held for segment in sealed)
    assert all(not segment.time_index._held for segment in sealed)
    offsets_of(log, 0, 300)
    for segment in sealed:
        assert not isinstance(segment.offset_index._loaded(), bytearray)
        assert not isinstance(segment.time_index._loaded(), bytearray)
    log.flush()
    assert all(segment.offset_index._file is None for segment in sealed)
    log.close()
    assert offsets_of(disk.open(), 0, 300) == list(range(400))


def test_a_read_has_a_whole_batch_though_an_index_entry_leads_into_it(disk: Disk) -> None:
    """Its length lies, and reaches into the batch behind it. No CRC covers a length."""
    log = disk.open(index_interval_bytes=0)
    for _ in range(6):
        log.append(batch(value=b"v" * 30))
    log.roll()
    log.append(batch())
    log.close()
    name = "00000000000000000000.log"
    size = len(disk.read(name)) // 6
    disk.damage(name, flip(2 * size + 11, bit=4))
    log = disk.open(index_interval_bytes=0)
    for max_bytes in range(1, 4 * size, 10):
        with suppress(CorruptRecord):  # where the batch behind it is read
            found = log.read(2, max_bytes)
            assert found.size_bytes >= read_header(found.read()).size_bytes
