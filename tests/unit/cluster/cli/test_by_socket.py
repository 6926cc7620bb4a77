"""Commands that ask a broker by socket, and when they leave it to Ray."""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from raylog.actors.errors import BrokerUnreachable, InvalidRequest
from raylog.actors.known_brokers import BrokerFiles, KnownBroker
from raylog.actors.listeners import LOOPBACK
from raylog.actors.plane.addresses import listen_tcp, listen_unix, manager_name
from raylog.cluster.cli import by_socket, topics
from raylog.cluster.cli.main import app
from raylog.storage.testing.logs import batch
from tests.unit.actors.plane.clients import TOPIC
from tests.unit.actors.plane.test_sockets import ANY, NODE, Pair, entries

RAY = "host.invalid:6379"
NAMESPACE = "raylog"
RECORDS = 3


class World:
    """A broker of one partition with three records, and the files of this machine."""

    def __init__(self, folder: Path) -> None:
        self.files = BrokerFiles(str(folder / "files"))
        self.pair = Pair(folder)
        self.pair.partition.append(batch(RECORDS))
        self.pair.begin()
        self.pair.log.keep_up(lambda: ANY)
        self.pair.node.keep_up(ANY)
        self.show()
        self.known = KnownBroker(NAMESPACE, RAY, self.pair.cluster_id, NODE)
        self.asked_ray = 0

    def show(self, **changes: Any) -> None:
        pair = self.pair
        told = entries(pair.node.port, pair.log.port, pair.cluster_id)
        pair.node.show(replace(told, **changes))

    def by_ray(self, *_: object) -> Any:
        self.asked_ray += 1
        admin = SimpleNamespace(describe_topics=lambda _: {})
        return SimpleNamespace(list_topics=lambda: ["by Ray"], connection=lambda: None, admin=admin)

    @property
    def servers(self) -> str:
        return f"{LOOPBACK}:{self.pair.node.port}"

    def run(self, *arguments: str, **environment: str) -> Any:
        result = CliRunner().invoke(app, arguments, env={"RAY_ADDRESS": "", **environment})
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World(tmp_path)
    monkeypatch.setattr(by_socket, "BrokerFiles", lambda: world.files)
    monkeypatch.setattr(topics, "connected", world.by_ray)
    monkeypatch.setattr(topics, "admin_of", lambda broker: broker.admin)
    monkeypatch.delenv("RAYLOG_BOOTSTRAP_SERVERS", raising=False)
    yield world
    world.pair.log.close()
    world.pair.node.close()
    assert world.pair.failures == []


def test_a_broker_of_this_machine_is_asked_without_ray(world: World) -> None:
    world.files.write(world.known)
    told = json.loads(world.run("topic", "list", "--format", "json").stdout)
    size_bytes = world.pair.partition.log.size_bytes
    assert told == {
        "topics": [{"name": TOPIC, "partitions": 1, "records": RECORDS, "size_bytes": size_bytes}]
    }
    assert world.run("topic", "list", "--names").stdout == f"{TOPIC}\n"
    assert world.asked_ray == 0


def test_records_that_were_deleted_are_not_counted(world: World) -> None:
    world.files.write(world.known)
    world.pair.partition.delete_records(2)
    lines = world.run("topic", "list").stdout.splitlines()
    assert lines[1].split("\t")[:3] == [TOPIC, "1", "1"]


def test_ray_is_asked_of_a_partition_that_has_no_name_here(world: World) -> None:
    """It may be on another machine, or it hangs."""
    world.files.write(world.known)
    world.pair.log.close()
    assert world.run("topic", "list").stdout == "topic\tpartitions\trecords\tbytes\n"
    assert world.asked_ray == 1


def test_a_partition_that_does_not_answer_is_told_and_not_counted(world: World) -> None:
    world.pair.log.close()
    result = world.run("topic", "list", "--bootstrap-servers", world.servers)
    assert result.stdout.splitlines()[1] == f"{TOPIC}\t1\t-\t-"
    assert result.stderr == f"{TOPIC}: 1 of 1 partition do not answer; see `raylog health`\n"


