"""What the leader of a partition asks a transaction's coordinator before its first batch.

Clients of version 1 add each partition by themselves: the coordinator is asked whether it is there.
Clients of version 2 (KIP-890) leave it to the leader: it is added by the same question. The
coordinator may be at work with the end of the transaction before: then it is asked again for a
moment, since its markers need no longer than that.
"""

import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from raylog.actors.coordinators.codes import (
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    INVALID_PRODUCER_EPOCH,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_TXN_STATE,
    NONE,
    NOT_COORDINATOR,
    PRODUCER_FENCED,
    TRANSACTION_ABORTABLE,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from raylog.actors.coordinators.homes import partition_of
from raylog.actors.errors import (
    NotInTransaction,
    NotVerified,
    TransactionAbortable,
    UnknownTransactionalId,
)
from raylog.actors.plane.apis.api import Api
from raylog.actors.plane.apis.transactions import ADD_PARTITIONS_TO_TXN
from raylog.actors.plane.errors import PeerAway
from raylog.actors.plane.peers.peers import Topic
from raylog.storage.errors import InvalidProducerEpoch, RaylogError
from raylog.storage.names import TRANSACTION_STATE, TopicPartition
from raylog.storage.schemas.types import Value

_VERSION: Final = ADD_PARTITIONS_TO_TXN.last_version
_AGAIN: Final = (
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    NOT_COORDINATOR,
)
# It is asked again for so long, with these pauses; then its client asks again.
PATIENCE_S: Final = 1.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.005, 0.1


class Writer(NamedTuple):
    """Who writes into a transaction. ``version``: of the transactions that its client makes."""

    transactional_id: str
    producer_id: int
    epoch: int
    version: int


class Asking(Protocol):
    """``peers.py``."""

    def topic(self, name: str) -> Topic | None: ...
    def ask(self, partition: TopicPartition, api: Api, version: int, body: Value) -> Value: ...


class Verifier:
    """See the module's head. Safe for threads."""

    def __init__(
        self,
        peers: Asking,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        """``pause``: waits for so many seconds."""
        self._peers, self._clock = peers, clock
        self._pause = pause or threading.Event().wait

    def ask(self, writer: Writer, partition: TopicPartition) -> int:
        """The code for the first batch of a partition; 0: it may be written.

        COORDINATOR_NOT_AVAILABLE where nobody says it in time.
        """
        deadline_s, pause_s = self._clock() + PATIENCE_S, FIRST_PAUSE_S
        while True:
            code = self._ask_once(writer, partition)
            if code not in _AGAIN:
                return _told(code, writer)
            if self._clock() + pause_s > deadline_s:
                return COORDINATOR_NOT_AVAILABLE
            self._pause(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _ask_once(self, writer: Writer, partition: TopicPartition) -> int:
        body = {
            "transactions": [
                {
                    "transactionalId": writer.transactional_id,
                    "producerId": writer.producer_id,
                    "producerEpoch": writer.epoch,
                    "verifyOnly": writer.version == 1,
                    "topics": [
                        {"name": partition.topic, "partitions": [partition.partition]},
                    ],
                }
            ]
        }
        try:
            topic = self._peers.topic(TRANSACTION_STATE)
            if topic is None or not topic.partitions:
                return COORDINATOR_NOT_AVAILABLE
            home = partition_of(writer.transactional_id, topic.partitions)
            coordinator = TopicPartition(TRANSACTION_STATE, home)
            told = self._peers.ask(coordinator, ADD_PARTITIONS_TO_TXN, _VERSION, body)
        except PeerAway:
            return COORDINATOR_NOT_AVAILABLE
        if told["errorCode"]:
            return int(told["errorCode"])
        (transaction,) = told["resultsByTransaction"]
        (answered,) = transaction["topicResults"]
        (result,) = answered["resultsByPartition"]
        return int(result["partitionErrorCode"])


def _told(code: int, writer: Writer) -> int:
    """As clients know it: a fence is an old epoch, and version 1 knows no "abort, and go on"."""
    if code == PRODUCER_FENCED:
        return INVALID_PRODUCER_EPOCH
    if code == TRANSACTION_ABORTABLE and writer.version == 1:
        return INVALID_TXN_STATE
    return code if code >= NONE else COORDINATOR_NOT_AVAILABLE


def problem_of(code: int, partition: str, writer: Writer) -> RaylogError:
    """The error for the first batch of a partition that its coordinator does not let in."""
    producer_id, epoch = writer.producer_id, writer.epoch
    if code == COORDINATOR_NOT_AVAILABLE:
        return NotVerified(partition, f"{writer.transactional_id!r} has no coordinator now")
    if code == UNKNOWN_TOPIC_OR_PARTITION:  # it is here: the coordinator's node hears of it later
        return NotVerified(partition, "the coordinator has not heard of the partition yet")
    if code == INVALID_PRODUCER_EPOCH:
        return InvalidProducerEpoch(partition, producer_id, epoch + 1, epoch)
    if code == INVALID_PRODUCER_ID_MAPPING:
        return UnknownTransactionalId(writer.transactional_id, producer_id)
    if code == TRANSACTION_ABORTABLE:
        return TransactionAbortable(partition, producer_id, epoch)
    return NotInTransaction(partition, producer_id, epoch)
