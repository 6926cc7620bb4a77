"""Where a client is not to be had, the word says why; where it is, it is installed once."""

from pathlib import Path

import pytest

from tests.clients import installing
from tests.kafka.distribution import NotHere


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with nothing on it but what a test puts into this folder, and with no cache."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "bin"


def install(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def clients(tools: Path) -> list[str]:
    return [path.name for path in (tools.parent / "cache" / "raylog" / "clients").iterdir()]


def test_without_node(tools: Path) -> None:
    with pytest.raises(NotHere, match="there is no node: install nodejs and npm"):
        installing.node("kafkajs", "kafkajs@2.2.4")


def test_without_go(tools: Path) -> None:
    with pytest.raises(NotHere, match="there is no go: install golang"):
        installing.go("franz")


def test_without_kcat_and_debian(tools: Path) -> None:
    with pytest.raises(NotHere, match="there is no apt-get: install kcat"):
        installing.kcat()


def test_without_the_registry(tools: Path) -> None:
    install(tools / "node", "")
    install(tools / "npm", "echo half done > node_modules; echo no network; exit 1")
    with pytest.raises(NotHere, match="npm did not give it: no network"):
        installing.node("kafkajs", "kafkajs@2.2.4")
    assert clients(tools) == [], "nothing half done is left"


def test_with_a_registry_that_does_not_answer(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installing, "INSTALL_S", 0.5)
    install(tools / "node", "")
    install(tools / "npm", "while true; do :; done")
    with pytest.raises(NotHere, match="npm gave nothing within"):
        installing.node("kafkajs", "kafkajs@2.2.4")
    assert clients(tools) == []


def test_a_client_is_installed_once(tools: Path) -> None:
    install(tools / "node", "")
    install(tools / "npm", 'echo "$*" > node_modules')
    node, modules = installing.node("kafkajs", "kafkajs@2.2.4")
    assert node == str(tools / "node")
    assert "kafkajs@2.2.4" in modules.read_text()
    install(tools / "npm", "exit 1")
    assert installing.node("kafkajs", "kafkajs@2.2.4") == (node, modules)
    with pytest.raises(NotHere):
        installing.node("kafkajs", "kafkajs@2.2.5")
