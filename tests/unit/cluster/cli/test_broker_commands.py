"""``raylog start`` and ``raylog stop``: what Ctrl-C does, and what is said of it."""

import itertools
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from ray._private import worker

from raylog.actors.messages import ConfigEntry
from raylog.actors.runtime import clusters
from raylog.cluster import running
from raylog.cluster import start as start_module
from raylog.cluster.cli.broker import ANOTHER_STOP_S, STOP_SIGNALS, let_another_stop_end
from raylog.cluster.cli.common import connected, in_short, note, show, show_json
from raylog.cluster.controller import stub
from raylog.cluster.controller.config_changes import AppliedConfig, ConfigChange
from raylog.cluster.controller.node_states import NodeDescription
from raylog.cluster.health.facts import Finding
from raylog.cluster.running import parts_of
from raylog.storage.errors import IdentityMissing
from tests.harness.shell import run_here


class FakeBroker:
    """A broker on no Ray. Its user loses patience in ``interrupted``."""

    namespace, address, bootstrap_servers = "raylog", "here:1", "here:2"

    def __init__(self, interrupted: str) -> None:
        self.calls: list[str] = []
        self.findings: list[Finding] = []
        self.log_dirs: list[str] = []
        self.changes: tuple[ConfigChange, ...] = ()
        self.behind: dict[str, str] = {}
        self.nodes: list[NodeDescription] = []
        self._interrupted = interrupted

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if name == self._interrupted:
            raise KeyboardInterrupt

    def cluster_id(self) -> str:
        self._called("cluster_id")
        return "id"

    def health(self) -> list[Finding]:
        self._called("health")
        return self.findings

    def broker_config(self) -> list[ConfigEntry]:
        return [ConfigEntry("log.dirs", tuple(self.log_dirs), "static")]

    def describe_nodes(self, *, timeout_s: float = 0) -> list[NodeDescription]:
        return self.nodes

    def stop(self) -> bool:
        self._called("stop")
        return True

    def apply_config(
        self,
        config: dict[str, object],
        *,
        validate_only: bool = False,
        if_version: int | None = None,
    ) -> AppliedConfig:
        self._called("look" if validate_only else "apply")
        assert if_version == (None if validate_only else 7), "what was shown is what is changed"
        self.given = config
        return AppliedConfig(self.changes, {} if validate_only else self.behind, version=7)


def test_a_message_of_ray_is_one_short_line() -> None:
    message = (
        "\nA worker died or was killed while executing a task by an unexpected system error. To "
        "troubleshoot the problem, check the logs for the dead worker.\nNode IP address: 10.0.0.1"
    )
    assert in_short(message) == (
        "Ray: A worker died or was killed while executing a task by an unexpected system error; "
        "`raylog health` says whether anything is wrong"
    )


