"""A log dir as its operator sees it: what it is, and what the last order for it still needs. Pure.

::

    online --its logs are closed--> offline --> returning --they are read back--> online
                                                                                    |
                                                                     its logs open <+

What it needs to leave is in ``leaving_dirs.py``.
"""

from collections.abc import Mapping
from typing import NamedTuple

from raylog.cluster.controller.describe import (
    BEING_OPENED,
    Snapshot,
    is_unread,
    problem_of,
    why_not_used,
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
