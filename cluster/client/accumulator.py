"""What a producer holds back for one partition until it may be sent. Pure: no clock, no thread, no Ray.

Rows wait in a list; once the partition has no request in flight, all that have come meanwhile leave as one
batch, so that batches grow with the load by themselves. Columns arrive encoded. What was taken first is sent
first, again and again until it is acknowledged or given up::

    send ---> rows (open) --+
                            +--> batches, oldest first --> in flight (at most one) --> acknowledged
    send_arrow -------------+

Sequences are given in that order. When a batch is refused nothing of it is in the log, so all that waits behind
it is refused with it and the sequence goes back. When its fate is unknown at the end of its time, the
partition's next batch begins under the next producer epoch.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from raylog.storage.files import Buffer

# Length, attributes, deltas, key length, value length, header count: what a record takes besides its bytes.
RECORD_OVERHEAD = 12

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
    deadline: float
    attempts: int = 0


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
    in_flight: bool = False
    retry_at: float = 0.0

    @property
    def is_empty(self) -> bool:
        return not self.rows and not self.batches

    def add_row(self, row: Row, size_bytes: int, now: float) -> tuple[Delivery, int]:
        """Take a row in; returns its batch's delivery and its place in the batch."""
        rows = self.rows
        if not rows:
            self.rows_since = now
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
        self.sequence = (self.sequence + batch.records) & 0x7FFFFFFF

    def ready_at(self, linger_s: float, batch_bytes: int, is_flushing: bool) -> float | None:
        """When there is something to send: a time, 0 for now, None for never (empty, or in flight)."""
        if self.in_flight:
            return None
        if self.batches:
            return self.retry_at
        if not self.rows:
            return None
        if is_flushing or self.rows_bytes >= batch_bytes:
            return 0.0
        return self.rows_since + linger_s

    def acknowledge(self) -> Batch:
        """The head was written."""
        self.in_flight, self.retry_at = False, 0.0
        return self.batches.popleft()

    def give_up(self, *, is_fate_known: bool) -> list[tuple[Delivery, int, int]]:
        """Drop everything that waits: (delivery, records, bytes) of each. See the head of this file."""
        dropped = [(batch.delivery, batch.records, batch.size_bytes) for batch in self.batches]
        self.sequence = (self.sequence - sum(batch.records for batch in self.batches)) & 0x7FFFFFFF
        self.batches.clear()
        if self.rows:
            rows, size_bytes, delivery = self.close_rows()
            dropped.append((delivery, len(rows), size_bytes))
        self.in_flight, self.retry_at = False, 0.0
        if not is_fate_known:
            self.identity = self.identity._replace(epoch=self.identity.epoch + 1)
            self.sequence = 0
        return dropped
