"""A whole cluster in one thread: real machines, and everything around them from one seed.

::

    users --commands--> Controller's process --Orders--> LogManager's process --> disks, LogActors
                          |  ControllerMachine             |  NodeMachine
                          +-- metadata disk  <--Report-----+

Links delay what they carry and lose some of it; orders may overtake each other. What goes wrong,
``faults.py`` says; what must hold, ``invariants.py``.
"""

from collections.abc import Callable
from functools import partial

from raylog.actors.control import Confirmed, LogId, Move, Orders, Report, Serve
from raylog.actors.node import instructions as do
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node.events import ReportWanted
from raylog.cluster.controller.records import ControllerRecord, DirRecord, Record
from tests.simulation.actors import SimActor, SimRay
from tests.simulation.clockwork import Clockwork
from tests.simulation.controllers import SimController
from tests.simulation.disks import SimDir, SimFolder
from tests.simulation.faults import Nemesis
from tests.simulation.invariants import Truth, expect
from tests.simulation.metadata_disk import MetadataDisk
from tests.simulation.nodes import Manager, SimNode
from tests.simulation.users import Users

LINK_MS, LATE_MS = 300, 20_000
# How often an actor that Ray has started again asks what it shall obey; how long an upkeep actor
# takes from asking for a right to having records removed.
ASK_MS, REMOVAL_MS = 2_000, 30_000
# How often retention has a round: often enough that some of them meet each fault.
ROUND_MS = 5_000
RESTART_MS = 6_000
# A node with less room may have none left; where more messages are lost or late, a node may seem
# silent.
MUCH_ROOM, MUCH_LOSS = 100, 0.1
VALIDATE_EACH = 50
# What a seed may take until the faults end, and how long healing may take afterwards.
MOST_EVENTS = 2_000
HEALING_MS = 900_000


