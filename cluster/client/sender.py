"""The half of a producer that sends: one background thread over the queues of all partitions.

A batch is sent, one in flight a partition, until it is acknowledged, refused, or
``delivery.timeout.ms`` after its first record was sent::

                 +--------- retriable: again after retry.backoff.ms ---------+
                 v                                                           |
    waits --> in flight --> acknowledged                                     |
                 |  +--> an error --> refused: fails -- (may be repeated) ---+
                 +--> time is up, with or without an answer: fails, fate unknown

An actor that hangs gives no answer at all, so the thread itself watches the deadlines; an answer
that comes after its batch was given up is dropped. Which failed batches take what with them is
decided in ``accumulator.py``.

Everything here is guarded by one lock. Nothing is sent under it, and the transport never waits.
"""

import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from raylog.actors.errors import THROTTLED, InvalidRequest, ProduceFailed, RequestTimedOut
from raylog.actors.messages import AppendResult
from raylog.cluster.client.accumulator import Batch, Delivery, PartitionQueue
from raylog.cluster.client.producer_config import ProducerConfig
from raylog.cluster.client.transport import Transport
from raylog.storage.errors import RaylogError
from raylog.storage.records.encode import encode_records

# Kafka's retry.backoff.max.ms.
MAX_BACKOFF_MS = 1000


