"""What must be true of transactions: all of one is seen, or nothing. Pure.

=======  ===========================================================================================
torn     of a transaction that was committed something is not there; of one whose commit has no
         answer a part is, or its offsets without its records; a record is there twice
dirty    a reader of committed records has got one of a transaction that was never committed
hanging  when all is over, readers of committed records do not see a log to its end
=======  ===========================================================================================
"""

from collections.abc import Iterator

import numpy as np

from tests.soak.facts import History
from tests.soak.findings import NAMED, Finding
from tests.soak.history import COMMIT, OK, CommittedRead, Ints, Transaction, ints


def torn(history: History) -> Iterator[Finding]:
    final = _values([read for read in history.committed_reads if read.is_final])
    there = np.unique(final)
    if len(there) < len(final):
        yield Finding("torn", "all", len(final) - len(there), "records are there twice")
    last = history.transaction_at_end
    for one in _committed(history):
        missing = one.values[~np.isin(one.values, there)]
        is_whole = one.outcome == OK or one.number == last
        if len(missing) and (is_whole or len(missing) < len(one.values)):
            named = ", ".join(map(str, missing[:NAMED].tolist()))
            what = f"it is {one.outcome}, and of {len(one.values)} records are missing: {named}"
            yield Finding("torn", f"transaction {one.number}", len(missing), what)
        if one.number > last and (one.outcome == OK or len(missing) < len(one.values)):
            what = f"it counts, and its offsets do not: they are of {last}"
            yield Finding("torn", f"transaction {one.number}", len(one.values), what)


def dirty(history: History) -> Iterator[Finding]:
    seen = np.unique(_values(history.committed_reads))
    for one in history.transactions.values():
        if one.decision == COMMIT:
            continue
        got = one.values[np.isin(one.values, seen)]
        if len(got):
            what = f"it is {one.decision}, and readers of committed records have got {got[:NAMED]}"
            yield Finding("dirty", f"transaction {one.number}", len(got), what)
    last = history.transactions.get(history.transaction_at_end)
    if last is not None and last.decision != COMMIT:
        what = f"it is {last.decision}, and its offsets count"
        yield Finding("dirty", f"transaction {last.number}", 1, what)


def hanging(history: History) -> Iterator[Finding]:
    for one in history.stable_at_end:
        behind = one.log_end_offset - one.last_stable_offset
        if behind:
            what = f"readers of committed records wait at {one.last_stable_offset}"
            yield Finding("hanging", str(one.partition), behind, what)


def _committed(history: History) -> list[Transaction]:
    return [one for one in history.transactions.values() if one.decision == COMMIT]


def _values(reads: list[CommittedRead]) -> Ints:
    return np.concatenate([ints(), *(read.values for read in reads)])
