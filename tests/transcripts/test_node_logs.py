"""A LogManager's machine, as transcripts: how it makes, opens, configures and removes logs."""

import pytest

from raylog.actors.control import End, SetAside
from raylog.actors.errors import LogRefused
from raylog.actors.node.events import (
    ActorGone,
    ActorSaid,
    DirFailed,
    Folder,
    Measured,
)
from raylog.actors.node.instructions import StartLog
from raylog.actors.node.places import ROOM_BYTES
from raylog.storage.errors import (
    DiskFull,
    LogLocked,
    LogMissing,
)
from tests.transcripts.nodes import (
    COMPACTED,
    HANGS,
    NEW_ORDERS,
    ORDERS,
    OTHERS,
    PARTITION,
    Node,
    create,
    dir_report,
    folder,
    move,
    remove,
    serve,
    served,
    serving,
)


def aside(directory_id: str = "A", topic_id: str | None = "old") -> SetAside:
    return SetAside(partition=PARTITION, topic_id=topic_id, directory_id=directory_id)


# -- a log's life ----------------------------------------------------------------------------------


def test_a_log_is_made_opened_configured_and_removed() -> None:
    node = Node("A")
    assert node.obeys(create()) == ["make orders-0 of old in A"]
    assert node.logs == ["orders-0 of old in no dir: opening"]
    assert node.done("make orders-0 of old in A") == []
    assert node.logs == ["orders-0 of old in A: found"]
    assert node.orders(serve()) == ["start orders-0 of old in A with config 1, clean"]
    assert node.logs == ["orders-0 of old in A: opening"]
    assert node.done("start orders-0 of old in A with config 1, clean") == []
    assert node.logs == ["orders-0 of old in A: serving with config 1"]
    assert node.orders(serve(version=2)) == ["configure orders-0 of old with 2"]
    assert node.done("configure orders-0 of old with 2") == []
    assert node.logs == ["orders-0 of old in A: serving with config 2"]
    assert node.orders(remove()) == ["end orders-0 of old"]
    assert node.logs == ["orders-0 of old in A: closing"]
    assert node.done("end orders-0 of old") == ["doom orders-0 of old in A"]
    assert node.logs == ["orders-0 of old in A: closing"]
    assert node.done("doom orders-0 of old in A") == []
    assert node.logs == []


def test_an_actor_that_was_silent_at_the_start_does_not_hold_up_the_removal() -> None:
    """Nobody has adopted it, and it has the folder's lock."""
    node = Node("A", folders=[folder(ORDERS, "A")])
    assert node.obeys(remove()) == ["doom orders-0 of old in A"]
    assert node.failed("doom orders-0 of old in A", LogLocked("/disk/A/orders-0")) == [
        "kill orders-0"
    ]
    assert node.done("kill orders-0") == []
    assert node.orders(remove()) == ["doom orders-0 of old in A"]
    assert node.done("doom orders-0 of old in A") == []
    assert node.logs == []


@pytest.mark.parametrize("topic_id", ["old", None])
def test_an_actor_that_was_silent_at_the_start_does_not_keep_a_folder_from_being_set_aside(
    topic_id: str | None,
) -> None:
    """Nobody has adopted it, so nobody can be told to end what no record knows."""
    node = Node("A", folders=[Folder(partition=PARTITION, topic_id=topic_id, directory_id="A")])
    name = f"put orders-0 of {topic_id} in A aside"
    assert node.obeys(aside(topic_id=topic_id)) == [name]
    assert node.failed(name, LogLocked("/disk/A/orders-0")) == ["kill orders-0"]
    assert node.done("kill orders-0") == []
    assert node.orders(aside(topic_id=topic_id)) == [name]
    assert node.done(name) == []
    assert node.logs == []


def test_a_log_whose_removal_failed_is_served_where_that_is_wanted_again() -> None:
    """By metadata of before the removal."""
    node = Node("A", folders=[folder(ORDERS, "A")])
    assert node.obeys(remove()) == ["doom orders-0 of old in A"]
    assert node.orders(serve()) == [], "what is being removed is not served"
    assert node.failed("doom orders-0 of old in A", HANGS) == []
    assert node.orders(serve()) == ["start orders-0 of old in A with config 1, first"]


