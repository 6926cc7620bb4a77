"""What a client is told of the cluster: Metadata and its kin, answered and relayed."""

import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from typing import Any
from uuid import UUID

import pytest

from raylog.actors.errors import (
    ActorAway,
    BrokerNotFound,
    NeededActorAway,
    NotController,
    RequestTimedOut,
)
from raylog.actors.messages import LogDirStatus
from raylog.actors.plane import relay as relay_module
from raylog.actors.plane.addresses import listen_unix, manager_name, unix_address
from raylog.actors.plane.admin import ADMIN_APIS, MAX_TIMEOUT_S, TIMEOUT_S
from raylog.actors.plane.apis.api import Api
from raylog.actors.plane.apis.cluster import (
    DESCRIBE_CLUSTER,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_TOPIC_PARTITIONS,
    LIST_PARTITION_REASSIGNMENTS,
    METADATA,
)
from raylog.actors.plane.apis.configs import (
    ALTER_CONFIGS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
)
from raylog.actors.plane.apis.connection import SASL_AUTHENTICATE, SASL_HANDSHAKE
from raylog.actors.plane.apis.records import INIT_PRODUCER_ID
from raylog.actors.plane.apis.topics import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from raylog.actors.plane.connection import Connection
from raylog.actors.plane.describing import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from raylog.actors.plane.door import Door
from raylog.actors.plane.errors import PeerGone, RelayAway
from raylog.actors.plane.frames import Request, answer, parse
from raylog.actors.plane.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from raylog.actors.plane.listener import Acceptor
from raylog.actors.plane.reading import Frames
from raylog.actors.plane.relay import MOST_REMEMBERED, Relay, Remembered
from raylog.actors.plane.room import Room
from raylog.storage.schemas.types import Value
from raylog.storage.state.properties import random_id
from raylog.storage.testing.waiting import DEADLINE_S, wait_for
from tests.unit.actors.plane.clients import Client, FakeController, client_of, cluster_door
from tests.unit.actors.plane.peers import beside, connected, framed, received

ORDERS_ID, FLIGHTS_ID, NO_ID = UUID(int=1), UUID(int=2), UUID(int=0)
ONLINE, AWAY = (
    PartitionImage(leader=100, leader_epoch=4),
    PartitionImage(leader=101, is_online=False),
)
IMAGE = ClusterImage(
    cluster_id="a-cluster",
    controller=1,
    brokers=(
        BrokerImage(node_id=1, host="127.0.0.1", port=19001),
        BrokerImage(node_id=100, host="127.0.0.1", port=19100, rack="a"),
        BrokerImage(node_id=101, host="127.0.0.1", port=19101),
    ),
    topics={
        "orders": TopicImage("orders", ORDERS_ID, (ONLINE, AWAY, PartitionImage(leader=999))),
        "flights": TopicImage("flights", FLIGHTS_ID, (ONLINE,)),
    },
)


@pytest.fixture
def client() -> Iterator[Client]:
    with client_of(cluster_door(IMAGE)) as one:
        yield one


def metadata(client: Client, version: int, topics: list[Value] | None, **flags: bool) -> Value:
    body: dict[str, Any] = {"topics": topics}
    if version >= 4:
        body["allowAutoTopicCreation"] = True
    if version >= 8:
        body["includeTopicAuthorizedOperations"] = flags.get("of_topics", False)
    if 8 <= version <= 10:
        body["includeClusterAuthorizedOperations"] = flags.get("of_cluster", False)
    return client.ask(METADATA, version, **body)


def named(name: str | None, topic_id: UUID = NO_ID) -> Value:
    return {"name": name, "topicId": topic_id}


