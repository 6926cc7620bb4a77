"""The Controller, told as transcripts: what happens, and what it wants done then.

The lines are explained in ``tests/harness/controller_play.py``.
"""

from dataclasses import replace
from itertools import pairwise

import pytest

from raylog.cluster.controller.commands import (
    AllocateProducerId,
    Command,
    DeleteTopic,
    MovePartition,
)
from raylog.cluster.controller.desired import EPOCH_SHIFT
from raylog.cluster.controller.events import Refused, Reported, Silent
from raylog.cluster.controller.records import TopicRecord, encode
from tests.harness.control_nodes import entry, is_as_desired, log_id, version_of
from tests.harness.controller_play import Play, begun
from tests.harness.old_metadata import old_cluster, old_producer_ids, old_topic
from tests.transcripts.controllers import (
    LOG,
    alter,
    create,
    error_of,
    node_a,
    node_b,
)

# -- taking charge ---------------------------------------------------------------------------------


def test_a_controller_takes_charge_of_a_new_cluster() -> None:
    play = Play(node_a())
    assert play.sees() == ["start a"]
    assert play.reports("a") == ["append: controller 1"]
    assert play.appended() == ["note in-charge", "make the reserve", "tell a: -"]
    assert play.mail["a"].report == -1  # the node may serve what was never wanted
    assert play.obeys("a") == ["append: node a, dir a1 online at a, dir a2 online at a"]
    assert play.appended() == []


def test_a_controller_begins_when_each_node_has_reported_or_is_silent_for_a_while() -> None:
    play = Play(node_a(), node_b())
    assert sorted(play.sees()) == ["start a", "start b"]
    assert play.reports("a") == []
    assert "append: controller 1" not in play.passes(9_000)
    assert "append: controller 1" in play.passes(2_000)


def test_a_controller_does_not_wait_for_a_node_that_cannot_use_its_log_dirs() -> None:
    play = Play(node_a(), node_b())
    play.sees()
    play.reports("a")
    assert play.does(Silent(node="b")) == []  # it may only be starting
    assert play.does(Silent(node="b", is_refused=True)) == ["append: controller 1"]


def test_older_metadata_that_is_accepted_makes_it_begin_a_new_era() -> None:
    play = begun(node_a(), node_b(), accepts_older=True)
    assert play.does(Refused(node="b", controller_epoch=7)) == ["append: controller 10000"]
    assert play.appended() == ["note in-charge", "tell a: -", "tell b: -"]
    assert {orders.controller_epoch for orders in play.mail.values()} == {10_000}
    play.nodes["b"].epoch = 10_020
    assert play.reports("b") == ["append: controller 20000"]


def test_a_refusal_of_its_own_late_orders_does_not_make_it_begin_another_epoch() -> None:
    """Or it would never end: orders of the epoch before are late each time."""
    play = begun(node_a(), node_b())
    epoch = play.desired.controller_epoch
    assert play.does(Refused(node="b", controller_epoch=epoch)) == []
    assert play.desired.controller_epoch == epoch


def test_a_node_that_has_its_epoch_from_another_controller_makes_it_begin_a_new_era() -> None:
    play = begun(node_a(), accepts_older=True)
    epoch = play.desired.controller_epoch
    refused = Refused(node="b", controller_epoch=epoch)  # which it has told nothing
    assert play.does(refused) == ["append: controller 10000"]


def test_a_late_report_of_a_lost_controllers_time_makes_it_begin_a_new_era() -> None:
    """Both have the same epoch, since older metadata was restored between them."""
    play = begun(node_a(), accepts_older=True)
    late = replace(play.nodes["a"].report(), life="a-life-0", number=99, orders=36)
    assert play.does(Reported(report=late)) == ["append: controller 10000"]
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
        play.begin(accepts_older=disk is not None)
        play.settle()
        ids += [allocate(play) for _ in range(3)]
    assert len(set(ids)) == len(ids)


def test_an_id_is_not_handed_out_of_an_epoch_that_turns_out_to_be_an_old_one() -> None:
    play = begun(node_a(), accepts_older=True)
    play.asks(AllocateProducerId())
    play.does(Refused(node="a", controller_epoch=9))
    assert play.appended() == ["append: controller 10000"]
    play.settle()
    assert play.answer is not None
    assert play.answer.value == 10_000 << EPOCH_SHIFT


def test_no_producer_id_is_given_by_an_epoch_that_only_hanging_disks_shall_have() -> None:
    node = node_a()
    for name, directory in node.dirs.items():
        node.dirs[name] = replace(directory, why="it has not taken the epoch")
    play = begun(node)
    play.asks(AllocateProducerId())
    assert "no log dir has the epoch" in str(error_of(play))


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
        TopicRecord(
            name="t", topic_id="id-t", config={"retention.ms": 9}, version=version_of(epoch=1)
        )
    )
