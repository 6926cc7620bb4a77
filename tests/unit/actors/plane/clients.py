"""A client of Kafka's protocol, one request at a time, and what serves it, without Ray."""

import socket
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from raylog.actors.messages import LogDirStatus
from raylog.actors.partition.partition import Partition
from raylog.actors.plane.apis.api import Api
from raylog.actors.plane.cluster_door import ClusterDoor
from raylog.actors.plane.connection import Connection
from raylog.actors.plane.door import Door
from raylog.actors.plane.hosts import Host, Hosts
from raylog.actors.plane.image import ClusterImage
from raylog.actors.plane.reading import Frames
from raylog.actors.plane.room import Room
from raylog.storage.clock import Clock
from raylog.storage.config import LogConfig
from raylog.storage.errors import RaylogError
from raylog.storage.files import RealFileSystem
from raylog.storage.loader import create_log, open_log
from raylog.storage.names import TopicPartition
from raylog.storage.schemas.types import Value
from raylog.storage.state.properties import id_text
from raylog.storage.testing.clock import ManualClock
from raylog.storage.testing.waiting import DEADLINE_S
from tests.unit.actors.plane.peers import SIZE, framed, received

TOPIC, TOPIC_ID = "orders", uuid.UUID("e5e19dbb-a3d5-4914-be9b-cc4772e5cf3f")
CLIENT = b"\0\4test"


def partition(
    folder: Path, number: int = 0, clock: Clock | None = None, **config: Any
) -> Partition:
    """A partition on a real disk, whose files can be sent."""
    clock = clock or ManualClock()
    fs, path = RealFileSystem(), str(folder / f"{TOPIC}-{number}")
    name = TopicPartition(TOPIC, number)
    create_log(fs, path, id_text(TOPIC_ID))
    return Partition(open_log(fs, clock, path, name, LogConfig(**config), is_clean=True), clock)


def hosts(*partitions: Partition) -> Hosts:
    return Hosts(
        Host(TOPIC, TOPIC_ID.bytes, number, one, one.delete_records)
        for number, one in enumerate(partitions)
    )


class FakeController:
    """Gives producer ids, as the Controller would, and one answer to all frames.

    ``problem``: why it does nothing. ``asked``: the frames, each with its seconds. ``changes``:
    those of them that were commands.
    """

    def __init__(self) -> None:
        self.next_id = 1000
        self.problem: RaylogError | None = None
        self.answer = b""
        self.asked: list[tuple[bytes, float]] = []
        self.changes = 0

    def answer_command(self, frame: bytes, timeout_s: float) -> bytes:
        self.changes += 1
        return self.answer_lookup(frame, timeout_s)

    def answer_lookup(self, frame: bytes, timeout_s: float) -> bytes:
        self.asked.append((frame, timeout_s))
        if self.problem is not None:
            raise self.problem
        return self.answer

    def allocate_producer_id(self) -> int:
        if self.problem is not None:
            raise self.problem
        self.next_id += 1
        return self.next_id


def cluster_door(
    image: ClusterImage | None = None,
    controller: FakeController | None = None,
    log_dirs: Sequence[LogDirStatus] = (),
) -> Door:
    """What a LogManager answers."""
    return Door(ClusterDoor(controller or FakeController(), lambda: log_dirs, image))


class Client:
    """One connection. ``ended``: why the server ended it, once it has."""

    def __init__(self, peer: socket.socket) -> None:
        self._peer = peer
        self._number = 0
        self.ended: RaylogError | None = None

    def send(self, api: Api, version: int, **body: Any) -> int:
        """Send a request; returns its correlation id."""
        self._number += 1
        tags = b"\0" if api.is_flexible(version) else b""
        head = b"".join(
            number.to_bytes(size, "big")
            for number, size in ((api.key, 2), (version, 2), (self._number, 4))
        )
        content = head + CLIENT + tags + api.request.write(body, version)
        self._peer.sendall(framed(content))
        return self._number

    def receive(self, api: Api, version: int, correlation_id: int) -> Value:
        """The next answer."""
        (size_bytes,) = SIZE.unpack(received(self._peer, SIZE.size))
        content = received(self._peer, size_bytes)
        assert int.from_bytes(content[:4], "big") == correlation_id
        start = 4 + api.answer_header_version(version)
        return api.answer.read(content[start:], version)

    def ask(self, api: Api, version: int, **body: Any) -> Value:
        told: Value = self.receive(api, version, self.send(api, version, **body))
        assert told.get("throttleTimeMs", 0) == 0, "nobody is throttled"
        return told

    def send_raw(self, content: bytes) -> None:
        self._peer.sendall(content)

    def received(self, size_bytes: int) -> bytes:
        return received(self._peer, size_bytes)

    def close(self) -> None:
        self._peer.close()


@contextmanager
def client_of(door: Door) -> Iterator[Client]:
    """A client, and a connection that serves it until it ends."""
    room = Room()
    ours, peer = socket.socketpair()
    peer.settimeout(DEADLINE_S)
    client = Client(peer)
    connection = Connection(ours, Frames(ours, room), door)

    def serve() -> None:
        client.ended = connection.serve()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield client
    client.close()
    connection.stop()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    assert room.used_bytes == 0
