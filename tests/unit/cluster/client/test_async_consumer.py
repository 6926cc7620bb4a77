"""The consumer for asyncio: it waits without a thread, and loses nothing when it is cancelled."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from raylog.actors.errors import (
    ConsumerBusy,
    ConsumerClosed,
    ConsumerWokenUp,
    InvalidRequest,
    NothingAssigned,
)
from raylog.cluster.client.consumer import AsyncConsumer, Consumer, async_consumer
from raylog.cluster.client.consumer.async_consumer import LoopWaiter, _in_thread
from raylog.storage.names import TopicPartition
from raylog.storage.testing.logs import batch
from tests.harness.consuming import FakeConnection, ManualWaiter
from tests.harness.grouping import GroupBroker


@pytest.fixture
def connection() -> FakeConnection:
    made = FakeConnection(t=2)
    for served in made.topics["t"]:
        served.partition.append(batch(10))
    return made


def run(test: "Coroutine[Any, Any, None]") -> None:
    asyncio.run(asyncio.wait_for(test, 30))


def test_it_reads_to_the_end(connection: FakeConnection) -> None:
    async def read() -> None:
        async with AsyncConsumer(connection, "t", from_="earliest", to="latest") as consumer:  # type: ignore[arg-type]
            found = []
            async for record in consumer:
                found.append((record.partition, record.offset))
                assert await consumer.position("t", record.partition) == record.offset + 1
                if len(found) == 3:
                    break
            found += [(r.partition, r.offset) for r in await consumer.poll(max_records=2)]
            found += [(r.partition, r.offset) async for r in consumer]
            assert sorted(found) == [(p, n) for p in (0, 1) for n in range(10)]
            assert (await consumer.read_table("t")).num_rows == 20
            assert await consumer.end_offsets([("t", 0)]) == {("t", 0): 10}
        with pytest.raises(ConsumerClosed):
            await consumer.poll()

    run(read())


def test_the_loop_goes_on_while_it_waits_and_a_cancelled_poll_loses_nothing(
    connection: FakeConnection,
) -> None:
    async def read() -> None:
        async with AsyncConsumer(connection, "t", from_="latest") as consumer:  # type: ignore[arg-type]
            waiting = asyncio.create_task(consumer.poll(3_600_000))
            for _ in range(100):
                await asyncio.sleep(0)
            assert not waiting.done()
            with pytest.raises(ConsumerBusy):
                await consumer.poll()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            connection.topics["t"][0].partition.append(batch(2))
            again = asyncio.create_task(consumer.poll(3_600_000))
            while connection.waiting < 2:
                await asyncio.sleep(0)
            connection.tick()
            assert [record.offset for record in await again] == [10, 11]

    run(read())


async def waiting_poll(consumer: AsyncConsumer) -> "asyncio.Task[Any]":
    task = asyncio.create_task(consumer.poll(3_600_000))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not task.done()
    return task


def test_it_is_closed_while_another_task_polls(connection: FakeConnection) -> None:
    async def read() -> None:
        consumer = AsyncConsumer(connection, "t")  # type: ignore[arg-type]
        await consumer.start()
        task = await waiting_poll(consumer)
        await asyncio.gather(consumer.close(), consumer.close())
        assert task.done()
        assert isinstance(task.exception(), ConsumerClosed)
        with pytest.raises(ConsumerClosed):
            await consumer.poll()

    run(read())


def test_it_is_closed_behind_a_poll_that_was_just_cancelled(connection: FakeConnection) -> None:
    async def read() -> None:
        consumer = AsyncConsumer(connection, "t")  # type: ignore[arg-type]
        await consumer.start()
        task = await waiting_poll(consumer)
        task.cancel()
        await consumer.close()
        assert task.cancelled()

    run(read())


def test_it_is_closed_while_it_starts(connection: FakeConnection) -> None:
    async def read() -> None:
        consumer = AsyncConsumer(connection, "t")  # type: ignore[arg-type]
        starting = asyncio.create_task(consumer.start())
        await asyncio.sleep(0)
        await consumer.close()
        await starting
        with pytest.raises(ConsumerClosed):
            await consumer.poll()

    run(read())


def test_a_poll_right_behind_the_start_is_ended_too(connection: FakeConnection) -> None:
    async def read() -> None:
        consumer = AsyncConsumer(connection, "t")  # type: ignore[arg-type]

        async def start_and_poll() -> None:
            await consumer.start()
            await consumer.poll(3_600_000)

        polling = asyncio.create_task(start_and_poll())
        await asyncio.sleep(0)
        await consumer.close()
        with pytest.raises(ConsumerClosed):
            await polling

    run(read())


def test_an_error_of_the_body_is_not_masked_by_a_poll_that_waits(
    connection: FakeConnection,
) -> None:
    tasks: list[asyncio.Task[Any]] = []

    async def fail() -> None:
        async with AsyncConsumer(connection, "t") as consumer:  # type: ignore[arg-type]
            tasks.append(await waiting_poll(consumer))
            raise ValueError("mine")

    async def read() -> None:
        with pytest.raises(ValueError, match="mine"):
            await fail()
        assert isinstance(tasks[0].exception(), ConsumerClosed)

    run(read())


def test_it_has_every_call_of_a_consumer() -> None:
    """But what is for a whole process: the iteration is ``async for``."""
    of_consumer = {name for name in vars(Consumer) if not name.startswith("_")}
    of_async = {name for name in vars(AsyncConsumer) if not name.startswith("_")}
    assert of_consumer - of_async == {"next_batch", "tell", "waits"}


def test_partitions_come_and_go(connection: FakeConnection) -> None:
    async def read() -> None:
        async with AsyncConsumer(connection) as consumer:  # type: ignore[arg-type]
            await consumer.incremental_assign([("t", 0), ("t", 1)], from_="earliest")
            consumer.pause(("t", 1))
            assert consumer.paused == [("t", 1)]
            assert len(await consumer.poll()) == 10
            consumer.resume()
            consumer.seek_to_time(0)
            await consumer.incremental_unassign([("t", 0)])
            assert {record.partition for record in await consumer.poll()} == {1}
            await consumer.unsubscribe()
            with pytest.raises(NothingAssigned):
                await consumer.poll()

    run(read())


def test_it_is_woken_and_it_says_what_it_lacks(connection: FakeConnection) -> None:
    async def read() -> None:
        consumer = AsyncConsumer(connection, "t")  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest, match=r"await start\(\)"):
            await consumer.poll()
        await consumer.start()
        consumer.wakeup()
        with pytest.raises(ConsumerWokenUp):
            await consumer.poll(3_600_000)
        await consumer.close()
        async with AsyncConsumer(connection) as empty:  # type: ignore[arg-type]
            with pytest.raises(NothingAssigned):
                await empty.poll()

    run(read())


def test_a_cancelled_iteration_or_table_loses_nothing(connection: FakeConnection) -> None:
    async def read() -> None:
        async with AsyncConsumer(connection, "t", from_="earliest") as consumer:  # type: ignore[arg-type]
            found: list[int] = []

            async def one() -> None:
                async for record in consumer:
                    found.append(record.offset)
                    return

            async def table() -> None:
                found.extend((await consumer.poll_arrow(100, 200)).column("offset").to_pylist())

            for work in (one, table) * 10:
                task = asyncio.create_task(work())
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
            while len(found) < 20:
                await table()
            assert sorted(found) == sorted(2 * [*range(10)])

    run(read())


def test_a_task_that_is_cancelled_twice_still_waits_for_its_thread(
    connection: FakeConnection,
) -> None:
    async def read() -> None:
        loop = asyncio.get_running_loop()
        began, may_end = asyncio.Event(), threading.Event()

        def work() -> None:
            loop.call_soon_threadsafe(began.set)
            may_end.wait(30)

        task = asyncio.create_task(_in_thread(work))
        await began.wait()
        for _ in range(3):
            task.cancel()
            for _ in range(5):
                await asyncio.sleep(0)
        assert not task.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(read())


class TickingWaiter(LoopWaiter):
    """Has the broker's time pass instead of waiting."""

    def __init__(self, broker: GroupBroker) -> None:
        super().__init__()
        self.manual = ManualWaiter(broker)

    def now(self) -> float:
        return self.manual.now()

    def wake(self) -> None:
        self.manual.wake()

    def wait(self, seconds: float) -> None:
        self.manual.wait(seconds)

    async def wait_in_loop(self, seconds: float) -> None:
        self.manual.wait(seconds)


def test_it_is_a_member_of_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = GroupBroker(t=2)
    monkeypatch.setattr(async_consumer, "LoopWaiter", lambda: TickingWaiter(broker))
    for served in broker.topics["t"]:
        served.partition.append(batch(10))
    revoked: list[TopicPartition] = []

    def on_revoke(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        revoked.extend(partitions)
        consumer.commit()

    async def read() -> None:
        settings: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False}
        async with AsyncConsumer(broker, **settings) as consumer:  # type: ignore[arg-type]
            await consumer.subscribe("t", from_="earliest", on_revoke=on_revoke)
            found = []
            async for record in consumer:
                found.append((record.partition, record.offset))
                if len(found) == 15:
                    break
            assert consumer.group_metadata().generation == 1
            assert len(await consumer.commit()) == 2
            assert len(await consumer.commit_async()) == 2
            assert len(await consumer.committed()) == 2
            found += [(r.partition, r.offset) for r in await consumer.poll()]
            assert sorted(found) == [(p, n) for p in (0, 1) for n in range(10)]
        assert len(revoked) == 2

    run(read())
    assert broker.coordinator.committed(*sorted(revoked), group="g") == [10, 10]
