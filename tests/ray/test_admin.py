"""Many topics and partitions a call, against a live broker."""

import uuid
from datetime import UTC, datetime

import pytest

from raylog.actors.errors import TopicExists, UnknownTopicOrPartition
from raylog.cluster.admin import Admin, NewTopic
from raylog.cluster.broker import Broker
from raylog.storage.errors import OffsetOutOfRange
from raylog.storage.names import TopicPartition

T0 = 1_700_000_000_000


@pytest.fixture
def admin(broker: Broker) -> Admin:
    return broker.admin()


def test_topics_are_made_extended_described_and_deleted_together(
    broker: Broker, admin: Admin
) -> None:
    first, second = (f"admin-{uuid.uuid4().hex[:6]}" for _ in range(2))
    wanted: list[NewTopic | str] = [NewTopic(first, 2, {"retention.ms": 5000}), second]
    for future in admin.create_topics(wanted, validate_only=True).values():
        future.result()
    assert not {first, second} & set(admin.list_topics().result())
    made = admin.create_topics(wanted)
    assert len(made[first].result().partitions) == 2
    made[second].result()
    again = admin.create_topics([first, f"{first}-other"])
    assert isinstance(again[first].exception(), TopicExists)
    again[f"{first}-other"].result()
    assert len(admin.add_partitions({second: 3})[second].result().partitions) == 3
    assert dict(admin.describe_topics([first])[first].result().config) == {"retention.ms": 5000}
    deleted = admin.delete_topics([first, second, f"{first}-other", "no-such"])
    assert isinstance(deleted.pop("no-such").exception(), UnknownTopicOrPartition)
    for gone in deleted.values():
        gone.result()
    assert not {first, second} & set(broker.list_topics())


def test_offsets_are_listed_by_time(broker: Broker, admin: Admin, topic: str) -> None:
    with broker.producer() as producer:
        for number in range(5):
            producer.send(topic, b"%d" % number, partition=0, timestamp=T0 + 1000 * number)
    when = datetime.fromtimestamp(T0 / 1000 + 2, UTC)
    listed = admin.list_offsets({(topic, 0): when, (topic, 1): "latest", (topic, 7): "latest"})
    first, empty, missing = (listed[TopicPartition(topic, number)] for number in (0, 1, 7))
    assert first.result()[:2] == (2, T0 + 2000)
    assert empty.result().offset == 0
    assert isinstance(missing.exception(), UnknownTopicOrPartition)


def test_the_cluster_is_described(broker: Broker, admin: Admin) -> None:
    described = admin.describe_cluster().result()
    assert described.cluster_id == broker.cluster_id()
    assert described.nodes == broker.nodes()
    assert described.controller_node_id in described.nodes


def test_configs_and_records_of_several_topics_at_once(
    broker: Broker, admin: Admin, topic: str
) -> None:
    looked_at = admin.alter_configs({topic: {"retention.ms": 5}}, validate_only=True)
    assert looked_at[topic].result().config == {"retention.ms": 5}
    assert broker.describe_topic(topic).config == {}
    changed = admin.alter_configs({topic: {"retention.ms": 5}, "no-such": {"retention.ms": 5}})
    assert changed[topic].result().config == {"retention.ms": 5}
    assert isinstance(changed["no-such"].exception(), UnknownTopicOrPartition)
    (entry,) = (
        e for e in admin.describe_configs([topic])[topic].result() if e[0] == "retention.ms"
    )
    assert (entry.value, entry.source) == (5, "topic")
    assert admin.alter_configs({topic: {"retention.ms": None}})[topic].result().config == {}
    with broker.producer() as producer:
        for number in range(5):
            producer.send(topic, b"%d" % number, partition=0)
    deleted = admin.delete_records({(topic, 0): 3, (topic, 1): 3})
    assert deleted[TopicPartition(topic, 0)].result() == 3
    assert isinstance(deleted[TopicPartition(topic, 1)].exception(), OffsetOutOfRange)
    assert admin.delete_records({(topic, 0): -1})[TopicPartition(topic, 0)].result() == 5


def test_a_consumer_tells_the_edges_of_partitions_and_the_offsets_of_times(
    broker: Broker, topic: str
) -> None:
    with broker.producer() as producer:
        for number in range(5):
            producer.send(topic, b"%d" % number, partition=0, timestamp=T0 + number)
    both = [(topic, 0), (topic, 1)]
    with broker.consumer() as consumer:
        assert list(consumer.beginning_offsets(both).values()) == [0, 0]
        assert list(consumer.end_offsets(both).values()) == [5, 0]
        assert list(consumer.offsets_for_times({(topic, 0): T0 + 2}).values()) == [2]
        with pytest.raises(UnknownTopicOrPartition):
            consumer.end_offsets([(topic, 7)])
