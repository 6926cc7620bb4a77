"""A worker that reads by librdkafka: it begins anywhere, and follows all topics for a while."""

import time
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.soak.clients import (
    PATIENCE_S,
    RETRY_S,
    STOP_READING,
    Worker,
    identity_of,
    key_of,
)
from tests.soak.consuming import ANSWER_S, BEHIND, DRAIN_S, LIFE_S, told
from tests.soak.history import Ended, Partition, Poll, ints
from tests.soak.plan import Stable

MOST = 500
POLL_S = 1.0

Answer = TypeVar("Answer")
Key = tuple[str, int]


def consume(worker: Worker, topics: list[Stable]) -> None:
    """Read until told to stop, then to the end."""
    lives = 0
    while not worker.is_over(STOP_READING):
        lives += 1
        try:
            reader = Reader(worker, topics, f"{worker.name}.{lives}")
            end = time.monotonic() + worker.rng.uniform(*LIFE_S)
            while time.monotonic() < end and not worker.is_over(STOP_READING):
                reader.poll()
            if worker.is_over(STOP_READING):
                reader.drain()
            reader.close()
        except KafkaException as error:
            # Where the Controller is away for minutes, brokers tell what they were told before.
            print(f"{worker.name}: {error}", flush=True)
        except Exception as error:
            worker.surprise(error)
            time.sleep(1)


class Reader:
    """One consumer, whose every answer is taken down."""

    def __init__(self, worker: Worker, topics: list[Stable], name: str) -> None:
        self._worker, self._name = worker, name
        self._partitions = {
            (topic.name, number): Partition(topic.name, topic.topic_id, number)
            for topic in topics
            for number in range(topic.partitions)
        }
        self._stretch = dict.fromkeys(self._partitions, 0)  # a seek begins another
        self._positions: dict[Key, int] = {}
        self._lost: list[Key] = []  # where retention was faster
        self._consumer = Consumer(
            {
                "bootstrap.servers": worker.patiently(lambda: worker.broker.bootstrap_servers),
                "group.id": name,  # there are no groups: it is asked for, and not used
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": worker.rng.choice(["read_uncommitted", "read_committed"]),
            }
        )
        begins = []
        for key in self._partitions:
            low, high = self._bounds(key)
            begin = high
            if worker.rng.random() < 0.7:
                begin = max(high - worker.rng.randrange(BEHIND), low)
            self._positions[key] = begin
            begins.append(TopicPartition(*key, begin))
        self._consumer.assign(begins)

    def close(self) -> None:
        self._consumer.close()

    def name_of(self, key: Key) -> str:
        return f"{self._name}/{self._stretch[key]}"

    def poll(self) -> None:
        invoked = time.monotonic_ns()
        found: dict[Key, list[Message]] = {}
        for message in self._consumer.consume(MOST, POLL_S):
            error = message.error()
            if error is not None:
                self._take(error, message)
                continue
            found.setdefault(_key_of(message), []).append(message)
        for key, messages in found.items():
            offsets = ints(_offset_of(one) for one in messages)
            self._worker.writer.write(
                Poll(
                    self.name_of(key),
                    self._partitions[key],
                    invoked,
                    time.monotonic_ns(),
                    offsets,
                    ints(identity_of(one.value(), one.headers()) for one in messages),
                    ints(key_of(one.key()) for one in messages),
                )
            )
            self._positions[key] = max(self._positions[key], int(offsets[-1]) + 1)
        while self._lost:
            self._seek(self._lost.pop())

    def _take(self, error: KafkaError, message: Message) -> None:
        """What librdkafka says instead of a record."""
        if error.code() == KafkaError._PARTITION_EOF:
            key = _key_of(message)
            self._positions[key] = max(self._positions[key], _offset_of(message))
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            self._lost.append(_key_of(message))
        elif error.fatal():
            raise KafkaException(error)
        else:
            print(f"{self._name}: {error}", flush=True)

    def _seek(self, key: Key) -> None:
        """Retention was faster: go on at the log's start."""
        low, _ = self._bounds(key)
        self._stretch[key] += 1
        self._positions[key] = low
        self._consumer.seek(TopicPartition(*key, low))

    def _bounds(self, key: Key) -> tuple[int, int]:
        """Where a log begins and ends now, as its LogActor says; the end is taken down."""
        invoked = time.monotonic_ns()

        def ask() -> tuple[int, int]:
            return self._consumer.get_watermark_offsets(
                TopicPartition(*key), timeout=ANSWER_S, cached=False
            )

        low, high = _patiently(ask)
        told(self._worker, self._name, self._partitions[key], invoked, high)
        return low, high

    def drain(self) -> None:
        """Read on to the end of every partition, or as far as one comes in time."""
        ends = {key: self._bounds(key)[1] for key in self._partitions}
        deadline = time.monotonic() + DRAIN_S
        while time.monotonic() < deadline and any(
            self._positions[key] < end for key, end in ends.items()
        ):
            self.poll()
        for key, partition in self._partitions.items():
            ended = Ended(self.name_of(key), partition, self._positions[key])
            self._worker.writer.write(ended)


def _patiently(ask: Callable[[], Answer]) -> Answer:
    """Ask again while brokers are away."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return ask()
        except KafkaException as error:
            if time.monotonic() > deadline or error.args[0].fatal():
                raise
        time.sleep(RETRY_S)


def _key_of(message: Message) -> Key:
    topic, number = message.topic(), message.partition()
    assert topic is not None, "it is of a partition"
    assert number is not None, "it is of a partition"
    return topic, number


def _offset_of(message: Message) -> int:
    offset = message.offset()
    assert offset is not None, "it has one"
    return offset
