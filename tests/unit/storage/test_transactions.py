"""Transactions in one log: markers, fencing, the last stable offset, and what readers of committed
records see."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from raylog.storage.clock import SystemClock
from raylog.storage.config import LogConfig
from raylog.storage.errors import (
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTxnState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from raylog.storage.files import RealFile, RealFileSystem
from raylog.storage.indexes.transaction_index import AbortedTransaction, TransactionIndex
from raylog.storage.loader import create_log, open_log
from raylog.storage.log import Log
from raylog.storage.names import TopicPartition
from raylog.storage.readable import COMMITTED, LATEST, MAX_TIMESTAMP
from raylog.storage.records.batch import iter_batches
from raylog.storage.records.control import Marker, encode_marker, read_marker
from raylog.storage.records.decode import decode_records
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import PARTITION, TOPIC_ID, Disk, batch, of_producer
from raylog.storage.testing.memory import MemoryFileSystem, Stopped, Survives
from raylog.storage.validation import COORDINATOR
from raylog.storage.writer import AppendInfo
from tests.harness.interleaving import Meeting, Schedule, schedules
from tests.harness.paths import GOLDEN

CLEAN = GOLDEN / "kafka-3.9-kraft-clean"


def send(log: Log, producer: int, sequence: int, count: int = 1, epoch: int = 0) -> AppendInfo:
    return log.append(
        of_producer(sequence, count, producer=producer, epoch=epoch, transactional=True)
    )


def end(
    log: Log, producer: int, *, abort: bool = False, epoch: int = 0, coordinator_epoch: int = 0
) -> AppendInfo:
    marker = Marker(abort, coordinator_epoch, T0)
    content = encode_marker(marker, producer_id=producer, producer_epoch=epoch)
    return log.append(content, origin=COORDINATOR)


def committed(log: Log, start: int = 0) -> list[int]:
    """What a reader of committed records sees, by skipping as Kafka's consumers do."""
    seen: list[int] = []
    offset = start
    while (found := log.read(offset, 1 << 20, COMMITTED)).size_bytes:
        content = found.read()
        waiting = sorted(found.aborted, key=lambda entry: entry.first_offset)
        aborting: set[int] = set()
        for position, header in iter_batches(content):
            while waiting and waiting[0].first_offset <= header.last_offset:
                aborting.add(waiting.pop(0).producer_id)
            if header.is_control:
                aborting.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborting):
                whole = content[position : position + header.size_bytes]
                seen += [record.offset for record in decode_records(whole, start_offset=offset)]
            offset = header.next_offset
    return seen


# -- markers ---------------------------------------------------------------------------------------


def test_a_marker_is_kafkas_to_the_byte() -> None:
    golden = GOLDEN / "kafka-clients-3.9.1-batches" / "m2-control-abort.bin"
    content = golden.read_bytes()
    assert read_marker(content) == Marker(True, 5, 1700000000000)
    made = encode_marker(
        Marker(True, 5, 1700000000000),
        producer_id=1000,
        producer_epoch=3,
        base_offset=201,
        leader_epoch=7,
    )
    assert bytes(made) == content
    assert len(made) == 78


def test_only_a_coordinator_writes_markers(disk: Disk) -> None:
    log = disk.open()
    marker = encode_marker(Marker(True, 0, T0), producer_id=7, producer_epoch=0)
    with pytest.raises(InvalidRecord, match="transaction coordinator"):
        log.append(marker)
    assert log.append(marker, origin=COORDINATOR).base_offset == 0


def test_a_transactional_batch_without_a_producer_is_refused(disk: Disk) -> None:
    content = bytearray(batch())
    content[22] |= 0x10
    with pytest.raises(InvalidRecord, match="producer id"):
        disk.open().append(content)


@pytest.mark.parametrize("epoch", [0, 5])
def test_a_marker_takes_its_epoch_and_the_next_sequence_is_zero(disk: Disk, epoch: int) -> None:
    log = disk.open()
    send(log, 7, 0)
    end(log, 7, epoch=epoch)
    if epoch:
        with pytest.raises(InvalidProducerEpoch):
            send(log, 7, 1, epoch=0)
        with pytest.raises(OutOfOrderSequence):
            send(log, 7, 1, epoch=epoch)
    assert send(log, 7, 0 if epoch else 1, epoch=epoch).base_offset == 2


