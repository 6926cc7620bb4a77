"""The batches of a fetch without those of aborted transactions: what a reader of committed sees.

The log tells which transactions have data in a fetch and were aborted: a producer and the first
offset. From there on its transactional batches are skipped, up to its abort marker. Source: Kafka's
``CompletedFetch``.
"""

from collections import deque
from collections.abc import Iterable

from raylog.storage.buffers import Buffer
from raylog.storage.records.batch import BatchHeader, iter_batches
from raylog.storage.records.control import read_marker


def without_aborted(fetched: Buffer, aborted: Iterable[tuple[int, int]]) -> Buffer:
    """The fetch itself where nothing in it was aborted, else a copy without.

    ``aborted``: (producer id, first offset) of each transaction.
    """
    left = deque(sorted(aborted, key=lambda entry: entry[1]))
    if not left:
        return fetched
    view = memoryview(fetched).cast("B")
    kept, skipped = bytearray(), set[int]()
    for position, header in iter_batches(view):
        while left and left[0][1] <= header.last_offset:
            skipped.add(left.popleft()[0])
        batch = view[position : position + header.size_bytes]
        if header.is_control:
            if _is_abort(batch, header):
                skipped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipped):
            kept += batch
    return kept


def _is_abort(batch: Buffer, header: BatchHeader) -> bool:
    if header.producer_id < 0:
        return False
    marker = read_marker(batch)
    return marker is not None and marker.is_abort
