"""Carries one ``StartLog`` out: makes a log's actor, or finds it, and waits until it serves.

::

    start the actor --> says() --+-- serving ----------------------------> what it says
         ^                       +-- opening, learning --> ask again       (recovery may take hours)
         |                       +-- could not be opened ----------------> that error
         +--- kill it, wait <----+-- another log's, ended, or silent
                                 +-- lives on another node ------------> NotLeader; left alone

An actor that had the name before may be of a node that is away: Ray keeps its name, and nobody
answers. It is replaced after EXISTING_SILENCE_S. One that was just started is given more time:
many processes may start at once.
"""

import logging
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from raylog.actors.cluster_image import Endpoint
from raylog.actors.control import LogId
from raylog.actors.coordinators.group_config import GROUPS, GroupConfig
from raylog.actors.coordinators.transactions.config import TRANSACTIONS, TransactionConfig
from raylog.actors.errors import NotLeader, RequestTimedOut
from raylog.actors.events import warn
from raylog.actors.listeners import ON_LOOPBACK, Listener
from raylog.actors.messages import PartitionOffsets
from raylog.actors.node.events import Served
from raylog.actors.node.instructions import StartLog
from raylog.actors.node.log_actors import LogActors, served_of
from raylog.actors.node.processes import LogProcess
from raylog.actors.node.timer import Timer
from raylog.actors.node_messages import LogOrder, LogSays
from raylog.actors.partition.spec import LogSpec
from raylog.storage.errors import RaylogError
from raylog.storage.log_dir import CheckpointedOffsets
from raylog.storage.names import TopicPartition
from raylog.storage.state.producers import ProducerExpiration

logger = logging.getLogger(__name__)

# How often an actor is made, or found, for one instruction.
TRIES = 3
EXISTING_SILENCE_S = 10.0
NEW_SILENCE_S = 600.0
# Until the name of an actor that was killed is free.
GONE_TIMEOUT_S = 30.0
# How long the process of an actor that was killed may take to end by itself.
END_PATIENCE_S = 2.0
# Between two questions: twice as long each time.
FIRST_DELAY_S, LONGEST_DELAY_S = 0.02, 1.0


class LogDisk(Protocol):
    """What is needed of the disks: ``disk_work.py``. Only ``settle_losses`` waits for a disk."""

    def folder(self, directory_id: str, partition: TopicPartition) -> str: ...

    def checkpointed(self, directory_id: str, partition: TopicPartition) -> CheckpointedOffsets: ...

    def record_offsets(
        self, log: LogId, directory_id: str, offsets: PartitionOffsets
    ) -> object: ...

    def settle_losses(self, log: LogId, directory_id: str, offsets: PartitionOffsets) -> object: ...

    def began_opening(self, log: LogId, directory_id: str) -> object: ...

    def opened(self, directory_id: str, partition: TopicPartition) -> object: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What LogActors are told of their node. ``node``: its key. ``node_id``: Ray's."""

    namespace: str
    node: str
    node_id: str
    producer_expiration: ProducerExpiration
    cluster_id: str = ""
    listeners: tuple[Listener, ...] = (ON_LOOPBACK,)
    groups: GroupConfig = GROUPS
    transactions: TransactionConfig = TRANSACTIONS


@dataclass(slots=True, eq=False)
class Effort:
    """Work on an actor that is under way, and may be cancelled by who kills the actor."""

    token: int
    partition: TopicPartition
    cancelled: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)  # and was told
    # Held while an actor is started: after a cancellation none is.
    starting: threading.Lock = field(default_factory=threading.Lock)
    is_begun: bool = False

    def check(self) -> None:
        """Raise NotLeader if it was cancelled."""
        if self.cancelled.is_set():
            raise NotLeader(str(self.partition), "its LogActor was ended")


