"""What follows from what shall be and what is, row by row; and that a plan comes to an end."""

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest

from raylog.actors.control import (
    Create,
    DirReport,
    End,
    KeepOut,
    LogReport,
    Move,
    Order,
    ReadBack,
    Remove,
    Report,
    Serve,
    SetAside,
)
from raylog.actors.node.places import NOT_IN_ORDER
from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.leaving_dirs import TAKEN_OFFLINE
from raylog.cluster.controller.observed import SUSPECT_MS, Observed
from raylog.cluster.controller.plan import Configs, Plan, plan
from raylog.cluster.controller.records import (
    ControllerRecord,
    CopiesRecord,
    DirRecord,
    NodeRecord,
    PartitionRecord,
    PartitionRemovedRecord,
    Record,
    TopicRecord,
    TopicRemovedRecord,
)
from raylog.storage.config import LogConfig
from raylog.storage.errors import DiskFull, NoRoom
from raylog.storage.names import TopicPartition
from tests.harness.control_nodes import PerfectNode, entry, is_as_desired, log_id, obeying

DEFAULTS = LogConfig()
EPOCH = 4
LOG, OTHER = log_id("t", 0), log_id("t", 0, "id-old")
TOPIC = TopicRecord(name="t", topic_id="id-t", config={"retention.ms": 7}, version=3)
CONFIG = LogConfig.parse(TOPIC.config, DEFAULTS)
CREATING = PartitionRecord(log=LOG, state="creating", node="a", kafka_id=9)
ONLINE = replace(CREATING, state="online", directory="a1")
MOVING = replace(ONLINE, state="moving", target="a2")
REMOVING = replace(ONLINE, state="removing")
DIRS = [
    DirRecord(directory_id=name, node=name[0], path=f"/{name}", state="online")
    for name in ("a1", "a2", "b1")
]
ONLINE_DIRS = [
    DirReport(directory_id=name, path=f"/{name}", state="online") for name in ("a1", "a2")
]
SERVE = Serve(log=LOG, directory_id="a1", config=CONFIG, config_version=3)
MOVE = Move(log=LOG, directory_id="a1", target_id="a2", config=CONFIG, config_version=3)
KEEP_OUT = KeepOut(directory_id="a1", why="EIO")
SERVING = entry(LOG, "a1", config_version=3)


def desired_of(*records: Record) -> Desired:
    nodes = [NodeRecord(key=key, kafka_id=index, port=0) for index, key in enumerate("ab")]
    desired = Desired()
    for record in (ControllerRecord(epoch=EPOCH, node="a"), *nodes, *DIRS, *records):
        desired.apply(record)
    desired.validate()
    return desired


def report(node: str, *logs: LogReport, dirs: list[DirReport] | None = None) -> Report:
    own = [DirReport(directory_id="b1", path="/b1", state="online")]
    given = dirs if dirs is not None else ONLINE_DIRS if node == "a" else own
    return Report(
        node=node, life="1", number=1, controller_epoch=EPOCH, dirs=tuple(given), logs=logs
    )


def planned(desired: Desired, *reports: Report, now_ms: int = 0) -> Plan:
    observed = {told.node: obeying(told, EPOCH) for told in reports}
    return plan(desired, observed, now_ms, Configs(DEFAULTS))


def orders_of(
    desired: Desired, *logs: LogReport, dirs: list[DirReport] | None = None
) -> tuple[Order, ...]:
    """The orders for node a, which reports these logs; no records follow."""
    made = planned(desired, report("a", *logs, dirs=dirs))
    assert made.records == ()
    return made.orders["a"]


def records_of(
    desired: Desired, *logs: LogReport, dirs: list[DirReport] | None = None
) -> tuple[Record, ...]:
    return planned(desired, report("a", *logs, dirs=dirs)).records


# -- creating --------------------------------------------------------------------------------------


def test_a_partition_that_shall_be_made_is_ordered_until_its_folder_is_reported() -> None:
    desired = desired_of(TOPIC, CREATING)
    assert orders_of(desired) == (Create(log=LOG),)
    assert records_of(desired, entry(LOG, "a2", "found")) == (replace(CREATING, directory="a2"),)


