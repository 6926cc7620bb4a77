"""librdkafka, which most programs use Kafka by, on partitions that are served by socket."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from raylog.actors.plane.addresses import listen_tcp
from raylog.actors.plane.cluster_door import ClusterDoor
from raylog.actors.plane.connection import Connection
from raylog.actors.plane.door import Door
from raylog.actors.plane.hosts import Host, Hosts
from raylog.actors.plane.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from raylog.actors.plane.listener import Acceptor
from raylog.actors.plane.reading import Frames
from raylog.actors.plane.room import Room
from raylog.storage.clock import SystemClock
from raylog.storage.testing.waiting import DEADLINE_S
from tests.unit.actors.plane.clients import TOPIC, TOPIC_ID, FakeController, partition

HOST, PARTITIONS, CONTROLLER, FIRST = "127.0.0.1", 3, 1, 100
RECORDS = 300
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """A broker for each partition, and one that leads none; the address of that one."""
    sockets = {
        node: listen_tcp(HOST, 0) for node in (CONTROLLER, *range(FIRST, FIRST + PARTITIONS))
    }
    brokers = tuple(
        BrokerImage(node, HOST, listening.getsockname()[1]) for node, listening in sockets.items()
    )
    leaders = tuple(PartitionImage(FIRST + number, 0) for number in range(PARTITIONS))
    topic = TopicImage(TOPIC, TOPIC_ID, leaders)
    image = ClusterImage("a-cluster", CONTROLLER, brokers, {TOPIC: topic})
    cluster = ClusterDoor(FakeController(), lambda: (), image)
    failures: list[BaseException] = []
    with ExitStack() as stack:
        for node, listening in sockets.items():
            door, room = Door(cluster), Room()
            if node >= FIRST:
                number = node - FIRST
                log = partition(folder, number, clock=SystemClock())
                door.hosts = Hosts([Host(TOPIC, TOPIC_ID.bytes, number, log, log.delete_records)])

            def begin(accepted: Any, door: Door = door, room: Room = room) -> Connection:
                return Connection(accepted, Frames(accepted, room), door)

            listener = Acceptor(listening, begin, lambda _: None, failures.append)
            stack.callback(listener.close, DEADLINE_S)
        yield f"{HOST}:{brokers[0].port}"
    assert failures == []


def consumed(address: str, count: int) -> list[Message]:
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "g", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    messages: list[Message] = []
    end = time.monotonic() + DEADLINE_S
    while len(messages) < count and time.monotonic() < end:
        messages += consumer.consume(count, 0.5)
    consumer.close()
    assert [message.error() for message in messages] == [None] * count
    return messages


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with serving(tmp_path) as where:
        yield where


def test_it_finds_the_brokers_and_the_topic(address: str) -> None:
    found = AdminClient({"bootstrap.servers": address}).list_topics(timeout=DEADLINE_S)
    assert found.brokers.keys() == {CONTROLLER, *range(FIRST, FIRST + PARTITIONS)}
    leaders = {number: part.leader for number, part in found.topics[TOPIC].partitions.items()}
    assert leaders == {0: 100, 1: 101, 2: 102}


@pytest.mark.parametrize("codec", CODECS)
def test_what_it_produces_it_consumes(address: str, codec: str) -> None:
    failed: list[Any] = []
    producer = Producer({"bootstrap.servers": address, "compression.type": codec})
    for number in range(RECORDS):
        producer.produce(
            TOPIC,
            value=b"value %d" % number,
            key=b"key %d" % number,
            headers=[("header", b"%d" % number)],
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(DEADLINE_S) == 0
    assert failed == []
    messages = consumed(address, RECORDS)
    values = {(message.key(), message.value()) for message in messages}
    assert values == {(b"key %d" % n, b"value %d" % n) for n in range(RECORDS)}
    assert all(message.headers() for message in messages)


def test_it_finds_offsets_by_time_and_the_ends(address: str) -> None:
    producer = Producer({"bootstrap.servers": address})
    start_ms = int(time.time() * 1000) - 10_000
    for number in range(10):
        producer.produce(TOPIC, b"v", partition=1, timestamp=start_ms + number)
    assert producer.flush(DEADLINE_S) == 0
    consumer = Consumer({"bootstrap.servers": address, "group.id": "g"})
    place = TopicPartition(TOPIC, 1)
    assert consumer.get_watermark_offsets(place, timeout=DEADLINE_S) == (0, 10)
    asked = [TopicPartition(TOPIC, 1, start_ms + 5)]
    assert [found.offset for found in consumer.offsets_for_times(asked, timeout=DEADLINE_S)] == [5]
    consumer.close()
