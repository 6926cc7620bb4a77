"""What a history tells of one partition, as columns: what was sent, what was acknowledged where,
what was read.

Nothing is judged here; ``checker.py`` does. Columns, because a soak of twenty minutes has millions
of records.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tests.soak.history import (
    BOTH,
    COMPACT,
    DELETE,
    KEEP,
    NO_KEY,
    OK,
    Alive,
    Bounds,
    Ended,
    Fault,
    Ints,
    Op,
    Partition,
    Poll,
    Send,
    Surprise,
    TopicChange,
    ints,
)

OUTCOMES = {"ok": 0, "fail": 1, "info": 2}


class Sent(NamedTuple):
    """One row a record, in the order of sending within its producer."""

    value: Ints
    key: Ints
    offset: Ints  # -1 unless acknowledged
    outcome: Ints
    producer: Ints
    completed: Ints


class Records(NamedTuple):
    """Records and the offsets where they are known to be, in the order of offsets."""

    offset: Ints
    value: Ints
    key: Ints

    def where(self, chosen: np.ndarray) -> "Records":
        return Records(*(column[chosen] for column in self))


@dataclass
class PartitionFacts:
    """One partition."""

    partition: Partition
    policy: str = KEEP
    sends: list[Send] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    ends: list[Ended] = field(default_factory=list)
    bounds: Bounds | None = None

    @property
    def may_delete(self) -> bool:
        return self.policy in (DELETE, BOTH)

    @property
    def may_compact(self) -> bool:
        return self.policy in (COMPACT, BOTH)

    @cached_property
    def sent(self) -> Sent:
        """The last word about each record: its outcome comes after the line that it was sent."""
        producers = {
            name: number for number, name in enumerate({send.producer: 0 for send in self.sends})
        }
        columns = Sent(
            _joined(send.values for send in self.sends),
            _joined(send.keys for send in self.sends),
            _joined(
                send.offsets if send.outcome == OK else np.full(len(send.values), -1)
                for send in self.sends
            ),
            _repeated(self.sends, [OUTCOMES[send.outcome] for send in self.sends]),
            _repeated(self.sends, [producers[send.producer] for send in self.sends]),
            _repeated(self.sends, [send.completed for send in self.sends]),
        )
        _, first = np.unique(columns.value, return_index=True)
        _, last = np.unique(columns.value[::-1], return_index=True)
        last = len(columns.value) - 1 - last
        return Sent(*(column[last[np.argsort(first)]] for column in columns))

    @cached_property
    def acked(self) -> Records:
        chosen = self.sent.outcome == OUTCOMES[OK]
        return _by_offset(self.sent.offset[chosen], self.sent.value[chosen], self.sent.key[chosen])

    @cached_property
    def read(self) -> Records:
        """Whatever a consumer has seen, once for each (offset, record)."""
        return _of(self.polls)

    @cached_property
    def final(self) -> Records:
        """The read from start to end when all was over."""
        return _of([poll for poll in self.polls if poll.is_final])

    @cached_property
    def known(self) -> Records:
        """Acknowledged or read: what must have been in the log, each record where a reader found
        it."""
        unread = self.acked.where(~np.isin(self.acked.value, self.read.value))
        return _by_offset(*(np.concatenate(pair) for pair in zip(self.read, unread, strict=True)))

    @cached_property
    def lasting(self) -> Records:
        """The known records that every reader in their range must meet: all, or in a compacted log
        the last of each key, unless it is a tombstone or one may have come behind it."""
        if not self.may_compact:
            return self.known
        keyed = self.known.where(self.known.key != NO_KEY)
        _, from_the_end = np.unique(keyed.key[::-1], return_index=True)
        last = keyed.where(np.sort(len(keyed.key) - 1 - from_the_end))
        unheard = (self.sent.value < 0) & (self.sent.outcome == OUTCOMES["info"])
        return last.where((last.value >= 0) & ~np.isin(last.key, self.sent.key[unheard]))

    @cached_property
    def runs(self) -> dict[str, Ints]:
        """Consumer -> the offsets that it got, in the order in which it got them."""
        polls = defaultdict(list)
        for poll in self.polls:
            polls[poll.consumer].append(poll.offsets)
        return {consumer: np.concatenate(offsets) for consumer, offsets in polls.items()}


@dataclass
class History:
    """A run, by partition."""

    partitions: dict[Partition, PartitionFacts] = field(default_factory=dict)
    topics: list[TopicChange] = field(default_factory=list)
    alive: dict[str, str] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    surprises: list[Surprise] = field(default_factory=list)

    @cached_property
    def sent(self) -> tuple[Ints, list[Partition], Ints, Ints]:
        """Of all records, sorted by id: the id, its partition (by number in the list), when it was
        completed."""
        names = list(self.partitions)
        columns = [facts.sent for facts in self.partitions.values()]
        value = _joined(sent.value for sent in columns)
        order = np.argsort(value, kind="stable")
        home = np.repeat(np.arange(len(names)), [len(sent.value) for sent in columns])
        completed = _joined(sent.completed for sent in columns)
        return value[order], names, home[order], completed[order]


def gather(ops: Iterable[Op]) -> History:
    """Sort operations by what they are about."""
    history = History()
    facts = history.partitions
    policies: dict[str, str] = {}
    for op in ops:
        if isinstance(op, Send | Poll | Ended | Bounds):
            about = facts.setdefault(op.partition, PartitionFacts(op.partition))
            _take(about, op)
        elif isinstance(op, TopicChange):
            history.topics.append(op)
            if op.change == "create":
                policies[op.topic_id] = op.policy
        elif isinstance(op, Alive):
            history.alive[op.topic] = op.topic_id
        elif isinstance(op, Fault):
            history.faults.append(op)
        else:
            history.surprises.append(op)
    _tell_policies(facts, policies)
    return history


def _take(about: PartitionFacts, op: Send | Poll | Ended | Bounds) -> None:
    if isinstance(op, Send):
        about.sends.append(op)
    elif isinstance(op, Poll):
        about.polls.append(op)
    elif isinstance(op, Ended):
        about.ends.append(op)
    else:
        about.bounds = op


def _tell_policies(facts: Mapping[Partition, PartitionFacts], policies: Mapping[str, str]) -> None:
    for partition, about in facts.items():
        about.policy = policies.get(partition.topic_id, KEEP)


def _joined(columns: Iterable[Ints]) -> Ints:
    return np.concatenate([ints(), *columns])


def _repeated(sends: list[Send], values: list[int]) -> Ints:
    return np.repeat(np.array(values, np.int64), [len(send.values) for send in sends])


def _by_offset(offset: Ints, value: Ints, key: Ints) -> Records:
    order = np.lexsort((value, offset))
    return Records(offset[order], value[order], key[order])


def _of(polls: list[Poll]) -> Records:
    found = _by_offset(
        _joined(poll.offsets for poll in polls),
        _joined(poll.values for poll in polls),
        _joined(poll.keys for poll in polls),
    )
    is_new = np.ones(len(found.offset), bool)
    is_new[1:] = (np.diff(found.offset) != 0) | (np.diff(found.value) != 0)
    return found.where(is_new)
