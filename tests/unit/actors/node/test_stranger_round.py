"""LogActors of this node that nobody serves are asked, until they answer."""

from collections.abc import Collection, Mapping, Sequence

import pytest

from raylog.actors.control import LogId
from raylog.actors.errors import NotLeader
from raylog.actors.node.events import ActorSeen, Event
from raylog.actors.node.log_actors import served_of
from raylog.actors.node.stranger_round import ROUNDS_UNASKED, StrangerRound
from raylog.actors.node_messages import LifeState, LogSays
from raylog.storage.errors import RaylogError
from raylog.storage.names import TopicPartition
from tests.harness.log_actors import (
    ELSEWHERE,
    HERE,
    ORDERS,
    OTHERS,
    B,
    FakeLog,
    FakeLogActors,
    says,
)

SEEN = ActorSeen(log=ORDERS, directory_id=B)


class AskedActors(FakeLogActors):
    """They remember who was asked. ``is_away``: Ray's head does not answer."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[set[TopicPartition]] = []
        self.is_away = False

    def running(self) -> set[TopicPartition]:
        if self.is_away:
            raise NotLeader("Ray", "its head does not answer")
        return super().running()

    def says_all(
        self, partitions: Collection[TopicPartition], timeout_s: float = 10.0
    ) -> Mapping[TopicPartition, LogSays | RaylogError | None]:
        self.asked.append(set(partitions))
        return super().says_all(partitions, timeout_s)


class Rounds:
    """Rounds beside an actor of orders-0, which says that it serves from B."""

    def __init__(self, **said: object) -> None:
        self.actors = AskedActors()
        self.log = FakeLog(said=says(directory_id=B, **said))  # type: ignore[arg-type]
        self.actors.living[ORDERS.partition] = self.log
        self.served: Sequence[LogId] = ()
        self.told: list[Event] = []
        self.run = StrangerRound(
            self.actors,
            node_id=HERE,
            served=lambda: [served_of(says(log)) for log in self.served],
            tell=self.told.append,
        )


@pytest.mark.parametrize("state", ["learning", "opening", "serving", "offline", "ended"])
def test_an_actor_that_nobody_serves_is_seen(state: LifeState) -> None:
    rounds = Rounds()
    rounds.log.states = [state]
    rounds.run()
    assert rounds.told == [SEEN]


def test_one_that_was_silent_is_seen_when_it_answers() -> None:
    rounds = Rounds()
    rounds.log.is_silent = True
    rounds.run()
    assert rounds.told == []
    rounds.log.is_silent = False
    rounds.run()
    assert rounds.told == [SEEN]


def test_what_is_served_is_asked_elsewhere() -> None:
    rounds = Rounds()
    rounds.served = (ORDERS,)
    rounds.run()
    assert (rounds.told, rounds.actors.asked) == ([], [])


def test_one_of_another_node_is_left_alone_and_seldom_asked_again() -> None:
    rounds = Rounds(node_id=ELSEWHERE)
    rounds.run()
    for _ in range(ROUNDS_UNASKED):
        rounds.run()
    assert rounds.told == []
    assert rounds.actors.asked == [{ORDERS.partition}, {ORDERS.partition}]


def test_one_that_comes_after_one_of_another_node_is_asked() -> None:
    rounds = Rounds(node_id=ELSEWHERE)
    rounds.run()
    rounds.actors.living.clear()
    rounds.actors.living[OTHERS.partition] = FakeLog(said=says(OTHERS, node_id=ELSEWHERE))
    rounds.run()
    rounds.actors.living[ORDERS.partition] = FakeLog(said=says(directory_id=B))
    rounds.run()
    assert rounds.told == [SEEN]
    assert rounds.actors.asked[1:] == [{OTHERS.partition}, {ORDERS.partition}]


def test_without_rays_head_nobody_is_asked() -> None:
    rounds = Rounds()
    rounds.actors.is_away = True
    rounds.run()
    assert (rounds.told, rounds.actors.asked) == ([], [])
