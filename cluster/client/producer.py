"""The producer: records in, acknowledged batches in the log.

``send`` only puts a record into its partition's queue (``accumulator.py``); one background thread
(``sender.py``) encodes what waits and sends it, one request in flight a partition, through a
transport (``transport.py``). A request whose answer is lost is sent again with the same producer id
and sequence, and the log answers a repeat with the offsets it gave the first time: nothing is lost
and nothing is there twice.

Defaults and names are those of Kafka's producer where it has them.
"""

import random
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from raylog.actors.errors import RequestTimedOut, UnknownTopicOrPartition
from raylog.cluster.client.accumulator import (
    RECORD_OVERHEAD,
    Delivery,
    PartitionQueue,
    ProducerIdentity,
)
from raylog.cluster.client.columns import split_by_key
from raylog.cluster.client.producer_config import ProducerConfig
from raylog.cluster.client.sender import Sender
from raylog.cluster.client.topic_watch import TopicWatch
from raylog.cluster.client.transport import RayTransport, Transport
from raylog.storage.errors import InvalidRecord, RecordTooLarge
from raylog.storage.limits import MAX_LONG
from raylog.storage.records.encode import TableEncoder
from raylog.storage.records.murmur2 import partition_for_key

if TYPE_CHECKING:
    import pyarrow as pa

    from raylog.cluster.broker import Broker

# An uncompressed batch and its header must fit max.message.bytes (1 MiB + 12 by default).
MAX_BATCH_BYTES = 1_000_000
_BYTES_LIKE = (bytes, bytearray, memoryview)


class RecordMetadata(NamedTuple):
    """Where a record was written."""

    topic: str
    partition: int
    offset: int
    log_append_time: int  # ms, -1 unless the topic stamps records itself


class SentRecord:
    """A record on its way; :meth:`result` waits for it."""

    __slots__ = ("_delivery", "_index", "_queue", "_sender")

    def __init__(
        self, sender: Sender, queue: PartitionQueue, delivery: Delivery, index: int
    ) -> None:
        self._sender, self._queue, self._delivery, self._index = sender, queue, delivery, index

    @property
    def is_done(self) -> bool:
        return self._delivery.is_done

    def result(self, timeout_s: float = 120.0) -> RecordMetadata:
        """Where the record was written; raises what kept it from being written."""
        if not self._sender.wait([self._delivery], timeout_s):
            raise RequestTimedOut("a record's acknowledgement", int(timeout_s * 1000))
        if self._delivery.error is not None:
            raise self._delivery.error
        offset = self._delivery.base_offset + self._index
        return RecordMetadata(
            topic=self._queue.topic,
            partition=self._queue.partition,
            offset=offset,
            log_append_time=self._delivery.log_append_time,
        )


class _Topic:
    """A topic's queues, and the partition that takes the records without a key for now."""

    __slots__ = ("queues", "sticky", "sticky_bytes")

    def __init__(self, queues: list[PartitionQueue]) -> None:
        self.queues = queues
        self.sticky = random.randrange(len(queues))
        self.sticky_bytes = 0

    def lacks(self, partition: object) -> bool:
        """Whether it could be a partition's number, but not of a partition that is known here."""
        return isinstance(partition, int) and partition >= len(self.queues)


