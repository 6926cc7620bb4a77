"""Where the Controller starts, by what lies on the nodes' disks."""

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import pytest

from raylog.actors.errors import RequestTimedOut, SeveralClusters
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.runtime.calls import Call
from raylog.actors.runtime.names import Node
from raylog.cluster.controller import home as module
from raylog.cluster.controller.home import FirstLogDir, choose, controller_node, read_first_log_dir
from raylog.storage.errors import InvalidLogDir, LogMissing
from tests.harness.futures import Timeline

FRESH, OTHER_FRESH = FirstLogDir("a", "/a", None, False), FirstLogDir("b", "/b", None, False)
MEMBER = FirstLogDir("c", "/c", "cluster-1", False)
HOME = FirstLogDir("d", "/d", "cluster-1", True)
FOREIGN = FirstLogDir("e", "/e", "cluster-2", True)
# a first start that ended before the dir was identified
CUT_OFF = FirstLogDir("f", "/f", None, True)


def test_a_new_cluster_begins_where_it_is_asked_for() -> None:
    assert choose([FRESH, OTHER_FRESH], "b") == "b"


@pytest.mark.parametrize("own", ["a", "c", "d"])
def test_a_cluster_goes_on_where_its_metadata_is_whoever_asks(own: str) -> None:
    assert choose([FRESH, MEMBER, HOME], own) == "d"


def test_one_disk_that_several_nodes_see_is_opened_by_the_one_that_asks() -> None:
    same = [FirstLogDir(node, "/shared", "cluster-1", True) for node in "abc"]
    assert choose(same, "b") == "b"
    assert choose(same, "x") == "a"


def test_a_second_cluster_is_refused_and_both_are_named() -> None:
    for other in (FOREIGN, CUT_OFF):
        with pytest.raises(
            SeveralClusters, match=f"cluster-1 in /d of node d.*{other.path}|{other.path}.*/d"
        ):
            choose([FRESH, HOME, other], "a")


def test_no_empty_cluster_begins_beside_disks_whose_metadata_is_away() -> None:
    for own in ("a", "c"):
        with pytest.raises(LogMissing, match="cluster-1"):
            choose([FRESH, MEMBER], own)


CONFIG = BrokerConfig.parse({})


class Nodes:
    """The nodes that are up; a task on each ends as a test says."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.timeline = Timeline(patch)
        self.ends: dict[Node, Future[Any]] = {}
        self.asked: list[Node] = []
        patch.setattr(module, "alive_nodes", lambda: list(self.ends))
        patch.setattr(module, "own_node", lambda: next(iter(self.ends)))
        patch.setattr(module, "run_on_nodes", self._run)

    def has(self, node_id: str, outcome: Any) -> None:
        """The first one is the own node."""
        self.ends[Node(node_id, f"label-{node_id}")] = self.timeline.ends_at(1, outcome)

    def has_silent(self, node_id: str) -> None:
        self.ends[Node(node_id)] = Future()

    def _run(
        self, function: Any, arguments: Mapping[Node, tuple[Any, ...]], what: str
    ) -> dict[Node, Call[FirstLogDir]]:
        assert function is read_first_log_dir
        assert arguments == {node: (node.node_id, CONFIG) for node in self.ends}
        self.asked = list(arguments)
        return {node: Call(end, f"{what} of node {node}") for node, end in self.ends.items()}


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Nodes:
    return Nodes(monkeypatch)


def test_a_single_node_is_chosen_without_asking_it(nodes: Nodes) -> None:
    nodes.has_silent("a")
    assert controller_node(CONFIG) == Node("a")
    assert nodes.asked == []


def test_the_node_that_has_the_metadata_is_chosen(nodes: Nodes) -> None:
    nodes.has("a", FRESH)
    nodes.has("d", HOME)
    assert controller_node(CONFIG) == Node("d", "label-d")


def test_where_no_disk_belongs_to_a_cluster_the_own_node_is_chosen(nodes: Nodes) -> None:
    nodes.has("b", OTHER_FRESH)
    nodes.has("a", FRESH)
    assert controller_node(CONFIG) == Node("b", "label-b")


def test_a_silent_node_does_not_matter_where_the_metadata_was_found(nodes: Nodes) -> None:
    nodes.has("a", FRESH)
    nodes.has("d", HOME)
    nodes.has_silent("s")
    assert controller_node(CONFIG).node_id == "d"


def test_where_the_metadata_was_not_found_a_silent_node_may_have_it(nodes: Nodes) -> None:
    nodes.has("a", FRESH)
    nodes.has_silent("s")
    with pytest.raises(RequestTimedOut, match="looking at the log dirs of node s"):
        controller_node(CONFIG)


def test_a_node_without_usable_log_dirs_does_not_matter(nodes: Nodes) -> None:
    nodes.has("a", FRESH)
    nodes.has("x", InvalidLogDir("/disk", "is a file"))
    assert controller_node(CONFIG).node_id == "a"


def test_an_error_without_a_name_is_raised(nodes: Nodes) -> None:
    nodes.has("a", FRESH)
    nodes.has("x", KeyError("a bug"))
    with pytest.raises(KeyError, match="a bug"):
        controller_node(CONFIG)
