"""When a node is told what: at once where it is news, and again until it is done.

One message has everything that is wanted of the node, so that what it does not name is confirmed.
The exception are logs that failed: each order costs a try, so they are named at longer and longer
intervals only.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TypeAlias

from raylog.actors.control import (
    KeepOut,
    LogId,
    LogReport,
    Order,
    Orders,
    ReadBack,
    Report,
    SetAside,
)
from raylog.actors.levels import FIRST_LEVEL
from raylog.storage.wire import RELEASE

FIRST_DELAY_MS = 1_000
# What was mended is noticed within a minute.
LONGEST_DELAY_MS = 60_000
# A node that has nothing to do is told so, too: that is the confirmation without which its logs
# keep what is old. It holds for 20 s, so three may be lost.
CONFIRM_MS = 5_000


Try: TypeAlias = tuple[object, ...]  # see ``try_of``


@dataclass(slots=True)
class Delay:
    """When to do something again: after a second, then after twice as long each time."""

    due_ms: int
    delay_ms: int = FIRST_DELAY_MS

    def done(self, now_ms: int) -> None:
        """It was done now."""
        self.due_ms = now_ms + self.delay_ms
        self.delay_ms = min(2 * self.delay_ms, LONGEST_DELAY_MS)


@dataclass(slots=True, kw_only=True)
class _Line:
    """What one life of a node's LogManager was told."""

    again: Delay
    # the last ones, without those for logs that failed; None: nothing was told yet
    orders: tuple[Order, ...] | None = None
    sent_ms: int = 0
    # the number of the last order about each log, and about each log dir
    under_way: dict[LogId | str, int] = field(default_factory=dict)
    last_number: int = 0
    failed: dict[LogId, Delay] = field(default_factory=dict)  # when each is tried again
    tried: dict[LogId, set[Try]] = field(default_factory=dict)  # what of each was tried
    # What is served, by the last report: (config version, leader epoch); and of this, what was
    # confirmed by some message, and what was not.
    served: dict[LogId, tuple[int, int]] = field(default_factory=dict)
    confirmed: dict[LogId, tuple[int, int]] = field(default_factory=dict)
    unconfirmed: set[LogId] = field(default_factory=set)

    def note_served(self, report: Report) -> None:
        """A log that was started again, or has another config, is to be confirmed anew."""
        self.served = {
            entry.log: (entry.config_version, entry.leader_epoch)
            for entry in report.logs
            if entry.log is not None and entry.state == "serving"
        }
        for log, facts in list(self.confirmed.items()):
            if self.served.get(log) != facts:
                del self.confirmed[log]
        self.unconfirmed = self.served.keys() - self.confirmed.keys()

    def note_confirmed(self, doubts: frozenset[LogId]) -> None:
        """A message was sent that confirms what is served, but for these logs."""
        for log in doubts & self.confirmed.keys():
            del self.confirmed[log]
            self.unconfirmed.add(log)
        for log in self.unconfirmed - doubts:
            self.confirmed[log] = self.served[log]
            self.unconfirmed.discard(log)

    def is_due(self, order: Order, now_ms: int) -> bool:
        """Whether an order for a log that failed may be given, or given again.

        What was not tried yet does not wait for what failed.
        """
        log = log_of(order)
        if log is None or log not in self.failed:
            return True
        is_new = log in self.tried and try_of(order) not in self.tried[log]
        return is_new or now_ms >= self.failed[log].due_ms

    def without(self, logs: frozenset[LogId]) -> tuple[Order, ...] | None:
        """The orders of the last message, without those for some logs."""
        if self.orders is None:
            return None
        return tuple(order for order in self.orders if log_of(order) not in logs)

    def note(
        self, number: int, steady: tuple[Order, ...], tries: tuple[Order, ...], now_ms: int
    ) -> None:
        """A message was sent."""
        self.orders, self.sent_ms, self.last_number = steady, now_ms, number
        self.again.done(now_ms)
        for order in (*steady, *tries):
            subject = _subject_of(order)
            if subject is not None:
                self.under_way[subject] = number
        for order in tries:
            log = log_of(order)
            if log is not None:
                tried = self.tried.setdefault(log, set())
                if tried and try_of(order) not in tried:
                    self.failed[log] = Delay(now_ms)
                self.failed[log].done(now_ms)
                tried.add(try_of(order))


