"""What is known of one transactional id: its producer, and where its transaction stands.

::

    Empty ----> Ongoing ----> PrepareCommit ----> CompleteCommit ---+
      ^           ^   |                                             |
      |           |   +-----> PrepareAbort -----> CompleteAbort ----+----> Ongoing, or Empty when a
      |           |                                                        producer takes the id
      a new id    partitions are added

*Prepare* means decided: nothing changes the outcome any more, and markers go to the partitions.
*Complete* means that each of them has its marker.

Two versions of the protocol (KIP-890). In version 1 all transactions of a producer have one epoch.
In version 2 each end of a transaction raises the epoch, so that nothing of one transaction, however
late it comes, can touch the next one.

A transaction may be *prepared* by its client, which is raylog's own and no part of Kafka: all of it
is written, and somebody else decides. It is Ongoing then, takes no more partitions, is never timed
out, and nobody takes over its id: only its decision ends it. Source: ``TransactionMetadata`` of
Kafka.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from raylog.storage.names import TopicPartition

NO_ID: Final = -1  # of a producer, or an epoch
NO_TIME: Final = -1
VERSION_1: Final = 1
VERSION_2: Final = 2
# The largest epoch is for a fence. A producer that has the one before it gets a new id.
MAX_EPOCH: Final = 32_767
LAST_OF_A_PRODUCER: Final = MAX_EPOCH - 1


class State(Enum):
    """By Kafka's names; the numbers are those of the records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def is_decided(self) -> bool:
        """Whether markers are on their way."""
        return self in (State.PREPARE_COMMIT, State.PREPARE_ABORT)

    @property
    def is_commit(self) -> bool:
        return self in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)

    @property
    def is_abort(self) -> bool:
        return self in (State.PREPARE_ABORT, State.COMPLETE_ABORT)

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is open."""
        return self in (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A transactional id, as its last record has it. Another one takes its place.

    ``epoch``: of the producer. ``last_epoch``: the one before, where its owner has asked for the
    newer one: so a request that was answered, and whose answer was lost, is told from a stranger's.
    ``previous_producer_id``: before the last end, where a new id has taken the place of one without
    epochs. ``next_producer_id``: the new one, until the end is complete. ``start_ms``: when its
    first partition was added. ``version``: of the protocol, as of its client's last action.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    state: State
    updated_ms: int
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIME
    last_epoch: int = NO_ID
    previous_producer_id: int = NO_ID
    next_producer_id: int = NO_ID
    version: int = VERSION_1
    is_prepared: bool = False

    @property
    def is_exhausted(self) -> bool:
        """Whether its producer id has no epoch left for another producer."""
        return self.epoch >= LAST_OF_A_PRODUCER

    def is_current(self, epoch: int) -> bool:
        """Whether this is its producer's epoch. The one of a fence is nobody's."""
        return epoch == self.epoch != MAX_EPOCH

    def validate(self) -> None:
        """Assert what is true of every one."""
        assert self.producer_id >= 0
        assert 0 <= self.epoch <= MAX_EPOCH
        assert self.last_epoch < max(self.epoch, 1) or self.previous_producer_id != NO_ID
        assert not self.is_prepared or self.state is State.ONGOING
        if self.state.is_at_rest:
            assert not self.partitions
        if self.state is State.ONGOING:
            assert self.start_ms >= 0
            assert self.epoch < MAX_EPOCH, "the last epoch is for a fence"
        assert self.next_producer_id == NO_ID or self.state.is_decided
