"""The disk, as an argument. ``storage`` touches files only through a :class:`FileSystem`.

There are two: :class:`RealFileSystem` here, the only code of ``storage`` that calls ``os``, and
``storage.testing.memory``, which can lose power. Both turn the system's errors into
:class:`DiskFull` and :class:`StorageError`, and neither retries: what a failed write left behind is
for the caller to undo.

**No room, told late.** ext4 and XFS know at the write whether there is room. A thin volume or a
network's file system may say only at the fsync that there is none. That is no DiskFull, after which
nothing is lost: what was written, and maybe acknowledged, may be gone from the page cache by then,
as after any failed fsync. So it is the disk that failed.
"""

import ctypes
import errno
import fcntl
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from raylog.storage.buffers import Buffer
from raylog.storage.errors import DiskFull, LogClosed, LogLocked, StorageError, UndoFailed

# Python's posix_fallocate would make the file longer, and its end could not be told from its data.
_LIBC = ctypes.CDLL(None, use_errno=True)
_KEEP_SIZE = 1
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
# One call of the system: large enough to cost nothing, small enough to be slowed down between two.
COPY_BYTES = 4 << 20


class FileStat(NamedTuple):
    """What tells whether a file has changed."""

    inode: int
    size_bytes: int
    mtime_ms: int


class Room(NamedTuple):
    """How many bytes a file system has, and how many of them can still be written."""

    total_bytes: int
    usable_bytes: int


class File(Protocol):
    """An open file that grows at its end."""

    path: str
    size: int
    inode: int

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Append a few buffers in order, or raise with the file's size unchanged."""

    def read(self, size_bytes: int, position: int) -> bytes:
        """Up to ``size_bytes`` from ``position``; fewer at the end of the file."""

    def view(self) -> memoryview:
        """The whole file as it is now, read-only, without a copy where the system allows."""

    def truncate(self, size_bytes: int) -> None:
        """Cut the file to a size; to its own to give back what was allocated behind."""

    def allocate(self, size_bytes: int) -> None:
        """Reserve room on the disk up to a size; the file's own size stays the same.

        DiskFull is raised now rather than later.
        """

    def flush(self) -> None:
        """Return when what was written will survive a loss of power."""

    def close(self) -> None: ...


class Lock(Protocol):
    """A lock, held until released or until its process ends."""

    def release(self) -> None: ...


class FileSystem(Protocol):
    """Folders and files. Paths are plain strings."""

    def open(self, path: str, *, create: bool = False) -> File: ...
    def exists(self, path: str) -> bool: ...
    def is_dir(self, path: str) -> bool: ...
    def list_dir(self, path: str) -> list[str]:
        """The names in a folder, sorted."""

    def make_dir(self, path: str) -> None:
        """Make a folder and its parents; fine if it is there."""

    def remove(self, path: str) -> None:
        """Remove a file; fine if it is gone."""

    def remove_dir(self, path: str) -> None:
        """Remove a folder and all in it; fine if it is gone."""

    def rename(self, source: str, target: str) -> None:
        """Move a file or folder, replacing a target file, in one step."""

    def read_file(self, path: str) -> bytes: ...
    def write_file(self, path: str, content: Buffer, *, flush: bool = True) -> None:
        """Write a whole file in place: a crash may leave it torn. See :func:`write_atomically`."""

    def sync_dir(self, path: str) -> None:
        """Return when the folder's names will survive a loss of power."""

    def real_path(self, path: str) -> str:
        """The one path of what ``path`` leads to, links followed."""

    def stat(self, path: str) -> FileStat | None:
        """A file's facts; None if it is gone."""

    def room(self, path: str) -> Room:
        """Of the file system that ``path`` is on."""

    def copy_file(
        self, source: str, target: str, copied: Callable[[int], None], *, flush: bool
    ) -> None:
        """Make ``target`` what ``source`` is now, with its mtime.

        The bytes do not come through Python.

        ``copied`` is told after every few MB how many more were copied, and may wait.
        """

    def mtime_ms(self, path: str) -> int: ...
    def set_mtime_ms(self, path: str, mtime_ms: int) -> None: ...
    def can_write(self, folder: str) -> bool:
        """Whether files can be made in a folder: tried, since permissions alone do not tell."""

    def lock(self, path: str) -> Lock:
        """Lock a folder, or a file made for it, against every other owner, or raise LogLocked."""