def test_a_log_that_nobody_wants_is_ended_and_its_folder_is_set_aside() -> None:
    node = serving("A")
    assert node.orders(End(log=ORDERS)) == ["end orders-0 of old"]
    assert node.logs == ["orders-0 of old in A: closing"]
    assert node.machine.order_of(ORDERS) is None
    assert node.done("end orders-0 of old") == []
    assert node.logs == ["orders-0 of old in A: found"]
    assert node.orders(aside()) == ["put orders-0 of old in A aside"]
    assert node.done("put orders-0 of old in A aside") == []
    assert node.logs == []
    assert node.orders(create(OTHERS)) != [], "the name is free"


def test_a_log_that_nobody_wants_and_whose_actor_does_not_answer_is_killed() -> None:
    node = serving("A")
    node.orders(End(log=ORDERS))
    assert node.failed("end orders-0 of old", HANGS) == ["kill orders-0"]
    assert node.done("kill orders-0") == []
    assert node.logs == ["orders-0 of old in A: found"]


def test_a_log_that_nobody_wants_is_not_opened_to_its_end() -> None:
    node = Node("A", folders=[folder(ORDERS, "A")])
    node.obeys(serve())
    assert node.orders(End(log=ORDERS)) == ["kill orders-0"]


def test_a_folder_that_is_put_aside_is_not_made_again() -> None:
    """Of metadata that was rolled back: it was made, and put aside, again and again."""
    node = Node("A")
    node.obeys(create())
    node.done("make orders-0 of old in A")
    assert node.orders(aside()) == ["put orders-0 of old in A aside"]
    assert node.done("put orders-0 of old in A aside") == []
    assert node.logs == []


def test_a_log_that_nobody_wants_and_whose_actor_died_is_settled() -> None:
    node = Node("A", folders=[folder(ORDERS, "A")], served=[served(ORDERS, "A", 4)])
    assert node.told(ActorGone(partition=PARTITION)) == ["kill orders-0"]
    node.done("kill orders-0")
    assert node.logs == ["orders-0 of old in A: found"]


def test_orders_may_come_twice() -> None:
    node = Node("A")
    assert node.obeys(create(), create()) == ["make orders-0 of old in A"]
    assert node.orders(create()) == []
    node.done("make orders-0 of old in A")
    assert node.orders(create()) == []
    assert node.orders(serve(), serve()) == ["start orders-0 of old in A with config 1, clean"]
    assert node.orders(serve()) == []
    node.done("start orders-0 of old in A with config 1, clean")
    assert node.orders(create(), serve(), serve()) == []
    assert node.orders(remove(), remove()) == ["end orders-0 of old"]
    assert node.orders(remove(), create(), serve()) == []
    node.done("end orders-0 of old")
    node.done("doom orders-0 of old in A")
    assert node.orders(remove(), serve()) == []
    assert node.logs == []


def test_an_older_config_never_takes_the_place_of_a_newer_one() -> None:
    node = serving("A")
    node.orders(serve(version=3))
    node.done("configure orders-0 of old with 3")
    assert node.orders(serve(version=2)) == []
    node.told(ActorGone(partition=PARTITION))
    assert "start orders-0 of old in A with config 3" in node.in_flight


def test_a_config_may_change_with_the_brokers_defaults_under_its_version() -> None:
    node = serving("A")
    node.orders(serve(config=COMPACTED))
    node.told(ActorGone(partition=PARTITION))
    start = node.in_flight["start orders-0 of old in A with config 1"]
    assert isinstance(start, StartLog)
    assert start.config == COMPACTED


def test_what_a_config_became_while_the_log_was_opened_is_told_afterwards() -> None:
    node = Node("A", folders=[folder(ORDERS, "A")])
    node.obeys(serve(version=1))
    assert node.orders(serve(version=2)) == []
    said = node.done("start orders-0 of old in A with config 1, first")
    assert said == ["configure orders-0 of old with 2"]


def test_a_config_that_did_not_arrive_is_told_again_with_the_next_order() -> None:
    node = serving("A")
    node.orders(serve(version=2))
    assert node.failed("configure orders-0 of old with 2", HANGS) == []
    assert node.logs == ["orders-0 of old in A: serving with config 1 (OutOfResources)"]
    assert node.later(60_000) == ["start retention"]
    assert node.orders(serve(version=2)) == ["configure orders-0 of old with 2"]
    assert node.logs == ["orders-0 of old in A: serving with config 1"]