class Ending:
    """Ends actors, and waits until their names are free, and their processes have ended."""

    def __init__(self, actors: LogActors, timer: Timer) -> None:
        self._actors = actors
        self._timer = timer
        # Those that have not ended yet: once the name is free Ray does not tell them any more.
        self._processes: dict[TopicPartition, LogProcess] = {}

    def end(
        self, partition: TopicPartition, cancelled: threading.Event, *, is_closed: bool = False
    ) -> None:
        """End the actor for good. Raises NotLeader if its name is not free in time.

        ``is_closed``: it has closed its log. Else its process must end, too: one that stands still
        would go on to write. It is ended at once where it has not ended after END_PATIENCE_S.
        """
        began_s = self._timer.now_s()
        delay_s = FIRST_DELAY_S
        while True:
            why = "its previous LogActor is still ending"
            try:
                if not is_closed:
                    self._remember(partition)
                self._actors.kill(partition)
                if not self._actors.is_there(partition):
                    process = self._still_running(partition, self._timer.now_s() - began_s)
                    if process is None:
                        return
                    why = f"process {process.pid} of its previous LogActor has not ended"
            except (NotLeader, RequestTimedOut) as error:
                why = error.problem
            is_over = self._timer.now_s() >= began_s + GONE_TIMEOUT_S
            if is_over or self._timer.wait(cancelled, delay_s):
                raise NotLeader(str(partition), why)
            delay_s = min(2 * delay_s, LONGEST_DELAY_S)

    def _remember(self, partition: TopicPartition) -> None:
        process = self._actors.process(partition)
        if process is not None:
            self._processes[partition] = process

    def _still_running(self, partition: TopicPartition, waited_s: float) -> LogProcess | None:
        """The process of an actor that has no name any more; None once it has ended."""
        process = self._processes.get(partition)
        if process is None:
            return None
        if not self._actors.is_running(process):
            del self._processes[partition]
            return None
        if waited_s >= END_PATIENCE_S:
            self._actors.end_at_once(process)
        return process


