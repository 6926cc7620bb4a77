"""A LogManager's machine, as transcripts: what it is told, and what it says then.

The numbers are those of the list of what must be impossible (section 2 of the issue "control by
log").
"""

from dataclasses import replace

import pytest

from raylog.actors.control import (
    Confirmed,
    DirReport,
    End,
    KeepOut,
    LogId,
    ReadBack,
    SetAside,
)
from raylog.actors.node.events import (
    ActorGone,
    ActorSaid,
    ActorSeen,
    DirFailed,
    DirsRead,
    Finished,
    IdentityFound,
    IdentityLost,
    Measured,
    Ordered,
    ReportWanted,
    Started,
    UpkeepSeen,
)
from raylog.actors.node_messages import LogOrder
from raylog.storage.errors import (
    DiskFull,
    LogMissing,
    StorageError,
    TemporaryFileLost,
)
from tests.transcripts.nodes import (
    BROKEN,
    COMPACTED,
    CONFIG,
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
    unnamed,
)


def aside(directory_id: str = "A", topic_id: str | None = "old") -> SetAside:
    return SetAside(partition=PARTITION, topic_id=topic_id, directory_id=directory_id)


# -- another life of the LogManager ----------------------------------------------------------------


def test_actors_that_lived_on_are_adopted_and_need_no_order() -> None:
    node = Node("A", folders=[folder(ORDERS, "A", is_clean=True)], served=[served(ORDERS, "A", 4)])
    assert node.began == ["start retention"]
    assert node.logs == ["orders-0 of old in A: serving with config 4"]


def test_an_adopted_actor_that_dies_is_not_started_again_unasked() -> None:
    """Its log dir may be offline by record; only the Controller knows."""
    node = Node("A", folders=[folder(ORDERS, "A")], served=[served(ORDERS, "A", 4)])
    assert node.told(ActorGone(partition=PARTITION)) == ["kill orders-0"]


def test_an_adopted_actor_that_the_controller_has_confirmed_is_started_again_at_once() -> None:
    """It waited for the next round of questions, and then for an order."""
    node = Node("A", folders=[folder(ORDERS, "A")], served=[served(ORDERS, "A", 4)])
    assert node.machine.order_of(ORDERS) is None
    assert node.obeys() == []
    order = node.machine.order_of(ORDERS)
    assert order is not None
    assert (order.directory_id, order.config_version) == ("A", 4)
    assert node.told(ActorGone(partition=PARTITION)) == ["start orders-0 of old in A with config 4"]


def test_an_adopted_actor_that_the_controller_doubts_is_not_started_again_unasked() -> None:
    node = Node("A", folders=[folder(ORDERS, "A")], served=[served(ORDERS, "A", 4)])
    doubtful = replace(node.envelope(), doubts=frozenset({ORDERS}))
    node.told(Ordered(orders=doubtful))
    node.done("write epoch 1 to A")
    assert node.machine.order_of(ORDERS) is None
    assert node.told(ActorGone(partition=PARTITION)) == ["kill orders-0"]


def test_an_actor_whose_folder_is_gone_or_another_topics_is_killed() -> None:
    for folders in ([], [folder(NEW_ORDERS, "A")]):
        node = Node("A", folders=folders, served=[served(ORDERS, "A")])
        assert node.began == ["kill orders-0"]


def test_an_actor_that_does_not_say_what_it_serves_is_killed_before_a_log_is_opened() -> None:
    node = Node("A", folders=[folder(ORDERS, "A")], strangers=[PARTITION])
    assert node.began == ["kill orders-0"]
    assert node.obeys(serve()) == []
    assert node.done("kill orders-0") == ["start orders-0 of old in A with config 1, first"]


def test_an_actor_that_uses_a_dir_which_is_not_in_use_is_killed_whenever_it_is_seen() -> None:
    node = Node("A", "B", folders=[folder(ORDERS, "A")])
    seen = ActorSeen(log=ORDERS, directory_id="gone")
    assert node.told(seen) == ["kill orders-0"]
    assert node.told(seen) == []
    node.done("kill orders-0")
    node.told(DirFailed(directory_id="B", why="input/output error"))
    assert node.told(replace(seen, directory_id="B")) == ["kill orders-0"]


