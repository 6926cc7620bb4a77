"""Kafka's checkpoint text files: offsets of many partitions in a log dir, leader epochs of one partition.

::

    0                      version
    2                      how many entries follow
    orders 0 10432         <topic> <partition> <offset>; in leader-epoch-checkpoint <epoch> <start offset>
    orders 1 998

They are written atomically (``files.write_atomically``). An empty file has no entries.
Source: ``CheckpointFile`` and ``OffsetCheckpointFile`` of Kafka.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import TypeVar

from raylog.storage.errors import CorruptCheckpoint
from raylog.storage.files import FileSystem, write_atomically
from raylog.storage.names import TopicPartition

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
VERSION = "0"

Entry = TypeVar("Entry")


def read_offsets(fs: FileSystem, path: str) -> dict[TopicPartition, int]:
    """The offsets by partition; none if there is no file. CorruptCheckpoint if it cannot be read."""

    def parse(words: list[str]) -> tuple[TopicPartition, int]:
        topic, partition, offset = words
        return TopicPartition(topic, int(partition)), int(offset)

    return dict(_read(fs, path, parse))


def write_offsets(fs: FileSystem, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace the file."""
    _write(
        fs, path, [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    )


def read_epochs(fs: FileSystem, path: str) -> list[tuple[int, int]]:
    """(epoch, start offset), rising in both."""

    def parse(words: list[str]) -> tuple[int, int]:
        epoch, start_offset = map(int, words)
        return epoch, start_offset

    epochs = _read(fs, path, parse)
    for older, newer in pairwise(epochs):
        if newer[0] <= older[0] or newer[1] < older[1]:
            raise CorruptCheckpoint(path, f"epoch {newer} does not follow {older}")
    return epochs


def write_epochs(fs: FileSystem, path: str, epochs: Iterable[tuple[int, int]]) -> None:
    """Replace the file."""
    _write(fs, path, [f"{epoch} {start_offset}" for epoch, start_offset in epochs])


def _read(fs: FileSystem, path: str, parse: Callable[[list[str]], Entry]) -> list[Entry]:
    if not fs.exists(path):
        return []
    try:
        lines = fs.read_file(path).decode().splitlines()
        if len(lines) < 2:
            if lines and lines[0] != VERSION:
                raise ValueError
            return []
        if lines[0] != VERSION:
            raise CorruptCheckpoint(path, f"version {lines[0]!r} is not {VERSION}")
        entries = [parse(line.split()) for line in lines[2:]]
        if len(entries) != int(lines[1]):
            raise CorruptCheckpoint(path, f"{len(entries)} entries where {lines[1]} are announced")
    except ValueError as error:
        raise CorruptCheckpoint(path, f"not a checkpoint file ({error})") from error
    return entries


def _write(fs: FileSystem, path: str, entries: list[str]) -> None:
    write_atomically(
        fs, path, "".join(f"{line}\n" for line in [VERSION, str(len(entries)), *entries]).encode()
    )
