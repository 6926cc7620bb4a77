"""Whether the metadata is whole but for a torn end. This only reads.

The recovery of a log ends it before the first batch that is damaged. Of a partition that keeps all
that can be read in order. Of the metadata it would take back what was decided later: topics would
be gone, and their folders set aside. So a Controller begins only where nothing but the end can be
missing, which is what a crash leaves of an append that nobody was told of::

    1 2 3 4 to       a crash: the log ends at 4
    1 2 #### 4 5     damage: good records are behind it, so it is refused
"""

import os

from raylog.storage.asides import good_batches
from raylog.storage.errors import LogMissing
from raylog.storage.files import FileSystem
from raylog.storage.names import LOG_SUFFIX, base_offsets, segment_file
from raylog.storage.records.scan import BASE_OFFSET, LAST_OFFSET, POSITION, scan_batches


def check_whole(fs: FileSystem, folder: str, first: int = 0) -> int:
    """Raise LogMissing where records of the metadata are damaged or missing before its end.

    ``first``: the offset from which on it must have them. Returns where it ends.
    """
    bases = base_offsets(fs.list_dir(folder))
    end_offset = first
    for base_offset in bases:
        name = segment_file(base_offset, LOG_SUFFIX)
        if base_offset != end_offset:
            why = f"its records from offset {end_offset} on are missing before {name}"
            raise LogMissing(folder, why)
        content = fs.read_file(os.path.join(folder, name))
        scan = scan_batches(content, verify=True)
        for row in scan.rows:
            if row[BASE_OFFSET] < end_offset:
                raise LogMissing(folder, _damage(name, int(row[POSITION])))
            end_offset = int(row[LAST_OFFSET]) + 1
        if scan.end == len(content):
            continue
        path = os.path.join(folder, name)
        if base_offset != bases[-1] or _has_batch_behind(fs, path, base_offset, scan.end):
            raise LogMissing(folder, _damage(name, scan.end))
    return end_offset


def _has_batch_behind(fs: FileSystem, path: str, base_offset: int, position: int) -> bool:
    file = fs.open(path)
    try:
        return any(found >= position for found, _ in good_batches(file, base_offset))
    finally:
        file.close()


def _damage(name: str, position: int) -> str:
    return f"{name} is damaged at byte {position}, and records of the metadata are behind it"
