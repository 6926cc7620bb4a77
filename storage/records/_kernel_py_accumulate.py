"""What a producer takes in, in plain Python: see ``_kernel_accumulate.pxi``.

Many bytecodes are no single step, so a lock takes the place of the GIL there.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from raylog.storage.errors import InvalidRecord
from raylog.storage.records._kernel_py_encode import murmur2
from raylog.storage.records.compression import MAX_PLAIN_BYTES
from raylog.storage.records.layout import HEADER_SIZE
from raylog.storage.records.varints import put_varint

BATCH_IS_FULL: Final = 1
MEMORY_IS_FULL: Final = 2
TOPIC_HAS_CHANGED: Final = 3

Headers = tuple[tuple[str, bytes | None], ...]

_FIRST_BATCH_CAPACITY: Final = 512
# A finalizer may call ``send`` in the thread that holds it.
_lock: Final = threading.RLock()


class Receipt:
    """A record's place in its batch, which knows what became of it."""

    _delivery: Any = None
    _index = 0

    @property
    def delivery(self) -> Any:
        """The fate of the record's batch."""
        return self._delivery

    @property
    def index(self) -> int:
        return self._index

    def track(self) -> None:
        """Nothing: the garbage collector looks at this anyway."""


class OpenBatch:
    """The rows of a partition that wait."""

    def __init__(self, owner: Any, limit: int) -> None:
        self.owner, self.limit = owner, limit
        self.delivery: Any = None
        self.count = self.capacity = 0
        self.content = bytearray(HEADER_SIZE)
        self.base_timestamp = self.max_timestamp = 0

    @property
    def size_bytes(self) -> int:
        return len(self.content)

    def encoded(self, key: Any, value: Any, headers: Headers | None, timestamp: int) -> bytearray:
        """A row, as it would be in this batch now."""
        delta = timestamp - self.base_timestamp if self.count else 0
        return _encoded(delta, self.count, key, value, headers)

    def capacity_for(self, size: int, free_bytes: int) -> int:
        if size <= self.capacity:
            return self.capacity
        wanted = max(size, min(max(2 * self.capacity, _FIRST_BATCH_CAPACITY), self.limit))
        return wanted if wanted - self.capacity <= free_bytes else size

    def put(self, row: bytearray, timestamp: int) -> None:
        if self.count == 0:
            self.base_timestamp = self.max_timestamp = timestamp
        self.max_timestamp = max(self.max_timestamp, timestamp)
        self.content += row
        self.count += 1

    def take(self) -> tuple[bytearray, int, int, int, Any, int] | None:
        """(batch with 61 free bytes, rows, base timestamp, max timestamp, delivery, charged bytes)

        The open batch is empty then. None if it is.
        """
        with _lock:
            if self.count == 0:
                return None
            taken = (
                self.content,
                self.count,
                self.base_timestamp,
                self.max_timestamp,
                self.delivery,
                self.capacity,
            )
            self.content, self.delivery = bytearray(HEADER_SIZE), None
            self.count = self.capacity = 0
            return taken


class OpenTopic:
    """The open batches of a topic's partitions, by number."""

    def __init__(self, batches: list[OpenBatch], topic_id: Any = None) -> None:
        self.batches, self.topic_id = batches, topic_id
        self.sticky = self.sticky_bytes = 0


