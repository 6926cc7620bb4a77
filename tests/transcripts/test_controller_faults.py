"""The Controller among nodes that restart and messages that are late, lost and out of order.

Everything is chosen by a seed. Each log counts what was written to it: no step may serve less. When
the faults have ended, what is must become what shall be.
"""

import os
import random
from typing import TypeVar

import pytest

from raylog.actors.control import LogId, Move, Order, Orders, Report, Serve, SetAside
from raylog.cluster.controller.commands import (
    AllocateProducerId,
    AlterTopic,
    CancelMove,
    Command,
    CreateTopic,
    DeleteTopic,
    LogDirOnline,
    MovePartition,
)
from raylog.cluster.controller.events import Reported, Silent
from raylog.storage.errors import DiskFull, StorageError
from tests.harness.control_nodes import PerfectNode, entry, is_as_desired
from tests.harness.controller_play import Play

Message = TypeVar("Message", Report, Orders)
SEEDS = int(os.environ.get("RAYLOG_CONTROLLER_SEEDS", "40"))
STEPS = 250


class CountingNode(PerfectNode):
    """A node that knows how much was written to each folder, and to each copy of one."""

    def __init__(self, key: str, chance: random.Random) -> None:
        super().__init__(key, f"{key}1", f"{key}2")
        self.chance = chance
        self.written: dict[tuple[LogId, str], int] = {}
        self.copies: dict[tuple[LogId, str], int] = {}
        self.acknowledged: dict[LogId, int] = {}  # over all nodes: the test shares it

    def write(self) -> None:
        for log, (place, _) in self.serving.items():
            self.written[log, place] = self.written.get((log, place), 0) + 1
            self.acknowledged[log] = self.acknowledged.get(log, 0) + 1

    def do(self, orders: tuple[Order, ...]) -> None:  # type: ignore[override]
        for order in orders:
            if isinstance(order, Move):
                self._move(order)
            elif isinstance(order, Serve):
                self._adopt(order)
            elif isinstance(order, SetAside):
                raise AssertionError(f"{order}: everything that lies here was wanted")
            else:
                super().do((order,))

    def _move(self, order: Move) -> None:
        log, place = order.log, (order.log, order.directory_id)
        if place not in self.logs or self.logs[place].state == "moved":
            return
        self._check(log, order.directory_id)
        if self.chance.random() < 0.5:
            served = entry(log, order.directory_id, config_version=order.config_version)
            self.logs[place] = served
            return
        self.copies[log, order.target_id] = self.written.get(place, 0)
        super().do((order,))

    def _adopt(self, order: Serve) -> None:
        place = (order.log, order.directory_id)
        if place not in self.logs and place not in self.copies:
            return  # it is missing
        if place not in self.logs:
            self.written[place] = self.copies[place]
            self.logs[place] = entry(order.log, order.directory_id, "found")
        self._check(order.log, order.directory_id)
        for other in [key for key in self.copies if key[0] == order.log]:
            del self.copies[other]
        super().do((order,))

    def _check(self, log: LogId, place: str) -> None:
        kept, wanted = self.written.get((log, place), 0), self.acknowledged.get(log, 0)
        assert kept == wanted, f"{log} in {place}: {wanted} acknowledged, {kept} there"


