"""What a client asks of a cluster without Ray, of real sockets."""

import os
import pickle
import socket
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from raylog.actors.errors import (
    ActorAway,
    BrokerUnreachable,
    InvalidRequest,
    NeededActorAway,
    NotLeader,
    UnknownTopicOrPartition,
)
from raylog.actors.known_brokers import KnownBroker
from raylog.actors.listeners import LOOPBACK
from raylog.actors.messages import DataAddress
from raylog.actors.plane.addresses import listen_tcp, log_name, manager_name
from raylog.actors.plane.frames import answer, parse, read_body
from raylog.cluster.client.bootstrap import Bootstrap, Place, bootstrap_of, metadata_of
from raylog.cluster.client.consumer import Consumer
from raylog.cluster.client.producer import Producer
from raylog.cluster.client.socket_cluster import SocketCluster
from raylog.cluster.client.socket_connection import SocketConnection
from raylog.cluster.client.sockets import cluster_socket
from raylog.storage.names import TopicPartition
from raylog.storage.state.properties import id_text, random_id
from raylog.storage.testing.waiting import DEADLINE_S
from tests.unit.actors.plane.clients import TOPIC, TOPIC_ID, FakeController
from tests.unit.actors.plane.test_sockets import ANY, NODE, Pair, entries

ID = id_text(TOPIC_ID)
MOST_BYTES = 1_048_588
T0 = 1_700_000_000_000  # as the partition's clock has it


class ConfigController(FakeController):
    """Answers for the config of any topic, too."""

    def answer_lookup(self, frame: bytes, timeout_s: float) -> bytes:
        super().answer_lookup(frame, timeout_s)
        request = parse(frame)
        (resource,) = read_body(request)["resources"]
        assert resource["configurationKeys"] == ["max.message.bytes"]
        config = {
            "name": "max.message.bytes",
            "value": str(MOST_BYTES),
            "readOnly": False,
            "isSensitive": False,
            "configSource": 5,
            "configType": 1,
            "documentation": None,
            "synonyms": [],
        }
        result = {
            "errorCode": 0,
            "errorMessage": None,
            "resourceType": resource["resourceType"],
            "resourceName": resource["resourceName"],
            "configs": [config],
        }
        return answer(request, {"throttleTimeMs": 0, "results": [result]})


class World:
    """A broker of one partition, by socket; and a cluster that finds it."""

    def __init__(self, folder: Path) -> None:
        self.controller = ConfigController()
        self.pair = Pair(folder, self.controller)
        self.pair.begin()
        self.known = KnownBroker("ns", "ray:1", self.pair.cluster_id, NODE)
        self.listen()
        self.is_by_name = True

    def listen(self) -> None:
        pair = self.pair
        pair.log.keep_up(lambda: ANY)
        pair.node.keep_up(ANY)
        pair.node.show(entries(pair.node.port, pair.log.port, pair.cluster_id))

    @property
    def bootstrap(self) -> Bootstrap:
        if self.is_by_name:
            return Bootstrap(self.known)
        return bootstrap_of(f"{LOOPBACK}:{self.pair.node.port}")

    def cluster(self) -> SocketCluster:
        return SocketCluster(self.bootstrap)

    def connection(self) -> SocketConnection[SocketCluster]:
        return SocketConnection(self.cluster())


@pytest.fixture(params=["by name", "by TCP"])
def world(tmp_path: Path, request: Any) -> Iterator[World]:
    world = World(tmp_path)
    world.is_by_name = request.param == "by name"
    yield world
    world.pair.log.close()
    world.pair.node.close()
    assert world.pair.failures == []


def ended(future: "Future[Any]") -> Any:
    return future.result(DEADLINE_S)


