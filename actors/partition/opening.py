"""What opening a log did to its files, told to people: events, counts, progress. Knows no Ray.

Recovery reports each thing that it did (``storage/report.py``). Here that becomes one line of the
actor's log for each, and a report that travels: a log of many segments may have thousands of
rebuilt indexes, so the report counts everything, and lists only what holds records.
"""

import logging
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import get_args

from raylog.actors.events import event
from raylog.actors.messages import AsideFile, MendedTotal, OpeningReport
from raylog.storage.asides import Aside, aside_names, is_in_log, list_asides, look_into
from raylog.storage.clock import Clock
from raylog.storage.errors import CorruptRecord
from raylog.storage.files import FileSystem
from raylog.storage.log_dir import METADATA_PARTITION
from raylog.storage.records.batch import read_header
from raylog.storage.records.layout import HEADER_SIZE
from raylog.storage.report import Kind, Mended, Progress

logger = logging.getLogger(__name__)

# Between two words on the progress of a recovery; a shorter recovery says nothing.
PROGRESS_INTERVAL_MS = 3000
# Of what one opening set aside or lost, so many things travel; all of them are in the actor's log.
LISTED_AT_MOST = 20
# Of all asides of a partition, so many bytes are read when it opens: less than 0.1 s of most disks.
LOOKED_INTO_BYTES = 64 << 20


def report_of(mended: Sequence[Mended], asides: Sequence[AsideFile]) -> OpeningReport:
    """What opening did, short enough to travel. ``asides``: those that lie in the folder now."""
    listed = [entry for entry in mended if holds_records(entry)]
    return OpeningReport(tuple(listed[:LISTED_AT_MOST]), totals_of(mended), tuple(asides))


def holds_records(entry: Mended) -> bool:
    """Whether records may not be in the log: they are kept elsewhere, lost, or cannot be read."""
    return bool(entry.kept_as) or entry.kind in ("lost", "gap", "damaged")


def totals_of(mended: Iterable[Mended]) -> tuple[MendedTotal, ...]:
    """How many files and bytes, by kind; a kind that did not come is left out."""
    files: dict[Kind, int] = defaultdict(int)
    sizes: dict[Kind, int] = defaultdict(int)
    for entry in mended:
        files[entry.kind] += 1
        sizes[entry.kind] += entry.size_bytes
    kinds: tuple[Kind, ...] = get_args(Kind)
    return tuple(MendedTotal(kind, files[kind], sizes[kind]) for kind in kinds if kind in files)


def asides_in(fs: FileSystem, folder: str) -> list[AsideFile]:
    """The files that were set aside in a partition's folder.

    Small ones are read, to tell what is in them: the partition waits for it.
    """
    asides = []
    left_bytes = LOOKED_INTO_BYTES
    for name in aside_names(fs, folder):
        stat = fs.stat(os.path.join(folder, name))
        size_bytes = 0 if stat is None else stat.size_bytes
        left_bytes -= size_bytes
        if left_bytes >= 0:
            asides.append(_looked_into(fs, folder, name))
        else:
            asides.append(AsideFile(name, size_bytes))
    return asides


def _looked_into(fs: FileSystem, folder: str, name: str) -> AsideFile:
    aside = look_into(fs, folder, name)
    return AsideFile(
        name=name,
        size_bytes=aside.size_bytes,
        first_offset=aside.first_offset,
        end_offset=aside.end_offset,
        is_in_log=is_in_log(fs, folder, aside),
        is_unfinished=_is_unfinished(fs, folder, aside),
    )


def metadata_asides(fs: FileSystem, log_dir: str) -> list[AsideFile]:
    """The files that were set aside in a log dir's copy of the metadata, as far as they tell it.

    Its log is not looked into: another process may be writing it. Raises StorageError.
    """
    folder = os.path.join(log_dir, str(METADATA_PARTITION))
    if not fs.is_dir(folder):
        return []
    return [
        AsideFile(
            name=aside.name,
            size_bytes=aside.size_bytes,
            first_offset=aside.first_offset,
            end_offset=aside.end_offset,
            is_unfinished=_is_unfinished(fs, folder, aside),
        )
        for aside in list_asides(fs, folder)
    ]


def _is_unfinished(fs: FileSystem, folder: str, aside: Aside) -> bool:
    """Whether a file is the beginning of one batch: a write that a crash interrupted."""
    if aside.batches:
        return False
    file = fs.open(os.path.join(folder, aside.name))
    try:
        beginning = file.read(HEADER_SIZE, 0)
        if len(beginning) < HEADER_SIZE:
            return True
        return read_header(beginning).size_bytes > file.size
    except CorruptRecord:
        return False
    finally:
        file.close()


def log_mended(partition: object, mended: Iterable[Mended]) -> None:
    """One event for each thing that opening did; a warning where records left the log."""
    for entry in mended:
        event(
            logger,
            "log-mended",
            level=logging.WARNING if holds_records(entry) else logging.INFO,
            partition=partition,
            **entry._asdict(),
        )


class ProgressTeller:
    """Tells how far a recovery has come, at most each few seconds.

    ``tell``: where to, besides the actor's log. It must not raise.
    """

    def __init__(self, partition: object, clock: Clock, tell: Callable[[Progress], object]) -> None:
        self._partition, self._clock, self._tell = partition, clock, tell
        self._told_ms = clock.now_ms()
        self.has_told = False

    def __call__(self, progress: Progress) -> None:
        now_ms = self._clock.now_ms()
        # A clock that was set back must not silence it.
        if 0 <= now_ms - self._told_ms < PROGRESS_INTERVAL_MS:
            return
        self._told_ms = now_ms
        self.has_told = True
        event(logger, "log-recovering", partition=self._partition, **progress._asdict())
        self._tell(progress)
