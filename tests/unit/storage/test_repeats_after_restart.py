"""Batches whose answers were lost when a log was closed or crashed, and that are sent again."""

import pytest

from raylog.storage import replay as replay_module
from raylog.storage.errors import InvalidProducerEpoch, OutOfOrderSequence
from raylog.storage.log import Log
from raylog.storage.records.control import Marker, encode_marker
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import Disk, flip, of_producer
from raylog.storage.validation import COORDINATOR
from tests.harness.small_logs import SMALL

# So many may be under way at once.
UNDER_WAY = 5


def under_way(disk: Disk) -> list[int]:
    """Five batches of each of two producers, two in a segment; the offsets of producer 7."""
    log, offsets = disk.open(**SMALL), []
    for sequence in range(UNDER_WAY):
        offsets.append(append(log, sequence))
        append(log, sequence, producer=8)
        log.roll()
    log.flush()
    log.release()
    return offsets


def append(log: Log, sequence: int, producer: int = 7, epoch: int = 0) -> int:
    """Append one record; its offset."""
    sent = of_producer(sequence, producer=producer, epoch=epoch, timestamp=T0)
    return log.append(sent).last_offset


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("recovery_point", [0, 5, 10])
def test_all_that_a_producer_had_under_way_may_come_again(
    is_clean: bool, recovery_point: int
) -> None:
    """A snapshot has one batch of each producer, as Kafka's; all five may lack an answer."""
    disk = Disk()
    offsets = under_way(disk)
    log = disk.open(is_clean=is_clean, recovery_point=recovery_point, **SMALL)
    for producer in (7, 8):
        again = [append(log, sequence, producer) for sequence in range(UNDER_WAY)]
        assert again == [offset + producer - 7 for offset in offsets]
    assert log.log_end_offset == 2 * UNDER_WAY
    with pytest.raises(OutOfOrderSequence):
        append(log, UNDER_WAY + 1)
    assert append(log, UNDER_WAY) == 2 * UNDER_WAY


def test_of_many_batches_the_last_five_may_come_again() -> None:
    """Also those of a transaction, with their markers."""
    disk = Disk()
    log = disk.open(segment_bytes=1 << 20)
    for sequence in range(30):
        append(log, sequence)
        append(log, sequence, producer=8)
        log.append(of_producer(sequence, producer=9, transactional=True, timestamp=T0))
        marker = encode_marker(Marker(False, 0, T0), producer_id=9, producer_epoch=0)
        log.append(marker, 0, COORDINATOR)
    log.roll()
    log.flush()
    log.release()
    log = disk.open(recovery_point=120, segment_bytes=1 << 20)
    for producer in (7, 8):
        again = [append(log, sequence, producer) for sequence in range(25, 30)]
        assert again == [4 * sequence + producer - 7 for sequence in range(25, 30)]
        with pytest.raises(OutOfOrderSequence):
            append(log, 24, producer)
    for sequence in range(25, 30):
        sent = of_producer(sequence, producer=9, transactional=True, timestamp=T0)
        assert log.append(sent).last_offset == 4 * sequence + 2


def test_a_snapshot_in_the_middle_of_a_segment_is_looked_back_from() -> None:
    disk = Disk()
    log = disk.open(**SMALL)
    offsets = [append(log, sequence) for sequence in range(UNDER_WAY)]
    log.close()  # with a snapshot at its end
    log = disk.open(**SMALL)
    append(log, 0, producer=8)
    log.release()
    log = disk.open(is_clean=False, recovery_point=UNDER_WAY + 1, **SMALL)
    assert [append(log, sequence) for sequence in range(UNDER_WAY)] == offsets


def test_after_a_truncation_they_may_come_again_too() -> None:
    disk = Disk()
    offsets = under_way(disk)
    log = disk.open(is_clean=False, recovery_point=10, **SMALL)
    log.truncate_to(9)
    assert [append(log, sequence) for sequence in range(UNDER_WAY)] == offsets


def test_what_lies_far_before_the_snapshot_is_not_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = Disk()
    offsets = under_way(disk)
    monkeypatch.setattr(replay_module, "LOOK_BACK_BYTES", 2 * len(of_producer(0)))
    log = disk.open(recovery_point=10, **SMALL)
    assert append(log, UNDER_WAY - 1) == offsets[-1]
    with pytest.raises(OutOfOrderSequence):
        append(log, 0)


def test_batches_of_an_earlier_epoch_are_none_of_the_last() -> None:
    disk = Disk()
    log = disk.open(**SMALL)
    for epoch in (0, 1):
        for sequence in range(3):
            append(log, sequence, epoch=epoch)
        log.roll()
    log.flush()
    log.release()
    log = disk.open(recovery_point=6, **SMALL)
    assert [append(log, sequence, epoch=1) for sequence in range(3)] == [3, 4, 5]
    with pytest.raises(InvalidProducerEpoch):
        append(log, 2)


def test_where_what_lies_before_cannot_be_read_the_snapshot_counts() -> None:
    disk = Disk()
    offsets = under_way(disk)
    name = f"{4:020d}.log"
    disk.damage(name, flip(11))  # a batch's length
    log = disk.open(is_clean=False, recovery_point=10, **SMALL)
    assert append(log, UNDER_WAY - 1) == offsets[-1]
    with pytest.raises(OutOfOrderSequence):
        append(log, 0)
