"""The errors of a cluster: actors answer with them, and clients raise them.

Errors of a log or a disk are in ``raylog.storage.errors``. Users import all of them from
``raylog.errors``.
"""

from typing import Any, ClassVar

from raylog.storage.errors import CorruptRecord, LogMissing, RaylogError, RecordTooLarge


class UnknownTopicOrPartition(RaylogError):
    """The topic or the partition does not exist. ``partition`` is None if the request named only a
    topic."""

    code, error_name = 3, "UNKNOWN_TOPIC_OR_PARTITION"
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


class UnknownTopicId(RaylogError):
    """The request is for another topic: one of this name was deleted, and the name used again."""

    code, error_name = 100, "UNKNOWN_TOPIC_ID"
    fields = ("partition", "topic_id", "served_topic_id")
    partition: str
    topic_id: str
    served_topic_id: str
    template = (
        "{partition} is of the topic with id {served_topic_id}, not of {topic_id!r}: the topic was "
        "deleted and its name used again; look its metadata up again"
    )


class FencedLeaderEpoch(RaylogError):
    """The client knows an older leader epoch: the partition's actor was started again since."""

    code, error_name = 74, "FENCED_LEADER_EPOCH"
    fields = ("partition", "leader_epoch", "served_leader_epoch")
    partition: str
    leader_epoch: int
    served_leader_epoch: int
    template = (
        "{partition} is in leader epoch {served_leader_epoch}, and the request is of "
        "{leader_epoch}; look its metadata up again, and retry"
    )


class UnknownLeaderEpoch(RaylogError):
    """The client knows a newer leader epoch: it has come to an actor that is not the leader."""

    code, error_name = 75, "UNKNOWN_LEADER_EPOCH"
    fields = ("partition", "leader_epoch", "served_leader_epoch")
    partition: str
    leader_epoch: int
    served_leader_epoch: int
    template = (
        "{partition} is in leader epoch {served_leader_epoch} here, and the request is of the "
        "newer {leader_epoch}; look the partition up again, and retry"
    )


class UnsupportedVersion(RaylogError):
    """The request is of a version that the partition's actor does not know."""

    code, error_name = 35, "UNSUPPORTED_VERSION"
    fields = ("partition", "version", "newest")
    partition: str
    version: int
    newest: int
    template = (
        "{partition} knows requests up to version {newest}, not {version}; install the same raylog "
        "on the client as on the nodes"
    )


class UnsupportedLevel(RaylogError):
    """The cluster writes a level that this release of raylog does not know, or no more.

    ``where``: who refuses. ``reader``: its release; ``oldest``, ``newest``: the levels that it
    knows. ``needed``: a release that knows the level.
    """

    code, error_name = 35, "UNSUPPORTED_VERSION"
    fields = ("where", "level", "reader", "oldest", "newest", "needed")
    where: str
    level: int
    reader: str
    oldest: int
    newest: int
    needed: str
    template = (
        "{where}: the cluster is of level {level}, and raylog {reader} knows the levels {oldest} "
        "to {newest}; install raylog {needed} there"
    )


class UpgradeRefused(RaylogError):
    """The cluster cannot go to a level now; nothing is changed. ``level``: the one it has."""

    code, error_name = 96, "FEATURE_UPDATE_FAILED"
    fields = ("level", "wanted", "why")
    level: int
    wanted: int
    why: str
    template = (
        "the cluster stays at level {level}, and does not go to {wanted}: {why}; see `raylog "
        "upgrade status`"
    )


class TopicExists(RaylogError):
    """A topic with this name exists; with another ``existing`` it is TopicCollides."""

    code, error_name = 36, "TOPIC_ALREADY_EXISTS"
    fields = ("topic", "existing")
    topic: str
    existing: str
    template = (
        "topic {topic!r} cannot be created: {existing!r} already exists; use it, or choose another "
        "name"
    )


class TopicCollides(TopicExists):
    """A topic exists whose name differs only in ``.`` and ``_``: metrics could not tell them."""

    code, error_name = 17, "INVALID_TOPIC_EXCEPTION"


class TopicBusy(RaylogError):
    """Another request is creating, deleting or extending a topic with this name."""

    code, error_name = 36, "TOPIC_ALREADY_EXISTS"
    fields = ("topic", "what")
    topic: str
    what: str
    template = "topic {topic!r} is being {what}; try again when that has finished"


