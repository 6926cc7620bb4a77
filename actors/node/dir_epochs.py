"""Which log dirs have the epoch of the Controller that a node obeys, each dir for itself.

::

    behind --WriteEpoch--> being written --it ends well--> takes orders
      ^                      |    |
      |   a shortage: again  |    +-- for longer than PATIENCE_MS: late, until it ends
      +----------------------+    +-- an error of the disk: offline, which others see to

A log dir that is behind takes no orders: nothing of them is done there, so that no older Controller
is obeyed after whatever loss. A disk that hangs says nothing, and so nothing follows from it: its
dir is late. What is ordered of the other dirs does not wait for it, and it comes back by itself.
"""

from collections.abc import Iterable

# A disk that takes longer for a file of one line is one that hangs.
PATIENCE_MS = 10_000


class DirEpochs:
    """See the module's head. It knows only dirs that are online."""

    def __init__(self) -> None:
        self.obeyed = -1  # the highest epoch of which orders were obeyed in this life
        self._written: dict[str, int] = {}  # in this life
        self._writing: dict[str, int] = {}
        self._since_ms: dict[str, int] = {}  # of the first attempt that did not end well
        self._short: set[str] = set()  # until the next tick: no room, or no file left
        self._late: set[str] = set()

    def takes_orders(self, directory_id: str) -> bool:
        """Whether the dir has the epoch of all orders that were obeyed."""
        return self._written.get(directory_id, -1) >= self.obeyed

    def is_late(self, directory_id: str) -> bool:
        return directory_id in self._late

    def to_write(self, online: Iterable[str], epoch: int, now_ms: int) -> list[str]:
        """The dirs to which an epoch is to be written now; they are being written from now on."""
        dirs: list[str] = []
        for directory_id in online:
            is_busy = directory_id in self._writing or directory_id in self._short
            if self._written.get(directory_id, -1) < epoch and not is_busy:
                self._writing[directory_id] = epoch
                self._since_ms.setdefault(directory_id, now_ms)
                dirs.append(directory_id)
        return dirs

    def written(self, directory_id: str) -> bool:
        """A write has ended well. Returns whether the dir takes orders again.

        One that was begun before the dir was read anew says nothing.
        """
        epoch = self._writing.pop(directory_id)
        if epoch < 0:
            return False
        did_wait = self.is_late(directory_id) or not self.takes_orders(directory_id)
        self._written[directory_id] = epoch
        self._since_ms.pop(directory_id, None)
        self._late.discard(directory_id)
        return did_wait and self.takes_orders(directory_id)

    def not_written(self, directory_id: str, *, is_short: bool) -> None:
        """A write has failed. ``is_short``: for a reason that passes; it is tried again."""
        del self._writing[directory_id]
        if is_short:
            self._short.add(directory_id)

    def forget(self, directory_id: str) -> None:
        """The dir went offline, or was read anew."""
        self._written.pop(directory_id, None)
        self._since_ms.pop(directory_id, None)
        self._late.discard(directory_id)
        self._short.discard(directory_id)
        if directory_id in self._writing:
            self._writing[directory_id] = -1

    def try_again(self) -> None:
        """Time has passed: what was short may be there."""
        self._short.clear()

    def pass_time(self, now_ms: int) -> bool:
        """Note who is late by now; returns whether somebody is who was not."""
        late = {key for key, since_ms in self._since_ms.items() if now_ms - since_ms >= PATIENCE_MS}
        is_news = not late <= self._late
        self._late |= late
        return is_news

    def is_settled(self, online: Iterable[str], epoch: int) -> bool:
        """Whether orders of this epoch may be obeyed: some dir has it, and others are late.

        A node without a log dir has nothing that could be lost.
        """
        dirs = list(online)
        have = [key for key in dirs if self._written.get(key, -1) >= epoch]
        return len(have) == len(dirs) or (
            bool(have) and all(key in have or key in self._late for key in dirs)
        )
