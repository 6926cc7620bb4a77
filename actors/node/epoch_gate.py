"""Whose orders a node obeys: those of the Controller with the highest epoch that it has seen.

::

    envelope's epoch   lower than seen      refused
                       equal, open          obeyed
                       higher, or not yet   waits until it is on the log dirs, fsynced
                       open in this life

An epoch is open when each log dir that is online has it, but for those that do not answer
(``dir_epochs.py``): these take no orders of it before they have it. So no later life of the node
forgets an epoch by which something was done, whatever else is rolled back. Of one Controller,
orders with a number that is not higher than one that was obeyed are late, and dropped.
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
        self._open = -1
        self._obeyed = -1
        self._number = -1  # of the last orders that were obeyed of this epoch
        self._held: list[Orders] = []

    def read(self, controller_epoch: int) -> None:
        """A dir has this epoch, since it was read or written."""
        self.seen = max(self.seen, controller_epoch)
        self.on_disk = max(self.on_disk, controller_epoch)

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
        if orders.controller_epoch > self._open:
            self._held = [*self._held, orders][-MAX_HELD:]
            return "hold"
        self._obeyed, self._number = orders.controller_epoch, orders.number
        return "obey"

    @property
    def wanted(self) -> int:
        """The epoch that every log dir shall have; -1: nobody has ordered anything yet."""
        return self.seen if self._held else self._obeyed

    @property
    def obeyed(self) -> int:
        """The highest epoch of which orders were obeyed in this life; -1 for none."""
        return self._obeyed

    @property
    def is_holding(self) -> bool:
        return bool(self._held)

    def open(self) -> list[Orders]:
        """The log dirs have the epoch; returns the envelopes that are to be judged again."""
        self._open = self.seen
        self.on_disk = max(self.on_disk, self.seen)
        held, self._held = self._held, []
        return held

    def validate(self) -> None:
        assert self._obeyed <= self.seen, "orders were obeyed of an epoch that was never seen"
        assert self._obeyed <= self.on_disk <= self.seen, (
            "an epoch was obeyed before it was written"
        )
        assert self._obeyed <= self._open <= self.seen, "an epoch was obeyed that is not open"
