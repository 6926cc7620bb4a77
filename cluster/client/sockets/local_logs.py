"""The LogActors of this machine, by the names of their Unix sockets.

A name leads to a process of this machine or to nobody, and it is known at once: nothing waits here.
"""

import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from raylog.actors.plane.addresses import log_name, unix_address, user_of
from raylog.cluster.client.buffers import Buffers
from raylog.cluster.client.sockets.channel import Channel, Watching
from raylog.cluster.client.sockets.channels import Channels, Key

# A partition that is not found here is looked for again after this.
AGAIN_S: Final = 1.0
# A socket that did not answer in time is not used for so long: its process may hang, and Ray may
# have begun another.
AVOID_S: Final = 10.0


class LocalLogs:
    """See the module's head. Safe for threads."""

    def __init__(
        self,
        broker: str,
        reactor: Watching,
        buffers: Buffers,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``broker``: as of ``broker_id``."""
        self._broker = broker
        self._reactor, self._buffers, self._clock = reactor, buffers, clock
        self._away_until: dict[Key, float] = {}  # nobody was found there
        self._avoided_until: dict[Key, float] = {}
        self.channels = Channels(self._connect)

    def failed(self, key: Key, channel: Channel, *, hangs: bool) -> None:
        """A request got no answer there, since the channel ended, or its time was up (``hangs``).

        Where it has never answered anything, another one would do so again.
        """
        if hangs or not channel.has_answered:
            self._avoided_until[key] = self._clock() + AVOID_S

    def look_again(self, key: Key) -> None:
        """Its LogActor serves: its name may be found now."""
        self._away_until.pop(key, None)

    def _connect(self, key: Key, _: bool) -> Channel | None:
        now_s = self._clock()
        if now_s < max(self._away_until.get(key, 0.0), self._avoided_until.get(key, 0.0)):
            return None
        with suppress(OSError):  # no descriptor is left
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            # A name that is too long is an OSError, too; BlockingIOError: its queue is full.
            # RuntimeError: the system has no more threads.
            with suppress(OSError, RuntimeError):
                connection.connect(unix_address(log_name(self._broker, *key)))
                # Another user's would take no request of this one; its name may be anybody's.
                if user_of(connection) == os.geteuid():
                    return Channel(connection, self._reactor, self._buffers)
            connection.close()
        self._away_until[key] = now_s + AGAIN_S
        return None
