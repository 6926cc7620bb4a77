"""What actors and their callers send each other: requests' results, and the errors of a cluster.

Results are plain tuples of ints, strings and one buffer: cheap to pickle, and the buffer travels out of band.
"""

from struct import Struct
from typing import Any, NamedTuple, Self

from raylog.storage.config import LogConfig
from raylog.storage.errors import RaylogError
from raylog.storage.names import TopicPartition
from raylog.storage.readable import Slice


class AppendResult(NamedTuple):
    """Where a batch went; for a batch sent twice, where it went the first time."""

    base_offset: int
    last_offset: int
    log_append_time: int  # ms, -1 unless the topic stamps records itself
    log_start_offset: int
    leader_epoch: int
    is_duplicate: bool


_FETCH = Struct(">qqqq?")
_LOCATED = Struct(">qqqqq")


class FetchRequest(NamedTuple):
    """What a reader asks for. It travels as bytes: Ray makes an object of every argument of a call, and four
    of them cost a third of what an empty call takes."""

    offset: int
    max_bytes: int
    min_bytes: int
    max_wait_ms: int
    locate: bool

    def encode(self) -> bytes:
        return _FETCH.pack(*self)

    @classmethod
    def decode(cls, content: bytes) -> Self:
        return cls(*_FETCH.unpack(content))


class FetchResult(NamedTuple):
    """Whole record batches, or where they lie.

    The first batch may begin before the offset that was asked for: decoders skip what is below it. Exactly one
    of ``records`` and ``location`` is set where there are records; neither is at the log's end.
    """

    records: object | None  # a one-dimensional uint8 numpy array: zero-copy out of Ray's object store
    location: Slice | None
    high_watermark: int
    log_start_offset: int

    def encode(self) -> bytes:
        """An answer that holds a location, or nothing, as bytes: cheaper for Ray than nested tuples."""
        assert self.records is None, "records travel as a buffer, not inside of bytes"
        place = self.location or Slice("", 0, 0, 0)
        return _LOCATED.pack(self.high_watermark, self.log_start_offset, *place[1:]) + place.path.encode()

    @classmethod
    def decode(cls, content: bytes) -> Self:
        high_watermark, log_start_offset, *place = _LOCATED.unpack_from(content)
        path = content[_LOCATED.size :].decode()
        return cls(None, Slice(path, *place) if path else None, high_watermark, log_start_offset)


class PartitionOffsets(NamedTuple):
    """The offsets of a partition's log."""

    log_start_offset: int
    recovery_point: int
    high_watermark: int
    log_end_offset: int


class PartitionStatus(NamedTuple):
    """What ``raylog status`` shows of a partition."""

    partition: str
    folder: str
    pid: int
    kernel: str
    leader_epoch: int
    offsets: PartitionOffsets
    size_bytes: int
    segments: int
    is_offline: bool


class Hosted(NamedTuple):
    """A partition that a node serves, as its LogManager tells it."""

    partition: TopicPartition
    topic_id: str
    folder: str
    config: LogConfig


class RemovedSegments(NamedTuple):
    """What a round of retention took out of a log."""

    segments: int
    size_bytes: int
    seconds: float


class RetentionStatus(NamedTuple):
    """Retention of one partition: the last round, and all since its actor was started."""

    partition: str
    node_id: str
    segments: int
    size_bytes: int
    seconds: float
    when_ms: int
    total_segments: int
    total_bytes: int
    problem: str | None  # why the last round failed


class CompactionRound(NamedTuple):
    """A round of compaction that ended well."""

    when_ms: int  # its end
    seconds: float
    end_offset: int  # the next first dirty offset
    bytes_before: int
    bytes_after: int
    records_read: int
    records_dropped: int
    map_utilization: float  # 0 to 1