def test_an_actor_that_uses_a_dir_of_this_life_is_left_to_the_order_to_serve() -> None:
    node = Node("A", folders=[folder(ORDERS, "A")])
    assert node.told(ActorSeen(log=ORDERS, directory_id="A")) == []
    assert node.obeys(serve()) == ["start orders-0 of old in A with config 1, first"]


def test_an_actor_whose_log_is_gone_is_killed_when_it_is_seen() -> None:
    """Ray has started it again; nobody will ever tell it a config."""
    for folders in ([], [folder(NEW_ORDERS, "A")], [folder(OTHERS, "A")]):
        node = Node("A", folders=folders)
        seen = ActorSeen(log=ORDERS, directory_id="A")
        assert node.told(seen) == ["kill orders-0"]
        assert node.told(seen) == []
        node.done("kill orders-0")
        assert node.told(seen) == ["kill orders-0"]


def test_but_not_one_whose_log_is_about_to_be_opened_under_its_name() -> None:
    node = Node("A", folders=[folder(NEW_ORDERS, "A")])
    node.obeys(serve(NEW_ORDERS))
    assert node.told(ActorSeen(log=ORDERS, directory_id="A")) == []


def test_nor_one_whose_folder_does_not_say_whose_it_is() -> None:
    node = Node("A", folders=[unnamed("A")])
    assert node.told(ActorSeen(log=ORDERS, directory_id="A")) == []


def test_late_news_of_an_actor_do_not_end_the_one_that_took_its_place() -> None:
    seen = ActorSeen(log=ORDERS, directory_id="gone")
    assert serving("A").told(seen) == []
    opening = Node("A", folders=[folder(ORDERS, "A")])
    opening.obeys(serve())
    assert opening.told(seen) == []


def test_what_a_dir_that_is_offline_has_is_not_known() -> None:
    broken = DirFailed(directory_id="A", why="input/output error")
    node = Node("A", "B", folders=[folder(ORDERS, "A")])
    node.told(broken)
    assert node.logs == ["orders-0 of old in A: closing (LogDirOffline)"]
    assert node.told(broken) == []
    node.done("kill orders-0")
    assert node.logs == ["orders-0 of old in A: failed (LogDirOffline)"]


def test_reports_are_numbered_and_made_anew_when_something_changes() -> None:
    node = serving("A")
    count = len(node.reports)
    assert [report.number for report in node.reports] == list(range(1, count + 1))
    node.told(ActorSaid(served=served(ORDERS, "A", end=10)))
    node.later(2_999)
    assert len(node.reports) == count
    node.later(1)
    assert len(node.reports) == count + 1
    assert node.report.logs[0].log_end_offset == 10
    node.told(UpkeepSeen(kinds=("retention",)))
    assert node.report.upkeep == ("retention",)
    assert len(node.reports) == count + 2
    node.told(UpkeepSeen(kinds=("retention",)))
    assert len(node.reports) == count + 2
    node.told(Measured(usable_bytes={"A": 7}, room=5))
    node.later(3_000)
    assert (node.report.room, node.report.dirs[0].usable_bytes) == (5, 7)


def test_a_controller_that_comes_is_told_what_is_so_and_waits_for_no_interval() -> None:
    """After its restart it can begin nothing before each node has reported."""
    node = serving("A")
    count = len(node.reports)
    assert node.told(ReportWanted()) == []
    assert len(node.reports) == count + 1
    assert node.report.number == node.reports[-2].number + 1


# -- number 6: a log dir that failed ---------------------------------------------------------------


