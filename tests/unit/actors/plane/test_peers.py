"""How the process of a partition asks others: its LogManager, and other partitions, by socket."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from raylog.actors.errors import NotLeader, RequestTimedOut
from raylog.actors.listeners import LOOPBACK
from raylog.actors.messages import DataAddress
from raylog.actors.plane.addresses import listen_unix, manager_name
from raylog.actors.plane.apis.records import DESCRIBE_PRODUCERS
from raylog.actors.plane.errors import PeerAway
from raylog.actors.plane.peers import channel as channel_module
from raylog.actors.plane.peers.peers import KEPT, Peers, Topic
from raylog.storage.names import TopicPartition
from raylog.storage.state.properties import id_text, random_id
from tests.unit.actors.plane.clients import TOPIC, TOPIC_ID, FakeController
from tests.unit.actors.plane.test_sockets import ANY, NODE, Pair, entries

PLACE = TopicPartition(TOPIC, 0)
BODY = {"topics": [{"name": TOPIC, "partitionIndexes": [0]}]}


def nowhere(partition: TopicPartition, topic_id: str) -> DataAddress:
    raise NotLeader(str(partition), "it is not running")


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    made.begin()
    made.log.keep_up(lambda: ANY)
    made.node.keep_up(ANY)
    made.node.show(entries(made.node.port, made.log.port, made.cluster_id))
    yield made
    made.close()


@pytest.fixture
def peers(pair: Pair) -> Iterator[Peers]:
    made = Peers(pair.cluster_id, manager_name(pair.cluster_id, NODE), nowhere)
    yield made
    made.close()


def elsewhere(pair: Pair, address_of: object) -> Peers:
    """Those of a process whose node has no such names."""
    manager = manager_name(pair.cluster_id, NODE)
    return Peers(random_id(), manager, address_of)  # type: ignore[arg-type]


def asked(peers: Peers) -> int:
    """The error of a question to the partition."""
    told = peers.ask(PLACE, DESCRIBE_PRODUCERS, 0, BODY)
    return int(told["topics"][0]["partitions"][0]["errorCode"])


def test_the_manager_knows_which_topics_there_are(peers: Peers) -> None:
    assert peers.topic(TOPIC) == Topic(id_text(TOPIC_ID), 1)
    assert peers.topic("strange") is None
    strange = TopicPartition("strange", 0)
    beyond, below = TopicPartition(TOPIC, 1), TopicPartition(TOPIC, -1)
    assert peers.missing([PLACE, strange, beyond, below]) == {strange, beyond, below}


def test_what_was_seen_is_remembered_until_it_is_forgotten(pair: Pair, peers: Peers) -> None:
    assert peers.missing([PLACE]) == set()
    gone = entries(pair.node.port, pair.log.port, pair.cluster_id)
    gone.topics.clear()  # type: ignore[attr-defined]
    pair.node.show(gone)
    assert peers.topic(TOPIC) is not None
    peers.forget(TOPIC)
    assert peers.topic(TOPIC) is None
    with pytest.raises(PeerAway, match="no such topic"):
        asked(peers)


def test_a_partition_of_the_node_is_found_by_its_name(peers: Peers) -> None:
    for _ in range(3):
        assert asked(peers) == 0


def test_a_connection_that_has_ended_is_replaced(peers: Peers) -> None:
    assert asked(peers) == 0
    (kept,) = peers._idle[PLACE]
    kept._connection.shutdown(socket.SHUT_RDWR)
    assert asked(peers) == 0
    assert len(peers._idle[PLACE]) <= KEPT


def test_a_partition_of_another_node_is_asked_with_its_token(pair: Pair) -> None:
    port, token = pair.log.open_inner(LOOPBACK)
    asked_for: list[tuple[TopicPartition, str]] = []

    def address_of(partition: TopicPartition, topic_id: str) -> DataAddress:
        asked_for.append((partition, topic_id))
        return DataAddress(LOOPBACK, port, token)

    peers = elsewhere(pair, address_of)
    for _ in range(2):
        assert asked(peers) == 0
    assert asked_for == [(PLACE, id_text(TOPIC_ID))], "once"
    peers.close()


@pytest.mark.parametrize("token", ["wrong", ""])
def test_who_does_not_know_the_token_is_not_let_in(pair: Pair, token: str) -> None:
    port, _ = pair.log.open_inner(LOOPBACK)
    peers = elsewhere(pair, lambda *_: DataAddress(LOOPBACK, port, token))
    with pytest.raises(PeerAway):
        asked(peers)
    peers.close()


@pytest.mark.parametrize("error", [NotLeader("p", "w"), RequestTimedOut("p", 5.0)])
def test_where_nobody_says_where_it_is_it_is_away(pair: Pair, error: Exception) -> None:
    def address_of(partition: TopicPartition, topic_id: str) -> DataAddress:
        raise error

    peers = elsewhere(pair, address_of)
    with pytest.raises(PeerAway):
        asked(peers)
    peers.close()


def test_a_port_where_nobody_listens_is_away(pair: Pair) -> None:
    with socket.socket() as free:
        free.bind((LOOPBACK, 0))
        port = free.getsockname()[1]
    peers = elsewhere(pair, lambda *_: DataAddress(LOOPBACK, port, ""))
    with pytest.raises(PeerAway):
        asked(peers)


def test_a_manager_that_is_not_there_is_away() -> None:
    peers = Peers("broker", manager_name(random_id(), NODE), nowhere)
    for call in (lambda: peers.topic(TOPIC), lambda: peers.missing([PLACE]), peers.producer_id):
        with pytest.raises(PeerAway):
            call()


def test_a_name_that_somebody_else_has_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    name = manager_name(random_id(), NODE)
    monkeypatch.setattr(channel_module, "is_trusted", lambda user: False)
    with listen_unix(name), pytest.raises(PeerAway, match="has taken its name"):
        Peers("broker", name, nowhere).topic(TOPIC)


def test_producer_ids_come_from_the_controller(tmp_path: Path) -> None:
    controller = FakeController()
    pair = Pair(tmp_path, controller)
    pair.begin()
    pair.node.keep_up(ANY)
    peers = Peers(pair.cluster_id, manager_name(pair.cluster_id, NODE), nowhere)
    assert [peers.producer_id(), peers.producer_id()] == [1001, 1002]
    controller.problem = NotLeader("controller", "it is away")
    with pytest.raises(PeerAway, match="no producer id"):
        peers.producer_id()
    peers.close()
    pair.close()
