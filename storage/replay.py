"""What batches say of their producers and transactions, read back from a log.

This is done at opening, and after a truncation.

A producer may have five batches under way, and any of them may come again. A snapshot has its last
one alone, in Kafka's format: those before it are read back from the log (``look_back``).
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from raylog.storage.errors import CorruptIndex, CorruptRecord, StorageError
from raylog.storage.indexes.transaction_index import AbortedTransaction
from raylog.storage.records.batch import check_crc
from raylog.storage.records.control import read_marker
from raylog.storage.records.scan import LAST_OFFSET, POSITION, PRODUCER_ID
from raylog.storage.recovery import Batches, Piece, find_batch_anyway
from raylog.storage.segment import Segment
from raylog.storage.state.producers import CACHED_BATCHES, NO_PRODUCER, ProducerStates

# How far back from a snapshot: five batches of one producer, and what others wrote between them.
LOOK_BACK_BYTES = 16 << 20


def look_back(producers: ProducerStates, segments: Sequence[Segment], now_ms: int) -> None:
    """Have producers that come from a snapshot know the batches before their last ones, too.

    ``segments``: of the log. What cannot be read, or lies farther back, stays unknown, as in Kafka:
    a batch that comes again is out of order then.
    """
    if not len(producers):
        return
    earlier, end = ProducerStates(""), producers.end_offset
    try:
        for segment, position in reversed([*_parts_before(segments, end)]):
            for piece in Batches(segment, position):
                last = piece._replace(rows=_last_of_each(piece.rows))
                replay_piece(earlier, segment, last, 0, end, now_ms)
    except (CorruptIndex, CorruptRecord, StorageError):  # readers are told when they come there
        pass
    producers.recall(earlier)


def _last_of_each(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The last batches of each producer, in their order; a transaction's marker is one, too."""
    producers = rows[:, PRODUCER_ID]
    by_producer = np.argsort(producers, kind="stable")
    ends = np.searchsorted(producers[by_producer], producers[by_producer], side="right")
    is_last = ends - np.arange(len(rows)) <= 2 * CACHED_BATCHES
    return rows[np.sort(by_producer[is_last])]


def _parts_before(segments: Sequence[Segment], end: int) -> Iterator[tuple[Segment, int]]:
    """The segments before an offset, the last one first, and from which position on."""
    left = LOOK_BACK_BYTES
    for segment in reversed(segments):
        if segment.base_offset >= end:
            continue
        size_bytes = segment.position_of(end)
        yield segment, segment.offset_index.lookup_position(max(size_bytes - left, 0)).position
        left -= size_bytes
        if left <= 0:
            return


def replay(
    producers: ProducerStates,
    segments: Sequence[Segment],
    start_offset: int,
    end_offset: int,
    now_ms: int,
) -> None:
    """Bring ``producers``, as of their own end offset, up to ``end_offset``."""
    look_back(producers, segments, now_ms)
    begin = max(producers.end_offset, start_offset)
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        if following is None or following.base_offset > begin:
            replay_segment(producers, segment, begin, end_offset, now_ms)
    producers.end_offset = end_offset


def replay_segment(
    producers: ProducerStates, segment: Segment, begin: int, end: int, now_ms: int
) -> list[AbortedTransaction]:
    """Take over the batches of one segment with offsets from ``begin`` to before ``end``.

    The first of them may begin before ``begin``, where records were deleted up to the middle of it.
    Returns the transactions that its markers abort. Raises CorruptRecord, with the batches before
    it taken over, for a segment whose batches do not lead to its end.
    """
    try:
        first = find_batch_anyway(segment, begin)
    except CorruptRecord:
        position = 0  # from the head on, as far as the batches are good
    else:
        if first is None:
            return []
        position = first[0]
    aborted: list[AbortedTransaction] = []
    batches = Batches(segment, position)
    for piece in batches:
        aborted += replay_piece(producers, segment, piece, begin, end, now_ms)
    batches.check_whole()
    return aborted


def replay_piece(
    producers: ProducerStates, segment: Segment, piece: Piece, begin: int, end: int, now_ms: int
) -> list[AbortedTransaction]:
    """As :func:`replay_segment`, for some batches of the segment that follow each other."""
    rows = piece.rows
    wanted = (rows[:, PRODUCER_ID] != NO_PRODUCER) & (rows[:, LAST_OFFSET] >= begin)
    aborted: list[AbortedTransaction] = []
    for number in np.flatnonzero(wanted).tolist():
        position = int(rows[number, POSITION])
        header = piece.header(position)
        if header.base_offset >= end:
            continue
        marker = None
        if header.is_control:
            content = segment.log.read(header.size_bytes, position)
            check_crc(content, 0, header)
            marker = read_marker(content)
        if marker is not None:
            transaction = producers.aborted_by(header, marker, header.base_offset)
            if transaction is not None:
                aborted.append(transaction)
        producers.add(header, header.base_offset, now_ms, marker)
    return aborted


def check_aborted(segments: Sequence[Segment], ends: dict[int, int]) -> None:
    """Compare every entry of the last segment's transaction index with the batches.

    No checksum covers the index, and it decides what readers of committed records see. Where the
    batches themselves are damaged, the index is not compared: readers are told when they come
    there. ``ends``: by producer id, where its last aborted transaction has ended; this is brought
    up to date. Raises CorruptIndex if an entry is wrong.
    """
    index = segments[-1].txn_index
    for number, entry in enumerate(index.entries):
        if entry.first_offset <= ends.get(entry.producer_id, -1):
            raise CorruptIndex(
                index.base_offset,
                number,
                "it begins before the producer's previous transaction ended",
            )
        ends[entry.producer_id] = entry.last_offset
        for offset in (entry.last_offset, entry.first_offset, entry.last_stable_offset):
            try:
                agrees = _agrees(segments, entry, offset)
            except CorruptRecord:
                return
            if not agrees:
                raise CorruptIndex(
                    index.base_offset,
                    number,
                    f"it does not agree with the batch at offset {offset}",
                )


def _agrees(segments: Sequence[Segment], entry: AbortedTransaction, offset: int) -> bool:
    """Whether a batch of the right kind begins at one of an entry's three offsets.

    Compaction may have removed the batches of an aborted transaction, but never its marker before
    them.
    """
    is_marker = offset == entry.last_offset
    segment = next(
        (segment for segment in reversed(segments) if segment.base_offset <= offset), None
    )
    batch = segment and find_batch_anyway(segment, offset)
    if segment is None or not batch or batch[1].base_offset > offset or offset > entry.last_offset:
        return not is_marker
    position, header = batch
    is_own = header.producer_id == entry.producer_id
    kind = header.is_transactional and (is_own or offset == entry.last_stable_offset)
    if header.base_offset == offset and kind and header.is_control == is_marker:
        return True
    check_crc(segment.log.read(header.size_bytes, position), 0, header)
    return False
