"""What the nodes report: which report of a node counts, and for what.

A report of a life of a LogManager that ended earlier may arrive late. No clock tells which of two
lives is the newer one, so this does: a life that has obeyed orders of this Controller was told them
in answer to a report of it, and so it is the newest one that had reported then. Until a life has
obeyed, nothing follows from its report but an answer that makes it known who is in charge.

::

    life A: report 1 ......................(late)....> does not count any more
    life B:    report 1 ---> orders 1 ---> report 2, "I obeyed orders 1" ---> B is the one
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from raylog.actors.control import LogId, LogReport, Report

# A node that was silent for so long gets no new partitions. It reports every few seconds.
SUSPECT_MS = 10_000
# Of each node, so many lives that have ended are remembered.
PAST_LIVES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """A node of the Ray cluster, as it reported itself last.

    ``heard_ms``: when that was; where it has not reported yet, when it was seen first.
    ``under_way``: the logs for which it was sent orders that the report does not know of.
    ``logs``: what the report says of each.
    """

    report: Report | None = None
    heard_ms: int
    under_way: frozenset[LogId] = frozenset()
    logs: Mapping[LogId, tuple[LogReport, ...]] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        logs: dict[LogId, tuple[LogReport, ...]] = {}
        for entry in () if self.report is None else self.report.logs:
            if entry.log is not None:
                logs[entry.log] = (*logs.get(entry.log, ()), entry)
        object.__setattr__(self, "logs", logs)

    def obeys(self, epoch: int) -> bool:
        """Whether the report was made under orders of this Controller."""
        report = self.report
        return report is not None and report.controller_epoch == epoch and report.orders > 0

    def is_suspect(self, now_ms: int) -> bool:
        """Whether it was silent for so long that it may hang."""
        return now_ms - self.heard_ms > SUSPECT_MS


@dataclass(slots=True, kw_only=True)
class _Lives:
    """The lives of a node's LogManager, with the number of the last report of each."""

    numbers: dict[str, int] = field(default_factory=dict)
    past: deque[str] = field(default_factory=lambda: deque(maxlen=PAST_LIVES))

    def end_others(self, life: str) -> None:
        self.past.extend(other for other in self.numbers if other != life)
        self.numbers = {life: self.numbers[life]}


class Watched:
    """The nodes of the Ray cluster, by their key, and what they reported."""

    def __init__(self) -> None:
        self.nodes: dict[str, Observed] = {}
        self._lives: dict[str, _Lives] = {}

    def see(self, keys: Iterable[str], now_ms: int) -> set[str]:
        """These nodes are in the Ray cluster now; returns those that came or left."""
        present = set(keys)
        changed = present ^ set(self.nodes)
        for key in sorted(changed):
            if key in present:
                self.nodes[key] = Observed(heard_ms=now_ms)
                self._lives.setdefault(key, _Lives())
            else:
                del self.nodes[key]
        return changed

    def take(self, report: Report, epoch: int, now_ms: int) -> bool:
        """A node reports; returns whether the report says something new that counts."""
        seen = self.nodes.get(report.node)
        if seen is None:
            return False  # it reports again when it was seen
        lives = self._lives[report.node]
        if report.life in lives.past:
            return False
        last = lives.numbers.get(report.life, -1)
        if report.number < last:
            return False
        lives.numbers[report.life] = report.number
        is_same = seen.report is not None and seen.report.life == report.life
        if is_same and report.number == last:
            self.nodes[report.node] = replace(seen, heard_ms=now_ms)
            return False
        taken = Observed(report=report, heard_ms=now_ms)
        self.nodes[report.node] = taken
        if taken.obeys(epoch):
            lives.end_others(report.life)
        return True

    def under_way(self, key: str, logs: frozenset[LogId]) -> None:
        """Orders for these logs were sent that the node's report does not know of."""
        self.nodes[key] = replace(self.nodes[key], under_way=logs)

    def validate(self) -> None:
        for key, seen in self.nodes.items():
            report = seen.report
            if report is None:
                continue
            assert report.node == key
            assert report.life not in self._lives[key].past
            assert self._lives[key].numbers[report.life] == report.number
