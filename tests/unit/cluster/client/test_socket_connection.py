"""Requests by the sockets of LogActors, and when Ray is asked where they are."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from raylog.actors.errors import (
    ActorAway,
    NotLeader,
    ReadTimedOut,
    RequestTimedOut,
    UnknownLeaderEpoch,
)
from raylog.actors.listeners import LOOPBACK, ON_LOOPBACK
from raylog.actors.messages import DataAddress
from raylog.actors.partition.partition import Partition
from raylog.actors.plane.addresses import listen_tcp, listen_unix, log_name
from raylog.actors.plane.apis.connection import SASL_AUTHENTICATE, SASL_HANDSHAKE
from raylog.actors.plane.apis.groups import LIST_GROUPS
from raylog.actors.plane.door import Door
from raylog.actors.plane.sockets import Entrance, Sockets
from raylog.cluster.client.buffers import Buffers
from raylog.cluster.client.connection import (
    READ_COMMITTED,
    ApiRequest,
    FetchRequest,
    OffsetRequest,
    ProduceRequest,
    TopicMetadata,
)
from raylog.cluster.client.deadlines import Deadlines
from raylog.cluster.client.socket_connection import SocketConnection, logs_of
from raylog.cluster.client.sockets import local_logs, remote_logs
from raylog.cluster.client.sockets.channel import Channel
from raylog.cluster.client.sockets.local_logs import AGAIN_S, AVOID_S, LocalLogs
from raylog.cluster.client.sockets.reactor import Reactor
from raylog.cluster.client.sockets.remote_logs import RemoteLogs
from raylog.storage.errors import CorruptRecord, LogClosed, OffsetOutOfRange, RecordTooLarge
from raylog.storage.names import TopicPartition
from raylog.storage.schemas.types import Value
from raylog.storage.state.properties import id_text, random_id
from raylog.storage.testing.logs import batch
from raylog.storage.testing.waiting import DEADLINE_S, wait_for
from tests.unit.actors.plane.clients import TOPIC, TOPIC_ID, hosts, partition
from tests.unit.actors.plane.peers import framed, received
from tests.unit.cluster.client.test_deadlines import Clock

ID = id_text(TOPIC_ID)
CLOSE_S = 1.0


class ByRay:
    """Ray's side: who asks for an address is kept, and answered by hand."""

    namespace = "a-namespace"

    def __init__(self, cluster_id: str) -> None:
        self.clock = Clock()
        self.deadlines = Deadlines(self.clock, threaded=False)
        self.cluster_id = cluster_id
        self.asked: list[Future[DataAddress]] = []
        self.forgotten: list[tuple[str, int]] = []

    def metadata(self, topic: str, *, timeout_s: float) -> "Future[TopicMetadata]":
        future: Future[TopicMetadata] = Future()
        future.set_result(TopicMetadata(topic, ID, (), 1 << 20, self.cluster_id))
        return future

    def data_address(
        self, partition: TopicPartition, topic_id: str, *, timeout_s: float
    ) -> "Future[DataAddress]":
        self.asked.append(Future())
        return self.asked[-1]

    def broker_id(self, cluster_id: str) -> str:
        return cluster_id

    def forget(self, topic: str, partition: int) -> None:
        self.forgotten.append((topic, partition))


