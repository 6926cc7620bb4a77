"""The metadata log's disk in a simulation: the real log and its snapshots, over a disk in memory.

The disk knows all records that were ever written, also those that only a snapshot has by now. So
each opening is compared with the fold of all of them. A start may find the newest of two snapshots
damaged, and a loss of power before it takes what the log has not fsynced.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from random import Random
from typing import Any

from raylog.actors.control import MetadataKept
from raylog.actors.levels import Levels
from raylog.actors.metadata_history import MetadataHistory
from raylog.actors.metadata_snapshot import MetadataSnapshot, snapshot_ids
from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.metadata_log import MetadataLog
from raylog.cluster.controller.records import Record, decode, encode
from raylog.storage.errors import DiskFull, RaylogError, StorageError
from raylog.storage.files import FileSystem
from raylog.storage.testing.clock import ManualClock
from raylog.storage.testing.memory import Fault, MemoryFileSystem, Survives
from tests.simulation.disks import CLUSTER_ID
from tests.simulation.invariants import expect
from tests.simulation.upgrades import NEW

PATH = "/metadata/log"
SNAPSHOT_BYTES = "metadata.log.max.record.bytes.between.snapshots"
# So many appends find room on a full disk.
RESERVE_PIECES = 4
# Of the operations of a save so many are done, at most, before its process ends.
MOST_OPERATIONS = 24
# How likely the newest snapshot is found damaged: by a start, and by a push.
DAMAGED_AT_START, ROT = 0.3, 0.02
# What of a save fails.
VERBS = "create", "append", "flush", "rename", "sync_dir", "remove"
SURVIVES: tuple[Survives, ...] = ("all", "flushed", "torn")
FAULTS: tuple[Fault, ...] = (DiskFull, lambda path: StorageError(path, "Input/output error"))


class MetadataDisk:
    """``appended`` hears of records that are about to be written, ``written`` of each that is.

    ``levels``: of the raylog that begins the cluster.
    """

    def __init__(
        self,
        appended: Callable[[Sequence[Record]], None],
        written: Callable[[Record], None],
        restored: Callable[[], None],
        *,
        levels: Levels,
        chance: Random,
        rot: Random,
    ) -> None:
        self._appended, self._written, self._restored = appended, written, restored
        self._levels, self._chance, self._rot = levels, chance, rot
        self.is_well = False  # from now on nothing fails
        self._disk = MemoryFileSystem()
        self._disk.make_dir("/metadata")
        self._disk.sync_dir("/")
        self._log: MetadataLog | None = None
        self._values: list[bytes] = []  # of all records, from the first one on
        self._history = MetadataHistory()  # of these
        self._backup: tuple[MemoryFileSystem, list[bytes]] | None = None
        self.fails_next = ""
        self.is_full = False
        self.reserve_pieces = 0
        self.generation = 0  # of the files, which a restore puts in the place of the old ones
        self.damaged = 0  # snapshots so far

    @property
    def was_restored(self) -> bool:
        return self.generation > 0

    def records(self) -> list[Record]:
        """All that were written, also those that only a snapshot has."""
        return [decode(value, NEW) for value in self._values]

    # -- lives of Controllers ----------------------------------------------------------------------

    def open(self) -> MetadataLog:
        """The log as the next Controller finds it; the process of the one before has ended."""
        if not self._values:
            self._log = MetadataLog(
                self._disk, ManualClock(), PATH, new_cluster=CLUSTER_ID, levels=self._levels
            )
            for value in self._log.values():
                self._keep(value)
                self._written(decode(value, NEW))
            return self._log
        contents, names = self._chance.choice(SURVIVES), self._chance.choice(SURVIVES)
        self._disk = self._disk.crash(contents, names=names, seed=self._chance.getrandbits(32))
        self._damage_newest(self._chance, DAMAGED_AT_START)
        self._log = MetadataLog(self._disk, ManualClock(), PATH, levels=NEW)
        self.check(self._log)
        return self._log

    def rots(self) -> None:
        """Now and then the newest snapshot is damaged while a Controller has the log open."""
        if not self.is_well:
            self._damage_newest(self._rot, ROT)

    def _damage_newest(self, chance: Random, likelihood: float) -> None:
        """Where another one is whole, or the log has all records."""
        folder = f"{PATH}/__cluster_metadata-0"
        found = snapshot_ids(self._disk.list_dir(folder))
        if len(found) < 2 or chance.random() < 1 - likelihood:
            return
        log = MetadataLog(self._disk.crash(), ManualClock(), PATH, levels=NEW)
        if log.damaged_snapshots():
            return
        self.damaged += 1
        path = f"{folder}/{found[0].file_name}"
        content = bytearray(self._disk.read_file(path))
        content[chance.randrange(len(content))] ^= 1
        self._disk.write_file(path, content)

    def check(self, log: MetadataLog) -> None:
        """It must be what all records add up to, as far as it goes."""
        whole, history = Desired(), MetadataHistory()
        for value in self._values[: log.end]:
            whole.apply(decode(value, NEW))
            history.add(value)
        is_same = _content(log.desired) == _content(whole)
        expect(is_same, "a log and its snapshot are another cluster than its records")
        is_same = log.history().digest_at(log.end) == history.digest_at(log.end)
        expect(is_same, "a log behind a snapshot has other digests than one with all records")

    # -- what a Controller does --------------------------------------------------------------------

    def append(
        self, records: Sequence[Record], *, may_use_reserve: bool
    ) -> tuple[RaylogError | None, DiskFull | None]:
        """All or none; the error where it failed, and why the reserve was given up.

        After a failed fsync they may be there or not.
        """
        assert self._log is not None
        failure, self.fails_next = self.fails_next, ""
        shortage = DiskFull(PATH) if self.is_full or failure == "full" else None
        if shortage is not None:
            if not (may_use_reserve and self.reserve_pieces):
                return shortage, None
            self.reserve_pieces -= 1
        try:
            self._log.append(records)
        except StorageError as error:  # since a save has failed
            return error, shortage
        self._appended(records)
        for record in records:
            self._keep(encode(record))
            self._written(record)
        unknown = StorageError(PATH, "an fsync failed") if failure == "fsync" else None
        return unknown, shortage

    def save(self, snapshot: MetadataSnapshot) -> tuple[str, ...]:
        """As ``MetadataLog.save``. Some fail, and in some the process ends: Stopped."""
        assert self._log is not None
        if self.is_full:
            raise DiskFull(PATH)
        match self._chance.randrange(6):
            case _ if self.is_well:
                pass
            case 0:
                done = self._chance.randint(0, MOST_OPERATIONS)
                self._disk.stop_at(self._disk.operations + done)
            case 1:
                fault, verb = self._chance.choice(FAULTS), self._chance.choice(VERBS)
                with self._disk.failing(fault, verb):
                    return self._log.save(snapshot)
        try:
            return self._log.save(snapshot)
        finally:
            self._disk.stop_at(sys.maxsize)

    def _keep(self, value: bytes) -> None:
        self._values.append(value)
        self._history.add(value)

    def has(self, kept: MetadataKept) -> bool:
        """Whether the records of a copy are those of the log, as far as the copy goes."""
        return self._history.digest_at(kept.end) == kept.digest

    def make_reserve(self) -> DiskFull | None:
        """Make it whole; returns why that cannot be done."""
        if self.is_full:
            return DiskFull(PATH)
        self.reserve_pieces = RESERVE_PIECES
        return None

    # -- what a person does ------------------------------------------------------------------------

    def back_up(self) -> None:
        self._backup = self._disk.crash(), list(self._values)

    def restore(self) -> None:
        """Put the older copy in place, if one was made."""
        if self._backup is not None:
            disk, values = self._backup
            self._disk, self._values = disk.crash(), list(values)
            self._history = MetadataHistory(self._values)
            self.generation += 1
            self._restored()


def _content(desired: Desired) -> dict[str, Any]:
    """What a fold says. An index may have an entry of nothing, where something was."""
    values = {field.name: getattr(desired, field.name) for field in fields(desired)}
    return {
        name: {key: of for key, of in value.items() if of != {}} if type(value) is dict else value
        for name, value in values.items()
    }


def opened_copy(fs: FileSystem, log_dir: str) -> MetadataLog:
    """The copy of the metadata in a log dir, as a Controller finds it that begins there."""
    return MetadataLog(fs, ManualClock(), log_dir, levels=NEW)
