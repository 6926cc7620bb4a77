"""Compaction and transactions: aborted data goes at once, markers when their data is gone and time
has passed."""

from typing import Any

import pytest

from raylog.storage.cleaner.cleanable import Cleanable
from raylog.storage.cleaner.cleaner import Buffers, clean
from raylog.storage.cleaner.transactions import TransactionTracker
from raylog.storage.indexes.transaction_index import AbortedTransaction
from raylog.storage.log import Log
from raylog.storage.records.batch import BatchHeader, iter_batches, read_header
from raylog.storage.records.control import Marker, encode_marker
from raylog.storage.records.encode import encode_records
from raylog.storage.records.layout import CONTROL, TRANSACTIONAL
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import Disk, records_of
from raylog.storage.validation import COORDINATOR

ROOMY = Buffers(dedupe_bytes=1 << 16, load_factor=0.9, chunk_bytes=4096)


class Producer:
    """Sends transactional batches of one record."""

    def __init__(self, log: Log, producer_id: int) -> None:
        self.log, self.id, self.sequence = log, producer_id, 0

    def send(self, *keys: str) -> int:
        offset = -1
        for key in keys:
            rows = [(T0, key.encode(), b"v%d" % self.sequence, ())]
            records = encode_records(
                rows,
                producer_id=self.id,
                producer_epoch=0,
                base_sequence=self.sequence,
                transactional=True,
            )
            offset = self.log.append(records).base_offset
            self.sequence += 1
        return offset

    def end(self, *, abort: bool) -> int:
        marker = encode_marker(Marker(abort, 0, T0), producer_id=self.id, producer_epoch=0)
        return self.log.append(marker, origin=COORDINATOR).base_offset


def compact(disk: Disk, log: Log) -> None:
    clean(
        disk.fs,
        disk.clock,
        log,
        Cleanable(
            first_dirty_offset=0,
            bound=log.segments[-1].base_offset,
            clean_bytes=0,
            cleanable_bytes=1,
        ),
        ROOMY,
    )


def batches(disk: Disk) -> list[tuple[int, int]]:
    """(last offset, records) of every batch on the disk."""
    return [
        (header.last_offset, header.count)
        for name in disk.names(".log")
        for _, header in iter_batches(disk.read(name))
    ]


def offsets(disk: Disk) -> list[int]:
    """Of all batches with records, markers too."""
    return [last for last, count in batches(disk) if count]


def aborted(log: Log) -> list[AbortedTransaction]:
    return [entry for segment in log.segments for entry in segment.txn_index.entries]


def test_kafkas_scenario_aborted_then_committed(disk: Disk) -> None:
    """13.6: P1 writes 0, 1, 2 and aborts at 3, writes 4 and commits at 5."""
    log = disk.open(delete_retention_ms=1000)
    producer = Producer(log, 1)
    producer.send("a", "b", "c")
    producer.end(abort=True)
    producer.send("b")
    producer.end(abort=False)
    log.roll()
    compact(disk, log)
    assert offsets(disk) == [3, 4, 5]
    assert aborted(log) == [AbortedTransaction(1, 0, 3, 4)], "its marker still stands for it"
    compact(disk, log)
    assert offsets(disk) == [3, 4, 5]
    assert aborted(log) == []
    disk.clock.advance(1000)
    compact(disk, log)
    assert offsets(disk) == [4, 5]


def test_an_aborted_value_does_not_hide_the_committed_one(disk: Disk) -> None:
    log = disk.open()
    one, two = Producer(log, 1), Producer(log, 2)
    one.send("a")
    one.end(abort=False)
    two.send("a")
    two.end(abort=True)
    log.roll()
    compact(disk, log)
    assert [(record.offset, record.key) for record in records_of(log)] == [(0, b"a")]


def test_the_commit_of_nothing_that_is_left_goes_in_two_more_rounds(disk: Disk) -> None:
    log = disk.open(delete_retention_ms=1000)
    producer = Producer(log, 1)
    producer.send("a", "b")
    producer.end(abort=False)  # at 2
    producer.send("a", "b")
    producer.end(abort=False)  # at 5
    log.roll()
    compact(disk, log)
    assert offsets(disk) == [2, 3, 4, 5]
    compact(disk, log)
    assert offsets(disk) == [2, 3, 4, 5]
    (header,) = [header for _, header in iter_batches(disk.read("00000000000000000000.log"))][:1]
    assert (header.delete_horizon_ms, header.is_control, header.base_sequence) == (
        T0 + 1000,
        True,
        -1,
    )
    disk.clock.advance(999)
    compact(disk, log)
    assert offsets(disk) == [2, 3, 4, 5]
    disk.clock.advance(1)
    compact(disk, log)
    assert offsets(disk) == [3, 4, 5]


def test_transactions_over_several_segments(disk: Disk) -> None:
    log = disk.open(segment_bytes=250, delete_retention_ms=0)
    one, two = Producer(log, 1), Producer(log, 2)
    one.send("a", "b", "c")  # 0, 1, 2
    two.send("a", "b")  # 3, 4
    one.end(abort=True)  # 5
    two.end(abort=False)  # 6
    one.send("c")  # 7
    one.end(abort=False)  # 8
    log.roll()
    assert len(log.segments) == 4
    for _ in range(4):
        compact(disk, log)
        assert [record.offset for record in records_of(log)] == [3, 4, 7]
    assert offsets(disk) == [3, 4, 6, 7, 8]
    assert aborted(log) == []


