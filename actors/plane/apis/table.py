"""All APIs that are served, by their key: what a request may be, and what ApiVersions answers.

Kafka's features (``transaction.version`` and the like) are not advertised. Clients take their
absence for version 1 of transactions, and for groups of the older protocol.

Source: ``ApiKeys`` and ``ApiVersionsResponse`` of Kafka 4.3; KIP-35, KIP-511.
"""

from collections.abc import Mapping
from operator import attrgetter
from typing import Final

from raylog.actors.plane.apis.api import Api
from raylog.actors.plane.apis.cluster import (
    DESCRIBE_CLUSTER,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_TOPIC_PARTITIONS,
    FIND_COORDINATOR,
    LIST_PARTITION_REASSIGNMENTS,
    METADATA,
)
from raylog.actors.plane.apis.configs import (
    ALTER_CONFIGS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
)
from raylog.actors.plane.apis.connection import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from raylog.actors.plane.apis.groups import GROUP_APIS
from raylog.actors.plane.apis.records import (
    DELETE_RECORDS,
    DESCRIBE_PRODUCERS,
    FETCH,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
)
from raylog.actors.plane.apis.topics import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from raylog.actors.plane.apis.transactions import TRANSACTION_APIS
from raylog.storage.schemas.types import Value

APIS: Final[Mapping[int, Api]] = {
    api.key: api
    for api in sorted(
        (
            PRODUCE,
            FETCH,
            LIST_OFFSETS,
            METADATA,
            FIND_COORDINATOR,
            *GROUP_APIS,
            *TRANSACTION_APIS,
            SASL_HANDSHAKE,
            API_VERSIONS,
            CREATE_TOPICS,
            DELETE_TOPICS,
            DELETE_RECORDS,
            INIT_PRODUCER_ID,
            OFFSET_FOR_LEADER_EPOCH,
            DESCRIBE_CONFIGS,
            ALTER_CONFIGS,
            DESCRIBE_LOG_DIRS,
            SASL_AUTHENTICATE,
            CREATE_PARTITIONS,
            INCREMENTAL_ALTER_CONFIGS,
            LIST_PARTITION_REASSIGNMENTS,
            DESCRIBE_CLUSTER,
            DESCRIBE_PRODUCERS,
            DESCRIBE_TOPIC_PARTITIONS,
        ),
        key=attrgetter("key"),
    )
}


def served_versions() -> Value:
    """The ApiVersions answer: every API that is served, with its versions."""
    return {
        "errorCode": 0,
        "apiKeys": [_advertised(api) for api in APIS.values()],
        "throttleTimeMs": 0,
    }


def unsupported_version(error_code: int) -> Value:
    """The answer to an ApiVersions request of an unknown version: the versions to ask it in."""
    return {"errorCode": error_code, "apiKeys": [_advertised(API_VERSIONS)]}


def _advertised(api: Api) -> Value:
    return {
        "apiKey": api.key,
        "minVersion": api.advertised_from,
        "maxVersion": api.last_version,
    }
