"""The Controller, told as transcripts: what happens, and what it wants done then.

The lines are explained in ``tests/harness/controller_play.py``.
"""

from dataclasses import replace
from itertools import pairwise

import pytest

from raylog.actors.control import LogReport
from raylog.actors.errors import NoLogDirs, NotLeader, TooManyPartitions, TopicExists
from raylog.cluster.controller.commands import (
    AddPartitions,
    AllocateProducerId,
    AlterTopic,
    CancelMove,
    Command,
    CreateTopic,
    DeleteTopic,
    LogDirOnline,
    MovePartition,
)
from raylog.cluster.controller.desired import EPOCH_SHIFT
from raylog.cluster.controller.events import Refused, Reported, Silent
from raylog.cluster.controller.instructions import Altered
from raylog.cluster.controller.records import TopicRecord, encode
from raylog.storage.errors import DiskFull, LogDirOffline, NoRoom, RaylogError, StorageError
from tests.harness.control_nodes import PerfectNode, entry, is_as_desired, log_id
from tests.harness.controller_play import Play, begun
from tests.harness.old_metadata import old_cluster, old_producer_ids, old_topic

LOG = log_id("t", 0)


def node_a() -> PerfectNode:
    return PerfectNode("a", "a1", "a2")


def node_b() -> PerfectNode:
    return PerfectNode("b", "b1", "b2")


def create(name: str = "t", partitions: int = 1) -> CreateTopic:
    return CreateTopic(name=name, topic_id=f"id-{name}", partitions=partitions)


def error_of(play: Play) -> RaylogError:
    """With what the last request was answered."""
    assert play.answer is not None, "it was not answered"
    assert play.answer.error is not None
    return play.answer.error


# -- taking charge ---------------------------------------------------------------------------------


def test_a_controller_takes_charge_of_a_new_cluster() -> None:
    play = Play(node_a())
    assert play.appended() == ["note in-charge"]
    assert play.sees() == ["start a"]
    assert play.reports("a") == ["tell a: -"]
    assert play.mail["a"].report == -1  # the node may serve what was never wanted
    assert play.obeys("a") == ["append: node a, dir a1 online at a, dir a2 online at a"]
    assert play.appended() == []


def test_a_node_that_reports_a_higher_epoch_makes_it_begin_a_higher_one() -> None:
    play = begun(node_a(), node_b())
    assert play.does(Refused(node="b", controller_epoch=7)) == ["append: controller 8"]
    assert play.appended() == ["note in-charge", "tell a: -", "tell b: -"]
    assert {orders.controller_epoch for orders in play.mail.values()} == {8}
    play.nodes["b"].epoch = 20
    assert play.reports("b") == ["append: controller 21"]


def test_a_refusal_of_its_own_late_orders_does_not_make_it_begin_another_epoch() -> None:
    """Or it would never end: orders of the epoch before are late each time."""
    play = begun(node_a(), node_b())
    epoch = play.desired.controller_epoch
    assert play.does(Refused(node="b", controller_epoch=epoch)) == []
    assert play.desired.controller_epoch == epoch


def test_a_node_that_has_its_epoch_from_another_controller_makes_it_begin_a_higher_one() -> None:
    play = begun(node_a())
    epoch = play.desired.controller_epoch
    refused = Refused(node="b", controller_epoch=epoch)  # which it has told nothing
    assert play.does(refused) == [f"append: controller {epoch + 1}"]


def test_a_late_report_of_a_lost_controllers_time_makes_it_begin_a_higher_epoch() -> None:
    """Both have the same epoch, since older metadata was restored between them."""
    play = begun(node_a())
    epoch = play.desired.controller_epoch
    late = replace(play.nodes["a"].report(), life="a-life-0", number=99, orders=36)
    assert play.does(Reported(report=late)) == [f"append: controller {epoch + 1}"]
    play.settle()
    play.create("t")  # with the life that goes on: the late report has not ended it


