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
    TopicRemovedRecord,
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
    state = after(desired(), adopted(desired(), strays, [log_dir("a"), log_dir("b")]).records)
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
        ).records,
    )
    assert state.partitions[log("t-1")].state == "online"


def test_a_partition_whose_folder_is_lost_has_the_one_that_was_set_aside() -> None:
    state = desired(TOPIC, FIRST)
    after(state, adopted(state, [stray("t-0", "b")], [log_dir("a"), log_dir("b")]).records)
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


def test_where_the_partition_of_the_name_has_no_folder_the_file_with_the_id_may_be_damaged() -> (
    None
):
    with pytest.raises(InvalidRequest) as raised:
        adopted(desired(TOPIC, FIRST), [stray("t-0", topic_id="id-x")], [log_dir("a")])
    assert "has the id id-x; the t of the metadata has id-t" in str(raised.value)
    assert "write id-t into it, then adopt the folder again" in str(raised.value)


def test_a_folder_whose_partition_would_leave_a_gap_is_refused_and_says_how_to_fill_it() -> None:
    with pytest.raises(InvalidRequest) as raised:
        adopted(desired(), [stray("t-2")], [log_dir("a")])
    assert "is partition 2, and the topic has 0" in str(raised.value)
    assert "no folder of t-0, t-1 is in any log dir" in str(raised.value)
    assert "lost for good, give --make-missing: they begin empty" in str(raised.value)


def test_a_partition_is_taken_in_where_lower_ones_of_its_topic_are_lost_for_good() -> None:
    """Its records were acknowledged; the topic's other disk must not take them with it."""
    found = adopted(desired(), [stray("t-2", "b")], [log_dir("b")], make_missing=True)
    assert [str(partition) for partition in found.made] == ["t-0", "t-1"]
    state = after(desired(), found.records)
    partitions = [state.partitions[entry] for entry in state.logs_of("id-t")]
    assert [(entry.state, entry.directory) for entry in partitions] == [
        ("creating", None),
        ("creating", None),
        ("online", "dir-b"),
    ]
    assert len({entry.kafka_id for entry in partitions}) == 3


def test_a_topic_that_is_known_is_filled_up_to_the_folder() -> None:
    state = desired(TOPIC, FIRST)
    found = adopted(state, [stray("t-2", "b")], [log_dir("a"), log_dir("b")], make_missing=True)
    after(state, found.records)
    assert [str(partition) for partition in found.made] == ["t-1"]
    assert state.partitions[log("t-0")].directory == "dir-a"


def test_no_partition_begins_empty_whose_folder_is_in_reach() -> None:
    aside = f"t-0.{'1' * 32}-stray"
    there = FoundFolder(partition=TopicPartition("t", 0), topic_id="id-t")
    for entry, why in (
        (replace(log_dir("b"), strays={aside: "id-t"}), f"give the folders.*as /b/{aside}"),
        (replace(log_dir("b"), strays={aside: None}), f"give the folders.*as /b/{aside}"),
        (log_dir("b", there), "/b/t-0 is there.*start the broker, which sets it aside"),
        (replace(log_dir("b"), problem="EIO"), "/b of node b cannot be read.*may have it"),
    ):
        with pytest.raises(InvalidRequest, match=why):
            adopted(desired(), [stray("t-1")], [log_dir("a"), entry], make_missing=True)
    other = replace(log_dir("b"), strays={aside: "id-of-a-deleted-topic"})
    found = adopted(desired(), [stray("t-1")], [log_dir("a"), other], make_missing=True)
    assert [str(partition) for partition in found.made] == ["t-0"]


def test_two_folders_of_one_partition_are_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"/a/t-0.*/b/t-0.*are of the same partition"):
        adopted(desired(), [stray("t-0", "a"), stray("t-0", "b")], [log_dir("a"), log_dir("b")])


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


def test_a_topic_that_is_being_removed_is_not_made_again_with_a_gap() -> None:
    removing = replace(FIRST, state="removing")
    state = desired(TOPIC, FIRST, removing, TopicRemovedRecord(topic_id="id-t"))
    with pytest.raises(InvalidRequest, match="is of a topic that is being removed"):
        adopted(state, [stray("t-1", "b")], [log_dir("a"), log_dir("b")])


def test_a_partition_that_may_lie_where_it_was_being_moved_to_is_refused() -> None:
    moving = replace(FIRST, state="moving", target="dir-c")
    with pytest.raises(InvalidRequest, match="may lie in log dir dir-c, which is not in reach"):
        adopted(desired(TOPIC, moving), [stray("t-0", "b")], [log_dir("a"), log_dir("b")])