class Faults:
    """A play in which everything that is on the way may be late, lost or out of order."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        nodes = [CountingNode(key, self.chance) for key in "abc"]
        for node in nodes:
            node.acknowledged = nodes[0].acknowledged
        self.nodes: dict[str, CountingNode] = {node.key: node for node in nodes}
        self.play = Play(*nodes)
        self.reports: list[Report] = []
        self.orders: list[Orders] = []
        self.names = 0
        self.deaths = 0

    def step(self) -> None:
        self.play.now_ms += self.chance.choice((0, 0, 100, 1_000, 5_000))
        node = self.chance.choice(list(self.nodes.values()))
        match self.chance.randrange(24):
            case 0 | 1:
                self._ask()
            case 2 | 3 | 4:
                self.reports.append(node.report())
            case 5 | 6 | 7 | 8 if self.reports:
                self.play.does(Reported(report=self._one_of(self.reports)))
            case 9 | 10 | 11 | 12 if self.orders:
                orders = self._one_of(self.orders)
                self.nodes[orders.node].obey(orders)
            case 13 | 14 | 15 | 16 if self.play.appending is not None:
                self._append()
            case 17:
                node.restart()
            case 18 if self.chance.random() < 0.3:
                self._die()
            case 19:
                self.play.away ^= {node.key}
                self.play.sees()
            case 20:
                node.write()
            case 21:
                self.play.does(Silent(node=node.key))
            case _:
                self.play.passes(self.chance.choice((100, 1_000)))
        self._collect()
        assert self.play.machine.doubt is None, "a crash looks like older metadata"

    def _one_of(self, waiting: list[Message]) -> Message:
        """Mostly the oldest one; it may be lost, or come twice."""
        index = 0 if self.chance.random() < 0.7 else self.chance.randrange(len(waiting))
        taken = waiting[index]
        if self.chance.random() < 0.8:
            del waiting[index]
        return taken

    def _collect(self) -> None:
        self.orders += self.play.mail.values()
        self.play.mail.clear()
        if self.chance.random() < 0.1:
            self.orders = self.orders[1:]

    def _append(self) -> None:
        kind = self.chance.random()
        if kind < 0.9:
            self.play.appended()
        elif kind < 0.97:
            self.play.append_fails(DiskFull("/a1"))
        else:
            is_written = self.chance.random() < 0.5
            self.play.append_fails(StorageError("/a1", "EIO"), is_written=is_written)

    def _die(self) -> None:
        """The Controller dies; its orders are still on the way."""
        self.deaths += 1
        append = self.play.appending
        if append is not None and self.chance.random() < 0.5:
            self.play.appended()
        self._collect()
        self.play.begin()
        self.play.sees()

    def _ask(self) -> None:
        topics = list(self.play.desired.topics.values())
        name = self.chance.choice(topics).name if topics else "none"
        self.names += 1
        command: Command = self.chance.choice(
            (
                CreateTopic(
                    name=f"t{self.names % 4}",
                    topic_id=f"id-{self.names}",
                    partitions=self.chance.randrange(1, 4),
                ),
                AlterTopic(name=name, changes={"retention.ms": self.names}),
                DeleteTopic(name=name),
                MovePartition(
                    name=name,
                    number=0,
                    log_dir=f"/{self.chance.choice('abc')}{self.chance.randrange(1, 3)}",
                ),
                CancelMove(name=name, number=0),
                LogDirOnline(log_dir="/a1"),
                AllocateProducerId(),
            )
        )
        self.play.asks(command)

    def heal(self) -> None:
        """No more faults: what is on the way arrives late, and then all goes well."""
        self.play.away.clear()
        self.play.sees()
        assert self.play.machine.doubt is None
        if self.play.machine.failure is not None:
            self.play.begin()
        for report in self.reports:
            self.play.does(Reported(report=report))
        for orders in self.orders:
            self.nodes[orders.node].obey(orders)
        self.play.settle(200_000)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_is_lost_and_what_shall_be_is_after_the_faults(seed: int) -> None:
    faults = Faults(seed)
    for _ in range(STEPS):
        faults.step()
    faults.heal()
    play = faults.play
    assert is_as_desired(play.desired, play.nodes.values())
    for node in faults.nodes.values():
        for log, (place, _) in node.serving.items():
            assert node.written.get((log, place), 0) == node.acknowledged.get(log, 0)
    ids = [answer.value for answer in play.answers.values() if isinstance(answer.value, int)]
    assert len(set(ids)) == len(ids), "a producer id was handed out twice"
