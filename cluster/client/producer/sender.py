"""The half of a producer that sends: one background thread over the machines of all partitions.

``machine.py`` decides; here are the lock, the clock, the chance, the connection and the thread::

    send: first row, full batch --+
    answers of requests         --+--> events --> step: advance machines --> perform: seal, send,
    metadata                    --+                                          end deliveries
    time                        --+

The lock guards the machines. Nothing is compressed, sent or called back under it. ``send`` takes it
only to close a full batch. Code that interrupts a holder of it and needs it, too, is refused
(``call_lock.py``). What users hear (results, callbacks), they hear from the thread.
"""

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final

from raylog.actors.errors import (
    ForkedProcess,
    InvalidRequest,
    NoProducerId,
    NotLeader,
    NotSentInTime,
    ProduceFailed,
    RequestTimedOut,
    UnknownTopicId,
)
from raylog.cluster.client.added_partitions import hear_of_partitions
from raylog.cluster.client.connection import (
    Connection,
    ProduceAnswer,
    ProduceRequest,
    TopicMetadata,
)
from raylog.cluster.client.producer.batches import NOBODY, Batch, ProducerIdentity, Rows
from raylog.cluster.client.producer.call_lock import CallLock
from raylog.cluster.client.producer.config import ProducerConfig
from raylog.cluster.client.producer.delivery import Delivery, Outcome, SentRecord
from raylog.cluster.client.producer.failures import Failures
from raylog.cluster.client.producer.machine import (
    THROTTLED,
    AskProducerId,
    End,
    Instruction,
    PartitionMachine,
    Send,
    Times,
    backoff_s,
)
from raylog.cluster.client.producer.timers import Timers
from raylog.cluster.client.producer.waits import Waits
from raylog.storage.errors import InvalidRecord, RaylogError, RecordTooLarge
from raylog.storage.records import kernel

logger = logging.getLogger(__name__)

UNKNOWN_TOPIC_OR_PARTITION: Final = 3
UNKNOWN_TOPIC_ID: Final = 100
Event = Any  # an OpenBatch of the kernel that is to be looked at, or a function to be called


class SendingPartition:
    """One partition of one topic, as the thread and the deliveries know it."""

    __slots__ = ("due_at", "machine", "name", "number", "rows", "sender", "topic", "topic_id")

    def __init__(
        self, sender: "Sender", topic: str, topic_id: str, number: int, limit: int
    ) -> None:
        self.sender, self.topic, self.topic_id, self.number = sender, topic, topic_id, number
        self.name = f"{topic}-{number}"
        self.rows = kernel.ops.OpenBatch(self, limit)
        self.machine = PartitionMachine(
            self.rows, sender.identity, sender.times, sender.max_in_flight
        )
        self.due_at: float | None = None

    def hurry(self, delivery: Delivery) -> None:
        """Somebody waits for this one: it does not linger."""
        self.sender.check_not_forked()
        if self.sender.is_own_thread():
            raise InvalidRequest(
                "result",
                self.name,
                "was waited for in a callback, which holds up the producer; "
                "use the record's own callback instead",
            )
        self.sender.lock.check()
        delivery.is_hurried = True
        self.sender.events.put(self.rows)

    def release(self, size_bytes: int) -> None:
        """Give memory back; a negative number takes some."""
        self.sender.release(size_bytes)


