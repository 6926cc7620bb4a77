"""A consumer's question for offsets: what it asks again, and when it wakes by itself."""

from concurrent.futures import Future
from typing import Any, cast

import pytest

from raylog.actors.errors import NotLeader, UnknownTopicOrPartition
from raylog.cluster.client.connection import Connection, OffsetAnswer, OffsetRequest
from raylog.cluster.client.consumer.asking import Asking
from raylog.cluster.client.consumer.config import ConsumerConfig
from raylog.cluster.client.consumer.waiter import Waiter
from raylog.storage.names import TopicPartition
from raylog.storage.readable import LATEST
from tests.harness.consuming import FakeConnection

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
CONFIG = ConsumerConfig.of({})


class Held(FakeConnection):
    """It answers when the test does."""

    def __init__(self) -> None:
        super().__init__(t=2)
        self.asked: dict[int, Future[Any]] = {}

    def list_offset(self, request: OffsetRequest, *, timeout_s: float) -> "Future[Any]":
        self.asked[request.partition] = Future()
        return self.asked[request.partition]


class Clock(Waiter):
    now_s = 100.0

    def now(self) -> float:
        return self.now_s


def asking_of(connection: Held, clock: Clock) -> Asking:
    wanted = {FIRST: LATEST, SECOND: LATEST}
    asking = Asking(cast(Connection, connection), wanted, CONFIG, clock)
    assert not asking.has_ended()
    return asking


def test_who_waits_for_the_second_answer_does_not_wake_without_it() -> None:
    """It woke at once, again and again."""
    connection = Held()
    asking = asking_of(connection, Clock())
    connection.asked[0].set_result(OffsetAnswer(7, -1, 0))
    assert not asking.has_ended()
    assert asking.wakes_at() == float("inf")
    connection.asked[1].set_result(OffsetAnswer(9, -1, 0))
    assert asking.has_ended()
    assert asking.offsets() == {FIRST: 7, SECOND: 9}


def test_a_partition_that_is_away_is_asked_again_after_a_pause() -> None:
    connection, clock = Held(), Clock()
    asking = asking_of(connection, clock)
    connection.asked.pop(0).set_exception(NotLeader("t-0", "it is opened elsewhere"))
    assert not asking.has_ended()
    assert connection.forgotten == [("t", 0)]
    assert asking.wakes_at() == clock.now_s + CONFIG.retry_backoff_s
    assert 0 not in connection.asked
    clock.now_s = asking.wakes_at()
    assert not asking.has_ended()
    assert 0 in connection.asked


def test_an_error_that_does_not_pass_ends_it() -> None:
    connection = Held()
    asking = asking_of(connection, Clock())
    error = UnknownTopicOrPartition("t", 0, "it is gone")
    connection.asked.pop(0).set_exception(error)
    assert asking.has_ended()
    assert 0 not in connection.asked
    with pytest.raises(UnknownTopicOrPartition):
        asking.offsets()