class World:
    """A connection, and one partition that is served by socket."""

    def __init__(self, folder: Path) -> None:
        self.cluster_id = random_id()
        self.by_ray = ByRay(self.cluster_id)
        self.clock = self.by_ray.clock
        self.folder = folder
        self.failures: list[BaseException] = []
        self.sockets: Sockets | None = None
        self.partition: Partition | None = None
        reactor, buffers = Reactor(), Buffers()
        self.logs = LocalLogs(self.cluster_id, reactor, buffers, self.clock)
        self.remote = RemoteLogs(reactor, buffers)
        self.connection = self.connect()
        self.connection.metadata(TOPIC, timeout_s=1)

    def connect(self) -> SocketConnection:
        """A connection of this process that does not know its cluster yet."""
        return SocketConnection(
            self.by_ray,  # type: ignore[arg-type]
            logs_of={self.cluster_id: self.logs}.__getitem__,
            remote=self.remote,
        )

    @property
    def asked(self) -> int:
        """How often Ray was asked for an address."""
        return len(self.by_ray.asked)

    def answer(self, outcome: DataAddress | Exception | None = None) -> None:
        """Answer who asked last: by default with where the partition is served by TCP."""
        asked = self.by_ray.asked[-1]
        if isinstance(outcome, Exception):
            asked.set_exception(outcome)
        else:
            asked.set_result(outcome or self.address())

    def address(self) -> DataAddress:
        assert self.sockets is not None
        port, token = self.sockets.open_inner(LOOPBACK)
        return DataAddress(LOOPBACK, port, token)

    @property
    def name(self) -> str:
        return log_name(self.cluster_id, ID, 0)

    def serve(self, **config: Any) -> Partition:
        served = self.serve_elsewhere(**config)
        assert self.sockets is not None
        self.sockets.keep_up(None)
        return served

    def serve_elsewhere(self, **config: Any) -> Partition:
        """By no name."""
        self.partition = self.partition or partition(self.folder, **config)
        door = Door(lambda request, parking: (), hosts(self.partition))
        self.sockets = Sockets([Entrance(ON_LOOPBACK, door, self.name)], self.failures.append)
        return self.partition

    def stop(self) -> None:
        if self.sockets is not None:
            assert self.sockets.close(DEADLINE_S)
            self.sockets = None

    def produce(self, records: Any = None, topic_id: str = ID) -> "Future[Any]":
        content = batch() if records is None else records
        request = ProduceRequest(TOPIC, topic_id, 0, content)
        return self.connection.produce(request, timeout_s=30)

    def fetch(self, offset: int = 0, **fields: Any) -> "Future[Any]":
        known = {"max_bytes": 1 << 20, **fields}
        return self.connection.fetch(FetchRequest(TOPIC, ID, 0, -1, offset, **known), timeout_s=30)

    def list_offset(self, timestamp: int) -> "Future[Any]":
        request = OffsetRequest(TOPIC, ID, 0, -1, timestamp)
        return self.connection.list_offset(request, timeout_s=30)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.stop()
    assert made.failures == []


def error_of(future: "Future[Any]") -> BaseException:
    error = future.exception(DEADLINE_S)
    assert error is not None
    return error


def test_batches_are_produced_and_fetched(world: World) -> None:
    world.serve()
    first, second = batch(2), batch()
    answers = [world.produce(content).result(DEADLINE_S) for content in (first, second)]
    assert [answer.base_offset for answer in answers] == [0, 2]
    assert (answers[0].log_append_time, answers[0].log_start_offset) == (-1, 0)
    found = world.fetch().result(DEADLINE_S)
    assert (found.high_watermark, found.log_start_offset, found.last_stable_offset) == (3, 0, 3)
    assert (found.end_offset, found.leader_epoch, found.diverging) == (3, 0, None)
    assert found.aborted is None
    content = bytes(found.read())
    assert len(content) == len(first) + len(second)
    assert content.endswith(bytes(second)[8 + 4 + 4 :])  # but for what the log has stamped
    nothing = world.fetch(3).result(DEADLINE_S)
    assert (nothing.read(), nothing.end_offset) == (None, -1)
    assert world.asked == 0


def test_readers_of_committed_records_are_told_what_was_aborted(world: World) -> None:
    world.serve()
    world.produce().result(DEADLINE_S)
    assert world.fetch(isolation=READ_COMMITTED).result(DEADLINE_S).aborted == ()


