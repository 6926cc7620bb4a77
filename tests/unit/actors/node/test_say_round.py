"""What LogActors say becomes events and checkpoints."""

from collections.abc import Sequence
from typing import Literal

import pytest

from raylog.actors.control import LogId
from raylog.actors.node.events import ActorGone, ActorSaid, DirFailed, Event
from raylog.actors.node.log_actors import served_of
from raylog.actors.node.say_round import SayRound
from raylog.actors.node_messages import LogOrder, LogSays
from raylog.storage.config import LogConfig
from raylog.storage.errors import LogMissing, StorageError
from raylog.storage.names import TopicPartition
from raylog.storage.testing.waiting import wait_for
from tests.harness.log_actors import (
    ELSEWHERE,
    HERE,
    ORDERS,
    OTHERS,
    A,
    B,
    FakeDisk,
    FakeLog,
    FakeLogActors,
    says,
)

ORDER = LogOrder(
    log=ORDERS, directory_id=A, config=LogConfig(), config_version=2, controller_epoch=4
)


class Round:
    """A round over orders-0, which was served."""

    def __init__(self, log: FakeLog | None) -> None:
        self.actors, self.disk = FakeLogActors(), FakeDisk()
        if log is not None:
            self.actors.living[ORDERS.partition] = log
        self.told: list[Event] = []
        self.order: LogOrder | None = ORDER
        self.served: Sequence[LogId] = (ORDERS,)
        self._round = SayRound(
            self.actors,
            self.disk,
            node_id=HERE,
            served=lambda: [served_of(says(log)) for log in self.served],
            order_of=lambda log: self.order,
            tell=self.told.append,
            teach=lambda job: job(),
        )

    def hear(self, says: LogSays) -> None:
        self._round.hear(says)

    def run(self) -> list[Event]:
        self._round()
        return self.told


def test_offsets_are_told_and_kept_for_the_checkpoint() -> None:
    round = Round(FakeLog(said=says(config_version=3)))
    (said,) = round.run()
    assert isinstance(said, ActorSaid)
    assert (said.served.config_version, said.served.log_end_offset) == (3, 7)
    assert round.disk.calls == [("offsets", ORDERS)]


@pytest.mark.parametrize(
    "log",
    [
        None,
        FakeLog(said=says(), states=["ended"]),
        FakeLog(said=says(OTHERS)),
        FakeLog(said=says(directory_id=B)),
        FakeLog(said=says(node_id=ELSEWHERE)),
    ],
)
def test_an_actor_that_serves_this_log_no_more_is_gone(log: FakeLog | None) -> None:
    assert Round(log).run() == [ActorGone(partition=ORDERS.partition)]


def test_what_an_actor_says_by_itself_is_told_at_once_if_it_serves() -> None:
    round = Round(FakeLog(said=says()))
    round.hear(says(OTHERS))
    assert round.told == []
    round.hear(says(config_version=3))
    (said,) = round.told
    assert isinstance(said, ActorSaid)
    assert said.served.config_version == 3


@pytest.mark.parametrize(
    "log",
    [FakeLog(said=says(), is_silent=True), FakeLog(said=says(), states=["opening"])],
)
def test_an_actor_that_is_silent_or_opens_its_log_is_asked_again(log: FakeLog) -> None:
    assert Round(log).run() == []


def test_a_failed_disk_is_told() -> None:
    failure = StorageError("/a/orders-0", "EIO")
    round = Round(FakeLog(said=says(problem=failure), states=["offline"]))
    assert round.run() == [DirFailed(directory_id=A, why=failure.problem)]


def test_a_log_that_is_offline_for_another_reason_is_not_the_disks_fault() -> None:
    missing = LogMissing("/a/orders-0", "it is gone")
    round = Round(FakeLog(said=says(problem=missing), states=["offline"]))
    assert round.run() == []


def test_an_actor_that_waits_for_its_config_is_told_it() -> None:
    round = Round(FakeLog(said=says(config_version=1), states=["learning"]))
    assert round.run() == []
    wait_for(lambda: round.actors.learned == [ORDER])


@pytest.mark.parametrize("state", ["new", "learning"])
def test_an_actor_that_was_adopted_and_started_again_without_an_order_is_gone(
    state: Literal["new", "learning"],
) -> None:
    round = Round(FakeLog(said=says(), states=[state]))
    round.order = None
    gone: list[Event] = [ActorGone(partition=ORDERS.partition)]
    round.run()
    wait_for(lambda: round.told == gone)
    assert round.actors.learned == []


def test_nobody_is_asked_where_nothing_is_served() -> None:
    round = Round(None)
    round.served = ()
    assert round.run() == []


def test_of_hundreds_each_round_asks_the_next_ones_and_leaves_none_out() -> None:
    partitions = [TopicPartition("t", number) for number in range(150)]
    round = Round(None)
    round.served = [LogId(partition=partition, topic_id="id-t") for partition in partitions]
    asked = []
    for _ in range(3):
        asked.append(len(round.run()))
    gone = [event.partition for event in round.told if isinstance(event, ActorGone)]
    assert asked == [64, 128, 192]
    assert gone == [*partitions, *partitions[:42]]
    round.told.clear()
    round.served = round.served[:10]  # those that were asked last are not served any more
    round.run()
    assert len(round.told) == 10
