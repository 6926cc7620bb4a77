"""Three lives of one Kafka, with raylog on its log dir between them.

::

    first    Kafka makes all topics and writes those of ``KAFKAS``; stopped in order
               raylog: puts its own logs in the place of Kafka's empty folders (topics ``r-...``),
               appends to Kafka's logs (topics ``k-...``), stops in order
    second   Kafka reads all of it, and writes to every topic; killed by SIGKILL while it writes
               raylog: recovers every log, appends, and is killed too, with batches half written
    third    Kafka recovers, and reads all of it; stopped in order

Each life is run once, and only notes what clients and logs showed; the tests hold that against what
was written.
"""

import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from raylog.storage.log import Log
from raylog.storage.names import segment_file
from raylog.storage.records.encode import Row, encode_records
from raylog.storage.testing.waiting import wait_for
from tests.kafka.broker import KafkaBroker
from tests.kafka.clients import (
    ISOLATIONS,
    Bounds,
    Produced,
    Sender,
    bounds,
    consume,
    consume_by_aiokafka,
    create_topics,
    delete_records,
    offsets_for_times,
    send_batch,
)
from tests.kafka.taking_over import TakenOver, committed_of, records_of
from tests.kafka.written import CODECS, Rows, Seen, Written

SEGMENT_BYTES = 8000
SMALL = {"internal.segment.bytes": SEGMENT_BYTES, "index.interval.bytes": 500, "retention.ms": -1}
EAGER = {"min.cleanable.dirty.ratio": 0.01}  # compacted whenever there is anything to compact
DELETED_BEFORE = 123
CLEANER_TIMEOUT_S = 60
STREAM_TIMEOUT_S = 60
# A transaction that is left open must not be aborted by Kafka while the tests run.
TRANSACTION_TIMEOUT_MS = 900_000

# Topics that Kafka writes, with their configs.
KAFKAS: dict[str, dict[str, Any]] = {
    **{f"k-{codec}": SMALL for codec in CODECS},
    "k-idempotent": SMALL,
    "k-transactions": SMALL,
    "k-open-transaction": SMALL,
    "k-append-time": SMALL | {"message.timestamp.type": "LogAppendTime"},
    "k-recompressed": SMALL | {"compression.type": "zstd"},
    "k-compact": SMALL | {"cleanup.policy": "compact"} | EAGER,
    "k-deleted": SMALL,
    "k-crash": SMALL,
}
# raylog's own names for what a topic's config says.
KAFKAS_NAMES = {
    "segment_bytes": "internal.segment.bytes",
    "message_timestamp_type": "message.timestamp.type",
    "compression_type": "compression.type",
    "cleanup_policy": "cleanup.policy",
}


@dataclass
class Observed:
    """What showed in one life, and what was written in it or just before it."""

    log_dir: Path | None = None  # a copy of it, after the end
    # by topic and isolation: librdkafka
    seen: dict[tuple[str, str], list[Seen]] = field(default_factory=dict)
    seen_by_aiokafka: dict[tuple[str, str], list[Seen]] = field(default_factory=dict)
    bounds: dict[str, Bounds] = field(default_factory=dict)
    # of Kafka's own writing, by topic
    acknowledged: dict[str, list[Seen]] = field(default_factory=dict)
    appended: dict[str, list[Seen]] = field(default_factory=dict)  # by raylog, before this life
    read_by_raylog: dict[str, list[Seen]] = field(default_factory=dict)  # before it appended
    committed_by_raylog: dict[str, list[Seen]] = field(default_factory=dict)
    times: dict[str, dict[int, int]] = field(default_factory=dict)
    answers: dict[str, Produced] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)

    def observe(
        self, broker: KafkaBroker, topics: Iterable[str], *, with_aiokafka: bool = False
    ) -> None:
        """Let clients read all of some topics."""
        every = list(topics)
        self.bounds |= bounds(broker.address, every)
        for isolation in ISOLATIONS:
            found = consume(broker.address, every, isolation)
            self.seen |= {(topic, isolation): records for topic, records in found.items()}
            if with_aiokafka:
                found = consume_by_aiokafka(broker.address, every, isolation)
                self.seen_by_aiokafka |= {
                    (topic, isolation): records for topic, records in found.items()
                }

    def end(self, broker: KafkaBroker, copy: Path, *, kill: bool = False) -> "Observed":
        """End the broker, and keep what it leaves."""
        broker.kill() if kill else broker.stop()
        self.complaints = broker.complaints()
        self.log_dir = shutil.copytree(broker.log_dir, copy)
        return self


def assert_same(topic: str, seen: list[Seen], expected: list[Seen]) -> None:
    """The same records; of a compacted topic perhaps fewer, since Kafka's cleaner never rests."""
    if "compact" in topic:
        assert is_compaction_of(seen, expected)
    else:
        assert seen == expected


