"""From what the options say to partitions and offsets that a broker has now.

It asks a broker a few things only (``Catalog``), so tests give it a dictionary.

Rules, as in Spark's Kafka source: JSON offsets or times name every partition that is read and no
other; for a start time with no record at or after it ``startingOffsetsByTimestampStrategy``
decides, an end time with none is the end of the log.

For a reader of committed records the log ends at its last stable offset: latest means
this offset, and times find no record behind it. What is behind it is not lost, and may be named.
"""

import json
import re
import time
from collections.abc import Iterable
from typing import Any, Protocol

from raylog.actors.errors import NotLeader, RequestTimedOut, UnknownTopicOrPartition
from raylog.cluster.client.connection import READ_COMMITTED, READ_UNCOMMITTED
from raylog.cluster.spark.errors import InvalidSparkOption
from raylog.cluster.spark.options import (
    EARLIEST,
    LATEST,
    Bound,
    Options,
    Selection,
    TopicPartition,
    start_after_end,
)
from raylog.cluster.spark.plan import (
    Edge,
    Lost,
    Offsets,
    Planned,
    Range,
    clip_ranges,
    to_json,
    undecided,
)


class Catalog(Protocol):
    """The part of a Broker that planning asks."""

    def list_topics(self) -> list[str]: ...

    def describe_topic(self, topic: str) -> Any: ...

    def list_offsets(
        self, wanted: dict[TopicPartition, int], *, isolation: int
    ) -> dict[TopicPartition, int | None]: ...

    def forget(self, topic: str, partition: int) -> None: ...


PATIENCE_S = 30.0  # how long planning waits for a partition whose actor restarts
RETRY_S = 0.1


def partitions(catalog: Catalog, selection: Selection) -> list[TopicPartition]:
    """The selected partitions that exist now, in order. A topic that does not exist has none."""
    if selection.pattern is not None:
        topics = {
            topic for topic in catalog.list_topics() if re.fullmatch(selection.pattern, topic)
        }
    else:
        topics = {*selection.topics, *(topic for topic, _ in selection.partitions)}
    existing = {tp for topic in topics for tp in _partitions_of(catalog, topic)}
    return sorted(existing & set(selection.partitions) if selection.partitions else existing)


def _partitions_of(catalog: Catalog, topic: str) -> list[TopicPartition]:
    try:
        return [(topic, p.partition) for p in catalog.describe_topic(topic).partitions]
    except UnknownTopicOrPartition:
        return []


def required_partitions(catalog: Catalog, selection: Selection) -> list[TopicPartition]:
    """The same, for a query that begins: a topic or partition that is named must exist."""
    existing = partitions(catalog, selection)
    missing: list[str] = sorted(set(selection.topics) - {topic for topic, _ in existing})
    missing += [f"{topic}-{p}" for topic, p in selection.partitions if (topic, p) not in existing]
    if missing:
        option = "subscribe" if selection.topics else "assign"
        raise _missing(catalog, option, ", ".join(missing))
    return existing


def require_topic(catalog: Catalog, topic: str) -> None:
    """Raise InvalidSparkOption unless the topic of a write exists."""
    if not _partitions_of(catalog, topic):
        raise _missing(catalog, "topic", topic)


def _missing(catalog: Catalog, option: str, what: str) -> InvalidSparkOption:
    has = ", ".join(catalog.list_topics()) or "none"
    return InvalidSparkOption(option, what, f"does not exist; the topics are: {has}")


def edges(
    catalog: Catalog, wanted: Iterable[TopicPartition], isolation: int = READ_UNCOMMITTED
) -> dict[TopicPartition, Edge]:
    """Earliest and latest offset of each partition, and the last stable one if that counts."""
    wanted = list(wanted)
    # Earliest first: a range that ends at what is latest then never ends before it starts.
    earliest = list_offsets(catalog, dict.fromkeys(wanted, EARLIEST))
    stable = latest(catalog, earliest, isolation) if isolation == READ_COMMITTED else {}
    return {
        tp: Edge(earliest[tp] or 0, end, stable.get(tp))
        for tp, end in latest(catalog, earliest).items()
    }


def latest(
    catalog: Catalog, wanted: Iterable[TopicPartition], isolation: int = READ_UNCOMMITTED
) -> Offsets:
    """The end of each partition, as a reader of this isolation level sees it."""
    ends = list_offsets(catalog, dict.fromkeys(wanted, LATEST), isolation)
    return {tp: at or 0 for tp, at in ends.items()}


def readable_ends(
    catalog: Catalog, wanted: Iterable[TopicPartition], isolation: int, at: Offsets
) -> Offsets:
    """``latest``, for a reader that is ``at`` some offsets already.

    A reader of committed records may be behind the last stable offset, if it was told to start
    there, or read all records until now. It stays where it is then, if the log has that place.
    """
    ends = latest(catalog, wanted, isolation)
    ahead = [tp for tp, end in ends.items() if at.get(tp, 0) > end]
    if isolation == READ_UNCOMMITTED or not ahead:
        return ends
    return ends | {tp: min(at[tp], end) for tp, end in latest(catalog, ahead).items()}


