"""The records of a producer that were not written, until somebody has seen that.

Each failed batch is kept with its delivery, which knows what its users were told. There may be many
of them if nobody calls ``flush``: of the oldest, only the number of records is kept.
"""

from collections import deque
from typing import Final

from raylog.actors.errors import ProduceFailed
from raylog.cluster.client.producer.delivery import Delivery, Outcome

# How many failed batches that nobody looked at are remembered one by one.
MOST_FAILURES: Final = 1000


class Failures:
    """What has failed since the last look. Whoever adds holds the producer's lock."""

    def __init__(self) -> None:
        self._batches: deque[tuple[Delivery, Outcome]] = deque()
        # records that are remembered only by their number, and the first failure of them
        self._forgotten = 0
        self._first_forgotten: ProduceFailed | None = None

    def add(self, delivery: Delivery, outcome: Outcome) -> None:
        self._batches.append((delivery, outcome))
        if len(self._batches) > MOST_FAILURES:
            self._forget(*self._batches.popleft())

    def _forget(self, delivery: Delivery, outcome: Outcome) -> None:
        """Remember a failure only by its number."""
        untold = delivery.untold(outcome)
        self._forgotten += untold
        if untold and self._first_forgotten is None:
            self._first_forgotten = ProduceFailed(delivery.partition.name, untold, outcome.error)

    def untold(self) -> tuple[ProduceFailed | None, int]:
        """Of what nobody has seen: the first, and how many records in all."""
        first, records = self._first_forgotten, self._forgotten
        for delivery, outcome in self._batches:
            untold = delivery.untold(outcome)
            records += untold
            if untold and first is None:
                first = ProduceFailed(delivery.partition.name, untold, outcome.error)
        return first, records