# -- Metadata --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(METADATA.last_version + 1))
def test_all_brokers_are_told_whatever_the_topics(client: Client, version: int) -> None:
    answer = metadata(client, version, [named("flights")])
    brokers = [(one["nodeId"], one["host"], one["port"]) for one in answer["brokers"]]
    assert brokers == [
        (1, "127.0.0.1", 19001),
        (100, "127.0.0.1", 19100),
        (101, "127.0.0.1", 19101),
    ]
    [topic] = answer["topics"]
    assert (topic["errorCode"], topic["name"]) == (0, "flights")
    assert [part["leaderId"] for part in topic["partitions"]] == [100]
    assert answer["controllerId"] == (1 if version else -1)
    assert answer["clusterId"] == ("a-cluster" if version >= 2 else None)


def test_a_partition_without_a_leader_that_is_told_has_none(client: Client) -> None:
    [topic] = metadata(client, 12, [named("orders")])["topics"]
    shown = [
        (part["errorCode"], part["leaderId"], part["leaderEpoch"], part["offlineReplicas"])
        for part in topic["partitions"]
    ]
    assert shown == [(0, 100, 4, []), (5, -1, -1, [101]), (5, -1, -1, [999])]
    assert [part["isrNodes"] for part in topic["partitions"]] == [[100], [101], [999]]


@pytest.mark.parametrize(("version", "of_empty"), [(0, 2), (1, 0), (12, 0)])
def test_no_topics_and_all_topics_are_told_apart(
    client: Client, version: int, of_empty: int
) -> None:
    assert len(metadata(client, version, [])["topics"]) == of_empty
    if version:
        assert len(metadata(client, version, None)["topics"]) == 2


def test_topics_are_found_by_name_or_id_each_once(client: Client) -> None:
    asked = [
        named("orders"),
        named("orders"),
        named("nothing"),
        named("not/a name"),
        named(None, FLIGHTS_ID),
        named(None, UUID(int=9)),
        named("orders", FLIGHTS_ID),
    ]
    topics = metadata(client, 12, asked)["topics"]
    assert [(one["errorCode"], one["name"], one["topicId"].int) for one in topics] == [
        (0, "orders", 1),
        (3, "nothing", 0),
        (17, "not/a name", 0),
        (0, "flights", 2),
        (100, None, 9),
    ]


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize("name", ["orders", None])
def test_an_id_is_refused_before_its_version(
    client: Client, version: int, name: str | None
) -> None:
    [topic] = metadata(client, version, [named(name, ORDERS_ID)])["topics"]
    assert (topic["errorCode"], topic["name"]) == (42, name or "")


def test_what_one_may_do_is_told_to_who_asks(client: Client) -> None:
    answer = metadata(client, 8, [named("orders")])
    assert answer["topics"][0]["topicAuthorizedOperations"] == NOT_ASKED
    assert answer["clusterAuthorizedOperations"] == NOT_ASKED
    answer = metadata(client, 8, [named("orders")], of_topics=True, of_cluster=True)
    assert answer["topics"][0]["topicAuthorizedOperations"] == TOPIC_OPERATIONS == 3576
    assert answer["clusterAuthorizedOperations"] == CLUSTER_OPERATIONS == 8096
    answer = metadata(client, 12, [named(None, UUID(int=9))], of_topics=True)
    assert answer["topics"][0]["topicAuthorizedOperations"] == NOT_ASKED


# -- its kin ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_described(client: Client, version: int) -> None:
    later: dict[str, Any] = {"endpointType": 1} if version else {}
    if version >= 2:
        later["includeFencedBrokers"] = True
    body = {"includeClusterAuthorizedOperations": True, **later}
    answer = client.ask(DESCRIBE_CLUSTER, version, **body)
    assert (answer["errorCode"], answer["clusterId"], answer["controllerId"]) == (0, "a-cluster", 1)
    assert [broker["brokerId"] for broker in answer["brokers"]] == [1, 100, 101]
    assert answer["clusterAuthorizedOperations"] == CLUSTER_OPERATIONS
    if version:
        answer = client.ask(DESCRIBE_CLUSTER, version, **{**body, "endpointType": 2})
        assert (answer["errorCode"], answer["brokers"]) == (114, [])
        answer = client.ask(DESCRIBE_CLUSTER, version, **{**body, "endpointType": 3})
        assert (answer["errorCode"], answer["brokers"]) == (115, [])


