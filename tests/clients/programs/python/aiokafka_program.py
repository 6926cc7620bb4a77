"""aiokafka: its program (see ``deeds.py``). Each deed is a run of one event loop."""

import asyncio
import sys
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import for_code
from deeds import decoded, encoded, numbers_until, progress, serve

POLL_MS = 1000


def name_of(error: BaseException) -> str:
    return type(error).__name__


def check(answers: list[tuple[Any, ...]]) -> None:
    """Its admin client hands errors of single topics out as codes: raise the first."""
    for _, code, *words in answers:
        if code:
            raise for_code(code)(*words)


class Client:
    def __init__(self, servers: str) -> None:
        self._settings: dict[str, Any] = {"bootstrap_servers": servers}
        self._loop = asyncio.new_event_loop()

    def __getattr__(self, deed: str) -> Any:
        """A deed, run to its end; the coroutine is called ``_deed``."""
        if deed.startswith("_"):
            raise AttributeError(deed)
        method = getattr(self, f"_{deed}", None)
        if method is None:
            raise AttributeError(deed)
        return lambda **fields: self._loop.run_until_complete(method(**fields))

    async def _hello(self) -> dict[str, Any]:
        return {"version": aiokafka.__version__}

    async def _with_admin(self, deed: Any) -> Any:
        admin = AIOKafkaAdminClient(**self._settings)
        await admin.start()
        try:
            return await deed(admin)
        finally:
            await admin.close()

    async def _metadata(self, topic: str) -> dict[str, Any]:
        async def ask(admin: Any) -> dict[str, Any]:
            [described] = await admin.describe_topics([topic])
            cluster = await admin.describe_cluster()
            return {
                "brokers": len(cluster["brokers"]),
                "topics": await admin.list_topics(),
                "leaders": {part["partition"]: part["leader"] for part in described["partitions"]},
            }

        return await self._with_admin(ask)

    async def _produce(
        self, topic: str, codec: str, idempotent: bool, largest: int, records: list[dict[str, Any]]
    ) -> dict[str, Any]:
        producer = AIOKafkaProducer(
            **self._settings,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            max_request_size=largest,
            linger_ms=20,
        )
        await producer.start()
        try:
            sent = [
                await producer.send(
                    topic,
                    key=decoded(record["key"]),
                    value=decoded(record["value"]),
                    partition=record["partition"],
                    timestamp_ms=record["timestamp"],
                    headers=[(name, decoded(value)) for name, value in record["headers"]],
                )
                for record in records
            ]
            return {"offsets": [(await future).offset for future in sent]}
        finally:
            await producer.stop()

    async def _consume(self, topic: str, places: dict[str, Any], count: int) -> dict[str, Any]:
        consumer = AIOKafkaConsumer(**self._settings, group_id=None)
        wanted = {TopicPartition(topic, int(number)): place for number, place in places.items()}
        await consumer.start()
        found: list[dict[str, Any]] = []
        try:
            consumer.assign(list(wanted))
            for part, place in wanted.items():
                if place == "earliest":
                    await consumer.seek_to_beginning(part)
                else:
                    consumer.seek(part, place)
            while len(found) < count:
                polled = await consumer.getmany(timeout_ms=POLL_MS, max_records=count - len(found))
                for records in polled.values():
                    found += map(self._seen, records)
                progress(len(found))
        finally:
            await consumer.stop()
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

    async def _offset(self, topic: str, partition: int, at: Any) -> dict[str, Any]:
        consumer = AIOKafkaConsumer(**self._settings, group_id=None)
        place = TopicPartition(topic, partition)
        await consumer.start()
        try:
            if isinstance(at, int):
                found = (await consumer.offsets_for_times({place: at}))[place]
                return {"offset": -1 if found is None else found.offset}
            edges = consumer.beginning_offsets if at == "earliest" else consumer.end_offsets
            return {"offset": (await edges([place]))[place]}
        finally:
            await consumer.stop()

    async def _copy(
        self, source: str, target: str, group: str, id: str, count: int
    ) -> dict[str, Any]:
        producer = AIOKafkaProducer(**self._settings, transactional_id=id)
        consumer = AIOKafkaConsumer(
            source,
            **self._settings,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        await producer.start()
        await producer.begin_transaction()
        await producer.send_and_wait(target, b"aborted")
        await producer.abort_transaction()
        await consumer.start()
        copied = 0
        while copied < count:
            polled = await consumer.getmany(timeout_ms=POLL_MS, max_records=count - copied)
            if polled:
                async with producer.transaction():
                    for records in polled.values():
                        for record in records:
                            await producer.send(target, record.value)
                    places = {part: records[-1].offset + 1 for part, records in polled.items()}
                    await producer.send_offsets_to_transaction(places, group)
            copied += sum(map(len, polled.values()))
            progress(copied)
        await consumer.stop()
        await producer.stop()
        return {"copied": copied}

    async def _stream(self, topic: str, partitions: int, until: str) -> dict[str, Any]:
        producer = AIOKafkaProducer(**self._settings, enable_idempotence=True, linger_ms=5)
        await producer.start()
        acknowledged = 0
        failures: list[str] = []
        for numbers in numbers_until(until):
            sent = [
                await producer.send(topic, b"%d" % number, partition=number % partitions)
                for number in numbers
            ]
            for result in await asyncio.gather(*sent, return_exceptions=True):
                if isinstance(result, BaseException):
                    failures.append(name_of(result))
                else:
                    acknowledged += 1
        await producer.stop()
        return {"acknowledged": acknowledged, "failures": failures}

    async def _create_topic(self, topic: str, partitions: int, config: dict[str, str]) -> None:
        new = NewTopic(topic, partitions, 1, topic_configs=config)
        answer = await self._with_admin(lambda admin: admin.create_topics([new]))
        check(answer.topic_errors)

    async def _add_partitions(self, topic: str, total: int) -> None:
        wanted = {topic: NewPartitions(total)}
        answer = await self._with_admin(lambda admin: admin.create_partitions(wanted))
        check(answer.topic_errors)

    async def _delete_topic(self, topic: str) -> None:
        answer = await self._with_admin(lambda admin: admin.delete_topics([topic]))
        check(answer.topic_error_codes)

    async def _topic_config(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        [answer] = await self._with_admin(lambda admin: admin.describe_configs([resource]))
        [(_, _, _, _, entries)] = answer.resources
        return {entry[0]: entry[1] for entry in entries}

    async def _alter_config(self, topic: str, config: dict[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, config)
        [answer] = await self._with_admin(lambda admin: admin.alter_configs([resource]))
        for code, words, *_ in answer.resources:
            if code:
                raise for_code(code)(words)

    async def _delete_records(self, topic: str, partition: int, before: int) -> dict[str, int]:
        place = TopicPartition(topic, partition)
        wanted = {place: RecordsToDelete(before_offset=before)}
        deleted = await self._with_admin(lambda admin: admin.delete_records(wanted))
        return {"low": deleted[place]}


if __name__ == "__main__":
    serve(Client(sys.argv[1]), name_of)
