"""Spark's own connector for Kafka (``spark-sql-kafka-0-10``) on topics of a broker."""

import json
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raylog.cluster.broker import Broker
from raylog.storage.testing.waiting import DEADLINE_S
from tests.clients import installing
from tests.clients.program import Record
from tests.clients.topics import Topic
from tests.harness.librdkafka import Librdkafka
from tests.kafka.distribution import NotHere

pytestmark = pytest.mark.timeout(900)

PROGRAM = installing.PROGRAMS / "spark" / "connector.py"
T0 = 1_700_000_000_000
RECORDS = 100
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Connector:
    """The program, step by step."""

    def __init__(self, python: Path, jars: Path, servers: str, folder: Path) -> None:
        paths = ",".join(str(path) for path in sorted(jars.glob("*.jar")))
        self.process = subprocess.Popen(
            [str(python), str(PROGRAM), paths, servers, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
        )

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the program has ended"
        found: dict[str, Any] = json.loads(line)
        return found

    def __call__(self, do: str, **arguments: Any) -> Any:
        found = self.ask(do, **arguments)
        assert "error" not in found, found["error"]
        return found["answer"]

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(DEADLINE_S)


@pytest.fixture(scope="module")
def spark(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connector]:
    try:
        version, jars = installing.spark_connector()
        python = installing.python(f"pyspark=={version}", wheels_only=False)
    except NotHere as missing:
        pytest.skip(f"Spark's connector: {missing}")
    folder = tmp_path_factory.mktemp("spark")
    connector = Connector(python, jars, broker.bootstrap_servers, folder)
    try:
        assert connector("version") == version
        yield connector
        connector.end()
    finally:
        connector.process.kill()


@pytest.fixture
def topic(broker: Broker) -> Topic:
    return made(broker, f"spark-{uuid.uuid4().hex[:8]}")


def made(broker: Broker, name: str) -> Topic:
    broker.create_topic(name, partitions=2, config={"retention.ms": -1})
    topic = Topic(broker, name, 2)
    topic.wait_for_leaders(Librdkafka(broker))
    return topic


def record(number: int) -> Record:
    return Record(
        partition=number % 2,
        key=None if number % 5 == 0 else b"key-%d" % number,
        value=None if number % 7 == 0 else b"value-%d" % number,
        timestamp=T0 + number,
        headers=(("first", b"1"), ("none", None)) if number % 2 else (),
        offset=-1,
    )


def as_spark_has_it(record: Record) -> dict[str, Any]:
    return {
        "partition": record.partition,
        "offset": record.offset,
        "key": None if record.key is None else record.key.decode(),
        "value": None if record.value is None else record.value.decode(),
        "timestamp": record.timestamp,
        "headers": [
            [name, None if content is None else content.decode()]
            for name, content in record.headers
        ],
    }


def test_it_reads_what_raylogs_producer_has_written(spark: Connector, topic: Topic) -> None:
    written = topic.write(record(number) for number in range(RECORDS))
    expected = [as_spark_has_it(one) for one in written]
    assert spark("read", topic=topic.name) == expected
    newer = spark("read", topic=topic.name, startingTimestamp=str(T0 + 50))
    assert newer == [one for one in expected if one["timestamp"] >= T0 + 50]
    ends = json.dumps({topic.name: {"0": 3, "1": 1}})
    some = spark("read", topic=topic.name, endingOffsets=ends)
    assert [(one["partition"], one["offset"]) for one in some] == [(0, 0), (0, 1), (0, 2), (1, 0)]


@pytest.mark.parametrize("codec", CODECS)
def test_it_writes_with_each_codec(spark: Connector, topic: Topic, codec: str) -> None:
    spark("write", topic=topic.name, count=RECORDS, codec=codec)
    found = topic.read({0: 0, 1: 0})
    assert {one.headers for one in found} == {(("source", b"spark"),)}
    values = {int(one.key or b""): one.value for one in found}
    assert len(found) == RECORDS
    assert values == {
        number: None if number % 10 == 0 else b"%d" % number for number in range(RECORDS)
    }
    assert topic.codecs({0: 0, 1: 0}) == {codec}


def test_a_stream_goes_on_where_its_checkpoint_is(
    spark: Connector, topic: Topic, broker: Broker
) -> None:
    target = made(broker, f"{topic.name}-copy")
    topic.write(record(number) for number in range(RECORDS))
    assert spark("copy", source=topic.name, target=target.name) == RECORDS
    topic.write(record(number) for number in range(RECORDS, RECORDS + 20))
    assert spark("copy", source=topic.name, target=target.name) == 20
    assert spark("copy", source=topic.name, target=target.name) == 0
    found = sorted((one.key or b"", one.value or b"") for one in target.read({0: 0, 1: 0}))
    sent = [record(number) for number in range(RECORDS + 20)]
    assert found == sorted((one.key or b"", one.value or b"") for one in sent)


def test_what_is_too_large_or_not_there_is_told(spark: Connector, topic: Topic) -> None:
    missing = spark.ask("read", topic="no-such-topic")
    assert "UnknownTopicOrPartition" in missing["error"] or "no-such-topic" in missing["error"]
    assert spark("read", topic=topic.name) == []
