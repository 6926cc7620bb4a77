"""The aborted transactions of one segment, which read-committed readers must skip.

An entry is in the segment that holds the abort marker.

On disk (``<base offset>.txnindex``) an array of 34-byte entries, big-endian, in the order of their
markers::

    +------------+----------------+-----------------+-----------------+----------------------+
    | version: 0 | producer id    | first offset    | last offset:    | last stable offset   |
    | (2 bytes)  | (8)            | (8)             | the marker (8)  | after this abort (8) |
    +------------+----------------+-----------------+-----------------+----------------------+

The file exists only where something was aborted. Like the other indexes it holds nothing that the
log does not: recovery makes it again from the markers. But a lost entry is not noticed, and shows
aborted records to readers. So entries are only added at the end, or all are replaced in one step,
and a flush makes the file's name durable too. Source: ``TransactionIndex`` and ``AbortedTxn`` of
Kafka; KIP-98.
"""

import os
from bisect import bisect_left
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from raylog.storage.errors import CorruptIndex, StorageError
from raylog.storage.files import File, FileSystem, write_atomically

_ENTRY = Struct(">hqqqq")
_VERSION = 0


class AbortedTransaction(NamedTuple):
    """One producer's data from ``first_offset`` to its abort marker at ``last_offset``."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class Collected(NamedTuple):
    """What :meth:`TransactionIndex.collect` found.

    If it is not complete, the next segment may have more.
    """

    aborted: list[AbortedTransaction]
    is_complete: bool


def read_aborted(content: bytes, base_offset: int) -> tuple[AbortedTransaction, ...]:
    """The entries in a transaction index's bytes.

    A partial entry at the end is left out. Raises CorruptIndex.
    """
    whole = len(content) - len(content) % _ENTRY.size
    entries = []
    for number, (version, *fields) in enumerate(_ENTRY.iter_unpack(content[:whole])):
        if version != _VERSION:
            raise CorruptIndex(base_offset, number, f"it has the unknown version {version}")
        entry = AbortedTransaction(*fields)
        if entry.last_offset < base_offset:
            raise CorruptIndex(
                base_offset, number, f"it ends at offset {entry.last_offset}, before the segment"
            )
        entries.append(entry)
    return tuple(entries)


class TransactionIndex:
    """The aborted transactions of one segment. Read when first used.

    A file that was found damaged stays so until all entries are replaced: who looked for it under
    another name, and found none, would take aborted records for committed ones.

    One thread writes. Any number of threads may read meanwhile, without a lock: the list of entries
    only grows, or another list takes its place.
    """

    def __init__(self, fs: FileSystem, path: str, base_offset: int) -> None:
        self.path, self.base_offset = path, base_offset
        self._fs = fs
        self._file: File | None = None
        # The list, once it was read. Of two threads that read it at once both go on with the one
        # that comes first: the writer may add to it already.
        self._loaded: dict[str, list[AbortedTransaction]] = {}
        self._damage: CorruptIndex | None = None  # what its file was found to be
        self._is_name_flushed, self._unflushed = True, False

    @property
    def entries(self) -> tuple[AbortedTransaction, ...]:
        """All of them now, by marker. Raises CorruptIndex."""
        return tuple(self._load())

    def _load(self) -> list[AbortedTransaction]:
        loaded = self._loaded
        if loaded:
            return loaded["entries"]
        if self._damage is not None:
            raise self._damage
        try:
            entries = list(self._read())
        except CorruptIndex as damage:
            if not loaded:  # else its writer came first, and was adding to the file
                self._damage = damage
                raise
            entries = []
        return loaded.setdefault("entries", entries)

    def _read(self) -> tuple[AbortedTransaction, ...]:
        if not self._fs.exists(self.path):
            return ()
        content = self._fs.read_file(self.path)
        count, rest = divmod(len(content), _ENTRY.size)
        if rest or not count:
            raise CorruptIndex(
                self.base_offset,
                count,
                f"the file has {rest} bytes too many" if rest else "it is missing",
            )
        entries = read_aborted(content, self.base_offset)
        before = self.base_offset - 1
        for number, entry in enumerate(entries):
            self._check(number, entry, before)
            before = entry.last_offset
        return entries

    def _check(self, number: int, entry: AbortedTransaction, before: int) -> None:
        """Raise CorruptIndex for an entry that contradicts itself or the one before.

        The entry before ends at ``before``.
        """
        if entry.last_offset <= before:
            raise CorruptIndex(
                self.base_offset,
                number,
                f"it ends at offset {entry.last_offset}, not after {before}",
            )
        if entry.producer_id < 0 or not 0 <= entry.first_offset < entry.last_offset:
            raise CorruptIndex(
                self.base_offset, number, "its producer id or its offsets are invalid"
            )
        if not 0 <= entry.last_stable_offset <= entry.last_offset + 1:
            raise CorruptIndex(
                self.base_offset, number, "its last stable offset is after its marker"
            )

    def append(self, aborted: AbortedTransaction) -> None:
        """Add the next one; its marker must lie behind all others."""
        entries = self._load()
        assert not entries or aborted.last_offset > entries[-1].last_offset, "markers rise"
        if self._file is None:
            is_new = not self._fs.exists(self.path)
            self._file = self._fs.open(self.path, create=True)
            if is_new:
                self._is_name_flushed = False  # after: a flush beside this may have missed it
        assert self._file.size == len(entries) * _ENTRY.size, "the file has these entries"
        self._file.append([_ENTRY.pack(_VERSION, *aborted)])
        self._unflushed = True
        entries.append(aborted)

    def validate(self, next_offset: int) -> None:
        """Assert that the markers rise, and lie in a segment that ends before an offset."""
        markers = [entry.last_offset for entry in self._load()]
        assert markers == sorted(set(markers)), f"{self.path}: its markers rise"
        if markers:
            assert self.base_offset <= markers[0], f"{self.path}: begins at {markers[0]}"
            assert markers[-1] < next_offset, f"{self.path}: ends at {markers[-1]}"

    def collect(self, start_offset: int, end_offset: int) -> Collected:
        """Those that touch ``start_offset <= offset < end_offset``."""
        entries = self._load()
        first = bisect_left(entries, start_offset, key=lambda entry: entry.last_offset)
        collected = []
        for number in range(first, len(entries)):
            entry = entries[number]
            if entry.first_offset < end_offset:
                collected.append(entry)
            if entry.last_stable_offset >= end_offset:
                return Collected(collected, True)
        return Collected(collected, False)

    def truncate_to(self, offset: int) -> None:
        """Drop those whose marker lies at ``offset`` or behind."""
        entries = self._load()
        kept = [entry for entry in entries if entry.last_offset < offset]
        if kept != entries:
            self.replace(kept)

    def replace(self, entries: Sequence[AbortedTransaction]) -> None:
        """Put these in the place of all, in one step; without any, the file goes.

        It is on the disk when this returns.
        """
        self.release()
        if entries:
            content = b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries)
            write_atomically(self._fs, self.path, content)
        elif self._fs.exists(self.path):
            self._fs.remove(self.path)
            self._fs.sync_dir(os.path.dirname(self.path))
        self._loaded = {"entries": list(entries)}
        self._is_name_flushed = True

    def flush(self) -> None:
        file = self._file
        if file is not None and self._unflushed:
            self._unflushed = False  # before: an append beside this sets it again
            try:
                file.flush()
            except StorageError:
                self._unflushed = True
                raise
        if not self._is_name_flushed:
            self._is_name_flushed = True
            try:
                self._fs.sync_dir(os.path.dirname(self.path))
            except StorageError:
                self._is_name_flushed = False
                raise

    def seal(self) -> None:
        """The index is complete: its file is open read-only from now on."""
        if self._file is not None:
            self._file.seal()

    def release(self) -> None:
        """Close the file as it is."""
        if self._file is not None:
            self._file.close()
            self._file = None
