"""What the headers of a run of batches say: one pass over the bytes of a segment, compiled.

Recovery, rebuilding and checking indexes, and replaying producers all walk over every batch of a
segment and want little of each; none of them needs a Python object a batch to find that.
"""

from struct import Struct
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raylog.storage.buffers import Buffer
from raylog.storage.errors import CorruptRecord
from raylog.storage.limits import MAX_LONG
from raylog.storage.records import kernel
from raylog.storage.records.batch import BatchHeader, check_crc, iter_batches, read_header
from raylog.storage.records.layout import (
    AT_LEADER_EPOCH,
    AT_MAGIC,
    HEADER_SIZE,
    MAGIC,
    MIN_BATCH_SIZE,
)

# The columns of a scan's rows.
POSITION: Final = 0
BASE_OFFSET: Final = 1
LAST_OFFSET: Final = 2
MAX_TIMESTAMP: Final = 3
PRODUCER_ID: Final = 4
COUNT: Final = 5  # -1 for a compressed set of messages of an older version
SCAN_COLUMNS: Final = 6

_EPOCH = Struct(">i")


class Scan(NamedTuple):
    """Whole batches, one behind the other.

    ``rows``: int64, one row for each batch. ``end``: the position behind the last batch.
    """

    rows: NDArray[np.int64]
    end: int

    def column(self, number: int) -> list[int]:
        """One column, as plain integers."""
        column: list[int] = self.rows[:, number].tolist()
        return column

    def first(self, count: int) -> "Scan":
        """The first ``count`` batches."""
        if count == len(self.rows):
            return self
        return Scan(self.rows[:count], int(self.rows[count, POSITION]))


def scan_batches(buffer: Buffer, position: int = 0, *, verify: bool = False) -> Scan:
    """The batches from ``position`` on, up to the first place where no whole one is.

    ``verify``: nor one whose CRC is wrong. Whatever the reason, it is no error here.
    """
    view = memoryview(buffer)
    runs: list[NDArray[np.int64]] = []
    while True:
        rows, position = kernel.ops.scan_batches(view, position, verify)
        runs.append(np.frombuffer(rows, np.int64))
        older, position = _scan_legacy(view, position, verify)
        if not older:
            return Scan(
                np.concatenate(runs).reshape(-1, SCAN_COLUMNS)
                if len(runs) > 1
                else runs[0].reshape(-1, SCAN_COLUMNS),
                position,
            )
        runs.append(np.array(older, np.int64).ravel())


def _scan_legacy(
    view: memoryview, position: int, verify: bool
) -> tuple[list[tuple[int, ...]], int]:
    """The messages of versions 0 and 1 from ``position`` on as rows, and where they end."""
    rows: list[tuple[int, ...]] = []
    try:
        while len(view) - position >= MIN_BATCH_SIZE:
            header = read_header(view, position)
            if header.magic == MAGIC or position + header.size_bytes > len(view):
                break
            if verify:
                check_crc(view, position, header)
            offset = header.base_offset
            rows.append(
                (position, offset, header.last_offset, header.max_timestamp, -1, header.count)
            )
            position += header.size_bytes
    except CorruptRecord:
        pass
    return rows, position


def next_offset(fetched: Buffer, start_offset: int, end_offset: int = MAX_LONG) -> int:
    """Where to read on behind a fetch from ``start_offset``: behind its last whole batch.

    Raises CorruptRecord where the batches' offsets do not rise, or reach ``end_offset``: no CRC
    covers them, and a reader would skip records. And where no batch leads on: a reader would ask
    for ever.
    """
    part = _sound_part(fetched, end_offset)
    if part.damage is not None:
        raise part.damage
    _check_progress(part, start_offset)
    return part.next_offset


def sound_part(fetched: Buffer, start_offset: int, end_offset: int = MAX_LONG) -> "SoundPart":
    """As ``next_offset``, of the batches before the first that is damaged, if there are any."""
    part = _sound_part(fetched, end_offset)
    if part.damage is not None and part.next_offset <= start_offset:
        raise part.damage
    _check_progress(part, start_offset)
    return part


class SoundPart(NamedTuple):
    """The whole batches of a fetch that can be where they are, as far as their headers say."""

    size_bytes: int
    next_offset: int  # behind them
    damage: CorruptRecord | None  # what is behind them; None at the end, or at a partial batch


def _check_progress(part: SoundPart, start_offset: int) -> None:
    if part.next_offset <= start_offset:
        raise CorruptRecord(
            f"offset {start_offset}", "no whole batch behind it in what was fetched there"
        )


def last_epoch(fetched: Buffer, behind: int) -> int:
    """The leader epoch of the last whole batch of a fetch; -1 for messages of older versions.

    ``behind``: its ``next_offset``.
    """
    state, position, *_ = kernel.ops.walk(fetched, behind - 1, MAX_LONG, 0)
    return epoch_at(fetched, position) if state == kernel.ops.WALK_FOUND else -1


def epoch_at(fetched: Buffer, position: int = 0) -> int:
    """The leader epoch of the batch at ``position``; -1 for messages of older versions."""
    view = memoryview(fetched)[position : position + HEADER_SIZE]
    if len(view) < HEADER_SIZE or view[AT_MAGIC] != MAGIC:
        return -1
    epoch: int = _EPOCH.unpack_from(view, AT_LEADER_EPOCH)[0]
    return epoch


def _sound_part(fetched: Buffer, end_offset: int) -> SoundPart:
    state, position, _, behind = kernel.ops.walk(fetched, MAX_LONG, MAX_LONG, 0, end_offset)
    if state == kernel.ops.WALK_MORE and position == memoryview(fetched).nbytes:
        return SoundPart(position, behind, None)
    # also over messages of older versions, and to say what is wrong
    before = part = SoundPart(0, 0, None)
    try:
        for position, header in iter_batches(fetched):
            if not part.next_offset <= header.base_offset <= header.last_offset < end_offset:
                # no CRC covers offsets: it may be the batch before that is wrong
                return before._replace(damage=_misplaced(position, header, part, end_offset))
            before, part = part, SoundPart(position + header.size_bytes, header.next_offset, None)
    except CorruptRecord as damage:
        return part._replace(damage=damage)
    return part


def _misplaced(
    position: int, header: BatchHeader, before: SoundPart, end_offset: int
) -> CorruptRecord:
    return CorruptRecord(
        f"position {position}",
        f"offsets {header.base_offset} to {header.last_offset} where {before.next_offset} to "
        f"{end_offset - 1} can be",
    )