def list_offsets(
    catalog: Catalog, wanted: dict[TopicPartition, int], isolation: int = READ_UNCOMMITTED
) -> dict[TopicPartition, int | None]:
    """``Broker.list_offsets`` for a query that outlives restarts, without partitions that are gone.

    A LogActor that restarts is back within seconds, and a handle from before a topic was made anew
    is looked up again.
    """
    wanted = dict(wanted)
    deadline = time.monotonic() + PATIENCE_S
    while wanted:
        try:
            return catalog.list_offsets(wanted, isolation=isolation)
        except UnknownTopicOrPartition as gone:
            topic, partition, _ = gone.args
            if wanted.pop((topic, partition), None) is None:
                raise
        except (NotLeader, RequestTimedOut):
            if time.monotonic() > deadline:
                raise
            for tp in wanted:
                catalog.forget(*tp)
            time.sleep(RETRY_S)
    return {}


def starts(catalog: Catalog, options: Options, now: dict[TopicPartition, Edge]) -> Offsets:
    """The offset at which each partition starts."""
    bound = options.starting
    if bound.kind == "offset":
        return _offsets(bound, now)
    offsets = list_offsets(catalog, _values(bound, now), options.isolation)
    unmatched = sorted(tp for tp in now if offsets.get(tp) is None)
    if unmatched and not options.latest_if_no_match:
        topic, partition = unmatched[0]
        time = _values(bound, now)[topic, partition]
        why = (
            f"{topic}-{partition} has no record at or after this time; use an earlier time, or set "
            "startingOffsetsByTimestampStrategy=latest"
        )
        raise InvalidSparkOption(bound.option, str(time), why)
    return {tp: _or_latest(offsets.get(tp), edge) for tp, edge in now.items()}


def ends(catalog: Catalog, options: Options, now: dict[TopicPartition, Edge]) -> Offsets:
    """The offset at which each partition of a batch ends."""
    if options.ending.kind == "offset":
        return _offsets(options.ending, now)
    offsets = list_offsets(catalog, _values(options.ending, now), options.isolation)
    return {tp: _or_latest(offsets.get(tp), edge) for tp, edge in now.items()}


def batch_ranges(catalog: Catalog, options: Options) -> Planned:
    """What a batch reads, what of it is no longer there, and what of it is not decided."""
    now = edges(catalog, required_partitions(catalog, options.selection), options.isolation)
    start, end = starts(catalog, options, now), ends(catalog, options, now)
    behind = _check_order(options, now, start, end)
    ranges = [
        Range(topic=tp[0], partition=tp[1], start=start[tp], end=end[tp]) for tp in sorted(now)
    ]
    kept, lost = clip_ranges(ranges, now)
    return Planned(kept, [*behind, *lost], undecided(kept, now))


def _check_order(
    options: Options, now: dict[TopicPartition, Edge], start: Offsets, end: Offsets
) -> list[Lost]:
    """What a partition that starts behind its log has lost.

    Raises InvalidSparkOption where a start that was asked for comes after an end that was.
    """
    lost = []
    for tp, edge in now.items():
        if start[tp] <= end[tp] or not _is_asked(options.starting, tp):
            continue
        if end[tp] == edge.stable and start[tp] <= edge.latest:
            continue  # what it starts at is there, and not decided yet
        if _is_asked(options.ending, tp):
            raise start_after_end(options.starting, f"{tp[0]}-{tp[1]}", start[tp], end[tp])
        why = f"the log ends at {edge.latest}"
        lost.append(Lost(partition=tp, start=edge.latest, end=start[tp], why=why))
    return lost


def _is_asked(bound: Bound, partition: TopicPartition) -> bool:
    """Whether an offset or a time was given for the partition, rather than earliest or latest."""
    asked = dict(bound.each).get(partition) if bound.everywhere is None else bound.everywhere
    return asked is not None and asked >= 0


def _offsets(bound: Bound, now: dict[TopicPartition, Edge]) -> Offsets:
    asked = _values(bound, now)
    named = {EARLIEST: "earliest", LATEST: "readable_end"}
    return {
        tp: getattr(edge, named[asked[tp]]) if asked[tp] in named else asked[tp]
        for tp, edge in now.items()
    }


def _or_latest(offset: int | None, edge: Edge) -> int:
    return edge.readable_end if offset is None else offset


def _values(bound: Bound, now: dict[TopicPartition, Edge]) -> dict[TopicPartition, int]:
    if bound.everywhere is not None:
        return dict.fromkeys(now, bound.everywhere)
    given = dict(bound.each)
    if set(given) != set(now):
        wrong = sorted(set(given) ^ set(now))
        names = ", ".join(f"{topic}-{partition}" for topic, partition in wrong)
        why = f"the option must name exactly the partitions that are read; these differ: {names}"
        raise InvalidSparkOption(bound.option, json.dumps(to_json(given)), why)
    return given
