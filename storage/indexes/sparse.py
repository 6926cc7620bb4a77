"""What the offset and time index share: a file of fixed-size entries that rise in both columns.

A sealed segment's index is mapped, and costs no memory but the page cache's. The active one's
entries are held as the file's own bytes; new ones are appended to the file some hundreds at a time,
and when the segment is sealed or closed. A crash loses those held back, and loses nothing by it:
the last segment's indexes are rebuilt after every crash. (Kafka writes through a mapped,
preallocated file. We append, because a store into a mapped page of a full disk kills the process,
and because a file that is never longer than its entries has no zero tail to distrust. The bytes of
the entries are the same.)

Lookups bisect, first in the last 8 KiB: readers near the log's end touch no other page. (A plain
bisection steps on pages all over the file, which are cold, and on others with every page that the
index grows.)

The index holds nothing that the log does not: a damaged one is thrown away and rebuilt. So nothing
here repairs; it raises :class:`CorruptIndex`, and ``segment.py`` decides.
"""

from contextlib import suppress
from struct import Struct
from typing import ClassVar, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from raylog.storage.errors import CorruptIndex, DiskFull, StorageError
from raylog.storage.files import File, FileSystem, write_atomically
from raylog.storage.records import kernel

Entries: TypeAlias = bytearray | memoryview

# Entries held back at most: a write of eight bytes would cost an append as much as a batch.
UNWRITTEN_BYTES = 4096
# The end of an index, in which most lookups end.
WARM_BYTES = 8192


class Column(NamedTuple):
    """Where a number stands in an entry, in bytes."""

    at: int
    size: int


