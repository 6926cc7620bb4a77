"""A node as its operator sees it: each state, and which node is meant by a name."""

from dataclasses import replace

import msgpack
import pytest

from raylog.actors.control import LogId
from raylog.actors.node.broker_config import BrokerConfig
from raylog.cluster.controller.describe import Snapshot
from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.node_states import (
    NodeDescription,
    bootstrap_servers,
    describe_node_list,
    key_of,
    keys_of,
    servers_by_listener,
    servers_told,
)
from raylog.cluster.controller.observed import Observed
from raylog.cluster.controller.records import (
    ControllerRecord,
    DirRecord,
    NodeRecord,
    NodeState,
    PartitionRecord,
    Record,
    decode,
    encode,
)
from raylog.storage.errors import LogLocked
from raylog.storage.names import TopicPartition
from tests.harness.control_nodes import PerfectNode, obeying

EPOCH = 1
ID = "ab" * 28


def snapshot(
    seen: Observed | None, wanted: NodeState = "online", *, now_ms: int = 0, key: str = "disk"
) -> Snapshot:
    """One node, that has one log dir."""
    desired = Desired()
    desired.controller = ControllerRecord(epoch=EPOCH, node="a")
    desired.apply(NodeRecord(key=key, kafka_id=0, port=0, state=wanted))
    desired.apply(DirRecord(directory_id="d", node=key, path="/d", state="online"))
    observed = {} if seen is None else {key: seen}
    return Snapshot(desired=desired, observed=observed, node_ids={key: ID}, now_ms=now_ms)


def obeys() -> Observed:
    return obeying(PerfectNode("disk", "d").report(), EPOCH)


def only(view: Snapshot, **problems: str) -> NodeDescription:
    (node,) = describe_node_list(view, problems, {})
    return node


@pytest.mark.parametrize(
    ("seen", "wanted", "state"),
    [
        (obeys(), "online", "online"),
        (obeys(), "draining", "draining"),
        (obeys(), "stopped", "stopping"),
        (Observed(heard_ms=0, is_ended=True), "stopped", "stopped"),
        (Observed(heard_ms=0, is_clean=True), "stopped", "stopping"),
        (None, "stopped", "stopped"),
        (None, "online", "away"),
        (None, "draining", "away"),
        (Observed(heard_ms=0), "online", "starting"),
    ],
)
def test_the_state_of_a_node_is_what_it_shall_be_and_what_it_is(
    seen: Observed | None, wanted: NodeState, state: str
) -> None:
    assert only(snapshot(seen, wanted)).state == state


def test_a_node_whose_log_manager_is_silent_is_suspect_also_while_it_is_drained() -> None:
    node = only(snapshot(obeys(), "draining", now_ms=20_000))
    assert node.state == "suspect"
    assert "has not reported for 20 s" in node.why
    assert "what it serves is as it said last" in node.why


def test_a_node_whose_log_manager_cannot_start_is_apart_and_says_why() -> None:
    node = only(snapshot(Observed(heard_ms=0), now_ms=20_000), disk=str(LogLocked("/d")))
    assert node.state == "apart"
    assert "/d" in node.why


def test_a_node_that_takes_no_part_is_listed() -> None:
    view = snapshot(obeys())
    nodes = describe_node_list(view, {}, {"other": "its label is another's"})
    assert [(node.node, node.state) for node in nodes] == [("disk", "online"), ("other", "apart")]


def test_a_node_that_left_for_good_with_its_log_dirs_elsewhere_is_not_listed() -> None:
    view = snapshot(None)
    view.desired.apply(DirRecord(directory_id="d", node="new", path="/d", state="online"))
    assert [node.node for node in describe_node_list(view, {}, {})] == []


def test_a_stopped_node_is_listed_also_where_another_one_has_its_log_dirs() -> None:
    view = snapshot(None, "stopped")
    view.desired.apply(DirRecord(directory_id="d", node="new", path="/d", state="online"))
    view.desired.apply(NodeRecord(key="new", kafka_id=1, port=0))
    listed = {node.node: node.state for node in describe_node_list(view, {}, {})}
    assert listed["disk"] == "stopped"


def test_the_beginning_of_several_ids_means_no_node() -> None:
    view = snapshot(obeys(), key=ID)
    view.desired.apply(NodeRecord(key="abcd" * 14, kafka_id=1, port=0, state="draining"))
    assert key_of(replace(view, node_ids={}), "ab") is None
    assert key_of(replace(view, node_ids={}), "abc") == "abcd" * 14


def test_the_log_dirs_of_a_stopped_node_are_those_that_are_recorded() -> None:
    assert only(snapshot(Observed(heard_ms=0, is_ended=True), "stopped")).log_dirs == ("/d",)


@pytest.mark.parametrize("name", ["disk", ID, "ab", "abab"])
def test_a_node_is_meant_by_its_label_by_rays_id_or_by_the_beginning_of_that(name: str) -> None:
    assert key_of(snapshot(obeys()), name) == "disk"


