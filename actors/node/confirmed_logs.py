"""Which logs obey a config that the Controller has confirmed of late.

Only of these may anything be deleted: a node that the Controller does not reach may have missed
that a topic's ``retention.ms`` was raised. An envelope that was made from report N, and orders
nothing else of a log, confirms the config version that report N shows of it, as of the time when
report N was made: nobody knows how long the two were on their way.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from raylog.actors.control import (
    Confirmed,
    KeepOut,
    LogId,
    LogReport,
    Move,
    ObeyConfig,
    Orders,
    ReadBack,
    Serve,
    SetAside,
    Stop,
)
from raylog.storage.names import TopicPartition

# Deletion may go on for so long after the last word of the Controller. An alter that some node
# does not confirm waits longer than this before it is answered.
CONFIRMED_FOR_MS = 20_000


@dataclass(slots=True)
class _Shown:
    """What the reports show of a log that is served."""

    log: LogId | None
    version: int
    since_report: int
    confirmed_ms: int | None = None


class ConfirmedLogs:
    """See the module's head."""

    def __init__(self) -> None:
        self._shown: dict[TopicPartition, _Shown] = {}
        self._made: deque[tuple[int, int]] = deque()  # number of a report, when it was made

    def report_made(self, number: int, now_ms: int) -> None:
        self._made.append((number, now_ms))
        while self._made[0][1] <= now_ms - CONFIRMED_FOR_MS:
            self._made.popleft()

    def show(self, partition: TopicPartition, reports: Iterable[LogReport], number: int) -> None:
        """The report of this number, and those after it, show this of a partition.

        A log that was not served for a while, or obeys another config, is to be confirmed anew.
        """
        serving = next((report for report in reports if report.state == "serving"), None)
        if serving is None:
            self._shown.pop(partition, None)
            return
        now = _Shown(serving.log, serving.config_version, number)
        before = self._shown.get(partition)
        if before is None or before.version != now.version:
            self._shown[partition] = now

    def obeyed(self, orders: Orders) -> list[LogId]:
        """An envelope is obeyed now; returns the logs that it confirms."""
        made_ms = dict(self._made).get(orders.report)
        if made_ms is None:
            return []
        others = self._logs_with_other_orders(orders)
        confirmed: list[LogId] = []
        for shown in self._shown.values():
            if shown.since_report <= orders.report and shown.log not in others:
                shown.confirmed_ms = made_ms
                if shown.log is not None:
                    confirmed.append(shown.log)
        return confirmed

    def _logs_with_other_orders(self, orders: Orders) -> set[LogId]:
        """The logs that shall be otherwise than they are shown."""
        others = set(orders.doubts)
        for order in orders.orders:
            if isinstance(order, SetAside | ReadBack | KeepOut | Stop | ObeyConfig):
                continue  # never of what is served
            shown = self._shown.get(order.log.partition)
            version = order.config_version if isinstance(order, Serve | Move) else None
            if shown is None or shown.version != version:
                others.add(order.log)
        return others

    def right(self, log: LogId, now_ms: int) -> Confirmed | None:
        """The right to remove records of a log; None where there is none now."""
        shown = self._shown.get(log.partition)
        if shown is None or shown.log != log or shown.confirmed_ms is None:
            return None
        until_ms = shown.confirmed_ms + CONFIRMED_FOR_MS
        if now_ms >= until_ms:
            return None
        return Confirmed(log=log, config_version=shown.version, until_ms=until_ms)
