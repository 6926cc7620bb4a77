"""A process's sockets: a name for its node, a port for everybody, or another one."""

import socket
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from raylog.actors.cluster_image import (
    ClusterEntries,
    Endpoint,
    NodeEntry,
    PartitionEntry,
    TopicEntry,
)
from raylog.actors.control import LogId
from raylog.actors.errors import NotLeader
from raylog.actors.listeners import LOOPBACK, ON_LOOPBACK, Listener
from raylog.actors.metrics import Exporter, Metric
from raylog.actors.partition.spec import LogSpec
from raylog.actors.plane import addresses as addresses_module
from raylog.actors.plane import relay as relay_module
from raylog.actors.plane import sockets as sockets_module
from raylog.actors.plane.addresses import (
    MAX_NAME_BYTES,
    listen_tcp,
    listen_together,
    listen_unix,
    log_name,
    manager_name,
    unix_address,
)
from raylog.actors.plane.apis.cluster import METADATA
from raylog.actors.plane.apis.records import LIST_OFFSETS
from raylog.actors.plane.codes import NOT_LEADER
from raylog.actors.plane.errors import AddressTaken
from raylog.actors.plane.listener import Acceptor
from raylog.actors.plane.log_sockets import LogSockets
from raylog.actors.plane.node_sockets import NodeSockets
from raylog.actors.plane.parking import Parking
from raylog.actors.plane.room import Room
from raylog.actors.plane.sending import Piece
from raylog.actors.plane.sockets import STRANGER_BYTES, Entrance, Sockets
from raylog.storage.config import LogConfig
from raylog.storage.names import TopicPartition
from raylog.storage.state.producers import ProducerExpiration
from raylog.storage.state.properties import id_text, random_id
from raylog.storage.testing.waiting import DEADLINE_S, wait_for
from tests.unit.actors.plane.clients import TOPIC, TOPIC_ID, Client, FakeController, partition
from tests.unit.actors.plane.peers import framed

ANY = Endpoint(kafka_id=7, port=0)
NODE = "a-node"


def entries(node_port: int, log_port: int, cluster_id: str) -> ClusterEntries:
    one = PartitionEntry(0, Endpoint(100, log_port), NODE, 0, True)
    return ClusterEntries(
        cluster_id=cluster_id,
        controller=NODE,
        nodes={NODE: NodeEntry(NODE, Endpoint(1, node_port), LOOPBACK)},
        topics={id_text(TOPIC_ID): TopicEntry(TOPIC, id_text(TOPIC_ID), (one,))},
    )


class Pair:
    """A LogManager's sockets and a LogActor's, without the actors."""

    def __init__(
        self,
        folder: Path,
        controller: FakeController | None = None,
        listeners: Sequence[Listener] = (ON_LOOPBACK,),
    ) -> None:
        self.failures: list[BaseException] = []
        self.cluster_id = random_id()
        controller = controller or FakeController()
        self.node = NodeSockets(
            self.cluster_id, NODE, controller, lambda: (), self.failures.append, listeners
        )
        spec = LogSpec(
            log=LogId(partition=TopicPartition(TOPIC, 0), topic_id=id_text(TOPIC_ID)),
            directory_id="d",
            folder=str(folder),
            config=LogConfig(),
            producer_expiration=ProducerExpiration(1, 1),
            node=NODE,
            cluster_id=self.cluster_id,
            listener=listeners[0],
            further_listeners=tuple(listeners[1:]),
        )
        self.log = LogSockets(spec, self.cluster_id)
        self.partition = partition(folder)

    def begin(self) -> None:
        """The LogActor serves."""
        self.log.begin(self.partition, self.partition.delete_records, self.failures.append)

    def close(self) -> None:
        self.log.close()
        self.node.close()
        assert self.failures == []


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    yield pair
    pair.close()


@contextmanager
def tcp_client(port: int) -> Iterator[Client]:
    with closing(socket.create_connection((LOOPBACK, port))) as peer:
        peer.settimeout(DEADLINE_S)
        yield Client(peer)


