"""Transactional ids as records of ``__transaction_state``, and back.

The schemas are in ``storage/schemas/transactions.py``. Written is version 1 of the value, which
Kafka reads since 3.8; read is all that Kafka writes. Two things are in no field of Kafka's, and go
as tagged fields far above Kafka's tags. Kafka passes over them::

    tag     content
    10000   the epoch before the last one (int16), where there is one. Without it a producer whose
            answer was lost is fenced when the coordinator has been started again (KAFKA-20357).
    10001   nothing: the transaction is prepared
"""

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from struct import Struct
from typing import Final

from raylog.actors.coordinators.log_record import LogRecord
from raylog.actors.coordinators.transactions.transaction import (
    NO_ID,
    VERSION_1,
    VERSION_2,
    State,
    Transaction,
)
from raylog.storage.buffers import Buffer
from raylog.storage.errors import InvalidRecord
from raylog.storage.names import TopicPartition
from raylog.storage.schemas.transactions import TRANSACTION_KEY, TRANSACTION_VALUE
from raylog.storage.schemas.types import UNKNOWN_TAGS, Value

LAST_EPOCH_TAG: Final = 10_000
PREPARED_TAG: Final = 10_001
_KEY_VERSION: Final = 0
_VALUE_VERSION: Final = 1
_EPOCH: Final = Struct(">h")


def transaction_record(transaction: Transaction) -> LogRecord:
    """An id as it is now. Raises UnwritableValue."""
    partitions: list[Value] | None = None
    if transaction.state is not State.EMPTY:
        partitions = _by_topic(transaction.partitions)
    value: Value = {
        "producerId": transaction.producer_id,
        "previousProducerId": transaction.previous_producer_id,
        "nextProducerId": transaction.next_producer_id,
        "producerEpoch": transaction.epoch,
        "transactionTimeoutMs": transaction.timeout_ms,
        "transactionStatus": transaction.state.value,
        "transactionPartitions": partitions,
        "transactionLastUpdateTimestampMs": transaction.updated_ms,
        "transactionStartTimestampMs": transaction.start_ms,
        "clientTransactionVersion": VERSION_2 if transaction.version >= VERSION_2 else 0,
    }
    tags: dict[int, bytes] = {}
    if transaction.last_epoch != NO_ID:
        tags[LAST_EPOCH_TAG] = _EPOCH.pack(transaction.last_epoch)
    if transaction.is_prepared:
        tags[PREPARED_TAG] = b""
    if tags:
        value[UNKNOWN_TAGS] = tags
    written = TRANSACTION_VALUE.write_versioned(value, _VALUE_VERSION)
    return LogRecord(transaction_key(transaction.transactional_id), written)


def transaction_key(transactional_id: str) -> bytes:
    """Raises UnwritableValue."""
    key = {"transactionalId": transactional_id}
    return TRANSACTION_KEY.write_versioned(key, _KEY_VERSION)


def read(key: Buffer, value: Buffer | None) -> tuple[str, Transaction | None]:
    """A record of the log: an id, and what is known of it; None for a tombstone.

    Raises InvalidRecord.
    """
    _, name = TRANSACTION_KEY.read_versioned(key)
    transactional_id: str = name["transactionalId"]
    if value is None:
        return transactional_id, None
    _, found = TRANSACTION_VALUE.read_versioned(value)
    return transactional_id, _transaction(transactional_id, found)


def _transaction(transactional_id: str, found: Value) -> Transaction:
    try:
        state = State(found["transactionStatus"])
    except ValueError:
        why = f"transactional id {transactional_id}: a state {found['transactionStatus']}"
        raise InvalidRecord(f"{why}, which no record has") from None
    tags: dict[int, bytes] = found.get(UNKNOWN_TAGS, {})
    last_epoch = NO_ID
    content = tags.get(LAST_EPOCH_TAG, b"")
    if len(content) == _EPOCH.size:
        (last_epoch,) = _EPOCH.unpack(content)
    version = found["clientTransactionVersion"]
    return Transaction(
        transactional_id=transactional_id,
        producer_id=found["producerId"],
        epoch=found["producerEpoch"],
        timeout_ms=found["transactionTimeoutMs"],
        state=state,
        updated_ms=found["transactionLastUpdateTimestampMs"],
        partitions=frozenset(_named(found["transactionPartitions"] or ())),
        start_ms=found["transactionStartTimestampMs"],
        last_epoch=last_epoch,
        previous_producer_id=found["previousProducerId"],
        next_producer_id=found["nextProducerId"],
        version=VERSION_2 if version >= VERSION_2 else VERSION_1,
        is_prepared=PREPARED_TAG in tags and state is State.ONGOING,
    )


def _named(topics: Iterable[Value]) -> Iterable[TopicPartition]:
    for topic in topics:
        for number in topic["partitionIds"]:
            yield TopicPartition(topic["topic"], number)


def _by_topic(partitions: Iterable[TopicPartition]) -> list[Value]:
    return [
        {"topic": topic, "partitionIds": [one.partition for one in some]}
        for topic, some in groupby(sorted(partitions), key=attrgetter("topic"))
    ]
