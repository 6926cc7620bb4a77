"""What a cluster shall be: records there and back, the fold, and what an older raylog wrote."""

from dataclasses import replace
from typing import get_args

import msgpack
import pytest

from raylog.actors.control import LogId
from raylog.actors.listeners import FIRST_PORT, LAST_PORT
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.plane.sasl.scram import verifier
from raylog.cluster.controller.desired import MOST_REMOVED_IDS, Desired, port_of
from raylog.cluster.controller.records import (
    BrokerConfigRecord,
    ClusterRecord,
    ControllerRecord,
    CopiesRecord,
    DirRecord,
    LevelRecord,
    NodeRecord,
    OldTopicRecord,
    OldTopicRemovedRecord,
    PartitionRecord,
    PartitionRemovedRecord,
    ProducerIdsRecord,
    Record,
    StoppedRecord,
    TopicRecord,
    TopicRemovedRecord,
    UserRecord,
    UserRemovedRecord,
    decode,
    encode,
)
from raylog.storage.errors import CorruptRecord
from raylog.storage.names import TopicPartition
from tests.harness.old_metadata import (
    KINDS,
    old_cluster,
    old_producer_ids,
    old_topic,
    old_topic_removed,
)

TOPIC = TopicRecord(name="t", topic_id="id-t", config={"retention.ms": 5}, version=2)
LOG = LogId(partition=TopicPartition("t", 0), topic_id="id-t")
CREATING = PartitionRecord(log=LOG, state="creating", node="a", kafka_id=3, port=9)
ONLINE = replace(CREATING, state="online", directory="dir-1")
DIR = DirRecord(directory_id="dir-1", node="a", path="/d", state="offline", why="EIO", life="x")
RECORDS: list[Record] = [
    ClusterRecord(cluster_id="c"),
    ControllerRecord(epoch=7, node="a"),
    NodeRecord(key="a", kafka_id=1, port=2),
    DIR,
    TOPIC,
    replace(ONLINE, state="moving", target="dir-2", left=("b",)),
    PartitionRemovedRecord(log=LOG),
    TopicRemovedRecord(topic_id="id-t"),
    ProducerIdsRecord(epoch=7, next_id=(7 << 40) + 1000),
    CopiesRecord(nodes=("a", "b"), directories=("dir-1", "dir-2")),
    BrokerConfigRecord(
        config=BrokerConfig.parse({"log.dirs": ["/a,b", "/c"], "log.retention.hours": 3}),
        version=7,
        start="s",
    ),
    StoppedRecord(),
    LevelRecord(level=1, release="0.1.0"),
    UserRecord(name="ann", verifiers=(verifier("SCRAM-SHA-256", "secret"),)),
    UserRemovedRecord(name="ann"),
]
OLD = (OldTopicRecord, OldTopicRemovedRecord)


def fold(*records: Record) -> Desired:
    desired = Desired()
    for record in records:
        desired.apply(record)
    desired.validate()
    return desired


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_is_the_same_after_the_log(record: Record) -> None:
    assert decode(encode(record)) == record


def test_a_config_of_the_broker_with_a_key_of_the_next_release_can_be_read() -> None:
    config = BrokerConfig.parse({"log.dirs": "/a"})
    record = BrokerConfigRecord(config=config, version=7, start="s")
    fields = msgpack.unpackb(encode(record))
    fields["config"]["log.of.tomorrow"] = 7
    assert decode(msgpack.packb(fields)) == record


def test_every_kind_that_is_written_is_tried_here() -> None:
    written = set(get_args(Record)) - set(OLD)
    assert {type(record) for record in RECORDS} == written


@pytest.mark.parametrize(
    "value",
    [b"\xc1", msgpack.packb([1]), msgpack.packb({"kind": "topic", "v": 2, "name": "t"})],
    ids=["no msgpack", "no map", "a field is missing"],
)
def test_what_is_no_record_is_refused(value: bytes) -> None:
    with pytest.raises(CorruptRecord):
        decode(value)


