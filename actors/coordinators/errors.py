"""What coordinators refuse, as errors of raylog's own clients."""

from typing import Final

from raylog.actors.coordinators.codes import (
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    FENCED_INSTANCE_ID,
    GROUP_ID_NOT_FOUND,
    GROUP_MAX_SIZE_REACHED,
    GROUP_SUBSCRIBED_TO_TOPIC,
    ILLEGAL_GENERATION,
    INCONSISTENT_GROUP_PROTOCOL,
    INVALID_GROUP_ID,
    INVALID_SESSION_TIMEOUT,
    INVALID_TXN_STATE,
    NON_EMPTY_GROUP,
    NOT_COORDINATOR,
    OFFSET_METADATA_TOO_LARGE,
    REBALANCE_IN_PROGRESS,
    TRANSACTIONAL_ID_NOT_FOUND,
    UNKNOWN_MEMBER_ID,
    UNSTABLE_OFFSET_COMMIT,
)
from raylog.storage.errors import RaylogError


class CoordinatorRefused(RaylogError):
    """A coordinator refuses a request by a code that has no class of its own."""

    fields = ("key", "refused_code")
    key: str  # such as "group g"
    refused_code: int
    template = (
        "{key}: its coordinator refused the request with error code {refused_code} of "
        "Kafka's protocol; check that it runs this release of raylog"
    )


class CoordinatorNotAvailable(RaylogError):
    """A coordinator does not serve: it is being made, started, or reads its log."""

    code, error_name = COORDINATOR_NOT_AVAILABLE, "COORDINATOR_NOT_AVAILABLE"
    fields = ("key", "why")
    key: str  # such as "group g"
    why: str
    template = (
        "the coordinator of {key} does not serve now: {why}; the request is repeated. Where it "
        "lasts, `raylog health` says what is wrong with its partition"
    )


class UnknownMember(RaylogError):
    """The coordinator does not know this member any more."""

    code, error_name = UNKNOWN_MEMBER_ID, "UNKNOWN_MEMBER_ID"
    fields = ("group",)
    group: str
    template = (
        "group {group} does not have this member (any more); the next poll joins again. For a "
        "group that has members, only they commit: stop them first"
    )


class IllegalGeneration(RaylogError):
    """The group has been rebalanced without this member's knowledge."""

    code, error_name = ILLEGAL_GENERATION, "ILLEGAL_GENERATION"
    fields = ("group",)
    group: str
    template = "group {group} has another generation by now; the next poll joins again"


class RebalanceInProgress(RaylogError):
    """The group is being rebalanced."""

    code, error_name = REBALANCE_IN_PROGRESS, "REBALANCE_IN_PROGRESS"
    fields = ("group",)
    group: str
    template = "group {group} is being rebalanced; poll, and commit again what is yours then"


class InconsistentGroupProtocol(RaylogError):
    """The group's members have no assignor in common with this one, or are no consumers."""

    code, error_name = INCONSISTENT_GROUP_PROTOCOL, "INCONSISTENT_GROUP_PROTOCOL"
    fields = ("group", "assignors")
    group: str
    assignors: str
    template = (
        "group {group} has members that know none of partition.assignment.strategy={assignors}, or "
        "that are no consumers; give all members an assignor in common, or use another group.id"
    )


class InvalidGroupId(RaylogError):
    """No group may have this name."""

    code, error_name = INVALID_GROUP_ID, "INVALID_GROUP_ID"
    fields = ("group",)
    group: str
    template = "{group!r} is no name of a group; give a group.id of one or more characters"


class InvalidSessionTimeout(RaylogError):
    """The coordinator does not take this session timeout."""

    code, error_name = INVALID_SESSION_TIMEOUT, "INVALID_SESSION_TIMEOUT"
    fields = ("group", "session_timeout_ms")
    group: str
    session_timeout_ms: int
    template = (
        "group {group}: session.timeout.ms={session_timeout_ms} is not between "
        "group.min.session.timeout.ms and group.max.session.timeout.ms of the broker; change it"
    )


class GroupMaxSizeReached(RaylogError):
    """The group has as many members as the broker allows."""

    code, error_name = GROUP_MAX_SIZE_REACHED, "GROUP_MAX_SIZE_REACHED"
    fields = ("group",)
    group: str
    template = (
        "group {group} is full; stop another member, or raise group.max.size of the broker, then "
        "make the consumer again"
    )


class FencedInstanceId(RaylogError):
    """Another consumer has the same ``group.instance.id``, and came later."""

    code, error_name = FENCED_INSTANCE_ID, "FENCED_INSTANCE_ID"
    fields = ("group", "instance_id")
    group: str
    instance_id: str
    template = (
        "another member of group {group} has taken over group.instance.id={instance_id}; close "
        "this consumer, and give each that runs at the same time an id of its own"
    )


class OffsetMetadataTooLarge(RaylogError):
    """The text beside a committed offset is too long. The offset was not committed."""

    code, error_name = OFFSET_METADATA_TOO_LARGE, "OFFSET_METADATA_TOO_LARGE"
    fields = ("partition",)
    partition: str
    template = (
        "{partition}: the text beside the offset exceeds offset.metadata.max.bytes of the broker; "
        "commit a shorter one"
    )


class UnstableOffsets(RaylogError):
    """A transaction that is open has offsets of the group."""

    code, error_name = UNSTABLE_OFFSET_COMMIT, "UNSTABLE_OFFSET_COMMIT"
    fields = ("group",)
    group: str
    template = "a transaction that has not ended holds offsets of group {group}; ask again"


