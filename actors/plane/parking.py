"""Where a connection's thread waits: for records, for its peer's end, for the time to be up.

A fetch that finds too little is parked in its connection's thread. It must not only be woken by
appends, but end at once when its peer goes, or when the process stops to serve: a thread that waits
for nobody is a thread less. So it waits in ``poll(2)`` for two descriptors: its socket, of which
only the end is awaited, and an eventfd that any thread may write.
"""

import os
import select
import socket
from typing import Final, Literal, TypeAlias

from raylog.storage.errors import OutOfResources

Outcome: TypeAlias = Literal["woken", "time is up", "peer is gone"]
_OF_THIS_MACHINE: Final = "/127.0.0.1"
_ENDS: Final = select.POLLRDHUP | select.POLLHUP | select.POLLERR


class Parking:
    """A place for one thread to wait in. It has a descriptor, from its first wait on.

    The descriptor is closed with the last reference to this: who may still wake it holds one, and
    never writes to a number that the system has given to another file.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._bell = -1
        self._is_stopping = False

    @property
    def peer_host(self) -> str:
        """The address of the peer, as Kafka's tools show it."""
        try:
            name = self._connection.getpeername()
        except OSError:
            name = ""  # it has gone
        return f"/{name[0]}" if isinstance(name, tuple) else _OF_THIS_MACHINE

    def prepare(self) -> None:
        """Forget who woke it before. From now on a ``wake`` ends the next ``wait``.

        Raises OutOfResources.
        """
        if self._bell < 0:
            try:
                self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            except OSError as error:  # no descriptor is left
                raise OutOfResources("a fetch that waits", os.strerror(error.errno or 0)) from None
        try:
            os.eventfd_read(self._bell)
        except BlockingIOError:
            pass

    def wake(self) -> None:
        """End the wait. Any thread may call it, also when nobody waits."""
        os.eventfd_write(self._bell, 1)

    def wait(self, timeout_ms: int) -> Outcome:
        """Return when it is woken, the peer or this side has ended the connection, or later."""
        poll = select.poll()
        poll.register(self._bell, select.POLLIN)
        poll.register(self._connection, _ENDS)
        ready = {descriptor for descriptor, _ in poll.poll(timeout_ms)}
        if self._connection.fileno() in ready:
            return "peer is gone"
        return "woken" if ready else "time is up"

    def wait_for(self, other: socket.socket, timeout_ms: int | None) -> Outcome:
        """Return when there is something to read from another socket, or the peer has ended.

        This side's own end does not count: the request in hand is answered first. ``timeout_ms``:
        None for no limit.
        """
        poll = select.poll()
        poll.register(other, select.POLLIN | _ENDS)
        poll.register(self._connection, _ENDS)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll(timeout_ms)}
            if other.fileno() in ready:
                return "woken"
            if not ready:
                return "time is up"
            if not self._is_stopping:
                return "peer is gone"
            poll.unregister(self._connection)

    def has_peer_gone(self) -> bool:
        """Whether the peer has ended the connection; this side's own end does not count."""
        poll = select.poll()
        poll.register(self._connection, _ENDS)
        return bool(poll.poll(0)) and not self._is_stopping

    def stop(self) -> None:
        """This side is about to end the connection."""
        self._is_stopping = True

    def __del__(self) -> None:
        if self._bell >= 0:
            os.close(self._bell)