def test_a_folder_of_a_partition_with_the_same_name_is_removed_before_the_new_one_is_made() -> None:
    old = replace(REMOVING, log=OTHER, kafka_id=8)
    desired = desired_of(TOPIC, CREATING, old)
    assert orders_of(desired, entry(OTHER, "a1")) == (Remove(log=OTHER),)
    stray = entry(log_id("t", 0, "never-was"), "a2", "found")
    assert Create(log=LOG) not in planned(desired, report("a", stray)).orders["a"]


def test_a_folder_that_could_not_be_made_is_in_nobodys_way() -> None:
    """A node reports one of which metadata that was rolled back knows nothing."""
    failed = entry(log_id("t", 0, "never-was"), "", "failed", problem=DiskFull("/a1"))
    assert orders_of(desired_of(TOPIC, CREATING), failed) == (Create(log=LOG),)


def test_the_dir_that_serves_a_log_counts_where_the_metadata_is_of_before_its_move() -> None:
    desired = desired_of(TOPIC, ONLINE)
    there = entry(LOG, "a2", "serving")
    assert records_of(desired, there) == (replace(ONLINE, directory="a2"),)
    for state in ("found", "closing", "moved"):
        assert records_of(desired, entry(LOG, "a2", state)) == (), state


def test_a_folder_that_is_made_is_opened_and_then_it_is_online() -> None:
    made = replace(CREATING, directory="a1")
    desired = desired_of(TOPIC, made)
    assert orders_of(desired, entry(LOG, "a1", "found")) == (SERVE,)
    assert records_of(desired, SERVING) == (replace(made, state="online"),)


@pytest.mark.parametrize("why", ["silent", "gone", "failed"])
def test_another_node_makes_it_when_its_own_does_not_and_an_empty_folder_of_it_goes(
    why: str,
) -> None:
    desired = desired_of(TOPIC, CREATING)
    now_ms = SUSPECT_MS + 1
    observed = {"b": obeying(report("b"), EPOCH, now_ms)}
    failed = entry(LOG, "", "failed", problem=DiskFull("/a1"))
    match why:
        case "silent":
            observed["a"] = obeying(report("a"), EPOCH)
        case "failed":
            observed["a"] = obeying(report("a", failed), EPOCH, now_ms)
    elsewhere = replace(CREATING, node="b", left=("a",))
    assert plan(desired, observed, now_ms, Configs(DEFAULTS)).records == (elsewhere,)
    desired.apply(elsewhere)
    late = {"a": obeying(report("a", entry(LOG, "a1", "found")), EPOCH)}
    assert plan(desired, late, 0, Configs(DEFAULTS)).orders["a"] == (Remove(log=LOG),)


def test_no_other_node_is_chosen_once_its_folder_is_recorded() -> None:
    desired = desired_of(TOPIC, replace(CREATING, directory="a1"))
    observed = {"b": obeying(report("b"), EPOCH, SUSPECT_MS + 1)}
    assert plan(desired, observed, SUSPECT_MS + 1, Configs(DEFAULTS)).records == ()


# -- online ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("logs", "orders"),
    [
        ((SERVING,), ()),
        ((entry(LOG, "a1", config_version=2),), (SERVE,)),
        ((entry(LOG, "a1", "found"),), (SERVE,)),
        ((entry(LOG, "a1", "failed", problem=DiskFull("x")),), (SERVE,)),
        ((entry(LOG, "a1", "moved", moved_to="a2"),), (SERVE,)),
        ((entry(LOG, "a2", "moved", moved_to="a1"),), (SERVE,)),
        ((entry(LOG, "a2", "found"),), (SERVE,)),
        ((SERVING, entry(LOG, "a2", "found")), (SERVE,)),
        ((replace(SERVING, problem=NoRoom("/a2", 5, 1)),), (SERVE,)),
        ((entry(LOG, "a1", "opening"),), ()),
        ((entry(LOG, "a1", "closing"),), ()),
        ((), ()),
        ((replace(entry(LOG, "a1", "found"), topic_id=None),), ()),
    ],
    ids=[
        "as it shall be",
        "an older config",
        "not served",
        "failed",
        "a move that was given up",
        "a move that is committed",
        "a move that is committed, and its node restarted",
        "a folder that a move has left",
        "a move that failed",
        "being opened",
        "being closed",
        "missing",
        "its folder does not say whose it is",
    ],
)
def test_what_is_ordered_for_a_partition_that_shall_serve(
    logs: tuple[LogReport, ...], orders: tuple[Order, ...]
) -> None:
    assert orders_of(desired_of(TOPIC, ONLINE), *logs) == orders