def test_a_topic_is_described_and_listed(world: World) -> None:
    cluster = world.cluster()
    found = ended(cluster.metadata(TOPIC, timeout_s=DEADLINE_S))
    assert (found.topic, found.topic_id, found.max_message_bytes) == (TOPIC, ID, MOST_BYTES)
    assert [(part.partition, part.leader_epoch, part.node_id) for part in found.partitions] == [
        (0, 0, "100")
    ]
    assert found.cluster_id == world.pair.cluster_id
    assert ended(cluster.list_topics(timeout_s=DEADLINE_S)) == [TOPIC]
    assert ended(cluster.new_producer_id(timeout_s=DEADLINE_S)) == 1001


@pytest.mark.parametrize("name", ["nobody", "", "not/a/name"])
def test_a_topic_that_is_not_there_is_unknown(world: World, name: str) -> None:
    with pytest.raises(UnknownTopicOrPartition, match="does not exist"):
        ended(world.cluster().metadata(name, timeout_s=DEADLINE_S))


def test_records_go_in_and_out_without_ray(world: World) -> None:
    connection = world.connection()
    with Producer(connection) as producer:
        sent = [producer.send(TOPIC, b"%d" % number, timestamp=T0) for number in range(10)]
        assert [one.result().offset for one in sent] == list(range(10))
    with Consumer(connection) as consumer:
        consumer.assign([(TOPIC, 0)])
        consumer.seek_to_beginning()
        polled = consumer.poll(timeout_ms=int(DEADLINE_S * 1000))
    assert [record.value for record in polled][:3] == [b"0", b"1", b"2"]


def test_while_the_controller_is_away_what_it_said_last_counts(world: World) -> None:
    cluster = world.cluster()
    first = ended(cluster.metadata(TOPIC, timeout_s=DEADLINE_S))
    world.controller.problem = ActorAway("a question", "it is restarting")
    assert ended(cluster.metadata(TOPIC, timeout_s=DEADLINE_S)) == first
    with pytest.raises(NeededActorAway):
        ended(cluster.new_producer_id(timeout_s=DEADLINE_S))
    with pytest.raises(NeededActorAway, match="Controller"):
        ended(world.cluster().metadata(TOPIC, timeout_s=DEADLINE_S))


def test_a_topic_that_was_deleted_is_not_remembered(world: World) -> None:
    cluster = world.cluster()
    ended(cluster.metadata(TOPIC, timeout_s=DEADLINE_S))
    pair = world.pair
    told = entries(pair.node.port, pair.log.port, pair.cluster_id)
    told.topics.clear()  # type: ignore[attr-defined]
    pair.node.show(told)
    with pytest.raises(UnknownTopicOrPartition):
        ended(cluster.metadata(TOPIC, timeout_s=DEADLINE_S))
    world.pair.node.close()
    with pytest.raises(BrokerUnreachable):
        ended(cluster.metadata(TOPIC, timeout_s=DEADLINE_S))


def test_where_a_partition_is_served_is_told_without_a_token(world: World) -> None:
    cluster = world.cluster()
    there = ended(cluster.data_address(TopicPartition(TOPIC, 0), ID, timeout_s=DEADLINE_S))
    assert tuple(there) == (LOOPBACK, world.pair.log.port, "")
    with pytest.raises(NotLeader, match="raylog health"):
        ended(cluster.data_address(TopicPartition(TOPIC, 1), ID, timeout_s=DEADLINE_S))
    with pytest.raises(NotLeader, match="raylog health"):
        ended(cluster.data_address(TopicPartition("nobody", 0), ID, timeout_s=DEADLINE_S))


def test_names_lead_to_who_opens_no_port(tmp_path: Path) -> None:
    """``listeners=`` empty: the names of the sockets are all that there is."""
    pair = Pair(tmp_path, ConfigController())
    pair.begin()
    pair.log.keep_up(lambda: None)
    pair.node.keep_up(None)
    pair.node.show(entries(0, 0, pair.cluster_id))
    bootstrap = Bootstrap(KnownBroker("ns", "ray:1", pair.cluster_id, NODE))
    with Producer(SocketConnection(SocketCluster(bootstrap))) as producer:
        assert producer.send(TOPIC, b"x", timestamp=T0).result().offset == 0
    with bootstrap.log(Place(ID, 0, "", 0), DEADLINE_S):
        pass
    pair.log.close()
    with pytest.raises(BrokerUnreachable, match="refused"):
        bootstrap.log(Place(ID, 0, "", 0), DEADLINE_S)
    pair.node.close()


