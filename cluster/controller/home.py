"""On which node the Controller starts: the one whose first log dir holds the cluster's metadata.

A Ray cluster that is started afresh over old disks may be asked for a broker from any of its nodes.
A task on each node says what lies in its log dir; a new cluster is begun only where no node's dir
belongs to one.
"""

import os
from collections.abc import Iterable
from typing import Any, NamedTuple

import ray

from raylog.actors.errors import RequestTimedOut, SeveralClusters
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node.log_manager import node_log_dirs
from raylog.actors.runtime.calls import wait_for
from raylog.actors.runtime.names import Node
from raylog.actors.runtime.nodes import alive_nodes, own_node, pinned_to
from raylog.storage.errors import LogMissing, RaylogError
from raylog.storage.files import RealFileSystem
from raylog.storage.log_dir import METADATA_PARTITION
from raylog.storage.state.properties import read_meta

# A task is a new process on each node.
LOOK_TIMEOUT_S = 60.0


class Seen(NamedTuple):
    """What lies in a node's first log dir."""

    node_id: str
    path: str
    cluster_id: str | None
    has_metadata: bool


def look(node_id: str, config: BrokerConfig) -> Seen:
    """The first log dir of the node that this runs on."""
    fs, path = RealFileSystem(), node_log_dirs(config)[0]
    folder = os.path.join(path, str(METADATA_PARTITION))
    meta = read_meta(fs, path)
    return Seen(node_id, path, meta.cluster_id if meta else None, fs.is_dir(folder))


def choose(seen: Iterable[Seen], own: str) -> str:
    """The id of the node where the Controller starts. ``own``: that of the one that asks.

    Raises SeveralClusters; LogMissing where dirs belong to a cluster whose metadata is on none of
    the nodes.
    """
    seen = sorted(seen, key=lambda one: (one.node_id != own, one.node_id))
    homes = [one for one in seen if one.has_metadata]
    clusters = {one.cluster_id or one.path: one for one in homes}
    if len(clusters) > 1:
        found = "; ".join(
            f"{cluster} in {one.path} of node {one.node_id[:8]}"
            for cluster, one in sorted(clusters.items())
        )
        raise SeveralClusters(found)
    if homes:
        return homes[0].node_id
    for one in seen:
        if one.cluster_id is not None:
            why = (
                f"no node that is up has the metadata of cluster {one.cluster_id}, to which this "
                "log dir belongs"
            )
            raise LogMissing(os.path.join(one.path, str(METADATA_PARTITION)), why)
    return own


def seat(config: BrokerConfig) -> Node:
    """The node where the Controller starts."""
    own, nodes = own_node(), alive_nodes()
    if len(nodes) == 1:
        return own  # it opens the metadata itself, or says why it cannot
    task = ray.remote(num_cpus=0, max_retries=0)(look)
    # By the node's id, whatever its label: it is asked for this once.
    asked = {
        node: task.options(**pinned_to(Node(node.node_id))).remote(node.node_id, config)
        for node in nodes
    }
    ray.wait(list(asked.values()), num_returns=len(asked), timeout=LOOK_TIMEOUT_S)
    answers = {node: _answer(reference, node) for node, reference in asked.items()}
    seen = [answer for answer in answers.values() if isinstance(answer, Seen)]
    silent = [answer for answer in answers.values() if isinstance(answer, RequestTimedOut)]
    if silent and not any(one.has_metadata for one in seen):
        raise silent[0]  # it may be the one
    chosen = choose(seen, own.node_id)
    return next(node for node in nodes if node.node_id == chosen)


def _answer(reference: Any, node: Node) -> Any:
    try:
        return wait_for(reference, f"looking at the log dirs of node {node}", 0.0)
    except RaylogError as error:
        return error  # a node without usable log dirs has no part in this
