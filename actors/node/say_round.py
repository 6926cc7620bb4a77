"""Asks the LogActors that serve what they say, so that the machine and the checkpoints know it.

A round asks ``ASKED_AT_ONCE`` of them, and the next round goes on behind these: the idle processes
of hundreds of partitions cost a machine most of what it has, and each answer is a part of that.
"""

import logging
from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from functools import partial

from raylog.actors.control import LogId
from raylog.actors.events import warn
from raylog.actors.node.events import ActorGone, ActorSaid, DirFailed, Event, Served
from raylog.actors.node.log_actors import AskedActors, served_of
from raylog.actors.node.log_start import LogDisk
from raylog.actors.node_messages import LogOrder, LogSays
from raylog.storage.errors import RaylogError, StorageError
from raylog.storage.names import TopicPartition

logger = logging.getLogger(__name__)

# With a round every 3 s, each of 256 partitions is asked within 12 s.
ASKED_AT_ONCE = 64

Job = Callable[[], None]


class SayRound:
    """Has a round each time it is called; one at a time."""

    def __init__(
        self,
        actors: AskedActors,
        disk: LogDisk,
        *,
        node_id: str,
        served: Callable[[], Sequence[Served]],
        order_of: Callable[[LogId], LogOrder | None],
        tell: Callable[[Event], object],
        teach: Callable[[Job], object],
    ) -> None:
        """``served``: what the machine has heard last. ``node_id``: Ray's, of this node.

        ``teach``: have a job done that waits for one actor, beside the round.
        """
        self._actors = actors
        self._disk = disk
        self._node_id = node_id
        self._served = served
        self._order_of = order_of
        self._tell = tell
        self._teach_beside = teach
        self._asked_last: TopicPartition | None = None

    def __call__(self) -> None:
        """Ask those whose turn it is at once, for 10 s in all; tell what each has said."""
        served = {log.log.partition: log for log in self._served()}
        if not served:
            return
        for partition, says in self._actors.says_all(self._turn(served)).items():
            if isinstance(says, RaylogError):
                continue  # it is silent, and asked again
            self._heard(served[partition], says)

    def hear(self, says: LogSays) -> None:
        """A LogActor says something by itself. Nothing where it is not known to serve yet."""
        before = next((log for log in self._served() if log.log == says.log), None)
        if before is not None:
            self._heard(before, says)

    def _turn(self, served: Collection[TopicPartition]) -> list[TopicPartition]:
        """Those behind the one that was asked last, in the order of their names."""
        names = sorted(served)
        first = 0 if self._asked_last is None else bisect_right(names, self._asked_last)
        turn = (names[first:] + names[:first])[:ASKED_AT_ONCE]
        self._asked_last = turn[-1]
        return turn

    def _heard(self, before: Served, says: LogSays | None) -> None:
        if says is None or not self._is_same(before, says):
            self._tell(ActorGone(partition=before.log.partition))
            return
        match says.state:
            case "serving":
                self._serves(says)
            case "offline":
                self._offline(says)
            case "ended":
                self._tell(ActorGone(partition=before.log.partition))
            case "new" | "learning":
                self._teach_beside(partial(self._teach, says.log))
            case "opening":
                pass  # it serves again soon, or ends

    def _is_same(self, before: Served, says: LogSays) -> bool:
        is_same_log = (says.log, says.directory_id) == (before.log, before.directory_id)
        return is_same_log and says.node_id == self._node_id

    def _serves(self, says: LogSays) -> None:
        if says.offsets is not None:
            self._disk.record_offsets(says.log, says.directory_id, says.offsets)
        self._tell(ActorSaid(served=served_of(says)))

    def _offline(self, says: LogSays) -> None:
        """Its LogManager may not have heard it from the actor yet."""
        problem = says.problem
        if isinstance(problem, StorageError) and problem.is_disk_failure:
            self._tell(DirFailed(directory_id=says.directory_id, why=problem.problem))

    def _teach(self, log: LogId) -> None:
        order = self._order_of(log)
        if order is None:
            # Nobody has ordered it in this life: the one that was adopted is gone, and the
            # Controller has to hear that, or it never orders that the log is served again.
            self._tell(ActorGone(partition=log.partition))
            return
        try:
            self._actors.learn(order)
        except RaylogError as error:
            warn(logger, "log-not-taught", partition=log.partition, why=error)
