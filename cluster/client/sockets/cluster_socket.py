"""Requests to a broker by one socket, one after the other, for who has not joined its Ray cluster.

Any process of a broker answers what the cluster is; what a partition holds only its LogActor does.
A caller waits for its answers, for all of them together up to the time that the socket was given.
"""

import os
import socket
import time
from typing import Final, Self

from raylog.actors.errors import BrokerUnreachable
from raylog.actors.plane.addresses import is_trusted, unix_address, user_of
from raylog.actors.plane.apis.api import Api
from raylog.cluster.client.sockets.entry import Pieces
from raylog.cluster.client.sockets.wire import answer_body, correlation_of, request_frame
from raylog.storage.limits import MAX_INT
from raylog.storage.schemas.types import Value

_SIZE_BYTES: Final = 4
CHUNK_BYTES: Final = 1 << 20


class ClusterSocket:
    """See the module's head. Not safe for threads."""

    def __init__(self, connection: socket.socket, address: str, ends_at: float) -> None:
        """``address``: as errors name it. ``ends_at``: by the steady clock."""
        self._connection, self._address, self._ends_at = connection, address, ends_at
        self._last_id = -1

    @classmethod
    def by_name(cls, name: str, timeout_s: float) -> Self:
        """To the process of this machine that has this name. Raises BrokerUnreachable."""
        ends_at = time.monotonic() + timeout_s
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(timeout_s)
            connection.connect(unix_address(name))
            if not is_trusted(user_of(connection)):
                raise PermissionError("another user's process has its name")
        except OSError as error:
            connection.close()
            raise BrokerUnreachable(name, _in_words(error)) from None
        return cls(connection, name, ends_at)

    @classmethod
    def by_address(cls, host: str, port: int, timeout_s: float) -> Self:
        """To who listens there. Raises BrokerUnreachable."""
        address = f"{host}:{port}"
        ends_at = time.monotonic() + timeout_s
        try:
            connection = socket.create_connection((host, port), timeout=timeout_s)
        except (OSError, OverflowError, UnicodeError) as error:
            raise BrokerUnreachable(address, _in_words(error)) from None
        return cls(connection, address, ends_at)

    def ask(self, api: Api, body: Value, version: int | None = None) -> Value:
        """The answer to a request, of its last version by default. Raises BrokerUnreachable."""
        frame = self.answer_to(lambda number: request_frame(api, number, body, version))
        try:
            return answer_body(api, frame, version)
        except ValueError as error:
            raise BrokerUnreachable(self._address, str(error)) from None

    def answer_to(self, pieces_of: Pieces) -> memoryview:
        """The frame that answers a request, without its size. Raises BrokerUnreachable."""
        self._last_id += 1
        try:
            self._limit()
            self._connection.sendall(b"".join(pieces_of(self._last_id)))
            size_bytes = int.from_bytes(self._received(_SIZE_BYTES), "big")
            if size_bytes > MAX_INT:
                raise ValueError(f"a frame of {size_bytes} bytes")
            frame = memoryview(self._received(size_bytes))
            if correlation_of(frame) != self._last_id:
                raise ValueError("it answers another request")
        except (OSError, ValueError) as error:
            raise BrokerUnreachable(self._address, _in_words(error)) from None
        return frame

    def _received(self, size_bytes: int) -> bytes:
        content = bytearray()
        while len(content) < size_bytes:
            self._limit()
            some = self._connection.recv(min(size_bytes - len(content), CHUNK_BYTES))
            if not some:
                raise ConnectionResetError("it has ended the connection")
            content += some
        return bytes(content)

    def _limit(self) -> None:
        """What comes next has the time that is left. Raises TimeoutError."""
        left_s = self._ends_at - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._connection.settimeout(left_s)

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _in_words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it does not answer"
    if isinstance(error, UnicodeError):
        return "it is no name of a host"
    if isinstance(error, socket.gaierror):
        return str(error.strerror)
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return str(error)
