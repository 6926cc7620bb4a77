"""Does a history agree with a log? Pure: operations in, findings out.

The questions are those of Jepsen's workload for Kafka, asked of every partition:

==============  ====================================================================================
lost            an acknowledged record, or one that somebody has read, is not in the log at the end
unseen          a consumer that was told to read to the end stopped before records that are there
duplicated      one record has two offsets
divergent       two records have one offset
inconsistent    a record is read at another offset than its acknowledgement said
reordered       a producer's records are in another order than it sent them
backwards       a consumer got an offset at or below an earlier one, without a seek
skipped         a consumer went past a record that is known to be there, without a seek
aborted         a record that was definitely refused is read
phantom         a record is read that nobody sent
foreign         a record is read in another partition than it was sent to, or in a topic that was
                created under an old name after the record was acknowledged
resurrected     compaction dropped a record and kept an older one of its key
vanished        a topic that was created and not deleted is gone, or is another one
undead          a topic that was deleted is there
==============  ====================================================================================

**What may be missing.** Where retention works, what is below the log start offset. Where compaction
works, what has a later record of its key behind it, and tombstones; a record with nothing but a
tombstone of unknown fate behind it is given the benefit of the doubt. A record of unknown fate may
be there or not, but once read it must stay.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from tests.soak.facts import OUTCOMES, History, PartitionFacts, Records, gather
from tests.soak.history import FAIL, NO_KEY, OK, Ints, Op, Partition, TopicChange

# Of one kind in one partition, so many are named; the rest is counted.
NAMED = 5


class Finding(NamedTuple):
    """``records`` are concerned; ``what`` names the first of them."""

    kind: str
    subject: str
    records: int
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.subject}: {self.records}: {self.what}"


def check(ops: Iterable[Op]) -> list[Finding]:
    """All that does not agree, by partition; none for the history of a log."""
    return check_history(gather(ops))


def check_history(history: History) -> list[Finding]:
    found: list[Finding] = []
    for facts in history.partitions.values():
        for rule in RULES:
            found += rule(facts)
        found += strangers(facts, history)
    return [*found, *topics(history)]


# -- what is there ---------------------------------------------------------------------------------


def lost(facts: PartitionFacts) -> Iterator[Finding]:
    if facts.bounds is None:
        return  # of a topic that was deleted
    start = facts.bounds.log_start_offset if facts.may_delete else 0
    gone = facts.lasting.where(
        (facts.lasting.offset >= start) & ~np.isin(facts.lasting.value, facts.final.value)
    )
    where = f"the log is [{facts.bounds.log_start_offset}, {facts.bounds.log_end_offset}) now"
    yield from _named("lost", facts, gone, where)


def unseen(facts: PartitionFacts) -> Iterator[Finding]:
    if facts.bounds is None:
        return
    for end in facts.ends:
        missed = facts.final.where(facts.final.offset >= end.position)
        yield from _named("unseen", facts, missed, f"{end.consumer} ended at {end.position}")


def duplicated(facts: PartitionFacts) -> Iterator[Finding]:
    order = np.argsort(facts.read.value, kind="stable")
    again = np.diff(facts.read.value[order]) == 0
    yield from _named(
        "duplicated",
        facts,
        facts.read.where(order[1:][again]),
        "it was also read at a lower offset",
    )


def divergent(facts: PartitionFacts) -> Iterator[Finding]:
    both = [np.concatenate(pair) for pair in zip(facts.read, facts.acked, strict=True)]
    order = np.lexsort((both[1], both[0]))
    offset, value, key = (column[order] for column in both)
    other = (np.diff(offset) == 0) & (np.diff(value) != 0)
    found = Records(offset[1:][other], value[1:][other], key[1:][other])
    yield from _named("divergent", facts, found, "another record was reported at the same offset")


def inconsistent(facts: PartitionFacts) -> Iterator[Finding]:
    at = _places(facts.acked.value, facts.read)
    elsewhere = (at >= 0) & (at != facts.acked.offset)
    yield from _named(
        "inconsistent", facts, facts.acked.where(elsewhere), "it was read at another offset"
    )


# -- in which order --------------------------------------------------------------------------------


def reordered(facts: PartitionFacts) -> Iterator[Finding]:
    sent = facts.sent
    read_at = _places(sent.value, facts.read)
    at = np.where(sent.offset >= 0, sent.offset, read_at)
    for producer in np.unique(sent.producer):
        mine = (sent.producer == producer) & (at >= 0)
        back = np.flatnonzero(np.diff(at[mine]) <= 0) + 1
        found = Records(at[mine][back], sent.value[mine][back], sent.key[mine][back])
        yield from _named(
            "reordered", facts, found, "it was sent after a record with a higher offset"
        )


def backwards(facts: PartitionFacts) -> Iterator[Finding]:
    for consumer, offsets in facts.runs.items():
        back = np.flatnonzero(np.diff(offsets) <= 0)
        if len(back):
            first = int(back[0])
            what = f"{consumer} got {offsets[first + 1]} after {offsets[first]}"
            yield Finding("backwards", str(facts.partition), len(back), what)


def skipped(facts: PartitionFacts) -> Iterator[Finding]:
    known = np.unique(facts.lasting.offset)
    for consumer, offsets in facts.runs.items():
        before, behind = offsets[:-1], offsets[1:]
        between = np.searchsorted(known, behind, "left") - np.searchsorted(known, before, "right")
        jumps = np.flatnonzero(between > 0)
        if len(jumps):
            first = int(jumps[0])
            missed = known[np.searchsorted(known, before[first], "right")]
            what = f"{consumer} went from {before[first]} to {behind[first]} and skipped {missed}"
            yield Finding("skipped", str(facts.partition), int(between[jumps].sum()), what)


# -- what may not be there -------------------------------------------------------------------------


def aborted(facts: PartitionFacts) -> Iterator[Finding]:
    refused = facts.sent.value[facts.sent.outcome == OUTCOMES[FAIL]]
    found = facts.read.where(np.isin(facts.read.value, refused))
    yield from _named("aborted", facts, found, "its append was refused, but it was read")


def resurrected(facts: PartitionFacts) -> Iterator[Finding]:
    if not facts.may_compact or facts.bounds is None:
        return
    start = facts.bounds.log_start_offset
    known = facts.known.where((facts.known.key != NO_KEY) & (facts.known.offset >= start))
    order = np.lexsort((known.offset, known.key))
    known = known.where(order)
    is_kept = np.isin(known.value, facts.final.value)
    follows = np.diff(known.key) == 0
    stale = np.flatnonzero(is_kept[:-1] & ~is_kept[1:] & follows)
    yield from _named(
        "resurrected", facts, known.where(stale), "a later record of its key was dropped"
    )


def strangers(facts: PartitionFacts, history: History) -> Iterator[Finding]:
    """Phantoms, and what belongs elsewhere."""
    found = facts.read.where(~np.isin(facts.read.value, facts.sent.value))
    if not len(found.value):
        return
    value, names, home, completed = history.sent
    at = np.searchsorted(value, found.value).clip(max=max(len(value) - 1, 0))
    was_sent = value[at] == found.value if len(value) else np.zeros(len(found.value), bool)
    yield from _named("phantom", facts, found.where(~was_sent), "it was never sent")
    begun = _created(history.topics, facts.partition)
    for one, place in zip(np.flatnonzero(was_sent), at[was_sent], strict=True):
        meant = names[home[place]]
        # A name is all that a producer has: what was on its way when the topic was made again may
        # go to the new one.
        same_name = (meant.topic, meant.number) == (facts.partition.topic, facts.partition.number)
        if not same_name or completed[place] < begun:
            what = f"it was sent to {meant} of {meant.topic_id}"
            yield from _named("foreign", facts, found.where(np.array([one])), what)


def _created(changes: Iterable[TopicChange], partition: Partition) -> int:
    """When the creation of the partition's topic began."""
    times = [
        change.invoked
        for change in changes
        if _is(change, "create") and change.topic_id == partition.topic_id
    ]
    return min(times, default=0)