def test_nothing_is_served_from_a_dir_that_is_recorded_offline() -> None:
    offline = replace(DIRS[0], state="offline", why="EIO", life="1")
    desired = desired_of(TOPIC, ONLINE, offline)
    assert orders_of(desired, entry(LOG, "a1", "found")) == (KEEP_OUT,)


@pytest.mark.parametrize(
    ("is_taken_offline", "is_ordered"), [(False, True), (True, False)], ids=["not yet", "it does"]
)
def test_a_dir_that_an_operator_wants_offline_is_kept_out_until_its_node_says_so(
    is_taken_offline: bool, is_ordered: bool
) -> None:
    wanted = replace(DIRS[0], state="offline", why="wanted", life="a-life", is_ordered=True)
    offline = replace(ONLINE_DIRS[0], state="offline", why="EIO", is_taken_offline=is_taken_offline)
    orders = orders_of(desired_of(wanted), dirs=[offline, ONLINE_DIRS[1]])
    keep_out = KeepOut(directory_id="a1", why="wanted", in_order=True)
    assert (keep_out in orders) == is_ordered


@pytest.mark.parametrize("is_ordered", [False, True])
def test_only_an_operators_order_to_leave_a_dir_waits_for_the_copy_of_the_metadata_in_it(
    is_ordered: bool,
) -> None:
    """A disk that failed is out of use at once, whatever lies on it."""
    offline = replace(DIRS[0], state="offline", why="EIO", life="1", is_ordered=is_ordered)
    desired = desired_of(offline, CopiesRecord(nodes=("a",), directories=("a1",)))
    assert orders_of(desired) == (() if is_ordered else (KEEP_OUT,))


def test_a_log_that_is_served_from_a_dir_that_is_recorded_offline_is_doubted() -> None:
    """Else its node would go on to remove records of it."""
    offline = replace(DIRS[0], state="offline", why="EIO", life="1")
    desired = desired_of(TOPIC, ONLINE, offline)
    made = planned(desired, report("a", SERVING))
    assert made.orders["a"] == (KEEP_OUT,)
    assert made.doubts["a"] == {LOG}
    assert planned(desired_of(TOPIC, ONLINE), report("a", SERVING)).doubts["a"] == set()


def test_a_config_that_the_broker_does_not_allow_any_more_is_ordered_of_nobody() -> None:
    desired = desired_of(replace(TOPIC, config={"segment.bytes": -5}), ONLINE)
    assert orders_of(desired, entry(LOG, "a1", "found")) == ()


# -- moving ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["found", "opening", "serving", "failed", "closing"])
def test_a_move_is_ordered_until_it_is_done(state: str) -> None:
    assert orders_of(desired_of(TOPIC, MOVING), entry(LOG, "a1", state)) == (MOVE,)


def test_a_log_that_is_moved_again_is_first_served_where_it_was_moved_to() -> None:
    desired = desired_of(TOPIC, MOVING)
    assert orders_of(desired, entry(LOG, "a2", "moved", moved_to="a1")) == (SERVE,)


def test_a_move_that_is_done_is_recorded() -> None:
    done = entry(LOG, "a1", "moved", moved_to="a2")
    moved = replace(ONLINE, directory="a2")
    assert records_of(desired_of(TOPIC, MOVING), done) == (moved,)


def test_a_move_is_not_recorded_while_an_order_is_under_way_that_may_open_the_log_again() -> None:
    told = report("a", entry(LOG, "a1", "moved", moved_to="a2"))
    seen = replace(obeying(told, EPOCH), under_way=frozenset({LOG}))
    made = plan(desired_of(TOPIC, MOVING), {"a": seen}, 0, Configs(DEFAULTS))
    assert (made.orders["a"], made.records) == ((MOVE,), ())