def test_what_a_failed_dir_has_is_neither_served_nor_opened_until_it_was_read_back() -> None:
    node = serving("A", "B")
    assert node.told(DirFailed(directory_id="A", why="input/output error")) == [
        "kill orders-0",
        "close A",
    ]
    assert node.report.dirs[0].state == "offline"
    assert node.logs == ["orders-0 of old in A: closing (LogDirOffline)"], "it may live yet"
    node.failed("kill orders-0", HANGS)
    assert node.logs == ["orders-0 of old in A: closing (LogDirOffline)"]
    node.later(1000)
    node.done("kill orders-0")
    assert node.logs == ["orders-0 of old in A: failed (LogDirOffline)"]
    assert node.orders(serve()) == []
    assert node.later(600_000) == []
    assert node.orders(ReadBack(directory_id="A")) == ["read A back"]
    assert node.orders(ReadBack(directory_id="A")) == []
    report = replace(dir_report("A"), is_read_back=True)
    back = DirsRead(dirs=(report,), folders=(folder(ORDERS, "A"),))
    assert node.told(back) == ["write epoch 1 to A"]
    node.done("read A back")
    assert node.report.dirs[0].is_read_back
    assert node.logs == ["orders-0 of old in A: found"]
    assert node.orders(ReadBack(directory_id="A")) == []
    assert node.done("write epoch 1 to A") == []
    assert node.orders(serve()) == ["start orders-0 of old in A with config 1, first"]


def test_a_dir_in_use_is_read_back_only_when_nobody_writes_to_it_any_more() -> None:
    node = serving("A")
    node.orders(serve(version=2))
    assert node.orders(ReadBack(directory_id="A")) == ["kill orders-0", "close A"]
    assert node.failed("configure orders-0 of old with 2", HANGS) == []
    assert node.done("kill orders-0") == ["unlock A", "read A back"]
    assert node.failed("read A back", BROKEN) == []
    assert node.report.dirs[0].state == "offline"
    assert node.orders(ReadBack(directory_id="A"), ReadBack(directory_id="X")) == ["read A back"]


def test_a_dir_that_is_being_written_to_is_not_read_back() -> None:
    node = Node("A")
    node.obeys(create())
    node.told(DirFailed(directory_id="A", why="input/output error"))
    assert node.orders(ReadBack(directory_id="A")) == []
    assert node.failed("make orders-0 of old in A", BROKEN) == ["unlock A", "read A back"]


def test_a_dir_that_could_not_even_be_read_is_shown_once_when_it_is_back() -> None:
    unread = DirReport(directory_id=None, path="/disk/B", state="offline", why="gone")
    node = Node("A", unread)
    assert [dir.path for dir in node.report.dirs] == ["/disk/A", "/disk/B"]
    node.told(DirsRead(dirs=(dir_report("B"),)))
    assert [dir.directory_id for dir in node.report.dirs] == ["A", "B"]


def test_a_dir_that_answers_late_was_not_read_back_unless_it_says_so() -> None:
    silent = DirReport(directory_id=None, path="/disk/B", state="offline", why="silent")
    for is_read_back in (False, True):
        node = Node("A", silent)
        late = replace(dir_report("B"), is_read_back=is_read_back)
        node.told(DirsRead(dirs=(late,), folders=(folder(ORDERS, "B"),)))
        assert node.report.dirs[1].is_read_back == is_read_back
        assert node.logs == ["orders-0 of old in B: found"]


def test_a_dir_that_answers_late_and_cannot_be_used_is_shown_once() -> None:
    silent = DirReport(directory_id=None, path="/disk/B", state="offline", why="silent")
    broken = replace(silent, why="input/output error")
    node = Node("A", silent)
    node.told(DirsRead(dirs=(broken,)))
    assert [dir.why for dir in node.report.dirs] == ["", "input/output error"]
    node.told(DirsRead(dirs=(replace(broken, directory_id="B"),)))
    assert [dir.directory_id for dir in node.report.dirs] == ["A", "B"]


def test_news_of_a_dir_that_is_online_are_not_believed() -> None:
    node = serving("A")
    node.told(DirsRead(dirs=(dir_report("A"),)))
    assert node.logs == ["orders-0 of old in A: serving with config 1"]


def test_an_actor_that_was_started_in_a_dir_that_failed_meanwhile_is_killed() -> None:
    node = Node("A", folders=[folder(ORDERS, "A")])
    node.obeys(serve())
    assert node.told(DirFailed(directory_id="A", why="gone")) == ["kill orders-0", "close A"]
    assert node.done("kill orders-0") == []
    assert node.done("start orders-0 of old in A with config 1, first") == ["kill orders-0"]
    assert node.logs == ["orders-0 of old in A: closing (LogDirOffline)"]
    assert node.done("kill orders-0") == ["unlock A"]
    assert node.logs == ["orders-0 of old in A: failed (LogDirOffline)"]


