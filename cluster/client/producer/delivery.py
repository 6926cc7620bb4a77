"""What becomes of records: one object a batch, and a receipt for each record.

A receipt is a ``concurrent.futures.Future``. What a Future needs to be waited for (a condition, a
list of callbacks) costs more than all the rest of a record. So ``__getattr__`` makes it when it is
asked for the first time. Until then the receipt only knows its batch's Delivery and its place
there; nobody but the caller keeps it.
"""

import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple, Protocol

from raylog.actors.errors import ProduceFailed
from raylog.storage.records import kernel

# Bytes of a receipt that is waited for or has a callback, which buffer.memory pays for.
WAITED_FOR_BYTES = 2_000

logger = logging.getLogger(__name__)

# Guards the futures that are made and the deliveries that end. Held for moments, never for calls.
# The garbage collector may run a finalizer that comes here again, in the same thread.
_lock = threading.RLock()


def _renew_lock() -> None:
    """A process was forked off, maybe while another thread held the lock."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


class RecordMetadata(NamedTuple):
    """Where a record was written."""

    topic: str
    partition: int
    offset: int
    log_append_time: int  # ms, -1 unless the topic stamps records itself


class Outcome(NamedTuple):
    """What became of a batch's records from ``first`` on."""

    first: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    base_offset: int
    log_append_time: int
    error: BaseException | None  # why they were not acknowledged
    is_fate_known: bool = True  # False: with an error, they may have been written


def _call(tell: Callable[[], None]) -> None:
    """Tell a user. A Future lets SystemExit of a callback through; the producer must go on."""
    try:
        tell()
    except BaseException:
        logger.exception("a callback of a record raised what ends a thread; the producer goes on")


class OwnPartition(Protocol):
    """The partition of a delivery, which its producer sends to."""

    topic: str
    number: int
    name: str

    def hurry(self, delivery: "Delivery") -> None: ...
    def release(self, size_bytes: int) -> None: ...


class Delivery:
    """What becomes of the records that were taken into one batch, which may be split later."""

    __slots__ = (
        "_outcomes",
        "_told",
        "_waiting",
        "_when_done",
        "count",
        "created_at",
        "has_told",
        "is_hurried",
        "partition",
    )

    def __init__(self, partition: "OwnPartition", created_at: float) -> None:
        self.partition, self.created_at = partition, created_at
        self.is_hurried = False  # somebody waits: it does not linger
        self.has_told = False  # all of it has ended, and every callback has run
        self.count: int | None = None  # records; None as long as it takes more
        self._outcomes: tuple[Outcome, ...] = ()
        self._waiting: list[SentRecord] = []
        self._when_done: list[Callable[[], None]] = []
        self._told: set[int] = set()

    def outcome(self, index: int) -> Outcome | None:
        """What became of a record; None until it is known."""
        for outcome in self._outcomes:
            if outcome.first <= index < outcome.first + outcome.count:
                return outcome
        return None

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """Of all the parts that have ended."""
        return self._outcomes

    @property
    def is_done(self) -> bool:
        """Whether all of it has ended."""
        return sum(outcome.count for outcome in self._outcomes) == self.count

    def end(self, outcome: Outcome) -> None:
        """Some records have ended: whoever waits for them hears of it, in this thread."""
        ended = range(outcome.first, outcome.first + outcome.count)
        with _lock:
            self._outcomes = (*self._outcomes, outcome)
            waiting, self._waiting = self._waiting, []
            heard = [receipt for receipt in waiting if receipt.index in ended]
            self._waiting += [receipt for receipt in waiting if receipt.index not in ended]
            callbacks = self._when_done if self.is_done else []
        for receipt in heard:
            _call(partial(receipt.end, outcome))
        for callback in callbacks:
            _call(callback)
        self.has_told = self.is_done
        if heard:
            self.partition.release(WAITED_FOR_BYTES * len(heard))

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call back once all of it has ended."""
        with _lock:
            if not self.is_done:
                self._when_done.append(callback)
                return
        callback()

    def wait_for(self, receipt: "SentRecord") -> Outcome | None:
        """Have ``receipt`` told, unless the outcome is known. The caller holds the lock."""
        outcome = self.outcome(receipt.index)
        if outcome is None:
            self._waiting.append(receipt)
        return outcome

    def was_told(self, index: int) -> None:
        """The user has seen this record's failure."""
        self._told.add(index)

    def untold(self, outcome: Outcome) -> int:
        """How many of an outcome's failures nobody has seen."""
        seen = self._told.copy()  # users add to it at any time
        told = [n for n in seen if 0 <= n - outcome.first < outcome.count]
        return outcome.count - len(told)

    def failure(self, outcome: Outcome) -> ProduceFailed:
        """What to raise for a failure."""
        return ProduceFailed(self.partition.name, outcome.count, outcome.error)


