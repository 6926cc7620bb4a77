"""The Controller's machine, as transcripts: an operator takes a log dir out of use, in order."""

from dataclasses import replace

import pytest

from raylog.actors.control import LogId
from raylog.actors.errors import InvalidRequest
from raylog.actors.node.places import NOT_IN_ORDER, READING_BACK
from raylog.cluster.controller.commands import (
    LogDirOnline,
    LogDirOut,
    MovePartition,
    StopNode,
)
from raylog.cluster.controller.describe import Snapshot, problem_of
from raylog.cluster.controller.leaving_dirs import TAKEN_OFFLINE
from raylog.cluster.controller.log_dir_states import (
    LogDirDescription,
    describe_log_dir,
    describe_log_dirs,
)
from raylog.cluster.controller.observed import SUSPECT_MS
from raylog.cluster.controller.records import DirRecord, decode, encode
from raylog.cluster.controller.waiting import OPERATING_MS
from raylog.errors import LogDirTakenOffline
from tests.harness.control_nodes import PerfectNode, is_as_desired, log_id
from tests.harness.controller_play import Play
from tests.transcripts.controllers import answer_of, error_of, node_a, node_b

LOG = log_id("t", 0)
OUT = LogDirOut(log_dir="/a2")


def begun(*nodes: PerfectNode) -> Play:
    play = Play(*nodes)
    play.settle()
    return play


def serving_in_a2() -> Play:
    """Partition t-0 serves in the log dir a2 of node a, which has the Controller, too."""
    play = begun(node_a())
    play.create("t", 1)
    play.asks(MovePartition(name="t", number=0, log_dir="/a2"))
    play.settle()
    assert play.states() == {"t-0": "online in a2"}
    return play


def followed_by_b() -> Play:
    """The copy of the metadata in b1 is in sync."""
    play = Play(node_a(), node_b())
    play.followed = {"b"}
    play.settle(10_000)
    assert play.desired.copy_dirs == ("a1", "b1")
    return play


def seen(play: Play) -> Snapshot:
    return Snapshot(desired=play.desired, observed=play.machine.watched.nodes, now_ms=play.now_ms)


def shown(play: Play, directory_id: str) -> LogDirDescription:
    return describe_log_dir(seen(play), directory_id)


def problem(play: Play, log: LogId = LOG) -> object:
    return problem_of(seen(play), play.desired.partitions[log])


def test_it_is_a_record_and_its_node_closes_it_in_order() -> None:
    play = serving_in_a2()
    assert play.asks(OUT) == ["append: dir a2 offline at a"]
    lines = play.appended()
    assert lines == ["note log-dir-offline", "tell a: keep out a2, in order"]
    play.obeys("a")
    assert answer_of(play) == "dir a2 offline at a"
    assert shown(play, "a2").was_clean
    error = problem(play)
    assert isinstance(error, LogDirTakenOffline)
    assert error.advice == "`raylog log-dirs online /a2` brings it back"
    assert [dir.is_taken_offline for dir in describe_log_dirs(seen(play))] == [False, True]
    play.settle(60_000)
    assert play.states() == {"t-0": "online in a2"}


def test_it_is_answered_when_its_node_says_that_it_is_out_of_use() -> None:
    play = serving_in_a2()
    play.nodes["a"].is_slow = True
    play.asks(OUT)
    play.settle()
    assert "t-0 to be closed" in shown(play, "a2").waits_for
    assert play.answers.get(play.request) is None
    play.nodes["a"].is_slow = False
    play.settle(30_000)
    assert answer_of(play) == "dir a2 offline at a"


@pytest.mark.parametrize("is_silent", [False, True])
def test_who_hangs_is_named_after_a_while(is_silent: bool) -> None:
    play = serving_in_a2()
    play.nodes["a"].is_slow = True
    play.silent = {"a"} if is_silent else set()
    play.asks(OUT)
    play.settle(OPERATING_MS + 5_000)
    assert answer_of(play) == "dir a2 offline at a"
    waits_for = "node a does not answer" if is_silent else "t-0 to be closed"
    assert waits_for in shown(play, "a2").waits_for


