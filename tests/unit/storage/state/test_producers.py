"""Idempotent producers: what is a duplicate, what is out of order, and what a snapshot keeps."""

import pytest

from raylog.storage.errors import (
    CorruptCheckpoint,
    DiskFull,
    InvalidProducerEpoch,
    OutOfOrderSequence,
)
from raylog.storage.records.batch import read_header
from raylog.storage.records.layout import MAX_SEQUENCE
from raylog.storage.state.producers import (
    EXPIRED_AT_ONCE,
    NEVER_MS,
    CachedBatch,
    ProducerExpiration,
    ProducerState,
    ProducerStates,
)
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import Disk, of_producer, offsets_of
from raylog.storage.testing.memory import MemoryFileSystem

DAY = 86_400_000
A_DAY = ProducerExpiration(DAY)


def test_a_batch_that_follows_is_written_and_a_repeat_is_answered_with_its_offsets(
    disk: Disk,
) -> None:
    log = disk.open()
    first, second = log.append(of_producer(0, 3)), log.append(of_producer(3, 2))
    again = log.append(of_producer(0, 3))
    assert (first.base_offset, second.base_offset, log.log_end_offset) == (0, 3, 5)
    assert again == first._replace(is_duplicate=True)
    assert log.append(of_producer(3, 2)).is_duplicate


def test_the_last_five_batches_are_known_again(disk: Disk) -> None:
    log = disk.open()
    for sequence in range(7):
        log.append(of_producer(sequence))
    for sequence in range(2, 7):
        assert log.append(of_producer(sequence)).base_offset == sequence
    for sequence in (0, 1):
        with pytest.raises(OutOfOrderSequence):
            log.append(of_producer(sequence))
    assert offsets_of(log) == list(range(7))


def test_a_repeat_cut_differently_is_out_of_order(disk: Disk) -> None:
    log = disk.open()
    log.append(of_producer(0, 3))
    with pytest.raises(OutOfOrderSequence):
        log.append(of_producer(0, 2))


@pytest.mark.parametrize("sequence", [4, 5, 99, MAX_SEQUENCE])
def test_a_gap_is_out_of_order_and_says_what_was_expected(disk: Disk, sequence: int) -> None:
    log = disk.open()
    log.append(of_producer(0, 3))
    with pytest.raises(
        OutOfOrderSequence, match=f"producer 7 sent sequence {sequence}, but 3 was expected"
    ):
        log.append(of_producer(sequence))
    assert log.append(of_producer(3)).base_offset == 3


def test_an_unknown_producer_may_begin_anywhere(disk: Disk) -> None:
    log = disk.open()
    assert log.append(of_producer(41)).base_offset == 0
    assert log.append(of_producer(42)).base_offset == 1


def test_a_new_epoch_begins_at_zero_and_the_old_one_is_fenced(disk: Disk) -> None:
    log = disk.open()
    log.append(of_producer(0, epoch=3))
    with pytest.raises(OutOfOrderSequence, match="but 0 was expected"):
        log.append(of_producer(1, epoch=4))
    log.append(of_producer(0, epoch=4))
    with pytest.raises(
        InvalidProducerEpoch, match="has epoch 3, but a newer instance with epoch 4"
    ):
        log.append(of_producer(1, epoch=3))
    assert log.append(of_producer(0, epoch=4)).is_duplicate


def test_producers_do_not_mind_each_other(disk: Disk) -> None:
    log = disk.open()
    for producer in (1, 2, 3):
        log.append(of_producer(0, producer=producer))
        log.append(of_producer(1, producer=producer))
    assert log.append(of_producer(1, producer=1)).base_offset == 1


def test_sequences_wrap_from_the_largest_to_zero(disk: Disk) -> None:
    log = disk.open()
    log.append(of_producer(MAX_SEQUENCE - 1, 2))
    log.append(of_producer(0, 2))
    assert log.append(of_producer(MAX_SEQUENCE - 1, 2)).is_duplicate
    assert log.append(of_producer(0, 2)).is_duplicate


