"""Real clients of a running Kafka: librdkafka and aiokafka, and one request that no client would
send."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.produce import ProduceRequest
from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    IsolationLevel,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from raylog.storage.records.encode import Row
from tests.kafka.written import CREATE_TIME, LOG_APPEND_TIME, Seen

TIMEOUT_S = 30
COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"
ISOLATIONS = (COMMITTED, UNCOMMITTED)


class Produced(NamedTuple):
    """Kafka's answer to one batch."""

    error: int  # Kafka's code, 0 is none
    base_offset: int


def admin(address: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": address, "log_level": 0})


def create_topics(address: str, topics: Mapping[str, Mapping[str, Any]]) -> None:
    """Topics of one partition, by name with their config."""
    wanted = [
        NewTopic(name, 1, 1, config={key: str(value) for key, value in config.items()})
        for name, config in topics.items()
    ]
    client = admin(address)  # its end would end its calls
    for future in client.create_topics(wanted).values():
        future.result(TIMEOUT_S)


def delete_records(address: str, topic: str, before_offset: int) -> None:
    """Kafka's DeleteRecords."""
    client = admin(address)
    for future in client.delete_records([TopicPartition(topic, 0, before_offset)]).values():
        future.result(TIMEOUT_S)


# -- reading ---------------------------------------------------------------------------------------


def consume(address: str, topics: Iterable[str], isolation: str) -> dict[str, list[Seen]]:
    """All records of partition 0 of each topic, by librdkafka."""
    seen: dict[str, list[Seen]] = {topic: [] for topic in topics}
    unread = set(seen)
    consumer = _consumer(address, isolation)
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING) for topic in seen])
        while unread:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, (
                f"neither a record nor the end of {unread} within {TIMEOUT_S} s"
            )
            error, topic = message.error(), message.topic()
            assert topic is not None
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                unread.discard(topic)
                continue
            assert error is None, error
            seen[topic].append(_seen(message))
    finally:
        consumer.close()
    return seen


class Bounds(NamedTuple):
    """A partition's offsets as Kafka's ListOffsets tells them."""

    log_start: int
    last_stable: int
    high_watermark: int


def bounds(address: str, topics: Iterable[str]) -> dict[str, Bounds]:
    """The bounds of partition 0 of each topic. Raises KafkaException while one has no leader."""
    client, every = admin(address), list(topics)
    found = [
        _list_offsets(client, every, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED),
        _list_offsets(client, every, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED),
        _list_offsets(client, every, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED),
    ]
    return {topic: Bounds(*offsets) for topic, *offsets in zip(every, *found, strict=True)}


def _list_offsets(
    client: AdminClient, topics: list[str], which: OffsetSpec, isolation: IsolationLevel
) -> list[int]:
    wanted = {TopicPartition(topic, 0): which for topic in topics}
    futures = (
        client.list_offsets(wanted, isolation_level=isolation, request_timeout=TIMEOUT_S)
        if wanted
        else {}
    )
    found = {
        partition.topic: future.result(TIMEOUT_S).offset for partition, future in futures.items()
    }
    return [found[topic] for topic in topics]


def offsets_for_times(address: str, topic: str, times: Iterable[int]) -> dict[int, int]:
    """By time, the offset of the first record that is as late; -1 where there is none."""
    consumer = _consumer(address, UNCOMMITTED)
    try:
        found = {}
        for time in times:
            (answer,) = consumer.offsets_for_times([TopicPartition(topic, 0, time)], TIMEOUT_S)
            assert answer.error is None
            found[time] = answer.offset
        return found
    finally:
        consumer.close()


def _consumer(address: str, isolation: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "oracle",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 50,
            "log_level": 0,
        }
    )


def _seen(message: Message) -> Seen:
    kind, timestamp = message.timestamp()
    headers: Any = tuple(message.headers() or ())
    offset: Any = message.offset()
    timestamp_type = LOG_APPEND_TIME if kind == TIMESTAMP_LOG_APPEND_TIME else CREATE_TIME
    return Seen(offset, timestamp, timestamp_type, message.key(), message.value(), headers)


