"""``raylog user``: passwords come from a file, and are not shown."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raylog.actors.messages import ConfigEntry, UserDescription
from raylog.cluster import start as start_module
from tests.harness.shell import run_here


class FakeBroker:
    def __init__(self, listeners: str) -> None:
        self.asked: list[Any] = []
        self._listeners, self.names = listeners, "OUTSIDE:SASL_SSL"

    def users(self) -> list[UserDescription]:
        return [UserDescription("ann", ("SCRAM-SHA-256", "SCRAM-SHA-512"))]

    def add_user(self, name: str, password: str) -> None:
        self.asked.append((name, password))

    def delete_user(self, name: str) -> None:
        self.asked.append(name)

    def broker_config(self) -> list[ConfigEntry]:
        listeners = ConfigEntry("listeners", self._listeners, "broker")
        if not self.names:
            return [listeners]
        return [listeners, ConfigEntry("listener.security.protocol.map", self.names, "broker")]


Given = Callable[..., FakeBroker]


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Given:
    def make(listeners: str = "SASL_SSL://:19092") -> FakeBroker:
        broker = FakeBroker(listeners)
        monkeypatch.setattr(start_module, "connect", lambda *_, **__: broker)
        return broker

    return make


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_bytes("s€cret \r\nmore\n".encode())
    return path


def test_a_password_is_the_first_line_of_a_file(given: Given, file: Path) -> None:
    broker = given()
    done = run_here("user", "add", "bob", "--password-file", str(file))
    assert (done.returncode, done.stdout, done.stderr) == (0, "added user bob\n", "")
    done = run_here("user", "add", "ann", "--password-file", str(file))
    assert done.stdout == "user ann has another password\n"
    assert broker.asked == [("bob", "s€cret "), ("ann", "s€cret ")]


def test_a_password_comes_by_standard_input(given: Given) -> None:
    broker = given()
    done = run_here("user", "add", "bob", "--password-file", "-", stdin="secret\n")
    assert done.returncode == 0
    assert broker.asked == [("bob", "secret")]


def test_listeners_that_ask_for_no_user_are_told_of(given: Given, file: Path) -> None:
    given("PLAINTEXT://127.0.0.1:19092")
    done = run_here("user", "add", "bob", "--password-file", str(file))
    assert "listeners=PLAINTEXT://127.0.0.1:19092 asks for no user" in done.stderr
    broker = given("PLAINTEXT://127.0.0.1:19092")
    broker.names = ""  # an older one does not tell them
    assert "asks for no user" in run_here("user", "add", "b", "--password-file", str(file)).stderr
    given("PLAINTEXT://127.0.0.1:19092,OUTSIDE://:29092")
    assert run_here("user", "add", "bob", "--password-file", str(file)).stderr == ""


@pytest.mark.parametrize("content", [None, b"", b"\nsecret\n", b"\xff"])
def test_no_password_is_a_wrong_usage(given: Given, tmp_path: Path, content: bytes | None) -> None:
    broker, path = given(), tmp_path / "password"
    if content is not None:
        path.write_bytes(content)
    done = run_here("user", "add", "bob", "--password-file", str(path))
    assert (done.returncode, broker.asked) == (2, [])
    assert run_here("user", "add", "bob").returncode == 2, "there is no terminal"


def test_users_are_listed_and_deleted(given: Given) -> None:
    broker = given()
    assert run_here("user", "list").lines() == [
        "user\tmechanisms",
        "ann\tSCRAM-SHA-256,SCRAM-SHA-512",
    ]
    assert '"name": "ann"' in run_here("user", "list", "--format", "json").stdout
    assert run_here("user", "delete", "ann").lines() == ["deleted user ann"]
    assert broker.asked == ["ann"]