class CompactionStatus(NamedTuple):
    """Compaction of one partition, as of the last look."""

    partition: str
    node_id: str
    dirty_ratio: float  # of what could be compacted now
    first_dirty_offset: int
    bound: int  # a round ends before it
    overdue_ms: int  # beyond max.compaction.lag.ms
    is_running: bool
    done_bytes: int  # that the running round has read and written
    uncleanable: str | None  # why it is not compacted until its CompactionActor is started again
    problem: str | None  # why the last look or round failed
    last_round: CompactionRound | None


class OfflineDir(NamedTuple):
    """A log dir that cannot be used."""

    path: str
    directory_id: str | None  # None where it could not even be read
    why: str


class NodeState(NamedTuple):
    """What the Controller's watch asks a LogManager for."""

    life: str  # another one after each restart: what the actor was told before is gone
    offline: tuple[OfflineDir, ...]


class LogDirStatus(NamedTuple):
    """A log dir of a node."""

    node_id: str
    path: str
    directory_id: str  # empty where it could not even be read
    is_online: bool
    problem: str | None
    partitions: int
    size_bytes: int  # of the partitions' files
    total_bytes: int  # of the file system
    usable_bytes: int
    loaded: int  # progress of the start; over when it has come to ``to_load``
    to_load: int

    @classmethod
    def offline(cls, node_id: str, path: str, directory_id: str | None, why: str) -> Self:
        return cls(node_id, path, directory_id or "", False, why, 0, 0, 0, 0, 0, 0)


class Configured(NamedTuple):
    """A topic's config as its partitions obey it. A higher version is newer."""

    config: LogConfig
    version: int


class ConfigEntry(NamedTuple):
    """One config key: its value, and who set it: "topic", "broker" or "default"."""

    name: str
    value: Any
    source: str


class UnknownTopicOrPartition(RaylogError):
    """No such topic, or no such partition of it; ``partition`` is None where only the topic was asked for."""

    code, error_name, retriable = 3, "UNKNOWN_TOPIC_OR_PARTITION", True
    fields = ("topic", "partition", "why")
    topic: str
    partition: int | None
    why: str

    def __str__(self) -> str:
        where = "" if self.partition is None else f", partition {self.partition}"
        return f"topic {self.topic!r}{where}: {self.why}; see `raylog topic list`, or create it"


class TopicExists(RaylogError):
    """A topic of this name, or of one that cannot be told from it, exists."""

    code, error_name = 36, "TOPIC_ALREADY_EXISTS"
    fields = ("topic", "existing")
    template = "topic {topic!r} cannot be created: {existing!r} exists; use it, or delete it first"


class TopicBusy(RaylogError):
    """Somebody else is making, deleting or extending a topic of this name just now."""

    code, error_name, retriable = 36, "TOPIC_ALREADY_EXISTS", True
    fields = ("topic", "what")
    template = "topic {topic!r} is being {what}: try again when that is done"


class MoveRunning(RaylogError):
    """The partition is being moved to another log dir already."""

    code, error_name, retriable = 42, "INVALID_REQUEST", True
    fields = ("partition", "log_dir")
    template = "{partition} is being moved to {log_dir}: try again when that is done"


class InvalidPartitions(RaylogError):
    """A number of partitions that cannot be."""

    code, error_name = 37, "INVALID_PARTITIONS"
    fields = ("partitions", "least", "most")
    template = (
        "{partitions!r} partitions: give a whole number from {least} to {most} (none can be taken away)"
    )


class InvalidRequest(RaylogError):
    """An argument that cannot be."""

    code, error_name = 42, "INVALID_REQUEST"
    fields = ("argument", "value", "why")
    template = "{argument}={value!r} {why}"


class NotLeader(RaylogError):
    """The partition's actor is not to be reached: it is restarting, or its node is away."""

    code, error_name, retriable = 6, "NOT_LEADER_OR_FOLLOWER", True
    fields = ("partition", "why")
    template = (
        "{partition} cannot be reached: {why}; it is retried until the time is up, or start its node again"
    )


