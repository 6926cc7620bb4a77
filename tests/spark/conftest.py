"""One broker and one Spark session for all tests here: together they take 25 s to start and 1.5
GB."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from raylog.cluster.broker import Broker

CPUS = 8  # more than the machine may have: Spark's executor and master ask Ray for one each
OBJECT_STORE_BYTES = 300 << 20
TIMEOUT_S = 60
T0 = 1_700_000_000_000  # the time of a topic's first record, one ms more for each that follows


class Topics:
    """Topics of a test's own, with records whose value says where they are."""

    def __init__(self, broker: "Broker", prefix: str) -> None:
        self.broker, self.prefix = broker, prefix
        self.ends: dict[tuple[str, int], int] = {}
        self.count = 0

    def create(self, partitions: int = 1) -> str:
        self.count += 1
        topic = f"{self.prefix}-{self.count}"
        self.broker.create_topic(topic, partitions)
        return topic

    def append(
        self,
        topic: str,
        partition: int,
        count: int,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> None:
        """Append ``count`` records in one batch: value ``<topic>-<partition>@<offset>``, time T0 +
        offset."""
        import numpy as np
        import ray

        from raylog.storage.records.encode import encode_records

        first = self.ends.get((topic, partition), 0)
        rows = [
            (
                T0 + o,
                str(o).encode() if o % 2 else None,
                f"{topic}-{partition}@{o}".encode(),
                headers,
            )
            for o in range(first, first + count)
        ]
        batch = np.frombuffer(encode_records(rows), np.uint8)
        ray.get(self.broker.partition(topic, partition).append.remote(batch), timeout=TIMEOUT_S)
        self.ends[topic, partition] = first + count

    def let_retention_delete_all(self, topic: str, partition: int = 0) -> None:
        """The records so far are old. Those that come later, as old, stay."""
        from tests.harness.removing import delete_old_segments

        self.broker.alter_topic_config(topic, {"retention.ms": "1000"})
        delete_old_segments(self.broker.namespace, topic, partition)
        self.broker.alter_topic_config(topic, {"retention.ms": "-1"})

    def delete(self) -> None:
        """Delete this test's topics: each partition is a process."""
        for topic in {
            topic for topic in self.broker.list_topics() if topic.startswith(f"{self.prefix}-")
        }:
            self.broker.delete_topic(topic)


@pytest.fixture(scope="session")
def broker() -> "Iterator[Broker]":
    import raylog
    from tests.harness.clusters import local_ray

    with (
        local_ray(
            num_cpus=CPUS, namespace="raylog", object_store_memory=OBJECT_STORE_BYTES
        ) as temp,
        # The records are as old as T0: no round of retention may meet them.
        raylog.start([str(temp / "log")], config={"log.retention.ms": -1}) as started,
    ):
        yield started


@pytest.fixture(scope="session")
def spark(broker: "Broker") -> "Iterator[SparkSession]":
    import raylog

    started = raylog.spark.session(broker)
    yield started
    raylog.spark.stop(started)


@pytest.fixture
def topics(broker: "Broker", request: pytest.FixtureRequest) -> Iterator[Topics]:
    name = "".join(c if c.isalnum() else "_" for c in request.node.name)
    made = Topics(broker, name[:100])
    yield made
    made.delete()


@pytest.fixture
def load(spark: "SparkSession") -> "Callable[..., DataFrame]":
    """``load(subscribe="t", minPartitions=2, schema="offset long")``: a batch read."""

    def read(schema: str | None = None, **options: Any) -> "DataFrame":
        reader = spark.read.format("raylog")
        for key, value in options.items():
            reader = reader.option(key, value)
        return (reader.schema(schema) if schema else reader).load()

    return read
