"""On which nodes new partitions are made: always the one that has the fewest.

Not chosen are nodes that are silent, stopped or drained, those whose log dirs are all offline, full
or draining, and those whose memory or processes allow no more.
"""

from collections.abc import Collection, Mapping

from raylog.actors.control import DirReport, Report
from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.observed import Observed

# A log dir with less than this is full: a new log's first segment would soon not fit.
MIN_USABLE_BYTES = 16 << 20
# Of Ray's id of a node.
NODE_ID_CHARS = 56
# Of the id as users see it. Fewer may be a slip of the hand, or the label of another node.
SHORT_KEY_CHARS = 8


class Homes:
    """The nodes that may get new partitions: how many each has, and how many more it may get."""

    def __init__(self, desired: Desired, observed: Mapping[str, Observed], now_ms: int) -> None:
        self.counts: dict[str, int] = {}
        self.room: dict[str, int | None] = {}  # None: nobody knows
        self.problems: list[str] = []  # of each node that gets none, why
        for key, seen in sorted(observed.items()):
            why = _why_unwanted(desired, key) or _why_none(desired, seen, now_ms)
            if seen.report is None or why:
                self.problems.append(f"node {short_key(key)}: {why}")
                continue
            self.counts[key] = len(desired.logs_at(key))
            self.room[key] = _room(desired, seen.report)

    @property
    def total_room(self) -> int | None:
        """How many more partitions all of them take; None where one of them does not know."""
        rooms = [room for room in self.room.values() if room is not None]
        return sum(rooms) if len(rooms) == len(self.room) else None

    def rooms_in_words(self) -> str:
        """How many more partitions each node takes."""
        return ", ".join(f"node {short_key(key)}: {room}" for key, room in self.room.items())

    def take(self, avoid: Collection[str] = ()) -> str | None:
        """The node for one more partition; None where no node is left.

        ``avoid``: nodes that it must not be.
        """
        able = [key for key in self.counts if key not in avoid and self.room[key] != 0]
        if not able:
            return None
        key = min(able, key=self.counts.__getitem__)
        self.counts[key] += 1
        room = self.room[key]
        if room is not None:
            self.room[key] = room - 1
        return key


def is_usable(desired: Desired, node: str, reported: DirReport) -> bool:
    """Whether a log dir that a node reports may be used there, by what is recorded of it."""
    record = desired.dirs.get(reported.directory_id or "")
    if record is None or record.node != node:
        return False
    return reported.state == "online" and record.state in ("online", "draining")


def _why_unwanted(desired: Desired, key: str) -> str:
    """Why an operator wants no new partition on a node; empty if it may get some."""
    match desired.state_of(key):
        case "stopped":
            return f"it is stopped; `raylog node start {short_key(key)}` starts it"
        case "draining":
            return f"it is being drained; `raylog node drain --undo {short_key(key)}` ends that"
        case _:
            return ""


def _why_none(desired: Desired, seen: Observed, now_ms: int) -> str:
    """Why a node gets no new partition; empty if it may."""
    report = seen.report
    if report is None:
        return "its LogManager has not reported yet"
    if seen.is_suspect(now_ms):
        silent_s = (now_ms - seen.heard_ms) // 1000
        return f"its LogManager has not reported for {silent_s} s"
    if not seen.obeys(desired.controller_epoch):
        return "its LogManager does not obey this Controller yet"
    usable = [entry for entry in report.dirs if is_usable(desired, report.node, entry)]
    if not usable:
        reasons = [f"{entry.path} is offline ({entry.why})" for entry in report.dirs if entry.why]
        return "; ".join(reasons) or "it has no log dir that is online"
    obeying = [entry for entry in usable if entry.takes_orders]
    if not obeying:
        return "; ".join(f"{entry.path} is suspect ({entry.why})" for entry in usable)
    taking = [e for e in obeying if desired.dirs[e.directory_id or ""].state == "online"]
    if not taking:
        return "its log dirs are being drained"
    if not any(_has_room(entry) for entry in taking):
        return "its log dirs are full"
    return ""


def _has_room(entry: DirReport) -> bool:
    return entry.usable_bytes == -1 or entry.usable_bytes >= MIN_USABLE_BYTES


def _room(desired: Desired, report: Report) -> int | None:
    """How many more logs a node takes, beside those that it shall make but does not report yet."""
    if report.room == -1:
        return None
    reported = {entry.log for entry in report.logs}
    coming = [log for log in desired.logs_without_dir(report.node) if log not in reported]
    return max(0, report.room - len(coming))


def short_key(key: str) -> str:
    """A node's key as users see it, and may give it: its label, or the beginning of its id."""
    return key[:SHORT_KEY_CHARS] if len(key) == NODE_ID_CHARS else key