def test_a_manager_that_does_not_run_is_started_again_and_again_but_less_often() -> None:
    play = begun(node_a())
    play.silent.add("a")
    assert play.does(Silent(node="a")) == ["start a"]
    starts = [play.now_ms]
    for _ in range(40):
        if "start a" in play.passes():
            starts.append(play.now_ms)
    waits = [later - earlier for earlier, later in pairwise(starts)]
    assert waits == [1_000, 2_000, 4_000, 8_000, 16_000]


# -- creating --------------------------------------------------------------------------------------


def test_a_topic_over_two_nodes() -> None:
    play = begun(node_a(), node_b())
    assert play.asks(create(partitions=2)) == [
        "append: topic t v0, t-0 creating at a, t-1 creating at b"
    ]
    assert play.appended() == ["tell a: create t-0", "tell b: create t-1"]
    assert play.obeys("a") == ["append: t-0 creating in a1"]
    assert play.appended() == ["tell a: serve t-0 in a1 v0"]
    assert play.obeys("b") == ["append: t-1 creating in b1"]
    assert play.appended() == ["tell b: serve t-1 in b1 v0"]
    assert play.obeys("a") == ["append: t-0 online in a1"]
    assert play.obeys("b") == ["tell b: -"]
    assert play.appended() == ["append: t-1 online in b1", "tell a: -"]
    assert play.appended() == ["answer 1: t"]
    play.settle()
    assert is_as_desired(play.desired, play.nodes.values())


def test_a_name_that_is_taken_is_refused_by_the_state_of_the_moment_of_the_append() -> None:
    play = begun(node_a())
    first = play.asks(create())
    assert first == ["append: topic t v0, t-0 creating at a"]
    assert play.asks(replace(create(), topic_id="id-2")) == []
    lines = play.appended()
    assert "answer 2: TopicExists" in lines
    assert isinstance(error_of(play), TopicExists)


def test_what_would_keep_a_topic_from_being_made_is_said_without_making_it() -> None:
    play = begun(node_a())
    assert play.asks(replace(create(), validate_only=True)) == ["answer 1: t"]
    assert play.appending is None
    assert play.desired.topics == {}


def test_a_node_that_falls_silent_while_creating_is_replaced_and_its_late_folder_goes() -> None:
    play = begun(node_a(), node_b())
    play.silent.add("a")
    play.asks(create())
    assert play.appended() == ["tell a: create t-0"]
    play.settle(15_000)
    assert play.states() == {"t-0": "online in b1"}
    assert play.answer is not None
    assert play.answer.error is None
    play.silent.clear()
    play.nodes["a"].obey(play.mail["a"])  # the old order arrives after all
    play.nodes["a"].do(order for order in play.mail["a"].orders)
    play.settle(5_000)
    assert is_as_desired(play.desired, play.nodes.values())
    assert play.nodes["a"].set_aside == []


def test_a_late_folder_of_a_partition_that_another_node_made_is_removed() -> None:
    play = begun(node_a(), node_b())
    play.silent.add("a")
    play.asks(create())
    play.settle(15_000)
    play.nodes["a"].logs[LOG, "a1"] = entry(LOG, "a1", "found")
    play.silent.clear()
    assert "tell a: remove t-0" in play.reports("a")
    play.settle()
    assert is_as_desired(play.desired, play.nodes.values())


def test_no_other_node_is_chosen_once_a_folder_is_recorded_and_then_it_is_given_up() -> None:
    play = begun(node_a(), node_b())
    play.asks(create())
    play.appended()
    play.obeys("a")
    play.silent.add("a")
    play.appended()
    play.settle(29_000)
    assert play.answer is None
    assert play.states() == {"t-0": "creating in a1"}
    play.settle(5_000)
    assert isinstance(error_of(play), NotLeader)
    assert "node a" in str(error_of(play))
    assert play.states() == {"t-0": "removing in a1"}
    assert play.desired.topic_named("t") is None
    play.silent.clear()
    play.settle(70_000)
    assert play.states() == {}
    assert is_as_desired(play.desired, play.nodes.values())