class World:
    """One cluster, from one seed."""

    def __init__(self, seed: int) -> None:
        self.clockwork = Clockwork(seed)
        self.broker_config = BrokerConfig.parse(
            {"log.dirs": "/n", "log.retention.check.interval.ms": ROUND_MS}
        )
        chance = self.clockwork.chance
        self.truth = Truth()
        self.metadata = MetadataDisk(self._written, self._restored)
        self.ray = SimRay(self.clockwork, self._tell_gone, self._ask_what_to_obey)
        self.cuts: set[tuple[str, str]] = set()  # (node, "up" or "down")
        self.nodes = [self._make_node(number) for number in range(chance.randint(3, 5))]
        self.controller: SimController | None = None
        self._lives = 0
        self._accepts_older = False  # as the next Controller is told
        # How much of what links carry is lost, and how much comes late.
        self._loss, self._lateness = chance.choice((0.0, 0.02, 0.2)), chance.choice((0.02, 0.2))
        self.nemesis = Nemesis(self)
        self.users = Users(self)

    def _make_node(self, number: int) -> SimNode:
        count = self.clockwork.chance.randint(1, 2)
        dirs = [SimDir(f"n{number}-d{index}", f"/n{number}/d{index}") for index in range(count)]
        return SimNode(key=f"n{number}", dirs=dirs, room=self.clockwork.chance.choice((4, 1000)))

    # -- a run -------------------------------------------------------------------------------------

    def run(self, most_events: int = MOST_EVENTS) -> None:
        """Faults and users for ``most_events``; then all is healed, and all must come right."""
        self._start_controller()
        self.nemesis.begin()
        self.users.begin()
        while self.clockwork.events < most_events and self.clockwork.step():
            if self.clockwork.events % VALIDATE_EACH == 0:
                self.truth.validate(self.ray)
        self.heal()
        end_ms = self.clockwork.now_ms + HEALING_MS
        while self.clockwork.now_ms < end_ms and not self.is_settled():
            if not self.clockwork.step():
                break
        self.truth.validate(self.ray)
        expect(self.is_settled(), f"it does not come right: {self.what_is_left()}")

    def heal(self) -> None:
        """No more faults, and no more commands; what was done is undone."""
        self.nemesis.is_over = self.users.are_over = True
        self._loss = self._lateness = 0.0
        self.cuts.clear()
        self.metadata.fails_next = ""
        for node in self.nodes:
            self.node_comes(node)
            for dir in node.dirs:
                dir.failure, dir.is_full, dir.is_hanging = "", False, False
            if node.manager is not None:
                node.manager.resume()
        for actor in self.ray.named.values():
            actor.is_paused = False
        if self.controller is not None:
            self.controller.resume()
        self.users.bring_dirs_online()

    def is_settled(self) -> bool:
        return not self.what_is_left()

    def what_is_left(self) -> list[str]:
        """What differs between desired and real, and commands without an answer."""
        return [*self.users.unanswered(), *self._differences()]

    def _differences(self) -> list[str]:
        desired = self.truth.desired
        left = []
        for log, record in desired.partitions.items():
            actor = self.ray.named.get(log.partition)
            is_served = actor is not None and actor.log == log and actor.is_alive
            if actor is not None and is_served and actor.folder.is_identity_lost:
                left.append(f"{log} is served from a folder that does not say whose it is")
            if record.directory is not None and self._is_lost(log, record.directory):
                continue
            if self._is_taken(log):
                continue
            if record.state != "online":
                left.append(f"{log} is {record.state}")
            elif actor is None or not actor.is_alive or actor.is_learning or actor.log != log:
                left.append(f"{log} is not served")
            elif actor.dir.directory_id != record.directory:
                left.append(f"{log} is served from {actor.dir.directory_id}")
            elif actor.config_version < desired.topics[log.topic_id].version:
                left.append(f"{log} obeys an old config")
        left += [
            f"no {kind} at {node.key}" for node in self.nodes for kind in node.missing_upkeep()
        ]
        for actor in self.ray.named.values():
            if actor.log not in desired.partitions:
                left.append(f"{actor.log} is served, but not desired")
        return left

    def _is_lost(self, log: LogId, directory_id: str) -> bool:
        """Whether its folder is not there, after a restore of older metadata, or does not say whose
        it is: nobody can serve it before somebody mends that."""
        for node in self.nodes:
            for dir in node.dirs:
                folder = dir.find(log.partition)
                if dir.directory_id == directory_id:
                    return folder is None or folder.read_id != log.topic_id
        return True

    def _is_taken(self, log: LogId) -> bool:
        """Whether the name of a log is in use, somewhere, by one of which older metadata that was
        restored does not know: the same log on another node, or a folder that lies where it shall
        and does not say that it is another topic's."""
        if not self.metadata.was_restored:
            return False
        desired = self.truth.desired
        folders = [dir.find(log.partition) for node in self.nodes for dir in node.dirs]
        lost = [folder for folder in folders if folder and folder.topic_id not in desired.topics]
        if any(folder.is_identity_lost for folder in lost):
            return True
        actor = self.ray.named.get(log.partition)
        return actor is not None and actor.is_alive and actor.node != desired.node_of(log)

    # -- processes ---------------------------------------------------------------------------------

    def _start_controller(self) -> None:
        """Ray starts it, or somebody does who has read why it refused the metadata."""
        self._lives += 1
        accepts_older, self._accepts_older = self._accepts_older, False
        epochs = [
            record.epoch
            for record in self.metadata.records()
            if isinstance(record, ControllerRecord)
        ]
        known = max(dir.controller_epoch for dir in self.nodes[0].dirs)
        if known > max(epochs, default=0) and not accepts_older:
            expect(self.metadata.was_restored, "a crash looks like older metadata")
            self.truth.situations["older metadata is refused at the start"] += 1
            accepts_older = True
        self.controller = SimController(
            self, self.nodes[0].key, least_epoch=known, accepts_older=accepts_older
        )

    def older_metadata_is_found(self) -> None:
        """The Controller decides nothing any more: somebody accepts the metadata as it is."""
        expect(self.metadata.was_restored, "a crash looks like older metadata")
        self.truth.situations["older metadata is found out by a report"] += 1
        self._accepts_older = True
        self.controller_dies()

    def controller_dies(self) -> None:
        if self.controller is not None:
            self.controller.is_alive = False
            self.controller = None
            self.clockwork.soon(self._start_controller, most_ms=RESTART_MS)

    def start_manager(self, key: str) -> None:
        """Ray starts a node's LogManager, or finds it running."""
        node = self.node(key)
        if not node.is_up:
            return
        if node.manager is not None:
            node.manager.tell(ReportWanted())
            return
        self._lives += 1
        node.manager = Manager(self, node, f"life-{self._lives}")

    def manager_dies(self, node: SimNode) -> None:
        """Ray starts it again; the old process may still have its locks for a moment."""
        manager, node.manager = node.manager, None
        if manager is None:
            return
        node.is_fresh = False
        manager.is_alive = False
        self.clockwork.soon(manager.die, most_ms=2_000)
        self.clockwork.soon(lambda: self.start_manager(node.key), most_ms=RESTART_MS)

    def actor_dies(self, actor: SimActor) -> None:
        self.ray.crash(actor)
        self.clockwork.soon(lambda: self._tell_gone(actor), most_ms=3_000)

    def _tell_gone(self, actor: SimActor) -> None:
        manager = self.node(actor.node).manager
        if manager is not None:
            manager.actor_died(actor)

    def _ask_what_to_obey(self, actor: SimActor) -> None:
        """It asks its LogManager, again and again, while nobody else has told it."""
        is_waiting = actor.is_alive and actor.is_learning
        if not is_waiting or self.ray.named.get(actor.log.partition) is not actor:
            return
        self.clockwork.soon(lambda: self._ask_what_to_obey(actor), most_ms=ASK_MS)
        manager = self.node(actor.node).manager
        if manager is None or not manager.is_answering or actor.is_paused or actor.dir.failure:
            return
        order = manager.machine.order_of(actor.log)
        if order is None or order.directory_id != actor.dir.directory_id:
            return
        self.truth.situations["obeyed after a restart"] += 1
        self.truth.opened(actor.log, actor.dir)
        actor.is_learning = False
        actor.config, actor.config_version = order.config, order.config_version
        self.clockwork.soon(lambda: manager.actor_said(actor), most_ms=ASK_MS)

    def node_goes(self, node: SimNode) -> None:
        """The machine loses its power."""
        node.is_up = False
        if node.manager is not None:
            node.manager.die()
            node.manager = None
        for actor in [each for each in self.ray.named.values() if each.node == node.key]:
            self.ray.vanish(actor)
        node.upkeep.clear()

    def node_comes(self, node: SimNode) -> None:
        if not node.is_up:
            node.is_up = node.is_fresh = True
            node.trouble_ms = self.clockwork.now_ms
            for dir in node.dirs:
                dir.read_ms = self.clockwork.now_ms

    @property
    def are_links_late(self) -> bool:
        """Whether so much is late that nodes tell and hear again and again what was long ago."""
        return self._lateness > MUCH_LOSS

    def nodes_with_room(self, calm_ms: int) -> list[str]:
        """The nodes on which any partition can be made, and where all was well since then."""
        return (
            []
            if self._loss > MUCH_LOSS or self.are_links_late
            else [
                node.key
                for node in self.nodes
                if node.room > MUCH_ROOM and node.is_calm(calm_ms) and self._are_dirs_online(node)
            ]
        )

    def _are_dirs_online(self, node: SimNode) -> bool:
        records = [self.truth.desired.dirs.get(dir.directory_id) for dir in node.dirs]
        return all(record is not None and record.state == "online" for record in records)

    def node(self, key: str) -> SimNode:
        return next(node for node in self.nodes if node.key == key)

    # -- links -------------------------------------------------------------------------------------

    def send_report(self, manager: Manager, report: Report) -> None:
        def arrive() -> None:
            if self.controller is not None:
                self.controller.hear_report(report)

        self._carry(manager.node.key, "up", arrive)

    def send_refusal(self, manager: Manager, epoch: int) -> None:
        def arrive() -> None:
            if self.controller is not None:
                self.controller.hear_refusal(manager.node.key, epoch)

        self._carry(manager.node.key, "up", arrive)

    def send_orders(self, key: str, orders: Orders) -> None:
        for order in orders.orders:
            if isinstance(order, Serve | Move):
                self.truth.told(order)

        def arrive() -> None:
            manager = self.node(key).manager
            if manager is not None:
                manager.hear_orders(orders)

        self._carry(key, "down", arrive)

    def _carry(self, key: str, way: str, arrive: Callable[[], None]) -> None:
        if (key, way) in self.cuts or self.clockwork.chance.random() < self._loss:
            return
        is_late = self.clockwork.chance.random() < self._lateness
        self.clockwork.soon(arrive, most_ms=LATE_MS if is_late else LINK_MS)

    # -- what is true ------------------------------------------------------------------------------

    def _written(self, record: Record) -> None:
        if isinstance(record, DirRecord):
            self._check_dir_record(record)
        self.truth.commit(record, self.clockwork.now_ms)

    def _check_dir_record(self, record: DirRecord) -> None:
        dirs = [dir for node in self.nodes for dir in node.dirs]
        dir = next(dir for dir in dirs if dir.directory_id == record.directory_id)
        if record.state == "offline":
            expect(dir.failed_ms >= 0, f"{dir.path} is taken offline, and its disk is in order")
        self.truth.dir_recorded(record, dir)
        if not self.users.are_asking_for_dir(record.directory_id):
            self.truth.dir_changed(record)

    def _restored(self) -> None:
        self.truth.replay(self.metadata.records())

    def check_renamed(self, dir: SimDir, folder: SimFolder, kind: str) -> None:
        self.truth.renamed(dir, folder, kind)

    def check_instruction(self, manager: Manager, instruction: do.Work) -> None:
        if isinstance(instruction, do.StartLog):
            self.truth.opened(instruction.log, manager.dir(instruction.directory_id))
        is_ordered = not isinstance(instruction, do.WriteEpoch | do.ReadDir | do.KillActor)
        if is_ordered and getattr(instruction, "topic_id", "") is not None:
            for dir in manager.dirs_of(instruction):
                is_known = dir.controller_epoch >= manager.obeyed_epoch
                expect(is_known, f"{instruction}: its dir does not have the epoch of the orders")

    def ask_for_right(self, node: SimNode, log: LogId) -> None:
        """An upkeep actor asks its LogManager, and then the LogActor, which looks at the clock."""
        if node.manager is None or not node.manager.is_answering:
            return
        right = node.manager.machine.rights(self.clockwork.now_ms).get(log)
        if right is not None:
            remove = partial(self._remove_segments, node, right)
            self.clockwork.soon(remove, most_ms=REMOVAL_MS)

    def _remove_segments(self, node: SimNode, right: Confirmed) -> None:
        """A LogActor removes only under the config that it obeys, and while there is a right."""
        actor = self.ray.named.get(right.log.partition)
        if actor is None or actor.log != right.log or actor.node != node.key:
            return
        is_serving = actor.is_alive and not actor.is_learning and not actor.is_paused
        is_right = actor.config_version == right.config_version
        if is_serving and is_right and self.clockwork.now_ms < right.until_ms:
            self.truth.segments_removed(right.log, actor.dir, right.config_version)

    @staticmethod
    def expect(condition: bool, what: str) -> None:
        expect(condition, what)