def test_what_was_not_in_order_is_told() -> None:
    play = serving_in_a2()
    play.asks(OUT)
    play.appended()
    play.mail.clear()
    play.nodes["a"].leaves("a2", TAKEN_OFFLINE + NOT_IN_ORDER)
    play.settle()
    assert shown(play, "a2").was_clean is False


def test_the_command_may_come_again() -> None:
    play = serving_in_a2()
    for _ in range(2):
        play.asks(OUT)
        play.settle()
        assert answer_of(play) == "dir a2 offline at a"
    assert [decode(value) for value in play.disk].count(play.desired.dirs["a2"]) == 1


def test_one_that_has_failed_is_offline_already() -> None:
    play = serving_in_a2()
    play.nodes["a"].fails("a2")
    play.settle()
    play.asks(OUT)
    assert answer_of(play) == "dir a2 offline at a"
    assert play.desired.dirs["a2"].why == "EIO"
    assert not play.desired.dirs["a2"].is_ordered


def test_no_new_partition_goes_there() -> None:
    play = begun(node_a())
    play.asks(OUT)
    play.settle()
    play.create("t", 3)
    assert set(play.states().values()) == {"online in a1"}


def test_it_stays_offline_with_another_controller_and_a_log_manager_of_rays() -> None:
    play = serving_in_a2()
    play.asks(OUT)
    play.settle()
    play.begin()
    play.settle()
    node = play.nodes["a"]
    node.restart(by_ray=True)
    node.dirs["a2"] = PerfectNode("a", "a2").dirs["a2"]
    play.settle()
    assert node.dirs["a2"].state == "offline"
    assert play.desired.is_taken_offline("a2")


def test_online_ends_it_with_its_logs_read_back() -> None:
    play = serving_in_a2()
    play.asks(OUT)
    play.settle()
    assert play.asks(LogDirOnline(log_dir="/a2")) == ["append: dir a2 returning at a"]
    assert "tell a: read back a2" in play.appended()
    play.settle()
    assert not play.desired.dirs["a2"].is_ordered
    assert not any(dir.is_taken_offline for dir in describe_log_dirs(seen(play)))
    assert problem(play) is None
    assert is_as_desired(play.desired, play.nodes.values())


def test_one_that_is_wanted_back_while_its_node_is_still_told_to_close_it_is_read_back() -> None:
    play = serving_in_a2()
    play.nodes["a"].dirs["a2"] = replace(play.nodes["a"].dirs["a2"], is_read_back=True)
    play.reports("a")
    play.asks(OUT)
    assert "tell a: keep out a2, in order" in play.appended()
    leave = play.mail.pop("a")
    play.asks(LogDirOnline(log_dir="/a2"))
    assert "note log-dir-returning" in play.appended()
    play.reports("a")  # before it has heard of any of this
    assert play.appending is None
    play.nodes["a"].obey(leave)
    play.reports("a")
    play.settle()
    assert play.desired.dirs["a2"].state == "online"
    assert is_as_desired(play.desired, play.nodes.values())


def test_until_its_partitions_serve_again_it_is_said_what_that_waits_for() -> None:
    play = serving_in_a2()
    play.asks(OUT)
    play.settle()
    assert shown(play, "a2").not_serving.keys() == {"t-0"}
    play.asks(LogDirOnline(log_dir="/a2"))
    play.appended()
    returning = shown(play, "a2")
    assert (returning.state, returning.waits_for) == ("returning", "its logs to be read back")
    play.settle()
    used = shown(play, "a2")
    assert (used.state, used.why, used.waits_for) == ("online", "", "")
    assert (used.serving, used.not_serving) == (1, {})


