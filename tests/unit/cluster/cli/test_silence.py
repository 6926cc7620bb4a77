"""Partitions that do not answer are named soon, once, and end a reader that has an end."""

from collections.abc import Sequence

import pytest

from raylog.actors.errors import ConsumerWokenUp, NotLeader
from raylog.cluster.cli import consume
from raylog.cluster.cli.consume import Range
from raylog.cluster.cli.silence import CONTROLLER, GIVE_UP_AFTER_S, TOLD_AFTER_S, Watch, Watched
from raylog.cluster.client.consumer import Consumer
from raylog.storage.testing.logs import batch
from tests.harness.consuming import FakeConnection, ManualWaiter

MUST_END_S = 200.0


class Reading:
    """A consumer of ``t``, which has two partitions of one record, and who watches it."""

    def __init__(self, *, is_bounded: bool = False, hanging: Sequence[int] = ()) -> None:
        self.connection = FakeConnection(t=2)
        for served in self.connection.topics["t"]:
            served.partition.append(batch(1))
        for number in hanging:
            self.connection.topics["t"][number].hangs = True
        watched = Watched(self.connection, lambda: self.connection.now_s)  # type: ignore[arg-type]
        self.watched = watched
        self.consumer = Consumer(
            watched,  # type: ignore[arg-type]
            auto_offset_reset="none",
            _waiter=ManualWaiter(self.connection),
        )
        self.told: list[str] = []
        give_up = self.consumer.wakeup if is_bounded else None
        self.watch = Watch(watched, self.told.append, give_up)
        end = "latest" if is_bounded else None
        consume._assign(self.consumer, ["t"], None, Range("earliest", end, None))
        self.began = self.connection.now_s

    @property
    def passed_s(self) -> float:
        return self.connection.now_s - self.began

    def read(self, seconds: float) -> int:
        """Read for so long; returns how many records came."""
        until, count = self.connection.now_s + seconds, 0
        while self.connection.now_s < until:
            count += len(consume._poll(self.consumer, None, is_bounded=False))
            self.watch.look()
        return count


def test_a_partition_that_hangs_is_named_within_seconds_and_once() -> None:
    reading = Reading(hanging=[1])
    assert reading.read(TOLD_AFTER_S - 1) == 1
    assert reading.told == []
    reading.read(60)
    told = "waiting: t-1 does not answer; `raylog health` says why, and what to do"
    assert reading.told == [told]


def test_a_partition_that_hangs_again_is_named_again() -> None:
    reading = Reading()
    served = reading.connection.topics["t"][1]
    for _ in range(2):
        served.hangs = True
        reading.read(TOLD_AFTER_S + 2)
        served.hangs = False
        reading.read(2)
    assert len(reading.told) == 2


def test_nobody_is_named_while_a_partition_waits_for_records() -> None:
    reading = Reading()
    assert reading.read(120) == 2
    assert reading.told == []


def test_a_partition_that_is_away_is_named_over_all_its_repetitions() -> None:
    reading = Reading()
    reading.connection.topics["t"][0].fault = NotLeader("t-0", "it is away")
    reading.read(TOLD_AFTER_S + 2)
    assert reading.told[0].startswith("waiting: t-0 does not answer")


def test_a_reader_with_an_end_gives_up_after_one_deadline() -> None:
    reading = Reading(is_bounded=True, hanging=[1])
    with pytest.raises(ConsumerWokenUp):
        reading.read(MUST_END_S)
    assert GIVE_UP_AFTER_S <= reading.passed_s < GIVE_UP_AFTER_S + 2
    assert reading.watch.given_up() == ["t-1"]


def away_once(reading: Reading) -> None:
    """t-1 has refused a fetch, and serves again."""
    served = reading.connection.topics["t"][1]
    served.fault = NotLeader("t-1", "it restarts")
    consume._poll(reading.consumer, 1, is_bounded=True)
    served.fault = None


def test_while_the_reader_of_a_pipe_is_slow_nobody_is_silent_who_is_not_asked() -> None:
    reading = Reading(is_bounded=True)
    away_once(reading)
    with reading.watched.resting():
        reading.connection.now_s += GIVE_UP_AFTER_S + 10
        reading.watch.look()
    reading.watch.look()
    assert (reading.told, reading.watch.given_up()) == ([], [])


def test_who_has_a_request_under_way_is_silent_also_while_the_pipe_is_slow() -> None:
    reading = Reading(hanging=[1])
    reading.read(1)
    with reading.watched.resting():
        reading.connection.now_s += TOLD_AFTER_S
        reading.connection.tick()  # t-0 has waited for records
        reading.watch.look()
    assert reading.told[0].startswith("waiting: t-1 does not answer")


def test_a_partition_that_is_not_wanted_any_more_is_not_silent() -> None:
    reading = Reading(hanging=[0, 1])
    reading.read(1)
    reading.watched.keep(["t-0"])
    reading.read(TOLD_AFTER_S)
    assert reading.told[0].startswith("waiting: t-0 does not answer")


def test_a_controller_that_does_not_answer_is_named() -> None:
    connection = FakeConnection(t=1)
    watched = Watched(connection, lambda: connection.now_s)  # type: ignore[arg-type]
    connection.fault = NotLeader("the metadata of t", "it is away")
    told: list[str] = []
    watched.metadata("t", timeout_s=30)
    connection.now_s += TOLD_AFTER_S
    watched.metadata("t", timeout_s=30)
    Watch(watched, told.append).look()
    assert told[0].startswith(f"waiting: {CONTROLLER} does not answer")
