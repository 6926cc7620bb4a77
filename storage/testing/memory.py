"""A FileSystem in memory, with a page cache that a loss of power takes away, and faults on demand.

Every file has two contents and every folder two lists of names: what a process sees, and what a
disk has for sure. ``flush`` carries a file's content over, ``sync_dir`` a folder's names. Nothing
else does, so code that forgets one of them loses here what a real disk loses only on a bad day::

    append, truncate, write_file    -> content seen      --flush-->     content on disk
    open, rename, remove, make_dir  -> names seen        --sync_dir-->  names on disk

A flush that fails does what Linux does: the bytes that it could not write count as written from
then on. Everybody still reads them, no later flush writes them, and ``drop_cache`` shows what the
disk has in their place (zero bytes, where nothing was written before).

:meth:`MemoryFileSystem.crash` makes the file system that the next process finds. What was never
flushed may survive whole (a process was killed), not at all, or as a prefix that ends anywhere; of
the changes to a folder's names all, none or the first few, since file systems journal them in
order. One stopped file system can be crashed many times, in different ways. What survives whole is
as it was, on its way to the disk: the next loss of power may take it.

``size_bytes`` makes it a disk that can be full: what would be more raises DiskFull.

Every change is an *operation* and is counted. ``stop_at`` ends the process before its n-th
operation (it raises :class:`Stopped`, and so does everything after it); ``fail_at`` lets the n-th
fail with an error, and ``failing`` every one for a while. Reads are counted apart:
``fail_read_at`` makes a sector bad.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Literal, Self

from raylog.storage.buffers import Buffer
from raylog.storage.errors import (
    DiskFull,
    FileGone,
    LogClosed,
    LogLocked,
    RaylogError,
    SegmentDeleted,
    StorageError,
)
from raylog.storage.files import FileStat, Room
from raylog.storage.testing.clock import T0

TOTAL_BYTES = 1 << 40
Survives = Literal["all", "flushed", "torn"]
Fault = Callable[[str], RaylogError]


class Stopped(BaseException):
    """The process has ended here. No ``except Exception`` catches it, as none catches SIGKILL."""


class Content:
    """A file: what is seen of it, and what is on the disk."""

    def __init__(self, inode: int, mtime_ms: int) -> None:
        self.inode, self.mtime_ms = inode, mtime_ms
        self.seen = bytearray()
        # What a loss of power leaves for sure.
        self.on_disk = b""
        # Up to here both agree and have agreed since the last flush.
        self.stable_bytes = 0
        # What the disk has in the place of the bytes that no flush need write any more.
        self._written = bytearray()

    def flush(self) -> None:
        self._written += self.seen[len(self._written) :]
        self.on_disk, self.stable_bytes = bytes(self._written), len(self.seen)

    def fail_flush(self) -> None:
        """No later flush writes what this one could not."""
        self._written += bytes(len(self.seen) - len(self._written))

    def drop_cache(self) -> None:
        self.seen[: len(self._written)] = self._written

    def truncate(self, size_bytes: int) -> None:
        del self.seen[size_bytes:]
        del self._written[size_bytes:]
        self.stable_bytes = min(self.stable_bytes, size_bytes)

    def after_crash(self, survives: Survives, random: Random) -> "Content":
        """The file that the next process finds."""
        content = Content(self.inode, self.mtime_ms)
        on_its_way = self._written + self.seen[len(self._written) :]
        if survives == "all":
            content.seen[:] = self.seen
            content._written[:] = self._written
            content.on_disk, content.stable_bytes = self.on_disk, self.stable_bytes
            return content
        if survives == "torn" and on_its_way != self.on_disk:
            content.seen[:] = on_its_way[: random.randint(self.stable_bytes, len(on_its_way))]
        else:
            content.seen[:] = self.on_disk
        content.flush()
        return content


class Folder:
    """A folder: the names that are seen in it, and those that are on the disk."""

    def __init__(self) -> None:
        self.seen: dict[str, Content | Folder] = {}
        # What the disk may have: as of the last sync, and after each change since.
        self.history: list[dict[str, Content | Folder]] = [{}]

    def changed(self) -> None:
        self.history.append(dict(self.seen))

    def sync(self) -> None:
        self.history = [dict(self.seen)]

    def used_bytes(self) -> int:
        """Of all files in it."""
        return sum(
            node.used_bytes() if isinstance(node, Folder) else len(node.seen)
            for node in self.seen.values()
        )

    def after_crash(
        self, survives: Survives, names: Survives, random: Random, found: "Successors"
    ) -> "Folder":
        """The folder that the next process finds, with all that is in it."""

        def successor(node: Content | Folder) -> Content | Folder:
            if node not in found:
                found[node] = (
                    node.after_crash(survives, names, random, found)
                    if isinstance(node, Folder)
                    else node.after_crash(survives, random)
                )
            return found[node]

        folder = Folder()
        for name, node in self._surviving(names, random).items():
            folder.seen[name] = successor(node)
        folder.sync()
        if names == "all":
            folder.history = [
                {name: successor(node) for name, node in listing.items()}
                for listing in self.history
            ]
        return folder

    def _surviving(self, names: Survives, random: Random) -> "dict[str, Content | Folder]":
        if names == "all":
            return self.seen
        if names == "flushed":
            return self.history[0]
        return random.choice(self.history)


Successors = dict[Content | Folder, Content | Folder]


class MemoryFileSystem:
    """See the module's head."""

    def __init__(self, root: Folder | None = None, next_inode: int = 1) -> None:
        self._root = root or Folder()
        self._next_inode = next_inode
        self._locked: set[str] = set()
        self.now_ms = T0  # the mtime of files written from now on
        self.is_read_only = False
        self.shared: set[str] = set()  # paths at which others may look; only is_private() tells
        self.usable_bytes = TOTAL_BYTES  # what room() answers; only that
        self.size_bytes: int | None = None  # of all files together; None: there is always room
        self.log: list[str] = []  # every operation so far, as "verb path"
        self._stop_at: int | None = None
        self._faults: dict[int, Fault] = {}
        self._fault_everywhere: Fault | None = None
        self._faulty_verb = self._faulty_root = ""
        self.reads = 0  # of files, so far
        self._bad_read: tuple[int, Fault] | None = None
        self._bad_path = ""

    # -- crashes and faults ------------------------------------------------------------------------

    @property
    def operations(self) -> int:
        """How many changes were made."""
        return len(self.log)

    def stop_at(self, operation: int) -> None:
        """End the process before its n-th operation from the beginning on, counting from 0."""
        self._stop_at = operation

    def fail_at(self, operation: int, fault: Fault) -> None:
        """Let the n-th operation fail with ``fault(path)``, once."""
        self._faults[operation] = fault

    def fail_read_at(self, number: int, fault: Fault) -> None:
        """Let the n-th read fail, counting from 0, and every later one of the same file."""
        self._bad_read = number, fault

    def look(self, path: str) -> None:
        """Count a read that is about to happen."""
        number = self.reads
        self.reads += 1
        if self._bad_read is None:
            return
        first, fault = self._bad_read
        if number == first:
            self._bad_path = path
        if path == self._bad_path:
            raise fault(path)

    @contextmanager
    def failing(self, fault: Fault, verb: str = "", under: str = "") -> Iterator[None]:
        """Let every operation fail with ``fault(path)``, or some of them.

        These are the operations of one kind ("append" where a disk is full), or those on paths
        ``under`` a folder (whose disk it is).
        """
        self._fault_everywhere, self._faulty_verb, self._faulty_root = fault, verb, under
        try:
            yield
        finally:
            self._fault_everywhere = None

    def crash(self, survives: Survives = "all", *, names: Survives = "all", seed: int = 0) -> Self:
        """The file system that the next process finds; this one stays as it is.

        ``survives``: what of the contents never flushed survives: "all", none ("flushed"), or of
        each file a prefix of random length ("torn"). ``names``: the same of changes to names that
        were never synced.
        """
        found = type(self)(
            self._root.after_crash(survives, names, Random(seed), {}), self._next_inode
        )
        found.size_bytes = self.size_bytes
        return found

    def change(self, verb: str, path: str) -> None:
        """Count an operation that is about to happen; it may end here."""
        number = len(self.log)
        if self._stop_at is not None and number >= self._stop_at:
            raise Stopped(f"before operation {number}: {verb} {path}")
        self.log.append(f"{verb} {path}")
        fault = self._faults.pop(number, None)
        if self._faulty_verb in ("", verb) and path.startswith(self._faulty_root):
            fault = fault or self._fault_everywhere
        if fault is not None:
            raise fault(path)

    # -- the protocol ------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> "MemoryFile":
        if create and not self.exists(path):
            self.change("create", path)
            self._put(path, self._new_content())
        return MemoryFile(self, path, self._content(path))

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def is_dir(self, path: str) -> bool:
        return isinstance(self._find(path), Folder)

    def list_dir(self, path: str) -> list[str]:
        return sorted(self._folder(path).seen)

    def make_dir(self, path: str) -> None:
        if self.is_dir(path):
            return
        if self.exists(path):
            raise StorageError(path, "File exists")
        parent = os.path.dirname(path)
        if parent != path:
            self.make_dir(parent)
        self.change("make_dir", path)
        self._put(path, Folder())

    def remove(self, path: str) -> None:
        if self.exists(path):
            self.change("remove", path)
            self._content(path)
            self._put(path, None)

    def remove_dir(self, path: str) -> None:
        if not self.is_dir(path):
            return
        for name in self.list_dir(path):
            child = os.path.join(path, name)
            self.remove_dir(child) if self.is_dir(child) else self.remove(child)
        self.change("remove_dir", path)
        self._put(path, None)

    def rename(self, source: str, target: str) -> None:
        node = self._find(source)
        if node is None:
            raise FileGone(source)
        self.change("rename", source)
        del self._parent(source).seen[os.path.basename(source)]
        self._put(target, node)

    def read_file(self, path: str) -> bytes:
        self.look(path)
        return bytes(self._content(path).seen)

    def write_file(self, path: str, content: Buffer, *, flush: bool = True) -> None:
        file = self.open(path, create=True)
        if file.size:
            file.truncate(0)
        if content:
            file.append([content])
        if flush:
            file.flush()

    def sync_dir(self, path: str) -> None:
        folder = self._folder(path)
        self.change("sync_dir", path)
        folder.sync()

    def real_path(self, path: str) -> str:
        return os.path.normpath(path)

    def stat(self, path: str) -> FileStat | None:
        node = self._find(path)
        return (
            FileStat(node.inode, len(node.seen), node.mtime_ms)
            if isinstance(node, Content)
            else None
        )

    def is_private(self, path: str) -> bool:
        if not self.exists(path):
            raise FileGone(path)
        return path not in self.shared

    def room(self, path: str) -> Room:
        if self.size_bytes is None:
            return Room(TOTAL_BYTES, self.usable_bytes)
        return Room(self.size_bytes, max(0, self.size_bytes - self._root.used_bytes()))

    def take_room(self, path: str, size_bytes: int) -> None:
        """Raise DiskFull unless a file may grow by so much."""
        if self.size_bytes is not None and self.room(path).usable_bytes < size_bytes:
            raise DiskFull(path)

    def copy_file(
        self, source: str, target: str, copied: Callable[[int], None], *, flush: bool
    ) -> None:
        content, mtime_ms = self.read_file(source), self.mtime_ms(source)
        self.write_file(target, content, flush=flush)
        self.set_mtime_ms(target, mtime_ms)
        copied(len(content))

    def mtime_ms(self, path: str) -> int:
        return self._content(path).mtime_ms

    def set_mtime_ms(self, path: str, mtime_ms: int) -> None:
        self._content(path).mtime_ms = mtime_ms

    def can_write(self, folder: str) -> bool:
        return not self.is_read_only

    def lock(self, path: str) -> "MemoryLock":
        is_file = not self.is_dir(path)
        if path in self._locked:
            raise LogLocked(os.path.dirname(path) if is_file else path)
        if is_file:
            self.open(path, create=True)
        self._locked.add(path)
        return MemoryLock(self, path, is_file)

    def lock_dir(self, path: str) -> "MemoryLock":
        if not self.is_dir(path):
            raise FileGone(path)
        return self.lock(path)

    def unlock(self, path: str) -> None:
        self._locked.discard(path)

    # -- nodes -------------------------------------------------------------------------------------

    def _new_content(self) -> Content:
        self._next_inode += 1
        return Content(self._next_inode, self.now_ms)

    def _put(self, path: str, node: Content | Folder | None) -> None:
        """Give a name to a file or folder, or take it away."""
        folder = self._parent(path)
        if node is None:
            del folder.seen[os.path.basename(path)]
        else:
            folder.seen[os.path.basename(path)] = node
        folder.changed()

    def _find(self, path: str) -> Content | Folder | None:
        node: Content | Folder | None = self._root
        for name in filter(None, path.split("/")):
            node = node.seen.get(name) if isinstance(node, Folder) else None
        return node

    def _folder(self, path: str) -> Folder:
        node = self._find(path)
        if node is None:
            raise FileGone(path)
        if not isinstance(node, Folder):
            raise StorageError(path, "Not a directory")
        return node

    def _parent(self, path: str) -> Folder:
        return self._folder(os.path.dirname(path))

    def _content(self, path: str) -> Content:
        node = self._find(path)
        if node is None:
            raise FileGone(path)
        if not isinstance(node, Content):
            raise StorageError(path, "Is a directory")
        return node


