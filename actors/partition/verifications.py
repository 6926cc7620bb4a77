"""Which transactions may begin in a partition: their coordinator has said that it is in them.

A batch that comes late, when its transaction has ended, would begin another one that nobody ends:
readers of committed records would stop there for ever. So the first batch of a transaction is taken
only if the coordinator was asked, and has said yes, and no marker of its producer has come since
the question was asked: the answer may be about the transaction that the marker has ended::

    verification begins -> the coordinator is asked -> it says yes -> the batch is written -> ends
                  ^------------- a marker of the producer in here makes it void ------^

In version 2 of transactions a marker has the epoch of the transaction that comes next. It says
nothing of that one, whose first batch may have been on its way before it.

It is in memory alone: after a restart the coordinator is asked again. Source: ``VerificationGuard``
and ``ProducerStateManager`` of Kafka; KIP-890, KAFKA-14884.
"""

import threading
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Verification:
    """One question, from before it is asked to after the batch. ``grant``: the answer is yes."""

    producer_id: int
    epoch: int
    is_granted: bool = False
    is_void: bool = False

    def grant(self) -> None:
        self.is_granted = True


class Verifications:
    """Those of one partition. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_producer: dict[int, list[Verification]] = {}

    def begin(self, producer_id: int, epoch: int) -> Verification:
        """Before the coordinator is asked."""
        verification = Verification(producer_id, epoch)
        with self._lock:
            self._by_producer.setdefault(producer_id, []).append(verification)
        return verification

    def end(self, verification: Verification) -> None:
        """The batch is written, or is not."""
        with self._lock:
            left = self._by_producer[verification.producer_id]
            left.remove(verification)
            if not left:
                del self._by_producer[verification.producer_id]

    def void(self, producer_id: int, epoch: int) -> None:
        """A marker has ended what the producer had open, up to this epoch.

        With the lock of appends held.
        """
        with self._lock:
            for verification in self._by_producer.get(producer_id, ()):
                verification.is_void |= verification.epoch <= epoch

    def allow(self, producer_id: int, epoch: int) -> bool:
        """Whether a transaction may begin. With the lock of appends held."""
        with self._lock:
            return any(
                one.epoch == epoch and one.is_granted and not one.is_void
                for one in self._by_producer.get(producer_id, ())
            )

    def __len__(self) -> int:
        return len(self._by_producer)
