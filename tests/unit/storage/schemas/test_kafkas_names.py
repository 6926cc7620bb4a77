"""The names of fields, records and states are Kafka's: what a dump shows, and what tools look for.

The lists are those of Kafka's own schemas, with a field of a struct behind its struct's name.
"""

from collections.abc import Iterator

import pytest

from raylog.storage.schemas.control import CONTROL_VALUES
from raylog.storage.schemas.groups import GROUP_RECORDS
from raylog.storage.schemas.metadata import METADATA_RECORDS
from raylog.storage.schemas.transactions import TRANSACTION_STATES
from raylog.storage.schemas.types import Array, StructType
from tests.unit.storage.schemas.messages import SCHEMAS

FIELDS = {
    "TransactionLogKey": "transactionalId",
    "TransactionLogValue": """
        producerId previousProducerId nextProducerId producerEpoch transactionTimeoutMs
        transactionStatus transactionPartitions transactionPartitions.topic
        transactionPartitions.partitionIds transactionLastUpdateTimestampMs
        transactionStartTimestampMs clientTransactionVersion
    """,
    "SnapshotHeaderRecord": "version lastContainedLogTimestamp",
    "SnapshotFooterRecord": "version",
    "KRaftVersionRecord": "version kRaftVersion",
    "VotersRecord": """
        version voters voters.voterId voters.voterDirectoryId voters.endpoints
        voters.endpoints.name voters.endpoints.host voters.endpoints.port
        voters.kRaftVersionFeature voters.kRaftVersionFeature.minSupportedVersion
        voters.kRaftVersionFeature.maxSupportedVersion
    """,
    "RegisterBrokerRecord": """
        brokerId isMigratingZkBroker incarnationId brokerEpoch endPoints endPoints.name
        endPoints.host endPoints.port endPoints.securityProtocol features features.name
        features.minSupportedVersion features.maxSupportedVersion rack fenced
        inControlledShutdown logDirs
    """,
    "UnregisterBrokerRecord": "brokerId brokerEpoch",
    "TopicRecord": "name topicId",
    "PartitionRecord": """
        partitionId topicId replicas isr removingReplicas addingReplicas leader
        leaderRecoveryState leaderEpoch partitionEpoch directories eligibleLeaderReplicas
        lastKnownElr
    """,
    "ConfigRecord": "resourceType resourceName name value",
    "PartitionChangeRecord": """
        partitionId topicId isr leader replicas removingReplicas addingReplicas
        leaderRecoveryState directories eligibleLeaderReplicas lastKnownElr
    """,
    "FenceBrokerRecord": "id epoch",
    "UnfenceBrokerRecord": "id epoch",
    "RemoveTopicRecord": "topicId",
    "DelegationTokenRecord": """
        owner requester renewers issueTimestamp maxTimestamp expirationTimestamp tokenId
    """,
    "UserScramCredentialRecord": "name mechanism salt storedKey serverKey iterations",
    "FeatureLevelRecord": "name featureLevel",
    "ClientQuotaRecord": "entity entity.entityType entity.entityName key value remove",
    "ProducerIdsRecord": "brokerId brokerEpoch nextProducerId",
    "BrokerRegistrationChangeRecord": "brokerId brokerEpoch fenced inControlledShutdown logDirs",
    "AccessControlEntryRecord": """
        id resourceType resourceName patternType principal host operation permissionType
    """,
    "RemoveAccessControlEntryRecord": "id",
    "NoOpRecord": "",
    "ZkMigrationStateRecord": "zkMigrationState",
    "RemoveUserScramCredentialRecord": "name mechanism",
    "BeginTransactionRecord": "name",
    "EndTransactionRecord": "",
    "AbortTransactionRecord": "reason",
    "RemoveDelegationTokenRecord": "tokenId",
    "RegisterControllerRecord": """
        controllerId incarnationId zkMigrationReady endPoints endPoints.name endPoints.host
        endPoints.port endPoints.securityProtocol features features.name
        features.minSupportedVersion features.maxSupportedVersion
    """,
}
METADATA_TYPES = {
    0: "RegisterBrokerRecord",
    1: "UnregisterBrokerRecord",
    2: "TopicRecord",
    3: "PartitionRecord",
    4: "ConfigRecord",
    5: "PartitionChangeRecord",
    7: "FenceBrokerRecord",
    8: "UnfenceBrokerRecord",
    9: "RemoveTopicRecord",
    10: "DelegationTokenRecord",
    11: "UserScramCredentialRecord",
    12: "FeatureLevelRecord",
    14: "ClientQuotaRecord",
    15: "ProducerIdsRecord",
    17: "BrokerRegistrationChangeRecord",
    18: "AccessControlEntryRecord",
    19: "RemoveAccessControlEntryRecord",
    20: "NoOpRecord",
    21: "ZkMigrationStateRecord",
    22: "RemoveUserScramCredentialRecord",
    23: "BeginTransactionRecord",
    24: "EndTransactionRecord",
    25: "AbortTransactionRecord",
    26: "RemoveDelegationTokenRecord",
    27: "RegisterControllerRecord",
}


def names(struct: StructType, prefix: str = "") -> Iterator[str]:
    for field in struct.fields:
        yield prefix + field.name
        kind = field.type.entry if isinstance(field.type, Array) else field.type
        if isinstance(kind, StructType):
            yield from names(kind, f"{prefix}{field.name}.")


@pytest.mark.parametrize("message", FIELDS)
def test_fields_have_kafkas_names_in_kafkas_order(message: str) -> None:
    assert list(names(SCHEMAS[message].struct)) == FIELDS[message].split()


def test_metadata_records_have_kafkas_types() -> None:
    assert {kind: schema.name for kind, schema in METADATA_RECORDS.items()} == METADATA_TYPES


def test_control_records_have_kafkas_types() -> None:
    assert {kind: (name, schema.name) for kind, (name, schema) in CONTROL_VALUES.items()} == {
        3: ("SnapshotHeader", "SnapshotHeaderRecord"),
        4: ("SnapshotFooter", "SnapshotFooterRecord"),
        5: ("KRaftVersion", "KRaftVersionRecord"),
        6: ("KRaftVoters", "VotersRecord"),
    }


def test_a_transactions_state_is_its_place_in_kafkas_list() -> None:
    assert dict(enumerate(TRANSACTION_STATES)) == {
        0: "Empty",
        1: "Ongoing",
        2: "PrepareCommit",
        3: "PrepareAbort",
        4: "CompleteCommit",
        5: "CompleteAbort",
        6: "Dead",
        7: "PrepareEpochFence",
    }


def test_the_type_of_a_groups_record_is_the_last_version_of_its_key() -> None:
    assert list(GROUP_RECORDS) == list(range(16))
    last_versions = [schemas.key.last_version for schemas in GROUP_RECORDS.values()]
    assert last_versions == [1, *range(1, 16)]  # types 0 and 1 share a key
