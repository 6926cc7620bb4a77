"""One life of the Controller in a simulation, over the real machine."""

from collections import deque
from typing import TYPE_CHECKING

from raylog.actors.control import MetadataKept, Report
from raylog.cluster.controller.commands import Command
from raylog.cluster.controller.events import (
    Appended,
    AppendFailed,
    Asked,
    Event,
    Kept,
    NodesSeen,
    PushFailed,
    Refused,
    Reported,
    ReserveMade,
    Silent,
    SnapshotDamaged,
    SnapshotMade,
    Started,
    Tick,
    Whether,
)
from raylog.cluster.controller.instructions import (
    Answer,
    Append,
    AskWhether,
    Instruction,
    MakeReserve,
    MakeSnapshot,
    Push,
    StartManager,
    Tell,
)
from raylog.cluster.controller.machine import ControllerMachine
from raylog.cluster.controller.pushing import LACKS_SNAPSHOT, message_of
from raylog.cluster.controller.snapshots import snapshot_of
from raylog.storage.errors import RaylogError, StorageError
from raylog.storage.testing.memory import Stopped
from tests.simulation.disks import CLUSTER_ID

if TYPE_CHECKING:
    from tests.simulation.world import World

TICK_MS = 1000
APPEND_MS, START_MS = 200, 3_000
# A push and its answer take less where nothing is wrong.
LONG_MS = 3_000


