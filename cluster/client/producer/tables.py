"""Arrow tables into a producer: which rows go where, and what becomes of them."""

import itertools
import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from raylog.actors.errors import ProduceFailed, RecordTooLargeToSend, ReentrantCall
from raylog.cluster.client.producer.batches import Rows
from raylog.cluster.client.producer.config import Partitioner, ProducerConfig
from raylog.cluster.client.producer.delivery import Delivery, Outcome
from raylog.cluster.client.producer.taking import Taking, chosen_partition
from raylog.storage.errors import InvalidRecord
from raylog.storage.records import columns
from raylog.storage.records.murmur2 import partitions_for_column

# What a consumer's poll_arrow gives beyond a record's own columns.
IGNORED = ("topic", "partition", "offset", "timestampType")

Places = npt.NDArray[np.int64]  # rows of a table, by number


_Split = tuple[int | None, Any, Places]  # partition (None: any), rows, where they stand


class WrittenRange(NamedTuple):
    """Records of a table that were written one behind the other."""

    topic: str
    partition: int
    base_offset: int
    count: int  # type: ignore[assignment]  # hides tuple.count


class _Part(NamedTuple):
    """Rows of the table that were taken into one batch."""

    delivery: Delivery
    places: Places


class SentTable(Future):
    """A table on its way: a ``Future`` of the ranges of offsets that its rows got.

    It cannot be cancelled. What kept rows from being written is a ProduceFailed.
    """

    def __init__(self, num_rows: int) -> None:
        super().__init__()
        self.num_rows = num_rows
        self._parts: list[_Part] = []
        # of the parts, and of all having been sent; each is counted in one step, without a lock,
        # for which a finalizer in the same thread would wait for ever
        self._ends, self._last = itertools.count(1), 1
        self.set_running_or_notify_cancel()

    def cancel(self) -> bool:
        """False: what was taken is sent."""
        return False

    def follow(self, parts: list[_Part]) -> None:
        """The producer's: these are all parts of the table."""
        self._parts, self._last = parts, len(parts) + 1
        for part in parts:
            part.delivery.when_done(self._part_ended)
        self._part_ended()

    def _part_ended(self) -> None:
        if next(self._ends) < self._last:
            return
        failures = [pair for pair in self._outcomes() if pair[1].error is not None]
        if not failures:
            self.set_result(self._ranges())
            return
        delivery, outcome = failures[0]
        count = sum(failed.count for _, failed in failures)
        self.set_exception(ProduceFailed(delivery.partition.name, count, outcome.error))

    def result(self, timeout: float | None = None) -> list[WrittenRange]:
        """Where the rows were written. Raises ProduceFailed, TimeoutError."""
        self._hurry()
        try:
            return super().result(timeout)
        except ProduceFailed:
            self._tell()
            raise

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What kept rows from being written. Waits as ``result``."""
        self._hurry()
        error = super().exception(timeout)
        if error is not None:
            self._tell()
        return error

    def _hurry(self) -> None:
        """Somebody waits. Raises InvalidRequest in a callback, which would wait for itself."""
        if self.done():
            return
        for part in self._parts:
            part.delivery.partition.hurry(part.delivery)

    def _tell(self) -> None:
        for delivery, outcome in self._outcomes():
            for index in range(outcome.first, outcome.first + outcome.count):
                delivery.was_told(index)

    def offsets(self, timeout: float | None = None) -> pa.Table:
        """Of each row of the table, in its order: ``partition`` and ``offset``. Waits."""
        self.result(timeout)
        partitions = np.empty(self.num_rows, np.int32)
        offsets = np.empty(self.num_rows, np.int64)
        for part in self._parts:
            for outcome in part.delivery.outcomes:
                places = part.places[outcome.first : outcome.first + outcome.count]
                partitions[places] = part.delivery.partition.number
                offsets[places] = np.arange(
                    outcome.base_offset, outcome.base_offset + outcome.count
                )
        return pa.table({"partition": partitions, "offset": offsets})

    def _outcomes(self) -> Iterator[tuple[Delivery, Outcome]]:
        for part in self._parts:
            for outcome in part.delivery.outcomes:
                yield part.delivery, outcome

    def _ranges(self) -> list[WrittenRange]:
        return [
            WrittenRange(
                topic=delivery.partition.topic,
                partition=delivery.partition.number,
                base_offset=outcome.base_offset,
                count=outcome.count,
            )
            for delivery, outcome in self._outcomes()
        ]


def send_table(
    taking: Taking,
    config: ProducerConfig,
    topic: str,
    table: "pa.Table | pa.RecordBatch",
    partition: int | None,
) -> SentTable:
    """Queue all rows of a table. See ``Producer.send_arrow``."""
    if not isinstance(table, pa.Table | pa.RecordBatch):
        raise InvalidRecord(
            f"table is a {type(table).__name__}; give a pyarrow Table or RecordBatch, of pandas "
            "pa.Table.from_pandas(frame, preserve_index=False)"
        )
    table = _record_columns(table)
    state = taking.topic(topic)
    if partition is not None:
        state = taking.check_partition(topic, state, partition)
        splits: Iterator[_Split] = iter([(partition, table, np.arange(table.num_rows))])
    else:
        splits = _splits(config.partitioner, topic, table, len(state.batches))
    sent, parts = SentTable(table.num_rows), list[_Part]()
    try:
        for number, some, places in splits:
            parts += _send_columns(taking, config, topic, number, some, places)
    finally:
        sent.follow(parts)
    return sent


def _record_columns(table: "pa.Table | pa.RecordBatch") -> "pa.Table | pa.RecordBatch":
    ignored = [name for name in table.schema.names if name in IGNORED]
    return table.drop_columns(ignored) if ignored else table


def _splits(
    partitioner: str | Partitioner,
    topic: str,
    table: "pa.Table | pa.RecordBatch",
    partitions: int,
) -> Iterator[_Split]:
    """(partition, rows, where they stand in the table), as the producer's partitioner says."""
    if callable(partitioner):
        chosen = [chosen_partition(partitioner, topic, key, partitions) for key in _keys(table)]
        return _split(table, np.array(chosen, np.int64), partitions)
    if partitioner == "murmur2":
        return split_by_key(table, partitions)
    return iter([(None, table, np.arange(table.num_rows))])


