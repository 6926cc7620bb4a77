"""What is wrong with a broker, why, and what to do: a pure function from what was seen to findings.

What was seen (``Facts``) is gathered elsewhere (``gathering.py``), with a time limit, so that it
comes within seconds even where something hangs: who did not answer stands in it, too. Partitions
with one reason are one finding: a disk that holds a thousand of them is one thing that is wrong.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from raylog.actors.messages import CompactionStatus, LogDirStatus, PartitionStatus, RetentionStatus
from raylog.cluster.controller.placement import BEING_OPENED, PartitionDescription, TopicDescription

ERROR, WARNING = "error", "warning"
# As many partitions are named in one finding.
NAMED_AT_MOST = 5
# The share of a disk that is free.
NEARLY_FULL, FULL = 0.1, 0.02
# Upkeep that comes later than this, after so many rounds, is late: a round may take its time.
LATE_MS = 600_000
MISSED_ROUNDS = 2


class Finding(NamedTuple):
    """One thing that is wrong. ``error``: records cannot be written or read; ``warning``: soon, or
    more slowly."""

    severity: str
    subject: str
    what: str
    todo: str


@dataclass(frozen=True)
class Facts:
    """A broker as it was seen. ``silent``: who did not answer in time -> why, as far as is
    known."""

    cluster_id: str = ""
    controller_problem: str | None = None
    nodes: Mapping[str, str | None] = field(default_factory=dict)
    silent_nodes: Mapping[str, str] = field(default_factory=dict)
    log_dirs: Sequence[LogDirStatus] = ()
    topics: Sequence[TopicDescription] = ()
    partitions: Sequence[PartitionStatus] = ()
    silent_partitions: Mapping[str, str] = field(default_factory=dict)
    compaction: Sequence[CompactionStatus] = ()
    retention: Sequence[RetentionStatus] = ()
    silent_upkeep: Mapping[str, str] = field(default_factory=dict)
    retention_interval_ms: int = 0
    now_ms: int = 0

    def described(self) -> Iterator[tuple[str, PartitionDescription]]:
        """All partitions that ought to be, with their names."""
        for topic in self.topics:
            for one in topic.partitions:
                yield f"{topic.name}-{one.partition}", one


def findings(facts: Facts) -> list[Finding]:
    """All that is wrong, errors first; empty if all is well."""
    rules = (_controller, _nodes, _log_dirs, _partitions, _upkeep, _slow_kernels)
    found = [finding for rule in rules for finding in rule(facts)]
    return sorted(found, key=lambda finding: (finding.severity != ERROR, finding.subject))


def _controller(facts: Facts) -> Iterator[Finding]:
    if facts.controller_problem is not None:
        yield Finding(
            ERROR,
            "controller",
            f"it does not answer: {facts.controller_problem}. Partitions that serve go on; none is "
            "created, "
            "moved or opened again, and nothing is known of those that are away",
            "Ray starts it again by itself. If this stays: look into its log (docs/OPERATIONS.md, "
            "Logs), see "
            "that the node where the broker was started is up",
        )


def _nodes(facts: Facts) -> Iterator[Finding]:
    for node_id, problem in facts.nodes.items():
        if problem is not None:
            yield Finding(
                WARNING,
                f"node {node_id[:8]}",
                f"it takes no part: {problem}",
                "mount its disks, or name its log dirs in RAYLOG_LOG_DIRS before its `ray start`; "
                "it is asked "
                "again by itself",
            )
    for node_id, why in facts.silent_nodes.items():
        yield Finding(
            ERROR,
            f"node {node_id[:8]}",
            (
                f"its LogManager does not answer: {why}. Its partitions serve, but none is opened "
                "or checkpointed"
            ),
            "Ray starts a LogManager that died again by itself. If this stays: see whether its "
            "disks hang "
            "(dmesg on that machine), and look into its log",
        )


def _log_dirs(facts: Facts) -> Iterator[Finding]:
    for one in facts.log_dirs:
        subject = f"log dir {one.path} of node {one.node_id[:8]}"
        if not one.is_online:
            yield Finding(
                ERROR,
                subject,
                f"offline: {one.problem}. Its partitions are away; the other log dirs serve",
                (
                    "repair, replace or mount the disk, then `raylog stop` and start again: what "
                    "can be read is recovered"
                ),
            )
        elif one.usable_bytes < NEARLY_FULL * one.total_bytes:
            is_full = one.usable_bytes < FULL * one.total_bytes
            yield Finding(
                ERROR if is_full else WARNING,
                subject,
                f"{one.usable_bytes / one.total_bytes:.1%} of its disk is free"
                + (": appends fail, or soon will" if is_full else ""),
                "lower retention.ms or retention.bytes of its largest topics (`raylog config "
                "set`), or move "
                "partitions to another log dir (`raylog partition move`)",
            )
        if one.loaded < one.to_load:
            yield Finding(
                WARNING,
                subject,
                f"it has opened {one.loaded} of {one.to_load} partitions",
                "wait: logs that were not closed in order are read back and checked first",
            )


def _partitions(facts: Facts) -> Iterator[Finding]:
    away = {name: one.problem for name, one in facts.described() if one.problem is not None}
    opening = [name for name, problem in away.items() if problem == BEING_OPENED]
    if opening:
        yield Finding(
            WARNING,
            _named(opening),
            BEING_OPENED,
            "wait: a log that was not closed in order is read back and checked first",
        )
    for reason, names in _grouped({name: why for name, why in away.items() if why != BEING_OPENED}):
        yield Finding(
            ERROR,
            _named(names),
            f"away: {reason}",
            (
                "clients wait for it and fail by their time-outs; it is opened again by itself "
                "when that is mended"
            ),
        )
    answered = {one.partition for one in facts.partitions}
    gone = {
        name: "its process is gone"
        for name, _ in facts.described()
        if name not in answered and name not in facts.silent_partitions
    }
    for reason, names in _grouped(
        {name: why for name, why in {**facts.silent_partitions, **gone}.items() if name not in away}
    ):
        yield Finding(
            ERROR,
            _named(names),
            f"no answer: {reason}",
            "a process that died is started again within seconds, and its log recovered first. If "
            "this stays, "
            "see whether the disk hangs (dmesg on that machine), and look into the broker's logs",
        )
    offline = sorted(one.partition for one in facts.partitions if one.is_offline)
    if offline:
        yield Finding(
            ERROR,
            _named(offline),
            "offline: a write or fsync of its disk failed, and nothing is retried after that",
            "repair or replace the disk, then `raylog stop` and start again: the log is recovered",
        )


def _grouped(reasons: Mapping[str, str]) -> Iterator[tuple[str, list[str]]]:
    """Reason -> the partitions that have it; reasons that differ in the partition's name alone are
    one."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name, reason in reasons.items():
        groups[reason.replace(name, "\0")].append(name)
    for reason, names in groups.items():
        yield reason.replace("\0", names[0]), names


