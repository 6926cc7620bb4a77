"""A LogManager's machine, as transcripts: an operator takes a log dir out of use, in order."""

from dataclasses import replace

from raylog.actors.control import KeepOut, ReadBack
from raylog.actors.node.events import ActorGone, DirFailed, DirsRead, Folder
from raylog.actors.node.places import CLOSING, NOT_IN_ORDER, READING_BACK
from raylog.storage.errors import LogDirOffline
from tests.transcripts.nodes import (
    BROKEN,
    HANGS,
    NEW_ORDERS,
    ORDERS,
    OTHER_PARTITION,
    OTHERS,
    PARTITION,
    Node,
    create,
    dir_report,
    folder,
    move,
    remove,
    serve,
    serving,
    unnamed,
)

WHY = "an operator took it offline"
LEAVE = KeepOut(directory_id="A", why=WHY, in_order=True)
END, RETIRE = "end orders-0 of old, closed in order", "retire A with orders-0 clean"


def dirs(node: Node) -> list[tuple[str, str]]:
    return [(dir.state, dir.why) for dir in node.report.dirs]


def leaving() -> Node:
    """A node whose log dir A is to be taken out of use; B serves on."""
    node = serving("A", "B")
    assert node.orders(LEAVE) == [END]
    return node


def left() -> Node:
    node = leaving()
    node.done(END)
    node.done(RETIRE)
    return node


def test_its_logs_are_closed_and_then_it_is_closed_and_unlocked_in_order() -> None:
    node = leaving()
    assert dirs(node) == [("online", CLOSING), ("online", "")]
    assert node.logs == ["orders-0 of old in A: closing"]
    assert node.orders(LEAVE) == [], "the order may come twice"
    assert node.done(END) == [RETIRE]
    assert dirs(node)[0] == ("online", CLOSING), "its lock is not free yet"
    assert node.done(RETIRE) == []
    assert dirs(node) == [("offline", WHY), ("online", "")]
    assert node.orders(LEAVE) == []
    assert [dir.is_taken_offline for dir in node.report.dirs] == [True, False]


def test_a_dir_without_logs_that_serve_leaves_at_once() -> None:
    clean = folder(ORDERS, "A", is_clean=True)
    node = Node("A", "B", folders=[clean, folder(OTHERS, "A")])
    kill = "kill orders-1"  # nobody has closed it in order: an actor of an earlier life may have it
    assert node.obeys(LEAVE) == [kill]
    assert node.failed(kill, HANGS) == []
    assert node.later(1000) == [kill]
    assert node.done(kill) == [RETIRE]


def test_an_actor_that_was_silent_when_this_life_began_does_not_outlive_the_dir() -> None:
    """It has its folder's lock, and would acknowledge appends that nobody reads any more."""
    node = Node("A", "B", folders=[folder(ORDERS, "A"), unnamed("A", OTHER_PARTITION)])
    assert node.obeys(LEAVE) == ["kill orders-0", "kill orders-1"]
    assert node.done("kill orders-0") == []
    assert node.done("kill orders-1") == ["retire A with nothing clean"]


def test_no_actor_is_looked_for_where_this_life_has_met_it() -> None:
    node = serving("A", "B")
    node.told(ActorGone(partition=ORDERS.partition))
    node.done("start orders-0 of old in A with config 1")
    assert node.orders(LEAVE) == [END]


def test_what_was_not_closed_in_order_is_told() -> None:
    node = leaving()
    assert node.failed(END, HANGS) == ["kill orders-0"]
    assert node.done("kill orders-0") == ["retire A with nothing clean"]
    node.failed("retire A with nothing clean", LogDirOffline("/disk/A", "not in order"))
    assert dirs(node)[0] == ("offline", WHY + NOT_IN_ORDER)


def test_an_actor_that_died_has_closed_nothing() -> None:
    node = serving("A", "B")
    node.told(ActorGone(partition=ORDERS.partition))
    node.done("start orders-0 of old in A with config 1")
    node.told(ActorGone(partition=ORDERS.partition))
    assert node.orders(LEAVE) == [], "it is being started again"
    assert node.done("start orders-0 of old in A with config 1") == [END]


