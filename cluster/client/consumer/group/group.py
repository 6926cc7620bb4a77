"""A consumer's side of its group: it carries changes of the assignment out, and commits.

Everything here belongs to the consumer's thread, and nothing waits: ``advance`` goes as far as it
can, and is called again when an answer has come.

::

    revoke    the user's on_revoke -> commit (by itself) -> no longer read
    lost      the user's on_lost   ->                       no longer read
    assign    ask where the group stands -> read from there -> the user's on_assign

A user's function may call the consumer. Then nothing of this goes on: a poll within it returns what
is there, and who closes or unsubscribes ends all of it.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from raylog.cluster.client.connection import GroupConnection
from raylog.cluster.client.consumer.config import ConsumerConfig
from raylog.cluster.client.consumer.group.machine import LEAVE_TIMEOUT_S
from raylog.cluster.client.consumer.group.member import Member
from raylog.cluster.client.consumer.group.messages import (
    Assign,
    GroupMetadata,
    OffsetAndMetadata,
    Revoke,
)
from raylog.cluster.client.consumer.group.offsets import Committed, GroupOffsets, Repeated
from raylog.cluster.client.consumer.instructions import OffsetAndEpoch, Start, When
from raylog.cluster.client.consumer.places import Places, starts
from raylog.cluster.client.consumer.topics import Topics
from raylog.cluster.client.consumer.waiter import Waiter
from raylog.storage.names import TopicPartition
from raylog.storage.readable import EARLIEST
from raylog.storage.records.record import ConsumerRecord

logger = logging.getLogger(__name__)

_NEVER: Final = float("inf")
# What a revocation waits for its commit at most: the other members wait meanwhile.
COMMIT_TIMEOUT_S: Final = 10.0

Partitions = list[TopicPartition]
Listener = Callable[[Any, Partitions], object]  # gets the Consumer, and the partitions
Known = dict[TopicPartition, OffsetAndMetadata | None]
# What a user says about places to commit: see ``given.py``.
Offsets = Iterable[ConsumerRecord] | ConsumerRecord | Mapping[Any, Any] | None


class Listeners(NamedTuple):
    """What a user wants to be called for, in a poll, each with the consumer and the partitions."""

    on_assign: Listener | None = None
    on_revoke: Listener | None = None
    on_lost: Listener | None = None  # None: on_revoke is called


@dataclass(slots=True)
class _Revoking:
    """A revocation of which the user knows, and what is left of it to do."""

    change: Revoke
    is_committed: bool = False  # its commit is on its way, or there is nothing to commit
    commit: Repeated[Committed] | None = None


class Reader(Protocol):
    """What the consumer does for its group."""

    def begin(self, starts: Mapping[TopicPartition, Start | None]) -> None:
        """Read these partitions, too."""

    def stop(self, partitions: Collection[TopicPartition]) -> None:
        """Read these no more."""

    def offsets(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Behind the records that the user got last, where that is known."""

    def call(self, listener: Listener, partitions: Partitions) -> None:
        """Call the user's function. Raises whatever it does."""


