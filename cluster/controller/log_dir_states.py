"""A log dir as its operator sees it: what it is, and what the last order for it still needs. Pure.

::

    online --its logs are closed--> offline --> returning --they are read back--> online
                                                                                    |
                                                                     its logs open <+

What it needs to leave is in ``leaving_dirs.py``.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from raylog.actors.control import DirReport
from raylog.actors.messages import LogDirStatus
from raylog.cluster.controller.describe import (
    BEING_OPENED,
    Snapshot,
    is_unread,
    problem_of,
    used_again,
    why_not_used,
    why_offline,
)
from raylog.cluster.controller.leaving_dirs import leaving_waits_for, was_clean
from raylog.cluster.controller.log_dir_names import argument_for
from raylog.cluster.controller.records import DirRecord, DirState
from raylog.cluster.controller.spread import short_key
from raylog.cluster.naming import named
from raylog.storage.wire import message


@message
class LogDirDescription(NamedTuple):
    """A log dir that is known by its id. ``node``: its key.

    ``argument``: what a command line takes for it. ``why``: why it is not used, an operator's order
    or what failed; empty where it is. ``waits_for``: what the last ``log_dir_offline`` or
    ``log_dir_online`` still needs; empty if nothing. ``was_clean``: whether nothing is recovered
    when one that is offline is used again; None where nobody knows. ``serving``: so many of its
    partitions serve. ``not_serving``: the others -> why.
    """

    path: str
    directory_id: str
    node: str
    state: DirState
    argument: str
    why: str = ""
    waits_for: str = ""
    was_clean: bool | None = None
    serving: int = 0
    not_serving: Mapping[str, str] = {}


def describe_log_dir(snapshot: Snapshot, directory_id: str) -> LogDirDescription:
    """One log dir."""
    record = snapshot.desired.dirs[directory_id]
    problems = _problems(snapshot, record)
    waits_for = _waits_for(snapshot, record, problems)
    is_out = record.state == "offline" and not waits_for
    return LogDirDescription(
        path=record.path,
        directory_id=directory_id,
        node=record.node,
        state=record.state,
        argument=argument_for(snapshot.desired, record),
        why=why_not_used(snapshot, record),
        waits_for=waits_for,
        was_clean=was_clean(snapshot.observed, record) if is_out else None,
        serving=sum(not why for why in problems.values()),
        not_serving={name: why for name, why in problems.items() if why},
    )


def _problems(snapshot: Snapshot, record: DirRecord) -> dict[str, str]:
    """Each partition of a log dir -> why it does not serve; empty if it does."""
    unread = why_not_used(snapshot, record) if is_unread(snapshot, record) else ""
    problems: dict[str, str] = {}
    for log in snapshot.desired.logs_in(record.directory_id):
        partition = snapshot.desired.partitions[log]
        if partition.state == "removing":
            continue
        why = problem_of(snapshot, partition)
        problems[str(log.partition)] = "" if why is None else unread or str(why)
    return dict(sorted(problems.items()))


def _waits_for(snapshot: Snapshot, record: DirRecord, problems: Mapping[str, str]) -> str:
    """What is missing until it is what it shall be; empty where nobody can tell when that comes."""
    if record.state == "offline":
        return leaving_waits_for(snapshot.desired, snapshot.observed, record, snapshot.now_ms)
    seen = snapshot.observed.get(record.node)
    if seen is None or snapshot.desired.is_stopped(record.node) or is_unread(snapshot, record):
        return ""
    is_read = record.state != "returning"
    if is_read and not any(problems.values()):
        return ""
    if seen.is_suspect(snapshot.now_ms):
        return f"the LogManager of node {short_key(record.node)} does not answer"
    opening = [name for name, why in problems.items() if why == BEING_OPENED]
    if opening:
        return f"{named(opening)} to be opened"
    return "" if is_read else "its logs to be read back"


def describe_log_dirs(snapshot: Snapshot) -> list[LogDirStatus]:
    """Every log dir that the nodes reported, with what was recorded of it; sizes are 0.

    The LogManagers know more of their own (``LogManager.log_dirs``); this is of those that hang.
    """
    statuses: list[LogDirStatus] = []
    for key, seen in snapshot.observed.items():
        node_id = snapshot.node_ids.get(key, key)
        for entry in () if seen.report is None else seen.report.dirs:
            record = snapshot.desired.dirs.get(entry.directory_id or "")
            why = why_offline(record, entry.why if entry.state == "offline" else None)
            doubt = entry.why if entry.state == "online" else ""
            todo = "" if record is None else used_again(snapshot, record)
            status = LogDirStatus(
                node_id=node_id,
                path=entry.path,
                directory_id=entry.directory_id or "",
                is_online=why is None,
                problem=why or doubt or None,
                partitions=_places_in(snapshot, key, entry),
                size_bytes=0,
                total_bytes=0,
                usable_bytes=max(entry.usable_bytes, 0),
                loaded=0,
                to_load=0,
                todo="" if why is None else todo,
                is_taken_offline=_is_taken_offline(record, entry),
            )
            statuses.append(status)
    return statuses


def _is_taken_offline(record: DirRecord | None, entry: DirReport) -> bool:
    """Whether an operator wants it offline: by record, or by its node where none says otherwise."""
    if record is not None and record.state in ("offline", "returning"):
        return record.is_ordered
    return entry.is_taken_offline


def _places_in(snapshot: Snapshot, key: str, entry: DirReport) -> int:
    """How many partitions have their place in a log dir. ``key``: of its node.

    One that its node cannot read is known by its path alone: it is each that was there, and that
    nobody has.
    """
    if entry.directory_id is not None:
        return len(snapshot.desired.logs_in(entry.directory_id))
    reports = [seen.report for seen in snapshot.observed.values() if seen.report is not None]
    reported = {dir.directory_id for report in reports for dir in report.dirs}
    return sum(
        len(snapshot.desired.logs_in(record.directory_id))
        for record in snapshot.desired.dirs_of(key)
        if record.path == entry.path and record.directory_id not in reported
    )


def merged_log_dirs(
    told: Iterable[LogDirStatus], known: Iterable[LogDirStatus]
) -> list[LogDirStatus]:
    """Log dirs as their LogManagers tell them, or as the Controller does where that tells more.

    That is so for nodes whose LogManager hangs, and for log dirs that are recorded as offline: how
    many partitions have their place there is all that anybody knows of their content then.
    ``known``: what the Controller tells.
    """
    merged = {(log_dir.node_id, log_dir.path): log_dir for log_dir in told}
    for log_dir in known:
        place = log_dir.node_id, log_dir.path
        status = merged.get(place, log_dir)
        if not log_dir.is_online:
            status = status._replace(
                is_online=False,
                problem=log_dir.problem,
                todo=log_dir.todo or status.todo,
                is_taken_offline=log_dir.is_taken_offline,
            )
        if not status.is_online:
            status = status._replace(partitions=log_dir.partitions)
        merged[place] = status
    return list(merged.values())
