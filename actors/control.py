"""What the Controller and the LogManagers say to each other: orders one way, reports the other.

A **report** is whole: everything that a node has and does, at one moment of one life of its
LogManager. An **order** says what shall be, not what to do next, so it may arrive twice or late.
It names the log by its topic's id, and the envelope carries the Controller's epoch: a node obeys
nobody whose epoch is lower than the highest that it has seen.

::

    Controller                                          LogManager of a node
        | <---------------- Report(number=7) ----------------- |
        | plan(desired, observed)                              |
        | -------- Orders(controller_epoch=3, report=7) -----> |   what no order of it names is
        |                                                      |   confirmed as report 7 has it
"""

from dataclasses import dataclass
from typing import Literal

from raylog.actors.levels import FIRST_LEVEL, FIRST_LEVELS, Levels
from raylog.actors.metadata_history import OLD_EPOCH, EpochStart
from raylog.actors.node.broker_config import BrokerConfig
from raylog.storage.config import LogConfig
from raylog.storage.errors import RaylogError
from raylog.storage.names import TopicPartition
from raylog.storage.wire import message

# Of every message here. Who gets a higher one than its own answers UnsupportedVersion.
VERSION = 1

# found: its folder lies there, and nobody serves it
# failed: it could not be opened, or its disk failed; ``problem`` says why
# moved: it is closed, and the whole of it lies in the log dir ``moved_to``, too
LogState = Literal["found", "opening", "serving", "failed", "closing", "moved"]
DirState = Literal["online", "offline"]
# How a LogManager ended by order: each log was closed, its checkpoints and the mark of a clean end
# written; or not all of that.
Ended = Literal["in order", "not in order"]


@message
@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class LogId:
    """One topic's log of one partition, wherever it lies.

    A topic that is made again under its name has another id, and so other logs.
    """

    partition: TopicPartition
    topic_id: str

    def __str__(self) -> str:
        return f"{self.partition} of topic {self.topic_id}"


# -- orders ----------------------------------------------------------------------------------------


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """Make the log's folder, in the log dir of the node with the fewest partitions."""

    log: LogId


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Serve:
    """Have the log served from this log dir, with this config or a newer one.

    Where the log was moved to this log dir, the copy becomes the log, and the other folder goes.
    """

    log: LogId
    directory_id: str
    config: LogConfig
    config_version: int


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Serve the log from ``directory_id`` and copy it to ``target_id`` meanwhile.

    When little is left to copy: close it and copy the rest. It is ``moved`` then, and nobody serves
    it before the next ``Serve``, which says which of the two folders counts.
    """

    log: LogId
    directory_id: str
    target_id: str
    config: LogConfig
    config_version: int


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Remove:
    """End the log's actor and remove its folder, in whichever log dir of the node it lies."""

    log: LogId


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """End the log's actor and keep its folder: it belongs to no topic. ``SetAside`` follows."""

    log: LogId


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """Keep a folder that belongs to no topic under a name that is in nobody's way.

    Never one that is served. ``topic_id``: None where the folder does not say.
    """

    partition: TopicPartition
    topic_id: str | None
    directory_id: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBack:
    """Use a log dir again that was offline, after its logs were read back from the disk itself.

    What a failed fsync left in the page cache does not count: it may never have reached the disk.
    """

    directory_id: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class KeepOut:
    """Keep a log dir offline: it failed in an earlier life of the node, and was not read back.

    ``why``: what the Controller has recorded of it. ``in_order``: its disk is fine, and an operator
    wants it out of use: its logs are closed first. Who does not know the field ends its LogActors
    as after a failure, which loses nothing either.
    """

    directory_id: str
    why: str
    in_order: bool = False


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Close every log in order, write down what a start without recovery needs, and end for good.

    The last words are a report that is ``ended``. Ray starts no other LogManager in its place.
    """


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class ObeyConfig:
    """Obey this config of the broker from now on, as far as a node takes it while it serves.

    What topics obey by it comes with ``Serve``.
    """

    config: BrokerConfig


Order = Create | Serve | Move | Remove | End | SetAside | ReadBack | KeepOut | Stop | ObeyConfig


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What a Controller wants of a node, as of one report of that node.

    ``life``, ``report``: the report that was compared with what is desired. What no order names
    and what is not in ``doubts`` is as it shall be: that confirms the config versions in that
    report. A ``report`` of -1 confirms nothing. ``doubts``: logs of which the Controller does not
    know whether they are as they shall be, though it orders nothing. ``number`` rises with each
    message of a Controller, from 1. ``level``: of the cluster; ``software``: the version of raylog
    that the Controller runs, which knows that level.

    A node ignores orders for another life of it, and those whose ``number`` is not higher than the
    last one that it obeyed of this ``controller_epoch``: they are late.
    """

    controller_epoch: int
    number: int
    node: str
    life: str
    report: int
    orders: tuple[Order, ...]
    doubts: frozenset[LogId] = frozenset()
    level: int = FIRST_LEVEL
    software: str = ""
    version: int = VERSION


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed:
    """The right to remove records of a log: the Controller has confirmed its config of late.

    ``config_version``: the one that the log must obey. ``until_ms``: by the node's ``SteadyClock``;
    from then on there is no right.
    """

    log: LogId
    config_version: int
    until_ms: int


