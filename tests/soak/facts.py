"""What a history tells of one partition, as columns: what was sent, what was acknowledged where,
what was read.

Nothing is judged here; ``checker.py`` does. Columns, because a soak of twenty minutes has millions
of records.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np

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
    Batches,
    Bounds,
    CommittedRead,
    DeleteRecords,
    Ended,
    EndOffset,
    Fault,
    GroupAtEnd,
    GroupCommit,
    GroupRead,
    Ints,
    LogDir,
    MetadataAtEnd,
    NodeAtEnd,
    NodeOrder,
    OfCluster,
    OfGroup,
    OfNode,
    OfPartition,
    OfTransactions,
    Op,
    Ownership,
    Partition,
    Poll,
    ProducerId,
    Restore,
    Send,
    Setting,
    SettingAtEnd,
    StableAtEnd,
    Surprise,
    TopicChange,
    Transaction,
    TransactionAtEnd,
    ints,
)

Request = TypeVar("Request", TopicChange, Setting, DeleteRecords, GroupCommit)

OUTCOMES = {"ok": 0, "fail": 1, "info": 2}


class Sent(NamedTuple):
    """One row a record, in the order of sending within its producer."""

    value: Ints
    key: Ints
    offset: Ints  # -1 unless acknowledged, before another topic of this name could
    outcome: Ints
    producer: Ints
    invoked: Ints
    completed: Ints


class Records(NamedTuple):
    """Records and the offsets where they are known to be, in the order of offsets."""

    offset: Ints
    value: Ints
    key: Ints

    def where(self, chosen: np.ndarray) -> "Records":
        return Records(*(column[chosen] for column in self))


class Confirmed(NamedTuple):
    """By when an offset was certainly in the log: somebody had its acknowledgement, or had read it.

    Sorted by time; ``highest`` is the highest offset up to then.
    """

    time: Ints
    highest: Ints

    def before(self, times: Ints) -> Ints:
        """The highest offset that was confirmed before each time; -1 where none was."""
        at = np.searchsorted(self.time, times, "left")
        return np.concatenate([ints([-1]), self.highest])[at]


@dataclass
class PartitionFacts:
    """One partition.

    ``deleted_at``: when the first deletion of its topic began that may have been done. An answer to
    a name after that may be of another topic of this name.
    """

    partition: Partition
    policy: str = KEEP
    sends: list[Send] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    ends: list[Ended] = field(default_factory=list)
    end_offsets: list[EndOffset] = field(default_factory=list)
    deletions: list[DeleteRecords] = field(default_factory=list)
    batches: list[Batches] = field(default_factory=list)
    group_reads: list[GroupRead] = field(default_factory=list)
    commits: list[GroupCommit] = field(default_factory=list)
    ownership: list[Ownership] = field(default_factory=list)
    group_at_end: int | None = None
    bounds: Bounds | None = None
    deleted_at: int = NEVER

    @cached_property
    def first_lasting(self) -> int:
        """Nothing may remove a record at or behind this offset, but compaction."""
        assert self.bounds is not None, "it is asked of partitions that are there at the end"
        if self.may_delete:
            return self.bounds.log_start_offset
        asked = [one.before for one in self.deletions if one.outcome != FAIL]
        return min(self.bounds.log_start_offset, max(asked, default=0))

    @property
    def may_delete(self) -> bool:
        return self.policy in (DELETE, BOTH)

    @property
    def may_compact(self) -> bool:
        return self.policy in (COMPACT, BOTH)

    @cached_property
    def producers(self) -> list[str]:
        """The names of those that sent something, by their numbers in ``sent``."""
        return list({send.producer: None for send in self.sends})

    def holders(self) -> set[tuple[int, str]]:
        """(producer id, name) of every producer whose batches lie on the disk.

        A batch whose first record nobody knows says nothing.
        """
        known = np.flatnonzero(self.places >= 0)
        known = known[np.argsort(self.places[known], kind="stable")]
        offsets, owners = self.places[known], self.sent.producer[known]
        found: set[tuple[int, str]] = set()
        for batches in self.batches:
            at = np.searchsorted(offsets, batches.offsets).clip(max=max(len(offsets) - 1, 0))
            meets = offsets[at] == batches.offsets if len(offsets) else np.zeros(len(at), bool)
            pairs = np.unique(
                np.stack([batches.producer_ids[meets], owners[at[meets]]], axis=1), axis=0
            )
            found |= {(producer_id, self.producers[owner]) for producer_id, owner in pairs.tolist()}
        return found

    @cached_property
    def sent(self) -> Sent:
        """The last word about each record: its outcome comes after the line that it was sent."""
        producers = {name: number for number, name in enumerate(self.producers)}
        columns = Sent(
            _joined(send.values for send in self.sends),
            _joined(send.keys for send in self.sends),
            _joined(
                send.offsets
                if send.outcome == OK and send.completed < self.deleted_at
                else np.full(len(send.values), -1)
                for send in self.sends
            ),
            _repeated(self.sends, [OUTCOMES[send.outcome] for send in self.sends]),
            _repeated(self.sends, [producers[send.producer] for send in self.sends]),
            _repeated(self.sends, [send.invoked for send in self.sends]),
            _repeated(self.sends, [send.completed for send in self.sends]),
        )
        _, first = np.unique(columns.value, return_index=True)
        _, last = np.unique(columns.value[::-1], return_index=True)
        last = len(columns.value) - 1 - last
        return Sent(*(column[last[np.argsort(first)]] for column in columns))

    @cached_property
    def acked(self) -> Records:
        chosen = self.sent.offset >= 0
        return _by_offset(self.sent.offset[chosen], self.sent.value[chosen], self.sent.key[chosen])

    @cached_property
    def places(self) -> Ints:
        """The offset of each record that was sent: as acknowledged, or as read; -1 if unknown."""
        read_at = places(self.sent.value, self.read)
        return np.where(self.sent.offset >= 0, self.sent.offset, read_at)

    @cached_property
    def confirmed(self) -> Confirmed:
        ops: list[Send | Poll] = [*self.sends, *self.polls]
        told = [
            (op.completed, int(op.offsets.max()))
            for op in ops
            if len(op.offsets) and op.completed < self.deleted_at
        ]
        times, offsets = ints(time for time, _ in told), ints(offset for _, offset in told)
        order = np.argsort(times, kind="stable")
        return Confirmed(times[order], np.maximum.accumulate(offsets[order]))

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
    alive: dict[str, Alive] = field(default_factory=dict)
    settings: list[Setting] = field(default_factory=list)
    settings_at_end: list[SettingAtEnd] = field(default_factory=list)
    producer_ids: list[ProducerId] = field(default_factory=list)
    restores: list[Restore] = field(default_factory=list)
    orders: list[NodeOrder] = field(default_factory=list)
    log_dirs: dict[str, str] = field(default_factory=dict)  # id -> the name of its node
    states_at_end: dict[str, str] = field(default_factory=dict)  # of the nodes, by name
    metadata_at_end: list[MetadataAtEnd] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    surprises: list[Surprise] = field(default_factory=list)
    transactions: dict[int, Transaction] = field(default_factory=dict)  # by number
    committed_reads: list[CommittedRead] = field(default_factory=list)
    stable_at_end: list[StableAtEnd] = field(default_factory=list)
    transaction_at_end: int = 0

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

    @cached_property
    def undoable(self) -> set[str]:
        """The ids of topics of which a restore may have undone something."""
        changes: list[TopicChange | Setting] = [*self.topics, *self.settings]
        return {change.topic_id for change in changes if self.may_be_undone(change)}

    def may_be_undone(self, change: TopicChange | Setting) -> bool:
        """Whether a restore of the metadata may have undone it."""
        return change.outcome == OK and any(
            change.completed > restore.as_of and change.invoked < restore.completed
            for restore in self.restores
        )


def gather(ops: Iterable[Op]) -> History:
    """Sort operations by what they are about."""
    history = History()
    for op in ops:
        if isinstance(op, OfPartition):
            facts = history.partitions
            _take(facts.setdefault(op.partition, PartitionFacts(op.partition)), op)
        else:
            _take_of_cluster(history, op)
    history.topics = _last_words(history.topics)
    history.settings = _last_words(history.settings)
    for about in history.partitions.values():
        about.deletions = _last_words(about.deletions)
        about.commits = _last_words(about.commits)
    _tell_of_topics(history)
    return history


def _last_words(ops: list[Request]) -> list[Request]:
    """Each request once: it is written before it begins, and again when it is over."""
    return list({op._replace(completed=NEVER, outcome=INFO): op for op in ops}.values())


def _take(about: PartitionFacts, op: OfPartition) -> None:
    match op:
        case Send():
            about.sends.append(op)
        case Poll():
            about.polls.append(op)
        case Ended():
            about.ends.append(op)
        case EndOffset():
            about.end_offsets.append(op)
        case DeleteRecords():
            about.deletions.append(op)
        case Batches():
            about.batches.append(op)
        case Bounds():
            about.bounds = op
        case GroupRead() | GroupCommit() | Ownership() | GroupAtEnd():
            _take_of_group(about, op)


def _take_of_group(about: PartitionFacts, op: OfGroup) -> None:
    match op:
        case GroupRead():
            about.group_reads.append(op)
        case GroupCommit():
            about.commits.append(op)
        case Ownership():
            about.ownership.append(op)
        case GroupAtEnd():
            about.group_at_end = op.offset


def _take_of_cluster(history: History, op: OfCluster) -> None:
    match op:
        case TopicChange():
            history.topics.append(op)
        case Alive():
            history.alive[op.topic] = op
        case Setting():
            history.settings.append(op)
        case SettingAtEnd():
            history.settings_at_end.append(op)
        case ProducerId():
            history.producer_ids.append(op)
        case Restore():
            history.restores.append(op)
        case Transaction() | CommittedRead() | StableAtEnd() | TransactionAtEnd():
            _take_of_transactions(history, op)
        case NodeOrder() | LogDir() | NodeAtEnd() | MetadataAtEnd():
            _take_of_node(history, op)
        case Fault():
            history.faults.append(op)
        case Surprise():
            history.surprises.append(op)


def _take_of_transactions(history: History, op: OfTransactions) -> None:
    match op:
        case Transaction():
            history.transactions[op.number] = op
        case CommittedRead():
            history.committed_reads.append(op)
        case StableAtEnd():
            history.stable_at_end.append(op)
        case TransactionAtEnd():
            history.transaction_at_end = op.number


def _take_of_node(history: History, op: OfNode) -> None:
    match op:
        case NodeOrder():
            history.orders.append(op)
        case LogDir():
            history.log_dirs[op.directory_id] = op.node
        case NodeAtEnd():
            history.states_at_end[op.node] = op.state
        case MetadataAtEnd():
            history.metadata_at_end.append(op)


def _tell_of_topics(history: History) -> None:
    """Each partition learns its topic's policy, and when the topic may have gone.

    One that is there at the end was not deleted, whatever was asked for.
    """
    there = {topic.topic_id for topic in history.alive.values()} - history.undoable
    policies: dict[str, str] = {}
    deleted_at: dict[str, int] = {}
    for change in history.topics:
        if change.change == "create":
            policies[change.topic_id] = change.policy
        elif change.outcome != FAIL and change.topic_id not in there:
            earlier = deleted_at.get(change.topic_id, NEVER)
            deleted_at[change.topic_id] = min(earlier, change.invoked)
    for partition, about in history.partitions.items():
        about.policy = policies.get(partition.topic_id, KEEP)
        about.deleted_at = deleted_at.get(partition.topic_id, NEVER)


def places(values: Ints, records: Records) -> Ints:
    """The offset at which each value was read (the lowest, if there are several), or -1."""
    if not len(records.value):
        return np.full(len(values), -1)
    order = np.argsort(records.value, kind="stable")
    ordered = records.value[order]
    at = np.searchsorted(ordered, values).clip(max=len(ordered) - 1)
    return np.where(ordered[at] == values, records.offset[order][at], -1)


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
