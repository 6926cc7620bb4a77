"""What the offset index and the time index share: a file of fixed-size entries, rising in both columns.

The entries are held in memory as the file's own bytes and looked up by bisection; each new one is appended
to the file as it comes. (Kafka maps a preallocated file instead. We append, because a store into a mapped
page of a full disk kills the process, and because a file that is never longer than its entries has no zero
tail to distrust after a crash. The bytes of the entries are the same.)

The index holds nothing that the log does not: a damaged one is thrown away and rebuilt. So nothing here
repairs; it raises :class:`CorruptIndex`, and ``segment.py`` decides.
"""

from struct import Struct
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from raylog.storage.errors import CorruptIndex
from raylog.storage.files import File, FileSystem, write_atomically


class SparseIndex:
    """An index file. It is read when first used, and created when first written."""

    entry: ClassVar[Struct]
    # Slots kept free for the forced entry at roll or close.
    reserved: ClassVar[int] = 0

    def __init__(self, fs: FileSystem, path: str, base_offset: int, max_bytes: int) -> None:
        self.path, self.base_offset = path, base_offset
        self.max_entries = max_bytes // self.entry.size
        self._fs = fs
        self._file: File | None = None
        self._bytes: bytearray | None = None

    def __len__(self) -> int:
        return len(self._loaded()) // self.entry.size

    @property
    def is_full(self) -> bool:
        return len(self) >= self.max_entries - self.reserved

    def _loaded(self) -> bytearray:
        if self._bytes is None:
            content = self._fs.read_file(self.path) if self._fs.exists(self.path) else b""
            self._check(content)
            self._bytes = bytearray(content)
        return self._bytes

    def _check(self, content: bytes) -> None:
        """Raise CorruptIndex unless ``content`` is whole entries, rising in every column."""
        entries, rest = divmod(len(content), self.entry.size)
        if rest:
            raise CorruptIndex(self.base_offset, entries, f"{rest} bytes too many")
        for column in self._columns(content):
            falls = np.flatnonzero(column[1:] <= column[:-1])
            if len(falls):
                raise CorruptIndex(self.base_offset, int(falls[0]) + 1, "is not above the one before")
            if len(column) and column[0] < 0:
                raise CorruptIndex(self.base_offset, 0, "is negative")

    def _columns(self, content: bytes) -> list[NDArray[np.generic]]:
        raise NotImplementedError

    def create(self) -> None:
        """Make the file, empty."""
        self._file = self._fs.open(self.path, create=True)
        self._file.truncate(0)
        self._bytes = bytearray()

    def _append(self, entry: bytes) -> None:
        entries = self._loaded()
        if self._file is None:
            self._file = self._fs.open(self.path, create=True)
        self._file.append([entry])
        entries += entry

    def truncate(self, count: int) -> None:
        """Keep the first ``count`` entries."""
        entries, size = self._loaded(), count * self.entry.size
        if size < len(entries) and self._file is not None:
            self._file.truncate(size)
            del entries[size:]

    def replace(self, content: bytes) -> None:
        """Put ``content`` in the place of all entries, on disk too: the end of a rebuild."""
        self.close()
        write_atomically(self._fs, self.path, content)
        self._bytes = bytearray(content)

    def flush(self) -> None:
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