def brokers_told_at(port: int) -> dict[int, int]:
    """The ports of all brokers, by their ids, as this port tells them."""
    return {number: where[1] for number, where in addresses_told_at(LOOPBACK, port).items()}


def addresses_told_at(host: str, port: int) -> dict[int, tuple[str, int]]:
    """Host and port of all brokers, by their ids, as they are told here."""
    with closing(socket.create_connection((host, port))) as peer:
        peer.settimeout(DEADLINE_S)
        told = Client(peer).ask(METADATA, 7, topics=None, allowAutoTopicCreation=False)
    return {broker["nodeId"]: (broker["host"], broker["port"]) for broker in told["brokers"]}


def test_every_port_tells_of_the_cluster(pair: Pair) -> None:
    pair.begin()
    pair.log.keep_up(lambda: ANY)
    pair.node.keep_up(ANY)
    pair.node.show(entries(pair.node.port, pair.log.port, pair.cluster_id))
    expected = {1: pair.node.port, 100: pair.log.port}
    assert brokers_told_at(pair.node.port) == expected
    assert brokers_told_at(pair.log.port) == expected, "it is passed on"


OTHER_HOST = "127.0.0.2"
TWO_LISTENERS = (ON_LOOPBACK, Listener(name="OTHER", host=OTHER_HOST, distance=1_000))


def test_who_comes_by_another_listener_is_told_its_ports(tmp_path: Path) -> None:
    pair = Pair(tmp_path, listeners=TWO_LISTENERS)
    pair.begin()
    pair.log.keep_up(lambda: ANY)
    pair.node.keep_up(ANY)
    pair.node.show(entries(pair.node.port, pair.log.port, pair.cluster_id))
    node, log = pair.node.port, pair.log.port
    for port in (node, log):
        told = addresses_told_at(LOOPBACK, port)
        assert told == {1: (LOOPBACK, node), 100: (LOOPBACK, log)}
        told = addresses_told_at(OTHER_HOST, port + 1_000)
        assert told == {1: (OTHER_HOST, node + 1_000), 100: (OTHER_HOST, log + 1_000)}
    pair.close()


def test_where_the_port_of_one_listener_is_taken_all_have_others(tmp_path: Path) -> None:
    """So that a process is known by one port."""
    with closing(listen_tcp(OTHER_HOST, 0)) as somebodys:
        taken = int(somebodys.getsockname()[1])
        pair = Pair(tmp_path, listeners=TWO_LISTENERS)
        pair.node.keep_up(Endpoint(kafka_id=7, port=taken - 1_000))
        assert pair.node.port != taken - 1_000
        pair.node.show(entries(pair.node.port, 1, pair.cluster_id))
        told = addresses_told_at(OTHER_HOST, pair.node.port + 1_000)
        assert told[1] == (OTHER_HOST, pair.node.port + 1_000)
        listen_tcp(LOOPBACK, taken - 1_000).close()  # it was let go
        pair.close()


def test_all_listeners_are_open_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    entrances = [Entrance(listener, no_answer) for listener in TWO_LISTENERS]
    sockets, are_left = Sockets(entrances, no_failure), [True, False]

    def accept(*args: Any, **settings: Any) -> Acceptor:
        if are_left and not are_left.pop(0):
            raise RuntimeError("can't start new thread")
        return Acceptor(*args, **settings)

    monkeypatch.setattr(sockets_module, "Acceptor", accept)
    with closing(listen_tcp(LOOPBACK, 0)) as probe:
        port = int(probe.getsockname()[1])
    sockets.keep_up(Endpoint(kafka_id=7, port=port))
    assert (sockets.port, sockets.connections) == (0, 0)
    listen_tcp(LOOPBACK, port).close()
    listen_tcp(OTHER_HOST, port + 1_000).close()
    sockets.keep_up(Endpoint(kafka_id=7, port=port))
    assert sockets.port == port
    assert sockets.close(DEADLINE_S)


