import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from raylog.actors.plane import listener as listener_module
from raylog.actors.plane.addresses import (
    listen_tcp,
    listen_unix,
    log_name,
    manager_name,
    unix_address,
)
from raylog.actors.plane.connection import Answering, Connection
from raylog.actors.plane.errors import AddressTaken, StrangeUser
from raylog.actors.plane.listener import Acceptor
from raylog.actors.plane.parking import Parking
from raylog.actors.plane.reading import Frames
from raylog.actors.plane.room import Room
from raylog.actors.plane.sending import Piece
from raylog.storage.errors import RaylogError
from raylog.storage.state.properties import random_id
from raylog.storage.testing.waiting import DEADLINE_S, wait_for
from tests.unit.actors.plane.peers import framed, received


def echo(frames: Sequence[bytearray], parking: Parking) -> Sequence[Piece]:
    return [bytes(frames[0])]


class Server:
    """A listener whose ends and failures are kept."""

    def __init__(self, listening: socket.socket, answer: Answering, max_connections: int) -> None:
        self.ended: list[RaylogError] = []
        self.failures: list[BaseException] = []
        self._answer, self._room = answer, Room()
        self.listener = Acceptor(
            listening,
            self._begin,
            self.ended.append,
            self.failures.append,
            max_connections=max_connections,
        )

    def _begin(self, accepted: socket.socket) -> Connection:
        return Connection(accepted, Frames(accepted, self._room), self._answer)


@contextmanager
def serving(
    listening: socket.socket, answer: Answering = echo, max_connections: int = 10
) -> Iterator[Server]:
    server = Server(listening, answer, max_connections)
    yield server
    assert server.listener.close(DEADLINE_S)


def asked(connection: socket.socket, content: bytes) -> bytes:
    connection.settimeout(DEADLINE_S)
    connection.sendall(framed(content))
    return received(connection, len(content))


def unix_connection(name: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(unix_address(name))
    return connection


def test_many_connections_are_answered_beside_each_other() -> None:
    listening = listen_tcp("127.0.0.1", 0)
    with serving(listening) as server:
        address = listening.getsockname()
        clients = [socket.create_connection(address) for _ in range(5)]
        for round_number in (1, 2):
            for number, client in enumerate(clients):
                content = b"%d of %d" % (number, round_number)
                assert asked(client, content) == content
        assert server.listener.connections == 5
        for client in clients:
            client.close()
        wait_for(lambda: server.listener.connections == 0)
    assert (server.ended, server.failures) == ([], [])


def test_who_is_too_many_waits_until_another_has_ended() -> None:
    listening = listen_tcp("127.0.0.1", 0)
    with serving(listening, max_connections=1) as server:
        first = socket.create_connection(listening.getsockname())
        assert asked(first, b"x") == b"x"
        second = socket.create_connection(listening.getsockname())
        second.sendall(framed(b"y"))
        assert server.listener.connections == 1
        first.close()
        second.settimeout(DEADLINE_S)
        with second:
            assert received(second, 1) == b"y"


def test_what_ended_a_connection_is_told() -> None:
    listening = listen_tcp("127.0.0.1", 0)
    address = listening.getsockname()
    with serving(listening) as server, socket.create_connection(address) as client:
        client.sendall(b"\xff\xff\xff\xff")
        wait_for(lambda: len(server.ended) == 1)
    assert "-1 bytes" in str(server.ended[0])


def test_an_error_that_nobody_expected_is_told_apart() -> None:
    def fail(frames: Sequence[bytearray], parking: Parking) -> Sequence[Piece]:
        raise ZeroDivisionError

    listening = listen_tcp("127.0.0.1", 0)
    address = listening.getsockname()
    with serving(listening, fail) as server, socket.create_connection(address) as client:
        client.sendall(framed(b"x"))
        wait_for(lambda: len(server.failures) == 1)
    assert isinstance(server.failures[0], ZeroDivisionError)


def test_closing_ends_silent_connections_and_lets_nobody_in() -> None:
    listening = listen_tcp("127.0.0.1", 0)
    address = listening.getsockname()
    with serving(listening):
        client = socket.create_connection(address)
        assert asked(client, b"x") == b"x"
    with client:
        assert received(client, 1) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)


def test_closing_says_when_somebody_does_not_end() -> None:
    is_in_hand, may_finish = threading.Event(), threading.Event()

    def slow(frames: Sequence[bytearray], parking: Parking) -> Sequence[Piece]:
        is_in_hand.set()
        assert may_finish.wait(DEADLINE_S)
        return [b"done"]

    listening = listen_tcp("127.0.0.1", 0)
    server = Server(listening, slow, 10)
    with socket.create_connection(listening.getsockname()) as client:
        client.sendall(framed(b"x"))
        assert is_in_hand.wait(DEADLINE_S)
        assert not server.listener.close(0.01)
        may_finish.set()
        client.settimeout(DEADLINE_S)
        assert received(client, 10) == b"done"
        wait_for(lambda: server.listener.connections == 0)


@pytest.fixture
def name() -> str:
    """Nobody else's."""
    return log_name(random_id(), random_id(), 0)


def test_a_unix_socket_is_for_its_own_user_alone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(listen_unix(name)) as server:
        with unix_connection(name) as client:
            assert asked(client, b"own user") == b"own user"
        monkeypatch.setattr(listener_module, "user_of", lambda _: 12345)
        with unix_connection(name) as client:
            assert received(client, 1) == b""
            wait_for(lambda: len(server.ended) == 1)
    assert isinstance(server.ended[0], StrangeUser)


def test_the_name_of_a_process_that_has_ended_is_free(name: str) -> None:
    listen_unix(name).close()
    with serving(listen_unix(name)), unix_connection(name) as client:
        assert asked(client, b"x") == b"x"


def test_a_living_listener_is_not_pushed_aside(name: str) -> None:
    with serving(listen_unix(name)), pytest.raises(AddressTaken, match="in use"):
        listen_unix(name)


def test_a_name_that_is_too_long_is_refused_by_name() -> None:
    with pytest.raises(AddressTaken, match="107 bytes"):
        listen_unix("x" * 108)


def test_the_longest_names_of_a_cluster_fit() -> None:
    node_of_ray = "f" * 56
    for longest in (manager_name(random_id(), node_of_ray), log_name(random_id(), random_id(), 1)):
        listen_unix(longest).close()


def test_a_port_that_is_taken_is_named() -> None:
    with listen_tcp("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(AddressTaken, match=f"127.0.0.1:{port}"):
            listen_tcp("127.0.0.1", port)


def test_a_host_that_is_not_known_is_named() -> None:
    with pytest.raises(AddressTaken, match=r"nowhere\.invalid"):
        listen_tcp("nowhere.invalid", 0)
