"""The Controller's machine: topics are created, deleted, altered, and their partitions moved."""

from dataclasses import replace

import pytest

from raylog.actors.control import Serve
from raylog.actors.errors import (
    NoLogDirs,
    NotLeader,
    TooManyPartitions,
    TopicBusy,
    TopicExists,
    UnknownTopicOrPartition,
)
from raylog.cluster.controller.commands import (
    AddPartitions,
    AlterTopic,
    CancelMove,
    CreateTopic,
    DeleteTopic,
    MovePartition,
)
from raylog.cluster.controller.events import Reported
from raylog.cluster.controller.instructions import Altered
from raylog.storage.errors import (
    DiskFull,
    InvalidPartitions,
    NoRoom,
    RaylogError,
)
from tests.harness.control_nodes import PerfectNode, entry, is_as_desired, version_of
from tests.harness.controller_play import Play, begun
from tests.transcripts.controllers import (
    LOG,
    alter,
    answer_of,
    create,
    error_of,
    node_a,
    node_b,
)

# -- creating --------------------------------------------------------------------------------------


def test_a_topic_over_two_nodes() -> None:
    play = begun(node_a(), node_b())
    assert play.asks(create(partitions=2)) == [
        "append: topic t v1.0, t-0 creating at a, t-1 creating at b"
    ]
    assert play.appended() == ["tell a: create t-0", "tell b: create t-1"]
    assert play.obeys("a") == ["append: t-0 creating in a1"]
    assert play.appended() == ["tell a: serve t-0 in a1 v1.0"]
    assert play.obeys("b") == ["append: t-1 creating in b1"]
    assert play.appended() == ["tell b: serve t-1 in b1 v1.0"]
    assert play.obeys("a") == ["append: t-0 online in a1"]
    assert play.obeys("b") == ["tell b: -"]
    assert play.appended() == ["append: t-1 online in b1", "tell a: -"]
    assert play.appended() == ["answer 1: t"]
    play.settle()
    assert is_as_desired(play.desired, play.nodes.values())


def test_a_name_that_is_taken_is_refused_by_the_state_of_the_moment_of_the_append() -> None:
    play = begun(node_a())
    first = play.asks(create())
    assert first == ["append: topic t v1.0, t-0 creating at a"]
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


def test_what_a_machine_was_to_make_that_has_another_key_since_is_removed() -> None:
    play = begun(node_a(), node_b())
    play.silent.add("b")
    play.asks(create(partitions=2))
    play.until(lambda: "creating at b" in play.states().values())
    play.away.add("b")
    play.asks(DeleteTopic(name="t"))
    play.settle()
    assert play.states() == {"t-1": "removing at b"}
    new = play.nodes["c"] = PerfectNode("c", "b1", "b2")
    new.epoch = play.desired.controller_epoch
    play.settle()
    assert play.states() == {}


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


def test_a_full_disk_is_no_answer_while_the_other_nodes_are_silent_only_for_a_while() -> None:
    play = begun(node_a(), node_b())
    play.asks(create())
    play.appended()
    play.nodes["a"].obeyed = play.mail.pop("a").number
    play.nodes["a"].logs[LOG, ""] = entry(LOG, "", "failed", problem=DiskFull("/a1"))
    play.silent.add("b")
    for _ in range(15):
        play.passes()
    play.reports("a")
    assert play.answer is None
    play.silent.clear()
    play.reports("b")
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


# -- commands that are repeated, since their answer was lost ---------------------------------------


def test_a_creation_that_is_repeated_after_a_restart_ends_as_the_first_one_would_have() -> None:
    """Its caller would be told TopicExists for his own topic."""
    play = begun(node_a(), node_b())
    play.asks(create(partitions=2))
    play.appended()
    play.begin()
    play.asks(create(partitions=2))
    assert play.answer is None
    play.settle()
    assert play.states() == {"t-0": "online in a1", "t-1": "online in b1"}
    assert answer_of(play) == "t"
    play.asks(create(partitions=2))
    assert answer_of(play) == "t"
    assert len(play.desired.topics) == 1


def test_a_creation_that_is_repeated_and_fails_leaves_nothing() -> None:
    play = begun(node_a())
    play.asks(create())
    play.appended()
    play.begin()
    play.settle(0)
    play.silent.add("a")
    play.mail.clear()
    play.asks(create())
    play.settle(40_000)
    assert isinstance(error_of(play), NotLeader)
    assert play.desired.topics == {}
    play.asks(create())
    assert isinstance(error_of(play), TopicBusy), "what was made is not removed yet"


def test_the_topic_of_somebody_else_exists() -> None:
    play = begun(node_a())
    play.create("t", 1)
    play.asks(CreateTopic(name="t", topic_id="another", partitions=1))
    assert isinstance(error_of(play), TopicExists)