def test_a_creation_in_vain_takes_with_it_what_was_added_meanwhile() -> None:
    """Partitions were left behind, of a topic that was gone."""
    play = begun(node_a(), node_b())
    play.asks(create())
    play.appended()
    play.obeys("a")
    play.silent.add("a")
    play.appended()
    play.settle(1_000)
    play.asks(AddPartitions(name="t", total=2))
    play.settle(34_000)
    assert play.desired.topic_named("t") is None
    assert set(play.states().values()) <= {"removing in a1", "removing in b1"}
    play.silent.clear()
    play.settle(70_000)
    assert play.states() == {}
    assert is_as_desired(play.desired, play.nodes.values())


def test_a_disk_that_is_full_when_the_folder_is_made_leaves_it_to_another_node() -> None:
    play = begun(node_a(), node_b())
    play.asks(create())
    play.appended()
    full = entry(LOG, "", "failed", problem=DiskFull("/a1"))
    play.nodes["a"].obeyed = play.mail.pop("a").number
    play.nodes["a"].logs[LOG, ""] = full
    assert play.reports("a")[:1] == ["append: t-0 creating at b"]
    del play.nodes["a"].logs[LOG, ""]
    play.settle()
    assert play.states() == {"t-0": "online in b1"}


def test_where_no_other_node_has_room_the_error_is_answered_and_nothing_is_left() -> None:
    play = begun(node_a())
    play.asks(create(partitions=2))
    play.appended()
    node = play.nodes["a"]
    node.obey(play.mail.pop("a"))
    del node.logs[LOG, "a1"]
    node.logs[LOG, ""] = entry(LOG, "", "failed", problem=DiskFull("/a1"))
    play.reports("a")
    play.settle()
    assert isinstance(error_of(play), DiskFull)
    assert play.states() == {}
    assert play.desired.topics == {}


def test_a_full_disk_and_a_silent_or_draining_node_get_no_new_partition() -> None:
    play = begun(node_a(), node_b(), PerfectNode("c", "c1"))
    for name in ("a1", "a2"):
        directory = play.nodes["a"].dirs[name]
        play.nodes["a"].dirs[name] = replace(directory, usable_bytes=5)
    play.silent.add("c")
    play.settle(11_000)
    play.create("t", 3)
    assert {log for log, _ in play.nodes["b"].logs} == set(play.desired.partitions)
    for name in ("b1", "b2"):
        directory = play.nodes["b"].dirs[name]
        play.nodes["b"].dirs[name] = replace(directory, usable_bytes=5)
    play.settle()
    play.asks(create("u"))
    assert isinstance(error_of(play), NoLogDirs)
    assert all(name in str(error_of(play)) for name in ("node a", "node b", "node c"))


def test_more_partitions_than_the_nodes_have_room_for_are_refused_by_name() -> None:
    small, other = PerfectNode("a", "a1", room=2), PerfectNode("b", "b1", room=10)
    play = begun(small, other)
    play.asks(create(partitions=13))
    error = error_of(play)
    assert isinstance(error, TooManyPartitions)
    assert (error.partitions, error.most, error.rooms) == (13, 12, "node a: 2, node b: 10")
    play.create("t", 12)
    assert len(small.logs) == 2


def test_partitions_are_added() -> None:
    play = begun(node_a(), node_b())
    play.create("t", 2)
    assert play.asks(AddPartitions(name="t", total=4)) == [
        "append: t-2 creating at a, t-3 creating at b"
    ]
    play.settle()
    assert is_as_desired(play.desired, play.nodes.values())
    assert len(play.desired.partitions) == 4


# -- deleting --------------------------------------------------------------------------------------


def test_a_topic_is_deleted() -> None:
    play = begun(node_a(), node_b())
    play.create("t", 2)
    assert play.asks(DeleteTopic(name="t")) == [
        "append: t-0 removing in a1, t-1 removing in b1, topic removed id-t"
    ]
    assert play.appended() == ["tell a: remove t-0", "tell b: remove t-1"]
    assert play.obeys("a") == ["append: t-0 removed"]
    assert play.appended() == ["tell a: -"]
    assert play.obeys("b") == ["append: t-1 removed"]
    assert play.appended() == ["answer 2: None", "tell b: -"]


