"""Whether the nodes can begin with log dirs that a config adds; asked before it is written down.

A node that cannot begin with its ``log.dirs`` serves nothing, and the list of a living broker
cannot be shortened. So each node looks at the new paths first, and only reads. A node that does not
answer may be the one that cannot begin, so nothing is added then.
"""

from collections.abc import Collection, Mapping, Sequence

from raylog.actors.node.broker_config import BrokerConfig
from raylog.cluster.controller.copies import SurveyedDir
from raylog.storage.errors import InvalidConfig, RaylogError


def added(now: BrokerConfig, new: BrokerConfig) -> tuple[str, ...]:
    """The log dirs at the end of the list; none where the list is refused anyway."""
    count = len(now.log_dirs)
    return new.log_dirs[count:] if new.log_dirs[:count] == now.log_dirs else ()


def check_usable(
    paths: Sequence[str],
    dirs: Sequence[SurveyedDir],
    errors: Mapping[str, RaylogError],
    cluster_id: str,
    in_use: Collection[tuple[str, str]],
) -> None:
    """Raise InvalidConfig for a path with which a node could not begin, or may not.

    ``dirs``: what the nodes found, in all of their log dirs. ``errors``: by Ray's node id, why a
    node found nothing. ``in_use``: Ray's node id and path of each log dir that a node has already:
    one with ``RAYLOG_LOG_DIRS`` may have such a path.
    """
    if errors:
        whys = [f"node {node_id[:8]}: {error.problem}" for node_id, error in errors.items()]
        nobody_knows = f"it is not known whether every node can begin with it: {', '.join(whys)}"
        raise _refused(paths[0], nobody_knows)
    for entry in dirs:
        if entry.path not in paths or (entry.node_id, entry.path) in in_use:
            continue
        why_not = _why_not(entry, cluster_id) or _why_not_beside(entry, dirs)
        if why_not:
            raise _refused(entry.path, f"{entry}: {why_not}")


def _refused(path: str, why: str) -> InvalidConfig:
    return InvalidConfig("log.dirs", path, f"{why}; nothing was changed")


def _why_not(entry: SurveyedDir, cluster_id: str) -> str:
    """Empty where the log dir itself can be used."""
    if entry.problem:
        return entry.problem
    if entry.is_locked:
        return "another process uses it"
    if entry.cluster_id not in (None, cluster_id):
        return f"it belongs to the cluster {entry.cluster_id}"
    return ""


def _why_not_beside(entry: SurveyedDir, dirs: Sequence[SurveyedDir]) -> str:
    """Empty where the log dir is none of the others, and no copy of one."""
    for other in dirs:
        if (other.node_id, other.path) == (entry.node_id, entry.path):
            continue
        if _is_same_folder(entry, other):
            return f"it is the same folder as {other}"
        if entry.directory_id is not None and entry.directory_id == other.directory_id:
            return f"it has the directory.id of {other}: one is a copy of the other"
    return ""


def _is_same_folder(entry: SurveyedDir, other: SurveyedDir) -> bool:
    is_known = bool(entry.real_path)
    return is_known and (entry.node_id, entry.real_path) == (other.node_id, other.real_path)