def test_one_without_partitions_returns_when_it_is_read_back() -> None:
    play = begun(node_a())
    play.asks(OUT)
    play.settle()
    play.asks(LogDirOnline(log_dir="/a2"))
    play.appended()
    assert shown(play, "a2").waits_for == "its logs to be read back"
    play.settle()
    assert (shown(play, "a2").waits_for, shown(play, "a2").serving) == ("", 0)


def test_one_that_was_not_closed_in_order_is_not_said_to_be_unreadable_before_it_is_read() -> None:
    play = serving_in_a2()
    play.asks(OUT)
    play.appended()
    play.mail.clear()
    play.nodes["a"].leaves("a2", TAKEN_OFFLINE + NOT_IN_ORDER)
    play.settle()
    play.asks(LogDirOnline(log_dir="/a2"))
    play.appended()
    assert shown(play, "a2").waits_for == "its logs to be read back"


def test_nobody_waits_for_one_that_cannot_be_read_back_and_its_partitions_say_why() -> None:
    play = serving_in_a2()
    play.asks(OUT)
    play.settle()
    play.asks(LogDirOnline(log_dir="/a2"))
    play.appended()
    play.mail.clear()
    node = play.nodes["a"]
    node.dirs["a2"] = replace(node.dirs["a2"], why="EIO")
    play.reports("a")
    unread = shown(play, "a2")
    assert (unread.state, unread.waits_for) == ("returning", "")
    assert unread.why.endswith("cannot be read back: EIO")
    assert unread.not_serving == {"t-0": unread.why}


def test_one_whose_node_falls_silent_is_waited_for_by_its_nodes_name() -> None:
    play = serving_in_a2()
    play.asks(OUT)
    play.settle()
    play.silent = {"a"}
    play.asks(LogDirOnline(log_dir="/a2"))
    play.settle(2 * SUSPECT_MS)
    assert shown(play, "a2").waits_for == "the LogManager of node a does not answer"


def test_who_waits_is_told_that_it_is_used_again() -> None:
    play = serving_in_a2()
    play.nodes["a"].is_slow = True
    play.asks(OUT)
    play.settle()
    waiting = play.request
    play.asks(LogDirOnline(log_dir="/a2"))
    play.settle()
    assert isinstance(play.answers[waiting].error, InvalidRequest)


def test_one_that_returns_may_be_taken_out_again() -> None:
    play = serving_in_a2()
    play.nodes["a"].fails("a2")
    play.settle()
    play.asks(LogDirOnline(log_dir="/a2"))
    play.appended()
    play.asks(OUT)
    play.settle()
    assert play.desired.is_taken_offline("a2")
    assert play.nodes["a"].dirs["a2"].state == "offline"


def test_one_that_is_being_read_back_is_in_use_until_that_is_over() -> None:
    play = serving_in_a2()
    node = play.nodes["a"]
    node.fails("a2")
    play.settle()
    play.asks(LogDirOnline(log_dir="/a2"))
    play.appended()
    play.mail.clear()
    node.fails("a2", READING_BACK)
    node.is_slow = True
    play.reports("a")
    play.mail.clear()
    play.asks(OUT)
    play.settle()
    assert play.desired.is_taken_offline("a2")
    assert "its disk may hang" in shown(play, "a2").waits_for
    assert play.answers.get(play.request) is None
    node.is_slow = False
    play.settle(30_000)
    assert answer_of(play) == "dir a2 offline at a"


def test_a_move_to_it_is_given_up() -> None:
    play = begun(node_a())
    play.create("t", 1)
    play.asks(MovePartition(name="t", number=0, log_dir="/a2"))
    play.appended()
    moving = play.request
    play.asks(OUT)
    play.settle()
    assert play.states() == {"t-0": "online in a1"}
    assert isinstance(play.answers[moving].error, LogDirTakenOffline)


