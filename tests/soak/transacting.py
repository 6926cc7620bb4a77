"""A worker that writes transactions: records of several partitions, and a group's offsets.

It alone has its transactional id, from one life to the next, and is killed as others are: whoever
comes next takes the id, and what was open is aborted. Between its transactions it reads what is
committed.
"""

import time
from collections.abc import Callable
from functools import partial

from raylog.actors.coordinators.transactions.errors import ProducerFenced, TransactionFailed
from raylog.cluster.broker import Broker
from raylog.cluster.client.connection import READ_COMMITTED
from raylog.cluster.client.consumer import Consumer
from raylog.cluster.client.consumer.group.messages import GroupMetadata
from raylog.cluster.client.producer import Producer
from raylog.storage.errors import RaylogError
from tests.soak.clients import PATIENCE_S, STOP_SENDING, Worker, identity_of, to_bytes
from tests.soak.history import (
    ABORT,
    COMMIT,
    INFO,
    OK,
    OPEN,
    CommittedRead,
    Partition,
    StableAtEnd,
    Transaction,
    TransactionAtEnd,
    ints,
)
from tests.soak.plan import FOR_EVER, TRANSFER_PARTITIONS, TRANSFERS

ID, GROUP = "soak", GroupMetadata("soak-transfers")
COUNTED = (TRANSFERS, 0)  # the partition whose offset is the number of the last transaction
TIMEOUT_MS = 20_000
LIFE_S = (5.0, 40.0)
CALL_S = 10.0
MOST_BURSTS, MOST_A_BURST = 4, 30
COMMITTED = 0.8
PAUSE_S = 0.1
NUMBERS_A_WORKER = 10**6
HEAL_S = 120.0


def prepare(broker: Broker) -> None:
    """Make the topic, and those of the coordinators, before anything else happens."""
    config = FOR_EVER | {"internal.segment.bytes": 400_000}
    broker.create_topic(TRANSFERS, TRANSFER_PARTITIONS, config)
    with broker.producer(transactional_id=ID) as producer:
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        producer.send_offsets_to_transaction({COUNTED: 0}, GROUP, PATIENCE_S)
        producer.commit_transaction(PATIENCE_S)


def transact(worker: Worker) -> None:
    """Write transactions until told to stop; at the end nothing is open."""
    writer = _Writing(worker)
    while not worker.is_over(STOP_SENDING):
        try:
            writer.live()
        except Exception as error:
            worker.surprise(error)
            time.sleep(1)


