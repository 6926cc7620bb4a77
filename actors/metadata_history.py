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
"""

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgpack

from raylog.storage.errors import CorruptRecord
from raylog.storage.log_dir import METADATA_PARTITION
from raylog.storage.wire import message

# Bytes of the digest of each record.
DIGEST_BYTES = 8
# Of the records before the first Controller that had an epoch: an older raylog wrote them.
OLD_EPOCH = 0


@message
class EpochStart(NamedTuple):
    """A Controller's epoch, and the number of its first record in the log."""

    epoch: int
    first: int


class MetadataHistory:
    """The records of one copy, from the first one on. It keeps 8 bytes of each.

    ``cluster_id``: of the cluster whose metadata it is; empty while it has no record.
    """

    def __init__(self, values: Iterable[bytes] = ()) -> None:
        self.cluster_id = ""
        self._hash = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self._digests = bytearray()
        self._epochs: list[EpochStart] = []
        for value in values:
            self.add(value)

    def add(self, value: bytes) -> None:
        """One more record: its value in the log. Raises CorruptRecord where it is none."""
        try:
            fields = msgpack.unpackb(value)
            if fields["kind"] == "cluster":
                self.cluster_id = fields["id"]
            elif fields["kind"] == "controller":
                self._epochs.append(EpochStart(fields["epoch"], self.end))
        except (KeyError, TypeError, ValueError) as error:
            why = f"record {self.end} is none of the metadata ({error!r})"
            raise CorruptRecord(str(METADATA_PARTITION), why) from error
        self._hash.update(len(value).to_bytes(8, "big") + value)
        self._digests += self._hash.digest()

    @property
    def end(self) -> int:
        """How many records there are."""
        return len(self._digests) // DIGEST_BYTES

    @property
    def digests(self) -> bytes:
        """At each record, in order."""
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
        """Of the first ``end`` records; empty where these are none."""
        return bytes(self._digests[max(0, end - 1) * DIGEST_BYTES : end * DIGEST_BYTES])


def epoch_at(epochs: Sequence[EpochStart], record: int) -> int:
    """The epoch of the Controller that wrote the record with this number."""
    place = bisect_right(epochs, record, key=lambda start: start.first)
    return epochs[place - 1].epoch if place else OLD_EPOCH


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
