"""Log dirs of one node that were at the same path, one after the other. Pure.

A disk that is not mounted leaves an empty folder. A node that begins then makes a log dir of it,
which gets partitions. When the disk is mounted again, its log dir is back at the path, and the
other one is hidden below it, or was put elsewhere. A node takes into use what is at a path when it
begins, so a restart of the node is what changes the one for the other.

Which of the two is there, nobody can say from here before the node begins again. Which is the one
that belongs there, the metadata knows: the older one.
"""

from collections.abc import Mapping

from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.observed import Observed
from raylog.cluster.controller.records import DirRecord
from raylog.cluster.controller.spread import short_key

_RESTART = "`raylog node stop {node}` and `raylog node start {node}`"
# The older one.
_MOUNT = "mount its disk at {path} if it is not there, then run {restart}: the node uses it again"
# The younger one.
_FIRST = "{path} belongs to {other}: where that is mounted again, run {restart} to use it. "
_MOVE = (
    "The partitions of {directory_id} open when its folder is at another path (a disk that is "
    "mounted over it hides it) that is in the log dirs of the node; then move them, or delete "
    "their topics if nobody needs the records"
)


def displacing(
    desired: Desired, observed: Mapping[str, Observed], record: DirRecord
) -> DirRecord | None:
    """The log dir that is in the place of another one, for all that its node knows; else None."""
    seen = observed.get(record.node)
    report = None if seen is None else seen.report
    if report is None:
        return None
    reported = {entry.directory_id: entry for entry in report.dirs}
    own = reported.get(record.directory_id)
    for other in desired.dirs_of(record.node):
        if other.path != record.path or other.directory_id == record.directory_id:
            continue
        is_used = own is None and other.directory_id in reported
        # The node has met another one there, and its report says which.
        is_met = own is not None and other.directory_id in (own.why or record.why)
        if is_used or is_met:
            return other
    return None


def way_back(
    desired: Desired, observed: Mapping[str, Observed], record: DirRecord, other: DirRecord
) -> str:
    """What to do about a log dir in whose place ``other`` is."""
    node = short_key(record.node)
    values = {
        "path": record.path,
        "directory_id": record.directory_id,
        "other": other.directory_id,
        "restart": _RESTART.format(node=node),
    }
    ids = list(desired.dirs)  # in the order in which they were first recorded
    if ids.index(record.directory_id) < ids.index(other.directory_id):
        return _MOUNT.format(**values)
    is_back = _is_in_use(observed, other)
    return ("" if is_back else _FIRST.format(**values)) + _MOVE.format(**values)


def why_several(meant: list[DirRecord]) -> str:
    """Why a path does not say which log dir of its node is meant, and what to do."""
    node = short_key(meant[0].node)
    ids = ", ".join(entry.directory_id for entry in meant)
    restart = _RESTART.format(node=node)
    return f"is the path of several log dirs ({ids}) of node {node}: {restart} use what is there"


def _is_in_use(observed: Mapping[str, Observed], record: DirRecord) -> bool:
    seen = observed.get(record.node)
    return record.state == "online" and any(
        entry.directory_id == record.directory_id and entry.state == "online"
        for entry in (() if seen is None or seen.report is None else seen.report.dirs)
    )
