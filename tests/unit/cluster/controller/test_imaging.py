"""What LogManagers are shown of the cluster: the whole of it, and what has changed since."""

import random
from dataclasses import replace

import pytest

from raylog.actors.cluster_image import NO_ENTRIES, Endpoint, NodeEntry, PartitionEntry
from raylog.actors.control import LogId, LogReport
from raylog.actors.node.broker_config import BrokerConfig
from raylog.cluster.controller import imaging as module
from raylog.cluster.controller.describe import Snapshot
from raylog.cluster.controller.desired import Desired, port_of
from raylog.cluster.controller.imaging import Imaging
from raylog.cluster.controller.records import (
    ControllerRecord,
    DirRecord,
    NodeRecord,
    PartitionRecord,
    PartitionRemovedRecord,
    Record,
    TopicRecord,
    TopicRemovedRecord,
)
from tests.harness.control_nodes import entry, log_id, obeying
from tests.unit.cluster.controller.test_plan import report

EPOCH = 4
NODE = NodeRecord(key="a", kafka_id=0, port=19_092, host="127.0.0.1")
DIR = DirRecord(directory_id="a1", node="a", path="/a1", state="online")


def topic(name: str) -> TopicRecord:
    return TopicRecord(name=name, topic_id=f"id-{name}", config={})


def partition(name: str, number: int = 0, **changes: object) -> PartitionRecord:
    record = PartitionRecord(
        log=log_id(name, number),
        state="online",
        node="a",
        directory="a1",
        kafka_id=10 + number,
        port=19_102 + number,
    )
    return replace(record, **changes)  # type: ignore[arg-type]


def snapshot_of(*records: Record, serving: tuple[LogReport, ...] = ()) -> Snapshot:
    desired = Desired()
    for record in (ControllerRecord(epoch=EPOCH, node="a"), NODE, DIR, *records):
        desired.apply(record)
    observed = {"a": obeying(report("a", *serving), EPOCH)}
    return Snapshot(desired=desired, observed=observed, controller="a")


def test_whoever_has_nothing_is_shown_everything() -> None:
    imaging = Imaging(EPOCH)
    serving = entry(log_id("t", 0), "a1", leader_epoch=7, port=19_102)
    imaging.look(snapshot_of(topic("t"), partition("t"), partition("t", 1), serving=(serving,)))
    update = imaging.update_after(0)
    assert (update.base, update.number, update.controller_epoch) == (0, 1, EPOCH)
    assert update.controller == "a"
    assert update.nodes == (NodeEntry("a", Endpoint(0, 19_092), "127.0.0.1"),)
    (shown,) = update.topics
    assert (shown.name, shown.topic_id) == ("t", "id-t")
    assert shown.partitions == (
        PartitionEntry(0, Endpoint(10, 19_102), "a", 7, True),
        PartitionEntry(1, Endpoint(11, 19_103), "a", -1, False),
    )


def test_what_has_not_changed_has_no_new_number() -> None:
    imaging = Imaging(EPOCH)
    serving = entry(log_id("t", 0), "a1", log_end_offset=5, port=19_102)
    imaging.look(snapshot_of(topic("t"), partition("t"), serving=(serving,)))
    grown = replace(serving, log_end_offset=9)
    imaging.look(snapshot_of(topic("t"), partition("t"), serving=(grown,)))
    assert imaging.number == 1


def test_a_leader_epoch_and_an_end_of_service_are_news() -> None:
    imaging = Imaging(EPOCH)
    serving = entry(log_id("t", 0), "a1", leader_epoch=7, port=19_102)
    shown = snapshot_of(topic("t"), partition("t"), serving=(serving,))
    imaging.look(shown)
    again = replace(serving, leader_epoch=8)
    observed = {"a": obeying(report("a", again), EPOCH)}
    imaging.look(replace(shown, observed=observed))
    assert imaging.update_after(1).topics[0].partitions[0].leader_epoch == 8
    ending = {"a": replace(observed["a"], may_end=True)}
    imaging.look(replace(shown, observed=ending))
    assert not imaging.update_after(2).topics[0].partitions[0].is_online
    imaging.look(replace(shown, observed={}))
    assert imaging.number == 3, "it was shown as away already"


def test_a_partition_has_a_leader_only_where_its_log_actor_says_that_it_listens() -> None:
    """The port that it was given may be that of another cluster by now."""
    imaging = Imaging(EPOCH)
    silent = entry(log_id("t", 0), "a1", leader_epoch=7)
    shown = snapshot_of(topic("t"), partition("t"), serving=(silent,))
    imaging.look(shown)
    (part,) = imaging.update_after(0).topics[0].partitions
    assert (part.is_online, part.endpoint.port) == (False, 19_102)
    listening = obeying(report("a", replace(silent, port=40_001)), EPOCH)
    imaging.look(replace(shown, observed={"a": listening}))
    (part,) = imaging.update_after(0).topics[0].partitions
    assert (part.is_online, part.endpoint.port) == (True, 40_001)


