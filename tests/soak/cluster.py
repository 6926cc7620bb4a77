"""The cluster of a run: three nodes on this machine, each with two log dirs of its own.

The head holds Ray's own state (its GCS), and the Controller begins there. Ray outlives its GCS only
with an external store (Redis), which this cluster does not have: when the head is killed all of Ray
is started again (``outage.py``). The others are killed one by one, and come back with their dirs
under a new node id.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.harness.nodes import PATIENT_DETECTION, Nodes, running_nodes

OTHERS = ("one", "two")
# Whose disks can be filled, where this program may mount: one has the metadata. The other node's
# are on the machine's own file system.
SMALL_DISKS = ("head", "two")
DIRS_A_NODE = ("a", "b")
OBJECT_STORE_BYTES = 200 << 20
# raylog's actors take none, and Ray starts a worker beforehand for each
CPUS_A_NODE = 1


@contextmanager
def cluster(disks: Path) -> Iterator[Nodes]:
    """The head and the others, up."""
    with running_nodes(
        disks,
        dirs_a_node=DIRS_A_NODE,
        cpus=CPUS_A_NODE,
        object_store_bytes=OBJECT_STORE_BYTES,
        detection=PATIENT_DETECTION,
    ) as nodes:
        for name in OTHERS:
            nodes.add(name)
        yield nodes
