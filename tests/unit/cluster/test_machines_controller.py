"""What a command says of a Controller that hangs, before it looks at the metadata."""

from types import SimpleNamespace
from typing import Any

import pytest

from raylog.actors.errors import InvalidRequest, RequestTimedOut
from raylog.actors.messages import ActorProcess, ConfigEntry
from raylog.cluster import machines


class Answer:
    """An answer to a call; an error is raised."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def get(self, timeout_s: float) -> Any:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def controller(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    found = SimpleNamespace(handle=None, broker_config=lambda: Answer(answer))
    monkeypatch.setattr(machines, "find_controller", lambda namespace: found)
    monkeypatch.setattr(machines, "process_of", lambda handle: ActorProcess("5f" * 28, 4711))


def test_the_log_dirs_of_the_broker_that_runs_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    controller(monkeypatch, [ConfigEntry("log.dirs", ("/a", "/b"), "broker")])
    assert machines.log_dirs_of("raylog") == "/a,/b"


def test_a_controller_that_hangs_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    controller(monkeypatch, RequestTimedOut("the broker's config", 10_000))
    with pytest.raises(InvalidRequest) as raised:
        machines.log_dirs_of("raylog")
    assert "(process 4711 on node 5f5f5f5f)" in str(raised.value)
    assert "give --log-dir for each" in str(raised.value)
    assert "end this process (`kill -9`)" in str(raised.value)
