"""What must be true of a group's members: nothing is passed over, nothing that was committed is
forgotten, no partition has two readers of one generation."""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from tests.soak.facts import PartitionFacts
from tests.soak.findings import Finding, named
from tests.soak.history import GAINED, OK, ints


def passed_over(facts: PartitionFacts) -> Iterator[Finding]:
    """The group stands behind records that none of its members got."""
    stands = max(
        [one.offset for one in facts.commits if one.outcome == OK] + [facts.group_at_end or 0]
    )
    if facts.bounds is None or not stands:
        return
    got = np.concatenate([ints(), *(read.offsets for read in facts.group_reads)])
    missed = facts.lasting.where(
        (facts.lasting.offset >= facts.first_lasting)
        & (facts.lasting.offset < stands)
        & ~np.isin(facts.lasting.offset, got)
    )
    yield from named("passed_over", facts, missed, f"the group stands at {stands}")


def forgotten(facts: PartitionFacts) -> Iterator[Finding]:
    """A commit that was acknowledged does not count any more.

    Members never go back. So a commit that begins behind another one's acknowledgement is not
    lower, and neither is where the group stands in the end.
    """
    done = sorted((one for one in facts.commits if one.outcome == OK), key=lambda one: one.invoked)
    by_end = sorted(done, key=lambda one: one.completed)
    highest, position = 0, 0
    for one in done:
        while position < len(by_end) and by_end[position].completed < one.invoked:
            highest = max(highest, by_end[position].offset)
            position += 1
        if one.offset < highest:
            what = f"{one.member} committed {one.offset} after {highest} was acknowledged"
            yield Finding("forgotten", str(facts.partition), 1, what)
            return
    highest = max((one.offset for one in done), default=0)
    if facts.bounds is not None and (facts.group_at_end or 0) < highest:
        what = f"the group stands at {facts.group_at_end}, and {highest} was acknowledged"
        yield Finding("forgotten", str(facts.partition), 1, what)


def shared(facts: PartitionFacts) -> Iterator[Finding]:
    """Two members were given the partition by one generation."""
    owners: dict[int, set[str]] = defaultdict(set)
    for one in facts.ownership:
        if one.change == GAINED and one.generation >= 0:  # else it was expelled at once
            owners[one.generation].add(one.member)
    several = {generation: names for generation, names in owners.items() if len(names) > 1}
    if several:
        generation = min(several)
        what = f"generation {generation} gave it to {', '.join(sorted(several[generation]))}"
        yield Finding("shared", str(facts.partition), len(several), what)
