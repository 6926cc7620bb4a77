"""The names of a broker's actors, and of the nodes that they are pinned to. Knows no Ray.

Every actor is named and detached, in the broker's namespace, and pinned to the node that has its
disk::

    Controller                  one a broker
    LogManager:<node>           one a node
    Compaction:<node>           one a node that has compacted partitions
    Retention:<node>            one a node that has others
    Log:<topic>-<partition>     one a partition

**Nodes.** A Ray node's id is a new one after each of its starts. A node that was started with the
label ``raylog/log-node`` is known by that label: its actors wait, restarting, while the node is
away, and serve again where the label comes back. A node without a label is known by its id: its
actors die with it, and the Controller makes new ones where the disk comes back. Two nodes that are
up with one label would get each other's actors, so the second takes no part.
"""

from typing import NamedTuple

from raylog.actors.errors import LabelShared
from raylog.storage.names import TopicPartition
from raylog.storage.wire import message

NAMESPACE = "raylog"
CONTROLLER = "Controller"
# Prefixes of names: a node's key follows, or a partition.
LOG_MANAGER, COMPACTION, RETENTION = "LogManager:", "Compaction:", "Retention:"
LOG = "Log:"
# The label by which a node with disks is known from one of its lives to the next.
NODE_LABEL = "raylog/log-node"


@message
class Node(NamedTuple):
    """A Ray node that is up. ``label`` is empty where it has none."""

    node_id: str
    label: str = ""
    is_alone: bool = True  # no other node that is up carries the label

    @property
    def key(self) -> str:
        """What the node is known by: its label, the same in each of its lives, or else its id."""
        return self.label or self.node_id

    def __str__(self) -> str:
        return self.label or self.node_id[:8]

    def check_alone(self) -> None:
        """Raise LabelShared: Ray may have put an actor of this label on the wrong node."""
        if not self.is_alone:
            raise LabelShared(self.node_id, NODE_LABEL, self.label)


def log_actor_name(partition: TopicPartition) -> str:
    return LOG + str(partition)


def log_manager_name(node: str) -> str:
    """``node``: its key."""
    return LOG_MANAGER + node


def compaction_actor_name(node: str) -> str:
    return COMPACTION + node


def retention_actor_name(node: str) -> str:
    return RETENTION + node


def is_ours(name: str) -> bool:
    """Whether a broker's actors other than the Controller have names like this."""
    return name.startswith((LOG_MANAGER, LOG, COMPACTION, RETENTION))
