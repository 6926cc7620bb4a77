"""Findings about transactions fire on faults that were planted, and none on what may happen."""

import pytest

from tests.soak.history import (
    ABORT,
    COMMIT,
    INFO,
    OK,
    OPEN,
    CommittedRead,
    Op,
    StableAtEnd,
    Transaction,
    TransactionAtEnd,
    ints,
)
from tests.unit.soak.histories import HERE, kinds


def one(decision: str, outcome: str = OK, number: int = 7, *values: int) -> Transaction:
    return Transaction(number, decision, outcome, ints(values or (1, 2)), 1)


def seen(*values: int) -> CommittedRead:
    return CommittedRead(HERE, ints(values))


def final(*values: int) -> CommittedRead:
    return CommittedRead(HERE, ints(values), is_final=True)


LAST = TransactionAtEnd(7)
NONE = TransactionAtEnd(0)

PLANTED: dict[str, list[list[Op]]] = {
    "torn": [
        [one(COMMIT), final(1), LAST],
        [one(COMMIT), final(), LAST],
        [one(COMMIT, INFO), final(2), LAST],
        [one(COMMIT, INFO), final(2), NONE],
        [one(COMMIT, INFO), final(), LAST],  # its offsets count
        [one(COMMIT), final(1, 2), NONE],
        [one(COMMIT, INFO), final(1, 2), NONE],
        [one(COMMIT), final(1, 2, 2), LAST],
    ],
    "dirty": [
        [one(ABORT), seen(2), final(), NONE],
        [one(ABORT, INFO), final(1, 2), NONE],
        [one(OPEN, INFO), seen(1), final(), NONE],
        [one(ABORT), final(), LAST],
    ],
    "hanging": [[StableAtEnd(HERE, 3, 4)]],
}


@pytest.mark.parametrize(
    ("kind", "ops"), [(kind, ops) for kind, histories in PLANTED.items() for ops in histories]
)
def test_a_planted_fault_is_found(kind: str, ops: list[Op]) -> None:
    assert kinds(*ops) == {kind}


@pytest.mark.parametrize(
    "ops",
    [
        [one(OPEN, INFO), one(COMMIT, INFO), one(COMMIT), seen(1), final(1, 2), LAST],
        [one(COMMIT, INFO), final(1, 2), LAST],
        [one(COMMIT, INFO), final(), NONE],
        [one(COMMIT, INFO), one(ABORT, INFO), final(), NONE],
        [one(ABORT), final(), NONE],
        [
            *(one(COMMIT), one(COMMIT, OK, 9, 3), one(ABORT, OK, 10, 4)),
            *(final(1, 2, 3), TransactionAtEnd(9), StableAtEnd(HERE, 4, 4)),
        ],
    ],
)
def test_what_may_happen_is_no_finding(ops: list[Op]) -> None:
    assert kinds(*ops) == set()