@pytest.mark.parametrize("distance", [50_000, -20_000, -30_000])
def test_a_port_that_is_none_is_taken(distance: int) -> None:
    """0 is none either: it would be any."""
    with pytest.raises(AddressTaken, match="there is no such port"):
        listen_together([(LOOPBACK, 0), (LOOPBACK, distance)], 20_000)
    listen_tcp(LOOPBACK, 20_000).close()


def test_the_system_chooses_again_where_the_port_of_another_listener_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[int] = []

    def listen(host: str, port: int) -> socket.socket:
        if port:
            tried.append(port)
            if len(tried) < 3:
                raise AddressTaken(f"{host}:{port}", "it is somebody's")
        return listen_tcp(host, port)

    monkeypatch.setattr(addresses_module, "listen_tcp", listen)
    first, other = listen_together([(LOOPBACK, 0), (OTHER_HOST, -1_000)], 0)
    with closing(first), closing(other):
        assert len(tried) == 3
        assert other.getsockname() == (OTHER_HOST, first.getsockname()[1] - 1_000)


def test_the_second_listener_of_a_log_manager_has_a_name_that_fits() -> None:
    broker = f"{random_id()}/{'n' * 12}"
    name = manager_name(broker, "k" * 63, 8)
    assert len(name) <= MAX_NAME_BYTES
    assert name != manager_name(broker, "k" * 63)


def test_a_log_answers_for_its_partition_and_a_manager_for_none(pair: Pair) -> None:
    pair.begin()
    pair.log.keep_up(lambda: ANY)
    pair.node.keep_up(ANY)
    wanted = {"partitionIndex": 0, "currentLeaderEpoch": -1, "timestamp": -1}
    topics = [{"name": TOPIC, "partitions": [wanted]}]
    codes = []
    for port in (pair.log.port, pair.node.port):
        with tcp_client(port) as client:
            told = client.ask(LIST_OFFSETS, 5, replicaId=-1, isolationLevel=0, topics=topics)
        codes.append(told["topics"][0]["partitions"][0]["errorCode"])
    assert codes == [0, NOT_LEADER]


def test_nothing_is_told_of_a_cluster_that_is_not_known(pair: Pair) -> None:
    pair.node.keep_up(ANY)
    with tcp_client(pair.node.port) as client:
        client.send(METADATA, 7, topics=None, allowAutoTopicCreation=False)
        assert client.received(1) == b""


@pytest.mark.parametrize("is_shown_first", [True, False])
def test_a_manager_tells_where_it_listens_before_the_controller_knows_it(
    pair: Pair, is_shown_first: bool
) -> None:
    """librdkafka takes a cluster without brokers for what it is, and waits for minutes."""
    told = entries(0, 0, pair.cluster_id)
    old = NodeEntry(NODE, Endpoint(1, 19_092), "")
    other = NodeEntry("other", Endpoint(2, 19_093), "")
    unheard = replace(told, nodes={NODE: old, "other": other}, topics={})
    if is_shown_first:
        pair.node.show(unheard)
        pair.node.keep_up(ANY)
    else:
        pair.node.keep_up(ANY)
        pair.node.show(unheard)
    assert brokers_told_at(pair.node.port) == {1: pair.node.port}


def test_the_endpoint_is_asked_for_until_it_is_known_and_then_no_more(pair: Pair) -> None:
    answers: list[Endpoint | None] = [None, ANY]
    pair.log.keep_up(answers.pop)
    assert answers == [None, ANY], "there is nothing to serve yet"
    answers.reverse()
    pair.begin()
    pair.log.keep_up(answers.pop)
    assert pair.log.port == 0
    pair.log.keep_up(answers.pop)
    port = pair.log.port
    assert port
    pair.log.keep_up(answers.pop)
    assert pair.log.port == port


def test_a_port_that_is_taken_is_replaced_by_a_free_one(pair: Pair) -> None:
    with listen_tcp(LOOPBACK, 0) as other:
        taken = other.getsockname()[1]
        pair.node.keep_up(Endpoint(kafka_id=1, port=taken))
        assert pair.node.port not in (0, taken)
    pair.node.keep_up(Endpoint(kafka_id=1, port=taken))
    assert pair.node.port != taken, "clients may know the other one by now"


