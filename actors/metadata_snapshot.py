"""A snapshot of the metadata: what the records before an offset add up to, in a file of its own.

Beside the segments of the metadata log lie its last snapshots. Whoever has one needs none of the
records before its end::

    <log dir>/__cluster_metadata-0/
      00000000000000000120-0000000003.checkpoint    records 0 to 119, of epochs up to 3
      00000000000000000250-0000000004.checkpoint
      00000000000000000120.log ...

The name is Kafka's: the end offset in 20 digits, and the epoch in 10. The file is made of record
batches as those of the log are, each with its CRC; its records are numbered from 0::

    +--------+-------------------------------+--------+
    | header | the state, one value a record | footer |
    +--------+-------------------------------+--------+

    header  {kind: snapshot,     v: 1, cluster_id, end, digest, epochs: [[epoch, first]],
                                 ruled_from, copies_at, next_kafka_id}
    footer  {kind: snapshot-end, v: 1, count, digest}   of the values of the state

The values of the state are records of the metadata (``cluster/controller/records.py``), that of the
level first, so that a reader which does not know the level stops there. ``digest``, ``epochs`` and
the two offsets of the header are where a ``MetadataHistory`` goes on.

A file is whole when it has its name: it is written beside it, fsynced and renamed. What is damaged
later is told by the CRCs, the order of the records and the footer. Nothing here removes a damaged
file. Not its job: what the state is (``cluster/controller/snapshots.py``).

Source: ``Snapshots``, ``RecordsSnapshotWriter`` of Kafka; KIP-630.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

import msgpack

from raylog.actors.errors import NewerRecord
from raylog.actors.metadata_history import DIGEST_BYTES, EpochStart, HistoryPoint
from raylog.storage.errors import (
    CorruptCheckpoint,
    CorruptRecord,
    FileGone,
    OutOfResources,
    PlainBatchTooLarge,
    StorageError,
)
from raylog.storage.files import FileSystem, write_atomically
from raylog.storage.records.batch import read_header
from raylog.storage.records.decode import decode_records
from raylog.storage.records.encode import encode_records
from raylog.storage.records.scan import scan_batches

CHECKPOINT_SUFFIX = ".checkpoint"
VERSION = 1
# What to do about a damaged one while the metadata can be read all the same.
DAMAGED_TODO = (
    "check this disk (the kernel's log, smartctl), and replace it if it fails. Leave the files in "
    "__cluster_metadata-0 as they are: the damaged one is removed when two more snapshots are made"
)
# The values of one batch, so that no reader needs one as large as the whole state.
BATCH_BYTES = 1 << 20

_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class SnapshotId(NamedTuple):
    """Which snapshot it is. The highest is the newest.

    ``end``: so many records it stands for. ``epoch``: of the last Controller before.
    """

    end: int
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.end:020d}-{self.epoch:010d}{CHECKPOINT_SUFFIX}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataSnapshot:
    """``point``: where the history of the log goes on. ``values``: the state.

    ``next_kafka_id``: the lowest Kafka id that nobody ever had. The ids of what was removed are in
    no record of the state.
    """

    point: HistoryPoint
    next_kafka_id: int
    values: tuple[bytes, ...]

    @property
    def id(self) -> SnapshotId:
        return SnapshotId(self.point.end, self.point.latest_epoch)


# -- files -----------------------------------------------------------------------------------------


def snapshot_ids(names: Iterable[str]) -> list[SnapshotId]:
    """The snapshots among the files of a folder, the newest first."""
    matches = [_NAME.fullmatch(name) for name in names]
    found = [SnapshotId(int(match[1]), int(match[2])) for match in matches if match is not None]
    return sorted(found, reverse=True)


def write_snapshot(fs: FileSystem, folder: str, snapshot: MetadataSnapshot, now_ms: int) -> None:
    """Put it into the folder, whole on the disk when this returns. Raises StorageError."""
    path = os.path.join(folder, snapshot.id.file_name)
    write_atomically(fs, path, to_bytes(snapshot, now_ms))


def read_snapshot(fs: FileSystem, folder: str, which: SnapshotId) -> MetadataSnapshot:
    """Raises CorruptCheckpoint where it is damaged, NewerRecord where a newer raylog wrote it,
    and StorageError."""
    path = os.path.join(folder, which.file_name)
    return _read(fs.read_file(path), path, which)


def read_whole_file(fs: FileSystem, folder: str, which: SnapshotId) -> bytes:
    """The file of a snapshot that can be read. Raises as ``read_snapshot``."""
    path = os.path.join(folder, which.file_name)
    content = fs.read_file(path)
    _read(content, path, which)
    return content


def _read(content: bytes, path: str, which: SnapshotId) -> MetadataSnapshot:
    """The snapshot in a file of this name. Raises as ``from_bytes``."""
    snapshot = from_bytes(content, path)
    if snapshot.id != which:
        raise CorruptCheckpoint(path, f"it is the snapshot {snapshot.id.file_name}")
    return snapshot


class FoundSnapshots(NamedTuple):
    """``newest``: the newest that can be read, or None. ``damaged``: why newer ones cannot.

    ``proven_end``: so many records were fsynced before the newest one was made, damaged or not. Its
    name says it; Kafka's prove nothing.
    """

    newest: MetadataSnapshot | None
    damaged: tuple[str, ...] = ()
    proven_end: int = 0


def newest_snapshot(
    fs: FileSystem, folder: str, before: SnapshotId | None = None
) -> FoundSnapshots:
    """The newest snapshot in the folder that can be read. This only reads.

    ``before``: only those that are older than this one. Raises NewerRecord where a newer raylog
    wrote it, FileGone where it is removed meanwhile, and OutOfResources.
    """
    damaged: list[str] = []
    proven_end = 0
    for which in snapshot_ids(fs.list_dir(folder)):
        if before is not None and which >= before:
            continue
        try:
            newest = read_snapshot(fs, folder, which)
            return FoundSnapshots(newest, tuple(damaged), max(proven_end, which.end))
        except (FileGone, OutOfResources):
            raise
        except (CorruptCheckpoint, StorageError) as error:
            damaged.append(error.problem)
            if _check_snapshot(fs, folder, which) is not None:
                proven_end = max(proven_end, which.end)
    return FoundSnapshots(None, tuple(damaged), proven_end)


class CheckedSnapshot(NamedTuple):
    """A snapshot in a folder, as it was found.

    ``damage``: what is wrong with its bytes; empty if nothing. ``newer``: why only a newer raylog
    can say that; empty where this one can.
    """

    id: SnapshotId
    size_bytes: int
    damage: str = ""
    newer: str = ""

    @property
    def told(self) -> str:
        """The name of a damaged file, and what is wrong with it."""
        return f"{self.id.file_name}: {self.damage}"


def check_snapshots(fs: FileSystem, folder: str) -> list[CheckedSnapshot]:
    """Each snapshot in the folder, the oldest first; those of Kafka are left out. This only reads.

    Raises StorageError where the folder cannot be read, and OutOfResources.
    """
    checked: list[CheckedSnapshot] = []
    for which in reversed(snapshot_ids(fs.list_dir(folder))):
        with suppress(FileGone):  # who writes the metadata has removed it meanwhile
            found = _check_snapshot(fs, folder, which)
            if found is not None:
                checked.append(found)
    return checked


def _check_snapshot(fs: FileSystem, folder: str, which: SnapshotId) -> CheckedSnapshot | None:
    """None: it is Kafka's. Raises FileGone and OutOfResources."""
    path = os.path.join(folder, which.file_name)
    try:
        content = fs.read_file(path)
    except (FileGone, OutOfResources):
        raise
    except StorageError as error:
        return CheckedSnapshot(which, 0, damage=error.problem)
    checked = CheckedSnapshot(which, len(content))
    try:
        _read(content, path, which)
    except NewerRecord as error:
        return checked._replace(newer=error.why)
    except CorruptCheckpoint as error:
        return None if _is_kafkas(content) else checked._replace(damage=error.why)
    return checked


