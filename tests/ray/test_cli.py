"""What the command line answers, reads and prints, run in this process from its entry point on.

What is about the process itself, as signals and closed pipes, is in ``test_cli_processes.py``.
"""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raylog.cluster import start as start_module
from raylog.cluster.broker import Broker
from tests.harness.shell import Done, run_here


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cli")


@pytest.fixture(scope="module")
def broker(local_ray: None, folder: Path) -> Iterator[Broker]:
    """In the namespace that the commands look in."""
    with start_module.start([str(folder / "log"), str(folder / "log-2")]) as running:
        yield running


class Shell:
    """Runs ``raylog`` with the address of the one broker."""

    def __call__(self, *arguments: str, stdin: str = "") -> Done:
        return run_here(*arguments, stdin=stdin).without_waiting()

    def lines(self, *arguments: str, stdin: str = "") -> list[str]:
        return self(*arguments, stdin=stdin).lines()


@pytest.fixture
def raylog(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Shell:
    connect = start_module.connect

    def connect_there(address: str | None, namespace: str) -> Broker:
        """This process is connected already, so nobody else would miss the address."""
        assert address == broker.address, "each command goes where it is told to"
        return connect(address, namespace)

    monkeypatch.setenv("RAY_ADDRESS", broker.address)
    monkeypatch.setattr(start_module, "connect", connect_there)
    return Shell()


def test_a_topics_life(raylog: Shell) -> None:
    assert raylog.lines(
        "topic", "create", "t", "--partitions", "2", "--config", "retention.ms=-1"
    ) == ["created t with 2 partitions"]
    assert "t" in raylog.lines("topic", "list", "--names")
    described = raylog.lines("topic", "describe", "t")
    assert "retention.ms=-1" in described[0]
    assert [line.split("\t")[0] for line in described[1:]] == ["partition", "0", "1"]
    sent = raylog("produce", "t", "--key-separator", ":", stdin="a:1\nb:2\nno key\n")
    assert sent.stderr == "3 records acknowledged\n"
    found = [
        json.loads(line)
        for line in raylog.lines(
            "consume", "t", "--from", "earliest", "--to", "latest", "--format", "json"
        )
    ]
    assert sorted((one["key"] or "", one["value"]) for one in found) == [
        ("", "no key"),
        ("a", "1"),
        ("b", "2"),
    ]
    assert len(raylog.lines("consume", "t", "--from", "earliest", "--count", "2")) == 2
    assert "t-1" in "\n".join(raylog.lines("status"))
    assert raylog.lines("topic", "delete", "t") == ["deleted t"]
    assert "t" not in raylog.lines("topic", "list", "--names")


def test_the_same_as_json(raylog: Shell) -> None:
    def document(*arguments: str) -> Any:
        return json.loads("\n".join(raylog.lines(*arguments, "--format", "json")))

    raylog.lines("topic", "create", "j", "--config", "retention.ms=-1")
    assert {"name": "j", "partitions": 1, "records": 0, "size_bytes": 0} in document(
        "topic", "list"
    )["topics"]
    (described,) = document("topic", "describe", "j")["topics"]
    assert (described["name"], described["config"]) == ("j", {"retention.ms": -1})
    status = document("status")
    assert status["partitions_serving"] == status["partitions_wanted"] == len(status["partitions"])
    assert status["findings"] == []
    (one,) = (one for one in status["partitions"] if one["partition"] == "j-0")
    assert (one["offsets"]["log_end_offset"], one["size_bytes"]) == (0, 0)
    health = document("health")
    assert (health["healthy"], health["findings"]) == (True, [])
    assert [note["subject"] for note in health["notes"]] == ["metadata"], "there is one node"
    raylog.lines("topic", "delete", "j")


def test_a_topics_configuration_is_shown_and_changed_and_it_gets_more_partitions(
    raylog: Shell,
) -> None:
    def shown(*arguments: str) -> list[list[str]]:
        return [line.split("\t") for line in raylog.lines("config", "get", *arguments)]

    raylog.lines("topic", "create", "c", "--config", "retention.ms=-1")
    assert shown("c", "retention.ms", "preallocate") == [
        ["key", "value", "set by"],
        ["retention.ms", "-1", "topic"],
        ["preallocate", "false", "default"],
    ]
    assert raylog.lines(
        "config", "set", "c", "segment.bytes=2000000", "--delete", "retention.ms"
    ) == ["c: segment.bytes=2000000"]
    assert ["segment.bytes", "2000000", "topic"] in shown("c")
    assert ["retention.ms", "604800000", "default"] in shown("c")
    assert ["num.partitions", "1", "default"] in shown("--broker")
    document = json.loads(
        "\n".join(raylog.lines("config", "get", "c", "segment.bytes", "--format", "json"))
    )
    assert document["config"] == [{"name": "segment.bytes", "value": 2000000, "source": "topic"}]
    assert raylog.lines("topic", "add-partitions", "c", "3") == ["c has 3 partitions"]
    raylog.lines("topic", "delete", "c")


def test_records_are_deleted_and_upkeep_is_shown(raylog: Shell) -> None:
    raylog.lines("topic", "create", "d")
    raylog("produce", "d", stdin="one\ntwo\nthree\n")
    delete = ("topic", "trim", "d", "--before")
    assert raylog.lines(*delete, "2") == ["d-0 begins at offset 2"]
    assert raylog.lines("consume", "d", "--from", "earliest", "--to", "latest") == ["three"]
    assert "out of range" in raylog(*delete, "9").stderr
    assert raylog.lines(*delete, "latest") == ["d-0 begins at offset 3"]
    raylog.lines("topic", "create", "k", "--config", "cleanup.policy=compact")
    for verb in ("compaction", "retention"):
        header = raylog.lines(verb)[0].split("\t")
        assert header[0] == "partition"
        assert isinstance(json.loads("\n".join(raylog.lines(verb, "--format", "json")))[verb], list)
    raylog.lines("topic", "delete", "d")
    raylog.lines("topic", "delete", "k")


@pytest.fixture
def topic_m(raylog: Shell) -> Iterator[None]:
    """The topic "m", deleted even if the test fails: the test of health wants no problem left."""
    raylog.lines("topic", "create", "m")
    yield
    raylog.lines("topic", "delete", "m")


def test_log_dirs_are_shown_and_a_partition_is_moved_between_them(
    folder: Path, raylog: Shell, topic_m: None
) -> None:
    raylog("produce", "m", stdin="one\n")
    (dirs,) = json.loads("\n".join(raylog.lines("log-dirs", "--format", "json"))).values()
    assert [(one["path"], one["is_online"]) for one in dirs] == [
        (str(folder / "log"), True),
        (str(folder / "log-2"), True),
    ]
    lines = [line.split("\t") for line in raylog.lines("log-dirs")]
    assert lines[0][:4] == ["node", "log dir", "state", "partitions"]
    assert [line[2] for line in lines[1:]] == ["online", "online"]
    for target in (dirs[0]["path"], dirs[1]["directory_id"]):
        moved = raylog.lines("partition", "move", "m", "0", target)
    assert moved == [f"m-0 is in {folder / 'log-2' / 'm-0'}"]
    assert raylog.lines("consume", "m", "--from", "earliest", "--to", "latest") == ["one"]
    assert "not a usable log dir" in raylog("partition", "move", "m", "0", "/nowhere").stderr


def test_health_tells_within_seconds_of_a_partition_whose_process_is_stuck(raylog: Shell) -> None:
    raylog.lines("topic", "create", "stuck")
    well = raylog("health")
    assert (well.returncode, well.stderr) == (0, "no problem was found\n"), well.stdout
    assert [line.split("\t")[0] for line in well.stdout.splitlines()] == ["info"]
    (line,) = (line for line in raylog.lines("status") if line.startswith("stuck-0"))
    pid = int(line.split("\t")[7])
    os.kill(pid, signal.SIGSTOP)
    try:
        found = raylog("health")
        assert found.returncode == 1
        first, note = (line.split("\t") for line in found.stdout.splitlines())
        severity, subject, what, _todo = first
        assert (severity, subject, note[0]) == ("error", "stuck-0", "info")
        assert "no answer" in what
        assert what.endswith(f", pid {pid})")
        shown = raylog("status")
        (row,) = (row.split("\t") for row in shown.lines() if row.startswith("stuck-0"))
        assert row[7] == str(pid)
        assert row[8].endswith("stuck-0 DOES NOT ANSWER")
        assert "error: stuck-0: no answer" in shown.stderr
        began_s = time.monotonic()
        read = run_here("consume", "stuck", "--exit")
        assert time.monotonic() - began_s < 60  # 30 s, and what a process takes to start
        waiting, gave_up = read.stderr.splitlines()
        assert waiting.startswith("waiting: stuck-0 does not answer; `raylog health`")
        assert gave_up.startswith("error: stuck-0: no answer within 30000 ms")
    finally:
        os.kill(pid, signal.SIGCONT)
        well = raylog("health")
        raylog.lines("topic", "delete", "stuck")
    assert well.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("topic", "describe", "nowhere"), "the topic does not exist"),
        (("topic", "create", "a/b"), "topic name 'a/b'"),
        (("topic", "create", "t", "--config", "segment.byte=1"), "similar keys are segment.bytes"),
        (("config", "get", "nowhere"), "the topic does not exist"),
        (("config", "get", "--broker", "retention.ms"), "use the broker key log.retention.ms"),
        (("config", "set", "nowhere", "retention.ms=1"), "the topic does not exist"),
        (("topic", "trim", "nowhere", "--before", "1"), "the topic does not exist"),
        (("topic", "delete", "nowhere"), "the topic does not exist"),
        (("topic", "add-partitions", "nowhere", "3"), "the topic does not exist"),
        (("produce", "nowhere"), "the topic does not exist"),
        (("consume", "nowhere"), "the topic does not exist"),
        (("status", "--namespace", "other"), "no raylog broker runs in namespace 'other'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_goes_wrong_is_one_line(raylog: Shell, arguments: tuple[str, ...], says: str) -> None:
    done = raylog(*arguments)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_produce_names_the_line_that_is_refused_and_keeps_those_before(raylog: Shell) -> None:
    raylog.lines("topic", "create", "lines")
    done = raylog("produce", "lines", stdin="one\n" + "x" * 2_000_000 + "\n")
    assert done.returncode == 1
    assert done.stderr.startswith("error: line 2 was refused")
    assert raylog.lines("consume", "lines", "--from", "earliest", "--to", "latest") == ["one"]


def read(raylog: Shell, *arguments: str) -> list[Any]:
    """Records as JSON documents."""
    lines = raylog.lines("consume", *arguments, "--exit", "--format", "json")
    return [json.loads(line) for line in lines]


@pytest.fixture
def topics(raylog: Shell) -> Iterator[tuple[str, str]]:
    """Two topics with two partitions."""
    # Some of their records are as old as T0: no round of retention may meet them.
    for_ever = ["--config", "retention.ms=-1"]
    raylog.lines("topic", "create", "r1", "r2", "--partitions", "2", *for_ever)
    yield "r1", "r2"
    raylog.lines("topic", "delete", "r1", "r2")


T0 = 1_700_000_000_000


def test_what_consume_prints_as_json_produce_takes(
    broker: Broker, raylog: Shell, topics: tuple[str, str]
) -> None:
    source, target = topics
    with broker.producer() as producer:
        for number, value in enumerate([b"text", None, b"", b"\xff\x00\n", "ü\u2028".encode()]):
            producer.send(
                source,
                value,
                key=[None, b"", b"k", b"\xfe", b"k"][number],
                headers=[("h", None), ("h", b""), ("h", b"\xff"), ("ü", b"x")][:number],
                timestamp=T0 + number,
                partition=number % 2,
            )
    lines = raylog.lines("consume", source, "--exit", "--format", "json")
    sent = raylog(
        "produce", target, "--format", "json", "--compression", "zstd", stdin="\n".join(lines)
    )
    assert (sent.returncode, sent.stderr) == (0, "5 records acknowledged\n")
    with broker.consumer(source, target, from_="earliest", to="latest") as consumer:
        records = sorted(consumer)
    copied = [record._replace(topic=source) for record in records if record.topic == target]
    assert copied == [record for record in records if record.topic == source]
    assert len(copied) == 5


def test_null_values_headers_timestamps_and_partitions_are_given_by_options(
    raylog: Shell, topics: tuple[str, str]
) -> None:
    arguments = ["--key-separator", "\\t", "--null-value", "-", "-H", "a=1", "-H", "b"]
    arguments += ["--timestamp", "2026-01-02", "--partition", "1", "-v"]
    shown = raylog.lines("produce", topics[0], *arguments, stdin="k\tv\nk\t-\n-\t\nx\r\n")
    assert shown == ["line\tpartition\toffset", "1\t1\t0", "2\t1\t1", "3\t1\t2", "4\t1\t3"]
    records = read(raylog, topics[0], "--partition", "1")
    found = [(record["key"], record["value"]) for record in records]
    assert found == [("k", "v"), ("k", None), (None, ""), (None, "x")]
    assert all(record["headers"] == [["a", "1"], ["b", None]] for record in records)
    assert {record["timestamp"] for record in records} == {1_767_312_000_000}
    printed = raylog.lines("consume", topics[0], "-e", "--with-key", "--null-value", "NULL")
    assert printed == ["k\tv", "k\tNULL", "NULL\t", "NULL\tx"]
    printed = raylog.lines("consume", topics[0], "-e", "-f", "%p:%o %k=%v\\n", "-c", "1")
    assert printed == ["1:0 k=v"]


def test_records_are_read_from_offsets_times_and_the_end(
    broker: Broker, raylog: Shell, topics: tuple[str, str]
) -> None:
    with broker.producer() as producer:
        for number in range(10):
            producer.send(topics[0], b"%d" % number, partition=0, timestamp=T0 + 1000 * number)
        producer.send(topics[1], b"now", partition=1)

    def values(*arguments: str) -> list[str]:
        """Sorted: partitions come in any order."""
        return sorted(record["value"] for record in read(raylog, *arguments))

    assert values(topics[0], "-p", "0", "--from", "8") == ["8", "9"]
    assert values(topics[0], "--last", "2") == ["8", "9"]
    assert values(topics[0], "--from", f"@{T0 + 7500}") == ["8", "9"]
    assert values(topics[0], "--from", "2023-11-14T22:13:27.500Z") == ["8", "9"]
    assert values(topics[0], topics[1], "--from", "-1h") == ["now"]
    assert values("^r[12]$", "--last", "1") == ["9", "now"]
    assert values("^r[12]$", "-p", "1") == ["now"]
    none = raylog("consume", "^no-such", "--exit")
    assert (none.returncode, none.stdout) == (1, "")
    assert none.stderr.startswith("error: topic '^no-such': no topic matches;")
    to = ("--from", "2", "--to", "4", "-p", "0")
    assert raylog.lines("consume", topics[0], *to) == ["2", "3"]
    times = ("--from", f"@{T0 + 2000}", "--to", f"@{T0 + 4000}")
    assert raylog.lines("consume", topics[0], *times) == ["2", "3"]
    assert raylog.lines("consume", *topics, "--from", "0", "-c", "11")[-1:] != []
    refused = raylog("consume", topics[0], "--from", "11", "--exit")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "offset 11 is out of range" in refused.stderr
    raylog.lines("topic", "trim", topics[0], "--before", f"@{T0 + 3500}")
    begun = raylog("consume", topics[0], "--from", "0", "-p", "0", "-c", "1")
    assert (begun.stdout, begun.stderr) == (
        "4\n",
        "r1-0: offsets 0 to 3 are deleted; starting at 4\n",
    )


def test_several_topics_are_told_of_one_by_one(raylog: Shell) -> None:
    raylog.lines("topic", "create", "s1", "--partitions", "2")
    created = raylog("topic", "create", "s1", "s2", "--partitions", "3")
    assert (created.returncode, created.stdout) == (1, "created s2 with 3 partitions\n")
    assert created.stderr.startswith("error: topic 's1' cannot be created")
    again = raylog.lines(
        "topic", "create", "s1", "s2", "s3", "--if-not-exists", "--partitions", "1"
    )
    assert again == [
        "s1 exists, with 2 partitions",
        "s2 exists, with 3 partitions",
        "created s3 with 1 partition",
    ]
    assert raylog.lines("topic", "create", "s4", "--validate-only") == ["s4 can be created"]
    assert raylog("topic", "create", "s1", "--validate-only").returncode == 1
    extended = raylog.lines("topic", "add-partitions", "s3", "2", "--validate-only")
    assert extended == ["s3 can have 2 partitions"]
    raylog("produce", "s2", stdin="a\nb\n")
    listed = raylog.lines("topic", "list")
    assert listed[0] == "topic\tpartitions\trecords\tbytes"
    assert [line.split("\t")[:3] for line in listed if line.startswith("s")] == [
        ["s1", "2", "0"],
        ["s2", "3", "2"],
        ["s3", "1", "0"],
    ]
    trimmed = raylog("topic", "trim", "s2", "nowhere", "--before", "latest", "-p", "0", "-p", "9")
    assert trimmed.returncode == 1
    assert trimmed.stdout.startswith("s2-0 begins at offset ")
    assert len(trimmed.stderr.splitlines()) == 2
    changed = raylog.lines("config", "set", "s1", "retention.ms=5", "--validate-only")
    assert changed == ["s1 can have: retention.ms=5"]
    assert "retention.ms" not in raylog.lines("topic", "describe", "s1")[0]
    deleted = raylog("topic", "delete", "s1", "nowhere", "s2", "s3")
    assert (deleted.returncode, deleted.stdout) == (1, "deleted s1\ndeleted s2\ndeleted s3\n")
    assert len(deleted.stderr.splitlines()) == 1


def test_a_topic_whose_partition_does_not_answer_is_listed_without_counts(raylog: Shell) -> None:
    raylog.lines("topic", "create", "stuck")
    (line,) = (line for line in raylog.lines("status") if line.startswith("stuck-0"))
    pid = int(line.split("\t")[7])
    os.kill(pid, signal.SIGSTOP)
    try:
        listed = raylog("topic", "list")
        assert "stuck\t1\t-\t-" in listed.lines()
        assert "stuck: 1 of 1 partition do not answer" in listed.stderr
    finally:
        os.kill(pid, signal.SIGCONT)
    raylog.lines("topic", "delete", "stuck")
