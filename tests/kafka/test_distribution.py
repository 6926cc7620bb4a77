"""Where there is no Kafka, the tests say what to install; where there is one, it is not fetched
again."""

import os
from pathlib import Path

import pytest

from tests.kafka.distribution import NotHere, find_kafka


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with nothing on it but what a test puts into this folder."""
    (tmp_path / "bin").mkdir()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("RAYLOG_KAFKA_JARS", str(tmp_path / "jars"))
    return tmp_path / "bin"


def install(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def install_java(tools: Path, version: str) -> None:
    install(tools / "java", f"echo 'openjdk version \"{version}\" 2025-04-15' >&2")


def test_without_java(tools: Path) -> None:
    with pytest.raises(NotHere, match="there is no java: install openjdk-17"):
        find_kafka()


def test_with_an_old_java(tools: Path) -> None:
    install_java(tools, "11.0.2")
    with pytest.raises(NotHere, match=r"needs Java 17, and .*java is 11"):
        find_kafka()


def test_without_maven(tools: Path) -> None:
    install_java(tools, "17.0.15")
    with pytest.raises(NotHere, match="there is no mvn: install maven"):
        find_kafka()


def test_without_maven_central(tools: Path, tmp_path: Path) -> None:
    install_java(tools, "17.0.15")
    install(tools / "mvn", "echo '[ERROR] Network is unreachable'; exit 1")
    with pytest.raises(NotHere, match=r"Maven Central: .*Network is unreachable"):
        find_kafka()
    assert [path.name for path in tmp_path.iterdir()] == ["bin"], "nothing half done is left"


def test_jars_are_fetched_once(tools: Path, tmp_path: Path) -> None:
    install_java(tools, "21.0.1")
    install(tools / "mvn", 'for last; do :; done; : > "${last#-DoutputDirectory=}/kafka.jar"')
    kafka = find_kafka()
    assert os.listdir(kafka.jars) == ["kafka.jar"]
    (tools / "mvn").unlink()
    assert find_kafka() == kafka
