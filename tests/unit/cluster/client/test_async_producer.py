"""A producer that awaits: what waits does not hold the loop up."""

import asyncio
from concurrent.futures import Future
from typing import Any

import pyarrow as pa
import pytest

from raylog.actors.errors import InvalidRequest, ProduceFailed
from raylog.cluster.client.producer import AsyncProducer
from raylog.storage.errors import RecordTooLarge
from tests.harness.connections import FakeConnection


@pytest.fixture
def connection() -> FakeConnection:
    made = FakeConnection()
    made.create("t", 1)
    return made


async def ticks(until: "asyncio.Task[Any]") -> int:
    """How often the loop came round until a task has ended."""
    count = 0
    while not until.done():
        await asyncio.sleep(0)
        count += 1
    return count


def test_records_are_awaited_one_by_one_or_left(connection: FakeConnection) -> None:
    async def work() -> None:
        async with AsyncProducer(connection, linger_ms=0) as producer:
            first = await producer.send_and_wait("t", b"0", key=b"k", headers={"h": b"v"})
            sent = [await producer.send("t", b"%d" % n) for n in range(1, 100)]
            offsets = [metadata.offset for metadata in await asyncio.gather(*sent)]
            table = await producer.send_arrow("t", pa.table({"value": [b"100", b"101"]}))
            assert [part.count for part in await table] == [2]
            await producer.send("t", b"102")
            await producer.flush()
        assert first.offset == 0
        assert offsets == list(range(1, 100))

    asyncio.run(work())
    assert connection.values() == [b"%d" % n for n in range(103)]


def test_what_waits_does_not_hold_up_the_loop(connection: FakeConnection) -> None:
    asked: Future[Any] = Future()
    answer = connection.metadata("t", timeout_s=1).result()

    def metadata(topic: str, *, timeout_s: float) -> "Future[Any]":
        return asked

    connection.metadata = metadata  # type: ignore[method-assign]

    async def work() -> None:
        async with AsyncProducer(connection, linger_ms=0, buffer_memory=2000) as producer:
            first = asyncio.create_task(producer.send("t", b"x" * 1800))
            for _ in range(100):
                await asyncio.sleep(0)
            assert not first.done(), "the topic is asked for"
            connection.faults.append("hangs")
            asked.set_result(answer)
            await first
            full = asyncio.create_task(producer.send("t", b"y" * 1800))
            for _ in range(100):
                await asyncio.sleep(0)
            assert not full.done(), "there is no room"
            while not connection.held:
                await asyncio.sleep(0)
            connection.answer_held()
            assert await ticks(full) > 0
            assert (await full.result()).offset == 1

    asyncio.run(work())


def test_failures_and_what_was_taken_when_the_body_raises(connection: FakeConnection) -> None:
    async def work() -> None:
        async with AsyncProducer(
            connection, linger_ms=10_000, max_request_size=4 << 20
        ) as producer:
            large = await producer.send("t", b"x" * (2 << 20))
            with pytest.raises(ProduceFailed) as failed:
                await large
            assert isinstance(failed.value.cause, RecordTooLarge)
            await producer.send("t", b"taken")
            raise KeyError("the user's")

    with pytest.raises(KeyError):
        asyncio.run(work())
    assert connection.values() == [b"taken"]


def test_many_that_start_it_at_once_share_one_producer(connection: FakeConnection) -> None:
    async def work() -> None:
        producer = AsyncProducer(connection, linger_ms=0)

        async def request() -> int:
            await producer.start()
            return (await producer.send_and_wait("t", b"x")).offset

        assert sorted(await asyncio.gather(*(request() for _ in range(20)))) == list(range(20))
        await producer.close()

    made = connection.new_producer_id
    asked: list[None] = []

    def new_producer_id(**given: Any) -> "Future[int]":
        asked.append(None)
        return made(**given)

    connection.new_producer_id = new_producer_id  # type: ignore[method-assign]
    asyncio.run(work())
    assert len(asked) == 1


def test_before_start_it_says_what_to_do(connection: FakeConnection) -> None:
    async def work() -> None:
        producer = AsyncProducer(connection)
        with pytest.raises(InvalidRequest, match=r"await start\(\)"):
            await producer.send("t", b"x")
        await producer.close()

    asyncio.run(work())
