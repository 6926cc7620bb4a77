"""Where the Controller starts, by what lies on the nodes' disks."""

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from raylog.actors.errors import NoLogDirs, OlderMetadata, RequestTimedOut
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.runtime.calls import Call
from raylog.actors.runtime.names import Node
from raylog.cluster.controller import home as module
from raylog.cluster.controller.copies import Copy, Home, SurveyedDir
from raylog.cluster.controller.home import find_home, own_home, survey_node
from raylog.cluster.controller.metadata_log import MetadataLog
from raylog.storage.errors import LogLocked, LogMissing
from raylog.storage.files import RealFileSystem
from raylog.storage.log_dir import LogDir
from raylog.storage.state.controller_epoch import write_controller_epoch
from raylog.storage.state.properties import MetaProperties, random_id, write_meta
from raylog.storage.testing.clock import ManualClock
from tests.harness.futures import Timeline

DIGESTS = b"x" * 8
COPY = Copy(cluster_id="cluster-1", controller_epoch=1, digests=DIGESTS)


def fresh(node_id: str) -> list[SurveyedDir]:
    return [SurveyedDir(node_id=node_id, path="/disk")]


def with_metadata(node_id: str) -> list[SurveyedDir]:
    """The metadata is in the second of two log dirs."""
    second = SurveyedDir(node_id=node_id, path="/second", has_metadata=True, copy=COPY)
    return [*fresh(node_id), second]


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
    ) -> dict[Node, Call[list[SurveyedDir]]]:
        assert function is survey_node
        assert arguments == {node: (node.node_id, CONFIG) for node in self.ends}
        self.asked = list(arguments)
        return {node: Call(end, f"{what} of node {node}") for node, end in self.ends.items()}


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Nodes:
    return Nodes(monkeypatch)


def test_a_single_node_is_chosen_without_asking_it(nodes: Nodes) -> None:
    nodes.has_silent("a")
    assert find_home(CONFIG) == (Node("a"), None)
    assert nodes.asked == []


def test_the_node_that_has_the_metadata_is_chosen(nodes: Nodes) -> None:
    nodes.has("a", fresh("a"))
    nodes.has("d", with_metadata("d"))
    home = Home(node_id="d", log_dir="/second")
    assert find_home(CONFIG) == (Node("d", "label-d"), home)


def test_where_no_disk_belongs_to_a_cluster_the_own_node_is_chosen(nodes: Nodes) -> None:
    nodes.has("b", fresh("b"))
    nodes.has("a", fresh("a"))
    node, home = find_home(CONFIG)
    assert node == Node("b", "label-b")
    assert home is not None
    assert home.new_cluster


def test_a_silent_node_does_not_matter_where_the_metadata_was_found(nodes: Nodes) -> None:
    nodes.has("a", fresh("a"))
    nodes.has("d", with_metadata("d"))
    nodes.has_silent("s")
    assert find_home(CONFIG)[0].node_id == "d"


def test_where_the_metadata_was_not_found_a_silent_node_may_have_it(nodes: Nodes) -> None:
    nodes.has("a", fresh("a"))
    nodes.has_silent("s")
    with pytest.raises(RequestTimedOut, match="looking at the log dirs of node s"):
        find_home(CONFIG)


def test_a_node_without_log_dirs_does_not_matter(nodes: Nodes) -> None:
    nodes.has("a", fresh("a"))
    nodes.has("x", NoLogDirs("log.dirs is not set"))
    assert find_home(CONFIG)[0].node_id == "a"


def test_where_the_own_node_has_no_log_dirs_it_is_said(nodes: Nodes) -> None:
    nodes.has("x", NoLogDirs("log.dirs is not set"))
    nodes.has("a", fresh("a"))
    with pytest.raises(NoLogDirs):
        find_home(CONFIG)


def test_an_error_without_a_name_is_raised(nodes: Nodes) -> None:
    nodes.has("a", fresh("a"))
    nodes.has("x", KeyError("a bug"))
    with pytest.raises(KeyError, match="a bug"):
        find_home(CONFIG)


def test_older_metadata_counts_only_where_somebody_accepts_it(nodes: Nodes) -> None:
    (first, second) = with_metadata("d")
    nodes.has("a", [replace(first, node_id="a", cluster_id="cluster-1", obeyed_epoch=4)])
    nodes.has("d", [first, replace(second, cluster_id="cluster-1")])
    with pytest.raises(OlderMetadata):
        find_home(CONFIG)
    node, home = find_home(CONFIG, older_metadata=True)
    assert node.node_id == "d"
    assert home is not None
    assert (home.least_epoch, home.accepts_older) == (4, True)


def test_on_a_single_node_older_metadata_is_refused_too_also_to_a_controller_that_is_back(
    tmp_path: Path,
) -> None:
    path = tmp_path / "log"
    config = BrokerConfig.parse({"log.dirs": [str(path)]})
    MetadataLog(RealFileSystem(), ManualClock(), str(path), new_cluster="cluster-1").close()
    write_meta(RealFileSystem(), str(path), MetaProperties("cluster-1", 1, random_id()))
    write_controller_epoch(RealFileSystem(), str(path), 1)
    for may_begin in (False, True):
        with pytest.raises(OlderMetadata, match=str(path)):
            own_home("n", config, may_begin=may_begin)
    assert own_home("n", config, older_metadata=True, may_begin=True).least_epoch == 1


def test_on_a_single_node_a_controller_looks_itself_and_begins_a_cluster_only_once(
    tmp_path: Path,
) -> None:
    config = BrokerConfig.parse({"log.dirs": [str(tmp_path / "log")]})
    home = own_home("n", config, may_begin=True)
    assert home.log_dir == str(tmp_path / "log")
    assert home.new_cluster
    with pytest.raises(LogMissing):
        own_home("n", config, may_begin=False)
    assert list(tmp_path.iterdir()) == [], "looking changes nothing"


@pytest.mark.parametrize("word", [False, True])
def test_a_log_dir_of_a_running_broker_begins_no_cluster_and_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: bool
) -> None:
    """The broker has its metadata in another log dir, which is not given here."""
    monkeypatch.setattr("raylog.actors.partition.locking.LOCK_PATIENCE_S", 0.0)
    config = BrokerConfig.parse({"log.dirs": [str(tmp_path)]})
    used = LogDir(RealFileSystem(), str(tmp_path), random_id(), 1)
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(LogLocked, match=str(tmp_path)):
        own_home("n", config, new_cluster=word, may_begin=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    used.close(clean=True)
    assert own_home("n", config, new_cluster=True, may_begin=True).new_cluster


def test_a_controller_that_is_back_is_not_kept_by_the_locks_of_its_own_log_managers(
    tmp_path: Path,
) -> None:
    config = BrokerConfig.parse({"log.dirs": [str(tmp_path)]})
    used = LogDir(RealFileSystem(), str(tmp_path), random_id(), 1)
    with pytest.raises(LogMissing):
        own_home("n", config, may_begin=False)
    used.close(clean=True)


def test_a_log_dir_that_is_used_on_another_node_begins_no_cluster(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raylog.actors.partition.locking.LOCK_PATIENCE_S", 0.0)
    nodes.has("a", fresh("a"))
    nodes.has("d", [replace(fresh("d")[0], is_locked=True)])
    with pytest.raises(LogLocked, match="/disk of node d"):
        find_home(CONFIG, new_cluster=True)