def test_a_move_that_failed_or_whose_target_is_gone_is_given_up() -> None:
    desired = desired_of(TOPIC, MOVING)
    failed = replace(SERVING, problem=NoRoom("/a2", 5, 1))
    assert records_of(desired, failed) == (ONLINE,)
    assert records_of(desired, SERVING, dirs=ONLINE_DIRS[:1]) == (ONLINE,)


# -- removing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["a1", "a2"])
def test_a_folder_that_shall_go_is_ordered_away_in_whichever_dir_it_lies(place: str) -> None:
    assert orders_of(desired_of(REMOVING), entry(LOG, place, "found")) == (Remove(log=LOG),)


def test_a_partition_is_removed_when_its_node_reports_nothing_of_it() -> None:
    assert records_of(desired_of(REMOVING)) == (PartitionRemovedRecord(log=LOG),)


def test_a_partition_is_not_removed_while_its_dir_is_offline_or_an_order_is_under_way() -> None:
    desired = desired_of(REMOVING)
    offline = replace(ONLINE_DIRS[0], state="offline", why="EIO")
    assert PartitionRemovedRecord(log=LOG) not in records_of(desired, dirs=[offline])
    assert records_of(desired, dirs=[ONLINE_DIRS[1]]) == ()
    seen = replace(obeying(report("a"), EPOCH), under_way=frozenset({LOG}))
    assert plan(desired, {"a": seen}, 0, Configs(DEFAULTS)).records == ()


@pytest.mark.parametrize("node", ["a", "b"])
def test_a_partition_is_not_removed_while_its_folder_may_lie_in_a_dir_that_could_not_be_read(
    node: str,
) -> None:
    """Nobody knows the dir's id. Node a is to make the partition, or was to make it before b."""
    left = () if node == "a" else ("a",)
    desired = desired_of(replace(CREATING, state="removing", node=node, left=left))
    unread = DirReport(directory_id=None, path="/a3", state="offline", why="EIO")
    told = report("a", dirs=[*ONLINE_DIRS, unread])
    assert planned(desired, told, report("b")).records == ()
    assert planned(desired, report("a"), report("b")).records == (PartitionRemovedRecord(log=LOG),)


def test_a_partition_that_two_nodes_were_to_make_is_removed_when_both_have_nothing() -> None:
    both = replace(CREATING, state="removing", node="b", left=("a",))
    desired = desired_of(both)
    assert planned(desired, report("b")).records == ()
    assert planned(desired, report("a"), report("b")).records == (PartitionRemovedRecord(log=LOG),)
    lying = report("a", entry(LOG, "a1", "found"))
    assert planned(desired, lying, report("b")).orders["a"] == (Remove(log=LOG),)
    assert planned(desired, lying, report("b")).records == ()


@pytest.mark.parametrize(("node", "left"), [("b", ("a",)), ("a", ()), ("a", ("b",))])
def test_a_node_that_is_gone_and_whose_dirs_are_another_nodes_holds_no_removal_up(
    node: str, left: tuple[str, ...]
) -> None:
    """A machine without a label has another key when it comes back: here a has become c."""
    removing = replace(CREATING, state="removing", node=node, left=left)
    desired = desired_of(removing)
    new = report("c", dirs=ONLINE_DIRS)
    assert PartitionRemovedRecord(log=LOG) not in planned(desired, report("b"), new).records
    for record in DIRS[:2]:
        desired.apply(replace(record, node="c"))
    desired.apply(NodeRecord(key="c", kafka_id=5, port=0))
    assert planned(desired, report("b"), new).records == (PartitionRemovedRecord(log=LOG),)
    seen = {told.node: obeying(told, EPOCH) for told in (report("b"), new)}
    seen["a"] = Observed(heard_ms=0)  # its machine is there, without a disk
    assert PartitionRemovedRecord(log=LOG) in plan(desired, seen, 0, Configs(DEFAULTS)).records
    lying = replace(new, logs=(entry(LOG, "a1", "found"),))
    made = planned(desired, report("b"), lying)
    assert (made.orders["c"], made.records) == ((Remove(log=LOG),), ())


