"""The batches of a fetch to records: as Arrow columns, or as objects one by one.

Both read all three versions, alone or mixed (the older two slowly: nobody writes them any more).
Both check every CRC and every length, stop before a partial batch at the end (a fetch cuts where
its bytes run out), and leave out control batches and offsets that were not asked for. Anything
malformed raises CorruptRecord, and a process that has no memory for the records OutOfResources.
Whether a batch's transaction was aborted is not known here.
"""

from typing import TYPE_CHECKING

from raylog.storage.buffers import Buffer
from raylog.storage.errors import no_memory
from raylog.storage.limits import MAX_LONG
from raylog.storage.records import kernel
from raylog.storage.records.compression import MAX_PLAIN_BYTES
from raylog.storage.records.record import Record

if TYPE_CHECKING:
    import pyarrow as pa


def decode_records(
    buffer: Buffer,
    *,
    start_offset: int = 0,
    check_crc: bool = True,
    control: bool = False,
    max_plain_batch_bytes: int = MAX_PLAIN_BYTES,
) -> list[Record]:
    """All records of the whole batches in ``buffer`` with offsets from ``start_offset`` on.

    ``control``: the records of control batches too, which only the log itself has a use for.
    ``max_plain_batch_bytes``: a compressed batch that is larger when it is decompressed raises
    PlainBatchTooLarge.
    """
    try:
        return kernel.ops.decode_rows(
            buffer, start_offset, check_crc, control, max_plain_batch_bytes
        )
    except MemoryError:
        raise no_memory("a fetch's records") from None


def decode_table(
    buffer: Buffer,
    *,
    start_offset: int = 0,
    end_offset: int | None = None,
    check_crc: bool = True,
    headers: bool = True,
    max_plain_batch_bytes: int = MAX_PLAIN_BYTES,
) -> "pa.RecordBatch":
    """The records of the whole batches with ``start_offset <= offset < end_offset``, as columns.

    The columns are offset, timestamp (ms), timestampType (0 CreateTime, 1 LogAppendTime, -1 none),
    key, value and, unless ``headers`` is False, headers (a list, empty where there are none). One
    call for a whole fetch is the fast way. Raises InvalidRecord for over 1 GiB in all, and
    PlainBatchTooLarge for a batch of over ``max_plain_batch_bytes``.
    """
    from raylog.storage.records import columns as arrow  # half a second, which rows can do without

    end = MAX_LONG if end_offset is None else end_offset
    try:
        columns = kernel.ops.decode_columns(
            buffer, start_offset, end, check_crc, headers, max_plain_batch_bytes
        )
        return arrow.decoded_batch(columns)
    except MemoryError:  # pyarrow's own is one
        raise no_memory("a fetch's records") from None