def test_a_name_that_is_taken_is_tried_again(pair: Pair) -> None:
    with listen_unix(manager_name(pair.cluster_id, NODE)):
        pair.node.keep_up(ANY)
        assert pair.node.port, "Kafka's clients can come"
    pair.node.keep_up(ANY)
    with closing(socket.socket(socket.AF_UNIX)) as peer:
        peer.connect(unix_address(manager_name(pair.cluster_id, NODE)))


def test_without_a_thread_to_listen_by_it_is_tried_again(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_more_threads)
        pair.node.keep_up(ANY)
    assert pair.node.port == 0
    pair.node.keep_up(ANY)
    assert pair.node.port


def test_who_comes_while_there_are_no_threads_is_sent_away_and_the_next_is_served(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.node.keep_up(ANY)
    pair.node.show(entries(pair.node.port, 0, pair.cluster_id))
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_more_threads)
        with tcp_client(pair.node.port) as client:
            assert client.received(1) == b""
    assert 1 in brokers_told_at(pair.node.port)


def no_more_threads(_: object) -> None:
    raise RuntimeError("can't start new thread")


def test_a_partition_is_served_by_its_name_on_the_same_node(pair: Pair) -> None:
    pair.begin()
    pair.log.keep_up(lambda: None)
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(DEADLINE_S)
        peer.connect(unix_address(log_name(pair.cluster_id, id_text(TOPIC_ID), 0)))
        wanted = {"partitionIndex": 0, "currentLeaderEpoch": -1, "timestamp": -1}
        topics = [{"name": TOPIC, "partitions": [wanted]}]
        told = Client(peer).ask(LIST_OFFSETS, 5, replicaId=-1, isolationLevel=0, topics=topics)
    assert told["topics"][0]["partitions"][0]["offset"] == 0


def test_after_the_end_nobody_listens(pair: Pair) -> None:
    pair.node.keep_up(ANY)
    port = pair.node.port
    pair.node.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((LOOPBACK, port))
    pair.node.keep_up(ANY)
    assert pair.node.port == port, "it does not begin again"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((LOOPBACK, port))


def test_a_request_that_waits_for_room_ends_with_the_process(tmp_path: Path) -> None:
    room = Room(1)
    assert room.enter(1)
    sockets = Sockets([Entrance(ON_LOOPBACK, no_answer)], no_failure, room=room)
    sockets.keep_up(ANY)
    with tcp_client(sockets.port) as client:
        client.send_raw(framed(b"waits"))
        wait_for(lambda: room.waiting == 1)
        assert sockets.close(DEADLINE_S)
        assert client.received(1) == b""


def no_answer(frames: Sequence[bytearray], parking: Parking) -> Sequence[Piece]:
    raise AssertionError(f"nobody has let it in: {frames!r}, {parking}")


def no_failure(failure: BaseException) -> None:
    raise AssertionError("nothing went wrong") from failure