class MoveRunning(RaylogError):
    """The partition is already being moved to another log dir."""

    code, error_name = 60, "REASSIGNMENT_IN_PROGRESS"
    fields = ("partition", "log_dir")
    partition: str
    log_dir: str
    template = "{partition} is being moved to {log_dir}; try again when that has finished"


class InvalidRequest(RaylogError):
    """An argument of the request is not valid."""

    code, error_name = 42, "INVALID_REQUEST"
    fields = ("argument", "value", "why")
    argument: str
    value: Any
    why: str
    template = "{argument}={value!r} {why}"


class UnknownLogDir(InvalidRequest):
    """No node has such a log dir, as far as the Controller has heard: one may report it yet."""

    code, error_name = 57, "LOG_DIR_NOT_FOUND"


class NodeOrderReplaced(RaylogError):
    """Another order for the same node came before this one had ended, and counts instead.

    ``ordered``: what this one wanted the node to be. ``state``: what it is now.
    """

    code, error_name = 42, "INVALID_REQUEST"
    fields = ("node", "ordered", "state")
    node: str
    ordered: str
    state: str
    template = (
        "node {node} shall not be {ordered} any more: another order has replaced this one, and it "
        "is {state} now; see `raylog node list`, and repeat the command if it shall be so after all"
    )


class NotLeader(RaylogError):
    """The partition's actor cannot be reached: it is restarting, or its node is down."""

    code, error_name = 6, "NOT_LEADER_OR_FOLLOWER"
    fields: ClassVar[tuple[str, ...]] = ("partition", "why")
    partition: str
    why: str
    template = (
        "{partition} cannot be reached: {why}; clients retry until their timeout. If its node is "
        "down, start the node again"
    )


class ActorAway(NotLeader):
    """An actor did not answer: Ray starts it again, or its node is down.

    Whether the request took effect is not known. ``what``: it was for.
    """

    fields = ("what", "why")
    what: str
    template = (
        "{what}: the actor cannot be reached: {why}; the request may have taken effect. Clients "
        "retry until their timeout. If its node is down, start the node again"
    )


class NeededActorAway(NotLeader):
    """An actor that was asked answers that another one, which it needs, was away: see ActorAway."""

    fields = ("what", "why")
    what: str
    template = (
        "{what}: an actor that this needs cannot be reached: {why}; it may have been done in part. "
        "Look at `raylog health`, and repeat it if it was not done"
    )


class BrokerUnreachable(NotLeader):
    """No process of a broker answers at an address. Only questions go there."""

    fields = ("address", "why")
    address: str
    template = (
        "no broker can be asked at {address}: {why}; `raylog status` shows where one listens. A "
        "listener with TLS or passwords is for Kafka's clients"
    )


class NotController(NotLeader):
    """The broker's Controller takes no requests yet. Nothing was changed."""

    code, error_name = 41, "NOT_CONTROLLER"
    template = (
        "{partition} takes no requests now: {why}; nothing was changed. Clients ask again until "
        "their timeout"
    )


class InternalTopic(RaylogError):
    """Only a coordinator writes to this topic. Nothing was changed."""

    code, error_name = 17, "INVALID_TOPIC_EXCEPTION"
    fields = ("topic",)
    topic: str
    template = (
        "{topic} belongs to raylog's coordinators: it can be read, and nobody else writes to it, "
        "removes records from it, or gives it more partitions; use another topic"
    )


class NotInTransaction(RaylogError):
    """A batch would begin a transaction that nobody ends. Nothing was written."""

    code, error_name = 48, "INVALID_TXN_STATE"
    fields = ("partition", "producer_id", "epoch")
    partition: str
    producer_id: int
    epoch: int
    template = (
        "{partition} is in no open transaction of producer {producer_id}, epoch {epoch}, as far as "
        "its coordinator has said; abort the transaction and begin another one"
    )


class TransactionAbortable(NotInTransaction):
    """The same, for clients that know this word for it (KIP-890)."""

    code, error_name = 120, "TRANSACTION_ABORTABLE"


class UnknownTransactionalId(RaylogError):
    """A producer's transactional id is not known to its coordinator. Nothing was written."""

    code, error_name = 49, "INVALID_PRODUCER_ID_MAPPING"
    fields = ("transactional_id", "producer_id")
    transactional_id: str
    producer_id: int
    template = (
        "transactional id {transactional_id!r} has not, or no longer, producer {producer_id}; "
        "initialise its transactions again"
    )


