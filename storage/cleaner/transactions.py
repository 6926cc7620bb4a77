"""Which batches belong to aborted transactions, and which markers nobody needs any more.

Whoever walks a log in order shows every batch to a :class:`TransactionTracker`; it answers whether
the batch can be discarded:

- data of an aborted transaction: yes;
- an ABORT marker: once a walk has met none of its transaction's batches;
- a COMMIT marker: likewise;
- a control batch that was emptied before: yes; of another kind: no.

Source: ``CleanedTransactionMetadata`` of Kafka.
"""

from collections.abc import Iterable

from raylog.storage.buffers import Buffer
from raylog.storage.indexes.transaction_index import AbortedTransaction
from raylog.storage.records.batch import BatchHeader
from raylog.storage.records.control import read_marker
from raylog.storage.records.layout import CONTROL, TRANSACTIONAL


class TransactionTracker:
    """One walk over a log.

    ``aborted``: the transactions whose markers are at or behind the begin of the walk.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = sorted(aborted, key=lambda transaction: -transaction.first_offset)
        self._aborted: dict[int, AbortedTransaction] = {}  # that have begun, by producer id
        self._observed: set[int] = set()  # producer ids whose aborted data was met
        self._committed: set[int] = set()  # producer ids whose other transactional data was met
        self._kept: list[AbortedTransaction] = []

    def is_discardable(self, header: BatchHeader, batch: Buffer) -> bool:
        """Whether the next batch of the walk can go, by its transaction alone."""
        if not header.attributes & (CONTROL | TRANSACTIONAL):
            return False
        self._begin_up_to(header.last_offset)
        if header.is_control:
            return self._is_spent_marker(header, batch)
        if header.producer_id in self._aborted:
            self._observed.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def take_kept(self) -> list[AbortedTransaction]:
        """The aborted transactions whose markers were met since the last call, and must stay."""
        kept, self._kept = self._kept, []
        return kept

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= offset:
            begun = self._coming.pop()
            self._aborted.setdefault(begun.producer_id, begun)

    def _is_spent_marker(self, header: BatchHeader, batch: Buffer) -> bool:
        if not header.count:
            return True
        marker, producer_id = read_marker(batch), header.producer_id
        if marker is None:
            return False
        if not marker.is_abort:
            was_met = producer_id in self._committed
            self._committed.discard(producer_id)
            return not was_met
        aborted, was_observed = self._aborted.pop(producer_id, None), producer_id in self._observed
        self._observed.discard(producer_id)
        if aborted is None or not was_observed:
            return True
        self._kept.append(aborted)
        return False
