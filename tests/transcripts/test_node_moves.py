"""A LogManager's machine, as transcripts: how it moves a log to another of its log dirs."""

from dataclasses import replace

from raylog.actors.control import ReadBack, SetAside
from raylog.actors.node.events import (
    ActorGone,
    DirFailed,
    DirsRead,
    Folder,
    Ordered,
)
from raylog.storage.errors import (
    DiskFull,
    LogMissing,
)
from tests.transcripts.nodes import (
    HANGS,
    NEW_ORDERS,
    ORDERS,
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


def copied() -> Node:
    """A node whose log is served, and little is left to copy."""
    node = serving("A", "B")
    assert node.orders(move()) == ["copy orders-0 of old from A to B"]
    assert node.done("copy orders-0 of old from A to B") == ["end orders-0 of old, closed in order"]
    return node


def whole_copy() -> Node:
    """A node whose log is closed and copied, and the copy has no name yet."""
    node = copied()
    assert node.done("end orders-0 of old, closed in order") == [
        "copy the rest of orders-0 of old from A to B"
    ]
    said = node.done("copy the rest of orders-0 of old from A to B")
    assert said == ["adopt orders-0 of old in B"]
    return node


def moved() -> Node:
    node = whole_copy()
    assert node.done("adopt orders-0 of old in B") == []
    assert node.logs == ["orders-0 of old in A: moved to B"]
    return node


def test_a_log_is_copied_while_it_is_served_and_goes_on_where_the_next_order_says() -> None:
    node = moved()
    assert node.orders(move()) == []
    assert node.orders(serve(ORDERS, "B")) == ["start orders-0 of old in B with config 1, clean"]
    said = node.done("start orders-0 of old in B with config 1, clean")
    assert said == ["doom orders-0 of old in A"]
    node.done("doom orders-0 of old in A")
    assert node.logs == ["orders-0 of old in B: serving with config 1"]


def test_a_move_that_is_taken_back_at_the_end_drops_the_copy() -> None:
    node = moved()
    assert node.orders(serve(ORDERS, "A")) == ["start orders-0 of old in A with config 1"]
    said = node.done("start orders-0 of old in A with config 1")
    assert said == ["doom orders-0 of old in B"]


def test_a_copy_that_is_not_wanted_any_more_is_given_up() -> None:
    node = serving("A", "B")
    node.orders(move())
    assert node.orders(serve()) == ["give up the copy of orders-0 of old"]
    assert node.orders(serve(version=2)) == ["configure orders-0 of old with 2"]
    assert node.failed("copy orders-0 of old from A to B", HANGS) == []
    said = node.done("configure orders-0 of old with 2")
    assert said == ["drop the copy of orders-0 of old in B"]
    assert node.logs == ["orders-0 of old in A: serving with config 2"]


def test_a_config_does_not_wait_for_a_copy() -> None:
    node = serving("A", "B")
    node.orders(move())
    assert node.orders(move(version=2)) == ["configure orders-0 of old with 2"]
    assert node.done("copy orders-0 of old from A to B") == []
    assert node.done("configure orders-0 of old with 2") == ["end orders-0 of old, closed in order"]


def test_an_actor_that_dies_during_a_copy_is_started_at_once_and_the_copy_made_anew() -> None:
    node = serving("A", "B")
    node.orders(move())
    assert node.told(ActorGone(partition=PARTITION)) == [
        "give up the copy of orders-0 of old",
        "start orders-0 of old in A with config 1",
    ]
    node.done("start orders-0 of old in A with config 1")
    said = node.done("copy orders-0 of old from A to B")  # it ended before it heard
    assert said == ["drop the copy of orders-0 of old in B"]
    said = node.done("drop the copy of orders-0 of old in B")
    assert said == ["copy orders-0 of old from A to B"]


def test_a_copy_that_failed_is_tried_again_only_by_an_order() -> None:
    node = serving("A", "B")
    node.orders(move())
    said = node.failed("copy orders-0 of old from A to B", DiskFull("/disk/B/x"))
    assert said == ["drop the copy of orders-0 of old in B"]
    assert node.failed("drop the copy of orders-0 of old in B", HANGS) == []
    assert node.logs == ["orders-0 of old in A: serving with config 1 (DiskFull)"]
    assert "drop the copy of orders-0 of old in B" in node.later(1_000)
    assert node.done("drop the copy of orders-0 of old in B") == []
    assert node.orders(move()) == ["copy orders-0 of old from A to B"]


def test_a_log_whose_rest_could_not_be_copied_is_served_where_it_was() -> None:
    node = copied()
    node.done("end orders-0 of old, closed in order")
    full = DiskFull("/disk/B/x")
    said = node.failed("copy the rest of orders-0 of old from A to B", full)
    assert said == ["start orders-0 of old in A with config 1"]
    said = node.done("start orders-0 of old in A with config 1")
    assert said == ["drop the copy of orders-0 of old in B"]
    assert node.done("drop the copy of orders-0 of old in B") == []
    assert node.logs == ["orders-0 of old in A: serving with config 1 (DiskFull)"]


def test_an_actor_that_does_not_close_for_a_move_is_opened_again() -> None:
    node = copied()
    said = node.failed("end orders-0 of old, closed in order", HANGS)
    assert said == ["start orders-0 of old in A with config 1"]
    said = node.done("start orders-0 of old in A with config 1")
    assert said == ["drop the copy of orders-0 of old in B"]
    assert node.done("drop the copy of orders-0 of old in B") == []


def test_a_move_is_taken_back_while_its_rest_is_copied() -> None:
    node = copied()
    node.done("end orders-0 of old, closed in order")
    assert node.orders(serve()) == ["give up the copy of orders-0 of old"]
    said = node.done("copy the rest of orders-0 of old from A to B")
    assert said == ["start orders-0 of old in A with config 1"]
    said = node.done("start orders-0 of old in A with config 1")
    assert said == ["drop the copy of orders-0 of old in B"]


def test_a_move_begins_anew_in_another_life_and_half_a_copy_is_dropped() -> None:
    copy = Folder(partition=PARTITION, topic_id="old", directory_id="B", is_copy=True)
    nameless = Folder(partition=PARTITION, topic_id=None, directory_id="B", is_copy=True)
    node = Node("A", "B", folders=[folder(ORDERS, "A"), copy, nameless])
    assert node.began == [
        "drop the copy of orders-0 of None in B",
        "drop the copy of orders-0 of old in B",
    ]
    assert node.obeys(move()) == []
    node.done("drop the copy of orders-0 of None in B")
    said = node.done("drop the copy of orders-0 of old in B")
    assert said == ["start orders-0 of old in A with config 1, first"]
    said = node.done("start orders-0 of old in A with config 1, first")
    assert said == ["copy orders-0 of old from A to B"]


def test_a_whole_copy_of_another_life_is_removed_before_the_move_begins_anew() -> None:
    node = Node("A", "B", folders=[folder(ORDERS, "A"), folder(ORDERS, "B")])
    node.obeys(move())
    said = node.done("start orders-0 of old in A with config 1, first")
    assert said == ["doom orders-0 of old in B"]
    assert node.done("doom orders-0 of old in B") == ["copy orders-0 of old from A to B"]


def test_what_a_move_has_left_is_removed_only_when_the_other_serves() -> None:
    node = Node("A", "B", folders=[folder(ORDERS, "A"), folder(ORDERS, "B")])
    assert node.obeys(serve(ORDERS, "B")) == ["start orders-0 of old in B with config 1, first"]
    assert node.failed("start orders-0 of old in B with config 1, first", HANGS) == []
    node.orders(serve(ORDERS, "B"))
    said = node.done("start orders-0 of old in B with config 1, first")
    assert said == ["doom orders-0 of old in A"]


def test_a_log_that_is_served_in_one_dir_and_ordered_in_another_changes_over() -> None:
    node = Node("A", "B", folders=[folder(ORDERS, "A"), folder(ORDERS, "B")])
    node.obeys(serve(ORDERS, "B"))
    node.orders(serve(ORDERS, "A"))
    said = node.done("start orders-0 of old in B with config 1, first")
    assert said == ["end orders-0 of old"]
    said = node.failed("end orders-0 of old", HANGS)
    assert said == ["kill orders-0"]
    said = node.done("kill orders-0")
    assert said == ["start orders-0 of old in A with config 1, first"]
    said = node.done("start orders-0 of old in A with config 1, first")
    assert said == ["doom orders-0 of old in B"]


def test_a_log_is_removed_with_its_copy_in_the_middle_of_a_move() -> None:  # number 16
    node = serving("A", "B")
    node.orders(move())
    said = node.orders(remove())
    assert said == ["give up the copy of orders-0 of old", "end orders-0 of old"]
    assert node.done("end orders-0 of old") == []
    said = node.failed("copy orders-0 of old from A to B", HANGS)
    assert said == ["drop the copy of orders-0 of old in B"]
    said = node.done("drop the copy of orders-0 of old in B")
    assert said == ["doom orders-0 of old in A"]
    assert node.failed("doom orders-0 of old in A", HANGS) == []
    assert node.logs == ["orders-0 of old in A: failed (OutOfResources)"]
    assert node.orders(remove()) == ["doom orders-0 of old in A"]


def test_the_copy_of_a_log_that_was_moved_is_not_set_aside() -> None:
    """The Controller may count the log there, and would not find it."""
    node = moved()
    assert node.orders(SetAside(partition=PARTITION, topic_id="old", directory_id="B")) == []
    assert node.orders(serve(ORDERS, "B")) == ["start orders-0 of old in B with config 1, clean"]


def test_a_log_that_was_moved_is_removed_from_both_dirs() -> None:  # number 16
    node = moved()
    assert node.orders(remove()) == ["doom orders-0 of old in A"]
    assert node.done("doom orders-0 of old in A") == ["doom orders-0 of old in B"]
    assert node.done("doom orders-0 of old in B") == []
    assert node.logs == []


def test_a_target_whose_disk_fails_ends_the_move_and_not_the_service() -> None:
    node = serving("A", "B")
    node.orders(move())
    said = node.told(DirFailed(directory_id="B", why="gone"))
    assert said == ["give up the copy of orders-0 of old", "close B"]
    node.failed("copy orders-0 of old from A to B", HANGS)
    assert node.logs == ["orders-0 of old in A: serving with config 1 (LogDirOffline)"]
    assert node.orders(move()) == []
    assert node.orders(move(ORDERS, "A", "X")) == []
    assert node.logs == ["orders-0 of old in A: serving with config 1 (InvalidLogDir)"]


def test_a_move_counts_that_was_ordered_before_the_controller_heard_of_this_life() -> None:
    node = serving("A", "B")
    unheard = node.envelope(move(), report=-1)
    assert node.told(Ordered(orders=unheard)) == ["copy orders-0 of old from A to B"]


def test_a_log_whose_target_fails_after_its_move_goes_on_in_the_source_by_a_fresh_order() -> None:
    """The Controller may have heard of the move alone, and count the log where it is lost."""
    node = moved()
    told_moved = node.report.number
    assert node.told(DirFailed(directory_id="B", why="gone")) == ["close B", "unlock B"]
    assert node.logs == [
        "orders-0 of old in A: found",
        "orders-0 of old in B: failed (LogDirOffline)",
    ]
    late = node.envelope(move(), report=told_moved)
    assert node.told(Ordered(orders=late)) == []
    assert node.orders(move()) == ["start orders-0 of old in A with config 1"]


def test_a_log_whose_target_fails_after_its_move_waits_for_it_where_it_counts_there() -> None:
    node = moved()
    node.told(DirFailed(directory_id="B", why="gone"))
    assert node.orders(serve(ORDERS, "B")) == [], "it is away with its log dir"
    node.orders(ReadBack(directory_id="B"))
    folders = (folder(ORDERS, "B", is_clean=True),)
    node.told(DirsRead(dirs=(replace(dir_report("B"), is_read_back=True),), folders=folders))
    node.done("read B back")
    node.done("write epoch 1 to B")
    said = node.orders(serve(ORDERS, "B"))
    assert said == ["start orders-0 of old in B with config 1, clean, first"]
    assert node.done(said[0]) == ["doom orders-0 of old in A"]


def test_no_folder_of_an_adopted_log_is_removed_before_the_controller_has_a_word() -> None:
    both = [folder(ORDERS, "A"), folder(ORDERS, "B")]
    node = Node("A", "B", folders=both, served=[served(ORDERS, "A")])
    assert node.began == ["start retention"]
    unheard = node.envelope(report=0)  # made before the Controller has heard of this life
    assert node.told(Ordered(orders=unheard)) == ["write epoch 1 to A", "write epoch 1 to B"]
    assert node.done("write epoch 1 to A") == node.done("write epoch 1 to B") == []
    assert node.orders() == ["doom orders-0 of old in B"], "it has seen it, and orders nothing else"


def test_a_log_that_was_moved_goes_on_in_the_target_though_its_source_fails() -> None:
    node = moved()
    assert node.told(DirFailed(directory_id="A", why="gone")) == ["close A", "unlock A"]
    assert node.logs == ["orders-0 of old in A: moved to B"]
    assert node.orders(serve(ORDERS, "B")) == ["start orders-0 of old in B with config 1, clean"]
    assert node.done("start orders-0 of old in B with config 1, clean") == []
    assert node.logs == [
        "orders-0 of old in A: failed (LogDirOffline)",
        "orders-0 of old in B: serving with config 1",
    ]


def test_a_move_waits_for_a_folder_of_another_topic_in_its_target() -> None:
    node = Node("A", "B", folders=[folder(ORDERS, "A"), folder(NEW_ORDERS, "B")])
    node.obeys(move())
    assert node.done("start orders-0 of old in A with config 1, first") == []
    assert node.orders(remove(NEW_ORDERS)) == ["doom orders-0 of new in B"]
    said = node.done("doom orders-0 of new in B")
    assert said == ["copy orders-0 of old from A to B"]
    assert node.orders(create(NEW_ORDERS)) == []  # the copy will have the name


def test_a_move_whose_controller_was_killed_leaves_both_dirs_online() -> None:
    node = whole_copy()
    node.failed("adopt orders-0 of old in B", LogMissing("/disk/B/x-future", "no such folder"))
    assert [dir.state for dir in node.report.dirs] == ["online", "online"]
    assert "start orders-0 of old in A with config 1" in node.in_flight


def test_a_log_of_which_only_a_copy_is_left_is_not_made_again() -> None:
    node = serving("A", "B")
    node.orders(move())
    node.orders(remove())
    node.done("end orders-0 of old")
    node.failed("copy orders-0 of old from A to B", HANGS)
    said = node.failed("drop the copy of orders-0 of old in B", HANGS)
    assert said == ["doom orders-0 of old in A"]
    assert node.done("doom orders-0 of old in A") == []
    assert node.orders(create()) == []
    assert node.later(1_000) == ["drop the copy of orders-0 of old in B"]
    assert node.done("drop the copy of orders-0 of old in B") == []
    assert node.logs == []
