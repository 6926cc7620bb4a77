"""librdkafka, by which most programs use Kafka, on a broker: it knows nothing of Ray or raylog."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import raylog
from raylog.cluster.broker import Broker
from raylog.storage.testing.waiting import wait_for

DEADLINE_S = 60.0
PARTITIONS = 2


class Librdkafka:
    """Producers and consumers of a broker's topic, and what librdkafka says meanwhile."""

    def __init__(self, broker: Broker, **settings: str) -> None:
        """``settings``: librdkafka's, with ``_`` for each dot."""
        self._settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": broker.bootstrap_servers,
            **{name.replace("_", "."): value for name, value in settings.items()},
            "log_level": 0,  # a broker that is killed is no news here
            "reconnect.backoff.max.ms": 500,
        }

    def producer(self, **settings: Any) -> Producer:
        """``settings``: librdkafka's, with ``_`` for each dot."""
        return Producer(
            {
                **self._settings,
                "enable.idempotence": True,
                "linger.ms": 5,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )

    def admin(self) -> AdminClient:
        return AdminClient(self._settings)

    def member(self, group: str, **settings: Any) -> Consumer:
        """A consumer of a group that reads from the beginning; ``settings``: as above."""
        return Consumer(
            {
                **self._settings,
                "group.id": group,
                "auto.offset.reset": "earliest",
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )

    def leaders(self, topic: str) -> dict[int, int]:
        """The leader of each partition that has one."""
        found = self.admin().list_topics(topic, timeout=DEADLINE_S)
        parts = found.topics[topic].partitions
        return {number: part.leader for number, part in parts.items() if part.leader >= 0}

    def brokers(self) -> dict[int, int]:
        """The port of each broker."""
        found = self.admin().list_topics(timeout=DEADLINE_S)
        return {number: one.port for number, one in found.brokers.items()}

    def values(self, topic: str, count: int) -> list[bytes]:
        """The values of a topic, partition by partition; at least so many."""
        group = {"group.id": "none", "enable.auto.commit": False}
        consumer = Consumer({**self._settings, **group, "enable.partition.eof": True})
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        found: dict[Any, list[Any]] = {number: [] for number in range(PARTITIONS)}

        def has_all() -> bool:
            for message in consumer.consume(count + PARTITIONS, 0.2):
                if message.error() is None:
                    found[message.partition()].append(message.value())
            return sum(map(len, found.values())) >= count

        wait_for(has_all, DEADLINE_S, f"{count} records are there")
        consumer.close()
        return [value for number in range(PARTITIONS) for value in found[number]]


@contextmanager
def running(dirs: Sequence[str], namespace: str, **config: object) -> Iterator[Broker]:
    """``config``: keys of the broker, with ``_`` for each dot."""
    settings = {name.replace("_", "."): value for name, value in config.items()}
    broker = raylog.start(dirs, namespace=namespace, config=settings)
    try:
        yield broker
    finally:
        assert broker.stop(), "the broker stops in order"


def once_all_listen(broker: Broker) -> Librdkafka:
    """When each partition has a leader: a LogActor may have to ask where to listen."""
    kafka = Librdkafka(broker)
    wait_for(lambda: len(kafka.leaders("orders")) == PARTITIONS, DEADLINE_S, "all have leaders")
    return kafka
