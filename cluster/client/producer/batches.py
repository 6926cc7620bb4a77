"""A batch of a producer, from the rows that were taken to the bytes that are sent.

A batch gets its identity and sequence when it is sent first, and only then its header, compression
and CRC. The bytes that were sent are never changed: a request that was given up may still read
them. So what is sent again under another epoch is a copy.
"""

from typing import NamedTuple

from raylog.cluster.client.producer.delivery import Delivery
from raylog.storage.buffers import Buffer
from raylog.storage.records import kernel
from raylog.storage.records.batch import read_header, seal
from raylog.storage.records.decode import decode_records
from raylog.storage.records.encode import close_batch
from raylog.storage.records.layout import MAX_SEQUENCE


class ProducerIdentity(NamedTuple):
    """Who sends, for the log's duplicate detection; -1 is nobody."""

    producer_id: int = -1
    epoch: int = -1
    is_transactional: bool = False


NOBODY = ProducerIdentity()


class Compression(NamedTuple):
    """How batches are compressed; ``level`` None is the codec's default."""

    codec: str = "none"
    level: int | None = None


class Rows(NamedTuple):
    """What the kernel took in: records behind 61 free bytes."""

    content: Buffer
    count: int  # type: ignore[assignment]  # hides tuple.count
    base_timestamp: int
    max_timestamp: int


class Batch:
    """A batch that waits or is on its way.

    ``delivery``, ``first``: whose records these are, and from which index on. ``created_at``: by
    the producer's clock. ``charged_bytes``: of buffer.memory.
    """

    __slots__ = (
        "attempts",
        "charged_bytes",
        "count",
        "created_at",
        "delivery",
        "error",
        "first",
        "identity",
        "is_in_flight",
        "is_unresolved",
        "records",
        "retry_at",
        "rows",
        "sequence",
    )

    def __init__(
        self,
        delivery: Delivery,
        count: int,
        *,
        rows: Rows,
        first: int = 0,
        charged_bytes: int = 0,
    ) -> None:
        self.delivery, self.first, self.count = delivery, first, count
        self.created_at, self.charged_bytes = delivery.created_at, charged_bytes
        # either the rows, or the batch that was made of them
        self.rows: Rows | None = rows
        self.records: Buffer | None = None
        # None until it is sent first, and again when it is to be sent under another
        self.identity: ProducerIdentity | None = None
        self.sequence = -1
        self.attempts = 0
        self.is_in_flight = False
        self.is_unresolved = False  # an attempt ended, and nobody knows whether it was written
        self.retry_at = 0.0
        self.error: BaseException | None = None  # how the last attempt ended

    def sealed(self, compression: Compression) -> Buffer:
        """The bytes to send, under the batch's identity."""
        assert self.identity is not None, "a batch has its identity before it is sealed"
        if self.records is None:
            assert self.rows is not None
            self.records = close_batch(
                *self.rows,
                compression_type=compression.codec,
                level=compression.level,
                producer_id=self.identity.producer_id,
                producer_epoch=self.identity.epoch,
                base_sequence=self.sequence,
                transactional=self.identity.is_transactional,
            )
            self.rows = None
            return self.records
        header = read_header(self.records)
        wanted = header._replace(
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            base_sequence=self.sequence,
        )
        if header != wanted:
            self.records = seal(bytearray(self.records), wanted)
        return self.records

    def halves(self) -> "tuple[Batch, Batch]":
        """Two batches of its records, with its identity and sequences. Neither was sent yet."""
        assert self.records is not None, "a batch is split after it was sent"
        records = decode_records(self.records)
        middle = len(records) // 2
        parts = []
        for start, end in ((0, middle), (middle, len(records))):
            rows = [(r.timestamp, r.key, r.value, r.headers) for r in records[start:end]]
            part = Batch(
                self.delivery,
                end - start,
                rows=Rows(*kernel.ops.encode_rows(rows, None, None, 0)[:4]),
                first=self.first + start,
                charged_bytes=self.charged_bytes if start else 0,
            )
            part.identity, part.sequence = self.identity, self.sequence
            if self.sequence >= 0:
                part.sequence = (self.sequence + start) & MAX_SEQUENCE
            parts.append(part)
        return parts[0], parts[1]
