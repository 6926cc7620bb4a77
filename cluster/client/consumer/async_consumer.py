"""The consumer for asyncio: nothing in it blocks the loop.

Reading files and decoding happen in a thread of the loop's executor, one step at a time; waiting
for what is on its way holds no thread. A poll that is cancelled hands nothing out: the next one
returns the same records.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Any, ParamSpec, Self, TypeVar

import pyarrow as pa

from raylog.actors.errors import ConsumerBusy, InvalidRequest
from raylog.cluster.client.columns import SCHEMA
from raylog.cluster.client.connection import GroupConnection
from raylog.cluster.client.consumer.consumer import (
    POLL_TIMEOUT_MS,
    Consumer,
    Partition,
    at_most,
)
from raylog.cluster.client.consumer.group.group import Listener, Offsets
from raylog.cluster.client.consumer.group.messages import GroupMetadata, OffsetAndMetadata
from raylog.cluster.client.consumer.instructions import OffsetAndEpoch
from raylog.cluster.client.consumer.places import Offset, Places
from raylog.cluster.client.consumer.topics import Topics
from raylog.cluster.client.consumer.waiter import Waiter
from raylog.storage.names import TopicPartition
from raylog.storage.records.record import ConsumerRecord

P = ParamSpec("P")
T = TypeVar("T")


class LoopWaiter(Waiter):
    """Wakes a coroutine, too."""

    def __init__(self) -> None:
        super().__init__()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.ended = asyncio.Event()

    def another(self) -> Waiter:
        return Waiter()

    def wake(self) -> None:
        super().wake()
        if self.loop is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.ended.set)

    async def wait_in_loop(self, seconds: float) -> None:
        """As ``wait``, without a thread."""
        try:
            await asyncio.wait_for(self.ended.wait(), min(seconds, 3600.0))
        except TimeoutError:
            pass
        self.ended.clear()


class AsyncConsumer:
    """Reads topics in an asyncio program; the settings and words are those of :class:`Consumer`.

    ::

        async with broker.async_consumer("orders", from_="earliest") as consumer:
            async for record in consumer:
                ...

    One task at a time: another one gets ConsumerBusy. Only :meth:`close` is for any task, and
    :meth:`wakeup` for any thread.
    """

    def __init__(
        self,
        connection: GroupConnection,
        *topics: str,
        from_: Places = None,
        to: Places = None,
        partitions: Iterable[int] | None = None,
        **config: Any,
    ) -> None:
        self._waiter = LoopWaiter()
        chosen = None if partitions is None else list(partitions)
        self._start = partial(
            Consumer,
            connection,
            *topics,
            from_=from_,
            to=to,
            partitions=chosen,
            _waiter=self._waiter,
            **config,
        )
        self._consumer: Consumer | None = None
        self._idle = asyncio.Event()  # no task is in a call
        self._idle.set()

    async def start(self) -> None:
        """Look the topics and positions up."""
        if self._consumer is not None:
            return
        self._waiter.loop = asyncio.get_running_loop()
        made: list[Consumer] = []
        with self._exclusive():
            try:
                await _in_thread(lambda: made.append(self._start()))
            except asyncio.CancelledError:
                for consumer in made:  # a member must not hold partitions that nobody reads
                    await _in_thread(consumer.close)
                raise
            self._consumer = made[0]

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, error: object, *_: object) -> None:
        if self._consumer is not None:
            self._consumer._commits_at_close = error is None
        await self.close()

    async def close(self) -> None:
        """Forget everything; what is called afterwards raises ConsumerClosed.

        A member commits and leaves its group, as :meth:`Consumer.close` says. A call of another
        task ends first. If it waits, it ends now, with ConsumerClosed.
        """
        self._end_waits()
        while not self._idle.is_set():
            await self._idle.wait()
            self._end_waits()  # it may have been the call that starts this
        if self._consumer is not None:
            await _in_thread(self._consumer.close)

    def _end_waits(self) -> None:
        if self._consumer is not None:
            self._consumer._access.is_closed = True
            self._waiter.wake()

    @property
    def _started(self) -> Consumer:
        if self._consumer is None:
            raise InvalidRequest(
                "consumer", "not started", "await start(), or use it with async with"
            )
        self._consumer._access.check_open()
        return self._consumer

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        if not self._idle.is_set():
            raise ConsumerBusy()
        self._idle.clear()
        try:
            yield
        finally:
            self._idle.set()

    # -- records -----------------------------------------------------------------------------------

    async def poll(
        self, timeout_ms: int = POLL_TIMEOUT_MS, max_records: int | None = None
    ) -> list[ConsumerRecord]:
        """As ``Consumer.poll``; the records are of one partition."""
        with self._exclusive():
            consumer = self._started
            consumer._iteration.set_aside()
            most = at_most("max_records", max_records, consumer._config.max_poll_records)
            await self._wait_for(partial(consumer._take_some, most), timeout_ms / 1000)
            return consumer._iteration.hand_out()

    async def poll_one(self, timeout_ms: int = POLL_TIMEOUT_MS) -> ConsumerRecord | None:
        """The next record; None if none comes in time."""
        polled = await self.poll(timeout_ms, 1)
        return polled[0] if polled else None

    async def poll_arrow(
        self, timeout_ms: int = POLL_TIMEOUT_MS, max_bytes: int | None = None
    ) -> pa.Table:
        """As ``Consumer.poll_arrow``."""
        with self._exclusive():
            consumer = self._started
            most = at_most("max_bytes", max_bytes, consumer._config.max_poll_bytes)
            consumer._iteration.set_aside()
            batches: list[pa.RecordBatch] = []
            try:
                is_there = partial(consumer._poll_arrow, batches, most)
                await self._wait_for(is_there, timeout_ms / 1000)
            except BaseException:
                consumer._machine.take_back()
                raise
            consumer._machine.keep()
            return pa.Table.from_batches(batches, schema=SCHEMA)

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Record by record, until the end if ``to`` is given, else for ever."""
        while True:
            consumer = self._started
            for record in consumer._iteration.rest():
                yield record
            with self._exclusive():
                if consumer._iteration.is_untouched:
                    consumer._iteration.begin()
                    continue
                consumer._iteration.hand_out()
                most = consumer._config.max_poll_records
                await self._wait_for(partial(consumer._take_some, most), None)
                if not consumer._iteration.begin():
                    return

    async def _wait_for(self, is_there: Callable[[], bool], timeout_s: float | None) -> None:
        waits = self._started.waits(is_there, timeout_s, is_poll=True)
        while (seconds := await _in_thread(next, waits, None)) is not None:
            await self._waiter.wait_in_loop(seconds)

    @property
    def is_at_end(self) -> bool:
        """Whether everything up to ``to`` was handed out."""
        return self._started.is_at_end

    # -- the rest, as the consumer has it ----------------------------------------------------------

    @property
    def assignment(self) -> list[TopicPartition]:
        return self._started.assignment

    async def subscribe(
        self,
        topics: Topics,
        *,
        from_: Places = None,
        to: Places = None,
        on_assign: Listener | None = None,
        on_revoke: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        """As ``Consumer.subscribe``.

        The functions are called in a thread, with a :class:`Consumer`: there they call it without
        ``await``.
        """
        await self._call(
            self._started.subscribe,
            topics,
            from_=from_,
            to=to,
            on_assign=on_assign,
            on_revoke=on_revoke,
            on_lost=on_lost,
        )

    async def commit(self, offsets: Offsets = None) -> dict[TopicPartition, OffsetAndMetadata]:
        """As ``Consumer.commit``."""
        return await self._call(self._started.commit, offsets)

    def commit_async(
        self, offsets: Offsets = None
    ) -> "asyncio.Future[dict[TopicPartition, OffsetAndMetadata]]":
        """As ``Consumer.commit_async``."""
        with self._exclusive():
            return asyncio.wrap_future(self._started.commit_async(offsets))

    async def committed(
        self, partitions: Iterable[Partition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """As ``Consumer.committed``."""
        chosen = None if partitions is None else list(partitions)
        return await self._call(self._started.committed, chosen)

    def store_offsets(self, offsets: Offsets) -> None:
        """As ``Consumer.store_offsets``."""
        with self._exclusive():
            self._started.store_offsets(offsets)

    def group_metadata(self) -> GroupMetadata:
        """As ``Consumer.group_metadata``."""
        with self._exclusive():
            return self._started.group_metadata()

    async def assign(
        self, partitions: Iterable[Partition], *, from_: Places = None, to: Places = None
    ) -> None:
        """As ``Consumer.assign``."""
        await self._call(self._started.assign, list(partitions), from_=from_, to=to)

    async def incremental_assign(
        self, partitions: Iterable[Partition], *, from_: Places = None, to: Places = None
    ) -> None:
        """As ``Consumer.incremental_assign``."""
        await self._call(self._started.incremental_assign, list(partitions), from_=from_, to=to)

    async def incremental_unassign(self, partitions: Iterable[Partition]) -> None:
        """As ``Consumer.incremental_unassign``."""
        await self._call(self._started.incremental_unassign, list(partitions))

    async def unsubscribe(self) -> None:
        """As ``Consumer.unsubscribe``."""
        await self._call(self._started.unsubscribe)

    async def position(self, topic: str, partition: int) -> int:
        """As ``Consumer.position``."""
        return await self._call(self._started.position, topic, partition)

    async def positions(self) -> dict[TopicPartition, OffsetAndEpoch]:
        """As ``Consumer.positions``."""
        return await self._call(self._started.positions)

    async def read_table(
        self,
        topic: str,
        from_: Places = "earliest",
        to: Places = "latest",
        partitions: Iterable[int] | None = None,
    ) -> pa.Table:
        """As ``Consumer.read_table``."""
        return await self._call(self._started.read_table, topic, from_, to, partitions)

    async def offsets_for_times(
        self, times: Mapping[Partition, int | datetime]
    ) -> dict[TopicPartition, int | None]:
        """As ``Consumer.offsets_for_times``."""
        return await self._call(self._started.offsets_for_times, times)

    async def beginning_offsets(self, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        """As ``Consumer.beginning_offsets``."""
        return await self._call(self._started.beginning_offsets, list(partitions))

    async def end_offsets(self, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        """As ``Consumer.end_offsets``."""
        return await self._call(self._started.end_offsets, list(partitions))

    def seek(self, topic: str, partition: int, offset: Offset) -> None:
        """As ``Consumer.seek``."""
        with self._exclusive():
            self._started.seek(topic, partition, offset)

    def seek_to_beginning(self, *partitions: Partition) -> None:
        """As ``Consumer.seek_to_beginning``."""
        with self._exclusive():
            self._started.seek_to_beginning(*partitions)

    def seek_to_end(self, *partitions: Partition) -> None:
        """As ``Consumer.seek_to_end``."""
        with self._exclusive():
            self._started.seek_to_end(*partitions)

    async def seek_to_committed(self, *partitions: Partition) -> None:
        """As ``Consumer.seek_to_committed``."""
        await self._call(self._started.seek_to_committed, *partitions)

    def seek_to_time(self, timestamp: int | datetime) -> None:
        """As ``Consumer.seek_to_time``."""
        with self._exclusive():
            self._started.seek_to_time(timestamp)

    @property
    def paused(self) -> list[TopicPartition]:
        return self._started.paused

    def pause(self, *partitions: Partition) -> None:
        """As ``Consumer.pause``."""
        with self._exclusive():
            self._started.pause(*partitions)

    def resume(self, *partitions: Partition) -> None:
        """As ``Consumer.resume``."""
        with self._exclusive():
            self._started.resume(*partitions)

    def lag(self, topic: str, partition: int) -> int | None:
        """As ``Consumer.lag``."""
        with self._exclusive():
            return self._started.lag(topic, partition)

    def wakeup(self) -> None:
        """As ``Consumer.wakeup``."""
        self._started.wakeup()

    async def _call(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """A call of the consumer that may wait, in a thread."""
        with self._exclusive():
            return await _in_thread(partial(call, *args, **kwargs))


async def _in_thread(call: Callable[..., T], *args: Any) -> T:
    """As ``asyncio.to_thread``, which leaves the thread behind when the task is cancelled."""
    future = asyncio.get_running_loop().run_in_executor(None, call, *args)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        while not future.done():
            with suppress(asyncio.CancelledError):  # again: the thread is still in the consumer
                await asyncio.wait([future])
        raise