def test_the_lock_of_a_dir_is_kept_until_nobody_writes_to_it_any_more() -> None:
    """Another broker must not take the dir while an actor of this one serves from it."""
    node = serving("A", "B")
    assert node.told(DirFailed(directory_id="A", why="gone")) == ["kill orders-0", "close A"]
    assert node.failed("kill orders-0", HANGS) == []
    assert node.later(1000) == ["kill orders-0"]
    assert node.done("kill orders-0") == ["unlock A"]
    assert node.later(1000) == []


def test_a_log_is_removed_in_a_dir_that_failed_as_soon_as_it_is_back() -> None:  # number 16
    node = Node("A", folders=[folder(ORDERS, "A")])
    node.obeys()
    assert node.told(DirFailed(directory_id="A", why="gone")) == ["kill orders-0", "close A"]
    node.done("kill orders-0")
    assert node.orders(remove()) == []
    assert node.logs == ["orders-0 of old in A: failed (LogDirOffline)"]
    report = replace(dir_report("A"), is_read_back=True)
    back = DirsRead(dirs=(report,), folders=(folder(ORDERS, "A"),))
    assert node.told(back) == ["write epoch 1 to A"]
    assert node.done("write epoch 1 to A") == ["doom orders-0 of old in A"]


# -- number 5: what is no disk failure -------------------------------------------------------------


def test_a_disk_error_takes_the_dir_offline_whose_file_it_names() -> None:
    node = serving("A", "B")
    node.orders(serve(OTHERS), create(OTHERS))
    said = node.failed("make orders-1 of old in B", StorageError("/disk/A/x", "input/output error"))
    assert "kill orders-0" in said
    assert [dir.state for dir in node.report.dirs] == ["offline", "online"]


def test_a_disk_error_does_not_take_a_dir_offline_whose_path_begins_like_the_one_that_failed() -> (
    None
):
    node = Node("1", "10", folders=[folder(ORDERS, "10")])
    node.obeys(serve(ORDERS, "10"))
    broken = StorageError("/disk/10/orders-0", "input/output error")
    node.failed("start orders-0 of old in 10 with config 1, first", broken)
    assert [dir.state for dir in node.report.dirs] == ["online", "offline"]


def test_a_disk_error_may_name_the_dir_itself() -> None:
    node = Node("1", "10", folders=[folder(ORDERS, "10")])
    node.obeys(serve(ORDERS, "10"))
    broken = StorageError("/disk/1", "input/output error")
    node.failed("start orders-0 of old in 10 with config 1, first", broken)
    assert [dir.state for dir in node.report.dirs] == ["offline", "online"]


def test_a_disk_error_without_a_place_is_of_the_dir_that_was_used() -> None:
    node = serving("A", "B")
    node.orders(serve(version=2))
    said = node.failed("configure orders-0 of old with 2", StorageError("?", "input/output error"))
    assert said == ["kill orders-0", "close A"]
    assert [dir.state for dir in node.report.dirs] == ["offline", "online"]


@pytest.mark.parametrize(
    "error",
    [
        LogMissing("/disk/A/orders-0", "no such folder"),
        TemporaryFileLost("/disk/A/orders-0/x.tmp"),
        DiskFull("/disk/A/orders-0"),
    ],
)
def test_a_folder_or_a_file_of_ours_that_is_missing_is_no_disk_failure(
    error: LogMissing | TemporaryFileLost | DiskFull,
) -> None:
    node = Node("A", "B", folders=[folder(ORDERS, "A")])
    node.obeys(serve())
    node.failed("start orders-0 of old in A with config 1, first", error)
    assert [dir.state for dir in node.report.dirs] == ["online", "online"]


# -- number 7: damaged folders of what is served ---------------------------------------------------