def test_an_address_is_asked_wherever_the_broker_is(world: World) -> None:
    for arguments, environment in (
        (("--bootstrap-servers", world.servers), {}),
        ((), {"RAYLOG_BOOTSTRAP_SERVERS": world.servers}),
    ):
        result = world.run("topic", "list", *arguments, **environment)
        assert result.stdout.splitlines()[1].startswith(f"{TOPIC}\t1\t{RECORDS}\t")
    assert world.asked_ray == 0


def test_an_address_where_nobody_answers_is_an_error_and_ray_is_not_asked(world: World) -> None:
    world.files.write(world.known)
    port = world.pair.node.port
    world.pair.node.close()
    with pytest.raises(BrokerUnreachable, match="Connection refused"):
        world.run("topic", "list", "--bootstrap-servers", f"{LOOPBACK}:{port}")
    with pytest.raises(InvalidRequest, match="HOST:PORT"):
        world.run("topic", "list", "--bootstrap-servers", "here")
    assert world.asked_ray == 0


@pytest.mark.parametrize("address", ["auto", "local", RAY])
def test_a_ray_cluster_that_is_meant_is_the_brokers(world: World, address: str) -> None:
    world.files.write(world.known)
    assert world.run("topic", "list", "--names", "--address", address).stdout == f"{TOPIC}\n"


def test_ray_is_asked_for_a_broker_of_another_cluster_or_namespace(world: World) -> None:
    world.files.write(world.known)
    for other in (("--address", "10.0.0.2:6379"), ("--namespace", "other")):
        assert world.run("topic", "list", "--names", *other).stdout == "by Ray\n"
    assert world.asked_ray == 2


def test_ray_is_asked_where_nobody_wrote_a_file_or_who_wrote_has_ended(world: World) -> None:
    assert world.run("topic", "list", "--names").stdout == "by Ray\n"
    world.files.write(world.known)
    world.pair.node.close()
    assert world.run("topic", "list", "--names").stdout == "by Ray\n"


def test_another_broker_that_the_command_line_names_overrules_the_environment(
    world: World,
) -> None:
    environment = {"RAYLOG_BOOTSTRAP_SERVERS": world.servers}
    for other in (("--address", "10.0.0.2:6379"), ("--namespace", "other")):
        assert world.run("topic", "list", "--names", *other, **environment).stdout == "by Ray\n"
        both = world.run("topic", "list", "--bootstrap-servers", world.servers, *other)
        assert both.exit_code == 2
        assert "give --bootstrap-servers, or --address and --namespace" in both.stderr


def test_ray_is_asked_where_two_brokers_may_be_meant(world: World) -> None:
    """Whether the other one runs its LogManager does not tell: that may begin again just now."""
    with closing(listen_tcp(LOOPBACK, 0)) as ray:
        address = f"{LOOPBACK}:{ray.getsockname()[1]}"
        world.files.write(world.known)
        world.files.write(world.known._replace(ray_address=address, broker="away"))
        # Nobody knows whether something is at the first one's address.
        assert world.run("topic", "list", "--names").stdout == "by Ray\n"
    world.files.write(world.known._replace(ray_address="no address", broker="odd"))
    assert world.run("topic", "list", "--names").stdout == "by Ray\n"


def test_a_broker_whose_ray_cluster_is_gone_is_not_meant(world: World) -> None:
    with closing(listen_tcp(LOOPBACK, 0)) as gone, closing(listen_tcp(LOOPBACK, 0)) as there:
        addresses = [f"{LOOPBACK}:{one.getsockname()[1]}" for one in (gone, there)]
        gone.close()
        world.files.write(world.known._replace(ray_address=addresses[0], broker="killed"))
        world.files.write(world.known._replace(ray_address=addresses[1]))
        assert world.run("topic", "list", "--names").stdout == f"{TOPIC}\n"


def test_ray_is_asked_while_the_log_manager_knows_nothing_or_hangs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_socket, "_PATIENCE_S", 0.01)
    world.pair.node.close()
    with closing(listen_unix(manager_name("hangs", NODE))):  # accepts, and answers nothing
        world.files.write(world.known._replace(broker="hangs"))
        assert world.run("topic", "list", "--names").stdout == "by Ray\n"
