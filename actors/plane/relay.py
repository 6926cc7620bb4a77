"""Passes requests on to the node's LogManager, which knows the cluster, by its Unix socket.

A request goes as the frame that came, and its answer as the frame that comes back: nothing is read
or written anew. Each connection has one request under way, and one is kept. One whose other end has
gone is noticed before it is used. If it goes in the middle, nobody knows whether the request took
effect: the client's connection is closed, as for any broker that ends, and the client decides.
"""

import os
import select
import socket
import struct
from collections import deque
from collections.abc import Sequence
from typing import Final

from raylog.actors.plane.addresses import is_trusted, unix_address, user_of
from raylog.actors.plane.errors import PeerGone, RelayAway
from raylog.actors.plane.frames import Request
from raylog.actors.plane.sending import Piece, send

_SIZE: Final = struct.Struct(">i")
# Each costs the LogManager a thread, and it has connections of all LogActors of its node.
KEPT: Final = 1


class Relay:
    """Any number of threads at once; as many connections as there were requests at once."""

    def __init__(self, name: str) -> None:
        """``name``: of the LogManager's Unix socket."""
        self._name = name
        self._idle: deque[socket.socket] = deque()

    def __call__(self, request: Request) -> Sequence[Piece]:
        """The answer of the LogManager. Raises RelayAway."""
        connection = self._take()
        try:
            send(connection, [_SIZE.pack(len(request.frame)), request.frame])
            head = _received(connection, _SIZE.size)
            (size_bytes,) = _SIZE.unpack(head)
            answer = _received(connection, size_bytes)
        except (OSError, PeerGone) as error:
            connection.close()
            raise RelayAway(request.api.name, str(error)) from None
        if len(self._idle) < KEPT:
            self._idle.append(connection)
        else:
            connection.close()
        return [head, answer]

    def _take(self) -> socket.socket:
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:
                break
            if not _has_ended(connection):
                return connection
            connection.close()
        return self._connect()

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(unix_address(self._name))
        except OSError as error:
            connection.close()
            raise RelayAway("a connection", os.strerror(error.errno or 0)) from None
        user = user_of(connection)
        if not is_trusted(user):
            connection.close()
            raise RelayAway("a connection", f"user {user} has taken its name, {self._name}")
        return connection

    def close(self) -> None:
        """Close the connections that are not in use."""
        while self._idle:
            self._idle.pop().close()


def _has_ended(connection: socket.socket) -> bool:
    """Whether the other end has gone: it says nothing unless it is asked."""
    poll = select.poll()
    poll.register(connection, select.POLLIN | select.POLLRDHUP)
    return bool(poll.poll(0))


def _received(connection: socket.socket, size_bytes: int) -> bytearray:
    """So many bytes. Raises OSError."""
    content = bytearray(size_bytes)
    left = memoryview(content)
    while left:
        count = connection.recv_into(left, 0, socket.MSG_WAITALL)
        if not count:
            raise ConnectionResetError("it ended in the middle of an answer")
        left = left[count:]
    return content
