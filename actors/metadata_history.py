"""What tells two copies of the metadata log apart: digests of its records, and its Controllers.

The digest at a record is that of all records up to it, so two copies with the same digest at the
same record agree on everything before it. The epochs say where each Controller began::

    record   0        1             2      3      4             5
             cluster  controller 1  topic  topic  controller 2  topic
    epochs            1, 1                        2, 4

One Controller has an epoch, and writes its records in one order. So of two copies that both have an
epoch, one has all records of that epoch that the other has. Two that end apart have parted where
the last epoch that both have ends in one of them (KIP-101). If the digests differ there, two
Controllers have had one epoch.

**Eras.** A person may have a cluster go on without what a lost node has: that node's last
Controllers can have gone on alone, and nobody knows how high their epochs are. So such a history
begins in the next *era*: at the next multiple of ``ERA_EPOCHS``, which the Controllers of the era
before never reach. Then it outranks what comes back, and who keeps a copy can tell what was given
up by a person from the end of a lost Controller, which never counted::

    lost node    1 2 3 4 5                      era 0
    restored     1 2 10000 10001 10002          era 1: all of it is newer than epoch 5

**Without the first records.** From the record behind that of level CHAINED_LEVEL on, a digest is
made of the one before and the record, and of nothing else. So a history can go on from a point that
a snapshot has noted (``HistoryPoint``), and its digests are those of who has all records. What lies
before the point it does not know. At a lower level a digest is made of all records at once, as an
older raylog makes it.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgpack

from raylog.actors.levels import CHAINED_LEVEL
from raylog.storage.errors import CorruptRecord
from raylog.storage.log_dir import METADATA_PARTITION
from raylog.storage.wire import message

# Bytes of the digest of each record.
DIGEST_BYTES = 8
# Of the records before the first Controller that had an epoch: an older raylog wrote them.
OLD_EPOCH = 0
# The epochs of an era. One is written for each life of a Controller, at most one in seconds. Config
# versions and producer ids are numbers of 63 bits with the epoch above 32 and 40 of them, so there
# are 2^23 epochs: 838 eras.
ERA_EPOCHS = 10_000


@message
class EpochStart(NamedTuple):
    """A Controller's epoch, and the number of its first record in the log."""

    epoch: int
    first: int


class HistoryPoint(NamedTuple):
    """Where a history goes on, for who has not the records before.

    ``end``: how many these are. ``digest``: of all of them. ``ruled_from``, ``copies_at``: the
    numbers of the first and the last record that says which copies are in sync; -1 for none.
    """

    cluster_id: str
    end: int
    digest: bytes
    epochs: tuple[EpochStart, ...] = ()
    ruled_from: int = -1
    copies_at: int = -1

    @property
    def latest_epoch(self) -> int:
        """Of the last Controller."""
        return self.epochs[-1].epoch if self.epochs else OLD_EPOCH


