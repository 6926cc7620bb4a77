"""What the Controller answers to questions: from a snapshot of what shall be and what is. Pure.

A partition is at the place that its record names, if the node there reported last that it serves.
Otherwise there is a problem, and the first of these that is true is told::

    it has no log dir yet                    it is being created
    its node is stopped                      so it says
    its log dir is recorded as offline       LogDirOffline
    nobody has seen its log dir's node       the node is away
    its log dir is read back                 LogDirReturning
    its node reports why it failed           that error
    its folder does not say whose it is      TopicIdUnreadable
    its node obeys, and has no folder of it  LogMissing
    its topic's config is none for a log     TopicConfigConflict
    else                                     it is being opened
"""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from raylog.actors.control import DirReport, LogId, LogReport, Report
from raylog.actors.errors import NotLeader, UnknownTopicOrPartition
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node.places import NOT_IN_ORDER, READING_BACK
from raylog.cluster.client.connection import PartitionMetadata, TopicMetadata
from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.displaced import displacing, way_back
from raylog.cluster.controller.following import CopyStatus
from raylog.cluster.controller.log_dir_names import argument_for
from raylog.cluster.controller.observed import Observed
from raylog.cluster.controller.records import DirRecord, PartitionRecord, TopicRecord
from raylog.cluster.controller.settings import conflict
from raylog.cluster.controller.spread import short_key
from raylog.storage.config import LogConfig
from raylog.storage.errors import (
    LogDirOffline,
    LogDirReturning,
    LogDirTakenOffline,
    LogMissing,
    RaylogError,
    TopicConfigConflict,
    TopicIdUnreadable,
)
from raylog.storage.names import TopicPartition
from raylog.storage.wire import message

BEING_OPENED = "it is being opened"
BEING_CREATED = "it is being created"
# Of a node whose LogManager does not answer.
SILENT = "has not reported for"
# The subjects of ``Lookups.problems``.
METADATA = "metadata"
METADATA_RESERVE = "metadata reserve"
METADATA_SNAPSHOT = "metadata snapshot"
DAMAGED_SNAPSHOT = "damaged metadata snapshot"
OLDER_METADATA = "older metadata"
METADATA_COPIES = "copies of the metadata"
FAILED_COPIES = "failed copies of the metadata"
UPKEEP_OF = "upkeep of "
CONFIG_OF = "config of "
# Without a second copy of the metadata for longer than this is a problem: one is made in seconds.
COPIES_PATIENCE_MS = 30_000
# Upkeep actors that are missing for longer than this are a problem: one starts in seconds.
UPKEEP_PATIENCE_MS = 30_000
# What to do about a log dir that is offline.
ONLINE_AGAIN = (
    "repair the disk, or replace it and restore a copy, then run `raylog log-dirs online "
    "{argument}`; its logs are read back from the disk first"
)
# The same where an operator has taken it out of use.
USED_AGAIN = "`raylog log-dirs online {argument}` brings it back"
# The same where its node could not read it when it began, so that its id is not known.
LOOK_AGAIN = (
    "mend that (a disk that has failed: repair it, or replace it and restore a copy), then run "
    "`raylog log-dirs online {path}`: its node looks at it again"
)
# The same while that is under way.
READ_BACK = "wait: its partitions open when its logs are read back"
# The same where that fails.
NOT_READ_BACK = "it is to be used again, and its logs cannot be read back"
TRIED_AGAIN = "mend that; it is tried again by itself, and its partitions open then"
# What to do about a partition whose node, or log dir, is the problem.
NODE_AWAY = (
    "start the node that has this log dir again, with its disk mounted; its partitions open by "
    "themselves"
)
START_NODE = "start the node when its maintenance is over; the partition serves again then"
SEE_NODE = "do what `raylog health` says of this node; the partition serves again by itself"
SEE_LOG_DIR = "do what `raylog health` says of this log dir; its partitions open when it is in use"
SEE_EITHER = (
    "do what `raylog health` says of the log dir that is offline; if that is another one, start "
    "the node that has this one again. The partition opens when its log dir is in use"
)
# Of a node that an operator has stopped, and of its partitions.
NODE_STOPPED = "its node {node} is stopped; `raylog node start {node}` starts it"
# Of the whole broker, as its Controller says it.
BROKER_STOPS = "it is stopping"
IS_STOPPED = "is stopped; `raylog node start"
# Why a node does not obey, though nothing is wrong.
MANAGER_STARTS = "its LogManager is being started"
MANAGER_LEARNS = "its LogManager does not obey this Controller yet"
MANAGER_ENDS = "its LogManager was ordered to stop before; the next one begins when it has ended"