def test_one_batch_may_wrap_itself(disk: Disk) -> None:
    log = disk.open()
    log.append(of_producer(MAX_SEQUENCE - 1, 5))
    assert log.append(of_producer(MAX_SEQUENCE - 1, 5)).is_duplicate
    with pytest.raises(OutOfOrderSequence, match="but 3 was expected"):
        log.append(of_producer(4))
    log.append(of_producer(3))
    log.close()
    again = disk.open()
    assert again.append(of_producer(3)).is_duplicate


def test_the_first_sequence_of_a_batch_that_wraps() -> None:
    assert CachedBatch(2, 9, 4, T0).first_sequence == MAX_SEQUENCE - 1
    assert CachedBatch(4, 9, 4, T0).first_sequence == 0


# -- expiry ----------------------------------------------------------------------------------------


def test_a_silent_producer_is_forgotten_and_may_begin_anywhere(disk: Disk) -> None:
    log = disk.open()
    log.append(of_producer(0))
    disk.clock.advance(DAY - 1)
    log.expire_producers(A_DAY)
    with pytest.raises(OutOfOrderSequence):
        log.append(of_producer(50))
    disk.clock.advance(1)
    log.expire_producers(A_DAY)
    log.append(of_producer(50))


@pytest.mark.parametrize("timestamp", [0, -1, T0 - 10 * DAY])
def test_a_producer_of_old_records_is_not_forgotten_at_once(disk: Disk, timestamp: int) -> None:
    log = disk.open()
    log.append(of_producer(0, timestamp=timestamp))
    log.expire_producers(A_DAY)
    assert log.append(of_producer(0, timestamp=timestamp)).is_duplicate
    log.close()
    again = disk.open()
    again.expire_producers(A_DAY)
    assert again.append(of_producer(0, timestamp=timestamp)).is_duplicate


def written(count: int, at_ms: int = T0, first: int = 0) -> ProducerStates:
    """States in which so many producers wrote one batch each."""
    made = ProducerStates("orders-0")
    for producer in range(first, first + count):
        write(made, producer, at_ms)
    return made


def write(made: ProducerStates, producer: int, at_ms: int, *, transactional: bool = False) -> None:
    content = of_producer(0, producer=producer, transactional=transactional)
    made.add(read_header(content), made.end_offset, at_ms)


def test_producers_are_forgotten_in_slices() -> None:
    made = written(2 * EXPIRED_AT_ONCE + 1)
    write(made, 10**6, T0 + 1)
    assert made.expire(T0 + DAY, DAY)
    assert len(made) == EXPIRED_AT_ONCE + 2
    assert made.expire(T0 + DAY, DAY)
    assert not made.expire(T0 + DAY, DAY)
    assert len(made) == 1


def test_who_wrote_again_is_forgotten_last() -> None:
    made = written(3)
    write(made, 0, T0 + 5)
    assert not made.expire(T0 + DAY, DAY)
    assert [number for number in range(3) if made.get(number)] == [0]
    assert made.oldest_ms == T0 + 5
    made.expire(T0 + 5 + DAY, DAY)
    assert (len(made), made.oldest_ms) == (0, NEVER_MS)
    write(made, 1, T0 + 7)
    assert made.oldest_ms == T0 + 7


def test_a_producer_with_an_open_transaction_is_kept_and_holds_up_nobody() -> None:
    made = ProducerStates("orders-0")
    for producer in range(EXPIRED_AT_ONCE):
        write(made, producer, T0, transactional=True)
    write(made, 10**6, T0)
    while made.expire(T0 + DAY, DAY):
        pass
    assert len(made) == EXPIRED_AT_ONCE
    assert made.get(10**6) is None
    assert made.oldest_ms > T0, "who has nothing to do now is not woken again at once"


def test_silent_producers_are_looked_for_at_an_interval(disk: Disk) -> None:
    log = disk.open()
    log.append(of_producer(0))
    often = ProducerExpiration(1000, check_interval_ms=600)
    disk.clock.advance(999)
    log.expire_producers(often)
    disk.clock.advance(1)
    assert log.next_due_ms(often) == T0 + 999 + 600
    assert log.expire_producers(often) is False
    assert log.append(of_producer(0)).is_duplicate, "the last look was 1 ms ago"
    disk.clock.advance(599)
    assert log.expire_producers(often) is False
    assert not log.append(of_producer(0)).is_duplicate


# -- snapshots -------------------------------------------------------------------------------------

