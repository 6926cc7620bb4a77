"""Which node is replaced for another config of the broker, and what holds that up."""

from dataclasses import replace

from raylog.actors.control import DirReport, LogId, LogReport, Report
from raylog.actors.node.broker_config import BrokerConfig
from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.observed import SUSPECT_MS, Observed
from raylog.cluster.controller.records import (
    ControllerRecord,
    DirRecord,
    NodeRecord,
    PartitionRecord,
    Record,
    TopicRecord,
)
from raylog.cluster.controller.rolling import (
    Roll,
    digests_of,
    has_outdated,
    outdated_nodes,
    roll,
)
from raylog.storage.names import TopicPartition
from raylog.storage.wire import RELEASE

LOG = LogId(partition=TopicPartition("t", 0), topic_id="id-t")
OLD = digests_of(BrokerConfig.parse({"log.dirs": "/a"}))
NEW = digests_of(BrokerConfig.parse({"log.dirs": "/a,/b", "log.cleaner.threads": 2}))
SERVED = LogReport(partition=LOG.partition, topic_id="id-t", directory_id="b1", state="serving")


def desired(*records: Record) -> Desired:
    """Nodes a and b; b has the only partition."""
    made = Desired()
    first: tuple[Record, ...] = (
        ControllerRecord(epoch=1, node="a"),
        NodeRecord(key="a", kafka_id=0, port=0),
        NodeRecord(key="b", kafka_id=1, port=0),
        DirRecord(directory_id="b1", node="b", path="/b1", state="online"),
        TopicRecord(name="t", topic_id="id-t", config={}),
        PartitionRecord(log=LOG, state="online", directory="b1", kafka_id=2),
    )
    for record in (*first, *records):
        made.apply(record)
    return made


def node(key: str, digests: object = OLD, *logs: LogReport, software: str = RELEASE) -> Observed:
    assert isinstance(digests, type(OLD))
    report = Report(
        node=key,
        life=f"{key}-life",
        number=1,
        controller_epoch=1,
        dirs=(DirReport(directory_id=f"{key}1", path=f"/{key}1", state="online"),),
        logs=logs,
        orders=1,
        software=software,
        config_digest=digests.at_once,
        start_digest=digests.by_start,
    )
    return Observed(report=report, heard_ms=0)


def test_the_first_node_is_replaced_while_the_others_wait() -> None:
    nodes = {"a": node("a"), "b": node("b", OLD, SERVED)}
    assert roll(desired(), nodes, 0, NEW) == Roll(node="a")


def test_nobody_is_replaced_where_all_were_started_with_it() -> None:
    nodes = {"a": node("a", NEW), "b": node("b", NEW, SERVED)}
    assert roll(desired(), nodes, 0, NEW) == Roll()


def test_a_node_that_is_closing_its_logs_keeps_its_turn() -> None:
    closing = replace(node("b", OLD, SERVED), ending_ms=0, may_end=True)
    turn = roll(desired(), {"a": node("a"), "b": closing}, 0, NEW)
    assert turn == Roll(node="b", waits_for="node b is closing its logs")


def test_nobody_is_replaced_while_a_node_has_not_come_back() -> None:
    nodes = {"a": node("a"), "b": Observed(heard_ms=0)}
    assert roll(desired(), nodes, 0, NEW) == Roll(waits_for="node b has not come back")


def test_nobody_is_replaced_while_a_node_with_partitions_is_away() -> None:
    assert roll(desired(), {"a": node("a")}, 0, NEW) == Roll(waits_for="node b is away")


def test_a_node_that_is_away_holds_nobody_up_for_what_is_to_be_removed() -> None:
    made = desired()
    made.apply(replace(made.partitions[LOG], state="removing"))
    assert roll(made, {"a": node("a")}, 0, NEW) == Roll(node="a")


def test_nobody_is_replaced_while_a_node_is_silent() -> None:
    nodes = {"a": replace(node("a"), heard_ms=SUSPECT_MS + 1), "b": node("b", OLD, SERVED)}
    turn = roll(desired(), nodes, SUSPECT_MS + 1, NEW)
    assert turn == Roll(waits_for="node b does not answer")


def test_nobody_is_replaced_before_the_last_one_serves_all_of_its_partitions() -> None:
    nodes = {"a": node("a"), "b": node("b", NEW)}
    assert roll(desired(), nodes, 0, NEW) == Roll(
        waits_for="partition t-0 of node b does not serve"
    )


