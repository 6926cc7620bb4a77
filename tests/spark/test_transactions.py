"""Transactions as Spark reads them: committed records only, or all, in batches and streams."""

import json
from pathlib import Path
from typing import Any

import pytest

import raylog
from raylog.cluster.client.connection import READ_COMMITTED
from raylog.storage.testing.waiting import wait_for

pytestmark = pytest.mark.timeout(300)

QUERY_TIMEOUT_S = 120
MARKERS_S = 30
OPEN_MS = 600_000  # longer than the queries take
COMMITTED, ALL = [b"kept"], [b"aborted", b"kept", b"open"]


def values(frame: Any) -> list[bytes]:
    return sorted(bytes(row.value) for row in frame.select("value").collect())


@pytest.fixture
def drain(spark: Any, tmp_path: Path) -> Any:
    """Run an AvailableNow query of an isolation level to its end, from its own checkpoint."""

    def run(topic: str, level: str) -> list[bytes]:
        seen: list[bytes] = []
        query = (
            spark.readStream.format("raylog")
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("kafka.isolation.level", level)
            .load()
            .writeStream.foreachBatch(lambda frame, _: seen.extend(values(frame)))
            .option("checkpointLocation", str(tmp_path / level))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(QUERY_TIMEOUT_S), "the query did not end"
        return sorted(seen)

    return run


def test_committed_records_are_read_without_aborted_and_open_ones(
    spark: Any, broker: Any, topics: Any, load: Any, drain: Any
) -> None:
    """Offsets: kept 0, marker 1, aborted 2, marker 3, open 4, and its marker 5 at the end."""
    topic = topics.create()

    def read(level: str = "read_committed", **options: Any) -> list[bytes]:
        return values(load(subscribe=topic, isolationLevel=level, **options))

    def frame(level: str) -> list[bytes]:
        return values(raylog.spark.frame(spark, broker, topic, isolation_level=level))

    settings = {"transactional_id": f"writer-{topic}", "transaction_timeout_ms": OPEN_MS}
    with broker.producer(**settings) as producer:
        producer.init_transactions()
        for value, then in (
            (b"kept", producer.commit_transaction),
            (b"aborted", producer.abort_transaction),
            (b"open", producer.flush),
        ):
            producer.begin_transaction()
            producer.send(topic, value, partition=0)
            producer.flush()
            then()

        assert read() == frame("read_committed") == drain(topic, "read_committed") == COMMITTED
        assert values(load(subscribe=topic)) == ALL, "the default"
        assert read("read_uncommitted") == frame("read_uncommitted") == ALL
        assert drain(topic, "read_uncommitted") == ALL
        start, end = (json.dumps({topic: {"0": at}}) for at in (2, 4))
        assert read(startingOffsets=start, endingOffsets=end) == [], "all are aborted"
        producer.commit_transaction()

    # A commit returns when it is decided; the partition hears of it a moment later.
    wait_for(
        lambda: broker.list_offsets({(topic, 0): -1}, isolation=READ_COMMITTED) == {(topic, 0): 6},
        MARKERS_S,
        "the transaction's end is in the partition",
    )
    assert read() == frame("read_committed") == [b"kept", b"open"]
    assert drain(topic, "read_committed") == [b"open"], "what it has not read yet"
    assert drain(topic, "read_uncommitted") == []
