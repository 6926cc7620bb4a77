"""Each finding about a group fires on a fault that was planted, and none on what may happen."""

import pytest

from tests.soak.history import (
    FAIL,
    GAINED,
    GIVEN_UP,
    INFO,
    LOST,
    OK,
    Bounds,
    GroupAtEnd,
    GroupCommit,
    GroupRead,
    Op,
    Ownership,
    ints,
)
from tests.unit.soak.histories import ALL, END, HERE, SEEN, kinds


def got(*offsets: int, member: str = "a") -> GroupRead:
    return GroupRead(member, HERE, 1, 2, ints(offsets))


def commit(
    offset: int, invoked: int = 3, completed: int = 4, outcome: str = OK, member: str = "a"
) -> GroupCommit:
    return GroupCommit(member, HERE, offset, invoked, completed, outcome)


def owns(member: str, generation: int, change: str = GAINED) -> Ownership:
    return Ownership(member, HERE, generation, change, 1)


# ALL: three records, at 0, 1, 2.
PLANTED: dict[str, list[list[Op]]] = {
    "passed_over": [
        [ALL, SEEN, END, got(0, 2), commit(3), GroupAtEnd(HERE, 3)],
        [ALL, SEEN, END, got(0, 1), commit(3), GroupAtEnd(HERE, 3)],
        # a commit whose answer was lost counts by where the group stands in the end
        [ALL, SEEN, END, got(0), commit(2, outcome=INFO), GroupAtEnd(HERE, 2)],
    ],
    "forgotten": [
        [ALL, SEEN, END, got(0, 1, 2), commit(3, 3, 4), commit(2, 5, 6), GroupAtEnd(HERE, 3)],
        [ALL, SEEN, END, got(0, 1, 2), commit(3), GroupAtEnd(HERE, 2)],
        [ALL, SEEN, END, got(0, 1, 2), commit(3)],
    ],
    "shared": [[ALL, SEEN, END, owns("a", 1), owns("b", 1)]],
}


@pytest.mark.parametrize(
    ("kind", "ops"), [(kind, ops) for kind, histories in PLANTED.items() for ops in histories]
)
def test_a_planted_fault_is_found(kind: str, ops: list[Op]) -> None:
    assert kind in kinds(*ops)


@pytest.mark.parametrize(
    "ops",
    [
        [ALL, SEEN, END, got(0, 1, 2), commit(3), GroupAtEnd(HERE, 3)],
        [ALL, SEEN, END, got(0, 1), got(2, member="b"), commit(3), GroupAtEnd(HERE, 3)],
        # what is not committed comes again
        [ALL, SEEN, END, got(0, 1), got(0, 1, member="b"), commit(2), GroupAtEnd(HERE, 2)],
        # two at once: either may be the last
        [ALL, SEEN, END, got(0, 1, 2), commit(3, 3, 6), commit(2, 4, 5), GroupAtEnd(HERE, 3)],
        # a refused one, and one of which nobody knows
        [ALL, SEEN, END, got(0, 1, 2), commit(3), commit(1, 5, 6, FAIL), GroupAtEnd(HERE, 3)],
        [ALL, SEEN, END, got(0, 1, 2), commit(3), commit(1, 5, 6, INFO), GroupAtEnd(HERE, 3)],
        # retention was faster
        [ALL, SEEN, Bounds(HERE, 0, 3), got(0, 1, 2), commit(2), GroupAtEnd(HERE, 2)],
        [ALL, SEEN, END, owns("a", 1), owns("a", 1, GIVEN_UP), owns("b", 2), owns("b", 2, LOST)],
        [ALL, SEEN, END, owns("a", -1), owns("b", -1)],
        [ALL, SEEN, END],
    ],
)
def test_nothing_else_is(ops: list[Op]) -> None:
    assert kinds(*ops) == set()