class SimController:
    """The process: it reads the metadata, gives the machine events, and does what it says."""

    def __init__(self, world: "World", node: str, *, least_epoch: int, accepts_older: bool) -> None:
        self.world = world
        self.is_alive, self.is_paused = True, False
        self.trouble_ms = 0  # when it was paused last, or a record waited for a copy for long
        self._level_ms = 0  # when no record waited for a copy
        self.machine = ControllerMachine(world.broker_config, levels=world.node(node).levels)
        self._waiting: list[Event] = []  # while it is paused
        self.generation = world.metadata.generation
        self._own_dir = world.node(node).dirs[0].directory_id
        self._log = world.metadata.open()
        self._work: deque[Append | MakeSnapshot] = deque()  # of the thread that writes the log
        self._is_cut_off = False  # the process has ended while it wrote
        self.tell(
            Started(
                desired=self._log.desired,
                node=node,
                least_epoch=least_epoch,
                accepts_older=accepts_older,
                history=self._log.history(),
                directory_id=self._own_dir,
                damaged_snapshots=self._log.damaged_snapshots(),
            )
        )
        self._tick()

    def tell(self, event: Event) -> None:
        """Give the machine an event, now or when the process goes on."""
        if not self.is_alive:
            return
        if self.is_paused:
            self._waiting.append(event)
            return
        self.world.clockwork.note("controller", event)
        counted = self.machine.counted
        instructions = self.machine.handle(event, self.world.clockwork.now_ms)
        self.machine.validate()
        if self.machine.counted != counted and not isinstance(event, Started):
            self._check_copies()
        self._note_waiting()
        for instruction in instructions:
            self.world.clockwork.note("controller", f"-> {instruction}")
            self._carry_out(instruction)
        if self.machine.doubt is not None and self.is_alive:
            self.world.older_metadata_is_found()
        elif self.machine.failure is not None and self.is_alive:
            self.world.controller_dies()  # the next life reads what is on the disk

    def _note_waiting(self) -> None:
        """Up to four copies may grow silent one after the other, and each is waited for 12 s."""
        now_ms = self.world.clockwork.now_ms
        if self.machine.counted == self.machine.copies[0].end:
            self._level_ms = now_ms
        elif now_ms - self._level_ms > LONG_MS:
            self.trouble_ms = now_ms

    def resume(self) -> None:
        self.is_paused, self.trouble_ms = False, self.world.clockwork.now_ms
        waiting, self._waiting = self._waiting, []
        for event in waiting:
            self.tell(event)

    def ask(self, request: int, command: Command) -> None:
        self.tell(Asked(request=request, command=command))

    def hear_report(self, report: Report) -> None:
        self.tell(Reported(report=report))

    def hear_refusal(self, node: str, epoch: int) -> None:
        self.tell(Refused(node=node, controller_epoch=epoch))

    def _tick(self) -> None:
        if not self.is_alive:
            return
        up = [node for node in self.world.nodes if node.is_up]
        ghosts = sorted(self.world.ghosts)
        keys = [node.key for node in up] + ghosts
        nodes = {key: f"ray-{key}" for key in keys}
        self.tell(NodesSeen(nodes=nodes, actors=self.world.actors()))
        for key in [node.key for node in up if node.manager is None] + ghosts:
            self.tell(Silent(node=key))
        self.tell(Tick())
        self.world.clockwork.after(TICK_MS, self._tick)

    def _carry_out(self, instruction: Instruction) -> None:
        clockwork = self.world.clockwork
        match instruction:
            case Append() | MakeSnapshot():
                self._work.append(instruction)
                clockwork.soon(self._write_next, most_ms=APPEND_MS)
            case MakeReserve():
                clockwork.soon(self._make_reserve, most_ms=APPEND_MS)
            case StartManager(node=node):
                clockwork.soon(lambda: self._start_manager(node), most_ms=START_MS)
            case Tell(node=node, orders=orders):
                self.world.send_orders(node, orders)
            case Push():
                self._push(instruction)
            case AskWhether():
                clockwork.soon(self._ask_whether, most_ms=START_MS)
            case Answer():
                self.world.users.hear(instruction)

    def _start_manager(self, node: str) -> None:
        self.world.start_manager(node, self.machine.config)

    def _check_copies(self) -> None:
        """A record that counts is on the disks of all copies in sync."""
        for directory_id in self.machine.desired.copy_dirs:
            if directory_id != self._own_dir:
                is_same = self.world.metadata.has
                self.world.truth.check_copy(directory_id, self.machine.counted, is_same)

    def _push(self, push: Push) -> None:
        def fail(why: str = "no answer") -> None:
            self.tell(PushFailed(token=push.token, node=push.node, why=why))

        def damaged(found: SnapshotDamaged) -> None:
            self.world.truth.situations["a push finds a damaged snapshot"] += 1
            self.world.clockwork.soon(lambda: self.tell(found), most_ms=APPEND_MS)

        def heard(kept: MetadataKept) -> None:
            self.tell(Kept(token=push.token, node=push.node, kept=kept))

        self.world.metadata.rots()
        try:
            message = message_of(push, CLUSTER_ID, self._log, damaged)
        except StorageError as error:
            why = str(error)
            self.world.clockwork.soon(lambda: fail(why), most_ms=APPEND_MS)
            return
        if message is None:
            self.world.clockwork.soon(lambda: fail(LACKS_SNAPSHOT), most_ms=APPEND_MS)
            return
        if message.snapshot:
            what = "a copy is begun" if message.base != push.base else "a snapshot is"
            self.world.truth.situations[f"{what} sent with a push"] += 1
        self.world.send_push(push.node, push.life, message, heard, fail)

    def _ask_whether(self) -> None:
        is_told = self.world.clockwork.chance.random() < 0.8
        self.tell(Whether(is_still=True if is_told else None))

    def _write_next(self) -> None:
        work = self._work.popleft()
        if isinstance(work, Append):
            self._append(work)
        elif self.is_alive:
            self._make_snapshot(work)

    def _make_snapshot(self, wanted: MakeSnapshot) -> None:
        situations = self.world.truth.situations
        try:
            damaged = self.world.metadata.save(snapshot_of(wanted.desired, wanted.point))
        except Stopped:
            situations["a Controller dies while it makes a snapshot"] += 1
            self._is_cut_off = True
            self.world.controller_dies()
        except RaylogError as error:
            situations["a snapshot cannot be made"] += 1
            self.tell(SnapshotMade(problem=error))
        else:
            situations["a snapshot is made"] += 1
            self.tell(SnapshotMade(damaged=damaged))

    def _append(self, append: Append) -> None:
        """A process that is about to end may still write, while it has the lock of the log."""
        has_lock = self.world.controller in (self, None) and not self._is_cut_off
        is_same_file = self.generation == self.world.metadata.generation
        is_written = has_lock and is_same_file and self.world.clockwork.chance.random() < 0.5
        if not self.is_alive and not is_written:
            return
        error, shortage = self.world.metadata.append(
            append.records, may_use_reserve=append.may_use_reserve
        )
        if shortage is not None:
            self.world.truth.situations["a piece of the metadata's reserve is used"] += 1
        if error is None:
            self.tell(Appended(token=append.token, shortage=shortage))
        else:
            self.tell(AppendFailed(token=append.token, error=error))

    def _make_reserve(self) -> None:
        if self.is_alive:
            self.tell(ReserveMade(problem=self.world.metadata.make_reserve()))