def consume_by_aiokafka(
    address: str, topics: Iterable[str], isolation: str
) -> dict[str, list[Seen]]:
    """All records of partition 0 of each topic, by aiokafka."""
    return asyncio.run(_consume_by_aiokafka(address, list(topics), isolation))


async def _consume_by_aiokafka(
    address: str, topics: list[str], isolation: str
) -> dict[str, list[Seen]]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=address,
        isolation_level=isolation,
        enable_auto_commit=False,
        fetch_max_wait_ms=50,
        check_crcs=True,
    )
    await consumer.start()
    try:
        return {
            topic: await _read_topic(consumer, AioTopicPartition(topic, 0), isolation)
            for topic in topics
        }
    finally:
        await consumer.stop()


async def _read_topic(
    consumer: AIOKafkaConsumer, partition: AioTopicPartition, isolation: str
) -> list[Seen]:
    consumer.assign([partition])
    await consumer.seek_to_beginning(partition)
    seen: list[Seen] = []
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            for record in (await consumer.getmany(partition, timeout_ms=100)).get(partition, ()):
                headers = tuple((name, value) for name, value in record.headers)
                seen.append(
                    Seen(
                        record.offset,
                        record.timestamp,
                        record.timestamp_type,
                        record.key,
                        record.value,
                        headers,
                    )
                )
            position = await consumer.position(partition)
            is_committed = isolation == COMMITTED
            end = (
                consumer.last_stable_offset(partition)
                if is_committed
                else consumer.highwater(partition)
            )
            if end is not None and position >= end:
                return seen


# -- writing ---------------------------------------------------------------------------------------


class Sender:
    """A librdkafka producer that knows which of its records were acknowledged, and at which
    offset."""

    def __init__(self, address: str, **config: Any) -> None:
        settings = {"bootstrap.servers": address, "linger.ms": 5, "log_level": 0}
        self.producer = Producer(
            settings | {key.replace("_", "."): value for key, value in config.items()}
        )
        self.acknowledged: list[Seen] = []

    def send(self, topic: str, rows: Iterable[Row]) -> None:
        for timestamp, key, value, headers in rows:
            self.producer.produce(
                topic,
                value=value,
                key=key,
                partition=0,
                timestamp=timestamp,
                headers=list(headers),
                on_delivery=self._note(timestamp, key, value, tuple(headers)),
            )
            self.producer.poll(0)

    def _note(
        self, timestamp: int, key: bytes | None, value: bytes | None, headers: Any
    ) -> Callable[..., None]:
        def note(error: KafkaError | None, message: Message) -> None:
            if error is None:
                offset: Any = message.offset()
                self.acknowledged.append(Seen(offset, timestamp, CREATE_TIME, key, value, headers))

        return note

    def flush(self) -> None:
        """Return when all that was sent is acknowledged."""
        left = self.producer.flush(TIMEOUT_S)
        assert left == 0, f"{left} records without an answer"

    def give_up(self) -> None:
        """Forget what has no answer: else the client would send it to the next broker at this
        address."""
        self.producer.purge()
        self.producer.flush(TIMEOUT_S)


def send_batch(address: str, topic: str, batch: bytes) -> Produced:
    """Send one encoded batch as it is: a client's own producer would not repeat itself, or speak
    for another."""
    return asyncio.run(_send_batch(address, topic, batch))


async def _send_batch(address: str, topic: str, batch: bytes) -> Produced:
    client = AIOKafkaClient(bootstrap_servers=address)
    await client.bootstrap()
    try:
        await client.set_topics([topic])
        node_id = client.cluster.leader_for_partition(AioTopicPartition(topic, 0))
        request = ProduceRequest(None, -1, TIMEOUT_S * 1000, [(topic, [(0, batch)])])
        response = await client.send(node_id, request)
        ((_, ((_, error, offset, *_),)),) = response.topics
        return Produced(error, offset)
    finally:
        await client.close()
