"""Fencing a copy of the metadata that no LogManager keeps. No Ray.

A copy *promises* an epoch: it takes no record of a Controller with a lower one. Its LogManager
writes that into the copy's folder before it says so. A node that was started again has no
LogManager, and gets none before a Controller begins, which may need the promise to begin. So
whoever can lock the folder writes it there: no LogManager has the copy open then, and the next one
reads it.
"""

import os
from collections.abc import Sequence

from raylog.actors.control import MetadataKept
from raylog.cluster.controller.surveying import read_whole
from raylog.storage.files import FileSystem
from raylog.storage.log_dir import METADATA_PARTITION
from raylog.storage.state.controller_epoch import read_controller_epoch, write_controller_epoch
from raylog.storage.state.properties import read_meta


def promise_for(fs: FileSystem, node: str, log_dir: str, epoch: int) -> Sequence[MetadataKept]:
    """What the copy in a log dir promises now; nothing where there is none. ``node``: its key.

    It is ``epoch`` at least, and higher than that of its last Controller; on the disk when this
    returns. Raises LogLocked where a process has the copy open, and why it cannot be read or
    written.
    """
    folder = os.path.join(log_dir, str(METADATA_PARTITION))
    meta = read_meta(fs, log_dir)
    if meta is None or meta.directory_id is None or not fs.is_dir(folder):
        return []
    lock = fs.lock_dir(folder)
    try:
        last = read_whole(fs, folder).controller_epoch
        before = read_controller_epoch(fs, folder)
        promised = max(epoch, last + 1, before)
        if promised > before:
            write_controller_epoch(fs, folder, promised)
    finally:
        lock.release()
    return [MetadataKept(node=node, life="", directory_id=meta.directory_id, promised=promised)]