def _keys(table: "pa.Table | pa.RecordBatch") -> list[bytes | None]:
    if "key" not in table.schema.names:
        return [None] * table.num_rows
    keys = table.column("key").to_pylist()
    return [key.encode() if isinstance(key, str) else key for key in keys]


def split_by_key(table: "pa.Table | pa.RecordBatch", partitions: int) -> Iterator[_Split]:
    """(partition, rows, where they stand in the table) by the murmur2 of the keys.

    The partition is None for rows that any partition may take.
    """
    everything = np.arange(table.num_rows)
    if "key" not in table.schema.names or not table.num_rows:
        yield None, table, everything
        return
    if partitions == 1:
        yield 0, table, everything
        return
    key = columns.one_array("key", table.column("key"))
    yield from _split(table, partitions_for_column(key, partitions), partitions)


def _split(
    table: "pa.Table | pa.RecordBatch", numbers: npt.NDArray[np.integer[Any]], partitions: int
) -> Iterator[_Split]:
    """The rows by these partitions of theirs; -1 is any."""
    order = np.argsort(numbers, kind="stable")
    counts = np.bincount(numbers + 1, minlength=partitions + 1)
    start = 0
    for number, count in enumerate(counts.tolist(), start=-1):
        if count:
            places = order[start : start + count]
            yield None if number < 0 else number, table.take(columns.indices(places)), places
        start += count


def _send_columns(
    taking: Taking,
    config: ProducerConfig,
    topic: str,
    number: int | None,
    table: "pa.Table | pa.RecordBatch",
    places: Places,
) -> Iterator[_Part]:
    """Encode rows batch by batch; without a number, for each partition in turn."""
    encoder = columns.encoder(table, time.time_ns() // 1_000_000)
    start = 0
    while start < table.num_rows:
        state = taking.topic(topic)
        if number is None:
            state.sticky = (state.sticky + 1) % len(state.batches)
        elif number >= len(state.batches):
            state = taking.check_partition(topic, state, number)
        batch = state.batches[state.sticky if number is None else number]
        rows = Rows(*encoder.encode(start, batch.limit))
        size_bytes = memoryview(rows.content).nbytes
        if size_bytes > config.max_request_size:
            raise RecordTooLargeToSend(size_bytes, "max.request.size", config.max_request_size)
        _charge(taking, config, size_bytes)
        try:
            delivery = taking.sender.add(state, batch, rows, size_bytes)
        except ReentrantCall:
            taking.sender.release(size_bytes)
            raise
        if delivery is None:  # another topic has this name now
            taking.sender.release(size_bytes)
            continue
        yield _Part(delivery, places[start : start + rows.count])
        start += rows.count


def _charge(taking: Taking, config: ProducerConfig, size_bytes: int) -> None:
    """Take memory for a batch, once there is enough, or nothing else waits."""
    deadline, needed = taking.deadline(), min(size_bytes, config.buffer_memory)
    while True:
        since = taking.sender.changes
        if taking.sender.accumulator.free_bytes >= needed:
            taking.sender.release(-size_bytes)
            return
        taking.wait_for_room("the rest of the table", since, deadline)
