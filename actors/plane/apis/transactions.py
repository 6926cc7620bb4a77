"""APIs of transactions: add partitions and offsets to one, end it, write its markers, list them.

A transaction begins with InitProducerId, which is in ``records.py``.

Who asks whom::

    API                     asked by                   answered by
    AddPartitionsToTxn 0-3  a producer                 the transaction's coordinator
    AddPartitionsToTxn 4-5  a broker                   the transaction's coordinator
    AddOffsetsToTxn         a producer                 the transaction's coordinator
    EndTxn                  a producer                 the transaction's coordinator
    WriteTxnMarkers         the coordinator, an admin  the leaders of the partitions
    TxnOffsetCommit         a producer                 the group's coordinator
    DescribeTransactions    an admin                   the transactions' coordinators
    ListTransactions        an admin                   every broker

Up to version 3 AddPartitionsToTxn has one transaction, in the fields ``v3AndBelow...``. From
version 4 on it has several. With ``verifyOnly`` nothing is added: the answer says which partitions
are in the transaction.

``committed`` of EndTxn and ``transactionResult`` of WriteTxnMarkers are true for a commit and false
for an abort.

EndTxn 5 and TxnOffsetCommit 5 belong to version 2 of transactions (KIP-890). The answer to EndTxn
has the producer's next id and epoch. TxnOffsetCommit adds the group's offsets to the transaction.

In ListTransactions an empty filter and a duration below 0 exclude nothing. Its version 2 is not
served: it has a regular expression (KIP-1152), and Python's may take for ever.

Source: ``AddPartitionsToTxn*.json``, ``AddOffsetsToTxn*.json``, ``EndTxn*.json``,
``WriteTxnMarkers*.json``, ``TxnOffsetCommit*.json``, ``DescribeTransactions*.json``,
``ListTransactions*.json`` of Kafka 4.3; KIP-98, KIP-320, KIP-447, KIP-664, KIP-890, KIP-994,
KIP-1228.
"""

from typing import Final

from raylog.actors.plane.apis.api import Api

ADD_PARTITIONS_TO_TXN: Final = Api(
    24,
    "AddPartitionsToTxn",
    last_version=5,
    flexible=3,
    request="""
    transactions [] 4+
        transactionalId string
        producerId int64
        producerEpoch int16
        verifyOnly bool
        topics []
            name string
            partitions []int32
    v3AndBelowTransactionalId string 0-3
    v3AndBelowProducerId int64 0-3
    v3AndBelowProducerEpoch int16 0-3
    v3AndBelowTopics [] 0-3
        name string
        partitions []int32
    """,
    answer="""
    throttleTimeMs int32
    errorCode int16 4+ ignorable
    resultsByTransaction [] 4+
        transactionalId string
        topicResults []
            name string
            resultsByPartition []
                partitionIndex int32
                partitionErrorCode int16
    resultsByTopicV3AndBelow [] 0-3
        name string
        resultsByPartition []
            partitionIndex int32
            partitionErrorCode int16
    """,
)
ADD_OFFSETS_TO_TXN: Final = Api(
    25,
    "AddOffsetsToTxn",
    last_version=4,
    flexible=3,
    request="""
    transactionalId string
    producerId int64
    producerEpoch int16
    groupId string
    """,
    answer="""
    throttleTimeMs int32
    errorCode int16
    """,
)
END_TXN: Final = Api(
    26,
    "EndTxn",
    last_version=5,
    flexible=3,
    request="""
    transactionalId string
    producerId int64
    producerEpoch int16
    committed bool
    """,
    answer="""
    throttleTimeMs int32
    errorCode int16
    producerId int64 5+ default=-1 ignorable
    producerEpoch int16 5+ default=-1 ignorable
    """,
)
WRITE_TXN_MARKERS: Final = Api(
    27,
    "WriteTxnMarkers",
    first_version=1,
    last_version=2,
    flexible=1,
    request="""
    markers []
        producerId int64
        producerEpoch int16
        transactionResult bool
        topics []
            name string
            partitionIndexes []int32
        coordinatorEpoch int32
        transactionVersion int8 2+ ignorable
    """,
    answer="""
    markers []
        producerId int64
        topics []
            name string
            partitions []
                partitionIndex int32
                errorCode int16
    """,
)
TXN_OFFSET_COMMIT: Final = Api(
    28,
    "TxnOffsetCommit",
    last_version=5,
    flexible=3,
    request="""
    transactionalId string
    groupId string
    producerId int64
    producerEpoch int16
    generationId int32 3+ default=-1
    memberId string 3+
    groupInstanceId ?string 3+
    topics []
        name string
        partitions []
            partitionIndex int32
            committedOffset int64
            committedLeaderEpoch int32 2+ default=-1 ignorable
            committedMetadata ?string
    """,
    answer="""
    throttleTimeMs int32
    topics []
        name string
        partitions []
            partitionIndex int32
            errorCode int16
    """,
)
DESCRIBE_TRANSACTIONS: Final = Api(
    65,
    "DescribeTransactions",
    last_version=0,
    flexible=0,
    request="""
    transactionalIds []string
    """,
    answer="""
    throttleTimeMs int32
    transactionStates []
        errorCode int16
        transactionalId string
        transactionState string
        transactionTimeoutMs int32
        transactionStartTimeMs int64
        producerId int64
        producerEpoch int16
        topics []
            topic string
            partitions []int32
    """,
)
LIST_TRANSACTIONS: Final = Api(
    66,
    "ListTransactions",
    last_version=1,
    flexible=0,
    request="""
    stateFilters []string
    producerIdFilters []int64
    durationFilter int64 1+ default=-1
    """,
    answer="""
    throttleTimeMs int32
    errorCode int16
    unknownStateFilters []string
    transactionStates []
        transactionalId string
        producerId int64
        transactionState string
    """,
)
TRANSACTION_APIS: Final = (
    ADD_PARTITIONS_TO_TXN,
    ADD_OFFSETS_TO_TXN,
    END_TXN,
    WRITE_TXN_MARKERS,
    TXN_OFFSET_COMMIT,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
)