class _Writing:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._number = int(worker.name.removeprefix("w")) * NUMBERS_A_WORKER
        self._topic_id = worker.patiently(lambda: worker.broker.describe_topic(TRANSFERS)).topic_id

    def live(self) -> None:
        """One producer and one reader, until the producer is fenced or old enough."""
        worker, rng = self._worker, self._worker.rng
        producer = worker.patiently(
            lambda: worker.broker.producer(
                transactional_id=ID,
                transaction_timeout_ms=TIMEOUT_MS,
                batch_size=rng.choice([1, 1000, 16_384]),
                linger_ms=rng.choice([0, 5]),
                delivery_timeout_ms=rng.choice([2_000, 20_000, 120_000]),
                compression_type=rng.choice(["none", "lz4"]),
            )
        )
        consumer = worker.patiently(
            lambda: worker.broker.consumer(
                TRANSFERS, from_="latest", isolation_level="read_committed"
            )
        )
        with consumer, producer:
            worker.patiently(partial(producer.init_transactions, CALL_S))
            end = time.monotonic() + rng.uniform(*LIFE_S)
            while time.monotonic() < end and not worker.is_over(STOP_SENDING):
                try:
                    self._one(producer)
                except ProducerFenced as error:
                    print(f"{worker.name}: {error}", flush=True)
                    return
                self._read(consumer)
                time.sleep(PAUSE_S)

    def _one(self, producer: Producer) -> None:
        """One transaction, to its end. Raises ProducerFenced."""
        worker, rng = self._worker, self._worker.rng
        self._number += 1
        values: list[int] = []
        producer.begin_transaction()
        try:
            for _ in range(rng.randint(1, MOST_BURSTS)):
                partition = rng.randrange(TRANSFER_PARTITIONS)
                some = [next(worker.ids) for _ in range(rng.randint(1, MOST_A_BURST))]
                values += some
                self._tell(OPEN, INFO, values)
                for identity in some:
                    content, _ = to_bytes(identity, 60)
                    producer.send(TRANSFERS, content, partition=partition)
                if rng.random() < 0.3:
                    producer.flush()
            producer.send_offsets_to_transaction({COUNTED: self._number}, GROUP, CALL_S)
        except ProducerFenced:
            raise
        except RaylogError as error:
            self._say(error)
        else:
            if rng.random() < COMMITTED and self._commits(producer, values):
                return
        self._tell(ABORT, INFO, values)
        self._decide(producer.abort_transaction)
        self._tell(ABORT, OK, values)

    def _commits(self, producer: Producer, values: list[int]) -> bool:
        """Whether it is committed, and not to be aborted."""
        self._tell(COMMIT, INFO, values)
        try:
            self._decide(producer.commit_transaction)
        except TransactionFailed as error:
            self._say(error)
            return False
        self._tell(COMMIT, OK, values)
        return True

    def _decide(self, call: Callable[[float], None]) -> None:
        """Ask for a decision until it has an answer."""
        self._worker.patiently(partial(call, CALL_S))

    def _say(self, error: RaylogError) -> None:
        print(f"{self._worker.name}: transaction {self._number}: {error}", flush=True)

    def _tell(self, decision: str, outcome: str, values: list[int]) -> None:
        self._worker.writer.write(
            Transaction(self._number, decision, outcome, ints(values), time.monotonic_ns())
        )

    def _read(self, consumer: Consumer) -> None:
        try:
            rows = consumer.poll(0)
        except RaylogError as error:
            if not error.retriable:
                raise
            print(f"{self._worker.name}: {error}", flush=True)
            return
        for number in {row.partition for row in rows}:
            values = ints(
                identity_of(row.value, row.headers) for row in rows if row.partition == number
            )
            partition = Partition(TRANSFERS, self._topic_id, number)
            self._worker.writer.write(CommittedRead(partition, values))


# -- when all is over ------------------------------------------------------------------------------


def tell_all(worker: Worker) -> None:
    """What is committed, what is open, and the last transaction whose offsets count."""
    broker = worker.broker
    topic_id = broker.describe_topic(TRANSFERS).topic_id
    numbers = range(TRANSFER_PARTITIONS)
    ends = _ends(broker)
    deadline = time.monotonic() + HEAL_S
    while any(stable < end for stable, end in ends) and time.monotonic() < deadline:
        time.sleep(1)
        ends = _ends(broker)
    for number, (stable, end) in zip(numbers, ends, strict=True):
        worker.writer.write(StableAtEnd(Partition(TRANSFERS, topic_id, number), stable, end))
    for number in numbers:
        table = broker.read_table(TRANSFERS, partitions=[number], isolation_level="read_committed")
        values = ints(identity_of(value, ()) for value in table.column("value").to_pylist())
        partition = Partition(TRANSFERS, topic_id, number)
        worker.writer.write(CommittedRead(partition, values, is_final=True))
    offsets = broker.groups().offsets(GROUP.group_id)
    worker.writer.write(TransactionAtEnd(max(one.committed.offset for one in offsets)))


def _ends(broker: Broker) -> list[tuple[int, int]]:
    """(last stable offset, end) of each partition."""
    latest = {(TRANSFERS, number): "latest" for number in range(TRANSFER_PARTITIONS)}
    stable = broker.admin().list_offsets(latest, isolation=READ_COMMITTED)  # type: ignore[arg-type]
    ends = broker.admin().list_offsets(latest)  # type: ignore[arg-type]
    return [(stable[key].result().offset, ends[key].result().offset) for key in sorted(ends)]
