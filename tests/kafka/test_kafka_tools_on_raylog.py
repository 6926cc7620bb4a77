"""Kafka's own command-line tools on a raylog broker: they take it for a Kafka cluster."""

import json
import re
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from raylog.cluster.broker import Broker
from raylog.storage.testing.waiting import wait_for
from tests.harness import clusters
from tests.harness.librdkafka import DEADLINE_S, running
from tests.kafka.distribution import TOOL_TIMEOUT_S, Kafka

TOOLS = "org.apache.kafka.tools."
TOPICS, CONFIGS = TOOLS + "TopicCommand", "kafka.admin.ConfigCommand"


class Tools:
    """Kafka's tools, and the broker that they are given."""

    def __init__(self, kafka: Kafka, broker: Broker) -> None:
        self._kafka, self.broker = kafka, broker
        self.servers = broker.bootstrap_servers

    def run(self, tool: str, *arguments: str) -> str:
        """What a tool prints; AssertionError if it fails."""
        return self._kafka.run(tool, "--bootstrap-server", self.servers, *arguments)

    def refused(self, tool: str, *arguments: str) -> str:
        """What a tool prints that fails."""
        with pytest.raises(AssertionError) as raised:
            self.run(tool, *arguments)
        return str(raised.value)

    def given(self, lines: bytes, tool: str, *arguments: str) -> None:
        """Run a tool that reads lines."""
        command = self._kafka.command(tool, "--bootstrap-server", self.servers, *arguments)
        subprocess.run(command, input=lines, check=True, timeout=TOOL_TIMEOUT_S)

    def on_its_own(self, tool: str, *arguments: str) -> str:
        """As ``run``, of a tool that is given its servers otherwise."""
        return self._kafka.run(tool, *arguments)


@pytest.fixture(scope="module")
def tools(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    log_dir = str(tmp_path_factory.mktemp("raylog") / "logs")
    with clusters.local_ray(), running([log_dir], f"tools-{uuid.uuid4().hex[:8]}") as broker:
        yield Tools(kafka, broker)


@pytest.fixture
def topic(tools: Tools) -> str:
    """With two partitions, by Kafka's tool."""
    name = f"topic-{uuid.uuid4().hex[:8]}"
    made = tools.run(
        TOPICS, "--create", "--topic", name, "--partitions", "2", "--config", "retention.ms=-1"
    )
    assert f"Created topic {name}" in made
    return name


def offsets(tools: Tools, topic: str) -> dict[int, int]:
    told = tools.run(TOOLS + "GetOffsetShell", "--topic", topic)
    found = re.findall(rf"^{topic}:(\d+):(\d+)$", told, re.MULTILINE)
    return {int(number): int(offset) for number, offset in found}


def test_topics(tools: Tools, topic: str) -> None:
    def leaders() -> list[str]:
        return re.findall(r"Leader: (\d+)", tools.run(TOPICS, "--describe", "--topic", topic))

    assert topic in tools.run(TOPICS, "--list").split()
    assert f"TopicId: {tools.broker.describe_topic(topic).topic_id}" in tools.run(
        TOPICS, "--describe", "--topic", topic
    )
    wait_for(lambda: len(set(leaders())) == 2, DEADLINE_S, "each partition has a leader")
    tools.run(TOPICS, "--alter", "--topic", topic, "--partitions", "3")
    assert len(tools.broker.describe_topic(topic).partitions) == 3
    assert "already exists" in tools.refused(TOPICS, "--create", "--topic", topic)
    copies = ("--create", "--topic", "many", "--replication-factor", "3")
    assert "raylog keeps one copy" in tools.refused(TOPICS, *copies)
    tools.run(TOPICS, "--delete", "--topic", topic)
    assert topic not in tools.broker.list_topics()


def test_configs(tools: Tools, topic: str) -> None:
    of_topic = ("--topic", topic)
    change = "segment.bytes=1048576,cleanup.policy=[compact,delete]"
    tools.run(CONFIGS, *of_topic, "--alter", "--add-config", change)
    own = tools.broker.describe_topic(topic).config
    assert own == {
        "cleanup.policy": "compact,delete",
        "retention.ms": -1,
        "segment.bytes": 1_048_576,
    }
    shown = tools.run(CONFIGS, *of_topic, "--describe")
    assert "segment.bytes=1048576" in shown
    assert "preallocate" not in shown, "it is nobody's own"
    assert "preallocate=false" in tools.run(CONFIGS, *of_topic, "--describe", "--all")
    tools.run(CONFIGS, *of_topic, "--alter", "--delete-config", "segment.bytes")
    assert "segment.bytes" not in tools.broker.describe_topic(topic).config
    bad = tools.refused(CONFIGS, *of_topic, "--alter", "--add-config", "retention.ms=soon")
    assert "retention.ms='soon'" in bad
    assert "num.partitions=1" in tools.run(CONFIGS, "--broker", "0", "--describe", "--all")


def test_records(tools: Tools, topic: str, tmp_path: Path) -> None:
    tools.given(b"one\ntwo\n", TOOLS + "ConsoleProducer", "--topic", topic)
    assert sum(offsets(tools, topic).values()) == 2
    performed = tools.on_its_own(
        TOOLS + "ProducerPerformance",
        *("--topic", topic, "--num-records", "1000", "--record-size", "100"),
        *("--throughput", "-1", "--command-property", f"bootstrap.servers={tools.servers}"),
    )
    assert "1000 records sent" in performed
    verified = tools.run(TOOLS + "VerifiableProducer", "--topic", topic, "--max-messages", "3")
    assert '"sent":3,"acked":3' in verified
    ends = offsets(tools, topic)
    assert sum(ends.values()) == 1005
    number, end = max(ends.items(), key=lambda item: item[1])
    read = tools.run(
        TOOLS + "consumer.ConsoleConsumer",
        *("--topic", topic, "--partition", str(number), "--offset", "earliest"),
        *("--max-messages", str(end), "--timeout-ms", "30000"),
    )
    assert f"Processed a total of {end} messages" in read
    wanted = tmp_path / "delete.json"
    part = {"topic": topic, "partition": number, "offset": end - 1}
    wanted.write_text(json.dumps({"partitions": [part], "version": 1}))
    removed = tools.run(TOOLS + "DeleteRecordsCommand", "--offset-json-file", str(wanted))
    assert f"low_watermark: {end - 1}" in removed


def test_what_brokers_tell_of_themselves(tools: Tools, topic: str) -> None:
    cluster = ("cluster-id", "--bootstrap-server", tools.servers)
    assert tools.broker.cluster_id() in tools.on_its_own(TOOLS + "ClusterTool", *cluster)
    versions = tools.run(TOOLS + "BrokerApiVersionsCommand")
    assert "CreateTopics(19): 2 to 7 [usable: 7]" in versions
    told = tools.run(TOOLS + "LogDirsCommand", "--describe", "--topic-list", topic)
    [found] = [line for line in told.splitlines() if line.startswith("{")]
    parts = [
        part["partition"]
        for broker in json.loads(found)["brokers"]
        for log_dir in broker["logDirs"]
        for part in log_dir["partitions"]
    ]
    assert sorted(parts) == [f"{topic}-0", f"{topic}-1"], "each is told once"
    producers = ("describe-producers", "--topic", topic, "--partition", "0")
    assert "ProducerId" in tools.run(TOOLS + "TransactionsCommand", *producers)
