"""The folders that a tool works on, and their locks: a tool and a broker never meet."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from raylog.storage.asides import aside_names
from raylog.storage.errors import NotAPartitionFolder
from raylog.storage.files import FileSystem
from raylog.storage.log_dir import LOCK_FILE
from raylog.storage.names import base_offsets, parse_folder


def partition_folders(fs: FileSystem, folder: str) -> list[str]:
    """The partitions' folders in a log dir; the folder itself if it is one.

    Raises NotAPartitionFolder.
    """
    _check_is_folder(fs, folder)
    if base_offsets(fs.list_dir(folder)) or aside_names(fs, folder):
        return [folder]
    inner = [os.path.join(folder, name) for name in fs.list_dir(folder) if parse_folder(name)]
    partitions = [path for path in inner if fs.is_dir(path)]
    if not partitions:
        raise NotAPartitionFolder(folder, "it has neither .log files nor folders of partitions")
    return partitions


def partition_folder(fs: FileSystem, folder: str) -> str:
    """The absolute path of a partition's folder. Raises NotAPartitionFolder.

    Whether it has a log is not looked at: see :func:`check_has_log`.
    """
    folder = os.path.abspath(folder)
    _check_is_folder(fs, folder)
    if parse_folder(os.path.basename(folder)) is None:
        raise NotAPartitionFolder(folder, "its name is not <topic>-<partition>")
    return folder


def check_has_log(fs: FileSystem, folder: str) -> None:
    """Raise NotAPartitionFolder unless a folder has a segment."""
    _check_is_folder(fs, folder)
    if not base_offsets(fs.list_dir(folder)):
        raise NotAPartitionFolder(folder, "it has no .log file")


def _check_is_folder(fs: FileSystem, path: str) -> None:
    if fs.is_dir(path):
        return
    why = "this is a file, not a folder" if fs.exists(path) else "the folder does not exist"
    raise NotAPartitionFolder(path, why)


@contextmanager
def locked(fs: FileSystem, folder: str) -> Iterator[None]:
    """Hold the lock of a partition's log dir and that of its folder. Raises LogLocked.

    A partition that cannot be opened has no process that holds its folder, but its broker still
    writes the checkpoints of the log dir. ``folder``: as :func:`partition_folder` returns it.
    """
    dir_lock = fs.lock(os.path.join(os.path.dirname(folder), LOCK_FILE))
    try:
        folder_lock = fs.lock(folder)
        try:
            yield
        finally:
            folder_lock.release()
    finally:
        dir_lock.release()