class Producer:
    """Sends records to topics. Use it as a context manager, or ``close`` it. Safe for many threads.

    A record that could not be written makes the next ``flush`` or ``close`` raise ProduceFailed,
    and its ``SentRecord.result``: no loss is silent.
    """

    def __init__(
        self,
        broker: "Broker",
        *,
        transport: Transport | None = None,
        clock: Callable[[], float] = time.monotonic,
        **settings: Any,
    ) -> None:
        self.config = ProducerConfig.of(settings)
        self._broker = broker
        self._topics: dict[str, _Topic] = {}
        self._watch = TopicWatch(broker, self.config.metadata_max_age_ms)
        has_id = self.config.enable_idempotence
        self._identity = (
            ProducerIdentity(broker.allocate_producer_id(), 0) if has_id else ProducerIdentity()
        )
        self._sender = Sender(self.config, transport or RayTransport(broker), clock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: object, *_: object) -> None:
        if error_type is None:
            self.close()
        else:
            self._sender.stop()

    # -- sending -----------------------------------------------------------------------------------

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
        """Queue one record. ``timestamp``: ms since the epoch, default now.

        Without a partition the key decides (murmur2, as Kafka's), and without a key the records go
        in runs to one partition after another.

        Raises RecordTooLarge, UnknownTopicOrPartition, InvalidRecord; RequestTimedOut if there is
        no room.
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
        if timestamp is None:
            timestamp = int(time.time() * 1000)
        elif not isinstance(timestamp, int) or not 0 <= timestamp <= MAX_LONG:
            raise InvalidRecord(
                f"timestamp={timestamp!r} is invalid; give ms since the epoch, an int of 0 or more"
            )
        row = (timestamp, key, value, headers)
        if self._watch.news:
            self._grow()
        state = self._topics.get(topic) or self._add_topic(topic)
        if partition is not None and state.lacks(partition):
            self._look_again(topic)
        sender = self._sender
        with sender.lock:
            if sender.waiting_bytes >= self.config.buffer_memory or sender.is_closed:
                sender.check_room()
            queue = self._queue_for(state, topic, key, partition, size_bytes)
            if queue.rows_bytes + size_bytes > MAX_BATCH_BYTES:
                sender.close_rows(queue)
            was_ready = queue.rows_bytes >= self.config.batch_size
            delivery, index = queue.add_row(row, size_bytes)
            sender.waiting_bytes += size_bytes
            if index == 0:
                queue.rows_since = sender.clock()
            if index == 0 or (not was_ready and queue.rows_bytes >= self.config.batch_size):
                sender.changed.notify_all()
        if index == 0:
            self._watch.tick()
        return SentRecord(sender, queue, delivery, index)

    def _queue_for(
        self, state: _Topic, topic: str, key: bytes | None, partition: int | None, size_bytes: int
    ) -> PartitionQueue:
        queues = state.queues
        if partition is not None:
            if not isinstance(partition, int) or not 0 <= partition < len(queues):
                raise UnknownTopicOrPartition(
                    topic, partition, f"the topic has {len(queues)} partitions"
                )
            return queues[partition]
        if key is not None:
            return queues[partition_for_key(key, len(queues))]
        if state.sticky_bytes >= self.config.batch_size and len(queues) > 1:
            state.sticky = (state.sticky + random.randrange(1, len(queues))) % len(queues)
            state.sticky_bytes = 0
        state.sticky_bytes += size_bytes
        return queues[state.sticky]

    def send_arrow(
        self, topic: str, table: "pa.Table | pa.RecordBatch", *, partition: int | None = None
    ) -> int:
        """Queue every row of a table; returns how many. No Python object is made per record.

        Columns: ``value`` (binary or string), and as you like ``key`` (binary or string),
        ``timestamp`` (int64 ms or timestamp), ``headers`` (list of struct of key, value). Without a
        partition, keys decide row by row; rows without a key go to one partition after another.

        Raises InvalidRecord for a table of another shape, UnknownTopicOrPartition, RecordTooLarge.
        """
        self._watch.tick()
        if self._watch.news:
            self._grow()
        state = self._topics.get(topic) or self._add_topic(topic)
        if partition is not None:
            if state.lacks(partition):
                self._look_again(topic)
            self._queue_for(state, topic, None, partition, 0)
        parts = (
            split_by_key(table, len(state.queues)) if partition is None else [(partition, table)]
        )
        return sum(self._send_columns(state, number, part) for number, part in parts)

    def _send_columns(
        self, state: _Topic, number: int | None, table: "pa.Table | pa.RecordBatch"
    ) -> int:
        """Encode a table batch by batch; without a number, for each partition in turn."""
        encoders: dict[ProducerIdentity, TableEncoder] = {}
        start, now_ms = 0, time.time_ns() // 1_000_000
        while start < table.num_rows:
            with self._sender.lock:
                self._sender.check_room()
                if number is None:
                    state.sticky = (state.sticky + 1) % len(state.queues)
                queue = state.queues[state.sticky if number is None else number]
                self._sender.close_rows(queue)
                encoder = encoders.get(queue.identity)
                if encoder is None:
                    encoder = encoders[queue.identity] = self._encoder(
                        table, queue.identity, now_ms
                    )
                content, records = encoder.encode(
                    start, max_bytes=MAX_BATCH_BYTES, base_sequence=queue.base_sequence
                )
                self._sender.add_columns(queue, content, records)
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

    # -- waiting -----------------------------------------------------------------------------------

    def flush(self, timeout_s: float | None = None) -> None:
        """Return when everything sent before is acknowledged.

        Raises ProduceFailed if some of it was given up.
        """
        limit_s = self.config.delivery_timeout_ms / 1000 + 1 if timeout_s is None else timeout_s
        is_done = self._sender.wait(self._sender.deliveries(), limit_s)
        failure = self._sender.take_failure()
        if failure is not None:
            raise failure
        if not is_done:
            raise RequestTimedOut("flush", int(limit_s * 1000))

    def close(self) -> None:
        """Flush, and end the background thread.

        Raises ProduceFailed if something sent was given up.
        """
        if self._sender.is_closed:
            return
        self._sender.close()
        try:
            self.flush()
        finally:
            self._sender.stop()

    def _add_topic(self, topic: str) -> _Topic:
        count = len(self._broker.topic(topic).partitions)
        self._watch.follow([topic])
        with self._sender.lock:
            if topic not in self._topics:
                self._topics[topic] = _Topic(self._new_queues(topic, 0, count))
            return self._topics[topic]

    def _new_queues(self, topic: str, first: int, count: int) -> list[PartitionQueue]:
        """The caller holds the sender's lock."""
        queues = [PartitionQueue(topic, number, self._identity) for number in range(first, count)]
        self._sender.queues.extend(queues)
        return queues

    def _grow(self) -> None:
        """Use the partitions that were added."""
        with self._sender.lock:
            for topic, count in self._watch.take().items():
                queues = self._topics[topic].queues
                queues += self._new_queues(topic, len(queues), count)

    def _look_again(self, topic: str) -> None:
        """Ask for a topic's partitions: one that is not known here may have been added."""
        described = self._broker.describe_topic(topic)
        self._watch.tell(self._broker.namespace, topic, len(described.partitions))
        self._grow()


def _size(content: bytes, name: str) -> int:
    if not isinstance(content, _BYTES_LIKE):
        raise InvalidRecord(
            f"{name}={content!r:.40} is a {type(content).__name__}; encode it to bytes first"
        )
    return len(content)


def _headers_size(headers: Sequence[tuple[str, bytes | None]]) -> int:
    size_bytes = 0
    for name, content in headers:
        if not isinstance(name, str):
            raise InvalidRecord(f"header name {name!r:.40} is a {type(name).__name__}; give a str")
        size_bytes += (
            len(name.encode()) + 4 + (0 if content is None else _size(content, f"header {name}"))
        )
    return size_bytes
