"""The errors of a cluster: what actors answer, and what clients raise, beside those of
``raylog.storage.errors``."""

from raylog.storage.errors import RaylogError


class UnknownTopicOrPartition(RaylogError):
    """No such topic, or no such partition of it; ``partition`` is None where only the topic was
    asked for."""

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
        "{partitions!r} partitions: give a whole number from {least} to {most} (none can be taken "
        "away)"
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
        "{partition} cannot be reached: {why}; it is retried until the time is up, or start its "
        "node again"
    )


class TooManyPolls(RaylogError):
    """As many fetches wait at the partition as may. Fetch without waiting, or ask again in a
    moment."""

    code, error_name, retriable = 89, "THROTTLING_QUOTA_EXCEEDED", True
    fields = ("partition", "most")
    template = (
        "{partition}: {most} fetches wait there already: fetch without waiting, or retry in a "
        "moment"
    )


class TooManyAppends(RaylogError):
    """The partition has as many bytes of unanswered appends as may be. Nothing was written: retry
    in a moment."""

    code, error_name, retriable = 89, "THROTTLING_QUOTA_EXCEEDED", True
    fields = ("partition", "in_flight_bytes", "most_bytes")
    template = (
        "{partition}: appends of {in_flight_bytes} bytes are not answered yet, and {most_bytes} is "
        "the most: "
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
    template = (
        "no raylog broker in namespace {namespace!r}: call raylog.start() or `raylog start` first"
    )


class RayNotFound(RaylogError):
    """No Ray cluster answers."""

    code, error_name, retriable = 15, "COORDINATOR_NOT_AVAILABLE", True
    fields = ("address", "why")
    template = (
        "no Ray cluster at {address!r} ({why}): start one with `raylog start`, or give another "
        "address"
    )


class SeveralBrokers(RaylogError):
    """More than one Ray cluster on this machine has a broker in this namespace."""

    code, error_name = 42, "INVALID_REQUEST"
    fields = ("namespace", "addresses")
    template = (
        "brokers run in namespace {namespace!r} of several Ray clusters ({addresses}): give an "
        "address"
    )


class BrokerRunning(RaylogError):
    """A broker runs in this namespace already."""

    code, error_name = 42, "INVALID_REQUEST"
    fields = ("namespace",)
    template = (
        "a broker runs in namespace {namespace!r} already: use it (`raylog status`, "
        "raylog.connect()), "
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
        "node {node_id} takes no part: another node that is up carries its label {name}={label}, "
        "too; "
        "give each node with disks a label of its own, and start this one again"
    )


class SeveralClusters(RaylogError):
    """The log dirs of this Ray cluster's nodes hold the metadata of more than one raylog
    cluster."""

    code, error_name = 104, "INCONSISTENT_CLUSTER_ID"
    fields = ("found",)
    template = (
        "the nodes' first log dirs hold different clusters ({found}): start a broker with the log "
        "dirs of one of "
        "them only, by log.dirs or by RAYLOG_LOG_DIRS where the other node's Ray is started"
    )


class ProduceFailed(RaylogError):
    """Records that were sent could not be written. They are not sent again."""

    code, error_name = -1, "UNKNOWN_SERVER_ERROR"
    fields = ("partition", "records", "cause")
    template = "{records} records for {partition} were not acknowledged: {cause}"
