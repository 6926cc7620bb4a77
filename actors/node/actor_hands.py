"""Carries out the instructions that concern LogActors: each in a thread, with one ``Finished``.

=====================  ==========================================
instruction            threads
=====================  ==========================================
StartLog               STARTS_AT_ONCE of the log dir; an opening may take hours
Configure, EndLog      ASKS_AT_ONCE of the log dir; a log flushes what it has
KillActor              KILLS_AT_ONCE
=====================  ==========================================

``KillActor`` cancels what is under way for the log: it ends with an error, and starts no actor any
more.
"""

import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from raylog.actors.cluster_image import Endpoint
from raylog.actors.control import LogId
from raylog.actors.errors import NotLeader
from raylog.actors.node.events import Event, Finished, Served
from raylog.actors.node.instructions import Configure, EndLog, KillActor, StartLog
from raylog.actors.node.log_actors import LogActors, served_of
from raylog.actors.node.log_start import Effort, Ending, LogDisk, LogStart, NodeFacts
from raylog.actors.node.log_states import is_unchanged
from raylog.actors.node.timer import Timer
from raylog.actors.node.workers import Pools, Workers, work_failed
from raylog.actors.node_messages import LogOrder, LogSays
from raylog.storage.errors import RaylogError
from raylog.storage.names import TopicPartition

logger = logging.getLogger(__name__)

STARTS_AT_ONCE, ASKS_AT_ONCE, KILLS_AT_ONCE = 64, 64, 64
# A log flushes what it has, and many may do so at once on one disk.
CLOSE_TIMEOUT_S = 540.0
# So long an orderly end waits for what is under way; an opening mostly takes less.
SETTLE_S = 5.0
# Who is to be killed is asked where it lives, so long.
KILL_SAYS_TIMEOUT_S = 2.0

ActorInstruction = StartLog | Configure | EndLog | KillActor


