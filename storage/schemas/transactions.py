"""The records of ``__transaction_state``: one key for each transactional id.

Key and value begin with a version, an int16. ``transactionStatus`` is a place in
``TRANSACTION_STATES``; ``transactionPartitions`` is null in the state Empty. A record without a
value deletes the id. The tagged fields are those of KIP-890: Kafka 3.9 knows them and writes none.
Source: the schemas of Kafka's transaction coordinator.
"""

from typing import Final

from raylog.storage.schemas.schema import schema

TRANSACTION_KEY: Final = schema("TransactionLogKey", "transactionalId string")
TRANSACTION_VALUE: Final = schema(
    "TransactionLogValue",
    """
    producerId int64
    previousProducerId int64 1+ tag=0 default=-1
    nextProducerId int64 1+ tag=1 default=-1
    producerEpoch int16
    transactionTimeoutMs int32
    transactionStatus int8
    transactionPartitions ?[]
        topic string
        partitionIds []int32
    transactionLastUpdateTimestampMs int64
    transactionStartTimestampMs int64
    clientTransactionVersion int16 1+ tag=2
    """,
    last_version=1,
    flexible=1,
)
TRANSACTION_STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