def _is_kafkas(content: bytes) -> bool:
    """Whether it begins with a control record, as Kafka's snapshots do, and none of raylog's."""
    return scan_batches(content, verify=True).end > 0 and read_header(content).is_control


def remove_older(fs: FileSystem, folder: str, oldest: SnapshotId) -> None:
    """Remove the snapshots that are older than ``oldest``, damaged or not. Raises StorageError."""
    for which in reversed(snapshot_ids(fs.list_dir(folder))):
        if which < oldest:
            fs.remove(os.path.join(folder, which.file_name))


def remove_newer(fs: FileSystem, folder: str, end: int) -> None:
    """Remove the snapshots of more than ``end`` records, damaged or not, but none of Kafka's.

    They are off the disk when this returns. Raises StorageError.
    """
    newer = [found.id for found in check_snapshots(fs, folder) if found.id.end > end]
    for which in newer:
        fs.remove(os.path.join(folder, which.file_name))
    if newer:
        fs.sync_dir(folder)


# -- bytes -----------------------------------------------------------------------------------------


def to_bytes(snapshot: MetadataSnapshot, now_ms: int) -> bytes:
    """The file of a snapshot. ``now_ms``: the time of its records."""
    content = bytearray()
    number = 0
    for values in _pieces((_header(snapshot), *snapshot.values, _footer(snapshot.values))):
        rows: Sequence[Any] = [(now_ms, None, value, ()) for value in values]
        content += encode_records(rows, base_offset=number)
        number += len(values)
    return bytes(content)


