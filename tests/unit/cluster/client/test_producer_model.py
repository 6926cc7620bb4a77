"""The producer's machine against a model of a log: random answers, millions of orders.

The log knows producers as a real one does (``storage/state/producers.py``). The way there loses
requests and answers, delays attempts that were given up, refuses what is too large, loses the tail
of the log. Whatever happens, each record is acknowledged once or failed once; what is acknowledged
is in the log, in order, and with idempotence nothing is there twice.

A failure prints its seed: run that alone with ``RAYLOG_PRODUCER_SEED=n``.
"""

import os
import random
from collections import Counter
from typing import Any, NamedTuple

import pytest

from raylog.actors.errors import NotLeader, RequestTimedOut, TooManyAppends
from raylog.cluster.client.producer.batches import NOBODY, Batch, Compression, ProducerIdentity
from raylog.cluster.client.producer.delivery import Delivery, Outcome
from raylog.cluster.client.producer.machine import (
    AskProducerId,
    End,
    PartitionMachine,
    Send,
    Times,
    backoff_s,
)
from raylog.storage.errors import InvalidRecord, RaylogError, RecordTooLarge
from raylog.storage.records import kernel
from raylog.storage.records.batch import read_header
from raylog.storage.records.decode import decode_records
from raylog.storage.state.producers import ProducerStates

STEPS = int(os.environ.get("RAYLOG_PRODUCER_STEPS", "400"))
SEEDS = int(os.environ.get("RAYLOG_PRODUCER_SEEDS", "60"))
PLAIN = Compression()


class TopicIsAnother(RaylogError):
    """As the log answers whom another topic of this name was meant."""

    code = 100


class Written(NamedTuple):
    """A batch in the model's log."""

    header: Any
    values: list[bytes]


class Answer(NamedTuple):
    base_offset: int
    log_append_time: int = -1