def test_the_word_of_a_living_actor_counts_where_its_folder_says_nothing() -> None:
    node = serving("A")
    lost = IdentityLost(partition=PARTITION, directory_id="A")
    assert node.told(lost) == ["write the identity of orders-0 of old in A"]
    assert node.logs == ["orders-0 of old in A: serving with config 1"]
    assert node.orders(aside("A", None), aside("A", "old")) == []
    assert node.done("write the identity of orders-0 of old in A") == []
    assert node.told(lost) == ["write the identity of orders-0 of old in A"]
    assert node.failed("write the identity of orders-0 of old in A", HANGS) == []


def test_the_same_after_a_restart_of_the_log_manager() -> None:
    node = Node("A", folders=[unnamed("A")], served=[served(ORDERS, "A")])
    assert node.began[0] == "write the identity of orders-0 of old in A"
    assert node.logs == ["orders-0 of old in A: serving with config 1"]
    assert node.obeys(aside("A", None)) == []


def test_a_folder_whose_identity_was_restored_is_opened() -> None:
    node = Node("A", folders=[unnamed("A")])
    assert node.obeys() == []
    assert node.logs == ["orders-0 of None in A: found"]
    for _ in range(2):
        assert node.told(IdentityFound(folder=folder(ORDERS, "A"))) == []
        assert node.logs == ["orders-0 of old in A: found"]
    assert node.orders(serve()) == ["start orders-0 of old in A with config 1, first"]


def test_a_folder_that_is_being_set_aside_is_not_opened_meanwhile() -> None:
    node = Node("A", folders=[unnamed("A")])
    assert node.obeys(aside("A", None)) == ["put orders-0 of None in A aside"]
    assert node.told(IdentityFound(folder=folder(ORDERS, "A"))) == []
    assert node.failed("put orders-0 of None in A aside", HANGS) == []
    assert node.told(IdentityFound(folder=folder(ORDERS, "A"))) == []
    assert node.logs == ["orders-0 of old in A: found"]


def test_a_folder_that_is_not_served_and_does_not_say_whose_it_is_is_set_aside_by_order() -> None:
    node = Node("A", folders=[folder(ORDERS, "A")])
    node.told(IdentityLost(partition=PARTITION, directory_id="A"))
    assert node.logs == ["orders-0 of None in A: found"]
    assert node.obeys(create(NEW_ORDERS)) == []
    assert node.orders(aside("A", "old")) == []
    assert node.orders(aside("A", None)) == ["put orders-0 of None in A aside"]
    assert node.orders(aside("A", None)) == []
    assert "orders-0 of None in A: closing" in node.logs
    said = node.done("put orders-0 of None in A aside")
    assert said == ["make orders-0 of new in A"]


def test_a_folder_that_could_not_be_set_aside_stays_until_the_next_order() -> None:
    node = Node("A", folders=[unnamed("A"), folder(OTHERS, "A")])
    other = SetAside(partition=OTHERS.partition, topic_id="old", directory_id="A")
    node.obeys(aside("A", None), other)
    assert node.failed("put orders-0 of None in A aside", HANGS) == []
    assert node.failed("put orders-1 of old in A aside", HANGS) == []
    assert node.logs == ["orders-0 of None in A: found", "orders-1 of old in A: found"]
    assert len(node.orders(aside("A", None), other)) == 2
    assert node.done("put orders-1 of old in A aside") == []
    assert node.logs == ["orders-0 of None in A: closing"]


def test_nothing_that_is_served_opened_or_wanted_is_set_aside() -> None:
    node = Node("A", folders=[folder(ORDERS, "A")])
    node.obeys(serve())
    assert node.orders(aside()) == []
    node.done("start orders-0 of old in A with config 1, first")
    assert node.orders(aside()) == []
    node.told(ActorGone(partition=PARTITION))
    assert node.orders(aside()) == []
    node.failed("start orders-0 of old in A with config 1", HANGS)
    assert node.orders(aside()) == ["put orders-0 of old in A aside"]
    assert node.orders(serve()) == []
    assert node.done("put orders-0 of old in A aside") == []
    assert node.logs == []