def test_an_older_marker_is_fenced_by_producer_and_by_coordinator(disk: Disk) -> None:
    log = disk.open()
    send(log, 7, 0, epoch=2)
    with pytest.raises(InvalidProducerEpoch):
        end(log, 7, epoch=1)
    end(log, 7, epoch=2, coordinator_epoch=4)
    with pytest.raises(
        TransactionCoordinatorFenced, match="epoch 3, but a newer coordinator with epoch 4"
    ):
        end(log, 7, epoch=2, coordinator_epoch=3)
    assert log.log_end_offset == 2
    log.close()
    with pytest.raises(TransactionCoordinatorFenced):
        end(disk.open(), 7, epoch=2, coordinator_epoch=3)


def test_a_plain_batch_inside_of_a_transaction_is_refused(disk: Disk) -> None:
    log = disk.open()
    send(log, 7, 0)
    with pytest.raises(InvalidTxnState, match="an open transaction since offset 0"):
        log.append(of_producer(1))
    end(log, 7)
    log.append(of_producer(1))


def test_a_coordinators_batch_has_no_sequence_to_check(disk: Disk) -> None:
    log = disk.open()
    for _ in range(2):
        log.append(of_producer(0, transactional=True), origin=COORDINATOR)
    assert log.log_end_offset == 2


# -- the last stable offset ------------------------------------------------------------------------


def test_the_last_stable_offset_is_the_first_of_the_oldest_open_transaction(disk: Disk) -> None:
    log = disk.open()
    log.append(batch())
    assert log.last_stable_offset == log.high_watermark == 1
    send(log, 1, 0)
    send(log, 2, 0)
    send(log, 1, 1)
    assert log.last_stable_offset == 1
    end(log, 1)
    assert log.last_stable_offset == 2
    end(log, 2, abort=True)
    assert log.last_stable_offset == log.log_end_offset == 6


def test_kafkas_scenario_of_three_transactions(disk: Disk) -> None:
    """Section 13.6: the entries of the transaction index and their last stable offsets."""
    log = disk.open()
    for producer, upto in ((1, 8), (2, 29)):
        send(log, producer, 0, upto - log.log_end_offset)
    end(log, 1, abort=True)
    send(log, 2, 21, 6)
    send(log, 4, 0, 74 - log.log_end_offset)
    end(log, 2, abort=True)
    assert log.segments[0].txn_index.entries == (
        AbortedTransaction(1, 0, 29, 8),
        AbortedTransaction(2, 8, 74, 36),
    )


@pytest.mark.parametrize("is_clean", [True, False])
def test_open_transactions_and_aborted_ones_survive_a_restart(disk: Disk, is_clean: bool) -> None:
    log = disk.open()
    send(log, 1, 0)
    log.roll()
    send(log, 2, 0)
    end(log, 1, abort=True)
    log.roll()
    send(log, 3, 0)
    entries = [segment.txn_index.entries for segment in log.segments]
    assert sum(map(len, entries)) == 1
    if is_clean:
        log.close()
    again = disk.open(is_clean=is_clean)
    assert [segment.txn_index.entries for segment in again.segments] == entries
    assert again.last_stable_offset == 1
    end(again, 2)
    end(again, 3, abort=True)
    assert again.last_stable_offset == again.log_end_offset
    assert committed(again) == [1]


@pytest.mark.parametrize("is_ended", [True, False])
def test_a_transaction_is_known_whose_first_batch_holds_the_start(
    disk: Disk, is_ended: bool
) -> None:
    log = disk.open()
    send(log, 1, 0, 3)
    if is_ended:
        end(log, 1, abort=True)
    log.append(batch())
    log.delete_records(2)
    again = disk.open(is_clean=False, recovery_point=2, log_start_offset=2)
    if not is_ended:
        assert again.last_stable_offset == 2
        end(again, 1, abort=True)
    assert committed(again, 2) == [4 if is_ended else 3]


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_marker_between_a_snapshot_and_the_start_ends_its_transaction(
    disk: Disk, is_clean: bool
) -> None:
    log = disk.open()
    send(log, 1, 0)
    log.roll()
    end(log, 1)
    log.append(batch())
    log.delete_records(2)
    log.flush()
    again = disk.open(is_clean=is_clean, recovery_point=3, log_start_offset=2)
    assert (again.last_stable_offset, again.log_end_offset) == (3, 3)


