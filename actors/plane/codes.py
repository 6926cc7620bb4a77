"""The error codes of Kafka's protocol that answers carry.

Every error class of raylog has Kafka's code: most of these are taken from there. One code never
leaves by a socket: 89, "throttled". librdkafka and aiokafka take it for final and drop the records.
19 takes its place, which every client retries.
"""

from typing import Final

from raylog.actors.errors import (
    NotController,
    NotLeader,
    RequestTimedOut,
    TooManyAppends,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from raylog.actors.plane.errors import MalformedRequest, StrangeUser
from raylog.storage.errors import (
    InvalidConfig,
    InvalidRecord,
    InvalidTopic,
    RaylogError,
    UnsupportedCompressionType,
)

OFFSET_OUT_OF_RANGE: Final = 1
UNKNOWN_TOPIC_OR_PARTITION: Final = UnknownTopicOrPartition.code
LEADER_NOT_AVAILABLE: Final = 5
NOT_LEADER: Final = NotLeader.code
REQUEST_TIMED_OUT: Final = RequestTimedOut.code
INVALID_TOPIC: Final = InvalidTopic.code
NOT_ENOUGH_REPLICAS: Final = 19
INVALID_REQUIRED_ACKS: Final = 21
CLUSTER_AUTHORIZATION_FAILED: Final = StrangeUser.code
INVALID_REPLICATION_FACTOR: Final = 38
INVALID_REPLICA_ASSIGNMENT: Final = 39
INVALID_CONFIG: Final = InvalidConfig.code
NOT_CONTROLLER: Final = NotController.code
POLICY_VIOLATION: Final = 44
STORAGE_ERROR: Final = 56
UNSUPPORTED_VERSION: Final = UnsupportedVersion.code
INVALID_REQUEST: Final = MalformedRequest.code
FETCH_SESSION_ID_NOT_FOUND: Final = 70
UNSUPPORTED_COMPRESSION_TYPE: Final = UnsupportedCompressionType.code
INVALID_RECORD: Final = InvalidRecord.code
THROTTLED: Final = TooManyAppends.code
UNKNOWN_TOPIC_ID: Final = UnknownTopicId.code
MISMATCHED_ENDPOINT_TYPE: Final = 114
UNSUPPORTED_ENDPOINT_TYPE: Final = 115


def code_of(error: RaylogError) -> int:
    """The code that a client is answered."""
    return NOT_ENOUGH_REPLICAS if error.code == THROTTLED else error.code
