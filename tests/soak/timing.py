"""What the clock says of a partition: rules over when operations began and ended. Pure.

An offset is *confirmed* at the moment when somebody gets its acknowledgement, or reads it. It was
in the log then, and a log grows at its end only. So whoever begins later must find it there:

========  ==========================================================================================
untimely  an append began when a higher offset than its own was confirmed. Its fate does not matter:
          where the record is read, it is known where it lies
stale     who asked for the end, or read to the end, was told one at or below an offset that was
          confirmed before he began
========  ==========================================================================================

Operations that overlap may come in either order, and say nothing of each other. A record is as old
as the first attempt to send it, and is acknowledged when its sender has heard so; retries lie
between the two. Retention, compaction and deleted records take nothing from the end.

A sort and a search for each partition: an operation is compared with the highest offset that was
confirmed before it began, not with all others.
"""

from collections.abc import Iterator

from tests.soak.facts import PartitionFacts, Records
from tests.soak.findings import NAMED, Finding, named
from tests.soak.history import NEVER, ints


def untimely(facts: PartitionFacts) -> Iterator[Finding]:
    sent, at = facts.sent, facts.places
    if facts.deleted_at != NEVER:  # who was answered later may be in another topic of this name
        at = sent.offset
    late = (at >= 0) & (facts.confirmed.before(sent.invoked) >= at)
    found = Records(at[late], sent.value[late], sent.key[late])
    why = "a higher offset was acknowledged or read before it was sent"
    yield from named("untimely", facts, found, why)


def stale(facts: PartitionFacts) -> Iterator[Finding]:
    asked = [one for one in facts.end_offsets if one.completed < facts.deleted_at]
    confirmed = facts.confirmed.before(ints(one.invoked for one in asked)).tolist()
    behind = [
        f"{one.asker} was told {one.end_offset}, and {offset} was there before"
        for one, offset in zip(asked, confirmed, strict=True)
        if one.end_offset <= offset
    ]
    if behind:
        yield Finding("stale", str(facts.partition), len(behind), "; ".join(behind[:NAMED]))