def test_a_transaction_that_ended_in_a_segment_that_is_gone_is_not_open(disk: Disk) -> None:
    log = disk.open()
    send(log, 1, 0)
    log.roll()
    old = disk.read(f"{1:020d}.snapshot")
    end(log, 1)
    log.roll()
    log.append(batch())
    log.flush()
    log.delete_records(2)
    disk.fs.remove(disk.path(f"{2:020d}.snapshot"))
    for name in (f"{0:020d}", f"{1:020d}"):  # a crash came before retention removed the snapshot
        disk.fs.remove(disk.path(name + ".log"))
    disk.write(f"{1:020d}.snapshot", old)
    again = disk.open(is_clean=False, recovery_point=3, log_start_offset=2)
    assert (again.last_stable_offset, again.log_end_offset) == (3, 3)


def test_a_log_that_begins_again_at_its_start_has_no_open_transaction(disk: Disk) -> None:
    log = disk.open()
    send(log, 1, 0)
    log.roll()
    end(log, 1)
    log.flush()
    again = disk.open(is_clean=False, recovery_point=2, log_start_offset=5)
    assert (again.log_start_offset, again.log_end_offset) == (5, 5)
    again.append(batch())
    assert again.last_stable_offset == 6


def test_the_last_stable_offset_is_never_below_the_start(disk: Disk) -> None:
    log = disk.open(internal_segment_bytes=1)
    send(log, 1, 0)
    log.append(batch())
    log.delete_records(2)
    assert log.last_stable_offset == log.log_start_offset == 2


def test_times_behind_the_last_stable_offset_are_not_told_to_readers_of_committed_records(
    disk: Disk,
) -> None:
    log = disk.open()
    log.append(batch(timestamp=T0))
    log.append(of_producer(0, timestamp=T0 + 5, transactional=True))
    assert log.offset_for_timestamp(LATEST, COMMITTED) == (-1, 1)
    assert log.offset_for_timestamp(LATEST) == (-1, 2)
    assert log.offset_for_timestamp(T0, COMMITTED) == (T0, 0)
    assert log.offset_for_timestamp(T0 + 1) == (T0 + 5, 1)
    assert log.offset_for_timestamp(T0 + 1, COMMITTED) is None
    assert log.offset_for_timestamp(MAX_TIMESTAMP, COMMITTED) is None


def test_a_time_may_lead_to_a_marker(disk: Disk) -> None:
    log = disk.open()
    log.append(of_producer(0, timestamp=T0 - 5, transactional=True))
    end(log, 7)
    assert log.offset_for_timestamp(T0) == (T0, 1)


# -- reading ---------------------------------------------------------------------------------------


def test_readers_of_committed_records_stop_at_the_open_and_skip_the_aborted(disk: Disk) -> None:
    log = disk.open()
    log.append(batch())  # 0
    send(log, 1, 0, 2)  # 1, 2
    send(log, 2, 0)  # 3
    log.append(batch())  # 4
    assert committed(log) == [0]
    end(log, 1, abort=True)  # 5
    assert committed(log) == [0]  # 3 is still open
    send(log, 1, 2)  # 6
    end(log, 2)  # 7
    assert committed(log) == [0, 3, 4]
    end(log, 1)  # 8
    assert committed(log) == [0, 3, 4, 6]
    assert not log.read(log.log_end_offset, 1, COMMITTED).size_bytes


@pytest.mark.parametrize("max_bytes", [1, 200, 1 << 20])
def test_aborted_data_before_a_segment_is_known_from_the_marker_behind_it(
    disk: Disk, max_bytes: int
) -> None:
    log = disk.open()
    send(log, 1, 0)
    log.roll()
    log.append(batch())
    log.roll()
    end(log, 1, abort=True)
    found = log.read(0, max_bytes, COMMITTED)
    assert found.aborted == (AbortedTransaction(1, 0, 2, 3),)
    assert committed(log) == [1]


def test_a_slice_after_the_marker_has_nothing_aborted(disk: Disk) -> None:
    log = disk.open()
    send(log, 1, 0)
    end(log, 1, abort=True)
    log.append(batch())
    found = log.read(2, 100, COMMITTED)
    assert found.aborted == ()


def test_what_was_aborted_behind_the_slices_segment_is_not_its_matter(disk: Disk) -> None:
    log = disk.open()
    log.append(batch())
    log.roll()
    send(log, 1, 0)
    end(log, 1, abort=True)
    found = log.read(0, 1 << 20, COMMITTED)
    assert found.aborted == ()


def test_a_snapshot_tells_which_transaction_is_the_oldest(disk: Disk) -> None:
    log = disk.open()
    for producer in (1, 2):
        log.append(of_producer(0, producer=producer))
    send(log, 2, 1)
    send(log, 1, 1)
    log.close()
    assert disk.open().last_stable_offset == 2


