"""The LogActors that cannot be reached by name, by TCP: nearly always those of other machines.

Where one listens, and the token that lets a client in, are known by asking it by Ray call
(``LogActorImpl.data_address``). When a channel has ended its process may have, too, and another one
listens elsewhere: it is asked again.
"""

import errno
import socket
from contextlib import suppress
from typing import Final

from raylog.actors.messages import DataAddress
from raylog.cluster.client.buffers import Buffers
from raylog.cluster.client.sockets.channel import Channel, Watching
from raylog.cluster.client.sockets.channels import Channels, Key
from raylog.cluster.client.sockets.entry import entry

_UNDER_WAY: Final = (0, errno.EINPROGRESS)


class RemoteLogs:
    """See the module's head. Safe for threads."""

    def __init__(self, reactor: Watching, buffers: Buffers) -> None:
        self._reactor, self._buffers = reactor, buffers
        self._addresses: dict[Key, DataAddress] = {}
        self.channels = Channels(self._connect)

    def learn(self, key: Key, address: DataAddress) -> None:
        """A partition's LogActor listens there now."""
        self.channels.forget_ended(key)
        self._addresses[key] = address

    def knows(self, key: Key) -> bool:
        """Whether its LogActor's address is known."""
        return key in self._addresses

    def failed(self, key: Key, channel: Channel, *, hangs: bool) -> None:
        """A request got no answer there: its address is asked for again."""
        self._addresses.pop(key, None)

    def _connect(self, key: Key, has_ended: bool) -> Channel | None:
        if has_ended:
            self._addresses.pop(key, None)
        address = self._addresses.get(key)
        if address is None:
            return None
        with suppress(OSError):  # no descriptor is left
            family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
            connection = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            error = connection.connect_ex((address.host, address.port))
            with suppress(OSError, RuntimeError):  # RuntimeError: the system has no more threads
                if error in _UNDER_WAY:
                    entering = entry(address) if address.token else None
                    return Channel(connection, self._reactor, self._buffers, entering)
            connection.close()
        del self._addresses[key]
        return None
