"""Whether the metadata is whole but for a torn end. This only reads.

The recovery of a log ends it before the first batch that is damaged. Of a partition that keeps all
that can be read in order. Of the metadata it would take back what was decided later: topics would
be gone, their folders set aside, and records deleted by a config that was changed. So a Controller
begins only where nothing but a write can be missing that nobody was told of::

    1 2 3 4 to       a crash: the log ends at 4
    1 2 #### 4 5     damage: good records are behind it, so it is refused
    1 2 3 4 ####     damage: the last batch is there from its begin to its end, so it is refused

**A torn write.** An append makes the file longer, and is answered after its fsync. If the power is
lost in between, the file ends before the batch does, or some of its sectors were never written. A
file system shows these as zeros, since the file had nothing there before. All other bytes are the
batch's. So a last batch is torn if

- the file ends within its header, or before the end that the header says; or
- the part of it that lies in one sector of the file is all zeros.

Any other last batch whose CRC is wrong was written whole, and may have been answered. That is also
so where only the length in its header is wrong, which the CRC does not cover: the CRC is right then
for all bytes up to the end of the file. What no look at the file can tell: an answered batch that a
disk has lost sectors of, so that they read as zeros, or the file's end.
"""

import os

from crc32c import crc32c

from raylog.storage.asides import good_batches
from raylog.storage.errors import LogMissing
from raylog.storage.files import FileSystem
from raylog.storage.names import LOG_SUFFIX, base_offsets, segment_file
from raylog.storage.records.layout import (
    AT_CRC,
    AT_LENGTH,
    CRC,
    CRC_START,
    HEADER_SIZE,
    LENGTH,
    LOG_OVERHEAD,
)
from raylog.storage.records.scan import BASE_OFFSET, LAST_OFFSET, POSITION, scan_batches

# What a disk writes whole, or not at all; the larger blocks of other disks consist of these.
SECTOR_BYTES = 512
# A good batch of the metadata has fewer zeros in a row: its header ten at most, and its values none
# but those in numbers of 8 bytes.
LEAST_ZERO_BYTES = 12


def check_whole(fs: FileSystem, folder: str, first: int = 0, *, but_for_last: bool = False) -> int:
    """Raise LogMissing where records of the metadata are damaged or missing before its end.

    ``first``: the offset from which on it must have them. ``but_for_last``: its last batch may be
    damaged. Returns where it ends.
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
        if not (but_for_last or is_torn(content, scan.end)):
            raise LogMissing(folder, _damaged_end(name, scan.end))
    return end_offset


def is_torn(content: bytes, position: int) -> bool:
    """Whether the bytes of a file from ``position`` on can be what a crash has left of a write.

    They are no good batch, and there is none behind them.
    """
    rest = memoryview(content)[position:]
    if len(rest) < HEADER_SIZE:
        return True
    (length,) = LENGTH.unpack_from(rest, AT_LENGTH)
    size_bytes = LOG_OVERHEAD + length
    if size_bytes > len(rest):
        return not _has_right_crc(rest)
    # A header that was not written has no length.
    return _has_unwritten_sector(rest[: max(size_bytes, HEADER_SIZE)], position)


def _has_right_crc(batch: memoryview) -> bool:
    """Whether the bytes are one batch, whatever its header says of its length."""
    (crc,) = CRC.unpack_from(batch, AT_CRC)
    return crc32c(batch[CRC_START:]) == crc


def _has_unwritten_sector(batch: memoryview, position: int) -> bool:
    """Whether the part of a batch in one sector is all zeros. ``position``: of it in its file."""
    begin = 0
    while begin < len(batch):
        end = min(len(batch), begin + SECTOR_BYTES - (position + begin) % SECTOR_BYTES)
        if end - begin >= LEAST_ZERO_BYTES and not any(batch[begin:end]):
            return True
        begin = end
    return False


def _has_batch_behind(fs: FileSystem, path: str, base_offset: int, position: int) -> bool:
    file = fs.open(path)
    try:
        return any(found >= position for found, _ in good_batches(file, base_offset))
    finally:
        file.close()


def _damage(name: str, position: int) -> str:
    return f"{name} is damaged at byte {position}, and records of the metadata are behind it"


def _damaged_end(name: str, position: int) -> str:
    return (
        f"{name} is damaged at byte {position}, in its last batch, which was written whole and may "
        "have been acknowledged"
    )
