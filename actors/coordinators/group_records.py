"""Groups and their offsets as records of ``__consumer_offsets``, and back.

The schemas, and what a key's version means, are in ``storage/schemas/groups.py``. Written are an
offset (key 1; value 3, or 1 where it has a time of expiry), a classic group (key 2, value 3), and
tombstones. Read is all that Kafka writes. Records of other kinds of groups (KIP-848, KIP-932) are
told apart: they stay in the log, and nobody here understands them.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from raylog.actors.coordinators.group import Group, Member, State
from raylog.actors.coordinators.group_messages import Protocol
from raylog.actors.coordinators.log_record import LogRecord
from raylog.storage.buffers import Buffer
from raylog.storage.errors import InvalidRecord
from raylog.storage.names import TopicPartition
from raylog.storage.schemas.binary import ByteReader
from raylog.storage.schemas.groups import GROUP_RECORDS
from raylog.storage.schemas.schema import Schema, read_version
from raylog.storage.schemas.types import Value

NEVER: Final = -1  # of a time of expiry
_OFFSET_TYPES: Final = (0, 1)
_OFFSET_KEY: Final = 1
_OFFSET_VALUE: Final = 3
_EXPIRING_VALUE: Final = 1
_GROUP_KEY: Final = 2
_OTHER_GROUPS: Final = (3, 11)  # the epoch of a consumer group, and of a share group
_GROUP_VALUE: Final = 3


class Committed(NamedTuple):
    """The offset that a group has committed of a partition."""

    offset: int
    leader_epoch: int  # of the record before it; -1: not said
    metadata: str
    commit_time_ms: int
    expire_time_ms: int = NEVER


class OffsetRecord(NamedTuple):
    """``committed``: None for a tombstone."""

    group: str
    partition: TopicPartition
    committed: Committed | None


class GroupRecord(NamedTuple):
    """``found``: the group as of its last assignment; None for a tombstone."""

    group_id: str
    found: Group | None


class OtherRecord(NamedTuple):
    """A record of another kind of group; of a kind that is not known nothing can be said.

    ``begins``, ``ends``: whether it makes the group, or is the tombstone of one that did.
    """

    group_id: str = ""
    begins: bool = False
    ends: bool = False


Known: TypeAlias = OffsetRecord | GroupRecord | OtherRecord


def offset_record(group: str, partition: TopicPartition, committed: Committed) -> LogRecord:
    """A committed offset. Raises UnwritableValue."""
    is_expiring = committed.expire_time_ms != NEVER
    value: Value = {
        "offset": committed.offset,
        "metadata": committed.metadata,
        "commitTimestamp": committed.commit_time_ms,
    }
    if is_expiring:
        value["expireTimestamp"] = committed.expire_time_ms
    else:
        value["leaderEpoch"] = committed.leader_epoch
    version = _EXPIRING_VALUE if is_expiring else _OFFSET_VALUE
    schemas = GROUP_RECORDS[_OFFSET_KEY]
    return LogRecord(offset_key(group, partition), schemas.value.write_versioned(value, version))


def offset_key(group: str, partition: TopicPartition) -> bytes:
    """Raises UnwritableValue."""
    key = {"group": group, "topic": partition.topic, "partition": partition.partition}
    return GROUP_RECORDS[_OFFSET_KEY].key.write_versioned(key, _OFFSET_KEY)


def group_key(group: str) -> bytes:
    """Raises UnwritableValue."""
    return GROUP_RECORDS[_GROUP_KEY].key.write_versioned({"group": group}, _GROUP_KEY)


def group_record(group: Group, assignments: Mapping[str, bytes] | None = None) -> LogRecord:
    """A group as it is, or with other assignments. Raises UnwritableValue."""
    members = [
        {
            "memberId": member.member_id,
            "groupInstanceId": member.instance_id,
            "clientId": member.client_id,
            "clientHost": member.client_host,
            "rebalanceTimeout": member.rebalance_timeout_ms,
            "sessionTimeout": member.session_timeout_ms,
            "subscription": member.metadata(group.protocol),
            "assignment": (
                member.assignment if assignments is None else assignments[member.member_id]
            ),
        }
        for member in group.members.values()
    ]
    value: Value = {
        "protocolType": group.protocol_type or "",
        "generation": group.generation,
        "protocol": group.protocol,
        "leader": group.leader,
        "currentStateTimestamp": group.state_since_ms,
        "members": members,
    }
    schemas = GROUP_RECORDS[_GROUP_KEY]
    written = schemas.value.write_versioned(value, _GROUP_VALUE)
    return LogRecord(group_key(group.group_id), written)


def read(key: Buffer, value: Buffer | None) -> Known:
    """A record of the log. Raises InvalidRecord."""
    record_type = read_version(ByteReader(key))
    schemas = GROUP_RECORDS.get(record_type)
    if schemas is None:
        return OtherRecord()
    _, name = schemas.key.read_versioned(key)
    if record_type in _OFFSET_TYPES:
        partition = TopicPartition(name["topic"], name["partition"])
        return OffsetRecord(name["group"], partition, _committed(schemas.value, value))
    if record_type in _OTHER_GROUPS:
        return OtherRecord(name["groupId"], begins=value is not None, ends=value is None)
    if record_type != _GROUP_KEY:
        return OtherRecord()
    group_id = name["group"]
    if value is None:
        return GroupRecord(group_id, None)
    _, found = schemas.value.read_versioned(value)
    return GroupRecord(group_id, _group(group_id, found))


def _committed(schema: Schema, value: Buffer | None) -> Committed | None:
    if value is None:
        return None
    _, found = schema.read_versioned(value)
    return Committed(
        offset=found["offset"],
        leader_epoch=found["leaderEpoch"],
        metadata=found["metadata"],
        commit_time_ms=found["commitTimestamp"],
        expire_time_ms=found["expireTimestamp"],
    )


def _group(group_id: str, found: Value) -> Group:
    """A group with members is stable: nothing else but an assignment is written of them.

    Each supports the one protocol that the record has. Raises InvalidRecord.
    """
    group = Group(
        group_id,
        state_since_ms=found["currentStateTimestamp"],
        generation=found["generation"],
        protocol_type=found["protocolType"] or None,
        protocol=found["protocol"],
    )
    for one in found["members"]:
        member = Member(
            member_id=one["memberId"],
            instance_id=one["groupInstanceId"],
            client_id=one["clientId"],
            client_host=one["clientHost"],
            session_timeout_ms=one["sessionTimeout"],
            rebalance_timeout_ms=_either(one["rebalanceTimeout"], one["sessionTimeout"]),
            protocols=(Protocol(found["protocol"] or "", one["subscription"]),),
            assignment=one["assignment"],
        )
        if member.member_id in group.members or member.instance_id in group.instances:
            raise InvalidRecord(f"group {group_id}: member {member.member_id} is there twice")
        group.add(member)
    if group.members:
        group.state = State.STABLE
        group.protocol = found["protocol"] or ""
    if found["leader"] in group.members:
        group.leader = found["leader"]
    return group


def _either(timeout_ms: int, otherwise_ms: int) -> int:
    return otherwise_ms if timeout_ms < 0 else timeout_ms
