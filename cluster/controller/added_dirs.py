"""Whether the nodes can begin with log dirs that a config adds; asked before it is written down.

A node that cannot begin with its ``log.dirs`` serves nothing, and the list of a living broker
cannot be shortened. So each node looks at the new paths first, and only reads.
"""

from collections.abc import Collection, Iterable, Sequence

from raylog.actors.node.broker_config import BrokerConfig
from raylog.cluster.controller.copies import SurveyedDir
from raylog.storage.errors import InvalidConfig


def added(now: BrokerConfig, new: BrokerConfig) -> tuple[str, ...]:
    """The log dirs at the end of the list; none where the list is refused anyway."""
    count = len(now.log_dirs)
    return new.log_dirs[count:] if new.log_dirs[:count] == now.log_dirs else ()


def check_usable(
    paths: Sequence[str],
    dirs: Iterable[SurveyedDir],
    cluster_id: str,
    in_use: Collection[tuple[str, str]],
) -> None:
    """Raise InvalidConfig for a path with which a node could not begin.

    ``dirs``: what the nodes found. ``in_use``: Ray's node id and path of each log dir that a node
    has already: one with ``RAYLOG_LOG_DIRS`` may have such a path.
    """
    for entry in dirs:
        if entry.path not in paths or (entry.node_id, entry.path) in in_use:
            continue
        why = _why_not(entry, cluster_id)
        if why:
            raise InvalidConfig("log.dirs", entry.path, f"{entry}: {why}; nothing was changed")


def _why_not(entry: SurveyedDir, cluster_id: str) -> str:
    """Empty where the node can begin with the log dir."""
    if entry.problem:
        return entry.problem
    if entry.is_locked:
        return "another process uses it"
    if entry.cluster_id not in (None, cluster_id):
        return f"it belongs to the cluster {entry.cluster_id}"
    return ""
