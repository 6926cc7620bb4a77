"""What batches say of their producers, read back from a log.

This is done at opening, and after a truncation.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType

from raylog.storage.indexes.transaction_index import AbortedTransaction
from raylog.storage.records.batch import BatchHeader, read_header
from raylog.storage.records.control import Marker, read_marker
from raylog.storage.records.layout import HEADER_SIZE
from raylog.storage.records.scan import LAST_OFFSET, POSITION, PRODUCER_ID, Scan
from raylog.storage.segment import Segment
from raylog.storage.state.producers import NO_PRODUCER, ProducerStates


def replay(
    producers: ProducerStates,
    segments: Sequence[Segment],
    start_offset: int,
    end_offset: int,
    now_ms: int,
    mend: Collection[Segment] = (),
    scans: Mapping[Segment, Scan] = MappingProxyType({}),
) -> None:
    """Bring ``producers``, as of their own end offset, up to ``end_offset``.

    The transaction indexes of the segments in ``mend`` are replaced by what the markers tell.
    ``scans``: the batches of segments that were scanned already.
    """
    begin = max(producers.end_offset, start_offset)
    remade: dict[Segment, list[AbortedTransaction]] = {segment: [] for segment in mend}
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        if following is not None and following.base_offset <= begin:
            continue
        for position, header in _of_producers(segment, begin, scans.get(segment)):
            if not begin <= header.base_offset < end_offset:
                continue
            marker = _marker(segment, position, header)
            if marker is not None and segment in remade:
                aborted = producers.aborted_by(header, marker, header.base_offset)
                if aborted is not None:
                    remade[segment].append(aborted)
            producers.add(header, header.base_offset, now_ms, marker)
    producers.end_offset = end_offset
    for segment, entries in remade.items():
        segment.txn_index.replace(entries)


def _of_producers(
    segment: Segment, begin: int, scan: Scan | None
) -> Iterator[tuple[int, BatchHeader]]:
    """The batches that have a producer id, with their positions.

    The walk starts at the batch that reaches ``begin``.
    """
    if scan is None:
        batch = segment.find_batch_anyway(begin)
        scan = segment.scan(segment.size if batch is None else batch[0])
    wanted = (scan.rows[:, PRODUCER_ID] != NO_PRODUCER) & (scan.rows[:, LAST_OFFSET] >= begin)
    for at in scan.rows[wanted, POSITION].tolist():
        yield at, read_header(segment.log.read(HEADER_SIZE, at))


def _marker(segment: Segment, position: int, header: BatchHeader) -> Marker | None:
    return read_marker(segment.log.read(header.size_bytes, position)) if header.is_control else None
