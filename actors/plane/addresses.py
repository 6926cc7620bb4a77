"""Where a process listens, made ready: a TCP port, or a name for the processes of its node.

A name is an abstract Unix socket of Linux: it is no file, so nothing is left behind by a process
that was killed, and its length does not depend on a folder. It is free again when its process ends,
and a living one is never pushed aside. As anybody of the node may take a name, each side looks who
the other is (``listener.py``, ``relay.py``).
"""

import os
import socket
import struct
from collections.abc import Sequence
from typing import Final

from raylog.actors.plane.errors import AddressTaken

BACKLOG: Final = 128
MAX_PORT: Final = 65_535
# So often the system chooses a port: those of the other listeners may be somebody else's.
CHOICES: Final = 20
# sun_path has 108 bytes; the first one of an abstract name is zero.
MAX_NAME_BYTES: Final = 107
ROOT: Final = 0
_CREDENTIALS: Final = struct.Struct("=iII")  # pid, uid, gid


def manager_name(broker: str, node: str, listener: int = 0) -> str:
    """The name of a node's LogManager. ``broker``: as of ``broker_id``. ``node``: its key.

    ``listener``: the place in ``listeners`` of that by which the client came who asks.
    """
    return f"raylog{listener or ''}/{broker}/{node}"


def log_name(broker: str, topic_id: str, number: int) -> str:
    """The name of a partition's LogActor. ``broker``: as of ``broker_id``."""
    return f"raylog/{broker}/{topic_id}/{number}"


def listen_tcp(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 lets the system choose. Raises AddressTaken."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise AddressTaken(f"{host}:{port}", str(error)) from None
    try:
        listening = socket.socket(family, kind, protocol)
    except OSError as error:  # no more descriptors
        raise AddressTaken(f"{host}:{port}", os.strerror(error.errno or 0)) from None
    try:
        # Connections that have ended may still be remembered by the system: they are no obstacle.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise AddressTaken(f"{host}:{port}", os.strerror(error.errno or 0)) from None
    return listening


def listen_together(places: Sequence[tuple[str, int]], port: int) -> list[socket.socket]:
    """A socket for each host, at its distance from one port; port 0 lets the system choose.

    The distance of the first is 0. Raises AddressTaken, and leaves none then.
    """
    (host, _), *others = places
    tries = 1 if port else CHOICES
    while True:
        tries -= 1
        listening = [listen_tcp(host, port)]
        first = int(listening[0].getsockname()[1])
        try:
            for other, distance in others:
                listening.append(_listen_at(other, first + distance))
            return listening
        except AddressTaken:
            for one in listening:
                one.close()
            if not tries:
                raise


def _listen_at(host: str, port: int) -> socket.socket:
    if not 0 < port <= MAX_PORT:
        raise AddressTaken(f"{host}:{port}", "there is no such port")
    return listen_tcp(host, port)


def listen_unix(name: str) -> socket.socket:
    """A socket that listens by this name. Raises AddressTaken."""
    if len(os.fsencode(name)) > MAX_NAME_BYTES:
        raise AddressTaken(name, f"a name of more than {MAX_NAME_BYTES} bytes")
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(unix_address(name))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise AddressTaken(name, os.strerror(error.errno or 0)) from None
    return listening


def unix_address(name: str) -> bytes:
    """What a socket is bound or connected to."""
    return b"\0" + os.fsencode(name)


def user_of(connection: socket.socket) -> int:
    """The user of a Unix socket's peer, as the system knows it."""
    content = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(content)
    return int(user)


def is_trusted(user: int) -> bool:
    """Whether it is this process's user, or root."""
    return user in (ROOT, os.geteuid())
