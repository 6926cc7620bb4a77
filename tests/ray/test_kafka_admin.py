"""librdkafka's admin client on a broker: topics, configs, and the records of a partition."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

from raylog.actors.runtime.names import CONTROLLER
from raylog.cluster.broker import Broker
from raylog.storage.testing.waiting import wait_for
from tests.harness.faults import kill, pid_of, wait_for_another
from tests.harness.librdkafka import DEADLINE_S, Librdkafka, running

TOPIC = "made-by-librdkafka"


@pytest.fixture
def broker(local_ray: None, tmp_path: Path) -> Iterator[Broker]:
    with running([str(tmp_path / "a")], f"kafka-{uuid.uuid4().hex[:8]}") as one:
        yield one


@pytest.fixture
def kafka(broker: Broker) -> Librdkafka:
    return Librdkafka(broker)


@pytest.fixture
def admin(kafka: Librdkafka) -> AdminClient:
    return kafka.admin()


def ended(futures: dict[Any, Any]) -> list[Any]:
    """What became of each entry. Raises KafkaException."""
    return [future.result(DEADLINE_S) for future in futures.values()]


def make(admin: AdminClient, **config: str) -> None:
    new = NewTopic(TOPIC, num_partitions=2, replication_factor=1, config=config)
    ended(admin.create_topics([new]))


def refused(futures: dict[Any, Any]) -> tuple[int, str]:
    with pytest.raises(KafkaException) as raised:
        ended(futures)
    error = raised.value.args[0]
    return error.code(), error.str()


def test_a_topic_lives_from_its_creation_to_its_end(
    broker: Broker, kafka: Librdkafka, admin: AdminClient
) -> None:
    make(admin, **{"retention.ms": "-1"})
    assert broker.list_topics() == [TOPIC]
    wait_for(lambda: len(kafka.leaders(TOPIC)) == 2, DEADLINE_S, "all have leaders")
    code, words = refused(admin.create_topics([NewTopic(TOPIC, 1, 1)]))
    assert code == 36
    assert TOPIC in words
    ended(admin.create_partitions([NewPartitions(TOPIC, 3)]))
    wait_for(lambda: len(kafka.leaders(TOPIC)) == 3, DEADLINE_S, "all have leaders")
    ended(admin.delete_topics([TOPIC]))
    assert broker.list_topics() == []
    assert refused(admin.delete_topics([TOPIC]))[0] == 3


def test_a_topics_config_is_shown_and_changed(broker: Broker, admin: AdminClient) -> None:
    make(admin, **{"retention.ms": "86400000"})
    resource = ConfigResource(ResourceType.TOPIC, TOPIC)
    [entries] = ended(admin.describe_configs([resource]))
    assert (entries["retention.ms"].value, entries["retention.ms"].source) == ("86400000", 1)
    change = ConfigEntry("segment.bytes", "1048576", incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[change])
    ended(admin.incremental_alter_configs([changed]))
    [entries] = ended(admin.describe_configs([resource]))
    assert entries["segment.bytes"].value == "1048576"
    assert broker.describe_topic(TOPIC).config == {
        "retention.ms": 86_400_000,
        "segment.bytes": 1_048_576,
    }


def test_records_are_deleted(broker: Broker, kafka: Librdkafka, admin: AdminClient) -> None:
    make(admin)
    producer = kafka.producer()
    for number in range(10):
        producer.produce(TOPIC, b"%d" % number, partition=0)
    assert producer.flush(DEADLINE_S) == 0
    [deleted] = ended(admin.delete_records([TopicPartition(TOPIC, 0, 4)]))
    assert deleted.low_watermark == 4
    left = broker.consumer(TOPIC, from_="earliest", to="latest")
    assert [record.value for record in left] == [b"%d" % number for number in range(4, 10)]


def test_while_there_is_no_controller_a_creation_says_so_and_nothing_is_half_made(
    broker: Broker, admin: AdminClient
) -> None:
    admin.list_topics(timeout=DEADLINE_S)  # connected
    pid = pid_of(broker, CONTROLLER)
    kill(pid)
    try:
        make(admin)
    except KafkaException as error:
        code = error.args[0].code()
    else:
        code = 0  # the next Controller has done it
    wait_for_another(broker, CONTROLLER, pid)
    # 7: it ended in the middle; 41: there was none
    assert code in (0, 7, 41)
    if TOPIC not in broker.list_topics():
        assert code
        make(admin)
    assert len(broker.describe_topic(TOPIC).partitions) == 2
