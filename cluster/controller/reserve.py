"""The metadata's reserve: room on its disk for what must be written when nothing else can be.

A Controller begins with a record, its epoch. Without it no config is confirmed, and without that
retention removes nothing: on a disk that is full it would wait for room, and all that makes room
would wait for it. So a file of ``RESERVE_BYTES`` lies beside the metadata log::

    <log dir>/
      metadata-reserve            bytes that mean nothing; a start makes it
      __cluster_metadata-0/       the metadata log

A record that may use it and meets a full disk has it cut by a piece, and is written again. It is
given up in pieces because whoever else writes to the disk takes what is free, too: what one piece
has lost to them, the next one is still there for. The bytes are written, not only allocated, and do
not compress: so every file system has blocks for them.

Kafka's tools and brokers look at folders only, and pass it by. Who may use it, and when it is made
again, the machine decides (``journal.py``).
"""

import logging
import os
from random import Random

from raylog.actors.events import warn
from raylog.storage.errors import DiskFull, StorageError
from raylog.storage.files import FileSystem

logger = logging.getLogger(__name__)

METADATA_RESERVE = "metadata-reserve"
# The largest thing that makes room is the deletion of a topic of 10,000 partitions: a record of
# about 300 bytes for each of them, and one of 150 when its folder is gone, makes 5 MB. Of other
# records it holds 20,000. To roll a segment takes less than ten blocks.
RESERVE_BYTES = 8 << 20
# Given up at a time. It holds a roll with blocks of 16 KB, or 600 records.
PIECE_BYTES = 256 << 10


class Reserve:
    """The file. One thread uses it."""

    def __init__(self, fs: FileSystem, log_dir: str) -> None:
        self._fs, self._log_dir = fs, log_dir
        self.path = os.path.join(log_dir, METADATA_RESERVE)

    @property
    def size_bytes(self) -> int:
        """What is left of it."""
        stat = self._fs.stat(self.path)
        return 0 if stat is None else stat.size_bytes

    def make(self) -> None:
        """Make it whole, if it is not. Raises DiskFull, or StorageError, with nothing taken.

        It takes no room unless there is as much again: else it would take what was just made free
        from those who wait for it.
        """
        size_bytes = self.size_bytes
        missing_bytes = RESERVE_BYTES - size_bytes
        if missing_bytes <= 0:
            return
        if self._fs.room(self._log_dir).usable_bytes < missing_bytes + RESERVE_BYTES:
            raise DiskFull(self.path)
        piece = Random(0).randbytes(PIECE_BYTES)
        file = self._fs.open(self.path, create=True)
        try:
            while file.size < RESERVE_BYTES:
                file.append([piece[: RESERVE_BYTES - file.size]])
            file.flush()
        except StorageError:
            file.truncate(size_bytes)
            raise
        finally:
            file.close()
        self._fs.sync_dir(self._log_dir)

    def give_up_piece(self) -> bool:
        """Make a piece of it free; returns whether there was one."""
        try:
            size_bytes = self.size_bytes
            if size_bytes <= PIECE_BYTES:
                self._fs.remove(self.path)
            else:
                self._cut(size_bytes - PIECE_BYTES)
            self._fs.sync_dir(self._log_dir)
        except StorageError as error:
            warn(logger, "metadata-reserve-not-given-up", path=self.path, why=error)
            return False
        return size_bytes > 0

    def _cut(self, size_bytes: int) -> None:
        file = self._fs.open(self.path)
        try:
            file.truncate(size_bytes)
            file.flush()
        finally:
            file.close()
