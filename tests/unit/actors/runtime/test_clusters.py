"""Which of a machine's Ray clusters a command turns to, with clusters that are no more than
names."""

import signal
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
import ray

from raylog.actors.errors import (
    BrokerNotFound,
    RayNotFound,
    RayNotStarted,
    RequestTimedOut,
    SeveralBrokers,
)
from raylog.actors.runtime import clusters as module


class Machine:
    """Ray clusters by address; whether a broker runs there, None if they do not answer."""

    def __init__(self, clusters: dict[str, bool | None], latest: str | None) -> None:
        self.clusters, self.latest = clusters, latest
        self.joined: str | None = None
        self.wants_token: set[str] = set()

    def join(self, address: str) -> None:
        assert self.joined is None, "two at once"
        if self.clusters.get(address) is None:
            hint = module.TOKEN_HINT if address in self.wants_token else ""
            raise RayNotFound(address, f"refused{hint}")
        self.joined = address

    def leave(self) -> None:
        self.joined = None

    def has_broker(self) -> bool:
        return bool(self.joined and self.clusters[self.joined])


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Machine]:
    def make(clusters: dict[str, bool | None], latest: str | None = None) -> Machine:
        made = Machine(clusters, latest)
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        monkeypatch.setattr(ray, "shutdown", made.leave)
        monkeypatch.setattr(module, "_join", made.join)
        monkeypatch.setattr(module, "_running_here", lambda: (set(clusters), latest))
        return made

    return make


@pytest.mark.parametrize(
    "clusters", [{"a": True}, {"a": None, "b": True}, {"a": False, "b": True, "c": None}]
)
def test_the_cluster_with_the_broker_is_joined(
    machine: Callable[..., Machine], clusters: dict[str, bool | None]
) -> None:
    here = machine(clusters)
    module.join_ray_with(here.has_broker, "raylog")
    assert clusters[str(here.joined)]


@pytest.mark.parametrize(
    ("clusters", "error"),
    [
        ({}, RayNotFound),
        ({"a": None}, RayNotFound),
        ({"a": False}, BrokerNotFound),
        ({"a": False, "b": None}, BrokerNotFound),
        ({"a": True, "b": True}, SeveralBrokers),
    ],
)
def test_without_exactly_one_broker_none_is_joined(
    machine: Callable[..., Machine], clusters: dict[str, bool | None], error: type[Exception]
) -> None:
    here = machine(clusters)
    with pytest.raises(error):
        module.join_ray_with(here.has_broker, "raylog")
    assert here.joined is None


@pytest.mark.parametrize("refusing", ["a", "b"])
def test_a_cluster_that_refuses_for_its_token_is_told_where_no_other_has_a_broker(
    machine: Callable[..., Machine], refusing: str
) -> None:
    here = machine({"a": False, "b": False, refusing: None})
    here.wants_token.add(refusing)
    with pytest.raises(RayNotFound, match="RAY_AUTH_TOKEN_PATH"):
        module.join_ray_with(here.has_broker, "raylog")
    assert here.joined is None


def test_a_cluster_that_does_not_tell_is_left_and_its_error_told(
    machine: Callable[..., Machine],
) -> None:
    here = machine({"a": True})

    def is_slow() -> bool:
        raise RequestTimedOut("Controller", 30_000)

    with pytest.raises(RequestTimedOut):
        module.join_ray_with(is_slow, "raylog")
    assert here.joined is None


def test_an_address_is_taken_at_its_word(
    machine: Callable[..., Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = machine({"a": True, "b": False})
    with pytest.raises(BrokerNotFound):
        module.join_ray_with(here.has_broker, "raylog", "b")
    monkeypatch.setenv("RAY_ADDRESS", "b")
    with pytest.raises(BrokerNotFound):
        module.join_ray_with(here.has_broker, "raylog")
    module.join_ray_with(here.has_broker, "raylog", "a")
    assert here.joined == "a"


@pytest.mark.parametrize(
    ("clusters", "latest", "joined"),
    [
        ({"a": False, "b": False}, "b", "b"),
        ({"a": False, "b": None}, "b", "a"),
        ({"a": False, "b": False}, "gone", "a"),
    ],
)
def test_a_new_broker_goes_to_what_ray_start_left_last_else_to_any_that_answers(
    machine: Callable[..., Machine], clusters: dict[str, bool | None], latest: str, joined: str
) -> None:
    machine(clusters, latest=latest)
    assert module.join_ray() == joined


@pytest.mark.parametrize(
    "address", ["nowhere", ":1", "127.0.0.1:", "127.0.0.1:1", "127.0.0.1:99999999"]
)
def test_an_address_that_none_answers_at_is_refused_at_once(address: str) -> None:
    with pytest.raises(RayNotFound, match=address):
        module.join_ray(address)


def test_a_ray_that_does_not_start_is_an_error_of_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(*_: Any, **__: Any) -> None:
        raise Exception("The current node timed out\nduring startup.")

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(RayNotStarted, match=r"timed out during startup.*try again"):
        module.join_or_start_ray("local")


@pytest.mark.parametrize("address", ["local", "ray/head:6379"])
def test_a_handler_of_sigterm_is_kept_when_ray_begins(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """Ray puts its own there, which ends a command with a trace of each thread."""

    def own(*_: object) -> None: ...

    def init(*_: Any, **__: Any) -> None:
        signal.signal(signal.SIGTERM, lambda *_: None)

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    before = signal.signal(signal.SIGTERM, own)
    try:
        module.join_or_start_ray(address)
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(
    ("says", "is_ray"),
    [
        (bytes((0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 64, 0, 0)), True),  # settings of HTTP/2
        (b"HTTP/1.0 400 Bad request\r\n\r\n", False),
        (b"", False),
    ],
)
def test_who_does_not_speak_grpc_is_no_ray(
    monkeypatch: pytest.MonkeyPatch, says: bytes, is_ray: bool
) -> None:
    """Ray would ask for many minutes."""
    monkeypatch.delenv("RAY_USE_TLS", raising=False)
    monkeypatch.setattr(ray, "init", lambda *_, **__: None)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            peer, _ = listening.accept()
            peer.recv(1000)
            peer.sendall(says)
            peer.close()

        thread = threading.Thread(target=answer)
        thread.start()
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        if is_ray:
            assert module.join_ray(address) == address
        else:
            with pytest.raises(RayNotFound, match="no Ray"):
                module.join_ray(address)
        thread.join()


class Told(BaseException):
    """What a handler raises."""


@pytest.mark.parametrize("address", ["local", "ray/head:6379"])
def test_a_sigterm_that_comes_while_ray_begins_is_given_to_the_handler(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    def own(*_: object) -> None:
        raise Told

    def rays(*_: object) -> None:
        raise SystemExit(signal.SIGTERM)

    def init(*_: Any, **__: Any) -> None:
        signal.signal(signal.SIGTERM, rays)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    before = signal.signal(signal.SIGTERM, own)
    try:
        with pytest.raises(Told):
            module.join_or_start_ray(address)
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("said", ["Failed to connect to Ray cluster", ""])
def test_a_ray_that_refuses_this_process_may_want_a_token(
    monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    def init(address: str, **_: Any) -> None:
        raise ConnectionError(said)

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(module, "_speaks_grpc", lambda _: True)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(RayNotFound, match=r"\(\w.* wants a token.*RAY_AUTH_TOKEN_PATH"):
            module.join_ray(address)
