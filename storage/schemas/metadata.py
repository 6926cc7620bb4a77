"""The records of KRaft's metadata log, by their type id, as of Kafka 3.9.

A record has no key. Its value is a frame of three unsigned varints and the message, which is
flexible in every version::

    frame version = 1 | type | version | message

raylog's own metadata log holds msgpack maps instead, which are no business of this module. Source:
the schemas of ``org.apache.kafka.common.metadata``; KIP-631, KIP-746, KIP-866, KIP-868, KIP-919.
"""

import re
from typing import Final, NamedTuple

from raylog.storage.buffers import Buffer
from raylog.storage.errors import InvalidRecord
from raylog.storage.schemas.binary import ByteReader, put_unsigned
from raylog.storage.schemas.schema import Schema, schema
from raylog.storage.schemas.types import Value

FRAME_VERSION: Final = 1

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


class MetadataRecord(NamedTuple):
    """What one record says."""

    type: int
    version: int
    value: Value

    @property
    def schema(self) -> Schema:
        return METADATA_RECORDS[self.type]


def read_record(content: Buffer) -> MetadataRecord:
    """A record by its value in the log. Raises InvalidRecord."""
    reader = ByteReader(content)
    frame_version = reader.unsigned()
    if frame_version != FRAME_VERSION:
        raise InvalidRecord(
            f"Could not deserialize metadata record due to unknown frame version {frame_version}"
            f"(only frame version {FRAME_VERSION} is supported)"
        )
    record_type, version = reader.unsigned(), reader.unsigned()
    schema = METADATA_RECORDS.get(record_type)
    if schema is None or version > schema.last_version:
        raise InvalidRecord(f"unknown metadata record of type {record_type}, version {version}")
    return MetadataRecord(record_type, version, schema.read(reader, version))


def write_record(record: MetadataRecord) -> bytes:
    """A record's value in the log. Raises UnwritableValue."""
    frame = bytearray()
    for number in (FRAME_VERSION, record.type, record.version):
        put_unsigned(frame, number)
    return bytes(frame) + record.schema.write(record.value, record.version)


def type_name(record: Schema) -> str:
    """As the tool has it: ``TopicRecord`` is ``TOPIC_RECORD``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", record.name).upper()
