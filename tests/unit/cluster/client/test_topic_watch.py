"""Clients notice added partitions: in time, without waiting, at once in the same process."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from raylog.actors.errors import BrokerNotFound, NotLeader
from raylog.cluster.client.topic_watch import TopicWatch, partitions_added
from raylog.storage.errors import InvalidConfig

MAX_AGE_MS = 5000


class Broker:
    """Answers when it is told to."""

    namespace = "here"

    def __init__(self) -> None:
        self.partitions, self.asked = 2, 0
        self.answers = True
        self.fault: Exception | None = None

    def describe_later(self, topic: str) -> Callable[[], Any]:
        self.asked += 1
        if isinstance(self.fault, BrokerNotFound):
            raise self.fault
        return self.answer

    def answer(self) -> Any:
        if self.fault is not None:
            raise self.fault
        return SimpleNamespace(partitions=range(self.partitions)) if self.answers else None


class Followed:
    """A watch of the topic ``t``, and its clock."""

    def __init__(self) -> None:
        self.broker, self.now_s = Broker(), 100.0
        self.watch = TopicWatch(self.broker, MAX_AGE_MS, lambda: self.now_s)  # type: ignore[arg-type]
        self.watch.follow(["t"])

    def after(self, seconds: float) -> dict[str, int]:
        self.now_s += seconds
        self.watch.tick()
        return self.watch.take()


@pytest.fixture
def followed() -> Followed:
    return Followed()


def test_it_asks_when_the_metadata_is_too_old_and_not_before(followed: Followed) -> None:
    assert followed.after(4.9) == {}
    assert followed.broker.asked == 0
    assert followed.after(0.1) == {"t": 2}
    followed.broker.partitions = 3
    assert followed.after(4.9) == {}
    assert followed.after(0.1) == {"t": 3}
    assert followed.broker.asked == 2


def test_an_answer_that_takes_its_time_is_taken_later_and_asked_for_once(
    followed: Followed,
) -> None:
    followed.broker.answers = False
    for _ in range(3):
        assert followed.after(5) == {}
    assert followed.broker.asked == 1
    followed.broker.answers = True
    assert followed.after(0.1) == {"t": 2}


@pytest.mark.parametrize("fault", [BrokerNotFound("here"), NotLeader("the broker", "restarting")])
def test_a_broker_that_is_away_is_asked_again_later(followed: Followed, fault: Exception) -> None:
    followed.broker.fault = fault
    assert followed.after(5) == {}
    followed.broker.fault = None
    assert followed.after(5) == {"t": 2}


def test_what_this_process_adds_is_known_at_once(followed: Followed) -> None:
    partitions_added("elsewhere", "t", 9)
    partitions_added("here", "other", 9)
    assert followed.watch.news == {}
    partitions_added("here", "t", 4)
    assert followed.watch.take() == {"t": 4}
    assert followed.broker.asked == 0


@pytest.mark.parametrize("age", [0, -1, 1.5, True, "5"])
def test_an_age_that_cannot_be_is_refused(age: Any) -> None:
    with pytest.raises(InvalidConfig, match=r"metadata\.max\.age\.ms"):
        TopicWatch(Broker(), age)  # type: ignore[arg-type]
