"""What a stream's planning half answers Spark, without a Spark."""

import json
import pickle
from collections import namedtuple
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from raylog.cluster.client.connection import READ_COMMITTED, READ_UNCOMMITTED
from raylog.cluster.spark import lag, stream
from raylog.cluster.spark.errors import DataLoss
from raylog.cluster.spark.options import parse
from raylog.cluster.spark.sink import TaskCommit

Topic = namedtuple("Topic", "partitions")
Partition = namedtuple("Partition", "partition")


class Catalog:
    """One topic, t, of two partitions that begin at 0."""

    def __init__(self) -> None:
        self.ends = {("t", 0): 0, ("t", 1): 0}
        self.stable: dict[Any, int] = {}  # last stable offsets, where a transaction is open

    def describe_topic(self, topic: str) -> Topic:
        return Topic(tuple(Partition(number) for _, number in self.ends))

    def list_offsets(
        self, wanted: dict[Any, int], *, isolation: int = READ_UNCOMMITTED
    ) -> dict[Any, int]:
        ends = self.ends | self.stable if isolation == READ_COMMITTED else self.ends
        return {tp: ends[tp] if at == -1 else 0 for tp, at in wanted.items()}


@pytest.fixture
def catalog(monkeypatch: pytest.MonkeyPatch) -> Catalog:
    made = Catalog()
    monkeypatch.setattr(stream, "broker_of", lambda options: made)
    return made


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    now = SimpleNamespace(s=1000.0)
    monkeypatch.setattr(stream, "time", SimpleNamespace(monotonic=lambda: now.s))
    return now


def reader(**options: Any) -> stream.StreamReader:
    given = {key: str(value) for key, value in options.items()}
    return stream.StreamReader(parse({"subscribe": "t", **given}, "stream"), ["value"])


def position(zero: int, one: int) -> dict[str, Any]:
    return {"t": {"0": zero, "1": one}}


def test_a_stream_waits_for_enough_records_and_then_takes_at_most_so_many(
    catalog: Catalog, clock: SimpleNamespace
) -> None:
    made = reader(minOffsetsPerTrigger=10, maxOffsetsPerTrigger=12, maxTriggerDelay="60s")
    limit = made.getDefaultReadLimit()
    assert limit == ReadMaxRows(12)
    catalog.ends["t", 0] = 3
    assert made.latestOffset(position(0, 0), limit) == position(3, 0), "the first one"
    catalog.ends["t", 0] = 9
    assert made.latestOffset(position(3, 0), limit) == position(3, 0), "6 wait"
    assert made.reportLatestOffset() == position(9, 0)
    clock.s += 60
    assert made.latestOffset(position(3, 0), limit) == position(9, 0), "late enough"
    catalog.ends["t", 1] = 40
    assert made.latestOffset(position(9, 0), limit) == position(9, 12), "enough, and bounded"


def test_a_minimum_alone_is_told_to_spark_too(catalog: Catalog, clock: SimpleNamespace) -> None:
    made = reader(minOffsetsPerTrigger=10)
    assert made.getDefaultReadLimit() == ReadMinRows(10)
    assert reader().getDefaultReadLimit() == ReadAllAvailable()


def test_spark_can_ask_for_all_whatever_the_options_say(
    catalog: Catalog, clock: SimpleNamespace
) -> None:
    made = reader(minOffsetsPerTrigger=10, maxOffsetsPerTrigger=12)
    catalog.ends["t", 0] = 100
    assert made.latestOffset(position(0, 0), ReadAllAvailable()) == position(100, 0)
    catalog.ends["t", 0] = 101
    assert made.latestOffset(position(100, 0), ReadAllAvailable()) == position(101, 0)


def test_available_now_reads_the_last_few_too(catalog: Catalog, clock: SimpleNamespace) -> None:
    made = reader(minOffsetsPerTrigger=10, maxOffsetsPerTrigger=12)
    limit = made.getDefaultReadLimit()
    catalog.ends["t", 0] = 14
    made.prepareForTriggerAvailableNow()
    catalog.ends["t", 0] = 1000
    assert made.latestOffset(position(0, 0), limit) == position(12, 0)
    assert made.latestOffset(position(12, 0), limit) == position(14, 0)
    assert made.latestOffset(position(14, 0), limit) == position(14, 0)


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_a_stream_of_committed_records_stops_in_front_of_an_open_transaction(
    catalog: Catalog, level: str
) -> None:
    is_committed = level == "read_committed"
    made = reader(isolationLevel=level)
    catalog.ends, catalog.stable = {("t", 0): 9, ("t", 1): 4}, {("t", 0): 5}
    before = position(5, 4) if is_committed else position(9, 4)
    assert made.initialOffset() == before, "latest"
    assert made.latestOffset(position(0, 0), ReadAllAvailable()) == before
    assert made.reportLatestOffset() == before
    made.prepareForTriggerAvailableNow()
    catalog.stable = {}
    assert made.latestOffset(position(0, 0), ReadAllAvailable()) == before, "as it was then"
    restarted = reader(isolationLevel=level)
    assert restarted.latestOffset(before, ReadAllAvailable()) == position(9, 4)


def test_a_position_in_an_open_transaction_is_no_loss(catalog: Catalog) -> None:
    """Who read all records until now, and asks for committed ones, may stand there."""
    made = reader(isolationLevel="read_committed")
    catalog.ends, catalog.stable = {("t", 0): 9, ("t", 1): 4}, {("t", 0): 5}
    assert made.latestOffset(position(7, 4), ReadAllAvailable()) == position(7, 4)
    with pytest.raises(DataLoss, match="the log ends at 9"):
        made.latestOffset(position(10, 4), ReadAllAvailable())


def test_a_micro_batch_that_was_planned_before_is_read_whole(catalog: Catalog) -> None:
    """Also one of all records, of a query that asks for committed ones now."""
    catalog.ends, catalog.stable = {("t", 0): 9, ("t", 1): 4}, {("t", 0): 5}
    made = reader(isolationLevel="read_committed")
    tasks = made.partitions(position(3, 4), position(8, 4))
    assert [task.value[1:] for task in tasks] == [(0, 3, 8)]


def test_a_micro_batch_is_cut_into_tasks(catalog: Catalog) -> None:
    catalog.ends["t", 0] = 100
    tasks = reader(maxRecordsPerPartition=30).partitions(position(0, 0), position(100, 0))
    assert [task.value[2:] for task in tasks] == [(0, 25), (25, 50), (50, 75), (75, 100)]


def test_the_latest_offsets_are_not_known_before_they_were_asked_for(catalog: Catalog) -> None:
    assert reader().reportLatestOffset() is None


def test_lag_is_read_off_a_querys_progress() -> None:
    def source(latest: Any, end: Any) -> SimpleNamespace:
        return SimpleNamespace(latestOffset=latest, endOffset=end)

    query = SimpleNamespace(lastProgress=None)
    assert lag(query) == {}  # type: ignore[arg-type]
    ours = source(json.dumps(position(9, 4)), json.dumps(position(2, 4)))
    others = [source(None, "7"), source("12", "7"), source('{"logOffset": 3}', "{}")]
    query = SimpleNamespace(lastProgress=SimpleNamespace(sources=[ours, *others]))
    assert lag(query) == {("t", 0): 7, ("t", 1): 0}  # type: ignore[arg-type]


def test_a_commit_message_crosses_processes() -> None:
    message = TaskCommit(rows=3)
    assert pickle.loads(pickle.dumps(message)) == message
    assert message.transactional_id is None