def _upkeep(facts: Facts) -> Iterator[Finding]:
    for name, why in facts.silent_upkeep.items():
        kind, _, node_id = name.partition(":")
        yield Finding(
            WARNING,
            f"{kind.lower()} of node {node_id[:8]}",
            f"its actor does not answer: {why}. Old segments stay until it works again",
            "Ray starts it again by itself. If this stays, look into the broker's logs",
        )
    for one in facts.compaction:
        if one.uncleanable is not None:
            yield Finding(
                WARNING,
                one.partition,
                f"it cannot be compacted, and only grows: {one.uncleanable}",
                "mend the cause, then `raylog stop` and start again: it is tried then",
            )
        elif one.problem is not None:
            yield Finding(
                WARNING,
                one.partition,
                f"its last compaction failed: {one.problem}",
                "it is tried again by itself; see `raylog compaction`",
            )
        elif one.overdue_ms > LATE_MS:
            yield Finding(
                WARNING,
                one.partition,
                f"its compaction is {one.overdue_ms // 60_000} minutes over max.compaction.lag.ms",
                "give compaction more: log.cleaner.threads, log.cleaner.io.max.bytes.per.second; "
                "see `raylog compaction`",
            )
    for failed in facts.retention:
        if failed.problem is not None:
            yield Finding(
                WARNING,
                failed.partition,
                f"its last round of retention failed: {failed.problem}",
                "mend the cause; it is tried again by itself",
            )
    yield from _late_retention(facts)


def _late_retention(facts: Facts) -> Iterator[Finding]:
    allowed_ms = MISSED_ROUNDS * facts.retention_interval_ms + LATE_MS
    late = [one for one in facts.retention if 0 < one.when_ms < facts.now_ms - allowed_ms]
    if late and facts.retention_interval_ms:
        minutes = (facts.now_ms - min(one.when_ms for one in late)) // 60_000
        yield Finding(
            WARNING,
            _named(one.partition for one in late),
            f"retention has not come by for up to {minutes} minutes "
            "(log.retention.check.interval.ms="
            f"{facts.retention_interval_ms}): old segments stay, and fill the disk",
            "see whether a disk hangs (dmesg on that machine), and look into the broker's logs",
        )


def _slow_kernels(facts: Facts) -> Iterator[Finding]:
    slow = sorted(one.partition for one in facts.partitions if one.kernel != "compiled")
    if slow:
        yield Finding(
            WARNING,
            _named(slow),
            "it runs without the compiled kernel, some 30 times slower",
            (
                "install a C compiler on its node and install raylog again, or unset "
                "RAYLOG_PURE_PYTHON"
            ),
        )


def _named(names: Iterable[str]) -> str:
    """``t-0, t-1 and 3 more``."""
    listed = list(names)
    left = len(listed) - NAMED_AT_MOST
    return (
        ", ".join(listed) if left <= 0 else ", ".join(listed[:NAMED_AT_MOST]) + f" and {left} more"
    )
