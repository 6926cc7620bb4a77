"""Fsynced records that are missing, and what somebody said to that.

A log that ends before its recovery point lost records that were on the disk for sure: a file was
removed, restored from an older copy, or damaged. Opening refuses it (LogShorterThanFlushed), since
it would give the missing offsets to new records. Who knows that the records are gone for good says
so once; that is written into the partition's folder, and the log opens from there::

    accepted-losses      0            version
                         1            how many entries follow
                         10 12        offsets from 10 on, before 12, are lost and may be given again
"""

from raylog.storage.files import FileSystem
from raylog.storage.report import Mended


def accept_loss(fs: FileSystem, folder: str, *, is_compacted: bool = False) -> Mended | None:
    """Let a log open that is shorter than its recovery point; None if it is not shorter.

    The log must be closed. The recovery point is that of the log dir's checkpoint. What was
    accepted is on the disk when this returns; accepting it again changes nothing. ``is_compacted``:
    the topic's ``cleanup.policy`` has compact. Raises LogMissing or CorruptCheckpoint.
    """
    raise NotImplementedError
