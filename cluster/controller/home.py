"""On which node the Controller starts: the one that has the newest copy of the metadata.

A Ray cluster that is started afresh over old disks may be asked for a broker from any of its nodes.
A task on each node looks at its log dirs (``surveying.py``), and ``copies.py`` decides. Where there
is one node only, the Controller looks itself: that saves a process.

A log dir that another process has locked is looked at again for a moment: that process may be at
its end.
"""

from collections.abc import Sequence

from raylog.actors.errors import NoLogDirs, RequestTimedOut
from raylog.actors.node.broker_config import BrokerConfig, node_log_dirs
from raylog.actors.partition.locking import lock_patiently
from raylog.actors.runtime.calls import gather
from raylog.actors.runtime.names import Node
from raylog.actors.runtime.nodes import alive_nodes, own_node
from raylog.actors.runtime.tasks import run_on_nodes
from raylog.cluster.controller.copies import Home, SurveyedDir, choose
from raylog.cluster.controller.surveying import Surveyor
from raylog.storage.errors import LogMissing
from raylog.storage.files import RealFileSystem
from raylog.storage.state.properties import random_id

# A task is a new process on each node.
READ_TIMEOUT_S = 60.0
# A Controller that cannot begin looks again and again.
_SURVEYOR = Surveyor(RealFileSystem())


def survey_node(node_id: str, config: BrokerConfig, *, may_begin: bool = True) -> list[SurveyedDir]:
    """The log dirs of the node that this runs on. ``may_begin``: whether a cluster may begin."""
    return _SURVEYOR.survey(node_id, node_log_dirs(config), tries_locks=may_begin)


def own_home(
    node_id: str,
    config: BrokerConfig,
    *,
    new_cluster: bool = False,
    older_metadata: bool = False,
    may_begin: bool,
) -> Home:
    """Where the metadata is on the node that this runs on, which is the only one.

    ``may_begin``: False where a Controller has been here before, so there must be some. Raises as
    ``choose`` does.
    """
    home = lock_patiently(
        lambda: choose(
            survey_node(node_id, config, may_begin=may_begin),
            node_id,
            new_id=random_id(),
            new_cluster=new_cluster,
            older_metadata=older_metadata,
        )
    )
    if home.new_cluster and not may_begin:
        raise LogMissing(home.log_dir, "the metadata is missing")
    return home


def find_home(
    config: BrokerConfig, new_cluster: bool = False, older_metadata: bool = False
) -> tuple[Node, Home | None]:
    """The node where the Controller starts, and where the metadata is there.

    None: it is the only node, and the Controller looks itself. Raises as ``choose`` does;
    RequestTimedOut where the metadata was not found, but a node has not answered, which may have
    it.
    """
    own, nodes = own_node(), alive_nodes()
    if len(nodes) == 1:
        return own, None
    home = lock_patiently(
        lambda: choose(
            _survey_all(own, nodes, config),
            own.node_id,
            new_id=random_id(),
            new_cluster=new_cluster,
            older_metadata=older_metadata,
        )
    )
    return next(node for node in nodes if node.node_id == home.node_id), home


def _survey_all(own: Node, nodes: Sequence[Node], config: BrokerConfig) -> list[SurveyedDir]:
    """The log dirs of all nodes. Raises as ``find_home``."""
    arguments = {node: (node.node_id, config) for node in nodes}
    calls = run_on_nodes(survey_node, arguments, "looking at the log dirs")
    # The errors are of nodes without log dirs, which cannot have the metadata.
    read = gather(calls, READ_TIMEOUT_S)
    read.raise_faults()
    dirs = [entry for answer in read.answers.values() for entry in answer]
    silent = [error for error in read.errors.values() if isinstance(error, RequestTimedOut)]
    if silent and not any(entry.copy is not None for entry in dirs):
        raise silent[0]
    if own in read.errors and not any(entry.has_metadata for entry in dirs):
        raise read.errors[own]
    if not dirs:
        raise NoLogDirs("no node has a log dir")
    return dirs
