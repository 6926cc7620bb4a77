"""The shell of a member's machine: it asks what the machine says, and rings when it is time.

The machine is handled by whoever brings an event: the thread of the sockets an answer, the thread
of the deadlines an alarm, the user's thread a poll. A lock makes events follow each other. So
heartbeats go on while the user works, and no thread is a consumer's own.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from raylog.cluster.client.connection import GroupConnection
from raylog.cluster.client.consumer.config import ConsumerConfig
from raylog.cluster.client.consumer.group.machine import Machine
from raylog.cluster.client.consumer.group.messages import (
    Ask,
    Change,
    ForgetCoordinator,
    GroupMetadata,
    Instruction,
    Learn,
    ListTopics,
)
from raylog.cluster.client.consumer.topics import Topics, names_or_pattern
from raylog.cluster.client.coordinator import GROUP, Coordinator
from raylog.cluster.client.patience import as_error
from raylog.storage.names import TopicPartition

logger = logging.getLogger(__name__)

_NEVER = float("inf")


class Member:
    """See the module's head. Safe for threads."""

    def __init__(
        self,
        connection: GroupConnection,
        config: ConsumerConfig,
        clock: Callable[[], float],
        wake: Callable[[], None],
    ) -> None:
        """``wake``: a poll may have something to do; called in any thread."""
        assert config.group_id is not None
        self._connection, self._config = connection, config
        self._clock, self._wake = clock, wake
        self._machine = Machine(config)
        self._lock = threading.RLock()
        self._topics: tuple[str, ...] = ()  # of partitions that the user assigns
        self._rings_at = _NEVER
        self._parked: Future[Any] | None = None  # a join or a sync
        self.coordinator = Coordinator(connection, GROUP, config.group_id, self._topics_to_ask)

    # -- the user's thread -------------------------------------------------------------------------

    def subscribe(self, topics: Topics) -> None:
        """Read these as a member. Raises InvalidRequest."""
        names, pattern = names_or_pattern(topics)
        with self._lock:
            self._machine.subscribe(names, pattern)

    def ask_through(self, topics: Iterable[str]) -> None:
        """The user assigns partitions of these topics."""
        self._topics = tuple(sorted(set(topics)))

    def poll(self) -> Change | None:
        """The user polls. Returns what the reader is to do; raises what the user is to know."""
        with self._lock:
            self._carry_out(self._machine.poll(self._clock()))
            if not self._machine.has_lost:  # else that is told first
                trouble = self._machine.take_trouble()
                if trouble is not None:
                    raise trouble
            return self._machine.change()

    def begin_again(self) -> None:
        """A call of the user was interrupted, at any line."""
        with self._lock:
            self._rings_at = _NEVER
            self.coordinator.begin_again()
            self._carry_out(self._machine.begin_again(self._clock()))

    def revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """See ``Machine.revoked``."""
        with self._lock:
            self._machine.revoked(partitions)

    def assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """See ``Machine.assigned_to_reader``."""
        with self._lock:
            self._machine.assigned_to_reader(partitions)

    def leave(self) -> "list[Future[Any]]":
        """Be no member any more; what is on its way then."""
        with self._lock:
            left = self._carry_out(self._machine.leave())
            if self._parked is not None:
                self._parked.cancel()  # it holds a place of the coordinator's process
            return left

    def commit_refused(self, code: int, generation: int) -> None:
        """See ``Machine.commit_refused``."""
        with self._lock:
            self._machine.commit_refused(code, generation)
        self._wake()

    def refresh(self, topic: str) -> None:
        """What is known of a topic may be old."""
        with self._lock:
            self._machine.watching.refresh(topic)
        self._wake()

    @property
    def metadata(self) -> GroupMetadata:
        with self._lock:
            return self._machine.metadata

    @property
    def last_metadata(self) -> GroupMetadata:
        """Also of who was expelled: see the machine."""
        with self._lock:
            return self._machine.last_metadata

    @property
    def is_subscribed(self) -> bool:
        return self._machine.is_subscribed

    @property
    def knows_topics(self) -> bool:
        """Whether the topics of the subscription are known, or something is wrong with them."""
        with self._lock:
            watching = self._machine.watching
            return watching.is_known or bool(watching.troubles)

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return self._machine.owned

    def is_added(self, partition: TopicPartition) -> bool:
        """Whether it was made after the subscription."""
        with self._lock:
            first = self._machine.watching.first_counts.get(partition.topic)
            return first is not None and first <= partition.partition

    @property
    def has_lost(self) -> bool:
        """Whether others may read what this one owns."""
        with self._lock:
            return self._machine.has_lost

    def wakes_at(self) -> float:
        """When a poll has something to do that no answer tells."""
        with self._lock:
            return self._machine.wakes_at()

    # -- instructions ------------------------------------------------------------------------------

    def _handle(self, event: Callable[[float], Sequence[Instruction]]) -> None:
        with self._lock:
            self._carry_out(event(self._clock()))
        self._wake()

    def _carry_out(self, instructions: Sequence[Instruction]) -> "list[Future[Any]]":
        """With the lock held."""
        asked = [self._ask(each) for each in instructions if isinstance(each, Ask)]
        for each in instructions:
            if isinstance(each, Learn):
                self._learn(each.topic)
            elif isinstance(each, ListTopics):
                self._list_topics()
            elif isinstance(each, ForgetCoordinator):
                self.coordinator.forget()
        for note in self._machine.notes:
            logger.warning("%s", note)
        self._machine.notes.clear()
        self._set_alarm()
        return asked

    def _ask(self, ask: Ask) -> "Future[Any]":
        asked = self.coordinator.ask(ask.api, ask.body, timeout_s=ask.timeout_s, may_wait=ask.waits)
        if ask.waits:
            self._parked = asked
        asked.add_done_callback(partial(self._answered, ask.number))
        return asked

    def _answered(self, number: int, done: "Future[Any]") -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            self._handle(lambda now: self._machine.answered(number, done.result(), now))
        else:
            self._handle(lambda now: self._machine.failed(number, as_error(error), now))

    def _learn(self, topic: str) -> None:
        asked = self._connection.metadata(topic, timeout_s=self._config.request_timeout_s)
        asked.add_done_callback(partial(self._learned, topic))

    def _learned(self, topic: str, done: "Future[Any]") -> None:
        error = done.exception()
        if error is not None:
            self._handle(lambda now: self._machine.not_learned(topic, as_error(error), now))
            return
        count = len(done.result().partitions)
        self._handle(lambda now: self._machine.learned(topic, count, now))

    def _list_topics(self) -> None:
        asked = self._connection.list_topics(timeout_s=self._config.request_timeout_s)
        asked.add_done_callback(self._listed)

    def _listed(self, done: "Future[Any]") -> None:
        if done.exception() is None:
            self._handle(lambda now: self._machine.listed(done.result(), now))
        else:
            self._handle(self._machine.not_listed)

    def _topics_to_ask(self) -> Sequence[str]:
        return self._machine.watching.topics or self._topics

    # -- alarms ------------------------------------------------------------------------------------

    def _set_alarm(self) -> None:
        """Unless one is set that rings before."""
        rings_at = self._machine.rings_at()
        if rings_at < self._rings_at:
            self._rings_at = rings_at
            seconds = max(rings_at - self._clock(), 0.0)
            self._connection.call_later(seconds, partial(self._ring, rings_at))

    def _ring(self, rings_at: float) -> None:
        with self._lock:
            if rings_at == self._rings_at:
                self._rings_at = _NEVER
        self._handle(self._machine.go_on)
