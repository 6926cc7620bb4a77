"""Requests whose records are written, and that wait until the nodes report what they asked for.

Each kind looks at what shall be and what is, as of now, and says how its request ends. None of them
is needed for anything to happen: if a Controller dies, the next one goes on from the records, and
only nobody is told.

=================== =============================== ==========================================
kind                ends well                       ends otherwise
=================== =============================== ==========================================
Creating            all of its partitions serve     one failed, its node is silent, nothing goes
                                                    on, or the metadata's disk is full: what was
                                                    begun is removed again
Altering            all in reach serve and obey     after 30 s it names those that do not
Deleting            nothing is left of it           after 30 s it says what is left, and why
Moving              it serves from the new log dir  the move was given up or cancelled, or its node
                                                    was stopped: it goes on with a start of that
Applying            all that serve obey, and    after 30 s, or 120 s where nodes are replaced,
                    all nodes do                 it names those that do not
Operating           the node is what it shall be    another order for the node has replaced it;
                                                    after a while it is answered all the same: what
                                                    it still waits for can be asked
Leaving             the log dir is out of use       it is to be used again; the same after a while
=================== =============================== ==========================================
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field

from raylog.actors.control import LogId, LogReport
from raylog.actors.errors import (
    InvalidRequest,
    NotLeader,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node.confirmed_logs import CONFIRMED_FOR_MS
from raylog.cluster.controller.config_changes import ConfigChange
from raylog.cluster.controller.describe import BEING_OPENED, Snapshot, offline_error, problem_of
from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.instructions import Altered, Answered, Applied, Behind
from raylog.cluster.controller.leaving_dirs import (
    KNOWS_NOT_ALL,
    leaving_waits_for,
    was_clean,
)
from raylog.cluster.controller.node_states import replaced, waits_for
from raylog.cluster.controller.observed import SUSPECT_MS, Observed
from raylog.cluster.controller.records import NodeState, PartitionRecord, TopicRecord
from raylog.cluster.controller.rolling import (
    Digests,
    has_outdated,
    is_old_by_start,
    outdated_nodes,
)
from raylog.cluster.controller.spread import Homes, short_key
from raylog.storage.errors import DiskFull, LogLocked, RaylogError

# How long alter and delete wait for nodes that do not do it. By then no LogActor removes records
# under the config of before: the right to that lasts 20 s (``CONFIRMED_FOR_MS``).
PATIENCE_MS = 30_000
# A creation is given up when a node that it needs was silent for so long,
SILENT_MS = 30_000
# or when nothing of it has gone on for so long: an actor starts in seconds.
STALL_MS = 60_000
# How long a stop, a drain, or a LogManager that is silent after a start is waited for.
OPERATING_MS = 120_000


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What shall be and what is, at one moment.

    ``stuck``: why no record can be written, not even in the metadata's reserve. ``refused``: the
    nodes whose LogManager cannot be started. ``controller``: the key of the Controller's node.
    ``config``: the broker's; ``digests``: of it. ``absent_ms``: as of ``Watched``.
    """

    desired: Desired
    observed: Mapping[str, Observed]
    now_ms: int
    digests: Digests
    stuck: DiskFull | None = None
    refused: Collection[str] = ()
    controller: str = ""
    config: BrokerConfig = field(default_factory=BrokerConfig)
    absent_ms: Callable[[str], int | None] = lambda _: None

    def may_still_run(self, node: str | None) -> bool:
        """Whether a node left the Ray cluster so lately that its processes may go on.

        Ray gives a node up whose raylet hangs; a LogActor of it may have the right to remove
        records yet.
        """
        absent_ms = None if node is None else self.absent_ms(node)
        return absent_ms is not None and absent_ms < CONFIRMED_FOR_MS

    def snapshot(self) -> Snapshot:
        """The same, as look-ups need it."""
        return Snapshot(
            desired=self.desired,
            observed=self.observed,
            controller=self.controller,
            now_ms=self.now_ms,
            config=self.config,
        )

    def seen(self, log: LogId) -> Observed | None:
        """The node that has a log, or shall make it; None while it is away, or has ended."""
        node = self.desired.node_of(log)
        seen = None if node is None else self.observed.get(node)
        return None if seen is None or seen.is_ended else seen

    def node_name(self, log: LogId) -> str:
        """The node of a log, for people; empty where no node is recorded."""
        return short_key(self.desired.node_of(log) or "")

    def entries(self, log: LogId) -> Sequence[LogReport]:
        """What the node of a log reports of it."""
        seen = self.seen(log)
        return () if seen is None else seen.logs.get(log, ())

    def is_serving(self, record: PartitionRecord) -> bool:
        """Whether a partition is online, and its node reports that it serves there."""
        return record.state == "online" and any(
            entry.state == "serving" and entry.directory_id == record.directory
            for entry in self.entries(record.log)
        )

    def silent_ms(self, log: LogId) -> int:
        """How long the node of a log has been silent; 0 where it is away."""
        seen = self.seen(log)
        return 0 if seen is None else self.now_ms - seen.heard_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a request ends. ``is_undone``: what it has begun is removed first."""

    value: Answered = None
    error: RaylogError | None = None
    is_undone: bool = False


@dataclass(slots=True, kw_only=True)
class Creating:
    """A topic is being created or extended. ``logs``: those that are new."""

    name: str
    topic_id: str
    logs: tuple[LogId, ...]
    is_new_topic: bool
    since_ms: int  # when something went on
    _progress: tuple[object, ...] = ()

    def look(self, view: View) -> Ended | None:
        topic = view.desired.topics.get(self.topic_id)
        records = [view.desired.partitions.get(log) for log in self.logs]
        known = [entry for entry in records if entry is not None and entry.state != "removing"]
        if topic is None or len(known) < len(records):
            return Ended(error=_deleted(self.name))
        waiting = [record for record in known if not view.is_serving(record)]
        if not waiting:
            return Ended(value=topic)
        if view.stuck is not None:
            return Ended(error=copy(view.stuck), is_undone=True)
        for record in waiting:
            why = _why_not_made(record, view)
            if why is not None:
                return Ended(error=why, is_undone=True)
        progress = tuple(
            (record.node, record.directory, [entry.state for entry in view.entries(record.log)])
            for record in waiting
        )
        if progress != self._progress:
            self.since_ms, self._progress = view.now_ms, progress
        if view.now_ms - self.since_ms > STALL_MS:
            error = RequestTimedOut(f"creating {waiting[0].log.partition}", STALL_MS)
            return Ended(error=error, is_undone=True)
        return None


def _why_not_made(record: PartitionRecord, view: View) -> RaylogError | None:
    """Why a new partition will not serve; None while it may."""
    partition = str(record.log.partition)
    for entry in view.entries(record.log):
        if entry.state == "failed":
            problem = entry.problem or NotLeader(partition, "it could not be made")
            if record.directory is not None or not _can_be_elsewhere(record, view):
                return problem
    node = view.node_name(record.log)
    if view.silent_ms(record.log) > SILENT_MS:
        return NotLeader(partition, f"the LogManager of node {node} does not answer")
    is_away = view.seen(record.log) is None
    if is_away and (record.directory is not None or not _can_be_elsewhere(record, view)):
        return NotLeader(partition, f"node {node} left the cluster, or was stopped, meanwhile")
    directory = view.desired.dirs.get(record.directory or "")
    if directory is not None and directory.state == "offline":
        return offline_error(directory)
    return None


def _can_be_elsewhere(record: PartitionRecord, view: View) -> bool:
    """Whether another node may make it. Who is silent may speak: all are, when this one hung."""
    homes = Homes(view.desired, view.observed, view.now_ms - (SILENT_MS - SUSPECT_MS))
    return homes.take(avoid=(*record.left, record.node)) is not None


@dataclass(slots=True, kw_only=True)
class Altering:
    """A topic was altered. ``topic``: what it became by that; it may have been altered again."""

    topic: TopicRecord
    since_ms: int

    def look(self, view: View) -> Ended | None:
        if self.topic.topic_id not in view.desired.topics:
            return Ended(error=_deleted(self.topic.name))
        behind, is_opening = [], False
        for log in view.desired.live_logs_of(self.topic.topic_id):
            why = why_behind(log, self.topic.version, view)
            if why:
                behind.append(Behind(partition=log.partition, why=why))
            elif _is_being_opened(log, view):
                is_opening = True  # it may be that only this config allows it
        if (behind or is_opening) and view.now_ms - self.since_ms <= PATIENCE_MS:
            return None
        return Ended(value=Altered(topic=self.topic, behind=tuple(behind)))


def _is_being_opened(log: LogId, view: View) -> bool:
    return problem_of(view.snapshot(), view.desired.partitions[log]) == BEING_OPENED


def why_behind(log: LogId, version: int, view: View) -> str:
    """Why a partition may serve with an older config than this; empty if it does not."""
    seen = view.seen(log)
    node = view.node_name(log)
    if view.desired.partitions[log].directory is None:
        return ""
    if seen is None and view.may_still_run(view.desired.node_of(log)):
        return f"node {node} left the Ray cluster just now, and its processes may go on a while"
    if seen is None:
        return ""
    if seen.may_end:
        return f"node {node} is closing its logs"
    if not seen.obeys(view.desired.controller_epoch):
        return f"the LogManager of node {node} has not reported since the Controller started"
    for entry in view.entries(log):
        is_old = entry.config_version < version
        # One that is being closed may hang before its end.
        if entry.state == "opening" or (entry.state in ("serving", "closing") and is_old):
            if seen.is_suspect(view.now_ms):
                return f"the LogManager of node {node} does not answer"
            if entry.state == "closing":
                return "its LogActor is being closed"
            return "its LogActor has not confirmed the config"
        if isinstance(entry.problem, LogLocked):
            return "another process has its log open, perhaps an older LogActor of it"
    if seen.is_young(view.now_ms) and not _is_accounted_for(log, view):
        return f"the LogManager of node {node} {KNOWS_NOT_ALL}"
    return ""


def _is_accounted_for(log: LogId, view: View) -> bool:
    """Whether the LogActor of a log serves, or was closed in order by its LogManager of now."""
    if any(entry.state == "serving" for entry in view.entries(log)):
        return True
    directory = view.desired.dirs.get(view.desired.partitions[log].directory or "")
    return directory is not None and was_clean(view.observed, directory) is True


@dataclass(slots=True, kw_only=True)
class Applying:
    """The broker has another config, of this version. ``changes``: what differs.

    Who asks again since another Controller is there changes nothing, and waits for the same. It is
    asked at every event, so it looks at all partitions only where nothing that it knows of is left.
    """

    changes: tuple[ConfigChange, ...]
    version: int
    since_ms: int
    _has_starts: bool = False  # whether a node was to be replaced
    # a partition that did not obey at the last look at all, or may not have
    _last_behind: LogId | None = None

    def look(self, view: View) -> Ended | None:
        old = (is_old_by_start(seen, view.digests) for seen in view.observed.values())
        self._has_starts = self._has_starts or any(old)
        patience_ms = OPERATING_MS if self._has_starts else PATIENCE_MS
        is_patient = view.now_ms - self.since_ms <= patience_ms
        if is_patient and self._is_held_up(view):
            return None
        behind = self._behind(view)
        if is_patient and (behind or self._last_behind is not None):
            return None
        applied = Applied(version=self.version, changes=self.changes, behind=behind)
        return Ended(value=applied)

    def _is_held_up(self, view: View) -> bool:
        """Whether a node is outdated, or the partition is still behind that was so before."""
        if has_outdated(view.desired, view.observed, view.digests):
            return True
        last = self._last_behind
        if last is not None and (self._why_behind(last, view) or self._is_opening(last, view)):
            return True
        self._last_behind = None
        return False

    def _behind(self, view: View) -> dict[str, str]:
        outdated = outdated_nodes(view.desired, view.observed, view.now_ms, view.digests)
        behind = {f"node {short_key(key)}": why for key, why in outdated.items()}
        for log in view.desired.partitions:
            why = self._why_behind(log, view)
            if why:
                behind[f"partition {log.partition}"] = why
            if why or self._is_opening(log, view):
                self._last_behind = log
        return behind

    @staticmethod
    def _is_opening(log: LogId, view: View) -> bool:
        """Whether nobody knows yet what its LogActor obeys."""
        record = view.desired.partitions.get(log)
        return record is not None and record.state != "removing" and _is_being_opened(log, view)

    def _why_behind(self, log: LogId, view: View) -> str:
        record = view.desired.partitions.get(log)
        if record is None or record.state == "removing":
            return ""
        return why_behind(log, self.version, view)


@dataclass(slots=True, kw_only=True)
class Deleting:
    """A topic is deleted. ``logs``: those that it had."""

    logs: tuple[LogId, ...]
    since_ms: int

    def look(self, view: View) -> Ended | None:
        left = [log for log in self.logs if log in view.desired.partitions]
        # What lies on a node that is away is removed when it returns.
        in_reach = [log for log in left if view.seen(log) is not None]
        if not in_reach:
            return Ended()
        if view.now_ms - self.since_ms <= PATIENCE_MS:
            return None
        return Ended(error=self._why_left(in_reach[0], view))

    @staticmethod
    def _why_left(log: LogId, view: View) -> RaylogError:
        for entry in view.entries(log):
            if entry.problem is not None:
                return entry.problem
        node = view.node_name(log)
        why = f"the topic is deleted, but node {node} has not removed the folder yet; it will"
        return NotLeader(str(log.partition), why)


@dataclass(slots=True, kw_only=True)
class Moving:
    """A partition is being moved to the log dir ``target``."""

    log: LogId
    target: str
    _problem: RaylogError | None = field(default=None)

    def look(self, view: View) -> Ended | None:
        record = view.desired.partitions.get(self.log)
        if record is None or record.state == "removing":
            return Ended(error=_deleted(self.log.partition.topic))
        problems = [
            entry.problem
            for entry in view.entries(self.log)
            if entry.problem is not None and entry.state != "opening"
        ]
        self._problem = problems[0] if problems else self._problem
        if view.desired.is_stopped(view.desired.node_of(self.log)) and view.seen(self.log) is None:
            return Ended(error=self._stopped(view.node_name(self.log)))
        if record.state == "moving" and record.target == self.target:
            return Ended(error=self._missing()) if self._is_missing(view) else None
        if record.directory != self.target:
            return Ended(error=self._problem or self._given_up(view))
        if view.is_serving(record):
            return Ended(value=record)
        if problems:
            return Ended(error=problems[0])
        return Ended(error=self._missing()) if self._is_missing(view) else None

    def _is_missing(self, view: View) -> bool:
        """Whether its node has nothing of the log, and nothing is under way."""
        seen = view.seen(self.log)
        if seen is None or seen.report is None or self.log in seen.under_way:
            return False
        return not view.entries(self.log)

    def _stopped(self, node: str) -> RaylogError:
        """A stop may last for days: who waits is told. The move is not given up."""
        why = f"its node was stopped; the move goes on after `raylog node start {node}`"
        return NotLeader(str(self.log.partition), why)

    def _missing(self) -> RaylogError:
        return NotLeader(str(self.log.partition), "its folder is in none of its node's log dirs")

    def _given_up(self, view: View) -> RaylogError:
        directory = view.desired.dirs.get(self.target)
        if directory is not None and directory.state == "offline":
            return offline_error(directory)
        return InvalidRequest("log_dir", self.target, "is not moved to: the move was cancelled")


@dataclass(slots=True, kw_only=True)
class Operating:
    """A node shall be in this state."""

    node: str
    state: NodeState
    since_ms: int

    def look(self, view: View) -> Ended | None:
        snapshot = view.snapshot()
        error = replaced(snapshot, self.node, self.state)
        if error is not None:
            return Ended(error=error)
        if waits_for(snapshot, self.node) and not self._is_over(view):
            return None
        known = view.desired.nodes.get(self.node)
        if known is None:
            why = "is gone, and its log dirs are another node's now; see `raylog node list`"
            return Ended(error=InvalidRequest("node", self.node, why))
        return Ended(value=known)

    def _is_over(self, view: View) -> bool:
        """Whether it is waited for no longer. An opening may take as long as a recovery does."""
        seen = view.observed.get(self.node)
        if self.state == "online" and seen is not None:
            silent_ms = view.now_ms - max(self.since_ms, seen.heard_ms)
            return self.node in view.refused or silent_ms > OPERATING_MS
        return view.now_ms - self.since_ms > OPERATING_MS


@dataclass(slots=True, kw_only=True)
class Leaving:
    """A log dir is taken out of use. ``directory_id``: its id."""

    directory_id: str
    since_ms: int

    def look(self, view: View) -> Ended | None:
        record = view.desired.dirs[self.directory_id]
        if record.state != "offline":
            why = "is used again: `raylog log-dirs online` came meanwhile, or its node began anew"
            return Ended(error=InvalidRequest("log_dir", record.path, why))
        is_over = view.now_ms - self.since_ms > OPERATING_MS
        if view.may_still_run(record.node) and not is_over:
            return None
        if leaving_waits_for(view.desired, view.observed, record, view.now_ms) and not is_over:
            return None
        return Ended(value=record)


Waiting = Creating | Altering | Applying | Deleting | Moving | Operating | Leaving


def _deleted(name: str) -> RaylogError:
    return UnknownTopicOrPartition(name, None, "the topic was deleted during the request")