class Telling:
    """The messages to the nodes. ``number`` rises with each, over all nodes."""

    def __init__(self) -> None:
        # By node and life: orders may be under way to one that seemed to have ended.
        self._lines: dict[tuple[str, str], _Line] = {}
        # Nodes that were told this epoch, and their log dirs, which may be on another node later.
        self._told: set[str] = set()
        self._told_dirs: set[str] = set()
        self.last_number = 0

    def heard(self, report: Report, now_ms: int) -> frozenset[LogId | str]:
        """A node reports; returns the logs and dirs for which orders are under way to it."""
        key = (report.node, report.life)
        line = self._lines.setdefault(key, _Line(again=Delay(now_ms)))
        failed = {entry.log for entry in report.logs if entry.log is not None and _failed(entry)}
        line.note_served(report)
        line.failed = {
            log: line.failed.get(log) or Delay(now_ms + FIRST_DELAY_MS, 2 * FIRST_DELAY_MS)
            for log in sorted(failed)
        }
        line.tried = {log: one for log, one in line.tried.items() if log in failed}
        line.under_way = {
            subject: number for subject, number in line.under_way.items() if number > report.orders
        }
        return frozenset(line.under_way)

    def under_way(self, report: Report) -> frozenset[LogId | str]:
        """The logs and dirs for which orders are under way to the life that made this report."""
        return frozenset(self._lines[report.node, report.life].under_way)

    def ended(self, node: str, lives: Collection[str]) -> None:
        """These lives of a node's LogManager have ended."""
        for life in lives:
            self._lines.pop((node, life), None)

    def new_epoch(self) -> None:
        """The Controller has another epoch: everybody is told anew."""
        self._lines.clear()
        self._told.clear()
        self._told_dirs.clear()

    def has_told(self, node: str, report: Report | None) -> bool:
        """Whether a node knows the Controller's epoch from this Controller.

        It was told, or has a log dir of one that was: a disk may move to another node, or its node
        come back with another key. ``report``: the node's last one.
        """
        dirs = set() if report is None else _dirs_of(report)
        return node in self._told or not dirs.isdisjoint(self._told_dirs)

    def may_have_sent(self, report: Report) -> bool:
        """Whether the orders of this epoch that a life says it obeyed were sent from here."""
        line = self._lines.get((report.node, report.life))
        return report.orders <= (0 if line is None else line.last_number)

    def orders(
        self,
        report: Report,
        wanted: Collection[Order],
        epoch: int,
        now_ms: int,
        *,
        doubts: frozenset[LogId] = frozenset(),
        withheld: frozenset[LogId] = frozenset(),
        confirms: bool = True,
        level: int = FIRST_LEVEL,
    ) -> Orders | None:
        """The message that is due to a node; None where there is none.

        ``wanted``: what the plan orders. ``withheld``: logs that must not be ordered anything now,
        since a record about them is being written. ``doubts``: others that are not confirmed.
        ``confirms``: False where nothing is. ``level``: of the cluster.
        """
        line = self._lines[report.node, report.life]
        allowed = [order for order in wanted if log_of(order) not in withheld]
        steady = tuple(order for order in allowed if log_of(order) not in line.failed)
        tries = tuple(
            order
            for order in allowed
            if log_of(order) in line.failed and line.is_due(order, now_ms)
        )
        # What is withheld for a moment is no reason to tell the node anything.
        is_news = line.without(withheld) != steady
        is_unsettled = bool(steady) or line.last_number > report.orders
        is_again = is_unsettled and now_ms >= line.again.due_ms
        others = doubts | withheld | {log for order in wanted if (log := log_of(order)) is not None}
        is_first_confirmation = confirms and not line.unconfirmed <= others
        is_confirmation = is_first_confirmation or now_ms >= line.sent_ms + CONFIRM_MS
        if not (is_news or tries or is_again or is_confirmation):
            return None
        if is_news:
            line.again = Delay(now_ms)
        self.last_number += 1
        self._told.add(report.node)
        self._told_dirs |= _dirs_of(report)
        line.note(self.last_number, steady, tries, now_ms)
        if confirms:
            line.note_confirmed(others)
        return Orders(
            controller_epoch=epoch,
            number=self.last_number,
            node=report.node,
            life=report.life,
            report=report.number if confirms else -1,
            orders=(*steady, *tries),
            doubts=doubts | withheld & {entry.log for entry in report.logs},
            level=level,
            software=RELEASE,
        )

    def validate(self) -> None:
        for line in self._lines.values():
            assert line.last_number <= self.last_number
            assert all(number <= line.last_number for number in line.under_way.values())


def _dirs_of(report: Report) -> set[str]:
    return {entry.directory_id for entry in report.dirs if entry.directory_id is not None}


def try_of(order: Order) -> Try:
    """What of a log an order asks for: one that asks for the same has failed as well."""
    names = ("directory_id", "target_id", "config_version")
    return (type(order).__name__, *(getattr(order, name, None) for name in names))


def _failed(entry: LogReport) -> bool:
    """Whether a log has failed, or did so and is being tried again."""
    return entry.state == "failed" or (entry.state == "opening" and entry.problem is not None)


def _subject_of(order: Order) -> LogId | str | None:
    """The log that an order is about, or the id of the log dir; None for a whole node."""
    if isinstance(order, KeepOut | ReadBack):
        return order.directory_id
    return log_of(order)


def log_of(order: Order) -> LogId | None:
    """The log that an order is about; None for a log dir, or a folder that says no topic."""
    if isinstance(order, SetAside):
        if order.topic_id is None:
            return None
        return LogId(partition=order.partition, topic_id=order.topic_id)
    return getattr(order, "log", None)