class NotVerified(RaylogError):
    """Nobody says whether a batch is part of an open transaction. Nothing was written."""

    code, error_name = 19, "NOT_ENOUGH_REPLICAS"
    fields = ("partition", "why")
    partition: str
    why: str
    template = (
        "{partition} takes the first batch of a transaction when its coordinator has said that it "
        "is in it, and {why}; send it again, as Kafka's producers do by themselves"
    )


class LogRefused(NotLeader):
    """The partition's actor did not open its log; ``error`` is the class of its error."""

    fields = ("partition", "error", "why", "todo")
    error: str
    todo: str
    template = "{partition} failed: {error}: {why}; {todo}"


class ConfigUnconfirmed(NotLeader):
    """Nothing is removed: the Controller has not confirmed lately the config that the log obeys."""

    fields = ("partition", "why")
    template = (
        "nothing was removed from {partition}: {why}; the removal is tried again. If this stays, "
        "look at `raylog health`: records are removed only while the Controller runs"
    )


class TooManyPolls(RaylogError):
    """The maximum number of fetches already wait at the partition. Fetch without waiting, or retry
    after a moment."""

    code, error_name = 89, "THROTTLING_QUOTA_EXCEEDED"
    fields = ("partition", "most")
    partition: str
    most: int
    template = (
        "{partition}: {most} fetches are already waiting, which is the maximum; fetch without "
        "waiting, or retry after a moment"
    )


class TooManyAppends(RaylogError):
    """The partition has the maximum number of bytes of unacknowledged appends. Nothing was written:
    retry after a moment."""

    code, error_name = 89, "THROTTLING_QUOTA_EXCEEDED"
    fields = ("partition", "in_flight_bytes", "most_bytes")
    partition: str
    in_flight_bytes: int
    most_bytes: int
    template = (
        "{partition}: appends of {in_flight_bytes} bytes are not acknowledged yet, and the maximum "
        "is {most_bytes}; retry after a moment, with fewer producers or a faster disk"
    )


# The partition serves, but is at a limit: retry later, without looking it up again.
THROTTLED = (TooManyPolls, TooManyAppends)


class WorkFailed(RaylogError):
    """A node could not do what its machine said, for a reason that nobody is prepared for."""

    code, error_name = -1, "UNKNOWN_SERVER_ERROR"
    fields = ("what", "why")
    what: str
    why: str
    template = (
        "{what} failed unexpectedly ({why}); the log of the node's LogManager has the traceback: "
        "please report it. The work is tried again"
    )


class RequestTimedOut(RaylogError):
    """The answer did not arrive in time. It is not known whether the request took effect."""

    code, error_name = 7, "REQUEST_TIMED_OUT"
    fields: ClassVar[tuple[str, ...]] = ("what", "timeout_ms")
    what: str
    timeout_ms: int
    template = (
        "{what}: no answer within {timeout_ms} ms; the request may have taken effect. Check "
        "`raylog health`, then retry"
    )


class ReadTimedOut(RequestTimedOut):
    """As RequestTimedOut, of a request that changes nothing."""

    template = (
        "{what}: no answer within {timeout_ms} ms; this request changes nothing. Check `raylog "
        "health`, then retry"
    )


class AnswerLost(RequestTimedOut):
    """The Controller ended while it was asked. It is not known whether the request took effect.

    It was not asked again, since others may have made changes in between. ``timeout_ms`` is 0: no
    time was over.
    """

    fields = ("what", "look_at")
    timeout_ms = 0
    look_at: str  # the command that shows it
    template = (
        "{what}: the Controller ended while it was asked; the request may have taken effect. Look "
        "at `{look_at}`, and repeat it if it has not"
    )


class NothingChanged(RequestTimedOut):
    """The Controller took no requests for all the time. The request did not take effect."""

    fields = ("what", "timeout_ms", "why")
    why: str
    template = (
        "{what}: the Controller took no requests within {timeout_ms} ms ({why}); nothing was "
        "changed. Check `raylog health`, then retry"
    )


class BufferExhausted(RequestTimedOut):
    """A producer's buffer had no room in time. What did not fit was not taken, and is not sent."""

    fields = ("what", "timeout_ms", "buffer_memory")
    buffer_memory: int
    template = (
        "buffer.memory={buffer_memory} had no room within {timeout_ms} ms, so {what} was not "
        "taken; check `raylog status`, then send it again, or raise buffer.memory or max.block.ms"
    )