def write_atomically(fs: FileSystem, path: str, content: bytes) -> None:
    """Replace a file so that a crash leaves the old content or the new one, whole."""
    try:
        fs.write_file(path + ".tmp", content)
    except StorageError:
        fs.remove(path + ".tmp")
        raise
    fs.rename(path + ".tmp", path)
    fs.sync_dir(os.path.dirname(path))


def storage_error(path: str, error: OSError) -> StorageError:
    """The named error for what the system said of ``path``."""
    if error.errno in _NO_ROOM:
        return DiskFull(path)
    if error.errno == errno.EBADF:
        return LogClosed(path)  # a reader that came a moment too late
    return StorageError(path, error.strerror or str(error))


@contextmanager
def _named_errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise storage_error(path, error) from error


def _sync(path: str, call: Callable[[int], None], descriptor: int) -> None:
    """fsync or its kin. Never raises DiskFull: see the module's head."""
    with _named_errors(path):
        try:
            call(descriptor)
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise StorageError(
                    path, "no space left on the device during an fsync, so data may be lost"
                ) from error
            raise


class RealFile:
    """A file on a disk, by its descriptor. Readers and the writer share no cursor."""

    def __init__(self, path: str, *, create: bool = False, read_only: bool = False) -> None:
        self.path = path
        with _named_errors(path):
            flags = (
                os.O_RDONLY
                if read_only
                else os.O_RDWR | os.O_APPEND | (os.O_CREAT if create else 0)
            )
            self._descriptor = os.open(path, flags | os.O_CLOEXEC, 0o644)
            stat = os.fstat(self._descriptor)
        self.size = stat.st_size
        self.inode = stat.st_ino

    def append(self, buffers: Sequence[Buffer]) -> None:
        try:
            written = os.writev(self._descriptor, buffers)
            total = sum(map(len, buffers))
            if written != total:
                self._write_rest(b"".join(buffers), written)
        except OSError as error:
            self._undo()
            raise storage_error(self.path, error) from error
        self.size += total

    def _undo(self) -> None:
        try:
            os.ftruncate(self._descriptor, self.size)
        except OSError as error:
            raise UndoFailed(self.path, error.strerror or str(error)) from error

    def _write_rest(self, content: bytes, written: int) -> None:
        rest = memoryview(content)[written:]
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    def read(self, size_bytes: int, position: int) -> bytes:
        with _named_errors(self.path):
            return os.pread(self._descriptor, size_bytes, position)

    def view(self) -> memoryview:
        if self.size == 0:
            return memoryview(b"")
        with _named_errors(self.path):
            return memoryview(mmap.mmap(self._descriptor, self.size, prot=mmap.PROT_READ))

    def truncate(self, size_bytes: int) -> None:
        with _named_errors(self.path):
            os.ftruncate(self._descriptor, size_bytes)
        self.size = size_bytes

    def allocate(self, size_bytes: int) -> None:
        if (
            _LIBC.fallocate(
                self._descriptor, _KEEP_SIZE, ctypes.c_long(0), ctypes.c_long(size_bytes)
            )
            == 0
        ):
            return
        error = ctypes.get_errno()
        # a file system that cannot: what is written is allocated then
        if error != errno.EOPNOTSUPP:
            raise storage_error(self.path, OSError(error, os.strerror(error)))

    def flush(self) -> None:
        _sync(self.path, os.fdatasync, self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _copy(reader: int, writer: int, copied: Callable[[int], None]) -> None:
    """As much as there is when it begins: who appends meanwhile is not run after."""
    left = os.fstat(reader).st_size
    while left > 0:
        size_bytes = os.sendfile(writer, reader, None, min(left, COPY_BYTES))  # type: ignore[call-overload]
        if size_bytes == 0:
            return  # it was cut meanwhile
        left -= size_bytes
        copied(size_bytes)


class RealLock:
    """A lock on a folder, or on a file that is made for it.

    A folder is locked with ``flock``, which puts no file of ours into it.

    A file is locked in both of Linux's ways: ``flock`` tells two owners in one process apart, and
    the POSIX lock is the one that a Java broker takes on its ``.lock``.
    """

    def __init__(self, path: str) -> None:
        self._path, self._is_file = path, not os.path.isdir(path)
        flags = os.O_RDWR | os.O_CREAT if self._is_file else os.O_RDONLY
        with _named_errors(path):
            self._descriptor = os.open(path, flags | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._is_file:
                fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(self._descriptor).st_ino != os.stat(path).st_ino:
                raise OSError("the previous owner has just removed the lock file; retry")
        except OSError as error:
            os.close(self._descriptor)
            raise LogLocked(os.path.dirname(path) if self._is_file else path) from error

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


class RealFileSystem:
    """The machine's own file system."""

    def open(self, path: str, *, create: bool = False) -> RealFile:
        return RealFile(path, create=create)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def list_dir(self, path: str) -> list[str]:
        with _named_errors(path):
            return sorted(os.listdir(path))

    def make_dir(self, path: str) -> None:
        with _named_errors(path):
            os.makedirs(path, exist_ok=True)

    def remove(self, path: str) -> None:
        with _named_errors(path):
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass

    def remove_dir(self, path: str) -> None:
        if not os.path.isdir(path):
            return
        with _named_errors(path):
            for entry in os.scandir(path):
                if entry.is_dir(follow_symlinks=False):
                    self.remove_dir(entry.path)
                else:
                    os.unlink(entry.path)
            os.rmdir(path)

    def rename(self, source: str, target: str) -> None:
        with _named_errors(source):
            os.replace(source, target)

    def read_file(self, path: str) -> bytes:
        with _named_errors(path), open(path, "rb") as file:
            return file.read()

    def write_file(self, path: str, content: Buffer, *, flush: bool = True) -> None:
        with _named_errors(path), open(path, "wb") as file:
            file.write(content)
            file.flush()
            if flush:
                os.fsync(file.fileno())

    def sync_dir(self, path: str) -> None:
        with _named_errors(path):
            descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                _sync(path, os.fsync, descriptor)
            finally:
                os.close(descriptor)

    def real_path(self, path: str) -> str:
        return os.path.realpath(path)

    def stat(self, path: str) -> FileStat | None:
        with _named_errors(path):
            try:
                status = os.stat(path)
            except FileNotFoundError:
                return None
        return FileStat(status.st_ino, status.st_size, status.st_mtime_ns // 1_000_000)

    def room(self, path: str) -> Room:
        with _named_errors(path):
            status = os.statvfs(path)
        return Room(status.f_frsize * status.f_blocks, status.f_frsize * status.f_bavail)

    def copy_file(
        self, source: str, target: str, copied: Callable[[int], None], *, flush: bool
    ) -> None:
        with _named_errors(source):
            reader = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        try:
            with _named_errors(target):
                writer = os.open(
                    target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644
                )
                try:
                    _copy(reader, writer, copied)
                    mtime_ns = os.fstat(reader).st_mtime_ns
                    os.utime(writer, ns=(mtime_ns, mtime_ns))
                    if flush:
                        os.fsync(writer)
                finally:
                    os.close(writer)
        finally:
            os.close(reader)

    def mtime_ms(self, path: str) -> int:
        with _named_errors(path):
            return os.stat(path).st_mtime_ns // 1_000_000

    def set_mtime_ms(self, path: str, mtime_ms: int) -> None:
        with _named_errors(path):
            os.utime(path, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))

    def can_write(self, folder: str) -> bool:
        probe = os.path.join(folder, ".probe")
        try:
            os.close(os.open(probe, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
            os.unlink(probe)
        except OSError as error:
            if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
                return False
            # a full disk is one that files can be made on, some day
            if error.errno not in _NO_ROOM:
                raise storage_error(probe, error) from error
        return True

    def lock(self, path: str) -> RealLock:
        return RealLock(path)


class ReadOnlyFileSystem(RealFileSystem):
    """The same, for those who only read.

    The files may be another user's, or on a disk that takes no writes.
    """

    def open(self, path: str, *, create: bool = False) -> RealFile:
        assert not create, "who only looks creates nothing"
        return RealFile(path, read_only=True)
