"""What batches say of their producers, read back from a log.

This is done at opening, and after a truncation.
"""

from collections.abc import Sequence

import numpy as np

from raylog.storage.indexes.transaction_index import AbortedTransaction
from raylog.storage.records.control import read_marker
from raylog.storage.records.scan import LAST_OFFSET, POSITION, PRODUCER_ID
from raylog.storage.recovery import Batches, Piece, find_batch_anyway
from raylog.storage.segment import Segment
from raylog.storage.state.producers import NO_PRODUCER, ProducerStates


def replay(
    producers: ProducerStates,
    segments: Sequence[Segment],
    start_offset: int,
    end_offset: int,
    now_ms: int,
) -> None:
    """Bring ``producers``, as of their own end offset, up to ``end_offset``."""
    begin = max(producers.end_offset, start_offset)
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        if following is None or following.base_offset > begin:
            replay_segment(producers, segment, begin, end_offset, now_ms)
    producers.end_offset = end_offset


def replay_segment(
    producers: ProducerStates, segment: Segment, begin: int, end: int, now_ms: int
) -> list[AbortedTransaction]:
    """Take over the batches of one segment with offsets from ``begin`` to before ``end``.

    Returns the transactions that its markers abort. Raises CorruptRecord for a segment whose
    batches do not lead to its end.
    """
    first = find_batch_anyway(segment, begin)
    if first is None:
        return []
    aborted: list[AbortedTransaction] = []
    batches = Batches(segment, first[0])
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
        if not begin <= header.base_offset < end:
            continue
        marker = None
        if header.is_control:
            marker = read_marker(segment.log.read(header.size_bytes, position))
        if marker is not None:
            transaction = producers.aborted_by(header, marker, header.base_offset)
            if transaction is not None:
                aborted.append(transaction)
        producers.add(header, header.base_offset, now_ms, marker)
    return aborted