def test_nothing_new_is_begun_in_it() -> None:
    node = leaving()
    assert node.orders(LEAVE, serve(), create(OTHERS)) == ["make orders-1 of old in B"]
    assert node.orders(LEAVE, remove()) == [], "its folder is removed when the dir is back"
    node.done(END)
    assert node.done(RETIRE) == []


def test_an_operator_who_changes_his_mind_waits_for_the_end() -> None:
    node = leaving()
    assert node.orders(ReadBack(directory_id="A")) == []
    assert node.done(END) == [RETIRE]
    assert node.done(RETIRE) == ["read A back"]


def test_a_dir_that_was_read_back_once_is_read_back_again_after_it_has_left() -> None:
    """What was read back before says nothing of its next use."""
    before = replace(dir_report("A"), is_read_back=True)
    node = Node(before, "B", folders=[folder(ORDERS, "A")])
    node.obeys(serve())
    node.done("start orders-0 of old in A with config 1, first")
    assert node.report.dirs[0].is_read_back
    assert node.orders(LEAVE) == [END]
    assert not node.report.dirs[0].is_read_back
    assert node.orders(ReadBack(directory_id="A")) == []
    assert node.done(END) == [RETIRE]
    assert node.done(RETIRE) == ["read A back"]


def test_one_who_changes_it_twice_has_it_left_out() -> None:
    node = leaving()
    node.orders(ReadBack(directory_id="A"))
    node.orders(LEAVE)
    node.done(END)
    assert node.done(RETIRE) == []


def test_a_dir_that_is_being_read_back_leaves_when_that_is_over() -> None:
    node = left()
    assert node.orders(ReadBack(directory_id="A")) == ["read A back"]
    assert node.orders(LEAVE) == []
    node.told(DirsRead(dirs=(dir_report("A"),), folders=(folder(ORDERS, "A", is_clean=True),)))
    node.done("read A back")
    assert node.orders(LEAVE) == [], "its epoch is being written"
    assert node.done("write epoch 1 to A") == [RETIRE]


def test_a_dir_that_could_not_be_read_back_says_again_why_it_is_offline() -> None:
    node = serving("A", "B")
    node.orders(ReadBack(directory_id="A"))
    node.done("kill orders-0")
    assert dirs(node)[0] == ("offline", READING_BACK)
    node.failed("read A back", BROKEN)
    assert dirs(node)[0] == ("offline", BROKEN.problem)
    assert not node.report.dirs[0].is_taken_offline
    for _ in range(2):
        node.orders(LEAVE)
        assert dirs(node)[0] == ("offline", WHY + NOT_IN_ORDER), "nothing was closed in order"
    assert node.report.dirs[0].is_taken_offline


def test_a_log_that_comes_back_was_closed_in_order() -> None:
    node = left()
    node.orders(ReadBack(directory_id="A"))
    back = folder(ORDERS, "A", is_clean=True)
    node.told(DirsRead(dirs=(dir_report("A"),), folders=(back,), controller_epoch=1))
    said = node.done("read A back")
    assert said == [], "its epoch is written first"
    node.done("write epoch 1 to A")
    assert node.orders(serve()) == ["start orders-0 of old in A with config 1, clean, first"]


def test_a_disk_that_fails_meanwhile_is_given_up_at_once() -> None:
    node = leaving()
    assert node.told(DirFailed(directory_id="A", why="gone")) == ["kill orders-0", "close A"]
    node.failed(END, HANGS)
    assert node.done("kill orders-0") == ["unlock A"]
    assert dirs(node)[0] == ("offline", "gone")


def test_a_disk_that_fails_at_its_end_is_unlocked_behind_that() -> None:
    node = leaving()
    node.done(END)
    assert node.told(DirFailed(directory_id="A", why="gone")) == ["close A"]
    assert node.done(RETIRE) == ["unlock A"]
    assert dirs(node)[0] == ("offline", "gone")


