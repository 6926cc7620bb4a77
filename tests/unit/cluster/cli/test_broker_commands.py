"""``raylog start`` and ``raylog stop``: what Ctrl-C does, and what is said of it."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from raylog.cluster import start as start_module
from raylog.cluster.cli.broker import in_short
from tests.harness.shell import run_here


class FakeBroker:
    """A broker on no Ray. Its user loses patience in ``interrupted``."""

    namespace, address = "raylog", "here:1"

    def __init__(self, interrupted: str) -> None:
        self.calls: list[str] = []
        self._interrupted = interrupted

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if name == self._interrupted:
            raise KeyboardInterrupt

    def cluster_id(self) -> str:
        self._called("cluster_id")
        return "id"

    def health(self) -> list[Any]:
        self._called("health")
        return []

    def stop(self) -> bool:
        self._called("stop")
        return True


def test_a_message_of_ray_is_one_short_line() -> None:
    message = (
        "\nA worker died or was killed while executing a task by an unexpected system error. To "
        "troubleshoot the problem, check the logs for the dead worker.\nNode IP address: 10.0.0.1"
    )
    assert in_short(message) == (
        "Ray: A worker died or was killed while executing a task by an unexpected system error; "
        "`raylog health` says whether anything is wrong"
    )


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """`raylog start` sets handlers of its process, which is this one here."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("moment", ["cluster_id", "health"])
def test_ctrl_c_as_soon_as_the_broker_runs_stops_it_in_order(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = FakeBroker(moment)
    monkeypatch.setattr(start_module, "start", lambda **_: broker)
    done = run_here("start", "--address", "local", "--log-dir", str(tmp_path / "log"))
    assert (done.returncode, broker.calls[-1]) == (0, "stop")
    assert done.stdout.splitlines()[-1] == "stopped"


def test_ctrl_c_while_the_broker_starts_says_that_it_was_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(**_: Any) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(start_module, "start", start)
    done = run_here("start", "--address", "local", "--log-dir", str(tmp_path / "log"))
    assert (done.returncode, done.stderr) == (130, "interrupted: the broker was not started\n")


def test_ctrl_c_in_a_stop_says_how_to_stop_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = FakeBroker("stop")
    monkeypatch.setattr(start_module, "connect", lambda *_, **__: broker)
    done = run_here("stop")
    assert done.returncode == 130
    assert "`raylog stop` again" in done.stderr