class Sender:
    """Empties the open batches of a producer."""

    def __init__(
        self,
        config: ProducerConfig,
        connection: Connection,
        careful: Callable[..., SentRecord],
        *,
        clock: Callable[[], float] = time.monotonic,
        is_threaded: bool = True,
    ) -> None:
        """``careful``: the way of the rows that are not plain. ``is_threaded`` False: whoever made
        this calls ``step``."""
        self.clock, self._config, self._connection = clock, config, connection
        self.lock = CallLock("producer")
        self.events: SimpleQueue[Event] = SimpleQueue()
        # notified when batches have ended, and memory is free again
        self.changed = threading.Condition()
        self._changes = 0
        self.is_closed = self.is_forked = False
        self._is_stopped = False
        self.identity = self._first_identity()
        # Whether rows are taken in; a producer of transactions takes them within one alone.
        self._is_open = config.transactional_id is None
        self._transaction = 0  # counts them
        # Told of each batch that is sent or fails, in the thread.
        self.note_sent: Callable[[], None] = _nothing
        self.note_failure: Callable[[BaseException], None] = _nothing
        self.times = Times(
            linger_s=config.linger_ms / 1000,
            delivery_timeout_s=config.delivery_timeout_ms / 1000,
            batch_bytes=min(config.batch_size, config.max_request_size),
        )
        self.max_in_flight = min(
            config.max_in_flight_requests_per_connection, connection.max_in_flight
        )
        is_plain = (
            config.partitioner in ("murmur2", "sticky")
            and config.key_serializer is None
            and config.value_serializer is None
        )
        self.accumulator = kernel.ops.Accumulator(
            receipt=SentRecord,
            new_delivery=self._new_delivery,
            careful=careful,
            wake=self.events.put,
            stick=_stick,
            batch_bytes=self.times.batch_bytes,
            free_bytes=config.buffer_memory,
            direct=is_plain,
            ignores_keys=config.partitioner == "sticky",
        )
        # as the accumulator's, which takes no more rows once the producer is closed
        self._topics: dict[str, Any] = {}
        # what has ended, and whose users are still being told
        self._ending: dict[Delivery, None] = {}
        # topics whose name another topic has, until what waited for them has failed
        self._retired: list[Any] = []
        self._failures = Failures()
        self._timers: Timers[SendingPartition] = Timers()
        self._refreshing: set[str] = set()
        self._refresh_at = clock() + config.metadata_max_age_ms / 1000
        # as it stands in what is logged
        self.name = f"producer {config.client_id}" if config.client_id else "a producer"
        self._waits = Waits(self.name, self.times.delivery_timeout_s)
        thread = f"raylog-producer-{config.client_id}" if config.client_id else "raylog-producer"
        self.thread = threading.Thread(target=self._run, name=thread, daemon=True)
        self._ending_thread: threading.Thread | None = None  # it tells users what close() failed
        if is_threaded:
            self.thread.start()
        hear_of_partitions(self)

    # -- topics ------------------------------------------------------------------------------------

    def learn(self, metadata: TopicMetadata) -> Any:
        """Use what is known of a topic now; returns its OpenTopic."""
        topic, limit = metadata.topic, self._limit(metadata.max_message_bytes)
        with self.lock.thread, self.lock.alone():
            if not self._is_of(topic, metadata.topic_id):
                self._retire(topic, metadata.topic_id)
            state = self._topics.get(topic)
            if state is None:
                state = kernel.ops.OpenTopic([], metadata.topic_id)
                state.sticky = random.randrange(len(metadata.partitions))
            for batch in state.batches:
                batch.limit = limit
            for number in range(len(state.batches), len(metadata.partitions)):
                sending = SendingPartition(self, topic, metadata.topic_id, number, limit)
                state.batches.append(sending.rows)
            self._topics[topic] = state
            if self._is_open and not self.is_closed:
                self.accumulator.topics[topic] = state
        return state

    def _limit(self, max_message_bytes: int) -> int:
        return min(self._config.max_request_size, max_message_bytes)

    def _is_of(self, topic: str, topic_id: str) -> bool:
        """Whether this is the topic that the name stands for here. The caller holds the lock."""
        state = self._topics.get(topic)
        return state is not None and state.topic_id == topic_id

    def _retire(self, topic: str, topic_id: str) -> None:
        """Another topic has this name now: the next row binds to it. The caller holds the lock."""
        self.accumulator.topics.pop(topic, None)
        state = self._topics.pop(topic, None)
        if state is not None:
            self._retired.append(state)
            self.events.put(partial(self._end_topic, state, topic_id))

    def _end_topic(self, state: Any, topic_id: str) -> None:
        """Fail what waits for a topic that was deleted."""
        for batch in state.batches:
            sending: SendingPartition = batch.owner
            error = UnknownTopicId(sending.name, sending.topic_id, topic_id)
            self._tell(sending, partial(sending.machine.retire, error))
        with self.lock.thread, self.lock.alone():
            self._retired.remove(state)

    def refresh(self, topic: str) -> None:
        """Ask for a topic's metadata; the thread hears the answer."""
        with self.lock.thread, self.lock.alone():
            if topic in self._refreshing:
                return
            self._refreshing.add(topic)
            known = self._topics.get(topic)
        timeout_s = self._config.request_timeout_ms / 1000
        future = self._connection.metadata(topic, timeout_s=timeout_s)
        future.add_done_callback(
            lambda done: self.events.put(partial(self._refreshed, topic, known, done))
        )

    def tell(self, namespace: str, topic: str, partitions: int) -> None:
        """Partitions were added in this process."""
        is_ours = namespace == getattr(self._connection, "namespace", None)
        if is_ours and topic in self._topics and not self.is_closed:
            self.refresh(topic)

    def _refreshed(self, topic: str, known: Any, done: "Future[TopicMetadata]") -> None:
        """``known``: the topic as it was when this was asked."""
        with self.lock.thread, self.lock.alone():
            self._refreshing.discard(topic)
            if self._topics.get(topic) is not known:
                return  # another topic has the name since, of which this may not tell
        error = done.exception()
        if error is not None:
            logger.info(
                "%s: %s: its metadata is asked for again later: %s", self.name, topic, error
            )
            return
        self.learn(done.result())

    def pause(self, seconds: float) -> None:
        """Wait that long, or less if a batch ends or the producer is closed."""
        with self.changed:
            self.changed.wait(seconds)

    # -- memory, waiting ---------------------------------------------------------------------------

    def release(self, size_bytes: int) -> None:
        """Give memory back; a negative number takes some."""
        self.accumulator.release(size_bytes)
        if size_bytes > 0:
            self._has_changed()

    def _has_changed(self) -> None:
        with self.changed:
            self._changes += 1
            self.changed.notify_all()

    @property
    def changes(self) -> int:
        """A number that rises with each change: read it before you look at what may change."""
        return self._changes

    def wait_for_change(self, since: int, deadline: float) -> bool:
        """Wait until something has changed; False if the deadline was first."""
        with self.changed:
            while self._changes == since and not self.is_closed:
                left_s = deadline - self.clock()
                if left_s <= 0:
                    return False
                self.changed.wait(left_s)
        return True

    def close_rows(self, batch: Any) -> None:
        """The next row does not fit into a batch."""
        sending: SendingPartition = batch.owner
        with self.lock.thread, self.lock.alone():
            sending.machine.close_rows()
        self.events.put(batch)

    def add(self, state: Any, batch: Any, rows: Rows, charged_bytes: int) -> Delivery | None:
        """Queue a batch of columns; None if another topic has the name now."""
        sending: SendingPartition = batch.owner
        delivery = self._new_delivery(batch)
        delivery.count = rows.count
        with self.lock.thread, self.lock.alone():
            if self.accumulator.topics.get(sending.topic) is not state:
                return None
            sending.machine.add(Batch(delivery, rows.count, rows=rows, charged_bytes=charged_bytes))
        self.events.put(batch)
        return delivery

    def _new_delivery(self, batch: Any) -> Delivery:
        return Delivery(batch.owner, self.clock())

    def hurry(self) -> list[Delivery]:
        """Nothing that waits now lingers; returns all of it."""
        waiting: list[Delivery] = []
        with self.lock.thread, self.lock.alone():
            waiting += self._ending
            for state in [*self._topics.values(), *self._retired]:
                for batch in list(state.batches):
                    deliveries = batch.owner.machine.deliveries
                    for delivery in deliveries:
                        delivery.is_hurried = True
                    if deliveries:
                        self.events.put(batch)
                    waiting += deliveries
        return waiting

    @property
    def has_waiting(self) -> bool:
        """Whether anything that was taken in has not ended."""
        with self.lock.thread, self.lock.alone():
            states = [*self._topics.values(), *self._retired]
            return any(batch.owner.machine.deliveries for one in states for batch in one.batches)

    def wait(self, deliveries: Iterable[Delivery], timeout_s: float) -> bool:
        """Whether all of them have ended in time, and their callbacks have run."""
        deadline = self.clock() + timeout_s
        left = deque(deliveries)
        with self.changed:
            while left:
                if left[0].has_told:
                    left.popleft()
                    continue
                left_s = deadline - self.clock()
                if left_s <= 0:
                    return False
                self.changed.wait(left_s)
        return True

    def take_failures(self) -> tuple[ProduceFailed | None, int]:
        """What has failed since the last time and nobody has seen: the first, and how many records
        in all."""
        with self.lock.thread, self.lock.alone():
            failures, self._failures = self._failures, Failures()
        return failures.untold()

    def is_own_thread(self) -> bool:
        """Whether this runs in a callback, where nothing may wait for the producer."""
        return threading.current_thread() in (self.thread, self._ending_thread)

    # -- transactions ------------------------------------------------------------------------------

    def open(self) -> None:
        """Take rows in, of another transaction."""
        with self.lock.thread, self.lock.alone():
            self._is_open = True
            self._transaction += 1
            if not self.is_closed:
                self.accumulator.topics.update(self._topics)

    def shut(self) -> None:
        """Take none in, until it is opened again."""
        with self.lock.thread, self.lock.alone():
            self._is_open = False
            self.accumulator.topics.clear()

    def begin_transaction(self, identity: ProducerIdentity) -> None:
        """What is sent from now on has this epoch. It is shut, and all before has ended."""
        with self.lock.thread, self.lock.alone():
            self.identity = identity
            for state in self._topics.values():
                for batch in state.batches:
                    batch.owner.machine.begin_transaction(identity)

    def give_up(self, error: BaseException) -> None:
        """Have the thread fail what has not ended of this transaction. It is shut."""
        self.events.put(partial(self._give_up, self._transaction, error))

    def _give_up(self, transaction: int, error: BaseException) -> None:
        if transaction == self._transaction:
            self._retire_all(error)

    def _retire_all(self, error: BaseException) -> None:
        for state in [*self._topics.values(), *self._retired]:
            for batch in state.batches:
                self._tell(batch.owner, partial(batch.owner.machine.retire, error))

    # -- the end -----------------------------------------------------------------------------------

    def leave_to_parent(self) -> None:
        """This process was forked off: all that was taken is the parent's to send."""
        # whoever held them is not here
        self.lock, self.changed = CallLock("producer"), threading.Condition()
        self.is_forked = self.is_closed = self._is_stopped = True
        self.accumulator.topics.clear()

    def check_not_forked(self) -> None:
        """Raises ForkedProcess."""
        if self.is_forked:
            raise ForkedProcess("producer")

    def close(self) -> None:
        """Take nothing more in; whoever waits for room hears it."""
        with self.lock.thread, self.lock.alone():
            self.is_closed = True
            self.accumulator.topics.clear()
        self._has_changed()

    def stop(self) -> None:
        """End the thread, and fail what is not acknowledged."""
        self.close()
        self._is_stopped = True
        self.events.put(_nothing)
        if self.thread.is_alive() and threading.current_thread() is not self.thread:
            self.thread.join()
        error = InvalidRequest(
            "producer", "closed", "before these records were acknowledged; give close() more time"
        )
        self._ending_thread = threading.current_thread()
        try:
            self._retire_all(error)
        finally:
            self._ending_thread = None

    # -- the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_stopped:
            try:
                self.step(self._until_next())
            except Exception:  # a fault of ours must not hold up what else is to be sent
                logger.exception("a producer's thread goes on after an error that nobody expected")

    def step(self, timeout_s: float | None = 0.0) -> bool:
        """Wait for an event, and do all that is due; returns whether there was anything."""
        events = self._take_events(timeout_s)
        touched: dict[SendingPartition, None] = {}
        for event in events:
            if callable(event):
                self._hear(event)
            else:
                touched[event.owner] = None
        now = self.clock()
        for sending in self._timers.take_due(now):
            touched[sending] = None
        if self._refresh_at <= now:
            self._refresh_at = now + self._config.metadata_max_age_ms / 1000
            for topic in list(self._topics):
                self.refresh(topic)
        for sending in touched:
            self._advance(sending)
        return bool(events or touched)

    @staticmethod
    def _hear(event: Callable[[], None]) -> None:
        try:
            event()
        except Exception:  # a fault of ours: what else has happened must not be lost with it
            logger.exception("a producer goes on after an error that nobody expected")

    def _take_events(self, timeout_s: float | None) -> list[Event]:
        events: list[Event] = []
        try:
            events.append(self.events.get(timeout_s != 0, timeout_s))
            while True:
                events.append(self.events.get_nowait())
        except Empty:
            return events

    def _until_next(self) -> float:
        next_at = self._timers.next_at
        wake_at = self._refresh_at if next_at is None else min(self._refresh_at, next_at)
        return max(wake_at - self.clock(), 0.0)

    def _advance(self, sending: SendingPartition) -> None:
        now = self.clock()
        with self.lock.thread, self.lock.alone():
            todo = sending.machine.advance(now)
            due_at = sending.machine.due_at(now)
            self._note_ends(todo)
        if due_at is not None:
            self._timers.schedule(sending, due_at)
        self._perform(sending, todo)

    def _tell(self, sending: SendingPartition, event: Callable[[], Sequence[Instruction]]) -> None:
        """Tell a machine, and do what it says."""
        with self.lock.thread, self.lock.alone():
            todo = event()
            self._note_ends(todo)
        self._perform(sending, todo)

    def _note_ends(self, todo: Sequence[Instruction]) -> None:
        """The machine forgets them here; ``flush`` waits until their users were told."""
        for instruction in todo:
            if isinstance(instruction, End):
                self._ending[instruction.batch.delivery] = None

    def _perform(self, sending: SendingPartition, todo: Sequence[Instruction]) -> None:
        for instruction in todo:
            if isinstance(instruction, Send):
                self._send(sending, instruction)
            elif isinstance(instruction, End):
                self._end(sending, instruction)
            else:
                assert isinstance(instruction, AskProducerId)
                self._ask_producer_id(sending)

    def _send(self, sending: SendingPartition, send: Send) -> None:
        batch = send.batch
        try:
            records = batch.sealed(self._config.compression)
        except Exception as error:
            failed: Future[ProduceAnswer] = Future()
            failed.set_exception(InvalidRecord(f"a batch could not be compressed: {error!r}"))
            self.events.put(partial(self._answered, sending, send, failed))
            return
        request = ProduceRequest(
            topic=sending.topic,
            topic_id=sending.topic_id,
            partition=sending.number,
            records=records,
            transactional_id=self._config.transactional_id,
        )
        self.note_sent()
        deadline = batch.created_at + self.times.delivery_timeout_s
        left_s = max(deadline - self.clock(), 0.001)
        timeout_s = min(self._config.request_timeout_ms / 1000, left_s)
        future = self._connection.produce(request, timeout_s=timeout_s)
        future.add_done_callback(
            lambda done: self.events.put(partial(self._answered, sending, send, done))
        )

    def _answered(
        self, sending: SendingPartition, send: Send, done: "Future[ProduceAnswer]"
    ) -> None:
        error = done.exception()
        if error is None:
            event = partial(sending.machine.acknowledge, send.batch, send.attempt, done.result())
        else:
            self._note(sending, send, error)
            wait_s = backoff_s(
                send.attempt,
                self._config.retry_backoff_ms,
                self._config.retry_backoff_max_ms,
                random.random(),
            )
            retry_at = self.clock() + wait_s
            event = partial(sending.machine.refuse, send.batch, send.attempt, error, retry_at)
        self._tell(sending, event)
        self._advance(sending)

    def _note(self, sending: SendingPartition, send: Send, error: BaseException) -> None:
        """What an error tells beyond its batch."""
        code = error.code if isinstance(error, RaylogError) else None
        self._waits.refused(sending.name, error, send.batch.created_at, self.clock())
        if code is None and send.attempt == 1:
            logger.warning(
                "%s: %s: an error that nobody expected; the batch is sent again until "
                "delivery.timeout.ms: %r",
                self.name,
                sending.name,
                error,
            )
        if code != THROTTLED:
            self._connection.forget(sending.topic, sending.number)
        if code == UNKNOWN_TOPIC_OR_PARTITION:
            self.refresh(sending.topic)
        if code == UNKNOWN_TOPIC_ID:
            with self.lock.thread, self.lock.alone():
                if self._is_of(sending.topic, sending.topic_id):
                    self._retire(sending.topic, getattr(error, "served_topic_id", ""))
        if isinstance(error, RecordTooLarge):
            limit = getattr(error, "max_bytes", sending.rows.limit)
            sending.rows.limit = self._limit(max(limit, 1))

    def _end(self, sending: SendingPartition, end: End) -> None:
        batch, answer = end.batch, end.answer
        error = end.error
        if answer is None and error is None:
            timed_out = NotSentInTime if end.is_fate_known else RequestTimedOut
            error = timed_out(sending.name, self._config.delivery_timeout_ms)
        outcome = Outcome(
            first=batch.first,
            count=batch.count,
            base_offset=-1 if answer is None else answer.base_offset,
            log_append_time=-1 if answer is None else answer.log_append_time,
            error=error,
            is_fate_known=end.is_fate_known,
        )
        if error is not None:
            with self.lock.thread, self.lock.alone():
                self._failures.add(batch.delivery, outcome)
            self.note_failure(error)
        self.accumulator.release(batch.charged_bytes)
        batch.delivery.end(outcome)
        if batch.delivery.has_told:
            with self.lock.thread, self.lock.alone():
                self._ending.pop(batch.delivery, None)
        self._has_changed()

    # -- producer ids ------------------------------------------------------------------------------

    def _first_identity(self) -> ProducerIdentity:
        if self._config.transactional_id is not None:
            return ProducerIdentity(is_transactional=True)  # until init_transactions
        if self._config.enable_idempotence:
            return ProducerIdentity(self._new_producer_id(), 0)
        return NOBODY

    def _new_producer_id(self) -> int:
        """Ask for one, for ``max.block.ms`` while the Controller is away. Raises NoProducerId."""
        deadline = self.clock() + self._config.max_block_ms / 1000
        left_s = self._config.max_block_ms / 1000
        why = "the Controller does not answer"
        while True:
            try:
                return self._connection.new_producer_id(timeout_s=left_s).result()
            except (NotLeader, RequestTimedOut) as error:
                if isinstance(error, NotLeader):
                    why = error.why
                self.pause(min(self._config.retry_backoff_ms / 1000, deadline - self.clock()))
                left_s = deadline - self.clock()
                if left_s <= 0:
                    raise NoProducerId(self._config.max_block_ms, why) from error

    def _ask_producer_id(self, sending: SendingPartition) -> None:
        timeout_s = self._config.request_timeout_ms / 1000
        future = self._connection.new_producer_id(timeout_s=timeout_s)
        future.add_done_callback(
            lambda done: self.events.put(partial(self._take_producer_id, sending, done))
        )

    def _take_producer_id(self, sending: SendingPartition, done: "Future[int]") -> None:
        error = done.exception()
        if error is None:
            with self.lock.thread, self.lock.alone():
                sending.machine.take_producer_id(done.result())
            self._advance(sending)
            return
        logger.info("%s: %s: a producer id is asked for again: %s", self.name, sending.name, error)
        wait_s = self._config.retry_backoff_max_ms / 1000
        timer = threading.Timer(wait_s, self.events.put, (partial(self._ask_producer_id, sending),))
        timer.daemon = True
        timer.start()


def _stick(topic: Any) -> None:
    """Choose another partition for rows without a key."""
    count_of = len(topic.batches)
    topic.sticky = (topic.sticky + random.randrange(1, count_of)) % count_of


def _nothing(*_: object) -> None:
    """An event that only wakes the thread; and what nobody is told."""