@pytest.mark.parametrize("name", ["", "dis", "cd", "/d"])
def test_nothing_else_means_a_node(name: str) -> None:
    assert key_of(snapshot(obeys()), name) is None


def test_a_node_that_is_away_is_meant_by_its_whole_label_or_the_beginning_of_its_id() -> None:
    labelled = replace(snapshot(None), node_ids={})
    assert [key_of(labelled, name) for name in ("disk", "dis")] == ["disk", None]
    unlabelled = replace(snapshot(None, key=ID), node_ids={})
    assert key_of(unlabelled, "abab") == ID


OLD = "e1" * 28
GONE = NodeRecord(key="gone", kafka_id=1, port=0)


def with_gone(*records: Record) -> Snapshot:
    """A node that serves, and one that is not in the cluster, of which only this is recorded."""
    view = snapshot(obeys())
    for record in (GONE, *records):
        view.desired.apply(record)
    return view


def test_a_node_that_is_gone_and_has_nothing_recorded_to_it_is_no_node() -> None:
    view = with_gone()
    assert key_of(view, "gone") is None
    assert keys_of(view) == {"disk"}


def test_a_start_that_is_repeated_names_a_node_that_is_gone_by_its_label_or_short_id() -> None:
    """A few letters, mistyped, would fit one of all the nodes that ever took part."""
    view = with_gone(NodeRecord(key=OLD, kafka_id=2, port=0))
    for name, meant in {"gone": "gone", OLD: OLD, OLD[:8]: OLD, OLD[:7]: None, "e": None}.items():
        assert key_of(view, name, is_start=True) == meant, name


@pytest.mark.parametrize(
    "record",
    [
        replace(GONE, state="stopped"),
        replace(GONE, state="draining"),
        DirRecord(directory_id="g", node="gone", path="/g", state="online"),
        PartitionRecord(
            log=LogId(partition=TopicPartition("t", 0), topic_id="id-t"),
            state="creating",
            node="gone",
        ),
    ],
    ids=["stopped", "drained", "with a log dir", "with a partition to make"],
)
def test_one_that_is_gone_is_a_node_while_something_is_recorded_to_it(record: Record) -> None:
    view = with_gone(record)
    assert key_of(view, "gone") == "gone"
    assert [node.node for node in describe_node_list(view, {}, {})] == ["disk", "gone"]


# -- the record ------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["online", "draining", "stopped"])
def test_what_a_node_shall_be_is_written_and_read(state: NodeState) -> None:
    record = NodeRecord(key="disk", kafka_id=3, port=4, state=state)
    assert decode(encode(record)) == record


def test_a_node_of_an_older_raylog_is_online() -> None:
    older = msgpack.packb({"kind": "node", "v": 1, "key": "disk", "kafka_id": 3, "port": 4})
    assert decode(older) == NodeRecord(key="disk", kafka_id=3, port=4, state="online")


def test_the_address_of_a_node_is_told_once_it_says_that_it_listens_there() -> None:
    """The one of its last life may be that of another broker by now."""
    record = NodeRecord(key="disk", kafka_id=0, port=19_092, host="127.0.0.1")
    assert decode(encode(record)) == record
    view = snapshot(obeys())
    view.desired.apply(record)
    assert only(view).address == ""
    told = replace(PerfectNode("disk", "d").report(), host="127.0.0.1", port=40_000)
    assert only(snapshot(obeying(told, EPOCH))).address == "127.0.0.1:40000"


def test_a_node_has_an_address_for_each_listener() -> None:
    told = replace(PerfectNode("disk", "d").report(), host="far", port=20_000)
    config = BrokerConfig.parse({"listeners": "PLAINTEXT://127.0.0.1:9092,SASL_PLAINTEXT://:9192"})
    node = only(replace(snapshot(obeying(told, EPOCH)), config=config))
    assert node.addresses == {"PLAINTEXT": "127.0.0.1:20000", "SASL_PLAINTEXT": "far:20100"}
    assert node.address == "127.0.0.1:20000"
    assert servers_by_listener([node, node]) == {
        "PLAINTEXT": "127.0.0.1:20000,127.0.0.1:20000",
        "SASL_PLAINTEXT": "far:20100,far:20100",
    }
    assert servers_told([node]) == ["127.0.0.1:20000 (PLAINTEXT)", "far:20100 (SASL_PLAINTEXT)"]
    older = node._replace(addresses={})
    assert servers_told([older]) == ["127.0.0.1:20000"]
    assert servers_told([older._replace(address="")]) == []


def test_an_address_of_ipv6_is_in_brackets() -> None:
    told = replace(PerfectNode("disk", "d").report(), host="::1", port=20_000)
    config = BrokerConfig.parse({"listeners": "PLAINTEXT://[::1]:9092"})
    view = replace(snapshot(obeying(told, EPOCH)), config=config)
    assert only(view).address == "[::1]:20000"


def test_the_nodes_that_listen_are_the_bootstrap_servers() -> None:
    node = only(snapshot(obeys()))
    nodes = [node._replace(address="h:1"), node, node._replace(address="h:2")]
    assert bootstrap_servers(nodes) == "h:1,h:2"
