"""One node is drained, stopped and started while the others serve: the Controller's part.

The lines are explained in ``tests/harness/controller_play.py``.
"""

from dataclasses import replace

import pytest

from raylog.actors.control import LogId, Stop
from raylog.actors.errors import InvalidRequest, NodeOrderReplaced, NoLogDirs, NotLeader
from raylog.cluster.controller.commands import (
    AlterTopic,
    Command,
    CreateTopic,
    DeleteTopic,
    DrainNode,
    MovePartition,
    StartNode,
    StopNode,
)
from raylog.cluster.controller.describe import Snapshot
from raylog.cluster.controller.events import NodesSeen, Reported, Silent
from raylog.cluster.controller.node_states import NodeDescription, describe_node_list
from raylog.cluster.controller.observed import SUSPECT_MS
from raylog.cluster.controller.waiting import OPERATING_MS
from raylog.cluster.health.facts import Facts
from raylog.cluster.health.findings import findings
from tests.harness.control_nodes import PerfectNode, entry, is_as_desired
from tests.harness.controller_play import Play, begun
from tests.transcripts.controllers import LOG, answer_of, create, error_of, node_a, node_b

DRAIN, UNDO = DrainNode(node="b"), DrainNode(node="b", is_undone=True)
STOP, START = StopNode(node="b"), StartNode(node="b")


def with_topic(partitions: int = 4) -> Play:
    """Two nodes with half of the partitions each."""
    play = begun(node_a(), node_b())
    play.create("t", partitions)
    return play


def stopped() -> Play:
    play = with_topic()
    play.asks(STOP)
    play.settle()
    assert answer_of(play) == "node b stopped"
    return play


def node(play: Play, key: str = "b") -> NodeDescription:
    """As an operator sees it."""
    snapshot = Snapshot(
        desired=play.desired, observed=play.machine.watched.nodes, now_ms=play.now_ms
    )
    return next(found for found in describe_node_list(snapshot, {}, {}) if found.node == key)


def served_at(play: Play, key: str) -> int:
    return len(play.nodes[key].serving)


# -- drain -----------------------------------------------------------------------------------------


def test_a_drained_node_keeps_what_it_has_and_gets_no_new_partition() -> None:
    play = with_topic()
    play.asks(DRAIN)
    assert "note node-operated" in play.appended()
    assert answer_of(play) == "node b draining"
    play.create("u", 4)
    assert (served_at(play, "a"), served_at(play, "b")) == (6, 2)
    assert node(play).state == "draining"


@pytest.mark.parametrize("end", [UNDO, START])
def test_the_end_of_a_drain_gives_it_new_partitions_again(end: Command) -> None:
    play = with_topic()
    play.asks(DRAIN)
    play.settle()
    play.asks(end)
    play.settle()
    assert answer_of(play) == "node b"
    play.create("u", 2)
    assert served_at(play, "b") == 3


def test_a_topic_is_refused_where_all_nodes_are_drained_and_the_error_says_what_ends_that() -> None:
    play = begun(node_a())
    play.asks(DrainNode(node="a"))
    play.settle()
    play.asks(create("t"))
    assert isinstance(error_of(play), NoLogDirs)
    assert "raylog node drain --undo a" in str(error_of(play))
    assert error_of(play).advice.endswith("`raylog node list`")  # health has no problem


def test_a_drain_waits_for_what_the_node_was_to_make_before() -> None:
    play = begun(node_a(), node_b())
    play.asks(create("t", 2))
    play.appended()
    play.asks(DRAIN)
    play.appended()
    assert play.answer is None
    assert node(play).waits_for == "t-1 to be created there"
    play.settle()
    assert answer_of(play) == "node b draining"
    assert served_at(play, "b") == 1


# -- stop ------------------------------------------------------------------------------------------


