"""Each finding of the soak's checker fires on a fault that was planted, and none on the history of
a log."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.soak.checker import KINDS, check
from tests.soak.history import (
    BOTH,
    COMPACT,
    DELETE,
    FAIL,
    INFO,
    KEEP,
    NEVER,
    NO_KEY,
    OK,
    Alive,
    Bounds,
    DeleteRecords,
    Ended,
    EndOffset,
    Op,
    Poll,
    Send,
    Writer,
    ints,
    read,
)
from tests.unit.soak import (
    test_group_rules,
    test_obeying,
    test_operating,
    test_timing,
    test_transaction_rules,
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
    poll,
    send,
)

PLANTED: dict[str, list[list[Op]]] = {
    "lost": [
        [ALL, final([0, 1], [10, 11]), END],
        [ALL, final([1, 2], [11, 12]), Bounds(HERE, 1, 3)],  # nothing deletes records of this topic
        [send([10], None, INFO), poll([0], [10]), Bounds(HERE, 0, 0)],  # read once, it must stay
        # more is gone than was to be deleted
        [ALL, DeleteRecords(HERE, 1, 2, 3, INFO), final([2], [12]), Bounds(HERE, 2, 3)],
        [ALL, DeleteRecords(HERE, 2, 2, 3, FAIL), final([2], [12]), Bounds(HERE, 2, 3)],
    ],
    "unseen": [[ALL, SEEN, END, Ended("c", HERE, 2)]],
    "duplicated": [[ALL, final([0, 1, 2, 3], [10, 11, 12, 10]), Bounds(HERE, 0, 4)]],
    "divergent": [
        [ALL, send([13], None, INFO), poll([2], [13]), SEEN, END],
        [ALL, send([13], [2], producer="q"), SEEN, END],
    ],
    "inconsistent": [[send([10, 11], [0, 2]), final([0, 1], [10, 11]), Bounds(HERE, 0, 2)]],
    "reordered": [
        [send([10], [1]), send([11], [0]), final([0, 1], [11, 10]), Bounds(HERE, 0, 2)],
        [send([10], None, INFO), send([11], [0]), final([0, 1], [11, 10]), Bounds(HERE, 0, 2)],
    ],
    "backwards": [[ALL, poll([0, 1], [10, 11]), poll([1], [11]), SEEN, END]],
    "skipped": [
        [ALL, poll([0], [10]), poll([2], [12]), SEEN, END],
        [ALL, poll([0, 2], [10, 12]), SEEN, END],
    ],
    "aborted": [
        [ALL, send([13], None, FAIL), final([0, 1, 2, 3], [10, 11, 12, 13]), Bounds(HERE, 0, 4)]
    ],
    "phantom": [[ALL, final([0, 1, 2, 3], [10, 11, 12, 99]), Bounds(HERE, 0, 4)], [poll([0], [1])]],
    "foreign": [
        [ALL, SEEN, END, send([20], [0], at=THERE), poll([3], [20])],
        [
            *(
                created(),
                deleted(),
                created(topic_id="id-2", invoked=9),
                Alive("t", "id-2", 1),
                ALL,
            ),
            poll([0], [10], at=HERE._replace(topic_id="id-2")),
        ],
    ],
    "resurrected": [
        [
            created(COMPACT),
            send([10, -11], [0, 1], keys=[1, 1]),
            final([0], [10], keys=[1]),
            Bounds(HERE, 0, 2),
            Alive("t", "id-1", 1),
        ]
    ],
    "vanished": [[created()], [created(), Alive("t", "id-2", 1)]],
    "undead": [[created(), deleted(), Alive("t", "id-1", 1)]],
}


def test_every_finding_has_a_planted_fault() -> None:
    others = (
        *(test_timing, test_operating, test_obeying, test_group_rules),
        test_transaction_rules,
    )
    planted = {kind for module in others for kind in module.PLANTED}
    assert {*PLANTED, *planted} == set(KINDS)


@pytest.mark.parametrize(
    ("kind", "ops"), [(kind, ops) for kind, histories in PLANTED.items() for ops in histories]
)
def test_a_planted_fault_is_found(kind: str, ops: list[Op]) -> None:
    assert kind in kinds(*ops)


@pytest.mark.parametrize(
    "ops",
    [
        [ALL, SEEN, END, Ended("c", HERE, 3)],
        [ALL],  # of a topic that is gone: nobody can say
        [created(DELETE), ALL, final([2], [12]), Bounds(HERE, 2, 3), Alive("t", "id-1", 1)],
        # deleted by request, also where its answer was lost
        [ALL, DeleteRecords(HERE, 2, 2, 3, INFO), final([2], [12]), Bounds(HERE, 2, 3)],
        [ALL, DeleteRecords(HERE, 2, 2, 3, INFO), SEEN, END],
        [ALL, DeleteRecords(HERE, 3, 2, 3, OK), final([], []), Bounds(HERE, 3, 3)],
        [send([10], None, INFO), final([], []), Bounds(HERE, 0, 0)],
        [send([10], None, INFO), final([0], [10]), Bounds(HERE, 0, 1)],
        [send([10], None, FAIL), final([], []), Bounds(HERE, 0, 0)],
        [ALL, poll([0, 1], [10, 11]), poll([0], [10], "c after a seek"), SEEN, END],
        # a later record of its key
        [
            *(created(COMPACT), send([10, 11], [0, 1], keys=[1, 1])),
            *(final([1], [11], keys=[1]), Bounds(HERE, 0, 2), Alive("t", "id-1", 1)),
        ],
        # a tombstone, and what it stands for
        [
            *(created(COMPACT), send([10, -11], [0, 1], keys=[1, 1])),
            *(final([], []), Bounds(HERE, 0, 2), Alive("t", "id-1", 1)),
        ],
        # what was on its way when the topic was made again
        [
            *(created(), deleted(), created(topic_id="id-2", invoked=9), Alive("t", "id-2", 1)),
            send([10], [0], completed=12),
            final([0], [10], at=HERE._replace(topic_id="id-2")),
            Bounds(HERE._replace(topic_id="id-2"), 0, 1),
        ],
        [created(), deleted(outcome=INFO)],
        [created(outcome=INFO)],
        [created(), deleted(outcome=INFO), Alive("t", "id-1", 1), Bounds(HERE, 0, 0)],
    ],
)
def test_a_history_that_a_log_can_have_yields_nothing(ops: list[Op]) -> None:
    assert check(ops) == []


def test_a_record_with_an_unheard_tombstone_behind_it_may_be_gone_but_no_other() -> None:
    sent = [send([10], [0], keys=[1]), send([-11], None, INFO, keys=[1]), send([12], [1], keys=[2])]
    ops: list[Op] = [created(COMPACT), Alive("t", "id-1", 1), Bounds(HERE, 0, 3), *sent]
    assert kinds(*ops, final([1], [12], keys=[2])) == set()
    assert kinds(*ops, final([0], [10], keys=[1])) == {"lost"}


def test_the_last_word_about_a_record_counts(tmp_path: Path) -> None:
    begun = Send("p", HERE, 5, NEVER, INFO, ints([10, 11]), ints([NO_KEY] * 2), ints())
    with Writer(tmp_path / "p.history") as writer:
        writer.write(begun)
        writer.write(send([11], None, FAIL))
        writer.write(send([10], [0]))
        writer.write(final([0, 1], [10, 11]))
        writer.write(Bounds(HERE, 0, 2))
    assert kinds(*read(tmp_path)) == {"aborted"}


def test_a_file_that_ends_in_the_middle_of_an_operation_is_read_up_to_there(tmp_path: Path) -> None:
    with Writer(tmp_path / "p.history") as writer:
        writer.write(ALL)
        writer.write(SEEN)
    path = tmp_path / "p.history"
    path.write_bytes(path.read_bytes()[:-3])
    (found,) = read(tmp_path)
    assert isinstance(found, Send)
    assert found.partition == HERE
    np.testing.assert_array_equal(found.offsets, [0, 1, 2])


# -- histories made by a log, with one fault in each -----------------------------------------------


STEP = 10  # between two appends


class Run(NamedTuple):
    """A history that a log made, and the log."""

    ops: list[Op]
    values: list[int]
    start: int


@st.composite
def runs(draw: st.DrawFn, policy: str = KEEP) -> Run:
    """Producers that send in turn, some records of unknown fate, consumers that read from
    anywhere."""
    ops: list[Op] = [created(policy), Alive("t", "id-1", 1)]
    values: list[int] = []
    keys: list[int] = []
    for number, (outcome, count) in enumerate(
        draw(
            st.lists(
                st.tuples(st.sampled_from([OK, OK, OK, INFO, FAIL]), st.integers(1, 4)),
                min_size=4,
                max_size=12,
            )
        )
    ):
        sent = [1000 * (number + 1) + n for n in range(count)]
        sent_keys = (
            [draw(st.integers(0, 3)) for _ in sent]
            if policy in (COMPACT, BOTH)
            else [NO_KEY] * count
        )
        offsets = list(range(len(values), len(values) + count)) if outcome == OK else None
        producer = f"p{draw(st.integers(0, 1))}"
        # Its time of effect lies between its begin and its end, and others' may lie there, too.
        invoked = STEP * number - draw(st.integers(1, 3 * STEP))
        completed = STEP * number + draw(st.integers(1, 3 * STEP))
        ops += [
            send(
                sent,
                None,
                INFO,
                producer=producer,
                keys=sent_keys,
                invoked=invoked,
                completed=NEVER,
            ),
            send(
                sent,
                offsets,
                outcome,
                producer=producer,
                keys=sent_keys,
                invoked=invoked,
                completed=completed,
            ),
        ]
        if outcome == OK or (outcome == INFO and draw(st.booleans())):
            values += sent
            keys += sent_keys
        asked = STEP * number + 1
        ops.append(EndOffset("e", HERE, asked - draw(st.integers(1, STEP)), asked, len(values)))
    over = STEP * 20
    start = draw(st.integers(0, len(values))) if policy in (DELETE, BOTH) else 0
    alive = [
        n
        for n in range(start, len(values))
        if policy in (KEEP, DELETE) or keys[n] not in keys[n + 1 :]
    ]
    for consumer in range(draw(st.integers(1, 3))):
        begin = draw(st.integers(0, len(values)))
        met = [
            n for n in range(begin, len(values)) if n < start or n in alive or draw(st.booleans())
        ]
        while met:
            taken = draw(st.integers(1, len(met)))
            part, met = met[:taken], met[taken:]
            ops.append(
                poll(
                    part,
                    [values[n] for n in part],
                    f"c{consumer}",
                    keys=[keys[n] for n in part],
                    completed=over,
                )
            )
        ops.append(Ended(f"c{consumer}", HERE, len(values)))
    ops.append(
        final(alive, [values[n] for n in alive], keys=[keys[n] for n in alive], completed=over)
    )
    return Run([*ops, Bounds(HERE, start, len(values))], values, start)


@given(st.sampled_from([KEEP, DELETE, COMPACT, BOTH]).flatmap(runs))
@settings(deadline=None, max_examples=200)
def test_whatever_a_log_does_yields_nothing(run: Run) -> None:
    assert check(run.ops) == []


def lose(run: Run, draw: Callable[[int], int]) -> list[Op]:
    """The end of the log is cut off, when somebody has read it."""
    cut = draw(len(run.values))
    witness = poll(list(range(len(run.values))), run.values, "witness")
    return [
        witness,
        *(_cut(op, cut) if isinstance(op, Poll) and op.is_final else op for op in run.ops),
    ]


def _cut(op: Poll, end: int) -> Poll:
    keep = op.offsets < end
    return op._replace(offsets=op.offsets[keep], values=op.values[keep], keys=op.keys[keep])


def repeat(run: Run, draw: Callable[[int], int]) -> list[Op]:
    """A batch is written again at the end."""
    value, end = run.values[draw(len(run.values))], len(run.values)
    return [*run.ops, poll([end], [value], "late"), _end(run, end + 1), final([end], [value])]


def diverge(run: Run, draw: Callable[[int], int]) -> list[Op]:
    """Two records of the log are read in each other's place by one consumer."""
    at = draw(len(run.values))
    return [*run.ops, poll([at], [run.values[at - 1]], "misled")]