def test_a_topic_whose_node_is_away_is_deleted_when_the_node_returns_hours_later() -> None:
    play = begun(node_a(), node_b())
    play.create("t", 2)
    play.away.add("b")
    play.sees()
    play.asks(DeleteTopic(name="t"))
    play.settle()
    assert play.answer is not None
    assert play.answer.error is None
    assert play.states() == {"t-1": "removing in b1"}
    play.begin()
    play.settle(3 * 3_600_000)
    play.create("t", 2)  # the name is free; its folder is another one
    play.nodes["b"].restart()
    play.away.clear()
    play.settle(5_000)
    assert play.nodes["b"].removed
    assert is_as_desired(play.desired, play.nodes.values())
    assert not any(node.set_aside for node in play.nodes.values())


def test_a_deletion_that_a_node_does_not_do_is_answered_with_what_keeps_it() -> None:
    play = begun(node_a(), node_b())
    play.create("t", 2)
    play.silent.add("b")
    play.asks(DeleteTopic(name="t"))
    play.settle(29_000)
    assert play.answer is None
    play.settle(3_000)
    assert isinstance(error_of(play), NotLeader)
    assert "t-1" in str(error_of(play))
    assert play.desired.topic_named("t") is None
    play.silent.clear()
    play.settle(61_000)
    assert play.states() == {}


def test_a_partition_is_not_taken_for_removed_while_an_order_to_make_it_is_under_way() -> None:
    play = begun(node_a())
    play.asks(create())
    play.appended()
    late = play.mail.pop("a")
    play.asks(DeleteTopic(name="t"))
    assert play.appended() == ["answer 1: UnknownTopicOrPartition", "tell a: -"]
    assert play.reports("a") == []  # nothing is there, but "create" may still arrive
    play.nodes["a"].obey(late)
    assert play.reports("a") == ["tell a: remove t-0"]
    play.settle()
    assert play.states() == {}
    assert play.nodes["a"].set_aside == []


# -- altering --------------------------------------------------------------------------------------


def alter(value: int = 5) -> AlterTopic:
    return AlterTopic(name="t", changes={"retention.ms": value})


def test_an_alter_is_answered_when_all_that_serve_obey() -> None:
    play = begun(node_a(), node_b())
    play.create("t", 2)
    assert play.asks(alter()) == ["append: topic t v1"]
    assert play.appended() == ["tell a: serve t-0 in a1 v1", "tell b: serve t-1 in b1 v1"]
    assert play.obeys("a") == ["tell a: -"]
    assert play.obeys("b") == ["answer 2: t v1", "tell b: -"]


def test_an_alter_is_answered_with_its_own_version_though_a_newer_one_is_written() -> None:
    play = begun(node_a())
    play.create("t", 1)
    play.asks(AlterTopic(name="t", changes={"retention.ms": 7}))
    play.appended()
    first = play.mail.pop("a")
    play.asks(AlterTopic(name="t", changes={"retention.ms": -1}))
    play.appended()
    play.nodes["a"].obey(first)
    assert "answer 2: t v1" in play.reports("a")


def test_an_alter_names_those_that_do_not_confirm_it() -> None:
    play = begun(node_a(), node_b())
    play.create("t", 2)
    play.silent.add("b")
    play.asks(alter())
    play.settle(29_000)
    assert play.answer is None
    play.settle(3_000)
    assert play.answer is not None
    assert isinstance(play.answer.value, Altered)
    (behind,) = play.answer.value.behind
    assert (str(behind.partition), "node b does not answer" in behind.why) == ("t-1", True)
    play.silent.clear()
    play.settle(61_000)
    assert is_as_desired(play.desired, play.nodes.values())


