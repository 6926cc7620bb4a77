"""One connection: requests are answered one after the other, in the order in which they came.

::

    read a frame  ->  answer it (append, fetch, park, relay)  ->  send the answer  ->  ...

A connection has a thread of its own, which does all of it: a request waits for nobody but those
before it on its own connection, and a parked fetch holds up what is behind it, as in Kafka. Back
pressure needs nothing more: while an answer is made or sent, nothing is read. Of Produce, those
requests that are there already are taken together, so that one fsync is for all of them.

What ends a connection, and nothing else does:

====================================  ==============================================================
the peer ends it between two frames   nothing is said
it is silent for max idle             nothing is said, as Kafka does
a frame that is none, a peer that is  one line of the log: ``ConnectionEnded``
gone, an answer that cannot be sent
it does not prove who it is           the same, behind an answer that says so (``sasl/gate.py``)
this side stops                       the request in hand is answered first
an error that nobody expected         ``on_failure``: the state of the process is in doubt
====================================  ==============================================================
"""

import socket
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol

from raylog.actors.listeners import MAX_IDLE_MS
from raylog.actors.plane.meters import Measured, size_of
from raylog.actors.plane.parking import Parking
from raylog.actors.plane.reading import Frames
from raylog.actors.plane.sending import Piece, send
from raylog.storage.errors import RaylogError

_TIMEVAL: Final = struct.Struct("@ll")
# What a Produce request begins with: its key.
_PRODUCE: Final = b"\0\0"


class LastAnswer(Exception):
    """An answer after which the connection ends, and why it does."""

    def __init__(self, pieces: Sequence[Piece], error: RaylogError) -> None:
        super().__init__(pieces, error)
        self.pieces, self.error = pieces, error


class Answering(Protocol):
    """What answers requests."""

    def __call__(self, frames: Sequence[bytearray], parking: Parking) -> Sequence[Piece]:
        """The answers of requests, in order: of one, or of several to Produce. One may have none.

        Raises a RaylogError to end the connection, and LastAnswer to answer and end it.
        """


class Connection:
    """A connection, from its first byte to its last."""

    def __init__(
        self,
        connection: socket.socket,
        frames: Frames,
        answer: Answering,
        note: Callable[[Measured], object] = lambda measured: None,
        *,
        max_idle_ms: int = MAX_IDLE_MS,
    ) -> None:
        """``note``: hears of each request that was answered."""
        self._connection, self._frames = connection, frames
        self._answer, self._note = answer, note
        self._parking = Parking(connection)
        self._is_stopping = False
        self.trust(max_idle_ms)

    def serve(self) -> RaylogError | None:
        """Answer requests until the connection ends; returns what ended it, if that is an error."""
        try:
            while not self._is_stopping and (frame := self._frames.next()) is not None:
                began_s = time.perf_counter()
                frames = [frame]
                if frame.startswith(_PRODUCE):
                    frames += self._frames.behind(_PRODUCE)
                try:
                    pieces = self._answer(frames, self._parking)
                    send(self._connection, pieces)
                    self._note_all(frames, pieces, time.perf_counter() - began_s)
                finally:
                    for frame in frames:
                        self._frames.leave(len(frame))
        except LastAnswer as last:
            return self._say(last)
        except RaylogError as error:
            return error
        finally:
            self._connection.close()
        return None

    def _note_all(
        self, frames: Sequence[bytearray], pieces: Sequence[Piece], took_s: float
    ) -> None:
        answer_bytes = size_of(pieces)
        for frame in frames:
            key = int.from_bytes(frame[:2], "big")  # the answer has read more than that
            self._note((key, took_s / len(frames), len(frame), answer_bytes // len(frames)))

    def _say(self, last: LastAnswer) -> RaylogError:
        with suppress(RaylogError):  # the peer need not wait for it
            send(self._connection, last.pieces)
        return last.error

    def trust(self, max_idle_ms: int = MAX_IDLE_MS) -> None:
        """It is known who the peer is: it may be silent for so long."""
        timeout = _TIMEVAL.pack(max_idle_ms // 1000, max_idle_ms % 1000 * 1000)
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)

    def stop(self) -> None:
        """Read no further request. Any thread may call it.

        Who waits for a request, or is parked, sees the end of the connection at once.
        """
        self._is_stopping = True  # what has come already can be read all the same
        self._parking.stop()
        try:
            self._connection.shutdown(socket.SHUT_RD)
        except OSError:
            pass  # it has ended by itself
