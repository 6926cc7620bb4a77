"""A whole cluster in one thread: real machines, and everything around them from one seed.

::

    users --commands--> Controller's process --Orders--> LogManager's process --> disks, LogActors
                          |  ControllerMachine             |  NodeMachine
                          +-- metadata disk  <--Report-----+

Links delay what they carry and lose some of it; orders may overtake each other. What goes wrong,
``faults.py`` says; what must hold, ``invariants.py``.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from random import Random

from raylog.actors.control import (
    Confirmed,
    LogId,
    MetadataKept,
    MetadataPush,
    Move,
    Orders,
    Report,
    Serve,
)
from raylog.actors.node import instructions as do
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node.events import ReportWanted
from raylog.actors.runtime.names import log_actor_name, log_manager_name
from raylog.cluster.controller.commands import AllocateProducerId
from raylog.cluster.controller.leaving_dirs import TAKEN_OFFLINE
from raylog.cluster.controller.records import (
    ControllerRecord,
    DirRecord,
    LevelRecord,
    PartitionRecord,
    Record,
)
from raylog.cluster.controller.rolling import (
    digests_of,
    is_old_at_once,
    is_old_by_start,
    roll,
)
from raylog.storage.errors import RaylogError
from tests.simulation.actors import SimActor, SimRay
from tests.simulation.clockwork import Clockwork
from tests.simulation.controllers import SimController
from tests.simulation.disks import SimDir, sim_id
from tests.simulation.faults import Nemesis
from tests.simulation.invariants import Truth, expect
from tests.simulation.late_orders import LateOrders
from tests.simulation.metadata_disk import SNAPSHOT_BYTES, MetadataDisk, opened_copy
from tests.simulation.nodes import Manager, SimNode
from tests.simulation.swaps import Swaps
from tests.simulation.upgrades import NEW, OLD, Upgrades, is_upgraded
from tests.simulation.users import CALM_MS, Users

LINK_MS, LATE_MS = 300, 20_000
# A snapshot of the metadata each few records, now and then, or never.
SIZES = 1_000, 5_000, 20 << 20
# After this a push that was not answered has failed.
PUSH_TIMEOUT_MS = 30_000
# How long a report of a slow node takes.
SLOW_MS = 2_000, 15_000
# How often an actor that Ray has started again asks what it shall obey; how long an upkeep actor
# takes from asking for a right to having records removed.
ASK_MS, REMOVAL_MS = 2_000, 30_000
# How often retention has a round: often enough that some of them meet each fault.
ROUND_MS = 5_000
RESTART_MS = 6_000
# A node with less room may have none left; where more messages are lost or late, a node may seem
# silent.
MUCH_ROOM, MUCH_LOSS = 100, 0.1
# How many LogActors the nodes of a cluster can hold.
ROOMS = ((1000,), (4, 1000), (2, 5))
VALIDATE_EACH = 50
# What a seed may take until the faults end, and how long healing may take afterwards.
MOST_EVENTS = 2_000
HEALING_MS = 900_000
# Until every LogManager that was killed is back.
AGAIN_MS = 15_000


class World:
    """One cluster, from one seed."""

    def __init__(self, seed: int) -> None:
        logging.disable()  # what the broker's own code says to an operator
        self.clockwork = Clockwork(seed)
        self.snapshot_bytes = Random(f"snapshots {seed}").choice(SIZES)
        self.broker_config = BrokerConfig.parse(
            {
                "log.dirs": "/n",
                "log.retention.check.interval.ms": ROUND_MS,
                SNAPSHOT_BYTES: self.snapshot_bytes,
            }
        )
        chance = self.clockwork.chance
        self.truth = Truth()
        self.metadata = MetadataDisk(
            self._appended,
            self._written,
            self._restored,
            levels=OLD if is_upgraded(seed) else NEW,
            chance=Random(f"metadata {seed}"),
            rot=Random(f"rot {seed}"),
        )
        self.ray = SimRay(self.clockwork, self._learned, self._ask_what_to_obey)
        self.cuts: set[tuple[str, str]] = set()  # (node, "up" or "down")
        self._rooms = chance.choice(ROOMS)
        self.slow: set[str] = set()  # nodes whose reports take long
        self.ghosts: set[str] = set()  # keys of nodes that Ray shows, though they have another now
        self._keys_given = self._disks_moved = 0
        self.nodes = [self._make_node(number) for number in range(chance.randint(3, 5))]
        self.controller: SimController | None = None
        self._lives = 0
        self._restarting: set[str] = set()  # nodes whose LogManager Ray starts again
        self._accepts_older = False  # as the next Controller is told
        # How much of what links carry is lost, and how much comes late.
        self._loss, self._lateness = chance.choice((0.0, 0.02, 0.2)), chance.choice((0.02, 0.2))
        self.nemesis = Nemesis(self)
        self.users = Users(self)
        self.upgrades = Upgrades(self, seed)
        self.swaps = Swaps(self, seed)
        self.late_orders = LateOrders(self, seed)

    def _make_node(self, number: int) -> SimNode:
        key, chance = f"n{number}", self.clockwork.chance
        dirs = [
            SimDir(sim_id(f"{key}-d{index}"), f"/{key}/d{index}", number + 1)
            for index in range(chance.randint(1, 2))
        ]
        node = SimNode(key=key, dirs=dirs, most=chance.choice(self._rooms))
        node.disks.format(dirs)
        return node

    # -- a run -------------------------------------------------------------------------------------

    def run(self, most_events: int = MOST_EVENTS) -> None:
        """Faults and users for ``most_events``; then all is healed, and all must come right.

        The last faults of all come one by one.
        """
        self._start_controller()
        self.nemesis.begin()
        self.users.begin()
        self.upgrades.begin()
        self.swaps.begin()
        self.late_orders.begin()
        while self.clockwork.events < most_events and self.clockwork.step():
            if self.clockwork.events % VALIDATE_EACH == 0:
                self.truth.validate(self.ray)
        self.heal()
        self._settle("when all is healed")
        self._ask_for_ids()
        self._kill_all_again()
        self._check_copies()

    def _settle(self, when: str) -> None:
        """Go on until all is right."""
        end_ms = self.clockwork.now_ms + HEALING_MS
        while self.clockwork.now_ms < end_ms and not self.is_settled():
            if not self.clockwork.step():
                break
        self.truth.validate(self.ray)
        expect(self.is_settled(), f"it does not come right {when}: {self.what_is_left()}")

    def _ask_for_ids(self) -> None:
        """Where all is well, no id is given that was given before, whatever was rolled back."""
        self._go_on(CALM_MS + 1_000)
        self.users.ask(AllocateProducerId())
        self._settle("when an id was asked for")

    def _kill_all_again(self) -> None:
        """Each LogManager dies, then each LogActor, which the next LogManager has adopted, and then
        the upkeep twice: the first time it was adopted, too."""
        for node in self.nodes:
            self.manager_dies(node)
        self._go_on(AGAIN_MS)
        self._settle("when the LogManagers have died")
        for actor in list(self.ray.named.values()):
            self.actor_dies(actor)
        self._settle("when the LogActors have died")
        for when in ("when the upkeep has died", "when the upkeep has died again"):
            for node in self.nodes:
                node.upkeep.clear()
            self._settle(when)

    def _check_copies(self) -> None:
        """A Controller could begin over each copy in sync."""
        assert self.controller is not None
        in_sync = self.controller.machine.desired.copy_dirs
        for node in self.nodes:
            for dir in node.dirs:
                if dir.directory_id in in_sync and node is not self.nodes[0]:
                    self.metadata.check(opened_copy(node.disks.crash(), dir.path))

    def _go_on(self, duration_ms: int) -> None:
        end_ms = self.clockwork.now_ms + duration_ms
        while self.clockwork.now_ms < end_ms and self.clockwork.step():
            pass

    def heal(self) -> None:
        """No more faults, and no more commands; what was done is undone."""
        self.nemesis.is_over = self.users.are_over = True
        self._loss = self._lateness = 0.0
        self.cuts.clear()
        self.slow.clear()
        self.ghosts.clear()
        self.metadata.fails_next, self.metadata.is_full = "", False
        self.metadata.is_well = True
        for node in self.nodes:
            self.node_comes(node)
            for dir in node.dirs:
                dir.heal()
            if node.manager is not None:
                node.manager.resume()
        for actor in self.ray.named.values():
            actor.is_paused = False
        if self.controller is not None:
            self.controller.resume()
        self.upgrades.install_everywhere()
        self.nemesis.write_back_all()
        self.users.bring_dirs_online()
        self.users.bring_nodes_online()

    def is_settled(self) -> bool:
        """Asked after every event, so it looks no further than the first difference."""
        return next(self._left(), None) is None

    def what_is_left(self) -> list[str]:
        """What differs between desired and real, and commands without an answer."""
        return list(self._left())

    def _left(self) -> Iterator[str]:
        yield from self.users.unanswered()
        yield from self._unlike_desired()
        yield from self._missing_upkeep()
        for actor in self.ray.named.values():
            yield from self._wrong_with(actor)
        yield from self._old_configs()

    def _unlike_desired(self) -> Iterator[str]:
        """The partitions and nodes that are not as they shall be."""
        desired = self.truth.desired
        for log, record in desired.partitions.items():
            if self._is_stopped(record):
                continue  # nobody serves it, and what is removed goes when the node is started
            problem = self._problem(record)
            if problem and not self.is_unservable(record):
                yield f"{log} {problem}"
        for node in self.nodes:
            if desired.is_stopped(node.key) and node.manager is not None:
                yield f"{node.key} is stopped, and has a LogManager"

    def _missing_upkeep(self) -> Iterator[str]:
        for node in self.nodes:
            for kind in node.missing_upkeep():
                yield f"no {kind} at {node.key}"

    def _wrong_with(self, actor: SimActor) -> Iterator[str]:
        """What an actor does that it shall not."""
        desired = self.truth.desired
        if desired.is_stopped(actor.node):
            yield f"{actor.log} runs at {actor.node}, which is stopped"
        if actor.log not in desired.partitions and not actor.is_learning:
            yield f"{actor.log} is served, but not desired"
        folder = actor.disks.folder(actor.path, actor.log.partition)
        # One that was silent when its LogManager began is not known to it.
        is_known = actor.is_alive and actor.log in self._served_at(actor.node)
        if is_known and folder is not None and folder.read_id is None:
            yield f"{actor.log} is served from a folder that does not say whose it is"

    def _old_configs(self) -> list[str]:
        """The nodes that report another config of the broker than they shall obey.

        While a partition cannot be served, nobody takes another node away from the users.
        """
        if self.controller is None:
            return []
        wanted = digests_of(self.controller.machine.config)
        nodes, now_ms = self.controller.machine.watched.nodes, self.clockwork.now_ms
        waits_for = roll(self.truth.desired, nodes, now_ms, wanted).waits_for
        left = []
        for key, seen in nodes.items():
            is_held_up = waits_for.startswith("partition ")
            is_old = is_old_by_start(seen, wanted) and not is_held_up
            if is_old_at_once(seen, wanted) or is_old:
                left.append(f"{key} obeys an old config of the broker: {waits_for}")
        return left

    def _served_at(self, key: str) -> set[LogId]:
        manager = self.node(key).manager
        return set() if manager is None else {facts.log for facts in manager.machine.served()}

    def _problem(self, record: PartitionRecord) -> str:
        """Why a partition is not as it shall be; empty if it is."""
        log, actor = record.log, self.ray.named.get(record.log.partition)
        if record.state != "online":
            return f"is {record.state}"
        if actor is None or not actor.is_alive or actor.is_learning or actor.log != log:
            return "is not served"
        if actor.dir.directory_id != record.directory:
            return f"is served from {actor.dir.directory_id}"
        if actor.config_version < self.truth.desired.config_version(log.topic_id):
            return "obeys an old config"
        return ""

    def _is_stopped(self, record: PartitionRecord) -> bool:
        """Whether its node, or one on which something of it may lie, is stopped.

        So may be one to which its disk was moved: nobody reports it from there.
        """
        desired = self.truth.desired
        there = (
            node.key
            for node in self.nodes
            if any(dir.directory_id == record.directory for dir in node.dirs)
        )
        return any(map(desired.is_stopped, (desired.node_of(record.log), *record.left, *there)))

    def is_unservable(self, record: PartitionRecord) -> bool:
        """Whether nobody can serve it before a person mends something."""
        return self._is_lost(record.log, record.directory) or self._is_taken(record.log)

    def _is_lost(self, log: LogId, directory_id: str | None) -> bool:
        """Whether its folder is not there, after a restore of older metadata, or does not say whose
        it is: nobody can serve it before somebody mends that."""
        if directory_id is None:
            return False
        for node in self.nodes:
            for dir in node.dirs:
                if dir.directory_id == directory_id:
                    folder = node.disks.find(dir, log.partition)
                    return folder is None or folder.read_id != log.topic_id
        return True

    def _is_taken(self, log: LogId) -> bool:
        """Whether the name of a log is in use, somewhere, by one of which older metadata that was
        restored does not know: the same log on another node, or a folder that lies where it shall
        and does not say that it is another topic's."""
        if not self.metadata.was_restored:
            return False
        desired = self.truth.desired
        for node in self.nodes:
            for dir in node.dirs:
                folder = node.disks.find(dir, log.partition)
                is_lost = folder is not None and folder.topic_id not in desired.topics
                if folder is not None and is_lost and folder.read_id is None:
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
        home = self.nodes[0]
        known = max(home.disks.controller_epoch(dir) for dir in home.dirs)
        if known > max(epochs, default=0) and not accepts_older:
            expect(self.metadata.was_restored, "a crash looks like older metadata")
            self.truth.situations["older metadata is refused at the start"] += 1
            accepts_older = True
        self.controller = SimController(
            self, home.key, least_epoch=known, accepts_older=accepts_older
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

    def actors(self) -> frozenset[str]:
        """The names of all actors that run, or that Ray starts again."""
        keys = [node.key for node in self.nodes if node.manager or node.key in self._restarting]
        managers = [log_manager_name(key) for key in keys]
        return frozenset([*managers, *map(log_actor_name, self.ray.named)])

    def start_manager(self, key: str, config: BrokerConfig | None = None) -> None:
        """Ray starts a node's LogManager, or finds it running.

        ``config``: that a new one begins with; None: with that of its first start.
        """
        node = self.node_of_key(key)
        if node is None:
            return
        is_restarting = node.key in self._restarting
        self._restarting.discard(node.key)
        if not node.is_up:
            return
        if node.manager is not None:
            node.manager.tell(ReportWanted())
            return
        self._lives += 1
        config = config or node.config
        if not is_restarting:  # Ray makes another actor
            node.config = config
        node.manager = Manager(self, node, f"life-{self._lives}", config)

    def manager_dies(self, node: SimNode) -> None:
        """Ray starts it again; the old process may still have its locks for a moment."""
        manager, node.manager = node.manager, None
        if manager is None:
            return
        node.is_fresh = False
        manager.is_alive = False
        self._restarting.add(node.key)
        self.clockwork.soon(manager.die, most_ms=2_000)
        self.clockwork.soon(lambda: self.start_manager(node.key), most_ms=RESTART_MS)

    def actor_dies(self, actor: SimActor) -> None:
        if not actor.is_alive:
            return
        if actor.is_adopted:
            self.truth.situations["an adopted actor dies"] += 1
        self.ray.crash(actor)

    def _learned(self, actor: SimActor) -> None:
        """It opens its log, by its LogManager's word."""
        self.truth.situations["obeyed after a restart"] += 1
        self.truth.opened(actor.log, actor.dir)

    def _ask_what_to_obey(self, actor: SimActor) -> None:
        """It asks its LogManager, again and again, while nobody else has told it."""
        is_waiting = actor.is_alive and actor.is_learning
        if not is_waiting or self.ray.named.get(actor.log.partition) is not actor:
            return
        self.clockwork.soon(lambda: self._ask_what_to_obey(actor), most_ms=ASK_MS)
        manager = self.node(actor.node).manager
        if manager is None or not manager.is_answering or actor.is_paused or actor.dir.broken:
            return
        order = manager.machine.order_of(actor.log)
        if order is not None and order.directory_id == actor.dir.directory_id:
            with suppress(RaylogError):
                self.ray.learn(order)

    def manager_ended(self, manager: Manager) -> None:
        """It has ended by order, and Ray does not start it again."""
        node = manager.node
        self.truth.situations["a node is stopped in order"] += 1
        node.manager, node.is_fresh = None, True
        node.upkeep.clear()
        for dir in node.dirs:
            dir.read_ms = self.clockwork.now_ms

    def node_goes(self, node: SimNode) -> None:
        """The machine loses its power."""
        node.is_up = False
        if node.manager is not None:
            node.manager.lose_power()
            node.manager = None
        for actor in [each for each in self.ray.named.values() if each.node == node.key]:
            self.ray.vanish(actor)
        node.upkeep.clear()
        node.disks = node.disks.lose_power(self.clockwork.chance)

    def node_comes(self, node: SimNode) -> None:
        if not node.is_up:
            node.is_up = node.is_fresh = True
            node.trouble_ms = self.clockwork.now_ms
            for dir in node.dirs:
                dir.read_ms = self.clockwork.now_ms

    def give_another_key(self, node: SimNode) -> str:
        """A node that is off will have another key when it is back; returns the one of before."""
        before = node.key
        self._keys_given += 1
        node.key = f"{before.partition('.')[0]}.{self._keys_given}"
        self.truth.reports.pop(before, None)
        return before

    def move_disk(self, dir: SimDir, giver: SimNode, taker: SimNode) -> None:
        """Mount a disk at another path, of another node or of its own; both are off."""
        what = "a disk gets another path" if taker is giver else "a disk gets another node"
        self.truth.situations[what] += 1
        self._disks_moved += 1
        path = f"/{taker.key.partition('.')[0]}/m{self._disks_moved}"
        taker.disks.take_over(giver.disks, dir.path, path)
        giver.dirs.remove(dir)
        taker.dirs.append(dir)
        dir.path = path
        giver.disks.mount(giver.dirs)
        taker.disks.mount(taker.dirs)

    @property
    def are_nodes_small(self) -> bool:
        """Whether no node can hold many LogActors."""
        return max(node.most for node in self.nodes) < MUCH_ROOM

    @property
    def are_links_late(self) -> bool:
        """Whether so much is late that nodes tell and hear again and again what was long ago."""
        return self._lateness > MUCH_LOSS

    def nodes_with_room(self, calm_ms: int) -> list[str]:
        """The nodes on which any partition may be made, and where all was well since then."""
        if self._loss > MUCH_LOSS or self.are_links_late:
            return []
        return [
            node.key
            for node in self.nodes
            if node.most > MUCH_ROOM and node.is_calm(calm_ms) and self._is_used(node, calm_ms)
        ]

    def _is_used(self, node: SimNode, since_ms: int) -> bool:
        """Whether no operator has wanted it otherwise since then, and its log dirs are online."""
        truth = self.truth
        if truth.desired.state_of(node.key) != "online":
            return False
        if truth.operated_ms.get(node.key, -1) >= since_ms:
            return False
        records = [self.truth.desired.dirs.get(dir.directory_id) for dir in node.dirs]
        return all(record is not None and record.state == "online" for record in records)

    def node(self, key: str) -> SimNode:
        return next(node for node in self.nodes if node.key == key)

    def node_of_key(self, key: str) -> SimNode | None:
        """None where the node has another key now."""
        return next((node for node in self.nodes if node.key == key), None)

    def node_with(self, dir: SimDir) -> SimNode:
        return next(node for node in self.nodes if dir in node.dirs)

    # -- links -------------------------------------------------------------------------------------

    def send_report(self, manager: Manager, report: Report) -> None:
        def arrive() -> None:
            if self.controller is not None:
                self.controller.hear_report(report)

        self._carry(manager.node.key, "up", arrive)

    def send_refusal(self, manager: Manager, epoch: int) -> None:
        key = manager.node.key  # it may have another one when this arrives

        def arrive() -> None:
            if self.controller is not None:
                self.controller.hear_refusal(key, epoch)

        self._carry(key, "up", arrive)

    def send_orders(self, key: str, orders: Orders) -> None:
        for order in orders.orders:
            if isinstance(order, Serve | Move):
                self.truth.told(order)

        def arrive() -> None:
            node = self.node_of_key(key)
            manager = None if node is None else node.manager
            if manager is not None and self.upgrades.obeys(manager, orders):
                manager.hear_orders(orders)

        late_ms = self.late_orders.delay_ms(orders)
        if late_ms is None:
            self._carry(key, "down", arrive)
        else:
            self.clockwork.after(late_ms, lambda: self._carry(key, "down", arrive))

    def send_push(
        self,
        key: str,
        life: str,
        push: MetadataPush,
        heard: Callable[[MetadataKept], None],
        fail: Callable[[], None],
    ) -> None:
        """What is lost on the way fails after a while, as a call that is not answered."""
        is_over = False

        def answered(kept: MetadataKept) -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                heard(kept)

        def failed() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                fail()

        def arrive() -> None:
            node = self.node_of_key(key)
            manager = None if node is None else node.manager
            if manager is None or manager.life != life:
                self.clockwork.soon(failed, most_ms=LINK_MS)
                return
            manager.take_push(push, lambda kept: self._carry(key, "up", lambda: answered(kept)))

        self.clockwork.after(PUSH_TIMEOUT_MS, failed)
        self._carry(key, "down", arrive)

    def _carry(self, key: str, way: str, arrive: Callable[[], None]) -> None:
        if (key, way) in self.cuts or self.clockwork.chance.random() < self._loss:
            return
        is_late = self.clockwork.chance.random() < self._lateness
        if way == "up" and key in self.slow:
            self.clockwork.after(self.clockwork.chance.randint(*SLOW_MS), arrive)
            return
        self.clockwork.soon(arrive, most_ms=LATE_MS if is_late else LINK_MS)

    # -- what is true ------------------------------------------------------------------------------

    def _appended(self, records: Sequence[Record]) -> None:
        """These are about to be written together."""
        new = [
            record.node
            for record in records
            if isinstance(record, PartitionRecord)
            and record.log not in self.truth.desired.partitions
        ]
        for node in self.nodes:
            count = new.count(node.key)
            state = self.truth.desired.state_of(node.key)
            expect(not count or state == "online", f"{node.key} is {state}, and gets {count} logs")
            expect(count <= node.most, f"{node.key} gets {count} partitions: it holds {node.most}")

    def _written(self, record: Record) -> None:
        if isinstance(record, DirRecord):
            self._check_dir_record(record)
        elif isinstance(record, LevelRecord):
            self.upgrades.written(record)
        self.truth.commit(record, self.clockwork.now_ms)

    def _check_dir_record(self, record: DirRecord) -> None:
        dirs = [dir for node in self.nodes for dir in node.dirs]
        dir = next(dir for dir in dirs if dir.directory_id == record.directory_id)
        # An operator's word is in what the node says when the metadata is older than that.
        is_ordered = record.is_ordered or TAKEN_OFFLINE in record.why
        if record.state == "offline" and not is_ordered:
            expect(dir.failed_ms >= 0, f"{dir.path} is taken offline, and its disk is in order")
        self.truth.dir_recorded(record, dir)
        if not self.users.are_asking_for_dir(record.directory_id):
            self.truth.dir_changed(record)

    def _restored(self) -> None:
        self.truth.replay(self.metadata.records())

    def check_instruction(self, manager: Manager, instruction: do.Work) -> None:
        if isinstance(instruction, do.StartLog):
            self.truth.opened(instruction.log, manager.node.dir(instruction.directory_id))
        is_ordered = not isinstance(instruction, do.WriteEpoch | do.ReadDir | do.KillActor)
        if is_ordered and getattr(instruction, "topic_id", "") is not None:
            manager.check_epoch(instruction)

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
