"""Bytes that recovery took out of a log, kept beside it until somebody decides.

::

    00000000000000000042.log.aside-0    a whole segment that had to leave the log: it was renamed
    00000000000000000042.log.aside-1    what was cut off a segment's end: a copy, made before the cut

Recovery ends a log before the first batch that is not good. What lies behind may hold records, so
it is never removed: it gets a name that no opening, retention or compaction touches, here or in
Kafka's broker (with one exception: Kafka, when it finishes a compaction's swap, removes every file
whose base offset the swap replaces). It is kept once: a recovery that is stopped between copy and
cut finds the copy when it comes again.

Who decides is a person: ``raylog log aside list | restore | drop``.
"""

from typing import NamedTuple

from raylog.storage.files import FileSystem


class Aside(NamedTuple):
    """One file that was set aside, and the good batches in it."""

    name: str
    base_offset: int  # of the segment that it was, or was cut from
    size_bytes: int
    first_offset: int  # of the first good batch, -1 if there is none
    end_offset: int  # behind the last good batch, -1 if there is none
    batches: int  # good ones


def list_asides(fs: FileSystem, folder: str) -> list[Aside]:
    """The files that were set aside in a partition's folder, by base offset. Reads all of them."""
    raise NotImplementedError


def restore_aside(fs: FileSystem, folder: str, name: str, *, is_compacted: bool = False) -> Aside:
    """Put the good batches of an aside back behind the log's end, and remove the aside.

    The log must be closed, and is to be opened as after a crash. ``is_compacted``: the topic's
    ``cleanup.policy`` has compact, so that offsets may be missing before it. Raises AsideRefused
    with nothing changed: there is no such aside, it has no good batch, the log has records at its
    offsets, or offsets would be missing. Raises NoRoomToSetAside or DiskFull, also with nothing
    changed.
    """
    raise NotImplementedError


def drop_aside(fs: FileSystem, folder: str, name: str) -> Aside:
    """Remove an aside for good; returns what it was. Raises AsideRefused if there is none."""
    raise NotImplementedError
