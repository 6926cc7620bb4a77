"""Functions that run on nodes of one's choice, each in a process of its own there."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import ray

from raylog.actors.runtime.calls import Call
from raylog.actors.runtime.names import Node
from raylog.actors.runtime.nodes import pinned_to

Answer = TypeVar("Answer")


def run_on_nodes(
    function: Callable[..., Answer], arguments: Mapping[Node, tuple[Any, ...]], what: str
) -> dict[Node, Call[Answer]]:
    """Run a function once on each of these nodes, and not again where it fails.

    ``arguments``: node -> the function's arguments there. ``what``: what it is for, as errors say
    it ("reading the disks").
    """
    task = ray.remote(num_cpus=0, max_retries=0)(function)
    calls: dict[Node, Call[Answer]] = {}
    for node, there in arguments.items():
        # By the node's id, whatever its label: the task is for the node that is up now.
        options = pinned_to(Node(node.node_id))
        calls[node] = Call(task.options(**options).remote(*there), f"{what} of node {node}")
    return calls