@pytest.mark.parametrize("fields", [{"kind": "topic", "v": 3}, {"kind": "voters", "v": 1}])
def test_what_a_newer_raylog_wrote_is_refused_with_advice(fields: dict[str, object]) -> None:
    with pytest.raises(CorruptRecord, match="newer raylog"):
        decode(msgpack.packb(fields))


def test_an_older_raylog_refuses_new_records_instead_of_misreading_them() -> None:
    for record in (TOPIC, CREATING, ProducerIdsRecord(epoch=1, next_id=5)):
        fields = msgpack.unpackb(encode(record))
        assert fields["kind"] not in KINDS or fields["v"] > 1


def test_a_topic_is_known_by_its_name_until_it_is_removed_and_its_partitions_until_they_are() -> (
    None
):
    desired = fold(TOPIC, ONLINE)
    assert desired.topic_named("t") == TOPIC
    assert desired.live_logs_of("id-t") == [LOG]
    desired = fold(
        TOPIC, ONLINE, replace(ONLINE, state="removing"), TopicRemovedRecord(topic_id="id-t")
    )
    assert desired.topic_named("t") is None
    assert desired.logs_of("id-t") == [LOG]
    assert desired.live_logs_of("id-t") == []
    desired.apply(PartitionRemovedRecord(log=LOG))
    desired.validate()
    assert (desired.partitions, desired.logs_of("id-t")) == ({}, [])


def test_a_name_may_be_used_again_while_the_old_topic_is_being_removed() -> None:
    again = replace(TOPIC, topic_id="id-2")
    desired = fold(
        TOPIC, ONLINE, replace(ONLINE, state="removing"), TopicRemovedRecord(topic_id="id-t"), again
    )
    assert desired.topic_named("t") == again
    assert desired.logs_of("id-2") == []


def test_a_log_is_where_its_dir_is_and_before_that_at_the_node_that_makes_it() -> None:
    desired = fold(TOPIC, CREATING)
    assert desired.node_of(LOG) == "a"
    assert desired.logs_without_dir("a") == [LOG]
    desired.apply(ONLINE)
    assert desired.node_of(LOG) is None  # nobody has seen the dir
    assert (desired.logs_without_dir("a"), desired.logs_in("dir-1")) == ([], [LOG])
    desired.apply(replace(DIR, node="b"))
    assert desired.node_of(LOG) == "b"
    assert desired.dirs_of("b") == [replace(DIR, node="b")]


def test_the_ids_of_the_topics_that_were_removed_last_are_known() -> None:
    desired = fold(TOPIC)
    assert not desired.was_removed("id-t")
    copy = desired.copy()
    desired.apply(TopicRemovedRecord(topic_id="id-t"))
    assert desired.was_removed("id-t")
    assert desired.copy().was_removed("id-t")
    assert not copy.was_removed("id-t")
    for number in range(MOST_REMOVED_IDS - 1):
        desired.apply(TopicRemovedRecord(topic_id=f"{number}"))
    assert desired.was_removed("id-t")
    desired.apply(TopicRemovedRecord(topic_id="one more"))
    assert not desired.was_removed("id-t"), "they are bounded"
    assert desired.was_removed("0")


def test_a_copy_stays_as_it_is_while_the_first_goes_on() -> None:
    desired = fold(TOPIC, CREATING, DIR)
    copy = desired.copy()
    assert copy == desired
    desired.apply(ONLINE)
    desired.apply(replace(DIR, directory_id="dir-2"))
    copy.validate()
    assert copy.partitions == {LOG: CREATING}
    assert copy.logs_without_dir("a") == [LOG]
    assert list(copy.dirs) == ["dir-1"]


def test_a_kafka_id_is_never_given_again() -> None:
    desired = fold(TOPIC, ONLINE)
    assert desired.next_kafka_id == 4
    desired.apply(PartitionRemovedRecord(log=LOG))
    assert desired.next_kafka_id == 4


