"""Both ends of a connection, and threads that end or fail the test."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from raylog.storage.testing.waiting import DEADLINE_S

SIZE = struct.Struct(">i")


@contextmanager
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Our end and the peer's. The peer fails a test rather than wait for ever."""
    ours, peer = socket.socketpair()
    peer.settimeout(DEADLINE_S)
    with ours, peer:
        yield ours, peer


@contextmanager
def beside(work: Callable[[], Any]) -> Iterator[threading.Thread]:
    """``work`` in a thread of its own, which has ended when this does."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield thread
    thread.join(DEADLINE_S)
    assert not thread.is_alive()


def framed(content: bytes) -> bytes:
    return SIZE.pack(len(content)) + content


def received(peer: socket.socket, size_bytes: int) -> bytes:
    """The next bytes; fewer if the connection ends, also by a reset."""
    content = bytearray()
    with suppress(ConnectionResetError):
        while len(content) < size_bytes and (part := peer.recv(size_bytes - len(content))):
            content += part
    return bytes(content)