@pytest.mark.parametrize("kind", [bytes, np.frombuffer])
def test_large_batches_go_both_ways(world: World, kind: Callable[[Any], Any]) -> None:
    world.serve(max_message_bytes=8 << 20)
    large = batch(5, value=b"x" * (1 << 20))
    sent = bytes(large) if kind is bytes else np.frombuffer(large, np.uint8)
    futures = [world.produce(sent) for _ in range(3)]
    assert [future.result(DEADLINE_S).base_offset for future in futures] == [0, 5, 10]
    found = world.fetch(5, max_bytes=2 * len(large)).result(DEADLINE_S)
    content = found.read()
    assert len(content) == 2 * len(large)
    assert bytes(content[-(1 << 20) :]) == bytes(large)[-(1 << 20) :]


def test_errors_come_with_their_words(world: World) -> None:
    served = world.serve(max_message_bytes=1000)
    too_large = error_of(world.produce(batch(value=b"x" * 2000)))
    assert isinstance(too_large, RecordTooLarge)
    assert too_large.max_bytes == 1000
    wrong = bytearray(batch())
    wrong[-1] ^= 1
    assert isinstance(error_of(world.produce(wrong)), CorruptRecord)
    beyond = error_of(world.fetch(7))
    assert isinstance(beyond, OffsetOutOfRange)
    with pytest.raises(OffsetOutOfRange) as raised:
        served.fetch(7)
    assert str(beyond) == str(raised.value)
    served.close()
    for asked in (world.produce(), world.fetch(), world.list_offset(-1)):
        assert isinstance(error_of(asked), LogClosed)


def test_an_epoch_that_is_not_the_logs_is_told_in_words(world: World) -> None:
    """A list of offsets goes by the metadata, which may be of before a restart."""
    served = world.serve()
    newer = served.leader_epoch + 1
    asked = OffsetRequest(TOPIC, ID, 0, newer, -1)
    listed = error_of(world.connection.list_offset(asked, timeout_s=30))
    assert isinstance(listed, UnknownLeaderEpoch)
    fetched = FetchRequest(TOPIC, ID, 0, newer, 0, max_bytes=1000)
    error = error_of(world.connection.fetch(fetched, timeout_s=30))
    assert isinstance(error, UnknownLeaderEpoch)
    assert (error.partition, error.leader_epoch, error.served_leader_epoch) == (
        f"{TOPIC}-0",
        newer,
        served.leader_epoch,
    )


def test_offsets_by_time(world: World) -> None:
    world.serve()
    world.produce(batch(timestamp=500)).result(DEADLINE_S)
    assert world.list_offset(400).result(DEADLINE_S) == (0, 500, 0)
    assert world.list_offset(600).result(DEADLINE_S) == (-1, -1, -1)
    assert world.list_offset(-1).result(DEADLINE_S).offset == 1


def test_any_request_is_asked_of_a_partitions_process(world: World) -> None:
    world.serve()
    body: Value = {"statesFilter": [], "typesFilter": []}
    for may_wait in (False, True):
        request = ApiRequest(TOPIC, ID, 0, LIST_GROUPS, body, may_wait)
        answer = world.connection.ask(request, timeout_s=DEADLINE_S).result(DEADLINE_S)
        assert (answer["errorCode"], answer["groups"]) == (0, [])
    assert world.asked == 0


def test_a_pause_ends_by_the_deadlines_clock(world: World) -> None:
    rung: list[int] = []
    world.connection.call_later(5, lambda: rung.append(1))
    world.by_ray.deadlines.expire()
    assert rung == []
    world.clock.now_s += 6
    world.by_ray.deadlines.expire()
    assert rung == [1]


def test_a_fetch_that_waits_holds_up_nothing(world: World) -> None:
    world.serve()
    waiting = [world.fetch(max_wait_ms=30_000) for _ in range(3)]
    assert world.list_offset(-1).result(DEADLINE_S).offset == 0
    assert not any(future.done() for future in waiting)
    world.produce().result(DEADLINE_S)
    assert [future.result(DEADLINE_S).high_watermark for future in waiting] == [1, 1, 1]
    # Their channels are used again.
    assert world.sockets is not None
    opened = world.sockets.connections
    again = [world.fetch(max_wait_ms=30_000) for _ in range(3)]
    assert [future.result(DEADLINE_S).high_watermark for future in again] == [1, 1, 1]
    assert world.sockets.connections == opened


