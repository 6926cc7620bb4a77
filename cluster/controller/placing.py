"""On which node a broker's Controller is put at first: the one that has the newest metadata.

Where there is one node only, the Controller looks itself: that saves a process.
"""

from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.runtime.names import Node
from raylog.actors.runtime.nodes import alive_nodes, own_node
from raylog.cluster.controller.copies import Home
from raylog.cluster.controller.home import Wanted, find_home
from raylog.cluster.controller.ray_reach import SURVEY_TIMEOUT_S, RayReach


def find_node(
    namespace: str, config: BrokerConfig, *, new_cluster: bool, older_metadata: bool
) -> tuple[Node, Home | None]:
    """The node where the Controller starts, and where the metadata is there.

    None: it is the only node, and the Controller looks itself. Raises as ``find_home`` does.
    """
    own, nodes = own_node(), alive_nodes()
    if len(nodes) == 1:
        return own, None
    reach = RayReach(namespace, config, is_on_node=False, timeout_s=SURVEY_TIMEOUT_S)
    wanted = Wanted(may_begin=True, new_cluster=new_cluster, older_metadata=older_metadata)
    home, _ = find_home(reach, wanted)
    return next(node for node in nodes if node.node_id == home.node_id), home
