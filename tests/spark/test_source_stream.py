"""Streams through Spark: ``spark.readStream.format("raylog")``, their limits, restarts and
losses."""

import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raylog
from raylog.storage.testing.waiting import wait_for

pytestmark = pytest.mark.timeout(300)

QUERY_TIMEOUT_S = 120
PROGRESS_TIMEOUT_S = 60
Place = tuple[str, int, int]


class Sink:
    """What each micro-batch brought. A batch that runs again replaces what it brought before."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Place]] = {}

    def __call__(self, frame: Any, batch_id: int) -> None:
        rows = frame.select("topic", "partition", "offset").collect()
        self.batches[batch_id] = sorted((row.topic, row.partition, row.offset) for row in rows)

    @property
    def sizes(self) -> list[int]:
        return [len(batch) for _, batch in sorted(self.batches.items()) if batch]

    @property
    def places(self) -> list[Place]:
        return sorted(place for batch in self.batches.values() for place in batch)


def span(topic: str, partition: int, start: int, end: int) -> list[Place]:
    return [(topic, partition, offset) for offset in range(start, end)]


def wait_for_query(query: Any, condition: Callable[[], object], what: str) -> None:
    """Return once the condition is true, or the query has failed."""
    wait_for(lambda: query.exception() or condition(), PROGRESS_TIMEOUT_S, what, poll_s=0.05)


@pytest.fixture
def start(spark: Any, tmp_path: Path) -> Any:
    """Start a query from the test's checkpoint into a sink; queries that a test leaves behind are
    stopped."""
    started = []

    def query(sink: Callable[..., None], available_now: bool = True, **options: Any) -> Any:
        reader = spark.readStream.format("raylog")
        for key, value in options.items():
            reader = reader.option(key, value)
        writer = reader.load().writeStream.foreachBatch(sink)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer = writer.trigger(availableNow=True) if available_now else writer
        started.append(writer.start())
        return started[-1]

    yield query
    for each in started:
        each.stop()


@pytest.fixture
def drain(start: Any) -> Any:
    """Run an AvailableNow query to its end."""

    def run(sink: Callable[..., None], **options: Any) -> None:
        query = start(sink, **options)
        assert query.awaitTermination(QUERY_TIMEOUT_S), "the query did not end"

    return run


def test_available_now_reads_what_there_is_and_a_restart_reads_the_rest(
    topics: Any, drain: Any
) -> None:
    topic = topics.create(partitions=2)
    topics.append(topic, 0, 5)
    topics.append(topic, 1, 3)
    first, second, third = Sink(), Sink(), Sink()
    drain(first, subscribe=topic, startingOffsets="earliest")
    assert first.places == span(topic, 0, 0, 5) + span(topic, 1, 0, 3)
    topics.append(topic, 0, 4)
    drain(second, subscribe=topic, startingOffsets="earliest")
    assert second.places == span(topic, 0, 5, 9)
    drain(third, subscribe=topic, startingOffsets="earliest")
    assert third.places == []


def test_a_micro_batch_takes_exactly_max_offsets_per_trigger(topics: Any, drain: Any) -> None:
    topic = topics.create(partitions=3)
    topics.append(topic, 0, 40)
    topics.append(topic, 1, 9)
    topics.append(topic, 2, 1)
    sink = Sink()
    drain(sink, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=20)
    assert sink.sizes == [20, 20, 10]
    assert {p for _, p, _ in sink.batches[0]} == {0, 1, 2}, "every backlog has its share"
    assert sink.places == span(topic, 0, 0, 40) + span(topic, 1, 0, 9) + span(topic, 2, 0, 1)


def test_a_batch_that_failed_reads_the_same_offsets_again(
    topics: Any, start: Any, drain: Any
) -> None:
    topic = topics.create()
    topics.append(topic, 0, 10)
    failed, again = Sink(), Sink()

    def fail_in_the_second(frame: Any, batch_id: int) -> None:
        failed(frame, batch_id)
        if batch_id == 1:
            raise RuntimeError("the sink broke")

    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 4}
    with pytest.raises(Exception, match="the sink broke"):
        drain(fail_in_the_second, **options)
    topics.append(topic, 0, 2)
    drain(again, **options)
    assert again.batches[1] == failed.batches[1] == span(topic, 0, 4, 8)
    assert again.places == span(topic, 0, 4, 12)


def test_a_stream_follows_a_producer_and_sees_each_record_once(topics: Any, start: Any) -> None:
    topic = topics.create(partitions=2)
    sink = Sink()
    query = start(sink, available_now=False, subscribe=topic, startingOffsets="earliest")
    topics.append(topic, 0, 25)
    wait_for_query(query, lambda: sink.places, "the first records")
    producer = threading.Thread(
        target=lambda: [topics.append(topic, i % 2, 25) for i in range(1, 40)]
    )
    producer.start()
    wait_for_query(query, lambda: len(sink.places) >= 1000, "all records")
    producer.join()
    assert query.exception() is None
    assert sink.places == span(topic, 0, 0, 500) + span(topic, 1, 0, 500)
    assert len(sink.sizes) > 1


def test_a_stream_waits_for_enough_records_and_says_how_far_it_is_behind(
    topics: Any, start: Any
) -> None:
    topic = topics.create()
    sink = Sink()
    topics.append(topic, 0, 2)
    options = {"minOffsetsPerTrigger": 10, "maxOffsetsPerTrigger": 10, "maxTriggerDelay": "1h"}
    query = start(sink, available_now=False, subscribe=topic, startingOffsets="earliest", **options)
    wait_for_query(query, lambda: sink.places, "the first records")
    topics.append(topic, 0, 4)
    topics.append(topic, 0, 9)
    wait_for_query(query, lambda: len(sink.places) == 12, "the second micro-batch")
    assert sink.sizes == [2, 10]
    wait_for_query(query, lambda: raylog.spark.lag(query) == {(topic, 0): 3}, "its lag")


def test_a_stream_starts_at_the_end_by_default(topics: Any, start: Any) -> None:
    topic = topics.create()
    topics.append(topic, 0, 5)
    sink = Sink()
    query = start(sink, available_now=False, subscribe=topic)
    wait_for_query(
        query, lambda: query.status["message"].startswith("Waiting for"), "it waits for records"
    )
    topics.append(topic, 0, 2)
    wait_for_query(query, lambda: sink.places, "the first records")
    assert sink.places == span(topic, 0, 5, 7)


def test_a_stream_starts_at_a_time(topics: Any, drain: Any) -> None:
    topic = topics.create()
    topics.append(topic, 0, 10)
    sink = Sink()
    drain(sink, subscribe=topic, startingTimestamp=1_700_000_000_006)
    assert sink.places == span(topic, 0, 6, 10)


def test_a_topic_that_appears_later_is_read_from_its_beginning(topics: Any, drain: Any) -> None:
    old = topics.create()
    topics.append(old, 0, 2)
    sink = Sink()
    drain(sink, subscribePattern=f"{topics.prefix}-.*", startingOffsets="latest")
    assert sink.places == []
    new = topics.create(partitions=2)
    topics.append(new, 1, 3)
    topics.append(old, 0, 1)
    drain(sink, subscribePattern=f"{topics.prefix}-.*", startingOffsets="latest")
    assert sink.places == span(old, 0, 2, 3) + span(new, 1, 0, 3)


def test_the_checkpoint_holds_offsets_as_sparks_kafka_source_writes_them(
    topics: Any, drain: Any, tmp_path: Path
) -> None:
    topic = topics.create(partitions=2)
    topics.append(topic, 1, 3)
    drain(Sink(), subscribe=topic, startingOffsets="earliest")
    written = (tmp_path / "checkpoint" / "offsets" / "0").read_text().splitlines()[-1]
    assert json.loads(written) == {topic: {"0": 0, "1": 3}}


def test_records_lost_to_retention_stop_a_stream_unless_loss_is_allowed(
    topics: Any, drain: Any
) -> None:
    topic = topics.create()
    topics.append(topic, 0, 5)
    sink = Sink()
    drain(sink, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=100)
    topics.append(topic, 0, 5)
    topics.let_retention_delete_all(topic)
    topics.append(topic, 0, 1)
    with pytest.raises(
        Exception, match=r"(?s)DataLoss: .*-0: offsets \[5, 10\) cannot all be read"
    ):
        drain(sink, subscribe=topic)
    drain(sink, subscribe=topic, failOnDataLoss=False)
    assert sink.places == span(topic, 0, 0, 5) + span(topic, 0, 10, 11)


def test_a_topic_that_is_gone_stops_a_stream_unless_loss_is_allowed(
    topics: Any, drain: Any, broker: Any
) -> None:
    kept, gone = topics.create(), topics.create()
    pattern = f"{topics.prefix}-.*"
    topics.append(gone, 0, 2)
    sink = Sink()
    drain(sink, subscribePattern=pattern, startingOffsets="earliest")
    broker.delete_topic(gone)
    topics.append(kept, 0, 1)
    with pytest.raises(Exception, match=r"(?s)DataLoss.*the partition does not exist any more"):
        drain(sink, subscribePattern=pattern)
    drain(sink, subscribePattern=pattern, failOnDataLoss=False)
    assert sink.places == span(kept, 0, 0, 1) + span(gone, 0, 0, 2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"endingOffsets": "latest"}, "InvalidSparkOption.*a stream does not support it"),
        ({"startingOffsets": '{"x": {"0": 1}}'}, "InvalidSparkOption.*exactly the partitions"),
    ],
)
def test_mistakes_are_named_in_the_querys_error(
    topics: Any, drain: Any, options: dict[str, str], said: str
) -> None:
    with pytest.raises(Exception, match=f"(?s){said}"):
        drain(Sink(), subscribe=topics.create(), **options)


def test_a_stream_outlives_the_crash_of_its_partitions_actor(
    topics: Any, start: Any, broker: Any
) -> None:
    topic = topics.create()
    topics.append(topic, 0, 10)
    sink = Sink()
    query = start(sink, available_now=False, subscribe=topic, startingOffsets="earliest")
    wait_for_query(query, lambda: sink.places, "the first records")
    crashed = next(status for status in broker.status() if status.partition == f"{topic}-0")
    os.kill(crashed.pid, signal.SIGKILL)
    with broker.producer() as producer:
        for i in range(10):
            producer.send(topic, value=str(i).encode(), partition=0)
    wait_for_query(query, lambda: len(sink.places) >= 20, "all records")
    assert query.exception() is None
    assert sink.places == span(topic, 0, 0, 20)
