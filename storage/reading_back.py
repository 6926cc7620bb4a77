"""Reading a folder back from its disk, and not from the system's copy in memory.

After an fsync that failed, the page cache may have what the disk lacks (``on_disk.py`` says why
this matters). Whoever wants to know what the disk has flushes the files first, so that nothing is
lost, and then drops their copies. What the last owner could not flush is then gone, as it would be
after a loss of power.
"""

import os
from contextlib import suppress

from raylog.storage.errors import FileGone
from raylog.storage.files import FileSystem
from raylog.storage.log_dir import LOCK_FILE


def drop_caches(fs: FileSystem, folder: str) -> None:
    """Flush all files of a folder, and let their next reads come from the disk.

    Folders in it are left alone, and so is a lock file: who closes it loses the lock. Raises
    StorageError; its disk has failed if an fsync did.
    """
    for name in fs.list_dir(folder):
        path = os.path.join(folder, name)
        if name == LOCK_FILE or fs.is_dir(path):
            continue
        with suppress(FileGone):  # it was removed meanwhile
            drop_cache(fs, path)
    fs.sync_dir(folder)


def drop_cache(fs: FileSystem, path: str) -> None:
    """Flush a file, and let its next reads come from the disk."""
    file = fs.open(path)
    try:
        file.flush()
        file.drop_cache()
    finally:
        file.close()
