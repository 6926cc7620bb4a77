"""The log of a coordinator: the internal partition that it lives beside.

The coordinator and the partition are in one process, so an append is a call, and nobody else
appends. A coordinator appends under its lock, and waits for the disk without it (``settle``), so
that all who wait share one fsync. Until then it tells nobody what it has written, or what follows.
What is read is all of it, at the beginning.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from raylog.actors.coordinators.log_record import LogRecord, Producer
from raylog.actors.partition.partition import Partition
from raylog.actors.partition.transaction_end import TransactionEnd
from raylog.storage.readable import LOG_END
from raylog.storage.records.batch import BatchHeader, iter_batches, read_header, seal
from raylog.storage.records.control import Marker, read_marker
from raylog.storage.records.decode import decode_records
from raylog.storage.records.encode import encode_records
from raylog.storage.records.layout import TRANSACTIONAL
from raylog.storage.records.record import Record
from raylog.storage.state.epochs import NO_EPOCH

READ_BYTES: Final = 5 << 20  # at once, while it is read


class ReadBatch(NamedTuple):
    """A batch of the log.

    ``producer_id``: of the transaction that the records are part of, or that ``marker`` ends; None
    where there is none.
    """

    producer_id: int | None
    marker: Marker | None
    records: Sequence[Record]


class PartitionLog:
    """See the module's head."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    def append(
        self, records: Sequence[LogRecord], now_ms: int, producer: Producer | None = None
    ) -> int:
        """Write one batch, which ``settle`` makes durable; returns its first offset.

        ``producer``: whose transaction it is part of. Raises RaylogError; then nothing of it is in
        the log.
        """
        rows = [(now_ms, record.key, record.value, ()) for record in records]
        batch = encode_records(rows)
        if producer is not None:
            batch = _in_transaction(batch, producer)
        return self._partition.write_own(batch).base_offset

    def end(self, end: TransactionEnd) -> None:
        """Write the marker of a transaction, which ``settle`` makes durable. Raises RaylogError."""
        self._partition.write_end(end, is_own=True)

    @property
    def end_offset(self) -> int:
        """Behind all that is written."""
        return self._partition.log.log_end_offset

    @property
    def is_settled(self) -> bool:
        """Whether all that is written may be read, so that it is as durable as the topic asks."""
        log = self._partition.log
        return log.high_watermark >= log.log_end_offset

    def settle(self, up_to: int) -> None:
        """Return when what is below ``up_to`` is as durable as the topic asks. Any thread.

        Raises RaylogError; then the fate of what is not settled yet is not known.
        """
        self._partition.settle_own(up_to)

    def flush(self, up_to: int) -> None:
        """Return when what is below ``up_to`` is on the disk. Raises RaylogError."""
        self._partition.flush(up_to)

    def read(self) -> Iterator[ReadBatch]:
        """All batches, in order. Raises CorruptRecord, InvalidRecord and StorageError."""
        log = self._partition.log
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            found = self._partition.read(offset, READ_BYTES, LOG_END, NO_EPOCH)
            if not found.size_bytes:
                return  # what was behind is compacted away
            fetched = memoryview(found.read())
            for position, header in iter_batches(fetched):
                yield _read(fetched[position : position + header.size_bytes], header)
                offset = header.next_offset


def _in_transaction(batch: bytearray, producer: Producer) -> bytearray:
    """The same batch as part of a transaction. A coordinator counts no sequence."""
    header = read_header(batch)
    changed = header._replace(
        attributes=header.attributes | TRANSACTIONAL,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
    )
    return seal(batch, changed)


def _read(batch: memoryview, header: BatchHeader) -> ReadBatch:
    if header.is_control:
        return ReadBatch(header.producer_id, read_marker(batch), ())
    producer_id = header.producer_id if header.is_transactional else None
    return ReadBatch(producer_id, None, decode_records(batch))
