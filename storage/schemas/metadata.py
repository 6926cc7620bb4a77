"""The records of KRaft's metadata log, by their type id, as of Kafka 3.9.

A record's value is three unsigned varints (frame version 1, type, version) and the message, which
is flexible. Source: the schemas of ``org.apache.kafka.common.metadata``; KIP-631, KIP-746, KIP-866,
KIP-868, KIP-919.
"""

import re
from typing import Final

from raylog.storage.schemas.schema import Schema, schema

_ENDPOINTS_AND_FEATURES = """
    endPoints []
        name string
        host string
        port uint16
        securityProtocol int16
    features []
        name string
        minSupportedVersion int16
        maxSupportedVersion int16
"""


def _record(name: str, text: str = "", last_version: int = 0) -> Schema:
    return schema(name, text, last_version=last_version, flexible=0)


METADATA_RECORDS: Final[dict[int, Schema]] = {
    0: _record(
        "RegisterBrokerRecord",
        f"""
    brokerId int32
    isMigratingZkBroker bool 2+
    incarnationId uuid
    brokerEpoch int64
    {_ENDPOINTS_AND_FEATURES}
    rack ?string
    fenced bool
    inControlledShutdown bool 1+
    logDirs []uuid 3+ tag=0
        """,
        3,
    ),
    1: _record("UnregisterBrokerRecord", "brokerId int32\nbrokerEpoch int64"),
    2: _record("TopicRecord", "name string\ntopicId uuid"),
    3: _record(
        "PartitionRecord",
        """
        partitionId int32
        topicId uuid
        replicas []int32
        isr []int32
        removingReplicas []int32
        addingReplicas []int32
        leader int32
        leaderRecoveryState int8 0+ tag=0
        leaderEpoch int32
        partitionEpoch int32
        directories []uuid 1+
        eligibleLeaderReplicas ?[]int32 2+ tag=1
        lastKnownElr ?[]int32 2+ tag=2
        """,
        2,
    ),
    4: _record(
        "ConfigRecord", "resourceType int8\nresourceName string\nname string\nvalue ?string"
    ),
    5: _record(
        "PartitionChangeRecord",
        """
        partitionId int32
        topicId uuid
        isr ?[]int32 0+ tag=0
        leader int32 0+ tag=1 default=-2
        replicas ?[]int32 0+ tag=2
        removingReplicas ?[]int32 0+ tag=3
        addingReplicas ?[]int32 0+ tag=4
        leaderRecoveryState int8 0+ tag=5 default=-1
        directories ?[]uuid 1+ tag=8
        eligibleLeaderReplicas ?[]int32 2+ tag=6
        lastKnownElr ?[]int32 2+ tag=7
        """,
        2,
    ),
    7: _record("FenceBrokerRecord", "id int32\nepoch int64"),
    8: _record("UnfenceBrokerRecord", "id int32\nepoch int64"),
    9: _record("RemoveTopicRecord", "topicId uuid"),
    10: _record(
        "DelegationTokenRecord",
        """
        owner string
        requester string
        renewers []string
        issueTimestamp int64
        maxTimestamp int64
        expirationTimestamp int64
        tokenId string
        """,
    ),
    11: _record(
        "UserScramCredentialRecord",
        """
        name string
        mechanism int8
        salt bytes
        storedKey bytes
        serverKey bytes
        iterations int32
        """,
    ),
    12: _record("FeatureLevelRecord", "name string\nfeatureLevel int16"),
    14: _record(
        "ClientQuotaRecord",
        """
        entity []
            entityType string
            entityName ?string
        key string
        value float64
        remove bool
        """,
    ),
    15: _record("ProducerIdsRecord", "brokerId int32\nbrokerEpoch int64\nnextProducerId int64"),
    17: _record(
        "BrokerRegistrationChangeRecord",
        """
        brokerId int32
        brokerEpoch int64
        fenced int8 0+ tag=0
        inControlledShutdown int8 1+ tag=1
        logDirs []uuid 2+ tag=2
        """,
        2,
    ),
    18: _record(
        "AccessControlEntryRecord",
        """
        id uuid
        resourceType int8
        resourceName string
        patternType int8
        principal string
        host string
        operation int8
        permissionType int8
        """,
    ),
    19: _record("RemoveAccessControlEntryRecord", "id uuid"),
    20: _record("NoOpRecord"),
    21: _record("ZkMigrationStateRecord", "zkMigrationState int8"),
    22: _record("RemoveUserScramCredentialRecord", "name string\nmechanism int8"),
    23: _record("BeginTransactionRecord", "name ?string 0+ tag=0"),
    24: _record("EndTransactionRecord"),
    25: _record("AbortTransactionRecord", "reason ?string 0+ tag=0"),
    26: _record("RemoveDelegationTokenRecord", "tokenId string"),
    27: _record(
        "RegisterControllerRecord",
        "    controllerId int32\n    incarnationId uuid\n    zkMigrationReady bool"
        + _ENDPOINTS_AND_FEATURES,
    ),
}


def type_name(record: Schema) -> str:
    """As the tool has it: ``TopicRecord`` is ``TOPIC_RECORD``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", record.name).upper()