def test_what_is_being_removed_is_not_set_aside_as_well() -> None:
    node = serving("A")
    node.orders(remove())
    assert node.orders(aside()) == []
    node.done("end orders-0 of old")
    assert node.orders(aside()) == []


# -- numbers 1 and 9: upkeep -----------------------------------------------------------------------

ROUNDS = {"log.retention.check.interval.ms": 10_000, "log.cleaner.backoff.ms": 20_000}


def confirmed(node: Node, now_ms: int) -> dict[LogId, int]:
    """The config versions under which records may be removed."""
    return {log: right.config_version for log, right in node.machine.rights(now_ms).items()}


def upkeep() -> Node:
    node = serving("A", config=ROUNDS)
    assert node.later(0) == ["start retention"]
    assert node.told(UpkeepSeen(kinds=("retention",))) == []
    return node


def test_retention_runs_on_logs_whose_config_the_controller_has_confirmed() -> None:
    node = upkeep()
    assert node.later(10_000) == []
    node.orders()
    assert node.later(1) == ["run retention: orders-0 of old with 1"]
    assert node.later(9_999) == []
    assert node.later(1) == ["run retention: orders-0 of old with 1"]


def test_a_log_that_is_gone_is_named_no_more() -> None:
    """The last one, too: else its actor would speak of it for ever."""
    node = upkeep()
    node.orders()
    assert node.later(10_000) == ["run retention: orders-0 of old with 1"]
    node.orders(remove())
    node.done("end orders-0 of old")
    assert "run retention: nothing" in node.later(10_000)
    assert node.later(10_000) == []


def test_nothing_is_removed_from_a_log_that_is_ended_since_nobody_knows_it() -> None:
    node = upkeep()
    node.orders()
    assert confirmed(node, 0) == {ORDERS: 1}
    node.orders(End(log=ORDERS))
    assert confirmed(node, 0) == {}


def test_what_was_confirmed_holds_for_20_seconds_from_the_report_on() -> None:
    node = upkeep()
    made = node.report.number
    node.later(15_000)  # so long the report and its answer were on their way
    node.told(Ordered(orders=node.envelope(report=made)))
    right = Confirmed(log=ORDERS, config_version=1, until_ms=20_000)
    assert node.machine.rights(19_999) == {ORDERS: right}
    assert node.machine.rights(20_000) == {}


def test_a_node_without_a_controller_deletes_nothing() -> None:
    node = upkeep()
    node.orders()
    rounds = [said for _ in range(20) for said in node.later(10_000)]
    assert rounds == ["run retention: orders-0 of old with 1"]


def test_no_upkeep_while_a_newer_config_is_ordered_and_not_obeyed() -> None:
    node = upkeep()
    node.orders()
    node.orders(serve(version=2))
    node.failed("configure orders-0 of old with 2", HANGS)
    node.orders()  # names no orders, as after a message that was lost
    assert node.later(10_000) == []
    node.orders(serve(version=2))
    node.done("configure orders-0 of old with 2")
    assert node.later(10_000) == []
    node.orders(serve(version=2))
    assert node.later(1) == ["run retention: orders-0 of old with 2"]


def test_what_the_controller_doubts_is_not_confirmed() -> None:
    """It orders nothing while it writes down a newer config, or does not know what to order."""
    node = upkeep()
    orders = replace(node.envelope(), doubts=frozenset({ORDERS}))
    node.told(Ordered(orders=orders))
    assert confirmed(node, 0) == {}


def test_orders_confirm_only_what_their_report_has_shown() -> None:
    node = serving("A", config=ROUNDS)
    before = node.report.number
    node.told(ActorGone(partition=PARTITION))
    node.done("start orders-0 of old in A with config 1")
    node.told(Ordered(orders=node.envelope(report=before)))
    assert confirmed(node, 0) == {}
    node.told(Ordered(orders=node.envelope(report=-1)))
    assert confirmed(node, 0) == {}
    node.orders()
    assert confirmed(node, 0) == {ORDERS: 1}
    node.orders(serve(version=2))
    assert confirmed(node, 0) == {}


