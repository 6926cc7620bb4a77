"""One connection to a LogActor: requests go in order, and so do their answers.

Nobody waits here. A request is sent by the thread that asks, as far as the socket takes it; the
reactor's thread sends what is left, and receives. What a peer cannot have meant (bytes that are no
frame, an answer to another request) ends the connection, as its end does: who has asked is told
why, and does not know whether the request took effect.

A channel may have an entry (``entry.py``): requests of its own that come first. What is asked
meanwhile is held.
"""

import os
import socket
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol

from raylog.actors.plane.sending import MAX_BUFFERS, behind
from raylog.cluster.client.buffers import Buffers
from raylog.cluster.client.sockets.entry import Entry, Pieces
from raylog.cluster.client.sockets.incoming import Incoming
from raylog.cluster.client.sockets.wire import correlation_of
from raylog.storage.limits import MAX_INT

# Of an answer, until it is known that the peer is who it should be.
MOST_ENTRY_BYTES: Final = 4 << 10


class Held(NamedTuple):
    """A request that waits until the channel is entered."""

    pieces_of: Pieces
    take: Callable[[memoryview], None]
    give_up: Callable[[str], None]


class Asked(NamedTuple):
    """A request that is on its way."""

    correlation_id: int
    # Takes the frame of the answer; raises ValueError where it is none.
    take: Callable[[memoryview], None]
    give_up: Callable[[str], None]  # the connection has ended; why


class Watching(Protocol):
    """What the reactor does for a channel."""

    def watch(self, channel: "Channel") -> None: ...

    def want_room(self, channel: "Channel", is_wanted: bool) -> None: ...

    def forget(self, channel: "Channel") -> None: ...


class Channel:
    """See the module's head. ``ask`` and ``end`` are for any thread, the rest for the reactor's."""

    def __init__(
        self,
        connection: socket.socket,
        reactor: Watching,
        buffers: Buffers,
        entry: Entry | None = None,
    ) -> None:
        """``connection``: does not block, and may not be connected yet."""
        self._connection, self._reactor = connection, reactor
        self._incoming = Incoming(connection, buffers)
        self._lock = threading.Lock()
        self._asked: deque[Asked] = deque()
        self._outgoing: list[memoryview] = []
        self._last_id = -1
        self._held: list[Held] | None = None if entry is None else []
        self.has_answered = self.has_ended = False
        reactor.watch(self)
        if entry is not None:
            self._incoming.most_bytes = MOST_ENTRY_BYTES
            self._ask_to_enter(entry, next(entry))

    def fileno(self) -> int:
        return self._connection.fileno()

    def ask(
        self,
        pieces_of: Pieces,
        take: Callable[[memoryview], None],
        give_up: Callable[[str], None],
    ) -> bool:
        """Send a request; ``pieces_of``: its frame, with this correlation id.

        Returns False if the connection had ended before: nothing was sent.
        """
        with self._lock:
            if self.has_ended:
                return False
            if self._held is not None:
                self._held.append(Held(pieces_of, take, give_up))
            else:
                self._ask(pieces_of, take, give_up)
        return True

    def _ask(
        self,
        pieces_of: Pieces,
        take: Callable[[memoryview], None],
        give_up: Callable[[str], None],
    ) -> None:
        """The lock is held."""
        self._last_id = (self._last_id + 1) & MAX_INT
        pieces = [memoryview(piece).cast("B") for piece in pieces_of(self._last_id)]
        self._asked.append(Asked(self._last_id, take, give_up))
        if self._outgoing:
            self._outgoing += pieces
        else:
            self._send(pieces)

    @property
    def is_busy(self) -> bool:
        """Whether a request has no answer yet."""
        return bool(self._asked or self._held)

    def end(self) -> None:
        """End it soon, in the reactor's thread: who waits is told."""
        with self._lock:
            self.has_ended = True
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it has ended

    # -- entering ----------------------------------------------------------------------------------

    def _ask_to_enter(self, entry: Entry, pieces_of: Pieces) -> None:
        with self._lock:
            self._ask(pieces_of, partial(self._go_on, entry), lambda _: None)

    def _go_on(self, entry: Entry, frame: memoryview) -> None:
        """An answer to a request of the entry. Raises ValueError."""
        try:
            self._ask_to_enter(entry, entry.send(frame))
        except StopIteration:
            self._incoming.most_bytes = MAX_INT
            with self._lock:
                held, self._held = self._held or [], None
                for one in held:
                    self._ask(*one)

    # -- the reactor's thread ----------------------------------------------------------------------

    def ready(self, chunk: memoryview, *, has_room: bool) -> None:
        """Its socket has something to read, or has ended; ``has_room``: or takes more.

        ``chunk``: see ``Incoming.receive``.
        """
        try:
            if has_room:
                with self._lock:
                    self._send(self._outgoing)
            for frame in self._incoming.receive(chunk):
                self._answered(frame)
        except BlockingIOError:
            pass
        except EOFError:
            self._finish("its process has ended the connection")
        except OSError as error:
            self._finish(os.strerror(error.errno or 0))
        except ValueError as error:
            self._finish(f"its answer cannot be read: {error}")

    def _answered(self, frame: memoryview) -> None:
        if not self._asked:
            raise ValueError("nobody has asked")
        asked = self._asked[0]
        if correlation_of(frame) != asked.correlation_id:
            raise ValueError("it answers another request")
        self.has_answered = True
        asked.take(frame)
        self._asked.popleft()

    def _finish(self, why: str) -> None:
        with self._lock:
            self.has_ended = True
            self._outgoing = []
        self._reactor.forget(self)
        self._connection.close()
        for asked in (*self._asked, *(self._held or ())):
            asked.give_up(why)
        self._asked.clear()  # else it would keep their records for as long as anybody knows it
        self._held = None
        self._incoming.drop()

    def _send(self, pieces: list[memoryview]) -> None:
        """Send what the socket takes, and keep the rest. The lock is held."""
        try:
            while pieces:
                sent = self._connection.sendmsg(pieces[:MAX_BUFFERS])
                pieces = behind(pieces, sent)
        except BlockingIOError:
            pass
        except OSError:
            pieces = []  # it has ended: the reactor sees it, too
        if bool(pieces) != bool(self._outgoing):
            self._reactor.want_room(self, bool(pieces))
        self._outgoing = pieces
