"""``raylog config``: what does not go together is shown with it, and what is not obeyed yet."""

from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from raylog.actors.messages import ConfigEntry
from raylog.cluster import start as start_module
from raylog.cluster.controller.describe import TopicDescription
from tests.harness.shell import Done, run_here


def set_retention(
    monkeypatch: pytest.MonkeyPatch, *options: str, outdated: tuple[int, ...]
) -> Done:
    future: Future[TopicDescription] = Future()
    future.set_result(TopicDescription("t", "id", {"retention.ms": 5}, (), outdated))
    connection = SimpleNamespace(command=lambda *_, **__: future)
    broker = SimpleNamespace(client_connection=lambda: SimpleNamespace(cluster=connection))
    monkeypatch.setattr(start_module, "connect", lambda *_, **__: broker)
    return run_here("config", "set", "t", "retention.ms=5", *options)


def test_a_change_that_all_partitions_obey_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    done = set_retention(monkeypatch, outdated=())
    assert (done.returncode, done.stdout, done.stderr) == (0, "t: retention.ms=5\n", "")


def test_partitions_that_have_not_confirmed_it_are_named_and_it_is_no_success(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = set_retention(monkeypatch, outdated=(0, 2))
    assert (done.returncode, done.stdout) == (1, "t: retention.ms=5\n")
    assert done.stderr == (
        "error: t-0, t-2: changed, but not obeyed yet; `raylog health` says why. They obey it when "
        "they are back, and until then nothing is removed from them\n"
    )


def test_a_validation_asks_no_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    done = set_retention(monkeypatch, "--validate-only", outdated=(0,))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_config_that_no_log_can_have_is_shown_with_what_does_not_go_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    described = TopicDescription("t", "id", {}, (), problem="it exceeds that", todo="set it")
    broker = SimpleNamespace(
        topic_config=lambda _: [ConfigEntry("min.compaction.lag.ms", 5, "topic")],
        describe_topic=lambda _: described,
    )
    monkeypatch.setattr(start_module, "connect", lambda *_, **__: broker)
    done = run_here("config", "get", "t")
    assert "min.compaction.lag.ms\t5\ttopic\n" in done.stdout
    assert done.stderr == "it exceeds that, so its partitions are not opened; set it\n"
