"""Whether nodes were what an operator had ordered them to be. Pure.

=========  =========================================================================================
misplaced  a partition was made on a node that was drained or stopped
unstopped  a partition of a node that was stopped took records, or answered
unstarted  a node that was started again is not in use at the end, or one of its partitions gave no
           answer, or none within RECOVERY_S of the first request
=========  =========================================================================================

**When a node is stopped or drained.** From the moment when the command said so, to the beginning of
the first attempt that ends it. If the node came back under another id in between, the order is that
of a node which is gone: then it holds only until the node came back.

**Where a partition is.** On the node of its log dir. Moves go to other log dirs of the same node.
What was polled says nothing: a consumer may have had it before.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tests.soak.facts import History, PartitionFacts
from tests.soak.findings import Finding
from tests.soak.history import (
    DRAIN,
    NEVER,
    OK,
    RETURN,
    START,
    STOP,
    UNDRAIN,
    NodeOrder,
    Partition,
    Setting,
    placed_partition,
)

# Within this a partition serves again.
RECOVERY_S = 180.0
ENDED_BY = {STOP: (START,), DRAIN: (UNDRAIN, START)}
UNUSED = ("stopping", "stopped", "draining")


class Span(NamedTuple):
    """A node was surely stopped, or surely drained, behind ``since`` and before ``until``."""

    node: str
    since: int
    until: int

    def includes(self, invoked: int, completed: int) -> bool:
        return self.since < invoked and completed < self.until

    def __str__(self) -> str:
        return f"from {self.since} to {self.until}"


def misplaced(history: History) -> Iterator[Finding]:
    made = _made(history)
    for order in (STOP, DRAIN):
        for span in _spans(history, order):
            for partition, setting in made.items():
                node = history.log_dirs.get(setting.value)
                if node != span.node or setting.outcome != OK:
                    continue
                if span.includes(setting.invoked, setting.completed):
                    what = f"made on node {node}, which had the order to {order} {span}"
                    yield Finding("misplaced", str(partition), 1, what)


def unstopped(history: History) -> Iterator[Finding]:
    nodes = _nodes_of_partitions(history)
    for span in _spans(history, STOP):
        for partition, node in nodes.items():
            facts = history.partitions.get(partition)
            if node != span.node or facts is None:
                continue
            count = sum(span.includes(*times) for times in _answers(facts))
            if count:
                what = f"{count} answers, and its node {node} was stopped {span}"
                yield Finding("unstopped", str(partition), count, what)


def unstarted(history: History) -> Iterator[Finding]:
    for node, state in history.states_at_end.items():
        orders = [order for order in history.orders if order.node == node]
        if orders and orders[-1].order in (START, UNDRAIN) and state in UNUSED:
            yield Finding("unstarted", f"node {node}", 1, f"it is {state} at the end")
    for start, partition, silent_s in silences(history):
        if silent_s is None or silent_s > RECOVERY_S:
            how = "no answer" if silent_s is None else f"the first answer after {silent_s:.0f} s"
            what = f"{how}, though its node {start.node} was started at {start.completed}"
            yield Finding("unstarted", str(partition), 1, what)


def silences(history: History) -> Iterator[tuple[NodeOrder, Partition, float | None]]:
    """Every start of a node that was stopped, each partition there, and how long it was silent.

    Silence begins with the first request behind the start, or behind the return of the node where
    it went away again before any answer. It is None where nothing was answered at all. Only of
    partitions that are there at the end: others may have been deleted.
    """
    nodes = _nodes_of_partitions(history)
    for start in _starts_behind_stops(history):
        for partition, node in nodes.items():
            facts = history.partitions.get(partition)
            if node == start.node and facts is not None and _is_alive(history, partition):
                yield start, partition, _silence_s(facts, start.completed, _returns(history, node))


def _silence_s(facts: PartitionFacts, since: int, returns: list[int]) -> float | None:
    answered = [done for _, done in _answers(facts, with_polls=True) if done >= since]
    if not answered:
        return None
    since = max((at for at in returns if since <= at < min(answered)), default=since)
    asked = [send.invoked for send in facts.sends if send.invoked >= since]
    asked += [end.invoked for end in facts.end_offsets if end.invoked >= since]
    first = min(answered)
    return max(first - min(asked, default=first), 0) / 1e9


def _answers(facts: PartitionFacts, *, with_polls: bool = False) -> list[tuple[int, int]]:
    """(invoked, completed) of whatever the partition has answered, by its id for sure."""
    sends = [send for send in facts.sends if send.outcome == OK]
    deletions = [deletion for deletion in facts.deletions if deletion.outcome == OK]
    ops = [*sends, *deletions, *facts.end_offsets, *(facts.polls if with_polls else ())]
    return [(op.invoked, op.completed) for op in ops if op.completed < facts.deleted_at]


# -- orders ----------------------------------------------------------------------------------------


def _spans(history: History, order: str) -> Iterator[Span]:
    """When nodes were stopped (or drained) for sure."""
    for done in history.orders:
        if done.order != order or done.outcome != OK:
            continue
        ends = [
            later.invoked
            for later in history.orders
            if later.node == done.node
            and later.order in ENDED_BY[order]
            and later.invoked >= done.completed
        ]
        ends += [at for at in _returns(history, done.node) if at >= done.invoked]
        yield Span(done.node, done.completed, min(ends, default=NEVER))


def _returns(history: History, node: str) -> list[int]:
    """When the node was there again under another id."""
    return [
        fault.at
        for fault in history.faults
        if fault.kind == RETURN and fault.target.split(",")[0] == node
    ]


def _starts_behind_stops(history: History) -> Iterator[NodeOrder]:
    for span in _spans(history, STOP):
        starts = [
            order
            for order in history.orders
            if order.node == span.node
            and order.order == START
            and order.outcome == OK
            and order.invoked >= span.since
        ]
        if starts:
            yield min(starts, key=lambda order: order.completed)


# -- places ----------------------------------------------------------------------------------------


def _made(history: History) -> dict[Partition, Setting]:
    """The first word about the log dir of each partition: that of its creation."""
    made: dict[Partition, Setting] = {}
    for setting in sorted(history.settings, key=lambda setting: setting.invoked):
        number = placed_partition(setting.what)
        if number is not None:
            made.setdefault(Partition(setting.topic, setting.topic_id, number), setting)
    return made


def _nodes_of_partitions(history: History) -> dict[Partition, str]:
    made = _made(history).items()
    nodes = {partition: history.log_dirs.get(setting.value) for partition, setting in made}
    return {partition: node for partition, node in nodes.items() if node is not None}


def _is_alive(history: History, partition: Partition) -> bool:
    there = history.alive.get(partition.topic)
    return there is not None and there.topic_id == partition.topic_id