class ModelLog:
    """One partition's log: batches, and what it remembers of producers."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes, self.batches = max_bytes, list[Written]()
        self.producers = ProducerStates("t-0")
        self.has_lost_its_tail = False

    @property
    def values(self) -> list[bytes]:
        return [value for batch in self.batches for value in batch.values]

    def append(self, records: bytes) -> Answer:
        header = read_header(records)
        values = [record.value or b"" for record in decode_records(records)]
        if len(records) > self.max_bytes:
            raise RecordTooLarge(len(records), self.max_bytes)
        if any(value.startswith(b"bad") for value in values):
            raise InvalidRecord("a record that the topic does not take")
        duplicate = self.producers.check(header) if header.producer_id >= 0 else None
        if duplicate is not None:
            return Answer(duplicate.last_offset - duplicate.offset_delta)
        offset = len(self.values)
        self.batches.append(Written(header, values))
        self.producers.add(header, offset, 0)
        return Answer(offset)

    def lose_tail(self, batches: int) -> None:
        """A power loss: the last batches are gone, and recovery reads the rest."""
        self.has_lost_its_tail |= bool(self.batches) and batches > 0
        self.batches = self.batches[: max(len(self.batches) - batches, 0)]
        self.producers = ProducerStates("t-0")
        offset = 0
        for batch in self.batches:
            self.producers.add(batch.header, offset, 0)
            offset += len(batch.values)


class Partition:
    """What a Delivery needs of the shell."""

    topic, number, name = "t", 0, "t-0"

    def release(self, size_bytes: int) -> None:
        pass

    def hurry(self, delivery: Delivery) -> None:
        pass


class World:
    """A machine, its log, and the way between them."""

    def __init__(self, seed: int, *, max_in_flight: int, is_idempotent: bool, loses: bool) -> None:
        self.random = random.Random(seed)
        self.loses, self.is_idempotent, self.max_in_flight = loses, is_idempotent, max_in_flight
        self.pace = self.random.choice((4, 12))  # requests wait behind each other, or not
        self.log = ModelLog(self.random.choice((150, 400, 100_000)))
        self.now = 0.0
        self.rows = kernel.ops.OpenBatch(None, 300)
        self.topic = kernel.ops.OpenTopic([self.rows])
        self.accumulator = kernel.ops.Accumulator(
            receipt=kernel.ops.Receipt,
            new_delivery=lambda _: Delivery(Partition(), self.now),  # type: ignore[arg-type]
            careful=print,
            wake=lambda _: None,
            stick=lambda _: None,
            batch_bytes=200,
            free_bytes=1 << 40,
        )
        self.accumulator.topics["t"] = self.topic
        epoch = self.random.choice((0, 0, 32_766))
        identity = ProducerIdentity(7, epoch) if is_idempotent else NOBODY
        times = Times(linger_s=self.random.choice((0, 1)), delivery_timeout_s=20, batch_bytes=200)
        self.machine = PartitionMachine(self.rows, identity, times, max_in_flight)
        self.next_id = 8
        # what is on its way, in the order of the connection; and attempts that were given up
        self.on_the_way: list[tuple[Send, bytes]] = []
        self.delayed: list[bytes] = []
        self.sent: list[tuple[bytes, Any]] = []
        self.ended: Counter[int] = Counter()
        self.acknowledged: list[tuple[int, bytes]] = []
        self.unwritten: set[bytes] = set()
        self.has_asked = False
        self.is_retired = False

    # -- the user ----------------------------------------------------------------------------------

    def send(self) -> None:
        if self.is_retired:
            return
        kind = b"bad" if self.random.random() < 0.03 else b"row"
        size = self.random.choice((0, 0, 10, 60, 200))
        value = kind + b"-%d-" % len(self.sent) + b"x" * size
        row = ("t", self.topic, None, value, None, 0, 0)
        receipt = self.accumulator.append(*row)
        if receipt == kernel.ops.BATCH_IS_FULL:
            self.machine.close_rows()
            receipt = self.accumulator.append(*row)
        self.sent.append((value, receipt))

    # -- the machine -------------------------------------------------------------------------------

    def do(self, todo: list[Any]) -> None:
        for instruction in todo:
            if isinstance(instruction, Send):
                live = [one for one in self.machine.batches if one.is_in_flight]
                assert len(live) <= self.max_in_flight
                batch = instruction.batch
                self.on_the_way.append((instruction, bytes(batch.sealed(PLAIN))))
            elif isinstance(instruction, AskProducerId):
                assert not self.has_asked
                self.has_asked = True
            else:
                self.end(instruction)

    def end(self, end: End) -> None:
        batch = end.batch
        base_offset = -1 if end.answer is None else end.answer.base_offset
        error = None if end.answer else end.error or RequestTimedOut("t-0", 20_000)
        batch.delivery.end(Outcome(batch.first, batch.count, base_offset, -1, error))
        for index in range(batch.first, batch.first + batch.count):
            value = self.value_of(batch, index)
            self.ended[id(batch.delivery), index] += 1  # type: ignore[index]
            if end.answer is not None:
                self.acknowledged.append((base_offset + index - batch.first, value))
            elif end.is_fate_known:
                self.unwritten.add(value)

    def value_of(self, batch: Batch, index: int) -> bytes:
        return self.values_by_place[id(batch.delivery), index]

    @property
    def values_by_place(self) -> dict[tuple[int, int], bytes]:
        if len(self._places) != len(self.sent):
            for value, receipt in self.sent[len(self._places) :]:
                self._places[id(receipt.delivery), receipt.index] = value
        return self._places

    @property
    def _places(self) -> dict[tuple[int, int], bytes]:
        return self.__dict__.setdefault("places", {})

    # -- the way -----------------------------------------------------------------------------------

    def deliver(self) -> None:
        """Something becomes of the oldest request; often what should."""
        if not self.on_the_way:
            return
        send, records = self.on_the_way.pop(0)
        fault = self.random.choice(
            ("none",) * 6
            + ("refused", "throttled", "answer lost", "request lost", "delayed", "answer late")
        )
        error: Exception | None = None
        answer: Answer | None = None
        if fault in ("none", "answer lost", "answer late"):
            try:
                answer = self.log.append(records)
            except RaylogError as refused:
                error = refused
        if fault == "answer late" and self.on_the_way:  # the next one's answer overtakes it
            self.deliver()
        if fault in ("answer lost", "request lost", "delayed"):
            error, answer = self.random.choice((RequestTimedOut("t-0", 1), OSError("?"))), None
        elif fault == "refused":
            error = NotLeader("t-0", "it moved")
        elif fault == "throttled":
            error = TooManyAppends("t-0", 1, 1)
        if fault == "delayed":
            self.delayed.append(records)
        if answer is not None:
            self.do(self.machine.acknowledge(send.batch, send.attempt, answer))
        else:
            assert error is not None
            wait_s = self.random.choice((0, 1, 3))
            self.do(self.machine.refuse(send.batch, send.attempt, error, self.now + wait_s))

    def deliver_late(self) -> None:
        """An attempt arrives that was given up, or repeated, long ago."""
        if self.delayed:
            records = self.delayed.pop(self.random.randrange(len(self.delayed)))
            try:
                self.log.append(records)
            except RaylogError:
                pass

    def hang(self) -> None:
        """Time goes by with a request on its way, until its batch is given up."""
        self.now += 20

    def lose(self) -> None:
        if self.loses:
            self.log.lose_tail(self.random.choice((1, 2, 5)))

    def change_limit(self) -> None:
        self.log.max_bytes = self.random.choice((150, 400, 100_000))

    def answer_producer_id(self) -> None:
        if self.has_asked:
            self.has_asked = False
            self.machine.take_producer_id(self.next_id)
            self.next_id += 1

    def retire(self) -> None:
        self.is_retired = True
        self.do(self.machine.retire(TopicIsAnother("made again")))

    def later(self) -> None:
        self.now += self.random.choice((0.1, 1, 4))

    def step(self) -> None:
        act = self.random.choices(
            (
                self.send,
                self.deliver,
                self.deliver_late,
                self.later,
                self.answer_producer_id,
                self.hang,
                self.lose,
                self.change_limit,
            ),
            (10, self.pace, 2, 3, 3, 0.2, 0.3, 0.3),
        )[0]
        act()
        self.do(self.machine.advance(self.now))

    def settle(self) -> None:
        """Everything that waits ends: by an answer, or by its time."""
        for _ in range(10_000):
            if not self.machine.batches and not self.rows.count:
                return
            self.deliver()
            self.answer_producer_id()
            due = self.machine.due_at(self.now)
            if not self.on_the_way and not self.has_asked and due is not None:
                self.now = due
            self.do(self.machine.advance(self.now))
        raise AssertionError("the machine never comes to rest")

    # -- what must be true -------------------------------------------------------------------------

    def check(self) -> None:
        places = [(id(receipt.delivery), receipt.index) for _, receipt in self.sent]
        assert self.ended == dict.fromkeys(places, 1), "each record ends once"
        order = [value for value, _ in self.sent]
        written = self.log.values
        counts = Counter(written)
        if not self.log.has_lost_its_tail:
            for offset, value in self.acknowledged:
                assert written[offset] == value, "it is where the receipt says"
            if self.is_idempotent:
                assert max(counts.values(), default=0) <= 1, "nothing is there twice"
                assert not self.unwritten & set(written), "what failed for certain is not there"
                ranks = {value: rank for rank, value in enumerate(order)}
                # A new producer id does not shut out what was given up under the old one.
                is_same_producer = self.next_id == 8
                sure = {value for _, value in self.acknowledged}
                in_log = [ranks[v] for v in written if is_same_producer or v in sure]
                assert in_log == sorted(in_log), "in order"
            else:
                firsts = [offset for offset, _ in self._by_rank(order)]
                assert firsts == sorted(firsts), "in order, seen by the acknowledgements"

    def _by_rank(self, order: list[bytes]) -> list[tuple[int, bytes]]:
        ranks = {value: rank for rank, value in enumerate(order)}
        return sorted(self.acknowledged, key=lambda pair: ranks[pair[1]])


def seeds() -> range:
    one = os.environ.get("RAYLOG_PRODUCER_SEED")
    return range(int(one), int(one) + 1) if one else range(SEEDS)


@pytest.mark.parametrize("loses", [False, True], ids=["whole log", "tail lost"])
@pytest.mark.parametrize("is_idempotent", [True, False], ids=["idempotent", "plain"])
@pytest.mark.parametrize("max_in_flight", [1, 2, 5])
def test_each_record_is_acknowledged_once_or_fails_once_and_none_is_lost_or_doubled(
    max_in_flight: int, is_idempotent: bool, loses: bool
) -> None:
    for seed in seeds():
        world = World(seed, max_in_flight=max_in_flight, is_idempotent=is_idempotent, loses=loses)
        try:
            for step in range(STEPS):
                world.step()
                if step == STEPS - 10 and seed % 5 == 0:
                    world.retire()
            world.settle()
            while world.delayed:
                world.deliver_late()
            world.check()
        except BaseException as error:
            error.add_note(f"RAYLOG_PRODUCER_SEED={seed}")
            raise


def test_a_partition_is_left_alone_longer_each_time_and_a_second_at_most() -> None:
    longest = [backoff_s(attempts, 50, 1000, 1.0) for attempts in range(1, 9)]
    assert longest == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]
    assert backoff_s(30, 50, 1000, 0.0) == 0.5
    assert backoff_s(1, 5000, 1000, 1.0) == 5.0
