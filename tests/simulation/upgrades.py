"""A newer release comes to the nodes one after the other, and an operator asks for its level.

That happens in one seed of SEEDS_EACH, by a chance of its own. In the others all nodes have the
newer release from the beginning, and the cluster its level. A node has the newer release when it is
installed there and its LogManager begins anew. Left out of the nodes that have to say what they run
are only some that are off.
"""

from functools import partial
from random import Random
from typing import TYPE_CHECKING

from raylog.actors.levels import Levels
from raylog.cluster.controller.commands import FinalizeUpgrade
from raylog.cluster.controller.records import LevelRecord
from tests.simulation.invariants import expect

if TYPE_CHECKING:
    from raylog.actors.control import Orders
    from tests.simulation.nodes import Manager
    from tests.simulation.world import World

OLD, NEW = Levels(1, 1), Levels(1, 2)
SEEDS_EACH = 4
# Until the last node has the newer release, and how often the operator asks.
LAST_MS, ASK_MS = 30_000, 3_000
# How many nodes have it only when all is healed.
LATE = 0.3


def is_upgraded(seed: int) -> bool:
    """Whether the nodes begin with the older release."""
    return seed % SEEDS_EACH == 1


class Upgrades:
    """See the module's head."""

    def __init__(self, world: "World", seed: int) -> None:
        self._world, self._chance = world, Random(f"upgrades {seed}")
        self._is_on = is_upgraded(seed)
        self._left_out: set[str] = set()
        if not self._is_on:
            for node in world.nodes:
                node.levels = NEW
        elif self._chance.random() < 0.5:
            world.nodes[0].levels = NEW  # where the Controller begins

    def begin(self) -> None:
        if not self._is_on:
            return
        for node in self._world.nodes:
            if self._chance.random() < LATE:
                continue  # when all is healed
            install = partial(self._install, node.dirs[0].path)
            self._world.clockwork.after(self._chance.randint(1, LAST_MS), install)
        self._ask()

    def _install(self, path: str) -> None:
        """On the node that has the disk at this path now."""
        for node in self._world.nodes:
            if any(dir.path == path for dir in node.dirs):
                node.levels = NEW
                self._world.manager_dies(node)

    def install_everywhere(self) -> None:
        """The upgrade is over."""
        for node in self._world.nodes:
            if self._is_on and node.levels != NEW:
                node.levels = NEW
                self._world.manager_dies(node)

    def _ask(self) -> None:
        away = [node.key for node in self._world.nodes if not node.is_up]
        is_leaving_out = self._chance.random() < 0.5
        without = frozenset(away if is_leaving_out else ())
        self._left_out |= without
        self._world.users.ask(FinalizeUpgrade(level=NEW.newest, without=without))
        self._world.clockwork.after(ASK_MS, self._ask)

    def written(self, record: LevelRecord) -> None:
        """The cluster is of this level: every member knows it, unless it was left out."""
        for node in self._world.nodes:
            if node.key in self._left_out or not self._world.truth.desired.is_missed(node.key):
                continue
            running = node.levels if node.manager is None else node.manager.levels
            is_known = node.levels.has(record.level) and running.has(record.level)
            expect(is_known, f"level {record.level} is written, and {node.key} does not know it")

    def obeys(self, manager: "Manager", orders: "Orders") -> bool:
        """Whether its release knows the level of the orders; else it refuses them."""
        is_known = manager.levels.has(orders.level)
        if not is_known:
            self._world.truth.situations["a node that was left out refuses a level"] += 1
        return is_known
