"""One connection to a broker: a request of Kafka's protocol as bytes, and its answer as a value.

It calls itself otherwise than raylog's own clients do, so it is answered as any client of Kafka.
"""

import socket
from struct import Struct
from typing import Final, TypeAlias

from raylog.actors.plane.apis.api import Api
from raylog.actors.plane.apis.connection import API_VERSIONS
from raylog.storage.schemas.binary import STORED, ByteReader
from raylog.storage.schemas.types import Value

TIMEOUT_S: Final = 20.0
_CLIENT: Final = b"differential"
# Size, key, version, correlation id, the client id's length and bytes.
_HEAD: Final = Struct(f">ihhih{len(_CLIENT)}s")
_SIZE_BYTES: Final = 4
_CORRELATION_BYTES: Final = 4

# What is seen where there is no answer.
CLOSED: Final = "the connection is closed"
LATE: Final = f"no answer within {TIMEOUT_S} s"
SILENT: Final = "no answer, and the connection goes on"
Seen: TypeAlias = Value | str


class Link:
    """Where a broker listens; connected when it is first asked, and again after it has closed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection: socket.socket | None = None
        self._last_id = 0

    def ask(self, api: Api, version: int, body: bytes, *, is_answered: bool = True) -> Seen:
        """What comes back. ``is_answered``: False for one that Kafka never answers."""
        try:
            self._send(api, version, body)
            if is_answered:
                return read_answer(api, version, self._received())
            self._send(API_VERSIONS, 0, b"")
            self._received()
        except ConnectionError:
            self.close()
            return CLOSED
        except TimeoutError:
            self.close()
            return LATE
        return SILENT

    def _send(self, api: Api, version: int, body: bytes) -> None:
        if self._connection is None:
            self._connection = socket.create_connection(("127.0.0.1", self._port), TIMEOUT_S)
        self._last_id += 1
        tags = b"\0" if api.is_flexible(version) else b""
        size = _HEAD.size - _SIZE_BYTES + len(tags) + len(body)
        head = _HEAD.pack(size, api.key, version, self._last_id, len(_CLIENT), _CLIENT)
        self._connection.sendall(head + tags + body)

    def _received(self) -> memoryview:
        """The frame that answers the last request, without its size."""
        frame = memoryview(self._bytes(int.from_bytes(self._bytes(_SIZE_BYTES), "big")))
        answered = int.from_bytes(frame[:_CORRELATION_BYTES], "big")
        assert answered == self._last_id, f"{answered} is answered instead of {self._last_id}"
        return frame

    def _bytes(self, size: int) -> bytes:
        assert self._connection is not None
        content = bytearray()
        while len(content) < size:
            some = self._connection.recv(size - len(content))
            if not some:
                raise ConnectionResetError
            content += some
        return bytes(content)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def read_answer(api: Api, version: int, frame: memoryview) -> Value:
    """The body of an answer; every byte of it is read, and tags that no schema knows are kept."""
    reader = ByteReader(frame, _CORRELATION_BYTES + api.answer_header_version(version), STORED)
    known_version = version if api.last_version >= version else 0  # of ApiVersions alone
    value = api.answer.read(reader, known_version)
    assert not reader.left, f"{reader.left} bytes behind an answer to {api.name} {version}"
    return value
