"""What the command line answers, reads and prints, run in this process from its entry point on.

What is about the process itself, as signals and closed pipes, is in ``test_cli_processes.py``.
"""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raylog.cluster import broker as broker_module
from raylog.cluster.broker import Broker
from tests.harness.shell import Done, run_here


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cli")


@pytest.fixture(scope="module")
def broker(local_ray: None, folder: Path) -> Iterator[Broker]:
    """In the namespace that the commands look in."""
    with broker_module.start([str(folder / "log"), str(folder / "log-2")]) as running:
        yield running


class Shell:
    """Runs ``raylog`` with the address of the one broker."""

    def __call__(self, *arguments: str, stdin: str = "") -> Done:
        return run_here(*arguments, stdin=stdin)

    def lines(self, *arguments: str, stdin: str = "") -> list[str]:
        return self(*arguments, stdin=stdin).lines()


@pytest.fixture
def raylog(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Shell:
    connect = broker_module.connect

    def connect_there(address: str | None, namespace: str) -> Broker:
        """This process is connected already, so nobody else would miss the address."""
        assert address == broker.address, "each command goes where it is told to"
        return connect(address, namespace)

    monkeypatch.setenv("RAY_ADDRESS", broker.address)
    monkeypatch.setattr(broker_module, "connect", connect_there)
    return Shell()


def test_a_topics_life(raylog: Shell) -> None:
    assert raylog.lines(
        "topic", "create", "t", "--partitions", "2", "--config", "retention.ms=-1"
    ) == ["created t with 2 partitions"]
    assert "t" in raylog.lines("topic", "list")
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
    assert len(raylog.lines("consume", "t", "--from", "earliest", "--max", "2")) == 2
    assert "t-1" in "\n".join(raylog.lines("status"))
    assert raylog.lines("topic", "delete", "t") == ["deleted t"]
    assert "t" not in raylog.lines("topic", "list")


def test_the_same_as_json(raylog: Shell) -> None:
    def document(*arguments: str) -> Any:
        return json.loads("\n".join(raylog.lines(*arguments, "--format", "json")))

    raylog.lines("topic", "create", "j", "--config", "retention.ms=-1")
    assert "j" in document("topic", "list")["topics"]
    described = document("topic", "describe", "j")
    assert (described["name"], described["config"]) == ("j", {"retention.ms": -1})
    status = document("status")
    assert status["partitions_serving"] == status["partitions_wanted"] == len(status["partitions"])
    assert status["findings"] == []
    (one,) = (one for one in status["partitions"] if one["partition"] == "j-0")
    assert (one["offsets"]["log_end_offset"], one["size_bytes"]) == (0, 0)
    assert document("health") == {"healthy": True, "findings": [], "notes": []}
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
    delete = ("topic", "delete-records", "d", "0", "--before")
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
    assert (well.returncode, well.stdout, well.stderr) == (0, "", "no problem was found\n")
    (line,) = (line for line in raylog.lines("status") if line.startswith("stuck-0"))
    pid = int(line.split("\t")[7])
    os.kill(pid, signal.SIGSTOP)
    try:
        found = raylog("health")
        assert found.returncode == 1
        severity, subject, what, _todo = found.stdout.rstrip("\n").split("\t")
        assert (severity, subject) == ("error", "stuck-0")
        assert "no answer" in what
        shown = raylog("status")
        assert "stuck-0" not in shown.stdout
        assert "error: stuck-0: no answer" in shown.stderr
    finally:
        os.kill(pid, signal.SIGCONT)
    assert raylog("health").returncode == 0
    raylog.lines("topic", "delete", "stuck")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("topic", "describe", "nowhere"), "the topic does not exist"),
        (("topic", "create", "a/b"), "topic name 'a/b'"),
        (("topic", "create", "t", "--config", "segment.byte=1"), "similar keys are segment.bytes"),
        (("config", "get", "nowhere"), "the topic does not exist"),
        (("config", "get", "--broker", "retention.ms"), "use the broker key log.retention.ms"),
        (("config", "set", "nowhere", "retention.ms=1"), "the topic does not exist"),
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
