"""A worker that reads as a member of a group: it shares all topics with the others, and commits
what it has got."""

import time
from collections.abc import Iterable
from typing import Any

from raylog.actors.coordinators.errors import CommitFailed, RebalanceInProgress
from raylog.cluster.client.consumer import Consumer
from raylog.storage.errors import RaylogError
from raylog.storage.names import TopicPartition
from tests.soak.clients import STOP_READING, Worker
from tests.soak.history import (
    FAIL,
    GAINED,
    GIVEN_UP,
    INFO,
    LOST,
    NEVER,
    OK,
    GroupCommit,
    GroupRead,
    Ownership,
    Partition,
    ints,
)
from tests.soak.plan import Stable

GROUP = "soak"
LIFE_S = (10.0, 60.0)
COMMIT_EVERY_S = 1.0
QUIET_S = 10.0  # of who reads to the end: nothing comes for so long
DRAIN_S = 300.0
SETTINGS: dict[str, Any] = {
    "group_id": GROUP,
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
    "session_timeout_ms": 10_000,
    "max_poll_interval_ms": 60_000,
}


def consume(worker: Worker, topics: list[Stable]) -> None:
    """Be a member again and again until told to stop, then read to the end."""
    lives = 0
    while not worker.is_over(STOP_READING):
        lives += 1
        try:
            with GroupMember(worker, topics, f"{worker.name}.{lives}") as member:
                end = time.monotonic() + worker.rng.uniform(*LIFE_S)
                while time.monotonic() < end and not worker.is_over(STOP_READING):
                    member.poll()
                if worker.is_over(STOP_READING):
                    member.drain()
        except Exception as error:
            worker.surprise(error)
            time.sleep(1)


class GroupMember:
    """One consumer, whose every answer is taken down."""

    def __init__(self, worker: Worker, topics: list[Stable], name: str) -> None:
        self._worker, self._name = worker, name
        self._ids = {topic.name: topic.topic_id for topic in topics}
        self._next: dict[TopicPartition, int] = {}  # behind what was got and is not committed
        self._committed_s = time.monotonic()
        self._consumer: Consumer = worker.broker.consumer(**SETTINGS)
        worker.patiently(
            lambda: self._consumer.subscribe(
                sorted(self._ids),
                on_assign=lambda _, some: self._take_down(GAINED, some),
                on_revoke=self._give_up,
                on_lost=lambda _, some: self._lose(some),
            )
        )

    def __enter__(self) -> "GroupMember":
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def poll(self) -> int:
        """Returns how many records it got."""
        invoked = time.monotonic_ns()
        try:
            rows = self._consumer.poll(500)
        except RaylogError as error:
            if not error.retriable:
                raise
            print(f"{self._name}: {error}", flush=True)
            return 0
        found: dict[TopicPartition, list[int]] = {}
        for row in rows:
            found.setdefault(TopicPartition(row.topic, row.partition), []).append(row.offset)
        for place, offsets in found.items():
            self._worker.writer.write(
                GroupRead(
                    self._name, self._known(place), invoked, time.monotonic_ns(), ints(offsets)
                )
            )
            self._next[place] = offsets[-1] + 1
        if time.monotonic() > self._committed_s + COMMIT_EVERY_S:
            self._commit(dict(self._next))
        return len(rows)

    def drain(self) -> None:
        """Read on until nothing comes any more."""
        deadline = time.monotonic() + DRAIN_S
        quiet_since = time.monotonic()
        while time.monotonic() < min(deadline, quiet_since + QUIET_S):
            if self.poll():
                quiet_since = time.monotonic()

    # -- changes -----------------------------------------------------------------------------------

    def _give_up(self, _: object, some: list[TopicPartition]) -> None:
        self._commit({place: self._next[place] for place in some if place in self._next})
        self._forget(some)
        self._take_down(GIVEN_UP, some)

    def _lose(self, some: list[TopicPartition]) -> None:
        self._forget(some)
        self._take_down(LOST, some)

    def _forget(self, some: Iterable[TopicPartition]) -> None:
        for place in some:
            self._next.pop(place, None)

    def _take_down(self, change: str, some: Iterable[TopicPartition]) -> None:
        generation = self._consumer.group_metadata().generation
        for place in some:
            self._worker.writer.write(
                Ownership(self._name, self._known(place), generation, change, time.monotonic_ns())
            )

    # -- commits -----------------------------------------------------------------------------------

    def _commit(self, offsets: dict[TopicPartition, int]) -> None:
        self._committed_s = time.monotonic()
        if not offsets:
            return
        invoked = time.monotonic_ns()
        self._tell(offsets, invoked, NEVER, INFO)
        try:
            self._consumer.commit(offsets)
            outcome = OK
        except (CommitFailed, RebalanceInProgress) as error:
            print(f"{self._name}: {error}", flush=True)
            outcome = FAIL
        except RaylogError as error:
            if not error.retriable:
                raise
            print(f"{self._name}: {error}", flush=True)
            outcome = INFO
        self._tell(offsets, invoked, time.monotonic_ns(), outcome)
        if outcome == OK:
            self._next = {place: at for place, at in self._next.items() if offsets.get(place) != at}

    def _tell(
        self, offsets: dict[TopicPartition, int], invoked: int, completed: int, outcome: str
    ) -> None:
        for place, offset in offsets.items():
            self._worker.writer.write(
                GroupCommit(self._name, self._known(place), offset, invoked, completed, outcome)
            )

    def _known(self, place: TopicPartition) -> Partition:
        return Partition(place.topic, self._ids[place.topic], place.partition)