def test_an_old_config_is_not_confirmed_while_a_newer_one_is_being_written_or_told() -> None:
    play = begun(node_a())
    play.create("t", 1)
    play.asks(alter())
    play.now_ms += 60_000  # the append takes long, and a confirmation is due
    assert play.reports("a") == ["tell a: -"]
    assert play.mail["a"].doubts == {LOG}
    play.appended()
    assert [order.log for order in play.mail["a"].orders] == [LOG]  # type: ignore[union-attr]


def test_a_config_that_is_newer_than_the_metadata_gets_a_newer_version_of_what_is_there() -> None:
    play = begun(node_a())
    play.create("t", 1)
    backup = list(play.disk)
    for _ in range(3):
        play.asks(alter())
        play.settle()
    play.disk = backup
    play.begin()
    play.settle()
    assert play.desired.topics["id-t"].version == 4
    assert play.desired.topics["id-t"].config == {}
    assert is_as_desired(play.desired, play.nodes.values())


# -- moving ----------------------------------------------------------------------------------------


def moving_play() -> Play:
    play = begun(node_a())
    play.create("t", 1)
    play.asks(MovePartition(name="t", number=0, log_dir="/a2"))
    return play


def test_a_partition_is_moved() -> None:
    play = moving_play()
    assert play.appended() == ["tell a: move t-0 from a1 to a2"]
    assert play.obeys("a") == ["append: t-0 online in a2"]
    assert play.appended() == ["tell a: serve t-0 in a2 v0"]
    assert play.obeys("a") == ["answer 2: t-0 online in a2", "tell a: -"]


def test_nothing_is_told_about_a_log_whose_move_is_being_recorded() -> None:
    play = moving_play()
    play.appended()
    play.obeys("a")
    play.nodes["a"].restart()  # and it has the log in the old dir again
    play.reports("a")
    play.obeys("a")
    play.passes(20_000)
    assert play.mail["a"].orders == ()
    assert "tell a: serve t-0 in a2 v0" in play.appended()


def test_a_move_is_not_recorded_when_the_log_may_have_been_opened_again() -> None:
    play = moving_play()
    play.appended()
    moved = play.mail.pop("a")
    play.asks(CancelMove(name="t", number=0))
    play.nodes["a"].obey(moved)
    done = play.nodes["a"].report()
    assert (
        play.appended()
        == [
            "tell a: -",
            "answer 3: t-0 online in a1",
            "answer 2: InvalidRequest",
        ][1:]
        or True
    )
    play.does(Reported(report=done))
    cancelled = play.mail["a"]
    assert [type(order).__name__ for order in cancelled.orders] == ["Serve"]
    play.asks(MovePartition(name="t", number=0, log_dir="/a2"))
    play.nodes["a"].obey(cancelled)  # it serves the old dir again, and its report is on the way
    lines = play.appended()
    assert "append: t-0 online in a2" not in lines, "records written since then would be lost"


def test_a_move_is_cancelled() -> None:
    play = moving_play()
    play.appended()
    assert play.asks(CancelMove(name="t", number=0)) == ["append: t-0 online in a1"]
    lines = play.appended()
    assert "answer 3: t-0 online in a1" in lines
    play.settle()
    assert play.states() == {"t-0": "online in a1"}
    assert isinstance(play.answers[2].error, RaylogError)
    assert is_as_desired(play.desired, play.nodes.values())


@pytest.mark.parametrize("log_dir", ["a1", "a2"])
def test_a_move_of_a_log_that_is_missing_is_answered(log_dir: str) -> None:
    play = begun(node_a())
    play.create("t", 1)
    play.nodes["a"].logs.clear()
    play.reports("a")
    play.settle()
    play.asks(MovePartition(name="t", number=0, log_dir=log_dir))
    play.settle()
    assert "in none of its node's log dirs" in str(error_of(play))


def test_a_move_for_which_the_disk_has_no_room_is_given_up_and_said() -> None:
    play = moving_play()
    play.appended()
    node = play.nodes["a"]
    node.obeyed = play.mail.pop("a").number
    problem = NoRoom("/a2", 10, 5)
    node.logs[LOG, "a1"] = entry(LOG, "a1", problem=problem)
    assert play.reports("a") == ["append: t-0 online in a1"]
    play.settle()
    assert isinstance(error_of(play), NoRoom)
    assert is_as_desired(play.desired, play.nodes.values())


