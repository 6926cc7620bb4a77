"""What consumers tell each other through their group: their topics, and who reads which partition.

To the coordinator these are bytes that it passes on (``groups.py``: a member's ``subscription`` and
``assignment``), and only in groups whose protocol type is ``CONSUMER_PROTOCOL`` are they these
messages. Each begins with its version, an int16. A version above the last one known is read as the
last one known. Source: ``ConsumerProtocol`` of Kafka; KIP-429, KIP-792, KIP-881.
"""

from typing import Final

from raylog.storage.buffers import Buffer
from raylog.storage.errors import InvalidRecord
from raylog.storage.schemas.binary import ByteReader
from raylog.storage.schemas.schema import Schema, read_version, schema
from raylog.storage.schemas.types import Value

CONSUMER_PROTOCOL: Final = "consumer"
SUBSCRIPTION: Final = schema(
    "ConsumerProtocolSubscription",
    """
    topics []string
    userData ?bytes
    ownedPartitions [] 1+
        topic string
        partitions []int32
    generationId int32 2+ default=-1
    rackId ?string 3+
    """,
    last_version=3,
)
ASSIGNMENT: Final = schema(
    "ConsumerProtocolAssignment",
    """
    assignedPartitions []
        topic string
        partitions []int32
    userData ?bytes
    """,
    last_version=3,
)


def read_latest(message: Schema, content: Buffer) -> tuple[int, Value]:
    """A subscription or an assignment, and the version as which it was read.

    Raises InvalidRecord.
    """
    reader = ByteReader(content)
    version = read_version(reader)
    if version < 0:
        raise InvalidRecord(f"{message.name} of version {version} is unknown")
    version = min(version, message.last_version)
    return version, message.read(reader, version)
