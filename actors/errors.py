"""The errors of a cluster: actors answer with them, and clients raise them.

Errors of a log or a disk are in ``raylog.storage.errors``. Users import all of them from
``raylog.errors``.
"""

from typing import ClassVar

from raylog.storage.errors import RaylogError


class UnknownTopicOrPartition(RaylogError):
    """The topic or the partition does not exist. ``partition`` is None if the request named only a
    topic."""

    code, error_name, retriable = 3, "UNKNOWN_TOPIC_OR_PARTITION", True
    fields = ("topic", "partition", "why")
    topic: str
    partition: int | None
    why: str

    def __str__(self) -> str:
        if self.partition is None:
            return f"topic {self.topic!r}: {self.why}; see `raylog topic list`, or create the topic"
        return (
            f"topic {self.topic!r}, partition {self.partition}: {self.why}; see `raylog topic "
            "list`, and `raylog topic describe` for a topic's partitions"
        )


class TopicExists(RaylogError):
    """A topic with this name exists, or one whose name differs only in ``.`` and ``_``."""

    code, error_name = 36, "TOPIC_ALREADY_EXISTS"
    fields = ("topic", "existing")
    template = (
        "topic {topic!r} cannot be created: {existing!r} already exists; use it, or choose another "
        "name"
    )


class TopicBusy(RaylogError):
    """Another request is creating, deleting or extending a topic with this name."""

    code, error_name, retriable = 36, "TOPIC_ALREADY_EXISTS", True
    fields = ("topic", "what")
    template = "topic {topic!r} is being {what}; try again when that has finished"


class MoveRunning(RaylogError):
    """The partition is already being moved to another log dir."""

    code, error_name, retriable = 42, "INVALID_REQUEST", True
    fields = ("partition", "log_dir")
    template = "{partition} is being moved to {log_dir}; try again when that has finished"


class InvalidRequest(RaylogError):
    """An argument of the request is not valid."""

    code, error_name = 42, "INVALID_REQUEST"
    fields = ("argument", "value", "why")
    template = "{argument}={value!r} {why}"


class NotLeader(RaylogError):
    """The partition's actor cannot be reached: it is restarting, or its node is down."""

    code, error_name, retriable = 6, "NOT_LEADER_OR_FOLLOWER", True
    fields: ClassVar[tuple[str, ...]] = ("partition", "why")
    template = (
        "{partition} cannot be reached: {why}; clients retry until their timeout. If its node is "
        "down, start the node again"
    )


class LogRefused(NotLeader):
    """The partition's actor did not open its log; ``error`` is the class of its error."""

    fields = ("partition", "error", "why", "todo")
    template = "{partition} failed: {error}: {why}; {todo}"


class TooManyPolls(RaylogError):
    """The maximum number of fetches already wait at the partition. Fetch without waiting, or retry
    after a moment."""

    code, error_name, retriable = 89, "THROTTLING_QUOTA_EXCEEDED", True
    fields = ("partition", "most")
    template = (
        "{partition}: {most} fetches are already waiting, which is the maximum; fetch without "
        "waiting, or retry after a moment"
    )


class TooManyAppends(RaylogError):
    """The partition has the maximum number of bytes of unacknowledged appends. Nothing was written:
    retry after a moment."""

    code, error_name, retriable = 89, "THROTTLING_QUOTA_EXCEEDED", True
    fields = ("partition", "in_flight_bytes", "most_bytes")
    template = (
        "{partition}: appends of {in_flight_bytes} bytes are not acknowledged yet, and the maximum "
        "is {most_bytes}; retry after a moment, with fewer producers or a faster disk"
    )


# The partition serves, but is at a limit: retry later, without looking it up again.
THROTTLED = (TooManyPolls, TooManyAppends)


class RequestTimedOut(RaylogError):
    """The answer did not arrive in time. It is not known whether the request took effect."""

    code, error_name, retriable = 7, "REQUEST_TIMED_OUT", True
    fields = ("what", "timeout_ms")
    template = (
        "{what}: no answer within {timeout_ms} ms; the request may have taken effect. Check "
        "`raylog status`, then retry"
    )


class BrokerNotFound(RaylogError):
    """No broker runs in this namespace of the Ray cluster."""

    code, error_name, retriable = 15, "COORDINATOR_NOT_AVAILABLE", True
    fields = ("namespace",)
    template = (
        "no raylog broker runs in namespace {namespace!r}; start one with raylog.start() or "
        "`raylog start`"
    )


class RayNotFound(RaylogError):
    """No Ray cluster answers."""

    code, error_name, retriable = 15, "COORDINATOR_NOT_AVAILABLE", True
    fields = ("address", "why")
    template = (
        "no Ray cluster at {address!r} ({why}); start one with `raylog start`, or give another "
        "address"
    )


class SeveralBrokers(RaylogError):
    """More than one Ray cluster on this machine has a broker in this namespace."""

    code, error_name = 42, "INVALID_REQUEST"
    fields = ("namespace", "addresses")
    template = (
        "brokers run in namespace {namespace!r} of several Ray clusters ({addresses}); give the "
        "address of one of them"
    )


class BrokerRunning(RaylogError):
    """A broker already runs in this namespace."""

    code, error_name = 42, "INVALID_REQUEST"
    fields = ("namespace",)
    template = (
        "a broker already runs in namespace {namespace!r}; use it (`raylog status`, "
        "raylog.connect()), stop it first, or choose another namespace"
    )


class NoLogDirs(RaylogError):
    """No node has a log dir that can be used."""

    code, error_name, retriable = 56, "KAFKA_STORAGE_ERROR", True
    fields = ("why",)
    template = "no log dir can store a partition: {why}; see `raylog health`"


class LabelShared(RaylogError):
    """Several running nodes have the same label: only one of them can be the node that it names."""

    code, error_name = 42, "INVALID_REQUEST"
    fields = ("node_id", "name", "label")
    template = (
        "node {node_id} takes no part in the broker: another running node has the same label "
        "{name}={label}; give each node with disks its own label, and start this node again"
    )


class SeveralClusters(RaylogError):
    """The log dirs of this Ray cluster's nodes hold the metadata of more than one raylog
    cluster."""

    code, error_name = 104, "INCONSISTENT_CLUSTER_ID"
    fields = ("found",)
    template = (
        "the first log dirs of the nodes belong to different clusters ({found}); start the broker "
        "with the log dirs of only one of them: set log.dirs, or set RAYLOG_LOG_DIRS where Ray is "
        "started on the other node"
    )


class ProduceFailed(RaylogError):
    """Records could not be written. The producer does not send them again."""

    code, error_name = -1, "UNKNOWN_SERVER_ERROR"
    fields = ("partition", "records", "cause")
    template = (
        "{records} records for {partition} were not acknowledged, and are not sent again: {cause}"
    )