def test_many_requests_to_a_partition_are_on_their_way_at_once(world: World) -> None:
    world.serve()
    produced = [world.produce() for _ in range(world.connection.max_in_flight)]
    assert [future.result(DEADLINE_S).base_offset for future in produced] == [0, 1, 2, 3, 4]


# -- partitions of other machines ------------------------------------------------------------------


def test_who_is_not_found_by_name_tells_by_ray_where_it_listens(world: World) -> None:
    world.serve_elsewhere()
    produced = [world.produce() for _ in range(3)]
    listed, fetched = world.list_offset(-1), world.fetch(max_wait_ms=30_000)
    assert world.asked == 1, "once for all of them"
    world.answer()
    assert [future.result(DEADLINE_S).base_offset for future in produced] == [0, 1, 2]
    assert listed.result(DEADLINE_S).offset == 3
    assert fetched.result(DEADLINE_S).log_start_offset == 0
    waiting = world.fetch(3, max_wait_ms=30_000)
    world.produce().result(DEADLINE_S)
    assert waiting.result(DEADLINE_S).high_watermark == 4
    assert world.asked == 1


def test_why_nobody_serves_is_what_all_who_wait_hear(world: World) -> None:
    waiting = [world.produce(), world.fetch(max_wait_ms=5), world.list_offset(-1)]
    why = NotLeader(TOPIC, "it is starting")
    world.answer(why)
    assert [future.exception(0) for future in waiting] == [why] * 3
    world.produce()
    assert world.asked == 2


def test_what_has_no_time_left_when_the_address_is_known_is_not_sent(world: World) -> None:
    world.serve_elsewhere()
    late = world.produce()
    world.clock.now_s += 30
    in_time = world.produce()
    world.by_ray.deadlines.expire()
    assert isinstance(error_of(late), RequestTimedOut)
    world.answer()
    assert in_time.result(DEADLINE_S).base_offset == 0


def test_a_wrong_token_lets_nobody_in_and_the_address_is_asked_for_again(world: World) -> None:
    world.serve_elsewhere()
    produced = [world.produce(), world.produce()]
    world.answer(world.address()._replace(token="of another life"))
    for future in produced:
        error = error_of(future)
        assert isinstance(error, ActorAway)
        assert "authentication failed" in str(error)
    again = world.produce()
    assert world.asked == 2
    world.answer()
    assert again.result(DEADLINE_S).base_offset == 0


def test_an_address_where_nobody_listens_any_more_is_asked_for_again(world: World) -> None:
    world.serve_elsewhere()
    address = world.address()
    world.stop()
    produced = world.produce()
    world.answer(address)
    assert isinstance(error_of(produced), ActorAway)
    world.serve_elsewhere()
    again = world.produce()
    assert world.asked == 2
    world.answer()
    assert again.result(DEADLINE_S).base_offset == 0


def test_an_address_that_leads_nowhere_fails_at_once(world: World) -> None:
    produced = world.produce()
    world.answer(DataAddress("255.255.255.255", 9, "token"))
    assert isinstance(error_of(produced), ActorAway)


def test_somebody_else_at_the_port_is_told_apart(world: World) -> None:
    """He does not know the token: nothing is sent to him, and no answer of his is believed."""
    with listen_tcp(LOOPBACK, 0) as other:
        other.settimeout(DEADLINE_S)
        produced = world.produce(batch(value=b"a secret"))
        world.answer(DataAddress(LOOPBACK, other.getsockname()[1], "token"))
        peer, _ = other.accept()
        with peer:
            peer.settimeout(DEADLINE_S)
            for content in (
                SASL_HANDSHAKE.answer.write({"errorCode": 0, "mechanisms": []}, 1),
                authenticated(b"r=%s,s=AAAA,i=4096"),
                authenticated(b"v=AAAA"),
            ):
                request = received(peer, int.from_bytes(received(peer, 4), "big"))
                number, nonce = request[4:8], request.rpartition(b"r=")[2]
                peer.sendall(framed(number + content.replace(b"%s", nonce)))
            assert isinstance(error_of(produced), ActorAway)
            assert received(peer, 1) == b""