class Sender:
    """Empties the queues it is given. Callers of methods marked so hold ``lock``."""

    def __init__(
        self,
        config: ProducerConfig,
        transport: Transport,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config, self._transport, self.clock = config, transport, clock
        # taken by itself where nothing waits: half the price of the condition's
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        self.queues: list[PartitionQueue] = []
        self.waiting_bytes = 0
        self.is_closed = False
        self._is_stopped = False
        self._flushing = 0
        self._failure: ProduceFailed | None = None
        self._thread = threading.Thread(target=self._run, name="raylog-producer", daemon=True)
        self._thread.start()

    # -- taking in: the caller holds the lock ------------------------------------------------------

    def check_room(self) -> None:
        """Wait while ``buffer.memory`` is full.

        Raises RequestTimedOut, and InvalidRequest once closed.
        """
        limit_ms = self._config.max_block_ms
        deadline = self.clock() + limit_ms / 1000
        while self.waiting_bytes >= self._config.buffer_memory and not self.is_closed:
            left_s = deadline - self.clock()
            if left_s <= 0:
                raise RequestTimedOut("send: waiting for space in buffer.memory", limit_ms)
            self.changed.wait(left_s)
        if self.is_closed:
            raise InvalidRequest("producer", "closed", "cannot send; create a new producer")

    def add_columns(self, queue: PartitionQueue, content: bytes, records: int) -> None:
        """Queue a batch that was encoded for the queue's identity and sequence just now."""
        self.waiting_bytes += len(content)
        deadline = self.clock() + self._config.delivery_timeout_ms / 1000
        batch = Batch(
            content=content,
            records=records,
            delivery=Delivery(),
            size_bytes=len(content),
            deadline=deadline,
        )
        queue.add_batch(batch)
        self.changed.notify_all()

    def close_rows(self, queue: PartitionQueue) -> None:
        """Encode the open rows and queue them as a batch."""
        if not queue.rows:
            return
        rows, size_bytes, delivery = queue.close_rows()
        try:
            content = encode_records(
                rows,
                compression_type=self._config.compression_type,
                producer_id=queue.identity.producer_id,
                producer_epoch=queue.identity.epoch,
                base_sequence=queue.base_sequence,
            )
        except Exception as error:
            # A row that send let pass: its batch fails, the producer goes on.
            self._fail(queue, [(delivery, len(rows), size_bytes)], error)
            return
        deadline = queue.rows_since + self._config.delivery_timeout_ms / 1000
        batch = Batch(
            content=content,
            records=len(rows),
            delivery=delivery,
            size_bytes=size_bytes,
            deadline=deadline,
        )
        queue.add_batch(batch)

    # -- waiting -----------------------------------------------------------------------------------

    def deliveries(self) -> list[Delivery]:
        """Those of everything that waits now."""
        with self.lock:
            return [delivery for queue in self.queues for delivery in queue.deliveries]

    def wait(self, deliveries: Sequence[Delivery], timeout_s: float) -> bool:
        """Whether all of them have ended in time. Meanwhile nothing lingers."""
        with self.changed:
            self._flushing += 1
            self.changed.notify_all()
            try:
                return self.changed.wait_for(
                    lambda: all(delivery.is_done for delivery in deliveries), timeout_s
                )
            finally:
                self._flushing -= 1

    def take_failure(self) -> ProduceFailed | None:
        """The first failure since it was last taken."""
        with self.lock:
            failure, self._failure = self._failure, None
            return failure

    def close(self) -> None:
        """Take nothing more in; whoever waits for room hears it."""
        with self.changed:
            self.is_closed = True
            self.changed.notify_all()

    def stop(self) -> None:
        """Fail what is not acknowledged, and end the thread."""
        self.close()
        why = InvalidRequest(
            "producer",
            "closed",
            "before these records were acknowledged; call flush() before close",
        )
        with self.changed:
            self._is_stopped = True
            for queue in self.queues:
                self.close_rows(queue)
                self._fail(queue, queue.give_up(is_fate_known=False), why)
            # The thread may have looked, and wait again, since close() woke it.
            self.changed.notify_all()
        self._thread.join()

    # -- the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self.changed:
                while not (due := self._due()) and not self._is_stopped:
                    self.changed.wait(self._until_next())
                if self._is_stopped:
                    return
                leaving = [
                    (queue, batch) for queue in due if (batch := self._next_of(queue)) is not None
                ]
            for queue, batch in leaving:
                self._dispatch(queue, batch)

    def _due(self) -> list[PartitionQueue]:
        now = self.clock()
        return [
            queue
            for queue in self.queues
            if (due := self._due_at(queue)) is not None and due <= now
        ]

    def _until_next(self) -> float | None:
        due = [when for when in map(self._due_at, self.queues) if when is not None]
        return max(min(due) - self.clock(), 0.0) if due else None

    def _due_at(self, queue: PartitionQueue) -> float | None:
        return queue.due_at(
            self._config.linger_ms / 1000, self._config.batch_size, self._flushing > 0
        )

    def _next_of(self, queue: PartitionQueue) -> Batch | None:
        """What a queue that is due has to send; None if its time was up.

        The caller holds the lock.
        """
        if not queue.batches:
            self.close_rows(queue)
        if not queue.batches:
            return None  # the rows could not be encoded
        head = queue.batches[0]
        if head.deadline > self.clock():
            return queue.take_off()
        timeout = RequestTimedOut(
            f"{queue.topic}-{queue.partition}", self._config.delivery_timeout_ms
        )
        self._fail(queue, queue.give_up(is_fate_known=not head.attempts), head.error or timeout)
        return None

    def _dispatch(self, queue: PartitionQueue, batch: Batch) -> None:
        try:
            answer = self._transport.append(queue.topic, queue.partition, batch.content)
        except Exception as error:
            self._failed(queue, batch, error)
            return
        answer.add_done_callback(lambda done: self._answered(queue, batch, done))

    def _answered(self, queue: PartitionQueue, batch: Batch, done: "Future[AppendResult]") -> None:
        error = done.exception()
        if error is not None:
            self._failed(queue, batch, error)
            return
        result = done.result()
        with self.changed:
            if queue.in_flight is not batch:
                return  # given up before the answer came
            queue.acknowledge()
            self.waiting_bytes -= batch.size_bytes
            batch.delivery.base_offset = result.base_offset
            batch.delivery.log_append_time = result.log_append_time
            batch.delivery.is_done = True
            self.changed.notify_all()

    def _failed(self, queue: PartitionQueue, batch: Batch, error: BaseException) -> None:
        """Send again later, or give up."""
        is_throttled = isinstance(error, THROTTLED)
        if not is_throttled:
            self._transport.forget(queue.topic, queue.partition)
        with self.changed:
            if queue.in_flight is not batch:
                return
            if isinstance(error, RaylogError) and error.retriable:
                backoff_ms: float = self._config.retry_backoff_ms
                if is_throttled:
                    backoff_ms = _throttled_ms(self._config.retry_backoff_ms, batch.attempts)
                queue.retry(self.clock() + backoff_ms / 1000, error)
            else:
                # An earlier attempt whose answer was lost may have been written.
                is_refused = isinstance(error, RaylogError) and batch.attempts == 1
                self._fail(queue, queue.give_up(is_fate_known=is_refused), error)
            self.changed.notify_all()

    def _fail(
        self,
        queue: PartitionQueue,
        dropped: Sequence[tuple[Delivery, int, int]],
        error: BaseException,
    ) -> None:
        """Tell whoever waits for these records. The caller holds the lock."""
        if not dropped:
            return
        records = sum(count for _, count, _ in dropped)
        failure = ProduceFailed(f"{queue.topic}-{queue.partition}", records, error)
        self._failure = self._failure or failure
        for delivery, _, size_bytes in dropped:
            self.waiting_bytes -= size_bytes
            delivery.error, delivery.is_done = failure, True
        self.changed.notify_all()


def _throttled_ms(backoff_ms: int, attempts: int) -> float:
    """How long to leave a partition alone that refused.

    Longer each time, and for a random share of it, so that producers do not come back together.
    """
    longest = min(backoff_ms << min(attempts - 1, 10), max(MAX_BACKOFF_MS, backoff_ms))
    return longest * random.uniform(0.5, 1.0)
