"""APIs of consumer groups: be a member, commit offsets and read them, list groups and delete them.

Kafka 4.3 serves OffsetCommit and OffsetFetch in version 10, too, which names topics by ids: the
coordinator does not know these.

Some fields move or change their meaning with the version::

    API               versions  what is different
    JoinGroup         0         no rebalance timeout: the session timeout stands for it
    JoinGroup answer  0-6       ``protocolName`` is "" where there is none; from 7 on null
    LeaveGroup        0-2       one member, in ``memberId``; from 3 on several, in ``members``
    OffsetFetch       1-7       one group: its id and its ``topics`` are in the request itself
                      8-9       several groups, in ``groups``
                      2-9       ``topics`` null: all topics for which the group has offsets

An OffsetFetch request of version 8 or later has no ``topics`` beside ``groups``. It is read with
null there, which does not mean "all topics". (Kafka's default is an empty list.)

A member's ``metadata`` and ``assignment`` are bytes that only members understand. Those of
consumers are in ``consumer_protocol.py``.

Kafka 4.0.0 served JoinGroup from version 2 on. Versions 0 and 1 came back in 4.0.1, because
librdkafka takes a broker without version 0 for one without GSSAPI (KAFKA-19444).

Source: ``JoinGroup*.json``, ``SyncGroup*.json``, ``Heartbeat*.json``, ``LeaveGroup*.json``,
``OffsetCommit*.json``, ``OffsetFetch*.json``, ``OffsetDelete*.json``, ``ListGroups*.json``,
``DescribeGroups*.json``, ``DeleteGroups*.json`` of Kafka 4.3; KIP-62, KIP-211, KIP-229, KIP-320,
KIP-345, KIP-394, KIP-430, KIP-447, KIP-496, KIP-518, KIP-559, KIP-709, KIP-800, KIP-814, KIP-848,
KIP-1043.
"""

from typing import Final

from raylog.actors.plane.apis.api import Api

