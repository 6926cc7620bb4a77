"""What clients stand on: Kafka's requests to a cluster, each with a deadline and a future.

One request goes to one partition, since each partition's LogActor is what Kafka calls a broker;
``socket_connection.py`` is the way it goes. A future fails with raylog's errors, each with Kafka's
code. What is asked carries the topic's id: a client that knows a topic which was deleted and made
again is refused by name, with UnknownTopicId, and never writes into, or reads from, the new one.

No call waits, and none raises: what is wrong is in the future. Futures end in any thread; whoever
adds a callback does little in it.
"""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, NamedTuple, Protocol

from raylog.actors.plane.apis.api import Api
from raylog.storage.buffers import Buffer
from raylog.storage.schemas.types import Value
from raylog.storage.state.epochs import NO_EPOCH, EpochEnd
from raylog.storage.wire import message

READ_UNCOMMITTED: Final = 0  # Kafka's isolation levels
READ_COMMITTED: Final = 1


class ProduceRequest(NamedTuple):
    """One v2 batch for one partition. It is not changed until the answer is there.

    ``transactional_id``: of a transactional batch; its partition comes into the transaction.
    """

    topic: str
    topic_id: str
    partition: int
    records: Buffer
    transactional_id: str | None = None


class ProduceAnswer(NamedTuple):
    """Where a batch was written; for one that was sent twice, where it went the first time."""

    base_offset: int
    log_append_time: int  # ms, -1 unless the topic stamps records itself
    log_start_offset: int


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


class OffsetRequest(NamedTuple):
    """The offset at a time: ms since the epoch, or Kafka's -1 (end), -2 (start), -3 (largest)."""

    topic: str
    topic_id: str
    partition: int
    leader_epoch: int
    timestamp: int
    isolation: int = READ_UNCOMMITTED


class ApiRequest(NamedTuple):
    """Any request that the process of a partition answers, in the last version of its API."""

    topic: str
    topic_id: str
    partition: int
    api: Api
    body: Value
    may_wait: bool = False  # its answer may come much later than those behind it


class OffsetAnswer(NamedTuple):
    """The first record at or after the time; -1 and -1 where there is none."""

    offset: int
    timestamp: int
    leader_epoch: int  # of the record; -1 where there is none


@message
class PartitionMetadata(NamedTuple):
    """A partition as clients know it."""

    partition: int
    leader_epoch: int  # -1: not known
    node_id: str | None  # Ray's id of the node that serves it; None where none does now


@message
class TopicMetadata(NamedTuple):
    """A topic as clients know it; ``partitions`` by number, none missing."""

    topic: str
    topic_id: str
    partitions: tuple[PartitionMetadata, ...]
    max_message_bytes: int
    cluster_id: str = ""  # empty: not told, by a Controller of an older release


class FetchAnswer(Protocol):
    """What a fetch has found. The three offsets of the log are as of the answer.

    ``aborted``: for a reader of committed records, (producer id, first offset) of each aborted
    transaction with data in it; else None.
    """

    high_watermark: int
    last_stable_offset: int  # the first transaction that is open is not before it
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...] | None
    end_offset: int  # behind all offsets of the batches; -1 where there are none
    leader_epoch: int  # no batch of the log has a higher one
    # Where the log parts from what the reader has, as ``last_fetched_epoch`` told; else None. There
    # are no batches then.
    diverging: EpochEnd | None

    def read(self) -> Buffer | None:
        """The batches; None where there are none.

        The first batch may begin before the offset that was asked for. The bytes stay as they are
        for as long as anything refers to them (a memoryview, an array); their memory is used again
        after that.
        """


class Connection(Protocol):
    """Requests to a cluster. Safe for threads.

    ``timeout_s``: after that the future fails with RequestTimedOut, and whether the request took
    effect is not known.
    """

    # Produce requests that a partition may have on their way; with more than one they keep order.
    max_in_flight: int

    def metadata(self, topic: str, *, timeout_s: float) -> "Future[TopicMetadata]":
        """What the Controller knows of a topic now; while it is away, what it said last.

        UnknownTopicOrPartition where there is none.
        """

    def list_topics(self, *, timeout_s: float) -> "Future[list[str]]":
        """The names of all topics, sorted."""

    def produce(self, request: ProduceRequest, *, timeout_s: float) -> "Future[ProduceAnswer]":
        """Append a batch. NotLeader, at once, while nobody serves the partition."""

    def fetch(self, request: FetchRequest, *, timeout_s: float) -> "Future[FetchAnswer]":
        """Read batches. OffsetOutOfRange outside of the log."""

    def list_offset(self, request: OffsetRequest, *, timeout_s: float) -> "Future[OffsetAnswer]":
        """Look an offset up by time."""

    def new_producer_id(self, *, timeout_s: float) -> "Future[int]":
        """A producer id that nobody has had; its first epoch is 0."""

    def ask(self, request: ApiRequest, *, timeout_s: float) -> "Future[Value]":
        """The body of the answer. Error codes in it are the caller's business."""

    def forget(self, topic: str, partition: int) -> None:
        """A request to this partition failed: look up afresh who serves it."""


class GroupConnection(Connection, Protocol):
    """What a consumer stands on, which may be a member of a group."""

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        """Call, after so long, what neither waits nor raises."""