def test_a_deletion_that_is_repeated_ends_when_nothing_is_left() -> None:
    play = begun(node_a())
    play.create("t", 1)
    play.silent.add("a")
    first = DeleteTopic(name="t", topic_id="id-t")
    again = replace(first, is_repeated=True)
    play.asks(first)
    play.appended()
    play.begin()
    play.asks(again)
    assert play.answer is None
    play.silent.clear()
    play.settle(5_000)
    assert play.states() == {}
    assert answer_of(play) == "None"
    play.asks(again)
    assert answer_of(play) == "None"
    play.asks(first)
    assert isinstance(error_of(play), UnknownTopicOrPartition)


def test_a_deletion_never_takes_a_topic_that_was_made_since() -> None:
    play = begun(node_a())
    play.create("t", 1)
    before = DeleteTopic(name="t", topic_id="id-of-before")
    play.asks(before)
    assert isinstance(error_of(play), UnknownTopicOrPartition)
    play.asks(replace(before, is_repeated=True))
    assert answer_of(play) == "None"
    assert play.states() == {"t-0": "online in a1"}


def test_a_creation_that_is_repeated_does_not_make_again_what_was_deleted_since() -> None:
    """The topic rose again, with the same id, after somebody's deletion was answered."""
    play = begun(node_a())
    play.create("t", 1)
    play.asks(DeleteTopic(name="t"))
    play.settle()
    play.begin()
    play.asks(CreateTopic(name="t", topic_id="id-t", partitions=1))
    play.settle()
    error = error_of(play)
    assert isinstance(error, UnknownTopicOrPartition)
    assert "was removed since" in str(error)
    assert play.desired.topics == {}
    assert play.states() == {}


def test_an_extension_never_extends_a_topic_that_was_made_since() -> None:
    play = begun(node_a())
    play.create("t", 1)
    before = AddPartitions(name="t", total=3, topic_id="id-of-before")
    for command in (before, replace(before, is_repeated=True), replace(before, total=1)):
        play.asks(command)
        assert isinstance(error_of(play), UnknownTopicOrPartition)
    assert play.states() == {"t-0": "online in a1"}
    play.asks(replace(before, topic_id="id-t"))
    play.settle()
    assert len(play.states()) == 3


def test_an_extension_that_is_repeated_ends_as_the_first_one_would_have() -> None:
    play = begun(node_a(), node_b())
    play.create("t", 1)
    first = AddPartitions(name="t", total=2)
    again = replace(first, is_repeated=True)
    play.asks(first)
    play.appended()
    play.begin()
    play.asks(again)
    assert play.answer is None
    play.settle()
    assert play.states() == {"t-0": "online in a1", "t-1": "online in b1"}
    assert answer_of(play) == "t"
    play.asks(first)
    assert isinstance(error_of(play), InvalidPartitions)
    play.asks(replace(again, total=3))
    play.settle()
    assert len(play.states()) == 3, "the first one has not taken effect"


def test_a_deletion_that_is_repeated_waits_as_long_as_the_first_one() -> None:
    play = begun(node_a())
    play.create("t", 1)
    first = DeleteTopic(name="t", topic_id="id-t")
    play.asks(first)
    play.appended()
    assert play.asks(replace(first, is_repeated=True)) == []
    assert play.obeys("a") == ["append: t-0 removed"]
    assert {"answer 2: None", "answer 3: None"} <= set(play.appended())


def test_an_extension_that_is_repeated_waits_for_what_is_new_and_takes_nothing_else_away() -> None:
    play = begun(node_a())
    play.create("t", 2)
    play.nodes["a"].fails("a1")
    play.settle()
    before = play.states()
    assert "t-0" in before
    again = AddPartitions(name="t", total=2, is_repeated=True)
    assert play.asks(again) == ["answer 2: t"]
    play.settle()
    assert play.states() == before


def test_a_creation_that_is_repeated_has_no_part_in_an_extension_that_fails() -> None:
    """Somebody extends the topic before its creator asks again: its records must stay."""
    play = begun(node_a())
    play.create("t", 1)
    play.silent.add("a")
    play.asks(AddPartitions(name="t", total=2))
    play.appended()
    assert play.asks(create(partitions=1)) == ["answer 3: t"]
    play.mail.clear()
    play.settle(40_000)
    assert play.states() == {"t-0": "online in a1", "t-1": "removing at a"}


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


