"""Listens at an address, and gives each connection a thread.

A thread waits for connections. As many as ``max.connections`` are served at once; while they are,
nobody else is accepted, as Kafka does it, and who comes waits in the queue of the system. A thread
that waits for its peer costs 21 KB.

Two kinds of addresses:

=============  =====================================================================================
TCP            host and port. TCP_NODELAY: an answer leaves at once.
a Unix socket  a name, for processes of the same node. Who may connect is known without a password:
               the system tells the peer's user, who must be that of this process, or root.
=============  =====================================================================================
"""

import os
import socket
import threading
from collections.abc import Callable
from typing import Final, Protocol

from raylog.actors.listeners import MAX_CONNECTIONS
from raylog.actors.plane.addresses import is_trusted, user_of
from raylog.actors.plane.errors import AcceptFailed, StrangeUser
from raylog.storage.errors import RaylogError

# An accept that fails for want of descriptors is tried again after this, or once one has ended.
RETRY_S: Final = 1.0


class Served(Protocol):
    """A connection that is being served."""

    def serve(self) -> RaylogError | None: ...

    def stop(self) -> None: ...


class Acceptor:
    """A listening socket, its thread, and the connections that came by it."""

    def __init__(
        self,
        listening: socket.socket,
        begin: Callable[[socket.socket], Served],
        on_end: Callable[[RaylogError], None],
        on_failure: Callable[[BaseException], object],
        *,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        """Raises RuntimeError where the system has no more threads.

        ``begin`` makes of an accepted socket what serves it.

        ``on_end`` hears why a connection ended, where that was an error; ``on_failure`` of an error
        that is not raylog's.
        """
        self._listening, self._begin = listening, begin
        self._on_end, self._on_failure = on_end, on_failure
        self._max_connections = max_connections
        self._changed = threading.Condition()
        self._served: dict[Served, threading.Thread] = {}
        self._is_closing = False
        self._thread = threading.Thread(target=self._accept_all, name="accept", daemon=True)
        self._thread.start()

    @property
    def connections(self) -> int:
        """How many are being served."""
        return len(self._served)

    def _accept_all(self) -> None:
        while self._wait_for_place():
            try:
                connection, _ = self._listening.accept()
            except OSError as error:
                if self._is_closing:
                    return
                self._on_end(AcceptFailed(os.strerror(error.errno or 0)))
                with self._changed:
                    self._changed.wait(RETRY_S)
                continue
            self._take(connection)

    def _wait_for_place(self) -> bool:
        """Return True once another connection may be served; False when this side closes."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_closing or len(self._served) < self._max_connections
            )
            return not self._is_closing

    def _take(self, connection: socket.socket) -> None:
        if connection.family == socket.AF_UNIX:
            user = user_of(connection)
            if not is_trusted(user):
                connection.close()
                self._on_end(StrangeUser(user))
                return
        else:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            served = self._begin(connection)
        except OSError as error:  # no more descriptors
            connection.close()
            self._on_end(AcceptFailed(os.strerror(error.errno or 0)))
            return
        thread = threading.Thread(target=self._serve, args=(served,), name="plane", daemon=True)
        with self._changed:
            self._served[served] = thread
            if self._is_closing:
                served.stop()
        try:
            thread.start()
        except RuntimeError as error:  # the system has no more threads
            with self._changed:
                del self._served[served]
            connection.close()
            self._on_end(AcceptFailed(str(error)))

    def _serve(self, served: Served) -> None:
        try:
            error = served.serve()
            if error is not None:
                self._on_end(error)
        except BaseException as failure:
            self._on_failure(failure)
        finally:
            with self._changed:
                del self._served[served]
                self._changed.notify_all()

    def close(self, deadline_s: float) -> bool:
        """Accept nobody any more, and let each connection finish the request in hand.

        Returns whether all ended within the deadline.
        """
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
            for served in self._served:
                served.stop()
        # A blocked accept is not ended by closing the descriptor, but by this.
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join(deadline_s)
        self._listening.close()
        with self._changed:
            return self._changed.wait_for(lambda: not self._served, deadline_s)
