"""What clients ask of a partition: Kafka's requests, and how they travel in a call of Ray.

Ray makes an object of every argument of a call, and four of them cost a third of what an empty call
takes. So a request travels as bytes, big-endian, and begins alike::

    +-------------+------------------+-----------------+----------------------------------+
    | version (1) | leader epoch (4) | topic id (22)   | the rest, which each kind has    |
    +-------------+------------------+-----------------+----------------------------------+

    produce   the batch; a large one is an argument of its own
    fetch     offset (8)  max bytes (8)  min bytes (8)  max wait ms (8)  isolation (1)
              last fetched epoch (4)  reader (the id of its node)
    offset    timestamp (8)  isolation (1)

Each kind has a version of its own. Fetch 1 has the last fetched epoch, as Fetch 12 of Kafka has: a
log that lost its end under a reader, and has grown again since, says so (KIP-320).

The actor is one partition's, so its name does not travel. ``check_head`` refuses what is meant for
another log: the topic was deleted and made again under its name, or the client knows another leader
epoch. Kafka's rule is ``ReplicaManager`` and ``Partition.checkCurrentLeaderEpoch``.
"""

from struct import Struct
from typing import NamedTuple, Self

from raylog.actors.errors import (
    FencedLeaderEpoch,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnsupportedVersion,
)
from raylog.storage.buffers import Buffer
from raylog.storage.names import TopicPartition

READ_UNCOMMITTED, READ_COMMITTED = 0, 1  # Kafka's isolation levels
NO_EPOCH = -1  # the client does not know one
PRODUCE_VERSION, FETCH_VERSION, OFFSET_VERSION = 0, 1, 0  # no other one is understood

_HEAD = Struct(">Bi22s")
_FETCH = Struct(">Bi22sqqqqbi")
_OFFSET = Struct(">Bi22sqb")
_ANSWER = Struct(">qqqi?")
_PLACE = Struct(">qqi")


class ProduceRequest(NamedTuple):
    """One v2 batch for one partition. It is not changed until the answer is there."""

    topic: str
    topic_id: str
    partition: int
    leader_epoch: int  # as the client knows it; -1: not known
    records: Buffer
    version: int = PRODUCE_VERSION

    def encode(self, *, with_records: bool) -> bytes:
        head = _HEAD.pack(self.version, self.leader_epoch, self.topic_id.encode())
        return b"".join((head, self.records)) if with_records else head


class ProduceAnswer(NamedTuple):
    """Where a batch was written; for one that was sent twice, where it went the first time."""

    base_offset: int
    log_append_time: int  # ms, -1 unless the topic stamps records itself
    log_start_offset: int
    # What an answer by socket does not tell: Kafka's has no such fields.
    leader_epoch: int = NO_EPOCH
    is_duplicate: bool = False

    def encode(self) -> bytes:
        return _ANSWER.pack(*self)

    @classmethod
    def decode(cls, content: bytes) -> Self:
        return cls(*_ANSWER.unpack(content))


class FetchRequest(NamedTuple):
    """Batches of one partition from ``offset`` on."""

    topic: str
    topic_id: str
    partition: int
    leader_epoch: int  # -1: not known
    offset: int
    max_bytes: int  # the first batch comes whole, however large
    min_bytes: int = 1
    max_wait_ms: int = 0
    isolation: int = READ_UNCOMMITTED
    # Of a batch that the reader has, the last one before ``offset`` or a later one; -1: not known.
    last_fetched_epoch: int = NO_EPOCH
    version: int = FETCH_VERSION

    def encode(self, reader_node: str) -> bytes:
        """``reader_node``: the id of the node that may be told where the batches lie, or ""."""
        head = _FETCH.pack(
            self.version,
            self.leader_epoch,
            self.topic_id.encode(),
            self.offset,
            self.max_bytes,
            self.min_bytes,
            self.max_wait_ms,
            self.isolation,
            self.last_fetched_epoch,
        )
        return head + reader_node.encode()


class OffsetRequest(NamedTuple):
    """The offset at a time: ms since the epoch, or Kafka's -1 (end), -2 (start), -3 (largest)."""

    topic: str
    topic_id: str
    partition: int
    leader_epoch: int
    timestamp: int
    isolation: int = READ_UNCOMMITTED
    version: int = OFFSET_VERSION

    def encode(self) -> bytes:
        return _OFFSET.pack(
            self.version,
            self.leader_epoch,
            self.topic_id.encode(),
            self.timestamp,
            self.isolation,
        )


class OffsetAnswer(NamedTuple):
    """The first record at or after the time; -1 and -1 where there is none."""

    offset: int
    timestamp: int
    leader_epoch: int  # of the record; -1 where there is none

    def encode(self) -> bytes:
        return _PLACE.pack(*self)

    @classmethod
    def decode(cls, content: bytes) -> Self:
        return cls(*_PLACE.unpack(content))


class Serves(NamedTuple):
    """Which log a request has come to."""

    partition: TopicPartition
    topic_id: str
    leader_epoch: int


def check_head(request: bytes, serves: Serves, known_version: int) -> None:
    """Refuse a request of another version, for another topic's log, or of another leader epoch."""
    version, leader_epoch, topic_id = _HEAD.unpack_from(request)
    if version != known_version:
        raise UnsupportedVersion(str(serves.partition), version, known_version)
    wanted = topic_id.rstrip(b"\0").decode()
    if wanted != serves.topic_id:
        raise UnknownTopicId(str(serves.partition), wanted, serves.topic_id)
    if leader_epoch == NO_EPOCH or leader_epoch == serves.leader_epoch:
        return
    kind = FencedLeaderEpoch if leader_epoch < serves.leader_epoch else UnknownLeaderEpoch
    raise kind(str(serves.partition), leader_epoch, serves.leader_epoch)


def records_in(request: bytes) -> memoryview:
    """The batch that travels inside of a produce request."""
    return memoryview(request)[_HEAD.size :]


def decode_fetch(request: bytes, serves: Serves) -> tuple[FetchRequest, str]:
    """A fetch, and the node of its reader. Raises as ``check_head``."""
    check_head(request, serves, FETCH_VERSION)
    version, leader_epoch, _, offset, max_bytes, min_bytes, max_wait_ms, isolation, last_epoch = (
        _FETCH.unpack_from(request)
    )
    fetch = FetchRequest(
        topic=serves.partition.topic,
        topic_id=serves.topic_id,
        partition=serves.partition.partition,
        leader_epoch=leader_epoch,
        offset=offset,
        max_bytes=max_bytes,
        min_bytes=min_bytes,
        max_wait_ms=max_wait_ms,
        isolation=isolation,
        last_fetched_epoch=last_epoch,
        version=version,
    )
    return fetch, request[_FETCH.size :].decode()


def decode_offset(request: bytes, serves: Serves) -> OffsetRequest:
    """A request for an offset. Raises as ``check_head``."""
    check_head(request, serves, OFFSET_VERSION)
    version, leader_epoch, _, timestamp, isolation = _OFFSET.unpack(request)
    return OffsetRequest(
        topic=serves.partition.topic,
        topic_id=serves.topic_id,
        partition=serves.partition.partition,
        leader_epoch=leader_epoch,
        timestamp=timestamp,
        isolation=isolation,
        version=version,
    )