def test_a_replay_adds_nothing_to_an_index_that_is_whole(disk: Disk) -> None:
    log = disk.open()
    send(log, 1, 0)
    end(log, 1, abort=True)
    log.roll()
    send(log, 1, 1)
    log.flush()
    for name in disk.names(".snapshot"):
        disk.fs.remove(disk.path(name))
    again = disk.open(is_clean=False, recovery_point=3)
    assert [len(segment.txn_index.entries) for segment in again.segments] == [1, 0]
    assert again.last_stable_offset == 2


def test_a_truncation_takes_the_aborted_with_their_markers(disk: Disk) -> None:
    log = disk.open()
    send(log, 1, 0)
    log.append(batch())
    end(log, 1, abort=True)
    log.truncate_to(2)
    assert log.segments[0].txn_index.entries == ()
    assert log.last_stable_offset == 0
    end(log, 1)
    assert committed(log) == [0, 1]


# -- the index -------------------------------------------------------------------------------------


def test_an_index_collects_what_touches_a_range_and_knows_when_it_is_complete() -> None:
    index = TransactionIndex(MemoryFileSystem(), "/0.txnindex", 0)
    entries = [
        AbortedTransaction(1, 0, 10, 11),
        AbortedTransaction(2, 5, 15, 16),
        AbortedTransaction(3, 20, 25, 26),
    ]
    for entry in entries:
        index.append(entry)
    assert index.collect(0, 100) == (entries, False)
    assert index.collect(11, 16) == ([entries[1]], True)
    assert index.collect(0, 11) == ([entries[0]], True)
    assert index.collect(16, 20) == ([], True)
    index.truncate_to(15)
    assert index.entries == (entries[0],)
    index.append(entries[2])
    again = TransactionIndex(index._fs, "/0.txnindex", 0)
    assert again.entries == (entries[0], entries[2])


def test_a_sealed_segments_index_is_open_read_only(tmp_path: Path) -> None:
    fs, folder = RealFileSystem(), str(tmp_path / "orders-0")
    create_log(fs, folder, TOPIC_ID)
    log = open_log(fs, SystemClock(), folder, PARTITION, LogConfig())
    send(log, 1, 0)
    end(log, 1, abort=True)
    file = log.segments[0].txn_index._file
    assert isinstance(file, RealFile)
    assert file.opened().is_writable
    log.roll()
    assert not file.opened().is_writable


def test_a_torn_or_damaged_index_is_made_again(disk: Disk) -> None:
    log = disk.open()
    send(log, 1, 0)
    end(log, 1, abort=True)
    log.close()
    name = "00000000000000000000.txnindex"
    whole = disk.read(name)
    for damaged in (
        whole + b"\0" * 33,
        b"\1" + whole[1:],
        whole[:9] + b"\2" + whole[10:],  # the id of another producer
        whole[:17] + b"\xff" * 9 + whole[26:],
    ):
        disk.write(name, damaged)
        again = disk.open()
        assert again.segments[0].txn_index.entries == (AbortedTransaction(1, 0, 1, 2),)
        again.close()
        assert disk.read(name)[: len(whole)] == whole


def test_recovery_takes_a_marker_at_the_begin_of_a_segment_once(disk: Disk) -> None:
    log = disk.open()
    send(log, 1, 0)
    log.roll()
    end(log, 1, abort=True)
    log.flush()
    again = disk.open(is_clean=False, recovery_point=1)
    assert again.segments[1].txn_index.entries == (AbortedTransaction(1, 0, 1, 2),)
    assert [m.file for m in again.mended if m.file.endswith(".txnindex")] == []


@pytest.mark.parametrize("finish", [Log.flush, Log.close])
def test_an_index_made_after_its_segment_was_flushed_survives_a_loss_of_power(
    disk: Disk, finish: Callable[[Log], None]
) -> None:
    log = disk.open()
    send(log, 1, 0)
    log.flush()
    end(log, 1, abort=True)
    finish(log)
    after = Disk(disk.fs.crash("flushed", names="flushed")).open(recovery_point=2)
    assert after.segments[0].txn_index.entries == (AbortedTransaction(1, 0, 1, 2),)