class SparseIndex:
    """An index file. It is read when first used, and created when first written."""

    entry: ClassVar[Struct]
    # Slots kept free for the forced entry at roll or close.
    reserved: ClassVar[int] = 0

    def __init__(self, fs: FileSystem, path: str, base_offset: int, max_bytes: int) -> None:
        self.path, self.base_offset = path, base_offset
        self._full_bytes = (max_bytes // self.entry.size - self.reserved) * self.entry.size
        self._fs = fs
        self._file: File | None = None
        # The entries, once they were read. A reader puts them where it found none: if the owner has
        # others in their place meanwhile, that is another dict.
        self._held: dict[str, Entries] = {}
        self._written, self._unflushed = 0, False  # bytes, of entries that are held to be changed
        self._may_be_mapped = False  # the file, by a reader that still looks into it
        self.is_missing = False  # there was no file where one was looked for

    def __len__(self) -> int:
        return len(self._loaded()) // self.entry.size

    @property
    def size_bytes(self) -> int:
        """Bytes of all entries."""
        return len(self._loaded())

    @property
    def entries_left(self) -> int:
        """How many entries it takes until it is full."""
        return (self._full_bytes - len(self._loaded())) // self.entry.size

    @property
    def is_full(self) -> bool:
        return len(self._loaded()) >= self._full_bytes

    def _loaded(self) -> Entries:
        held = self._held
        if held:
            return held["entries"]
        entries = self._mapped_if_there(held)
        self._check(entries)
        return held.setdefault("entries", entries)

    def _hold(self, entries: bytearray) -> None:
        self._held = {"entries": entries}

    def _mapped_if_there(self, held: dict[str, Entries]) -> memoryview:
        self._may_be_mapped = True  # before: its owner may look at this meanwhile
        path = self.path
        try:
            self.is_missing = not self._fs.exists(path)
            return memoryview(b"") if self.is_missing else self._mapped(path)
        except StorageError:
            # else its owner has read it, too, and renamed it since
            if not held and self._fs.exists(path):
                raise
            return memoryview(b"")

    def check(self) -> None:
        """Raise CorruptIndex unless the file is whole entries, rising in every column.

        The file must be there. It is read, not mapped: of what a disk cannot read this is an error,
        not the end of the process.
        """
        self._check(memoryview(self._fs.read_file(self.path)))

    def _validate_rising(self) -> None:
        """Assert that the entries rise in every column."""
        for column in self._columns(memoryview(bytes(self._loaded()))):
            assert (column[1:] > column[:-1]).all(), f"{self.path}: its entries rise"

    def _mapped(self, path: str) -> memoryview:
        file = self._fs.open(path)
        try:
            return file.view()
        finally:
            file.close()

    @property
    def room(self) -> int:
        """How many entries can be added in memory, before a write, or before the last one."""
        size = self.entry.size
        entries = len(self._loaded())
        until_full = (self._full_bytes - entries) // size - 1
        until_write = (UNWRITTEN_BYTES - 1 - entries + self._written) // size
        return max(min(until_full, until_write), 0)

    def changeable(self) -> bytearray:
        """The entries in memory, to add to."""
        entries = self._loaded()
        if not isinstance(entries, bytearray):
            entries = bytearray(entries)
            self._written = len(entries)
            self._hold(entries)
        return entries

    def _check(self, content: memoryview) -> None:
        """Raise CorruptIndex unless ``content`` is whole entries, rising in every column."""
        self._check_size(len(content))
        for column in self._columns(content):
            falls = np.flatnonzero(column[1:] <= column[:-1])
            if len(falls):
                raise CorruptIndex(
                    self.base_offset, int(falls[0]) + 1, "it is not above the previous entry"
                )
            if len(column) and column[0] < 0:
                raise CorruptIndex(self.base_offset, 0, "it is negative")

    def _check_size(self, size_bytes: int) -> None:
        entries, rest = divmod(size_bytes, self.entry.size)
        if rest:
            raise CorruptIndex(self.base_offset, entries, f"the file has {rest} bytes too many")

    def _columns(self, content: memoryview) -> list[NDArray[np.integer]]:
        raise NotImplementedError

    def _count_up_to(self, entries: Entries, column: Column, wanted: int) -> int:
        """How many of ``entries`` have at most ``wanted`` in a column.

        Whoever goes on with the count takes these same entries: a truncation puts others in their
        place.
        """
        count: int = kernel.ops.count_up_to(
            entries, self.entry.size, column.at, column.size, wanted, WARM_BYTES
        )
        return count

    def create(self) -> None:
        """Make the file, empty."""
        self._opened().truncate(0)
        self._hold(bytearray())
        self._written, self._unflushed = 0, True

    def _opened(self) -> File:
        if self._file is None:
            self._file = self._fs.open(self.path, create=True)
        return self._file

    def _append(self, entry: bytes) -> None:
        entries = self.changeable()
        try:
            entries += entry
        except BufferError:  # somebody looks into these
            entries = bytearray().join((entries, entry))
            self._hold(entries)
        if len(entries) - self._written >= UNWRITTEN_BYTES:
            self.write()

    def write(self) -> None:
        """Write the entries that are held back. Only the log's one writer calls this."""
        entries = self._held.get("entries")
        if isinstance(entries, bytearray) and len(entries) > self._written:
            self._opened().append([bytes(entries[self._written :])])
            self._written, self._unflushed = len(entries), True

    def seal(self) -> None:
        """The index is complete: its file is open read-only from now on.

        The next flush, which has another owner, closes it.
        """
        file = self._file  # a flush may let it go meanwhile
        if file is not None:
            file.seal()

    def drop(self) -> None:
        """Hold no entry in memory any more: the sealed file is mapped when it is used.

        What a full disk has not taken stays.
        """
        entries = self._held.get("entries")
        if not isinstance(entries, bytearray) or len(entries) == self._written:
            self._held = {}

    def truncate(self, count: int) -> None:
        """Keep the first ``count`` entries."""
        entries, size = self._loaded(), count * self.entry.size
        if size >= len(entries):
            return
        written = len(entries) if isinstance(entries, memoryview) else self._written
        if size < written and self._may_be_mapped:
            self.replace(bytes(entries[:size]))
            return
        # a copy: readers may be looking into the other one
        self._hold(bytearray(entries[:size]))
        if size < written:
            self._opened().truncate(size)
            self._written, self._unflushed = size, True

    def replace(self, content: bytes) -> None:
        """Put ``content`` in the place of all entries, on disk too, in another file.

        The file that was there stays as it is for those who have it mapped: who touches a page
        that was cut away from under its map ends the process (SIGBUS).
        """
        self.release()
        self._written = 0
        self._hold(bytearray(content))
        try:
            write_atomically(self._fs, self.path, content)
        except DiskFull:
            self._fs.remove(self.path)  # the log must open, or its retention could never make space
            return
        self._written = len(content)
        self.is_missing = False

    def rewrite(self, content: bytes) -> None:
        """Put ``content`` in place of all entries.

        Recovery makes it, before there are readers. It is flushed with the rest.

        A crash before that may leave any part of it, and recovery, which then comes again, makes it
        again.
        """
        self.release()
        self._written = len(content)
        self._hold(bytearray(content))
        try:
            file = self._opened()
            if file.read(file.size, 0) != content:
                file.truncate(0)
                file.append([content])
            file.seal()
            self._unflushed = True
            self.is_missing = False
        except DiskFull:
            self.release()
            self._fs.remove(self.path)  # as in replace
            self._written = 0

    def flush(self) -> None:
        """Bring what was written to the disk; what is held back stays."""
        file = self._file
        if file is None or not self._unflushed:
            return
        self._unflushed = False  # before: a write beside this sets it again
        try:
            file.flush()
        except StorageError:
            self._unflushed = True
            raise
        is_dropped = not isinstance(self._held.get("entries"), bytearray)
        if is_dropped and not self._unflushed:
            self.release()  # nothing is written any more

    def close(self) -> None:
        """Write what is held back, unless the disk is full.

        An index may end before its segment does.
        """
        with suppress(DiskFull):
            self.write()
        self.release()

    def release(self) -> None:
        """Close the file as it is."""
        if self._file is not None:
            self._file.close()
            self._file = None
