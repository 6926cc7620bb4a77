"""Reads of segment files on the partition's own node, into buffers that are used again.

The LogActor tells where the batches lie. The inode is checked, since the name may have gone to
another file. The file is opened for each read, which costs some microseconds of a fetch. So a
reader keeps no file open that retention has removed. It is not mapped, because a mapped page that
was cut away, or that the disk cannot read, ends the process (SIGBUS).
"""

import os

from raylog.cluster.client.buffers import Buffers
from raylog.storage.descriptors import Descriptor
from raylog.storage.errors import SegmentDeleted, StorageError
from raylog.storage.readable import Slice


class SegmentFiles:
    """Reads slices of segment files. Safe for threads."""

    def __init__(self, buffers: Buffers) -> None:
        self._buffers = buffers

    def read(self, location: Slice) -> memoryview:
        """The bytes at ``location``. Raises SegmentDeleted where they are not there any more."""
        content = self._buffers.room(location.size_bytes)
        try:
            file = Descriptor(location.path, os.O_RDONLY)
            is_same = file.inode == location.inode
            if is_same and file.read_into(content, location.position) == len(content):
                return content
        except (OSError, StorageError):
            pass  # the actor will send the bytes, or say what is wrong
        raise SegmentDeleted(location.path)
