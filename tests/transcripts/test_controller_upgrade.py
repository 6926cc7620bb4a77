"""Nodes go to a newer release one after the other, and the cluster to a newer level at the end.

The lines are explained in ``tests/harness/controller_play.py``.
"""

import pytest

from raylog.actors.errors import UnsupportedLevel, UpgradeRefused
from raylog.actors.levels import Levels
from raylog.cluster.controller.commands import CreateTopic, FinalizeUpgrade, StopNode
from raylog.cluster.controller.describe import Snapshot
from raylog.cluster.controller.upgrade import NodeRelease, upgrade_status
from tests.harness.control_nodes import PerfectNode
from tests.harness.controller_play import Play
from tests.transcripts.controllers import answer_of, error_of, node_a, node_b

OLD, NEW = Levels(1, 1), Levels(1, 2)
FINALIZE = FinalizeUpgrade(level=2)


def running(play: Play, key: str, software: str, levels: Levels) -> None:
    """From now on a node runs this release; it has begun anew."""
    node = play.nodes[key]
    node.software, node.levels = software, levels
    node.restart()
    play.reports(key)
    play.settle()


def upgraded(*keys: str, controller: Levels = NEW) -> Play:
    """Two nodes with a topic of two partitions; these run the newer release."""
    play = Play(node_a(), node_b())
    for node in play.nodes.values():
        node.software, node.levels = "1.0.0", OLD
    play.levels = controller
    play.begin()
    play.settle()
    play.create("t", 2)
    for key in keys:
        running(play, key, "1.1.0", NEW)
    return play


def nodes_of(play: Play) -> list[NodeRelease]:
    snapshot = Snapshot(
        desired=play.desired, observed=play.machine.watched.nodes, now_ms=play.now_ms
    )
    return list(upgrade_status(snapshot, play.levels).nodes)


def refused(play: Play, command: FinalizeUpgrade = FINALIZE) -> str:
    """Why the level stays; nothing is written for it."""
    records = len(play.disk)
    assert "append: level 2" not in play.asks(command)
    play.settle()
    error = error_of(play)
    assert isinstance(error, UpgradeRefused)
    assert len(play.disk) == records
    assert play.desired.level == 1
    return error.why


def test_when_all_nodes_run_the_newer_release_the_level_is_raised_and_told() -> None:
    play = upgraded("a", "b")
    assert play.asks(FINALIZE) == ["append: level 2"]
    assert "note level" in play.appended()
    assert answer_of(play) == "2"
    play.asks(CreateTopic(name="u", topic_id="id-u", partitions=2))
    play.appended()
    assert {orders.level for orders in play.mail.values()} == {2}


def test_a_level_that_is_there_is_no_change() -> None:
    play = upgraded("a", "b")
    play.asks(FINALIZE)
    play.settle()
    records = len(play.disk)
    play.asks(FINALIZE)
    play.settle()
    assert answer_of(play) == "2"
    assert len(play.disk) == records


def test_the_level_is_that_of_the_metadata_for_the_next_controller() -> None:
    play = upgraded("a", "b")
    play.asks(FINALIZE)
    play.settle()
    play.begin()
    play.settle()
    assert play.desired.level == 2


def test_it_stays_while_a_node_runs_the_older_release_which_is_named() -> None:
    play = upgraded("a")
    assert refused(play) == "node b runs raylog 1.0.0"
    assert refused(play, FinalizeUpgrade(level=2, without=frozenset("b"))), "it reports"


def test_it_stays_while_a_node_is_silent_unless_it_is_left_out() -> None:
    play = upgraded("a", "b")
    play.silent.add("b")
    play.settle(20_000)
    assert refused(play) == "node b is silent, and nobody knows what it runs"
    play.asks(FinalizeUpgrade(level=2, without=frozenset("b")))
    play.settle()
    assert answer_of(play) == "2"


def test_the_copy_of_a_node_that_was_left_out_joins_only_with_the_newer_release() -> None:
    play = upgraded("a", "b")
    play.silent.add("b")
    play.settle(20_000)
    play.asks(FinalizeUpgrade(level=2, without=frozenset("b")))
    play.settle()
    play.silent.clear()
    play.followed = {"b"}
    running(play, "b", "1.0.0", OLD)
    play.settle(20_000)
    assert not play.desired.copies
    (found,) = (copy for copy in play.machine.copies if copy.node == "b")
    assert found.problem == "its raylog 1.0.0 does not know level 2; upgrade it"
    running(play, "b", "1.1.0", NEW)
    play.settle(20_000)
    assert play.desired.copies == ("a", "b")


def test_the_copy_of_a_node_leaves_that_loses_the_clusters_level() -> None:
    play = upgraded("a", "b")
    play.followed = {"b"}
    play.asks(FINALIZE)
    play.settle(20_000)
    assert play.desired.copies == ("a", "b")
    running(play, "b", "1.0.0", OLD)
    play.settle(30_000)
    assert "b" not in play.desired.copies


def test_it_stays_while_a_node_is_stopped() -> None:
    play = upgraded("a", "b")
    play.asks(StopNode(node="b"))
    play.settle()
    assert refused(play) == "node b is stopped, and nobody knows what it runs"


def test_it_stays_while_a_node_is_away() -> None:
    play = upgraded("a", "b")
    play.away.add("b")
    play.sees()
    assert refused(play) == "node b is away, and nobody knows what it runs"


def test_a_node_of_which_nothing_is_recorded_is_not_waited_for() -> None:
    play = upgraded("a", "b")
    play.nodes["c"] = PerfectNode("c", "c1")
    play.silent.add("c")
    play.sees()
    play.asks(FINALIZE)
    play.settle()
    assert answer_of(play) == "2"


def test_it_stays_while_the_controller_runs_the_older_release() -> None:
    play = upgraded("a", "b", controller=OLD)
    assert refused(play).startswith("its Controller runs raylog ")


@pytest.mark.parametrize("level", [0, 3])
def test_no_level_is_lowered_or_invented(level: int) -> None:
    assert refused(upgraded("a", "b"), FinalizeUpgrade(level=level))


def test_a_controller_of_the_older_release_refuses_the_metadata_by_name() -> None:
    play = upgraded("a", "b")
    play.asks(FINALIZE)
    play.settle()
    play.levels = OLD
    with pytest.raises(UnsupportedLevel, match="of level 2, and raylog"):
        play.begin()


def test_the_status_says_what_each_node_runs_and_what_nobody_knows() -> None:
    play = upgraded("a")
    play.away.add("b")
    play.sees()
    assert nodes_of(play) == [
        NodeRelease(node="a", release="1.1.0", levels=NEW, wanted=1),
        NodeRelease(node="b", release="", levels=OLD, problem="away", wanted=1),
    ]
