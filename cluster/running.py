"""What of a broker runs: the actors of a namespace, by kind.

A broker may run in parts: its Controller was killed for good and the rest serves on, or it stopped
while a node was away. Whoever starts, stops or looks at one asks here.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from raylog.actors.runtime.handles import running
from raylog.actors.runtime.names import (
    COMPACTION,
    LOG,
    LOG_MANAGER,
    RETENTION,
    is_ours,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """``names``: of all actors of the namespace."""

    names: frozenset[str]

    @property
    def log_managers(self) -> list[str]:
        """The keys of the nodes that have a LogManager, sorted."""
        return self._of(LOG_MANAGER)

    @property
    def compaction(self) -> list[str]:
        """The keys of the nodes that have a CompactionActor, sorted."""
        return self._of(COMPACTION)

    @property
    def retention(self) -> list[str]:
        """The keys of the nodes that have a RetentionActor, sorted."""
        return self._of(RETENTION)

    @property
    def logs(self) -> list[str]:
        """The partitions that have a LogActor, sorted."""
        return self._of(LOG)

    @property
    def others(self) -> list[str]:
        """The names of the broker's actors other than the Controller, sorted."""
        return sorted(filter(is_ours, self.names))

    def _of(self, prefix: str) -> list[str]:
        return sorted(name.removeprefix(prefix) for name in self.names if name.startswith(prefix))


def running_parts(namespace: str) -> Running:
    """What runs now. Raises as ``running`` does."""
    return parts_of(running(namespace))


def parts_of(names: Iterable[str]) -> Running:
    return Running(names=frozenset(names))