class Group:
    """See the module's head."""

    def __init__(
        self, connection: GroupConnection, config: ConsumerConfig, waiter: Waiter, reader: Reader
    ) -> None:
        self._config, self._waiter, self._reader = config, waiter, reader
        self._member = Member(connection, config, waiter.now, waiter.wake)
        self._offsets = GroupOffsets(self._member, config)
        self._listeners = Listeners()
        self._start_of: Callable[[TopicPartition], Start | None] = lambda _: None
        self._stored: dict[TopicPartition, OffsetAndMetadata] = {}
        self._known: Committed = {}  # what this consumer has committed last
        self._revoking: _Revoking | None = None
        self._is_calling = False  # a function of the user's
        self._assigning: tuple[Assign, Repeated[Known]] | None = None
        self._commit_at = _NEVER
        self._committing: Future[Committed] | None = None  # by itself
        self._noted: deque[Committed] = deque()  # commits that have ended, in any thread

    # -- membership --------------------------------------------------------------------------------

    @property
    def is_subscribed(self) -> bool:
        return self._member.is_subscribed

    def knows_topics(self) -> bool:
        """Go on as far as no change has to be done; whether the subscription is known.

        Raises what is wrong with it.
        """
        self._member.poll()
        return self._member.knows_topics

    @property
    def metadata(self) -> GroupMetadata:
        return self._member.last_metadata

    def subscribe(self, topics: Topics, from_: Places, listeners: Listeners) -> None:
        """Read these as a member. ``from_``: where the group has committed nothing."""
        start_of = starts(from_)
        self._member.subscribe(topics)
        self._start_of, self._listeners = start_of, listeners

    def refresh(self, topic: str) -> None:
        """What is known of a topic may be old."""
        self._member.refresh(topic)

    def advance(self) -> bool:
        """The user polls: go on. False while records must not be handed out."""
        if self._is_calling:
            return True
        while (change := self._member.poll()) is not None:
            if isinstance(change, Revoke):
                if not self._has_revoked(change):
                    return False
            elif not self._has_assigned(change):
                break
        self._commit_by_itself()
        return True

    def begin_again(self) -> None:
        """A call of the user was interrupted, at any line."""
        if self._revoking is not None:  # the user knows of it
            self._revoking.is_committed, self._revoking.commit = False, None
        self._assigning = self._committing = None
        self._is_calling = False
        self._member.begin_again()

    def wakes_at(self) -> float:
        """When there is something to do that no answer tells."""
        times = [self._member.wakes_at()]
        if self._revoking is not None and self._revoking.commit is not None:
            times.append(self._revoking.commit.wakes_at())
        elif self._committing is None:
            times.append(self._commit_at)
        if self._assigning is not None:
            times.append(self._assigning[1].wakes_at())
        return min(times)

    def _has_revoked(self, change: Revoke) -> bool:
        """Whether it is done. Raises what the user's function raises, which is not called again."""
        if self._revoking is None or self._revoking.change != change:
            self._revoking = _Revoking(change)
            self._tell_of(change)
        if self._revoking is None:
            return True  # the user's function has ended the membership
        if not self._revoking.is_committed:
            self._revoking.commit = self._last_commit(change)
            self._revoking.is_committed = True
        commit = self._revoking.commit
        if commit is not None:
            if not commit.has_ended():
                return False
            self._note_end(commit.result)
        self._revoking = None
        self._stop(change.partitions)
        self._member.revoked(change.partitions)
        return True

    def _tell_of(self, change: Revoke) -> None:
        on_revoke, on_lost = self._listeners.on_revoke, self._listeners.on_lost
        listener = (on_lost or on_revoke) if change.is_lost else on_revoke
        if listener is not None:
            self._call(listener, change.partitions)

    def _call(self, listener: Listener, partitions: Collection[TopicPartition]) -> None:
        self._is_calling = True
        try:
            self._reader.call(listener, list(partitions))
        finally:
            self._is_calling = False

    def _last_commit(self, change: Revoke) -> Repeated[Committed] | None:
        if change.is_lost or not self._config.commits_by_itself:
            return None
        gone = {each: at for each, at in self._news().items() if each in change.partitions}
        if not gone:
            return None
        return self._repeated_commit(gone, COMMIT_TIMEOUT_S)

    def _stop(self, partitions: Collection[TopicPartition]) -> None:
        self._reader.stop(partitions)
        for each in partitions:
            self._stored.pop(each, None)
            self._known.pop(each, None)

    def _has_assigned(self, change: Assign) -> bool:
        """Whether it is done. Raises what the coordinator or the user's function raises."""
        if change.partitions:
            if self._assigning is None or self._assigning[0] != change:
                self._assigning = (change, self.ask_committed(change.partitions))
            asked = self._assigning[1]
            if not asked.has_ended():
                return False
            self._assigning = None
            known = asked.result()
            self._reader.begin({each: self.start(each, known) for each in change.partitions})
            self._known |= {each: at for each, at in known.items() if at is not None}
        self._member.assigned(change.partitions)
        if self._config.commits_by_itself and self._commit_at == _NEVER:
            self._schedule_commit()
        if self._listeners.on_assign is not None:
            self._call(self._listeners.on_assign, change.partitions)
        return True

    def start(self, partition: TopicPartition, known: Known) -> Start | None:
        """Where to begin: where the group stands, else as the user has said."""
        committed = committed_start(known, partition)
        if committed is not None:
            return committed
        if self._member.is_added(partition):
            return When(EARLIEST)  # it came after the subscription: nothing of it is left out
        return self._start_of(partition)

    def leave(self, *, commits: bool) -> None:
        """Give everything back, and wait for it a moment. Raises what the user's function does.

        ``commits``: what was read, if the group commits by itself.
        """
        owned, is_lost = tuple(sorted(self._member.owned)), self._member.has_lost
        is_called = self._is_calling or self._revoking is not None
        try:
            if owned and not is_called:
                self._tell_of(Revoke(owned, self.metadata.generation, is_lost))
        finally:
            if commits and not is_lost and self._config.commits_by_itself:
                self._commit_and_wait()
            self._reader.stop(owned)
            self._end_membership()

    def _commit_and_wait(self) -> None:
        news = self._news()
        if not news:
            return
        commit = self._repeated_commit(news, COMMIT_TIMEOUT_S)
        while not commit.has_ended():
            self._waiter.wait(max(commit.wakes_at() - self._waiter.now(), 0))
        self._note_end(commit.result)

    def _end_membership(self) -> None:
        ends_at = self._waiter.now() + LEAVE_TIMEOUT_S
        left = self._member.leave()
        for future in left:
            future.add_done_callback(lambda _: self._waiter.wake())
        while not all(one.done() for one in left) and self._waiter.now() < ends_at:
            self._waiter.wait(ends_at - self._waiter.now())
        self._revoking = self._assigning = self._committing = None
        self._commit_at = _NEVER
        self._stored.clear()
        self._known.clear()

    # -- offsets -----------------------------------------------------------------------------------

    def store(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """These are to be committed, with the next commit."""
        self._stored |= offsets

    def forget_stored(self, partitions: Collection[TopicPartition]) -> None:
        """What was read of these is read again."""
        for each in partitions:
            self._stored.pop(each, None)

    def to_commit(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """What a commit without offsets commits."""
        if self._config.enable_auto_offset_store:
            return {**self._reader.offsets(), **self._stored}
        return self._stored

    def _news(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Of that, what is not committed yet."""
        while self._noted:
            self._known |= self._noted.popleft()
        found = self.to_commit()
        return {each: at for each, at in found.items() if self._known.get(each) != at}

    def commit_once(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> "Future[Committed]":
        """Send a commit, once."""
        sent = self._offsets.commit(offsets)
        sent.add_done_callback(
            lambda done: None if done.exception() else self._noted.append(done.result())
        )
        return sent

    def repeated_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Repeated[Committed]:
        """A commit that is sent until it has an answer."""
        return self._repeated_commit(offsets, self._config.default_api_timeout_ms / 1000)

    def _repeated_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_s: float
    ) -> Repeated[Committed]:
        return Repeated(
            f"a commit of group {self._config.group_id}",
            lambda: self._offsets.commit(offsets),
            self._waiter,
            timeout_s=timeout_s,
            backoff_s=self._config.retry_backoff_s,
            is_read=False,
        )

    def ask_committed(self, partitions: Collection[TopicPartition]) -> Repeated[Known]:
        """Where the group stands, asked until it is answered."""
        return Repeated(
            f"the offsets of group {self._config.group_id}",
            lambda: self._offsets.committed(partitions),
            self._waiter,
            timeout_s=self._config.default_api_timeout_ms / 1000,
            backoff_s=self._config.retry_backoff_s,
            is_read=True,
        )

    def note(self, committed: Committed) -> None:
        """These were committed: they need not be again."""
        self._known |= committed

    def begin(self, partitions: Collection[TopicPartition]) -> None:
        """The user assigns these: commit what is read of them, from now on."""
        self._member.ask_through(each.topic for each in partitions)
        if self._config.commits_by_itself:
            self._schedule_commit()

    def _schedule_commit(self) -> None:
        self._commit_at = self._waiter.now() + self._config.auto_commit_interval_ms / 1000

    def _commit_by_itself(self) -> None:
        if self._committing is not None and self._committing.done():
            done, self._committing = self._committing, None
            self._note_end(done.result)
        if self._committing is None and self._waiter.now() >= self._commit_at:
            self._schedule_commit()
            if news := self._news():
                self._committing = self._offsets.commit(news)

    def _note_end(self, result: Callable[[], Committed]) -> None:
        """A commit that nobody has asked for has ended. One that failed is made up for later."""
        try:
            self.note(result())
        except Exception as error:
            logger.warning("group %s: offsets are not committed: %s", self._config.group_id, error)


def committed_start(known: Known, partition: TopicPartition) -> Start | None:
    """Where the group stands in a partition, if it has committed anything."""
    committed = known.get(partition)
    if committed is None:
        return None
    return OffsetAndEpoch(committed.offset, committed.leader_epoch)