def is_compaction_of(seen: list[Seen], of: list[Seen]) -> bool:
    """Whether some of the records are left, in order, among them the last of every key."""
    left = set(seen)
    last = {record.key: record for record in of}
    return [record for record in of if record in left] == seen and left.issuperset(last.values())


def topic_of(scenario: str) -> str:
    return f"r-{scenario}"


# -- the first life --------------------------------------------------------------------------------


def first_life(broker: KafkaBroker, written: Mapping[str, Written], copy: Path) -> Observed:
    """Kafka makes the topics, and writes those that are its own."""
    life = Observed()
    broker.start()
    create_topics(
        broker.address, KAFKAS | {topic_of(name): _config(log) for name, log in written.items()}
    )
    rows = {topic: Rows(with_keys=True) for topic in KAFKAS}
    for codec in CODECS:
        life.acknowledged[f"k-{codec}"] = _write(
            broker, f"k-{codec}", rows[f"k-{codec}"], compression_type=codec
        )
    for topic in ("k-append-time", "k-recompressed", "k-deleted"):
        life.acknowledged[topic] = _write(broker, topic, rows[topic], compression_type="gzip")
    delete_records(broker.address, "k-deleted", DELETED_BEFORE)
    for _ in range(2):
        known = life.acknowledged.setdefault("k-idempotent", [])
        known += _write(broker, "k-idempotent", rows["k-idempotent"], enable_idempotence=True)
    _write_transactions(broker, "k-transactions", rows["k-transactions"])
    _leave_open(broker, "k-open-transaction", rows["k-open-transaction"])
    life.acknowledged["k-compact"] = _write(broker, "k-compact", rows["k-compact"])
    _wait_for_cleaner(broker, "k-compact")
    life.observe(broker, KAFKAS)
    return life.end(broker, copy)


def _config(log: Written) -> dict[str, Any]:
    known = {KAFKAS_NAMES[key]: value for key, value in log.config.items() if key in KAFKAS_NAMES}
    return {"retention.ms": -1} | known | (EAGER if log.is_compacted else {})


def _write(
    broker: KafkaBroker, topic: str, rows: Rows, count: int = 500, **config: Any
) -> list[Seen]:
    """Let Kafka's client write rows, 20 a batch at the most. Returns what was acknowledged."""
    sender = Sender(
        broker.address, **({"batch_num_messages": 20, "enable_idempotence": False} | config)
    )
    sender.send(topic, rows.take(count, now_ms()))
    sender.flush()
    assert len(sender.acknowledged) == count
    return sender.acknowledged


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def _transactional(broker: KafkaBroker, name: str) -> Sender:
    sender = Sender(
        broker.address,
        transactional_id=name,
        transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        batch_num_messages=10,
    )
    sender.producer.init_transactions()
    return sender


def _write_transactions(broker: KafkaBroker, topic: str, rows: Rows) -> None:
    """Two producers whose transactions interleave, one aborted of three; other records between
    them."""
    first, second = (_transactional(broker, f"{topic}-{n}") for n in range(2))
    for n in range(6):
        for sender in (first, second):
            sender.producer.begin_transaction()
            sender.send(topic, rows.take(25, now_ms()))
            sender.flush()
        _write(broker, topic, rows, 10)
        second.producer.abort_transaction() if n % 3 == 1 else second.producer.commit_transaction()
        first.send(topic, rows.take(5, now_ms()))
        first.flush()
        first.producer.abort_transaction() if n % 3 == 0 else first.producer.commit_transaction()


def _leave_open(broker: KafkaBroker, topic: str, rows: Rows) -> None:
    """An aborted transaction, and one that is not ended."""
    sender = _transactional(broker, topic)
    sender.producer.begin_transaction()
    sender.send(topic, rows.take(10, now_ms()))
    sender.flush()  # else the client throws away what it has not sent
    sender.producer.abort_transaction()
    _write(broker, topic, rows, 10)
    sender.producer.begin_transaction()
    sender.send(topic, rows.take(10, now_ms()))
    sender.flush()
    _write(broker, topic, rows, 10)


def _wait_for_cleaner(broker: KafkaBroker, topic: str) -> None:
    """Until Kafka has compacted all but the active segment."""
    folder, checkpoint = broker.log_dir / f"{topic}-0", broker.log_dir / "cleaner-offset-checkpoint"

    def is_clean() -> bool:
        active = max(int(path.stem) for path in folder.glob("*.log"))
        return f"{topic} 0 {active}\n" in checkpoint.read_text()

    wait_for(is_clean, CLEANER_TIMEOUT_S, f"Kafka has cleaned {topic}", poll_s=0.1)


# -- the second life -------------------------------------------------------------------------------


