"""The sockets of one process: where it listens, and everything that comes by it.

All of its connections share the room for requests (``room.py``). One that ends for a reason becomes
a line of the log.
"""

import logging
import socket
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from raylog.actors.cluster_image import Endpoint
from raylog.actors.events import event, warn
from raylog.actors.listeners import MAX_CONNECTIONS, ON_LOOPBACK, Listener
from raylog.actors.metrics import Exporter
from raylog.actors.plane.addresses import listen_tcp, listen_unix
from raylog.actors.plane.connection import Answering, Connection
from raylog.actors.plane.errors import AcceptFailed, AddressTaken
from raylog.actors.plane.inner import MECHANISM, Token
from raylog.actors.plane.listener import Acceptor, Served
from raylog.actors.plane.meters import SocketMeters
from raylog.actors.plane.reading import Frames
from raylog.actors.plane.room import Room
from raylog.actors.plane.sasl.gate import Exchange, Gate
from raylog.actors.plane.tls import Certificates, Secured
from raylog.actors.plane.users import VerifierOf, exchanges
from raylog.storage.errors import RaylogError

logger = logging.getLogger(__name__)

# Of who has not said yet who it is: frames of so many bytes, ten times of what it needs, in a room
# of their own, so that they take none of those who are known; and so long a silence.
STRANGER_BYTES: Final = 4 << 10
STRANGERS_BYTES: Final = 8 << 20
STRANGER_IDLE_MS: Final = 30_000


