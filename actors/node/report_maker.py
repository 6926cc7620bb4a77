"""The report of a node: whole, numbered, made anew when something has changed.

What is said of a log is worked out when that log has changed, not for each report. Offsets and the
room on the disks are no change: they go with the next report, at the latest REPORT_INTERVAL_MS
after the last, so that the Controller hears from a node all the time.
"""

from typing import Any

from raylog.actors.control import DirReport, LogReport, LogState, Report
from raylog.actors.levels import Levels
from raylog.actors.node.events import UpkeepKind
from raylog.actors.node.instructions import Doom, EndLog, MakeFolder, PutAside, StartLog
from raylog.actors.node.log_book import LogBook
from raylog.actors.node.log_states import NodeLog, State
from raylog.actors.node.places import Places
from raylog.storage.names import TopicPartition

REPORT_INTERVAL_MS = 3_000


class ReportMaker:
    """See the module's head."""

    def __init__(self, node: str, life: str, software: str, levels: Levels) -> None:
        self._node, self._life = node, life
        self._software, self._levels = software, levels
        self._logs: dict[TopicPartition, tuple[LogReport, ...]] = {}
        self._made_ms: int | None = None
        self._has_changed = True
        self.number = 0  # of the last report; 0 before the first

    def update(self, partition: TopicPartition, logs: tuple[LogReport, ...]) -> None:
        """What is to be said of a partition from now on; nothing if ``logs`` is empty."""
        before = self._logs.get(partition, ())
        if logs:
            self._logs[partition] = logs
        else:
            self._logs.pop(partition, None)
        if [_changes(log) for log in before] != [_changes(log) for log in logs]:
            self._has_changed = True

    def node_changed(self) -> None:
        """Something else than a log has changed."""
        self._has_changed = True

    def is_due(self, now_ms: int) -> bool:
        is_old = self._made_ms is None or now_ms - self._made_ms >= REPORT_INTERVAL_MS
        return self._has_changed or is_old

    def make(
        self,
        now_ms: int,
        *,
        controller_epoch: int,
        orders: int,
        dirs: tuple[DirReport, ...],
        upkeep: tuple[UpkeepKind, ...],
        upkeep_needed: tuple[UpkeepKind, ...],
        room: int,
        is_restarted: bool,
        is_ending: bool,
        config_digest: str,
        start_digest: str,
    ) -> Report:
        self.number += 1
        self._made_ms = now_ms
        self._has_changed = False
        return Report(
            node=self._node,
            life=self._life,
            number=self.number,
            controller_epoch=controller_epoch,
            dirs=dirs,
            logs=tuple(log for logs in self._logs.values() for log in logs),
            upkeep=upkeep,
            upkeep_needed=upkeep_needed,
            orders=orders,
            room=room,
            is_restarted=is_restarted,
            is_ending=is_ending,
            software=self._software,
            config_digest=config_digest,
            start_digest=start_digest,
            levels=self._levels,
        )


def _changes(log: LogReport) -> tuple[object, ...]:
    """What of it is news when it changes."""
    return (
        log.topic_id,
        log.directory_id,
        log.state,
        log.config_version,
        log.leader_epoch,
        log.port,
        log.moved_to,
        str(log.problem),
    )


# The state of the folder at home, where nothing in flight says otherwise.
_AT_HOME: dict[State, LogState] = {
    "serving": "serving",
    "copied": "serving",
    "closed": "closing",
    "whole": "closing",
    "moved": "moved",
    "failed": "failed",
    "lost": "closing",
}


# With these, something is said of a LogActor that is being ended.
_TELL_OF_ACTOR: tuple[LogState, ...] = ("opening", "closing")


def reports_of(book: LogBook, partition: TopicPartition) -> tuple[LogReport, ...]:
    """What is said of all logs and folders of a partition's name."""
    is_killed = partition in book.kills
    reports = [
        report for log in book.of(partition) for report in _reports_of(log, book.places, is_killed)
    ]
    for (other, directory_id), unnamed in book.unnamed.items():
        if other == partition:
            is_busy = unnamed.is_doing or is_killed
            reports.append(_report_of_unnamed(partition, directory_id, is_busy, book.places))
    if is_killed and not any(report.state in _TELL_OF_ACTOR for report in reports):
        reports.append(
            LogReport(partition=partition, topic_id=None, directory_id="", state="closing")
        )
    return tuple(reports)


def _report_of_unnamed(
    partition: TopicPartition, directory_id: str, is_busy: bool, places: Places
) -> LogReport:
    is_online = places.is_online(directory_id)
    idle: LogState = "found" if is_online else "failed"
    return LogReport(
        partition=partition,
        topic_id=None,
        directory_id=directory_id,
        state="closing" if is_busy else idle,
        problem=None if is_online else places.problem(directory_id),
    )


def _reports_of(log: NodeLog, places: Places, is_killed: bool) -> tuple[LogReport, ...]:
    """What is said of a log: once for each folder, and once if none could be made.

    ``is_killed``: its LogActor is being ended, and may live yet.
    """
    making = log.doing.directory_id if isinstance(log.doing, MakeFolder) else None
    reports: list[LogReport] = []
    for directory_id in sorted(log.folders):
        if directory_id not in (making, log.moved_to):
            reports.append(_report_of_folder(log, directory_id, places, is_killed))
    if log.state == "failed" and not log.folders:
        reports.append(_report(log, "", "failed", problem=log.problem))
    if making is not None or (log.state == "absent" and log.is_to_be_made):
        reports.append(_report(log, "", "opening"))
    return tuple(reports)


def _report_of_folder(
    log: NodeLog, directory_id: str, places: Places, is_killed: bool
) -> LogReport:
    is_home = directory_id == log.home
    if is_home and log.moved_to is not None:  # also where its dir has failed since
        return _report(log, directory_id, "moved", moved_to=log.moved_to)
    may_live = is_killed and log.home in (None, directory_id)
    if not places.is_online(directory_id):
        gone: LogState = "closing" if may_live else "failed"
        return _report(log, directory_id, gone, problem=places.problem(directory_id))
    state = _state_of_folder(log, directory_id)
    if state == "found" and may_live:
        state = "closing"
    problem = log.problem if is_home else None
    if state == "opening":
        problem = log.opening_problem
    if state != "serving" or log.served is None:
        return _report(log, directory_id, state, problem=problem)
    return _report(
        log,
        directory_id,
        state,
        problem=problem,
        config_version=log.served.config_version,
        leader_epoch=log.served.leader_epoch,
        log_start_offset=log.served.log_start_offset,
        log_end_offset=log.served.log_end_offset,
        port=log.served.port,
    )


def _report(log: NodeLog, directory_id: str, state: LogState, **facts: Any) -> LogReport:
    return LogReport(
        partition=log.id.partition,
        topic_id=log.id.topic_id,
        directory_id=directory_id,
        state=state,
        **facts,
    )


def _state_of_folder(log: NodeLog, directory_id: str) -> LogState:
    """The state of one folder, in a dir that is online."""
    doing = log.doing
    if isinstance(doing, Doom | PutAside) and doing.directory_id == directory_id:
        return "closing"
    if isinstance(doing, StartLog) and doing.directory_id == directory_id:
        return "opening"
    if log.state in ("found", "lost") and directory_id == log.wanted_dir:
        return "opening"
    if directory_id != log.home:
        return "found"
    return "closing" if isinstance(doing, EndLog) else _AT_HOME[log.state]