class OpenMemoryFile:
    """A reference to a file's content."""

    def __init__(self, fs: MemoryFileSystem, path: str, content: Content) -> None:
        self._fs, self._path, self._content = fs, path, content
        self.inode = content.inode

    def fileno(self) -> int:
        return -1

    def read(self, size_bytes: int, position: int) -> bytes:
        self._fs.look(self._path)
        return bytes(self._content.seen[position : position + size_bytes])

    def read_into(self, buffer: bytearray | memoryview, position: int) -> int:
        piece = self.read(len(buffer), position)
        buffer[: len(piece)] = piece
        return len(piece)


class MemoryFile:
    """An open file; it outlives its name."""

    def __init__(self, fs: MemoryFileSystem, path: str, content: Content) -> None:
        self._fs, self.path, self._content = fs, path, content
        self.inode = content.inode
        self._closed: type[LogClosed | SegmentDeleted] | None = None

    @property
    def size(self) -> int:
        return len(self._content.seen)

    @size.setter
    def size(self, size_bytes: int) -> None:
        raise AssertionError("a file's size follows from its content")

    def opened(self) -> OpenMemoryFile:
        return OpenMemoryFile(self._fs, self.path, self._open_content())

    def _open_content(self) -> Content:
        if self._closed is not None:
            raise self._closed(self.path)
        return self._content

    def append(self, buffers: Sequence[Buffer]) -> None:
        content = self._open_content()
        self._fs.change("append", self.path)
        self._fs.take_room(self.path, sum(map(len, buffers)))
        content.seen += b"".join(buffers)
        content.mtime_ms = self._fs.now_ms

    def append_stamped(self, stamp: bytes, batch: Buffer) -> None:
        self.append([stamp, memoryview(batch)[len(stamp) :]])

    def read(self, size_bytes: int, position: int) -> bytes:
        return self.opened().read(size_bytes, position)

    def read_into(self, buffer: bytearray | memoryview, position: int) -> int:
        return self.opened().read_into(buffer, position)

    def view(self) -> memoryview:
        content = self._open_content()
        self._fs.look(self.path)
        return memoryview(bytes(content.seen))

    def truncate(self, size_bytes: int) -> None:
        content = self._open_content()
        self._fs.change("truncate", self.path)
        content.truncate(size_bytes)

    def allocate(self, size_bytes: int) -> None:
        self._open_content()
        self._fs.change("allocate", self.path)

    def flush(self) -> None:
        content = self._open_content()
        try:
            self._fs.change("flush", self.path)
        except StorageError:
            content.fail_flush()
            raise
        content.flush()

    def drop_cache(self) -> None:
        self._open_content().drop_cache()

    def seal(self) -> None:
        """A file in memory has no descriptor to save."""

    def rename(self, target: str) -> None:
        self._fs.rename(self.path, target)
        self.path = target

    def close(self) -> None:
        self._closed = self._closed or LogClosed

    def remove(self) -> None:
        self._closed = self._closed or SegmentDeleted
        self._fs.remove(self.path)


class MemoryLock:
    """A lock of a MemoryFileSystem. The next process finds none: locks end with their process."""

    def __init__(self, fs: MemoryFileSystem, path: str, is_file: bool) -> None:
        self._fs = fs
        self._path = path
        self._is_file = is_file
        self._is_held = True

    def release(self) -> None:
        try:
            if self._is_held and self._is_file:
                self._fs.remove(self._path)
        except StorageError:
            pass  # its disk is gone; it is unlocked all the same
        self._fs.unlock(self._path)
        self._is_held = False