class SentRecord(kernel.ops.Receipt, Future):  # type: ignore[name-defined,misc]
    """A record on its way: a ``Future`` of its :class:`RecordMetadata`.

    It cannot be cancelled. Callbacks run in the producer's own thread: keep them short, and never
    wait in them for the producer. What kept the record from being written is a ProduceFailed.
    """

    delivery: Delivery
    index: int

    def __init__(self) -> None:
        raise TypeError("Producer.send makes these")

    def __getattr__(self, name: str) -> Any:
        """The state of a Future, which was missing."""
        state = Future[RecordMetadata]()
        if name not in state.__dict__:
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        state.set_running_or_notify_cancel()
        with _lock:
            is_first = "_condition" not in self.__dict__
            if is_first:
                self.__dict__.update(state.__dict__)
                outcome = self.delivery.wait_for(self)
        if is_first:
            self.track()
            if outcome is None:
                self.delivery.partition.release(-WAITED_FOR_BYTES)
            else:
                self.end(outcome)
        return self.__dict__[name]

    def __repr__(self) -> str:
        partition = self.delivery.partition
        outcome = self.delivery.outcome(self.index)
        state = "on its way" if outcome is None else "failed" if outcome.error else "written"
        return f"<SentRecord {partition.name} {state}>"

    def cancel(self) -> bool:
        """False: a record that was taken is sent."""
        return False

    def cancelled(self) -> bool:
        return False

    def done(self) -> bool:
        return self.delivery.outcome(self.index) is not None

    def running(self) -> bool:
        return not self.done()

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Where the record was written; it does not linger while somebody waits.

        Raises ProduceFailed with what kept it from being written, TimeoutError.
        """
        outcome = self._outcome(timeout)
        if outcome.error is None:
            return self._metadata(outcome)
        try:
            raise self._failure(outcome)
        finally:
            self = None  # type: ignore[assignment]  # no cycle with the traceback

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What kept the record from being written; None if it was. Waits as ``result``."""
        outcome = self._outcome(timeout)
        return None if outcome.error is None else self._failure(outcome)

    def _outcome(self, timeout: float | None) -> Outcome:
        outcome = self.delivery.outcome(self.index)
        if outcome is None:
            self.delivery.partition.hurry(self.delivery)
            super().exception(timeout)
            outcome = self.delivery.outcome(self.index)
            assert outcome is not None
        return outcome

    def _metadata(self, outcome: Outcome) -> RecordMetadata:
        partition = self.delivery.partition
        offset = outcome.base_offset
        if offset >= 0:
            offset += self.index - outcome.first
        return RecordMetadata(partition.topic, partition.number, offset, outcome.log_append_time)

    def _failure(self, outcome: Outcome) -> ProduceFailed:
        self.delivery.was_told(self.index)
        return self.delivery.failure(outcome)

    def end(self, outcome: Outcome) -> None:
        """The producer's: make the Future end."""
        if outcome.error is None:
            self.set_result(self._metadata(outcome))
        else:
            self.set_exception(self.delivery.failure(outcome))
