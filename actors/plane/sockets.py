"""The sockets of one process: where it listens, and everything that comes by it.

All of its connections share the room for requests (``room.py``). One that ends for a reason becomes
a line of the log.
"""

import logging
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from raylog.actors.cluster_image import Endpoint
from raylog.actors.events import event, warn
from raylog.actors.listeners import MAX_CONNECTIONS, ON_LOOPBACK, Listener
from raylog.actors.metrics import Exporter
from raylog.actors.plane.addresses import listen_tcp, listen_together, listen_unix
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


class Entrance:
    """Where clients come in, and who answers them there."""

    def __init__(self, listener: Listener, answer: Answering, name: str = "") -> None:
        """``name``: by which processes of this node come, to the same answers; empty: none."""
        self.listener, self.answer, self.name = listener, answer, name
        self.certificates = Certificates(listener)


class Sockets:
    """See the module's head. One thread at a time.

    ``port``: of the first entrance, for Kafka's clients; 0: not yet. ``Listener.distance`` says how
    far behind it the others are.
    """

    def __init__(
        self,
        entrances: Sequence[Entrance],
        on_failure: Callable[[BaseException], object],
        *,
        verifier_of: VerifierOf = lambda mechanism, user: None,
        room: Room | None = None,
    ) -> None:
        """``on_failure``: hears of an error that is not raylog's.

        ``verifier_of``: of a mechanism and a user.
        """
        self._entrances, self._verifier_of = tuple(entrances), verifier_of
        self._on_failure = on_failure
        self._room = room or Room()
        self._meters = SocketMeters()
        self._listeners: list[Acceptor] = []
        self._named: set[str] = set()
        self._is_closed = False
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
        for entrance in self._entrances:
            try:
                self._listen_by_name(entrance)
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

    @property
    def _name(self) -> str:
        return self._entrances[0].name

    def _listen_by_name(self, entrance: Entrance) -> None:
        """Raises AddressTaken and AcceptFailed."""
        if entrance.name and entrance.name not in self._named:
            self._listen(listen_unix(entrance.name), partial(self._begin, entrance))
            self._named.add(entrance.name)

    def _listen_tcp(self, port: int) -> int:
        """Listen at this port, or at another; returns which. Raises AddressTaken, AcceptFailed."""
        places = [(one.listener.host, one.listener.distance) for one in self._entrances]
        try:
            listening = listen_together(places, port)
        except AddressTaken as error:
            warn(logger, "port-taken", at=self._name, port=port, why=error)
            listening = listen_together(places, 0)
        begun: list[Acceptor] = []
        try:
            for entrance, one in zip(self._entrances, listening, strict=True):
                begun.append(self._listen_at(entrance, one))
        except AcceptFailed:  # all of them or none, since clients are told of all
            self._listeners = [one for one in self._listeners if one not in begun]
            for acceptor in begun:
                acceptor.close(0)
            for one in listening[len(begun) :]:
                one.close()
            raise
        return int(listening[0].getsockname()[1])

    def _listen_at(self, entrance: Entrance, listening: socket.socket) -> Acceptor:
        """Raises AcceptFailed."""
        listener, port = entrance.listener, int(listening.getsockname()[1])
        acceptor = self._listen(
            listening,
            partial(self._begin_outer, entrance),
            at=f"{listener.host}:{port}",
            max_connections=listener.max_connections,
        )
        event(
            logger,
            "listening",
            listener=listener.name,
            protocol=listener.protocol,
            host=listener.host,
            port=port,
        )
        return acceptor

    @property
    def is_everywhere(self) -> bool:
        """Whether it listens by its name and at its port."""
        return self.port > 0 and all(
            not one.name or one.name in self._named for one in self._entrances
        )

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
        begin: Callable[[socket.socket], Served],
        *,
        at: str = "",
        max_connections: int = MAX_CONNECTIONS,
    ) -> Acceptor:
        """Serve who comes by this socket. ``at``: as the log says it. Raises AcceptFailed."""
        ended = partial(self._ended, at or self._name)
        try:
            acceptor = Acceptor(
                listening,
                begin,
                ended,
                self._on_failure,
                max_connections=max_connections,
            )
        except RuntimeError as error:  # the system has no more threads
            listening.close()
            raise AcceptFailed(str(error)) from None
        self._listeners.append(acceptor)
        return acceptor

    def _begin(self, entrance: Entrance, accepted: socket.socket) -> Connection:
        """For a process of this node."""
        note = self._meters.requests.append
        return Connection(accepted, Frames(accepted, self._room), entrance.answer, note)

    def _begin_outer(self, entrance: Entrance, accepted: socket.socket) -> Served:
        """For a client of Kafka's."""
        begin = partial(self._begin_asking, entrance)
        if entrance.listener.is_encrypted:
            return Secured(accepted, entrance.certificates, begin)
        return begin(accepted)

    def _begin_asking(self, entrance: Entrance, accepted: socket.socket) -> Connection:
        """The same, once what is said cannot be heard by others, where it shall not be."""
        listener = entrance.listener
        if listener.asks_for_a_user:
            mechanisms = exchanges(listener, self._verifier_of)
            return self._guarded(accepted, entrance.answer, mechanisms, listener)
        frames = Frames(accepted, self._room, max_frame_bytes=listener.max_frame_bytes)
        note, most_ms = self._meters.requests.append, listener.max_idle_ms
        return Connection(accepted, frames, entrance.answer, note, max_idle_ms=most_ms)

    def _begin_guarded(self, token: Token, accepted: socket.socket) -> Connection:
        """For a client of raylog's own."""
        answer = self._entrances[0].answer
        return self._guarded(accepted, answer, {MECHANISM: token.exchange}, ON_LOOPBACK)

    def _guarded(
        self,
        accepted: socket.socket,
        answer: Answering,
        mechanisms: Mapping[str, Callable[[], Exchange]],
        limits: Listener,
    ) -> Connection:
        """A connection that asks who comes. ``limits``: of who has said it."""
        frames = Frames(accepted, self._strangers, max_frame_bytes=STRANGER_BYTES)

        def trust() -> None:
            frames.max_frame_bytes, frames.room = limits.max_frame_bytes, self._room
            connection.trust(limits.max_idle_ms)

        gate = Gate(answer, mechanisms, trust)
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
