"""What a listener that asks who comes lets through: nothing else, until that is answered.

A connection goes through these states; anything that is not in the table ends it::

    state      request           answer                                          next state
    ---------  ----------------  ----------------------------------------------  ------------
    new        ApiVersions       as always; of an unknown version it stays new   greeted
    new        SaslHandshake     the mechanisms; another one is refused          exchange, raw
    greeted    SaslHandshake     the same                                        exchange, raw
    exchange   SaslAuthenticate  the mechanism's token; a failure is answered    open
    raw        a bare token      the mechanism's token; a failure is not         open
    open       anything          passed on: a SaslHandshake gets error 34

SaslHandshake of version 0 leads to *raw*: tokens without a header, each with its size. A failure is
answered after a moment, so that nobody tries passwords fast, and does not say whether there is such
a user. Source: ``SaslServerAuthenticator`` of Kafka; KIP-43, KIP-152.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, Protocol, TypeAlias

from raylog.actors.plane.apis.api import Api
from raylog.actors.plane.apis.connection import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from raylog.actors.plane.connection import Answering, LastAnswer
from raylog.actors.plane.errors import (
    AuthenticationFailed,
    IllegalSaslState,
    UnsupportedRequest,
    UnsupportedSaslMechanism,
)
from raylog.actors.plane.frames import Request, answer, parse, read_body
from raylog.actors.plane.parking import Parking
from raylog.actors.plane.sending import Piece

# Kafka's default of connection.failed.authentication.delay.ms.
FAILURE_PAUSE_S: Final = 0.1
_NO_LIFETIME: Final = 0

State: TypeAlias = Literal["new", "greeted", "exchange", "raw", "open"]
_SERVED: Final[Mapping[State, Sequence[Api]]] = {
    "new": (API_VERSIONS, SASL_HANDSHAKE),
    "greeted": (SASL_HANDSHAKE,),
    "exchange": (SASL_AUTHENTICATE,),
}


def too_late(request: Request) -> bytes:
    """The answer to a request of SASL on a connection that is open."""
    error = IllegalSaslState(request.api.name)
    if request.api is SASL_HANDSHAKE:
        return answer(request, {"errorCode": error.code, "mechanisms": []})
    body = {"errorMessage": "there is nothing to authenticate", "authBytes": b""}
    return answer(request, body | {"errorCode": error.code, "sessionLifetimeMs": _NO_LIFETIME})


class Exchange(Protocol):
    """The server's side of a mechanism. ``user``: who it is, once ``is_done``."""

    user: str
    is_done: bool

    def answer(self, token: bytes) -> bytes:
        """The answer to a token. Raises AuthenticationFailed."""


class Gate:
    """Answers the requests of one connection. ``user``: who its peer is, once that is known."""

    def __init__(
        self,
        answer: Answering,
        mechanisms: Mapping[str, Callable[[], Exchange]],
        on_open: Callable[[], object] = lambda: None,
        *,
        pause: Callable[[], object] = lambda: time.sleep(FAILURE_PAUSE_S),
    ) -> None:
        """``answer``: for all requests of who is known. ``mechanisms``: each begins an exchange.

        ``on_open``: called when it is known who it is. ``pause``: before a failure is answered.
        """
        self._answer, self._mechanisms = answer, mechanisms
        self._on_open, self._pause = on_open, pause
        self._state: State = "new"
        self._exchange: Exchange | None = None
        self.user = ""

    def __call__(self, frames: Sequence[bytearray], parking: Parking) -> Sequence[Piece]:
        """See ``connection.Answering``."""
        if self._state == "open":
            return self._answer(frames, parking)
        frame = frames[0]
        if self._state == "raw":
            return self._raw(bytes(frame))
        try:
            request = parse(memoryview(frame).toreadonly())
        except UnsupportedRequest as error:
            if self._state == "new" and error.api == API_VERSIONS.name:
                return self._answer(frames, parking)
            raise
        if request.api not in _SERVED[self._state]:
            raise IllegalSaslState(request.api.name)
        if request.api is API_VERSIONS:
            self._state = "greeted"
            return self._answer(frames, parking)
        body = read_body(request)
        if request.api is SASL_HANDSHAKE:
            return [self._handshake(request, body["mechanism"])]
        return [self._authenticate(request, body["authBytes"])]

    def _handshake(self, request: Request, mechanism: str) -> bytes:
        begin = self._mechanisms.get(mechanism)
        mechanisms = list(self._mechanisms)
        if begin is None:
            error = UnsupportedSaslMechanism(mechanism, ", ".join(mechanisms))
            body = {"errorCode": error.code, "mechanisms": mechanisms}
            raise LastAnswer([answer(request, body)], error)
        self._exchange = begin()
        self._state = "exchange" if request.version else "raw"
        return answer(request, {"errorCode": 0, "mechanisms": mechanisms})

    def _authenticate(self, request: Request, token: bytes) -> bytes:
        body = {"errorMessage": None, "sessionLifetimeMs": _NO_LIFETIME}
        try:
            said = self._step(token)
        except AuthenticationFailed as error:
            failed = {"errorCode": error.code, "errorMessage": str(error), "authBytes": b""}
            raise LastAnswer([answer(request, body | failed)], error) from None
        return answer(request, body | {"errorCode": 0, "authBytes": said})

    def _raw(self, token: bytes) -> Sequence[Piece]:
        said = self._step(token)
        return [len(said).to_bytes(4, "big"), said]

    def _step(self, token: bytes) -> bytes:
        """The mechanism's answer. Raises AuthenticationFailed, a moment later."""
        assert self._exchange is not None, "a handshake has begun it"
        try:
            said = self._exchange.answer(bytes(token))
        except AuthenticationFailed:
            self._pause()
            raise
        if self._exchange.is_done:
            self.user, self._state = self._exchange.user, "open"
            self._on_open()
        return said
