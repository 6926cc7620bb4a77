"""``raylog topic describe`` says of a partition that hangs that it does not answer."""

import json
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from raylog.actors.errors import RequestTimedOut
from raylog.cluster import start as start_module
from raylog.cluster.controller.describe import PartitionDescription, TopicDescription
from tests.harness.shell import Done, run_here

PLACE = PartitionDescription(0, "dir-a", "5f" * 28, "/a/t-0", None)
AWAY = PLACE._replace(partition=1, problem="its disk is offline", todo="repair it")
HANGS = "does not answer; `raylog health` says what to do"


def described(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Done:
    """Of a topic whose partitions do not answer."""

    def answered(answer: object) -> Future[object]:
        future: Future[object] = Future()
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
        return future

    topic = TopicDescription("t", "id", {}, (PLACE, AWAY))
    silent = RequestTimedOut("t-0", 5.0)
    connection = SimpleNamespace(
        command=lambda *_, **__: answered(topic), ask_partition=lambda *_: answered(silent)
    )
    broker = SimpleNamespace(
        connection=lambda: connection,
        client_connection=lambda: SimpleNamespace(cluster=connection),
        describe_nodes=list,
    )
    monkeypatch.setattr(start_module, "connect", lambda *_, **__: broker)
    return run_here("topic", "describe", "t", *arguments)


def test_of_one_that_hangs_it_is_the_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, hangs, away = (line.split("\t") for line in described(monkeypatch).lines())
    assert hangs == ["0", "5f5f5f5f", "-", "-", "-", "/a/t-0", HANGS]
    assert away[-1] == "its disk is offline; repair it"


def test_in_json_too(monkeypatch: pytest.MonkeyPatch) -> None:
    document = json.loads(described(monkeypatch, "--format", "json").stdout)
    hangs, away = document["topics"][0]["partitions"]
    assert (hangs["problem"], hangs["todo"]) == tuple(HANGS.split("; "))
    assert away["problem"] == "its disk is offline"
