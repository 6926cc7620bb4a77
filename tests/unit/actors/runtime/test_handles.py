"""Ray's own errors do not get through: looking for actors ends with raylog's, or with an answer."""

from typing import Any

import pytest
import ray
from ray.exceptions import GetTimeoutError, RaySystemError

from raylog.actors.errors import NotLeader, RequestTimedOut
from raylog.actors.runtime import handles
from raylog.actors.runtime.handles import find, kill, running
from raylog.cluster.broker import Broker
from raylog.cluster.cli.broker import _may_run
from raylog.cluster.client.transport import RayTransport
from raylog.storage.errors import RaylogError


def raising(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(ray, "get_actor", fail)
    monkeypatch.setattr(handles, "list_named_actors", fail)


ERRORS = [
    (GetTimeoutError("the GCS is slow"), RequestTimedOut),
    (RaySystemError("it is away"), NotLeader),
]


@pytest.mark.parametrize(("error", "named"), ERRORS)
def test_a_head_that_does_not_answer_is_an_error_by_name(
    monkeypatch: pytest.MonkeyPatch, error: Exception, named: type[RaylogError]
) -> None:
    raising(monkeypatch, error)
    for look in (
        lambda: find("Log:t-0", "test"),
        lambda: kill("Log:t-0", "test"),
        lambda: running("test"),
    ):
        with pytest.raises(named):
            look()


def test_an_actor_that_is_not_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, ValueError("no such actor"))
    assert find("Log:t-0", "test") is None
    assert not _may_run(Broker())


@pytest.mark.parametrize("error", [error for error, _ in ERRORS])
def test_who_stays_with_a_broker_stays_though_the_head_is_slow(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    raising(monkeypatch, error)
    assert _may_run(Broker())


@pytest.mark.parametrize("error", [error for error, _ in ERRORS])
def test_what_a_producer_cannot_send_because_the_head_is_slow_is_sent_again(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    raising(monkeypatch, error)
    with pytest.raises(RaylogError) as raised:
        RayTransport(Broker()).append("t", 0, b"batch")
    assert raised.value.retriable