def test_who_has_no_name_here_is_looked_for_by_ray_and_not_at_his_port(world: World) -> None:
    """A port on the loopback of another machine is somebody else's on this one."""
    if not world.is_by_name:
        pytest.skip("who knows addresses alone asks no Ray")
    elsewhere = Bootstrap(world.known._replace(broker="nobody"))
    with pytest.raises(BrokerUnreachable, match="refused"):
        elsewhere.log(Place(ID, 0, LOOPBACK, world.pair.log.port), DEADLINE_S)
    with pytest.raises(BrokerUnreachable, match="refused"):
        elsewhere.ask(metadata_of, DEADLINE_S)
    by_ray = ByRay()
    cluster = SocketCluster(world.bootstrap, by_ray)  # type: ignore[arg-type]
    found = cluster.data_address(TopicPartition(TOPIC, 0), ID, timeout_s=DEADLINE_S)
    assert ended(found) == DataAddress("there", 7, "token")
    cluster.forget(TOPIC, 0)
    assert by_ray.forgotten == [(TOPIC, 0)]


class ByRay:
    """A connection by Ray."""

    def __init__(self) -> None:
        self.forgotten: list[tuple[str, int]] = []

    def data_address(
        self, partition: TopicPartition, topic_id: str, *, timeout_s: float
    ) -> "Future[DataAddress]":
        future: Future[DataAddress] = Future()
        future.set_result(DataAddress("there", 7, "token"))
        return future

    def forget(self, topic: str, partition: int) -> None:
        self.forgotten.append((topic, partition))


def test_a_connection_can_be_sent_to_another_process(world: World) -> None:
    copy = pickle.loads(pickle.dumps(world.connection()))
    with Producer(copy) as producer:
        assert producer.send(TOPIC, b"x", timestamp=T0).result().offset == 0


def test_of_several_addresses_the_first_that_answers_is_taken(tmp_path: Path) -> None:
    world = World(tmp_path)
    with closing(listen_tcp(LOOPBACK, 0)) as closed:
        port = closed.getsockname()[1]
    servers = f"{LOOPBACK}:{port}, {LOOPBACK}:{world.pair.node.port}"
    assert bootstrap_of(servers).ask(metadata_of, DEADLINE_S)["topics"]
    other = f"{LOOPBACK}:{port},[::1]:{port}"
    with pytest.raises(BrokerUnreachable, match=f"{LOOPBACK}:{port}: Connection refused"):
        bootstrap_of(other).ask(metadata_of, DEADLINE_S)
    world.pair.log.close()
    world.pair.node.close()


def test_who_accepts_and_says_nothing_does_not_take_the_time_of_the_next(tmp_path: Path) -> None:
    world = World(tmp_path)
    with closing(listen_tcp(LOOPBACK, 0)) as silent:
        port = silent.getsockname()[1]
        # It gets a part of the time, and who answers all others: a busy machine needs them.
        servers = f"{LOOPBACK}:{port}" + f",{LOOPBACK}:{world.pair.node.port}" * 120
        assert bootstrap_of(servers).ask(metadata_of, DEADLINE_S)["topics"]
        with pytest.raises(BrokerUnreachable, match=f"{port}: it does not answer"):
            bootstrap_of(f"{LOOPBACK}:{port}").ask(metadata_of, 0.01)
    world.pair.log.close()
    world.pair.node.close()


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b", "a" * 64])
def test_a_host_that_is_not_known_is_told_in_words(host: str) -> None:
    with pytest.raises(BrokerUnreachable) as refused:
        bootstrap_of(f"{host}:9092").ask(metadata_of, DEADLINE_S)
    assert refused.value.address == f"{host}:9092"
    assert "Unknown error" not in refused.value.why