class NotSentInTime(RequestTimedOut):
    """Records waited in a producer until their time was up. They were never sent.

    Kafka's TimeoutException of a batch that expires in the accumulator.
    """

    template = (
        "{what}: not sent within delivery.timeout.ms={timeout_ms}; nothing was written. Check "
        "`raylog health`, then send again"
    )


class NoProducerId(RequestTimedOut):
    """An idempotent producer got no id in time, and was not made. ``why``: the last reason."""

    fields = ("timeout_ms", "why")
    what = "a producer id"
    why: str
    template = (
        "no producer id within max.block.ms={timeout_ms} ({why}), so the producer was not made; "
        "check `raylog health`, then make it again, or raise max.block.ms"
    )


class ConsumerClosed(RaylogError):
    """The consumer was closed."""

    fields = ()
    template = "the consumer is closed; make another one"


class ConsumerBusy(RaylogError):
    """Another thread, or task, is inside of a call of this consumer.

    (Kafka: ConcurrentModification.)
    """

    fields = ()
    template = (
        "another thread or task uses this consumer now, and it serves one at a time; make a "
        "consumer for each. To end the other's wait: close(), or wakeup() and wait until that call "
        "has ended"
    )


class ConsumerWokenUp(RaylogError):
    """Somebody called ``wakeup``. (Kafka: WakeupException.)"""

    fields = ()
    template = "the consumer was woken up; no position has moved, and the next poll goes on"


class DeserializationFailed(RaylogError):
    """A deserializer raised; its error is the ``__cause__``. (Kafka: RecordDeserialization.)"""

    fields = ("partition", "offset", "what", "why")
    partition: str
    offset: int
    what: str  # "key" or "value"
    why: str
    template = (
        "{partition}, offset {offset}: the {what}'s deserializer raised {why}; seek behind the "
        "record to leave it out, or mend the deserializer: no position has moved"
    )


class NothingAssigned(RaylogError):
    """The consumer has nothing to read, so that a poll would never return a record."""

    code, error_name = 42, "INVALID_REQUEST"
    fields = ()
    template = "the consumer reads no partition; call subscribe() or assign() first"


class NoOffsetForPartition(RaylogError):
    """Nothing says where to begin: there is no position, and auto.offset.reset is none."""

    fields = ("partition",)
    partition: str
    template = (
        "{partition} has no position, and auto.offset.reset is none; seek, or give from_ or "
        "another auto.offset.reset"
    )


class RangeUndecided(RaylogError):
    """A range of committed records reaches into a transaction that has not ended in time."""

    code, error_name = 7, "REQUEST_TIMED_OUT"
    fields = ("partition", "start", "end", "timeout_ms")
    partition: str
    start: int
    end: int
    timeout_ms: int
    template = (
        "{partition}: no committed record of the offsets [{start}, {end}) came within "
        "{timeout_ms} ms: a transaction is open there. Find it with `raylog txn list --state "
        "Ongoing` and `raylog txn find-hanging`, and end it; or read up to latest, which is the "
        "last stable offset"
    )


class BrokerNotFound(RaylogError):
    """No broker runs in this namespace of the Ray cluster."""

    code, error_name = 15, "COORDINATOR_NOT_AVAILABLE"
    fields = ("namespace",)
    namespace: str
    template = (
        "no raylog broker runs in namespace {namespace!r}; start one with raylog.start() or "
        "`raylog start`"
    )


class RayNotFound(RaylogError):
    """No Ray cluster answers."""

    code, error_name = 15, "COORDINATOR_NOT_AVAILABLE"
    fields = ("address", "why")
    address: str
    why: str
    template = (
        "no Ray cluster at {address!r} ({why}); start one with `raylog start`, or give another "
        "address"
    )


class TokenNotMade(RaylogError):
    """Ray is to want a token, and none could be written. Nothing was started."""

    code, error_name = 15, "COORDINATOR_NOT_AVAILABLE"
    fields = ("why",)
    why: str
    template = (
        "the token for Ray could not be written to ~/.ray/auth_token ({why}); make that folder "
        "writable, or name a file with a token in RAY_AUTH_TOKEN_PATH. Without a token, everybody "
        "who reaches this machine's ports can run code: if nobody else does, set "
        "RAY_AUTH_MODE=disabled"
    )


