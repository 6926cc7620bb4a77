"""A producer for programs of asyncio: it never holds the loop up.

What a Producer does at once it does in the loop: ``send`` to a topic that is known, where there is
room. Whatever may wait (a topic's first record, full memory, flush, close) goes to a thread.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from raylog.actors.errors import InvalidRequest
from raylog.cluster.client.connection import Connection
from raylog.cluster.client.producer.delivery import RecordMetadata
from raylog.cluster.client.producer.producer import Producer

if TYPE_CHECKING:
    import pyarrow as pa

    from raylog.cluster.client.consumer.group.messages import GroupMetadata
    from raylog.cluster.client.producer.tables import WrittenRange

Answer = TypeVar("Answer")


class AsyncProducer:
    """Sends records to topics, from coroutines of one loop.

    Use it with ``async with``, or ``await`` ``start`` and ``close``. Settings, arguments and errors
    are those of :class:`Producer`.
    """

    def __init__(
        self,
        connection: Connection,
        settings: Mapping[str, Any] | None = None,
        /,
        *,
        clock: Callable[[], float] = time.monotonic,
        **more: Any,
    ) -> None:
        self._make = partial(Producer, connection, settings, clock=clock, **more)
        self._producer: Producer | None = None
        self._starting = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, error_type: object, error: BaseException | None, _: object) -> None:
        if self._producer is not None:
            await _elsewhere(partial(self._producer.__exit__, error_type, error, None))

    async def start(self) -> None:
        """Get a producer id, the first time. Raises the errors of a cluster that does not answer.

        Every task may call this before it sends: all of them get the same producer. Who is
        cancelled leaves nothing behind; whoever calls it next starts anew.
        """
        async with self._starting:
            if self._producer is None:
                making = _Making(self._make)
                try:
                    self._producer = await _elsewhere(making.run)
                except BaseException:
                    making.abandon()
                    raise

    async def send(
        self, topic: str, value: Any = None, **row: Any
    ) -> "asyncio.Future[RecordMetadata]":
        """Take one record in, as ``Producer.send``; what is returned can be awaited, or left.

        To cancel it only ends the wait: the record is sent.
        """
        send = partial(self._started.send, topic, value, **row)
        sent = send() if self._is_at_once(topic, row.get("partition")) else await _elsewhere(send)
        return asyncio.wrap_future(sent)

    async def send_and_wait(self, topic: str, value: Any = None, **row: Any) -> RecordMetadata:
        """Send one record, and return where it was written. Raises ProduceFailed."""
        return await (await self.send(topic, value, **row))

    async def send_arrow(
        self, topic: str, table: "pa.Table | pa.RecordBatch", *, partition: int | None = None
    ) -> "asyncio.Future[list[WrittenRange]]":
        """Take in every row of a table, as ``Producer.send_arrow``."""
        send = partial(self._started.send_arrow, topic, table, partition=partition)
        return asyncio.wrap_future(await _elsewhere(send))

    async def flush(self, timeout: float | None = None) -> None:
        """As ``Producer.flush``."""
        await _elsewhere(partial(self._started.flush, timeout))

    async def init_transactions(self, timeout: float | None = None) -> None:
        """As ``Producer.init_transactions``."""
        await _elsewhere(partial(self._started.init_transactions, timeout))

    async def begin_transaction(self) -> None:
        """As ``Producer.begin_transaction``. Waits for a call that was cancelled and still runs."""
        await _elsewhere(self._started.begin_transaction)

    async def send_offsets_to_transaction(
        self, offsets: Any, group: "GroupMetadata", timeout: float | None = None
    ) -> None:
        """As ``Producer.send_offsets_to_transaction``."""
        send = self._started.send_offsets_to_transaction
        await _elsewhere(partial(send, offsets, group, timeout))

    async def commit_transaction(self, timeout: float | None = None) -> None:
        """As ``Producer.commit_transaction``. Who is cancelled does not know what is decided."""
        await _elsewhere(partial(self._started.commit_transaction, timeout))

    async def abort_transaction(self, timeout: float | None = None) -> None:
        """As ``Producer.abort_transaction``."""
        await _elsewhere(partial(self._started.abort_transaction, timeout))

    async def close(self, timeout: float | None = None) -> None:
        """As ``Producer.close``."""
        if self._producer is not None:
            await _elsewhere(partial(self._producer.close, timeout))

    @property
    def _started(self) -> Producer:
        if self._producer is None:
            raise InvalidRequest(
                "producer", "not started", "await start(), or use it with async with"
            )
        return self._producer

    def _is_at_once(self, topic: str, partition: Any) -> bool:
        """Whether a record can be taken without a wait: its topic is known, and there is room."""
        producer = self._started
        accumulator = producer._sender.accumulator
        state = accumulator.topics.get(topic) if isinstance(topic, str) else None
        if state is None or accumulator.free_bytes < producer.config.max_request_size:
            return False
        is_number = isinstance(partition, int)
        return partition is None or (is_number and partition < len(state.batches))


class _Making:
    """A producer that is made in a thread, and closed if nobody waits for it any more."""

    def __init__(self, make: Callable[[], Producer]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made: Producer | None = None
        self._is_abandoned = False

    def run(self) -> Producer:
        """Make it, in the thread."""
        producer = self._make()
        with self._lock:
            self._made = producer
            is_abandoned = self._is_abandoned
        if is_abandoned:
            producer.close()
        return producer

    def abandon(self) -> None:
        """Nobody uses it: close it here if it is made, else in the thread."""
        with self._lock:
            self._is_abandoned = True
            producer = self._made
        if producer is not None:
            producer.close()


async def _elsewhere(work: Callable[[], Answer]) -> Answer:
    """Do in a thread what may wait."""
    return await asyncio.get_running_loop().run_in_executor(None, work)
