"""The LogActors of this machine, by their sockets: one to ask, and others to wait at.

Requests on one connection are answered in order, and a fetch that waits for records holds up what
is behind it. So each partition has one channel for what is answered at once, and each fetch that
may wait has one to itself, which is kept for the next.

A name leads to a process of this machine or to nobody, and it is known at once: nothing waits here.
"""

import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from raylog.actors.plane.addresses import log_name, unix_address, user_of
from raylog.cluster.client.buffers import Buffers
from raylog.cluster.client.sockets.channel import Channel, Watching

# A partition that is not found here is looked for again after this.
AGAIN_S: Final = 1.0
# The channels of one partition at which fetches wait. Each is a thread of its LogActor.
MOST_WAITING: Final = 32

Key = tuple[str, int]  # topic id and number


class LocalLogs:
    """See the module's head. Safe for threads."""

    def __init__(
        self,
        cluster_id: str,
        reactor: Watching,
        buffers: Buffers,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cluster_id = cluster_id
        self._reactor, self._buffers, self._clock = reactor, buffers, clock
        self._lock = threading.Lock()
        self._direct: dict[Key, Channel] = {}
        self._idle: dict[Key, list[Channel]] = {}
        self._waiting: dict[Key, int] = {}
        self._away_until: dict[Key, float] = {}

    def direct(self, key: Key) -> Channel | None:
        """The channel for what is answered at once; None where nobody of this machine serves."""
        known = self._direct.get(key)
        if known is not None and not known.has_ended:
            return known
        with self._lock:
            known = self._direct.pop(key, None)
            if known is None or known.has_ended:
                known = self._connect(key)
            if known is not None:
                self._direct[key] = known
            return known

    def take(self, key: Key) -> Channel | None:
        """A channel for a fetch that may wait: it is the caller's until ``give_back``.

        None where nobody of this machine serves the partition, or too many wait at it.
        """
        with self._lock:
            if self._waiting.get(key, 0) >= MOST_WAITING:
                return None
            idle = self._idle.get(key, [])
            channel = None
            while idle and (channel is None or channel.has_ended):
                channel = idle.pop()
            if channel is None or channel.has_ended:
                channel = self._connect(key)
            if channel is not None:
                self._waiting[key] = self._waiting.get(key, 0) + 1
            return channel

    def give_back(self, key: Key, channel: Channel) -> None:
        """Its fetch has ended."""
        with self._lock:
            self._waiting[key] -= 1
            if not channel.has_ended:
                self._idle.setdefault(key, []).append(channel)

    def avoid(self, key: Key, seconds: float) -> None:
        """Let nobody come by socket for so long: what was asked there was not answered."""
        self._away_until[key] = self._clock() + seconds

    def _connect(self, key: Key) -> Channel | None:
        """A new connection; the lock is held."""
        if self._clock() < self._away_until.get(key, 0.0):
            return None
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        # A name that is too long is an OSError, too; BlockingIOError: its queue is full.
        with suppress(OSError):
            connection.connect(unix_address(log_name(self.cluster_id, *key)))
            # Another user's would take no request of this one; its name may be anybody's.
            if user_of(connection) == os.geteuid():
                return Channel(connection, self._reactor, self._buffers)
        connection.close()
        self._away_until[key] = self._clock() + AGAIN_S
        return None