def described(client: Client, *names: str, limit: int = 2000, cursor: Any = None) -> Any:
    answer = client.ask(
        DESCRIBE_TOPIC_PARTITIONS,
        0,
        topics=[{"name": name} for name in names],
        responsePartitionLimit=limit,
        cursor=cursor,
    )
    topics = [
        (one["name"], one["errorCode"], [part["partitionIndex"] for part in one["partitions"]])
        for one in answer["topics"]
    ]
    return topics, answer["nextCursor"]


def test_topics_are_described_in_order_and_in_parts(client: Client) -> None:
    every = [("flights", 0, [0]), ("orders", 0, [0, 1, 2])]
    assert described(client) == (every, None)
    assert described(client, "orders", "nothing") == (
        [("nothing", 3, []), ("orders", 0, [0, 1, 2])],
        None,
    )
    cursor = {"topicName": "orders", "partitionIndex": 1}
    assert described(client, limit=2) == ([("flights", 0, [0]), ("orders", 0, [0])], cursor)
    assert described(client, limit=2, cursor=cursor) == ([("orders", 0, [1, 2])], None)
    begin = {"topicName": "orders", "partitionIndex": 0}
    assert described(client, limit=1) == ([("flights", 0, [0])], begin)
    unknown = {"topicName": "nothing", "partitionIndex": 0}
    assert described(client, "flights", "nothing", limit=1) == ([("flights", 0, [0])], unknown)


@pytest.mark.parametrize(("name", "number"), [("flights", 0), ("orders", -1)])
def test_a_cursor_is_of_a_topic_that_is_asked_for(client: Client, name: str, number: int) -> None:
    cursor = {"topicName": name, "partitionIndex": number}
    assert described(client, "orders", cursor=cursor) == ([("orders", 42, [])], None)


def test_what_one_may_do_is_told_of_topics_that_are_not_there_too(client: Client) -> None:
    body = {"responsePartitionLimit": 2000, "cursor": None}
    topics = [{"name": "orders"}, {"name": "nothing"}]
    told = client.ask(DESCRIBE_TOPIC_PARTITIONS, 0, topics=topics, **body)["topics"]
    assert {one["topicAuthorizedOperations"] for one in told} == {TOPIC_OPERATIONS}


def test_nothing_is_being_reassigned(client: Client) -> None:
    answer = client.ask(LIST_PARTITION_REASSIGNMENTS, 0, timeoutMs=1, topics=None)
    assert (answer["errorCode"], answer["topics"]) == (0, [])


INIT = {"transactionTimeoutMs": 0, "producerId": -1, "producerEpoch": -1}


def test_producers_get_ids_of_their_own_of_the_epoch_0() -> None:
    with client_of(cluster_door()) as client:
        for producer_id in (1001, 1002):
            told = client.ask(INIT_PRODUCER_ID, 5, transactionalId=None, **INIT)
            assert (told["errorCode"], told["producerId"]) == (0, producer_id)
            assert told["producerEpoch"] == 0


def test_a_producer_asks_again_while_there_are_no_ids() -> None:
    ids = FakeController()
    ids.problem = BrokerNotFound("raylog")
    with client_of(cluster_door(controller=ids)) as client:
        told = client.ask(INIT_PRODUCER_ID, 5, transactionalId=None, **INIT)
        assert (told["errorCode"], told["producerId"], told["producerEpoch"]) == (14, -1, -1)


def test_the_coordinator_of_a_transactional_id_is_another_process() -> None:
    with client_of(cluster_door()) as client:
        told = client.ask(INIT_PRODUCER_ID, 5, transactionalId="t", **INIT)
        assert (told["errorCode"], told["producerId"]) == (16, -1)
        told = client.ask(INIT_PRODUCER_ID, 5, transactionalId="", **INIT)
        assert told["errorCode"] == 42


