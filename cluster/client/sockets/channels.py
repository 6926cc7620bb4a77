"""The channels to LogActors: one to ask each of them, and others to wait at.

Requests on one connection are answered in order, and a fetch that waits for records holds up what
is behind it. So each partition has one channel for what is answered at once, and each fetch that
may wait has one to itself, which is kept for the next.
"""

import os
import threading
from collections.abc import Callable
from typing import TypeAlias

from raylog.cluster.client.sockets.channel import Channel

Key: TypeAlias = tuple[str, int]  # topic id and number


class Channels:
    """Safe for threads."""

    def __init__(self, connect: Callable[[Key, bool], Channel | None]) -> None:
        """``connect``: a new channel, or None; does not wait.

        It is told whether there was one before that has ended.
        """
        self._connect = connect
        self._start_anew()

    def _start_anew(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._direct: dict[Key, Channel] = {}
        self._idle: dict[Key, list[Channel]] = {}

    def _leave_parent(self) -> None:
        """A process that was forked off has its parent's sockets: they are not for its requests."""
        if os.getpid() != self._pid:
            self._start_anew()

    def direct(self, key: Key) -> Channel | None:
        """The channel for what is answered at once."""
        self._leave_parent()
        known = self._direct.get(key)
        if known is not None and not known.has_ended:
            return known
        with self._lock:
            known = self._direct.pop(key, None)
            if known is None or known.has_ended:
                self._forget_all_ended()
                known = self._connect(key, known is not None)
            if known is not None:
                self._direct[key] = known
            return known

    def _forget_all_ended(self) -> None:
        """Also of topics that are gone, of which nobody asks any more. The lock is held."""
        self._direct = {
            key: channel for key, channel in self._direct.items() if not channel.has_ended
        }
        idle = {
            key: [channel for channel in channels if not channel.has_ended]
            for key, channels in self._idle.items()
        }
        self._idle = {key: channels for key, channels in idle.items() if channels}

    def is_busy(self, key: Key) -> bool:
        """Whether a request has no answer yet on the channel for what is answered at once."""
        known = self._direct.get(key)
        return known is not None and known.is_busy

    def take(self, key: Key) -> Channel | None:
        """A channel for a fetch that may wait: it is the caller's until ``give_back``."""
        self._leave_parent()
        with self._lock:
            idle = self._idle.get(key, [])
            channel = None
            while idle and (channel is None or channel.has_ended):
                channel = idle.pop()
            if channel is None or channel.has_ended:
                return self._connect(key, channel is not None)
            return channel

    def forget_ended(self, key: Key) -> None:
        """Forget that there were channels before."""
        with self._lock:
            known = self._direct.get(key)
            if known is not None and known.has_ended:
                del self._direct[key]
            idle = self._idle.get(key, [])
            self._idle[key] = [channel for channel in idle if not channel.has_ended]

    def give_back(self, key: Key, channel: Channel) -> None:
        """Its fetch has ended."""
        with self._lock:
            if not channel.has_ended:
                self._idle.setdefault(key, []).append(channel)
