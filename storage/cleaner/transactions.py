"""Which batches belong to aborted transactions, and which markers nobody needs any more.

Whoever walks a log in order shows every batch to a :class:`TransactionTracker`; it answers whether the batch
can be discarded:

- data of an aborted transaction: yes;
- an ABORT marker: once a walk has met none of its transaction's batches;
- a COMMIT marker: likewise;
- a control batch that was emptied before: yes.

Source: ``CleanedTransactionMetadata`` of Kafka.
"""

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from raylog.storage.files import Buffer
from raylog.storage.records.batch import BatchHeader
from raylog.storage.records.decode import decode_records

ABORT, COMMIT = 0, 1
_MARKER_KEY = Struct(">hh")  # version, type


class AbortedTransaction(NamedTuple):
    """An entry of the transaction index; ``last_offset`` is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionTracker:
    """One walk over a log. ``aborted``: the transactions whose markers lie at or behind the walk's begin."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = sorted(aborted, key=lambda transaction: -transaction.first_offset)
        self._aborted: dict[int, AbortedTransaction] = {}  # that have begun, by producer id
        self._observed: set[int] = set()  # producer ids whose aborted data was met
        self._committed: set[int] = set()  # producer ids whose other transactional data was met
        self.kept: list[AbortedTransaction] = []  # whose marker was met and must stay

    def is_discardable(self, header: BatchHeader, batch: Buffer) -> bool:
        """Whether the next batch of the walk can go, by its transaction alone."""
        if not header.is_control and not header.is_transactional:
            return False
        self._begin_up_to(header.last_offset)
        if header.is_control:
            return self._is_spent_marker(header, batch)
        if header.producer_id in self._aborted:
            self._observed.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= offset:
            begun = self._coming.pop()
            self._aborted.setdefault(begun.producer_id, begun)

    def _is_spent_marker(self, header: BatchHeader, batch: Buffer) -> bool:
        if not header.count:
            return True
        kind, producer_id = marker_type(batch), header.producer_id
        if kind == ABORT:
            aborted, was_observed = self._aborted.pop(producer_id, None), producer_id in self._observed
            self._observed.discard(producer_id)
            if aborted is None or not was_observed:
                return True
            self.kept.append(aborted)
            return False
        if kind == COMMIT:
            was_met = producer_id in self._committed
            self._committed.discard(producer_id)
            return not was_met
        return False


def marker_type(batch: Buffer) -> int:
    """What the first record of a control batch says; -1 if that is nothing we know."""
    records = decode_records(batch, control=True)
    key = records[0].key if records else None
    return _MARKER_KEY.unpack_from(key)[1] if key is not None and len(key) >= _MARKER_KEY.size else -1
