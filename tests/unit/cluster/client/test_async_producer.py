"""A producer that awaits: what waits does not hold the loop up."""

import asyncio
import gc
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from raylog.actors.errors import BrokerNotFound, InvalidRequest, ProduceFailed
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


class SlowStart(FakeConnection):
    """Answers for a producer id only when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.create("t", 1)
        self.asked: list[Future[int]] = []

    def new_producer_id(self, *, timeout_s: float) -> "Future[int]":
        self.asked.append(Future())
        return self.asked[-1]

    async def begun(self) -> None:
        while not self.asked:
            await asyncio.sleep(0)


def threads_of(client_id: str) -> list[threading.Thread]:
    name = f"raylog-producer-{client_id}"
    return [thread for thread in threading.enumerate() if thread.name == name]


def test_a_start_that_is_cancelled_leaves_no_producer_behind() -> None:
    connection = SlowStart()

    async def work() -> None:
        producer = AsyncProducer(connection, client_id="cancelled")
        starting = asyncio.create_task(producer.start())
        await connection.begun()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        connection.asked[0].set_result(1)
        await asyncio.get_running_loop().shutdown_default_executor()
        with pytest.raises(InvalidRequest, match=r"await start\(\)"):
            await producer.send("t", b"x")

    asyncio.run(work())
    assert threads_of("cancelled") == []


def test_a_start_that_is_cancelled_behind_another_one_leaves_it_its_producer() -> None:
    connection = SlowStart()

    async def work() -> None:
        producer = AsyncProducer(connection, client_id="behind", linger_ms=0)
        first = asyncio.create_task(producer.start())
        await connection.begun()
        second = asyncio.create_task(producer.start())
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        connection.asked[0].set_result(1)
        await first
        assert (await producer.send_and_wait("t", b"x")).offset == 0
        await producer.close()

    asyncio.run(work())
    assert threads_of("behind") == []
    assert len(connection.asked) == 1


def test_behind_a_start_that_was_cancelled_another_one_starts_anew() -> None:
    connection = SlowStart()

    async def work() -> None:
        producer = AsyncProducer(connection, client_id="anew", linger_ms=0)
        first = asyncio.create_task(producer.start())
        await connection.begun()
        second = asyncio.create_task(producer.start())
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        while len(connection.asked) < 2:
            await asyncio.sleep(0)
        connection.asked[1].set_result(2)
        await second
        connection.asked[0].set_result(1)
        assert (await producer.send_and_wait("t", b"x")).offset == 0
        await producer.close()

    asyncio.run(work())
    assert threads_of("anew") == []


def test_a_start_that_is_cancelled_and_fails_then_tells_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    connection = SlowStart()

    async def work() -> None:
        producer = AsyncProducer(connection, client_id="failed")
        starting = asyncio.create_task(producer.start())
        await connection.begun()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        connection.asked[0].set_exception(BrokerNotFound("raylog"))

    asyncio.run(work())
    gc.collect()
    assert threads_of("failed") == []
    assert caplog.text == ""


def test_a_start_that_is_cancelled_once_its_producer_is_made_closes_it() -> None:
    connection = FakeConnection()

    async def work() -> None:
        pool = ThreadPoolExecutor(1)
        asyncio.get_running_loop().set_default_executor(pool)
        producer = AsyncProducer(connection, client_id="made")
        starting = asyncio.create_task(producer.start())
        await asyncio.sleep(0)
        pool.shutdown(wait=True)  # it is made, and the loop has not heard of it
        assert len(threads_of("made")) == 1
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    asyncio.run(work())
    assert threads_of("made") == []
