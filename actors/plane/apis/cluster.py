"""APIs that ask what the cluster is: its brokers, where topics' partitions are, and their disks.

``topics`` of Metadata: null is all topics, and an empty list is none (version 0: all). Source:
``Metadata*.json``, ``DescribeCluster*.json``, ``DescribeTopicPartitions*.json``,
``FindCoordinator*.json``, ``ListPartitionReassignments*.json``, ``DescribeLogDirs*.json`` of Kafka
4.3; KIP-430, KIP-516, KIP-699, KIP-700, KIP-966.
"""

from typing import Final

from raylog.actors.plane.apis.api import Api

METADATA: Final = Api(
    3,
    "Metadata",
    last_version=13,
    flexible=9,
    request="""
    topics ?[] null=1+
        topicId uuid 10+ ignorable
        name ?string null=10+
    allowAutoTopicCreation bool 4+ default=true
    includeClusterAuthorizedOperations bool 8-10
    includeTopicAuthorizedOperations bool 8+
    """,
    answer="""
    throttleTimeMs int32 3+ ignorable
    brokers []
        nodeId int32
        host string
        port int32
        rack ?string 1+ ignorable
    clusterId ?string 2+ ignorable
    controllerId int32 1+ default=-1 ignorable
    topics []
        errorCode int16
        name ?string null=12+
        topicId uuid 10+ ignorable
        isInternal bool 1+ ignorable
        partitions []
            errorCode int16
            partitionIndex int32
            leaderId int32
            leaderEpoch int32 7+ default=-1 ignorable
            replicaNodes []int32
            isrNodes []int32
            offlineReplicas []int32 5+ ignorable
        topicAuthorizedOperations int32 8+ default=-2147483648
    clusterAuthorizedOperations int32 8-10 default=-2147483648
    errorCode int16 13+ ignorable
    """,
)
DESCRIBE_CLUSTER: Final = Api(
    60,
    "DescribeCluster",
    last_version=2,
    flexible=0,
    request="""
    includeClusterAuthorizedOperations bool
    endpointType int8 1+ default=1
    includeFencedBrokers bool 2+
    """,
    answer="""
    throttleTimeMs int32
    errorCode int16
    errorMessage ?string
    endpointType int8 1+ default=1
    clusterId string
    controllerId int32 default=-1
    brokers []
        brokerId int32
        host string
        port int32
        rack ?string
        isFenced bool 2+
    clusterAuthorizedOperations int32 default=-2147483648
    """,
)
DESCRIBE_TOPIC_PARTITIONS: Final = Api(
    75,
    "DescribeTopicPartitions",
    last_version=0,
    flexible=0,
    request="""
    topics []
        name string
    responsePartitionLimit int32 default=2000
    cursor ?struct
        topicName string
        partitionIndex int32
    """,
    answer="""
    throttleTimeMs int32
    topics []
        errorCode int16
        name ?string
        topicId uuid
        isInternal bool
        partitions []
            errorCode int16
            partitionIndex int32
            leaderId int32
            leaderEpoch int32 default=-1
            replicaNodes []int32
            isrNodes []int32
            eligibleLeaderReplicas ?[]int32
            lastKnownElr ?[]int32
            offlineReplicas []int32
        topicAuthorizedOperations int32 default=-2147483648
    nextCursor ?struct
        topicName string
        partitionIndex int32
    """,
)
FIND_COORDINATOR: Final = Api(
    10,
    "FindCoordinator",
    last_version=6,
    flexible=3,
    request="""
    key string 0-3
    keyType int8 1+
    coordinatorKeys []string 4+
    """,
    answer="""
    throttleTimeMs int32 1+ ignorable
    errorCode int16 0-3
    errorMessage ?string 1-3 ignorable
    nodeId int32 0-3
    host string 0-3
    port int32 0-3
    coordinators [] 4+
        key string
        nodeId int32
        host string
        port int32
        errorCode int16
        errorMessage ?string
    """,
)
LIST_PARTITION_REASSIGNMENTS: Final = Api(
    46,
    "ListPartitionReassignments",
    last_version=0,
    flexible=0,
    request="""
    timeoutMs int32 default=60000
    topics ?[]
        name string
        partitionIndexes []int32
    """,
    answer="""
    throttleTimeMs int32
    errorCode int16
    errorMessage ?string
    topics []
        name string
        partitions []
            partitionIndex int32
            replicas []int32
            addingReplicas []int32
            removingReplicas []int32
    """,
)
DESCRIBE_LOG_DIRS: Final = Api(
    35,
    "DescribeLogDirs",
    first_version=1,
    last_version=5,
    flexible=2,
    request="""
    topics ?[]
        topic string
        partitions []int32
    """,
    answer="""
    throttleTimeMs int32
    errorCode int16 3+ ignorable
    results []
        errorCode int16
        logDir string
        topics []
            name string
            partitions []
                partitionIndex int32
                partitionSize int64
                offsetLag int64
                isFutureKey bool
        totalBytes int64 4+ default=-1 ignorable
        usableBytes int64 4+ default=-1 ignorable
        isCordoned bool 5+ ignorable
    """,
)