def test_an_actor_that_ray_has_started_with_its_first_config_is_told_the_newest() -> None:
    node = serving("A")
    node.orders(serve(version=2))
    node.done("configure orders-0 of old with 2")
    said = node.told(ActorSaid(served=served(ORDERS, "A", version=1)))
    assert said == ["configure orders-0 of old with 2"]


def test_logs_do_not_wait_for_each_other() -> None:
    node = Node("A")
    assert len(node.obeys(create(ORDERS), create(OTHERS))) == 2
    node.done("make orders-1 of old in A")  # the other hangs
    assert node.orders(serve(OTHERS)) == ["start orders-1 of old in A with config 1, clean"]


def test_a_log_that_nobody_has_is_not_served_nor_removed() -> None:
    node = Node("A")
    assert node.obeys(serve(), move(), remove(), aside()) == []
    assert node.logs == []
    assert [note.name for note in node.notes].count("order-ignored") == 3


# -- creation --------------------------------------------------------------------------------------


def test_a_log_is_made_in_the_dir_with_the_fewest_logs_and_copies() -> None:
    two = [folder(OTHERS, "A"), Folder(partition=PARTITION, topic_id="x", directory_id="A")]
    node = Node("A", "B", folders=[*two, folder(NEW_ORDERS, "B")])
    assert node.obeys(create(OTHERS)) == []  # it is there
    node = Node("A", "B", folders=[folder(OTHERS, "A")])
    assert node.obeys(create(), create(NEW_ORDERS)) == [
        "make orders-0 of old in B",
        "make orders-0 of new in A",
    ]


def test_a_copy_counts_where_a_log_is_made() -> None:
    node = serving("A", "B", "C")
    node.orders(move())
    assert node.orders(create(OTHERS)) == ["make orders-1 of old in C"]


def test_a_full_disk_is_no_reason_while_another_has_room() -> None:  # number 14
    full = dir_report("A", usable_bytes=ROOM_BYTES - 1)
    node = Node(full, dir_report("B", usable_bytes=ROOM_BYTES), folders=[folder(OTHERS, "B")])
    assert node.obeys(create()) == ["make orders-0 of old in B"]
    said = node.failed("make orders-0 of old in B", DiskFull("/disk/B/orders-0"))
    assert said == ["make orders-0 of old in A"]
    assert node.failed("make orders-0 of old in A", DiskFull("/disk/A/orders-0")) == []
    assert "orders-0 of old in no dir: failed (DiskFull)" in node.logs
    assert node.later(100_000) == []
    node.told(Measured(usable_bytes={"A": ROOM_BYTES, "B": 0}))
    assert node.orders(create()) == ["make orders-0 of old in A"]
    assert node.done("make orders-0 of old in A") == []
    assert node.logs == ["orders-0 of old in A: found", "orders-1 of old in B: found"]


def test_a_log_that_could_not_be_made_is_removed_at_once() -> None:
    node = Node("A")
    node.obeys(create())
    node.failed("make orders-0 of old in A", DiskFull("/disk/A/orders-0"))
    assert node.orders(remove()) == []
    assert node.logs == []


def test_without_a_dir_that_is_online_nothing_is_made() -> None:
    node = Node("A")
    node.obeys()
    node.told(DirFailed(directory_id="A", why="input/output error"))
    assert node.orders(create()) == []
    assert node.logs == ["orders-0 of old in no dir: failed (NoLogDirs)"]


def test_what_is_removed_while_it_is_made_goes_afterwards() -> None:
    node = Node("A")
    node.obeys(create())
    assert node.orders(remove()) == []
    assert node.done("make orders-0 of old in A") == ["doom orders-0 of old in A"]


# -- two topics of one name ------------------------------------------------------------------------


def test_two_topics_logs_of_one_name_do_not_lie_in_one_dir() -> None:
    node = Node("A", folders=[folder(ORDERS, "A")])
    assert node.obeys(create(NEW_ORDERS)) == []
    assert "orders-0 of new in no dir: opening" in node.logs
    assert node.orders(remove(ORDERS)) == ["doom orders-0 of old in A"]
    assert node.done("doom orders-0 of old in A") == ["make orders-0 of new in A"]


