"""A log dir that an operator takes out of use: what that still needs, and what came of it. Pure.

::

    online --LogDirOut--> offline, is_ordered --LogDirOnline, a fresh start of its node--> returning
               |
               v  in this order
    its copy of the metadata leaves those that are in sync        a record
    its logs are closed, each by its LogActor                     KeepOut, in order
    the copy, checkpoints, the mark of a clean end, its lock      its LogManager

So nothing needs to be recovered when it returns, and its disk can be unmounted when its node
reports it offline.
"""

from collections.abc import Mapping
from typing import NamedTuple

from raylog.actors.node.places import NOT_IN_ORDER, READING_BACK
from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.observed import Observed
from raylog.cluster.controller.records import DirRecord
from raylog.cluster.controller.spread import short_key
from raylog.storage.wire import message

# Why a log dir is offline that an operator took out of use.
TAKEN_OFFLINE = "an operator took it offline"


@message
class OfflineLogDir(NamedTuple):
    """A log dir that is offline. ``node``: its key. ``why``: an operator's order, or what failed.

    ``waits_for``: what has to happen before its disk can be taken out; empty where nothing has to.
    ``was_clean``: whether nothing is recovered when it is used again; None where nobody knows.
    """

    path: str
    directory_id: str
    node: str
    why: str
    waits_for: str = ""
    was_clean: bool | None = None


def leaving_waits_for(
    desired: Desired, observed: Mapping[str, Observed], record: DirRecord, now_ms: int
) -> str:
    """What is missing until nobody uses a log dir that is offline by record; empty if nothing."""
    seen = observed.get(record.node)
    if seen is None or seen.is_ended:
        return ""  # nothing of its node runs
    if record.is_ordered and record.directory_id in desired.copy_dirs:
        return "the copy of the metadata in it is to be left out first"
    if seen.report is None:
        return "its LogManager has to begin"
    for entry in seen.report.dirs:
        is_in_use = entry.state == "online" or entry.why == READING_BACK
        if entry.directory_id == record.directory_id and is_in_use:
            return _closing(seen, record, now_ms)
    return ""


def _closing(seen: Observed, record: DirRecord, now_ms: int) -> str:
    if seen.is_suspect(now_ms):
        return f"the LogManager of node {short_key(record.node)} does not answer"
    entries = [entry for logs in seen.logs.values() for entry in logs]
    open_ones = sorted(
        str(entry.partition)
        for entry in entries
        if entry.directory_id == record.directory_id
        and entry.state in ("opening", "serving", "closing")
    )
    if open_ones:
        more = f" and {len(open_ones) - 1} more" if len(open_ones) > 1 else ""
        return f"{open_ones[0]}{more} to be closed"
    return "its checkpoints and its lock; its disk may hang"


def describe_offline(
    desired: Desired, observed: Mapping[str, Observed], directory_id: str, now_ms: int
) -> OfflineLogDir:
    """A log dir that was taken out of use."""
    record = desired.dirs[directory_id]
    waits_for = leaving_waits_for(desired, observed, record, now_ms)
    return OfflineLogDir(
        path=record.path,
        directory_id=directory_id,
        node=record.node,
        why=record.why,
        waits_for=waits_for,
        was_clean=None if waits_for else _was_clean(observed, record),
    )


def _was_clean(observed: Mapping[str, Observed], record: DirRecord) -> bool | None:
    """By the word of its node, which says so after an orderly end only."""
    seen = observed.get(record.node)
    for entry in () if seen is None or seen.report is None else seen.report.dirs:
        if entry.directory_id == record.directory_id and record.is_ordered:
            whys = {record.why: True, record.why + NOT_IN_ORDER: False}
            return whys.get(entry.why)
    return None