# -- reports ---------------------------------------------------------------------------------------


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class DirReport:
    """A log dir. ``directory_id``: None where it could not even be read.

    ``why``: why it is offline; or why it takes no orders now although it is online (its disk may
    hang): what is ordered of it waits. Empty where all is well. ``usable_bytes``: what may still
    be written; -1 where nobody knows. ``is_read_back``: whether its logs were read back from the
    disk in this life, as ``ReadBack`` wants it. ``is_new``: it was nobody's log dir before this
    life of its node. ``is_taken_offline``: whether it is offline since an operator wants that, as
    ``KeepOut`` in order has told.
    """

    directory_id: str | None
    path: str
    state: DirState
    why: str = ""
    usable_bytes: int = -1
    is_read_back: bool = False
    is_new: bool = False
    is_taken_offline: bool = False

    @property
    def takes_orders(self) -> bool:
        """Whether it is online, and has the epoch of the Controller that its node obeys."""
        return self.state == "online" and not self.why


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class LogReport:
    """A log on a node: its folder, and what is being done with it.

    ``topic_id``: None where the folder does not say and nobody serves it. ``config_version``, the
    epoch and the offsets: as its LogActor has told them; -1 where nobody serves it.
    ``directory_id``: empty where it ``failed`` because its folder could not be made. A log that is
    ``serving`` and has a ``problem`` is one whose move failed; the next ``Serve`` forgets it. One
    that is ``opening`` and has a ``problem`` could not be opened before, and is tried again.
    ``port``: where its LogActor listens now; 0: nowhere.
    """

    partition: TopicPartition
    topic_id: str | None
    directory_id: str
    state: LogState
    config_version: int = -1
    leader_epoch: int = -1
    log_start_offset: int = -1
    log_end_offset: int = -1
    moved_to: str | None = None
    problem: RaylogError | None = None
    port: int = 0

    @property
    def log(self) -> LogId | None:
        if self.topic_id is None:
            return None
        return LogId(partition=self.partition, topic_id=self.topic_id)


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that a node has and does.

    ``life``: another one after each start of its LogManager; ``number`` rises within a life.
    ``controller_epoch``: the highest that the node has seen, in this life or on its log dirs.
    ``orders``: the number of the last orders of that epoch that were obeyed in this life; -1 where
    there were none. What these orders began and did not end yet is seen in the logs.
    ``room``: how many more logs the node's memory and processes allow; -1 where nobody knows.
    ``upkeep``: the kinds of its upkeep actors that run; ``upkeep_needed``: those that its logs
    need. ``is_restarted``: Ray has started this life in the place of one that died; False
    for a fresh start. What the disks' page caches hold may stem from the life before. ``ended``:
    this is the last report of a life that ended by order; it says nothing of logs. ``is_ending``:
    it obeys the order to stop, and closes what it serves; the logs are those that are not closed
    yet. ``software``: the version of raylog that the node runs; ``levels``: those that it knows.
    ``config_digest``, ``start_digest``: of the broker's config that it obeys
    (``config_digests.py``): of what it takes while it serves, and of what it has from its start;
    empty where an older raylog does not say it. ``host``, ``port``: where its LogManager listens
    now, and so its LogActors; empty and 0 where it does not.
    """

    node: str
    life: str
    number: int
    controller_epoch: int
    dirs: tuple[DirReport, ...]
    logs: tuple[LogReport, ...]
    upkeep: tuple[str, ...] = ()
    upkeep_needed: tuple[str, ...] = ()
    orders: int = -1
    room: int = -1
    is_restarted: bool = False
    ended: Ended | None = None
    is_ending: bool = False
    software: str = ""
    config_digest: str = ""
    start_digest: str = ""
    host: str = ""
    port: int = 0
    levels: Levels = FIRST_LEVELS
    version: int = VERSION


# -- copies of the metadata ------------------------------------------------------------------------


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataPush:
    """What follows in the metadata log, for the copy of a node.

    ``base``: how many records come before. ``digest``: of all of these (``metadata_history.py``).
    ``batches``: whole record batches as they lie in the Controller's log, so that what was decided
    together stays together in each copy; none where it only asks what the copy has. ``life``,
    ``heard``: the number of the last answer that the Controller has got, and its life; 0 for none.
    ``snapshot``: the file of a snapshot that the copy has not; empty for none. A copy that lacks
    records before its end goes on behind it.
    """

    cluster_id: str
    controller_epoch: int
    base: int
    digest: bytes
    batches: tuple[bytes, ...] = ()
    life: str = ""
    heard: int = 0
    snapshot: bytes = b""
    version: int = VERSION


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataKept:
    """What the copy of a node has on its disk.

    ``directory_id``: of the log dir that it lies in; empty where there is none. ``end``: how many
    records, ``digest``: of all of them, ``epochs``: where each of their Controllers began.
    ``promised``: the highest epoch of a Controller that it has promised to; it takes nothing of a
    lower one. ``snapshot_end``: how many records its newest snapshot stands for. ``problem``: why
    it could not do what it was asked to, or cannot be read; empty where all is well.

    ``number``: rises with the answers to pushes, in a life and an epoch; 0 where the push was
    refused, did not fit to what the copy has, or met a problem. A Controller drops a copy no sooner
    than 10 s after it has got an answer with a number. ``idle_ms``: how long ago the last of these
    was given of which the copy knows that the Controller has got it, by a clock of the node that is
    never set; -1 where there is none in this life. So while it is less than 10 s, the Controller
    has not dropped it.
    """

    node: str
    life: str
    directory_id: str = ""
    cluster_id: str = ""
    end: int = 0
    digest: bytes = b""
    epochs: tuple[EpochStart, ...] = ()
    promised: int = -1
    number: int = 0
    idle_ms: int = -1
    problem: str = ""
    snapshot_end: int = 0
    version: int = VERSION

    @property
    def controller_epoch(self) -> int:
        """Of the last Controller that it has a record of."""
        return self.epochs[-1].epoch if self.epochs else OLD_EPOCH
