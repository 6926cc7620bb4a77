"""What an operator did, and the bounds of the logs: what fires, and what at the edge must not."""

import pytest

from tests.soak.checker import check
from tests.soak.history import (
    COMPACT,
    DELETE,
    FAIL,
    INFO,
    NEVER,
    OK,
    PARTITIONS,
    Alive,
    Batches,
    Bounds,
    DeleteRecords,
    MetadataAtEnd,
    Op,
    Partition,
    ProducerId,
    Restore,
    Setting,
    SettingAtEnd,
    config_of,
    ints,
)
from tests.unit.soak.histories import (
    ALL,
    END,
    HERE,
    SEEN,
    THERE,
    created,
    deleted,
    final,
    kinds,
    send,
)

SIZE = config_of("max.message.bytes")
EMPTY = (created(), Alive("t", "id-1", 1), Bounds(HERE, 0, 0))


def sets(
    value: object, invoked: int, completed: int, outcome: str = OK, what: str = SIZE
) -> Setting:
    return Setting("t", "id-1", what, str(value), invoked, completed, outcome)


def begins(value: object, invoked: int) -> Setting:
    """As it is written before the request."""
    return sets(value, invoked, NEVER, INFO)


def is_now(value: object, what: str = SIZE) -> SettingAtEnd:
    return SettingAtEnd("t", "id-1", what, str(value))


def given(producer_id: int, asker: str = "a", at: int = 1) -> ProducerId:
    return ProducerId(asker, producer_id, at)


def cut(before: int, outcome: str = OK) -> DeleteRecords:
    return DeleteRecords(HERE, before, 5, 6, outcome)


def metadata(node: str, epoch: int, end: int, digest: str) -> MetadataAtEnd:
    return MetadataAtEnd(node, epoch, end, digest)


def lying(offsets: list[int], producer_ids: list[int], at: Partition = HERE) -> Batches:
    return Batches(at, ints(offsets), ints(producer_ids))


TWO = (send([10, 11], [0, 1], producer="w1.1"), send([12], [2], producer="w1.2"))
THERES = send([20], [0], at=THERE, producer="q")

PLANTED: dict[str, list[list[Op]]] = {
    "undone": [
        [sets(1, 0, 1), sets(2, 2, 3), is_now(1)],
        [sets(1, 0, 1), is_now("the default")],
        # the next one was refused
        [sets(1, 0, 1), sets(2, 2, 3, FAIL), is_now(2)],
        [sets(2, 0, 1, what=PARTITIONS), sets(3, 2, 3, what=PARTITIONS), is_now(2, PARTITIONS)],
        # what was written before the first request began is not its last word
        [begins(1, 0), sets(1, 0, 1), begins(2, 2), sets(2, 2, 3), is_now(1)],
        # done before the copy that was restored was made
        [sets(1, 0, 1), sets(2, 2, 3), Restore(4, 5, 6), is_now(1)],
        # done when the restore was over
        [sets(1, 0, 1), Restore(0, 5, 6), sets(2, 6, 8), is_now(1)],
    ],
    "vanished": [
        # the request to delete it was refused in the end
        [created(), deleted(outcome=INFO)._replace(completed=NEVER), deleted(outcome=FAIL)],
    ],
    "outdated": [
        [metadata("head", 2, 9, "x"), metadata("one", 2, 8, "y")],
        [metadata("head", 1, 9, "x"), metadata("one", 2, 8, "y")],
        # as many records, but others
        [metadata("head", 2, 9, "x"), metadata("one", 2, 9, "y")],
        # none of the copies of a node has all
        [metadata("head", 2, 9, "x"), metadata("one", 2, 8, "y"), metadata("one", 1, 9, "z")],
    ],
    "reissued": [
        [given(7), given(8), given(7, "b")],
        [given(7), Restore(0, 5, 6), given(7, at=9)],
        # by what lies on the disks: two producers with one id, also in two partitions
        [*TWO, lying([0, 2], [7, 7])],
        [ALL, THERES, lying([0], [7]), lying([0], [7], THERE)],
        # one that has written, and one that asked
        [ALL, lying([0], [7]), given(7, "w9.asks")],
    ],
    "unanswered": [
        [created(), Alive("t", "id-1", 1)],
        [*EMPTY, Alive("t", "id-1", 2)],
        # only of topics that a restore may have touched nobody knows
        [created(), Alive("t", "id-1", 1), Restore(2, 5, 6)],
    ],
    "uneven": [
        [ALL, SEEN, Bounds(HERE, 0, 4)],
        [ALL, SEEN, Bounds(HERE, 0, 2)],
        [created(DELETE), Alive("t", "id-1", 1), final([], []), Bounds(HERE, 2, 3)],
        [created(), Alive("t", "id-1", 1), Bounds(HERE, 3, 2)],
        [created(COMPACT), Alive("t", "id-1", 1), ALL, SEEN, Bounds(HERE, 0, 2)],
    ],
    "undeleted": [
        [ALL, cut(2), SEEN, END],
        [ALL, cut(2), final([1, 2], [11, 12]), Bounds(HERE, 1, 3)],
        [ALL, cut(2), final([2], [12]), Bounds(HERE, 1, 3)],
    ],
}