@pytest.mark.parametrize("owner", ["away", "has not reported", "has the dir no more", "has it"])
def test_what_a_move_left_on_a_disk_that_another_node_has_now_is_removed_too(owner: str) -> None:
    desired = desired_of(replace(REMOVING, directory="b1"))
    left = report("c", entry(LOG, "a1", "found"), dirs=[ONLINE_DIRS[0]])
    observed = {told.node: obeying(told, EPOCH) for told in (report("b"), left)}
    match owner:
        case "has not reported":
            observed["a"] = Observed(heard_ms=0)
        case "has the dir no more":
            observed["a"] = obeying(report("a", dirs=[ONLINE_DIRS[1]]), EPOCH)
        case "has it":
            observed["a"] = obeying(report("a"), EPOCH)
    removed = (
        PartitionRemovedRecord(log=LOG) in plan(desired, observed, 0, Configs(DEFAULTS)).records
    )
    assert removed == (owner == "has it"), "only a copy of a disk is nobody's business"


def test_the_last_word_of_a_key_that_is_silent_ends_no_removal() -> None:
    """Ray still shows the old key of a machine whose disks its new key reports with the folder."""
    desired = desired_of(replace(REMOVING, directory="b1"))
    new = report("c", entry(LOG, "a1", "found"), dirs=ONLINE_DIRS)
    now_ms = SUSPECT_MS + 1
    speaking = {
        told.node: replace(obeying(told, EPOCH), heard_ms=now_ms) for told in (report("b"), new)
    }
    removed = PartitionRemovedRecord(log=LOG)
    for heard_ms, is_removed in ((now_ms, True), (0, False)):
        observed = {**speaking, "a": replace(obeying(report("a"), EPOCH), heard_ms=heard_ms)}
        made = plan(desired, observed, now_ms, Configs(DEFAULTS))
        assert (removed in made.records) == is_removed


@pytest.mark.parametrize("directory", ["a1", None])
def test_a_silent_node_has_not_said_that_nothing_is_left(directory: str | None) -> None:
    desired = desired_of(replace(REMOVING, directory=directory))
    observed = {"a": replace(obeying(report("a"), EPOCH), heard_ms=0)}
    removed = (PartitionRemovedRecord(log=LOG),)
    assert plan(desired, observed, SUSPECT_MS, Configs(DEFAULTS)).records == removed
    assert plan(desired, observed, SUSPECT_MS + 1, Configs(DEFAULTS)).records == ()


# -- strays ----------------------------------------------------------------------------------------


def test_a_folder_of_no_topic_is_set_aside_when_nobody_serves_it_any_more() -> None:
    desired = desired_of(TOPIC, ONLINE)
    stray = SetAside(partition=OTHER.partition, topic_id="id-old", directory_id="a2")
    assert orders_of(desired, SERVING, entry(OTHER, "a2", "found")) == (stray,)
    for state in ("serving", "opening", "moved"):
        assert orders_of(desired, SERVING, entry(OTHER, "a2", state)) == (End(log=OTHER),)
    assert orders_of(desired, SERVING, entry(OTHER, "a2", "closing")) == ()


def test_a_log_of_no_topic_that_lies_in_two_dirs_is_ended_once() -> None:
    both = entry(OTHER, "a1", "found"), entry(OTHER, "a2", "serving")
    orders = orders_of(desired_of(TOPIC), *both)
    assert [order for order in orders if isinstance(order, End)] == [End(log=OTHER)]


def test_a_folder_that_does_not_say_whose_it_is_stays_where_a_topic_wants_one() -> None:
    unread = LogReport(
        partition=TopicPartition("t", 0), topic_id=None, directory_id="a1", state="found"
    )
    assert orders_of(desired_of(TOPIC, ONLINE), unread) == ()
    elsewhere = replace(unread, directory_id="a2")
    stray = SetAside(partition=LOG.partition, topic_id=None, directory_id="a2")
    assert orders_of(desired_of(TOPIC, ONLINE), elsewhere) == (stray,)
    assert orders_of(desired_of(TOPIC, MOVING), elsewhere) == ()


def test_a_copy_on_another_node_is_set_aside() -> None:
    copy = entry(LOG, "b1", "found")
    made = planned(desired_of(TOPIC, ONLINE), report("a", SERVING), report("b", copy))
    assert made.orders["b"] == (
        SetAside(partition=LOG.partition, topic_id="id-t", directory_id="b1"),
    )


