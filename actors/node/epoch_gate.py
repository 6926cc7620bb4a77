"""Whose orders a node obeys: those of the Controller with the highest epoch that it has seen.

::

    envelope's epoch   lower than seen      refused
                       equal, written       obeyed
                       higher, or not yet   waits until it is on every log dir, fsynced
                       written in this life

An epoch that was obeyed is on every log dir that is online, so no later life of the node forgets
it, whatever else is rolled back. Of one Controller, orders with a number that is not higher than
one that was obeyed are late, and dropped.
"""

from typing import Literal

from raylog.actors.control import VERSION, Orders

Verdict = Literal["obey", "hold", "refuse", "drop"]
# While a disk is slow to write an epoch, its Controller goes on sending. It sends again what is
# dropped here.
MAX_HELD = 16


class EpochGate:
    """See the module's head."""

    def __init__(self, node: str, life: str) -> None:
        self._node, self._life = node, life
        self.seen = -1
        self.on_disk = -1  # the highest that a log dir has
        self._written = -1
        self._obeyed = -1
        self._number = -1  # of the last orders that were obeyed of this epoch
        self._held: list[Orders] = []
        self.writing: int | None = None  # the epoch that is being written now
        self._is_put_off = False  # until the next tick: a dir had no room, or the process no file

    def read(self, controller_epoch: int) -> None:
        """Dirs were read. Not all of them need to have the highest epoch: it is written again."""
        self.seen = max(self.seen, controller_epoch)
        self.on_disk = max(self.on_disk, controller_epoch)
        self._written = -1

    @property
    def number(self) -> int:
        """The number of the last orders that were obeyed of the epoch seen; -1 for none."""
        return self._number if self._obeyed == self.seen else -1

    def judge(self, orders: Orders) -> Verdict:
        """What is to be done with an envelope."""
        if orders.version > VERSION or orders.node != self._node:
            return "drop"
        if orders.controller_epoch < self.seen:
            return "refuse"
        if orders.life != self._life:
            return "drop"
        self.seen = orders.controller_epoch
        if orders.number <= self.number:
            return "drop"
        if orders.controller_epoch > self._written:
            self._held = [*self._held, orders][-MAX_HELD:]
            return "hold"
        self._obeyed, self._number = orders.controller_epoch, orders.number
        return "obey"

    @property
    def must_write(self) -> bool:
        return bool(self._held) and self.writing is None and not self._is_put_off

    def begin_write(self) -> int:
        """Returns the epoch that is to be written to every log dir that is online."""
        self.writing = self.seen
        return self.seen

    def written(self, is_everywhere: bool) -> list[Orders]:
        """The write has ended; returns the envelopes that are to be judged again.

        ``is_everywhere``: whether the dirs that are online now all have it.
        """
        assert self.writing is not None, "an epoch was written that nobody began to write"
        if is_everywhere:
            self._written = self.writing
            self.on_disk = max(self.on_disk, self.writing)
        self.writing = None
        held, self._held = self._held, []
        return held

    def put_off(self) -> None:
        """The write has failed for a reason that passes: what is held waits on."""
        assert self.writing is not None, "an epoch was not written that nobody began to write"
        self.writing, self._is_put_off = None, True

    def try_again(self) -> None:
        """Time has passed."""
        self._is_put_off = False

    def validate(self) -> None:
        assert self._obeyed <= self.seen, "orders were obeyed of an epoch that was never seen"
        assert self._obeyed <= self.on_disk <= self.seen, (
            "an epoch was obeyed before it was written"
        )
        assert self._written <= self.seen, "an epoch was written that was never seen"
        assert self._held or self.writing is None or self._written < self.seen
