"""Groups as an administrator sees them: who is in one, how far it has read; moved, or deleted.

Every call waits for its answers, and repeats what may pass, for ``timeout_s`` in all. The answers
are those of the groups' coordinators (docs/PROTOCOL.md, Groups).
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple, TypeVar

from raylog.actors.coordinators.assignment.subscription import read_assignment
from raylog.actors.coordinators.codes import (
    COORDINATOR_NOT_AVAILABLE,
    GROUP_SUBSCRIBED_TO_TOPIC,
    NOT_COORDINATOR,
    UNKNOWN_MEMBER_ID,
)
from raylog.actors.coordinators.errors import (
    GroupNotEmpty,
    GroupNotFound,
    GroupSubscribed,
    OffsetMetadataTooLarge,
    group_error,
)
from raylog.actors.errors import InvalidRequest, UnknownTopicOrPartition
from raylog.actors.plane.apis.api import Api
from raylog.actors.plane.apis.groups import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
)
from raylog.cluster.client.asker import REQUEST_TIMEOUT_S, TIMEOUT_S, Asker
from raylog.cluster.client.connection import READ_UNCOMMITTED, GroupConnection
from raylog.cluster.client.consumer.group.bodies import commit_body, fetch_body, offsets_by_topic
from raylog.cluster.client.consumer.group.messages import GroupMetadata, OffsetAndMetadata
from raylog.cluster.client.consumer.places import offset_of, partition_of, timestamp_of
from raylog.cluster.client.consumer.waiter import Waiter
from raylog.cluster.client.coordinator import GROUP, Coordinator
from raylog.cluster.client.offsets import list_offsets
from raylog.cluster.client.repeating import taken
from raylog.storage.errors import InvalidRecord
from raylog.storage.names import CONSUMER_OFFSETS, TopicPartition
from raylog.storage.readable import EARLIEST, LATEST
from raylog.storage.schemas.types import Value

T = TypeVar("T")

_CONSUMERS: Final = "consumer"  # the type of protocol whose assignments can be read
_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}


class ListedGroup(NamedTuple):
    """A group. ``state``: Empty, PreparingRebalance, CompletingRebalance, Stable."""

    group: str
    state: str
    protocol_type: str


class GroupMember(NamedTuple):
    """One of a group's members. ``partitions``: None where they are not a consumer's."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...] | None


class DescribedGroup(NamedTuple):
    """A group and its members. ``assignor``: which they have agreed on."""

    group: str
    state: str
    assignor: str
    members: tuple[GroupMember, ...]


class GroupOffset(NamedTuple):
    """How far a group has read a partition.

    ``log_start``, ``log_end``: of the log now; None where the topic is gone. ``lag``: so many
    offsets are behind the committed one.
    """

    partition: TopicPartition
    committed: OffsetAndMetadata
    log_start: int | None
    log_end: int | None

    @property
    def lag(self) -> int | None:
        if self.log_end is None:
            return None
        return max(self.log_end - self.committed.offset, 0)