VECTOR = bytes.fromhex(
    "0001 7315ca59 00000001 0000000000001092 0003 00000011 0000000000000000 00000000 "
    "0000018bcfe56800"
    "ffffffff 0000000000000000"
)


def states(*producers: tuple[int, ProducerState]) -> ProducerStates:
    made = ProducerStates("orders-0")
    made._producers.update(producers)
    return made


def test_a_snapshot_is_kafkas_to_the_byte() -> None:
    known = ProducerState(epoch=3, timestamp=T0, transaction_start=0)
    known.batches.append(CachedBatch(17, 0, 0, T0))
    assert states((4242, known)).encode() == VECTOR
    assert states().encode() == bytes.fromhex("0001 48674bc7 00000000")
    read = ProducerStates("orders-0")
    read.decode("/x", VECTOR, 1, T0)
    assert read.encode() == VECTOR


def test_a_producer_without_a_batch_is_kept_too() -> None:
    encoded = states((5, ProducerState(epoch=2, timestamp=T0))).encode()
    assert encoded.hex().endswith("0000000000000005" "0002" "ffffffff" "ffffffffffffffff" "00000000" "0000018bcfe56800" "ffffffff" "ffffffffffffffff")  # fmt: skip  # noqa: E501
    read = ProducerStates("orders-0")
    read.decode("/x", encoded, 1, T0)
    assert read.encode() == encoded


@pytest.mark.parametrize(
    "content",
    [
        b"",
        VECTOR[:9],
        VECTOR[:-1],
        VECTOR + b"\0",
        b"\0\2" + VECTOR[2:],
        VECTOR[:20] + b"\1" + VECTOR[21:],
    ],
)
def test_a_corrupt_snapshot_is_named(content: bytes) -> None:
    with pytest.raises(CorruptCheckpoint, match="/x: "):
        ProducerStates("orders-0").decode("/x", content, 1, T0)


def test_snapshots_of_rolls_and_close_as_in_kafkas_test(disk: Disk) -> None:
    """One record, roll, one, roll, two, close: 1, 2, 4. A stray 3 goes at the next start, 4 stays
    (13.6)."""
    log = disk.open()
    log.append(of_producer(0))
    log.roll()
    log.append(of_producer(1))
    log.roll()
    log.append(of_producer(2))
    log.append(of_producer(3))
    log.close()
    assert disk.names(".snapshot") == [f"{offset:020d}.snapshot" for offset in (1, 2, 4)]
    disk.write("00000000000000000003.snapshot", disk.read("00000000000000000002.snapshot"))
    disk.open()
    assert disk.names(".snapshot") == [f"{offset:020d}.snapshot" for offset in (1, 2, 4)]


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_reopened_log_knows_the_last_batch_of_each_producer(disk: Disk, is_clean: bool) -> None:
    log = disk.open()
    for sequence in range(3):
        log.append(of_producer(sequence))
        log.append(of_producer(sequence, producer=8))
    if is_clean:
        log.close()
    again = disk.open(is_clean=is_clean)
    assert again.append(of_producer(2)).base_offset == 4
    assert again.append(of_producer(2, producer=8)).base_offset == 5
    assert again.append(of_producer(3)).base_offset == 6


@pytest.mark.parametrize("content", [b"", VECTOR[:30], b"garbage" * 9])
def test_a_corrupt_snapshot_is_ignored_and_the_batches_tell(disk: Disk, content: bytes) -> None:
    log = disk.open()
    log.append(of_producer(0))
    log.roll()
    log.append(of_producer(1))
    log.close()
    for name in disk.names(".snapshot"):
        disk.write(name, content)
    again = disk.open()
    assert again.append(of_producer(1)).base_offset == 1
    with pytest.raises(OutOfOrderSequence):
        again.append(of_producer(3))


def test_a_full_disk_leaves_no_half_snapshot() -> None:
    fs = MemoryFileSystem()
    made = states((5, ProducerState(epoch=2)))
    made.end_offset = 3
    fs.fail_at(1, DiskFull)
    with pytest.raises(DiskFull):
        made.write_snapshot(fs, "/")
    assert fs.list_dir("/") == []
    made.write_snapshot(fs, "/")
    assert fs.list_dir("/") == ["00000000000000000003.snapshot"]
