"""Recovery reads from the disk: what a flush could not write may still be in the page cache.

After a failed fsync Linux takes the pages that it could not write for written. Whoever reads them
finds good bytes that the disk does not have, and the next fsync has nothing to do and succeeds. A
recovery that read them would raise the recovery point above records that a loss of power takes. So
before it reads, what is not on the disk yet is flushed, and the page cache is dropped.

Above the recovery point these are flushed and read again:

================  ==================================================================================
file              why
================  ==================================================================================
``.log``          it has the records
``.txnindex``     nothing tells of an entry that is missing: recovery writes the file only if it
                  differs from the log
the folder        a ``.txnindex`` may have been made just before the stop
================  ==================================================================================

A sparse index, or a snapshot of producers, that a loss of power takes is noticed, and made again.
"""

from collections.abc import Sequence

from raylog.storage.files import FileSystem
from raylog.storage.reading_back import drop_cache
from raylog.storage.segment import Segment


def read_from_disk(
    fs: FileSystem, folder: str, segments: Sequence[Segment], recovery_point: int
) -> None:
    """Flush what lies above the recovery point, and drop the page cache's copy of it.

    The segment before counts, too: where a roll failed, it may have what was not flushed.
    """
    below = [segment for segment in segments if segment.base_offset <= recovery_point]
    for segment in segments[max(len(below) - 2, 0) :]:
        segment.log.flush()
        segment.log.drop_cache()
        if fs.exists(segment.txn_index.path):
            drop_cache(fs, segment.txn_index.path)
    fs.sync_dir(folder)