@pytest.mark.parametrize("survives", ["all", "flushed"])
def test_no_crash_while_an_index_is_made_again_loses_its_entries(survives: Survives) -> None:
    """The segment is below the recovery point: a crash does not lead recovery there again."""
    for stop_at in count(1):
        disk = Disk()
        log = disk.open()
        send(log, 1, 0)
        end(log, 1, abort=True)
        log.roll()
        log.append(batch())
        log.close()
        disk.damage("00000000000000000000.txnindex", lambda content: content + b"damage")
        disk.fs.stop_at(disk.fs.operations + stop_at)
        try:
            disk.open(recovery_point=3)
        except Stopped:
            is_stopped = True
        else:
            is_stopped = False
        crashed = Disk(disk.fs.crash(survives, names=survives))
        again = crashed.open(is_clean=False, recovery_point=3)
        entries = again.segments[0].txn_index.entries
        assert entries == (AbortedTransaction(1, 0, 1, 2),), f"before operation {stop_at}"
        if not is_stopped:
            return


def test_a_truncation_that_is_interrupted_keeps_the_entries_before_it(disk: Disk) -> None:
    log = disk.open()
    for number in range(3):
        send(log, 1, number)
        end(log, 1, abort=True)
    log.flush()
    index = log.segments[0].txn_index
    before = index.entries
    for survives in ("all", "flushed", "torn"):
        for stop_at in range(1, 8):
            files = disk.fs.crash("all")
            copy = TransactionIndex(files, index.path, 0)
            files.stop_at(files.operations + stop_at)
            with suppress(Stopped):
                copy.truncate_to(4)
            crashed = files.crash(survives, names=survives, seed=stop_at)
            assert TransactionIndex(crashed, index.path, 0).entries in (before, before[:2])


def test_an_append_costs_the_same_with_many_entries_and_readers_keep_theirs() -> None:
    index = TransactionIndex(MemoryFileSystem(), "/0.txnindex", 0)
    index.append(AbortedTransaction(1, 0, 10, 11))
    before, entries = index.entries, index._load()
    index.append(AbortedTransaction(1, 11, 20, 21))
    assert index._load() is entries, "nothing is copied"
    assert (len(before), len(index.entries)) == (1, 2)


def test_a_first_reader_and_a_first_append_both_see_the_file_and_no_entry_is_lost() -> None:
    first, second = AbortedTransaction(1, 0, 10, 11), AbortedTransaction(1, 11, 20, 21)

    def meet(schedule: Schedule) -> list[int]:
        fs = MemoryFileSystem()
        TransactionIndex(fs, "/0.txnindex", 0).append(first)
        index = TransactionIndex(fs, "/0.txnindex", 0)
        meeting = Meeting(["transaction_index.py"], schedule)
        outcome = meeting.run(lambda: index.entries, lambda: index.append(second))
        assert outcome.errors == [None, None], outcome.places
        assert outcome.answers[0] in ((first,), (first, second)), outcome.places
        assert index.entries == (first, second), outcome.places
        return outcome.lines

    for schedule in schedules(meet(Schedule()), pre_emptions=1):
        meet(schedule)


def test_the_name_of_a_first_entry_is_flushed_by_the_flush_behind_it() -> None:
    entry = AbortedTransaction(1, 0, 10, 11)

    def meet(schedule: Schedule) -> list[int]:
        fs = MemoryFileSystem()
        index = TransactionIndex(fs, "/0.txnindex", 0)
        meeting = Meeting(["transaction_index.py"], schedule)
        outcome = meeting.run(index.flush, lambda: index.append(entry))
        assert outcome.errors == [None, None], outcome.places
        index.flush()
        crashed = fs.crash("flushed", names="flushed")
        assert TransactionIndex(crashed, "/0.txnindex", 0).entries == (entry,), outcome.places
        return outcome.lines

    for schedule in schedules(meet(Schedule())):
        meet(schedule)


def test_recovery_makes_kafkas_transaction_indexes_again_to_the_byte(tmp_path: Path) -> None:
    folder = tmp_path / "g-txn-0"
    shutil.copytree(CLEAN / "g-txn-0", folder)
    expected = {path.name: path.read_bytes() for path in folder.glob("*.txnindex")}
    assert len(expected) == 2
    for path in (*folder.glob("*.txnindex"), *folder.glob("*.snapshot")):
        path.unlink()
    log = open_log(
        RealFileSystem(), SystemClock(), str(folder), TopicPartition("g-txn", 0), LogConfig()
    )
    log.close()
    assert {path.name: path.read_bytes() for path in folder.glob("*.txnindex")} == expected
