"""What goes wrong in a simulated cluster: each seed chooses some of these, and how often.

Otherwise rare pairs of faults would never meet (swarm testing, Groce and others 2012).
"""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.disks import COPY, LOG

if TYPE_CHECKING:
    from tests.simulation.world import World

# How long something is paused, cut, failed or away.
SHORT_MS, LONG_MS = 2_000, 60_000


class Nemesis:
    """Does harm to a world, at random moments."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._chance: Random = world.clockwork.chance
        all_faults: list[Callable[[], None]] = [
            self.kill_manager,
            self.pause_manager,
            self.kill_controller,
            self.pause_controller,
            self.kill_actor,
            self.pause_actor,
            self.kill_pair,
            self.lose_node,
            self.cut_node,
            self.fail_disk,
            self.fill_disk,
            self.hang_disk,
            self.damage_identity,
            self.kill_upkeep,
            self.fail_append,
            self.restore_metadata,
        ]
        self._faults = [fault for fault in all_faults if self._chance.random() < 0.5]
        self._gap_ms = self._chance.choice((1_500, 4_000, 12_000))
        self.is_over = False

    def begin(self) -> None:
        self._world.clockwork.after(self._chance.randint(1, self._gap_ms), self._strike)

    def _strike(self) -> None:
        if self.is_over or not self._faults:
            return
        fault = self._chance.choice(self._faults)
        self._world.truth.situations[fault.__name__] += 1
        self._world.clockwork.note("nemesis", fault.__name__)
        fault()
        self.begin()

    def _for_a_while(self, undo: Callable[[], None]) -> None:
        most_ms = self._chance.choice((SHORT_MS, LONG_MS))
        self._world.clockwork.after(self._chance.randint(100, most_ms), undo)

    # -- processes ---------------------------------------------------------------------------------

    def kill_manager(self) -> None:
        node = self._chance.choice(self._world.nodes)
        if node.manager is not None:
            self._world.manager_dies(node)

    def pause_manager(self) -> None:
        manager = self._chance.choice(self._world.nodes).manager
        if manager is not None and not manager.is_paused:
            manager.is_paused = True
            self._for_a_while(manager.resume)

    def kill_controller(self) -> None:
        self._world.controller_dies()

    def pause_controller(self) -> None:
        controller = self._world.controller
        if controller is not None and not controller.is_paused:
            controller.is_paused = True
            self._for_a_while(controller.resume)

    def kill_actor(self) -> None:
        actors = [actor for actor in self._world.ray.named.values() if actor.is_alive]
        if actors:
            self._world.actor_dies(self._chance.choice(actors))

    def pause_actor(self) -> None:
        actors = list(self._world.ray.named.values())
        if actors:
            actor = self._chance.choice(actors)
            actor.is_paused = True
            self._for_a_while(lambda: setattr(actor, "is_paused", False))

    def kill_pair(self) -> None:
        """Two at once, or the second a moment later."""
        kills = [self.kill_manager, self.kill_controller, self.kill_actor]
        first, second = self._chance.sample(kills, 2)
        first()
        self._world.clockwork.soon(second, most_ms=2_000)

    # -- nodes and links ---------------------------------------------------------------------------

    def lose_node(self) -> None:
        node = self._chance.choice(self._world.nodes[1:])
        if node.is_up:
            self._world.node_goes(node)
            self._for_a_while(lambda: self._world.node_comes(node))

    def cut_node(self) -> None:
        """Nothing arrives, one way or both; the processes live on."""
        key = self._chance.choice(self._world.nodes).key
        ways = self._chance.choice((("up",), ("down",), ("up", "down")))
        cuts = {(key, way) for way in ways}
        self._world.cuts |= cuts
        self._for_a_while(lambda: self._world.cuts.difference_update(cuts))

    # -- disks -------------------------------------------------------------------------------------

    def fail_disk(self) -> None:
        dir = self._chance.choice(self._chance.choice(self._world.nodes).dirs)
        dir.failure, dir.failed_ms = "an fsync failed", self._world.clockwork.now_ms
        self._world.clockwork.after(
            self._chance.randint(5_000, LONG_MS), lambda: setattr(dir, "failure", "")
        )

    def fill_disk(self) -> None:
        dir = self._chance.choice(self._chance.choice(self._world.nodes).dirs)
        dir.is_full = True
        self._for_a_while(lambda: setattr(dir, "is_full", False))

    def hang_disk(self) -> None:
        dir = self._chance.choice(self._chance.choice(self._world.nodes).dirs)
        dir.is_hanging = True
        self._for_a_while(lambda: setattr(dir, "is_hanging", False))

    def damage_identity(self) -> None:
        folders = [
            (node, dir, folder)
            for node in self._world.nodes
            for dir in node.dirs
            for folder in dir.folders
            if folder.kind in (LOG, COPY) and folder.owner is not None
        ]
        if folders:
            node, dir, folder = self._chance.choice(folders)
            folder.is_identity_lost = True
            if node.manager is not None and self._chance.random() < 0.5:
                node.manager.identity_lost(dir, folder)

    # -- the rest ----------------------------------------------------------------------------------

    def kill_upkeep(self) -> None:
        self._chance.choice(self._world.nodes).upkeep.clear()

    def fail_append(self) -> None:
        self._world.metadata.fails_next = self._chance.choice(("full", "fsync"))

    def restore_metadata(self) -> None:
        """Somebody puts an older copy of the metadata in place, and starts the Controller."""
        if self._chance.random() < 0.3:
            self._world.controller_dies()
            self._world.metadata.restore()