# -- nodes and log dirs ----------------------------------------------------------------------------


def test_a_node_and_its_dirs_are_recorded_when_they_report_first() -> None:
    desired = Desired()
    desired.apply(ControllerRecord(epoch=EPOCH, node="a"))
    broken = DirReport(directory_id="a2", path="/a2", state="offline", why="EIO")
    unread = DirReport(directory_id=None, path="/a3", state="offline", why="EIO")
    made = planned(desired, report("a", dirs=[ONLINE_DIRS[0], broken, unread]), report("b"))
    assert made.records == (
        NodeRecord(key="a", kafka_id=0),
        DIRS[0],
        replace(DIRS[1], state="offline", why="EIO", life="1"),
        NodeRecord(key="b", kafka_id=1),
        DIRS[2],
    )


def test_where_a_nodes_processes_are_found_is_recorded() -> None:
    desired = desired_of(TOPIC, ONLINE)
    listening = replace(SERVING, port=41_001)
    told = replace(report("a", listening), host="127.0.0.1", port=41_000)
    records = planned(desired, told).records
    node = NodeRecord(key="a", kafka_id=0, port=41_000, host="127.0.0.1")
    assert set(records) == {node, replace(ONLINE, port=41_001)}
    for record in records:
        desired.apply(record)
    assert planned(desired, told).records == ()
    assert planned(desired, report("a", SERVING)).records == (), "an older raylog says nothing"


def test_a_log_that_serves_first_is_recorded_with_its_port() -> None:
    creating = replace(CREATING, directory="a1")
    listening = replace(SERVING, port=41_001)
    assert records_of(desired_of(TOPIC, creating), listening) == (replace(ONLINE, port=41_001),)


def test_the_port_of_a_log_that_is_being_removed_is_not_recorded() -> None:
    gone = report("a", entry(LOG, "a1", port=41_001))
    assert planned(desired_of(TOPIC, REMOVING), gone).records == ()


def test_a_dir_that_fails_is_recorded_offline_and_only_a_fresh_start_brings_it_back() -> None:
    desired = desired_of()
    broken = [replace(ONLINE_DIRS[0], state="offline", why="EIO"), ONLINE_DIRS[1]]
    offline = replace(DIRS[0], state="offline", why="EIO", life="1")
    assert records_of(desired, dirs=broken) == (offline,)
    desired.apply(offline)
    assert orders_of(desired, dirs=broken) == ()
    assert orders_of(desired) == (KEEP_OUT,), "the same life says that it is online"
    restarted = planned(desired, replace(report("a"), life="2", is_restarted=True))
    assert restarted.orders["a"] == (KEEP_OUT,), "Ray has started it in the place of another"
    assert restarted.records == ()
    new_life = replace(report("a"), life="3")
    returning = replace(offline, state="returning")
    assert planned(desired, new_life).records == (returning,)
    desired.apply(returning)
    assert planned(desired, new_life).orders["a"] == (ReadBack(directory_id="a1"),)
    read = [replace(ONLINE_DIRS[0], is_read_back=True), ONLINE_DIRS[1]]
    assert records_of(desired, dirs=read) == (DIRS[0],)


def test_a_dir_that_an_operator_took_offline_is_recorded_so_by_its_nodes_word() -> None:
    """The metadata may be older than the word of that person, as after a restore."""
    taken = replace(
        ONLINE_DIRS[0],
        state="offline",
        why=TAKEN_OFFLINE + NOT_IN_ORDER,
        is_taken_offline=True,
    )
    recorded = replace(DIRS[0], state="offline", why=TAKEN_OFFLINE, life="1", is_ordered=True)
    assert records_of(desired_of(), dirs=[taken, ONLINE_DIRS[1]]) == (recorded,)


def test_a_dir_that_an_operator_wants_back_is_read_back_also_in_the_same_life() -> None:
    desired = desired_of(replace(DIRS[0], state="returning", life="1"))
    broken = [replace(ONLINE_DIRS[0], state="offline", why="EIO"), ONLINE_DIRS[1]]
    assert orders_of(desired, dirs=broken) == (ReadBack(directory_id="a1"),)


