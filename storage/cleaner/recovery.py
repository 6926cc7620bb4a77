"""Puts right what an interrupted compaction left in a partition's folder.

This is done before the log is opened.

A cleaned segment takes the place of its sources in these steps; a crash may fall between any two
renames::

    1  <base>.log.cleaned and its indexes are written        sources are the log
    2  all of them are renamed .swap                         synced names: the point of no return
    3  the sources' files are renamed .deleted
    4  .swap is taken off the cleaned segment's files        synced names again

So while any ``.cleaned`` is there, step 2 had not ended, and all of its files go: every ``.swap``
at or behind the lowest base offset of a ``.cleaned``. Any other ``.swap`` is valid, and is brought
in: the files of the segments within its offsets go, and it loses the suffix. Source: ``LogLoader``
of Kafka.
"""

import os
from collections.abc import Callable

from raylog.storage.config import LogConfig
from raylog.storage.errors import CorruptRecord, UnfinishedCompaction
from raylog.storage.files import FileSystem
from raylog.storage.names import CLEANED_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX, offset_of
from raylog.storage.recovery import Batches
from raylog.storage.segment import SUFFIXES, Segment


def finish_swaps(fs: FileSystem, folder: str, remove: Callable[[str, str], None]) -> None:
    """Finish or undo a compaction. What was renamed ``.deleted`` stays.

    ``remove``: removes a file of the folder, by its name and the reason.

    Raises UnfinishedCompaction, with nothing changed, for a valid segment that is damaged.
    """
    names = [name for name in fs.list_dir(folder) if offset_of(name) is not None]
    unfinished = [_base(name) for name in names if name.endswith(CLEANED_SUFFIX)]
    swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
    undone = [name for name in swaps if unfinished and _base(name) >= min(unfinished)]
    valid = [name for name in swaps if name not in undone]
    ends = {
        _base(name): _end_offset(fs, folder, _base(name))
        for name in valid
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)
    }
    # A .cleaned goes after the .swap beside it, which it tells from a valid one.
    for name in [*undone, *(name for name in names if name.endswith(CLEANED_SUFFIX))]:
        remove(name, "an unfinished compaction, whose sources are the log")
    for name in names:
        if name.endswith(SUFFIXES) and any(base <= _base(name) < end for base, end in ends.items()):
            remove(name, "replaced by a compaction")
    # The .log goes after its indexes: while it is a .swap, its sources are known.
    for name in sorted(valid, key=lambda name: name.endswith(LOG_SUFFIX + SWAP_SUFFIX)):
        fs.rename(os.path.join(folder, name), os.path.join(folder, name.removesuffix(SWAP_SUFFIX)))
    if valid:
        fs.sync_dir(folder)


def _base(name: str) -> int:
    offset = offset_of(name)
    assert offset is not None
    return offset


def _end_offset(fs: FileSystem, folder: str, base_offset: int) -> int:
    """The offset behind the last batch of a ``.swap``, or behind its base offset if it has none."""
    segment = Segment(fs, folder, base_offset, LogConfig(), suffix=SWAP_SUFFIX)
    try:
        batches = Batches(segment, verify=True)
        batches.read()
        batches.check_whole()
        return max(batches.next_offset, base_offset + 1)
    except CorruptRecord as error:
        raise UnfinishedCompaction(segment.path, str(error)) from error
    finally:
        segment.log.close()
