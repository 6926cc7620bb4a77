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
==============  ====================================================================================

**What may be missing.** Where retention works, what is below the log start offset. Where compaction
works, what has a later record of its key behind it, and tombstones; a record with nothing but a
tombstone of unknown fate behind it is given the benefit of the doubt. A record of unknown fate may
be there or not, but once read it must stay. What was deleted by request is gone up to the log start
offset, and at most up to the highest offset that was asked for.

More rules: ``timing.py`` (real-time order, stale ends), ``bounding.py`` (where logs begin and end),
``operating.py`` (topics, their settings, producer ids), ``obeying.py`` (nodes that were stopped,
started and drained by command), ``transaction_rules.py`` (all of a transaction, or nothing).
"""

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from tests.soak.bounding import unanswered, undeleted, uneven
from tests.soak.facts import OUTCOMES, History, PartitionFacts, Records, gather, places
from tests.soak.findings import Finding, named
from tests.soak.group_rules import forgotten, passed_over, shared
from tests.soak.history import FAIL, NO_KEY, Op, Partition, TopicChange
from tests.soak.obeying import misplaced, unstarted, unstopped
from tests.soak.operating import is_done, outdated, reissued, topics, undone
from tests.soak.timing import stale, untimely
from tests.soak.transaction_rules import dirty, hanging, torn


def check(ops: Iterable[Op]) -> list[Finding]:
    """All that does not agree, by partition; none for the history of a log."""
    return check_history(gather(ops))


def check_history(history: History) -> list[Finding]:
    found: list[Finding] = []
    for facts in history.partitions.values():
        for rule in RULES:
            found += rule(facts)
        found += strangers(facts, history)
    for rule_of_all in RULES_OF_ALL:
        found += rule_of_all(history)
    return found


# -- what is there ---------------------------------------------------------------------------------


def lost(facts: PartitionFacts) -> Iterator[Finding]:
    if facts.bounds is None:
        return  # of a topic that was deleted
    gone = facts.lasting.where(
        (facts.lasting.offset >= facts.first_lasting)
        & ~np.isin(facts.lasting.value, facts.final.value)
    )
    where = f"the log is [{facts.bounds.log_start_offset}, {facts.bounds.log_end_offset}) now"
    yield from named("lost", facts, gone, where)


def unseen(facts: PartitionFacts) -> Iterator[Finding]:
    if facts.bounds is None:
        return
    for end in facts.ends:
        missed = facts.final.where(facts.final.offset >= end.position)
        yield from named("unseen", facts, missed, f"{end.consumer} ended at {end.position}")


def duplicated(facts: PartitionFacts) -> Iterator[Finding]:
    order = np.argsort(facts.read.value, kind="stable")
    again = np.diff(facts.read.value[order]) == 0
    yield from named(
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
    yield from named("divergent", facts, found, "another record was reported at the same offset")


def inconsistent(facts: PartitionFacts) -> Iterator[Finding]:
    at = places(facts.acked.value, facts.read)
    elsewhere = (at >= 0) & (at != facts.acked.offset)
    yield from named(
        "inconsistent", facts, facts.acked.where(elsewhere), "it was read at another offset"
    )


# -- in which order --------------------------------------------------------------------------------


def reordered(facts: PartitionFacts) -> Iterator[Finding]:
    sent, at = facts.sent, facts.places
    order = np.flatnonzero(at >= 0)
    order = order[np.argsort(sent.producer[order], kind="stable")]  # by producer, as it sent them
    back = (np.diff(at[order]) <= 0) & (np.diff(sent.producer[order]) == 0)
    rows = order[1:][back]
    found = Records(at[rows], sent.value[rows], sent.key[rows])
    yield from named("reordered", facts, found, "it was sent after a record with a higher offset")


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
    yield from named("aborted", facts, found, "its append was refused, but it was read")


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
    yield from named(
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
    yield from named("phantom", facts, found.where(~was_sent), "it was never sent")
    begun = _created(history.topics, facts.partition)
    for one, place in zip(np.flatnonzero(was_sent), at[was_sent], strict=True):
        meant = names[home[place]]
        # A name is all that a producer has: what was on its way when the topic was made again may
        # go to the new one.
        same_name = (meant.topic, meant.number) == (facts.partition.topic, facts.partition.number)
        if not same_name or completed[place] < begun:
            what = f"it was sent to {meant} of {meant.topic_id}"
            yield from named("foreign", facts, found.where(np.array([one])), what)


def _created(changes: Iterable[TopicChange], partition: Partition) -> int:
    """When the creation of the partition's topic began."""
    times = [
        change.invoked
        for change in changes
        if is_done(change, "create") and change.topic_id == partition.topic_id
    ]
    return min(times, default=0)


RULES: tuple[Callable[[PartitionFacts], Iterator[Finding]], ...] = (
    *(lost, unseen, duplicated, divergent, inconsistent),
    *(reordered, untimely, stale, backwards, skipped, aborted, resurrected),
    *(uneven, undeleted),
    *(passed_over, forgotten, shared),
)
RULES_OF_ALL: tuple[Callable[[History], Iterator[Finding]], ...] = (
    unanswered,
    topics,
    undone,
    reissued,
    misplaced,
    unstopped,
    unstarted,
    outdated,
    torn,
    dirty,
    hanging,
)
KINDS = (
    *(rule.__name__ for rule in RULES),
    *("phantom", "foreign", "unanswered", "vanished", "undead", "undone", "reissued"),
    *("misplaced", "unstopped", "unstarted", "outdated"),
    *("torn", "dirty", "hanging"),
)
