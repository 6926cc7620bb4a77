"""Locks of folders and files, against every other owner on this machine."""

import errno
import fcntl
import os

from raylog.storage.disk_errors import named_errors, storage_error
from raylog.storage.errors import LogLocked
from raylog.storage.permissions import open_private

# What a lock answers that another process has; ENOENT: that process has just removed the file.
_HELD_BY_ANOTHER = (errno.EAGAIN, errno.EACCES, errno.ENOENT)


class RealLock:
    """A lock on a folder, or on a file that is made for it.

    A folder is locked with ``flock``, which puts no file of ours into it.

    A file is locked in both of Linux's ways: ``flock`` tells two owners in one process apart, and
    the POSIX lock is the one that a Java broker takes on its ``.lock``.
    """

    def __init__(self, path: str, *, is_file: bool) -> None:
        self._path, self._is_file = path, is_file
        flags = os.O_RDWR | os.O_CREAT if is_file else os.O_RDONLY | os.O_DIRECTORY
        with named_errors(path):
            self._descriptor = open_private(path, flags)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._is_file:
                fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(self._descriptor).st_ino != os.stat(path).st_ino:
                raise BlockingIOError(errno.EAGAIN, "its owner has just removed the lock file")
        except OSError as error:
            os.close(self._descriptor)
            if error.errno in _HELD_BY_ANOTHER:
                raise LogLocked(os.path.dirname(path) if self._is_file else path) from error
            raise storage_error(path, error) from error

    def release(self) -> None:
        if self._descriptor < 0:
            return
        try:
            if self._is_file and os.stat(self._path).st_ino == os.fstat(self._descriptor).st_ino:
                os.unlink(self._path)
        except OSError:
            pass  # its disk is gone; the lock ends with the descriptor
        os.close(self._descriptor)
        self._descriptor = -1
