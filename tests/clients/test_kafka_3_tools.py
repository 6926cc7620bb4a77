"""The command-line tools of Kafka 3.9 on a broker, which many scripts still call.

``tests/kafka/test_kafka_tools_on_raylog.py`` does the same with Kafka 4.3, whose tools have other
classes and options; what both have alike is taken from there.
"""

import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from raylog.cluster.broker import Broker
from tests.clients.topics import Topic
from tests.harness.librdkafka import Librdkafka
from tests.kafka.distribution import Kafka
from tests.kafka.test_kafka_tools_on_raylog import (  # noqa: F401  # one of its tests runs here, too
    TOOLS,
    TOPICS,
    Tools,
    offsets,
    test_configs,
)

pytestmark = pytest.mark.timeout(900)

CONSOLE_PRODUCER = "kafka.tools.ConsoleProducer"
VERSIONS = "kafka.admin.BrokerApiVersionsCommand"


@pytest.fixture(scope="module")
def tools(kafka_3: Kafka, broker: Broker) -> Tools:
    return Tools(kafka_3, broker)


@pytest.fixture
def topic(tools: Tools) -> Iterator[str]:
    """With two partitions; it is deleted in the end, if the test has not."""
    name = f"tools-{uuid.uuid4().hex[:8]}"
    tools.broker.create_topic(name, partitions=2, config={"retention.ms": -1})
    Topic(tools.broker, name, 2).wait_for_leaders(Librdkafka(tools.broker))
    yield name
    if name in tools.broker.list_topics():
        tools.broker.delete_topic(name)


def test_a_topic_is_made_described_extended_and_deleted(tools: Tools) -> None:
    name = f"tools-{uuid.uuid4().hex[:8]}"
    made = tools.run(TOPICS, "--create", "--topic", name, "--partitions", "1")
    assert f"Created topic {name}" in made
    assert name in tools.run(TOPICS, "--list").split()
    tools.run(TOPICS, "--alter", "--topic", name, "--partitions", "2")
    described = tools.run(TOPICS, "--describe", "--topic", name)
    assert "PartitionCount: 2" in described
    assert "already exists" in tools.refused(TOPICS, "--create", "--topic", name)
    tools.run(TOPICS, "--delete", "--topic", name)
    assert name not in tools.broker.list_topics()


def test_records_are_written_and_read_by_the_console(tools: Tools, topic: str) -> None:
    keyed = ("--property", "parse.key=true", "--property", "key.separator=:")
    tools.given(b"a:one\nb:two\n", CONSOLE_PRODUCER, "--topic", topic, *keyed)
    ends = offsets(tools, topic)
    assert sum(ends.values()) == 2
    for number, end in ends.items():
        if end == 0:
            continue
        read = tools.run(
            TOOLS + "consumer.ConsoleConsumer",
            *("--topic", topic, "--partition", str(number), "--offset", "earliest"),
            *("--max-messages", str(end), "--timeout-ms", "60000"),
            *("--property", "print.key=true"),
        )
        assert f"Processed a total of {end} messages" in read
        assert re.search(r"^[ab]\t(one|two)$", read, re.MULTILINE)


def test_the_performance_test_and_the_verifiable_producer(tools: Tools, topic: str) -> None:
    performed = tools.on_its_own(
        TOOLS + "ProducerPerformance",
        *("--topic", topic, "--num-records", "1000", "--record-size", "100"),
        *("--throughput", "-1", "--producer-props", f"bootstrap.servers={tools.servers}"),
    )
    assert "1000 records sent" in performed
    verified = tools.run(TOOLS + "VerifiableProducer", "--topic", topic, "--max-messages", "3")
    assert '"sent":3,"acked":3' in verified
    assert sum(offsets(tools, topic).values()) == 1003


def test_records_are_deleted(tools: Tools, topic: str, tmp_path: Path) -> None:
    with tools.broker.producer() as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, partition=1)
    wanted = tmp_path / "delete.json"
    part = {"topic": topic, "partition": 1, "offset": 4}
    wanted.write_text(json.dumps({"partitions": [part], "version": 1}))
    removed = tools.run(TOOLS + "DeleteRecordsCommand", "--offset-json-file", str(wanted))
    assert "low_watermark: 4" in removed
    earliest = tools.run(TOOLS + "GetOffsetShell", "--topic", topic, "--time", "earliest")
    assert f"{topic}:1:4" in earliest


def test_what_brokers_tell_of_themselves(tools: Tools, topic: str) -> None:
    assert "Produce(0): 0 to " in tools.run(VERSIONS)
    told = tools.run(TOOLS + "LogDirsCommand", "--describe", "--topic-list", topic)
    [found] = [line for line in told.splitlines() if line.startswith("{")]
    parts = [
        part["partition"]
        for broker in json.loads(found)["brokers"]
        for log_dir in broker["logDirs"]
        for part in log_dir["partitions"]
    ]
    assert sorted(parts) == [f"{topic}-0", f"{topic}-1"], "each is told once"