def invent(run: Run, draw: Callable[[int], int]) -> list[Op]:
    return [*run.ops, poll([len(run.values)], [77 + draw(9)], "dreamer")]


def skip(run: Run, draw: Callable[[int], int]) -> list[Op]:
    at = 1 + draw(len(run.values) - 2)
    return [*run.ops, poll([at - 1, at + 1], [run.values[at - 1], run.values[at + 1]], "hasty")]


def go_back(run: Run, draw: Callable[[int], int]) -> list[Op]:
    at = draw(len(run.values))
    return [*run.ops, poll([at], [run.values[at]], "dizzy"), poll([at], [run.values[at]], "dizzy")]


def stop_short(run: Run, draw: Callable[[int], int]) -> list[Op]:
    return [*run.ops, Ended("stuck", HERE, draw(len(run.values)))]


def _end(run: Run, end: int) -> Bounds:
    return Bounds(HERE, run.start, end)


def answer_late(run: Run, draw: Callable[[int], int]) -> list[Op]:
    """Somebody is told an end that was overtaken before he asked."""
    now = STEP * 20
    witness = poll([len(run.values) - 1], run.values[-1:], "witness", completed=now)
    told = EndOffset("late", HERE, now + 1, now + 2, draw(len(run.values)))
    return [*run.ops, witness, told]


