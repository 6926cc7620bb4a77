"""How far the recoveries of a node's partitions have come, as LogActors tell it. Knows no Ray.

A LogActor answers nobody before its log is open, so it tells its LogManager, which answers for it.
"""

from collections.abc import Callable

from raylog.actors.messages import Recovering
from raylog.storage.names import TopicPartition
from raylog.storage.report import Progress

# A LogActor that was killed tells no end: what it said last is forgotten after this.
FORGOTTEN_AFTER_S = 60.0


class Recoveries:
    """Not safe for threads: the LogManager guards it with its lock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock``: seconds that never go back."""
        self._clock = clock
        self._told: dict[TopicPartition, tuple[float, Progress]] = {}

    def record(self, partition: TopicPartition, progress: Progress | None) -> None:
        """A LogActor tells how far it has come; None: it is at the end."""
        if progress is None:
            self._told.pop(partition, None)
        else:
            self._told[partition] = (self._clock(), progress)

    def running(self) -> list[Recovering]:
        """Those of which something was heard lately."""
        oldest_s = self._clock() - FORGOTTEN_AFTER_S
        self._told = {key: told for key, told in self._told.items() if told[0] >= oldest_s}
        return [Recovering(str(key), progress) for key, (_, progress) in self._told.items()]
