"""What does not agree, found on the way through the files and told at the end, on standard error.

Kafka tells them kind by kind, and within a kind file by file: there in the order of a hash table,
here in the order of the files. Of an index and of a log the last finding comes first. Source:
``DumpLogSegments`` of Kafka.
"""

from collections.abc import Iterator

Pairs = dict[str, list[tuple[int, int]]]


class Findings:
    """Pairs of numbers that should agree, by the file's absolute path."""

    def __init__(self) -> None:
        self._index: Pairs = {}
        self._timestamps: Pairs = {}
        self._order: Pairs = {}
        self._missing: Pairs = {}
        self._gaps: Pairs = {}

    def index_mismatch(self, path: str, index_offset: int, log_offset: int) -> None:
        """An entry's offset is not the last one of the batch it points to."""
        self._index.setdefault(path, []).insert(0, (index_offset, log_offset))

    def timestamp_mismatch(self, path: str, index_timestamp: int, log_timestamp: int) -> None:
        """An entry's timestamp is not the largest of its batch."""
        self._timestamps.setdefault(path, []).append((index_timestamp, log_timestamp))

    def out_of_order(self, path: str, timestamp: int, previous: int) -> None:
        """An entry's timestamp is not above the one before."""
        self._order.setdefault(path, []).append((timestamp, previous))

    def offset_missing(self, path: str, index_offset: int, log_offset: int) -> None:
        """No batch ends with an entry's offset.

        ``log_offset`` is where the next batch ends, -1 if none does.
        """
        self._missing.setdefault(path, []).append((index_offset, log_offset))

    def gap(self, path: str, offset: int, following: int) -> None:
        """A record's offset is not one above the record's before."""
        self._gaps.setdefault(path, []).insert(0, (offset, following))

    def lines(self) -> Iterator[str]:
        """All of them, as Kafka's tool tells them."""
        yield from _lines(self._index, "Mismatches in :{}", "  Index offset: {}, log offset: {}")
        yield from _lines(
            self._timestamps,
            "Found timestamp mismatch in :{}",
            "  Index timestamp: {}, log timestamp: {}",
        )
        yield from _lines(
            self._order,
            "Found out of order timestamp in :{}",
            "  Index timestamp: {}, Previously indexed timestamp: {}",
        )
        yield from _lines(
            self._missing,
            "The following indexed offsets are not found in the log.",
            "Indexed offset: {}, found log offset: {}",
        )
        yield from _lines(self._gaps, "Non-consecutive offsets in {}", "  {} is followed by {}")


def _lines(pairs_by_path: Pairs, head: str, line: str) -> Iterator[str]:
    for path, pairs in pairs_by_path.items():
        yield head.format(path)
        for pair in pairs:
            yield line.format(*pair)