def test_a_word_from_the_report_before_does_not_confirm_what_changed_since() -> None:
    node = upkeep()
    node.orders(serve(version=2))
    before = node.report.number
    node.done("configure orders-0 of old with 2")
    assert node.report.number == before + 1
    node.told(Ordered(orders=node.envelope(report=before)))
    assert confirmed(node, 0) == {}
    node.orders()
    assert confirmed(node, 0) == {ORDERS: 2}


def test_a_log_that_is_to_go_is_not_confirmed() -> None:
    node = upkeep()
    node.orders()
    node.orders(remove())
    assert confirmed(node, 0) == {}


def test_orders_for_a_dir_without_the_log_confirm_no_older_config() -> None:
    node = serving("A", "B")
    node.orders(serve(ORDERS, "B", version=2))
    assert confirmed(node, 0) == {}


def test_a_log_is_not_confirmed_by_another_topics_log_of_its_name() -> None:
    node = serving("A", "B")
    node.told(ActorGone(partition=PARTITION))
    node.failed("start orders-0 of old in A with config 1", HANGS)
    node.orders(create(NEW_ORDERS))
    node.done("make orders-0 of new in B")
    node.orders(serve(NEW_ORDERS, "B"))
    node.done("start orders-0 of new in B with config 1, clean")
    node.orders()
    assert confirmed(node, 0) == {NEW_ORDERS: 1}


def test_another_life_of_an_actor_is_confirmed_anew() -> None:
    node = upkeep()
    node.orders()
    assert confirmed(node, 0) == {ORDERS: 1}
    node.told(ActorGone(partition=PARTITION))
    node.done("start orders-0 of old in A with config 1")
    assert confirmed(node, 0) == {}


def test_upkeep_that_is_missing_is_started_again() -> None:
    node = serving("A", config=ROUNDS)
    node.orders()
    assert node.later(0) == ["start retention"]
    assert node.later(0) == []
    assert node.told(UpkeepSeen(kinds=())) == ["start retention"]
    assert node.later(10_000) == []  # nobody is there to run
    assert node.told(UpkeepSeen(kinds=("retention",))) == ["run retention: orders-0 of old with 1"]
    assert node.told(UpkeepSeen(kinds=())) == ["start retention"]
    assert node.report.upkeep == ()


def test_compacted_logs_are_the_business_of_compaction() -> None:
    node = Node("A", folders=[folder(ORDERS, "A")], config=ROUNDS)
    node.obeys(serve(config=COMPACTED))
    node.done("start orders-0 of old in A with config 1, first")
    node.orders()
    assert node.later(0) == ["start compaction"]
    node.told(UpkeepSeen(kinds=("compaction",)))
    assert node.later(19_999) == []
    node.orders()
    assert node.later(1) == ["run compaction: orders-0 of old with 1"]


@pytest.mark.parametrize("off", [{"log.cleaner.enable": "false"}, {"log.cleaner.threads": "0"}])
def test_a_node_without_cleaner_compacts_nothing(off: dict[str, str]) -> None:
    node = Node("A", folders=[folder(ORDERS, "A")], config={**ROUNDS, **off})
    node.obeys(serve(config=COMPACTED))
    node.done("start orders-0 of old in A with config 1, first")
    node.orders()
    assert node.told(UpkeepSeen(kinds=("compaction",))) == []
    assert node.later(60_000) == []


# -- number 10: who hangs stops nobody else --------------------------------------------------------


def test_what_hangs_stops_neither_reports_nor_other_logs() -> None:
    node = serving("A", "B")
    node.orders(serve(version=2))  # the actor hangs
    node.orders(create(OTHERS))
    node.done("make orders-1 of old in B")  # and so does this one
    node.orders(serve(OTHERS, "B"))
    number = node.report.number
    node.later(3_000)
    assert node.report.number == number + 1
    assert node.orders(create(NEW_ORDERS)) == ["make orders-0 of new in B"]


# -- the machine itself ----------------------------------------------------------------------------


def test_an_answer_that_comes_twice_changes_nothing() -> None:
    node = serving("A")
    assert node.told(Finished(token=1)) == []


def test_a_life_begins_once() -> None:
    node = Node("A")
    with pytest.raises(AssertionError, match="Started"):
        node.told(Started(dirs=()))