def test_a_node_is_stopped_by_an_order_and_the_rest_serves() -> None:
    play = with_topic()
    assert play.asks(STOP) == ["append: node b stopped"]
    assert play.appended() == ["note node-operated", "tell b: stop"]
    assert play.mail["b"].doubts == set(play.nodes["b"].serving)  # nothing of it is confirmed
    assert node(play).state == "stopping"
    assert node(play).waits_for == "t-1, t-3 to be closed"
    assert play.obeys("b") == []  # its LogManager has said its last words, and ends
    assert "note node-stopped" in play.sees()
    assert answer_of(play) == "node b stopped"
    assert (node(play).state, node(play).was_clean) == ("stopped", True)
    assert served_at(play, "a") == 2


def test_nobody_starts_the_log_manager_of_a_node_that_is_stopped() -> None:
    play = stopped()
    for _ in range(100):
        assert "start b" not in [*play.sees(), *play.does(Silent(node="b")), *play.passes()]


def test_the_order_to_stop_is_given_again_until_it_is_obeyed() -> None:
    play = with_topic()
    play.asks(STOP)
    play.appended()
    play.mail.clear()  # it is lost
    assert "tell b: stop" in [line for _ in range(3) for line in play.passes()]


def test_a_log_manager_that_dies_while_it_stops_is_ordered_to_stop_again() -> None:
    play = with_topic()
    play.asks(STOP)
    play.appended()
    play.nodes["b"].restart(by_ray=True)  # it has adopted what lives
    play.mail.clear()
    play.settle()
    assert answer_of(play) == "node b stopped"


def test_the_next_controller_knows_that_a_node_is_stopped_and_does_not_wait_for_it() -> None:
    play = stopped()
    play.begin()
    assert play.sees() == ["note node-stopped", "start a"]
    assert play.reports("a") == ["append: controller 2"]
    play.settle()
    play.create("u", 2)
    assert served_at(play, "b") == 0


def test_the_next_controller_finishes_a_stop() -> None:
    play = with_topic()
    play.asks(STOP)
    play.appended()
    play.begin()
    play.settle()
    assert node(play).state == "stopped"


def test_a_stop_that_comes_again_changes_nothing_and_waits_for_the_same() -> None:
    play = with_topic()
    play.asks(STOP)
    play.appended()
    first = play.request
    assert play.asks(STOP) == []
    play.settle()
    assert [answer.error for answer in play.answers.values()] == [None] * 3
    assert {first, play.request} <= play.answers.keys()
    assert play.asks(STOP) == [f"answer {play.request}: node b stopped"]


def test_a_stop_that_a_hanging_log_manager_does_not_obey_is_answered_after_a_while() -> None:
    play = with_topic()
    play.silent.add("b")
    play.asks(STOP)
    play.settle(OPERATING_MS + 2_000)
    assert answer_of(play) == "node b stopped"  # what shall be
    assert node(play).state == "stopping"
    assert "does not answer" in node(play).waits_for


def test_a_report_that_comes_late_does_not_bring_a_stopped_node_back() -> None:
    play = with_topic()
    late = play.nodes["b"].report()
    play.asks(STOP)
    play.settle()
    play.does(Reported(report=late))
    assert node(play).state == "stopped"
    assert play.machine.watched.nodes["b"].report is None


def test_log_actors_that_outlived_their_log_manager_are_closed_by_another_one() -> None:
    play = with_topic()
    play.nodes["b"].ended = "not in order"  # somebody has killed it for good
    play.silent.add("b")
    play.does(Silent(node="b"))
    play.asks(STOP)
    play.appended()
    assert play.answer is None
    play.settle(2_000)
    play.silent.clear()
    play.settle()
    assert answer_of(play) == "node b stopped"
    assert served_at(play, "b") == 0


def recreated() -> Play:
    """The topic was deleted while a node is stopped, and made again: another node has its names."""
    play = stopped()
    play.asks(DeleteTopic(name="t"))
    play.settle()
    play.asks(CreateTopic(name="t", topic_id="id-next", partitions=4))
    play.settle()
    assert served_at(play, "a") == 4
    return play


def test_the_next_controller_does_not_take_the_log_actors_of_other_nodes_for_left_ones() -> None:
    play = recreated()
    play.begin()
    lines = [line for _ in range(10) for line in [*play.sees(), *play.passes()]]
    assert "start a" in lines
    assert "start b" not in lines
    play.settle()
    assert node(play).state == "stopped"