class RayNotStarted(RaylogError):
    """Ray could not be started on this machine. Nothing of the broker was started."""

    code, error_name = 15, "COORDINATOR_NOT_AVAILABLE"
    fields = ("why",)
    why: str
    template = (
        "Ray could not be started on this machine ({why}); try again when the machine has less to "
        "do. If that fails, too: the logs in session_latest/logs of Ray's folder (/tmp/ray, or "
        "$RAY_TMPDIR/ray) say why"
    )


class ForkedProcess(RaylogError):
    """A process uses what belongs to the process that it was forked from: its threads are there."""

    fields = ("what",)
    what: str
    template = (
        "this process was forked off, and the {what} is its parent's; start processes by spawn or "
        "forkserver (multiprocessing's start method), or as Ray tasks, and make clients there"
    )


class ReentrantCall(RaylogError):
    """A signal handler or a finalizer (``__del__``) interrupts a call and makes another one, for
    which the thread would wait for itself. The second call changed nothing."""

    fields = ("what",)
    what: str
    template = (
        "a signal handler or a finalizer uses the {what} in the middle of another call of the same "
        "thread; only leave word there (a flag, a queue.SimpleQueue), and use the {what} when that "
        "call is over"
    )


class SeveralBrokers(RaylogError):
    """More than one Ray cluster on this machine has a broker in this namespace."""

    code, error_name = 42, "INVALID_REQUEST"
    fields = ("namespace", "addresses")
    namespace: str
    addresses: str
    template = (
        "brokers run in namespace {namespace!r} of several Ray clusters ({addresses}); give the "
        "address of one of them"
    )


class BrokerRunning(RaylogError):
    """A broker already runs in this namespace."""

    code, error_name = 42, "INVALID_REQUEST"
    fields = ("namespace",)
    namespace: str
    template = (
        "a broker already runs in namespace {namespace!r}; use it (`raylog status`, "
        "raylog.connect()), give it another config while it serves (`raylog start --config FILE "
        "--apply`, Broker.apply_config), stop it first (`raylog stop`), or choose another namespace"
    )


class NoLogDirs(RaylogError):
    """No node has a log dir that can be used."""

    code, error_name = 56, "KAFKA_STORAGE_ERROR"
    fields = ("why",)
    why: str
    template = "no log dir can store a partition: {why}; see `raylog health` and `raylog node list`"


class TooManyPartitions(RaylogError):
    """The nodes have neither the memory nor the processes for so many partitions."""

    code, error_name = 44, "POLICY_VIOLATION"
    fields = ("topic", "partitions", "most", "rooms")
    topic: str
    partitions: int
    most: int
    rooms: str
    template = (
        "topic {topic!r} cannot get {partitions} partitions: each is a process, and the nodes have "
        "memory and threads for only {most} more ({rooms}); "
    )

    def __str__(self) -> str:
        return super().__str__() + self.advice

    @property
    def advice(self) -> str:
        more_room = "add a node, or memory, or raise the limit of threads"
        return f"ask for at most {self.most}, or {more_room}" if self.most else more_room


class LabelShared(RaylogError):
    """Several running nodes have the same label: only one of them can be the node that it names."""

    code, error_name = 42, "INVALID_REQUEST"
    fields = ("node_id", "name", "label")
    node_id: str
    name: str
    label: str
    template = (
        "node {node_id} takes no part in the broker: another running node has the same label "
        "{name}={label}; give each node with disks its own label, and start this node again"
    )


class SeveralClusters(RaylogError):
    """The log dirs hold the metadata of more than one raylog cluster."""

    code, error_name = 104, "INCONSISTENT_CLUSTER_ID"
    fields = ("found",)
    found: str
    template = (
        "the log dirs belong to different clusters ({found}); start the broker with the log dirs "
        "of only one of them: name these alone in log.dirs, or in RAYLOG_LOG_DIRS where a node's "
        "Ray is started with it"
    )


class MetadataInDoubt(RaylogError):
    """There are several copies of the cluster's metadata, and nobody can say which one counts."""

    code, error_name = 104, "INCONSISTENT_CLUSTER_ID"
    fields = ("found", "why")
    found: str
    why: str
    template = (
        "the cluster's metadata is in several log dirs, and {why} ({found}); repair what cannot "
        "be read first. Then keep the one that knows your topics, with `raylog metadata restore "
        "--from NODE`, which says what the others have more; or move __cluster_metadata-0 of the "
        "other log dirs to a safe place, delete nothing, and start the broker again"
    )