def test_an_id_without_an_epoch_is_no_request() -> None:
    with client_of(cluster_door()) as client:
        half = INIT | {"producerId": 7}
        assert client.ask(INIT_PRODUCER_ID, 5, transactionalId=None, **half)["errorCode"] == 42
        for epoch in (7, -2):
            half = INIT | {"producerEpoch": epoch}
            assert client.ask(INIT_PRODUCER_ID, 5, transactionalId=None, **half)["errorCode"] == 42


def test_where_nobody_is_asked_who_he_is_there_is_nothing_to_authenticate(client: Client) -> None:
    shaken = client.ask(SASL_HANDSHAKE, 1, mechanism="PLAIN")
    assert shaken == {"errorCode": 34, "mechanisms": []}
    answer = client.ask(SASL_AUTHENTICATE, 2, authBytes=b"token")
    assert (answer["errorCode"], answer["authBytes"]) == (34, b"")


# -- what only the Controller answers --------------------------------------------------------------

TOPIC_BODY = {"numPartitions": 1, "replicationFactor": 1, "assignments": [], "configs": []}
RESOURCE = {"resourceType": 2, "resourceName": "t", "configs": []}
ASKED = {"resourceType": 2, "resourceName": "t", "configurationKeys": None}
ADMIN_BODIES: dict[Api, dict[str, Any]] = {
    CREATE_TOPICS: {"topics": [{"name": "t", **TOPIC_BODY}], "timeoutMs": 5000},
    DELETE_TOPICS: {
        "topics": [{"name": "t", "topicId": NO_ID}],
        "topicNames": ["t"],
        "timeoutMs": 5000,
    },
    CREATE_PARTITIONS: {
        "topics": [{"name": "t", "count": 2, "assignments": None}],
        "timeoutMs": 5000,
    },
    DESCRIBE_CONFIGS: {"resources": [ASKED], "includeSynonyms": False},
    ALTER_CONFIGS: {"resources": [RESOURCE]},
    INCREMENTAL_ALTER_CONFIGS: {"resources": [RESOURCE]},
}
ADMIN_VERSIONS = [
    (api, version)
    for api in ADMIN_BODIES
    for version in range(api.first_version, api.last_version + 1)
]


def admin_body(api: Api, version: int) -> dict[str, Any]:
    body = dict(ADMIN_BODIES[api])
    if api is DELETE_TOPICS:
        body.pop("topicNames" if version >= 6 else "topics")
    elif api is not DESCRIBE_CONFIGS:
        body["validateOnly"] = False
    elif version >= 3:
        body["includeDocumentation"] = False
    return body


def test_all_requests_of_the_controller_are_known() -> None:
    assert set(ADMIN_BODIES) == ADMIN_APIS


@pytest.mark.parametrize(("api", "version"), ADMIN_VERSIONS)
def test_a_request_goes_to_the_controller_as_it_came(api: Api, version: int) -> None:
    controller = FakeController()
    controller.answer = framed(b"as it is")
    body = admin_body(api, version)
    with client_of(cluster_door(controller=controller)) as client:
        client.send(api, version, **body)
        assert client.received(len(controller.answer)) == controller.answer
    [(frame, timeout_s)] = controller.asked
    request = parse(memoryview(frame))
    assert (request.api, request.version) == (api, version)
    assert timeout_s == (5 if "timeoutMs" in body else TIMEOUT_S)
    assert controller.changes == (api is not DESCRIBE_CONFIGS)


@pytest.mark.parametrize("timeout_ms", [-1, 2**31 - 1])
def test_nobody_waits_for_ever(timeout_ms: int) -> None:
    controller = FakeController()
    controller.answer = framed(b"it")
    with client_of(cluster_door(controller=controller)) as client:
        client.send(CREATE_TOPICS, 7, topics=[], timeoutMs=timeout_ms, validateOnly=False)
        assert client.received(6)
    [(_, timeout_s)] = controller.asked
    assert timeout_s == (0 if timeout_ms < 0 else MAX_TIMEOUT_S)


