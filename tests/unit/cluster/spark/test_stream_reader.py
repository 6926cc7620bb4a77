"""What a stream's planning half answers Spark, without a Spark."""

import json
import pickle
from collections import namedtuple
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from raylog.cluster.spark import lag, stream
from raylog.cluster.spark.options import parse
from raylog.cluster.spark.sink import TaskCommit

Topic = namedtuple("Topic", "partitions")
Partition = namedtuple("Partition", "partition")


class Catalog:
    """One topic, t, of two partitions that begin at 0."""

    def __init__(self) -> None:
        self.ends = {("t", 0): 0, ("t", 1): 0}

    def describe_topic(self, topic: str) -> Topic:
        return Topic(tuple(Partition(number) for _, number in self.ends))

    def list_offsets(self, wanted: dict[Any, int]) -> dict[Any, int]:
        return {tp: self.ends[tp] if at == -1 else 0 for tp, at in wanted.items()}


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
