"""Real-time order and stale ends: what fires, and what at the edge must not."""

import pytest

from tests.soak.checker import check
from tests.soak.history import (
    FAIL,
    INFO,
    NEVER,
    OK,
    Alive,
    Bounds,
    EndOffset,
    Op,
    Partition,
    Send,
    ints,
)
from tests.unit.soak.histories import HERE, THERE, created, deleted, final, kinds, poll, send


def told(end: int, invoked: int, completed: int, at: Partition = HERE) -> EndOffset:
    return EndOffset("somebody", at, invoked, completed, end)


def log(*ops: Op) -> list[Op]:
    """A log of two records, the first of which was sent from 20 to 30."""
    return [
        send([10], [0], producer="p", invoked=20, completed=30),
        *ops,
        final([0, 1], [10, 11], completed=99),
        Bounds(HERE, 0, 2),
    ]


# The record behind that of ``log``.
EARLY = send([11], [1], producer="q", invoked=5, completed=10)
HIGH = send([11], [1], producer="q", invoked=5, completed=35)

PLANTED: dict[str, list[list[Op]]] = {
    "untimely": [
        # it was acknowledged at 10, and what began at 20 lies before it
        log(EARLY),
        # nobody heard of it, but it was read at 10
        log(
            send([11], None, INFO, producer="q", invoked=5, completed=NEVER),
            poll([1], [11], completed=10),
        ),
        # what began at 20 was never acknowledged, but was read
        [
            EARLY,
            send([10], None, INFO, producer="p", invoked=20, completed=NEVER),
            *(final([0, 1], [10, 11], completed=99), Bounds(HERE, 0, 2)),
        ],
        # one record of a burst is enough
        [
            send([10, 12], [0, 2], producer="p", invoked=20, completed=30),
            *(EARLY, final([0, 1, 2], [10, 11, 12], completed=99), Bounds(HERE, 0, 3)),
        ],
    ],
    "stale": [
        log(HIGH, told(1, 36, 37)),
        log(HIGH, told(0, 31, 32)),  # the first was acknowledged at 30
        # acknowledged at 35, but read at 33
        log(HIGH, poll([1], [11], completed=33), told(1, 34, 36)),
        # the topic was deleted when the answer had come
        [
            created(),
            send([10], [0], invoked=2, completed=3),
            told(0, 4, 5),
            deleted(invoked=6),
        ],
    ],
}

LAWFUL: list[list[Op]] = [
    # each began before the other was acknowledged
    log(HIGH),
    log(send([11], [1], producer="q", invoked=5, completed=20)),
    # in another partition
    log(
        send([20], [9], at=THERE, producer="q", invoked=1, completed=2),
        HIGH,
    ),
    # its fate is not known, and it was read only when the other had begun
    log(
        send([11], None, INFO, producer="q", invoked=5, completed=NEVER),
        poll([1], [11], completed=25),
    ),
    # one burst in two batches: the second was answered before the first, which was sent again
    log(send([11], [1], producer="p", invoked=20, completed=25)),
    # a retry: the first attempt was at 5, whatever the time of the last
    log(HIGH._replace(completed=1000)),
    # the end was asked for before the acknowledgement, or at that moment
    log(HIGH, told(1, 34, 40)),
    log(HIGH, told(1, 35, 40)),
    log(HIGH, told(2, 36, 40)),
    log(HIGH, told(2, 1, 40)),  # longer than what was known then
    # a refused append confirms nothing
    [
        send([11], None, FAIL, producer="q", invoked=5, completed=10),
        *(send([10], [0], invoked=20, completed=30), told(0, 15, 16)),
        *(final([0], [10], completed=99), Bounds(HERE, 0, 1)),
    ],
]


@pytest.mark.parametrize(
    ("kind", "ops"), [(kind, ops) for kind, histories in PLANTED.items() for ops in histories]
)
def test_what_comes_too_late_is_found(kind: str, ops: list[Op]) -> None:
    assert kinds(*ops) == {kind}


@pytest.mark.parametrize("ops", LAWFUL)
def test_what_overlaps_may_come_in_any_order(ops: list[Op]) -> None:
    assert check(ops) == []


def test_one_burst_may_be_acknowledged_out_of_order() -> None:
    """Its records in the order of sending, but the acknowledgement of the second came first."""
    ops = [
        send([11], [1], producer="p", invoked=20, completed=25),
        send([10], [0], producer="q", invoked=20, completed=30),
    ]
    assert check([*ops, final([0, 1], [10, 11], completed=99), Bounds(HERE, 0, 2)]) == []


@pytest.mark.parametrize("outcome", [OK, INFO])
def test_who_asks_by_name_while_the_topic_is_deleted_may_be_answered_by_the_next_one(
    outcome: str,
) -> None:
    again = HERE._replace(topic_id="id-2")
    ops: list[Op] = [
        created(),
        send([10, 11], [0, 1], invoked=2, completed=3),
        deleted(invoked=10, outcome=outcome),
        told(0, 9, 12),
        # it was on its way, and the next topic has it
        send([12], [0], producer="q", invoked=8, completed=13),
        created(topic_id="id-2", invoked=11),
        *(Alive("t", "id-2", 1), Bounds(again, 0, 1)),
        final([0], [12], at=again, completed=99),
    ]
    assert check(ops) == []
    assert kinds(*ops, told(0, 8, 9)) == {"stale"}


def test_a_topic_that_is_made_again_begins_afresh() -> None:
    again = HERE._replace(topic_id="id-2")
    ops: list[Op] = [
        created(),
        send([10, 11], [0, 1], invoked=2, completed=3),
        deleted(invoked=10),
        created(topic_id="id-2", invoked=20),
        told(0, 30, 31, at=again),
        send([12], [0], at=again, producer="q", invoked=30, completed=31),
        *(Alive("t", "id-2", 1), Bounds(again, 0, 1)),
        final([0], [12], at=again, completed=99),
    ]
    assert check(ops) == []


def test_a_long_history_is_compared_by_sorting() -> None:
    """Each operation with the highest offset before it: with all others it would take minutes."""
    count = 30_000
    sends = [
        Send(f"p{n % 50}", HERE, 10 * n, 10 * n + 25, OK, ints([n + 1]), ints([-1]), ints([n]))
        for n in range(count)
    ]
    asked = [told(n - 2, 10 * n, 10 * n + 5) for n in range(3, count, 2)]
    ops: list[Op] = [
        *sends,
        *asked,
        final(list(range(count)), list(range(1, count + 1)), completed=20 * count),
        Bounds(HERE, 0, count),
    ]
    assert check(ops) == []
    late = told(count - 100, 10 * count, 10 * count + 5)
    assert kinds(*ops, late) == {"stale"}
