"""Upkeep actors are started, seen, and told their rounds."""

from dataclasses import replace
from queue import SimpleQueue

from raylog.actors.errors import NotLeader
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node.events import Event, Served, UpkeepKind, UpkeepSeen
from raylog.actors.node.instructions import RunUpkeep, StartUpkeep
from raylog.actors.node.log_actors import served_of
from raylog.actors.node.upkeep_hands import UpkeepHands
from raylog.actors.node_messages import UpkeepLog, UpkeepOrder
from raylog.storage.testing.waiting import wait_for
from tests.harness.log_actors import ORDERS, OTHERS, A, folder_of, says


class FakeUpkeep:
    """Upkeep actors without Ray."""

    def __init__(self) -> None:
        self.kinds: list[UpkeepKind] = []
        self.orders: list[tuple[UpkeepKind, UpkeepOrder]] = []
        self.error: NotLeader | None = None

    def obey(self, config: BrokerConfig) -> None:
        self.kinds = type(self.kinds)()

    def start(self, kind: UpkeepKind) -> None:
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        self.kinds.append(kind)

    def round(self, kind: UpkeepKind, order: UpkeepOrder) -> None:
        self.orders.append((kind, order))

    def running(self) -> tuple[UpkeepKind, ...]:
        return tuple(self.kinds)

    def kill(self) -> None:
        self.kinds.clear()


class Upkeep:
    def __init__(self) -> None:
        self.actors = FakeUpkeep()
        self.served: list[Served] = []
        self.told: SimpleQueue[Event] = SimpleQueue()
        self.hands = UpkeepHands(
            self.actors,
            node="n1",
            life="life-1",
            served=lambda: self.served,
            controller_epoch=lambda: 4,
            folder=folder_of,
            tell=self.told.put,
        )


def test_an_upkeep_actor_is_started_and_seen() -> None:
    node = Upkeep()
    node.hands.carry_out(StartUpkeep(kind="retention"))
    wait_for(lambda: node.actors.kinds == ["retention"])
    node.hands.look()
    assert node.told.get(timeout=10) == UpkeepSeen(kinds=("retention",))


def test_one_that_cannot_be_started_does_not_hold_up_the_next() -> None:
    node = Upkeep()
    node.actors.error = NotLeader("Retention:n1", "Ray does not answer")
    node.hands.carry_out(StartUpkeep(kind="retention"))
    node.hands.carry_out(StartUpkeep(kind="compaction"))
    wait_for(lambda: node.actors.kinds == ["compaction"])


def test_a_round_is_about_the_logs_that_obey_the_confirmed_version() -> None:
    node = Upkeep()
    orders = replace(served_of(says(ORDERS)), config_version=2)
    others = replace(served_of(says(OTHERS)), config_version=3)
    node.served = [orders, others]
    node.hands.carry_out(RunUpkeep(kind="retention", confirmed={ORDERS: 2, OTHERS: 2}))
    node.hands.carry_out(RunUpkeep(kind="retention", confirmed={ORDERS: 2}))
    wait_for(lambda: len(node.actors.orders) == 2)
    (_, first), (_, second) = node.actors.orders
    log = UpkeepLog(
        log=ORDERS,
        directory_id=A,
        folder=folder_of(A, ORDERS.partition),
        config=orders.config,
        config_version=2,
    )
    assert first.logs == second.logs == (log,)
    assert (first.node, first.life, first.controller_epoch) == ("n1", "life-1", 4)
    assert second.number > first.number