def test_a_log_actor_that_was_left_and_is_in_the_way_of_another_node_is_closed() -> None:
    play = recreated()
    (old, left), *_ = play.nodes["b"].logs
    play.nodes["b"].logs[old, left] = entry(old, left)
    log = LogId(partition=old.partition, topic_id="id-next")
    (place,) = [place for other, place in play.nodes["a"].logs if other == log]
    play.nodes["a"].logs[log, place] = entry(log, place, "failed")
    play.begin()
    play.sees()
    play.reports("a")
    assert "start b" in play.sees()


def test_a_log_actor_that_was_left_is_closed_where_the_next_topic_has_fewer_partitions() -> None:
    play = stopped()
    play.asks(DeleteTopic(name="t"))
    play.settle()
    play.asks(CreateTopic(name="t", topic_id="id-next", partitions=1))
    play.settle()
    (old, left), *_ = [key for key in play.nodes["b"].logs if key[0].partition.partition > 0]
    play.nodes["b"].logs[old, left] = entry(old, left)
    play.begin()
    assert "start b" in play.sees()


def test_a_node_is_not_stopped_while_a_log_actor_runs_that_was_left() -> None:
    play = with_topic()
    play.nodes["b"].ended = "not in order"
    play.silent.add("b")
    play.asks(STOP)
    play.appended()
    assert "start b" in [*play.does(Silent(node="b")), *play.sees(), *play.passes()]
    assert "note node-stopped" not in play.sees()
    assert node(play).state == "stopping"


def test_log_actors_whose_names_ray_still_has_when_all_was_closed_start_nothing() -> None:
    play = with_topic()
    play.asks(STOP)
    play.appended()
    names = frozenset(play.nodes["b"].actors()[1:])
    play.obeys("b")
    assert names
    nodes = {"a": "ray-a", "b": "ray-b"}
    lines = play.does(NodesSeen(nodes=nodes, actors=names | set(play.nodes["a"].actors())))
    assert "start b" not in [*lines, *play.does(Silent(node="b")), *play.passes()]


def test_that_a_node_is_stopped_is_told_once_and_it_is_not_suspect() -> None:
    play = stopped()
    assert "note node-stopped" not in play.sees()
    play.passes(60_000)
    assert not play.machine.watched.nodes["b"].is_suspect(play.now_ms)


def test_a_node_that_could_not_close_all_of_its_logs_is_not_clean() -> None:
    play = with_topic()
    play.asks(STOP)
    play.appended()
    play.nodes["b"].obey(play.mail.pop("b"))
    play.nodes["b"].ended = "not in order"
    play.reports("b")
    play.sees()
    assert (node(play).state, node(play).was_clean) == ("stopped", False)


def test_the_last_words_of_a_life_do_not_count_when_another_one_has_taken_its_place() -> None:
    play = with_topic()
    late = replace(play.nodes["b"].report(), number=99, ended="in order", logs=())
    play.nodes["b"].restart(by_ray=True)
    play.reports("b")
    play.does(Reported(report=late))
    report = play.machine.watched.nodes["b"].report
    assert report is not None
    assert report.life == "b-life-2"


def test_a_stop_of_a_node_that_reports_and_does_not_end_is_answered_after_a_while() -> None:
    play = with_topic()
    play.nodes["b"].is_slow = True
    play.asks(STOP)
    play.settle(OPERATING_MS - 10_000)
    assert play.answer is None
    play.settle(12_000)
    assert answer_of(play) == "node b stopped"
    assert node(play).state == "stopping"


def test_a_start_waits_for_an_opening_however_long_it_takes() -> None:
    play = stopped()
    opening = play.nodes["b"]
    opening.is_opening = True
    play.asks(START)
    play.settle(2 * OPERATING_MS)
    assert play.answer is None
    assert node(play).waits_for == "t-1, t-3 to be opened"
    opening.is_opening = False
    play.settle()
    assert answer_of(play) == "node b"


def test_a_start_is_tried_though_one_was_refused_before_the_stop() -> None:
    play = stopped()
    play.does(Silent(node="b", is_refused=True))
    play.silent.add("b")
    play.asks(START)
    play.appended()
    assert play.answer is None


