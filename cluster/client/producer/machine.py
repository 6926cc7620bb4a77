"""What a producer does with the batches of one partition: events and the time in, instructions out.

No lock, no clock, no thread, no chance: they are arguments. ``sender.py`` is the shell::

    rows (open) --+                                   +--> acknowledged: End
                  +--> batches, oldest first: Send ---+--> refused: End with its error
    columns ------+         ^                         +--> time is up: End with its error
                            +-- again, after a while -+

Rows stay open until the batch is full enough (batch.size), old enough (linger.ms), or somebody
waits for it; while requests are on their way they go on filling it, up to its limit.

**Sequences.** A batch gets its identity (producer id, epoch) and sequence when it is first sent. It
keeps both while an earlier attempt may have been written, so that the log knows a repeat.

- A batch whose answer was lost is *unresolved*. It is sent again, alone, before all others.
- The log refuses a sequence with a gap before it. If nothing older is on its way, then neither this
  batch nor any behind it was written (KIP-360).
- A batch that is given up unresolved fails, and its fate is unknown. What was sent behind it is
  resolved first. What follows goes under the next epoch, which shuts the old one out: if the lost
  batch is still written, then before the others.
- A batch behind a lost one, with a lost attempt of its own, is given up too: both attempts may
  still arrive, one after the other, and it would be written twice.
- The next epoch begins when nothing is on its way or unresolved. All batches with a sequence are
  then known to be unwritten, and get new ones. After epoch 32,767 comes a new producer id.
- The first batch of an epoch goes alone: a log that does not know the producer takes any sequence.
- Without idempotence one request is on its way at a time: a repeat would change the order.

**In transactions** (``transactions/``) the epoch is the transaction's, and the coordinator gives
the next one. So nothing is sent again under another epoch: what cannot be written under this one
fails, and with it the transaction.
"""

from collections import deque
from typing import NamedTuple, Protocol

from raylog.cluster.client.producer.batches import NOBODY, Batch, ProducerIdentity, Rows
from raylog.cluster.client.producer.delivery import Delivery
from raylog.storage.errors import RaylogError
from raylog.storage.records.layout import MAX_SEQUENCE

MAX_EPOCH = 32_767  # an int16

# Kafka's codes of the errors that decide something here.
MESSAGE_TOO_LARGE = 10
RECORD_LIST_TOO_LARGE = 18
OUT_OF_ORDER_SEQUENCE = 45
INVALID_PRODUCER_EPOCH = 47
THROTTLED = 89
UNKNOWN_TOPIC_ID = 100


class Answer(Protocol):
    """Of a batch that was written, or had been before."""

    @property
    def base_offset(self) -> int: ...
    @property
    def log_append_time(self) -> int: ...


