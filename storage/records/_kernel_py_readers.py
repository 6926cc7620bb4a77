"""A fetch read in parts. See ``_kernel_readers.pxi``."""

from collections.abc import Iterator
from typing import Any, Final

from raylog.storage.buffers import Buffer
from raylog.storage.errors import CorruptRecord, RaylogError
from raylog.storage.limits import MAX_LONG
from raylog.storage.records._kernel_py_bytes import Malformed, wrap
from raylog.storage.records._kernel_py_decode import (
    Batch,
    Columns,
    Raw,
    batches_of,
    columns_of,
    parse_records,
)
from raylog.storage.records.batch import iter_batches
from raylog.storage.records.compression import MAX_PLAIN_BYTES
from raylog.storage.records.record import ConsumerRecord, Header

MIN_LONG: Final = -(2**63)


def _behind_whole_batches(source: memoryview) -> int:
    behind = MIN_LONG
    try:
        for _, header in iter_batches(source):
            behind = max(behind, wrap(header.next_offset))
    except CorruptRecord:
        pass  # whoever reads up to there finds out why
    return behind


class _FetchReader:
    """See ``_kernel_readers.pxi``."""

    def __init__(
        self,
        buffer: Buffer,
        start_offset: int,
        end_offset: int,
        check_crc: bool,
        max_batch_bytes: int,
    ) -> None:
        self.next_offset, self.is_done = start_offset, False
        self.taken_bytes = 0
        self._source = memoryview(buffer).cast("B")
        self._start, self._end = start_offset, end_offset
        self._batches = batches_of(
            self._source, start_offset, end_offset, check_crc, False, max_batch_bytes
        )
        self._batch: Batch | None = None
        self._left: Iterator[Any] = iter(())
        self._count = 0  # of records that are left in the batch
        self._failure: RaylogError | None = None

    def _take(self, max_records: int, max_bytes: int) -> list[Raw]:
        if min(max_records, max_bytes) < 1:
            raise ValueError(f"a budget of {min(max_records, max_bytes)}: ask for at least one")
        if self._failure is not None:
            raise self._failure
        self.taken_bytes = 0
        rows: list[Raw] = []
        try:
            self._read(rows, max_records, max_bytes)
        except RaylogError as error:
            self._failure = error
            if not rows:
                raise
        return rows

    def _read(self, rows: list[Raw], max_records: int, max_bytes: int) -> None:
        while max_records > 0 and max_bytes > 0 and not self.is_done:
            if not self._count and not self._open_next():
                return
            row, size_bytes = self._record()
            if self._start <= row.offset < self._end:
                rows.append(row)
                self._go_to(wrap(row.offset + 1))
                max_records -= 1
                max_bytes -= size_bytes
                self.taken_bytes += size_bytes
            if not self._count:
                self._end_batch()

    def _open_next(self) -> bool:
        if self._failure is not None:
            raise self._failure
        for batch in self._batches:
            if batch.count:
                self._batch, self._count = batch, batch.count
                self._left = parse_records(batch.plain, batch.count)
                return True
            if len(batch.plain):
                raise self._corrupt(batch, "bytes are left behind its last record")
        self.is_done = True
        self._go_to(_behind_whole_batches(self._source))
        return False

    def _record(self) -> tuple[Raw, int]:
        batch = self._batch
        assert batch is not None
        try:
            delta, offset_delta, key, value, headers, size_bytes = next(self._left)
        except Malformed as error:
            raise self._corrupt(batch, str(error)) from None
        self._count -= 1
        timestamp = batch.append_time
        if timestamp is None:
            timestamp = wrap(batch.base_timestamp + delta)
        offset = wrap(batch.base_offset + offset_delta)
        return Raw(offset, timestamp, batch.timestamp_type, key, value, headers), size_bytes

    def _end_batch(self) -> None:
        batch = self._batch
        assert batch is not None
        self._go_to(batch.next_offset)
        try:
            next(self._left, None)
        except Malformed as error:  # bytes are left behind the last record
            self._failure = self._corrupt(batch, str(error))
            return
        self.is_done = batch.end == len(self._source)

    @staticmethod
    def _corrupt(batch: Batch, why: str) -> CorruptRecord:
        return CorruptRecord(f"position {batch.position}", why)

    def _go_to(self, offset: int) -> None:
        self.next_offset = max(self.next_offset, min(offset, self._end))


class RowReader(_FetchReader):
    """See ``_kernel_readers.pxi``."""

    def __init__(
        self,
        buffer: Buffer,
        topic: str,
        partition: int,
        start_offset: int,
        end_offset: int = MAX_LONG,
        check_crc: bool = True,
        max_batch_bytes: int = MAX_PLAIN_BYTES,
    ) -> None:
        super().__init__(buffer, start_offset, end_offset, check_crc, max_batch_bytes)
        self._topic, self._partition = topic, partition

    def take(self, max_records: int, max_bytes: int) -> list[ConsumerRecord]:
        return [
            ConsumerRecord(
                self._topic,
                self._partition,
                raw.offset,
                raw.timestamp,
                raw.timestamp_type,
                raw.key,
                raw.value,
                tuple(Header(name.decode(errors="replace"), value) for name, value in raw.headers),
            )
            for raw in self._take(max_records, max_bytes)
        ]


class TableReader(_FetchReader):
    """See ``_kernel_readers.pxi``."""

    def __init__(
        self,
        buffer: Buffer,
        start_offset: int,
        end_offset: int = MAX_LONG,
        check_crc: bool = True,
        headers: bool = True,
        max_batch_bytes: int = MAX_PLAIN_BYTES,
    ) -> None:
        super().__init__(buffer, start_offset, end_offset, check_crc, max_batch_bytes)
        self._headers = headers

    def take(self, max_bytes: int) -> Columns:
        return columns_of(self._take(MAX_LONG, max_bytes), self._headers)
