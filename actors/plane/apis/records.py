"""APIs of a partition's records: write them, read them, find an offset, give producers their ids.

Produce is advertised from version 0 on, though versions 0-2 (messages of the old formats) are not
served: librdkafka before 2.11.1 compresses only if the range has version 0 (KAFKA-18659). Kafka
does the same.

In version 13 of Produce and Fetch topics are named by id. Source: ``Produce*.json``,
``Fetch*.json``, ``ListOffsets*.json``, ``OffsetForLeaderEpoch*.json``, ``DeleteRecords*.json``,
``InitProducerId*.json``, ``DescribeProducers*.json`` of Kafka 4.3; KIP-320, KIP-467, KIP-516,
KIP-595, KIP-903, KIP-951.
"""

from typing import Final

from raylog.actors.plane.apis.api import Api

PRODUCE: Final = Api(
    0,
    "Produce",
    first_version=3,
    last_version=13,
    flexible=9,
    advertised_from=0,
    is_hot=True,
    request="""
    transactionalId ?string
    acks int16
    timeoutMs int32
    topicData []
        name string 0-12 ignorable
        topicId uuid 13+ ignorable
        partitionData []
            index int32
            records ?records
    """,
    answer="""
    responses []
        name string 0-12 ignorable
        topicId uuid 13+ ignorable
        partitionResponses []
            index int32
            errorCode int16
            baseOffset int64
            logAppendTimeMs int64 default=-1 ignorable
            logStartOffset int64 5+ default=-1 ignorable
            recordErrors [] 8+ ignorable
                batchIndex int32
                batchIndexErrorMessage ?string
            errorMessage ?string 8+ ignorable
            currentLeader struct 10+ tag=0 ignorable
                leaderId int32 default=-1
                leaderEpoch int32 default=-1
    throttleTimeMs int32 ignorable
    nodeEndpoints [] 10+ tag=0 ignorable
        nodeId int32
        host string
        port int32
        rack ?string
    """,
)
FETCH: Final = Api(
    1,
    "Fetch",
    first_version=4,
    last_version=18,
    flexible=12,
    is_hot=True,
    request="""
    clusterId ?string 12+ tag=0 ignorable
    replicaId int32 0-14 default=-1
    replicaState struct 15+ tag=1
        replicaId int32 default=-1
        replicaEpoch int64 default=-1
    maxWaitMs int32
    minBytes int32
    maxBytes int32 default=2147483647 ignorable
    isolationLevel int8
    sessionId int32 7+ ignorable
    sessionEpoch int32 7+ default=-1 ignorable
    topics []
        topic string 0-12 ignorable
        topicId uuid 13+ ignorable
        partitions []
            partition int32
            currentLeaderEpoch int32 9+ default=-1 ignorable
            fetchOffset int64
            lastFetchedEpoch int32 12+ default=-1
            logStartOffset int64 5+ default=-1 ignorable
            partitionMaxBytes int32
            replicaDirectoryId uuid 17+ tag=0 ignorable
            highWatermark int64 18+ tag=1 default=9223372036854775807 ignorable
    forgottenTopicsData [] 7+
        topic string 0-12 ignorable
        topicId uuid 13+ ignorable
        partitions []int32
    rackId string 11+ ignorable
    """,
    answer="""
    throttleTimeMs int32 ignorable
    errorCode int16 7+ ignorable
    sessionId int32 7+
    responses []
        topic string 0-12 ignorable
        topicId uuid 13+ ignorable
        partitions []
            partitionIndex int32
            errorCode int16
            highWatermark int64
            lastStableOffset int64 default=-1 ignorable
            logStartOffset int64 5+ default=-1 ignorable
            divergingEpoch struct 12+ tag=0 ignorable
                epoch int32 default=-1
                endOffset int64 default=-1
            currentLeader struct 12+ tag=1 ignorable
                leaderId int32 default=-1
                leaderEpoch int32 default=-1
            snapshotId struct 12+ tag=2 ignorable
                endOffset int64 default=-1
                epoch int32 default=-1
            abortedTransactions ?[] ignorable
                producerId int64
                firstOffset int64
            preferredReadReplica int32 11+ default=-1
            records ?records
    nodeEndpoints [] 16+ tag=0 ignorable
        nodeId int32
        host string
        port int32
        rack ?string
    """,
)
LIST_OFFSETS: Final = Api(
    2,
    "ListOffsets",
    first_version=1,
    last_version=11,
    flexible=6,
    request="""
    replicaId int32
    isolationLevel int8 2+
    topics []
        name string
        partitions []
            partitionIndex int32
            currentLeaderEpoch int32 4+ default=-1 ignorable
            timestamp int64
    timeoutMs int32 10+ ignorable
    """,
    answer="""
    throttleTimeMs int32 2+ ignorable
    topics []
        name string
        partitions []
            partitionIndex int32
            errorCode int16
            timestamp int64 default=-1
            offset int64 default=-1
            leaderEpoch int32 4+ default=-1
    """,
)
OFFSET_FOR_LEADER_EPOCH: Final = Api(
    23,
    "OffsetForLeaderEpoch",
    first_version=2,
    last_version=4,
    flexible=4,
    request="""
    replicaId int32 3+ default=-2 ignorable
    topics []
        topic string
        partitions []
            partition int32
            currentLeaderEpoch int32 default=-1 ignorable
            leaderEpoch int32
    """,
    answer="""
    throttleTimeMs int32 ignorable
    topics []
        topic string
        partitions []
            errorCode int16
            partition int32
            leaderEpoch int32 default=-1 ignorable
            endOffset int64 default=-1
    """,
)
DELETE_RECORDS: Final = Api(
    21,
    "DeleteRecords",
    last_version=2,
    flexible=2,
    request="""
    topics []
        name string
        partitions []
            partitionIndex int32
            offset int64
    timeoutMs int32
    """,
    answer="""
    throttleTimeMs int32
    topics []
        name string
        partitions []
            partitionIndex int32
            lowWatermark int64
            errorCode int16
    """,
)
INIT_PRODUCER_ID: Final = Api(
    22,
    "InitProducerId",
    last_version=5,
    flexible=2,
    request="""
    transactionalId ?string
    transactionTimeoutMs int32
    producerId int64 3+ default=-1
    producerEpoch int16 3+ default=-1
    """,
    answer="""
    throttleTimeMs int32 ignorable
    errorCode int16
    producerId int64 default=-1
    producerEpoch int16
    """,
)
DESCRIBE_PRODUCERS: Final = Api(
    61,
    "DescribeProducers",
    last_version=0,
    flexible=0,
    request="""
    topics []
        name string
        partitionIndexes []int32
    """,
    answer="""
    throttleTimeMs int32
    topics []
        name string
        partitions []
            partitionIndex int32
            errorCode int16
            errorMessage ?string
            activeProducers []
                producerId int64
                producerEpoch int32
                lastSequence int32 default=-1
                lastTimestamp int64 default=-1
                coordinatorEpoch int32
                currentTxnStartOffset int64 default=-1
    """,
)
