"""APIs that make and remove topics and partitions.

DeleteTopics names topics by ``topicNames`` up to version 5, and since version 6 by ``topics``, each
by its name or its id. Source: ``CreateTopics*.json``, ``DeleteTopics*.json``,
``CreatePartitions*.json`` of Kafka 4.3; KIP-4, KIP-195, KIP-516, KIP-525.
"""

from typing import Final

from raylog.actors.plane.apis.api import Api

CREATE_TOPICS: Final = Api(
    19,
    "CreateTopics",
    first_version=2,
    last_version=7,
    flexible=5,
    request="""
    topics []
        name string
        numPartitions int32
        replicationFactor int16
        assignments []
            partitionIndex int32
            brokerIds []int32
        configs []
            name string
            value ?string
    timeoutMs int32 default=60000
    validateOnly bool
    """,
    answer="""
    throttleTimeMs int32 ignorable
    topics []
        name string
        topicId uuid 7+ ignorable
        errorCode int16
        errorMessage ?string ignorable
        topicConfigErrorCode int16 5+ tag=0 ignorable
        numPartitions int32 5+ default=-1 ignorable
        replicationFactor int16 5+ default=-1 ignorable
        configs ?[] 5+ ignorable
            name string
            value ?string
            readOnly bool
            configSource int8 default=-1 ignorable
            isSensitive bool
    """,
)
DELETE_TOPICS: Final = Api(
    20,
    "DeleteTopics",
    first_version=1,
    last_version=6,
    flexible=4,
    request="""
    topics [] 6+
        name ?string
        topicId uuid
    topicNames []string 0-5 ignorable
    timeoutMs int32
    """,
    answer="""
    throttleTimeMs int32 ignorable
    responses []
        name ?string null=6+
        topicId uuid 6+ ignorable
        errorCode int16
        errorMessage ?string 5+ ignorable
    """,
)
CREATE_PARTITIONS: Final = Api(
    37,
    "CreatePartitions",
    last_version=3,
    flexible=2,
    request="""
    topics []
        name string
        count int32
        assignments ?[]
            brokerIds []int32
    timeoutMs int32
    validateOnly bool
    """,
    answer="""
    throttleTimeMs int32
    results []
        name string
        errorCode int16
        errorMessage ?string
    """,
)
