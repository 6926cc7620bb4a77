"""Logs are moved, and orders of a move overtake each other: one that is late must not be obeyed.

A move that is begun again when its log is served from its new log dir would take that for the copy.
That happens in one seed of SEEDS_EACH, by a chance of its own: the other seeds are as they were.
"""

from random import Random
from typing import TYPE_CHECKING

from raylog.actors.control import Move, Orders
from raylog.cluster.controller.commands import MovePartition

if TYPE_CHECKING:
    from tests.simulation.world import World

SEEDS_EACH, SEED = 4, 0
# How often somebody moves a log.
MOVE_MS = 2_000, 8_000
# So many of the messages with a move come so much later: about as late as a move takes.
LATE, LATE_MS = 0.5, (1_000, 12_000)


class LateOrders:
    """See the module's head."""

    def __init__(self, world: "World", seed: int) -> None:
        self._world, self._chance = world, Random(f"late orders {seed}")
        self._is_on = seed % SEEDS_EACH == SEED

    def begin(self) -> None:
        if self._is_on:
            self._world.clockwork.after(self._chance.randint(*MOVE_MS), self._move)

    def _move(self) -> None:
        if self._world.users.are_over:
            return
        moves = self._possible_moves()
        if moves:
            self._world.users.ask(self._chance.choice(moves))
        self.begin()

    def _possible_moves(self) -> list[MovePartition]:
        """Of every log that is served, to each other log dir of its node."""
        moves = []
        for actor in self._world.ray.named.values():
            for dir in self._world.node(actor.node).dirs:
                if dir is not actor.dir:
                    partition, log_dir = actor.log.partition, dir.directory_id
                    moves.append(
                        MovePartition(
                            name=partition.topic, number=partition.partition, log_dir=log_dir
                        )
                    )
        return moves

    def delay_ms(self, orders: Orders) -> int | None:
        """How much later than the next ones these orders come; None: not later."""
        if not self._is_on or self._world.users.are_over:
            return None
        has_move = any(isinstance(order, Move) for order in orders.orders)
        if not has_move or self._chance.random() >= LATE:
            return None
        self._world.truth.situations["orders of a move come late"] += 1
        return self._chance.randint(*LATE_MS)