def test_a_record_of_it_is_read_by_who_does_not_know_the_field() -> None:
    failed = DirRecord(directory_id="d", node="a", path="/d", state="offline", why="EIO", life="1")
    assert b"ordered" not in encode(failed)
    ordered = DirRecord(directory_id="d", node="a", path="/d", state="offline", is_ordered=True)
    assert decode(encode(ordered)) == ordered


# -- what is refused -------------------------------------------------------------------------------


def refusal(play: Play, command: LogDirOut | LogDirOnline) -> str:
    play.asks(command)
    error = error_of(play)
    assert isinstance(error, InvalidRequest)
    return str(error)


def test_the_log_dir_with_the_controllers_metadata_cannot_be_spared() -> None:
    assert "`raylog stop` closes it" in refusal(begun(node_a()), LogDirOut(log_dir="/a1"))


def test_the_last_log_dir_of_a_node_cannot_be_spared() -> None:
    play = begun(node_a(), PerfectNode("b", "b1"))
    assert "`raylog node stop b` closes it" in refusal(play, LogDirOut(log_dir="/b1"))
    play = begun(node_a(), node_b())
    play.asks(LogDirOut(log_dir="/b2"))
    play.settle()
    assert "`raylog node stop b` closes it" in refusal(play, LogDirOut(log_dir="/b1"))


def test_nothing_of_a_node_that_does_not_run_is_in_use() -> None:
    play = begun(node_a(), node_b())
    play.asks(StopNode(node="b"))
    play.settle()
    assert "until `raylog node start b`" in refusal(play, LogDirOut(log_dir="/b2"))
    play.away = {"a"}
    play.settle()
    assert "does not run" in refusal(play, OUT)


def test_a_path_of_several_nodes_needs_the_node() -> None:
    node = PerfectNode("b", "b1", "b2")
    node.dirs["b2"] = replace(node.dirs["b2"], path="/a2")
    play = begun(node_a(), node)
    assert "or its node" in refusal(play, OUT)
    assert "or its node" in refusal(play, LogDirOnline(log_dir="/a2"))
    play.asks(LogDirOut(log_dir="/a2", node="b"))
    play.settle()
    assert answer_of(play) == "dir b2 offline at b"
    assert shown(play, "b2").argument == "/a2 --node b"
    assert shown(play, "a1").argument == "/a1"
    assert "online are: " in refusal(play, LogDirOut(log_dir="/a9"))


# -- copies of the metadata ------------------------------------------------------------------------


def test_a_copy_of_the_metadata_leaves_before_its_log_dir_is_closed() -> None:
    play = followed_by_b()
    play.asks(LogDirOut(log_dir="/b1"))
    play.appended()
    play.keeps("b")  # the record counts: the copy has it
    assert play.is_asking, "whether this is still the Controller"
    assert "the copy of the metadata" in shown(play, "b1").waits_for
    play.reports("b")
    assert not any("keep out" in line for line in play.passes())
    assert play.says_whether(True)[0] == "append: copies at a"
    assert "tell b: keep out b1, in order" in play.appended()
    play.obeys("b")
    assert answer_of(play) == "dir b1 offline at b"


def test_its_node_keeps_a_copy_in_another_log_dir() -> None:
    play = followed_by_b()
    play.asks(LogDirOut(log_dir="/b1"))
    play.settle()
    assert play.desired.copy_dirs == ("a1",)
    play.settle(20_000)
    assert play.desired.copy_dirs == ("a1",), "it does not join again"
    play.copy_begins("b", "b2")
    play.settle(10_000)
    assert list(play.desired.copy_dirs) == ["a1", "b2"]


def test_a_silent_copy_holds_it_up_no_longer_than_any_record() -> None:
    play = followed_by_b()
    play.followed = set()
    play.asks(LogDirOut(log_dir="/b1"))
    play.settle(2 * SUSPECT_MS)
    assert play.desired.copy_dirs == ("a1",)
    assert answer_of(play) == "dir b1 offline at b"
