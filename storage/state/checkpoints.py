"""Kafka's checkpoint text files.

They hold the offsets of many partitions in a log dir, or the leader epochs of one partition.

::

    0                      version
    2                      how many entries follow
    orders 0 10432         <topic> <partition> <offset>; of leader epochs <epoch> <start offset>
    orders 1 998

They are written atomically (``files.write_atomically``). A file without a count has no entries: so
Kafka begins one. One without its last line end was cut. Nothing else tells a number that was
damaged: the formats have no checksum. Source: ``CheckpointFile`` and ``OffsetCheckpointFile`` of
Kafka.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
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
ACCEPTED_LOSSES = "accepted-losses"  # ours, in Kafka's format: see ``losses.py``
VERSION = "0"
# Behind the name of a checkpoint file that was damaged, and is kept.
CORRUPT_SUFFIX = ".corrupt"

Entry = TypeVar("Entry")


def read_offsets(fs: FileSystem, path: str) -> dict[TopicPartition, int]:
    """The offsets by partition, none if there is no file.

    Raises CorruptCheckpoint if the file cannot be read.
    """
    entries = _read(fs, path, _parse_offset)
    offsets = dict(entries)
    if len(offsets) < len(entries):
        raise CorruptCheckpoint(path, "it lists a partition twice")
    return offsets


def has_no_count(fs: FileSystem, path: str) -> bool:
    """Whether a file ends before the number of its entries: Kafka begins so, and raylog never."""
    return fs.read_file(path).strip() in (b"", VERSION.encode())


def read_whole_lines(fs: FileSystem, path: str) -> dict[TopicPartition, int]:
    """Of a damaged file of offsets, what its whole lines tell.

    Left out are the last line if it was cut, and partitions that are listed twice. An offset that
    was changed into another one is not noticed.
    """
    version, *lines = fs.read_file(path).split(b"\n")
    if version != VERSION.encode():
        return {}
    entries: list[tuple[TopicPartition, int]] = []
    for line in lines[1:-1]:  # behind the last line end is a line that was cut, or nothing
        with suppress(ValueError):
            entries.append(_parse_offset(line.decode().split()))
    times = Counter(partition for partition, _ in entries)
    return {partition: offset for partition, offset in entries if times[partition] == 1}


def _parse_offset(words: list[str]) -> tuple[TopicPartition, int]:
    topic, partition, offset = words
    return TopicPartition(topic, _number(partition, 31)), _number(offset, 63)


def write_offsets(fs: FileSystem, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace the file."""
    _write(
        fs,
        path,
        [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())],
    )


def read_epochs(fs: FileSystem, path: str) -> list[tuple[int, int]]:
    """(epoch, start offset), rising in both."""

    def parse(words: list[str]) -> tuple[int, int]:
        epoch, start_offset = words
        return _number(epoch, 31), _number(start_offset, 63)

    epochs = _read(fs, path, parse)
    for older, newer in pairwise(epochs):
        if newer[0] <= older[0] or newer[1] < older[1]:
            raise CorruptCheckpoint(
                path, f"epoch {newer} follows {older}, but epochs and offsets must rise"
            )
    return epochs


def write_epochs(fs: FileSystem, path: str, epochs: Iterable[tuple[int, int]]) -> None:
    """Replace the file."""
    _write(fs, path, [f"{epoch} {start_offset}" for epoch, start_offset in epochs])


def read_losses(fs: FileSystem, path: str) -> list[tuple[int, int]]:
    """(first offset, end offset) of the ranges that were accepted as lost, in the file's order."""

    def parse(words: list[str]) -> tuple[int, int]:
        first_offset, end_offset = words
        return _number(first_offset, 63), _number(end_offset, 63)

    return _read(fs, path, parse)


def write_losses(fs: FileSystem, path: str, losses: Iterable[tuple[int, int]]) -> None:
    """Replace the file."""
    _write(fs, path, [f"{first_offset} {end_offset}" for first_offset, end_offset in losses])


def _read(fs: FileSystem, path: str, parse: Callable[[list[str]], Entry]) -> list[Entry]:
    if not fs.exists(path):
        return []
    try:
        text = fs.read_file(path).decode()
        lines = text.splitlines()
        if lines and lines[0] != VERSION:
            raise CorruptCheckpoint(path, f"its version is {lines[0]!r}, not {VERSION}")
        if len(lines) < 2:
            return []
        if not text.endswith("\n"):
            raise CorruptCheckpoint(path, "its last line is incomplete")
        entries = [parse(line.split()) for line in lines[2:]]
        if len(entries) != int(lines[1]):
            raise CorruptCheckpoint(
                path, f"it has {len(entries)} entries, but its header says {lines[1]}"
            )
    except ValueError as error:
        raise CorruptCheckpoint(path, f"not a checkpoint file ({error})") from error
    return entries


def _number(text: str, bits: int) -> int:
    """A count that the file may hold.

    int() alone also takes signs, underscores and digits of other alphabets.
    """
    number = int(text)
    if str(number) != text or not -1 <= number < 2**bits:
        raise ValueError(f"{text!r} is not a number of {bits} bits")
    return number


def _write(fs: FileSystem, path: str, entries: list[str]) -> None:
    write_atomically(
        fs, path, "".join(f"{line}\n" for line in [VERSION, str(len(entries)), *entries]).encode()
    )