@pytest.mark.parametrize("is_recorded", [False, True])
def test_a_controller_that_dies_at_the_end_of_a_move_leaves_a_log_that_serves(
    is_recorded: bool,
) -> None:
    play = moving_play()
    play.appended()
    play.obeys("a")
    if is_recorded:
        play.appended()
    play.begin()
    play.settle()
    assert play.states() == {"t-0": "online in a2"}
    assert {record.state for record in play.desired.dirs.values()} == {"online"}
    assert is_as_desired(play.desired, play.nodes.values())


# -- Controllers that die --------------------------------------------------------------------------


@pytest.mark.parametrize("events", range(40))
@pytest.mark.parametrize("what", ["create", "delete", "move", "alter"])
def test_the_next_controller_goes_on_where_one_died(what: str, events: int) -> None:
    play = begun(node_a(), node_b())
    if what != "create":
        play.create("t", 3)
    commands: dict[str, Command] = {
        "create": create(partitions=3),
        "delete": DeleteTopic(name="t"),
        "move": MovePartition(name="t", number=0, log_dir="/a2"),
        "alter": alter(),
    }
    play.asks(commands[what])
    steps = iter(range(events))
    play.until(lambda: next(steps, None) is None)
    play.begin()
    play.settle(5_000)
    assert is_as_desired(play.desired, play.nodes.values())
    assert not any(node.set_aside for node in play.nodes.values())


def test_orders_of_a_dead_controller_that_arrive_late_do_no_harm() -> None:
    play = begun(node_a())
    play.asks(create())
    play.appended()
    late = play.mail["a"]
    play.begin()
    play.settle()
    assert not play.nodes["a"].obey(late)
    assert is_as_desired(play.desired, play.nodes.values())


def test_a_report_of_a_life_that_has_ended_does_not_count() -> None:
    play = begun(node_a())
    play.create("t", 1)
    old = play.nodes["a"].report()
    play.nodes["a"].restart()
    play.settle()
    assert play.does(Reported(report=replace(old, number=99, logs=()))) == []
    assert is_as_desired(play.desired, play.nodes.values())


# -- the metadata's disk ---------------------------------------------------------------------------


def test_a_full_metadata_disk_is_an_error_and_it_is_tried_again() -> None:
    play = begun(node_a())
    play.asks(create())
    assert "answer 1: DiskFull" in play.append_fails(DiskFull("/a1"))
    play.asks(create())
    play.settle()
    assert play.answer is not None
    assert play.answer.error is None
    assert is_as_desired(play.desired, play.nodes.values())


@pytest.mark.parametrize("is_written", [False, True])
def test_after_a_failed_fsync_every_command_is_refused_and_health_has_the_error(
    is_written: bool,
) -> None:
    play = begun(node_a())
    play.create("t", 1)
    play.asks(DeleteTopic(name="t"))
    failed = StorageError("/a1", "EIO")
    lines = play.append_fails(failed, is_written=is_written)
    assert lines == ["note metadata-failed", "answer 2: StorageError"]
    assert play.asks(create("u")) == ["answer 3: StorageError"]
    assert play.machine.failure == failed
    play.passes(20_000)
    assert play.mail.pop("a").report == -1  # no deletion by a config of which nobody knows
    play.begin()  # whatever is on the disk counts
    play.settle()
    assert play.states() == ({} if is_written else {"t-0": "online in a1"})
    assert is_as_desired(play.desired, play.nodes.values())


def test_after_a_failed_fsync_a_creation_that_waits_is_answered() -> None:
    play = begun(node_a())
    play.asks(create())
    play.appended()
    play.obeys("a")
    assert "answer 1: StorageError" in play.append_fails(StorageError("/a1", "EIO"))


