"""What the nodes report: which report of a node counts, and for what.

A report of a life of a LogManager that ended earlier may arrive late. No clock tells which of two
lives is the newer one. This does: a life that has obeyed orders which were sent when the other one
was known already is the newer one, since nobody reports before it lives. Until that is sure,
nothing follows from a report but orders without content, which make it so.

::

    life A: report 1 ---> orders 1 ---> report 2, "I obeyed 1" ..........(late)......> not sure
    life B:                              report 1 ---> orders 2 ---> report 2, "I obeyed 2" ---> B
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from raylog.actors.control import LogId, LogReport, Report
from raylog.actors.node.confirmed_logs import CONFIRMED_FOR_MS

# A node that was silent for so long gets no new partitions. It reports every few seconds.
SUSPECT_MS = 10_000
# Of each node, so many lives that have ended are remembered.
PAST_LIVES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """A node of the Ray cluster, as it reported itself last.

    ``heard_ms``: when that was; where it has not reported yet, when it was seen first.
    ``began_ms``: when the report's life was heard first. ``met_dirs``: the ids of the log dirs that
    were online in one of its reports.
    ``under_way``: the logs, and the ids of the log dirs, for which it was sent orders that the
    report does not know of.
    ``is_newest``: whether it is sure that its life is the newest one. ``may_end``: it was ordered
    to stop, and has not obeyed since that it shall not: what it reported may serve no more.
    ``ending_ms``: when its report said first that it ends; None where it does not.
    ``is_ended``: its LogManager
    does not run, as an operator wants it; ``is_clean``: whether that one said that it closed all of
    its logs in order, None where it said nothing. ``logs``: what the report says of each.
    """

    report: Report | None = None
    heard_ms: int
    began_ms: int = 0
    met_dirs: frozenset[str] = frozenset()
    under_way: frozenset[LogId | str] = frozenset()
    is_newest: bool = True
    may_end: bool = False
    ending_ms: int | None = None
    is_ended: bool = False
    is_clean: bool | None = None
    logs: Mapping[LogId, tuple[LogReport, ...]] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        logs: dict[LogId, tuple[LogReport, ...]] = {}
        for entry in () if self.report is None else self.report.logs:
            if entry.log is not None:
                logs[entry.log] = (*logs.get(entry.log, ()), entry)
        object.__setattr__(self, "logs", logs)

    def obeys(self, epoch: int) -> bool:
        """Whether the report was made under orders of this Controller, and more are obeyed."""
        report = self.report
        if report is None or not self.is_newest or self.may_end:
            return False
        return report.controller_epoch == epoch and report.orders > 0

    def keeps(self, epoch: int) -> bool:
        """Whether a log dir of it has this Controller's epoch, which is told from all before."""
        report = self.report
        if report is None or not self.obeys(epoch):
            return False
        return any(entry.takes_orders for entry in report.dirs)

    def is_young(self, now_ms: int) -> bool:
        """Whether LogActors that its report does not know may have rights of the life before.

        A LogManager that begins knows those that answer it, in log dirs that answer; the others it
        ends when it meets them. What the life before had confirmed to them has run out after this.
        """
        return self.report is not None and now_ms - self.began_ms < CONFIRMED_FOR_MS

    def is_suspect(self, now_ms: int) -> bool:
        """Whether it was silent for so long that it may hang."""
        return not self.is_ended and now_ms - self.heard_ms > SUSPECT_MS


@dataclass(slots=True, kw_only=True)
class _Life:
    """A life that may go on.

    ``known_since``: how many orders were sent before it was known. ``stopped_until``: the number of
    the last orders that may have stopped it, though it shall not stop any more; -1 for none.
    """

    known_since: int
    stopped_until: int = -1
    last_report: int = -1


@dataclass(slots=True, kw_only=True)
class _Lives:
    """The lives of a node's LogManager: those that may go on, and those that have ended."""

    going: dict[str, _Life] = field(default_factory=dict)
    past: deque[str] = field(default_factory=lambda: deque(maxlen=PAST_LIVES))

    def obeyed(self, life: str, number: int) -> None:
        """It obeyed the orders of this number: the lives that were known before have ended."""
        for other, known in list(self.going.items()):
            if other != life and known.known_since < number:
                self.ended(other)

    def ended(self, life: str) -> None:
        del self.going[life]
        self.past.append(life)


