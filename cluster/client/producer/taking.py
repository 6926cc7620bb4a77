"""The careful way into the accumulator, for rows that are not plain.

The compiled ``send`` takes what is of exact types, for a topic that is known, where there is room.
Here is the rest: other types are copied into exact ones, a topic is looked up, a full batch is
closed, full memory is waited for, and what cannot be sent at all is refused by name.
"""

import time
from collections import defaultdict
from collections.abc import Callable
from itertools import count
from typing import Any

from raylog.actors.errors import (
    BufferExhausted,
    InvalidRequest,
    NotLeader,
    RecordTooLargeToSend,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from raylog.cluster.client.connection import Connection
from raylog.cluster.client.producer.config import Partitioner, ProducerConfig
from raylog.cluster.client.producer.delivery import SentRecord
from raylog.cluster.client.producer.rows import (
    plain_bytes,
    plain_headers,
    plain_partition,
    plain_timestamp,
    plain_topic,
)
from raylog.cluster.client.producer.sender import Sender
from raylog.storage.errors import InvalidRecord
from raylog.storage.records import kernel
from raylog.storage.records.murmur2 import partition_for_key

ANY = -1  # the partition of rows without a key: the accumulator chooses


class Taking:
    """How rows that are not plain get into a sender's accumulator."""

    sender: Sender  # set by its maker: each needs the other
    check_transaction: Callable[[], None]  # raises where a record may not be taken now; likewise

    def __init__(self, config: ProducerConfig, connection: Connection) -> None:
        self._config, self._connection = config, connection
        self._ignores_keys = config.partitioner == "sticky"
        self._turns: defaultdict[str, count[int]] = defaultdict(count)

    def send(
        self, topic: Any, value: Any, key: Any, timestamp: Any, headers: Any, partition: Any
    ) -> SentRecord:
        """Take one row in. See ``Producer.send``."""
        name = plain_topic(topic)
        key = self._serialized(key, self._config.key_serializer, "key")
        value = self._serialized(value, self._config.value_serializer, "value")
        pairs = plain_headers(headers)
        at_ms = time.time_ns() // 1_000_000 if timestamp is None else plain_timestamp(timestamp)
        wanted = None if partition is None else plain_partition(partition)
        self._check_size(kernel.ops.record_size(key, value, pairs))
        deadline = self.deadline()
        while True:
            state = self.topic(name)
            number = self._partition(name, state, key, wanted)
            since = self.sender.changes
            put = self.sender.accumulator.append(name, state, key, value, pairs, at_ms, number)
            if isinstance(put, SentRecord):
                return put
            if put == kernel.ops.BATCH_IS_FULL:
                target = _target(state, key, number, ignores_keys=self._ignores_keys)
                self.sender.close_rows(state.batches[target])
            elif put == kernel.ops.MEMORY_IS_FULL:
                self.wait_for_room("the record", since, deadline)

    def _serialized(self, content: Any, serializer: Any, what: str) -> bytes | None:
        if content is not None and serializer is not None:
            content = serializer(content)
        return plain_bytes(content, what)

    def _check_size(self, size_bytes: int) -> None:
        if size_bytes > self._config.max_request_size:
            raise RecordTooLargeToSend(
                size_bytes, "max.request.size", self._config.max_request_size
            )
        if size_bytes > self._config.buffer_memory:
            raise RecordTooLargeToSend(size_bytes, "buffer.memory", self._config.buffer_memory)

    # -- topics ------------------------------------------------------------------------------------

    def topic(self, name: str) -> Any:
        """A topic's open batches. Raises UnknownTopicOrPartition, InvalidRequest once closed, and
        outside of a transaction the errors of ``transactions/``."""
        self.check_open()
        self.check_transaction()
        return self.sender.accumulator.topics.get(name) or self._look_up(name)

    def partitions(self, name: str) -> int:
        """How many a topic has; also outside of a transaction."""
        self.check_open()
        known = self.sender.accumulator.topics.get(name) or self._look_up(name)
        return len(known.batches)

    def check_open(self) -> None:
        """Raises InvalidRequest once closed, ForkedProcess."""
        self.sender.check_not_forked()
        if self.sender.is_closed:
            raise InvalidRequest("producer", "closed", "cannot send; create a new producer")

    def _look_up(self, name: str) -> Any:
        """Ask for a topic, for ``max.block.ms`` while the Controller is away."""
        sender, config = self.sender, self._config
        deadline = sender.clock() + config.max_block_ms / 1000
        while True:
            left_s = max(deadline - sender.clock(), 0.0)
            try:
                return sender.learn(self._connection.metadata(name, timeout_s=left_s).result())
            except (NotLeader, RequestTimedOut):
                if sender.is_closed or sender.clock() >= deadline:
                    raise
            sender.pause(config.retry_backoff_ms / 1000)

    def check_partition(self, name: str, state: Any, number: int) -> Any:
        """The open batches of a topic that has this partition; it may have been added just now."""
        if number >= len(state.batches):
            state = self._look_up(name)
        if number >= len(state.batches):
            raise UnknownTopicOrPartition(
                name, number, f"the topic has {len(state.batches)} partitions"
            )
        return state

    def _partition(self, name: str, state: Any, key: bytes | None, wanted: int | None) -> int:
        partitioner = self._config.partitioner
        if wanted is not None:
            self.check_partition(name, state, wanted)
            return wanted
        if partitioner == "round_robin":
            return next(self._turns[name]) % len(state.batches)
        if callable(partitioner):
            return chosen_partition(partitioner, name, key, len(state.batches))
        return ANY

    # -- memory ------------------------------------------------------------------------------------

    def deadline(self) -> float:
        """Until when a call may wait for room, by the sender's clock."""
        return self.sender.clock() + self._config.max_block_ms / 1000

    def wait_for_room(self, what: str, since: int, deadline: float) -> None:
        """Wait until memory may be free for ``what``. Raises BufferExhausted."""
        config, sender = self._config, self.sender
        sender.hurry()
        if sender.is_own_thread():  # a callback, which holds up what would make room
            raise BufferExhausted(what, 0, config.buffer_memory)
        if not sender.wait_for_change(since, deadline):
            raise BufferExhausted(what, config.max_block_ms, config.buffer_memory)


def chosen_partition(
    partitioner: Partitioner, topic: str, key: bytes | None, partitions: int
) -> int:
    """What a user's partitioner says. Raises InvalidRecord for a partition that is not there."""
    chosen = plain_partition(partitioner(topic, key, partitions))
    if chosen >= partitions:
        raise InvalidRecord(
            f"the partitioner chose partition {chosen} of {topic}, which has {partitions}; return "
            "one of them"
        )
    return chosen


def _target(state: Any, key: bytes | None, number: int, *, ignores_keys: bool) -> int:
    """The partition whose batch was full."""
    if number != ANY:
        return number
    if key is None or ignores_keys:
        return int(state.sticky)
    return partition_for_key(key, len(state.batches))