# -- moves -----------------------------------------------------------------------------------------


def test_a_move_to_it_is_given_up_and_its_log_serves_on() -> None:
    node = serving("B", "A")
    node.orders(move(source="B", target="A"))
    assert node.orders(LEAVE) == ["give up the copy of orders-0 of old"]
    assert node.failed("copy orders-0 of old from B to A", HANGS) == ["retire A with nothing clean"]
    assert node.logs == ["orders-0 of old in B: serving with config 1 (LogDirOffline)"]


def test_a_move_from_it_is_given_up_and_its_log_is_closed() -> None:
    node = serving("A", "B")
    node.orders(move())
    assert node.orders(LEAVE) == ["give up the copy of orders-0 of old", END]
    node.failed("copy orders-0 of old from A to B", HANGS)
    assert node.done(END) == ["drop the copy of orders-0 of old in B", RETIRE]


def test_a_log_that_was_moved_out_of_it_goes_on_in_the_target() -> None:
    node = serving("A", "B")
    node.orders(move())
    node.done("copy orders-0 of old from A to B")
    node.done(END)
    node.done("copy the rest of orders-0 of old from A to B")
    node.done("adopt orders-0 of old in B")
    assert node.orders(LEAVE, move()) == ["retire A with nothing clean"]
    assert node.orders(LEAVE, serve(ORDERS, "B")) == [
        "start orders-0 of old in B with config 1, clean"
    ]


# -- what else lies there --------------------------------------------------------------------------


def test_a_folder_of_another_topic_stays_as_it_is() -> None:
    node = Node("A", "B", folders=[folder(ORDERS, "B"), folder(NEW_ORDERS, "A")])
    node.obeys(serve(ORDERS, "B"))
    node.done("start orders-0 of old in B with config 1, first")
    assert node.orders(LEAVE) == ["retire A with nothing clean"]
    assert node.logs == [
        "orders-0 of new in A: found",
        "orders-0 of old in B: serving with config 1",
    ]


def test_what_is_being_done_there_is_awaited() -> None:
    lying = Folder(partition=ORDERS.partition, topic_id="old", directory_id="A", is_copy=True)
    node = Node("A", "B", folders=[lying])
    drop = "drop the copy of orders-0 of old in A"
    node.obeys(serve(NEW_ORDERS, "B"))
    assert drop in node.in_flight
    assert node.orders(LEAVE) == []
    assert node.done(drop) == ["retire A with nothing clean"]


# -- a LogActor that is being ended ----------------------------------------------------------------


def test_a_silent_actor_of_a_dir_that_leaves_is_closing_until_it_has_ended() -> None:
    node = Node("A", "B", folders=[folder(ORDERS, "A"), unnamed("A", OTHER_PARTITION)])
    said = node.obeys(LEAVE)
    assert {"kill orders-0", "kill orders-1"} <= set(said)
    assert node.logs == ["orders-0 of old in A: closing", "orders-1 of None in A: closing"]
    for kill in ("kill orders-0", "kill orders-1"):
        node.done(kill)
    assert node.logs[1] == "orders-1 of None in A: found"


def test_a_silent_actor_of_a_dir_that_fails_is_closing_until_it_has_ended() -> None:
    node = Node("A", "B", folders=[unnamed("A")])
    assert node.told(DirFailed(directory_id="A", why="EIO")) == ["kill orders-0", "close A"]
    assert node.logs == ["orders-0 of None in A: closing (LogDirOffline)"]
    node.done("kill orders-0")
    assert node.logs == ["orders-0 of None in A: failed (LogDirOffline)"]


def test_an_actor_whose_dir_is_not_known_is_closing_somewhere_until_it_has_ended() -> None:
    node = Node("A", strangers=[PARTITION])
    assert node.logs == ["orders-0 of None in no dir: closing"]
    node.failed("kill orders-0", HANGS)
    assert node.logs == ["orders-0 of None in no dir: closing"], "it is tried again"
    node.later(1_000)
    node.done("kill orders-0")
    assert node.logs == []
