"""A worker that does an operator's work: it makes and deletes topics, under the same names again
and again, changes those in use (``administering.py``), and asks for what must be refused."""

import time

from raylog.actors.errors import TopicExists, UnknownTopicOrPartition
from raylog.actors.messages import AppendResult
from raylog.actors.runtime.calls import CALL_TIMEOUT_S, Call
from raylog.cluster.client.producer import Producer
from raylog.cluster.controller.describe import TopicDescription
from raylog.storage.errors import CorruptRecord, OutOfOrderSequence, RaylogError
from raylog.storage.records.encode import encode_records
from tests.soak.administering import churn_name, configure, operate, tell_created
from tests.soak.clients import (
    PATIENCE_S,
    RETRY_S,
    STOP_SENDING,
    Worker,
    may_pass,
    to_bytes,
)
from tests.soak.consuming import read_all
from tests.soak.history import (
    FAIL,
    INFO,
    KEEP,
    NEVER,
    NO_KEY,
    OK,
    Partition,
    ProducerId,
    Send,
    TopicChange,
    ints,
)
from tests.soak.plan import FOR_EVER, Stable
from tests.soak.producing import Burst, settle

FIRST_PARTITIONS = 2  # at most, of a new topic
RECORDS = 30
PAUSE_S = 0.5
# What a log says of a batch that it has not written, nor ever will.
REFUSALS = (CorruptRecord, OutOfOrderSequence)


def change(worker: Worker, stable: list[Stable]) -> None:
    """Make, use and delete topics until told to stop; the last ones are left."""
    alive: dict[str, TopicDescription] = {}
    lives = 0
    while not worker.is_over(STOP_SENDING):
        lives += 1
        name = churn_name(worker)
        try:
            if name in alive:
                _delete(worker, alive.pop(name))
            described = create(worker, name)
            if described is not None:
                alive[name] = described
                _use(worker, described, f"{worker.name}.{lives}")
            _ask_for_refusals(worker, worker.rng.choice(stable), lives)
            operate(worker, worker.rng.choice(stable))
        except Exception as error:
            worker.surprise(error)
        time.sleep(PAUSE_S)


def change_last(worker: Worker, stable: list[Stable], chance: float) -> str:
    """Create a topic, or set the config of another one; returns what was done, or tried.

    ``chance``: of [0, 1).
    """
    number, at = divmod(chance * 2, 1)
    if number:
        name = f"last-{next(worker.ids)}"
        return f"the creation of {name}" if create(worker, name) else f"an attempt to create {name}"
    topic = stable[int(at * len(stable))]
    try:
        configure(worker, topic)
    except RaylogError as error:
        print(f"{topic.name}: {type(error).__name__}: {error}", flush=True)
        return f"an attempt to configure {topic.name}"
    return f"a config of {topic.name}"


# -- topics ----------------------------------------------------------------------------------------


def create(worker: Worker, name: str) -> TopicDescription | None:
    """The new topic; None if nobody knows: the next attempt will tell."""
    invoked, outcome = time.monotonic_ns(), OK
    try:
        described = worker.broker.create_topic(
            name, worker.rng.randint(1, FIRST_PARTITIONS), FOR_EVER
        )
    except TopicExists:
        try:
            described, outcome = worker.patiently(lambda: worker.broker.describe_topic(name)), INFO
        except UnknownTopicOrPartition:  # who ran before has asked for its deletion
            return None
    except RaylogError as error:
        if not may_pass(error):
            raise
        print(f"{name}: creation: {error}", flush=True)
        return None
    now = time.monotonic_ns()
    worker.writer.write(
        TopicChange("create", name, described.topic_id, invoked, now, outcome, KEEP)
    )
    tell_created(worker, described, invoked, outcome)
    return described


