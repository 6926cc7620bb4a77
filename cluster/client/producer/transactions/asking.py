"""Asks coordinators for a producer of transactions: again, while they do not serve.

Which code of an answer means what::

    14 15 16 51       not now: ask again. 51: the transaction before has not got all its markers
    47 90 49          another producer, or a timeout, has ended this one: ProducerFenced
    48                an end was asked for that is not the one that was decided: the same
    22 25 82          offsets of a consumer that is no member any more: CommitFailed
    48 120            offsets of a transaction that the coordinator does not have: TransactionFailed
"""

from collections.abc import Callable
from typing import Final, TypeVar

from raylog.actors.coordinators.codes import (
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_NOT_AVAILABLE,
    INVALID_PRODUCER_EPOCH,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_TRANSACTION_TIMEOUT,
    INVALID_TXN_STATE,
    NONE,
    NOT_COORDINATOR,
    OFFSET_METADATA_TOO_LARGE,
    PRODUCER_FENCED,
    TRANSACTION_ABORTABLE,
)
from raylog.actors.coordinators.errors import (
    NOT_SERVED,
    CommitFailed,
    CoordinatorNotAvailable,
    CoordinatorRefused,
    OffsetMetadataTooLarge,
)
from raylog.actors.coordinators.transactions.errors import (
    InvalidTransactionTimeout,
    ProducerFenced,
    TransactionFailed,
)
from raylog.actors.errors import RequestTimedOut
from raylog.actors.plane.apis.api import Api
from raylog.actors.plane.apis.transactions import TXN_OFFSET_COMMIT
from raylog.cluster.client.connection import Connection
from raylog.cluster.client.consumer.group.offsets import NOT_A_MEMBER, passes
from raylog.cluster.client.coordinator import GROUP, TRANSACTION, Coordinator
from raylog.cluster.client.producer.config import ProducerConfig
from raylog.cluster.client.producer.sender import Sender
from raylog.storage.names import TopicPartition
from raylog.storage.schemas.types import Value

T = TypeVar("T")

_MOVED: Final = (COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR)
_AGAIN: Final = {
    **NOT_SERVED,
    CONCURRENT_TRANSACTIONS: "the end of the transaction before is on its way",
}
_TAKEN: Final = "another producer has taken it, or transaction.timeout.ms was over"
FENCES: Final = {
    INVALID_PRODUCER_EPOCH: _TAKEN,
    PRODUCER_FENCED: _TAKEN,
    INVALID_PRODUCER_ID_MAPPING: "its coordinator does not know this producer (any more)",
}


class Asking:
    """What one producer asks. ``deadline``: by the sender's clock."""

    def __init__(
        self, transactional_id: str, config: ProducerConfig, connection: Connection, sender: Sender
    ) -> None:
        self._id, self._config, self._connection = transactional_id, config, connection
        self._sender = sender
        self._coordinator = Coordinator(connection, TRANSACTION, transactional_id, tuple)
        self._groups: dict[str, Coordinator] = {}

    def coordinator(self, call: str, api: Api, body: Value, deadline: float) -> Value:
        """The answer of the id's coordinator.

        Raises ProducerFenced, InvalidTransactionTimeout, CoordinatorRefused, RequestTimedOut.
        """

        def ask() -> Value:
            timeout_s = self._request_timeout_s(deadline)
            answer = self._coordinator.ask(api, body, timeout_s=timeout_s).result()
            self._check(answer["errorCode"])
            return answer

        return self._repeat(call, ask, deadline)

    def _check(self, code: int) -> None:
        if code == NONE:
            return
        if code in _MOVED:
            self._coordinator.forget()
        name = f"transactional id {self._id}"
        if code in _AGAIN:
            raise CoordinatorNotAvailable(name, _AGAIN[code])
        if code == INVALID_TRANSACTION_TIMEOUT:
            raise InvalidTransactionTimeout(self._config.transaction_timeout_ms)
        if code in FENCES:
            raise ProducerFenced(self._id, FENCES[code])
        if code == INVALID_TXN_STATE:
            raise ProducerFenced(self._id, "its transaction has been decided otherwise")
        raise CoordinatorRefused(name, code)

    def commit_offsets(self, call: str, group: str, body: Value, deadline: float) -> None:
        """Have the coordinator of a group take offsets into the transaction.

        Raises CommitFailed, OffsetMetadataTooLarge, TransactionFailed, ProducerFenced,
        CoordinatorRefused, RequestTimedOut.
        """
        if group not in self._groups:
            self._groups[group] = Coordinator(self._connection, GROUP, group, tuple)
        coordinator = self._groups[group]

        def ask() -> None:
            timeout_s = self._request_timeout_s(deadline)
            answer = coordinator.ask(TXN_OFFSET_COMMIT, body, timeout_s=timeout_s).result()
            for topic in answer["topics"]:
                for part in topic["partitions"]:
                    if part["errorCode"] in _MOVED:
                        coordinator.forget()
                    partition = TopicPartition(topic["name"], part["partitionIndex"])
                    self._check_commit(group, partition, part["errorCode"])

        self._repeat(call, ask, deadline)

    def _check_commit(self, group: str, partition: TopicPartition, code: int) -> None:
        if code == NONE:
            return
        name = f"group {group}"
        if code in _AGAIN:
            raise CoordinatorNotAvailable(name, _AGAIN[code])
        if code in FENCES:
            raise ProducerFenced(self._id, FENCES[code])
        if code in NOT_A_MEMBER:
            raise CommitFailed(group, NOT_A_MEMBER[code])
        if code == OFFSET_METADATA_TOO_LARGE:
            raise OffsetMetadataTooLarge(str(partition))
        if code in (INVALID_TXN_STATE, TRANSACTION_ABORTABLE):
            raise TransactionFailed(self._id, "its coordinator does not have it as open")
        raise CoordinatorRefused(name, code)

    def _request_timeout_s(self, deadline: float) -> float:
        left_s = max(deadline - self._sender.clock(), 0.001)
        return min(self._config.request_timeout_ms / 1000, left_s)

    def _repeat(self, call: str, ask: Callable[[], T], deadline: float) -> T:
        """Ask until there is an answer, or an error that does not pass."""
        backoff_ms = self._config.retry_backoff_ms
        started_at = self._sender.clock()
        while True:
            try:
                return ask()
            except Exception as error:
                if not passes(error):
                    raise
                if self._sender.clock() + backoff_ms / 1000 >= deadline:
                    raise RequestTimedOut(call, round((deadline - started_at) * 1000)) from error
            self._sender.pause(backoff_ms / 1000)
            backoff_ms = min(2 * backoff_ms, self._config.retry_backoff_max_ms)
