"""What a client says first to the LogActor of another machine: who it is, by SCRAM.

Both sides know a token, which the LogActor hands out by Ray call alone; neither sends it. So the
LogActor knows that its peer belongs to the Ray cluster, and the client that it has come to the
process that it was sent to, and not to another that has the port by now.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Final, TypeAlias

from raylog.actors.messages import DataAddress
from raylog.actors.plane.apis.connection import SASL_AUTHENTICATE, SASL_HANDSHAKE
from raylog.actors.plane.errors import AuthenticationFailed
from raylog.actors.plane.inner import MECHANISM, USER
from raylog.actors.plane.sasl.scram import ScramClient
from raylog.cluster.client.sockets.wire import answer_body, request_frame
from raylog.storage.buffers import Buffer
from raylog.storage.schemas.types import Value

# Yields requests, each as a function of its correlation id; is sent the frames of their answers.
Pieces: TypeAlias = Callable[[int], Sequence[Buffer]]
Entry: TypeAlias = Generator[Pieces, memoryview, None]
_HANDSHAKE_VERSION: Final = 1


def entry(address: DataAddress) -> Entry:
    """The requests of an entry; it has entered when they end. Raises ValueError."""
    scram = ScramClient(MECHANISM, USER, address.token)
    frame = yield _handshake
    _check(answer_body(SASL_HANDSHAKE, frame, _HANDSHAKE_VERSION))
    frame = yield _authenticate(scram.first())
    try:
        frame = yield _authenticate(scram.final(_token(frame)))
        scram.check(_token(frame))
    except AuthenticationFailed as error:
        raise ValueError(str(error)) from None


def _handshake(correlation_id: int) -> Sequence[Buffer]:
    body = {"mechanism": MECHANISM}
    return request_frame(SASL_HANDSHAKE, correlation_id, body, _HANDSHAKE_VERSION)


def _authenticate(token: bytes) -> Pieces:
    return lambda correlation_id: request_frame(
        SASL_AUTHENTICATE, correlation_id, {"authBytes": token}
    )


def _token(frame: memoryview) -> bytes:
    """The server's token. Raises ValueError."""
    body = answer_body(SASL_AUTHENTICATE, frame)
    _check(body)
    return bytes(body["authBytes"])


def _check(body: Value) -> None:
    if body["errorCode"]:
        raise ValueError(body.get("errorMessage") or f"error {body['errorCode']} at its door")