OFFSET_COMMIT: Final = Api(
    8,
    "OffsetCommit",
    first_version=2,
    last_version=9,
    flexible=8,
    request="""
    groupId string
    generationIdOrMemberEpoch int32 default=-1 ignorable
    memberId string ignorable
    groupInstanceId ?string 7+
    retentionTimeMs int64 2-4 default=-1 ignorable
    topics []
        name string
        partitions []
            partitionIndex int32
            committedOffset int64
            committedLeaderEpoch int32 6+ default=-1 ignorable
            committedMetadata ?string
    """,
    answer="""
    throttleTimeMs int32 3+ ignorable
    topics []
        name string
        partitions []
            partitionIndex int32
            errorCode int16
    """,
)
OFFSET_FETCH: Final = Api(
    9,
    "OffsetFetch",
    first_version=1,
    last_version=9,
    flexible=6,
    request="""
    groupId string 0-7
    topics ?[] 0-7 null=2+
        name string
        partitionIndexes []int32
    groups [] 8+
        groupId string
        memberId ?string 9+ ignorable
        memberEpoch int32 9+ default=-1 ignorable
        topics ?[]
            name string
            partitionIndexes []int32
    requireStable bool 7+
    """,
    answer="""
    throttleTimeMs int32 3+ ignorable
    topics [] 0-7
        name string
        partitions []
            partitionIndex int32
            committedOffset int64
            committedLeaderEpoch int32 5-7 default=-1 ignorable
            metadata ?string
            errorCode int16
    errorCode int16 2-7 ignorable
    groups [] 8+
        groupId string
        topics []
            name string
            partitions []
                partitionIndex int32
                committedOffset int64
                committedLeaderEpoch int32 default=-1 ignorable
                metadata ?string
                errorCode int16
        errorCode int16
    """,
)
JOIN_GROUP: Final = Api(
    11,
    "JoinGroup",
    last_version=9,
    flexible=6,
    request="""
    groupId string
    sessionTimeoutMs int32
    rebalanceTimeoutMs int32 1+ default=-1 ignorable
    memberId string
    groupInstanceId ?string 5+
    protocolType string
    protocols []
        name string
        metadata bytes
    reason ?string 8+ ignorable
    """,
    answer="""
    throttleTimeMs int32 2+ ignorable
    errorCode int16
    generationId int32 default=-1
    protocolType ?string 7+ ignorable
    protocolName ?string null=7+
    leader string
    skipAssignment bool 9+
    memberId string
    members []
        memberId string
        groupInstanceId ?string 5+ ignorable
        metadata bytes
    """,
)
HEARTBEAT: Final = Api(
    12,
    "Heartbeat",
    last_version=4,
    flexible=4,
    request="""
    groupId string
    generationId int32
    memberId string
    groupInstanceId ?string 3+
    """,
    answer="""
    throttleTimeMs int32 1+ ignorable
    errorCode int16
    """,
)
LEAVE_GROUP: Final = Api(
    13,
    "LeaveGroup",
    last_version=5,
    flexible=4,
    request="""
    groupId string
    memberId string 0-2
    members [] 3+
        memberId string
        groupInstanceId ?string
        reason ?string 5+ ignorable
    """,
    answer="""
    throttleTimeMs int32 1+ ignorable
    errorCode int16
    members [] 3+
        memberId string
        groupInstanceId ?string
        errorCode int16
    """,
)
SYNC_GROUP: Final = Api(
    14,
    "SyncGroup",
    last_version=5,
    flexible=4,
    request="""
    groupId string
    generationId int32
    memberId string
    groupInstanceId ?string 3+
    protocolType ?string 5+ ignorable
    protocolName ?string 5+ ignorable
    assignments []
        memberId string
        assignment bytes
    """,
    answer="""
    throttleTimeMs int32 1+ ignorable
    errorCode int16
    protocolType ?string 5+ ignorable
    protocolName ?string 5+ ignorable
    assignment bytes
    """,
)
DESCRIBE_GROUPS: Final = Api(
    15,
    "DescribeGroups",
    last_version=6,
    flexible=5,
    request="""
    groups []string
    includeAuthorizedOperations bool 3+
    """,
    answer="""
    throttleTimeMs int32 1+ ignorable
    groups []
        errorCode int16
        errorMessage ?string 6+
        groupId string
        groupState string
        protocolType string
        protocolData string
        members []
            memberId string
            groupInstanceId ?string 4+ ignorable
            clientId string
            clientHost string
            memberMetadata bytes
            memberAssignment bytes
        authorizedOperations int32 3+ default=-2147483648
    """,
)
LIST_GROUPS: Final = Api(
    16,
    "ListGroups",
    last_version=5,
    flexible=3,
    request="""
    statesFilter []string 4+
    typesFilter []string 5+
    """,
    answer="""
    throttleTimeMs int32 1+ ignorable
    errorCode int16
    groups []
        groupId string
        protocolType string
        groupState string 4+ ignorable
        groupType string 5+ ignorable
    """,
)
DELETE_GROUPS: Final = Api(
    42,
    "DeleteGroups",
    last_version=2,
    flexible=2,
    request="""
    groupsNames []string
    """,
    answer="""
    throttleTimeMs int32
    results []
        groupId string
        errorCode int16
    """,
)
OFFSET_DELETE: Final = Api(
    47,
    "OffsetDelete",
    last_version=0,
    request="""
    groupId string
    topics []
        name string
        partitions []
            partitionIndex int32
    """,
    answer="""
    errorCode int16
    throttleTimeMs int32 ignorable
    topics []
        name string
        partitions []
            partitionIndex int32
            errorCode int16
    """,
)
GROUP_APIS: Final = (
    OFFSET_COMMIT,
    OFFSET_FETCH,
    JOIN_GROUP,
    HEARTBEAT,
    LEAVE_GROUP,
    SYNC_GROUP,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    DELETE_GROUPS,
    OFFSET_DELETE,
)
