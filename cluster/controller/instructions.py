"""What the Controller's machine wants done: its instructions, and what it answers to requests."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from raylog.actors.control import Orders
from raylog.actors.metadata_history import HistoryPoint
from raylog.cluster.controller.config_changes import ConfigChange
from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.records import (
    DirRecord,
    NodeRecord,
    PartitionRecord,
    Record,
    TopicRecord,
)
from raylog.storage.errors import RaylogError
from raylog.storage.names import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """A partition that may not obey the config yet, and why."""

    partition: TopicPartition
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Altered:
    """A topic's config is changed; all of its partitions obey it but those that are ``behind``."""

    topic: TopicRecord
    behind: tuple[Behind, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The broker's config is ``version``; a partition or a node in ``behind`` may not obey it yet.

    ``changes``: what differed.
    """

    version: int
    changes: tuple[ConfigChange, ...] = ()
    behind: Mapping[str, str] = field(default_factory=dict)


Answered = Applied | TopicRecord | Altered | PartitionRecord | DirRecord | NodeRecord | int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Append the records to the metadata log, all or none, and fsync it: ``Appended``.

    ``may_use_reserve``: whether the metadata's reserve is given up for them on a full disk.
    """

    token: int
    records: tuple[Record, ...]
    may_use_reserve: bool = False


@dataclass(frozen=True, slots=True)
class MakeReserve:
    """Make the metadata's reserve whole, if there is room: ``ReserveMade``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeSnapshot:
    """Save a snapshot of the metadata, before what is appended next: ``SnapshotMade``.

    ``desired``: the fold of all records, which nobody changes any more. ``point``: their end.
    """

    desired: Desired = field(repr=False)
    point: HistoryPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class StartManager:
    """Have a LogManager run on a node; it may run already."""

    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tell:
    """Send orders to a node's LogManager; nobody waits for the answer."""

    node: str
    orders: Orders


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """Send a node's copy what follows in the metadata log: ``Kept`` or ``PushFailed``.

    That is the records from ``base`` on, and before ``end``; with none it is only asked. ``life``:
    of the LogManager that it goes to; a push to another life of it is given up. ``snapshot_end``:
    of the newest snapshot that the copy is known to have; it is sent a newer one. ``digest``: empty
    where the Controller knows it no more. The rest is as of ``MetadataPush``, with ``heard_life``
    for its ``life``.
    """

    token: int
    node: str
    life: str
    epoch: int
    base: int
    digest: bytes
    end: int
    heard_life: str = ""
    heard: int = 0
    snapshot_end: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AskWhether:
    """Ask Ray whether this process is still the Controller: ``Whether``.

    ``leaves_out``: it is asked since a copy of the metadata is to be left out, which Ray's head has
    to know first. ``copies_at``: no copy is to be left out after all, which Ray's head shall know:
    the number of the last record of who is in sync, -1 for none. None: nothing is said of that.
    """

    leaves_out: bool = False
    copies_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Answer a request.

    ============== ============================================================
    CreateTopic    the topic
    AddPartitions  the topic
    AlterTopic     Altered; where it was only validated: the topic as it would be
    DeleteTopic    None
    MovePartition  the partition, which serves from its new log dir
    CancelMove     the partition
    LogDirOnline   the log dir; it is ``returning`` until it was read back
    DrainNode, StopNode, StartNode  the node, when it is so, or when nobody can
                   wait for it any longer
    ApplyConfig    Applied
    AllocateProducerId  a producer id
    PutUser, DeleteUser  None
    ============== ============================================================
    """

    request: int
    value: Answered = None
    error: RaylogError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something for the event log: its name, and its fields."""

    name: str
    fields: Mapping[str, object] = field(default_factory=dict)


Instruction = (
    Append | MakeReserve | MakeSnapshot | StartManager | Tell | Push | AskWhether | Answer | Note
)
