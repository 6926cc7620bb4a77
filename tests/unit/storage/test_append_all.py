"""Several batches in one call: one write, an answer each, as if they came one by one."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.storage.errors import DiskFull, OutOfOrderSequence, StorageError, UndoInterrupted
from raylog.storage.log import Log
from raylog.storage.records.control import Marker, encode_marker
from raylog.storage.state.producers import LastRecord
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import FOLDER, Disk, batch, batch_of_size, of_producer, offsets_of
from raylog.storage.validation import COORDINATOR, CheckedBatch, Origin, check_append
from raylog.storage.writer import AppendInfo, Piece, SegmentWriter


def checked(log: Log, *batches: bytearray, origin: Origin = "client") -> list[CheckedBatch]:
    return [check_append(bytes(one), log.config, T0, origin) for one in batches]


def append_all(log: Log, *batches: bytearray, **options: Any) -> list[Any]:
    return log.append_all(checked(log, *batches), T0, **options)


def writes(disk: Disk, begin: int) -> list[str]:
    return [done for done in disk.fs.log[begin:] if done.startswith("append")]


def bases(answers: list[Any]) -> list[int]:
    return [answer.base_offset for answer in answers]


def test_all_are_one_write_and_the_answers_are_in_their_order(disk: Disk) -> None:
    log = disk.open()
    begin = disk.fs.operations
    answers = append_all(log, batch(2), batch(1), batch(5))
    assert writes(disk, begin) == [f"append {FOLDER}/00000000000000000000.log"]
    assert [answer[:2] for answer in answers] == [(0, 1), (2, 2), (3, 7)]
    assert (log.log_end_offset, log.high_watermark) == (8, 8)
    assert offsets_of(log) == list(range(8))


def test_none_are_no_write(disk: Disk) -> None:
    log = disk.open()
    begin = disk.fs.operations
    assert log.append_all([], T0) == []
    assert disk.fs.operations == begin


def test_more_than_the_system_takes_at_once_are_two_writes(disk: Disk) -> None:
    log = disk.open()
    begin = disk.fs.operations
    answers = append_all(log, *[batch()] * 513)
    assert len(writes(disk, begin)) == 2
    assert bases(answers) == list(range(513))


def test_a_batch_that_was_written_before_is_answered_as_the_first_time(disk: Disk) -> None:
    log = disk.open()
    log.append(of_producer(0, 3))
    answers = append_all(log, of_producer(3, 2), of_producer(0, 3), of_producer(5))
    assert bases(answers) == [3, 0, 5]
    assert [answer.is_duplicate for answer in answers] == [False, True, False]


def test_a_batch_may_be_twice_in_one_call(disk: Disk) -> None:
    log = disk.open()
    answers = append_all(log, of_producer(0, 3), of_producer(0, 3), of_producer(3))
    assert bases(answers) == [0, 0, 3]
    assert [answer.is_duplicate for answer in answers] == [False, True, False]
    assert log.log_end_offset == 4


def test_a_duplicate_is_not_acknowledged_if_its_first_copy_was_not_written(disk: Disk) -> None:
    log = disk.open()
    log.append(batch())
    with disk.fs.failing(DiskFull, "append"):
        answers = append_all(log, of_producer(0, 3), of_producer(0, 3))
    assert [type(answer) for answer in answers] == [DiskFull, DiskFull]
    assert log.log_end_offset == 1
    assert bases(append_all(log, of_producer(0, 3))) == [1]


def test_a_duplicate_whose_first_copy_failed_may_be_written_itself(disk: Disk) -> None:
    log = disk.open()
    log.append(batch())
    disk.fs.fail_at(disk.fs.operations, DiskFull)
    first, second = append_all(log, of_producer(0, 3), of_producer(0, 3))
    assert type(first) is DiskFull
    assert (second.base_offset, second.is_duplicate) == (1, False)
    assert offsets_of(log) == [0, 1, 2, 3]


def test_a_sequence_out_of_order_holds_up_no_other(disk: Disk) -> None:
    log = disk.open()
    begin = disk.fs.operations
    answers = append_all(
        log, of_producer(0), of_producer(5), of_producer(1), of_producer(7, producer=8)
    )
    assert type(answers[1]) is OutOfOrderSequence
    assert bases([answers[0], *answers[2:]]) == [0, 1, 2]
    assert len(writes(disk, begin)) == 1


def test_a_roll_in_the_middle_makes_two_writes(disk: Disk) -> None:
    log = disk.open(segment_bytes=300)
    begin = disk.fs.operations
    answers = append_all(log, *[batch_of_size(100)] * 5)
    assert bases(answers) == [0, 1, 2, 3, 4]
    assert [segment.base_offset for segment in log.segments] == [0, 3]
    assert len([done for done in writes(disk, begin) if done.endswith(".log")]) == 2
    assert offsets_of(log) == [0, 1, 2, 3, 4]


def test_all_of_a_write_that_fails_get_its_error_and_nothing_is_changed(disk: Disk) -> None:
    log = disk.open(segment_bytes=300)
    log.append(of_producer(0))
    log.append(batch_of_size(80))
    before = (
        disk.read("00000000000000000000.log"),
        producers_of(log),
        log.log_end_offset,
    )
    with disk.fs.failing(DiskFull, "append"):
        answers = append_all(log, of_producer(1), of_producer(2), batch_of_size(280))
    assert [type(answer) for answer in answers] == [DiskFull] * 3
    after = (
        disk.read("00000000000000000000.log"),
        producers_of(log),
        log.log_end_offset,
    )
    assert after == before
    assert log.last_records() == {7: LastRecord(0, 0)}
    assert bases(append_all(log, of_producer(1), of_producer(2))) == [2, 3]


def test_a_failed_write_does_not_take_back_the_one_before(disk: Disk) -> None:
    log = disk.open(segment_bytes=300)
    log.append_all(checked(log, batch_of_size(100)), T0)
    begin = disk.fs.operations
    # The first write, then what a roll does, then the second write.
    disk.fs.fail_at(begin + roll_operations() + 1, DiskFull)
    answers = append_all(log, *[batch_of_size(100)] * 4)
    assert [type(answer) for answer in answers] == [AppendInfo, AppendInfo, DiskFull, DiskFull]
    assert offsets_of(log) == [0, 1, 2]
    assert log.append(batch()).base_offset == 3


def roll_operations() -> int:
    """How many operations a roll is."""
    disk = Disk()
    log = disk.open()
    log.append(batch())
    begin = disk.fs.operations
    log.roll()
    return disk.fs.operations - begin


def end(log: Log, *producers: int, is_abort: bool = True) -> list[Any]:
    """Their markers, in one call."""
    markers = [
        encode_marker(Marker(is_abort, 0, T0), producer_id=one, producer_epoch=0)
        for one in producers
    ]
    return log.append_all(checked(log, *markers, origin=COORDINATOR), T0, origin=COORDINATOR)


def test_markers_end_transactions_each_with_its_own_last_stable_offset(disk: Disk) -> None:
    log = disk.open()
    for producer in (7, 8, 9):
        log.append(of_producer(0, 2, producer=producer, transactional=True))
    log.append(batch())
    assert bases(end(log, 8, 7)) == [7, 8]
    assert [tuple(entry) for entry in log.aborted()] == [(8, 2, 7, 0), (7, 0, 8, 4)]
    assert log.last_stable_offset == 4
    assert bases(end(log, 9, is_abort=False)) == [9]
    assert log.last_stable_offset == 10
    one = disk_of_the_same_one_by_one()
    assert [*one.aborted()] == [*log.aborted()]


def test_a_marker_sees_the_transaction_that_came_in_the_same_call(disk: Disk) -> None:
    log = disk.open()
    data = of_producer(0, 2, transactional=True)
    marker = encode_marker(Marker(True, 0, T0), producer_id=7, producer_epoch=0)
    batches = checked(log, data, marker, data, marker, data, origin=COORDINATOR)
    assert bases(log.append_all(batches, T0, origin=COORDINATOR)) == [0, 2, 3, 5, 6]
    assert [tuple(entry) for entry in log.aborted()] == [(7, 0, 2, 3), (7, 3, 5, 6)]
    assert log.last_stable_offset == 6


def disk_of_the_same_one_by_one() -> Log:
    log = Disk().open()
    for producer in (7, 8, 9):
        log.append(of_producer(0, 2, producer=producer, transactional=True))
    log.append(batch())
    for producer in (8, 7):
        end(log, producer)
    end(log, 9, is_abort=False)
    return log


def producers_of(log: Log) -> bytes:
    return log._log_end.producers.encode()


def settled(log: Log) -> Any:
    return (
        log.log_end_offset,
        log.high_watermark,
        log.last_stable_offset,
        producers_of(log),
    )


kinds = st.sampled_from(["plain", "next", "next", "again", "ahead", "large", "late", "early"])


@settings(deadline=None, max_examples=80)
@given(
    st.lists(st.tuples(kinds, st.integers(0, 2), st.integers(1, 3)), max_size=14),
    st.sampled_from([400, 700, 1 << 30]),
    st.sampled_from([24, 60, 1 << 20]),
    st.sampled_from([0, 100, 4096]),
    st.sampled_from(["CreateTime", "LogAppendTime"]),
    st.integers(1, 5),
)
def test_the_same_as_one_by_one(
    plan: list[tuple[str, int, int]],
    segment_bytes: int,
    index_bytes: int,
    interval: int,
    timestamp_type: str,
    at_once: int,
) -> None:
    config: dict[str, Any] = {
        "segment_bytes": segment_bytes,
        "segment_index_bytes": index_bytes,
        "index_interval_bytes": interval,
        "segment_ms": 1000,
        "message_timestamp_type": timestamp_type,
    }
    disks = Disk(), Disk()
    one_by_one, together = (disk.open(**config) for disk in disks)
    batches = [bytes(planned) for planned in batches_of(plan)]
    expected: list[Any] = []
    for number, content in enumerate(batches):
        now_ms = T0 + number // at_once
        info = check_append(content, one_by_one.config, now_ms)
        try:
            expected.append(one_by_one.append_checked(info, now_ms, 3))
        except OutOfOrderSequence as error:
            expected.append(str(error))
    answers: list[Any] = []
    for begin in range(0, len(batches), at_once):
        now_ms = T0 + begin // at_once
        some = [
            check_append(content, together.config, now_ms)
            for content in batches[begin : begin + at_once]
        ]
        answers += together.append_all(some, now_ms, 3)
    assert [str(a) if isinstance(a, Exception) else a for a in answers] == expected
    assert settled(together) == settled(one_by_one)
    one_by_one.close()
    together.close()
    assert disks[0].names() == disks[1].names()
    for name in disks[0].names():
        assert disks[0].read(name) == disks[1].read(name), name


def batches_of(plan: list[tuple[str, int, int]]) -> list[bytearray]:
    """Batches of three producers; of each the sequence goes on, is repeated, or has a gap."""
    sequences = dict.fromkeys(range(3), 0)
    made = []
    for kind, producer, count in plan:
        own: dict[str, Any] = {"producer": producer}
        if kind == "plain":
            made.append(batch(count))
        elif kind == "large":
            made.append(batch_of_size(250, count))
        elif kind in ("late", "early"):
            made.append(batch(count, timestamp=T0 + (3000 if kind == "late" else -3000)))
        elif kind == "next":
            made.append(of_producer(sequences[producer], count, **own))
            sequences[producer] += count
        elif kind == "again" and sequences[producer]:
            made.append(made[-1] if made else batch())
        else:
            made.append(of_producer(sequences[producer] + 5, count, **own))
    return made


def test_an_error_of_the_disk_is_told_as_such(disk: Disk) -> None:
    log = disk.open()
    disk.fs.fail_at(disk.fs.operations, lambda path: StorageError(path, "Input/output error"))
    answers = append_all(log, batch(), batch())
    assert all(answer.is_disk_failure for answer in answers)


def test_after_an_undo_that_failed_nothing_more_is_written(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would lie behind torn bytes, where the next recovery cuts it off."""
    log = disk.open()
    torn = UndoInterrupted(log.segments[0].path, "a signal interrupted the call")
    size = log.segments[0].log.size
    fail_once(monkeypatch, log._log_end.writer, torn)
    batches = [
        check_append(batch(value=b"x" * 100), log.config, T0),
        check_append(batch(value=b"y" * 100), log.config, T0),
        check_append(batch(value=b"z"), log.config, T0),
    ]
    monkeypatch.setattr(log._log_end, "_should_roll", lambda *_: True)  # each is written alone
    assert log.append_all(batches, T0) == [torn, torn, torn]
    assert log.segments[0].log.size == size


