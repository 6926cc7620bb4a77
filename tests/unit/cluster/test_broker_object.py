"""The object that users hold: what it begins it ends, what it needs it connects to."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray

from raylog.actors.errors import BrokerRunning, InvalidRequest, RayNotFound, RayNotStarted
from raylog.actors.messages import ConfigEntry
from raylog.actors.runtime import clusters, nodes
from raylog.actors.runtime.handles import find, running
from raylog.cluster import broker as module
from raylog.cluster import start as module_of_start
from raylog.cluster.broker import Broker
from raylog.cluster.client.commanding import Command
from raylog.cluster.start import start
from raylog.storage.errors import DuplicateLogDir, InvalidConfig
from raylog.storage.testing.logs import batch
from tests.harness.consuming import FakeConnection


class Ray:
    """Ray, as far as the connection of a process goes."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.connected_to: str | None = None
        self.joined: list[str] = []
        patch.delenv("RAY_ADDRESS", raising=False)
        patch.setattr(ray, "is_initialized", lambda: self.connected_to is not None)
        patch.setattr(ray, "init", self._init)
        patch.setattr(ray, "get_actor", self._get_actor)
        patch.setattr(clusters, "_join", self._join)
        patch.setattr(module, "own_address", lambda: self.connected_to)

    def _init(self, *_: Any, **__: Any) -> None:
        raise AssertionError("a new Ray cluster was started")

    def _join(self, address: str) -> None:
        self.joined.append(address)
        self.connected_to = address

    def _get_actor(self, name: str, namespace: str) -> Any:
        if self.connected_to is None:
            ray.init()  # as Ray does by itself
        raise ValueError(name)


@pytest.fixture
def rays(monkeypatch: pytest.MonkeyPatch) -> Ray:
    return Ray(monkeypatch)


def test_the_address_for_kafkas_clients_is_waited_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node listens a moment after it begins."""
    now_s = 0.0
    listens_at_s = 2.0

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    def look(nodes: object, listener: object) -> str:
        return "127.0.0.1:19092" if now_s >= listens_at_s else ""

    monkeypatch.setattr("time.sleep", sleep)
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    monkeypatch.setattr(module, "bootstrap_servers", look)
    listeners = "PLAINTEXT://127.0.0.1:19092"
    monkeypatch.setattr(Broker, "describe_nodes", lambda _: [])
    monkeypatch.setattr(
        Broker, "broker_config", lambda _: [ConfigEntry("listeners", listeners, "default")]
    )
    assert Broker().bootstrap_servers == "127.0.0.1:19092"
    assert now_s == pytest.approx(listens_at_s, abs=0.2)
    listens_at_s = 1000.0
    assert Broker().bootstrap_servers == "", "and not for ever"
    assert now_s == pytest.approx(2.0 + module.LISTEN_PATIENCE_S, abs=0.4)
    before_s, listeners = now_s, ""
    assert Broker().bootstrap_servers == ""
    assert now_s == before_s, "nobody will listen"
    with pytest.raises(InvalidRequest, match="there are none"):
        Broker().bootstrap_servers_of("PLAINTEXT")


def test_the_addresses_of_a_listener_are_asked_for_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listeners = "PLAINTEXT://127.0.0.1:19092,SASL_SSL://:29092"
    monkeypatch.setattr(Broker, "describe_nodes", lambda _: [])
    monkeypatch.setattr(
        Broker, "broker_config", lambda _: [ConfigEntry("listeners", listeners, "broker")]
    )
    monkeypatch.setattr(module, "bootstrap_servers", lambda nodes, listener: f"by {listener}")
    assert Broker().bootstrap_servers_of("sasl_ssl") == "by SASL_SSL"
    assert Broker().bootstrap_servers == "by None", "the first one"
    monkeypatch.setattr(Broker, "broker_config", lambda _: [])
    assert Broker().bootstrap_servers == "by None", "an older broker may not tell its listeners"
    monkeypatch.setattr(
        Broker, "broker_config", lambda _: [ConfigEntry("listeners", listeners, "broker")]
    )
    with pytest.raises(InvalidRequest, match="is none of the broker's `listeners`: PLAINTEXT, SAS"):
        Broker().bootstrap_servers_of("SSL")


def test_a_table_is_read_with_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeConnection(t=2)
    for served in fake.topics["t"]:
        served.partition.append(batch(10))
    broker = Broker()
    monkeypatch.setattr(broker, "client_connection", lambda: fake)
    assert broker.read_table("t").num_rows == 20
    assert broker.read_table("t", {("t", 0): 4}, partitions=[0]).num_rows == 6
    table = broker.read_table("t", from_="earliest", to={("t", 0): 3}, auto_offset_reset="none")
    assert table.num_rows == 13
    with pytest.raises(InvalidConfig, match="did you mean"):
        broker.read_table("t", auto_offset_rset="none")


def test_a_config_is_applied_once_and_compared_as_often_as_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker, asked = Broker(), list[Command[Any]]()
    monkeypatch.setattr(broker, "_command", lambda _what, command, _timeout: asked.append(command))
    broker.apply_config({}, validate_only=True)
    broker.apply_config({})
    assert [(command.is_read, command.look_at) for command in asked] == [
        (True, None),
        (False, "raylog config get --broker"),
    ]


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch, rays: Ray) -> list[str]:
    """The namespaces of the brokers that were stopped."""
    rays.connected_to = "here:1"
    names: list[str] = []

    def stop(namespace: str) -> bool:
        names.append(namespace)
        return True

    monkeypatch.setattr(module, "stop_controller", stop)
    return names


# -- who stops it ----------------------------------------------------------------------------------


def test_leaving_the_object_that_started_the_broker_stops_it(stopped: list[str]) -> None:
    with Broker("ns", "here:1", is_starter=True):
        pass
    assert stopped == ["ns"]


def test_leaving_an_object_that_connected_leaves_the_broker_running(stopped: list[str]) -> None:
    with Broker("ns", "here:1"):
        pass
    assert stopped == []


def test_a_copy_in_a_task_leaves_the_broker_running(stopped: list[str]) -> None:
    copy = pickle.loads(pickle.dumps(Broker("ns", "here:1", is_starter=True)))
    with copy:
        pass
    assert stopped == []


def test_a_broker_that_was_stopped_is_not_stopped_again(stopped: list[str]) -> None:
    with Broker("ns", "here:1", is_starter=True) as broker:
        broker.stop()
    assert stopped == ["ns"]


def test_a_stop_ends_the_ray_that_the_start_has_started(
    stopped: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[bool] = []
    monkeypatch.setattr(module, "leave_ray", lambda: left.append(True))
    broker = Broker("ns", "here:1", is_starter=True, owns_ray=True)
    broker.stop()
    assert (stopped, left) == (["ns"], [True])


# -- what is refused before anything is started ----------------------------------------------------


def test_a_folder_that_is_listed_twice_is_refused_before_ray_is_started(
    rays: Ray, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "log")
    for other in ("log/", "x/../log", "link"):
        with pytest.raises(DuplicateLogDir, match="list each log dir once"):
            start([str(tmp_path / "log"), f"{tmp_path}/{other}"])


def test_relative_log_dirs_of_the_environment_are_below_the_working_directory_of_each_start(
    rays: Ray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes that Ray starts run elsewhere. The process's own variable stays as it was."""
    inherited: list[str] = []

    def start_ray(*_: object) -> bool:
        inherited.append(os.environ["RAYLOG_LOG_DIRS"])
        raise RayNotStarted("no room")

    monkeypatch.setattr(module_of_start, "join_or_start_ray", start_ray)
    monkeypatch.setenv("RAYLOG_LOG_DIRS", "a, b")
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        for given in (None, ["/x"]):
            with pytest.raises(RayNotStarted):
                start(given)
            assert inherited.pop() == f"{tmp_path}/{folder}/a,{tmp_path}/{folder}/b"
            assert os.environ["RAYLOG_LOG_DIRS"] == "a, b"