class GroupNotFound(RaylogError):
    """There is no such group."""

    code, error_name = GROUP_ID_NOT_FOUND, "GROUP_ID_NOT_FOUND"
    fields = ("group",)
    group: str
    template = "there is no group {group}; `raylog group list` names those that there are"


class GroupNotEmpty(RaylogError):
    """The group has members."""

    code, error_name = NON_EMPTY_GROUP, "NON_EMPTY_GROUP"
    fields = ("group",)
    group: str
    template = (
        "group {group} has members (`raylog group describe` names them); stop them, and wait until "
        "their sessions have ended"
    )


class GroupSubscribed(RaylogError):
    """A member of the group reads the topic."""

    code, error_name = GROUP_SUBSCRIBED_TO_TOPIC, "GROUP_SUBSCRIBED_TO_TOPIC"
    fields = ("group", "partition")
    group: str
    partition: str
    template = "{partition}: members of group {group} read its topic; stop them first"


class CommitFailed(RaylogError):
    """Offsets were not committed: others read their partitions by now. (Kafka: CommitFailed.)"""

    fields = ("group", "why")
    group: str
    why: str
    template = (
        "group {group}: the offsets were not committed, since {why}; whoever has the partitions "
        "now reads these records again. Poll more often, or raise max.poll.interval.ms, if the "
        "member was away for too long"
    )


class TransactionalIdNotFound(RaylogError):
    """No coordinator knows this transactional id."""

    code, error_name = TRANSACTIONAL_ID_NOT_FOUND, "TRANSACTIONAL_ID_NOT_FOUND"
    fields = ("transactional_id",)
    transactional_id: str
    template = (
        "there is no transactional id {transactional_id!r}; `raylog txn list` names those that "
        "there are"
    )


class TransactionEnding(RaylogError):
    """A transaction is decided, and partitions do not have its markers yet."""

    code, error_name = CONCURRENT_TRANSACTIONS, "CONCURRENT_TRANSACTIONS"
    fields = ("transactional_id", "partitions")
    transactional_id: str
    partitions: str
    template = (
        "the transaction of {transactional_id!r} is being ended, and these partitions do not have "
        "its markers yet: {partitions}; ask again. Where it lasts, `raylog health` says what is "
        "wrong with them"
    )


class TransactionPrepared(RaylogError):
    """A transaction is prepared: all of it is written, and somebody else decides. (raylog's own)"""

    code, error_name = INVALID_TXN_STATE, "INVALID_TXN_STATE"
    fields = ("transactional_id",)
    transactional_id: str
    template = (
        "the transaction of {transactional_id!r} is prepared, so that only its decision ends it; "
        "have whoever prepared it commit or abort it"
    )


class TransactionOpen(RaylogError):
    """A transaction does not hang: its coordinator knows that it is open."""

    code, error_name = INVALID_TXN_STATE, "INVALID_TXN_STATE"
    fields = ("partition", "transactional_id")
    partition: str
    transactional_id: str
    template = (
        "{partition}: this is the open transaction of transactional id {transactional_id!r}, and "
        "its coordinator knows it; `raylog txn abort {quoted_transactional_id}` aborts it in all "
        "its partitions"
    )


class NoOpenTransaction(RaylogError):
    """No open transaction of a partition begins at an offset."""

    code, error_name = INVALID_TXN_STATE, "INVALID_TXN_STATE"
    fields = ("partition", "start_offset")
    partition: str
    start_offset: int
    template = (
        "{partition}: no open transaction begins at offset {start_offset}; `raylog txn producers` "
        "shows where those that are open begin"
    )


class MarkerRefused(RaylogError):
    """A partition refuses the marker that would end a transaction. Nothing was written."""

    fields = ("partition", "producer_id", "refused_code")
    partition: str
    producer_id: int
    refused_code: int
    template = (
        "{partition} refused the marker that ends the transaction of producer {producer_id}, with "
        "error code {refused_code} of Kafka's protocol; `raylog txn producers` shows what has "
        "changed there"
    )


_BY_CODE: Final = {
    kind.code: kind
    for kind in (
        UnknownMember,
        IllegalGeneration,
        RebalanceInProgress,
        InvalidGroupId,
        GroupMaxSizeReached,
        UnstableOffsets,
        GroupNotFound,
        GroupNotEmpty,
    )
}
NOT_SERVED: Final = {
    COORDINATOR_NOT_AVAILABLE: "it is not served",
    COORDINATOR_LOAD_IN_PROGRESS: "it reads its log",
    NOT_COORDINATOR: "another process serves it",
}


def group_error(group: str, code: int) -> RaylogError:
    """The error of a code that a coordinator answered; of those that say nothing but the group."""
    if code in NOT_SERVED:
        return CoordinatorNotAvailable(f"group {group}", NOT_SERVED[code])
    if code in _BY_CODE:
        return _BY_CODE[code](group)
    return CoordinatorRefused(f"group {group}", code)


def transaction_error(transactional_id: str, code: int) -> RaylogError:
    """The error of a code that a coordinator answered about a transactional id."""
    key = f"transactional id {transactional_id}"
    if code in NOT_SERVED:
        return CoordinatorNotAvailable(key, NOT_SERVED[code])
    if code == TRANSACTIONAL_ID_NOT_FOUND:
        return TransactionalIdNotFound(transactional_id)
    return CoordinatorRefused(key, code)