LAWFUL: list[list[Op]] = [
    [sets(1, 0, 1), sets(2, 2, 3), is_now(2)],
    # two at a time: either may be the last
    [sets(1, 0, 5), sets(2, 2, 3), is_now(1)],
    [sets(1, 0, 5), sets(2, 2, 3), is_now(2)],
    # of unknown fate: it may be done late, or never
    [sets(1, 0, 1, INFO), sets(2, 2, 3), is_now(1)],
    [sets(1, 0, 1), sets(2, 2, 3, INFO), is_now(1)],
    [sets(1, 0, 1), sets(2, 2, 3, INFO), is_now(2)],
    # who has asked for it was killed
    [begins(1, 0), sets(1, 0, 1), begins(2, 2), is_now(1)],
    [begins(1, 0), sets(1, 0, 1), begins(2, 2), is_now(2)],
    [ALL, cut(2, INFO)._replace(completed=NEVER), final([2], [12]), Bounds(HERE, 2, 3)],
    [created(), deleted(outcome=INFO)._replace(completed=NEVER)],
    # nobody knows that any was done
    [sets(1, 0, 1, INFO), is_now("the default")],
    [is_now("the default")],
    # of another topic of this name, and of another key
    [sets(1, 0, 1)._replace(topic_id="id-0"), is_now(2)],
    [sets(1, 0, 1), is_now(2, config_of("segment.bytes"))],
    # behind the copy that was restored
    [sets(1, 0, 1), sets(2, 2, 3), Restore(2, 5, 6), is_now(1)],
    [sets(1, 0, 1), sets(2, 2, 3), Restore(2, 5, 6), is_now(2)],
    # it began before the restore was over
    [sets(1, 0, 1), Restore(2, 5, 8), sets(2, 7, 9), is_now(1)],
    [given(7), given(8, "b"), Restore(0, 5, 6), given(9)],
    # a producer with two ids, one behind the other, in two partitions
    [*TWO, lying([0, 2], [7, 8])],
    [ALL, lying([0, 1, 2], [7, 7, 9])],
    [ALL, THERES, lying([0], [7]), lying([0], [8], THERE)],
    # the asker is the producer, who gave his batches names
    [send([10], [0], producer="w5.3.first"), lying([0], [7]), given(7, "w5.3")],
    # of a record that nobody knows, and of one that begins at another offset
    [ALL, lying([9], [7]), given(7)],
    [lying([0], [7]), given(7)],
    # topics that a restore undid, and brought back
    [created(invoked=3), Restore(2, 7, 8)],
    [created(), deleted(invoked=3), Restore(2, 7, 8), Alive("t", "id-1", 1)],
    # a node has another copy of long ago, in a log dir that was away
    [metadata("one", 1, 4, "y"), metadata("head", 2, 9, "x"), metadata("one", 2, 9, "x")],
    [metadata("one", 2, 9, "x"), metadata("head", 2, 9, "x"), metadata("one", 1, 4, "y")],
    # logs without records
    [*EMPTY],
    [created(DELETE), Alive("t", "id-1", 1), final([], []), Bounds(HERE, 3, 3)],
    [created(COMPACT), Alive("t", "id-1", 1), final([], []), Bounds(HERE, 0, 3)],
    # the last record was compacted
    [created(COMPACT), Alive("t", "id-1", 1), ALL, SEEN, Bounds(HERE, 0, 4)],
    # deleted by request: nobody heard of it, or it was refused
    [ALL, cut(2, INFO), SEEN, END],
    [ALL, cut(2, FAIL), SEEN, END],
    [ALL, cut(2), final([2], [12]), Bounds(HERE, 2, 3)],
]


@pytest.mark.parametrize(
    ("kind", "ops"), [(kind, ops) for kind, histories in PLANTED.items() for ops in histories]
)
def test_what_is_not_as_it_was_set_is_found(kind: str, ops: list[Op]) -> None:
    assert kind in kinds(*ops)


@pytest.mark.parametrize("ops", LAWFUL)
def test_what_may_be_at_the_end_yields_nothing(ops: list[Op]) -> None:
    assert check(ops) == []


def test_the_partition_that_does_not_answer_is_named() -> None:
    (found,) = check([*EMPTY, Alive("t", "id-1", 2)])
    assert found.subject == str(THERE)