def test_log_dirs_of_the_environment_do_not_count_where_a_ray_cluster_is_joined_with_others(
    rays: Ray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAYLOG_LOG_DIRS", "a,,b")
    monkeypatch.setattr(module_of_start, "find_controller", lambda namespace: "one")
    with pytest.raises(BrokerRunning):
        start(["/x"], address="there:1")
    assert rays.joined == ["there:1"]
    assert os.environ["RAYLOG_LOG_DIRS"] == "a,,b"


def test_a_bad_list_of_log_dirs_in_the_environment_is_refused_by_its_name(
    rays: Ray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAYLOG_LOG_DIRS", "a,,b")
    with pytest.raises(InvalidConfig, match="config RAYLOG_LOG_DIRS='a,,b': must be a list of"):
        start()
    with pytest.raises(InvalidConfig, match="config RAYLOG_LOG_DIRS"):
        start(["/x"])  # the Ray of its own would refuse it


# -- where there is no connection to Ray -----------------------------------------------------------

USES: list[Callable[[Broker], Any]] = [
    lambda broker: broker.list_topics(),
    lambda broker: broker.partition("orders", 0),
    lambda broker: broker.compaction(),
    lambda broker: broker.stop(),
    lambda broker: broker.status(),
]


@pytest.mark.parametrize("use", USES)
def test_no_use_of_a_broker_starts_a_ray_cluster(rays: Ray, use: Callable[[Broker], Any]) -> None:
    with pytest.raises(RayNotFound, match=r"raylog\.connect"):
        use(Broker("ns"))


def test_nothing_below_it_starts_one(rays: Ray) -> None:
    for look in (lambda: find("Controller", "ns"), lambda: running("ns"), nodes.alive_nodes):
        with pytest.raises(RayNotFound):
            look()


def test_a_copy_connects_to_the_cluster_of_its_broker_on_first_use(rays: Ray) -> None:
    rays.connected_to = "there:7"
    pickled = pickle.dumps(Broker("ns"))
    rays.connected_to = None
    copy = pickle.loads(pickled)
    assert rays.joined == []
    with pytest.raises(Exception, match="no raylog broker runs"):
        copy.list_topics()
    assert rays.joined == ["there:7"]
    assert copy.address == "there:7"


def test_a_process_that_is_connected_stays_where_it_is(rays: Ray) -> None:
    rays.connected_to = "here:1"
    with pytest.raises(Exception, match="no raylog broker runs"):
        Broker("ns", "there:7").list_topics()
    assert rays.joined == []