def authenticated(token: bytes) -> bytes:
    """The rest of an answer to SaslAuthenticate. A nonce in the token has 32 characters."""
    body = {"errorCode": 0, "errorMessage": None, "authBytes": token, "sessionLifetimeMs": 0}
    content = SASL_AUTHENTICATE.answer.write(body, SASL_AUTHENTICATE.last_version)
    longer = len(token) + (30 if b"%s" in token else 0)
    return b"\0" + content.replace(bytes((len(token) + 1,)) + token, bytes((longer + 1,)) + token)


def test_another_server_at_the_port_is_not_waited_for_and_costs_no_memory(world: World) -> None:
    """What it says first is no size of an answer that a LogActor gives before it is entered."""
    with listen_tcp(LOOPBACK, 0) as other:
        other.settimeout(DEADLINE_S)
        produced = world.produce()
        world.answer(DataAddress(LOOPBACK, other.getsockname()[1], "token"))
        peer, _ = other.accept()
        with peer:
            peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            error = error_of(produced)
    assert isinstance(error, ActorAway)
    assert "cannot be read: a frame of 1213486160 bytes" in str(error)


@pytest.mark.parametrize("how", [OSError(24, "no descriptor"), RuntimeError("no thread")])
def test_a_client_without_descriptors_or_threads_tries_again_and_raises_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, how: Exception
) -> None:
    world.serve()

    def fail(*_: object) -> NoReturn:
        raise how

    is_descriptor = isinstance(how, OSError)
    with monkeypatch.context() as patch:
        if is_descriptor:
            patch.setattr(socket, "socket", fail)
        else:
            patch.setattr(local_logs, "Channel", fail)
            patch.setattr(remote_logs, "Channel", fail)
        produced, fetched = world.produce(), world.fetch(max_wait_ms=5)
        world.answer(DataAddress(LOOPBACK, 9, "token"))
    for future in (produced, fetched):
        error = error_of(future)
        assert isinstance(error, ActorAway)
        assert error.retriable
    world.clock.now_s += AGAIN_S
    assert world.produce().result(DEADLINE_S).base_offset == 0


def test_who_is_started_again_on_this_machine_is_found_by_name(world: World) -> None:
    """Though it was not found there a moment ago."""
    produced = world.produce()
    world.serve()
    world.answer()
    assert produced.result(DEADLINE_S).base_offset == 0
    assert world.sockets is not None
    world.fetch(max_wait_ms=5).result(DEADLINE_S)
    assert not world.remote.knows((ID, 0))
    assert world.asked == 1


def test_before_the_cluster_is_known_ray_is_asked(world: World) -> None:
    world.serve()
    other = world.connect()
    produced = other.produce(ProduceRequest(TOPIC, ID, 0, batch()), timeout_s=1)
    world.answer()
    assert produced.result(DEADLINE_S).base_offset == 0


def test_all_connections_of_a_process_share_the_channels(world: World) -> None:
    """A LogActor has places for a thousand, and a task may connect whenever it runs."""
    world.serve()
    world.produce().result(DEADLINE_S)
    assert world.sockets is not None
    opened = world.sockets.connections
    other = world.connect()
    other.metadata(TOPIC, timeout_s=1)
    request = ProduceRequest(TOPIC, ID, 0, batch())
    assert other.produce(request, timeout_s=30).result(DEADLINE_S).base_offset == 1
    assert (world.sockets.connections, world.asked) == (opened, 0)
    first, second = (logs_of("a-cluster") for _ in range(2))
    assert first is second


