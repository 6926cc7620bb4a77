"""What is answered to batches behind one that a full disk refused.

A producer has up to five batches under way. If the first one is refused for a reason that passes,
those behind it leave a gap, and would be called out of order. Kafka never answers so: its log dir
goes offline, and all of them get the same answer. librdkafka takes "out of order" behind another
error for a reason to go on with another epoch, and sends anew in it what is under way to *any*
partition, so records could be there twice. So those behind a refused batch are refused for the same
reason, until it is written, or does not come again for a while.
"""

from typing import Final, NamedTuple

from raylog.storage.errors import OutOfOrderSequence, RaylogError
from raylog.storage.records.batch import BatchHeader
from raylog.storage.records.layout import MAX_SEQUENCE

# Clients send a batch again within seconds. One that was given up is a gap.
REMEMBERED_MS: Final = 30_000
MOST: Final = 1_000  # producers


class _Refused(NamedTuple):
    """The first batch of a producer that was refused; ``at_ms``: the last time."""

    epoch: int
    base_sequence: int
    error: RaylogError
    at_ms: int

    def is_before(self, header: BatchHeader) -> bool:
        """Whether a batch lies behind it. Sequences begin at 0 again behind the largest one."""
        return 0 < (header.base_sequence - self.base_sequence) & MAX_SEQUENCE <= MAX_SEQUENCE // 2

    def is_reason(self, header: BatchHeader, now_ms: int) -> bool:
        """Whether a batch is out of order since this one was refused."""
        return self.is_before(header) and now_ms - self.at_ms <= REMEMBERED_MS


class Refusals:
    """See the module's head. One thread at a time."""

    def __init__(self) -> None:
        self._by_producer: dict[int, _Refused] = {}

    def answer(self, header: BatchHeader, error: RaylogError, now_ms: int) -> RaylogError:
        """What to answer to a batch that may not be written for this reason."""
        known = self._by_producer.get(header.producer_id)
        before = known if known is not None and known.epoch == header.producer_epoch else None
        if isinstance(error, OutOfOrderSequence):
            if before is not None and before.is_reason(header, now_ms):
                return before.error
            return error
        is_first = before is None or not before.is_before(header)
        if error.retriable and header.base_sequence >= 0 and is_first:
            self._note(header, error, now_ms)
        return error

    def missing_before(self, header: BatchHeader, now_ms: int) -> RaylogError | None:
        """Why a batch before this one was refused that has not come again; None: none was.

        Of a producer that is not known any sequence would be taken.
        """
        known = self._by_producer.get(header.producer_id)
        if known is None or known.epoch != header.producer_epoch:
            return None
        return known.error if known.is_reason(header, now_ms) else None

    def _note(self, header: BatchHeader, error: RaylogError, now_ms: int) -> None:
        if len(self._by_producer) >= MOST:
            self._by_producer.clear()
        self._by_producer[header.producer_id] = _Refused(
            header.producer_epoch, header.base_sequence, error, now_ms
        )

    def written(self, producer_id: int) -> None:
        """A batch of a producer was written: no earlier one is missing."""
        if self._by_producer:
            self._by_producer.pop(producer_id, None)