class Sockets:
    """See the module's head. One thread at a time. ``port``: for Kafka's clients; 0: not yet."""

    def __init__(
        self,
        name: str,
        answer: Answering,
        on_failure: Callable[[BaseException], object],
        *,
        listener: Listener = ON_LOOPBACK,
        verifier_of: VerifierOf = lambda mechanism, user: None,
        room: Room | None = None,
    ) -> None:
        """``name``: for the processes of this node. ``answer``: answers the requests.

        ``on_failure``: hears of an error that is not raylog's. ``listener``: for Kafka's clients;
        by default that of the loopback. ``verifier_of``: of a mechanism and a user.
        """
        self._listener = listener
        self._verifier_of = verifier_of
        self._certificates = Certificates(self._listener)
        self._name, self._answer, self._on_failure = name, answer, on_failure
        self._room = room or Room()
        self._meters = SocketMeters()
        self._listeners: list[Acceptor] = []
        self._is_named = self._is_closed = False
        self._told = ""  # why it could not listen last
        self._opening = threading.Lock()
        self._token: Token | None = None
        self._inner_ports: dict[str, int] = {}  # by the address
        self._strangers = Room(STRANGERS_BYTES)
        self.port = 0

    def keep_up(self, endpoint: Endpoint | None) -> None:
        """Listen where it does not do so yet; nothing is raised.

        ``endpoint``: None while nobody knows it. A port that somebody else has is replaced by any
        that is free.
        """
        if self._is_closed:
            return
        why = ""
        try:
            if not self._is_named:
                self._listen(listen_unix(self._name))
                self._is_named = True
        except (AcceptFailed, AddressTaken) as error:  # the port is opened all the same
            why = str(error)
        try:
            if endpoint is not None and not self.port:
                self.port = self._listen_tcp(endpoint.port)
        except (AcceptFailed, AddressTaken) as error:
            why = str(error)
        if why not in ("", self._told):
            warn(logger, "not-listening", at=self._name, why=why)
        self._told = why

    def _listen_tcp(self, port: int) -> int:
        """Listen at this port, or at another; returns which. Raises AddressTaken."""
        host, protocol = self._listener.host, self._listener.protocol
        try:
            listening = listen_tcp(host, port)
        except AddressTaken as error:
            warn(logger, "port-taken", at=self._name, port=port, why=error)
            listening = listen_tcp(host, 0)
        port = int(listening.getsockname()[1])
        most = self._listener.max_connections
        self._listen(listening, self._begin_outer, at=f"{host}:{port}", max_connections=most)
        event(logger, "listening", protocol=protocol, host=host, port=port)
        return port

    @property
    def is_everywhere(self) -> bool:
        """Whether it listens by its name and at its port."""
        return self._is_named and self.port > 0

    def open_inner(self, host: str) -> tuple[int, str]:
        """The port at this address for raylog's own clients, and the token that lets them in.

        Any thread. Raises AddressTaken and AcceptFailed.
        """
        with self._opening:
            if self._is_closed:
                raise AcceptFailed("the process is about to end")
            token = self._token = self._token or Token()
            if host not in self._inner_ports:
                listening = listen_tcp(host, 0)
                begin = partial(self._begin_guarded, token)
                self._listen(listening, begin, at=f"{host}:{listening.getsockname()[1]}")
                self._inner_ports[host] = int(listening.getsockname()[1])
                event(logger, "listening", host=host, port=self._inner_ports[host])
            return self._inner_ports[host], token.text

    def _listen(
        self,
        listening: socket.socket,
        begin: Callable[[socket.socket], Served] | None = None,
        *,
        at: str = "",
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        """Serve who comes by this socket. ``at``: as the log says it. Raises AcceptFailed."""
        ended = partial(self._ended, at or self._name)
        try:
            acceptor = Acceptor(
                listening,
                begin or self._begin,
                ended,
                self._on_failure,
                max_connections=max_connections,
            )
        except RuntimeError as error:  # the system has no more threads
            listening.close()
            raise AcceptFailed(str(error)) from None
        self._listeners.append(acceptor)

    def _begin(self, accepted: socket.socket) -> Connection:
        note = self._meters.requests.append
        return Connection(accepted, Frames(accepted, self._room), self._answer, note)

    def _begin_outer(self, accepted: socket.socket) -> Served:
        """For a client of Kafka's."""
        if self._listener.is_encrypted:
            return Secured(accepted, self._certificates, self._begin_asking)
        return self._begin_asking(accepted)

    def _begin_asking(self, accepted: socket.socket) -> Connection:
        """The same, once what is said cannot be heard by others, where it shall not be."""
        listener = self._listener
        if listener.asks_for_a_user:
            return self._guarded(accepted, exchanges(listener, self._verifier_of), listener)
        frames = Frames(accepted, self._room, max_frame_bytes=listener.max_frame_bytes)
        note = self._meters.requests.append
        return Connection(accepted, frames, self._answer, note, max_idle_ms=listener.max_idle_ms)

    def _begin_guarded(self, token: Token, accepted: socket.socket) -> Connection:
        """For a client of raylog's own."""
        return self._guarded(accepted, {MECHANISM: token.exchange}, ON_LOOPBACK)

    def _guarded(
        self,
        accepted: socket.socket,
        mechanisms: Mapping[str, Callable[[], Exchange]],
        limits: Listener,
    ) -> Connection:
        """A connection that asks who comes. ``limits``: of who has said it."""
        frames = Frames(accepted, self._strangers, max_frame_bytes=STRANGER_BYTES)

        def trust() -> None:
            frames.max_frame_bytes, frames.room = limits.max_frame_bytes, self._room
            connection.trust(limits.max_idle_ms)

        gate = Gate(self._answer, mechanisms, trust)
        note = self._meters.requests.append
        connection = Connection(accepted, frames, gate, note, max_idle_ms=STRANGER_IDLE_MS)
        return connection

    @property
    def connections(self) -> int:
        """How many are open."""
        return sum(listener.connections for listener in self._listeners)

    @property
    def used_bytes(self) -> int:
        """Of the requests in hand."""
        return self._room.used_bytes

    @property
    def waiting(self) -> int:
        """How many requests wait for room."""
        return self._room.waiting

    def export(self, exporter: Exporter, name: str) -> None:
        """See ``SocketMeters.export``."""
        self._meters.export(exporter, name, self)

    def _ended(self, at: str, error: RaylogError) -> None:
        self._meters.note_end(error)
        warn(logger, "connection-ended", at=at, why=error)

    def close(self, deadline_s: float) -> bool:
        """Let each connection finish the request in hand, and end; whether all did in time."""
        with self._opening:
            self._is_closed = True
        self._room.close()
        self._strangers.close()
        listeners, self._listeners = self._listeners, []
        are_closed = [listener.close(deadline_s) for listener in listeners]
        return all(are_closed)
