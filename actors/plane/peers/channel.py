"""A connection to another process of the cluster, with one request under way.

By name it goes to a process of this node: its user is looked at, as anybody may take a name. By TCP
it goes to another node: both sides prove that they know a token, which is told by Ray call alone
(``plane/inner.py``).
"""

import os
import socket
import struct
from typing import Final

from raylog.actors.messages import DataAddress
from raylog.actors.plane.addresses import is_trusted, unix_address, user_of
from raylog.actors.plane.apis.api import Api
from raylog.actors.plane.apis.connection import SASL_AUTHENTICATE, SASL_HANDSHAKE
from raylog.actors.plane.errors import AuthenticationFailed, PeerAway
from raylog.actors.plane.frames import read_answer, request_frame
from raylog.actors.plane.inner import MECHANISM, USER
from raylog.actors.plane.sasl.scram import ScramClient
from raylog.storage.errors import InvalidRecord
from raylog.storage.schemas.types import Value

_SIZE: Final = struct.Struct(">i")
_HANDSHAKE_VERSION: Final = 1
# No answer that is asked for here comes near it.
MAX_ANSWER_BYTES: Final = 16 << 20


class Channel:
    """See the module's head. One thread at a time."""

    def __init__(self, connection: socket.socket, name: str) -> None:
        """``name``: of the peer, for errors."""
        self._connection, self._name = connection, name

    def ask(self, api: Api, version: int, body: Value, timeout_s: float) -> Value:
        """The answer to a request. Raises PeerAway; then its fate is not known."""
        frame = request_frame(api, version, body)
        try:
            self._connection.settimeout(timeout_s)
            self._connection.sendall(_SIZE.pack(len(frame)) + frame)
            (size_bytes,) = _SIZE.unpack(self._receive(_SIZE.size))
            if not 0 < size_bytes <= MAX_ANSWER_BYTES:
                raise PeerAway(self._name, f"an answer of {size_bytes} bytes")
            answer = self._receive(size_bytes)
        except OSError as error:
            raise PeerAway(self._name, str(error) or "it does not answer") from None
        try:
            # ``read_answer`` counts the size in.
            return read_answer(api, version, _SIZE.pack(size_bytes) + answer)
        except InvalidRecord as error:
            raise PeerAway(self._name, f"its answer cannot be read ({error})") from None

    def _receive(self, size_bytes: int) -> bytes:
        content = bytearray(size_bytes)
        left = memoryview(content)
        while left:
            count = self._connection.recv_into(left)
            if not count:
                raise PeerAway(self._name, "it has ended the connection")
            left = left[count:]
        return bytes(content)

    def close(self) -> None:
        self._connection.close()


def channel_by_name(name: str, timeout_s: float) -> Channel:
    """To a process of this node. Raises PeerAway."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        connection.connect(unix_address(name))
        user = user_of(connection)
    except OSError as error:
        connection.close()
        raise PeerAway(name, os.strerror(error.errno or 0)) from None
    if not is_trusted(user):
        connection.close()
        raise PeerAway(name, f"user {user} has taken its name")
    return Channel(connection, name)


def channel_by_address(address: DataAddress, timeout_s: float) -> Channel:
    """To a process of another node, which knows who it is that comes. Raises PeerAway."""
    name = f"{address.host}:{address.port}"
    try:
        connection = socket.create_connection((address.host, address.port), timeout_s)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        raise PeerAway(name, str(error)) from None
    channel = Channel(connection, name)
    try:
        if address.token:
            _enter(channel, address.token, timeout_s)
    except AuthenticationFailed as error:
        channel.close()
        raise PeerAway(name, str(error)) from None
    except PeerAway:
        channel.close()
        raise
    return channel


def _enter(channel: Channel, token: str, timeout_s: float) -> None:
    """Raises AuthenticationFailed and PeerAway."""
    scram = ScramClient(MECHANISM, USER, token)
    told = channel.ask(SASL_HANDSHAKE, _HANDSHAKE_VERSION, {"mechanism": MECHANISM}, timeout_s)
    _check(told)
    final = scram.final(_authenticate(channel, scram.first(), timeout_s))
    scram.check(_authenticate(channel, final, timeout_s))


def _authenticate(channel: Channel, content: bytes, timeout_s: float) -> bytes:
    version = SASL_AUTHENTICATE.last_version
    told = channel.ask(SASL_AUTHENTICATE, version, {"authBytes": content}, timeout_s)
    _check(told)
    return bytes(told["authBytes"])


def _check(told: Value) -> None:
    if told["errorCode"]:
        raise AuthenticationFailed(f"error {told['errorCode']} at its door")