class Watched:
    """The nodes of the Ray cluster, by their key, and what they reported."""

    def __init__(self) -> None:
        self.nodes: dict[str, Observed] = {}
        self._lives: dict[str, _Lives] = {}
        self._left_ms: dict[str, int] = {}  # when nodes left the Ray cluster
        self._began_ms: int | None = None

    def absent_ms(self, key: str, now_ms: int) -> int | None:
        """How long a node is known not to be in the Ray cluster; None where it is there."""
        if key in self.nodes:
            return None
        began_ms = now_ms if self._began_ms is None else self._began_ms
        return now_ms - self._left_ms.get(key, began_ms)

    def see(self, keys: Iterable[str], now_ms: int) -> set[str]:
        """These nodes are in the Ray cluster now; returns those that came or left."""
        present = set(keys)
        self._began_ms = now_ms if self._began_ms is None else self._began_ms
        changed = present ^ set(self.nodes)
        for key in sorted(changed):
            if key in present:
                self.nodes[key] = Observed(heard_ms=now_ms)
                self._lives.setdefault(key, _Lives())
                self._left_ms.pop(key, None)
            else:
                del self.nodes[key]
                self._left_ms[key] = now_ms
        return changed

    def take(self, report: Report, epoch: int, sent: int, now_ms: int) -> bool:
        """A node reports; returns whether the report says something new that counts.

        ``sent``: the number of the last orders that this Controller sent to anybody.
        """
        seen = self.nodes.get(report.node)
        if seen is None:
            return False  # it reports again when it was seen
        lives = self._lives[report.node]
        if report.life in lives.past:
            return False
        life = lives.going.setdefault(report.life, _Life(known_since=sent))
        if report.number < life.last_report:
            return False
        is_same = seen.report is not None and seen.report.life == report.life
        if is_same and report.number == life.last_report:
            self.nodes[report.node] = replace(seen, heard_ms=now_ms)
            return False
        if report.ended is not None:
            lives.ended(report.life)
            return self._take_last(report, seen, now_ms)
        life.last_report = report.number
        if report.controller_epoch == epoch:
            lives.obeyed(report.life, report.orders)
        is_newest = len(lives.going) == 1
        is_told = report.controller_epoch == epoch and report.orders > life.stopped_until
        since_ms = now_ms if seen.ending_ms is None else seen.ending_ms
        online = {
            dir.directory_id for dir in report.dirs if dir.directory_id and dir.state == "online"
        }
        self.nodes[report.node] = Observed(
            report=report,
            ending_ms=since_ms if report.is_ending else None,
            heard_ms=now_ms,
            began_ms=seen.began_ms if is_same else now_ms,
            met_dirs=seen.met_dirs | online if is_same else frozenset(online),
            is_newest=is_newest,
            may_end=report.is_ending or (life.stopped_until >= 0 and not is_told),
        )
        return True

    def _take_last(self, report: Report, seen: Observed, now_ms: int) -> bool:
        """The last words of a life: what it had is not served any more, and is still there."""
        if seen.report is not None and seen.report.life != report.life:
            return False  # another one has taken its place
        is_clean = report.ended == "in order"
        self.nodes[report.node] = Observed(heard_ms=now_ms, is_clean=is_clean)
        return True

    def ended(self, key: str) -> None:
        """Nothing of a node runs, as an operator wants it."""
        seen = self.nodes[key]
        self.nodes[key] = Observed(heard_ms=seen.heard_ms, is_ended=True, is_clean=seen.is_clean)

    def is_wanted_again(self, key: str, sent: int) -> None:
        """A node that was to be stopped shall run. ``sent``: as of ``take``.

        An order to stop may be on its way or obeyed. Who obeys a later one did not get it.
        """
        for life in self._lives[key].going.values():
            life.stopped_until = sent
        self.nodes[key] = replace(self.nodes[key], may_end=True)

    def begins(self, key: str, now_ms: int) -> None:
        """A node of which nothing runs is wanted again, from now on."""
        self.nodes[key] = Observed(heard_ms=now_ms)

    def past_lives(self, key: str) -> Collection[str]:
        """The lives of a node's LogManager that have ended; none of a node that nobody has seen."""
        lives = self._lives.get(key)
        return () if lives is None else lives.past

    def under_way(self, key: str, subjects: frozenset[LogId | str]) -> None:
        """Orders for these logs and dirs were sent that the node's report does not know of."""
        self.nodes[key] = replace(self.nodes[key], under_way=subjects)

    def validate(self) -> None:
        for key, seen in self.nodes.items():
            report = seen.report
            if report is None:
                continue
            assert report.node == key
            assert report.life not in self._lives[key].past
            assert self._lives[key].going[report.life].last_report == report.number