# -- number 6: offline outlives the LogManager -----------------------------------------------------


def test_a_dir_that_is_offline_by_record_is_kept_out_of_use() -> None:
    node = Node("A", "B", served=[served(ORDERS, "A")], folders=[folder(ORDERS, "A")])
    said = node.obeys(KeepOut(directory_id="A", why="an fsync failed"))
    assert said == ["kill orders-0", "close A"]
    offline = node.report.dirs[0]
    assert (offline.state, offline.why, offline.is_read_back) == (
        "offline",
        "an fsync failed",
        False,
    )
    assert node.orders(KeepOut(directory_id="A", why="an fsync failed")) == []
    node.done("kill orders-0")
    assert node.orders(ReadBack(directory_id="A")) == ["read A back"]


def test_what_nobody_uses_is_closed_before_it_is_read_back() -> None:
    node = Node("A")
    assert node.obeys(ReadBack(directory_id="A")) == ["close A", "unlock A", "read A back"]


def test_a_report_says_whether_ray_has_started_the_log_manager_again() -> None:
    assert Node("A", is_restarted=True).report.is_restarted
    assert not Node("A").report.is_restarted


def test_a_dir_that_was_read_from_the_disk_at_the_start_is_reported_so() -> None:
    node = Node(replace(dir_report("A"), is_read_back=True), "B")
    assert [dir.is_read_back for dir in node.report.dirs] == [True, False]
    assert node.obeys(ReadBack(directory_id="A")) == []


# -- what LogActors and upkeep ask -----------------------------------------------------------------


def ordered(version: int = 1) -> LogOrder:
    """What the actor of orders-0 in A shall obey."""
    return LogOrder(
        log=ORDERS,
        directory_id="A",
        config=CONFIG,
        config_version=version,
        controller_epoch=1,
    )


def test_an_actor_that_ray_has_started_again_obeys_what_was_ordered_last() -> None:
    node = serving("A")
    assert node.machine.order_of(ORDERS) == ordered()
    node.orders(serve(version=2))
    assert node.machine.order_of(ORDERS) == ordered(version=2)
    node.told(ActorGone(partition=PARTITION))
    assert node.machine.order_of(ORDERS) == ordered(version=2)


def test_an_actor_that_nobody_has_ordered_to_serve_in_this_life_has_no_order() -> None:
    node = Node("A", served=[served(ORDERS, "A")], folders=[folder(ORDERS, "A")])
    assert node.machine.order_of(ORDERS) is None, "it was adopted"
    assert node.machine.order_of(OTHERS) is None, "nobody knows it"
    node.obeys(serve())
    assert node.machine.order_of(ORDERS) == ordered()
    node.orders(remove())
    assert node.machine.order_of(ORDERS) is None


def test_an_actor_in_a_dir_that_failed_has_no_order() -> None:
    node = serving("A")
    node.told(DirFailed(directory_id="A", why="gone"))
    assert node.machine.order_of(ORDERS) is None


def test_an_actor_that_was_ended_for_a_move_has_no_order() -> None:
    node = serving("A", "B")
    node.orders(move())
    assert node.machine.order_of(ORDERS) == ordered()
    node.done("copy orders-0 of old from A to B")
    assert node.machine.order_of(ORDERS) is None, "it is being ended"
    node.done("end orders-0 of old, closed in order")
    assert node.machine.order_of(ORDERS) is None


def test_what_is_served_is_known_as_the_actors_told_it_last() -> None:
    node = serving("A")
    node.told(ActorSaid(served=served(ORDERS, "A", end=7)))
    assert node.machine.served() == (served(ORDERS, "A", end=7),)
    node.told(ActorGone(partition=PARTITION))
    assert node.machine.served() == ()


def test_the_epoch_of_the_controller_is_the_one_that_the_disks_have() -> None:
    node = Node("A", controller_epoch=3)
    assert node.machine.controller_epoch == 3
    node.epoch = 5
    node.orders()
    assert node.machine.controller_epoch == 3
    node.done("write epoch 5 to A")
    assert node.machine.controller_epoch == 5