class LogStart:
    """See the module's head. Made for one instruction."""

    def __init__(
        self,
        work: StartLog,
        effort: Effort,
        *,
        actors: LogActors,
        disk: LogDisk,
        facts: NodeFacts,
        timer: Timer,
        controller_epoch: int,
        endpoint: Endpoint | None = None,
    ) -> None:
        """``endpoint``: what the actor is to clients; None where that is not known yet."""
        self._work = work
        self._endpoint = endpoint
        self._effort = effort
        self._actors = actors
        self._disk = disk
        self._facts = facts
        self._timer = timer
        self._partition = work.log.partition
        self._folder = disk.folder(work.directory_id, self._partition)
        self._order = LogOrder(
            log=work.log,
            directory_id=work.directory_id,
            config=work.config,
            config_version=work.config_version,
            controller_epoch=controller_epoch,
        )
        self._is_new = False  # whether this has made the actor
        self._tries = 0
        self._is_elsewhere = False
        self._why = "its LogActor does not answer"

    def run(self) -> Served:
        """Returns what the actor serves. After an error no actor of the log lives on this node."""
        try:
            says = self._start()
            self._record(says)
            return served_of(says)
        except BaseException:
            self._clean_up()
            raise

    @property
    def has_met_one_actor(self) -> bool:
        """Whether no other actor than the one that was made first can have opened the log."""
        return self._tries == 1 and self._is_new

    def _start(self) -> LogSays:
        is_clean = self._work.is_clean
        self._disk.began_opening(self._work.log, self._work.directory_id)
        for _ in range(TRIES):
            self._make(is_clean=is_clean)
            is_clean = False  # the log may have been written to since
            says = self._until_serving()
            if says is not None:
                return says
            warn(logger, "log-actor-replaced", partition=self._partition, why=self._why)
            Ending(self._actors, self._timer).end(self._partition, self._effort.cancelled)
        raise NotLeader(str(self._partition), self._why)

    def _make(self, *, is_clean: bool) -> None:
        spec = self._spec(is_clean=is_clean)
        with self._effort.starting:
            self._effort.check()
            self._tries += 1
            self._is_new = not self._actors.is_there(self._partition)
            self._actors.start(spec)

    def _spec(self, *, is_clean: bool) -> LogSpec:
        offsets = self._disk.checkpointed(self._work.directory_id, self._partition)
        return LogSpec(
            log=self._work.log,
            directory_id=self._work.directory_id,
            folder=self._folder,
            config=self._work.config,
            config_version=self._work.config_version,
            controller_epoch=self._order.controller_epoch,
            is_clean=is_clean,
            recovery_point=offsets.recovery_point,
            log_start_offset=offsets.log_start_offset,
            producer_expiration=self._facts.producer_expiration,
            namespace=self._facts.namespace,
            node=self._facts.node,
            cluster_id=self._facts.cluster_id,
            endpoint=self._endpoint,
            listener=self._facts.listeners[0],
            further_listeners=self._facts.listeners[1:],
            groups=self._facts.groups,
            transactions=self._facts.transactions,
        )

    def _until_serving(self) -> LogSays | None:
        """What it says when it serves; None: it is to be replaced. Raises why it cannot serve."""
        patience_s = NEW_SILENCE_S if self._is_new else EXISTING_SILENCE_S
        heard_s = self._timer.now_s()
        delay_s = FIRST_DELAY_S
        while True:
            self._effort.check()
            try:
                says = self._ask()
                heard_s = self._timer.now_s()
            except (NotLeader, RequestTimedOut) as error:
                if self._is_elsewhere:
                    raise
                says = None
                self._why = error.problem
                if self._timer.now_s() - heard_s >= patience_s:
                    return None
            if says is not None and says.state == "serving":
                return says
            if says is not None and says.state == "ended":
                return None
            self._timer.wait(self._effort.cancelled, delay_s)
            delay_s = min(2 * delay_s, LONGEST_DELAY_S)

    def _ask(self) -> LogSays:
        """What it says; ``ended`` where it is of no use. Raises why its log cannot be opened."""
        says = self._actors.says(self._partition)
        if says is None:
            self._why = "its LogActor has ended"
            return self._useless()
        if not self._is_own(says):
            self._check_here(says)
            self._why = f"its LogActor was that of {says.log} in {says.folder}"
            return self._useless()
        if says.state in ("ended", "offline"):
            if says.problem is not None and self._is_new:
                raise says.problem
            self._why = "its LogActor had ended" if says.problem is None else says.problem.problem
            return self._useless()
        if says.state != "serving":
            is_newest = says.config_version >= self._order.config_version
            is_to_learn = says.state != "opening" or not is_newest
            return self._actors.learn(self._order) if is_to_learn else says
        if says.config_version < self._order.config_version:
            return self._actors.reconfigure(self._order)
        return says

    def _useless(self) -> LogSays:
        return LogSays(
            log=self._work.log,
            directory_id=self._work.directory_id,
            folder=self._folder,
            node_id=self._facts.node_id,
            state="ended",
        )

    def _is_own(self, says: LogSays) -> bool:
        return (says.log, says.directory_id, says.folder, says.node_id) == (
            self._work.log,
            self._work.directory_id,
            self._folder,
            self._facts.node_id,
        )

    def _check_here(self, says: LogSays) -> None:
        """Raise NotLeader where it lives on another node that is up, and may be needed there.

        One that waits for its config has opened nothing. If its log is another topic's, nobody
        orders it any more: two topics have one name only after each other.
        """
        is_waiting = says.state in ("new", "learning")
        if is_waiting and says.log != self._work.log:
            return
        if says.node_id != self._facts.node_id and says.node_id in self._actors.nodes():
            self._is_elsewhere = True
            why = f"its LogActor lives on another node ({says.node_id[:8]}), which is up"
            raise NotLeader(str(self._partition), why)

    def _record(self, says: LogSays) -> None:
        if says.offsets is None:
            return
        if any(total.kind == "lost" for total in says.opening.totals):
            self._disk.settle_losses(says.log, says.directory_id, says.offsets)
        self._disk.record_offsets(says.log, says.directory_id, says.offsets)

    def _clean_up(self) -> None:
        """End the actor, unless it is another node's, or who cancelled this ends it."""
        if self._is_elsewhere or self._effort.cancelled.is_set():
            return
        with suppress(RaylogError):
            Ending(self._actors, self._timer).end(self._partition, self._effort.cancelled)
