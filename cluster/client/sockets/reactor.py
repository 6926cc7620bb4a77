"""One thread of a process, which waits for all of its channels at once."""

import logging
import select
import threading
from typing import Final

from raylog.cluster.client.sockets.channel import Channel

logger = logging.getLogger(__name__)

_READ: Final = select.EPOLLIN | select.EPOLLRDHUP
# What one call receives at most, unless it is for a large frame.
_CHUNK_BYTES: Final = 64 << 10


class Reactor:
    """Wakes channels. Safe for threads; its own begins with the first channel, and is a daemon."""

    def __init__(self) -> None:
        self.start_anew()

    def start_anew(self) -> None:
        """Forget everything: this process was forked off, and the thread is its parent's."""
        self._lock = threading.Lock()
        self._channels: dict[int, Channel] = {}
        self._epoll: select.epoll | None = None

    def watch(self, channel: Channel) -> None:
        """Wake it when there is something to read. Raises OSError and RuntimeError."""
        with self._lock:
            if self._epoll is None:
                epoll = select.epoll()
                threading.Thread(
                    target=self._run, args=(epoll,), name="raylog-sockets", daemon=True
                ).start()
                self._epoll = epoll  # not where no thread could be started
            self._channels[channel.fileno()] = channel
            self._epoll.register(channel.fileno(), _READ)

    def want_room(self, channel: Channel, is_wanted: bool) -> None:
        """Wake it, too, when its socket takes more; or no longer."""
        assert self._epoll is not None, "it is being watched"
        self._epoll.modify(channel.fileno(), _READ | (select.EPOLLOUT if is_wanted else 0))

    def forget(self, channel: Channel) -> None:
        """Wake it no more."""
        with self._lock:
            assert self._epoll is not None, "it is being watched"
            self._epoll.unregister(channel.fileno())
            del self._channels[channel.fileno()]

    def _run(self, epoll: select.epoll) -> None:
        chunk = memoryview(bytearray(_CHUNK_BYTES))
        while True:
            for descriptor, events in epoll.poll():
                channel = self._channels.get(descriptor)
                if channel is None:
                    continue
                try:
                    channel.ready(chunk, has_room=bool(events & select.EPOLLOUT))
                except Exception:  # a fault of ours: the other channels must not suffer for it
                    logger.exception("a channel failed in a way that nobody expected")
                    channel.end()
