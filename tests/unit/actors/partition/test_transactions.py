"""Transactions in one partition: which batches may begin one, and what markers do."""

import pytest

from raylog.actors.errors import InternalTopic, NotInTransaction, NotLeader, NotVerified
from raylog.actors.messages import AppendResult
from raylog.actors.partition.partition import Partition
from raylog.actors.partition.transaction_end import TransactionEnd
from raylog.storage.config import LogConfig
from raylog.storage.errors import (
    InvalidProducerEpoch,
    InvalidRecord,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from raylog.storage.loader import open_log
from raylog.storage.names import CONSUMER_OFFSETS, TopicPartition
from raylog.storage.records.batch import read_header
from raylog.storage.records.control import Marker, encode_marker
from raylog.storage.testing.logs import FOLDER, Disk, batch, of_producer


@pytest.fixture
def partition(disk: Disk) -> Partition:
    return Partition(disk.open(), disk.clock)


def part(sequence: int, epoch: int = 0, producer: int = 7) -> bytes:
    """A batch of two records in a transaction."""
    return bytes(of_producer(sequence, 2, producer=producer, epoch=epoch, transactional=True))


def begin(partition: Partition, records: bytes) -> AppendResult:
    """Append the first batch of a transaction of which the coordinator knows."""
    header = read_header(records)
    verification = partition.verifications.begin(header.producer_id, header.producer_epoch)
    verification.grant()
    try:
        return partition.append(records)
    finally:
        partition.verifications.end(verification)


def end(
    partition: Partition,
    epoch: int = 0,
    *,
    is_commit: bool = True,
    coordinator_epoch: int = 1,
    raises_epoch: bool = False,
    asked_at: int | None = None,
) -> AppendResult:
    made = TransactionEnd(7, epoch, is_commit, coordinator_epoch, raises_epoch, asked_at)
    return partition.end_transaction(made)


def stable(partition: Partition) -> int:
    return partition.log.last_stable_offset


def test_a_transaction_begins_only_if_its_coordinator_knows_it(partition: Partition) -> None:
    with pytest.raises(NotInTransaction):
        partition.append(part(0))
    verification = partition.verifications.begin(7, 0)
    with pytest.raises(NotInTransaction):
        partition.append(part(0))
    verification.grant()
    assert partition.append(part(0)).base_offset == 0
    partition.verifications.end(verification)
    assert partition.append(part(2)).base_offset == 2, "it has begun"
    assert len(partition.verifications) == 0


def test_the_word_is_about_one_epoch_of_one_producer(partition: Partition) -> None:
    verification = partition.verifications.begin(7, 1)
    verification.grant()
    for records in (part(0, epoch=0), part(0, epoch=2), part(0, epoch=1, producer=8)):
        with pytest.raises(NotInTransaction):
            partition.append(records)
    assert partition.append(part(0, epoch=1)).base_offset == 0


def test_a_late_batch_does_not_begin_a_transaction_behind_its_marker(partition: Partition) -> None:
    begin(partition, part(0))
    end(partition)
    with pytest.raises(NotInTransaction):
        partition.append(part(2))
    assert stable(partition) == partition.log.log_end_offset == 3


def test_a_marker_does_not_end_what_began_after_it_was_asked_for(partition: Partition) -> None:
    begin(partition, part(0))
    asked_at = partition.log.log_end_offset
    assert end(partition, asked_at=asked_at).base_offset == 2
    assert end(partition, asked_at=asked_at).base_offset == 3, "a repetition, and nothing is open"
    begin(partition, part(2))
    for older in (0, asked_at, 4):
        with pytest.raises(NotLeader):
            end(partition, asked_at=older)
    assert stable(partition) == 4
    assert end(partition, is_commit=False, asked_at=5).base_offset == 6
    assert stable(partition) == 7
    assert len(partition.fetch(0, isolation="committed").aborted or ()) == 1


def test_a_marker_makes_the_word_void_that_was_asked_for_before(partition: Partition) -> None:
    early = partition.verifications.begin(7, 0)
    early.grant()
    other = partition.verifications.begin(8, 0)
    other.grant()
    end(partition)
    with pytest.raises(NotInTransaction):
        partition.append(part(0))
    late = partition.verifications.begin(7, 0)
    late.grant()
    partition.append(part(0))
    partition.append(part(0, producer=8))


def test_a_marker_that_raises_the_epoch_leaves_the_word_for_the_next_transaction(
    partition: Partition,
) -> None:
    old = partition.verifications.begin(7, 0)
    old.grant()
    following = partition.verifications.begin(7, 1)
    following.grant()
    partition.end_transaction(TransactionEnd(7, 1, True, 0, raises_epoch=True))
    assert not partition.verifications.allow(7, 0)
    partition.append(part(0, epoch=1))


def test_what_is_written_already_needs_no_word(partition: Partition) -> None:
    begin(partition, part(0))
    end(partition)
    again = partition.append(part(0))
    assert (again.base_offset, again.is_duplicate) == (0, True)
    begin(partition, part(0, epoch=1))
    with pytest.raises(InvalidProducerEpoch):
        partition.append(part(2, epoch=0))


def test_a_higher_epoch_needs_a_word_of_its_own(partition: Partition) -> None:
    begin(partition, part(0))
    with pytest.raises(NotInTransaction):
        partition.append(part(0, epoch=1))


def test_readers_of_committed_records_wait_for_the_marker(partition: Partition) -> None:
    partition.append(batch())
    begin(partition, part(0))
    partition.append(batch())
    assert stable(partition) == 1
    assert partition.fetch(0, isolation="committed").last_stable_offset == 1
    assert end(partition).base_offset == 4
    assert stable(partition) == 5
    found = partition.fetch(0, isolation="committed")
    assert found.aborted == ()


def test_what_is_aborted_is_told(partition: Partition) -> None:
    begin(partition, part(0))
    end(partition, is_commit=False)
    found = partition.fetch(0, isolation="committed")
    assert found.aborted == ((7, 0),)
    assert stable(partition) == 3


@pytest.mark.parametrize("raises_epoch", [False, True])
def test_a_marker_that_comes_twice_is_written_twice_and_changes_nothing(
    partition: Partition, raises_epoch: bool
) -> None:
    begin(partition, part(0))
    for _ in range(2):
        end(partition, epoch=1, raises_epoch=raises_epoch, is_commit=False)
    assert stable(partition) == 4
    assert partition.fetch(0, isolation="committed").aborted == ((7, 0),)


def test_a_marker_may_come_where_nothing_was_written(partition: Partition) -> None:
    assert end(partition).base_offset == 0
    assert begin(partition, part(0)).base_offset == 1


def test_a_late_marker_does_not_end_the_next_transaction(partition: Partition) -> None:
    begin(partition, part(0))
    end(partition, epoch=1, raises_epoch=True)
    begin(partition, part(0, epoch=1))
    with pytest.raises(InvalidProducerEpoch):
        end(partition, epoch=1, raises_epoch=True)
    assert stable(partition) == 3
    end(partition, epoch=2, raises_epoch=True)
    with pytest.raises(InvalidProducerEpoch):
        end(partition, epoch=1)


def test_where_the_epoch_stays_the_marker_has_it(partition: Partition) -> None:
    begin(partition, part(0))
    end(partition, epoch=0)
    assert begin(partition, part(2)).base_offset == 3, "its sequences go on"
    with pytest.raises(OutOfOrderSequence):
        partition.append(part(9))


def test_an_older_coordinator_is_fenced(partition: Partition) -> None:
    end(partition, coordinator_epoch=5)
    begin(partition, part(0))
    with pytest.raises(TransactionCoordinatorFenced):
        end(partition, coordinator_epoch=4)
    end(partition, coordinator_epoch=5)


def test_after_a_restart_the_open_transaction_is_open(disk: Disk, partition: Partition) -> None:
    begin(partition, part(0))
    partition.close()
    again = Partition(disk.open(), disk.clock)
    assert stable(again) == 0
    again.append(part(2))
    end(again)
    assert stable(again) == 5


def test_no_client_writes_markers(partition: Partition) -> None:
    marker = encode_marker(Marker(False, 1, 0), producer_id=7, producer_epoch=0)
    with pytest.raises(InvalidRecord):
        partition.append(marker)
    disk = Disk()
    offsets = TopicPartition(CONSUMER_OFFSETS, 0)
    log = open_log(disk.fs, disk.clock, FOLDER, offsets, LogConfig(), is_clean=True)
    with pytest.raises(InternalTopic):
        end(Partition(log, disk.clock))


def test_what_is_behind_a_batch_that_waits_for_its_word_waits_too(partition: Partition) -> None:
    begin(partition, part(0))
    end(partition)
    refusal = NotVerified("orders-0", "its coordinator is away")
    partition.refuse(read_header(part(2)), refusal)
    verification = partition.verifications.begin(7, 0)
    verification.grant()
    with pytest.raises(NotVerified):
        partition.append(part(4))
    partition.append(part(2))
    partition.append(part(4))


def test_no_transaction_begins_with_a_batch_behind_a_refused_one(partition: Partition) -> None:
    """Of a producer that is not known any sequence would be taken (KAFKA-14920)."""
    refusal = NotVerified("orders-0", "its coordinator is away")
    partition.refuse(read_header(part(0)), refusal)
    with pytest.raises(NotVerified):
        begin(partition, part(2))
    assert partition.log.log_end_offset == 0
    assert begin(partition, part(0, epoch=1)).base_offset == 0, "another epoch has its own"
    end(partition, epoch=1)
    assert begin(partition, part(0, epoch=2)).base_offset == 3
    assert partition.append(part(2, epoch=2)).base_offset == 5


def test_what_was_refused_and_does_not_come_again_is_forgotten(
    disk: Disk, partition: Partition
) -> None:
    partition.refuse(read_header(part(0)), NotVerified("orders-0", "its coordinator is away"))
    disk.clock.advance(30_001)
    assert begin(partition, part(2)).base_offset == 0
