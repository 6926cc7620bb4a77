"""An operator takes log dirs out of use, to look at their disks, and brings them back.

That happens in one seed of SEEDS_EACH, by a chance of its own: the other seeds are as they were.
"""

from random import Random
from typing import TYPE_CHECKING

from raylog.cluster.controller.commands import LogDirOnline, LogDirOut

if TYPE_CHECKING:
    from tests.simulation.world import World

SEEDS_EACH, SEED = 11, 4  # no seed of a planted error is among them
ASK_MS, OUT_MS = 8_000, 30_000


class Swaps:
    """See the module's head."""

    def __init__(self, world: "World", seed: int) -> None:
        self._world, self._chance = world, Random(f"swaps {seed}")
        self._is_on = seed % SEEDS_EACH == SEED

    def begin(self) -> None:
        if self._is_on:
            self._world.clockwork.after(self._chance.randint(1, ASK_MS), self._swap)

    def _swap(self) -> None:
        if self._world.users.are_over:
            return
        dir = self._chance.choice(self._chance.choice(self._world.nodes).dirs)
        self._world.users.ask(LogDirOut(log_dir=dir.directory_id))
        online = LogDirOnline(log_dir=dir.directory_id)
        back_ms = self._chance.randint(1, OUT_MS)
        self._world.clockwork.after(back_ms, lambda: self._world.users.ask(online))
        self.begin()
