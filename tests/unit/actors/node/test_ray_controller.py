"""The Controller as a LogManager asks it for its clients: whatever happens there has a name."""

from typing import Any

import pytest
from ray.exceptions import RayTaskError

from raylog.actors.errors import BrokerNotFound, NotController, NotLeader
from raylog.actors.node import ray_controller
from raylog.actors.node.ray_controller import RayController
from raylog.actors.runtime.stubs import ReportsStub
from raylog.storage.errors import RaylogError
from tests.harness.futures import future_of, futures_are_references


class Handle:
    """Ray's handle of a Controller that answers so, or has no such method."""

    def __init__(self, answer: Any, *, is_older: bool = False) -> None:
        self._answer, self._is_older = answer, is_older

    def __getattr__(self, name: str) -> Any:
        if self._is_older:
            raise AttributeError(name)
        return self

    def remote(self) -> Any:
        return future_of(self._answer)


def asked(monkeypatch: pytest.MonkeyPatch, handle: Handle | None) -> int:
    stub = None if handle is None else ReportsStub(handle)
    monkeypatch.setattr(ray_controller, "find_reports", lambda namespace: stub)
    return RayController("raylog").allocate_producer_id()


@pytest.fixture(autouse=True)
def references(monkeypatch: pytest.MonkeyPatch) -> None:
    futures_are_references(monkeypatch)


def test_it_gives_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(monkeypatch, Handle(7)) == 7


def test_a_controller_that_is_away_or_refuses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BrokerNotFound):
        asked(monkeypatch, None)
    refused = NotController("the broker", "it is starting")
    with pytest.raises(NotController):
        asked(monkeypatch, Handle(RayTaskError("ask", "", refused)))


@pytest.mark.parametrize(
    "handle",
    [Handle(RayTaskError("ask", "", ValueError("a bug there"))), Handle(None, is_older=True)],
    ids=["a bug", "an older release"],
)
def test_what_has_no_name_there_gets_one_here(
    monkeypatch: pytest.MonkeyPatch, handle: Handle
) -> None:
    """Else a client's request would end the process of the LogManager."""
    with pytest.raises(NotLeader) as raised:
        asked(monkeypatch, handle)
    assert isinstance(raised.value, RaylogError)
