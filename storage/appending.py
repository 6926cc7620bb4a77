"""Batches on their way into a log: what is written, and what is answered.

Whether they may be written, and where, is the log's to decide.
"""

from collections.abc import Sequence
from typing import NamedTuple

from crc32c import crc32c

from raylog.storage.buffers import Buffer
from raylog.storage.errors import RaylogError, UndoFailed
from raylog.storage.records.batch import BatchHeader
from raylog.storage.records.control import Marker, read_marker
from raylog.storage.records.layout import (
    AT_ATTRIBUTES,
    AT_CRC,
    AT_MAX_TIMESTAMP,
    ATTRIBUTES,
    CRC,
    CRC_START,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    TIMESTAMP,
)
from raylog.storage.state.producers import NO_PRODUCER, ProducerStates
from raylog.storage.validation import CheckedBatch
from raylog.storage.writer import AppendInfo, Piece

_UNANSWERED = AppendInfo(
    base_offset=-1, last_offset=-1, log_append_time=NO_TIMESTAMP, log_start_offset=-1
)


class Prepared(NamedTuple):
    """A batch on its way into the log."""

    header: BatchHeader  # as it is written, but for the base offset
    marker: Marker | None
    base_offset: int
    append_time: int  # -1 unless message.timestamp.type is LogAppendTime
    piece: Piece


class Run:
    """Batches that are to be written together, and the answers so far."""

    def __init__(self, partition: str, next_offset: int) -> None:
        self._partition = partition
        self.answers: list[AppendInfo | RaylogError] = []
        self.next_offset = next_offset
        self.undo_failure: UndoFailed | None = None
        self._begin()

    def _begin(self) -> None:
        self.prepared: list[Prepared] = []
        self.numbers: list[int] = []  # which answers are theirs
        self.size_bytes = 0
        self.producers = ProducerStates(self._partition)  # as they will be

    def add(self, prepared: Prepared) -> None:
        """One more batch; its answer comes when it is written."""
        self.numbers.append(len(self.answers))
        self.answers.append(_UNANSWERED)
        self.prepared.append(prepared)
        self.next_offset = prepared.piece.last_offset + 1
        self.size_bytes += prepared.piece.size_bytes

    def end(self, answers: Sequence[AppendInfo | RaylogError], next_offset: int) -> None:
        """What was gathered has its answers."""
        for number, answer in zip(self.numbers, answers, strict=True):
            self.answers[number] = answer
        self.next_offset = next_offset
        self._begin()


def marker_of(batch: CheckedBatch) -> Marker | None:
    """The end of a transaction that a control batch is; None for any other batch."""
    is_marker = batch.header.is_control and batch.header.producer_id != NO_PRODUCER
    return read_marker(batch.content) if is_marker else None


def with_timestamp_type(header: BatchHeader, content: Buffer, append_time: int) -> bytearray:
    """The batch with the topic's timestamp type.

    That is LogAppendTime with this time, or CreateTime if the time is -1.
    """
    changed = bytearray(content)
    attributes = header.attributes & ~LOG_APPEND_TIME
    if append_time >= 0:
        attributes |= LOG_APPEND_TIME
        TIMESTAMP.pack_into(changed, AT_MAX_TIMESTAMP, append_time)
    ATTRIBUTES.pack_into(changed, AT_ATTRIBUTES, attributes)
    CRC.pack_into(changed, AT_CRC, crc32c(memoryview(changed)[CRC_START:]))
    return changed
