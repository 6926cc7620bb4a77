"""A worker that sends by librdkafka: somebody else's idempotent producers, to the same topics."""

import time

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.soak.clients import STOP_SENDING, Worker, to_bytes
from tests.soak.history import FAIL, NO_KEY, Send
from tests.soak.plan import Stable
from tests.soak.producing import LIFE_S, MOST_A_BURST, begun, tell, tell_fates

MOST_WAITING = 20_000  # records
POLL_S = 0.05
# What has no answer until then never has one; its fate is unknown.
FLUSH_S = 180.0
MOST_BATCH_BYTES = 30_000
# What no producer here shall ever hear. After records that it gave up librdkafka goes on with
# another epoch, and sends what is under way to any partition anew in that: it may be there twice
# then, and no broker could tell (KIP-360). So the run would find duplicates that are its own.
GIVEN_UP = (
    KafkaError._MSG_TIMED_OUT,
    KafkaError.MSG_SIZE_TOO_LARGE,  # than max.message.bytes
    KafkaError.RECORD_LIST_TOO_LARGE,  # than segment.bytes
)


class Burst:
    """Records of one partition, whose fates come one by one. An error hides what became of one."""

    def __init__(self, worker: Worker, op: Send) -> None:
        self.worker, self.op = worker, op
        self._offsets: list[int | None] = []
        self._missing = 0
        self._is_told = False

    def add(self) -> "Fate":
        """Another record is on its way."""
        self._offsets.append(None)
        self._missing += 1
        return Fate(self, len(self._offsets) - 1)

    def give_up(self, place: int, error: KafkaError) -> None:
        """A record has no offset; what became of it is not known."""
        if error.code() in GIVEN_UP and not self._is_told:
            self._is_told = True
            self.worker.surprise(KafkaException(error))
        self.take(place, None)

    def take(self, place: int, offset: int | None) -> None:
        self._offsets[place] = offset
        self._missing -= 1
        if not self._missing:
            tell_fates(self.worker, self.op, self._offsets)

    def refuse_the_rest(self) -> None:
        """The last one that was added was not taken in, nor is any behind it."""
        self._offsets.pop()
        self._missing -= 1
        place = len(self._offsets)
        tell(self.worker, self.op, slice(place, len(self.op.values)), FAIL, [])
        if not self._missing and place:
            tell_fates(self.worker, self.op, self._offsets)


class Fate:
    """What librdkafka calls when a record was delivered, or given up."""

    def __init__(self, burst: Burst, place: int) -> None:
        self._burst, self._place = burst, place

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._burst.take(self._place, message.offset())
        else:
            self._burst.give_up(self._place, error)


def produce(worker: Worker, topics: list[Stable], records_a_second: float) -> None:
    """Send until told to stop."""
    lives = 0
    while not worker.is_over(STOP_SENDING):
        lives += 1
        try:
            _live(worker, topics, f"{worker.name}.{lives}", records_a_second)
        except Exception as error:
            worker.surprise(error)
            time.sleep(1)


def _live(worker: Worker, topics: list[Stable], name: str, records_a_second: float) -> None:
    rng, fatal = worker.rng, list[KafkaError]()

    def on_error(error: KafkaError) -> None:
        if error.fatal():
            fatal.append(error)

    addresses = worker.patiently(lambda: worker.broker.bootstrap_servers)
    producer = Producer(
        {
            "bootstrap.servers": addresses,
            "enable.idempotence": True,
            "linger.ms": rng.choice([0, 5, 100]),
            # Below the smallest segment: a batch that is refused as too large is given up, too.
            "batch.size": rng.choice([1000, 16_384, MOST_BATCH_BYTES]),
            "compression.type": rng.choice(["none", "none", "lz4", "zstd", "snappy", "gzip"]),
            # Longer than any silence here: see GIVEN_UP.
            "message.timeout.ms": 300_000,
            "queue.buffering.max.messages": 2 * MOST_WAITING,
            "error_cb": on_error,
            "debug": "eos",  # why it goes on with another epoch: see GIVEN_UP
        }
    )
    end = time.monotonic() + rng.uniform(*LIFE_S)
    while time.monotonic() < end and not fatal and not worker.is_over(STOP_SENDING):
        count = rng.randint(1, MOST_A_BURST)
        if len(producer) < MOST_WAITING:
            topic = rng.choice(topics)
            _send(worker, producer, begun(worker, name, topic, count), topic.padding)
        producer.poll(max(count / records_a_second, POLL_S))
    producer.flush(FLUSH_S)
    if fatal:
        print(f"{name}: {fatal[0]}", flush=True)


def _send(worker: Worker, producer: Producer, op: Send, padding: int) -> None:
    burst = Burst(worker, op)
    for identity, key in zip(op.values.tolist(), op.keys.tolist(), strict=True):
        value, headers = to_bytes(identity, padding)
        fate = burst.add()
        try:
            producer.produce(
                op.partition.topic,
                value,
                key=None if key == NO_KEY else b"%d" % key,
                partition=op.partition.number,
                headers=[*headers],
                on_delivery=fate,
            )
        except (BufferError, KafkaException) as error:
            print(f"{op.partition}: not taken in: {error}", flush=True)
            burst.refuse_the_rest()
            return
