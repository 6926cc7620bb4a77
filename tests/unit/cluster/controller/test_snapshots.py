"""What a snapshot of the metadata says: it gives the same fold again; older readers refuse it."""

from dataclasses import fields, replace
from random import Random
from typing import Any

import pytest

from raylog.actors.control import LogId
from raylog.actors.errors import UnsupportedLevel
from raylog.actors.levels import Levels
from raylog.actors.metadata_history import HistoryPoint
from raylog.actors.node.broker_config import BrokerConfig
from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.records import (
    BrokerConfigRecord,
    ClusterRecord,
    ControllerRecord,
    CopiesRecord,
    DirRecord,
    LevelRecord,
    NodeRecord,
    PartitionRecord,
    PartitionRemovedRecord,
    ProducerIdsRecord,
    Record,
    StoppedRecord,
    TopicRecord,
    TopicRemovedRecord,
    decode,
)
from raylog.cluster.controller.snapshots import desired_of, records_of_state, snapshot_of
from raylog.storage.names import TopicPartition

POINT = HistoryPoint(cluster_id="c", end=120, digest=b"12345678")
LEVELS = Levels(1, 2)


def fold(*records: Record) -> Desired:
    desired = Desired()
    for record in records:
        desired.apply(record)
    desired.validate()
    return desired


def again(desired: Desired) -> Desired:
    made = desired_of(snapshot_of(desired, POINT), LEVELS)
    made.validate()
    return made


def state(desired: Desired) -> dict[str, Any]:
    """Everything that a fold has, in a form that can be compared; empty indexes say nothing."""
    found = {entry.name: getattr(desired, entry.name) for entry in fields(desired)}
    for name in ("_of_topic", "_of_dir", "_of_node", "_left_at"):
        found[name] = {key: set(logs) for key, logs in found[name].items() if logs}
    found["_removed"] = list(found["_removed"])
    return found


def log(number: int, topic: str = "t") -> LogId:
    return LogId(partition=TopicPartition(topic, number), topic_id=f"id-{topic}")


TOPIC = TopicRecord(name="t", topic_id="id-t", config={"retention.ms": 5}, version=7 << 32)
GONE = replace(TOPIC, name="gone", topic_id="id-gone")
EVERYTHING: list[Record] = [
    ClusterRecord(cluster_id="c"),
    LevelRecord(level=2, release="0.2.0"),
    ControllerRecord(epoch=7, node="a", directory="dir-1"),
    CopiesRecord(nodes=("a", "b"), directories=("dir-1", "dir-2")),
    BrokerConfigRecord(config=BrokerConfig.parse({"log.dirs": "/a"}), version=9 << 32, start="s"),
    NodeRecord(key="a", kafka_id=0, port=1, state="draining"),
    NodeRecord(key="b", kafka_id=1, port=2, state="stopped"),
    DirRecord(directory_id="dir-1", node="a", path="/d", state="online"),
    DirRecord(directory_id="dir-2", node="b", path="/e", state="offline", why="EIO", life="x"),
    TOPIC,
    PartitionRecord(log=log(0), state="creating", node="a", left=("b",), kafka_id=2, port=3),
    PartitionRecord(log=log(1), state="online", directory="dir-1", kafka_id=3),
    PartitionRecord(log=log(2), state="moving", directory="dir-1", target="dir-2", kafka_id=4),
    GONE,
    PartitionRecord(log=log(0, "gone"), state="removing", directory="dir-2", kafka_id=5),
    PartitionRecord(log=log(1, "gone"), state="removing", directory="dir-1", kafka_id=6),
    TopicRemovedRecord(topic_id="id-gone"),
    PartitionRemovedRecord(log=log(1, "gone")),
    ProducerIdsRecord(epoch=7, next_id=(7 << 40) + 1000),
    StoppedRecord(),
]


def test_after_each_record_a_snapshot_gives_the_same_fold_again() -> None:
    desired = Desired()
    for record in EVERYTHING:
        desired.apply(record)
        assert state(again(desired)) == state(desired), record


def test_a_snapshot_of_a_snapshot_is_the_same_snapshot() -> None:
    made = snapshot_of(fold(*EVERYTHING), POINT)
    assert snapshot_of(desired_of(made, LEVELS), POINT) == made


def test_a_kafka_id_of_what_is_gone_is_never_given_again() -> None:
    desired = fold(
        TOPIC,
        PartitionRecord(log=log(0), state="removing", node="a", kafka_id=9),
        PartitionRemovedRecord(log=log(0)),
    )
    assert again(desired).next_kafka_id == 10


def test_it_is_as_large_as_the_cluster_and_not_as_its_history() -> None:
    desired = fold(TOPIC)
    for version in range(1000):
        desired.apply(replace(TOPIC, version=version))
    assert len(list(records_of_state(desired))) == 2


def test_a_topic_whose_name_is_used_again_is_not_removed_with_the_old_one() -> None:
    desired = fold(TOPIC, TopicRemovedRecord(topic_id="id-t"), replace(TOPIC, topic_id="id-2"))
    found = again(desired).topic_named("t")
    assert found is not None
    assert found.topic_id == "id-2"
    assert again(desired).was_removed("id-t")


def test_the_level_is_the_first_record_so_an_older_reader_refuses_it_by_name() -> None:
    made = snapshot_of(fold(*EVERYTHING), POINT)
    assert isinstance(decode(made.values[0], LEVELS), LevelRecord)
    with pytest.raises(UnsupportedLevel):
        desired_of(made, Levels(1, 1))


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happened_a_snapshot_and_what_follows_give_what_all_records_give(
    seed: int,
) -> None:
    chance = Random(seed)
    records = [EVERYTHING[0], *chance.choices(EVERYTHING[1:], k=60)]
    cut = chance.randint(1, len(records))
    whole, before = Desired(), Desired()
    for record in records:
        whole.apply(record)
    for record in records[:cut]:
        before.apply(record)
    made = desired_of(snapshot_of(before, POINT), LEVELS)
    for record in records[cut:]:
        made.apply(record)
    assert state(made) == state(whole)