def from_bytes(content: bytes, path: str) -> MetadataSnapshot:
    """The snapshot in the bytes of a file. ``path``: of the file, for errors.

    Raises CorruptCheckpoint where it is damaged, NewerRecord where a newer raylog wrote it.
    """
    values = _values(content, path)
    if not values:
        raise CorruptCheckpoint(path, "its first record batch is damaged or cut off")
    header = _fields(values[0], "snapshot", path)
    if scan_batches(content, verify=True).end != len(content):
        raise CorruptCheckpoint(path, "a record batch of it is damaged or cut off")
    state = tuple(values[1:-1])
    footer = _fields(values[-1], "snapshot-end", path)
    if (footer.get("count"), footer.get("digest")) != (len(state), _digest(state)):
        raise CorruptCheckpoint(path, f"its footer is not that of its {len(state)} records")
    try:
        return MetadataSnapshot(
            point=_point(header), next_kafka_id=header["next_kafka_id"], values=state
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptCheckpoint(path, f"its header lacks something ({error!r})") from error


def _pieces(values: Iterable[bytes]) -> Iterator[list[bytes]]:
    piece: list[bytes] = []
    size_bytes = 0
    for value in values:
        if piece and size_bytes + len(value) > BATCH_BYTES:
            yield piece
            piece, size_bytes = [], 0
        piece.append(value)
        size_bytes += len(value)
    yield piece


def _header(snapshot: MetadataSnapshot) -> bytes:
    point = snapshot.point
    fields = {
        "kind": "snapshot",
        "v": VERSION,
        "cluster_id": point.cluster_id,
        "end": point.end,
        "digest": point.digest,
        "epochs": [list(start) for start in point.epochs],
        "ruled_from": point.ruled_from,
        "copies_at": point.copies_at,
        "next_kafka_id": snapshot.next_kafka_id,
    }
    return bytes(msgpack.packb(fields))


def _footer(values: Sequence[bytes]) -> bytes:
    fields = {
        "kind": "snapshot-end",
        "v": VERSION,
        "count": len(values),
        "digest": _digest(values),
    }
    return bytes(msgpack.packb(fields))


def _point(header: Mapping[str, Any]) -> HistoryPoint:
    return HistoryPoint(
        cluster_id=header["cluster_id"],
        end=header["end"],
        digest=header["digest"],
        epochs=tuple(EpochStart(epoch, first) for epoch, first in header["epochs"]),
        ruled_from=header["ruled_from"],
        copies_at=header["copies_at"],
    )


def _digest(values: Iterable[bytes]) -> bytes:
    made = blake2b(digest_size=DIGEST_BYTES)
    for value in values:
        made.update(len(value).to_bytes(8, "big") + value)
    return made.digest()


def _values(content: bytes, path: str) -> list[bytes]:
    """The values of the records in the whole batches at the beginning."""
    whole = memoryview(content)[: scan_batches(content, verify=True).end]
    try:
        records = decode_records(whole)
    except (CorruptRecord, PlainBatchTooLarge) as error:
        raise CorruptCheckpoint(path, str(error)) from error
    if [record.offset for record in records] != list(range(len(records))):
        raise CorruptCheckpoint(path, "records of it are missing, or in another order")
    return [record.value or b"" for record in records]


def _fields(value: bytes, kind: str, path: str) -> Mapping[str, Any]:
    """The fields of the header or the footer. Raises as ``from_bytes``."""
    try:
        fields = msgpack.unpackb(value)
    except ValueError as error:
        raise CorruptCheckpoint(path, f"it has no {kind} record ({error})") from error
    if not isinstance(fields, dict) or fields.get("kind") != kind:
        raise CorruptCheckpoint(path, f"it has no {kind} record where one must be")
    if fields.get("v") != VERSION:
        why = f"a newer raylog wrote a {kind!r} record of version {fields.get('v')}"
        raise NewerRecord(path, why)
    return fields