def test_a_dir_is_not_used_again_by_a_report_that_knows_of_no_order_to_leave_it() -> None:
    returning = desired_of(replace(DIRS[0], state="returning", life="1"))
    used = [replace(ONLINE_DIRS[0], is_read_back=True), ONLINE_DIRS[1]]
    told = replace(obeying(report("a", dirs=used), EPOCH), under_way=frozenset({"a1"}))
    made = plan(returning, {"a": told}, 0, Configs(DEFAULTS))
    assert (made.orders["a"], made.records) == ((ReadBack(directory_id="a1"),), ())


def test_a_disk_that_moves_to_another_node_takes_its_partitions_along() -> None:
    desired = desired_of(TOPIC, ONLINE)
    there = report("b", entry(LOG, "a1", "found"), dirs=[ONLINE_DIRS[0]])
    moved = replace(DIRS[0], node="b")
    assert planned(desired, there).records == (moved,)
    assert planned(desired, there, report("a", dirs=[ONLINE_DIRS[1]])).records == (moved,)
    desired.apply(moved)
    assert planned(desired, there).orders["b"] == (SERVE,)


@pytest.mark.parametrize("other", ["has it", "has not reported", "does not obey yet"])
def test_a_copy_of_a_disk_is_left_alone(other: str) -> None:
    desired = desired_of(TOPIC, ONLINE)
    copy = report("b", entry(LOG, "a1", "found"), dirs=[ONLINE_DIRS[0]])
    first: Mapping[str, Observed] = {
        "has it": obeying(report("a", SERVING), EPOCH),
        "has not reported": Observed(heard_ms=0),
        "does not obey yet": Observed(report=report("a", dirs=[]), heard_ms=0),
    }
    made = plan(desired, {"a": first[other], "b": obeying(copy, EPOCH)}, 0, Configs(DEFAULTS))
    assert (made.orders["b"], made.records) == ((), ())


def test_nothing_follows_from_a_node_that_does_not_obey_this_controller() -> None:
    told = report("a", entry(OTHER, "a1", "found"))
    for stale in (
        replace(told, orders=-1),
        replace(told, orders=5, controller_epoch=EPOCH - 1),
        replace(told, orders=5, controller_epoch=EPOCH + 1),
    ):
        made = plan(desired_of(), {"a": Observed(report=stale, heard_ms=0)}, 0, Configs(DEFAULTS))
        assert (made.orders, made.records) == ({}, ())


# -- to the end ------------------------------------------------------------------------------------


