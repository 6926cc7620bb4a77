"""What the system answers, as errors with names that say whose fault it is.

A failed disk takes all partitions of its log dir offline, so it must be the disk that failed. The
call decides it together with what the system answers:

=========================  ======================  =============================================
call                       answer                  error
=========================  ======================  =============================================
``fsync``, ``fdatasync``   any                     StorageError: the disk failed
any other                  ENOSPC, EDQUOT          DiskFull: a write was undone
any other                  EMFILE, ENFILE, EFBIG,  OutOfResources: nothing was changed
                           ENOMEM, EAGAIN, EINTR
rename of our own          ENOENT                  TemporaryFileLost
temporary file
any other                  ENOENT                  FileGone: whether its log dir is gone
                                                   with it, ``LogDir.disk_failure`` looks
any other                  any other               StorageError: the disk failed
undoing a failed write     as above                UndoFailed where the disk failed,
                                                   UndoInterrupted otherwise
=========================  ======================  =============================================

**No second fsync.** After an fsync that failed, the system may have dropped what was written, and
maybe acknowledged, from the page cache. A second one would find nothing to do and succeed. So it is
never retried, and even "no space", which a thin volume or a network's file system may say as late
as this, means that the disk failed.
"""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from raylog.storage.errors import (
    DiskFull,
    FileGone,
    OutOfResources,
    StorageError,
    UndoFailed,
    UndoInterrupted,
)

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
# What a call may meet on a disk that is fine.
_SHORTAGES = {
    errno.EMFILE: (
        "this process has no file descriptor left; raise its limit (ulimit -n) to what "
        "docs/OPERATIONS.md, Open files, gives"
    ),
    errno.ENFILE: "the machine has no file descriptor left; raise its limit (fs.file-max)",
    errno.ENOMEM: (
        "the machine has no memory left for this call, or the process has too many memory maps; "
        "free memory, or raise the limit (vm.max_map_count)"
    ),
    errno.EFBIG: (
        "the file would become larger than this process may write, or than the file system takes; "
        "raise the limit (ulimit -f), or lower segment.bytes"
    ),
    errno.EAGAIN: "the system could not do this now",
    errno.EINTR: "a signal interrupted the call",
}
_RIGHTS = "give the broker's user the right to read and write it, and run tools as this user"
# What to do about the others; see storage_error for the rest.
_ADVICE = {
    errno.EIO: "repair or replace the disk",
    errno.EROFS: (
        "the kernel's log says whether an error of the disk made it so; repair the disk, and mount "
        "it writable"
    ),
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.ENOTDIR: "move away the file that has the place of a folder",
    errno.EISDIR: "move away the folder that has the place of a file",
    errno.EEXIST: "move away what has this name",
    errno.ENAMETOOLONG: "use a log dir with a shorter path",
}
_SEE_KERNEL_LOG = "the kernel's log says more about the disk"


def storage_error(path: str, error: OSError) -> StorageError:
    """The named error for what any call but an fsync answered. See the module's head."""
    if error.errno in NO_ROOM:
        return DiskFull(path)
    if error.errno in _SHORTAGES:
        return OutOfResources(path, _SHORTAGES[error.errno])
    if error.errno == errno.ENOENT:
        return FileGone(path)
    return StorageError(path, f"{_said(error)}; {_ADVICE.get(error.errno or 0, _SEE_KERNEL_LOG)}")


def _said(error: OSError) -> str:
    return error.strerror or str(error)


def undo_failed(path: str, error: StorageError) -> UndoFailed:
    """The error where a failed write could not be undone, by what the undoing met."""
    kind = UndoFailed if error.is_disk_failure else UndoInterrupted
    return kind(path, str(error))


@contextmanager
def named_errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise storage_error(path, error) from error


def sync(path: str, call: Callable[[int], None], descriptor: int) -> None:
    """fsync or its kin. Whatever it answers, the disk failed: see the module's head."""
    try:
        call(descriptor)
    except OSError as error:
        raise StorageError(
            path,
            f"{_said(error)} during an fsync, so data that was written may be lost; repair or "
            "replace the disk",
        ) from error
