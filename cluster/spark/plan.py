"""Which offsets a query reads: ranges, their tasks, the size of a micro-batch, what is lost.

A stream's position is a map of the next offset to read in each partition; Spark keeps it in the
checkpoint as the JSON that Spark's Kafka source uses too::

    {"flights": {"0": 1204, "1": 993}}

Pure: functions of numbers, so that a query planned twice from the same numbers is the same query.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from raylog.cluster.spark.errors import DataLoss
from raylog.cluster.spark.options import TopicPartition

Offsets = dict[TopicPartition, int]
GONE = "the partition does not exist any more"


class Range(NamedTuple):
    """The offsets [start, end) of one partition: what one task reads."""

    topic: str
    partition: int
    start: int
    end: int


class Edge(NamedTuple):
    """What a partition holds now: offsets [earliest, latest).

    ``stable``: the last stable offset, for a reader of committed records; else None.
    """

    earliest: int
    latest: int
    stable: int | None = None

    @property
    def readable_end(self) -> int:
        """Where a read ends that is to end at what is latest."""
        return self.latest if self.stable is None else self.stable


class Lost(NamedTuple):
    """Offsets that a query was to read and that are gone."""

    partition: TopicPartition
    start: int
    end: int
    why: str

    def error(self) -> DataLoss:
        return DataLoss(f"{self.partition[0]}-{self.partition[1]}", self.start, self.end, self.why)


class Planned(NamedTuple):
    """What a batch reads, what of it is gone, and what of it a transaction may still abort."""

    ranges: list[Range]
    lost: list[Lost]
    undecided: list[Range]


# -- cutting ranges into tasks ---------------------------------------------------------------------


def split_ranges(
    ranges: Iterable[Range], min_partitions: int | None, max_records: int | None = None
) -> list[Range]:
    """Cut ranges into tasks; empty ones are dropped. Each range is one task, unless:

    * it has more than ``max_records`` offsets: it is cut into parts of at most so many,
    * there are then fewer tasks than ``min_partitions``: each gets parts in proportion to its share
      of all offsets, rounded, as in Spark's Kafka source. The count can come out slightly over or
      under what was asked.
    """
    tasks = sorted(r for r in ranges if r.end > r.start)
    if max_records is not None:
        tasks = [part for r in tasks for part in _cut(r, -(-(r.end - r.start) // max_records))]
    if min_partitions is None or len(tasks) >= min_partitions:
        return tasks
    total = sum(r.end - r.start for r in tasks)
    return [part for r in tasks for part in _cut(r, _share_of_tasks(r, total, min_partitions))]


def _share_of_tasks(r: Range, total: int, min_partitions: int) -> int:
    size = r.end - r.start
    return min(size, max(1, (size * min_partitions * 2 + total) // (2 * total)))


def _cut(r: Range, parts: int) -> list[Range]:
    size = r.end - r.start
    edges = [r.start + size * i // parts for i in range(parts + 1)]
    return [r._replace(start=a, end=b) for a, b in pairwise(edges)]


# -- how much a micro-batch takes ------------------------------------------------------------------


def limit_offsets(
    start: Mapping[TopicPartition, int], latest: Offsets, max_offsets: int
) -> Offsets:
    """Where a micro-batch of at most ``max_offsets`` offsets ends.

    It has exactly that many if there are as many.

    Every partition with a backlog gets one offset, so that a small one never starves beside a large
    one; the rest is shared in proportion to the backlogs, by largest remainder. If there are more
    partitions than offsets, they take turns: the turn is read off the start offsets, which move on
    with each micro-batch.
    """
    left = lag(start, latest)
    backlog = {tp: left[tp] for tp in sorted(left) if left[tp]}
    if sum(backlog.values()) <= max_offsets:
        return dict(latest)
    taken = share(backlog, max_offsets, turn=sum(start.values()))
    return {tp: start.get(tp, 0) + taken[tp] if tp in taken else latest[tp] for tp in latest}


@dataclass
class Pace:
    """When a stream takes a micro-batch: once ``min_offsets`` wait, or after ``max_delay_s``.

    The first one after a start does not wait, as in Spark's Kafka source.
    """

    min_offsets: int | None
    max_delay_s: float
    last_s: float | None = None  # when the last micro-batch was taken

    def waits(self, start: Offsets, latest: Offsets, now_s: float) -> bool:
        """Whether the micro-batch that could be taken now is put off."""
        backlog = sum(lag(start, latest).values())
        if self.min_offsets is None or backlog == 0:
            return False
        is_late = self.last_s is None or now_s - self.last_s >= self.max_delay_s
        if backlog < self.min_offsets and not is_late:
            return True
        self.last_s = now_s
        return False


def lag(at: Mapping[TopicPartition, int], latest: Offsets) -> Offsets:
    """How many offsets each partition has from a position to its end."""
    return {tp: max(0, end - at.get(tp, 0)) for tp, end in latest.items()}


def share(backlog: Offsets, limit: int, turn: int = 0) -> Offsets:
    """Split ``limit`` over positive backlogs that sum to more; no share is over its backlog."""
    assert 0 < limit < sum(backlog.values()), (limit, backlog)
    partitions = list(backlog)
    if limit <= len(partitions):
        first = turn % len(partitions)
        chosen = (partitions[first:] + partitions[:first])[:limit]
        return {tp: int(tp in chosen) for tp in partitions}
    rest = limit - len(partitions)
    waiting = {tp: backlog[tp] - 1 for tp in partitions}
    total = sum(waiting.values())
    taken = {tp: 1 + waiting[tp] * rest // total for tp in partitions}
    missing = limit - sum(taken.values())
    by_remainder = sorted(partitions, key=lambda tp: (-(waiting[tp] * rest % total), tp))
    for tp in by_remainder[:missing]:
        taken[tp] += 1
    return taken


# -- a stream's position ---------------------------------------------------------------------------


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """A position as Spark stores it: string keys, in a stable order."""
    position: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        position.setdefault(topic, {})[str(partition)] = offset
    return position


def from_json(position: Mapping[str, Mapping[str, Any]]) -> Offsets:
    """The inverse of ``to_json``."""
    return {
        (topic, int(p)): int(offset)
        for topic, parts in position.items()
        for p, offset in parts.items()
    }


def next_offsets(
    start: Offsets, latest: Offsets, target: Offsets | None = None
) -> tuple[Offsets, list[Lost]]:
    """How far a stream at ``start`` can read, and what it lost on the way.

    A new partition is read from its beginning, a partition that is gone leaves the position, and
    one that ends before ``start`` (its topic was made anew) is set back to its end. ``target`` is
    where AvailableNow must stop: nothing that came after it counts.
    """
    end: Offsets = {}
    lost = [
        Lost(partition=tp, start=start[tp], end=start[tp], why=GONE)
        for tp in sorted(set(start) - set(latest))
    ]
    for tp, ends in sorted(latest.items()):
        if target is not None and tp not in target and tp not in start:
            continue
        at = start.get(tp, 0)
        if at > ends:
            why = (
                f"the log ends at {ends}, because it was truncated or created again (then "
                f"failOnDataLoss=false continues at {ends}, without the new records before it)"
            )
            lost.append(Lost(partition=tp, start=ends, end=at, why=why))
            end[tp] = ends
            continue
        end[tp] = ends if target is None else max(at, min(ends, target.get(tp, at)))
    return end, lost


def stream_ranges(
    start: Offsets, end: Offsets, edges: Mapping[TopicPartition, Edge]
) -> tuple[list[Range], list[Lost]]:
    """The ranges of a micro-batch. A partition that ``start`` does not know begins at 0."""
    ranges = [
        Range(topic=topic, partition=number, start=start.get((topic, number), 0), end=until)
        for (topic, number), until in sorted(end.items())
    ]
    return clip_ranges(ranges, edges)


def clip_ranges(
    ranges: Iterable[Range], edges: Mapping[TopicPartition, Edge]
) -> tuple[list[Range], list[Lost]]:
    """Cut ranges down to what the partitions still have, and what of them is lost.

    Empty ranges are dropped.
    """
    kept, lost = [], []
    for r in ranges:
        tp = (r.topic, r.partition)
        if r.end <= r.start:
            continue
        edge = edges.get(tp)
        if edge is None:
            lost.append(Lost(partition=tp, start=r.start, end=r.end, why=GONE))
            continue
        if r.start < edge.earliest:
            end, why = min(r.end, edge.earliest), f"the log now starts at {edge.earliest}"
            lost.append(Lost(partition=tp, start=r.start, end=end, why=why))
        if r.end > edge.latest:
            start, why = max(r.start, edge.latest), f"the log ends at {edge.latest}"
            lost.append(Lost(partition=tp, start=start, end=r.end, why=why))
        clipped = r._replace(start=max(r.start, edge.earliest), end=min(r.end, edge.latest))
        if clipped.end > clipped.start:
            kept.append(clipped)
    return kept, lost


def undecided(ranges: Iterable[Range], edges: Mapping[TopicPartition, Edge]) -> list[Range]:
    """The parts of ranges that lie behind a last stable offset: reading them waits."""
    parts = []
    for r in ranges:
        edge = edges.get((r.topic, r.partition))
        if edge is not None and r.end > edge.readable_end:
            parts.append(r._replace(start=max(r.start, edge.readable_end)))
    return parts
