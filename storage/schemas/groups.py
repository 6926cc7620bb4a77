"""The records of Kafka's own topics but the metadata log: groups, transactions, and KRaft's control
records.

``__consumer_offsets`` has keys and values that begin with a version, an int16; a key's version is
its type, too. Source: the schemas of Kafka's group and transaction coordinators and of
``ConsumerProtocol``; KIP-848, KIP-932.
"""

from typing import Final

from raylog.storage.schemas.schema import Schema, schema

_ASSIGNED_BY_ID = """
topicId uuid
partitions []int32
"""


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.split("\n") if line)


CONSUMER_PROTOCOL: Final = "consumer"
SUBSCRIPTION: Final = schema(
    "ConsumerProtocolSubscription",
    """
    topics []string
    userData ?bytes
    ownedPartitions [] 1+
        topic string
        partitions []int32
    generationId int32 2+
    rackId ?string 3+
    """,
)
ASSIGNMENT: Final = schema(
    "ConsumerProtocolAssignment",
    """
    assignedPartitions []
        topic string
        partitions []int32
    userData ?bytes
    """,
)

_OFFSET_KEY = schema(
    "OffsetCommitKey",
    """
    group string
    topic string
    partition int32
    """,
)
_OFFSET_VALUE = schema(
    "OffsetCommitValue",
    """
    offset int64
    leaderEpoch int32 3+
    metadata string
    commitTimestamp int64
    expireTimestamp int64 1-1
    """,
    last_version=4,
    flexible=4,
)
_GROUP_VALUE = schema(
    "GroupMetadataValue",
    """
    protocolType string
    generation int32
    protocol ?string
    leader ?string
    currentStateTimestamp int64 2+
    members []
        memberId string
        groupInstanceId ?string 3+
        clientId string
        clientHost string
        rebalanceTimeout int32 1+
        sessionTimeout int32
        subscription bytes
        assignment bytes
    """,
    last_version=4,
    flexible=4,
)


def _group_key(name: str) -> Schema:
    return schema(name, "groupId string")


def _member_key(name: str) -> Schema:
    return schema(name, "groupId string\nmemberId string")


def _value(name: str, text: str) -> Schema:
    return schema(name, text, flexible=0)


_PARTITION_METADATA = """
    topics []
        topicId uuid
        topicName string
        numPartitions int32
        partitionMetadata []
            partition int32
            racks []string
"""
_TARGET_MEMBER = "topicPartitions []\n" + _indented(_ASSIGNED_BY_ID)

# Keys and values of __consumer_offsets by the key's version.
GROUP_RECORDS: Final[dict[int, tuple[Schema, Schema]]] = {
    0: (_OFFSET_KEY, _OFFSET_VALUE),
    1: (_OFFSET_KEY, _OFFSET_VALUE),
    2: (schema("GroupMetadataKey", "group string"), _GROUP_VALUE),
    3: (
        _group_key("ConsumerGroupMetadataKey"),
        _value("ConsumerGroupMetadataValue", "epoch int32"),
    ),
    4: (
        _group_key("ConsumerGroupPartitionMetadataKey"),
        _value("ConsumerGroupPartitionMetadataValue", _PARTITION_METADATA),
    ),
    5: (
        _member_key("ConsumerGroupMemberMetadataKey"),
        _value(
            "ConsumerGroupMemberMetadataValue",
            """
            instanceId ?string
            rackId ?string
            clientId string
            clientHost string
            subscribedTopicNames []string
            subscribedTopicRegex ?string
            rebalanceTimeoutMs int32
            serverAssignor ?string
            classicMemberMetadata ?struct tag=0
                sessionTimeoutMs int32
                supportedProtocols []
                    name string
                    metadata bytes
            """,
        ),
    ),
    6: (
        _group_key("ConsumerGroupTargetAssignmentMetadataKey"),
        _value("ConsumerGroupTargetAssignmentMetadataValue", "assignmentEpoch int32"),
    ),
    7: (
        _member_key("ConsumerGroupTargetAssignmentMemberKey"),
        _value("ConsumerGroupTargetAssignmentMemberValue", _TARGET_MEMBER),
    ),
    8: (
        _member_key("ConsumerGroupCurrentMemberAssignmentKey"),
        _value(
            "ConsumerGroupCurrentMemberAssignmentValue",
            "memberEpoch int32\npreviousMemberEpoch int32\nstate int8\nassignedPartitions []\n"
            + _indented(_ASSIGNED_BY_ID)
            + "partitionsPendingRevocation []\n"
            + _indented(_ASSIGNED_BY_ID),
        ),
    ),
    9: (
        _group_key("ShareGroupPartitionMetadataKey"),
        _value("ShareGroupPartitionMetadataValue", _PARTITION_METADATA),
    ),
    10: (
        _member_key("ShareGroupMemberMetadataKey"),
        _value(
            "ShareGroupMemberMetadataValue",
            """
            rackId ?string
            clientId string
            clientHost string
            subscribedTopicNames []string
            """,
        ),
    ),
    11: (_group_key("ShareGroupMetadataKey"), _value("ShareGroupMetadataValue", "epoch int32")),
    12: (
        _group_key("ShareGroupTargetAssignmentMetadataKey"),
        _value("ShareGroupTargetAssignmentMetadataValue", "assignmentEpoch int32"),
    ),
    13: (
        _member_key("ShareGroupTargetAssignmentMemberKey"),
        _value("ShareGroupTargetAssignmentMemberValue", _TARGET_MEMBER),
    ),
    14: (
        _member_key("ShareGroupCurrentMemberAssignmentKey"),
        _value(
            "ShareGroupCurrentMemberAssignmentValue",
            "memberEpoch int32\npreviousMemberEpoch int32\nstate int8\nassignedPartitions []\n"
            + _indented(_ASSIGNED_BY_ID),
        ),
    ),
    15: (
        _group_key("ShareGroupStatePartitionMetadataKey"),
        _value(
            "ShareGroupStatePartitionMetadataValue",
            """
            initializedTopics []
                topicId uuid
                topicName string
                partitions []int32
            deletingTopics []
                topicId uuid
                topicName string
            """,
        ),
    ),
}

TRANSACTION_KEY: Final = schema("TransactionLogKey", "transactionalId string")
TRANSACTION_VALUE: Final = schema(
    "TransactionLogValue",
    """
    producerId int64
    producerEpoch int16
    transactionTimeoutMs int32
    transactionStatus int8
    transactionPartitions ?[]
        topic string
        partitionIds []int32
    transactionLastUpdateTimestampMs int64
    transactionStartTimestampMs int64
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

# Values of control records, which begin with their version as a field, by the record's type.
CONTROL_VALUES: Final = {
    3: (
        "SnapshotHeader",
        _value("SnapshotHeaderRecord", "version int16\nlastContainedLogTimestamp int64"),
    ),
    4: ("SnapshotFooter", _value("SnapshotFooterRecord", "version int16")),
    5: ("KRaftVersion", _value("KRaftVersionRecord", "version int16\nkRaftVersion int16")),
    6: (
        "KRaftVoters",
        _value(
            "VotersRecord",
            """
            version int16
            voters []
                voterId int32
                voterDirectoryId uuid
                endpoints []
                    name string
                    host string
                    port uint16
                kRaftVersionFeature struct
                    minSupportedVersion int16
                    maxSupportedVersion int16
            """,
        ),
    ),
}