def test_ports_are_used_up_after_a_while() -> None:
    assert port_of(0) == FIRST_PORT
    assert port_of(60_000) == 0
    assert (port_of(3, 30_000), port_of(0, LAST_PORT), port_of(1, LAST_PORT)) == (
        30_003,
        LAST_PORT,
        0,
    )


@pytest.mark.parametrize(
    "records",
    [
        [ONLINE],
        [TOPIC, replace(ONLINE, directory=None)],
        [TOPIC, replace(ONLINE, state="moving", target="dir-1")],
        [TOPIC, replace(ONLINE, target="dir-2")],
        [TOPIC, ONLINE, NodeRecord(key="a", kafka_id=3, port=0)],
    ],
    ids=["without a topic", "online nowhere", "moving to itself", "a target for ever", "two ids"],
)
def test_what_must_not_be_is_seen(records: list[Record]) -> None:
    with pytest.raises(AssertionError):
        fold(*records)


# -- copies ----------------------------------------------------------------------------------------


def test_the_last_record_of_copies_says_which_count() -> None:
    assert (fold().copies, fold().copy_dirs) == ((), ())
    both = CopiesRecord(nodes=("a", "b"), directories=("dir-1", "dir-2"))
    desired = fold(both, CopiesRecord(nodes=("b",), directories=("dir-2",)))
    assert (desired.copies, desired.copy_dirs) == (("b",), ("dir-2",))
    assert desired.copy().copies == ("b",)


def test_a_cluster_is_stopped_until_the_next_record() -> None:
    assert fold(TOPIC, StoppedRecord()).is_all_stopped
    assert not fold(TOPIC, StoppedRecord(), ControllerRecord(epoch=8, node="a")).is_all_stopped


# -- version 1 -------------------------------------------------------------------------------------


CONFIG = {"segment.bytes": 1 << 20}


def old(*values: bytes) -> Desired:
    """What the raylog before wrote, read by this one."""
    return fold(*map(decode, values))


def test_an_old_topic_is_a_topic_and_partitions_that_serve_on_nodes_that_nobody_knows() -> None:
    desired = old(old_cluster("c"), old_topic("t", "id-t", "dir-1", "dir-2", config=CONFIG))
    assert desired.cluster_id == "c"
    assert desired.topic_named("t") == replace(TOPIC, config=CONFIG, version=0)
    partitions = list(desired.partitions.values())
    assert [(p.state, p.directory, p.node) for p in partitions] == [
        ("online", "dir-1", ""),
        ("online", "dir-2", ""),
    ]
    assert desired.node_of(LOG) is None
    assert [partition.kafka_id for partition in partitions] == [0, 1]


def test_an_old_topic_that_was_altered_extended_and_moved_is_as_its_last_record_has_it() -> None:
    first = old_topic("t", "id-t", "dir-1")
    last = old_topic("t", "id-t", "dir-3", "dir-2", version=2)
    desired = old(first, last)
    partitions = list(desired.partitions.values())
    assert [partition.directory for partition in partitions] == ["dir-3", "dir-2"]
    assert [partition.kafka_id for partition in partitions] == [0, 1]
    assert desired.topics["id-t"].version == 2


def test_an_old_topic_that_was_removed_is_gone_and_its_name_free() -> None:
    desired = old(
        old_topic("t", "id-t", "dir-1"),
        old_topic_removed("t"),
        old_topic_removed("never-was"),
        old_topic("t", "id-2", "dir-1"),
    )
    assert [log.topic_id for log in desired.partitions] == ["id-2"]
    assert set(desired.topics) == {"id-2"}


def test_the_first_records_of_all_had_no_versions() -> None:
    assert old(old_topic("t", "id-t", "dir-1", version=None)).topics["id-t"].version == 0


def test_old_producer_ids_count() -> None:
    assert old(old_producer_ids(3000)).next_producer_id == 3000
