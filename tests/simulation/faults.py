"""What goes wrong in a simulated cluster: each seed chooses some of these, and how often.

Otherwise rare pairs of faults would never meet (swarm testing, Groce and others 2012).
"""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from raylog.actors.control import LogId
from raylog.cluster.controller.commands import DeleteTopic
from raylog.storage.state.properties import META_PROPERTIES, PARTITION_METADATA
from tests.simulation.disks import COPY, LOG, SimDir, SimFolder

if TYPE_CHECKING:
    from tests.simulation.nodes import SimNode
    from tests.simulation.world import World

# How long something is paused, cut, failed or away.
SHORT_MS, LONG_MS = 2_000, 60_000
CUT_MS = 90_000
# Until a LogManager that was killed is back, at most; until Ray notices that a node is gone.
RESTART_MS, NOTICED_MS = 6_000, 40_000
# Long enough to be noticed; the other nodes are well meanwhile, and have been for a while.
SHORT_OF_ROOM_MS = 2_000, 8_000
# So many kinds of faults meet in a seed. Where they are few, what takes long has the time for it.
KINDS = 2, 4, 8, 14
DAMAGED = b"damaged"


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
            self.lose_key,
            self.move_disk,
            self.cut_node,
            self.alter_behind_cut,
            self.kill_behind_reports,
            self.delete_behind_silence,
            self.fail_disk,
            self.fill_disk,
            self.fill_before_creation,
            self.fill_at_creation,
            self.hang_disk,
            self.run_short,
            self.strain_epoch,
            self.damage_identity,
            self.damage_meta,
            self.kill_upkeep,
            self.fail_append,
            self.fill_metadata,
            self.restore_metadata,
            self.restore_around_move,
        ]
        self._faults = self._chance.sample(all_faults, self._chance.choice(KINDS))
        self._gap_ms = self._chance.choice((1_500, 4_000, 12_000))
        self.is_over = False
        self._is_to_fill_at_creation = False
        # What is damaged now and will be as it was, by log dir and path in it.
        self.to_be_written_back: dict[tuple[str, str], Callable[[], None]] = {}

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

    def _for_a_while(self, undo: Callable[[], object]) -> None:
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

    def lose_key(self) -> None:
        """A machine restarts, and Ray calls it by another id: it has no label.

        Ray may take its time to notice that the one of before is gone.
        """
        node = self._chance.choice(self._world.nodes[1:])
        if not node.is_up:
            return
        self._world.node_goes(node)
        ghost = self._world.give_another_key(node)
        if self._chance.random() < 0.5:
            self._world.ghosts.add(ghost)
            noticed_ms = self._chance.randint(1, NOTICED_MS)
            self._world.clockwork.after(noticed_ms, lambda: self._world.ghosts.discard(ghost))
        self._for_a_while(lambda: self._world.node_comes(node))

    def move_disk(self) -> None:
        """Machines are off, and a disk is mounted at another path, or in another machine."""
        giver = self._chance.choice(self._world.nodes[1:])
        taker = self._chance.choice(self._world.nodes[1:]) if len(giver.dirs) > 1 else giver
        if not (giver.is_up and taker.is_up):
            return
        nodes = [giver] if taker is giver else [giver, taker]
        for node in nodes:
            self._world.node_goes(node)
        self._world.move_disk(self._chance.choice(giver.dirs), giver, taker)
        for node in nodes:
            self._for_a_while(partial(self._world.node_comes, node))

    def cut_node(self) -> None:
        """Nothing arrives, one way or both; the processes live on."""
        key = self._chance.choice(self._world.nodes).key
        ways = self._chance.choice((("up",), ("down",), ("up", "down")))
        cuts = {(key, way) for way in ways}
        self._world.cuts |= cuts
        self._for_a_while(lambda: self._world.cuts.difference_update(cuts))

    def alter_behind_cut(self) -> None:
        """Topics are altered while a node hears nothing, for longer than an alter waits."""
        key = self._chance.choice(self._world.nodes).key
        cut = (key, "down")
        self._world.cuts.add(cut)
        self._world.users.alter_all()
        after_ms = self._chance.randint(30_000, CUT_MS)
        self._world.clockwork.after(after_ms, lambda: self._world.cuts.discard(cut))

    def kill_behind_reports(self) -> None:
        """A LogManager dies whose last reports are still on their way; maybe a dir fails then."""
        node = self._chance.choice(self._world.nodes)
        self._world.slow.add(node.key)

        def kill() -> None:
            self._world.slow.discard(node.key)
            if self._chance.random() < 0.7:
                self._break(self._chance.choice(node.dirs))
            self._world.manager_dies(node)

        self._world.clockwork.after(self._chance.randint(500, 8_000), kill)

    def delete_behind_silence(self) -> None:
        """A LogActor hangs, so the next LogManager does not find it, and its topic is deleted."""
        actors = [actor for actor in self._world.ray.named.values() if actor.lock is not None]
        if not actors:
            return
        actor = self._chance.choice(actors)
        actor.is_paused = True
        silent_ms = self._chance.randint(RESTART_MS, LONG_MS)
        self._world.clockwork.after(silent_ms, lambda: setattr(actor, "is_paused", False))
        self._world.manager_dies(self._world.node(actor.node))
        self._world.users.ask(DeleteTopic(name=actor.log.partition.topic))

    # -- disks -------------------------------------------------------------------------------------

    def _some_dir(self) -> tuple["SimNode", SimDir]:
        node = self._chance.choice(self._world.nodes)
        return node, self._chance.choice(node.dirs)

    def fail_disk(self) -> None:
        _, dir = self._some_dir()
        self._break(dir)

    def _break(self, dir: SimDir) -> None:
        """It takes no writes any more, or answers nothing at all."""
        dir.broken = self._chance.choice(("writes", "all"))
        dir.failed_ms = self._world.clockwork.now_ms
        self._world.clockwork.after(
            self._chance.randint(5_000, LONG_MS), lambda: setattr(dir, "broken", "")
        )

    def fill_disk(self) -> None:
        node, dir = self._some_dir()
        dir.is_full, node.trouble_ms = True, self._world.clockwork.now_ms
        self._for_a_while(lambda: setattr(dir, "is_full", False))

    def fill_before_creation(self) -> None:
        """A node's disks are full, and nobody has measured that when a topic is created."""
        node = self._chance.choice(self._world.nodes)
        self._set_full(node, True)
        self._for_a_while(lambda: self._set_full(node, False))
        self._world.users.create_everywhere()

    def fill_at_creation(self) -> None:
        """A node's disks are full when it has just been told to make a partition."""
        self._is_to_fill_at_creation = True
        self._world.users.create_everywhere()

    def folder_is_ordered(self, node: "SimNode") -> None:
        """The node is about to make a folder."""
        if self._is_to_fill_at_creation and not self.is_over:
            self._is_to_fill_at_creation = False
            self._world.truth.situations["full between order and creation"] += 1
            self._set_full(node, True)
            full_ms = self._chance.randint(*SHORT_OF_ROOM_MS)
            self._world.clockwork.after(full_ms, lambda: self._set_full(node, False))

    def hang_disk(self) -> None:
        _, dir = self._some_dir()
        most_ms = self._chance.choice((SHORT_MS, LONG_MS))
        dir.hangs_until_ms = self._world.clockwork.now_ms + self._chance.randint(100, most_ms)

    def run_short(self) -> None:
        """A LogManager has no descriptor left."""
        node = self._chance.choice(self._world.nodes)
        self._set_short(node, True)
        self._for_a_while(lambda: self._set_short(node, False))

    def _set_full(self, node: "SimNode", is_full: bool) -> None:
        node.trouble_ms = self._world.clockwork.now_ms
        for dir in node.dirs:
            dir.is_full = is_full

    @staticmethod
    def _set_short(node: "SimNode", is_short: bool) -> None:
        for dir in node.dirs:
            dir.is_short = is_short

    def strain_epoch(self) -> None:
        """A shortage, or a disk that hangs, when the next Controller's epoch is to be written."""
        strain = self._chance.choice((self.fill_disk, self.hang_disk, self.run_short))
        strain()
        self._world.controller_dies()

    def damage_identity(self) -> None:
        """A ``partition.metadata`` cannot be read; maybe somebody writes it back later."""
        folders = [
            (node, dir, folder)
            for node in self._world.nodes
            for dir in node.dirs
            for folder in node.disks.folders(dir)
            if folder.kind in (LOG, COPY) and folder.read_id is not None
        ]
        is_to_be_written_back = self._chance.random() < 0.7
        if not is_to_be_written_back:
            # What nobody serves and nobody mends is never served again.
            folders = [
                (node, dir, folder)
                for node, dir, folder in folders
                if self._world.ray.owner(folder.path) is not None
            ]
        if not folders:
            return
        node, dir, folder = self._chance.choice(folders)
        if folder.topic_id is not None:
            log = LogId(partition=folder.partition, topic_id=folder.topic_id)
            self._world.truth.unnamed.add(log)
        name = f"{folder.path.removeprefix(dir.path)}/{PARTITION_METADATA}"
        self._damage(dir, name, DAMAGED, is_to_be_written_back=is_to_be_written_back)
        self._chance.choice((self._look, self._kill_owner, self._nothing))(node, folder)

    def _look(self, node: "SimNode", folder: SimFolder) -> None:
        if node.manager is not None and node.manager.is_answering:
            node.manager.look_at_identities()

    def _kill_owner(self, node: "SimNode", folder: SimFolder) -> None:
        owner = self._world.ray.owner(folder.path)
        if owner is not None:
            self._world.actor_dies(owner)

    def _nothing(self, node: "SimNode", folder: SimFolder) -> None:
        """Nobody has noticed yet."""

    def damage_meta(self) -> None:
        """A ``meta.properties`` cannot be read, or is deleted, and is written back later."""
        node, dir = self._some_dir()
        dir.failed_ms = self._world.clockwork.now_ms
        damage = self._chance.choice((DAMAGED, None))
        if damage is None and node.disks.controller_epoch(dir) < 0:
            return  # a dir that nobody has used yet may get another identity
        name = f"/{META_PROPERTIES}"
        self._damage(dir, name, damage, is_to_be_written_back=True)

    def _damage(
        self, dir: SimDir, name: str, damage: bytes | None, *, is_to_be_written_back: bool
    ) -> None:
        """``name``: of a file in a log dir, which may be moved meanwhile.

        ``damage``: what is in the file; None: there is no file.
        """
        disks = self._world.node_with(dir).disks
        content = disks.content(dir.path + name)
        if content in (None, DAMAGED):
            return
        disks.tamper(dir.path + name, damage)
        # What was to be written back was of a file that is not there any more.
        self.to_be_written_back.pop((dir.directory_id, name), None)

        def write_back() -> None:
            if self.to_be_written_back.get((dir.directory_id, name)) is not write_back:
                return
            del self.to_be_written_back[dir.directory_id, name]
            disks = self._world.node_with(dir).disks
            if disks.content(dir.path + name) == damage:
                self._world.truth.situations["written back"] += 1
                disks.tamper(dir.path + name, content)

        if is_to_be_written_back:
            self.to_be_written_back[dir.directory_id, name] = write_back
            self._for_a_while(write_back)

    def write_back_all(self) -> None:
        """Nothing is damaged any more that somebody can mend."""
        for write_back in list(self.to_be_written_back.values()):
            write_back()

    # -- the rest ----------------------------------------------------------------------------------

    def kill_upkeep(self) -> None:
        self._chance.choice(self._world.nodes).upkeep.clear()

    def fail_append(self) -> None:
        self._world.metadata.fails_next = self._chance.choice(("full", "fsync"))

    def fill_metadata(self) -> None:
        """The metadata's disk is full: only its reserve is left."""
        self._world.metadata.is_full = True
        self._for_a_while(lambda: setattr(self._world.metadata, "is_full", False))

    def restore_metadata(self) -> None:
        """Somebody puts an older copy of the metadata in place, and starts the Controller."""
        if self._chance.random() < 0.3:
            self._restore()

    def restore_around_move(self) -> None:
        """Metadata is copied while a log is being moved, and put back later."""
        move = self._world.users.some_move()
        if move is None:
            return
        self._world.users.ask(move)
        self._world.clockwork.soon(self._back_up, most_ms=10_000)
        self._world.clockwork.after(self._chance.randint(2_000, 40_000), self._restore)

    def _back_up(self) -> None:
        records = self._world.truth.desired.partitions.values()
        if any(record.state == "moving" for record in records):
            self._world.truth.situations["backup during a move"] += 1
        self._world.metadata.back_up()

    def _restore(self) -> None:
        if not self.is_over:
            self._world.controller_dies()
            self._world.metadata.restore()