def test_two_topics_logs_of_one_name_are_not_served_at_once() -> None:
    node = Node("A", "B", folders=[folder(ORDERS, "A"), folder(NEW_ORDERS, "B")])
    node.obeys(serve(ORDERS, "A"), serve(NEW_ORDERS, "B"))
    assert list(node.in_flight) == ["start orders-0 of old in A with config 1, first"]
    assert node.done("start orders-0 of old in A with config 1, first") == []
    assert node.orders(remove(ORDERS)) == ["end orders-0 of old"]
    assert node.done("end orders-0 of old") == [
        "doom orders-0 of old in A",
        "start orders-0 of new in B with config 1, first",
    ]


def test_a_removal_never_touches_another_topics_log() -> None:
    node = serving("A")
    assert node.orders(remove(NEW_ORDERS)) == []
    assert node.logs == ["orders-0 of old in A: serving with config 1"]


# -- first openings --------------------------------------------------------------------------------


def test_so_many_logs_of_a_dir_are_first_opened_at_once() -> None:
    logs = [folder(log, name) for log in (ORDERS, OTHERS) for name in "A"]
    node = Node("A", "B", folders=logs, config={"num.recovery.threads.per.data.dir": 1})
    assert node.obeys(serve(ORDERS), serve(OTHERS)) == [
        "start orders-0 of old in A with config 1, first"
    ]
    # One that was just made is not in the way, nor is one of another dir.
    node.orders(create(NEW_ORDERS), serve(OTHERS))
    node.done("make orders-0 of new in B")
    said = node.failed("start orders-0 of old in A with config 1, first", HANGS)
    assert said == ["start orders-1 of old in A with config 1, first"]
    assert node.orders(serve(ORDERS)) == []
    said = node.done("start orders-1 of old in A with config 1, first")
    assert said == ["start orders-0 of old in A with config 1, first"]
    node.done("start orders-0 of old in A with config 1, first")
    said = node.told(ActorGone(partition=PARTITION))
    assert said == ["start orders-0 of old in A with config 1"]


def test_who_does_not_want_its_turn_any_more_gives_it_to_the_next() -> None:
    third = Folder(partition=PARTITION._replace(partition=2), topic_id="old", directory_id="A")
    id = serve(ORDERS).log.__class__(partition=third.partition, topic_id="old")
    node = Node(
        "A",
        folders=[folder(ORDERS, "A"), folder(OTHERS, "A"), third],
        config={"num.recovery.threads.per.data.dir": 1},
    )
    node.obeys(serve(ORDERS), serve(OTHERS), serve(id))
    node.orders(remove(OTHERS))
    said = node.done("start orders-0 of old in A with config 1, first")
    assert said == ["start orders-2 of old in A with config 1, first"]


# -- openings that fail ----------------------------------------------------------------------------


def test_a_failed_opening_is_tried_again_only_by_an_order() -> None:
    node = Node("A", folders=[folder(ORDERS, "A")])
    node.obeys(serve())
    assert node.failed("start orders-0 of old in A with config 1, first", HANGS) == []
    assert node.logs == ["orders-0 of old in A: failed (OutOfResources)"]
    assert node.later(600_000) == ["start retention"]
    assert node.orders(serve()) == ["start orders-0 of old in A with config 1, first"]


def test_what_kept_a_log_from_being_opened_is_said_until_it_serves() -> None:
    node = Node("A", folders=[folder(ORDERS, "A")])
    node.obeys(serve())
    node.failed("start orders-0 of old in A with config 1, first", HANGS)
    node.orders(serve())
    assert node.logs == ["orders-0 of old in A: opening (OutOfResources)"]
    node.done("start orders-0 of old in A with config 1, first")
    assert node.logs == ["orders-0 of old in A: serving with config 1"]
    node.told(ActorGone(partition=PARTITION))
    assert node.logs == ["orders-0 of old in A: opening"]


