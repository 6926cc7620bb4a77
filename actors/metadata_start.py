"""Where the metadata log in a folder begins: with its first record, or behind a snapshot.

::

    0 ................ 120 .............. 250 ........ 300
                       120-3.checkpoint   250-4.checkpoint
                       120.log            250.log            the log; what was before is removed

The newest snapshot that can be read counts, and the records from its end on. A damaged one is no
loss while the one before is there, and the log reaches back to that. Where it does not, or ends
before its snapshot does, fsynced records are lost, and nothing is begun (MetadataUnreadable). This
only reads.
"""

from raylog.actors.errors import MetadataUnreadable
from raylog.actors.metadata_snapshot import MetadataSnapshot, newest_snapshot, snapshot_ids
from raylog.storage.files import FileSystem
from raylog.storage.names import base_offsets
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
        check_whole(fs, folder, but_for_last=but_for_last)
        return None
    found = newest_snapshot(fs, folder)
    known_to = 0 if found.newest is None else found.newest.point.end
    first = min(base_offsets(names), default=0)
    if known_to < first:
        damaged = "".join(f"; {why}" for why in found.damaged)
        why = f"its records before offset {first} are in no snapshot that can be read{damaged}"
        raise MetadataUnreadable(folder, why)
    end = check_whole(fs, folder, first, but_for_last=but_for_last)
    if end < known_to:
        why = f"its snapshot is of {known_to} records, and the log ends at offset {end}"
        raise MetadataUnreadable(folder, why)
    return found.newest