def test_an_away_node_is_stopped_when_it_is_back() -> None:
    play = with_topic()
    play.away.add("b")
    play.sees()
    play.asks(STOP)
    play.appended()
    assert answer_of(play) == "node b stopped"
    assert (node(play).node_id, node(play).state) == (None, "stopped")
    play.away.clear()
    play.nodes["b"].restart(by_ray=True)
    play.settle()
    assert node(play).state == "stopped"
    assert play.nodes["b"].ended == "in order"


def test_a_node_that_closes_its_logs_for_long_is_not_suspect_and_says_for_how_long() -> None:
    play = with_topic()
    play.asks(STOP)
    play.appended()
    play.mail.clear()
    play.nodes["b"].is_ending = True
    play.settle(150_000)
    assert node(play).state == "stopping"
    assert node(play).waits_for == "t-1, t-3 to be closed"
    assert node(play).closing_ms > 120_000
    snapshot = Snapshot(
        desired=play.desired, observed=play.machine.watched.nodes, now_ms=play.now_ms
    )
    (finding,) = findings(Facts(node_list=describe_node_list(snapshot, {}, {})))
    assert "closing its logs" in finding.what


# -- what others ask meanwhile ---------------------------------------------------------------------


def test_a_topic_with_partitions_on_a_stopped_node_is_deleted_and_they_go_when_it_is_started() -> (
    None
):
    play = stopped()
    play.asks(DeleteTopic(name="t"))
    play.settle()
    assert answer_of(play) == "None"
    assert set(play.states().values()) == {"removing in b1", "removing in b2"}
    assert len(play.nodes["b"].logs) == 2
    assert node(play).wanted == 0
    play.asks(START)
    play.settle()
    assert play.states() == {}


def test_an_alter_does_not_wait_for_a_stopped_node_which_obeys_when_it_is_started() -> None:
    play = stopped()
    play.asks(AlterTopic(name="t", changes={"retention.ms": 5}))
    play.settle()
    assert answer_of(play).startswith("t v1")
    play.asks(START)
    play.settle()
    assert is_as_desired(play.desired, play.nodes.values())


def test_what_a_node_was_to_make_when_it_was_stopped_is_made_elsewhere() -> None:
    play = begun(node_a(), node_b())
    play.asks(create("t", 2))
    play.appended()
    play.mail.pop("b")  # the order to make it is lost
    creation = play.request
    play.asks(STOP)
    play.settle()
    assert play.answers[creation].error is None
    assert served_at(play, "a") == 2


def test_a_creation_that_waits_for_a_node_which_is_stopped_fails_where_it_cannot_go_on() -> None:
    play = begun(node_a(), node_b())
    play.asks(create("t", 2))
    play.until(lambda: any("creating in b" in state for state in play.states().values()))
    creation = play.request
    play.asks(STOP)
    play.settle(60_000)
    assert isinstance(play.answers[creation].error, NotLeader)


def test_a_move_on_a_node_that_is_stopped_is_answered_and_goes_on_when_it_is_started() -> None:
    play = with_topic()
    (log, home), *_ = play.nodes["b"].logs
    (target,) = play.nodes["b"].dirs.keys() - {home}
    play.asks(MovePartition(name="t", number=log.partition.partition, log_dir=target))
    play.appended()
    play.mail.clear()  # its LogManager does not hear of it
    move = play.request
    play.asks(STOP)
    play.appended()
    assert move not in play.answers  # it may end in time
    play.settle()
    assert "raylog node start b" in str(play.answers[move].error)
    assert play.states()[str(log.partition)] == f"moving in {home} to {target}"
    play.asks(START)
    play.settle()
    assert play.nodes["b"].serving[log][0] == target


# -- start -----------------------------------------------------------------------------------------


def test_a_node_that_is_started_again_serves_what_it_has() -> None:
    play = stopped()
    assert play.asks(START) == ["append: node b"]
    assert "start b" in play.appended()
    assert play.answer is None
    assert node(play).waits_for == "its LogManager has to begin"
    play.settle()
    assert answer_of(play) == "node b"
    assert is_as_desired(play.desired, play.nodes.values())
    assert node(play).state == "online"


