"""Where the metadata log in a folder begins: with its first record, or behind a snapshot.

::

    0 ................ 120 .............. 250 ........ 300
                       120-3.checkpoint   250-4.checkpoint
                       120.log            250.log            the log; what was before is removed

The newest snapshot that can be read counts, and the records from its end on. A damaged one is no
loss while the one before is there, and the log reaches back to that. Where it does not, fsynced
records are lost, and nothing is begun (MetadataUnreadable). The same holds where the log ends
before a snapshot does, be it damaged or not: its name says how many records were fsynced before it
was made. And it holds after an orderly stop of the log dir, where the log ends before the newest
state of the producers: that is written at the log's end, when all of it is fsynced.

This only reads.
"""

import os
from collections.abc import Sequence

from raylog.actors.errors import MetadataUnreadable
from raylog.actors.metadata_snapshot import MetadataSnapshot, newest_snapshot, snapshot_ids
from raylog.storage.files import FileSystem
from raylog.storage.names import SNAPSHOT_SUFFIX, base_offsets, offset_of
from raylog.storage.state.properties import CLEAN_SHUTDOWN
from raylog.storage.wholeness import check_whole


def find_start(
    fs: FileSystem, folder: str, *, but_for_last: bool = False
) -> MetadataSnapshot | None:
    """The snapshot behind which the log in a folder goes on; None where it has all records.

    ``but_for_last``: its last batch may be damaged.

    Raises LogMissing where records behind it are damaged, MetadataUnreadable, NewerRecord where a
    newer raylog wrote the snapshot, and OutOfResources.
    """
    names = fs.list_dir(folder)
    if not snapshot_ids(names):
        end = check_whole(fs, folder, but_for_last=but_for_last)
        if not but_for_last:
            _check_end(fs, folder, names, end)
        return None
    found = newest_snapshot(fs, folder)
    known_to = 0 if found.newest is None else found.newest.point.end
    first = min(base_offsets(names), default=0)
    damaged = "".join(f"; {why}" for why in found.damaged)
    if known_to < first:
        why = f"its records before offset {first} are in no snapshot that can be read{damaged}"
        raise MetadataUnreadable(folder, why)
    end = check_whole(fs, folder, first, but_for_last=but_for_last)
    if end < found.proven_end:
        why = (
            f"its snapshot is of {found.proven_end} records, and the log ends at offset {end}"
            f"{damaged}"
        )
        raise MetadataUnreadable(folder, why)
    if not but_for_last:
        _check_end(fs, folder, names, end)
    return found.newest


def _check_end(fs: FileSystem, folder: str, names: Sequence[str], end: int) -> None:
    """Raise MetadataUnreadable where the log was closed in order, and has lost its end since."""
    if not fs.exists(os.path.join(os.path.dirname(folder), CLEAN_SHUTDOWN)):
        return
    closed_at = max(
        (offset_of(name) or 0 for name in names if name.endswith(SNAPSHOT_SUFFIX)), default=0
    )
    if end < closed_at:
        why = (
            f"it had {closed_at} records when it was closed in order, and ends at offset {end} now"
        )
        raise MetadataUnreadable(folder, why)