@pytest.mark.parametrize(("api", "version"), ADMIN_VERSIONS)
def test_each_entry_says_why_the_controller_does_not_answer(api: Api, version: int) -> None:
    controller = FakeController()
    problems = {
        BrokerNotFound("raylog"): 41,  # nothing was done: it is asked again
        NotController("the broker", "it is starting"): 41,
        ActorAway("a command", "it died"): 7,  # nobody knows what was done
        NeededActorAway("a command", "it died"): 7,
        RequestTimedOut("a command", 5): 7,
    }
    with client_of(cluster_door(controller=controller)) as client:
        for problem, code in problems.items():
            controller.problem = problem
            told = client.ask(api, version, **admin_body(api, version))
            [entries] = [entries for entries in told.values() if isinstance(entries, list)]
            [entry] = entries
            assert (entry["errorCode"], entry.get("name", "t")) == (code, "t")
            assert entry.get("errorMessage", str(problem)) in (str(problem), None)


# -- log dirs --------------------------------------------------------------------------------------


def test_a_manager_tells_of_the_disks_of_its_node_and_of_no_partition() -> None:
    broken = LogDirStatus.offline("n", "/b", "b1", "it is broken")
    online = broken._replace(path="/a", is_online=True, total_bytes=100, usable_bytes=40)
    dirs = [online, broken]
    with client_of(cluster_door(log_dirs=dirs)) as client:
        for version in range(1, 6):
            told = client.ask(DESCRIBE_LOG_DIRS, version, topics=None)
            found = [(one["logDir"], one["errorCode"], one["topics"]) for one in told["results"]]
            assert found == [("/a", 0, []), ("/b", 56, [])]
    sizes = [(one["totalBytes"], one["usableBytes"]) for one in told["results"]]
    assert sizes == [(100, 40), (-1, -1)]


# -- the relay -------------------------------------------------------------------------------------


@pytest.fixture
def name() -> str:
    """Nobody else's."""
    return manager_name(random_id(), "a-node")


def manager(name: str, image: ClusterImage = IMAGE) -> Acceptor:
    """A LogManager's socket, without its LogManager."""
    room, door = Room(), cluster_door(image)

    def begin(accepted: Any) -> Connection:
        return Connection(accepted, Frames(accepted, room), door)

    return Acceptor(listen_unix(name), begin, lambda _: None, lambda _: None)


def test_a_request_is_passed_on_and_its_answer_back(name: str) -> None:
    listener, relay = manager(name), Relay(name)
    with client_of(Door(relay)) as client:
        for _ in range(2):
            assert metadata(client, 12, None)["clusterId"] == "a-cluster"
        assert listener.connections == 1
    relay.close()
    assert listener.close(DEADLINE_S)


def test_of_the_connections_of_many_requests_at_once_one_is_kept(name: str) -> None:
    all_are_there = threading.Barrier(3)

    class Slow(FakeController):
        def allocate_producer_id(self) -> int:
            all_are_there.wait(DEADLINE_S)
            return super().allocate_producer_id()

    room, door = Room(), cluster_door(controller=Slow())
    listener = Acceptor(
        listen_unix(name),
        lambda accepted: Connection(accepted, Frames(accepted, room), door),
        lambda _: None,
        lambda _: None,
    )
    relay = Relay(name)

    def ask() -> None:
        with client_of(Door(relay)) as client:
            told = client.ask(INIT_PRODUCER_ID, 5, transactionalId=None, **INIT)
            assert told["errorCode"] == 0

    with ThreadPoolExecutor(3) as threads:
        for asked in [threads.submit(ask) for _ in range(3)]:
            asked.result(DEADLINE_S)
    wait_for(lambda: listener.connections == 1)
    relay.close()
    assert listener.close(DEADLINE_S)