class ActorHands:
    """See the module's head."""

    def __init__(
        self,
        actors: LogActors,
        disk: LogDisk,
        facts: NodeFacts,
        *,
        controller_epoch: Callable[[], int],
        tell: Callable[[Event], object],
        timer: Timer,
        endpoint_of: Callable[[LogId], Endpoint | None] = lambda log: None,
    ) -> None:
        """``controller_epoch``: the highest that the node has seen.

        ``endpoint_of``: what a log's actor is to clients; None where that is not known.
        """
        self._endpoint_of = endpoint_of
        self._actors = actors
        self._disk = disk
        self._facts = facts
        self._controller_epoch = controller_epoch
        self._tell = tell
        self._timer = timer
        self._ending = Ending(actors, timer)
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._efforts: dict[int, Effort] = {}  # by token
        self._homes: dict[LogId, str] = {}  # directory ids of what is served
        # Logs that were served, or may have been, and so are not as an orderly stop left them.
        self._touched: set[LogId] = set()
        # By directory id: the logs of a disk that hangs must not hold up those of another.
        self._starts = Pools(STARTS_AT_ONCE)
        self._asks = Pools(ASKS_AT_ONCE)
        self._kills = Workers("kill-log", KILLS_AT_ONCE)

    def adopt(self, served: Iterable[Served]) -> None:
        """These were served before the LogManager's life began."""
        for log in served:
            self._disk.began_opening(log.log, log.directory_id)
            self._disk.opened(log.directory_id, log.log.partition)
            with self._lock:
                self._homes[log.log] = log.directory_id
                self._touched.add(log.log)

    def touched(self) -> set[LogId]:
        """The logs that were opened in this life; not those that were refused unchanged."""
        with self._lock:
            return set(self._touched)

    def forget(self, log: LogId) -> None:
        """Nothing is left of the log here."""
        with self._lock:
            self._touched.discard(log)
            self._homes.pop(log, None)

    def carry_out(self, work: ActorInstruction) -> None:
        """Begin to; returns at once. After ``stop`` it ends with NotLeader."""
        if isinstance(work, KillActor):
            kill = partial(self._kill, work, self._cancel(work.partition))
            self._kills.run(partial(self._answer, work.token, work, kill))
            return
        effort = Effort(token=work.token, partition=work.log.partition)
        with self._lock:
            is_stopped = self._stopped.is_set()
            if not is_stopped:
                self._efforts[work.token] = effort
            home = self._homes.get(work.log)
        if is_stopped:
            error = NotLeader(str(work.log.partition), "its LogManager is stopping")
            self._tell(Finished(token=work.token, error=error))
            return
        job = partial(self._try, work, effort)
        if isinstance(work, StartLog):
            self._starts.run(("start", work.directory_id), job)
        else:
            self._asks.run(("ask", home), job)

    def stop(self) -> set[TopicPartition]:
        """Give what is under way SETTLE_S to end, and cancel the rest.

        Returns the partitions of which actors may be starting. What ended before was told before
        this returns, and nothing is begun any more.
        """
        with self._lock:
            self._stopped.set()
            begun = [effort for effort in self._efforts.values() if effort.is_begun]
        self._wait_for(begun)
        with self._lock:
            efforts = list(self._efforts.values())
        for effort in efforts:
            effort.cancelled.set()
        for effort in efforts:
            with effort.starting:
                pass  # it has started its actor, or will start none
        return {effort.partition for effort in efforts}

    def _wait_for(self, efforts: list[Effort]) -> None:
        deadline_s = self._timer.now_s() + SETTLE_S
        for effort in efforts:
            self._timer.wait(effort.ended, max(0.0, deadline_s - self._timer.now_s()))

    # -- work that may be cancelled ----------------------------------------------------------------

    def _cancel(self, partition: TopicPartition) -> list[Effort]:
        """Cancel what is under way for the partition. What has not begun is answered at once."""
        with self._lock:
            efforts = [found for found in self._efforts.values() if found.partition == partition]
            waiting = [effort for effort in efforts if not effort.is_begun]
            for effort in waiting:
                del self._efforts[effort.token]
        for effort in efforts:
            effort.cancelled.set()
        for effort in waiting:
            error = NotLeader(str(partition), "its LogActor was ended")
            self._tell(Finished(token=effort.token, error=error))
        return efforts

    def _try(self, work: StartLog | Configure | EndLog, effort: Effort) -> None:
        with self._lock:
            if effort.token not in self._efforts:
                return  # it was cancelled, and is answered
            effort.is_begun = True
        try:
            self._answer(work.token, work, partial(self._carry_out, work, effort))
        finally:  # after it was told: what is under way and what is told are all that there is
            with self._lock:
                self._efforts.pop(effort.token, None)
            effort.ended.set()

    def _carry_out(self, work: StartLog | Configure | EndLog, effort: Effort) -> Served | None:
        match work:
            case StartLog():
                return self._start(work, effort)
            case Configure():
                return self._configure(work)
            case EndLog():
                self._end(work, effort)
                return None

    def _answer(self, token: int, work: object, job: Callable[[], Served | None]) -> None:
        """Do a job and tell its end, once, whatever happens."""
        try:
            finished = Finished(token=token, result=job())
        except RaylogError as error:
            finished = Finished(token=token, error=error)
        except Exception as error:
            finished = Finished(token=token, error=work_failed(type(work).__name__, error))
        self._tell(finished)

    # -- the instructions --------------------------------------------------------------------------

    def _start(self, work: StartLog, effort: Effort) -> Served:
        with self._lock:
            was_touched = work.log in self._touched
            self._touched.add(work.log)
        start = LogStart(
            work,
            effort,
            actors=self._actors,
            disk=self._disk,
            facts=self._facts,
            timer=self._timer,
            controller_epoch=self._controller_epoch(),
            endpoint=self._endpoint_of(work.log),
        )
        try:
            served = start.run()
        except RaylogError as error:
            if is_unchanged(error) and start.has_met_one_actor and not was_touched:
                with self._lock:
                    self._touched.discard(work.log)
            raise
        finally:
            self._disk.opened(work.directory_id, work.log.partition)
        with self._lock:
            self._homes[work.log] = work.directory_id
        return served

    def _configure(self, work: Configure) -> Served:
        order = LogOrder(
            log=work.log,
            directory_id=self._home_of(work.log),
            config=work.config,
            config_version=work.config_version,
            controller_epoch=self._controller_epoch(),
        )
        says = self._actors.reconfigure(order)
        if says.state != "serving":
            raise NotLeader(str(work.log.partition), f"its LogActor is {says.state}")
        return served_of(says)

    def _home_of(self, log: LogId) -> str:
        with self._lock:
            home = self._homes.get(log)
        if home is None:
            raise NotLeader(str(log.partition), "this node does not serve it")
        return home

    def _end(self, work: EndLog, effort: Effort) -> None:
        """Close the log and end its actor; fine if there is none, or another log's.

        Raises NotLeader for a log that must be closed: nobody has done it then.
        """
        partition = work.log.partition
        says = self._actors.says(partition)
        if says is None or not self._is_here(says) or says.log != work.log:
            if work.must_close:
                why = "its LogActor died before the log was closed; a move can be ordered again"
                raise NotLeader(str(partition), why)
            return
        offsets = self._actors.close(partition, CLOSE_TIMEOUT_S)
        self._disk.record_offsets(work.log, says.directory_id, offsets)
        self._ending.end(partition, effort.cancelled, is_closed=True)
        with self._lock:
            self._homes.pop(work.log, None)

    def _kill(self, work: KillActor, cancelled: list[Effort]) -> None:
        for effort in cancelled:
            with effort.starting:
                pass  # it has started its actor, or will start none
        says = None
        with suppress(RaylogError):
            says = self._actors.says(work.partition, KILL_SAYS_TIMEOUT_S)
        if says is not None and self._lives_elsewhere(says):
            return
        self._ending.end(work.partition, self._stopped)
        with self._lock:
            for log in [log for log in self._homes if log.partition == work.partition]:
                del self._homes[log]

    def _is_here(self, says: LogSays) -> bool:
        return says.node_id == self._facts.node_id

    def _lives_elsewhere(self, says: LogSays) -> bool:
        return not self._is_here(says) and says.node_id in self._actors.nodes()
