"""Logs in memory of small segments: what recovery is tried on."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from raylog.storage.log import Log
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import Disk, batch_of_size
from raylog.storage.testing.memory import MemoryFile, Survives

SMALL: dict[str, Any] = {"segment_bytes": 1050, "index_interval_bytes": 150}
# The segments that ``written`` makes.
FIRST, SECOND, THIRD = (f"{base:020d}.log" for base in (0, 20, 40))

# What survives of contents, what of names, and a seed.
CRASHES: list[tuple[Survives, Survives, int]] = [
    ("all", "all", 0),
    ("flushed", "flushed", 0),
    ("flushed", "all", 0),
    ("all", "flushed", 0),
    ("torn", "torn", 1),
    ("flushed", "torn", 2),
]


def written(disk: Disk, batches: int = 20) -> Log:
    """Batches of 100 bytes with 2 records each, ten to a segment, a second apart."""
    log = disk.open(**SMALL)
    log.epochs.assign(0, 0)
    for number in range(batches):
        log.append(batch_of_size(100, 2, T0 + 1000 * number), leader_epoch=0)
    return log


def fill(disk: Disk, batches: int = 30) -> Log:
    """The same, and closed."""
    log = written(disk, batches)
    log.close()
    return log


def content(disk: Disk) -> dict[str, bytes]:
    """All files of the partition."""
    return {name: disk.read(name) for name in disk.names()}


@contextmanager
def counted_reads() -> Iterator[list[tuple[str, int, int]]]:
    """(path, position, size in bytes) of every read of an open file meanwhile."""
    reads: list[tuple[str, int, int]] = []
    read = MemoryFile.read

    def counted(self: MemoryFile, size_bytes: int, position: int) -> bytes:
        reads.append((self.path, position, size_bytes))
        return read(self, size_bytes, position)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryFile, "read", counted)
        yield reads
