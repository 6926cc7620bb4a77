"""How far a group has read: commits of it, and questions for it.

A request that may pass is repeated until its time is up. A commit of a member carries its
generation, so that nobody commits what others read by now.
"""

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from typing import Generic, TypeVar

from raylog.actors.coordinators.codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    FENCED_INSTANCE_ID,
    ILLEGAL_GENERATION,
    NOT_COORDINATOR,
    OFFSET_METADATA_TOO_LARGE,
    UNKNOWN_MEMBER_ID,
    UNSTABLE_OFFSET_COMMIT,
)
from raylog.actors.coordinators.errors import (
    CommitFailed,
    CoordinatorNotAvailable,
    OffsetMetadataTooLarge,
    UnstableOffsets,
    group_error,
)
from raylog.actors.errors import ReadTimedOut, RequestTimedOut, UnknownTopicOrPartition
from raylog.actors.plane.apis.api import Api
from raylog.actors.plane.apis.groups import OFFSET_COMMIT, OFFSET_FETCH
from raylog.cluster.client.consumer.config import ConsumerConfig
from raylog.cluster.client.consumer.group.bodies import commit_body, fetch_body
from raylog.cluster.client.consumer.group.member import Member
from raylog.cluster.client.consumer.group.messages import (
    NO_GENERATION,
    OffsetAndMetadata,
)
from raylog.cluster.client.consumer.waiter import Waiter
from raylog.cluster.client.patience import may_pass
from raylog.cluster.client.repeating import taken
from raylog.storage.names import TopicPartition
from raylog.storage.schemas.types import Value

T = TypeVar("T")
Committed = dict[TopicPartition, OffsetAndMetadata]

_PASSING = (CoordinatorNotAvailable, UnstableOffsets)
_MOVED = (COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR)
_NOT_SERVED = (*_MOVED, COORDINATOR_LOAD_IN_PROGRESS)
NOT_A_MEMBER = {
    UNKNOWN_MEMBER_ID: "the coordinator does not know this consumer as a member (any more)",
    ILLEGAL_GENERATION: "the group has been rebalanced without it",
    FENCED_INSTANCE_ID: "another consumer has taken over its group.instance.id",
}


class GroupOffsets:
    """What one consumer asks of its group's offsets."""

    def __init__(self, member: Member, config: ConsumerConfig) -> None:
        assert config.group_id is not None
        self._member, self._config, self._group = member, config, config.group_id

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> "Future[Committed]":
        """Send a commit, once. The future fails with what the coordinator says."""
        who, wanted = self._member.metadata, dict(offsets)
        if not wanted:
            nothing: Future[Committed] = Future()
            nothing.set_result({})
            return nothing
        if self._member.is_subscribed and who.generation == NO_GENERATION:
            refused: Future[Committed] = Future()
            refused.set_exception(CommitFailed(self._group, "this consumer is no member of it now"))
            return refused

        def take(body: Value) -> Committed:
            for topic in body["topics"]:
                for part in topic["partitions"]:
                    partition = TopicPartition(topic["name"], part["partitionIndex"])
                    self._check_commit(partition, part["errorCode"], who.generation)
            return wanted

        return taken(self._ask(OFFSET_COMMIT, commit_body(who, wanted)), take)

    def _check_commit(self, partition: TopicPartition, code: int, generation: int) -> None:
        """Raise the error that a commit was answered with."""
        if not code:
            return
        self._note(code)
        self._member.commit_refused(code, generation)
        if code in NOT_A_MEMBER:
            raise CommitFailed(self._group, NOT_A_MEMBER[code])
        if code == OFFSET_METADATA_TOO_LARGE:
            raise OffsetMetadataTooLarge(str(partition))
        if code == UnknownTopicOrPartition.code:
            raise UnknownTopicOrPartition(*partition, "so nothing can be committed for it")
        raise group_error(self._group, code)

    def committed(
        self, partitions: Collection[TopicPartition]
    ) -> "Future[dict[TopicPartition, OffsetAndMetadata | None]]":
        """Where the group stands; None where it has committed nothing."""

        def take(body: Value) -> dict[TopicPartition, OffsetAndMetadata | None]:
            (group,) = body["groups"]
            self._check(group["errorCode"])
            return {
                TopicPartition(topic["name"], part["partitionIndex"]): self._committed_of(part)
                for topic in group["topics"]
                for part in topic["partitions"]
            }

        body = fetch_body(self._group, partitions, must_be_stable=True)
        return taken(self._ask(OFFSET_FETCH, body), take)

    def _committed_of(self, part: Value) -> OffsetAndMetadata | None:
        if part["errorCode"] == UNSTABLE_OFFSET_COMMIT:
            raise UnstableOffsets(self._group)
        self._check(part["errorCode"])
        if part["committedOffset"] < 0:
            return None
        return OffsetAndMetadata(
            part["committedOffset"], part["metadata"] or "", part["committedLeaderEpoch"]
        )

    def _check(self, code: int) -> None:
        if code:
            self._note(code)
            raise group_error(self._group, code)

    def _note(self, code: int) -> None:
        if code in _MOVED:
            self._member.coordinator.forget()

    def _ask(self, api: Api, body: Value) -> "Future[Value]":
        timeout_s = self._config.request_timeout_s
        return self._member.coordinator.ask(api, body, timeout_s=timeout_s)


class Repeated(Generic[T]):
    """A request that is repeated while its error may pass, until its time is up."""

    def __init__(
        self,
        what: str,
        ask: Callable[[], "Future[T]"],
        waiter: Waiter,
        *,
        timeout_s: float,
        backoff_s: float,
        is_read: bool,
    ) -> None:
        """``what``: as an error names it."""
        self._what, self._ask, self._waiter = what, ask, waiter
        self._timeout_s, self._backoff_s, self._is_read = timeout_s, backoff_s, is_read
        self._ends_at = waiter.now() + timeout_s
        self._retry_at = 0.0
        self._asked: Future[T] | None = None
        self._error: BaseException | None = None
        self._begin()

    def _begin(self) -> None:
        self._asked = self._ask()
        self._asked.add_done_callback(lambda _: self._waiter.wake())

    def has_ended(self) -> bool:
        """Take an answer that has come; ask again where it is time."""
        now = self._waiter.now()
        if self._asked is None:
            if now < min(self._retry_at, self._ends_at):
                return False
            if now < self._ends_at:
                self._begin()
        if self._asked is None or (not self._asked.done() and now >= self._ends_at):
            kind = ReadTimedOut if self._is_read else RequestTimedOut
            self._error = self._error or kind(self._what, int(self._timeout_s * 1000))
            return True
        if not self._asked.done():
            return False
        error = self._asked.exception()
        if error is not None and passes(error) and now < self._ends_at:
            self._error = error
            self._asked, self._retry_at = None, now + self._backoff_s
            return False
        self._error = error
        return True

    def wakes_at(self) -> float:
        """When it goes on without an answer."""
        return self._ends_at if self._asked is not None else min(self._retry_at, self._ends_at)

    def result(self) -> T:
        """Once it has ended. Raises its error."""
        if self._error is not None:
            raise self._error
        assert self._asked is not None
        return self._asked.result()


def passes(error: BaseException) -> bool:
    """Whether to ask again before anybody is told."""
    return isinstance(error, _PASSING) or may_pass(error)