def test_a_start_right_behind_a_stop_starts_it_when_it_has_ended() -> None:
    play = with_topic()
    play.asks(STOP)
    play.appended()
    stop = play.request
    play.asks(START)
    play.appended()
    assert isinstance(play.answers[stop].error, NodeOrderReplaced)
    play.nodes["b"].obey(play.mail.pop("b"))
    play.reports("b")
    play.does(Silent(node="b"))
    play.settle()
    assert answer_of(play) == "node b"
    assert is_as_desired(play.desired, play.nodes.values())


def test_a_start_of_a_node_that_is_closing_waits_for_the_end_of_that_life_and_for_the_next() -> (
    None
):
    play = with_topic()
    play.asks(STOP)
    play.appended()
    play.silent.add("b")  # it closes its logs, and one of them hangs
    play.asks(START)
    play.appended()
    play.settle(20_000)
    assert play.answer is None
    assert node(play).serving == 0
    assert "was ordered to stop before" in node(play).waits_for
    play.silent.clear()
    play.nodes["b"].do([Stop()])  # what it had begun ends now
    play.reports("b")
    assert play.answer is None
    play.does(Silent(node="b"))
    play.settle()
    assert answer_of(play) == "node b"
    assert play.nodes["b"].life == "b-life-2"
    assert is_as_desired(play.desired, play.nodes.values())


def test_what_an_ending_life_still_says_is_not_what_the_next_one_will_serve() -> None:
    """Also where it obeys orders behind the one to stop, and under the next Controller."""
    play = with_topic()
    play.asks(STOP)
    play.appended()
    play.nodes["b"].is_ending = True
    play.begin()
    play.settle()
    play.asks(START)
    play.settle(20_000)
    assert play.answer is None
    assert (node(play).state, node(play).serving) == ("starting", 0)
    play.nodes["b"].is_ending = False
    play.nodes["b"].do([Stop()])
    play.reports("b")
    play.does(Silent(node="b"))
    play.settle()
    assert answer_of(play) == "node b"
    assert is_as_desired(play.desired, play.nodes.values())


def test_a_node_that_never_got_the_order_to_stop_serves_on_when_it_is_started() -> None:
    play = with_topic()
    play.asks(STOP)
    play.appended()
    play.mail.clear()  # it is lost
    play.asks(START)
    play.appended()
    assert play.answer is None
    play.settle()
    assert answer_of(play) == "node b"
    assert play.nodes["b"].life == "b-life-1"
    assert (node(play).state, node(play).serving) == ("online", 2)


def test_a_start_of_a_node_whose_log_manager_hangs_does_not_count_what_it_said_before() -> None:
    play = with_topic()
    play.silent.add("b")
    play.settle(20_000)
    play.asks(START)
    assert play.answer is None
    assert node(play).waits_for == "its LogManager does not answer"
    play.settle(OPERATING_MS + 20_000)
    assert answer_of(play) == "node b"


def ending() -> Play:
    """A node that was stopped, and started again while it still closes its logs."""
    play = with_topic()
    play.nodes["b"].is_slow = True
    play.asks(STOP)
    play.appended()
    play.nodes["b"].obey(play.mail.pop("b"))
    play.asks(START)
    play.appended()
    return play


@pytest.mark.parametrize("is_reported", [False, True])
def test_a_node_that_closes_its_logs_is_not_started_before_it_has_ended(is_reported: bool) -> None:
    play = ending()
    if is_reported:
        play.reports("b")
    assert play.answer is None
    assert "was ordered to stop before" in node(play).waits_for
    play.nodes["b"].end()
    play.settle()
    assert answer_of(play) == "node b"
    assert is_as_desired(play.desired, play.nodes.values())


def test_a_node_that_has_closed_its_logs_for_long_is_started_at_its_last_words() -> None:
    play = ending()
    for _ in range(20):  # each start is refused: it is stopping
        play.does(Silent(node="b"))
        play.passes(2_000)
    play.nodes["b"].end()
    assert "start b" in play.reports("b")


