"""What a producer keeps for one partition until it may be sent. No clock, no thread, no Ray.

Rows wait in a list; once the partition has no request in flight, all that have come meanwhile leave
as one batch, so that batches grow with the load by themselves. Columns arrive encoded. What was
taken first is sent first, again and again until it is acknowledged or given up::

    send ---> rows (open) --+
                            +--> batches, oldest first --> in flight (at most one) --> acknowledged
    send_arrow -------------+

Sequences are given in that order, when a batch is encoded. When a batch is refused nothing of it is
in the log, so what is encoded behind it fails with it and the sequence goes back. When its fate is
unknown at the end of its time, the partition's next batch begins under the next producer epoch:
should the old one still be written, then before the new one or not at all. Open rows have no
sequence yet, and stay.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from raylog.storage.buffers import Buffer
from raylog.storage.records.layout import MAX_SEQUENCE

# A record's length, attributes, deltas, key length, value length and header count.
RECORD_OVERHEAD = 12

# Timestamp, key, value, headers, as ``encode_records`` takes them. Each record makes one: a plain
# tuple costs least.
Row = tuple[int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]


class ProducerIdentity(NamedTuple):
    """Who sends, for the log's duplicate detection; -1 is nobody."""

    producer_id: int = -1
    epoch: int = -1


NOBODY = ProducerIdentity()


class Delivery:
    """The common fate of the records of one batch."""

    __slots__ = ("base_offset", "error", "is_done", "log_append_time")

    def __init__(self) -> None:
        self.is_done = False
        self.base_offset = -1
        self.log_append_time = -1
        self.error: Exception | None = None


@dataclass(slots=True)
class Batch:
    """An encoded batch on its way."""

    content: Buffer
    records: int
    delivery: Delivery
    size_bytes: int
    deadline: float  # the end of delivery.timeout.ms
    attempts: int = 0
    error: Exception | None = None  # how the last attempt ended


@dataclass(slots=True)
class PartitionQueue:
    """One partition's share of a producer."""

    topic: str
    partition: int
    identity: ProducerIdentity = NOBODY
    sequence: int = 0
    rows: list[Row] = field(default_factory=list)
    rows_bytes: int = 0
    rows_since: float = 0.0
    delivery: Delivery = field(default_factory=Delivery)
    batches: deque[Batch] = field(default_factory=deque)
    in_flight: Batch | None = None
    retry_at: float = 0.0

    @property
    def deliveries(self) -> list[Delivery]:
        """Of everything that waits, oldest first."""
        waiting = [batch.delivery for batch in self.batches]
        return [*waiting, self.delivery] if self.rows else waiting

    def add_row(self, row: Row, size_bytes: int) -> tuple[Delivery, int]:
        """Take a row in; returns its batch's delivery and its place in the batch.

        With the first row the caller sets ``rows_since``.
        """
        rows = self.rows
        rows.append(row)
        self.rows_bytes += size_bytes
        return self.delivery, len(rows) - 1

    def close_rows(self) -> tuple[list[Row], int, Delivery]:
        """Take the open rows out, to be encoded."""
        taken = (self.rows, self.rows_bytes, self.delivery)
        self.rows, self.rows_bytes, self.delivery = [], 0, Delivery()
        return taken

    @property
    def base_sequence(self) -> int:
        """The sequence that the next batch begins with; -1 without an identity."""
        return self.sequence if self.identity.producer_id >= 0 else -1

    def add_batch(self, batch: Batch) -> None:
        """Queue an encoded batch; its sequence was ``self.sequence``."""
        self.batches.append(batch)
        self.sequence = (self.sequence + batch.records) & MAX_SEQUENCE

    def due_at(self, linger_s: float, batch_bytes: int, is_flushing: bool) -> float | None:
        """When there is something to send or to give up: a time, 0 for now, None for never."""
        if self.in_flight is not None:
            return self.in_flight.deadline
        if self.batches:
            return min(self.retry_at, self.batches[0].deadline)
        if not self.rows:
            return None
        if is_flushing or self.rows_bytes >= batch_bytes:
            return 0.0
        return self.rows_since + linger_s

    def take_off(self) -> Batch:
        """The oldest batch, in flight from now on."""
        assert self.in_flight is None, "one request in flight a partition"
        self.in_flight = self.batches[0]
        self.in_flight.attempts += 1
        self.in_flight.error = None
        return self.in_flight

    def acknowledge(self) -> Batch:
        """The batch in flight was written."""
        self.in_flight, self.retry_at = None, 0.0
        return self.batches.popleft()

    def retry(self, at: float, error: Exception) -> None:
        """The batch in flight may have been written or not: send it again."""
        self.batches[0].error = error
        self.in_flight, self.retry_at = None, at

    def give_up(self, *, is_fate_known: bool) -> list[tuple[Delivery, int, int]]:
        """Drop all batches: (delivery, records, bytes) of each. See the head of this file."""
        dropped = [(batch.delivery, batch.records, batch.size_bytes) for batch in self.batches]
        records = sum(batch.records for batch in self.batches)
        self.sequence = (self.sequence - records) & MAX_SEQUENCE
        self.batches.clear()
        self.in_flight, self.retry_at = None, 0.0
        if not is_fate_known:
            self.identity = self.identity._replace(epoch=self.identity.epoch + 1)
            self.sequence = 0
        return dropped
