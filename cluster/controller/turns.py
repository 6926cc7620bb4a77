"""Whose turn it is to be replaced for another config of the broker; see ``rolling.py``.

A node that loses its turn may still obey its order to stop, which may be on its way. It is treated
as one that an operator wants again before it has ended: until it has obeyed a later order, it holds
everybody else up.
"""

from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.observed import Watched
from raylog.cluster.controller.rolling import Digests, roll
from raylog.cluster.controller.telling import Telling


class Turns:
    """``node``: the key of the one that is replaced now; empty for none."""

    def __init__(self, watched: Watched, telling: Telling) -> None:
        self.node = ""
        self._watched, self._telling = watched, telling

    def choose(self, desired: Desired, now_ms: int, wanted: Digests) -> set[str]:
        """Choose the node; returns those that have lost or got the turn."""
        before = self.node
        self.node = roll(desired, self._watched.nodes, now_ms, wanted).node
        if self.node == before:
            return set()
        seen = self._watched.nodes.get(before)
        if seen is not None and seen.report is not None and not desired.is_stopped(before):
            self._watched.is_wanted_again(before, self._telling.last_number)
            self.node = roll(desired, self._watched.nodes, now_ms, wanted).node
        return {before, self.node}
