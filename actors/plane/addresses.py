"""Where a process listens, made ready: a TCP port, or a path of a Unix socket.

A Unix socket's file outlives a process that was killed. It is replaced if nobody answers there; a
living process is never pushed aside.
"""

import errno
import os
import socket
from contextlib import suppress
from stat import S_ISSOCK
from typing import Final

from raylog.actors.plane.errors import AddressTaken
from raylog.actors.plane.listener import BACKLOG
from raylog.storage.permissions import make_private_dirs

# sun_path has 108 bytes, and ends with a zero.
MAX_PATH_BYTES: Final = 107


def listen_tcp(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 lets the system choose. Raises AddressTaken."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise AddressTaken(f"{host}:{port}", str(error)) from None
    listening = socket.socket(family, kind, protocol)
    try:
        # Connections that have ended may still be remembered by the system: they are no obstacle.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise AddressTaken(f"{host}:{port}", os.strerror(error.errno or 0)) from None
    return listening


def listen_unix(path: str) -> socket.socket:
    """A Unix socket that listens, in a folder that is made if need be. Raises AddressTaken."""
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise AddressTaken(path, f"a path of more than {MAX_PATH_BYTES} bytes")
    make_private_dirs(os.path.dirname(path))
    _remove_left_over(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(path)
        os.chmod(path, 0o600)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise AddressTaken(path, os.strerror(error.errno or 0)) from None
    return listening


def _remove_left_over(path: str) -> None:
    """Remove the file of a process that has ended. Raises AddressTaken for any other file."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    if not S_ISSOCK(mode):
        raise AddressTaken(path, "a file that is no socket has this name")
    if _somebody_answers(path):
        raise AddressTaken(path, os.strerror(errno.EADDRINUSE))
    with suppress(FileNotFoundError):
        os.unlink(path)


def _somebody_answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        try:
            asking.connect(path)
        except OSError:
            return False
    return True