def test_a_name_that_another_users_process_has_is_not_asked(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not world.is_by_name:
        pytest.skip("a port has no user")
    monkeypatch.setattr(cluster_socket, "is_trusted", lambda user: user != os.geteuid())
    with pytest.raises(BrokerUnreachable, match="another user's process"):
        world.bootstrap.ask(metadata_of, DEADLINE_S)


@pytest.mark.parametrize("servers", ["", ",", "here", "here:", ":9092", "here:0", "here:65536"])
def test_what_is_no_address_is_refused(servers: str) -> None:
    with pytest.raises(InvalidRequest, match="HOST:PORT"):
        bootstrap_of(servers)


def test_an_address_of_ipv6_is_written_in_brackets() -> None:
    assert str(bootstrap_of("[::1]:9092,there:1")) == "::1:9092,there:1"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it has ended the connection"),
        (b"\x7f\xff\xff\xff", "it has ended the connection"),
        (b"\xff\xff\xff\xff", "a frame of 4294967295 bytes"),
        (b"\0\0\0\0", "a frame of 0 bytes"),
        (b"\0\0\0\4\0\0\0\7", "it answers another request"),
        (b"\0\0\0\6\0\0\0\0\0\xff", "an answer to Metadata"),
    ],
)
def test_an_answer_that_is_none_is_told_as_such(content: bytes, why: str) -> None:
    with closing(listen_tcp(LOOPBACK, 0)) as listening:
        bootstrap = bootstrap_of(f"{LOOPBACK}:{listening.getsockname()[1]}")
        cluster = SocketCluster(bootstrap)
        asked = cluster.list_topics(timeout_s=DEADLINE_S)
        peer, _ = listening.accept()
        with closing(peer):
            peer.recv(1 << 10)
            peer.sendall(content)
            with suppress(OSError):  # who asked has seen enough
                peer.shutdown(socket.SHUT_WR)
            with pytest.raises(BrokerUnreachable, match=why):
                ended(asked)


def test_the_names_of_sockets_are_those_of_the_actors() -> None:
    known = KnownBroker("ns", "ray:1", "cluster/place", "disk-1")
    assert str(Bootstrap(known)) == manager_name("cluster/place", "disk-1")
    assert log_name("cluster/place", ID, 3) == f"raylog/cluster/place/{ID}/3"


def test_a_partition_that_nobody_serves_has_no_node_and_no_address(tmp_path: Path) -> None:
    world = World(tmp_path)
    pair, world.is_by_name = world.pair, False
    told = entries(pair.node.port, pair.log.port, pair.cluster_id)
    (topic,) = told.topics.values()
    away = topic._replace(partitions=(topic.partitions[0]._replace(is_online=False),))
    other = topic._replace(name="another", topic_id=random_id())
    pair.node.show(replace(told, topics={ID: away, other.topic_id: other}))
    cluster = world.cluster()
    found = ended(cluster.metadata(TOPIC, timeout_s=DEADLINE_S))
    assert [part.node_id for part in found.partitions] == [None]
    assert ended(cluster.list_topics(timeout_s=DEADLINE_S)) == ["another", TOPIC]
    with pytest.raises(NotLeader, match="raylog health"):
        ended(cluster.data_address(TopicPartition(TOPIC, 0), ID, timeout_s=DEADLINE_S))
    with pytest.raises(BrokerUnreachable, match="nobody serves"):
        world.bootstrap.log(Place(ID, 0, "", 0), DEADLINE_S)
    pair.log.close()
    pair.node.close()


def test_who_knows_addresses_alone_knows_no_names_of_this_machine(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert world.cluster().broker_id("a-cluster") == world.known.broker
    world.is_by_name = False
    assert world.cluster().broker_id("a-cluster") == ""
    connection = world.connection()
    ended(connection.metadata(TOPIC, timeout_s=DEADLINE_S))
    assert connection._local is None
    world.pair.log.close()
    world.pair.node.close()
