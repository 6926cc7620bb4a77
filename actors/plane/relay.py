"""Passes requests on to the node's LogManager, which knows the cluster, by its Unix socket.

A request goes as the frame that came, and its answer as the frame that comes back: nothing is read
or written anew. Each connection has one request under way, and one is kept. One whose other end has
gone is noticed before it is used. If it goes in the middle, nobody knows whether the request took
effect: the client's connection is closed, as for any broker that ends, and the client decides.

A LogManager that hangs answers nothing, and its partitions shall serve all the same:

- Who has asked is waited with, and not for: when he goes, his thread and his place are free.
- Producers ask for Metadata from time to time, on the connection that their batches take, and what
  is behind a request waits for its answer. So what a LogManager knows by heart is waited for
  ``LOOKUP_MS`` only. The same Metadata request gets the answer that it got last then, and at once
  for as long as ``HANGING_S``; another one ends its connection.
- A command takes its time, and its client says how long he waits.
"""

import os
import select
import socket
import struct
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Final

from raylog.actors.plane.addresses import is_trusted, unix_address, user_of
from raylog.actors.plane.admin import ADMIN_APIS
from raylog.actors.plane.apis.cluster import METADATA
from raylog.actors.plane.apis.records import INIT_PRODUCER_ID
from raylog.actors.plane.errors import PeerGone, RelayAway
from raylog.actors.plane.frames import Request
from raylog.actors.plane.parking import Outcome, Parking
from raylog.actors.plane.sending import Piece, send

_SIZE: Final = struct.Struct(">i")
# Each costs the LogManager a thread, and it has connections of all LogActors of its node.
KEPT: Final = 1
LOOKUP_MS: Final = 5_000
# A producer id is the Controller's, which may be away for a moment.
PRODUCER_ID_MS: Final = 20_000
# A LogManager that did not answer in time is not asked for Metadata again for so long.
HANGING_S: Final = 10.0
# For one that takes no connection, or no bytes.
_PATIENCE: Final = struct.pack("@ll", LOOKUP_MS // 1000, 0)
# Of Metadata: so many different requests, no larger answers.
MOST_REMEMBERED: Final = 16
MOST_REMEMBERED_BYTES: Final = 64 << 10
_CORRELATION: Final = slice(4, 8)  # of a request's frame
_HEAD_BYTES: Final = 4  # of an answer: its correlation id


class Remembered:
    """The last answers to Metadata, by request. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: OrderedDict[bytes, bytes] = OrderedDict()

    def keep(self, request: Request, answer: bytes | bytearray) -> None:
        """Keep an answer, without its size."""
        if request.api is not METADATA or len(answer) > MOST_REMEMBERED_BYTES:
            return
        key = _without_number(request)
        with self._lock:
            self._answers[key] = bytes(answer[_HEAD_BYTES:])
            self._answers.move_to_end(key)
            if len(self._answers) > MOST_REMEMBERED:
                self._answers.popitem(last=False)

    def answer(self, request: Request) -> list[Piece] | None:
        """What the same request was answered last, for this one; None where that is not known."""
        if request.api is not METADATA:
            return None
        with self._lock:
            body = self._answers.get(_without_number(request))
        if body is None:
            return None
        return [_SIZE.pack(_HEAD_BYTES + len(body)), _SIZE.pack(request.correlation_id), body]


class Relay:
    """Any number of threads at once; as many connections as there were requests at once."""

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        """``name``: of the LogManager's Unix socket."""
        self._name, self._clock = name, clock
        self._idle: deque[socket.socket] = deque()
        self._remembered = Remembered()
        self._hangs_until = 0.0

    def __call__(self, request: Request, parking: Parking) -> Sequence[Piece]:
        """The answer of the LogManager. Raises RelayAway, and PeerGone if the client has gone."""
        if self._clock() < self._hangs_until:
            known = self._remembered.answer(request)
            if known is not None:
                return known
        try:
            connection = self._take()
            try:
                head, answer = self._ask(connection, request, parking)
            except BaseException:
                connection.close()
                raise
        except RelayAway:
            known = self._remembered.answer(request)
            if known is None:
                raise
            return known
        if len(self._idle) < KEPT:
            self._idle.append(connection)
        else:
            connection.close()
        self._remembered.keep(request, answer)
        return [head, answer]

    def _ask(
        self, connection: socket.socket, request: Request, parking: Parking
    ) -> tuple[bytearray, bytearray]:
        """An answer's size, and the answer. Raises RelayAway and PeerGone."""
        patience_ms = _patience_ms(request)
        head = bytearray(_SIZE.size)
        try:
            send(connection, [_SIZE.pack(len(request.frame)), request.frame])
            outcome = _receive(connection, head, parking, patience_ms)
            if outcome == "woken":
                (size_bytes,) = _SIZE.unpack(head)
                answer = bytearray(size_bytes)
                outcome = _receive(connection, answer, parking, patience_ms)
        except (OSError, PeerGone) as error:
            raise RelayAway(request.api.name, str(error)) from None
        if outcome == "woken":
            return head, answer
        if outcome == "peer is gone":
            raise PeerGone("the LogManager had not answered its request yet")
        self._hangs_until = self._clock() + HANGING_S
        raise RelayAway(request.api.name, "it does not answer")

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
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _PATIENCE)
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


def _patience_ms(request: Request) -> int | None:
    """How long an answer is waited for; None: as long as the client waits."""
    if request.api in ADMIN_APIS:
        return None
    return PRODUCER_ID_MS if request.api is INIT_PRODUCER_ID else LOOKUP_MS


def _without_number(request: Request) -> bytes:
    """A request but for its correlation id."""
    frame = bytearray(request.frame)
    frame[_CORRELATION] = bytes(4)
    return bytes(frame)


def _has_ended(connection: socket.socket) -> bool:
    """Whether the other end has gone: it says nothing unless it is asked."""
    poll = select.poll()
    poll.register(connection, select.POLLIN | select.POLLRDHUP)
    return bool(poll.poll(0))


def _receive(
    connection: socket.socket, content: bytearray, parking: Parking, patience_ms: int | None
) -> Outcome:
    """Fill ``content``: "woken" once it is. Raises OSError.

    ``patience_ms``: between two of its parts; a LogManager may hang in the middle of an answer.
    """
    left = memoryview(content)
    while left:
        outcome = parking.wait_for(connection, patience_ms)
        if outcome != "woken":
            return outcome
        count = connection.recv_into(left, 0, socket.MSG_DONTWAIT)
        if not count:
            raise ConnectionResetError("it ended in the middle of an answer")
        left = left[count:]
    return "woken"
