"""The folders that a tool works on, and their locks: a tool and a broker never meet."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from raylog.storage.files import FileSystem
from raylog.storage.log_dir import LOCK_FILE
from raylog.storage.names import parse_folder
from raylog.storage.tools.verify import base_offsets


def partition_folders(fs: FileSystem, folder: str) -> list[str]:
    """The partitions' folders in a log dir; the folder itself if it is none."""
    if not fs.is_dir(folder) or base_offsets(fs, folder):
        return [folder]
    inner = [os.path.join(folder, name) for name in fs.list_dir(folder) if parse_folder(name)]
    return [path for path in inner if fs.is_dir(path)] or [folder]


@contextmanager
def locked(fs: FileSystem, folder: str) -> Iterator[None]:
    """Hold the lock of a partition's log dir and that of its folder. Raises LogLocked.

    A partition that cannot be opened has no process that holds its folder, but its broker still
    writes the checkpoints of the log dir.
    """
    dir_lock = fs.lock(os.path.join(os.path.dirname(os.path.abspath(folder)), LOCK_FILE))
    try:
        folder_lock = fs.lock(folder)
        try:
            yield
        finally:
            folder_lock.release()
    finally:
        dir_lock.release()