def write_below(run: Run, draw: Callable[[int], int]) -> list[Op]:
    """A record's append began when the log's last record had been read."""
    now = STEP * 20
    witness = poll([len(run.values) - 1], run.values[-1:], "witness", completed=now)
    at = draw(len(run.values) - 1)
    late = send([77], None, INFO, producer="late", invoked=now + 1, completed=NEVER)
    return [*run.ops, witness, late, poll([at], [77], "misled", completed=now + 5)]


@pytest.mark.parametrize(
    ("kind", "plant"),
    [
        ("lost", lose),
        ("stale", answer_late),
        ("untimely", write_below),
        ("duplicated", repeat),
        ("divergent", diverge),
        ("phantom", invent),
        ("skipped", skip),
        ("backwards", go_back),
        ("unseen", stop_short),
    ],
)
@given(run=runs(), data=st.data())
@settings(deadline=None, max_examples=60)
def test_one_fault_in_the_history_of_a_log_is_found(
    kind: str, plant: Callable[[Run, Callable[[int], int]], list[Op]], run: Run, data: st.DataObject
) -> None:
    if len(run.values) < 3:
        return
    ops = plant(run, lambda below: data.draw(st.integers(0, below - 1)))
    assert kind in kinds(*ops)


@given(run=runs(), data=st.data())
@settings(deadline=None, max_examples=60)
def test_two_acknowledgements_that_were_exchanged_are_found(run: Run, data: st.DataObject) -> None:
    acked = [
        n
        for n, op in enumerate(run.ops)
        if isinstance(op, Send) and op.outcome == OK and len(op.values) > 1
    ]
    if not acked:
        return
    at = data.draw(st.sampled_from(acked))
    op = run.ops[at]
    assert isinstance(op, Send)
    ops = [*run.ops[:at], op._replace(offsets=op.offsets[::-1].copy()), *run.ops[at + 1 :]]
    assert {"inconsistent", "reordered", "divergent"} <= kinds(*ops)


@given(run=runs(COMPACT), data=st.data())
@settings(deadline=None, max_examples=60)
def test_a_last_record_of_its_key_that_is_gone_is_found(run: Run, data: st.DataObject) -> None:
    at = next(n for n, op in enumerate(run.ops) if isinstance(op, Poll) and op.is_final)
    op = run.ops[at]
    assert isinstance(op, Poll)
    if not len(op.values):
        return
    keep = np.arange(len(op.values)) != data.draw(st.integers(0, len(op.values) - 1))
    less = op._replace(offsets=op.offsets[keep], values=op.values[keep], keys=op.keys[keep])
    gone = int(op.values[~keep][0])
    known = {int(v) for o in run.ops if isinstance(o, Poll) for v in o.values if not o.is_final}
    known |= {int(v) for o in run.ops if isinstance(o, Send) and o.outcome == OK for v in o.values}
    found = kinds(*run.ops[:at], less, *run.ops[at + 1 :])
    assert gone not in known or "lost" in found  # of one that nobody has met nobody can tell