class MetadataHistory:
    """The records of one copy, from the first one on, or from ``begin``. 8 bytes of each are kept.

    ``cluster_id``: of the cluster whose metadata it is; empty while it has no record.
    ``size_bytes``: of the values of the records from ``begin`` on.
    ``ruled_from``, ``copies_at``: as of ``HistoryPoint``. ``is_chained``: whether it can be gone on
    with from its end by who has only that point.
    """

    def __init__(self, values: Iterable[bytes] = (), begin: HistoryPoint | None = None) -> None:
        """``values``: of the records from ``begin`` on."""
        point = begin or HistoryPoint(cluster_id="", end=0, digest=b"")
        self.begin = point
        self.cluster_id = point.cluster_id
        self.ruled_from, self.copies_at = point.ruled_from, point.copies_at
        self.is_chained = begin is not None
        self.size_bytes = 0
        self._hash = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self._digests = bytearray()
        self._epochs = list(point.epochs)
        for value in values:
            self.add(value)

    def add(self, value: bytes) -> None:
        """One more record: its value in the log. Raises CorruptRecord where it is none."""
        try:
            fields = msgpack.unpackb(value)
            is_chaining = self._note(fields)
        except (KeyError, TypeError, ValueError) as error:
            why = f"record {self.end} is none of the metadata ({error!r})"
            raise CorruptRecord(str(METADATA_PARTITION), why) from error
        if self.is_chained:
            self._hash = hashlib.blake2b(self.digest_at(self.end), digest_size=DIGEST_BYTES)
        self._hash.update(len(value).to_bytes(8, "big") + value)
        self._digests += self._hash.digest()
        self.size_bytes += len(value)
        self.is_chained = self.is_chained or is_chaining

    def _note(self, fields: Mapping[str, Any]) -> bool:
        """Keep what a record says; returns whether the digests behind it are chained."""
        kind = fields["kind"]
        if kind == "cluster":
            self.cluster_id = fields["id"]
        elif kind == "controller":
            self._epochs.append(EpochStart(fields["epoch"], self.end))
        elif kind == "copies":
            self.copies_at = self.end
            if self.ruled_from < 0:
                self.ruled_from = self.end
        elif kind == "level":
            return bool(fields["level"] >= CHAINED_LEVEL)
        return False

    @property
    def start(self) -> int:
        """How many records come before those that it knows."""
        return self.begin.end

    @property
    def end(self) -> int:
        """How many records there are."""
        return self.start + len(self._digests) // DIGEST_BYTES

    @property
    def digests(self) -> bytes:
        """At each record that it knows, in order."""
        return bytes(self._digests)

    @property
    def epochs(self) -> tuple[EpochStart, ...]:
        """Where each Controller began, the oldest first."""
        return tuple(self._epochs)

    @property
    def latest_epoch(self) -> int:
        """Of the last Controller."""
        return self._epochs[-1].epoch if self._epochs else OLD_EPOCH

    def digest_at(self, end: int) -> bytes:
        """Of the first ``end`` records; empty where it does not know it."""
        if end == self.start:
            return self.begin.digest
        place = max(0, end - self.start) * DIGEST_BYTES
        return bytes(self._digests[max(0, place - DIGEST_BYTES) : place])

    def has(self, point: HistoryPoint) -> bool:
        """Whether it has all records before a point, as far as it knows them."""
        is_known = self.start <= point.end <= self.end
        return is_known and self.digest_at(point.end) == point.digest

    def point(self) -> HistoryPoint:
        """Its end, for who goes on there; it must be chained."""
        assert self.is_chained, "its digests are made of all records"
        return HistoryPoint(
            cluster_id=self.cluster_id,
            end=self.end,
            digest=self.digest_at(self.end),
            epochs=self.epochs,
            ruled_from=self.ruled_from,
            copies_at=self.copies_at,
        )


def epoch_at(epochs: Sequence[EpochStart], record: int) -> int:
    """The epoch of the Controller that wrote the record with this number."""
    place = bisect_right(epochs, record, key=lambda start: start.first)
    return epochs[place - 1].epoch if place else OLD_EPOCH


def era_of(epoch: int) -> int:
    """The era of an epoch: 0, until a person has given up what a lost node may have."""
    return max(epoch, 0) // ERA_EPOCHS


def next_era(epoch: int) -> int:
    """The first epoch of the era behind that of ``epoch``; -1 is in the first one."""
    return (era_of(epoch) + 1) * ERA_EPOCHS


def common_end(
    epochs: Sequence[EpochStart], end: int, others: Sequence[EpochStart], other_end: int
) -> int:
    """How many records two copies have in common, by where their Controllers began.

    That is right unless two Controllers have had one epoch.
    """
    shared = 0
    while shared < min(len(epochs), len(others)) and epochs[shared] == others[shared]:
        shared += 1
    behind = epochs[shared].first if shared < len(epochs) else end
    other_behind = others[shared].first if shared < len(others) else other_end
    return min(behind, other_behind)
