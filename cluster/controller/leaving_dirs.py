"""A log dir that an operator takes out of use: what that needs, and if it was in order. Pure.

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

from raylog.actors.node.places import NOT_IN_ORDER, READING_BACK
from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.observed import Observed
from raylog.cluster.controller.records import DirRecord
from raylog.cluster.controller.spread import short_key
from raylog.cluster.naming import named

# Why a log dir is offline that an operator took out of use.
TAKEN_OFFLINE = "an operator took it offline"
KNOWS_NOT_ALL = "began just now, and a LogActor that it does not know may go on a while"


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
    open_ones = _open_in(record.directory_id, seen)
    for entry in seen.report.dirs:
        is_in_use = entry.state == "online" or entry.why == READING_BACK
        if entry.directory_id == record.directory_id and (is_in_use or open_ones):
            return _closing(seen, record, open_ones, now_ms)
    is_known = record.directory_id in seen.met_dirs or was_clean(observed, record)
    if not is_known and seen.is_young(now_ms):
        return f"its LogManager {KNOWS_NOT_ALL}"
    return ""


def _open_in(directory_id: str, seen: Observed) -> list[str]:
    """The partitions whose LogActors may have files open there: also where the dir has failed."""
    entries = () if seen.report is None else seen.report.logs
    # A LogActor that is being ended may have been anywhere.
    anywhere = {entry for entry in entries if entry.state == "closing" and not entry.directory_id}
    return sorted(
        str(entry.partition)
        for entry in entries
        if entry in anywhere
        or (entry.directory_id == directory_id and entry.state in ("opening", "serving", "closing"))
    )


def _closing(seen: Observed, record: DirRecord, open_ones: list[str], now_ms: int) -> str:
    if seen.is_suspect(now_ms):
        return f"the LogManager of node {short_key(record.node)} does not answer"
    if open_ones:
        return f"{named(open_ones)} to be closed"
    return "its checkpoints and its lock; its disk may hang"


def was_clean(observed: Mapping[str, Observed], record: DirRecord) -> bool | None:
    """Whether all of its logs were closed in order, as its node says; None where nobody knows."""
    seen = observed.get(record.node)
    for entry in () if seen is None or seen.report is None else seen.report.dirs:
        if entry.directory_id == record.directory_id and record.is_ordered:
            whys = {record.why: True, record.why + NOT_IN_ORDER: False}
            return whys.get(entry.why)
    return None
