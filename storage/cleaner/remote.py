"""A round of compaction in another process than the log's.

::

    the log's process                          the process that compacts
    -----------------                          -------------------------
    facts_of(log)          ------------------> is it due?                       (cleanable.py)
    view_of(log, round) ------------------->   opens the sealed segments' files, to read
                                               offset map                       (cleaner.py)
    log.flush()            <------------------
                                               writes <base offset>.log.cleaned
    log.replace_segments() <------------------ [(base offset, inode), ...], round

The files are the seam: a sealed segment is never written again, and one that was put in its place
has another inode. So what the other process reads is what the log has, or the log refuses the swap.
Nothing but ``.cleaned`` files is written from there; an index that lies is scanned past, and left
to the log.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from raylog.storage.cleaner.cleanable import LogFacts, facts_of
from raylog.storage.config import LogConfig
from raylog.storage.errors import StorageError
from raylog.storage.files import FileSystem
from raylog.storage.indexes.transaction_index import AbortedTransaction
from raylog.storage.log import Log
from raylog.storage.names import TopicPartition
from raylog.storage.segment import Segment, SegmentId
from raylog.storage.state.producers import LastRecord
from raylog.storage.swap import RoundId
from raylog.storage.wire import message


@message
class LogView(NamedTuple):
    """What another process must know of a log to make one round over it. Picklable."""

    partition: TopicPartition
    folder: str
    config: LogConfig
    round_id: RoundId
    facts: LogFacts
    inodes: tuple[int, ...]  # of the segments of ``facts``
    aborted: tuple[AbortedTransaction, ...]
    last_records: Mapping[int, LastRecord]


class LogOwner(Protocol):
    """The calls that go to the log's own process.

    Each may also raise what kept it from being answered.
    """

    def flush(self) -> None: ...
    def check_unchanged(self, segments: Sequence[SegmentId], round_id: RoundId) -> None: ...
    def replace_segments(self, old: Sequence[SegmentId], round_id: RoundId) -> None: ...


def view_of(log: Log, round_id: RoundId) -> LogView:
    """The view for a round that has just begun.

    Raises CleaningAborted if segments are taken meanwhile.
    """
    while True:
        segments, facts = log.segments, facts_of(log)
        if segments is log.segments:
            break
    return LogView(
        partition=log.partition,
        folder=log.folder,
        config=log.config,
        round_id=round_id,
        facts=facts,
        inodes=tuple(segment.log.inode for segment in segments),
        aborted=tuple(log.aborted()),
        last_records=log.last_records(),
    )


class RemoteLog:
    """A log, as a round in another process sees it: a ``CleanableLog``. To be closed.

    ``fs``: to read with; nothing is written by it.
    """

    def __init__(self, fs: FileSystem, view: LogView, owner: LogOwner) -> None:
        self.config = view.config
        self._fs, self._view, self._owner = fs, view, owner
        self._opened: list[Segment] = []

    def begin_round(self) -> RoundId:
        return self._view.round_id

    def sealed(self) -> list[tuple[Segment, int]]:
        """The sealed segments, opened.

        Raises CleaningAborted if the log does not have these files any more.
        """
        bases = [segment.base_offset for segment in self._view.facts.segments]
        segment_ids = [
            SegmentId(base, inode) for base, inode in zip(bases, self._view.inodes, strict=True)
        ][:-1]
        try:
            for segment_id in segment_ids:
                self._opened.append(
                    Segment(self._fs, self._view.folder, segment_id.base_offset, self.config)
                )
                if self._opened[-1].id != segment_id:
                    raise StorageError(
                        self._opened[-1].path, "this is not the file that the log has open"
                    )
        except StorageError:
            self._owner.check_unchanged(segment_ids, self._view.round_id)
            raise
        return list(zip(self._opened, bases[1:], strict=True))

    def aborted(self) -> Sequence[AbortedTransaction]:
        return self._view.aborted

    def last_records(self) -> Mapping[int, LastRecord]:
        """The last record of each producer, as of the view.

        If a producer has written since, its older batch stays without its records.
        """
        return self._view.last_records

    def flush(self) -> None:
        self._owner.flush()

    def check_unchanged(self, segments: Collection[SegmentId], round_id: RoundId) -> None:
        self._owner.check_unchanged([*segments], round_id)

    def replace_segments(self, old: Sequence[SegmentId], round_id: RoundId) -> None:
        self._owner.replace_segments(old, round_id)

    def close(self) -> None:
        """Close the files."""
        for segment in self._opened:
            with suppress(StorageError):
                segment.close()
        self._opened.clear()
