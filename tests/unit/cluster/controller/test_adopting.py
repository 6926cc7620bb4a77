"""Folders that were set aside become partitions again."""

from dataclasses import replace

import pytest

from raylog.actors.control import LogId
from raylog.actors.errors import InvalidRequest, TopicExists
from raylog.cluster.controller.adopting import Stray, adopted
from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.rebuilding import FoundDir, FoundFolder
from raylog.cluster.controller.records import (
    ClusterRecord,
    ControllerRecord,
    DirRecord,
    PartitionRecord,
    Record,
    TopicRecord,
)
from raylog.storage.names import TopicPartition


def log_dir(node: str, *folders: FoundFolder) -> FoundDir:
    return FoundDir(
        node=node,
        node_id=f"ray-{node}",
        path=f"/{node}",
        cluster_id="cluster-1",
        directory_id=f"dir-{node}",
        folders=folders,
    )


def stray(name: str, node: str = "a", topic_id: str | None = "id-t") -> Stray:
    home = log_dir(node)
    return Stray(home=home, name=f"{name}.{'0' * 32}-stray", topic_id=topic_id)


def log(name: str, topic_id: str = "id-t") -> LogId:
    topic, _, number = name.rpartition("-")
    return LogId(partition=TopicPartition(topic, int(number)), topic_id=topic_id)


TOPIC = TopicRecord(name="t", topic_id="id-t", config={}, version=1)
FIRST = PartitionRecord(log=log("t-0"), state="online", directory="dir-a", kafka_id=0)


def desired(*records: Record) -> Desired:
    made = Desired()
    dirs = [
        DirRecord(directory_id=f"dir-{node}", node=node, path=f"/{node}", state="online")
        for node in "ab"
    ]
    begin = (ClusterRecord(cluster_id="cluster-1"), ControllerRecord(epoch=2, node="a"))
    for record in (*begin, *dirs, *records):
        made.apply(record)
    return made


def after(state: Desired, records: tuple[Record, ...]) -> Desired:
    for record in records:
        state.apply(record)
    state.validate()
    return state


def test_a_topic_that_is_unknown_is_there_again_with_its_id_and_all_its_partitions() -> None:
    strays = [stray("t-1", "b"), stray("t-0", "a")]
    state = after(desired(), adopted(desired(), strays, [log_dir("a"), log_dir("b")]))
    topic = state.topic_named("t")
    assert topic is not None
    assert topic.topic_id == "id-t"
    assert topic.config["retention.ms"] == -1, "nothing is removed before its config is set again"
    assert [state.partitions[entry].directory for entry in state.logs_of("id-t")] == [
        "dir-a",
        "dir-b",
    ]


def test_a_topic_that_is_known_gets_its_next_partition_back() -> None:
    state = desired(TOPIC, FIRST)
    after(
        state,
        adopted(
            state,
            [stray("t-1")],
            [log_dir("a", FoundFolder(partition=TopicPartition("t", 0), topic_id="id-t"))],
        ),
    )
    assert state.partitions[log("t-1")].state == "online"


def test_a_partition_whose_folder_is_lost_has_the_one_that_was_set_aside() -> None:
    state = desired(TOPIC, FIRST)
    after(state, adopted(state, [stray("t-0", "b")], [log_dir("a"), log_dir("b")]))
    assert state.partitions[log("t-0")].directory == "dir-b"


def test_a_partition_that_serves_is_refused_by_name() -> None:
    there = FoundFolder(partition=TopicPartition("t", 0), topic_id="id-t")
    with pytest.raises(InvalidRequest, match=r"/b/t-0.*-stray.*/a/t-0 is there already"):
        adopted(desired(TOPIC, FIRST), [stray("t-0", "b")], [log_dir("a", there), log_dir("b")])


def test_a_partition_that_may_lie_on_a_node_that_is_away_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="log dir dir-a, which is not in reach"):
        adopted(desired(TOPIC, FIRST), [stray("t-0", "b")], [log_dir("b")])


def test_another_topic_of_the_name_is_in_the_way() -> None:
    with pytest.raises(TopicExists, match="'t' already exists"):
        adopted(desired(TOPIC, FIRST), [stray("t-1", topic_id="id-old")], [log_dir("a")])


def test_a_folder_whose_partition_would_leave_a_gap_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="is partition 1, and the topic has 0"):
        adopted(desired(), [stray("t-1")], [log_dir("a")])


def test_a_partition_that_is_being_removed_is_refused() -> None:
    removing = replace(FIRST, state="removing")
    with pytest.raises(InvalidRequest, match="being deleted"):
        adopted(desired(TOPIC, removing), [stray("t-0")], [log_dir("a")])


def test_a_folder_that_does_not_say_whose_it_is_is_refused() -> None:
    for wrong, what in (
        (stray("t-0", topic_id=None), r"partition\.metadata"),
        (replace(stray("t-0"), name="t-0"), "is not named"),
        (stray("__cluster_metadata-0"), "is a copy of the metadata"),
        (replace(stray("t-0"), home=replace(log_dir("a"), cluster_id="other")), "cluster other"),
    ):
        with pytest.raises(InvalidRequest, match=what):
            adopted(desired(), [wrong], [log_dir("a")])
