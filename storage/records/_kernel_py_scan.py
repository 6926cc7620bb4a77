"""What the headers of batches say. See ``_kernel_scan.pxi``."""

from array import array
from bisect import bisect_right

from raylog.storage.buffers import Buffer
from raylog.storage.errors import CorruptRecord
from raylog.storage.limits import MAX_LONG
from raylog.storage.records._kernel_py_bytes import wrap
from raylog.storage.records.batch import check_crc as _check_crc
from raylog.storage.records.batch import read_header
from raylog.storage.records.layout import HEADER_SIZE, MAGIC


def scan_batches(buffer: Buffer, position: int, check_crc: bool) -> tuple[bytes, int]:
    """(rows, end): six int64 for each v2 batch from ``position`` on.

    ``end`` is the first position that has no such batch.
    """
    view, rows = memoryview(buffer), array("q")
    try:
        while True:
            header = read_header(view, position)
            if header.magic != MAGIC or position + header.size_bytes > len(view):
                break
            if check_crc:
                _check_crc(view, position, header)
            last_offset = wrap(header.last_offset)
            rows.extend((position, header.base_offset, last_offset, header.max_timestamp))
            rows.extend((header.producer_id, header.count))
            position += header.size_bytes
    except CorruptRecord:
        pass
    return rows.tobytes(), position


WALK_FOUND, WALK_MORE, WALK_ODD = range(3)


def walk(
    block: Buffer, offset: int, limit: int, next_offset: int, end_offset: int = MAX_LONG
) -> tuple[int, int, int, int]:
    """(state, position, size, next offset) of the first v2 batch that reaches ``offset`` or ends
    behind ``limit``.

    The first batch begins at the block's begin; positions count from there. Offsets must rise from
    ``next_offset`` on, and stay below ``end_offset``. Only headers have to be in the block. The
    state is WALK_FOUND; WALK_MORE: the header at ``position`` is not whole in the block; or
    WALK_ODD: it is no header of version 2 that can stand there.
    """
    view, position = memoryview(block), 0
    while position <= len(view) - HEADER_SIZE:
        try:
            header = read_header(view, position)
        except CorruptRecord:
            return WALK_ODD, position, 0, next_offset
        last_offset = wrap(header.last_offset)
        is_rising = next_offset <= header.base_offset <= last_offset < end_offset
        if header.magic != MAGIC or not is_rising:
            return WALK_ODD, position, 0, next_offset
        if last_offset >= offset or position + header.size_bytes > limit:
            return WALK_FOUND, position, header.size_bytes, next_offset
        next_offset = last_offset + 1
        position += header.size_bytes
    return WALK_MORE, position, 0, next_offset


def count_up_to(
    entries: Buffer, entry_size: int, at: int, width: int, wanted: int, warm_bytes: int
) -> int:
    """How many entries have at most ``wanted`` in the column of ``width`` bytes at byte ``at``.

    The column rises. The last ``warm_bytes`` are looked at first: see ``sparse.py``.
    """
    if entry_size <= 0 or at < 0 or width not in (4, 8) or at + width > entry_size:
        raise ValueError(f"no column of {width} bytes at {at} in entries of {entry_size}")
    if warm_bytes < 0:
        raise ValueError(f"a warm end of {warm_bytes} bytes")

    def column(number: int) -> int:
        """By a copy: a view would keep the writer from adding to the entries meanwhile."""
        begin = number * entry_size + at
        return int.from_bytes(entries[begin : begin + width], "big", signed=True)

    count = len(entries) // entry_size
    first, end = 0, count
    warm = count - 1 - warm_bytes // entry_size
    if warm > 0:
        first, end = (warm + 1, count) if column(warm) <= wanted else (0, warm)
    return bisect_right(range(count), wanted, first, end, key=column)