def fail_once(monkeypatch: pytest.MonkeyPatch, writer: SegmentWriter, error: Exception) -> None:
    """The next write fails, and leaves torn bytes. Those behind it would not fail."""
    append, errors = writer.append, [error]

    def fails(pieces: Sequence[Piece]) -> None:
        if errors:
            raise errors.pop()
        append(pieces)

    monkeypatch.setattr(writer, "append", fails)


def test_a_duplicate_of_what_lies_behind_torn_bytes_is_not_written_either(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = disk.open()
    torn = UndoInterrupted(log.segments[0].path, "a signal interrupted the call")
    fail_once(monkeypatch, log._log_end.writer, torn)
    assert append_all(log, of_producer(0), of_producer(0)) == [torn, torn]
    assert log.segments[0].log.size == 0


def test_batches_behind_those_that_a_full_disk_refused_are_refused_alike(disk: Disk) -> None:
    log = disk.open()
    log.append(of_producer(0))
    disk.fs.fail_at(disk.fs.operations, DiskFull)
    for first in (1, 3):
        answers = append_all(log, of_producer(first), of_producer(first + 1))
        assert [type(answer) for answer in answers] == [DiskFull] * 2
    assert bases(append_all(log, of_producer(1), of_producer(2))) == [1, 2]
    (answer,) = append_all(log, of_producer(4))
    assert isinstance(answer, OutOfOrderSequence)