class MetadataIncomplete(RaylogError):
    """A copy of the metadata that is not in reach may have changes that those in reach lack.

    ``found``: the newest in reach. ``missed``: whose copy is not there. ``source``: the node or
    path of ``found``, as ``raylog metadata restore`` takes it.
    """

    code, error_name = 104, "INCONSISTENT_CLUSTER_ID"
    fields = ("found", "missed", "source")
    found: str
    missed: str
    source: str
    template = (
        "the newest metadata in reach ({found}) may lack the last changes: {missed} may have them, "
        "and is missed. Start that node, or repair its disk: the broker goes on then. Only where "
        "it is lost for good: `raylog metadata restore --from {source}` goes on with what is in "
        "reach. What it does not know is set aside then, and not deleted; nothing is removed from "
        "any topic until you set its config again"
    )


class MetadataMissing(LogMissing):
    """A cluster has been here, and nobody has found its metadata. Nothing was changed."""

    template = (
        "{path}: {why}; bring the metadata back: mount its disk, start its node, or restore "
        "__cluster_metadata-0 from a copy; then start the broker again, and all topics are there. "
        "Only if it is lost for good: `raylog metadata rebuild` (of a broker of one machine: with "
        "--address local, and a --log-dir for each log dir) makes it anew from the folders of the "
        "partitions, or `raylog start --new-cluster` begins a cluster without topics. The "
        "folders of the old partitions are kept then, renamed -stray; their topics are gone "
        "(docs/OPERATIONS.md, Metadata that is missing)"
    )


class MetadataUnreadable(LogMissing):
    """The only copy of a cluster's metadata cannot be read. Nothing was changed."""

    template = (
        "{path}: {why}; repair its disk, or restore this folder from a copy, then start the broker "
        "again. Do not remove the folder: it may be mended. Without a copy: docs/OPERATIONS.md, "
        "Damaged metadata"
    )


class NewerRecord(CorruptRecord):
    """A record of the metadata is of a kind or version that only a newer raylog knows."""

    template = "{where}: {why}; install that raylog"


class NewerMetadata(RaylogError):
    """A newer raylog wrote the cluster's metadata, which is whole. Nothing was changed."""

    code, error_name = 35, "UNSUPPORTED_VERSION"
    fields = ("found", "why")
    found: str
    why: str
    template = (
        "the metadata in {found} is of a newer raylog ({why}); install that one, and use its "
        "commands. Do not repair, restore or rebuild the metadata: it is not damaged"
    )


class OlderMetadata(RaylogError):
    """The cluster's metadata is from the past: its log dirs have obeyed a newer Controller.

    ``found``: where it is. ``epoch``: of the last Controller that it knows. ``seen``: who knows a
    newer one, with its epoch.
    """

    code, error_name = 104, "INCONSISTENT_CLUSTER_ID"
    fields = ("found", "epoch", "seen")
    found: str
    epoch: int
    seen: str
    template = (
        "the cluster's metadata in {found} is older than its log dirs: it ends with the Controller "
        "of epoch {epoch}, and there was a newer one ({seen}). Stop the broker, put the newer "
        "__cluster_metadata-0 in its place, and start the broker. Where it is lost for good, start "
        "once with `raylog start --older-metadata` (raylog.start(older_metadata=True)): what the "
        "older metadata does not know is set aside then, and not deleted"
    )


class RecordTooLargeToSend(RecordTooLarge):
    """A record exceeds a limit of the producer itself. It was not taken."""

    fields = ("size_bytes", "limit_key", "max_bytes")
    limit_key: str
    template = (
        "a record of {size_bytes} bytes exceeds {limit_key}={max_bytes} of the producer; send "
        "smaller records, or raise max.message.bytes of the topic, and in a program also "
        "{limit_key} of the producer"
    )

    def __str__(self) -> str:
        if self.limit_key != "buffer.memory":
            return super().__str__()
        return (
            f"a record of {self.size_bytes} bytes exceeds buffer.memory={self.max_bytes} of the "
            "producer; raise it"
        )


class ProduceFailed(RaylogError):
    """Records could not be written. The producer does not send them again."""

    code, error_name = -1, "UNKNOWN_SERVER_ERROR"
    fields = ("partition", "records", "cause")
    partition: str
    records: int
    cause: BaseException
    template = (
        "{records} records for {partition} were not acknowledged, and are not sent again: {cause}"
    )