def test_the_last_batch_of_a_producer_stays_empty_and_so_does_its_abort_marker(disk: Disk) -> None:
    log = disk.open(delete_retention_ms=0)
    producer = Producer(log, 1)
    producer.send("a", "b")
    producer.end(abort=True)
    log.append(encode_records([(T0, b"z", b"1", ())]))
    log.roll()
    for _ in range(3):
        compact(disk, log)
        assert batches(disk) == [(1, 0), (2, 1), (3, 1)]
        assert aborted(log) == [AbortedTransaction(1, 0, 2, 3)]
    log = Disk(disk.fs.crash()).open(is_clean=False)
    assert log.last_stable_offset == 4, "the empty batch opens no transaction that nobody ends"


def test_a_transaction_whose_data_was_emptied_is_not_open_after_a_start_from_the_batches_alone(
    disk: Disk,
) -> None:
    log = disk.open(segment_bytes=180, delete_retention_ms=0)
    one = Producer(log, 1)
    for turn in range(6):
        one.send("a", "b")
        one.end(abort=turn % 2 == 0)
    log.roll()
    for _ in range(4):
        compact(disk, log)
        after = Disk(disk.fs.crash())
        for name in after.names(".snapshot"):
            after.fs.remove(after.path(name))
        again = after.open(is_clean=False, segment_bytes=180)
        assert again.last_stable_offset == again.log_end_offset
        assert [(record.offset, record.key) for record in records_of(again)] == [
            (15, b"a"),
            (16, b"b"),
        ]


def test_an_open_transaction_is_not_touched(disk: Disk) -> None:
    log = disk.open(segment_bytes=180)
    one, two = Producer(log, 1), Producer(log, 2)
    two.send("x")
    two.end(abort=False)
    one.send("a")
    stable = log.last_stable_offset
    assert stable == 2
    before = log.segments
    clean(
        disk.fs,
        disk.clock,
        log,
        Cleanable(
            first_dirty_offset=0, bound=before[1].base_offset, clean_bytes=0, cleanable_bytes=1
        ),
        ROOMY,
    )
    assert log.segments[1:] == before[1:]


def test_a_slice_read_before_the_swap_is_told_its_aborted_transactions_after_it(disk: Disk) -> None:
    log = disk.open(segment_bytes=250)
    producer = Producer(log, 1)
    producer.send("a", "b", "c")
    producer.end(abort=True)
    producer.send("a")
    producer.end(abort=False)
    log.roll()
    found = log.read(0, 10**6, "committed")
    before = found.aborted
    for _ in range(3):
        compact(disk, log)
        assert found.aborted == before == (AbortedTransaction(1, 0, 3, 4),)


# -- the tracker -----------------------------------------------------------------------------------


def header_at(
    offset: int, producer: int, attributes: int = TRANSACTIONAL, **fields: Any
) -> BatchHeader:
    made = encode_records([(T0, b"k", b"v", ())], base_offset=offset)
    return read_header(made)._replace(producer_id=producer, attributes=attributes, **fields)


def marker_at(offset: int, producer: int, abort: bool) -> tuple[BatchHeader, bytes]:
    made = encode_marker(
        Marker(abort, 0, T0), producer_id=producer, producer_epoch=0, base_offset=offset
    )
    return read_header(made), bytes(made)


def test_data_is_discardable_from_its_transactions_first_offset_to_its_marker() -> None:
    tracker = TransactionTracker(
        [AbortedTransaction(1, 5, 9, 10), AbortedTransaction(1, 20, 29, 30)]
    )
    told = [tracker.is_discardable(header_at(offset, 1), b"") for offset in (3, 5, 8)]
    assert told == [False, True, True]
    assert not tracker.is_discardable(header_at(6, 2), b""), "another producer's"
    assert not tracker.is_discardable(header_at(7, 1, attributes=0), b""), "not transactional"
    assert not tracker.is_discardable(*marker_at(9, 1, abort=True))
    assert tracker.take_kept() == [AbortedTransaction(1, 5, 9, 10)]
    assert tracker.take_kept() == []
    assert not tracker.is_discardable(header_at(12, 1), b"")
    assert tracker.is_discardable(header_at(22, 1), b"")


@pytest.mark.parametrize("abort", [True, False])
def test_a_marker_of_which_no_data_was_met_is_discardable(abort: bool) -> None:
    tracker = TransactionTracker([AbortedTransaction(1, 0, 5, 6)] if abort else [])
    assert tracker.is_discardable(*marker_at(5, 1, abort))
    assert tracker.take_kept() == []


def test_an_empty_control_batch_is_discardable_and_other_kinds_are_not() -> None:
    tracker = TransactionTracker([])
    assert tracker.is_discardable(header_at(1, 1, attributes=CONTROL | TRANSACTIONAL, count=0), b"")
    leader_change = encode_records([(T0, b"\0\0\0\2", b"", ())], control=True)
    assert not tracker.is_discardable(read_header(leader_change), bytes(leader_change))