@pytest.mark.parametrize("state", ["creating", "online"])
def test_a_partition_has_not_listened_before_its_log_actor_has_said_so(state: str) -> None:
    """It may serve by Ray, and not listen yet."""
    imaging = Imaging(EPOCH)
    silent = entry(log_id("t", 0), "a1")
    shown = snapshot_of(topic("t"), partition("t", state=state, port=0), serving=(silent,))
    imaging.look(shown)
    (part,) = imaging.update_after(0).topics[0].partitions
    assert (part.has_listened, part.endpoint.port) == (False, port_of(10))
    listening = obeying(report("a", replace(silent, port=40_001)), EPOCH)
    imaging.look(replace(shown, observed={"a": listening}))
    (part,) = imaging.update_after(0).topics[0].partitions
    assert (part.has_listened, part.endpoint.port) == (True, 40_001)
    imaging.look(snapshot_of(topic("t"), partition("t", port=40_001)))
    (part,) = imaging.update_after(0).topics[0].partitions
    assert (part.has_listened, part.endpoint.port) == (True, 40_001), "it is away, and known"


def test_a_port_that_was_given_stays_unless_the_ports_begin_behind_it_now() -> None:
    shown = snapshot_of(topic("t"), partition("t"), partition("t", 1, port=40_001))
    for listeners, node, ports in (
        ("PLAINTEXT://127.0.0.1:19000", ("127.0.0.1", 19_092), {19_102: True, 40_001: True}),
        ("PLAINTEXT://127.0.0.1:20000", ("", 20_000), {20_010: False, 40_001: True}),
    ):
        imaging = Imaging(EPOCH)
        imaging.look(replace(shown, config=BrokerConfig(listeners=listeners)))
        update = imaging.update_after(0)
        (told,) = update.nodes
        assert (told.host, told.endpoint.port) == node
        parts = update.topics[0].partitions
        assert {one.endpoint.port: one.has_listened for one in parts} == ports


def test_where_another_broker_has_the_nodes_port_new_partitions_get_any_free_one() -> None:
    """Else they would listen where the other's partitions do, when one of these is away."""
    displaced = replace(NODE, port=34_277)
    imaging = Imaging(EPOCH)
    imaging.look(snapshot_of(topic("t"), partition("t", port=0), partition("t", 1), displaced))
    (shown,) = imaging.update_after(0).topics
    assert [one.endpoint.port for one in shown.partitions] == [0, 19_103], "but not who listened"
    imaging.look(snapshot_of(topic("t"), partition("t", port=0), replace(NODE, port=0)))
    (shown,) = imaging.update_after(0).topics
    assert [one.endpoint.port for one in shown.partitions] == [19_102]


def test_a_node_that_is_gone_for_good_is_not_shown() -> None:
    """Clients would go on to ask where nobody is, or somebody else's broker by now."""
    imaging = Imaging(EPOCH)
    gone = NodeRecord(key="gone", kafka_id=7, port=19_099, host="127.0.0.1")
    away = replace(gone, key="away", kafka_id=8)
    its = DirRecord(directory_id="away1", node="away", path="/away1", state="online")
    imaging.look(snapshot_of(gone, away, its))
    assert [node.key for node in imaging.update_after(0).nodes] == ["a", "away"]


def test_only_what_has_changed_is_sent_to_who_has_the_rest() -> None:
    imaging = Imaging(EPOCH)
    imaging.look(snapshot_of(topic("t"), topic("u")))
    imaging.look(snapshot_of(topic("t"), topic("u"), partition("u")))
    assert [shown.name for shown in imaging.update_after(1).topics] == ["u"]
    assert [shown.name for shown in imaging.update_after(0).topics] == ["t", "u"]


def test_changes_come_to_the_same_as_everything() -> None:
    """Whatever happens: who has any state becomes who has the present one."""
    draw, imaging = random.Random(3), Imaging(EPOCH)
    known = {0: NO_ENTRIES}
    names = [f"t{number}" for number in range(4)]
    for _ in range(60):
        there = [name for name in names if draw.random() < 0.6]
        records: list[Record] = []
        for name in there:
            records += [topic(name), partition(name, port=draw.choice((1, 2)))]
        imaging.look(snapshot_of(*records))
        base = draw.choice(sorted(known))
        whole = NO_ENTRIES.after(imaging.update_after(0))
        assert known[base].after(imaging.update_after(base)) == whole
        known[imaging.number] = whole


def test_who_has_an_older_state_than_is_remembered_is_shown_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "REMOVED", 2)
    imaging = Imaging(EPOCH)
    imaging.look(snapshot_of(topic("t0"), topic("t1"), topic("t2")))
    for left in (("t1", "t2"), ("t2",), ()):
        imaging.look(snapshot_of(*[topic(name) for name in left]))
    assert imaging.update_after(2).base == 0, "more may have gone with the oldest that is known"
    assert imaging.update_after(3).base == 3
    assert imaging.update_after(3).removed == ("id-t2",)


def test_a_topic_that_is_being_removed_is_not_shown() -> None:
    imaging = Imaging(EPOCH)
    gone = LogId(partition=log_id("t", 0).partition, topic_id="id-t")
    deleted = partition("t", state="removing"), TopicRemovedRecord(topic_id="id-t")
    imaging.look(snapshot_of(topic("t"), partition("t"), *deleted))
    assert imaging.update_after(0).topics == ()
    done = PartitionRemovedRecord(log=gone)
    imaging.look(snapshot_of(topic("t"), partition("t"), *deleted, done))
    assert imaging.number == 1