class Accumulator:
    """All open batches of a producer."""

    def __init__(
        self,
        *,
        receipt: type[Receipt],
        new_delivery: Callable[[OpenBatch], Any],
        careful: Callable[..., Any],
        wake: Callable[[OpenBatch], object],
        stick: Callable[[OpenTopic], object],
        batch_bytes: int,
        free_bytes: int,
        direct: bool = True,
        ignores_keys: bool = False,
    ) -> None:
        if not issubclass(receipt, Receipt) or batch_bytes < 1:
            raise ValueError(f"{receipt} must be a Receipt, and batch_bytes at least 1")
        self._receipt, self._new_delivery, self._careful = receipt, new_delivery, careful
        self._wake, self._stick, self._is_direct = wake, stick, direct
        self._ignores_keys = ignores_keys
        self._batch_bytes, self.free_bytes = batch_bytes, free_bytes
        self.topics: dict[str, OpenTopic] = {}

    def release(self, size_bytes: int) -> None:
        """Give memory back; a negative number takes some."""
        with _lock:
            self.free_bytes += size_bytes

    def send(
        self,
        topic: Any,
        value: Any = None,
        *,
        key: Any = None,
        timestamp: Any = None,
        headers: Any = None,
        partition: Any = None,
    ) -> Any:
        """Take a row in; returns its receipt. See ``Producer.send``."""
        at_ms = time.time_ns() // 1_000_000 if timestamp is None else timestamp
        pairs = tuple(headers) if type(headers) is list else headers
        is_plain = (
            self._is_direct
            and type(topic) is str
            and _is_long(at_ms)
            and (partition is None or _is_long(partition))
            and (pairs is None or type(pairs) is tuple)
            and _is_exact(key, value, pairs)
        )
        if is_plain:
            number = -1 if partition is None else partition
            put = self._put(topic, None, key, value, pairs, at_ms, number, is_careful=False)
            if isinstance(put, Receipt):
                return put
        return self._careful(topic, value, key, timestamp, headers, partition)

    def append(
        self,
        topic: str,
        state: OpenTopic,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | None,
        timestamp: int,
        partition: int,
    ) -> Any:
        """Take a row of exact types in; partition -1: any.

        Returns its receipt, or why it was not taken. A record that is too large for any batch makes
        one of its own.
        """
        if not _is_exact(key, value, headers):
            raise TypeError("a row must be of bytes, and tuples (str, bytes) as headers")
        return self._put(topic, state, key, value, headers, timestamp, partition, is_careful=True)

    def _put(
        self,
        topic: str,
        wanted: OpenTopic | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | None,
        at_ms: int,
        partition: int,
        *,
        is_careful: bool,
    ) -> Any:
        receipt = self._receipt.__new__(self._receipt)
        with _lock:
            state = self.topics.get(topic)
            if state is None or not state.batches or (wanted is not None and state is not wanted):
                return TOPIC_HAS_CHANGED
            number = self._partition_of(state, key) if partition < 0 else partition
            if number >= len(state.batches):
                return TOPIC_HAS_CHANGED
            batch = state.batches[number]
            before = batch.size_bytes
            row = batch.encoded(key, value, headers, at_ms)
            size = before + len(row)
            if size > MAX_PLAIN_BYTES:
                raise InvalidRecord(
                    f"record 0: a batch of over {MAX_PLAIN_BYTES} bytes: encode fewer records"
                )
            if size > batch.limit and (batch.count or not is_careful):
                return BATCH_IS_FULL
            capacity = batch.capacity_for(size, self.free_bytes)
            if capacity - batch.capacity > self.free_bytes:
                return MEMORY_IS_FULL
            if batch.delivery is None:
                batch.delivery = self._new_delivery(batch)
            self.free_bytes -= capacity - batch.capacity
            batch.capacity = capacity
            receipt._index, receipt._delivery = batch.count, batch.delivery
            batch.put(row, at_ms)
            if partition < 0 and (key is None or self._ignores_keys):
                state.sticky_bytes += size - before
            if receipt._index == 0 or before < self._batch_bytes <= size:
                self._wake(batch)
        return receipt

    def _partition_of(self, state: OpenTopic, key: bytes | None) -> int:
        if key is not None and not self._ignores_keys:
            return (murmur2(key) & 0x7FFFFFFF) % len(state.batches)
        if state.sticky_bytes >= self._batch_bytes and len(state.batches) > 1:
            self._stick(state)
            state.sticky_bytes = 0
        return state.sticky


def record_size(key: bytes | None, value: bytes | None, headers: Headers | None) -> int:
    """Bytes of a batch of this record alone. The types must be exact: bytes, str, tuples."""
    if not _is_exact(key, value, headers):
        raise TypeError("a row must be of bytes, and tuples (str, bytes) as headers")
    return HEADER_SIZE + len(_encoded(0, 0, key, value, headers))


def _is_long(given: Any) -> bool:
    return type(given) is int and 0 <= given < 2**63


def _is_exact(key: Any, value: Any, headers: Headers | None) -> bool:
    fields = [key, value]
    for pair in headers or ():
        if type(pair) is not tuple or len(pair) != 2 or type(pair[0]) is not str:
            return False
        if not pair[0].isascii() and _is_half(pair[0]):
            return False
        fields.append(pair[1])
    return all(field is None or type(field) is bytes for field in fields)


def _is_half(name: str) -> bool:
    """Whether it has half of a surrogate pair, which UTF-8 cannot say."""
    return any("\ud800" <= letter <= "\udfff" for letter in name)


def _encoded(
    timestamp_delta: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers | None,
) -> bytearray:
    body = bytearray(1)
    put_varint(body, timestamp_delta)
    put_varint(body, offset_delta)
    _put_field(body, key)
    _put_field(body, value)
    put_varint(body, len(headers or ()))
    for name, content in headers or ():
        _put_field(body, name.encode())
        _put_field(body, content)
    row = bytearray()
    put_varint(row, len(body))
    return row + body


def _put_field(out: bytearray, field: bytes | None) -> None:
    if field is None:
        out.append(1)
    else:
        put_varint(out, len(field))
        out += field
