"""The producer: records in, acknowledged batches in the log.

``send`` only puts a record into its partition's queue (``accumulator.py``); one background thread encodes what
waits and sends it, one request in flight a partition, through a transport (``transport.py``). A request whose
answer is lost is sent again with the same producer id and sequence, and the log answers a repeat with the
offsets it gave the first time: nothing is lost and nothing is there twice.

Defaults and names are those of Kafka's producer where it has them.
"""

import logging
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from raylog.actors.messages import (
    AppendResult,
    InvalidRequest,
    ProduceFailed,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from raylog.cluster.client.accumulator import (
    RECORD_OVERHEAD,
    Batch,
    Delivery,
    PartitionQueue,
    ProducerIdentity,
)
from raylog.cluster.client.columns import split_by_key
from raylog.cluster.client.transport import RayTransport, Transport
from raylog.storage.errors import (
    InvalidConfig,
    InvalidRecord,
    RaylogError,
    RecordTooLarge,
    UnsupportedCompressionType,
)
from raylog.storage.records.compression import CODECS
from raylog.storage.records.encode import TableEncoder, encode_records
from raylog.storage.records.murmur2 import partition_for_key

if TYPE_CHECKING:
    import pyarrow as pa

    from raylog.cluster.broker import Broker

logger = logging.getLogger(__name__)

# A batch must fit into max.message.bytes (1 MiB + 12 by default) with its header, before it is compressed.
MAX_BATCH_BYTES = 1_000_000
_BYTES_LIKE = (bytes, bytearray, memoryview)


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """What a producer obeys; ``broker.producer(linger_ms=5)`` sets ``linger.ms``."""

    compression_type: str = "none"
    batch_size: int = 16_384  # bytes that make a batch ready before linger.ms; a batch can grow beyond
    linger_ms: int = 5
    buffer_memory: int = 64 << 20  # bytes that may wait; beyond them send waits
    max_block_ms: int = 60_000  # how long send waits for room
    delivery_timeout_ms: int = 120_000  # from send to giving up
    retry_backoff_ms: int = 50
    enable_idempotence: bool = True

    def __post_init__(self) -> None:
        if self.compression_type not in CODECS:
            raise UnsupportedCompressionType(self.compression_type)
        for name in (
            "batch_size",
            "buffer_memory",
            "max_block_ms",
            "delivery_timeout_ms",
            "retry_backoff_ms",
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise InvalidConfig(name.replace("_", "."), value, "must be an integer of 1 or more")
        if not isinstance(self.linger_ms, int) or self.linger_ms < 0:
            raise InvalidConfig("linger.ms", self.linger_ms, "must be an integer of 0 or more")

    @classmethod
    def of(cls, settings: dict[str, Any]) -> Self:
        unknown = set(settings) - set(cls.__slots__)
        if unknown:
            key = sorted(unknown)[0]
            raise InvalidConfig(
                key, settings[key], f"no such setting of a producer; there are {', '.join(cls.__slots__)}"
            )
        return cls(**settings)


class RecordMetadata(NamedTuple):
    """Where a record was written."""

    topic: str
    partition: int
    offset: int
    log_append_time: int  # ms, -1 unless the topic stamps records itself


class SentRecord:
    """A record on its way; :meth:`result` waits for it."""

    __slots__ = ("_delivery", "_index", "_producer", "_queue")

    def __init__(self, producer: "Producer", queue: PartitionQueue, delivery: Delivery, index: int) -> None:
        self._producer, self._queue, self._delivery, self._index = producer, queue, delivery, index

    @property
    def is_done(self) -> bool:
        return self._delivery.is_done

    def result(self, timeout_s: float = 120.0) -> RecordMetadata:
        """Where the record was written; raises what kept it from being written."""
        self._producer.wait_for_delivery(self._delivery, timeout_s)
        if self._delivery.error is not None:
            raise self._delivery.error
        offset = self._delivery.base_offset + self._index
        return RecordMetadata(
            self._queue.topic, self._queue.partition, offset, self._delivery.log_append_time
        )


class _Topic:
    """A topic's queues, and the partition that takes the records without a key for now."""

    __slots__ = ("queues", "sticky", "sticky_bytes")

    def __init__(self, queues: list[PartitionQueue]) -> None:
        self.queues = queues
        self.sticky = random.randrange(len(queues))
        self.sticky_bytes = 0


class Producer:
    """Sends records to topics. Use it as a context manager, or ``close`` it. Safe for many threads.

    A record that could not be written makes the next ``flush`` or ``close`` raise ProduceFailed, and its
    ``SentRecord.result``: no loss is silent.
    """

    def __init__(self, broker: "Broker", *, transport: Transport | None = None, **settings: Any) -> None:
        self.config = ProducerConfig.of(settings)
        self._broker = broker
        self._transport = transport or RayTransport(broker)
        self._topics: dict[str, _Topic] = {}
        self._queues: list[PartitionQueue] = []
        self._lock = (
            threading.Lock()
        )  # taken by itself where nothing waits: half the price of the condition's
        self._changed = threading.Condition(self._lock)
        self._waiting_bytes = 0
        self._flushing = 0
        self._failure: ProduceFailed | None = None
        self._closed = False
        has_id = self.config.enable_idempotence
        self._identity = ProducerIdentity(broker.allocate_producer_id(), 0) if has_id else ProducerIdentity()
        self._sender = threading.Thread(target=self._run, name="raylog-producer", daemon=True)
        self._sender.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: object, *_: object) -> None:
        if error_type is None:
            self.close()
        else:
            self._abandon()

    # -- sending -------------------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: bytes | None = None,
        *,
        key: bytes | None = None,
        timestamp: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
    ) -> SentRecord:
        """Queue one record. ``timestamp``: ms since the epoch, default now. Without a partition the key decides
        (murmur2, as Kafka's), and without a key the records go in runs to one partition after another.

        Raises RecordTooLarge, UnknownTopicOrPartition, InvalidRecord; RequestTimedOut if there is no room.
        """
        size_bytes = RECORD_OVERHEAD
        if value is not None:
            size_bytes += _size(value, "value")
        if key is not None:
            size_bytes += _size(key, "key")
        if headers:
            size_bytes += _headers_size(headers)
        if size_bytes > MAX_BATCH_BYTES:
            raise RecordTooLarge(size_bytes, MAX_BATCH_BYTES)
        now = time.time()
        if timestamp is None:
            timestamp = int(now * 1000)
        elif not isinstance(timestamp, int) or not 0 <= timestamp < 2**63:
            raise InvalidRecord(f"timestamp={timestamp!r}: give ms since the epoch as an int of 0 or more")
        row = (timestamp, key, value, headers)
        known = self._topics.get(topic) or self._know(topic)
        with self._lock:
            if self._waiting_bytes >= self.config.buffer_memory:
                self._wait_for_room()
            self._check_open()
            queue = self._queue_for(known, topic, key, partition, size_bytes)
            if queue.rows_bytes + size_bytes > MAX_BATCH_BYTES:
                self._close_rows(queue)
            was_ready = queue.rows_bytes >= self.config.batch_size
            delivery, index = queue.add_row(row, size_bytes, now)
            self._waiting_bytes += size_bytes
            if index == 0 or (not was_ready and queue.rows_bytes >= self.config.batch_size):
                self._changed.notify_all()
        return SentRecord(self, queue, delivery, index)

    def _queue_for(
        self, known: _Topic, topic: str, key: bytes | None, partition: int | None, size_bytes: int
    ) -> PartitionQueue:
        queues = known.queues
        if partition is not None:
            if not isinstance(partition, int) or not 0 <= partition < len(queues):
                raise UnknownTopicOrPartition(topic, partition, f"the topic has {len(queues)} partitions")
            return queues[partition]
        if key is not None:
            return queues[partition_for_key(key, len(queues))]
        if known.sticky_bytes >= self.config.batch_size and len(queues) > 1:
            known.sticky = (known.sticky + random.randrange(1, len(queues))) % len(queues)
            known.sticky_bytes = 0
        known.sticky_bytes += size_bytes
        return queues[known.sticky]

    def send_arrow(
        self, topic: str, table: "pa.Table | pa.RecordBatch", *, partition: int | None = None
    ) -> int:
        """Queue every row of a table; returns how many. No Python object is made per record.

        Columns: ``value`` (binary or string), and as you like ``key`` (binary or string), ``timestamp`` (int64
        ms or timestamp), ``headers`` (list of struct of key, value). Without a partition, keys decide row by
        row; rows without a key go to one partition after another.

        Raises InvalidRecord for a table of another shape, UnknownTopicOrPartition, RecordTooLarge.
        """
        known = self._topics.get(topic) or self._know(topic)
        if partition is not None:
            self._queue_for(known, topic, None, partition, 0)
        parts = split_by_key(table, len(known.queues)) if partition is None else [(partition, table)]
        return sum(self._send_columns(known, number, part) for number, part in parts)

    def _send_columns(self, known: _Topic, number: int | None, table: "pa.Table | pa.RecordBatch") -> int:
        """Encode a table batch by batch, for one partition or, without a number, for each in turn."""
        encoders: dict[ProducerIdentity, TableEncoder] = {}
        start, now_ms = 0, time.time_ns() // 1_000_000
        while start < table.num_rows:
            with self._changed:
                if self._waiting_bytes >= self.config.buffer_memory:
                    self._wait_for_room()
                self._check_open()
                if number is None:
                    known.sticky = (known.sticky + 1) % len(known.queues)
                queue = known.queues[known.sticky if number is None else number]
                self._close_rows(queue)
                encoder = encoders.get(queue.identity)
                if encoder is None:
                    encoder = encoders[queue.identity] = self._encoder(table, queue.identity, now_ms)
                content, records = encoder.encode(
                    start, max_bytes=MAX_BATCH_BYTES, base_sequence=queue.base_sequence
                )
                self._waiting_bytes += len(content)
                queue.add_batch(Batch(content, records, Delivery(), len(content), self._deadline()))
                self._changed.notify_all()
            start += records
        return start

    def _encoder(
        self, table: "pa.Table | pa.RecordBatch", identity: ProducerIdentity, now_ms: int
    ) -> TableEncoder:
        return TableEncoder(
            table,
            default_timestamp=now_ms,
            compression_type=self.config.compression_type,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
        )

    # -- waiting -------------------------------------------------------------------------------------------

    def flush(self, timeout_s: float | None = None) -> None:
        """Return when everything sent so far is acknowledged. Raises ProduceFailed if some of it was given up."""
        limit = self.config.delivery_timeout_ms / 1000 + 1 if timeout_s is None else timeout_s
        with self._changed:
            self._flushing += 1
            self._changed.notify_all()
            try:
                done = self._changed.wait_for(lambda: all(queue.is_empty for queue in self._queues), limit)
            finally:
                self._flushing -= 1
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        if not done:
            raise RequestTimedOut("flush", int(limit * 1000))

    def close(self) -> None:
        """Flush, and end the background thread. Raises ProduceFailed if something sent was given up."""
        if self._closed:
            return
        try:
            self.flush()
        finally:
            self._abandon()

    def _abandon(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._sender.join()

    def wait_for_delivery(self, delivery: Delivery, timeout_s: float) -> None:
        with self._changed:
            self._flushing += 1
            self._changed.notify_all()
            try:
                if not self._changed.wait_for(lambda: delivery.is_done, timeout_s):
                    raise RequestTimedOut("a record's acknowledgement", int(timeout_s * 1000))
            finally:
                self._flushing -= 1

    def _wait_for_room(self) -> None:
        limit = self.config.max_block_ms
        has_room = self._changed.wait_for(
            lambda: self._waiting_bytes < self.config.buffer_memory, limit / 1000
        )
        if not has_room:
            raise RequestTimedOut("send: room in buffer.memory", limit)

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidRequest("producer", "closed", "cannot send: open a new one")

    # -- the sender's thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                ready = self._ready()
                while not ready and not self._closed:
                    self._changed.wait(self._next_due())
                    ready = self._ready()
                if self._closed:
                    return
                for queue in ready:
                    self._close_rows(queue)
                    queue.in_flight = bool(queue.batches)
            for queue in ready:
                if queue.in_flight:
                    self._dispatch(queue)

    def _ready(self) -> list[PartitionQueue]:
        now = time.time()
        found = []
        for queue in self._queues:
            due = self._due(queue)
            if due is not None and due <= now:
                found.append(queue)
        return found

    def _next_due(self) -> float | None:
        due = [when for when in map(self._due, self._queues) if when is not None]
        return max(min(due) - time.time(), 0.0) if due else None

    def _due(self, queue: PartitionQueue) -> float | None:
        return queue.ready_at(self.config.linger_ms / 1000, self.config.batch_size, self._flushing > 0)

    def _close_rows(self, queue: PartitionQueue) -> None:
        """Encode the open rows and queue them as a batch. The caller holds the lock."""
        if not queue.rows:
            return
        rows, size_bytes, delivery = queue.close_rows()
        try:
            content = encode_records(
                rows,
                compression_type=self.config.compression_type,
                producer_id=queue.identity.producer_id,
                producer_epoch=queue.identity.epoch,
                base_sequence=queue.base_sequence,
            )
        except Exception as error:  # a row that send let pass: its batch fails, the producer goes on
            self._fail(queue, [(delivery, len(rows), size_bytes)], error)
            return
        queue.add_batch(Batch(content, len(rows), delivery, size_bytes, self._deadline()))

    def _dispatch(self, queue: PartitionQueue) -> None:
        batch = queue.batches[0]
        batch.attempts += 1
        try:
            answer = self._transport.append(queue.topic, queue.partition, batch.content)
        except Exception as error:
            self._failed(queue, error)
            return
        answer.add_done_callback(lambda done: self._answered(queue, done.exception(), done))

    def _answered(self, queue: PartitionQueue, error: BaseException | None, done: Any) -> None:
        if error is not None:
            self._failed(queue, error)
            return
        result: AppendResult = done.result()
        with self._changed:
            batch = queue.acknowledge()
            self._waiting_bytes -= batch.size_bytes
            batch.delivery.base_offset = result.base_offset
            batch.delivery.log_append_time = result.log_append_time
            batch.delivery.is_done = True
            self._changed.notify_all()

    def _failed(self, queue: PartitionQueue, error: BaseException) -> None:
        """Send again later, or give up."""
        is_retriable = isinstance(error, RaylogError) and error.retriable
        self._transport.forget(queue.topic, queue.partition)
        with self._changed:
            batch = queue.batches[0]
            if is_retriable and time.time() < batch.deadline:
                queue.in_flight = False
                queue.retry_at = time.time() + self.config.retry_backoff_ms / 1000
            else:
                # An earlier attempt whose answer was lost may have been written.
                is_refused = isinstance(error, RaylogError) and not is_retriable and batch.attempts == 1
                self._give_up(queue, error, is_fate_known=is_refused)
            self._changed.notify_all()

    def _give_up(self, queue: PartitionQueue, error: BaseException, *, is_fate_known: bool) -> None:
        self._fail(queue, queue.give_up(is_fate_known=is_fate_known), error)

    def _fail(
        self, queue: PartitionQueue, dropped: Sequence[tuple[Delivery, int, int]], error: BaseException
    ) -> None:
        """Tell whoever waits for these records. The caller holds the lock."""
        records = sum(count for _, count, _ in dropped)
        failure = ProduceFailed(f"{queue.topic}-{queue.partition}", records, error)
        self._failure = self._failure or failure
        for delivery, _, size_bytes in dropped:
            self._waiting_bytes -= size_bytes
            delivery.error, delivery.is_done = failure, True
        self._changed.notify_all()

    def _deadline(self) -> float:
        return time.time() + self.config.delivery_timeout_ms / 1000

    def _know(self, topic: str) -> _Topic:
        count = len(self._broker.topic(topic).partitions)
        with self._changed:
            if topic not in self._topics:
                queues = [PartitionQueue(topic, number, self._identity) for number in range(count)]
                self._queues.extend(queues)
                self._topics[topic] = _Topic(queues)
            return self._topics[topic]


def _size(content: bytes, name: str) -> int:
    if not isinstance(content, _BYTES_LIKE):
        raise InvalidRecord(f"{name}={content!r:.40} is a {type(content).__name__}: encode it to bytes first")
    return len(content)


def _headers_size(headers: Sequence[tuple[str, bytes | None]]) -> int:
    size_bytes = 0
    for name, content in headers:
        if not isinstance(name, str):
            raise InvalidRecord(f"header name {name!r:.40} is a {type(name).__name__}: give a str")
        size_bytes += len(name.encode()) + 4 + (0 if content is None else _size(content, f"header {name}"))
    return size_bytes