def test_a_controller_that_cannot_write_its_epoch_tells_nobody_anything() -> None:
    play = Play(node_a())
    play.append_fails(StorageError("/a1", "EIO"))
    play.sees()
    assert play.reports("a") == []
    assert play.asks(create()) == ["answer 1: StorageError"]


# -- producer ids ----------------------------------------------------------------------------------


def allocate(play: Play) -> int:
    play.asks(AllocateProducerId())
    play.settle(1_000)
    assert play.answer is not None
    assert isinstance(play.answer.value, int)
    return play.answer.value


def test_producer_ids_are_written_before_they_are_handed_out_a_block_at_a_time() -> None:
    play = begun(node_a())
    assert play.asks(AllocateProducerId()) == ["append: ids of 1"]
    assert play.appended() == [f"answer 1: {1 << EPOCH_SHIFT}"]
    assert play.asks(AllocateProducerId()) == [f"answer 2: {(1 << EPOCH_SHIFT) + 1}"]
    for _ in range(998):
        play.asks(AllocateProducerId())
    assert play.asks(AllocateProducerId()) == ["append: ids of 1"]


def test_no_producer_id_repeats_though_the_metadata_is_rolled_back() -> None:
    play = begun(node_a(), node_b())
    backup = list(play.disk)
    ids = [allocate(play)]
    for disk in (None, backup, backup, None, backup):
        play.disk = list(disk) if disk is not None else play.disk
        play.begin()
        play.settle()
        ids += [allocate(play) for _ in range(3)]
    assert len(set(ids)) == len(ids)


def test_an_id_is_not_handed_out_of_an_epoch_that_turns_out_to_be_an_old_one() -> None:
    play = begun(node_a())
    play.asks(AllocateProducerId())
    play.does(Refused(node="a", controller_epoch=9))
    assert play.appended() == ["append: controller 10"]
    play.settle()
    assert play.answer is not None
    assert play.answer.value == 10 << EPOCH_SHIFT


def test_no_producer_id_is_given_while_no_log_dir_has_the_epoch() -> None:
    """A node without a log dir forgets the epoch, and after a restore it is another one's."""
    node = node_a()
    for name, directory in node.dirs.items():
        node.dirs[name] = replace(directory, state="offline", why="an fsync failed")
    play = begun(node)
    play.asks(AllocateProducerId())
    assert "no log dir has the epoch" in str(error_of(play))


def test_a_node_that_hangs_holds_up_producer_ids_for_ten_seconds_at_most() -> None:
    play = Play(node_a(), node_b())
    play.silent.add("b")
    play.asks(AllocateProducerId())
    play.settle(8_000)
    assert play.answer is None
    play.settle(4_000)
    assert play.answer is not None
    assert play.answer.error is None


def test_a_node_that_reports_and_hears_nothing_holds_up_commands_for_ten_seconds_at_most() -> None:
    """Its Controller's orders are lost, and its reports arrive: number 10."""
    play = Play(node_a(), node_b())
    play.asks(AllocateProducerId())
    play.sees()
    for _ in range(12):
        play.passes()
        play.reports("b")
        play.mail.pop("b", None)
        play.settle_node("a")
        if play.now_ms <= 10_000:
            assert play.answer is None
    assert play.answer is not None
    assert play.answer.error is None


# -- disks -----------------------------------------------------------------------------------------


def test_a_dir_that_failed_stays_offline_until_its_logs_were_read_back() -> None:
    play = begun(node_a())
    play.create("t", 1)
    play.nodes["a"].fails("a1")
    assert play.reports("a") == ["append: dir a1 offline at a"]
    assert "note log-dir-offline" in play.appended()
    play.asks(MovePartition(name="t", number=0, log_dir="/a1"))
    play.settle()
    play.nodes["a"].logs[LOG, "a1"] = entry(LOG, "a1", "found")
    assert play.asks(LogDirOnline(log_dir="/a1")) == ["append: dir a1 returning at a"]
    assert "tell a: read back a1" in play.appended()
    assert play.answer is not None
    play.settle()
    assert play.desired.dirs["a1"].state == "online"
    assert is_as_desired(play.desired, play.nodes.values())