def test_every_command_that_connects_shortens_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def connect(*_: object, **__: object) -> FakeBroker:
        worker.print_to_stdstream({"lines": ["A worker died. To troubleshoot, look.\nNode: 1"]})
        return FakeBroker("")

    monkeypatch.setattr(worker, "print_to_stdstream", print)
    monkeypatch.setattr(start_module, "connect", connect)
    connected(None, "raylog")
    short = "Ray: A worker died; `raylog health` says whether anything is wrong\n"
    assert capsys.readouterr() == ("", short)


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """`raylog start` sets handlers of its process, which is this one here."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
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


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_that_ends_a_service_stops_it_in_order(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = FakeBroker("")
    monkeypatch.setattr(start_module, "start", lambda **_: broker)
    monkeypatch.setattr(broker, "health", lambda: signal.raise_signal(number))
    done = run_here("start", "--address", "local", "--log-dir", str(tmp_path / "log"))
    assert (done.returncode, broker.calls[-1]) == (0, "stop")


def test_what_is_wrong_at_the_start_is_said_and_of_errors_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = IdentityMissing("/disk/a", "there are folders of partitions")
    broker = FakeBroker("")
    broker.findings = [
        Finding("error", "log dir /disk/a", f"offline: {missing.problem}", missing.advice),
        Finding("info", "log dir /disk/b", "it has folders of no topic", "look at them"),
    ]
    monkeypatch.setattr(start_module, "start", lambda **_: broker)
    monkeypatch.setattr(clusters, "join_ray", lambda address: "here:1")
    done = run_here("start", "--log-dir", str(tmp_path / "log"))
    first, advice, second = done.stderr.splitlines()
    assert first.startswith("error: log dir /disk/a: offline: ")
    assert advice.startswith("  -> restore the file from a copy")
    assert "raylog log-dirs identify /disk/a" in advice
    assert second == "info: log dir /disk/b: it has folders of no topic"


def serving(node: str, *log_dirs: str) -> NodeDescription:
    return NodeDescription(
        node=node, node_id="n", state="online", log_dirs=log_dirs, life="life-of-it"
    )


def test_where_nodes_have_their_own_log_dirs_it_is_said_that_log_dir_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = FakeBroker("")
    broker.log_dirs = ["/a", "/b"]
    broker.nodes = [
        serving("same", "/b/", "/a"),
        serving("other", "/mnt/x"),
        serving("5f" * 28, "/mnt/x"),
        serving("silent", "/old")._replace(life=""),  # what is recorded of it, of another start
    ]
    monkeypatch.setattr(start_module, "start", lambda **_: broker)
    monkeypatch.setattr(clusters, "join_ray", lambda address: "here:1")
    done = run_here("start", "--log-dir", "/a", "--log-dir", "/b")
    assert done.returncode == 0
    assert done.stderr == (
        "--log-dir is ignored on node other, 5f5f5f5f: RAYLOG_LOG_DIRS was set there when its Ray "
        "was started. `raylog log-dirs` shows what is used\n"
    )


@pytest.mark.parametrize("arguments", [("--log-dir", "/a"), ("--set", "log.dirs=/a")])
def test_nothing_is_said_where_it_counts_or_was_not_given(
    arguments: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = FakeBroker("")
    broker.log_dirs = ["/a"]
    broker.nodes = [serving("node", "/mnt/x" if "--set" in arguments else "/a")]
    monkeypatch.setattr(start_module, "start", lambda **_: broker)
    monkeypatch.setattr(clusters, "join_ray", lambda address: "here:1")
    assert run_here("start", *arguments).stderr == ""


@pytest.mark.parametrize("address", ["local", "here:1"])
def test_a_start_names_the_log_dirs_that_it_has_made_since_a_path_may_be_mistyped(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = FakeBroker("health" if address == "local" else "")  # else it stays
    broker.nodes = [serving("disk-1", "/a", "/b")._replace(new_log_dirs=("/b",)), serving("n2")]
    monkeypatch.setattr(start_module, "start", lambda **_: broker)
    monkeypatch.setattr(clusters, "join_ray", lambda address: "here:1")
    done = run_here("start", "--set", "log.dirs=/a,/b", "--address", address)
    assert done.lines()[2] == "new, empty log dirs were made: /b of node disk-1"


def test_a_config_that_adds_a_log_dir_names_it_where_it_was_made(
    living: FakeBroker, config_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = serving("n", "/a")._replace(new_log_dirs=("/a",))
    answers = [[before], [before._replace(new_log_dirs=("/a", "/b"))]]
    monkeypatch.setattr(living, "describe_nodes", lambda: answers.pop(0))
    living.changes = (CHANGE,)
    done = run_here("start", "--config", config_file, "--apply")
    assert done.lines()[-2:] == ["applied", "new, empty log dirs were made: /b of node n"]


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


@pytest.fixture
def living(monkeypatch: pytest.MonkeyPatch) -> FakeBroker:
    """A broker that runs where `raylog start` joins."""
    broker = FakeBroker("")
    monkeypatch.setattr(clusters, "join_ray", lambda address: "here:1")
    monkeypatch.setattr(stub, "find_controller", lambda namespace: object())
    monkeypatch.setattr(start_module, "connect", lambda *_, **__: broker)
    return broker


@pytest.fixture
def config_file(tmp_path: Path) -> str:
    path = tmp_path / "broker.yaml"
    path.write_text("log.retention.ms: 5\n")
    return str(path)


CHANGE = ConfigChange("log.retention.ms", 7, 5, "at once")


def test_a_config_for_a_broker_that_runs_is_shown_and_applied(
    living: FakeBroker, config_file: str
) -> None:
    living.changes = (CHANGE, ConfigChange("log.dirs", ["/a"], ["/a", "/b"], "node by node"))
    done = run_here("start", "--config", config_file, "--apply")
    assert (done.returncode, living.calls) == (0, ["look", "apply"])
    assert living.given == {"log.retention.ms": 5}
    assert done.stdout.splitlines() == [
        "key\tnow\tnew\thow",
        "log.retention.ms\t7\t5\tat once",
        "log.dirs\t/a\t/a,/b\tnode by node",
        "applied",
    ]


def test_a_config_that_a_living_broker_cannot_take_is_not_offered(
    living: FakeBroker, config_file: str
) -> None:
    living.changes = (CHANGE, CHANGE._replace(key="log.dirs", how="refused"))
    done = run_here("start", "--config", config_file)
    assert done.returncode == 1
    last = done.stdout.splitlines()[-1]
    assert last.startswith("nothing was changed: --apply would be refused, since a living broker")
    assert "cannot change log.dirs; give" in last


def test_without_apply_it_is_only_shown_and_the_exit_status_says_that_it_differs(
    living: FakeBroker, config_file: str
) -> None:
    living.changes = (CHANGE,)
    done = run_here("start", "--config", config_file)
    assert (done.returncode, living.calls) == (1, ["look"])
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "key\tnow\tnew\thow",
        "log.retention.ms\t7\t5\tat once",
        "nothing was changed: --apply gives the broker this config",
    ]


def test_a_table_stands_before_what_stderr_says_of_it_also_in_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = tmp_path / "both"
    with both.open("a") as out, both.open("a") as err:
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        show(("key",), [("a",)])
        note("of a")
        show_json({})
        note("of nothing")
    assert both.read_text().splitlines() == ["key", "a", "of a", "{}", "of nothing"]


def test_apply_without_a_file_is_wrong_usage(living: FakeBroker) -> None:
    done = run_here("start", "--set", "log.retention.ms=5", "--apply")
    assert (done.returncode, living.calls) == (2, [])


def test_apply_starts_no_broker_where_none_runs(
    living: FakeBroker, config_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stub, "find_controller", lambda namespace: None)
    monkeypatch.setattr(start_module, "start", lambda **_: pytest.fail("it was started"))
    done = run_here("start", "--config", config_file, "--apply", "--namespace", "other")
    assert done.returncode == 1
    assert "no raylog broker runs in namespace 'other'" in done.stderr


def test_who_may_not_obey_the_config_yet_is_named(living: FakeBroker, config_file: str) -> None:
    living.changes, living.behind = (CHANGE,), {"node a": "it is away"}
    done = run_here("start", "--config", config_file, "--apply")
    assert done.stderr.startswith("node a may not obey it yet: it is away\n")


def test_a_config_that_the_broker_has_changes_nothing(living: FakeBroker, config_file: str) -> None:
    done = run_here("start", "--config", config_file)
    assert (done.returncode, living.calls) == (0, ["look"])
    assert done.stdout == "the broker runs with this config; nothing differs\n"


def test_ray_does_not_end_under_a_stop_that_has_ended_the_controller_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As it does where the Controller hangs: the nodes are stopped after it."""
    left: list[set[str]] = [{"LogManager:n"}, {"LogManager:n"}, set()]
    monkeypatch.setattr(running, "running_parts", lambda _: parts_of(left.pop(0)))
    monkeypatch.setattr("time.sleep", lambda _: None)
    let_another_stop_end(FakeBroker("never"))  # type: ignore[arg-type]
    assert left == []


def test_where_nobody_stops_what_is_left_it_is_stopped_after_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = itertools.count(step=10)
    monkeypatch.setattr(running, "running_parts", lambda _: parts_of({"LogManager:n"}))
    monkeypatch.setattr("time.sleep", lambda _: None)
    monkeypatch.setattr("time.monotonic", lambda: next(now_s))
    let_another_stop_end(FakeBroker("never"))  # type: ignore[arg-type]
    assert next(now_s) == ANOTHER_STOP_S + 10