def test_an_alter_is_answered_when_all_that_serve_obey() -> None:
    play = begun(node_a(), node_b())
    play.create("t", 2)
    assert play.asks(alter()) == ["append: topic t v1.1"]
    assert play.appended() == ["tell a: serve t-0 in a1 v1.1", "tell b: serve t-1 in b1 v1.1"]
    assert play.obeys("a") == ["tell a: -"]
    assert play.obeys("b") == ["answer 2: t v1.1", "tell b: -"]


def test_an_alter_is_answered_with_its_own_version_though_a_newer_one_is_written() -> None:
    play = begun(node_a())
    play.create("t", 1)
    play.asks(AlterTopic(name="t", changes={"retention.ms": 7}))
    play.appended()
    first = play.mail.pop("a")
    play.asks(AlterTopic(name="t", changes={"retention.ms": -1}))
    play.appended()
    play.nodes["a"].obey(first)
    assert "answer 2: t v1.1" in play.reports("a")


def test_a_config_is_not_altered_while_no_log_dir_has_the_epoch() -> None:
    """After a restore of the metadata its version would be another config's."""
    play = begun(node_a())
    play.create("t", 1)
    play.silent.add("a")
    play.begin()
    play.settle(30_000)
    before = play.desired.topics["id-t"]
    play.asks(alter())
    assert "no log dir has the epoch" in str(error_of(play))
    assert play.desired.topics["id-t"] == before


def test_an_alter_names_those_that_do_not_confirm_it() -> None:
    unlabelled = "b" * 56
    play = begun(node_a(), PerfectNode(unlabelled, "b1", "b2"))
    play.create("t", 2)
    play.silent.add(unlabelled)
    play.asks(alter())
    play.settle(29_000)
    assert play.answer is None
    play.settle(3_000)
    assert play.answer is not None
    assert isinstance(play.answer.value, Altered)
    (behind,) = play.answer.value.behind
    assert (str(behind.partition), "node bbbbbbbb does not answer" in behind.why) == ("t-1", True)
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
    assert play.desired.topics["id-t"].version == version_of(2)
    assert play.desired.topics["id-t"].config == {}
    assert is_as_desired(play.desired, play.nodes.values())


def test_a_config_of_a_lost_history_is_not_confirmed_whatever_its_version() -> None:
    """The metadata is rolled back while a node is away, and then another config is wanted."""
    play = begun(node_a(), node_b())
    play.create("t", 2)
    backup = list(play.disk)
    play.asks(alter(1))
    play.settle()
    play.disk = backup
    play.begin()
    play.silent.add("a")
    play.settle(12_000)
    play.asks(alter(2))
    play.settle(61_000)
    assert play.nodes["a"].serving[LOG] == ("a1", version_of(1, 1))  # with retention.ms=1
    assert play.desired.topics["id-t"].config == {"retention.ms": 2}
    play.reports("a")
    play.obeys("a")
    told = play.mail["a"]
    (order,) = told.orders
    assert isinstance(order, Serve)
    assert (order.log, order.config.retention_ms) == (LOG, 2)
    play.silent.clear()
    play.settle()
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
    assert play.appended() == ["tell a: serve t-0 in a2 v1.0"]
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
    assert "tell a: serve t-0 in a2 v1.0" in play.appended()


def test_a_move_is_not_recorded_when_the_log_may_have_been_opened_again() -> None:
    play = moving_play()
    play.appended()
    moved = play.mail.pop("a")
    play.asks(CancelMove(name="t", number=0))
    play.nodes["a"].obey(moved)
    done = play.nodes["a"].report()
    assert "answer 3: t-0 online in a1" in play.appended()
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


def test_a_move_that_has_ended_ends_in_older_metadata_too() -> None:
    """The log is not in the dir any more from which it was to be moved."""
    play = moving_play()
    play.appended()
    backup = list(play.disk)
    play.settle()
    assert play.states() == {"t-0": "online in a2"}
    play.disk = backup
    play.begin()
    assert play.states() == {"t-0": "moving in a1 to a2"}
    play.settle()
    assert play.states() == {"t-0": "online in a2"}
    assert is_as_desired(play.desired, play.nodes.values())


@pytest.mark.parametrize("is_moving", [False, True])
def test_a_log_stays_where_it_is_served_though_an_old_folder_lies_where_it_was(
    is_moving: bool,
) -> None:
    """Else older metadata would end the actor, and serve what it had before the move."""
    play = moving_play()
    if is_moving:
        play.appended()
    backup = list(play.disk)
    play.settle()
    logs = play.nodes["a"].logs
    logs[LOG, "a2"] = replace(logs[LOG, "a2"], log_end_offset=7)
    logs[LOG, "a1"] = entry(LOG, "a1", state="found")
    play.disk = backup
    play.begin()
    play.until(lambda: play.states() == {"t-0": "online in a2"})
    assert logs[LOG, "a2"].log_end_offset == 7


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