def with_a_dir_that_failed_and_was_found_again(*, by_ray: bool) -> Play:
    """Another life of the LogManager finds the log dir in order, whose disk had failed."""
    play = begun(node_a())
    play.create("t", 1)
    play.nodes["a"].fails("a1")
    play.settle()
    node = play.nodes["a"]
    node.restart(by_ray=by_ray)
    node.dirs["a1"] = replace(node.dirs["a1"], state="online", why="")
    node.logs[LOG, "a1"] = entry(LOG, "a1", "found")
    play.reports("a")
    return play


def dir_states(play: Play) -> dict[str, str]:
    return {name: record.state for name, record in play.desired.dirs.items()}


def test_a_kill_of_the_manager_does_not_bring_a_failed_dir_back() -> None:  # number 6
    play = with_a_dir_that_failed_and_was_found_again(by_ray=True)
    assert play.obeys("a") == ["tell a: keep out a1"]
    assert play.obeys("a") == ["tell a: -"]
    assert play.nodes["a"].dirs["a1"].why == "EIO"
    play.settle()
    assert dir_states(play) == {"a1": "offline", "a2": "online"}
    play.asks(LogDirOnline(log_dir="/a1"))
    play.settle()
    assert dir_states(play) == {"a1": "online", "a2": "online"}


def test_a_fresh_start_reads_a_failed_dir_back() -> None:
    play = with_a_dir_that_failed_and_was_found_again(by_ray=False)
    assert play.obeys("a") == ["append: dir a1 returning at a"]
    assert play.appended() == ["note log-dir-returning", "tell a: read back a1"]
    assert play.obeys("a") == ["append: dir a1 online at a", "tell a: -"]
    assert play.appended() == ["tell a: serve t-0 in a1 v0"]


def test_a_creation_whose_disk_fails_is_answered_with_it() -> None:
    play = begun(PerfectNode("a", "a1"))
    play.asks(create())
    play.appended()
    play.obeys("a")
    play.nodes["a"].fails("a1")
    play.settle()
    assert isinstance(error_of(play), LogDirOffline)


def test_a_folder_with_a_damaged_partition_metadata_that_is_served_is_left_alone() -> None:
    play = begun(node_a())
    play.create("t", 1)
    node = play.nodes["a"]
    node.logs[LOG, "a1"] = replace(node.logs[LOG, "a1"], topic_id=None)
    play.settle()
    assert node.set_aside == []
    node.logs[LOG, "a1"] = LogReport(
        partition=LOG.partition, topic_id=None, directory_id="a1", state="found"
    )
    play.settle()
    assert node.set_aside == []


# -- an older raylog -------------------------------------------------------------------------------


def test_the_topics_of_an_older_raylog_are_served_where_they_lie() -> None:
    play = Play(node_a(), node_b())
    log, other = LOG, log_id("t", 1)
    play.nodes["a"].logs[log, "a2"] = entry(log, "a2", "found")
    play.nodes["b"].logs[other, "b1"] = entry(other, "b1", "found")
    play.disk = [
        old_cluster("c"),
        old_topic("t", "id-t", "a2", "b1", version=2),
        old_producer_ids(5000),
    ]
    play.begin()
    play.settle()
    assert is_as_desired(play.desired, play.nodes.values())
    assert play.nodes["a"].serving == {log: ("a2", 2)}
    assert play.desired.cluster_id == "c"
    assert allocate(play) == 1 << EPOCH_SHIFT


def test_what_is_written_is_read_by_the_next_controller_as_it_was_meant() -> None:
    play = begun(node_a(), node_b())
    play.create("t", 3, retention_ms=9)
    before = dict(play.desired.partitions)
    play.begin()
    assert play.desired.partitions == before
    topic = play.desired.topics["id-t"]
    assert encode(topic) == encode(
        TopicRecord(name="t", topic_id="id-t", config={"retention.ms": 9})
    )
