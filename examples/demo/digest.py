"""What "the same records" means: one digest over a partition's records, in their order.

Five SHA-256 run along: over the keys' bytes, the keys' lengths, the values' bytes, the values'
lengths, and the timestamps. Lengths say where one record ends and the next begins, so two
partitions have one digest only if they hold the same records in the same order; how the records
were cut into batches does not matter. Whole Arrow buffers are hashed, never single records: it runs
at the speed of SHA-256.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from examples.demo.source import partitions_of


class Digest:
    """Counts and hashes the records of one partition."""

    def __init__(self) -> None:
        self.count = 0
        self.content_bytes = 0
        self._hashes = [hashlib.sha256() for _ in range(5)]

    def update(self, records: pa.RecordBatch | pa.Table) -> None:
        """Take in the next records: columns key, value, timestamp; no nulls."""
        for batch in records.to_batches() if isinstance(records, pa.Table) else [records]:
            self.count += batch.num_rows
            parts: list[Any] = [
                *_binary(batch.column("key")),
                *_binary(batch.column("value")),
                _times(batch.column("timestamp")),
            ]
            self.content_bytes += parts[0].nbytes + parts[2].nbytes
            for running, part in zip(self._hashes, parts, strict=True):
                running.update(part)

    def hexdigest(self) -> str:
        return hashlib.sha256(b"".join(running.digest() for running in self._hashes)).hexdigest()


def digest_of(batches: Iterable[pa.RecordBatch | pa.Table]) -> Digest:
    """The digest of all records of these batches."""
    digest = Digest()
    for batch in batches:
        digest.update(batch)
    return digest


def expected_digests(table: pa.Table, partitions: int) -> list[Digest]:
    """What each partition must hold after ``table`` was produced by key."""
    where = partitions_of(table.column("key"), partitions)
    return [digest_of([table.filter(pc.equal(where, number))]) for number in range(partitions)]


def agree(found: Sequence[Digest], expected: Sequence[Digest]) -> bool:
    return [d.hexdigest() for d in found] == [d.hexdigest() for d in expected]


def _binary(column: pa.Array) -> tuple[memoryview, np.ndarray]:
    """The bytes of a binary column as they lie in memory, and the lengths."""
    _, offsets, content = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    view = (
        memoryview(content or b"").cast("B")[ends[0] : ends[-1]] if len(ends) else memoryview(b"")
    )
    return view, np.ascontiguousarray(np.diff(ends))


def _times(column: pa.Array) -> np.ndarray:
    as_numbers = (
        column
        if column.type == pa.int64()
        else column.cast(pa.timestamp("ms", column.type.tz)).cast(pa.int64())
    )
    return np.ascontiguousarray(as_numbers.to_numpy(zero_copy_only=False))
