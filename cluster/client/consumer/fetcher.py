"""Carries out what the machine says, on a connection, and takes records out of what came.

Nothing here waits. Answers end in other threads: they only put themselves into a queue and wake the
owner, who takes them at its next ``advance``, in its own thread. So the machine needs no lock.
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

import pyarrow as pa

from raylog.cluster.client.connection import (
    Connection,
    FetchRequest,
    OffsetAnswer,
    OffsetRequest,
)
from raylog.cluster.client.consumer.assigned import Assigned
from raylog.cluster.client.consumer.deserializing import Deserializing
from raylog.cluster.client.consumer.instructions import (
    Fetch,
    Forget,
    Instruction,
    Learn,
    ListTopics,
    LookUp,
)
from raylog.cluster.client.consumer.machine import Machine
from raylog.cluster.client.limits import MAX_PLAIN_BATCH_BYTES
from raylog.cluster.client.patience import as_error
from raylog.storage.buffers import Buffer
from raylog.storage.errors import CorruptRecord, DamagedBatch, RaylogError
from raylog.storage.limits import MAX_LONG
from raylog.storage.names import TopicPartition
from raylog.storage.records.aborted import without_aborted
from raylog.storage.records.decode import RowReader, TableReader, row_reader
from raylog.storage.records.record import ConsumerRecord
from raylog.storage.records.scan import SoundPart, last_epoch, sound_part
from raylog.storage.state.epochs import NO_EPOCH

# Behind a fetch's own wait: the actor may be busy.
GRACE_S = 5.0


class Answer:
    """The batches of one answer, and the place in them. See ``machine.Chunk``."""

    __slots__ = ("buffer", "rows", "size_bytes", "tables")

    def __init__(self, buffer: Buffer) -> None:
        self.buffer, self.size_bytes = buffer, memoryview(buffer).nbytes
        self.rows: RowReader | None = None
        self.tables: TableReader | None = None

    def close(self) -> None:
        """The next reader begins at the position."""
        self.rows = self.tables = None


class Taken:
    """Records of one partition that were taken out, and not handed out yet."""

    __slots__ = ("answer", "each", "is_done", "next_offset", "rows", "size_bytes")

    def __init__(
        self, each: Assigned, answer: Answer, rows: list[ConsumerRecord], reader: RowReader
    ) -> None:
        self.each, self.answer = each, answer
        self.rows, self.size_bytes = rows, reader.taken_bytes
        self.next_offset, self.is_done = reader.next_offset, reader.is_done


class Fetcher:
    """The shell of one machine."""

    def __init__(
        self,
        connection: Connection,
        machine: Machine,
        clock: Callable[[], float],
        wake: Callable[[], None],
    ) -> None:
        """``wake``: something has ended; called in any thread."""
        self.machine, self.config = machine, machine.config
        self._connection, self._clock, self._wake = connection, clock, wake
        self._deserializing = Deserializing(self.config)
        self._ended: deque[tuple[Instruction, Future[Any]]] = deque()
        self._fetches: set[Future[Any]] = set()  # that have no answer yet

    # -- asking ------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Take what was answered, and ask for what comes next."""
        while self._ended:
            instruction, future = self._ended.popleft()
            self._take(instruction, future)
        for instruction in self.machine.instructions(self._clock()):
            self._carry_out(instruction)

    def _carry_out(self, instruction: Instruction) -> None:
        if isinstance(instruction, Forget):
            self._connection.forget(*instruction.partition)
            return
        future = self._request(instruction)
        future.add_done_callback(partial(self._on_end, instruction))

    def _on_end(self, instruction: Instruction, future: "Future[Any]") -> None:
        self._ended.append((instruction, future))
        self._wake()

    def _request(self, instruction: Instruction) -> "Future[Any]":
        timeout_s = self.config.request_timeout_s
        if isinstance(instruction, Fetch):
            request = FetchRequest(
                topic=instruction.partition.topic,
                topic_id=instruction.topic_id,
                partition=instruction.partition.partition,
                leader_epoch=-1,
                offset=instruction.offset,
                max_bytes=instruction.max_bytes,
                min_bytes=self.config.fetch_min_bytes,
                max_wait_ms=instruction.max_wait_ms,
                isolation=self.config.isolation,
                last_fetched_epoch=instruction.last_fetched_epoch,
            )
            wait_s = instruction.max_wait_ms / 1000 + GRACE_S
            fetch = self._connection.fetch(request, timeout_s=max(timeout_s, wait_s))
            self._fetches.add(fetch)
            fetch.add_done_callback(self._fetches.discard)
            return fetch
        if isinstance(instruction, LookUp):
            return self._list_offset(instruction)
        if isinstance(instruction, Learn):
            return self._connection.metadata(instruction.topic, timeout_s=timeout_s)
        assert isinstance(instruction, ListTopics)
        return self._connection.list_topics(timeout_s=timeout_s)

    def give_up(self) -> None:
        """Nobody waits for an answer any more, and no LogActor holds a place for one."""
        for fetch in list(self._fetches):
            fetch.cancel()

    def _list_offset(self, wanted: LookUp) -> "Future[OffsetAnswer]":
        request = OffsetRequest(
            topic=wanted.partition.topic,
            topic_id=wanted.topic_id,
            partition=wanted.partition.partition,
            leader_epoch=-1,
            timestamp=wanted.timestamp,
            isolation=self.config.isolation,
        )
        return self._connection.list_offset(request, timeout_s=self.config.request_timeout_s)

    # -- answers -----------------------------------------------------------------------------------

    def _take(self, instruction: Instruction, future: "Future[Any]") -> None:
        error = future.exception()
        now = self._clock()
        if isinstance(instruction, Learn):
            if error is None:
                known = future.result()
                count = len(known.partitions)
                self.machine.learned(instruction.topic, known.topic_id, count, now)
            else:
                self.machine.not_learned(instruction.topic, as_error(error), now)
        elif isinstance(instruction, ListTopics):
            if error is None:
                self.machine.listed(future.result(), now)
            else:
                self.machine.not_listed(as_error(error), now)
        elif isinstance(instruction, LookUp):
            if error is None:
                found = future.result()
                self.machine.looked_up(instruction.number, found.offset, found.leader_epoch)
            else:
                self.machine.failed(instruction.number, as_error(error), now)
        elif isinstance(instruction, Fetch):
            if error is None:
                self._read(instruction, future.result(), now)
            else:
                self.machine.failed(instruction.number, as_error(error), now)

    def _read(self, asked: Fetch, answer: Any, now: float) -> None:
        if not self.machine.is_wanted(asked.number):
            return
        mark = answer.high_watermark
        readable_end = answer.last_stable_offset if self.config.isolation else mark
        if answer.diverging is not None and not self._is_iterated(asked.partition):
            bounds = (answer.log_start_offset, mark)
            self.machine.diverged(asked.number, answer.diverging, *bounds, answer.leader_epoch)
            return
        try:
            buffer = answer.read()
            if buffer is None:
                self.machine.found_nothing(asked.number, readable_end)
                self.machine.log_ends(asked.partition, answer.log_start_offset, mark)
                return
            part = _sound_part(buffer, asked, answer)
            if part.damage is not None:
                buffer = memoryview(buffer)[: part.size_bytes]  # the next fetch finds it, first
            epoch = _last_epoch(buffer, part.next_offset, answer)
            if answer.aborted:
                buffer = without_aborted(buffer, answer.aborted)
        except RaylogError as error:
            named = _named(error, asked.partition, asked.offset)
            self.machine.failed(asked.number, named, now)
            return
        self.machine.fetched(asked.number, Answer(buffer), part.next_offset, epoch, readable_end)
        self.machine.log_ends(asked.partition, answer.log_start_offset, mark)

    def _is_iterated(self, partition: TopicPartition) -> bool:
        """Whether records were taken out that are not handed out yet: no place can change now."""
        each = self.machine.assigned[partition]
        first = each.chunks[0] if each.chunks else None
        if not isinstance(first, Answer) or first.rows is None or each.position is None:
            return False
        return each.position < first.rows.next_offset

    # -- taking records out ------------------------------------------------------------------------

    @property
    def has_records(self) -> bool:
        """Whether a take finds records, or nothing; it raises nothing but what is damaged."""
        each = self.machine.next_ready()
        return not self.machine.troubles and each is not None and bool(each.chunks)

    def take_rows(self, max_records: int, max_bytes: int) -> Taken | None:
        """The next records of one partition; None where none has come.

        Raises what a partition has to say once everything before it was handed out. Nothing counts
        as handed out before :meth:`hand_out`.
        """
        while (each := self._next_ready()) is not None:
            answer = each.chunks[0]
            assert isinstance(answer, Answer)
            assert each.position is not None
            if answer.rows is None:
                answer.close()
                answer.rows = row_reader(
                    answer.buffer,
                    *each.partition,
                    start_offset=each.position,
                    end_offset=each.end if isinstance(each.end, int) else None,
                    max_plain_batch_bytes=MAX_PLAIN_BATCH_BYTES,
                )
            rows = self._read_from(each, partial(answer.rows.take, max_records, max_bytes))
            taken = Taken(each, answer, rows, answer.rows)
            if rows and self._deserializing.is_needed:
                self._deserialize(taken, answer)
            if rows:
                return taken
            self.hand_out(taken)
        return None

    def _deserialize(self, taken: Taken, answer: Answer) -> None:
        """Give its records to the user's functions. Where one raises, the rest is taken again.

        Raises DeserializationFailed where that is the first of them.
        """
        try:
            taken.rows, error = self._deserializing.records(taken.rows)
        except BaseException:  # an interrupt
            answer.close()
            raise
        if error is None:
            return
        answer.close()
        if not taken.rows:
            self.machine.pass_turn(taken.each)
            raise error
        taken.next_offset, taken.is_done = error.offset, False

    def take_table(self, max_bytes: int) -> tuple[Assigned, pa.RecordBatch] | None:
        """As ``take_rows``, as columns, and handed out at once."""
        while (each := self._next_ready()) is not None:
            answer = each.chunks[0]
            assert isinstance(answer, Answer)
            assert each.position is not None
            if answer.tables is None:
                answer.close()
                answer.tables = TableReader(
                    answer.buffer,
                    start_offset=each.position,
                    end_offset=each.end if isinstance(each.end, int) else None,
                    max_plain_batch_bytes=MAX_PLAIN_BATCH_BYTES,
                )
            batch = self._read_from(each, partial(answer.tables.take, max_bytes))
            self.machine.note(each)
            self.machine.handed_out(each, answer.tables.next_offset, is_done=answer.tables.is_done)
            if batch.num_rows:
                return each, batch
        return None

    def hand_out(self, taken: Taken) -> None:
        """All of these records are the user's now."""
        if self._is_current(taken):
            self.machine.handed_out(taken.each, taken.next_offset, is_done=taken.is_done)

    def hand_out_up_to(self, taken: Taken, offset: int) -> None:
        """Only the records before ``offset`` are: the others are taken again."""
        taken.answer.close()
        if self._is_current(taken):
            self.machine.handed_out(taken.each, offset, is_done=False)

    def _is_current(self, taken: Taken) -> bool:
        """False where the partition was left, or its topic made again, since it was taken out."""
        each = taken.each
        is_assigned = self.machine.assigned.get(each.partition) is each
        return is_assigned and bool(each.chunks) and each.chunks[0] is taken.answer

    def begin_again(self) -> None:
        """A call was interrupted: see ``Machine.begin_again``."""
        self.machine.begin_again()
        for each in self.machine.assigned.values():
            for answer in each.chunks:
                assert isinstance(answer, Answer)
                answer.close()  # a reader may be ahead of the position

    def _next_ready(self) -> Assigned | None:
        """The partition whose turn it is. Raises its error, where it has nothing else."""
        if self.machine.troubles:
            raise self.machine.troubles.pop()
        each = self.machine.next_ready()
        if each is not None and not each.chunks:
            raise self.machine.take_error(each)
        return each

    def _read_from(self, each: Assigned, take: Callable[[], Any]) -> Any:
        try:
            return take()
        except RaylogError as error:
            self.machine.fetch_again(each)  # it may have been damaged on its way
            assert each.position is not None
            raise _named(error, each.partition, each.position) from None


def _named(error: RaylogError, partition: TopicPartition, offset: int) -> RaylogError:
    """The error, and for a damaged batch where it is."""
    if type(error) is not CorruptRecord:
        return error
    return DamagedBatch(str(partition), offset, error.why)


def _sound_part(buffer: Buffer, asked: Fetch, answer: Any) -> SoundPart:
    """What can be handed out. Raises CorruptRecord where that is nothing."""
    end = MAX_LONG if answer.end_offset < 0 else answer.end_offset
    return sound_part(buffer, asked.offset, end)


def _last_epoch(buffer: Buffer, behind: int, answer: Any) -> int:
    """The leader epoch of the last batch; -1 for one that cannot be: no CRC covers it."""
    epoch = last_epoch(buffer, behind)
    return epoch if epoch <= answer.leader_epoch else NO_EPOCH
