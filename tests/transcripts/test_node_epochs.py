"""Whose orders a node obeys, and in which of its log dirs: transcripts of its machine.

The numbers are those of the list of what must be impossible (section 2 of the issue "control by
log").
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from raylog.actors.control import VERSION, Order, SetAside, Stop
from raylog.actors.node.dir_epochs import PATIENCE_MS
from raylog.actors.node.epoch_gate import MAX_HELD
from raylog.actors.node.events import DirFailed, DirsRead, Folder, Ordered, Served
from raylog.storage.errors import DiskFull, StorageError
from raylog.storage.names import TopicPartition
from tests.transcripts.nodes import (
    BROKEN,
    HANGS,
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
    served,
    serving,
    unnamed,
)

THIRD = TopicPartition("orders", 2)

# -- numbers 2 and 18: whose orders are obeyed -----------------------------------------------------


def test_an_epoch_is_on_every_dir_before_its_orders_are_obeyed() -> None:
    node = Node("A", "B")
    assert node.orders(create()) == ["write epoch 1 to A", "write epoch 1 to B"]
    assert node.orders(create(OTHERS)) == []
    assert node.done("write epoch 1 to A") == []
    assert (node.report.controller_epoch, node.report.orders) == (1, -1)
    assert node.done("write epoch 1 to B") == [
        "make orders-0 of old in A",
        "make orders-1 of old in B",
    ]
    assert (node.report.controller_epoch, node.report.orders) == (1, 2)
    node.epoch, node.number = 2, 0
    assert node.orders(create()) == ["write epoch 2 to A", "write epoch 2 to B"]
    assert (node.report.controller_epoch, node.report.orders) == (2, -1)


def test_a_dir_that_cannot_write_the_epoch_fails_and_the_others_obey() -> None:
    node = Node("A", "B", folders=[folder(OTHERS, "B")])
    node.orders(create())
    assert node.failed("write epoch 1 to A", BROKEN) == ["close A", "unlock A"]
    assert node.done("write epoch 1 to B") == ["make orders-0 of old in B"]
    assert [dir.state for dir in node.report.dirs] == ["offline", "online"]


@pytest.mark.parametrize("shortage", [DiskFull("/disk/A"), HANGS])
def test_an_epoch_that_a_dir_has_no_room_for_waits_and_no_dir_goes_offline(
    shortage: StorageError,
) -> None:
    node = Node("A", "B")
    node.orders(create())
    node.done("write epoch 1 to B")
    assert node.failed("write epoch 1 to A", shortage) == []
    assert [dir.state for dir in node.report.dirs] == ["online", "online"]
    assert node.report.orders == -1
    assert node.orders(create()) == [], "not at once"
    assert node.later(1000) == ["write epoch 1 to A"]
    assert node.done("write epoch 1 to A") == ["make orders-0 of old in A"]


def test_a_dir_that_has_no_room_for_the_epoch_holds_the_others_up_for_a_while_only() -> None:
    node = Node("A", "B")
    node.orders(create())
    node.failed("write epoch 1 to A", DiskFull("/disk/A"))
    node.done("write epoch 1 to B")
    assert node.later(PATIENCE_MS) == ["write epoch 1 to A", "make orders-0 of old in B"]


def test_a_failure_of_one_dir_does_not_hide_that_another_has_no_room_for_the_epoch() -> None:
    node = Node("A", "B")
    node.orders(create())
    assert node.failed("write epoch 1 to B", DiskFull("/disk/B")) == []
    assert node.failed("write epoch 1 to A", BROKEN) == ["close A", "unlock A"]
    assert node.report.orders == -1
    assert node.later(1000) == ["write epoch 1 to B"]
    assert node.done("write epoch 1 to B") == ["make orders-0 of old in B"]


# -- a dir that hangs ------------------------------------------------------------------------------


def hanging(*folders: Folder, served: Sequence[Served] = ()) -> Node:
    """A node of two dirs, of which A does not take the epoch."""
    node = Node("A", "B", folders=folders, served=served)
    node.orders()
    node.done("write epoch 1 to B")
    assert node.report.orders == -1
    assert node.later(PATIENCE_MS) == []
    return node


def test_a_dir_that_hangs_stays_online_and_is_shown_and_the_others_obey() -> None:
    node = hanging()
    assert node.report.orders == 1
    here, other = node.report.dirs
    assert (here.state, other.state) == ("online", "online")
    assert "epoch" in here.why
    assert node.machine.controller_epoch == 1
    assert other.why == ""
    assert node.orders(create(), create(OTHERS)) == [
        "make orders-0 of old in B",
        "make orders-1 of old in B",
    ]


def test_orders_for_a_dir_that_hangs_wait_until_it_answers() -> None:
    node = hanging(folder(ORDERS, "A"), folder(OTHERS, "B"))
    said = node.orders(serve(ORDERS, "A"), serve(OTHERS, "B"))
    assert said == ["start orders-1 of old in B with config 1, first"]
    assert node.logs[0] == "orders-0 of old in A: opening"
    assert node.machine.order_of(ORDERS) is None, "an actor must not obey it either"
    assert node.later(600_000) == ["start retention"]
    said = node.done("write epoch 1 to A")
    assert said == ["start orders-0 of old in A with config 1, first"]
    assert [dir.why for dir in node.report.dirs] == ["", ""]
    assert node.machine.order_of(ORDERS) is not None


@pytest.mark.parametrize(
    ("order", "said"),
    [
        (remove(ORDERS), "end orders-0 of old"),
        (serve(ORDERS, "A", version=2), "configure orders-0 of old with 2"),
        (move(ORDERS, "A", "B"), "copy orders-0 of old from A to B"),
    ],
)
def test_what_a_dir_that_hangs_serves_is_left_alone_until_it_answers(
    order: Order, said: str
) -> None:
    node = hanging(folder(ORDERS, "A"), served=[served(ORDERS, "A")])
    assert node.orders(order) == []
    assert node.logs[0] == "orders-0 of old in A: serving with config 1"
    assert said in node.done("write epoch 1 to A")


def test_a_copy_to_a_dir_that_hangs_waits_until_it_answers() -> None:
    node = hanging(folder(ORDERS, "B"), served=[served(ORDERS, "B")])
    assert node.orders(move(ORDERS, "B", "A")) == []
    assert node.done("write epoch 1 to A") == ["copy orders-0 of old from B to A"]


def test_folders_in_a_dir_that_hangs_stay_until_it_answers() -> None:
    """Number 16: nor are they forgotten."""
    node = hanging(folder(ORDERS, "A"), folder(OTHERS, "A"), unnamed("A", THIRD))
    aside = [
        SetAside(partition=OTHER_PARTITION, topic_id="old", directory_id="A"),
        SetAside(partition=THIRD, topic_id=None, directory_id="A"),
    ]
    assert node.orders(remove(ORDERS), *aside) == []
    assert len(node.logs) == 3
    assert sorted(node.done("write epoch 1 to A")) == [
        "doom orders-0 of old in A",
        "put orders-1 of old in A aside",
        "put orders-2 of None in A aside",
    ]


def test_a_folder_in_a_dir_that_hangs_is_served_where_that_was_ordered_after_to_set_it_aside() -> (
    None
):
    node = hanging(folder(ORDERS, "A"))
    aside = SetAside(partition=PARTITION, topic_id="old", directory_id="A")
    assert node.orders(aside) == []
    assert node.orders(serve()) == []
    start = "start orders-0 of old in A with config 1, first"
    assert node.done("write epoch 1 to A") == [start]
    assert node.done(start) == []
    assert node.logs == ["orders-0 of old in A: serving with config 1"]


def test_an_opening_in_a_dir_that_hangs_is_not_ended_by_an_order_that_waits() -> None:
    node = Node("A", "B", folders=[folder(ORDERS, "A")])
    node.obeys(serve())
    node.epoch, node.number = 2, 0
    node.orders()
    node.done("write epoch 2 to B")
    node.later(PATIENCE_MS)
    assert node.orders(remove()) == []
    node.done("write epoch 2 to A")
    assert node.orders(remove()) == ["kill orders-0"]


def test_nothing_is_obeyed_while_every_dir_hangs() -> None:
    """Else the node would forget the epoch with its process."""
    node = Node("A", "B")
    node.orders(create())
    assert node.later(PATIENCE_MS) == []
    assert node.report.orders == -1
    assert all("epoch" in dir.why for dir in node.report.dirs)
    assert node.done("write epoch 1 to A") == ["make orders-0 of old in A"]
    assert "epoch" not in node.report.dirs[0].why


def test_a_dir_that_hangs_is_not_waited_for_again_at_the_next_epoch() -> None:
    node = hanging()
    node.epoch, node.number = 2, 0
    assert node.orders(create()) == ["write epoch 2 to B"]
    assert node.done("write epoch 2 to B") == ["make orders-0 of old in B"]
    assert node.done("write epoch 1 to A") == ["write epoch 2 to A"]
    assert "epoch" in node.report.dirs[0].why
    assert node.done("write epoch 2 to A") == []
    assert node.report.dirs[0].why == ""


def test_a_dir_that_answers_with_an_error_at_last_goes_offline() -> None:
    node = hanging(folder(ORDERS, "A"))
    kill = "kill orders-0"  # of an earlier life, which may have been silent when this one began
    assert node.failed("write epoch 1 to A", BROKEN) == [kill, "close A"]
    assert node.report.dirs[0].state == "offline"
    assert node.done(kill) == ["unlock A"]


def test_a_dir_that_failed_before_it_had_the_epoch_is_not_said_to_hang() -> None:
    node = Node("A", "B")
    node.orders()
    node.done("write epoch 1 to A")
    node.told(DirFailed(directory_id="B", why="input/output error"))
    node.later(PATIENCE_MS)
    failed = node.report.dirs[1]
    assert (failed.state, failed.why) == ("offline", "input/output error")


def test_a_dir_that_comes_back_has_its_whole_time_to_take_the_epoch() -> None:
    node = Node("A", "B")
    node.orders()
    node.done("write epoch 1 to A")
    node.told(DirFailed(directory_id="B", why="gone"))
    node.failed("write epoch 1 to B", BROKEN)
    node.later(PATIENCE_MS)
    back = DirsRead(dirs=(dir_report("B"),), folders=(folder(ORDERS, "B"),))
    assert node.told(back) == ["write epoch 1 to B"]
    node.epoch, node.number = 2, 0
    assert node.orders(serve(ORDERS, "B")) == ["write epoch 2 to A"]
    assert node.done("write epoch 2 to A") == []
    assert node.report.orders == -1, "B may still take the epoch"
    assert node.done("write epoch 1 to B") == ["write epoch 2 to B"]
    said = node.done("write epoch 2 to B")
    assert said == ["start orders-0 of old in B with config 1, first"]


def test_nothing_is_removed_from_a_dir_that_hangs() -> None:
    node = hanging(folder(ORDERS, "A"), served=[served(ORDERS, "A")])
    node.orders(serve())
    node.orders()
    assert ORDERS not in node.machine.rights(node.now_ms)
    node.done("write epoch 1 to A")
    node.orders()
    assert ORDERS in node.machine.rights(node.now_ms)


def test_each_life_writes_the_epoch_again_since_a_dir_may_have_missed_it() -> None:
    node = Node("A", "B", controller_epoch=1)
    assert node.report.controller_epoch == 1
    assert node.orders() == ["write epoch 1 to A", "write epoch 1 to B"]


def test_an_epoch_that_one_dir_has_is_known_before_its_orders_are_obeyed() -> None:
    node = Node("A", "B")
    node.orders(create())
    node.done("write epoch 1 to A")
    assert (node.machine.controller_epoch, node.report.orders) == (1, -1)


def test_a_dir_that_comes_back_meanwhile_gets_the_epoch_too() -> None:
    node = Node("A", "B")
    node.told(DirFailed(directory_id="B", why="gone"))
    node.orders(create())
    assert node.told(DirsRead(dirs=(dir_report("B"),))) == ["write epoch 1 to B"]
    assert node.done("write epoch 1 to A") == []
    assert node.done("write epoch 1 to B") == ["make orders-0 of old in A"]


def test_of_a_dir_that_is_online_nothing_is_read_again() -> None:
    node = serving("A")
    before = node.logs
    again = DirsRead(dirs=(dir_report("A"),), folders=(folder(OTHERS, "A"),))
    node.told(again)
    assert node.logs == before


def test_a_dir_that_comes_back_may_know_a_higher_epoch() -> None:
    node = serving("A", "B")
    node.told(DirFailed(directory_id="B", why="gone"))
    node.told(DirsRead(dirs=(dir_report("B"),), controller_epoch=3))
    assert node.report.controller_epoch == 3
    assert node.orders(remove()) == ["refuse, epoch 3 was seen"]


def test_a_lower_epoch_is_refused_in_this_life_and_in_the_next() -> None:
    node = Node("A")
    node.epoch = 5
    node.obeys(create())
    node.epoch = 4
    assert node.orders(remove()) == ["refuse, epoch 5 was seen"]
    node = Node("A", controller_epoch=5, life="second")
    assert node.orders(create()) == ["refuse, epoch 5 was seen"]


def test_orders_that_waited_for_an_epoch_are_refused_when_a_higher_one_came() -> None:
    node = Node("A")
    node.orders(create())
    node.epoch, node.number = 2, 0
    assert node.orders(create(OTHERS)) == []
    assert node.done("write epoch 1 to A") == ["write epoch 2 to A"]
    said = node.done("write epoch 2 to A")
    assert said == ["refuse, epoch 2 was seen", "make orders-1 of old in A"]


def test_of_many_orders_that_wait_for_an_epoch_the_newest_are_obeyed() -> None:
    """A disk is slow, and the Controller goes on sending."""
    node = Node("A")
    for _ in range(MAX_HELD):
        node.orders()
    node.orders(create())
    assert node.done("write epoch 1 to A") == ["make orders-0 of old in A"]
    assert node.report.orders == MAX_HELD + 1


def test_late_orders_are_dropped() -> None:
    node = Node("A")
    node.obeys()
    late, early = node.envelope(create()), node.envelope(remove())
    assert node.told(Ordered(orders=early)) == []
    assert node.told(Ordered(orders=late)) == []
    assert node.told(Ordered(orders=early)) == []
    assert [note.name for note in node.notes] == ["orders-dropped"] * 2
    assert node.report.orders == early.number


def test_orders_for_another_life_or_node_or_of_a_newer_version_are_dropped() -> None:
    node = Node("A")
    node.obeys()
    node.life = "before"
    assert node.orders(create()) == []
    node.life = "first"
    orders = node.envelope(create())
    for name, value in {"node": "other", "version": VERSION + 1}.items():
        fields = {field: getattr(orders, field) for field in orders.__slots__}
        assert node.told(Ordered(orders=type(orders)(**{**fields, name: value}))) == []
    assert len(node.notes) == 3
    assert node.told(Ordered(orders=orders)) == ["make orders-0 of old in A"]


# -- the order to stop -----------------------------------------------------------------------------


def test_the_order_to_stop_is_obeyed_once_however_often_it_is_given() -> None:
    node = serving("A")
    assert not node.report.is_ending
    assert node.orders(Stop()) == ["end the node"]
    assert node.report.is_ending
    assert node.orders(Stop()) == []
    assert node.orders(serve()) == []


def test_the_order_to_stop_waits_until_its_epoch_is_on_the_disks() -> None:
    node = Node("A")
    assert node.orders(Stop()) == ["write epoch 1 to A"]
    assert node.done("write epoch 1 to A") == ["end the node"]


def test_a_late_controllers_order_to_stop_is_refused() -> None:
    node = Node("A", controller_epoch=2)
    assert node.orders(Stop()) == ["refuse, epoch 2 was seen"]


def test_an_order_to_stop_the_life_before_does_not_stop_this_one() -> None:
    node = Node("A", life="second")
    node.life = "first"
    assert node.orders(Stop()) == []


def test_what_is_stopped_is_not_confirmed() -> None:
    node = serving("A")
    stop = replace(node.envelope(Stop()), doubts=frozenset({ORDERS}))
    node.told(Ordered(orders=stop))
    assert node.machine.rights(node.now_ms) == {}
