"""kcat, with the librdkafka of Debian 12 (2.0): it lists, writes, reads and looks times up."""

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from raylog.cluster.broker import Broker
from tests.clients import installing
from tests.clients.program import Record
from tests.clients.table import ALL_CODECS
from tests.clients.topics import Topic
from tests.kafka.distribution import NotHere

pytestmark = pytest.mark.timeout(600)

DEADLINE_S = 120.0


class Kcat:
    """Runs it once for each call."""

    def __init__(self, servers: str) -> None:
        tool, libraries = installing.kcat()
        self._command = [str(tool), "-b", servers]
        self._environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries)}

    def run(self, *arguments: str, lines: bytes = b"") -> str:
        """What it prints; AssertionError if it fails."""
        done = subprocess.run(
            [*self._command, *arguments],
            input=lines,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=DEADLINE_S,
            env=self._environment,
            check=False,
        )
        text = done.stdout.decode()
        assert done.returncode == 0, f"kcat {' '.join(arguments)}\n{text}"
        return text

    def read(self, topic: Topic, partition: int, offset: int | str) -> list[dict[str, Any]]:
        """The records from there to the end, as it prints them."""
        place = ("-C", "-t", topic.name, "-p", str(partition), "-o", str(offset))
        return [json.loads(line) for line in self.run(*place, "-e", "-q", "-J").splitlines()]


@pytest.fixture(scope="module")
def kcat(broker: Broker) -> Iterator[Kcat]:
    try:
        yield Kcat(broker.bootstrap_servers)
    except NotHere as missing:
        pytest.skip(f"kcat: {missing}")


def test_it_lists_topics_and_leaders(kcat: Kcat, topic: Topic) -> None:
    told = json.loads(kcat.run("-L", "-J"))
    [found] = [one for one in told["topics"] if one["topic"] == topic.name]
    leaders = {part["partition"]: part["leader"] for part in found["partitions"]}
    assert leaders.keys() == set(range(topic.partitions))
    assert set(leaders.values()) <= {one["id"] for one in told["brokers"]}


@pytest.mark.parametrize("codec", ALL_CODECS)
def test_it_writes_and_reads(kcat: Kcat, topic: Topic, codec: str) -> None:
    starts = topic.ends()
    to = ("-P", "-t", topic.name, "-p", "1", "-z", codec, "-K", ":", "-H", "name=value")
    kcat.run(*to, lines=b"".join(b"key:value %d\n" % number for number in range(50)))
    found = topic.read(starts)
    assert [record.value for record in found] == [b"value %d" % number for number in range(50)]
    assert {record.key for record in found} == {b"key"}
    assert {record.headers for record in found} == {(("name", b"value"),)}
    assert topic.codecs(starts) == {codec}
    read = kcat.read(topic, 1, starts[1])
    assert [one["payload"] for one in read] == [f"value {number}" for number in range(50)]
    assert [one["offset"] for one in read] == [record.offset for record in found]
    assert read[0]["headers"] == ["name", "value"]


def test_it_looks_an_offset_up_by_time_and_reads_from_a_time(kcat: Kcat, topic: Topic) -> None:
    first_ms = topic.newest_ms(1) + 1000
    written = topic.write(
        Record(1, None, b"%d" % number, first_ms + number) for number in range(10)
    )
    answer = kcat.run("-Q", "-t", f"{topic.name}:1:{first_ms + 4}")
    assert f"offset {written[4].offset}" in answer
    read = kcat.read(topic, 1, f"s@{first_ms + 4}")
    assert [one["payload"] for one in read] == ["4", "5", "6", "7", "8", "9"]
