"""What the checker finds, and how it is said."""

from collections.abc import Iterator
from typing import NamedTuple

from tests.soak.facts import PartitionFacts, Records

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


def named(kind: str, facts: PartitionFacts, found: Records, why: str) -> Iterator[Finding]:
    """One finding about these records; none if there are none."""
    if len(found.offset):
        rows = zip(found.offset[:NAMED].tolist(), found.value[:NAMED].tolist(), strict=True)
        names = ", ".join(f"record {value} at {offset}" for offset, value in rows)
        yield Finding(kind, str(facts.partition), len(found.offset), f"{names}: {why}")