def second_life(broker: KafkaBroker, written: Mapping[str, Written], copy: Path) -> Observed:
    """Kafka reads what raylog wrote and went on with, goes on with it, and is killed."""
    life = Observed()
    with_raylog = TakenOver(broker.log_dir, broker.meta)
    assert with_raylog.was_clean
    for name, log in written.items():
        with_raylog.replace(topic_of(name), log)
    _append_to_all(with_raylog, KAFKAS, life)
    with_raylog.close()
    broker.start()
    ours = [topic_of(name) for name in written]
    for name, log in written.items():
        if log.is_compacted:
            # which finds nothing to do that raylog has left undone
            _wait_for_cleaner(broker, topic_of(name))
    life.observe(broker, [*ours, *KAFKAS], with_aiokafka=True)
    for name, log in written.items():
        wanted = [record.timestamp for record in log.records[::50]]
        life.times[name] = offsets_for_times(broker.address, topic_of(name), [*wanted, now_ms()])
    _speak_for_producers(broker, written["idempotent"], life)
    for topic in [*ours, *KAFKAS]:
        if topic != topic_of("idempotent"):
            life.acknowledged[topic] = _write(broker, topic, Rows(with_keys=True), 5)
    life.acknowledged["k-crash"] += _write_and_kill(broker, "k-crash")
    return life.end(broker, copy, kill=True)


def _append_to_all(with_raylog: TakenOver, topics: Iterable[str], life: Observed) -> None:
    """Note what raylog reads of some topics, and append a batch of each codec to them."""
    for topic in topics:
        kind = "LogAppendTime" if topic.endswith("append-time") else "CreateTime"
        log = with_raylog.open(topic, message_timestamp_type=kind)
        life.read_by_raylog[topic], life.committed_by_raylog[topic] = (
            records_of(log),
            committed_of(log),
        )
        before = log.log_end_offset
        for codec in CODECS:
            _append(log, Rows(with_keys=True).take(4, now_ms()), codec)
        life.appended[topic] = [record for record in records_of(log) if record.offset >= before]
        assert len(life.appended[topic]) == 4 * len(CODECS)


def _append(log: Log, rows: list[Row], codec: str) -> None:
    log.append(encode_records(rows, compression_type=codec), log.epochs.latest)


def _speak_for_producers(broker: KafkaBroker, log: Written, life: Observed) -> None:
    """Batches of a producer that Kafka knows from raylog's snapshot alone."""
    producer: dict[str, Any] = {"producer_id": 4002, "producer_epoch": 0}
    again = next(batch for batch in reversed(log.batches.values()) if _speaks(batch, 4002))
    rows = Rows().take(3, now_ms())
    batches = {
        "again": again,
        "gap": bytes(encode_records(rows, base_sequence=99, **producer)),
        "next": bytes(encode_records(rows, base_sequence=15, **producer)),
        "old epoch": bytes(
            encode_records(rows, base_sequence=0, producer_id=4000, producer_epoch=0)
        ),
    }
    for kind, batch in batches.items():
        life.answers[kind] = send_batch(broker.address, topic_of("idempotent"), batch)


def _speaks(batch: bytes, producer_id: int) -> bool:
    return int.from_bytes(batch[43:51], "big", signed=True) == producer_id


def _write_and_kill(broker: KafkaBroker, topic: str) -> list[Seen]:
    """Kill Kafka amid a stream of records. Returns those that it had acknowledged."""
    rows = Rows(with_keys=True)
    sender = Sender(broker.address, linger_ms=0, batch_num_messages=10, enable_idempotence=True)

    def is_acknowledged() -> bool:
        sender.send(topic, rows.take(10, now_ms()))
        sender.producer.poll(0.01)
        return len(sender.acknowledged) >= 500

    wait_for(is_acknowledged, STREAM_TIMEOUT_S, "Kafka acknowledges 500 records")
    sender.send(topic, rows.take(300, now_ms()))
    broker.kill()
    sender.give_up()
    return sender.acknowledged


# -- the third life --------------------------------------------------------------------------------


def third_life(broker: KafkaBroker, written: Mapping[str, Written], copy: Path) -> Observed:
    """raylog recovers what the killed Kafka left, is killed too, and Kafka recovers what that
    left."""
    life = Observed()
    topics = [*(topic_of(name) for name in written), *KAFKAS]
    with_raylog = TakenOver(broker.log_dir, broker.meta)
    assert not with_raylog.was_clean
    _append_to_all(with_raylog, topics, life)
    with_raylog.crash()
    for topic in topics[::2]:
        _tear(broker.log_dir / f"{topic}-0")
    broker.start()
    life.observe(broker, topics)
    return life.end(broker, copy)


def _tear(folder: Path) -> None:
    """Half a batch behind the last one, as a crash leaves it."""
    base = max(int(path.stem) for path in folder.glob("*.log"))
    batch = encode_records(Rows().take(10, now_ms()), base_offset=base + 1_000_000, leader_epoch=3)
    with (folder / segment_file(base, ".log")).open("ab") as file:
        file.write(batch[: len(batch) // 2])