# -- topics ----------------------------------------------------------------------------------------


def topics(history: History) -> Iterator[Finding]:
    begun = {
        change.topic_id
        for change in history.topics
        if change.change == "delete" and change.outcome != FAIL
    }
    deleted = {change.topic_id for change in history.topics if _is(change, "delete")}
    alive = history.alive
    for change in history.topics:
        if not change.topic_id or not _is(change, "create"):
            continue
        there = alive.get(change.topic)
        if change.topic_id in deleted and there == change.topic_id:
            yield Finding("undead", change.topic, 1, f"{change.topic_id} was deleted")
        if change.topic_id not in begun and there != change.topic_id:
            yield Finding(
                "vanished", change.topic, 1, f"{change.topic_id} was created; there is {there}"
            )


def _is(change: TopicChange, kind: str) -> bool:
    return change.change == kind and change.outcome == OK


# -- helpers ---------------------------------------------------------------------------------------


def _places(values: Ints, records: Records) -> Ints:
    """The offset at which each value was read (the lowest, if there are several), or -1."""
    if not len(records.value):
        return np.full(len(values), -1)
    order = np.argsort(records.value, kind="stable")
    ordered = records.value[order]
    at = np.searchsorted(ordered, values).clip(max=len(ordered) - 1)
    return np.where(ordered[at] == values, records.offset[order][at], -1)


def _named(kind: str, facts: PartitionFacts, found: Records, why: str) -> Iterator[Finding]:
    if len(found.offset):
        rows = zip(found.offset[:NAMED].tolist(), found.value[:NAMED].tolist(), strict=True)
        names = ", ".join(f"record {value} at {offset}" for offset, value in rows)
        yield Finding(kind, str(facts.partition), len(found.offset), f"{names}: {why}")


RULES: tuple[Callable[[PartitionFacts], Iterator[Finding]], ...] = (
    *(lost, unseen, duplicated, divergent, inconsistent),
    *(reordered, backwards, skipped, aborted, resurrected),
)
KINDS = (*(rule.__name__ for rule in RULES), "phantom", "foreign", "vanished", "undead")
