"""``log.dirs`` of now, at Ray's head: where a Controller that begins anew looks for the metadata.

Ray starts it with the config of the broker's start. One that was applied since is in the metadata,
which the Controller does not have yet; it may lie in a log dir that only that config names. So
``log.dirs`` are kept before a node begins with them, and count for this start of the broker only.
"""

from collections.abc import Sequence

import msgpack

from raylog.cluster.controller.witness import Notes


class KeptLogDirs:
    """Those of a namespace and a start of its broker. Each method raises what Ray raises."""

    def __init__(self, notes: Notes, namespace: str, start: str) -> None:
        self._notes = notes
        self._prefix = f"raylog:{namespace}:log-dirs:"
        self._key = self._prefix + start
        self._kept: tuple[str, ...] = ()  # by this process

    def keep(self, log_dirs: Sequence[str]) -> None:
        """A node is about to begin with them."""
        if tuple(log_dirs) == self._kept:
            return
        self._notes.keep(self._key, bytes(msgpack.packb({"v": 1, "log_dirs": list(log_dirs)})))
        self._kept = tuple(log_dirs)
        for key in self._notes.find(self._prefix):
            if key != self._key:
                self._notes.forget(key)

    def find(self, given: Sequence[str]) -> tuple[str, ...]:
        """The kept ones; ``given`` where none are."""
        value = self._notes.find(self._key).get(self._key)
        return tuple(given) if value is None else tuple(msgpack.unpackb(value)["log_dirs"])
