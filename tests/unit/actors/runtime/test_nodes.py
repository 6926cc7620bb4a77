"""Nodes: their names, which label is whose, and what pins an actor to one. Ray's functions are
fakes."""

from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raylog.actors.errors import LabelShared
from raylog.actors.runtime import nodes
from raylog.actors.runtime.names import (
    NODE_LABEL,
    Node,
    compaction_actor_name,
    is_ours,
    log_actor_name,
    log_manager_name,
    retention_actor_name,
)
from raylog.actors.runtime.nodes import (
    alive_nodes,
    is_restarted,
    own_name,
    own_node,
    own_node_id,
    pinned_to,
)
from raylog.storage.names import TopicPartition

NODE_ID = "01234567" * 7  # as long as Ray's


def cluster_of(patch: pytest.MonkeyPatch, **labels: str | None) -> None:
    """Nodes that are up, by their ids, with their labels; one more is down."""
    nodes: list[dict[str, Any]] = [
        {"NodeID": node_id, "Alive": True, "Labels": None if label is None else {NODE_LABEL: label}}
        for node_id, label in labels.items()
    ]
    nodes.append({"NodeID": "down", "Alive": False, "Labels": {NODE_LABEL: "disk-1"}})
    patch.setattr(ray, "is_initialized", lambda: True)
    patch.setattr(ray, "nodes", lambda: nodes)


def process(patch: pytest.MonkeyPatch, **context: Any) -> None:
    patch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(**context))


def test_a_node_is_known_by_its_label_or_else_by_its_id() -> None:
    assert Node(NODE_ID, "disk-1").key == "disk-1"
    assert Node(NODE_ID).key == NODE_ID
    assert str(Node(NODE_ID, "disk-1")) == "disk-1"
    assert str(Node(NODE_ID)) == "01234567"


def test_a_node_that_shares_its_label_is_refused_with_its_id_and_the_label() -> None:
    Node(NODE_ID, "disk-1").check_alone()
    with pytest.raises(LabelShared) as raised:
        Node(NODE_ID, "disk-1", is_alone=False).check_alone()
    assert raised.value.args == (NODE_ID, NODE_LABEL, "disk-1")


def test_each_kind_of_actor_has_its_name() -> None:
    names = {
        log_actor_name(TopicPartition("orders", 3)): "Log:orders-3",
        log_manager_name("disk-1"): "LogManager:disk-1",
        compaction_actor_name("disk-1"): "Compaction:disk-1",
        retention_actor_name("disk-1"): "Retention:disk-1",
    }
    assert list(names) == list(names.values())
    assert all(is_ours(name) for name in names)
    assert not is_ours("Controller")
    assert not is_ours("somebody else's")


def test_two_nodes_with_one_label_are_not_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster_of(monkeypatch, b="twice", a="twice", c="once", d=None, e=None)
    assert alive_nodes() == [
        Node("a", "twice", is_alone=False),
        Node("b", "twice", is_alone=False),
        Node("c", "once"),
        Node("d"),
        Node("e"),
    ]


def test_a_node_that_is_down_shares_no_label(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster_of(monkeypatch, a="disk-1")
    assert alive_nodes() == [Node("a", "disk-1")]


def test_a_process_knows_its_node_also_before_ray_lists_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster_of(monkeypatch, a="disk-1", b="disk-2")
    process(monkeypatch, get_node_id=lambda: "b")
    assert own_node_id() == "b"
    assert own_node() == Node("b", "disk-2")
    process(monkeypatch, get_node_id=lambda: "new")
    assert own_node() == Node("new")


@pytest.mark.parametrize("was_restarted", [True, False])
def test_an_actor_knows_its_name_and_whether_it_was_started_again(
    monkeypatch: pytest.MonkeyPatch, was_restarted: bool
) -> None:
    process(
        monkeypatch,
        get_actor_id=lambda: "id",
        get_actor_name=lambda: "Log:t-0",
        was_current_actor_reconstructed=was_restarted,
    )
    assert own_name() == "Log:t-0"
    assert is_restarted() is was_restarted


def test_a_driver_is_no_actor(monkeypatch: pytest.MonkeyPatch) -> None:
    process(monkeypatch, get_actor_id=lambda: None)
    assert own_name() == ""
    assert not is_restarted()


def test_an_actor_is_pinned_by_the_label_if_no_other_node_has_it() -> None:
    assert pinned_to(Node("a", "disk-1")) == {"label_selector": {NODE_LABEL: "disk-1"}}


@pytest.mark.parametrize("node", [Node(NODE_ID), Node(NODE_ID, "disk-1", is_alone=False)])
def test_else_an_actor_is_pinned_by_the_nodes_id_and_goes_nowhere_else(node: Node) -> None:
    options = pinned_to(node)
    strategy = options.pop("scheduling_strategy")
    assert options == {}
    assert isinstance(strategy, NodeAffinitySchedulingStrategy)
    assert strategy.node_id == NODE_ID
    assert strategy.soft is False


def test_a_broker_over_a_copy_of_the_disks_has_other_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clients would write into the original, by the names of that one's sockets."""
    ids = iter(["ray-1", "ray-1", "ray-1", "ray-2"])
    monkeypatch.setattr(nodes, "ray_cluster_id", lambda: next(ids))
    own, again = nodes.broker_id("cluster", "one"), nodes.broker_id("cluster", "one")
    others = [nodes.broker_id("cluster", "two"), nodes.broker_id("cluster", "one")]
    assert own == again
    assert own.startswith("cluster/")
    assert len({own, *others}) == 3