def test_a_process_that_was_forked_off_opens_its_own(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its requests, on its parent's sockets, would be in the middle of its parent's."""
    world.serve()
    world.produce().result(DEADLINE_S)
    world.fetch(max_wait_ms=5).result(DEADLINE_S)
    assert world.sockets is not None
    opened = world.sockets.connections
    monkeypatch.setattr(os, "getpid", lambda: -1)
    world.produce().result(DEADLINE_S)
    world.fetch(max_wait_ms=5).result(DEADLINE_S)
    assert world.sockets.connections == 2 * opened


def test_who_is_forgotten_is_looked_for_by_ray_again(world: World) -> None:
    world.connection.forget(TOPIC, 0)
    assert world.by_ray.forgotten == [(TOPIC, 0)]


def test_it_is_of_its_namespace(world: World) -> None:
    """Clients hear by that of partitions that their process adds."""
    assert world.connection.namespace == "a-namespace"


def test_another_topic_of_that_name_is_not_found(world: World) -> None:
    world.serve()
    world.produce(topic_id=random_id())
    assert world.asked == 1


def test_a_process_that_ends_is_told_and_another_is_found(world: World) -> None:
    world.serve()
    waiting = world.fetch(max_wait_ms=30_000)
    world.produce().result(DEADLINE_S)
    waiting.result(DEADLINE_S)
    waiting = world.fetch(1, max_wait_ms=30_000)
    world.stop()
    away = error_of(waiting)
    assert isinstance(away, ActorAway)
    assert away.retriable
    wait_for(lambda: world.fetch().done() or world.asked, DEADLINE_S, "it is noticed")
    world.serve()
    world.clock.now_s += AGAIN_S
    world.by_ray.asked.clear()
    world.connection = world.connect()
    world.connection.metadata(TOPIC, timeout_s=1)
    assert world.fetch().result(DEADLINE_S).high_watermark == 1
    # Neither are the channels used again at which fetches waited.
    assert world.fetch(max_wait_ms=30_000).result(DEADLINE_S).high_watermark == 1
    assert world.asked == 0


class Silent:
    """Takes a partition's name, and what is sent; ``answers`` by hand."""

    def __init__(self, name: str) -> None:
        self.listening = listen_unix(name)
        self.listening.settimeout(DEADLINE_S)

    def accept(self) -> socket.socket:
        connection, _ = self.listening.accept()
        connection.settimeout(DEADLINE_S)
        return connection


@pytest.fixture
def silent(world: World) -> Iterator[Silent]:
    made = Silent(world.name)
    yield made
    made.listening.close()


def test_who_does_not_answer_is_given_up_and_avoided(world: World, silent: Silent) -> None:
    produced, listed = world.produce(), world.list_offset(-1)
    world.clock.now_s += 30
    world.by_ray.deadlines.expire()
    assert type(error_of(produced)) is RequestTimedOut
    # Its own time is up, too, or its channel has ended by then.
    assert isinstance(error_of(listed), ReadTimedOut | ActorAway)
    world.produce()
    world.fetch(max_wait_ms=5)
    assert world.asked == 1
    world.answer(NotLeader(TOPIC, "it hangs"))
    world.produce()
    assert world.asked == 2, "its name is still avoided"
    world.answer(NotLeader(TOPIC, "it hangs"))
    world.clock.now_s += AVOID_S
    world.produce()
    assert world.asked == 2
    silent.accept().close()
    silent.accept().close()


def test_a_fetch_that_times_out_moves_nothing_else_to_tcp(world: World) -> None:
    """Its name is avoided for a while; what is on its way by the channel that lives stays first."""
    world.serve()
    world.produce().result(DEADLINE_S)
    waiting, taken = world.fetch(1, max_wait_ms=30_000), list[Channel | None]()
    waiting.add_done_callback(lambda _: taken.append(world.logs.channels.take((ID, 0))))
    world.clock.now_s += 30
    world.by_ray.deadlines.expire()
    assert isinstance(error_of(waiting), ReadTimedOut)
    assert taken == [None], "nobody is given a channel that ends"
    again = world.fetch(max_wait_ms=5)
    world.answer()
    assert again.result(DEADLINE_S).high_watermark == 1
    assert world.remote.knows((ID, 0))
    assert world.sockets is not None
    opened = world.sockets.connections
    assert world.produce().result(DEADLINE_S).base_offset == 1
    assert world.sockets.connections == opened, "by the Unix socket, as before"


def test_a_socket_that_closes_whoever_comes_is_avoided(world: World, silent: Silent) -> None:
    produced = world.produce()
    silent.accept().close()
    assert isinstance(error_of(produced), ActorAway)
    # It is avoided a moment after its caller has heard of it.
    wait_for(lambda: world.produce() and world.asked, DEADLINE_S, "Ray is asked")
    world.answer(NotLeader(TOPIC, "it is starting"))
    asked = world.asked
    world.clock.now_s += AVOID_S
    world.produce()
    assert world.asked == asked


def test_a_socket_of_another_user_is_not_used(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """He would not be answered there: it is for its user, and for root."""
    world.serve()
    monkeypatch.setattr(local_logs, "user_of", lambda _: os.geteuid() + 1)
    world.produce()
    assert world.asked == 1


def test_a_request_that_is_cancelled_ends_its_channel(world: World, silent: Silent) -> None:
    cancelled, behind = world.fetch(), world.fetch()
    assert cancelled.cancel()
    assert isinstance(error_of(behind), ActorAway)
    with pytest.raises(CancelledError):
        cancelled.result()


def test_a_fetch_that_nobody_waits_for_leaves_its_logactor(world: World) -> None:
    """And says nothing of it: the next goes by its Unix socket, too."""
    world.serve()
    sockets = world.sockets
    assert sockets is not None
    opened = sockets.connections
    parked = world.fetch(max_wait_ms=300_000)
    wait_for(lambda: sockets.connections > opened, DEADLINE_S, "it is there")
    assert parked.cancel()
    wait_for(lambda: sockets.connections == opened, DEADLINE_S, "it has gone")
    assert world.fetch(max_wait_ms=5).result(DEADLINE_S).high_watermark == 0
    assert world.asked == 0


@pytest.mark.parametrize(
    "answer",
    [
        b"\xff\xff\xff\xff",
        framed(b"\0\0\0\1\0"),
        framed(b"\0\0"),
        framed(b"\0\0\0\0\0"),
        framed(b"\0\0\0\0\0" + bytes(40)),
        framed(bytes(5) + b"\xff" * 200),
    ],
)
@pytest.mark.parametrize("ask", [World.produce, World.fetch, lambda world: world.list_offset(-1)])
def test_what_is_no_answer_ends_the_channel(
    world: World, silent: Silent, ask: Callable[[World], "Future[Any]"], answer: bytes
) -> None:
    asked = ask(world)
    with silent.accept() as peer:
        peer.sendall(answer)
        error = error_of(asked)
        assert isinstance(error, ActorAway)
        assert "cannot be read" in str(error)


def test_a_peer_that_takes_no_bytes_holds_up_nobody(world: World, silent: Silent) -> None:
    large = batch(value=b"x" * (1 << 20))
    produced = [world.produce(large) for _ in range(8)]
    with silent.accept() as peer:
        frame_bytes = int.from_bytes(received(peer, 4), "big")
        first = received(peer, frame_bytes)
        assert bytes(large) in first
    for future in produced:
        assert isinstance(error_of(future), ActorAway)


def test_many_threads_ask_at_once(world: World) -> None:
    world.serve()
    offsets: list[int] = []

    def ask() -> None:
        for _ in range(50):
            offsets.append(world.produce().result(DEADLINE_S).base_offset)
            world.fetch(max_wait_ms=5).result(DEADLINE_S)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert sorted(offsets) == list(range(200))