@message
class PartitionDescription(NamedTuple):
    """One partition: where it is, or why it is not, and what to do.

    ``directory_id`` is empty while its log dir is not chosen yet. ``node_id``: Ray's.
    """

    partition: int
    directory_id: str
    node_id: str | None
    folder: str | None
    problem: str | None
    todo: str | None = None


@message
class TopicDescription(NamedTuple):
    """One topic.

    ``problem``: why no log can be opened with its config, and ``todo`` what to do; None if all can.
    """

    name: str
    topic_id: str
    config: Mapping[str, Any]
    partitions: tuple[PartitionDescription, ...]
    # The numbers of those that do not report this config: they obey an older one, or do not serve.
    outdated: tuple[int, ...] = ()
    problem: str | None = None
    todo: str | None = None


@message
class ClusterDescription(NamedTuple):
    """The cluster as a whole. ``nodes``: id -> None where a LogManager obeys, else why not."""

    cluster_id: str
    controller_node_id: str
    nodes: Mapping[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What the Controller knows at one moment; nobody changes it any more.

    ``node_ids``: the nodes of the Ray cluster that take part, key -> Ray's id. ``without_upkeep``:
    nodes whose logs need an upkeep actor that does not run, key -> since when. ``failure``: why
    nothing can be changed. ``reserve_problem``: why the metadata's reserve is not whole.
    ``snapshot_problem``: why the last snapshot of the metadata was not made, or not wholly.
    ``damaged_snapshots``: why some that lie there cannot be read.
    ``is_in_charge``: whether this Controller has its epoch. ``copies``: of the metadata, its own
    log first. ``one_copy_since_ms``: since when no node has another one that is in sync; None while
    one has. ``controller``: the key of the node that it runs on. ``now_ms``: by the clock of the
    machine, as are all times here. ``config``: the broker's.
    """

    desired: Desired
    observed: Mapping[str, Observed] = field(default_factory=dict)
    node_ids: Mapping[str, str] = field(default_factory=dict)
    without_upkeep: Mapping[str, int] = field(default_factory=dict)
    failure: RaylogError | None = None
    reserve_problem: RaylogError | None = None
    snapshot_problem: RaylogError | None = None
    damaged_snapshots: tuple[str, ...] = ()
    is_in_charge: bool = True
    copies: tuple[CopyStatus, ...] = ()
    one_copy_since_ms: int | None = None
    controller: str = ""
    now_ms: int = 0
    config: BrokerConfig = field(default_factory=BrokerConfig)


# -- topics ----------------------------------------------------------------------------------------


def list_topics(snapshot: Snapshot) -> list[str]:
    """The names of all topics, sorted."""
    return sorted(topic.name for topic in snapshot.desired.topics.values())


def topic_of(snapshot: Snapshot, name: str) -> TopicRecord:
    """Raises UnknownTopicOrPartition."""
    topic = snapshot.desired.topic_named(name)
    if topic is None:
        raise UnknownTopicOrPartition(name, None, "the topic does not exist")
    return topic


def describe_topic(snapshot: Snapshot, name: str) -> TopicDescription:
    """A topic and where its partitions are. Raises UnknownTopicOrPartition."""
    topic = topic_of(snapshot, name)
    records = _records_of(snapshot, topic)
    problem = conflict_of(snapshot, topic)
    return TopicDescription(
        name=topic.name,
        topic_id=topic.topic_id,
        config=topic.config,
        partitions=tuple(describe_partition(snapshot, record) for record in records),
        outdated=tuple(
            record.log.partition.partition
            for record in records
            if not _obeys(snapshot, record, snapshot.desired.config_version(topic.topic_id))
        ),
        problem=None if problem is None else problem.problem,
        todo=None if problem is None else problem.advice,
    )


def conflict_of(snapshot: Snapshot, topic: TopicRecord) -> TopicConfigConflict | None:
    """Why no log can be opened with a topic's config; None where it can."""
    return conflict(topic.name, topic.config, snapshot.config.topic_defaults)


def topic_metadata(snapshot: Snapshot, name: str, defaults: LogConfig) -> TopicMetadata:
    """A topic as clients know it. ``defaults``: the broker's. Raises UnknownTopicOrPartition."""
    topic = topic_of(snapshot, name)
    partitions = tuple(
        # The epoch is the LogActor's own matter: its answers tell it.
        PartitionMetadata(
            partition=record.log.partition.partition,
            leader_epoch=-1,
            node_id=_node_id_serving(snapshot, record),
        )
        for record in _records_of(snapshot, topic)
    )
    config = LogConfig.unchecked(topic.config, defaults)
    return TopicMetadata(
        topic=name,
        topic_id=topic.topic_id,
        partitions=partitions,
        max_message_bytes=config.max_message_bytes,
        cluster_id=snapshot.desired.cluster_id,
    )


def _records_of(snapshot: Snapshot, topic: TopicRecord) -> list[PartitionRecord]:
    desired = snapshot.desired
    return [desired.partitions[log] for log in desired.live_logs_of(topic.topic_id)]


# -- partitions ------------------------------------------------------------------------------------


def describe_partition(snapshot: Snapshot, record: PartitionRecord) -> PartitionDescription:
    """Where a partition is, or why it is not."""
    node_id = _node_id_serving(snapshot, record)
    problem = None if node_id is not None else problem_of(snapshot, record)
    return PartitionDescription(
        partition=record.log.partition.partition,
        directory_id=record.directory or "",
        node_id=node_id,
        folder=_folder(snapshot, record) if node_id is not None else None,
        problem=problem.problem if isinstance(problem, RaylogError) else problem,
        todo=_todo(snapshot, record, problem),
    )


def _todo(
    snapshot: Snapshot, record: PartitionRecord, problem: RaylogError | str | None
) -> str | None:
    """What to do about a partition; None where it is only to be waited for."""
    directory = snapshot.desired.dirs.get(record.directory or "")
    if isinstance(problem, LogDirOffline) and directory is not None:
        return used_again(snapshot, directory)
    if isinstance(problem, RaylogError):
        return problem.advice
    if problem in (None, BEING_CREATED, BEING_OPENED):
        return None
    if IS_STOPPED in problem:
        return START_NODE
    if SILENT in problem:
        return SEE_NODE
    other = None if directory is None else _in_its_place(snapshot, directory)
    if directory is not None and other is not None:
        return way_back(snapshot.desired, snapshot.observed, directory, other)
    if _nameless(snapshot, record.directory) is not None:
        return SEE_LOG_DIR
    return SEE_EITHER if _all_nameless(snapshot) else NODE_AWAY


def explain(snapshot: Snapshot, partition: TopicPartition) -> RaylogError | None:
    """Why a partition cannot be reached; None if it ought to be."""
    name, number = partition
    topic = snapshot.desired.topic_named(name)
    if topic is None:
        return UnknownTopicOrPartition(name, number, "the topic does not exist")
    records = _records_of(snapshot, topic)
    if not isinstance(number, int) or not 0 <= number < len(records):
        why = f"the topic has {len(records)} partitions"
        return UnknownTopicOrPartition(name, number, why)
    problem = problem_of(snapshot, records[number])
    if isinstance(problem, str):
        return NotLeader(str(partition), problem)
    return problem


def offline_error(directory: DirRecord) -> LogDirOffline:
    """Why nothing in a log dir serves that is offline by record."""
    kind = LogDirTakenOffline if directory.is_ordered else LogDirOffline
    return kind(directory.path, directory.why)


def is_settled(snapshot: Snapshot, problems: Collection[str] = ()) -> bool:
    """Whether each partition serves, or will not do so before something else happens.

    ``problems``: the keys of nodes whose LogManager cannot be reached.
    """
    for record in snapshot.desired.partitions.values():
        if record.state == "removing":
            continue
        node = snapshot.desired.node_of(record.log)
        if node not in problems and problem_of(snapshot, record) in (BEING_OPENED, BEING_CREATED):
            return False
    return True


def problem_of(snapshot: Snapshot, record: PartitionRecord) -> RaylogError | str | None:
    """Why a partition does not serve; None if it does."""
    if serving(snapshot, record) is not None:
        return None
    if record.directory is None:
        return BEING_CREATED
    directory = snapshot.desired.dirs.get(record.directory)
    if directory is None:
        return _away(snapshot, record.directory)
    if snapshot.desired.is_stopped(directory.node):
        return NODE_STOPPED.format(node=short_key(directory.node))
    if directory.state == "offline":
        return offline_error(directory)
    seen = snapshot.observed.get(directory.node)
    if seen is None:
        return _away(snapshot, record.directory)
    return _problem_at(snapshot, record, directory, seen)


def _problem_at(
    snapshot: Snapshot, record: PartitionRecord, directory: DirRecord, seen: Observed
) -> RaylogError | str:
    """Why a partition does not serve though its node is there."""
    if seen.is_suspect(snapshot.now_ms):
        return _silent(directory.node, seen, snapshot.now_ms)
    if seen.report is None or not seen.obeys(snapshot.desired.controller_epoch):
        return BEING_OPENED
    if all(entry.directory_id != record.directory for entry in seen.report.dirs):
        other = _in_its_place(snapshot, directory)
        if other is None:
            return _away(snapshot, directory.directory_id)
        own, path = directory.directory_id, directory.path
        return f"its log dir {own} is not in use: {other.directory_id} is in its place, {path}"
    reported = _reported(snapshot, directory)
    if directory.state == "returning" and reported is not None:  # it says of each log why it was
        return LogDirReturning(directory.path, _why_returning(directory, reported))
    entries = seen.logs.get(record.log, ())
    for entry in entries:
        if entry.problem is not None:
            return entry.problem
    if record.log in seen.under_way or directory.state == "returning":
        return BEING_OPENED
    not_there = _why_not_there(record, directory, seen.report)
    if isinstance(not_there, TopicIdUnreadable):  # nobody opens it, whatever lies elsewhere
        return not_there
    elsewhere = _lies_elsewhere(snapshot, record, directory, entries)
    if elsewhere is not None:
        return elsewhere
    if not entries:
        return not_there
    topic = snapshot.desired.topics[record.log.topic_id]
    return conflict_of(snapshot, topic) or BEING_OPENED


def _lies_elsewhere(
    snapshot: Snapshot,
    record: PartitionRecord,
    directory: DirRecord,
    entries: Sequence[LogReport],
) -> LogMissing | None:
    """That the only folder of a partition is in another log dir than the recorded one.

    The metadata, or a log dir, is an older copy. Nobody can say whether the folder is, too.
    """
    dirs = [entry.directory_id for entry in entries if entry.state in ("found", "failed")]
    if record.state != "online" or not dirs or len(dirs) < len(entries):
        return None
    others = [snapshot.desired.dirs[name] for name in dirs if name in snapshot.desired.dirs]
    if not others or record.directory in dirs:
        return None
    partition = str(record.log.partition)
    why = (
        f"the folder is {os.path.join(others[0].path, partition)}, as after a move that the "
        "metadata does not know; if its records are the newest, stop the broker, and move that "
        "folder here"
    )
    return LogMissing(os.path.join(directory.path, partition), why)


def _why_not_there(record: PartitionRecord, directory: DirRecord, report: Report) -> RaylogError:
    """Why a partition is not opened though its node has its log dir."""
    partition = record.log.partition
    folder = os.path.join(directory.path, str(partition))
    for entry in report.logs:
        is_here = entry.directory_id == record.directory and entry.partition == partition
        if is_here and entry.topic_id is None:
            return TopicIdUnreadable(folder, record.log.topic_id, "is missing or damaged")
    return LogMissing(
        folder,
        f"the partition's folder does not exist (look for {partition}.<id>-stray: it was set "
        "aside if the cluster did not know the topic id in its partition.metadata)",
    )


def _nameless(snapshot: Snapshot, directory_id: str | None) -> DirReport | None:
    """What a node reports of a log dir that it knows by its path alone."""
    record = snapshot.desired.dirs.get(directory_id or "")
    seen = None if record is None else snapshot.observed.get(record.node)
    for entry in () if seen is None or seen.report is None else seen.report.dirs:
        if entry.directory_id is None and record is not None and entry.path == record.path:
            return entry
    return None


def _all_nameless(snapshot: Snapshot) -> list[DirReport]:
    """What nodes report of log dirs that they know by their paths alone."""
    reports = [seen.report for seen in snapshot.observed.values() if seen.report is not None]
    return [entry for report in reports for entry in report.dirs if entry.directory_id is None]


def _in_its_place(snapshot: Snapshot, directory: DirRecord) -> DirRecord | None:
    return displacing(snapshot.desired, snapshot.observed, directory)


def _away(snapshot: Snapshot, directory_id: str) -> str:
    """That a log dir's node is away; or the dir is one that nobody could read."""
    nameless = _nameless(snapshot, directory_id)
    if nameless is not None:
        return f"its log dir {nameless.path} is offline: {nameless.why}"
    unread = [f"{entry.path} ({entry.why})" for entry in _all_nameless(snapshot)]
    hint = ""
    if unread:
        hint = f", or this log dir is one of those that are offline: {'; '.join(unread)}"
    return f"the node with log dir {directory_id} is away{hint}"


def _entries(snapshot: Snapshot, log: LogId) -> Sequence[LogReport]:
    node = snapshot.desired.node_of(log)
    seen = None if node is None else snapshot.observed.get(node)
    return () if seen is None else seen.logs.get(log, ())


def serving(snapshot: Snapshot, record: PartitionRecord) -> LogReport | None:
    """What the partition's node reports of it, if it serves where it shall be, and may."""
    node = snapshot.desired.node_of(record.log)
    if snapshot.desired.is_stopped(node):
        return None
    seen = None if node is None else snapshot.observed.get(node)
    if seen is not None and seen.may_end:
        return None  # it is being closed
    for entry in _entries(snapshot, record.log):
        if entry.state == "serving" and entry.directory_id == record.directory:
            return entry
    return None


def _obeys(snapshot: Snapshot, record: PartitionRecord, version: int) -> bool:
    entry = serving(snapshot, record)
    return entry is not None and entry.config_version >= version


def _node_id_serving(snapshot: Snapshot, record: PartitionRecord) -> str | None:
    """Ray's id of the node that serves a partition; None where none does."""
    if serving(snapshot, record) is None:
        return None
    return snapshot.node_ids.get(snapshot.desired.node_of(record.log) or "")


def _folder(snapshot: Snapshot, record: PartitionRecord) -> str:
    directory = snapshot.desired.dirs[record.directory or ""]
    return os.path.join(directory.path, str(record.log.partition))


# -- nodes and log dirs ----------------------------------------------------------------------------


def describe_nodes(
    snapshot: Snapshot, problems: Mapping[str, RaylogError | str], others: Mapping[str, str]
) -> dict[str, str | None]:
    """Ray's node id -> None where its LogManager obeys, else why it does not.

    ``problems``: a node's key -> why its LogManager could not be started or told something last.
    ``others``: Ray's node id -> why the node takes no part.
    """
    nodes: dict[str, str | None] = dict(others)
    for key, seen in snapshot.observed.items():
        node_id = snapshot.node_ids.get(key, key)
        nodes[node_id] = why_not_obeying(snapshot, key, seen, problems.get(key))
    return nodes


def why_not_obeying(
    snapshot: Snapshot, key: str, seen: Observed, problem: RaylogError | str | None
) -> str | None:
    """Why a node does not obey this Controller; None if it does. ``problem``: of the last call."""
    if snapshot.desired.is_stopped(key):
        return NODE_STOPPED.format(node=short_key(key)).removeprefix("its ")
    if seen.is_suspect(snapshot.now_ms):
        if problem is not None and seen.report is None:
            return str(problem)
        return _silent(key, seen, snapshot.now_ms)
    if seen.obeys(snapshot.desired.controller_epoch):
        return None
    if problem is not None:
        return str(problem)
    if seen.report is None:
        return MANAGER_STARTS
    if seen.may_end:
        return MANAGER_ENDS
    return MANAGER_LEARNS


def _silent(key: str, seen: Observed, now_ms: int) -> str:
    silent_s = (now_ms - seen.heard_ms) // 1000
    return f"the LogManager of node {short_key(key)} {SILENT} {silent_s} s"


def has_settled(snapshot: Snapshot, problems: Collection[str] = ()) -> bool:
    """Whether each node obeys, or it is known why not.

    ``problems``: the keys of nodes whose LogManager could not be started or told something last.
    """
    epoch = snapshot.desired.controller_epoch
    return bool(snapshot.observed) and all(
        seen.obeys(epoch) or seen.is_ended or key in problems or seen.is_suspect(snapshot.now_ms)
        for key, seen in snapshot.observed.items()
    )


def why_unread(snapshot: Snapshot, record: DirRecord) -> str | None:
    """Why no node uses a log dir that is recorded as online; None if one does.

    One that has lost its identity, or whose disk is not mounted, is reported by its path alone.
    """
    entries = [
        entry
        for seen in snapshot.observed.values()
        for entry in (() if seen.report is None else seen.report.dirs)
    ]
    own = [entry for entry in entries if entry.directory_id == record.directory_id]
    if any(entry.state != "offline" for entry in own):
        return None
    nameless = [e for e in entries if e.directory_id is None and e.path == record.path]
    for entry in (*own, *nameless):
        if entry.state == "offline":
            return entry.why
    return "no running node has it"


def used_again(snapshot: Snapshot, record: DirRecord) -> str:
    """What brings a log dir back that is not in use."""
    if record.state == "returning":
        return TRIED_AGAIN if is_unread(snapshot, record) else READ_BACK
    if record.is_ordered:
        return USED_AGAIN.format(argument=argument_for(snapshot.desired, record))
    other = _in_its_place(snapshot, record)
    if other is not None:
        return way_back(snapshot.desired, snapshot.observed, record, other)
    return ONLINE_AGAIN.format(argument=argument_for(snapshot.desired, record))


def _reported(snapshot: Snapshot, record: DirRecord) -> str | None:
    """Why a log dir is offline, as its node says; None where it does not say that."""
    for seen in snapshot.observed.values():
        for entry in () if seen.report is None else seen.report.dirs:
            if entry.directory_id == record.directory_id and entry.state == "offline":
                return entry.why
    return None


def why_offline(record: DirRecord | None, reported: str | None) -> str | None:
    """Why a log dir is not used; None if it is. ``reported``: why its node says so, if it does."""
    if record is not None and record.state == "offline":
        return record.why or "it is recorded as offline"
    if record is not None and record.state == "returning":
        return _why_returning(record, reported)
    return reported


def _why_returning(record: DirRecord, reported: str | None) -> str:
    """Why a log dir is not used yet that is to be used again."""
    return f"{NOT_READ_BACK}: {reported}" if _is_unread(record, reported) else READING_BACK


def why_not_used(snapshot: Snapshot, record: DirRecord) -> str:
    """Why nothing in a log dir is used; empty if it is."""
    if record.state in ("offline", "returning"):
        return why_offline(record, _reported(snapshot, record)) or ""
    return why_unread(snapshot, record) or ""


def is_unread(snapshot: Snapshot, record: DirRecord) -> bool:
    """Whether a log dir is to be used again, and its logs cannot be read back."""
    return record.state == "returning" and _is_unread(record, _reported(snapshot, record))


def _is_unread(record: DirRecord, reported: str | None) -> bool:
    """Whether the logs of a dir that is to be used again cannot be read back.

    ``reported``: why it is offline. Before its node has heard of the order, that is as before.
    """
    before = (record.why, record.why + NOT_IN_ORDER)
    return reported not in (None, "", READING_BACK, *before)


def without_upkeep(observed: Mapping[str, Observed]) -> set[str]:
    """The keys of the nodes that report logs whose upkeep has no actor."""
    missing: set[str] = set()
    for key, seen in observed.items():
        report = seen.report
        if report is not None and not set(report.upkeep_needed) <= set(report.upkeep):
            missing.add(key)
    return missing


def missing_copies(snapshot: Snapshot) -> str:
    """Why no other node has a copy of the metadata that is in sync; empty where one has.

    Empty also where there is no other node that shall run, or the copy may just be under way.
    """
    since_ms = snapshot.one_copy_since_ms
    if since_ms is None or snapshot.now_ms - since_ms <= COPIES_PATIENCE_MS:
        return ""
    whys = [_told_of(snapshot, copy) for copy in _others_that_run(snapshot)]
    if not whys:
        return ""
    missing_s = (snapshot.now_ms - since_ms) // 1000
    return f"the cluster's metadata has been on one disk only for {missing_s} s ({'; '.join(whys)})"


def failed_copies(snapshot: Snapshot) -> str:
    """Why copies of other nodes are not in sync that have a problem; empty where none is so."""
    failed = [copy for copy in _others_that_run(snapshot) if copy.problem and not copy.is_in_sync]
    return "; ".join(_told_of(snapshot, copy) for copy in failed)


def _others_that_run(snapshot: Snapshot) -> list[CopyStatus]:
    """The copies of the nodes that shall run, without the Controller's own log."""
    return [copy for copy in snapshot.copies[1:] if not snapshot.desired.is_stopped(copy.node)]


def _told_of(snapshot: Snapshot, copy: CopyStatus) -> str:
    node_id = snapshot.node_ids.get(copy.node, copy.node)
    return f"node {node_id[:8]}: {copy.problem or 'its copy is being brought up to date'}"


def missing_upkeep(snapshot: Snapshot) -> dict[str, str]:
    """Ray's node id -> why nobody removes or compacts there what is old."""
    missing: dict[str, str] = {}
    for key, since_ms in snapshot.without_upkeep.items():
        missing_ms = snapshot.now_ms - since_ms
        if missing_ms > UPKEEP_PATIENCE_MS:
            why = f"an actor of retention or compaction has been missing for {missing_ms // 1000} s"
            missing[snapshot.node_ids.get(key, key)] = why
    return missing
