"""The records of ``__consumer_offsets``.

They are those of groups of the classic protocol, of groups of the new one, and of share groups.

Key and value begin with a version, an int16, and a key's version is the record's type::

    0, 1    a committed offset (``offsets.py``)
    2       a classic group
    3 - 8   a group of the new consumer protocol (KIP-848)
    9 - 15  a share group (KIP-932)

So ``GROUP_RECORDS`` holds a key and a value for each type, and a record of type 3 has a key of
version 3 and a value of any version that its schema has. A record without a value deletes what its
key names. Of a classic group's value Kafka 3.9 writes version 3. What the members' ``subscription``
and ``assignment`` hold, ``consumer_protocol.py`` reads. Source: the schemas of Kafka's group and
share coordinators, as of 3.9.
"""

from typing import Final, NamedTuple

from raylog.storage.schemas.offsets import OFFSET_KEY, OFFSET_VALUE
from raylog.storage.schemas.schema import Schema, schema


class RecordSchemas(NamedTuple):
    """One type of record."""

    key: Schema
    value: Schema


_ASSIGNED_BY_ID = """
topicId uuid
partitions []int32
"""


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.split("\n") if line)


_GROUP_VALUE = schema(
    "GroupMetadataValue",
    """
    protocolType string
    generation int32
    protocol ?string
    leader ?string
    currentStateTimestamp int64 2+ default=-1
    members []
        memberId string
        groupInstanceId ?string 3+
        clientId string
        clientHost string
        rebalanceTimeout int32 1+ default=-1
        sessionTimeout int32
        subscription bytes
        assignment bytes
    """,
    last_version=4,
    flexible=4,
)


def _group_key(name: str, record_type: int) -> Schema:
    return schema(name, "groupId string", last_version=record_type)


def _member_key(name: str, record_type: int) -> Schema:
    return schema(name, "groupId string\nmemberId string", last_version=record_type)


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

GROUP_RECORDS: Final = {
    0: RecordSchemas(OFFSET_KEY, OFFSET_VALUE),
    1: RecordSchemas(OFFSET_KEY, OFFSET_VALUE),
    2: RecordSchemas(schema("GroupMetadataKey", "group string", last_version=2), _GROUP_VALUE),
    3: RecordSchemas(
        _group_key("ConsumerGroupMetadataKey", 3),
        _value("ConsumerGroupMetadataValue", "epoch int32"),
    ),
    4: RecordSchemas(
        _group_key("ConsumerGroupPartitionMetadataKey", 4),
        _value("ConsumerGroupPartitionMetadataValue", _PARTITION_METADATA),
    ),
    5: RecordSchemas(
        _member_key("ConsumerGroupMemberMetadataKey", 5),
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
    6: RecordSchemas(
        _group_key("ConsumerGroupTargetAssignmentMetadataKey", 6),
        _value("ConsumerGroupTargetAssignmentMetadataValue", "assignmentEpoch int32"),
    ),
    7: RecordSchemas(
        _member_key("ConsumerGroupTargetAssignmentMemberKey", 7),
        _value("ConsumerGroupTargetAssignmentMemberValue", _TARGET_MEMBER),
    ),
    8: RecordSchemas(
        _member_key("ConsumerGroupCurrentMemberAssignmentKey", 8),
        _value(
            "ConsumerGroupCurrentMemberAssignmentValue",
            "memberEpoch int32\npreviousMemberEpoch int32\nstate int8\nassignedPartitions []\n"
            + _indented(_ASSIGNED_BY_ID)
            + "partitionsPendingRevocation []\n"
            + _indented(_ASSIGNED_BY_ID),
        ),
    ),
    9: RecordSchemas(
        _group_key("ShareGroupPartitionMetadataKey", 9),
        _value("ShareGroupPartitionMetadataValue", _PARTITION_METADATA),
    ),
    10: RecordSchemas(
        _member_key("ShareGroupMemberMetadataKey", 10),
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
    11: RecordSchemas(
        _group_key("ShareGroupMetadataKey", 11), _value("ShareGroupMetadataValue", "epoch int32")
    ),
    12: RecordSchemas(
        _group_key("ShareGroupTargetAssignmentMetadataKey", 12),
        _value("ShareGroupTargetAssignmentMetadataValue", "assignmentEpoch int32"),
    ),
    13: RecordSchemas(
        _member_key("ShareGroupTargetAssignmentMemberKey", 13),
        _value("ShareGroupTargetAssignmentMemberValue", _TARGET_MEMBER),
    ),
    14: RecordSchemas(
        _member_key("ShareGroupCurrentMemberAssignmentKey", 14),
        _value(
            "ShareGroupCurrentMemberAssignmentValue",
            "memberEpoch int32\npreviousMemberEpoch int32\nstate int8\nassignedPartitions []\n"
            + _indented(_ASSIGNED_BY_ID),
        ),
    ),
    15: RecordSchemas(
        _group_key("ShareGroupStatePartitionMetadataKey", 15),
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