@pytest.mark.parametrize(
    "error",
    [LogMissing("a log", "data is missing"), LogRefused("orders-0", "LogMissing", "", "")],
)
def test_a_log_whose_opening_was_refused_is_as_it_was(error: LogMissing | LogRefused) -> None:
    node = Node("A", folders=[folder(ORDERS, "A", is_clean=True)])
    node.obeys(serve())
    node.failed("start orders-0 of old in A with config 1, clean, first", error)
    assert node.orders(serve()) == ["start orders-0 of old in A with config 1, clean, first"]


def test_a_log_whose_opening_ended_otherwise_is_as_after_a_crash() -> None:
    node = Node("A", folders=[folder(ORDERS, "A", is_clean=True)])
    node.obeys(serve())
    node.failed("start orders-0 of old in A with config 1, clean, first", HANGS)
    assert node.orders(serve()) == ["start orders-0 of old in A with config 1, first"]
    refused = LogMissing("a log", "data is missing")
    node.failed("start orders-0 of old in A with config 1, first", refused)
    assert node.orders(serve()) == ["start orders-0 of old in A with config 1, first"]


def test_a_removal_does_not_wait_for_an_opening() -> None:
    node = Node("A", folders=[folder(ORDERS, "A")])
    node.obeys(serve())
    assert node.orders(remove()) == ["kill orders-0"]
    assert node.failed("start orders-0 of old in A with config 1, first", HANGS) == []
    assert node.done("kill orders-0") == ["doom orders-0 of old in A"]


# -- actors that are gone --------------------------------------------------------------------------


def test_an_actor_that_is_gone_is_started_again_as_after_a_crash() -> None:
    node = Node("A")
    node.obeys(create())
    node.done("make orders-0 of old in A")
    node.orders(serve())
    node.done("start orders-0 of old in A with config 1, clean")
    said = node.told(ActorGone(partition=PARTITION))
    assert said == ["start orders-0 of old in A with config 1"]
    assert node.logs == ["orders-0 of old in A: opening"]


def test_an_actor_that_died_while_it_was_started_is_started_once_more() -> None:
    node = Node("A", folders=[folder(ORDERS, "A")])
    node.obeys(serve())
    assert node.told(ActorGone(partition=PARTITION)) == []
    said = node.done("start orders-0 of old in A with config 1, first")
    assert said == ["start orders-0 of old in A with config 1"]
    node.done("start orders-0 of old in A with config 1")
    assert node.logs == ["orders-0 of old in A: serving with config 1"]


def test_an_actor_that_seems_gone_is_killed_before_its_folder_is_taken_away() -> None:
    node = serving("A")
    node.orders(serve(version=2))
    node.told(ActorGone(partition=PARTITION))
    node.orders(remove())
    said = node.failed("configure orders-0 of old with 2", HANGS)
    assert said == ["kill orders-0"]
    assert node.done("kill orders-0") == ["doom orders-0 of old in A"]


def test_an_actor_that_does_not_end_in_order_is_killed() -> None:
    node = serving("A")
    node.orders(remove())
    assert node.told(ActorGone(partition=PARTITION)) == []  # it ends
    assert node.failed("end orders-0 of old", HANGS) == ["kill orders-0"]
    assert node.failed("kill orders-0", HANGS) == []
    assert node.later(1_000) == ["kill orders-0"]
    assert node.done("kill orders-0") == ["doom orders-0 of old in A"]


def test_an_order_to_make_a_log_that_is_served_changes_nothing() -> None:
    node = serving("A")
    assert node.orders(create()) == []
    said = node.told(ActorGone(partition=PARTITION))
    assert said == ["start orders-0 of old in A with config 1"]


def test_the_hands_keep_nothing_of_a_log_that_is_gone() -> None:
    node = serving("A")
    node.orders(remove())
    node.done("end orders-0 of old")
    assert node.forgotten == []
    node.done("doom orders-0 of old in A")
    assert node.forgotten == [ORDERS]


def test_a_folder_that_is_locked_beside_a_log_that_serves_under_its_name_ends_no_actor() -> None:
    node = Node("A", "B", folders=[folder(ORDERS, "A"), folder(NEW_ORDERS, "B")])
    node.obeys(serve(NEW_ORDERS, "B"), remove())
    node.done("start orders-0 of new in B with config 1, first")
    said = node.failed("doom orders-0 of old in A", LogLocked("/disk/A/orders-0"))
    assert not [words for words in said if words.startswith("kill")]