def _delete(worker: Worker, described: TopicDescription) -> None:
    attempts, outcome = 0, INFO
    op = TopicChange(
        "delete", described.name, described.topic_id, time.monotonic_ns(), NEVER, INFO, KEEP
    )
    worker.writer.write(op)
    deadline = time.monotonic() + PATIENCE_S
    while outcome == INFO and time.monotonic() < deadline:
        attempts += 1
        try:
            worker.broker.delete_topic(described.name)
            outcome = OK
        except UnknownTopicOrPartition:
            # an earlier attempt has done it; without one, the topic had vanished
            outcome = OK if attempts > 1 else FAIL
        except RaylogError as error:
            if not may_pass(error):
                raise
            print(f"{described.name}: deletion: {error}", flush=True)
            time.sleep(RETRY_S)
    worker.writer.write(op._replace(completed=time.monotonic_ns(), outcome=outcome))


def _use(worker: Worker, described: TopicDescription, name: str) -> None:
    """Records in; and sometimes the topic goes while they are on their way."""
    producer = worker.patiently(lambda: worker.broker.producer(delivery_timeout_ms=20_000))
    bursts = [
        _send(worker, producer, Partition(described.name, described.topic_id, number), name)
        for number in range(len(described.partitions))
    ]
    if worker.rng.random() < 0.5:
        try:
            producer.flush()
        except RaylogError as error:
            print(f"{described.name}: {error}", flush=True)
        for number in range(len(described.partitions)):
            read_all(
                worker,
                described.name,
                described.topic_id,
                number,
                f"{name}/{number}",
                is_final=False,
            )
    try:
        producer.close()
    except RaylogError as error:
        print(f"{described.name}: {error}", flush=True)
    for burst in bursts:
        settle(worker, burst)


def _send(worker: Worker, producer: Producer, partition: Partition, name: str) -> Burst:
    identities = [next(worker.ids) for _ in range(RECORDS)]
    op = Send(
        name,
        partition,
        time.monotonic_ns(),
        NEVER,
        INFO,
        ints(identities),
        ints([NO_KEY] * RECORDS),
        ints(),
    )
    worker.writer.write(op)
    send = producer.send
    return Burst(
        op,
        [
            send(partition.topic, to_bytes(one, 20)[0], partition=partition.number)
            for one in identities
        ],
    )


# -- what must be refused --------------------------------------------------------------------------


def _ask_for_refusals(worker: Worker, topic: Stable, lives: int) -> None:
    """A damaged batch, and one whose sequence has a gap before it."""
    if topic.is_keyed:
        return
    number = worker.rng.randrange(topic.partitions)
    partition = Partition(topic.name, topic.topic_id, number)
    connection = worker.broker.connection()
    producer_id = worker.patiently(
        lambda: connection.new_producer_id(timeout_s=CALL_TIMEOUT_S).result()
    )
    worker.writer.write(ProducerId(f"{worker.name}.{lives}", producer_id, time.monotonic_ns()))
    handle = worker.patiently(lambda: worker.broker.partition(topic.name, number))
    for name, sequence, is_damaged in (
        ("first", 0, False),
        ("damaged", 1, True),
        ("gap", 9, False),
    ):
        identity = next(worker.ids)
        value, _ = to_bytes(identity, 20)
        row = (int(time.time() * 1000), None, value, ())
        batch = bytearray(
            encode_records([row], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        )
        batch[-5] ^= is_damaged
        op = Send(
            f"{worker.name}.{lives}.{name}",
            partition,
            time.monotonic_ns(),
            NEVER,
            INFO,
            ints([identity]),
            ints([NO_KEY]),
            ints(),
        )
        worker.writer.write(op)
        try:
            answer = Call[AppendResult](handle.append.remote(bytes(batch)), str(partition)).get()
            op = op._replace(outcome=OK, offsets=ints([answer.base_offset]))
        except REFUSALS:
            op = op._replace(outcome=FAIL)
        except RaylogError as error:
            if not error.retriable:
                raise
        worker.writer.write(op._replace(completed=time.monotonic_ns()))
        if op.outcome == INFO:
            worker.broker.forget(topic.name, number)
            return
