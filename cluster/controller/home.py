"""On which node the Controller starts: the one whose first log dir holds the cluster's metadata.

A Ray cluster that is started afresh over old disks may be asked for a broker from any of its nodes.
A task on each node says what lies in its log dir; a new cluster is begun only where no node's dir
belongs to one.
"""

import os
from collections.abc import Iterable
from typing import NamedTuple

from raylog.actors.errors import RequestTimedOut, SeveralClusters
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node.log_manager import node_log_dirs
from raylog.actors.runtime.calls import gather
from raylog.actors.runtime.names import Node
from raylog.actors.runtime.nodes import alive_nodes, own_node
from raylog.actors.runtime.tasks import run_on_nodes
from raylog.storage.errors import LogMissing
from raylog.storage.files import RealFileSystem
from raylog.storage.log_dir import METADATA_PARTITION
from raylog.storage.state.properties import read_meta

# A task is a new process on each node.
READ_TIMEOUT_S = 60.0


class FirstLogDir(NamedTuple):
    """What lies in a node's first log dir."""

    node_id: str
    path: str
    cluster_id: str | None
    has_metadata: bool


def read_first_log_dir(node_id: str, config: BrokerConfig) -> FirstLogDir:
    """The first log dir of the node that this runs on."""
    fs, path = RealFileSystem(), node_log_dirs(config)[0]
    folder = os.path.join(path, str(METADATA_PARTITION))
    meta = read_meta(fs, path)
    cluster_id = meta.cluster_id if meta else None
    return FirstLogDir(
        node_id=node_id, path=path, cluster_id=cluster_id, has_metadata=fs.is_dir(folder)
    )


def choose(log_dirs: Iterable[FirstLogDir], own: str) -> str:
    """The id of the node where the Controller starts. ``own``: that of the one that asks.

    Raises SeveralClusters; LogMissing where dirs belong to a cluster whose metadata is on none of
    the nodes.
    """
    own_first = sorted(log_dirs, key=lambda log_dir: (log_dir.node_id != own, log_dir.node_id))
    homes = [log_dir for log_dir in own_first if log_dir.has_metadata]
    clusters = {home.cluster_id or home.path: home for home in homes}
    if len(clusters) > 1:
        listed = "; ".join(
            f"{cluster} in {home.path} of node {home.node_id[:8]}"
            for cluster, home in sorted(clusters.items())
        )
        raise SeveralClusters(listed)
    if homes:
        return homes[0].node_id
    for log_dir in own_first:
        if log_dir.cluster_id is not None:
            why = (
                f"the log dir belongs to cluster {log_dir.cluster_id}, but no running node has the "
                "metadata of this cluster"
            )
            raise LogMissing(os.path.join(log_dir.path, str(METADATA_PARTITION)), why)
    return own


def controller_node(config: BrokerConfig) -> Node:
    """The node where the Controller starts.

    Raises as ``choose`` does; RequestTimedOut where the metadata was not found, but a node has not
    answered, which may have it.
    """
    own, nodes = own_node(), alive_nodes()
    if len(nodes) == 1:
        return own  # it opens the metadata itself, or says why it cannot
    arguments = {node: (node.node_id, config) for node in nodes}
    calls = run_on_nodes(read_first_log_dir, arguments, "looking at the log dirs")
    # The errors are of nodes without usable log dirs, which cannot have the metadata.
    read = gather(calls, READ_TIMEOUT_S)
    read.raise_faults()
    log_dirs = list(read.answers.values())
    silent = [error for error in read.errors.values() if isinstance(error, RequestTimedOut)]
    if silent and not any(log_dir.has_metadata for log_dir in log_dirs):
        raise silent[0]
    chosen = choose(log_dirs, own.node_id)
    return next(node for node in nodes if node.node_id == chosen)
