"""What the bounds of the logs say when all is over. Pure.

==========  ========================================================================================
unanswered  a partition of a topic that is there has not said its bounds
uneven      the end of a log is not one behind its last record, though nothing takes records from
            the end; or its start is behind its end
undeleted   records are there below an offset up to which they were deleted by request
==========  ========================================================================================

**What is allowed.** A log without records may begin and end anywhere. Compaction may drop the last
record (a tombstone), so the end of a compacted log is only checked not to lie below its records. A
partition whose topic or place a restore of the metadata may have undone need not answer.
"""

from collections.abc import Iterator

from tests.soak.facts import History, PartitionFacts
from tests.soak.findings import Finding, named
from tests.soak.history import OK, Partition


def unanswered(history: History) -> Iterator[Finding]:
    for topic in history.alive.values():
        if topic.topic_id in history.undoable:
            continue
        for number in range(topic.partitions):
            partition = Partition(topic.topic, topic.topic_id, number)
            facts = history.partitions.get(partition)
            if facts is None or facts.bounds is None:
                yield Finding("unanswered", str(partition), 1, "nobody knows where its log ends")


def uneven(facts: PartitionFacts) -> Iterator[Finding]:
    if facts.bounds is None:
        return
    start, end = facts.bounds.log_start_offset, facts.bounds.log_end_offset
    if not 0 <= start <= end:
        yield Finding("uneven", str(facts.partition), 1, f"the log is [{start}, {end})")
    last = int(facts.final.offset.max(initial=-1))
    if last < 0 and (start == end or facts.may_compact):
        return
    is_even = last < end if facts.may_compact else last + 1 == end
    if not is_even:
        what = f"the last record is at {last}, and the log ends at {end}"
        yield Finding("uneven", str(facts.partition), 1, what)


def undeleted(facts: PartitionFacts) -> Iterator[Finding]:
    before = max((one.before for one in facts.deletions if one.outcome == OK), default=0)
    found = facts.final.where(facts.final.offset < before)
    yield from named("undeleted", facts, found, f"all below {before} were deleted")
    if facts.bounds is not None and facts.bounds.log_start_offset < before:
        what = f"the log starts at {facts.bounds.log_start_offset}, and all below {before} is gone"
        yield Finding("undeleted", str(facts.partition), 1, what)
