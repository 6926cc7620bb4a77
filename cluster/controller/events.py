"""What happens to the Controller's machine: its events."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from raylog.actors.control import MetadataKept, Report
from raylog.actors.metadata_history import MetadataHistory
from raylog.cluster.controller.commands import Command
from raylog.cluster.controller.desired import Desired
from raylog.storage.errors import DiskFull, RaylogError
from raylog.storage.state.controller_epoch import NO_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The metadata log was read. ``desired``: its fold, which belongs to the machine from now on.

    ``node``: the key of the node that the Controller runs on. ``folder``: where the log is.
    ``least_epoch``: the highest epoch of a Controller that is known from the log dirs.
    ``accepts_older``: whether the metadata counts though a newer Controller was obeyed than it
    knows. ``history``: of the records; it belongs to the machine, too. ``directory_id``: of the
    log dir that they lie in; empty where it has none yet. ``damaged_snapshots``: why newer
    snapshots than that from which it was read cannot be read. This is the first event, once.
    """

    desired: Desired
    node: str
    folder: str = ""
    least_epoch: int = NO_EPOCH
    accepts_older: bool = False
    history: MetadataHistory = field(default_factory=MetadataHistory)
    directory_id: str = ""
    damaged_snapshots: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesSeen:
    """These nodes are in the Ray cluster now: their keys, and Ray's ids of them.

    ``actors``: the names of all actors that run or that Ray starts again (``runtime/names.py``);
    None where nobody has looked.
    """

    nodes: Mapping[str, str]
    actors: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """A node reports."""

    report: Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A node did not obey, since it has seen a Controller of this epoch."""

    node: str
    controller_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Silent:
    """A call to a node's LogManager failed: it may not run.

    ``is_refused``: it said why, and that does not pass by itself.
    """

    node: str
    is_refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A user asks for something. ``request``: never the same number twice."""

    request: int
    command: Command


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """The records of an ``Append`` are on the Controller's own disk.

    ``shortage``: why the reserve was given up for them; None where there was room.
    """

    token: int
    shortage: DiskFull | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendFailed:
    """They are not, after DiskFull or OutOfResources; after any other error nobody knows."""

    token: int
    error: RaylogError


@dataclass(frozen=True, slots=True, kw_only=True)
class ReserveMade:
    """The metadata's reserve is whole, or ``problem`` says why it is not."""

    problem: RaylogError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotMade:
    """The snapshot of a ``MakeSnapshot`` is saved, or ``problem`` says why not, or not wholly.

    ``damaged``: why older ones that still lie there cannot be read.
    """

    problem: RaylogError | None = None
    damaged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotDamaged:
    """The Controller's newest snapshot cannot be read, which a push was to bring to a copy.

    ``end``: how many records it is of.
    """

    end: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A node's copy of the metadata has answered a push. ``token``: of the push."""

    token: int
    node: str
    kept: MetadataKept


@dataclass(frozen=True, slots=True, kw_only=True)
class PushFailed:
    """It has not, or could not be asked."""

    token: int
    node: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Whether:
    """Ray says whether this process is still the Controller; None: it has not answered."""

    is_still: bool | None


@dataclass(frozen=True, slots=True)
class Stopping:
    """The broker is being stopped in order: write that down, and nothing behind it."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: once a second or more often."""


Event = (
    Started
    | NodesSeen
    | Reported
    | Refused
    | Silent
    | Asked
    | Appended
    | AppendFailed
    | ReserveMade
    | SnapshotMade
    | SnapshotDamaged
    | Kept
    | PushFailed
    | Whether
    | Stopping
    | Tick
)