def test_a_manager_that_was_started_again_is_found(name: str) -> None:
    listener, relay = manager(name), Relay(name)
    with client_of(Door(relay)) as client:
        assert metadata(client, 12, None)["controllerId"] == 1
        assert listener.close(DEADLINE_S)
        listener = manager(name)
        assert metadata(client, 12, None)["controllerId"] == 1
    relay.close()
    assert listener.close(DEADLINE_S)


def test_a_manager_that_is_away_ends_the_clients_connection(name: str) -> None:
    with client_of(Door(Relay(name))) as client:
        client.send(LIST_PARTITION_REASSIGNMENTS, 0, timeoutMs=1, topics=None)
        assert client.received(1) == b""
        wait_for(lambda: client.ended is not None)
    assert isinstance(client.ended, RelayAway)


def test_a_client_that_gives_up_while_the_manager_hangs_is_waited_with_and_not_for(
    name: str,
) -> None:
    with closing(listen_unix(name)) as listening:
        listening.settimeout(DEADLINE_S)
        with client_of(Door(Relay(name))) as client:
            client.send(LIST_PARTITION_REASSIGNMENTS, 0, timeoutMs=1, topics=None)
            hanging, _ = listening.accept()
            with hanging:
                client.close()
                wait_for(lambda: client.ended is not None)
        assert isinstance(client.ended, PeerGone)


def test_a_request_in_hand_is_answered_though_this_side_stops(name: str) -> None:
    """A topic may be deleted by way of its own LogActor."""
    with closing(listen_unix(name)) as listening, connected() as (ours, peer):
        listening.settimeout(DEADLINE_S)
        room = Room()
        connection = Connection(ours, Frames(ours, room), Door(Relay(name)))
        with beside(connection.serve):
            client = Client(peer)
            number = client.send(LIST_PARTITION_REASSIGNMENTS, 0, timeoutMs=1, topics=None)
            slow, _ = listening.accept()
            with slow:
                slow.settimeout(DEADLINE_S)
                asked = received(slow, int.from_bytes(received(slow, 4), "big"))
                connection.stop()
                answered = answer(
                    parse(asked),
                    {"throttleTimeMs": 0, "errorCode": 0, "errorMessage": None, "topics": []},
                )
                slow.sendall(answered)
                assert client.receive(LIST_PARTITION_REASSIGNMENTS, 0, number)["topics"] == []


def test_a_manager_that_takes_no_connection_is_given_up(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "_PATIENCE", struct.pack("@ll", 0, 1000))
    with closing(listen_unix(name)) as listening, ExitStack() as waiting:
        listening.listen(0)
        for _ in range(2):  # its queue is full then
            one = waiting.enter_context(socket.socket(socket.AF_UNIX))
            one.setblocking(False)
            with suppress(BlockingIOError):
                one.connect(unix_address(name))
        with client_of(Door(Relay(name))) as client:
            client.send(LIST_PARTITION_REASSIGNMENTS, 0, timeoutMs=1, topics=None)
            assert client.received(1) == b""
            wait_for(lambda: client.ended is not None)
    assert isinstance(client.ended, RelayAway)