def test_a_strangers_process_that_has_taken_the_managers_name_is_told_nothing(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.begin()
    pair.log.keep_up(lambda: ANY)
    with listen_unix(manager_name(pair.cluster_id, NODE)) as stranger:
        monkeypatch.setattr(relay_module, "user_of", lambda _: 12345)
        with tcp_client(pair.log.port) as client:
            client.send(METADATA, 7, topics=None, allowAutoTopicCreation=False)
            assert client.received(1) == b""
        accepted, _ = stranger.accept()
        with accepted:
            assert accepted.recv(1) == b""


# -- what is counted -------------------------------------------------------------------------------


class Sink:
    """What an exporter has set: by metric, with the tags that are no process's."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], float] = defaultdict(float)
        self.exporter = Exporter(self._make, own="yes")

    def _make(self, metric: Metric) -> Any:
        sink = self

        class Made:
            def inc(self, value: float, tags: dict[str, str]) -> None:
                sink.values[metric.name, tags.get("api") or tags.get("error", "")] += value

            def set(self, value: float, tags: dict[str, str]) -> None:
                sink.values[metric.name, ""] = value

        return Made()


def test_requests_are_counted_by_api_and_ends_by_their_reason(pair: Pair) -> None:
    pair.begin()
    pair.log.keep_up(lambda: ANY)
    pair.node.keep_up(ANY)
    pair.node.show(entries(pair.node.port, pair.log.port, pair.cluster_id))
    sink, name = Sink(), "raylog_socket_"

    def now(metric: str, tag: str = "") -> float:
        pair.log.export(sink.exporter)
        return sink.values[name + metric, tag]

    with tcp_client(pair.log.port) as client:
        for _ in range(3):
            client.ask(METADATA, 7, topics=None, allowAutoTopicCreation=False)
        wait_for(lambda: now("requests", "Metadata") == 3)
        assert now("connections") == 1
        client.send_raw(framed(b"\0\3\0\7garbage"))
        assert client.received(1) == b""
    assert 0 < now("request_seconds", "Metadata") < DEADLINE_S
    assert now("request_bytes", "Metadata") == 3 * 19, "without its size"
    assert now("answer_bytes", "Metadata") > 3 * 19
    wait_for(lambda: now("connections") == 0)
    assert now("connections_ended", "INVALID_REQUEST") == 1
    assert now("requests_bytes_held") == now("requests_waiting") == 0

    def passed_on() -> float:
        pair.node.export(sink.exporter)
        return sink.values["raylog_node_socket_requests", "Metadata"]

    # A request is counted a moment after its answer has gone.
    wait_for(lambda: passed_on() == 3, what="they were passed on")
    assert passed_on() == 3, "the second time there is nothing new"


def test_a_process_that_ends_or_cannot_listen_is_not_the_leader_and_clients_try_again(
    pair: Pair,
) -> None:
    with pytest.raises(NotLeader, match="not open yet"):
        pair.log.open_inner(LOOPBACK)
    pair.begin()
    with pytest.raises(NotLeader, match=r"cannot listen at 203\.0\.113\.1"):
        pair.log.open_inner("203.0.113.1")  # of no machine: for documents
    port, token = pair.log.open_inner(LOOPBACK)
    assert pair.log.open_inner(LOOPBACK) == (port, token)
    pair.log.close()
    with pytest.raises(NotLeader, match="about to end"):
        pair.log.open_inner(LOOPBACK)


def test_what_comes_by_the_inner_port_has_to_say_who_it_is(pair: Pair) -> None:
    pair.begin()
    port, _ = pair.log.open_inner(LOOPBACK)
    with tcp_client(port) as client:
        client.send(METADATA, 7, topics=None, allowAutoTopicCreation=False)
        assert client.received(1) == b""
    with tcp_client(port) as client:
        client.send_raw((STRANGER_BYTES + 1).to_bytes(4, "big"))
        assert client.received(1) == b"", "a stranger's frames are small"


def test_who_has_not_said_who_it_is_takes_no_room_of_the_others(pair: Pair) -> None:
    """Each half frame would keep it for half a minute."""
    room = Room(2 * STRANGER_BYTES)
    sockets = Sockets([Entrance(ON_LOOPBACK, no_answer)], no_failure, room=room)
    port, _ = sockets.open_inner(LOOPBACK)
    with ExitStack() as strangers:
        for _ in range(5):
            peer = strangers.enter_context(socket.create_connection((LOOPBACK, port)))
            peer.sendall(STRANGER_BYTES.to_bytes(4, "big") + b"half")
        wait_for(lambda: sockets.connections == 5)
        assert room.enter_if_free(STRANGER_BYTES)
        assert sockets.waiting == 0
    sockets.close(DEADLINE_S)


def test_the_port_is_opened_though_somebody_has_the_name(pair: Pair) -> None:
    with listen_unix(log_name(pair.cluster_id, id_text(TOPIC_ID), 0)):
        pair.begin()
        pair.log.keep_up(lambda: ANY)
        assert pair.log.port
        assert not pair.log.is_everywhere
    pair.log.keep_up(lambda: None)
    assert pair.log.is_everywhere