class Groups:
    """See the module's head. Not safe for threads."""

    def __init__(
        self,
        connection: GroupConnection,
        *,
        timeout_s: float = TIMEOUT_S,
        waiter: Waiter | None = None,
    ) -> None:
        self._connection = connection
        self._asker = Asker(connection, timeout_s=timeout_s, waiter=waiter)
        self._coordinators: dict[str, Coordinator] = {}
        # Topics by whose processes the topic of the groups is made, if something is committed.
        self._through: list[str] = []

    # -- what there is -----------------------------------------------------------------------------

    def list_groups(self) -> list[ListedGroup]:
        """All groups, by name."""
        try:
            known = self._asker.metadata(CONSUMER_OFFSETS)
        except UnknownTopicOrPartition:
            return []  # no group has ever been
        body: Value = {"statesFilter": [], "typesFilter": []}
        homes = [TopicPartition(CONSUMER_OFFSETS, each.partition) for each in known.partitions]
        asked = [self._asker.of_partition(home, LIST_GROUPS, body, _listed) for home in homes]
        return sorted(group for one in asked for group in self._asker.result(one))

    def describe(self, group: str) -> DescribedGroup:
        """A group and its members. Raises GroupNotFound."""

        def take(body: Value) -> DescribedGroup:
            (found,) = body["groups"]
            _check(group, found["errorCode"])
            is_of_consumers = found["protocolType"] == _CONSUMERS
            return DescribedGroup(
                group,
                found["groupState"],
                found["protocolData"],
                tuple(_member(one, is_of_consumers) for one in found["members"]),
            )

        asked = {"groups": [group], "includeAuthorizedOperations": False}
        return self._of_group(group, DESCRIBE_GROUPS, asked, take)

    def offsets(self, group: str) -> list[GroupOffset]:
        """How far the group has read each partition of which it has committed anything.

        Raises GroupNotFound.
        """
        committed = self.committed(group)
        if not committed:
            self.describe(group)
        starts = self._edges(committed, EARLIEST)
        ends = self._edges(committed, LATEST)
        return [
            GroupOffset(each, committed[each], starts.get(each), ends.get(each))
            for each in sorted(committed)
        ]

    def committed(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the group has committed, also of topics that are gone.

        What an open transaction holds does not count yet.
        """

        def take(body: Value) -> dict[TopicPartition, OffsetAndMetadata]:
            (found,) = body["groups"]
            _check(group, found["errorCode"])
            return {
                TopicPartition(topic["name"], part["partitionIndex"]): OffsetAndMetadata(
                    part["committedOffset"], part["metadata"] or "", part["committedLeaderEpoch"]
                )
                for topic in found["topics"]
                for part in topic["partitions"]
                if part["committedOffset"] >= 0
            }

        asked = fetch_body(group, None, must_be_stable=False)
        return self._of_group(group, OFFSET_FETCH, asked, take)

    def partitions(self, topic: str) -> list[TopicPartition]:
        """Those of a topic. Raises UnknownTopicOrPartition."""
        known = self._asker.metadata(topic)
        return [TopicPartition(topic, each.partition) for each in known.partitions]

    # -- changes -----------------------------------------------------------------------------------

    def seek(
        self,
        group: str,
        to: str | int | datetime | Mapping[tuple[str, int], int] | None = None,
        *,
        shift: int | None = None,
        partitions: Iterable[tuple[str, int]] | None = None,
        validate_only: bool = False,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Move a group that has no members; returns where it stands then.

        ``to``: "earliest", "latest", a datetime or ms since the epoch (the first record at or after
        it), or a dict with an offset for each partition. ``shift``: in its place, so many offsets
        forward (back, if it is negative). ``partitions``: which; by default all of which the group
        has committed something. A place outside of the log becomes its nearest end.
        Topics of the group that are gone are left out. ``validate_only``: only say where it would
        stand. Raises GroupNotEmpty, GroupNotFound,
        UnknownTopicOrPartition.
        """
        self._through = []
        wanted = self._wanted(group, to, shift, partitions)
        if not wanted:
            self.describe(group)  # GroupNotFound, or there is nothing to move
            return {}
        self._check_empty(group)
        starts, ends = self._edges(wanted, EARLIEST), self._edges(wanted, LATEST)
        is_chosen = isinstance(to, Mapping) or partitions is not None
        for each in wanted:
            if each not in ends and is_chosen:
                raise UnknownTopicOrPartition(*each, "a group cannot be moved there")
        offsets = {
            each: OffsetAndMetadata(min(max(at, starts[each]), ends[each]))
            for each, at in wanted.items()
            if each in ends and each in starts
        }
        if not validate_only:
            self._through = sorted({each.topic for each in offsets})
            self._commit(group, offsets)
        return offsets

    def delete(self, group: str) -> None:
        """Delete a group without members, and what it has committed.

        Raises GroupNotFound, GroupNotEmpty.
        """

        def take(body: Value) -> None:
            (found,) = body["results"]
            if found["errorCode"] != GroupNotFound.code:  # it was there: a request got no answer
                _check(group, found["errorCode"])

        self.describe(group)
        self._of_group(group, DELETE_GROUPS, {"groupsNames": [group]}, take)

    def delete_offsets(self, group: str, partitions: Collection[tuple[str, int]]) -> None:
        """Forget what the group has committed of these. Raises GroupNotFound, GroupSubscribed."""
        wanted = [TopicPartition(*each) for each in partitions]
        topics = [
            {"name": name, "partitions": [{"partitionIndex": one.partition} for one in some]}
            for name, some in offsets_by_topic(wanted).items()
        ]

        def take(body: Value) -> None:
            _check(group, body["errorCode"])
            for topic in body["topics"]:
                for part in topic["partitions"]:
                    if part["errorCode"] == GROUP_SUBSCRIBED_TO_TOPIC:
                        place = TopicPartition(topic["name"], part["partitionIndex"])
                        raise GroupSubscribed(group, str(place))
                    _check(group, part["errorCode"])

        self._of_group(group, OFFSET_DELETE, {"groupId": group, "topics": topics}, take)

    def _wanted(
        self,
        group: str,
        to: str | int | datetime | Mapping[tuple[str, int], int] | None,
        shift: int | None,
        partitions: Iterable[tuple[str, int]] | None,
    ) -> dict[TopicPartition, int]:
        """The offsets, which may be outside of the logs."""
        if (to is None) == (shift is None):
            raise InvalidRequest("to", to, "give to or shift: one of them")
        if shift is not None and (isinstance(shift, bool) or not isinstance(shift, int)):
            raise InvalidRequest("shift", shift, "must be an integer")
        if isinstance(to, Mapping):
            if partitions is not None:
                raise InvalidRequest("partitions", partitions, "to has a place for each already")
            return {partition_of(each): offset_of(at, "to") for each, at in to.items()}
        try:
            committed = self.committed(group)
        except GroupNotFound:
            committed = {}  # it is made by its first commit
        is_all = partitions is None
        chosen = committed if partitions is None else [partition_of(one) for one in partitions]
        if shift is not None:
            missing = [each for each in chosen if each not in committed]
            if missing:
                why = "the group has committed nothing of it: nobody knows from where to shift"
                raise UnknownTopicOrPartition(*missing[0], why)
            return {each: committed[each].offset + shift for each in chosen}
        if isinstance(to, str):
            if to not in _WORDS:
                why = "must be 'earliest', 'latest', a datetime, ms since the epoch, or a dict"
                raise InvalidRequest("to", to, why)
            return self._edges(chosen, _WORDS[to], must_be_there=not is_all)
        found = self._edges(chosen, timestamp_of(to, "to"), must_be_there=not is_all)
        behind = self._edges([each for each, at in found.items() if at < 0], LATEST)
        return {each: behind.get(each, at) for each, at in found.items()}

    def _check_empty(self, group: str) -> None:
        try:
            found = self.describe(group)
        except GroupNotFound:
            return  # it is made by its first commit
        if found.members:
            raise GroupNotEmpty(group)

    def _commit(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        def take(body: Value) -> None:
            for topic in body["topics"]:
                for part in topic["partitions"]:
                    code = part["errorCode"]
                    if code == UNKNOWN_MEMBER_ID:
                        raise GroupNotEmpty(group)  # somebody has joined meanwhile
                    if code == OffsetMetadataTooLarge.code:
                        place = TopicPartition(topic["name"], part["partitionIndex"])
                        raise OffsetMetadataTooLarge(str(place))
                    _check(group, code)

        body = commit_body(GroupMetadata(group), offsets)
        self._of_group(group, OFFSET_COMMIT, body, take)

    # -- asking ------------------------------------------------------------------------------------

    def _edges(
        self, partitions: Collection[TopicPartition], when: int, *, must_be_there: bool = False
    ) -> dict[TopicPartition, int]:
        """The offsets of a time, of those partitions that are there."""
        asked = {
            each: self._asker.repeated(f"the offsets of {each}", partial(self._edge, each, when))
            for each in partitions
        }
        found = {}
        for each in partitions:
            try:
                found[each] = self._asker.result(asked[each])
            except UnknownTopicOrPartition:
                if must_be_there:
                    raise
        return found

    def _edge(self, partition: TopicPartition, when: int) -> "Future[int]":
        asked = list_offsets(
            self._connection,
            {partition: when},
            isolation=READ_UNCOMMITTED,
            timeout_s=REQUEST_TIMEOUT_S,
        )
        return taken(asked[partition], lambda answer: answer.offset)

    def _of_group(self, group: str, api: Api, body: Value, take: Callable[[Value], T]) -> T:
        """What its coordinator answers. Raises GroupNotFound where there has never been a group."""
        try:
            self._asker.metadata(CONSUMER_OFFSETS)
        except UnknownTopicOrPartition:
            if not self._through:
                raise GroupNotFound(group) from None
        if group not in self._coordinators:
            self._coordinators[group] = Coordinator(
                self._connection, GROUP, group, lambda: self._through
            )
        coordinator = self._coordinators[group]

        def take_or_look_again(answer: Value) -> T:
            try:
                return take(answer)
            except Exception as error:
                if getattr(error, "code", 0) in (NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE):
                    coordinator.forget()
                raise

        def ask() -> "Future[T]":
            return taken(
                coordinator.ask(api, body, timeout_s=REQUEST_TIMEOUT_S), take_or_look_again
            )

        is_read = api in (DESCRIBE_GROUPS, OFFSET_FETCH)
        what = f"{api.name} of group {group}"
        return self._asker.result(self._asker.repeated(what, ask, is_read=is_read))


def _check(group: str, code: int) -> None:
    if code:
        raise group_error(group, code)


def _listed(body: Value) -> list[ListedGroup]:
    _check("(all)", body["errorCode"])
    return [
        ListedGroup(one["groupId"], one["groupState"], one["protocolType"])
        for one in body["groups"]
    ]


def _member(found: Value, is_of_consumers: bool) -> GroupMember:
    partitions: tuple[TopicPartition, ...] | None = None
    if is_of_consumers:
        try:
            partitions = read_assignment(found["memberAssignment"]).partitions
        except InvalidRecord:
            pass  # it is a client of its own kind
    return GroupMember(
        found["memberId"],
        found["groupInstanceId"],
        found["clientId"],
        found["clientHost"].removeprefix("/"),
        partitions,
    )
