"""What a LogManager, the LogActors and the upkeep actors of its node say to each other.

::

    LogManager --LogOrder-----> LogActor     what log it shall serve, from where, by what config
               <----LogSays----              what it serves, and how far it is
               --UpkeepOrder--> RetentionActor, CompactionActor    a round over these logs

An order says what shall be, so it may arrive twice or late. Whoever gets one with a higher
``version`` than its own raises UnsupportedVersion.
"""

from dataclasses import dataclass, field
from typing import Literal

from raylog.actors.control import LogId
from raylog.actors.messages import OpeningReport, PartitionOffsets
from raylog.storage.config import LogConfig
from raylog.storage.errors import RaylogError
from raylog.storage.wire import message

# Of every message here.
VERSION = 1

# The states of a LogActor's life: see ``partition/life.py``.
LifeState = Literal["new", "learning", "opening", "serving", "offline", "ended"]


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class LogOrder:
    """What a LogActor shall obey.

    One that serves another log, or the log of another log dir, raises NotLeader. An order of a
    lower ``controller_epoch`` than it has seen, or of an older ``config_version`` than it obeys,
    changes nothing.
    """

    log: LogId
    directory_id: str
    config: LogConfig
    config_version: int
    controller_epoch: int
    version: int = VERSION


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class LogSays:
    """What a LogActor serves, and how far it is; answered from memory.

    ``node_id``: Ray's id of the node on which it runs. ``config``: None before it knows one.
    ``config_version``, ``controller_epoch``, ``leader_epoch``: -1 where unknown. ``offsets``: None
    while the log is not open. ``opening``: what opening the log did to its files. ``problem``: why
    it is offline, or why its log could not be opened. ``port``: where it listens; 0: nowhere.
    """

    log: LogId
    directory_id: str
    folder: str
    node_id: str
    state: LifeState
    config: LogConfig | None = None
    config_version: int = -1
    controller_epoch: int = -1
    leader_epoch: int = -1
    offsets: PartitionOffsets | None = None
    opening: OpeningReport = field(default_factory=OpeningReport)
    problem: RaylogError | None = None
    port: int = 0
    version: int = VERSION


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepLog:
    """A log that an upkeep actor may look after, and the config that it obeys."""

    log: LogId
    directory_id: str
    folder: str
    config: LogConfig
    config_version: int


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepOrder:
    """Have a round over these logs, and over no other.

    ``others``: the node's other logs of this kind, which are left alone for now: what is known of
    them is kept. What is known of any log that is named nowhere here is forgotten.
    ``node``: its key. ``life``: the LogManager's. ``number`` rises within a life: an order that is
    not newer than the last one is late, and ignored.
    """

    node: str
    life: str
    number: int
    controller_epoch: int
    logs: tuple[UpkeepLog, ...]
    others: frozenset[LogId] = frozenset()
    version: int = VERSION
