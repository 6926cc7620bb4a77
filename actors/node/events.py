"""What a LogManager's machine is told: events, each with the facts that it brings.

The shell (the LogManager) reads dirs, asks actors and receives orders; it tells the machine here.
What the machine answers is in ``instructions.py``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from raylog.actors.control import DirReport, LogId, Orders
from raylog.storage.config import LogConfig
from raylog.storage.errors import RaylogError
from raylog.storage.names import TopicPartition

# retention: of the logs that are not compacted. compaction: of the others, retention included.
UpkeepKind = Literal["retention", "compaction"]
UPKEEP_KINDS: tuple[UpkeepKind, ...] = ("retention", "compaction")


# -- facts -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A partition's folder that was found in a log dir that is online.

    ``topic_id``: None where its ``partition.metadata`` cannot be read. ``is_clean``: an orderly
    stop left it. ``is_copy``: its name ends in ``-future``.
    """

    partition: TopicPartition
    topic_id: str | None
    directory_id: str
    is_clean: bool = False
    is_copy: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What a LogActor says of the log that it serves. ``port``: as of ``LogSays``."""

    log: LogId
    directory_id: str
    config: LogConfig
    config_version: int
    leader_epoch: int = -1
    log_start_offset: int = -1
    log_end_offset: int = -1
    port: int = 0


# -- events ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A life of the LogManager begins; always the first event, and told once.

    ``controller_epoch``: the highest that any log dir has; -1 for none. ``served``: by LogActors
    that lived on while the LogManager was away. ``strangers``: LogActors that live on this node and
    do not say what they serve. ``room``, ``is_restarted``: see ``Report``.
    """

    dirs: tuple[DirReport, ...]
    folders: tuple[Folder, ...] = ()
    controller_epoch: int = -1
    served: tuple[Served, ...] = ()
    strangers: tuple[TopicPartition, ...] = ()
    upkeep: tuple[UpkeepKind, ...] = ()
    room: int = -1
    is_restarted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered:
    """An envelope of a Controller came."""

    orders: Orders


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The instruction with this token ended, well unless there is an ``error``.

    ``result``: of StartLog and Configure what the actor says now (Configure: or None); of all
    others None.
    """

    token: int
    result: Served | None = None
    error: RaylogError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DirFailed:
    """The disk of a log dir has failed, or the dir has vanished."""

    directory_id: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DirsRead:
    """Log dirs were read anew; or, where they were silent when the node began, for the first time.

    ``folders``: those that lie in them now. ``controller_epoch``: the highest that one of them has.
    """

    dirs: tuple[DirReport, ...]
    folders: tuple[Folder, ...] = ()
    controller_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorGone:
    """A LogActor seems to have died. It may be late news, of an actor that was replaced since."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorSaid:
    """A LogActor has told its offsets."""

    served: Served


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorSeen:
    """A LogActor lives on this node whose log was not served; it may be opening it.

    ``directory_id``: of the log dir that it uses. It may be late news.
    """

    log: LogId
    directory_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityLost:
    """The ``partition.metadata`` of a folder cannot be read any more."""

    partition: TopicPartition
    directory_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityFound:
    """The ``partition.metadata`` of a folder can be read again. It may be told often."""

    folder: Folder


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepSeen:
    """The upkeep actors of this node that run now."""

    kinds: tuple[UpkeepKind, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """How much may still be written to each log dir, and how many more logs the node can hold.

    ``usable_bytes``: by directory id. A dir or a number that is not known is left out, or -1.
    """

    usable_bytes: Mapping[str, int]
    room: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportWanted:
    """A Controller has come: it knows nothing of this node yet, and waits for a report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time has passed. The shell sends one at least each second."""


Event = (
    Started
    | Ordered
    | Finished
    | DirFailed
    | DirsRead
    | ActorGone
    | ActorSaid
    | ActorSeen
    | IdentityLost
    | IdentityFound
    | UpkeepSeen
    | Measured
    | ReportWanted
    | Tick
)
