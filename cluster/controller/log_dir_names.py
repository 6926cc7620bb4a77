"""How a command line names a log dir. Pure."""

import shlex

from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.records import DirRecord
from raylog.cluster.controller.spread import short_key


def argument_for(desired: Desired, record: DirRecord) -> str:
    """What `raylog log-dirs online` takes for a log dir: its path, as far as that says which.

    Where another node has a log dir at this path the node follows, and where its own node had
    another one there it is the id.
    """
    others = [
        other.node
        for other in desired.dirs.values()
        if other.path == record.path and other.directory_id != record.directory_id
    ]
    if record.node in others:
        return record.directory_id
    path = shlex.quote(record.path)
    return f"{path} --node {short_key(record.node)}" if others else path
