"""kafka-python: its program (see ``deeds.py``)."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import kafka
from deeds import decoded, encoded, numbers_until, progress, serve
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.structs import OffsetAndMetadata

DEADLINE_S = 60.0
POLL_MS = 1000
PARTITION_EDGE = {"earliest": "beginning_offsets", "latest": "end_offsets"}


def name_of(error: BaseException) -> str:
    return type(error).__name__


class Client:
    def __init__(self, servers: str) -> None:
        self._settings: dict[str, Any] = {"bootstrap_servers": servers.split(",")}

    @contextmanager
    def _admin(self) -> Iterator[Any]:
        """A new one each time: it asks no broker that is newer than its metadata, for minutes."""
        admin = KafkaAdminClient(**self._settings)
        try:
            yield admin
        finally:
            admin.close()

    def hello(self) -> dict[str, Any]:
        return {"version": kafka.__version__}

    def metadata(self, topic: str) -> dict[str, Any]:
        with self._admin() as admin:
            [described] = admin.describe_topics([topic])
            return {
                "brokers": len(admin.describe_cluster()["brokers"]),
                "topics": admin.list_topics(),
                "leaders": {
                    part["partition_index"]: part["leader_id"] for part in described["partitions"]
                },
            }

    def produce(
        self, topic: str, codec: str, idempotent: bool, largest: int, records: list[dict[str, Any]]
    ) -> dict[str, Any]:
        producer = KafkaProducer(
            **self._settings,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            max_request_size=largest,
            linger_ms=20,
        )
        try:
            sent = [
                producer.send(
                    topic,
                    key=decoded(record["key"]),
                    value=decoded(record["value"]),
                    partition=record["partition"],
                    timestamp_ms=record["timestamp"],
                    headers=[(name, decoded(value)) for name, value in record["headers"]],
                )
                for record in records
            ]
            return {"offsets": [future.get(DEADLINE_S).offset for future in sent]}
        finally:
            producer.close(DEADLINE_S)

    def consume(self, topic: str, places: dict[str, Any], count: int) -> dict[str, Any]:
        consumer = KafkaConsumer(**self._settings, group_id=None)
        wanted = {TopicPartition(topic, int(number)): place for number, place in places.items()}
        consumer.assign(list(wanted))
        for part, place in wanted.items():
            if place == "earliest":
                consumer.seek_to_beginning(part)
            else:
                consumer.seek(part, place)
        found: list[dict[str, Any]] = []
        while len(found) < count:
            polled = consumer.poll(POLL_MS, max_records=count - len(found))
            for records in polled.values():
                found += map(self._seen, records)
            progress(len(found))
        consumer.close()
        return {"records": found}

    def _seen(self, record: Any) -> dict[str, Any]:
        return {
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": encoded(record.key),
            "value": encoded(record.value),
            "headers": [[name, encoded(value)] for name, value in record.headers],
        }

    def offset(self, topic: str, partition: int, at: Any) -> dict[str, Any]:
        consumer = KafkaConsumer(**self._settings, group_id=None)
        place = TopicPartition(topic, partition)
        if isinstance(at, int):
            found = consumer.offsets_for_times({place: at})[place]
            offset = -1 if found is None else found.offset
        else:
            offset = getattr(consumer, PARTITION_EDGE[at])([place])[place]
        consumer.close()
        return {"offset": offset}

    def copy(self, source: str, target: str, group: str, id: str, count: int) -> dict[str, Any]:
        producer = KafkaProducer(**self._settings, transactional_id=id)
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(target, b"aborted").get(DEADLINE_S)
        producer.abort_transaction()
        consumer = KafkaConsumer(
            source,
            **self._settings,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        copied = 0
        while copied < count:
            polled = consumer.poll(POLL_MS, max_records=count - copied)
            if polled:
                producer.begin_transaction()
                for records in polled.values():
                    for record in records:
                        producer.send(target, record.value)
                places = {
                    part: OffsetAndMetadata(records[-1].offset + 1, "", -1)
                    for part, records in polled.items()
                }
                producer.send_offsets_to_transaction(places, consumer.group_metadata())
                producer.commit_transaction()
            copied += sum(map(len, polled.values()))
            progress(copied)
        consumer.close()
        producer.close(DEADLINE_S)
        return {"copied": copied}

    def stream(self, topic: str, partitions: int, until: str) -> dict[str, Any]:
        producer = KafkaProducer(**self._settings, enable_idempotence=True, linger_ms=5)
        acknowledged = 0
        failures: list[str] = []
        for numbers in numbers_until(until):
            sent = [
                producer.send(topic, b"%d" % number, partition=number % partitions)
                for number in numbers
            ]
            for future in sent:
                try:
                    future.get(DEADLINE_S)
                    acknowledged += 1
                except Exception as error:
                    failures.append(name_of(error))
        producer.close(DEADLINE_S)
        return {"acknowledged": acknowledged, "failures": failures}

    def create_topic(self, topic: str, partitions: int, config: dict[str, str]) -> None:
        wanted = {"num_partitions": partitions, "replication_factor": 1, "configs": config}
        with self._admin() as admin:
            admin.create_topics({topic: wanted})

    def add_partitions(self, topic: str, total: int) -> None:
        with self._admin() as admin:
            admin.create_partitions({topic: total})

    def delete_topic(self, topic: str) -> None:
        with self._admin() as admin:
            admin.delete_topics([topic])

    def topic_config(self, topic: str) -> Any:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        with self._admin() as admin:
            told = admin.describe_configs([resource], config_filter="all")
        return {name: entry["value"] for name, entry in told["topic"][topic].items()}

    def alter_config(self, topic: str, config: dict[str, str]) -> None:
        with self._admin() as admin:
            admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, config)])

    def delete_records(self, topic: str, partition: int, before: int) -> dict[str, int]:
        place = TopicPartition(topic, partition)
        with self._admin() as admin:
            deleted = admin.delete_records({place: before})
        return {"low": deleted[place]["low_watermark"]}


if __name__ == "__main__":
    serve(Client(sys.argv[1]), name_of)