class TooManyPolls(RaylogError):
    """As many fetches wait at the partition as may. Fetch without waiting, or ask again in a moment."""

    code, error_name, retriable = 89, "THROTTLING_QUOTA_EXCEEDED", True
    fields = ("partition", "most")
    template = "{partition}: {most} fetches wait there already: fetch without waiting, or retry in a moment"


class TooManyAppends(RaylogError):
    """The partition has as many bytes of unanswered appends as may be. Nothing was written: retry in a moment."""

    code, error_name, retriable = 89, "THROTTLING_QUOTA_EXCEEDED", True
    fields = ("partition", "in_flight_bytes", "most_bytes")
    template = (
        "{partition}: appends of {in_flight_bytes} bytes are not answered yet, and {most_bytes} is the most: "
        "retry in a moment, with fewer producers or a faster disk"
    )


# The partition is well, and has enough to do: retry later, without looking it up again.
THROTTLED = (TooManyPolls, TooManyAppends)


class RequestTimedOut(RaylogError):
    """No answer in time. Whether the request took effect is not known."""

    code, error_name, retriable = 7, "REQUEST_TIMED_OUT", True
    fields = ("what", "timeout_ms")
    template = "{what}: no answer within {timeout_ms} ms; see `raylog status`, then retry"


class BrokerNotFound(RaylogError):
    """No broker runs in this namespace of the Ray cluster."""

    code, error_name, retriable = 15, "COORDINATOR_NOT_AVAILABLE", True
    fields = ("namespace",)
    template = "no raylog broker in namespace {namespace!r}: call raylog.start() or `raylog start` first"


class RayNotFound(RaylogError):
    """No Ray cluster answers."""

    code, error_name, retriable = 15, "COORDINATOR_NOT_AVAILABLE", True
    fields = ("address", "why")
    template = "no Ray cluster at {address!r} ({why}): start one with `raylog start`, or give another address"


class SeveralBrokers(RaylogError):
    """More than one Ray cluster on this machine has a broker in this namespace."""

    code, error_name = 42, "INVALID_REQUEST"
    fields = ("namespace", "addresses")
    template = "brokers run in namespace {namespace!r} of several Ray clusters ({addresses}): give an address"


class BrokerRunning(RaylogError):
    """A broker runs in this namespace already."""

    code, error_name = 42, "INVALID_REQUEST"
    fields = ("namespace",)
    template = (
        "a broker runs in namespace {namespace!r} already: use it (`raylog status`, raylog.connect()), "
        "stop it first, or give another namespace"
    )


class NoLogDirs(RaylogError):
    """No node has a usable log dir."""

    code, error_name, retriable = 56, "KAFKA_STORAGE_ERROR", True
    fields = ("why",)
    template = "no log dir can take a partition: {why}"


class LabelShared(RaylogError):
    """Several nodes that are up carry one label: only one of them can be the node that it names."""

    code, error_name = 42, "INVALID_REQUEST"
    fields = ("node_id", "name", "label")
    template = (
        "node {node_id} takes no part: another node that is up carries its label {name}={label}, too; "
        "give each node with disks a label of its own, and start this one again"
    )


class SeveralClusters(RaylogError):
    """The log dirs of this Ray cluster's nodes hold the metadata of more than one raylog cluster."""

    code, error_name = 104, "INCONSISTENT_CLUSTER_ID"
    fields = ("found",)
    template = (
        "the nodes' first log dirs hold different clusters ({found}): start a broker with the log dirs of one of "
        "them only, by log.dirs or by RAYLOG_LOG_DIRS where the other node's Ray is started"
    )


class ProduceFailed(RaylogError):
    """Records that were sent could not be written. They are not sent again."""

    code, error_name = -1, "UNKNOWN_SERVER_ERROR"
    fields = ("partition", "records", "cause")
    template = "{records} records for {partition} were not acknowledged: {cause}"