def test_a_start_ends_where_the_log_manager_cannot_begin() -> None:
    play = stopped()
    play.nodes["b"].ended = None  # as if it ran; it says nothing
    play.silent.add("b")
    play.asks(START)
    play.appended()
    assert play.answer is None
    play.does(Silent(node="b", is_refused=True))
    assert answer_of(play) == "node b"
    assert node(play).waits_for == "its LogManager has to begin"


def test_a_start_of_a_node_that_runs_changes_nothing() -> None:
    play = with_topic()
    assert play.asks(START) == [f"answer {play.request}: node b"]


# -- another order meanwhile -----------------------------------------------------------------------


def test_a_stop_that_a_start_replaces_fails_and_says_what_the_node_is() -> None:
    play = with_topic()
    play.silent.add("b")  # one of its LogActors hangs
    play.asks(STOP)
    play.appended()
    stop = play.request
    play.asks(START)
    play.appended()
    error = play.answers[stop].error
    assert isinstance(error, NodeOrderReplaced)
    assert (error.node, error.ordered, error.state) == ("b", "stopped", node(play).state)
    assert "another order" in str(error)


def test_a_drain_whose_undoing_replaces_it_fails() -> None:
    play = begun(node_a(), node_b())
    play.asks(create("t", 2))
    play.appended()
    play.asks(DRAIN)
    play.appended()
    drain = play.request
    play.asks(UNDO)
    play.appended()
    assert isinstance(play.answers[drain].error, NodeOrderReplaced)


# -- what cannot be done ---------------------------------------------------------------------------


def test_a_node_that_nobody_knows_is_refused_and_the_others_are_named() -> None:
    play = with_topic()
    play.asks(StopNode(node="c"))
    assert isinstance(error_of(play), InvalidRequest)
    assert "a, b" in str(error_of(play))


@pytest.mark.parametrize("command", [DRAIN, UNDO])
def test_a_stopped_node_is_not_drained_since_that_would_start_it(command: DrainNode) -> None:
    play = stopped()
    play.asks(command)
    assert "raylog node start b" in str(error_of(play))
    assert play.desired.is_stopped("b")


def test_a_log_dir_of_a_stopped_node_may_be_used_by_another_node() -> None:
    """Its disk was put into another machine."""
    play = stopped()
    taken = play.nodes["b"]
    for name in list(taken.dirs):
        play.nodes["a"].dirs[name] = taken.dirs.pop(name)
    for key in list(taken.logs):
        play.nodes["a"].logs[key] = replace(taken.logs.pop(key))
    play.settle()
    assert served_at(play, "a") == 4


# -- a machine with another key --------------------------------------------------------------------


def test_a_machine_that_has_another_key_within_seconds_takes_its_folders_with_it() -> None:
    """Ray still shows the old key, whose last word is from before the folder was there.

    What a move has left lies on a disk of b, whose machine was started again as c.
    """
    play = begun(node_a(), node_b())
    play.create("t", 1)
    assert play.states() == {"t-0": "online in a1"}
    play.silent.add("b")  # its machine ends; Ray has not noticed it yet
    old, new = play.nodes["b"], PerfectNode("c", "b1", "b2")
    play.nodes["c"], new.epoch = new, old.epoch
    new.logs[LOG, "b1"] = entry(LOG, "b1", "found", topic_id=LOG.topic_id)
    play.settle(2_000)
    play.asks(DeleteTopic(name="t"))
    play.settle(SUSPECT_MS // 2)
    assert LOG in play.desired.partitions, "its folder is on a disk of c"
    play.away.add("b")
    play.settle()
    assert LOG not in play.desired.partitions
    assert new.removed == [LOG]
    assert new.set_aside == []


def test_a_copy_of_a_disk_holds_no_removal_up_once_its_owner_has_spoken() -> None:
    play = begun(node_a(), node_b())
    play.create("t", 1)
    copy = play.nodes["c"] = PerfectNode("c", "b1")
    copy.epoch = play.nodes["a"].epoch
    copy.logs[LOG, "b1"] = entry(LOG, "b1", "found", topic_id=LOG.topic_id)
    play.settle()
    play.asks(DeleteTopic(name="t"))
    play.settle()
    assert LOG not in play.desired.partitions
    assert copy.removed == []
