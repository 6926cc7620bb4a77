"""confluent-kafka, which is librdkafka: its program (see ``deeds.py``)."""

import sys
from typing import Any

import confluent_kafka
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from deeds import decoded, encoded, numbers_until, progress, serve

DEADLINE_S = 60.0
PLACES = {"earliest": confluent_kafka.OFFSET_BEGINNING, "latest": confluent_kafka.OFFSET_END}


def name_of(error: BaseException) -> str:
    if isinstance(error, KafkaException):
        return str(error.args[0].name())
    return type(error).__name__


def results(futures: dict[Any, Any]) -> list[Any]:
    return [future.result(DEADLINE_S) for future in futures.values()]


class Client:
    def __init__(self, servers: str) -> None:
        self._settings: dict[str, Any] = {"bootstrap.servers": servers, "log_level": 0}
        self._admin = AdminClient(self._settings)

    def hello(self) -> dict[str, Any]:
        library = confluent_kafka.libversion()[0]
        return {"version": f"{confluent_kafka.__version__}, librdkafka {library}"}

    def metadata(self, topic: str) -> dict[str, Any]:
        everything = self._admin.list_topics(timeout=DEADLINE_S)
        parts = everything.topics[topic].partitions
        return {
            "brokers": len(everything.brokers),
            "topics": list(everything.topics),
            "leaders": {number: part.leader for number, part in parts.items()},
        }

    def produce(
        self, topic: str, codec: str, idempotent: bool, largest: int, records: list[dict[str, Any]]
    ) -> dict[str, Any]:
        settings = {
            "compression.type": codec,
            "enable.idempotence": idempotent,
            "message.max.bytes": largest,
            "linger.ms": 20,
        }
        producer = Producer({**self._settings, **settings})
        offsets = [-1] * len(records)
        errors: list[KafkaError] = []
        for place, record in enumerate(records):

            def delivered(error: Any, message: Any, place: int = place) -> None:
                if error is not None:
                    errors.append(error)
                else:
                    offsets[place] = message.offset()

            producer.produce(
                topic,
                key=decoded(record["key"]),
                value=decoded(record["value"]),
                partition=record["partition"],
                timestamp=record["timestamp"],
                headers=[(name, decoded(value)) for name, value in record["headers"]],
                on_delivery=delivered,
            )
        producer.flush(DEADLINE_S)
        if errors:
            raise KafkaException(errors[0])
        return {"offsets": offsets}

    def consume(self, topic: str, places: dict[str, Any], count: int) -> dict[str, Any]:
        consumer = Consumer({**self._settings, "group.id": "-", "enable.auto.commit": False})
        wanted = [
            TopicPartition(topic, int(number), PLACES.get(place, place))
            for number, place in places.items()
        ]
        consumer.assign(wanted)
        found: list[dict[str, Any]] = []
        while len(found) < count:
            for message in consumer.consume(count - len(found), 1.0):
                if message.error() is not None:
                    raise KafkaException(message.error())
                found.append(self._seen(message))
            progress(len(found))
        consumer.close()
        return {"records": found}

    def _seen(self, message: Any) -> dict[str, Any]:
        headers = message.headers() or []
        return {
            "partition": message.partition(),
            "offset": message.offset(),
            "timestamp": message.timestamp()[1],
            "key": encoded(message.key()),
            "value": encoded(message.value()),
            "headers": [[name, encoded(value)] for name, value in headers],
        }

    def offset(self, topic: str, partition: int, at: Any) -> dict[str, Any]:
        consumer = Consumer({**self._settings, "group.id": "-"})
        place = TopicPartition(topic, partition)
        if isinstance(at, int):
            place.offset = at
            [found] = consumer.offsets_for_times([place], timeout=DEADLINE_S)
            offset = found.offset
        else:
            first, end = consumer.get_watermark_offsets(place, timeout=DEADLINE_S)
            offset = first if at == "earliest" else end
        consumer.close()
        return {"offset": offset}

    def copy(self, source: str, target: str, group: str, id: str, count: int) -> dict[str, Any]:
        producer = Producer({**self._settings, "transactional.id": id})
        producer.init_transactions(DEADLINE_S)
        producer.begin_transaction()
        producer.produce(target, b"aborted")
        producer.flush(DEADLINE_S)
        producer.abort_transaction(DEADLINE_S)
        reading = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer({**self._settings, **reading})
        consumer.subscribe([source])
        copied = 0
        while copied < count:
            messages = consumer.consume(count - copied, 1.0)
            for message in messages:
                if message.error() is not None:
                    raise KafkaException(message.error())
            if messages:
                producer.begin_transaction()
                for message in messages:
                    producer.produce(target, message.value())
                places = consumer.position(consumer.assignment())
                who = consumer.consumer_group_metadata()
                producer.send_offsets_to_transaction(places, who, DEADLINE_S)
                producer.commit_transaction(DEADLINE_S)
            copied += len(messages)
            progress(copied)
        consumer.close()
        return {"copied": copied}

    def stream(self, topic: str, partitions: int, until: str) -> dict[str, Any]:
        producer = Producer({**self._settings, "enable.idempotence": True, "linger.ms": 5})
        acknowledged = 0
        failures: list[str] = []

        def delivered(error: Any, _: Any) -> None:
            nonlocal acknowledged
            if error is not None:
                failures.append(error.name())
            else:
                acknowledged += 1

        for numbers in numbers_until(until):
            for number in numbers:
                producer.produce(
                    topic, b"%d" % number, partition=number % partitions, on_delivery=delivered
                )
            producer.flush(DEADLINE_S)
        return {"acknowledged": acknowledged, "failures": failures}

    def create_topic(self, topic: str, partitions: int, config: dict[str, str]) -> None:
        results(self._admin.create_topics([NewTopic(topic, partitions, 1, config=config)]))

    def add_partitions(self, topic: str, total: int) -> None:
        results(self._admin.create_partitions([NewPartitions(topic, total)]))

    def delete_topic(self, topic: str) -> None:
        results(self._admin.delete_topics([topic]))

    def topic_config(self, topic: str) -> dict[str, str]:
        [entries] = results(
            self._admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)])
        )
        return {name: entry.value for name, entry in entries.items()}

    def alter_config(self, topic: str, config: dict[str, str]) -> None:
        changes = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
        results(self._admin.incremental_alter_configs([resource]))

    def delete_records(self, topic: str, partition: int, before: int) -> dict[str, int]:
        wanted = [TopicPartition(topic, partition, before)]
        [deleted] = results(self._admin.delete_records(wanted))
        return {"low": deleted.low_watermark}


if __name__ == "__main__":
    serve(Client(sys.argv[1]), name_of)