class Hanging:
    """A LogManager that has answered, and then hangs; what its clock says."""

    def __init__(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self.now_s = 100.0
        self.relay = Relay(name, lambda: self.now_s)
        self.name = name
        self.silent: socket.socket | None = None

    def hang(self, listener: Acceptor) -> None:
        assert listener.close(DEADLINE_S)
        self.silent = listen_unix(self.name)
        self._patch.setattr(relay_module, "LOOKUP_MS", 1)

    def was_asked(self) -> bool:
        """Whether it was connected to since the last look."""
        assert self.silent is not None
        self.silent.setblocking(False)
        try:
            self.silent.accept()[0].close()
        except BlockingIOError:
            return False
        return True


def test_while_the_manager_hangs_metadata_are_what_they_were(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener, hanging = manager(name), Hanging(name, monkeypatch)
    with client_of(Door(hanging.relay)) as client:
        before = metadata(client, 12, None)
        hanging.hang(listener)
        assert metadata(client, 12, None) == before
        assert hanging.was_asked()
        assert metadata(client, 12, None) == before
        assert not hanging.was_asked(), "it hangs, as was found just now"
        hanging.now_s += relay_module.HANGING_S
        assert metadata(client, 12, None) == before
        assert hanging.was_asked()
        # Another request has no answer.
        client.send(LIST_PARTITION_REASSIGNMENTS, 0, timeoutMs=1, topics=None)
        assert client.received(1) == b""
        wait_for(lambda: client.ended is not None)
    assert isinstance(client.ended, RelayAway)
    assert hanging.silent is not None
    hanging.silent.close()


def test_so_many_answers_are_remembered_and_no_large_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay_module, "MOST_REMEMBERED_BYTES", 100)
    remembered = Remembered()

    def asked(number: int, api: Api = METADATA) -> Request:
        return Request(api, 12, number, "", memoryview(b"headnumb%d" % (number % 100)), 8)

    for number in range(MOST_REMEMBERED + 1):
        remembered.keep(asked(number), b"numbanswer")
    assert remembered.answer(asked(0)) is None, "the oldest makes room"
    assert remembered.answer(asked(101)) == [b"\0\0\0\x0a", b"\0\0\0\x65", b"answer"]
    remembered.keep(asked(1), b"numbanother")
    remembered.keep(asked(50), b"numb" + bytes(200))
    remembered.keep(asked(51, DESCRIBE_CLUSTER), b"numbanswer")
    assert remembered.answer(asked(50)) is None
    assert remembered.answer(asked(51, DESCRIBE_CLUSTER)) is None
    assert (remembered.answer(asked(1)) or [])[2] == b"another"


@pytest.mark.parametrize("begun", [b"", b"\0\0\0\x40", b"\0\0\0\x40half"])
def test_a_client_that_goes_frees_its_place_though_the_answer_has_begun(begun: bytes) -> None:
    """The LogManager stands still in the middle of it."""
    name = manager_name(random_id(), "a-node")
    with closing(listen_unix(name)) as listening:
        listening.settimeout(DEADLINE_S)
        with client_of(Door(Relay(name))) as client:
            client.send(LIST_PARTITION_REASSIGNMENTS, 0, timeoutMs=1, topics=None)
            hanging, _ = listening.accept()
            with hanging:
                hanging.sendall(begun)
                client.close()
                wait_for(lambda: client.ended is not None, DEADLINE_S, "its place is free")


def test_a_log_manager_that_hangs_in_the_middle_of_an_answer_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay_module, "LOOKUP_MS", 10)
    name = manager_name(random_id(), "a-node")
    with closing(listen_unix(name)) as listening:
        listening.settimeout(DEADLINE_S)
        with client_of(Door(Relay(name))) as client:
            client.send(METADATA, 7, topics=None, allowAutoTopicCreation=False)
            hanging, _ = listening.accept()
            with hanging:
                hanging.sendall(b"\0\0\0\x40half")
                wait_for(lambda: client.ended is not None, DEADLINE_S, "it is given up")
    assert isinstance(client.ended, RelayAway)


def test_a_connection_on_which_an_answer_is_still_to_come_is_not_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next request would get the answer to the one before."""
    monkeypatch.setattr(relay_module, "LOOKUP_MS", 1)
    name = manager_name(random_id(), "a-node")
    relay = Relay(name)
    with closing(listen_unix(name)) as listening:
        listening.settimeout(DEADLINE_S)
        for _ in range(2):
            with client_of(Door(relay)) as client:
                client.send(DESCRIBE_CLUSTER, 0, includeClusterAuthorizedOperations=False)
                hanging, _ = listening.accept()
                with hanging:
                    assert client.received(1) == b"", "it is given up"
