"""raylog on partition folders that a real Kafka wrote: after an orderly stop, after SIGKILL, and
going on with them.

What Kafka writes, and when, ``lives.py`` tells; what is right is what Kafka's own clients saw.
"""

import shutil
from pathlib import Path

import pytest

from raylog.storage.log import Log
from raylog.storage.records.batch import iter_batches
from raylog.storage.records.encode import encode_records
from raylog.storage.recovery import check_indexes
from tests.kafka.broker import KafkaBroker
from tests.kafka.clients import COMMITTED, ISOLATIONS, UNCOMMITTED, Bounds
from tests.kafka.distribution import Kafka
from tests.kafka.dumping import dump_by_raylog, dump_folder
from tests.kafka.lives import (
    DELETED_BEFORE,
    KAFKAS,
    Observed,
    assert_same,
    is_compaction_of,
    now_ms,
)
from tests.kafka.taking_over import TakenOver, committed_of, records_of
from tests.kafka.written import CODECS, Rows, Seen

pytestmark = pytest.mark.timeout(300)  # the first may fetch Kafka, and starts it
PLAIN = [f"k-{codec}" for codec in CODECS]
SNAPSHOT_HEAD_BYTES, SNAPSHOT_ENTRY_BYTES = 10, 46
READ_ONLY = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


def copied(life: Observed, folder: Path) -> Path:
    assert life.log_dir is not None
    return shutil.copytree(life.log_dir, folder / "logs")


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in READ_ONLY}


def batches_of(log: Log) -> list[bytes]:
    """Every batch from the log start offset on."""
    found, offset = [], log.log_start_offset
    while (piece := log.read(offset, 1 << 20)).size_bytes:
        content = piece.read()
        for position, header in iter_batches(content):
            found.append(content[position : position + header.size_bytes])
            offset = header.next_offset
    return found


# -- after an orderly stop -------------------------------------------------------------------------


@pytest.mark.parametrize("topic", PLAIN)
def test_clients_saw_what_they_wrote(first: Observed, topic: str) -> None:
    """The measure itself: Kafka's clients agree with each other."""
    assert first.seen[topic, UNCOMMITTED] == first.acknowledged[topic]


@pytest.mark.parametrize("topic", KAFKAS)
def test_raylog_reads_every_record(first: Observed, second: Observed, topic: str) -> None:
    assert second.read_by_raylog[topic] == first.seen[topic, UNCOMMITTED]


@pytest.mark.parametrize("topic", KAFKAS)
def test_raylog_reads_what_is_committed(first: Observed, second: Observed, topic: str) -> None:
    assert second.committed_by_raylog[topic] == first.seen[topic, COMMITTED]


def test_kafka_wrote_what_there_is_to_read(first: Observed) -> None:
    """Each topic has what it is there for."""
    sizes = {key: len(records) for key, records in first.seen.items()}
    assert first.log_dir is not None
    for topic in PLAIN:
        assert len([*(first.log_dir / f"{topic}-0").glob("*.log")]) > 1
    assert 0 < sizes["k-transactions", COMMITTED] < sizes["k-transactions", UNCOMMITTED]
    assert sizes["k-open-transaction", COMMITTED] == 10
    assert sizes["k-open-transaction", UNCOMMITTED] == 40
    assert first.bounds["k-deleted"].log_start == DELETED_BEFORE
    assert 40 <= sizes["k-compact", UNCOMMITTED] < len(first.acknowledged["k-compact"]) / 2
    assert {record.timestamp_type for record in first.seen["k-append-time", UNCOMMITTED]} == {1}


@pytest.mark.parametrize("topic", KAFKAS)
def test_opening_kafkas_log_changes_nothing_in_it(
    first: Observed, broker: KafkaBroker, tmp_path: Path, topic: str
) -> None:
    """Indexes and snapshots are taken as they are, and offsets are Kafka's."""
    log_dir = copied(first, tmp_path)
    before = files(log_dir / f"{topic}-0")
    taken = TakenOver(log_dir, broker.meta)
    log = taken.open(topic)
    found = Bounds(log.log_start_offset, log.last_stable_offset, log.high_watermark)
    assert found == first.bounds[topic]
    for segment in log.segments:
        check_indexes(segment)
    taken.close()
    assert files(log_dir / f"{topic}-0") == before


def test_kafkas_producers_go_on(first: Observed, broker: KafkaBroker, tmp_path: Path) -> None:
    """From Kafka's snapshot raylog knows the last batch of each: sent again, it is not written
    again."""
    taken = TakenOver(copied(first, tmp_path), broker.meta)
    log = taken.open("k-idempotent")
    end = log.log_end_offset
    last = {batch[43:51]: batch for batch in batches_of(log)}
    assert len(last) == 2
    for batch in last.values():
        answer = log.append(batch)
        assert answer.is_duplicate
        assert answer.base_offset == int.from_bytes(batch[:8], "big")
    assert log.log_end_offset == end
    taken.close()