def test_what_lies_in_a_log_dir_that_is_offline_holds_nobody_up() -> None:
    offline = DirRecord(directory_id="b1", node="b", path="/b1", state="offline", why="EIO")
    nodes = {"a": node("a"), "b": node("b", NEW)}
    assert roll(desired(offline), nodes, 0, NEW) == Roll(node="a")


def test_a_partition_that_is_being_moved_and_does_not_serve_holds_others_up() -> None:
    moving = PartitionRecord(log=LOG, state="moving", directory="b1", target="b2", kafka_id=2)
    nodes = {"a": node("a"), "b": node("b", NEW)}
    assert roll(desired(moving), nodes, 0, NEW) == Roll(
        waits_for="partition t-0 of node b does not serve"
    )


def test_nobody_is_replaced_while_a_node_obeys_the_controller_of_before() -> None:
    nodes = {"a": node("a"), "b": node("b", OLD, SERVED)}
    turn = roll(desired(ControllerRecord(epoch=2, node="a")), nodes, 0, NEW)
    assert turn == Roll(waits_for="node a does not answer")


def test_no_other_node_is_stopped_while_an_old_one_does_not_serve() -> None:
    opening = replace(SERVED, state="opening")
    nodes = {"a": node("a"), "b": node("b", OLD, opening)}
    assert roll(desired(), nodes, 0, NEW) == Roll(node="b")


def test_of_two_old_nodes_that_do_not_serve_neither_is_stopped() -> None:
    log = replace(LOG, partition=TopicPartition("t", 1))
    made = desired()
    made.apply(DirRecord(directory_id="a1", node="a", path="/a1", state="online"))
    made.apply(PartitionRecord(log=log, state="online", directory="a1", kafka_id=1))
    nodes = {"a": node("a"), "b": node("b")}
    assert roll(made, nodes, 0, NEW) == Roll(waits_for="partition t-0 of node b does not serve")


def test_a_node_that_an_operator_has_stopped_holds_nobody_up() -> None:
    stopped = desired(NodeRecord(key="b", kafka_id=1, port=0, state="stopped"))
    assert roll(stopped, {"a": node("a"), "b": Observed(heard_ms=0)}, 0, NEW) == Roll(node="a")


def test_nodes_that_obey_an_older_config_are_named_with_what_they_wait_for() -> None:
    taking = replace(OLD, by_start=NEW.by_start)
    nodes = {"a": node("a"), "b": node("b", taking)}
    assert outdated_nodes(desired(), nodes, 0, NEW) == {
        "a": "it is to be closed and started with the present config; waits: partition t-0 of "
        "node b does not serve",
        "b": "it has not taken the present config yet",
    }


def test_a_node_that_is_to_stop_need_not_obey_the_present_config() -> None:
    """It is closing its logs, and is started with the config of that time."""
    stopped = desired(NodeRecord(key="a", kafka_id=0, port=0, state="stopped"))
    nodes = {"a": node("a"), "b": node("b", NEW, SERVED)}
    assert outdated_nodes(stopped, nodes, 0, NEW) == {}
    assert not has_outdated(stopped, nodes, NEW)


def test_a_node_of_an_older_raylog_does_not_say_what_it_obeys() -> None:
    silent = replace(OLD, at_once="", by_start="")
    assert outdated_nodes(desired(), {"a": node("a", silent)}, 0, NEW) == {}


def test_a_node_of_another_release_is_not_replaced_for_a_digest_which_may_be_of_other_keys() -> (
    None
):
    nodes = {"a": node("a", software="0.0.9"), "b": node("b", NEW, SERVED)}
    assert roll(desired(), nodes, 0, NEW) == Roll()
    assert outdated_nodes(desired(), nodes, 0, NEW) == {
        "a": f"it runs raylog 0.0.9 and the Controller {RELEASE}: it obeys all of the present "
        "config when both run the same",
    }


def test_a_node_of_another_release_holds_others_up_until_it_serves() -> None:
    nodes = {"a": node("a"), "b": node("b", software="0.0.9")}
    assert roll(desired(), nodes, 0, NEW) == Roll(
        waits_for="partition t-0 of node b does not serve"
    )