class World:
    """Nodes without a fault, and a Controller that is only the fold and the plan."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.nodes = [PerfectNode(key, f"{key}1", f"{key}2") for key in "abc"]
        self.desired = Desired()
        self.desired.apply(ControllerRecord(epoch=EPOCH, node="a"))
        self.topics = 0

    def apply(self, *records: Record) -> None:
        for record in records:
            self.desired.apply(record)
        self.desired.validate()

    def plan(self) -> Plan:
        observed = {node.key: obeying(node.report(), EPOCH) for node in self.nodes}
        return plan(self.desired, observed, 0, Configs(DEFAULTS))

    def step(self) -> bool:
        """Append what follows and obey; returns whether anything did follow."""
        made = self.plan()
        self.apply(*made.records)
        touched = {getattr(record, "log", None) for record in made.records}
        for node in self.nodes:
            due = [
                order for order in made.orders[node.key] if getattr(order, "log", "") not in touched
            ]
            node.do(due)
        return bool(made.records or any(made.orders.values()))

    def disturb(self) -> None:
        """Something that a user does, or that happens."""
        online = [record for record in self.desired.partitions.values() if record.state == "online"]
        topics = list(self.desired.topics.values())
        match self.chance.randrange(5):
            case 0:
                self._create()
            case 1 if topics:
                topic = self.chance.choice(topics)
                self.apply(replace(topic, version=topic.version + 1))
            case 2 if topics:
                self._delete(self.chance.choice(topics))
            case 3 if online:
                record = self.chance.choice(online)
                place = record.directory or ""
                target = f"{place[0]}{3 - int(place[1])}"
                self.apply(replace(record, state="moving", target=target))
            case 4:
                self.chance.choice(self.nodes).restart()

    def _create(self) -> None:
        self.topics += 1
        topic = TopicRecord(name=f"t{self.topics % 3}", topic_id=f"id-{self.topics}", config={})
        if self.desired.topic_named(topic.name) is None:
            self.apply(topic)
            for number in range(self.chance.randrange(1, 5)):
                log = log_id(topic.name, number, topic.topic_id)
                kafka_id = self.desired.next_kafka_id
                node = self.chance.choice("abc")
                self.apply(PartitionRecord(log=log, state="creating", node=node, kafka_id=kafka_id))

    def _delete(self, topic: TopicRecord) -> None:
        logs = self.desired.live_logs_of(topic.topic_id)
        removing = [replace(self.desired.partitions[log], state="removing") for log in logs]
        self.apply(*removing, TopicRemovedRecord(topic_id=topic.topic_id))


@pytest.mark.parametrize("seed", range(60))
def test_in_a_world_without_faults_what_shall_be_is_after_a_while_and_the_plan_is_empty(
    seed: int,
) -> None:
    world = World(seed)
    world.step()
    for _ in range(40):
        world.disturb()
        for _ in range(world.chance.randrange(3)):
            world.step()
    steps = 0
    while world.step():
        steps += 1
        assert steps < 30
    assert is_as_desired(world.desired, world.nodes)
    assert not any(node.set_aside for node in world.nodes), "something wanted was set aside"


# -- nodes -----------------------------------------------------------------------------------------


def new_node(desired: Desired, *dirs: DirReport, others: tuple[Report, ...] = ()) -> NodeRecord:
    """What is written of a node that nobody has seen before, and that has these log dirs."""
    made = planned(desired, replace(report("new"), dirs=dirs), *others)
    (node,) = [record for record in made.records if isinstance(record, NodeRecord)]
    return node


def test_a_node_with_all_log_dirs_of_one_that_is_gone_has_its_number_and_port() -> None:
    """Clients find a machine where it was, when Ray starts anew there without a label."""
    desired = desired_of(NodeRecord(key="a", kafka_id=0, port=19_092, host="127.0.0.1"))
    heir = new_node(desired, *ONLINE_DIRS)
    assert heir == NodeRecord(key="new", kafka_id=0, port=19_092)
    desired.apply(heir)
    desired.validate()
    assert desired.nodes.keys() == {"b", "new"}
    assert desired.next_kafka_id == 2


def test_a_node_with_other_log_dirs_or_some_or_those_of_a_living_one_is_a_new_one() -> None:
    desired = desired_of()
    elsewhere = replace(ONLINE_DIRS[0], directory_id="new1")
    for dirs in ([], [elsewhere], ONLINE_DIRS[:1]):
        assert new_node(desired, *dirs).kafka_id == 2
    assert new_node(desired, *ONLINE_DIRS, others=(report("a", dirs=[]),)).kafka_id == 2


def test_a_log_that_was_moved_to_another_dir_than_the_target_is_not_recorded_in_the_target() -> (
    None
):
    """The move was cancelled, and another one ordered; the target has nothing of the log."""
    desired = desired_of(TOPIC, MOVING)
    assert records_of(desired, entry(LOG, "a1", "moved", moved_to="a3")) == ()


def test_where_a_log_is_served_is_not_recorded_while_an_order_about_it_is_under_way() -> None:
    """The order may have it served where it is recorded."""
    told = report("a", entry(LOG, "a2", config_version=1))
    seen = replace(obeying(told, EPOCH), under_way=frozenset({LOG}))
    made = plan(desired_of(TOPIC, ONLINE), {"a": seen}, 0, Configs(DEFAULTS))
    assert made.records == ()


def test_a_partition_is_not_removed_while_the_dir_that_it_was_moved_to_is_offline() -> None:
    """A copy of it, or the log itself, may lie there."""
    desired = desired_of(replace(REMOVING, directory="a1", target="a2"))
    dirs = [ONLINE_DIRS[0], replace(ONLINE_DIRS[1], state="offline", why="EIO")]
    found = records_of(desired, dirs=dirs)
    assert not any(isinstance(record, PartitionRemovedRecord) for record in found)