@pytest.mark.parametrize("topic", ["k-transactions", "k-open-transaction", "k-idempotent"])
def test_raylog_makes_kafkas_transaction_index_and_snapshot_again(
    first: Observed, broker: KafkaBroker, tmp_path: Path, topic: str
) -> None:
    """From the batches alone: neither index nor snapshot nor checkpoint is left."""
    log_dir = copied(first, tmp_path)
    folder = log_dir / f"{topic}-0"
    before = files(folder)
    for path in [
        *folder.glob("*.txnindex"),
        *folder.glob("*.snapshot"),
        *log_dir.glob("*checkpoint"),
    ]:
        path.unlink()
    (log_dir / ".kafka_cleanshutdown").unlink()
    taken = TakenOver(log_dir, broker.meta)
    end = taken.open(topic).log_end_offset
    taken.close()
    after = files(folder)
    indexes = [name for name in before if name.endswith(".txnindex") and before[name]]
    assert bool(indexes) == ("transaction" in topic)
    assert [name for name in after if name.endswith(".txnindex") and after[name]] == indexes
    assert all(after[name] == before[name] for name in indexes)
    assert producers(after[f"{end:020d}.snapshot"]) == producers(before[f"{end:020d}.snapshot"])


def producers(snapshot: bytes) -> set[bytes]:
    """The entries of a snapshot file, which have no order."""
    entries = snapshot[SNAPSHOT_HEAD_BYTES:]
    return {
        entries[at : at + SNAPSHOT_ENTRY_BYTES]
        for at in range(0, len(entries), SNAPSHOT_ENTRY_BYTES)
    }


# -- going on --------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", KAFKAS)
def test_kafka_reads_what_raylog_wrote_behind_it(second: Observed, topic: str) -> None:
    appended = second.appended[topic]
    assert_same(topic, second.seen[topic, UNCOMMITTED], second.read_by_raylog[topic] + appended)
    visible = [] if topic == "k-open-transaction" else appended
    for seen in (second.seen, second.seen_by_aiokafka):
        assert_same(topic, seen[topic, COMMITTED], second.committed_by_raylog[topic] + visible)


# -- after SIGKILL ---------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", [topic for topic in KAFKAS if topic != "k-crash"])
def test_raylog_recovers_what_a_killed_kafka_left(
    second: Observed, third: Observed, topic: str
) -> None:
    before, found = second.seen[topic, UNCOMMITTED], third.read_by_raylog[topic]
    if "compact" in topic:
        assert is_compaction_of(found, before + second.acknowledged[topic])
        return
    assert found[: len(before)] == before
    rest = [record._replace(timestamp=0, timestamp_type=0) for record in found[len(before) :]]
    sent = [record._replace(timestamp=0, timestamp_type=0) for record in second.acknowledged[topic]]
    assert rest == sent


def test_a_log_killed_amid_writing_is_a_prefix_with_all_that_was_acknowledged(
    second: Observed, third: Observed
) -> None:
    found = third.read_by_raylog["k-crash"][25:]  # what was there before
    acknowledged = second.acknowledged["k-crash"][5:]
    assert len(acknowledged) >= 500
    assert found[: len(acknowledged)] == acknowledged
    assert [record.offset for record in found] == [*range(25, 25 + len(found))]
    sent = Rows(with_keys=True).take(len(found), 0)
    assert [(record.key, record.value) for record in found] == [
        (key, value) for _, key, value, _ in sent
    ]


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("topic", KAFKAS)
def test_kafka_recovers_it_again(third: Observed, topic: str, isolation: str) -> None:
    """After raylog went on, and was killed too."""
    is_committed = isolation == COMMITTED
    before = (third.committed_by_raylog if is_committed else third.read_by_raylog)[topic]
    visible: list[Seen] = (
        [] if is_committed and topic == "k-open-transaction" else third.appended[topic]
    )
    assert_same(topic, third.seen[topic, isolation], before + visible)


def test_in_the_end_both_read_the_same(
    third: Observed, broker: KafkaBroker, tmp_path: Path
) -> None:
    """Every log that both have written, after Kafka's orderly stop."""
    taken = TakenOver(copied(third, tmp_path), broker.meta)
    assert taken.was_clean
    for topic in third.bounds:
        log = taken.open(topic)
        assert records_of(log) == third.seen[topic, UNCOMMITTED]
        assert committed_of(log) == third.seen[topic, COMMITTED]
    taken.close()


@pytest.mark.parametrize("topic", ["k-crash", "k-transactions", "k-append-time", "r-retention"])
def test_kafkas_tool_finds_no_fault_in_what_raylog_recovered(
    second: Observed, broker: KafkaBroker, kafka: Kafka, tmp_path: Path, topic: str
) -> None:
    log_dir = copied(second, tmp_path)
    taken = TakenOver(log_dir, broker.meta)
    assert not taken.was_clean
    log = taken.open(topic)
    batch = encode_records(Rows().take(10, now_ms()), compression_type="zstd")
    log.append(batch, log.epochs.latest)
    taken.close()
    assert dump_folder(kafka, log_dir / f"{topic}-0").complaints == []


@pytest.mark.parametrize("topic", ["k-transactions", "k-compact", "k-append-time", "k-crash"])
def test_raylogs_dump_of_kafkas_log_is_kafkas(second: Observed, kafka: Kafka, topic: str) -> None:
    """As SIGKILL left it: indexes have the room that Kafka reserves behind their entries."""
    assert second.log_dir is not None
    folder = second.log_dir / f"{topic}-0"
    assert dump_by_raylog(folder) == dump_folder(kafka, folder).lines