class OpenRows(Protocol):
    """The kernel's OpenBatch."""

    @property
    def count(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def delivery(self) -> Delivery | None: ...
    def take(self) -> tuple[object, int, int, int, Delivery, int] | None: ...


class Times(NamedTuple):
    """The settings that decide when, in seconds, and ``batch.size``."""

    linger_s: float
    delivery_timeout_s: float
    batch_bytes: int


class Send(NamedTuple):
    """Send a batch. The answer comes back with the number of the attempt."""

    batch: Batch
    attempt: int


class End(NamedTuple):
    """A batch has ended: it was written, or failed with ``error`` (None: its time was up).

    ``is_fate_known``: False where a failed batch may have been written.
    """

    batch: Batch
    answer: Answer | None
    error: BaseException | None
    is_fate_known: bool


class AskProducerId(NamedTuple):
    """Get a producer id, and give it to ``take_producer_id``."""


Instruction = Send | End | AskProducerId


class PartitionMachine:
    """The batches of one partition."""

    def __init__(
        self, rows: OpenRows, identity: ProducerIdentity, times: Times, max_in_flight: int
    ) -> None:
        self.batches: deque[Batch] = deque()  # what has not ended, oldest first
        self.identity = identity
        self.next_sequence = 0
        self.is_idempotent = identity != NOBODY
        self._is_transactional = identity.is_transactional
        self._rows, self._times = rows, times
        self._max_in_flight = max_in_flight if self.is_idempotent else 1
        # whether the log has acknowledged something of this epoch
        self._is_known = False
        self._is_epoch_over = False
        self._has_lost = False  # whether a batch of this epoch was given up unresolved
        self._needs_producer_id = False
        self._awaits_producer_id = False

    # -- events ------------------------------------------------------------------------------------

    def close_rows(self) -> None:
        """The open rows become a batch: the next row does not fit."""
        taken = self._rows.take()
        if taken is None:
            return
        content, count, base_timestamp, max_timestamp, delivery, charged_bytes = taken
        delivery.count = count
        rows = Rows(content, count, base_timestamp, max_timestamp)  # type: ignore[arg-type]
        self.batches.append(Batch(delivery, count, rows=rows, charged_bytes=charged_bytes))

    def add(self, batch: Batch) -> None:
        """A batch of columns, behind the open rows."""
        self.close_rows()
        self.batches.append(batch)

    def advance(self, now: float) -> list[Instruction]:
        """Something may have changed: what is to be done now."""
        todo: list[Instruction] = []
        self._give_up_in_time(now, todo)
        self._begin_epoch(todo)
        while (batch := self._next(now)) is not None:
            todo.append(self._send(batch))
        return todo

    def acknowledge(self, batch: Batch, attempt: int, answer: Answer) -> list[Instruction]:
        """A batch was written."""
        if not self._is_current(batch, attempt):
            return []
        batch.is_in_flight = False
        self.batches.remove(batch)
        if batch.identity == self.identity:
            self._is_known = True
        return [End(batch, answer, None, is_fate_known=True)]

    def refuse(
        self, batch: Batch, attempt: int, error: BaseException, retry_at: float
    ) -> list[Instruction]:
        """An attempt failed. If it is made again, then at ``retry_at``."""
        if not self._is_current(batch, attempt):
            return []
        batch.is_in_flight, batch.error, batch.retry_at = False, error, retry_at
        code = error.code if isinstance(error, RaylogError) else None
        if code == UNKNOWN_TOPIC_ID:
            return self.retire(error)  # the shell ends the topic's other partitions
        if code == THROTTLED:
            return []
        if code == OUT_OF_ORDER_SEQUENCE and self.is_idempotent:
            return self._out_of_order(batch, error)
        if code == INVALID_PRODUCER_EPOCH and self.is_idempotent:
            return self._fenced(batch, error)
        if code in (MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE) and batch.count > 1:
            self._split(batch)
            return []
        # an error without a name tells nothing: the batch may have been written, and may be now
        if not isinstance(error, RaylogError) or error.retriable:
            batch.is_unresolved = True
            return []
        return [self._give_up(batch, error)]

    def take_producer_id(self, producer_id: int) -> None:
        """The id that was asked for."""
        self._awaits_producer_id = False
        self.identity = ProducerIdentity(producer_id, 0)

    def begin_transaction(self, identity: ProducerIdentity) -> None:
        """The epoch of the next transaction; all of the one before has ended."""
        assert self._is_transactional
        assert not self.deliveries
        self.identity, self.next_sequence = identity, 0
        self._is_epoch_over = self._is_known = self._has_lost = False

    def retire(self, error: BaseException) -> list[Instruction]:
        """The partition is gone, the producer closes, or the transaction fails: send no more."""
        self.close_rows()
        ended: list[Instruction] = [
            End(batch, None, error, is_fate_known=not _may_be_written(batch))
            for batch in self.batches
        ]
        for batch in self.batches:
            batch.is_in_flight = False
        self.batches.clear()
        return ended

    @property
    def deliveries(self) -> list[Delivery]:
        """Of everything that has not ended, oldest first."""
        waiting = [batch.delivery for batch in self.batches]
        if self._rows.count and self._rows.delivery is not None:
            waiting.append(self._rows.delivery)
        return waiting

    def due_at(self, now: float) -> float | None:
        """When ``advance`` has something to do if nothing happens before; None: never."""
        times = [self._deadline(batch) for batch in list(self.batches)[:1]]
        times += [batch.retry_at for batch in self.batches if not batch.is_in_flight]
        delivery = self._rows.delivery if self._rows.count else None
        if delivery is not None:
            times.append(delivery.created_at + self._times.linger_s)
            times.append(delivery.created_at + self._times.delivery_timeout_s)
        return min((time for time in times if time > now), default=None)

    # -- what is sent ------------------------------------------------------------------------------

    def _next(self, now: float) -> Batch | None:
        """The batch that may be sent now."""
        in_flight = sum(batch.is_in_flight for batch in self.batches)
        if in_flight >= self._max_in_flight or self._awaits_producer_id:
            return None
        waiting = next((batch for batch in self.batches if not batch.is_in_flight), None)
        if waiting is not None and waiting.identity is not None:
            is_wanted = waiting.is_unresolved or not self._is_epoch_over
            may_go = waiting is self.batches[0] and is_wanted and waiting.retry_at <= now
            return waiting if may_go else None
        if self._is_epoch_over or (in_flight and not self._is_known):
            return None
        if waiting is None and self._are_rows_ready(now):
            self.close_rows()
            waiting = self.batches[-1] if self.batches else None
        if waiting is None or waiting.is_in_flight or waiting.retry_at > now:
            return None
        return waiting

    def _are_rows_ready(self, now: float) -> bool:
        delivery = self._rows.delivery if self._rows.count else None
        if delivery is None:
            return False
        is_full = self._rows.size_bytes >= self._times.batch_bytes
        return is_full or delivery.is_hurried or delivery.created_at + self._times.linger_s <= now

    def _send(self, batch: Batch) -> Send:
        if batch.identity is None:
            batch.identity = self.identity
            if self.is_idempotent:
                batch.sequence = self.next_sequence
                self.next_sequence = (self.next_sequence + batch.count) & MAX_SEQUENCE
        batch.is_in_flight = True
        batch.attempts += 1
        return Send(batch, batch.attempts)

    def _is_current(self, batch: Batch, attempt: int) -> bool:
        """Whether an answer is to what is on its way, and not to what was given up."""
        return batch.is_in_flight and batch.attempts == attempt

    # -- what is not written -----------------------------------------------------------------------

    def _deadline(self, batch: Batch) -> float:
        """When a batch is given up: its records share the time of its first one.

        So does Kafka's (``ProducerBatch.hasReachedDeliveryTimeout``). In an outage a batch takes
        records until it is full, and its last ones may be given up soon after their ``send``.
        """
        return batch.created_at + self._times.delivery_timeout_s

    def _give_up_in_time(self, now: float, todo: list[Instruction]) -> None:
        delivery = self._rows.delivery if self._rows.count else None
        if delivery and delivery.created_at + self._times.delivery_timeout_s <= now:
            self.close_rows()
        while self.batches and self._deadline(self.batches[0]) <= now:
            head = self.batches[0]
            # in flight, it hangs: the error of an earlier attempt does not say so
            todo.append(self._give_up(head, None if head.is_in_flight else head.error))

    def _give_up(self, batch: Batch, error: BaseException | None) -> End:
        """Fail one batch."""
        is_fate_known = not _may_be_written(batch)
        batch.is_in_flight = False
        follower = next((b for b in self._behind(batch) if b.identity is not None), None)
        self.batches.remove(batch)
        if self.is_idempotent and batch.identity is not None:
            if not is_fate_known:
                self._is_epoch_over = self._has_lost = True
            elif follower is None and batch.identity == self.identity:
                self.next_sequence = batch.sequence  # nobody else had one behind it
        return End(batch, None, error, is_fate_known)

    def _behind(self, batch: Batch) -> list[Batch]:
        batches = list(self.batches)
        return batches[batches.index(batch) + 1 :]

    def _out_of_order(self, batch: Batch, error: BaseException) -> list[Instruction]:
        if batch is not self.batches[0]:
            return []  # the gap is what is not written yet
        is_ahead = _is_log_ahead(error, batch)
        if is_ahead or (self._has_lost and batch.is_unresolved):
            batch.is_unresolved = True
            return [self._give_up(batch, error)]
        if self._is_transactional:
            return [self._give_up(batch, error)]
        batch.is_unresolved = False
        self._is_epoch_over = True
        return []

    def _fenced(self, batch: Batch, error: BaseException) -> list[Instruction]:
        """Somebody else writes with this producer id, in a later epoch."""
        if self._is_transactional:
            return [self._give_up(batch, error)]
        self._is_epoch_over = self._needs_producer_id = True
        return [self._give_up(batch, error)] if batch.is_unresolved else []

    def _split(self, batch: Batch) -> None:
        """Two halves take its place and its sequences, so that none behind it has to change."""
        place = list(self.batches).index(batch)
        first, second = batch.halves()
        for half in (first, second):
            half.retry_at = 0.0
            half.is_unresolved = batch.is_unresolved
        self.batches.remove(batch)
        self.batches.insert(place, second)
        self.batches.insert(place, first)

    def _begin_epoch(self, todo: list[Instruction]) -> None:
        """Give new sequences to what is known to be unwritten, under the next epoch."""
        if self._is_transactional or not self._is_epoch_over or self._is_resolving():
            return
        for batch in list(self.batches):
            if batch.is_unresolved and self._has_lost:
                todo.append(self._give_up(batch, batch.error))
            batch.identity, batch.sequence, batch.is_unresolved = None, -1, False
        self._is_epoch_over = self._is_known = self._has_lost = False
        self.next_sequence = 0
        if self.identity.epoch < MAX_EPOCH and not self._needs_producer_id:
            self.identity = self.identity._replace(epoch=self.identity.epoch + 1)
            return
        self._needs_producer_id, self._awaits_producer_id = False, True
        self.identity = NOBODY
        todo.append(AskProducerId())

    def _is_resolving(self) -> bool:
        """Whether it is not known yet which batches of this epoch were written."""
        if any(batch.is_in_flight for batch in self.batches):
            return True
        # Behind one that is not written, the log has taken none.
        oldest = self.batches[0] if self.batches else None
        return oldest is not None and oldest.identity is not None and oldest.is_unresolved


def _may_be_written(batch: Batch) -> bool:
    return batch.is_in_flight or batch.is_unresolved


def _is_log_ahead(error: BaseException, batch: Batch) -> bool:
    """Whether the log expects a sequence behind the batch's: then it was, or may be, written."""
    expected = getattr(error, "expected", None)
    if not isinstance(expected, int):
        return False
    return 0 < (expected - batch.sequence) & MAX_SEQUENCE <= MAX_SEQUENCE // 2


def backoff_s(attempts: int, base_ms: int, most_ms: int, chance: float) -> float:
    """How long to leave a partition alone; ``chance`` from 0 to 1.

    Longer each time, and for a random share, so that producers do not come back together.
    """
    longest_ms = min(base_ms << min(attempts - 1, 16), max(most_ms, base_ms))
    return longest_ms * (0.5 + chance / 2) / 1000
