"""The disk, as an argument. ``storage`` touches files only through a :class:`FileSystem`.

There are two: :class:`RealFileSystem` here, which with ``descriptors.py`` and ``permissions.py`` is
the only code of ``storage`` that calls ``os``, and ``storage.testing.memory``, which can lose
power. Both turn the system's errors into a :class:`StorageError` (``disk_errors.py`` says which),
and neither tries a call again.
"""

import ctypes
import errno
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from stat import S_ISDIR
from typing import BinaryIO, NamedTuple, Protocol

from raylog.storage.buffers import Buffer
from raylog.storage.descriptors import (
    MAX_SEALED_OPEN,
    MAX_UNFLUSHED,
    Descriptor,
    SealedFiles,
    map_file,
)
from raylog.storage.disk_errors import NO_ROOM, named_errors, storage_error, sync, undo_failed
from raylog.storage.errors import (
    FileGone,
    LogClosed,
    SegmentDeleted,
    StorageError,
    TemporaryFileLost,
)
from raylog.storage.file_lock import RealLock
from raylog.storage.permissions import is_private, make_private_dirs, open_private
from raylog.storage.records import kernel

# Python's posix_fallocate would make the file longer, and its end could not be told from its data.
_LIBC = ctypes.CDLL(None, use_errno=True)
_KEEP_SIZE = 1
# One call of the system: large enough to cost nothing, small enough to be slowed down between two.
COPY_BYTES = 4 << 20
_WRITABLE = os.O_RDWR | os.O_APPEND
# Under how many names a file is looked for: it is renamed once in its life, and then removed.
OPENING_ATTEMPTS = 3


class FileStat(NamedTuple):
    """What tells whether a file has changed."""

    inode: int
    size_bytes: int
    mtime_ms: int


class Room(NamedTuple):
    """How many bytes a file system has, and how many of them can still be written."""

    total_bytes: int
    usable_bytes: int


class OpenFile(Protocol):
    """A reference to an open file. As long as it is held the bytes can be read.

    That is so after the file was renamed, closed or removed, too.
    """

    inode: int

    def fileno(self) -> int:
        """The descriptor; -1 for a file in memory."""

    def read(self, size_bytes: int, position: int) -> bytes:
        """Up to ``size_bytes`` from ``position``; fewer at the end of the file."""

    def read_into(self, buffer: bytearray | memoryview, position: int) -> int:
        """Fill ``buffer`` from ``position``; returns how many bytes there were."""


class File(Protocol):
    """A file that grows at its end.

    It is opened read-only, becomes writable with its first change, and read-only again when it is
    sealed. After ``close`` every call raises LogClosed; who took a reference before reads on.
    """

    path: str
    size: int
    inode: int

    def opened(self) -> OpenFile:
        """A reference for a reader. Raises SegmentDeleted if the file's name has gone."""

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Append a few buffers in order, or raise with the file's size unchanged."""

    def append_stamped(self, stamp: bytes, batch: Buffer) -> None:
        """Append ``batch`` with ``stamp`` in the place of its first bytes, as :meth:`append`."""

    def read(self, size_bytes: int, position: int) -> bytes:
        """Up to ``size_bytes`` from ``position``; fewer at the end of the file."""

    def read_into(self, buffer: bytearray | memoryview, position: int) -> int:
        """Fill ``buffer`` from ``position``; returns how many bytes there were."""

    def view(self) -> memoryview:
        """The whole file as it is now, read-only, without a copy where the system allows.

        Only for sealed indexes, which are never cut while they are mapped. Reading a mapped page
        that was cut away, or that the disk cannot read, ends the process (SIGBUS).
        """

    def truncate(self, size_bytes: int) -> None:
        """Cut the file to a size; to its own to give back what was allocated behind."""

    def allocate(self, size_bytes: int) -> None:
        """Reserve room on the disk up to a size; the file's own size stays the same.

        DiskFull is raised now rather than later.
        """

    def flush(self) -> None:
        """Return when what was written will survive a loss of power."""

    def drop_cache(self) -> None:
        """Let the next reads come from the disk, as far as all was flushed.

        After a flush that failed, the system's copy in memory may have bytes that the disk lacks.
        """

    def seal(self) -> None:
        """The file is complete: it is open read-only from now on, and only while it is used.

        Another change makes it writable again.
        """

    def rename(self, target: str) -> None:
        """Give the file another name in one step. Readers may go on meanwhile."""

    def close(self) -> None:
        """Drop the file's own reference; the last reference closes it."""

    def remove(self) -> None:
        """As ``close``, and remove the file: calls raise SegmentDeleted from now on."""


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
        """Make a folder and its parents, its user's alone; fine if it is there."""

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

    def is_private(self, path: str) -> bool:
        """Whether nobody but its owner has any permission on a folder or file."""

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

    def lock_dir(self, path: str) -> Lock:
        """The same of a folder; StorageError where there is none, and nothing is made."""


