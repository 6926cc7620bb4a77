"""What a LogActor does for transactions: as their coordinator, and as a partition in them."""

from typing import NamedTuple, Protocol

from raylog.actors.coordinators.codes import (
    COORDINATOR_NOT_AVAILABLE,
    NONE,
    NOT_COORDINATOR,
    OPERATION_NOT_ATTEMPTED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from raylog.actors.coordinators.homes import partition_of
from raylog.actors.coordinators.transactions.coordinator import TransactionCoordinator
from raylog.actors.plane.codes import INVALID_TOPIC
from raylog.actors.plane.errors import PeerAway
from raylog.actors.plane.peers.peers import Topic
from raylog.actors.plane.transactions.verifying import Verifier
from raylog.storage.names import CONSUMER_OFFSETS, TRANSACTION_STATE, TopicPartition


class Places(Protocol):
    """``peers.py``."""

    def topic(self, name: str) -> Topic | None: ...
    def missing(self, partitions: list[TopicPartition]) -> set[TopicPartition]: ...


class Transactions(NamedTuple):
    """``coordinator``: of this process, if its partition is one of ``__transaction_state``.

    ``number``: of that partition.
    """

    places: Places
    verifier: Verifier
    coordinator: TransactionCoordinator | None = None
    number: int = 0

    def why_not_here(self, transactional_id: str) -> int:
        """The code for an id that has its coordinator elsewhere; 0 where it is here."""
        if self.coordinator is None:
            return NOT_COORDINATOR
        try:
            topic = self.places.topic(TRANSACTION_STATE)
        except PeerAway:
            return COORDINATOR_NOT_AVAILABLE
        if topic is None or not topic.partitions:
            return COORDINATOR_NOT_AVAILABLE
        is_here = partition_of(transactional_id, topic.partitions) == self.number
        return NONE if is_here else NOT_COORDINATOR

    def why_not_added(self, partitions: list[TopicPartition]) -> list[int]:
        """A code for each partition, if one of them cannot be in a transaction; else nothing.

        The others are told that nothing was tried with them.
        """
        try:
            missing = self.places.missing(partitions)
        except PeerAway:
            return [COORDINATOR_NOT_AVAILABLE] * len(partitions)
        codes = []
        for one in partitions:
            code = UNKNOWN_TOPIC_OR_PARTITION if one in missing else NONE
            if one.topic == TRANSACTION_STATE:  # its own log takes no markers
                code = INVALID_TOPIC
            codes.append(code)
        if not any(codes):
            return []
        return [code or OPERATION_NOT_ATTEMPTED for code in codes]

    def offsets_of(self, group: str) -> TopicPartition | None:
        """Where a group's offsets are; None where nobody says it. Raises PeerAway."""
        topic = self.places.topic(CONSUMER_OFFSETS)
        if topic is None or not topic.partitions:
            return None
        return TopicPartition(CONSUMER_OFFSETS, partition_of(group, topic.partitions))
