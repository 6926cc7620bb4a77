"""What ``raylog status`` and ``raylog health`` show of recoveries and hangs; without a broker."""

import json
from types import SimpleNamespace

import pytest

from raylog.actors.messages import ActorProcess, LogDirStatus, Recovering
from raylog.cluster.cli import health, status
from raylog.cluster.cli.health import folded
from raylog.cluster.cli.status import _overview
from raylog.cluster.controller.describe import (
    BEING_CREATED,
    BEING_OPENED,
    PartitionDescription,
    TopicDescription,
)
from raylog.cluster.health import gathering
from raylog.cluster.health.facts import Facts
from raylog.storage.report import Mended, Progress
from tests.harness.shell import run_here
from tests.harness.statuses import serving_status

BROKER = SimpleNamespace(namespace="raylog", address="127.0.0.1:1")
WORDS = "recovering: 3.2 of 10.0 GB, segment 4 of 12"
RECOVERS = Facts(
    topics=[
        TopicDescription(
            "t", "id", {}, (PartitionDescription(0, "dir-a", "node-1", "/t-0", BEING_OPENED),)
        )
    ],
    recovering=[Recovering("t-0", Progress(3_200_000_000, 10_000_000_000, 3, 12))],
)
TWO_INDEXES = [
    Mended("rebuilt", f"{0:020d}{suffix}", 80, -1, -1, "it was missing")
    for suffix in (".index", ".timeindex")
]
REBUILT = Facts(partitions=[serving_status(*TWO_INDEXES)])


@pytest.fixture
def facts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Facts:
    seen: Facts = request.param
    for module in (status, health):
        monkeypatch.setattr(module, "connected", lambda *_: BROKER)
    monkeypatch.setattr(gathering, "gather_facts", lambda *_, **__: seen)
    return seen


@pytest.mark.usefixtures("facts")
@pytest.mark.parametrize("facts", [RECOVERS], indirect=True)
def test_a_recovery_is_shown_with_its_progress() -> None:
    assert f"warning: t-0: {WORDS}" in run_here("status").stderr.splitlines()
    [entry] = json.loads(run_here("status", "--format", "json").stdout)["recovering"]
    assert entry["progress"]["bytes_done"] == 3_200_000_000
    assert WORDS in run_here("health").stdout


def test_a_terminal_shows_it_above_the_table() -> None:
    assert ("recovering", "t-0: 3.2 of 10.0 GB, segment 4 of 12") in _overview(BROKER, RECOVERS)  # type: ignore[arg-type]


@pytest.mark.usefixtures("facts")
@pytest.mark.parametrize("facts", [REBUILT], indirect=True)
def test_what_was_only_rebuilt_is_information_and_no_problem() -> None:
    shown = run_here("health")
    [line] = shown.lines()
    assert line.startswith("info\tt-0\trebuilt when the log was opened: 2 files, 160 bytes")
    document = json.loads(run_here("health", "--format", "json").stdout)
    assert (document["healthy"], document["findings"]) == (True, [])
    assert [note["severity"] for note in document["notes"]] == ["info"]
    assert run_here("health", "--errors-only").lines() == []
    assert run_here("status").stderr == ""


HANGS = Facts(
    topics=[
        TopicDescription(
            "t",
            "id",
            {},
            (
                PartitionDescription(0, "dir-a", "node-1", "/disk/t-0", None),
                PartitionDescription(1, "dir-a", "node-1", "/disk/t-1", None),
                PartitionDescription(2, "dir-a", None, "/disk/t-2", BEING_OPENED),
            ),
        )
    ],
    partitions=[serving_status(partition="t-1", folder="/disk/t-1")],
    silent_partitions={"t-0": "no answer within 3 s", "t-2": "it is being opened"},
    processes={"Log:t-0": ActorProcess("node-1", 4711)},
)


@pytest.mark.usefixtures("facts")
@pytest.mark.parametrize("facts", [HANGS], indirect=True)
def test_a_partition_that_does_not_answer_has_its_row_with_what_is_known() -> None:
    shown = run_here("status")
    lines = [line.split("\t") for line in shown.lines()[1:]]
    assert [line[0] for line in lines] == ["t-0", "t-1", "t-2"]
    assert lines[0][1:] == [*["-"] * 6, "4711", "/disk/t-0 DOES NOT ANSWER"]
    assert lines[2][1:] == [*["-"] * 7, f"AWAY: {BEING_OPENED}"]
    assert "t-0: no answer: no answer within 3 s (node node-1, pid 4711)" in shown.stderr
    document = json.loads(run_here("status", "--format", "json").stdout)
    assert [one["partition"] for one in document["partitions"]] == ["t-1"]
    assert document["silent_partitions"] == [
        {
            "partition": "t-0",
            "why": "no answer within 3 s",
            "node": "node-1",
            "pid": 4711,
            "folder": "/disk/t-0",
        }
    ]


def test_a_command_stays_in_one_line_so_that_it_can_be_copied() -> None:
    command = "`raylog log aside restore '/my disk/my-topic-0' 00000000000000000042.log.aside-0`"
    text = f"some words that fill the line, {command}, and more of them"
    lines = folded(text, 60).splitlines()
    assert any(command in line for line in lines)
    assert " ".join(line.strip() for line in lines) == text
    assert max(len(line) for line in lines if command not in line) <= 60


OFFLINE = LogDirStatus.offline("node-1", "/disk", "dir-a", "an operator took it offline")
WHY = "log dir /disk is offline: an operator took it offline"
TAKEN_OUT = Facts(
    topics=[
        TopicDescription(
            "t",
            "id",
            {},
            (
                PartitionDescription(0, "dir-a", None, None, WHY, "bring it back"),
                PartitionDescription(1, "", None, None, BEING_CREATED),
            ),
        )
    ],
    log_dirs=[OFFLINE, LogDirStatus.offline("node-1", "/unread", None, "EACCES")],
)


@pytest.mark.usefixtures("facts")
@pytest.mark.parametrize("facts", [TAKEN_OUT], indirect=True)
def test_a_partition_that_does_not_serve_has_its_row_with_its_place_and_why() -> None:
    lines = [line.split("\t") for line in run_here("status").lines()[1:]]
    assert lines == [
        ["t-0", *["-"] * 7, f"/disk/t-0 AWAY: {WHY}"],
        ["t-1", *["-"] * 7, f"AWAY: {BEING_CREATED}"],
    ]
    document = json.loads(run_here("status", "--format", "json").stdout)
    assert document["away_partitions"] == [
        {"partition": "t-0", "why": WHY, "todo": "bring it back", "folder": "/disk/t-0"},
        {"partition": "t-1", "why": BEING_CREATED, "todo": None, "folder": None},
    ]