def write_atomically(fs: FileSystem, path: str, content: bytes) -> None:
    """Replace a file so that a crash leaves the old content or the new one, whole."""
    try:
        fs.write_file(path + ".tmp", content)
    except StorageError:
        fs.remove(path + ".tmp")
        raise
    try:
        fs.rename(path + ".tmp", path)
    except FileGone as error:
        raise TemporaryFileLost(path + ".tmp") from error
    fs.sync_dir(os.path.dirname(path))


class RealFile:
    """A file on a disk. Readers and the writer share no cursor.

    ========================  ======================================================
    state                     its descriptor
    ========================  ======================================================
    never changed, or sealed  read-only, one of a bounded number (``SealedFiles``)
    sealed, not flushed       read-only, its own: an error of writing that the system
                              meets later is told only to those who had the file open
    changed                   writable, its own
    closed                    none
    ========================  ======================================================
    """

    def __init__(
        self,
        path: str,
        sealed_files: SealedFiles,
        *,
        create: bool = False,
        read_only: bool = False,
    ) -> None:
        self.path = path
        self._moving_to = ""
        self._is_dirty = False
        self._closed: type[LogClosed | SegmentDeleted] | None = None
        self._is_read_only = read_only
        self._sealed_files = sealed_files
        self._number = sealed_files.new_number()
        self._own: Descriptor | None = None
        with named_errors(path):
            descriptor = self._open(path, _WRITABLE | os.O_CREAT if create else os.O_RDONLY)
        if create:
            self._own = descriptor
        else:
            sealed_files.keep(self._number, descriptor)
        self.size, self.inode = descriptor.size_bytes, descriptor.inode

    # -- descriptors -------------------------------------------------------------------------------

    def opened(self) -> Descriptor:
        descriptor = self._own or self._sealed_files.get(self._number)
        return descriptor or self._open_again(os.O_RDONLY)

    def _writable(self) -> Descriptor:
        own = self._own
        if own is not None and own.is_writable:
            return own
        if self._is_read_only:
            raise StorageError(self.path, "the file is open read-only")
        own = self._own = self._open_again(_WRITABLE)
        self._sealed_files.forget(self._number)
        return own

    def _open_again(self, flags: int) -> Descriptor:
        """Open the file by its name. Its owner may rename or close it meanwhile."""
        self._raise_if_closed()
        path = self.path
        for _ in range(OPENING_ATTEMPTS):
            descriptor = self._open_if_same(path, flags)
            # After opening: a file that was closed may be gone, and another have its inode.
            self._raise_if_closed()
            if descriptor is not None:
                return descriptor if descriptor.is_writable else self._keep(descriptor)
            path = self._moving_to or self.path
        raise SegmentDeleted(path)

    def _keep(self, descriptor: Descriptor) -> Descriptor:
        kept = self._sealed_files.keep(self._number, descriptor)
        if self._closed is not None:
            self._sealed_files.forget(self._number)
        return kept

    def _raise_if_closed(self) -> None:
        if self._closed is not None:
            raise self._closed(self.path)

    def _open_if_same(self, path: str, flags: int) -> Descriptor | None:
        """The file at ``path``; None if this file is not there."""
        with named_errors(path):
            try:
                descriptor = self._open(path, flags)
            except FileNotFoundError:
                return None
        return descriptor if descriptor.inode == self.inode else None

    def _open(self, path: str, flags: int) -> Descriptor:
        return self._sealed_files.making_room(lambda: Descriptor(path, flags))

    # -- reading -----------------------------------------------------------------------------------

    def read(self, size_bytes: int, position: int) -> bytes:
        return self.opened().read(size_bytes, position)

    def read_into(self, buffer: bytearray | memoryview, position: int) -> int:
        return self.opened().read_into(buffer, position)

    def view(self) -> memoryview:
        if self.size == 0:
            return memoryview(b"")
        descriptor = self.opened()
        with named_errors(self.path):
            return map_file(descriptor.fileno(), self.size)

    # -- writing -----------------------------------------------------------------------------------

    def append(self, buffers: Sequence[Buffer]) -> None:
        descriptor = self._writable()
        number = descriptor.fileno()
        try:
            written = os.writev(number, buffers)
            total = sum(map(len, buffers))
            if written != total:
                _write_rest(number, b"".join(buffers), written)
        except OSError as error:
            self._undo(number)
            raise storage_error(self.path, error) from error
        finally:
            self._is_dirty = True  # after the write: a flush beside it may have missed it
        self.size += total

    def append_stamped(self, stamp: bytes, batch: Buffer) -> None:
        own = self._own
        if own is None or not own.is_writable:
            own = self._writable()
        try:
            self.size += kernel.ops.write_stamped(own.number, stamp, batch)
            self._is_dirty = True  # after the write, as in append
        except OSError as error:
            self._is_dirty = True
            self._undo(own.number)
            raise storage_error(self.path, error) from error

    def _undo(self, number: int) -> None:
        try:
            os.ftruncate(number, self.size)
        except OSError as error:
            raise undo_failed(self.path, storage_error(self.path, error)) from error

    def truncate(self, size_bytes: int) -> None:
        descriptor = self._writable()
        with named_errors(self.path):
            os.ftruncate(descriptor.fileno(), size_bytes)
        self.size = size_bytes
        self._is_dirty = True

    def allocate(self, size_bytes: int) -> None:
        descriptor = self._writable()
        offset, length = ctypes.c_long(0), ctypes.c_long(size_bytes)
        if _LIBC.fallocate(descriptor.fileno(), _KEEP_SIZE, offset, length) == 0:
            self._is_dirty = True
            return
        error = ctypes.get_errno()
        # a file system that cannot: what is written is allocated then
        if error != errno.EOPNOTSUPP:
            raise storage_error(self.path, OSError(error, os.strerror(error)))

    def flush(self) -> None:
        descriptor = self.opened()
        self._is_dirty = False  # before: an append beside this sets it again
        try:
            sync(self.path, os.fdatasync, descriptor.fileno())
        except StorageError:
            self._is_dirty = True
            raise
        self._sealed_files.was_flushed(self._number)
        if descriptor is self._own and not descriptor.is_writable:
            self._share(descriptor)

    def drop_cache(self) -> None:
        # An advice. A system that does not take it keeps its copy (docs/OPERATIONS.md, Disks).
        with suppress(OSError):
            os.posix_fadvise(self.opened().fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def seal(self) -> None:
        own = self._own
        if own is None or not own.is_writable:
            return
        if self._is_dirty and self._sealed_files.has_too_many_unflushed:
            self.flush()
        # Opened before the other is closed, so that no error of writing is missed between.
        descriptor = self._open_if_same(self.path, os.O_RDONLY)
        if descriptor is None:
            return  # its name has gone, so it could not be opened again
        if self._is_dirty:
            self._sealed_files.await_flush(self._number)
            self._own = descriptor
        else:
            self._share(descriptor)

    def _share(self, descriptor: Descriptor) -> None:
        """From now on the file's descriptor may be dropped and opened again."""
        self._sealed_files.keep(self._number, descriptor)
        self._own = None

    def rename(self, target: str) -> None:
        self._moving_to = target  # a reader finds the file under one of the two names
        try:
            with named_errors(self.path):
                os.replace(self.path, target)
            self.path = target
        finally:
            self._moving_to = ""

    def close(self) -> None:
        self._close(LogClosed)

    def remove(self) -> None:
        self._close(SegmentDeleted)
        with named_errors(self.path), suppress(FileNotFoundError):
            os.unlink(self.path)

    def _close(self, why: type[LogClosed | SegmentDeleted]) -> None:
        self._closed = self._closed or why
        self._own = None
        self._sealed_files.forget(self._number)


def _write_rest(number: int, content: bytes, written: int) -> None:
    rest = memoryview(content)[written:]
    while rest:
        rest = rest[os.write(number, rest) :]


def _copy(reader: int, writer: int, copied: Callable[[int], None]) -> None:
    """As much as there is when it begins: who appends meanwhile is not run after."""
    left = os.fstat(reader).st_size
    while left > 0:
        size_bytes = os.sendfile(writer, reader, None, min(left, COPY_BYTES))  # type: ignore[call-overload]
        if size_bytes == 0:
            return  # it was cut meanwhile
        left -= size_bytes
        copied(size_bytes)


class RealFileSystem:
    """The machine's own file system.

    ``max_sealed``: how many files that are only read are held open at once.
    """

    def __init__(self, max_sealed: int = MAX_SEALED_OPEN) -> None:
        self._sealed_files = SealedFiles(max_sealed, MAX_UNFLUSHED)

    def open(self, path: str, *, create: bool = False) -> RealFile:
        return RealFile(path, self._sealed_files, create=create)

    def _open(self, path: str, flags: int) -> int:
        return self._sealed_files.making_room(lambda: open_private(path, flags))

    def exists(self, path: str) -> bool:
        return self._status(path) is not None

    def is_dir(self, path: str) -> bool:
        status = self._status(path)
        return status is not None and S_ISDIR(status.st_mode)

    def _status(self, path: str) -> os.stat_result | None:
        """None if nothing has this name; what cannot be looked at is an error."""
        with named_errors(path):
            try:
                return os.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                return None

    def list_dir(self, path: str) -> list[str]:
        with named_errors(path):
            return sorted(self._sealed_files.making_room(lambda: os.listdir(path)))

    def make_dir(self, path: str) -> None:
        with named_errors(path):
            make_private_dirs(path)

    def remove(self, path: str) -> None:
        with named_errors(path):
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass

    def remove_dir(self, path: str) -> None:
        if not self.is_dir(path):
            return
        with named_errors(path):
            for entry in self._sealed_files.making_room(lambda: os.scandir(path)):
                if entry.is_dir(follow_symlinks=False):
                    self.remove_dir(entry.path)
                else:
                    os.unlink(entry.path)
            os.rmdir(path)

    def rename(self, source: str, target: str) -> None:
        with named_errors(source):
            os.replace(source, target)

    def read_file(self, path: str) -> bytes:
        with named_errors(path), self._sealed_files.making_room(lambda: open(path, "rb")) as file:
            return file.read()

    def write_file(self, path: str, content: Buffer, *, flush: bool = True) -> None:
        def opened() -> BinaryIO:
            return open(path, "wb", opener=open_private)

        with named_errors(path), self._sealed_files.making_room(opened) as file:
            file.write(content)
            file.flush()
            if flush:
                sync(path, os.fsync, file.fileno())

    def sync_dir(self, path: str) -> None:
        with named_errors(path):
            descriptor = self._open(path or ".", os.O_RDONLY | os.O_DIRECTORY)
            try:
                sync(path, os.fsync, descriptor)
            finally:
                os.close(descriptor)

    def real_path(self, path: str) -> str:
        return os.path.realpath(path)

    def stat(self, path: str) -> FileStat | None:
        status = self._status(path)
        if status is None:
            return None
        return FileStat(status.st_ino, status.st_size, status.st_mtime_ns // 1_000_000)

    def is_private(self, path: str) -> bool:
        with named_errors(path):
            return is_private(os.stat(path).st_mode)

    def room(self, path: str) -> Room:
        with named_errors(path):
            status = os.statvfs(path)
        return Room(status.f_frsize * status.f_blocks, status.f_frsize * status.f_bavail)

    def copy_file(
        self, source: str, target: str, copied: Callable[[int], None], *, flush: bool
    ) -> None:
        with named_errors(source):
            reader = self._open(source, os.O_RDONLY)
        try:
            with named_errors(target):
                writer = self._open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                try:
                    _copy(reader, writer, copied)
                    mtime_ns = os.fstat(reader).st_mtime_ns
                    os.utime(writer, ns=(mtime_ns, mtime_ns))
                    if flush:
                        sync(target, os.fsync, writer)
                finally:
                    os.close(writer)
        finally:
            os.close(reader)

    def mtime_ms(self, path: str) -> int:
        with named_errors(path):
            return os.stat(path).st_mtime_ns // 1_000_000

    def set_mtime_ms(self, path: str, mtime_ms: int) -> None:
        with named_errors(path):
            os.utime(path, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))

    def can_write(self, folder: str) -> bool:
        probe = os.path.join(folder, ".probe")
        try:
            os.close(open_private(probe, os.O_CREAT | os.O_WRONLY))
            os.unlink(probe)
        except OSError as error:
            if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
                return False
            # a full disk is one that files can be made on, some day
            if error.errno not in NO_ROOM:
                raise storage_error(probe, error) from error
        return True

    def lock(self, path: str) -> RealLock:
        return RealLock(path, is_file=not os.path.isdir(path))

    def lock_dir(self, path: str) -> RealLock:
        return RealLock(path, is_file=False)


class ReadOnlyFileSystem(RealFileSystem):
    """The same, for those who only read.

    The files may be another user's, or on a disk that takes no writes.
    """

    def open(self, path: str, *, create: bool = False) -> RealFile:
        assert not create, "who only looks creates nothing"
        return RealFile(path, self._sealed_files, read_only=True)
