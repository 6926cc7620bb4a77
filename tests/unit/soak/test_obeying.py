"""Nodes that were stopped, started and drained: what fires, and what at the edge must not."""

import pytest

from tests.soak.checker import check
from tests.soak.facts import gather
from tests.soak.history import (
    DRAIN,
    INFO,
    NEVER,
    OK,
    RETURN,
    START,
    STOP,
    UNDRAIN,
    Alive,
    Bounds,
    DeleteRecords,
    EndOffset,
    Fault,
    LogDir,
    NodeAtEnd,
    NodeOrder,
    Op,
    Setting,
    place_of,
)
from tests.soak.obeying import RECOVERY_S, silences
from tests.unit.soak.histories import HERE, created, deleted, final, kinds, poll, send

S = 1_000_000_000


def order(what: str, invoked: int, completed: int, outcome: str = OK, node: str = "one") -> Op:
    return NodeOrder(what, node, invoked, completed, outcome)


def lies(in_dir: str, invoked: int, completed: int, outcome: str = OK) -> Op:
    return Setting("t", "id-1", place_of(0), in_dir, invoked, completed, outcome)


def asked(invoked: int, completed: int) -> Op:
    return EndOffset("somebody", HERE, invoked, completed, 0)


def back(at: int, target: str = "one") -> Op:
    return Fault(RETURN, target, at)


DIRS: list[Op] = [LogDir("d1", "one"), LogDir("d2", "one"), LogDir("d3", "two")]
# A topic of one partition, whose log is empty, on node one.
EMPTY: list[Op] = [*DIRS, created(), Alive("t", "id-1", 1), Bounds(HERE, 0, 0)]
HOME: list[Op] = [*EMPTY, lies("d1", 0, 1)]
STOPPED = [order(STOP, 10, 20), order(START, 30, 40)]
DRAINED = [order(DRAIN, 10, 20), order(UNDRAIN, 30, 40)]
LATE = 40 + int(RECOVERY_S * S)
LAST = asked(50, 51)

PLANTED: dict[str, list[list[Op]]] = {
    "misplaced": [
        [*EMPTY, lies("d1", 21, 29), *DRAINED, LAST],
        [*EMPTY, lies("d2", 21, 29), *STOPPED, LAST],
        # nobody ended it
        [*EMPTY, lies("d1", 21, 29), order(DRAIN, 10, 20), LAST],
        # another node's order does not end it, nor does a node that came back before
        [*EMPTY, lies("d1", 25, 29), *DRAINED, order(START, 21, 22, node="two"), LAST],
        [*EMPTY, lies("d1", 25, 29), *DRAINED, back(9), back(22, "two"), LAST],
    ],
    "unstopped": [
        [*HOME, *STOPPED, send([10], [0], invoked=21, completed=29), LAST],
        [*HOME, *STOPPED, asked(21, 29), LAST],
        [*HOME, *STOPPED, DeleteRecords(HERE, 0, 21, 29, OK), LAST],
        # the first attempt to start it was at 30
        [
            *HOME,
            order(STOP, 10, 20),
            order(START, 30, 31, INFO),
            order(START, 32, 40),
            *(asked(21, 29), LAST),
        ],
        # it was moved on its node
        [*HOME, lies("d2", 2, 3), *STOPPED, asked(21, 29), LAST],
    ],
    "unstarted": [
        [*HOME, *STOPPED, LAST, NodeAtEnd("one", "stopped")],
        [*HOME, *DRAINED, LAST, NodeAtEnd("one", "draining")],
        # nobody knows whether the start has taken effect, but it was the last word
        [*HOME, order(STOP, 10, 20), order(START, 30, 40, INFO), NodeAtEnd("one", "stopping")],
        # no answer behind the start, or one that comes too late
        [*HOME, *STOPPED],
        [*HOME, *STOPPED, asked(5, 6)],
        [*HOME, *STOPPED, asked(41, LATE + 2)],
        [
            *HOME,
            *STOPPED,
            send([10], None, INFO, invoked=41, completed=NEVER),
            asked(LATE + 8, LATE + 9),
        ],
        # too late also behind the return of its node
        [*HOME, *STOPPED, back(45), asked(46, LATE + 7)],
        [*HOME, *STOPPED, asked(41, LATE + 2), back(LATE + 3)],
    ],
}

LAWFUL: list[list[Op]] = [
    [*HOME, *STOPPED, LAST, NodeAtEnd("one", "online")],
    [*HOME, *DRAINED, LAST, NodeAtEnd("one", "online")],
    # nobody has started it, or ended its drain
    [*HOME, order(STOP, 10, 20), NodeAtEnd("one", "stopped")],
    [*HOME, order(DRAIN, 10, 20), NodeAtEnd("one", "draining")],
    # a drained node serves, and so does the other one
    [*HOME, *DRAINED, asked(21, 29)],
    [*EMPTY, lies("d3", 21, 29), *STOPPED, asked(21, 29)],
    # the request began before the command had ended, or ended when the next one had begun
    [*EMPTY, lies("d1", 20, 29), *DRAINED, LAST],
    [*EMPTY, lies("d1", 21, 30), *DRAINED, LAST],
    [*HOME, *STOPPED, asked(20, 29), LAST],
    [*HOME, *STOPPED, asked(21, 30), LAST],
    # nobody knows whether the order has taken effect, or whether this creation was the one
    [*EMPTY, lies("d1", 21, 29), order(DRAIN, 10, 20, INFO), order(UNDRAIN, 30, 40), LAST],
    [*EMPTY, lies("d1", 21, 29, INFO), *DRAINED, LAST],
    # it was made before, and moved while the node was drained
    [*HOME, lies("d2", 21, 29), *DRAINED, LAST],
    # the node came back under another id
    [*EMPTY, lies("d1", 25, 29), *DRAINED, back(22), LAST],
    [*HOME, *STOPPED, back(15, "one, whose raylet has ended"), asked(21, 29), LAST],
    # a consumer may have had it before
    [
        *HOME,
        *STOPPED,
        send([10], [0], invoked=2, completed=3),
        poll([0], [10], completed=25),
        final([0], [10], completed=60),
        Bounds(HERE, 0, 1),
    ],
    # nobody asked for long
    [*HOME, *STOPPED, asked(LATE + 8, LATE + 9)],
    # its node was away again before it answered
    [
        *(*HOME, *STOPPED, back(LATE), asked(LATE + 8, LATE + 9)),
        send([10], None, INFO, invoked=41, completed=NEVER),
    ],
    # the topic is gone
    [*DIRS, created(), lies("d1", 0, 1), *STOPPED, deleted(invoked=5)],
    # answered by the next topic of this name
    [
        *DIRS,
        created(),
        lies("d1", 0, 1),
        *STOPPED,
        deleted(invoked=22),
        send([10], [0], invoked=23, completed=29),
    ],
]


@pytest.mark.parametrize(
    ("kind", "ops"), [(kind, ops) for kind, histories in PLANTED.items() for ops in histories]
)
def test_a_node_that_does_not_obey_is_found(kind: str, ops: list[Op]) -> None:
    assert kind in kinds(*ops)


@pytest.mark.parametrize("ops", LAWFUL)
def test_what_an_order_allows_yields_nothing(ops: list[Op]) -> None:
    assert check(ops) == []


def test_how_long_a_partition_was_silent_behind_a_start_is_told() -> None:
    history = gather([*HOME, *STOPPED, asked(45, 45 + 3 * S), asked(46, 46 + 4 * S)])
    ((start, partition, silent_s),) = silences(history)
    assert (start.completed, partition, silent_s) == (40, HERE, 3.0)
