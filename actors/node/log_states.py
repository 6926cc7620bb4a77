"""The states of one log on a node, as tables: what is done next, and what follows from it.

::

    absent --MakeFolder--> found --StartLog--> serving --Copy--> copied --EndLog--> closed
                            ^ ^                 |   |                                 |
                            | +-----EndLog------+   ActorGone                   the last Copy
                            |                       v                                 v
                            +------KillActor------ lost         moved <--Adopt------ whole

===========  =====================================================================================
state        meaning
===========  =====================================================================================
absent       no folder; it is to be made
found        folders lie there, and no actor lives
serving      its actor serves it from its home
copied       the same, and little is left to copy to another dir
closed       its actor was ended for the rest of the copy
whole        nothing is left to copy
moved        the copy has the log's name, too: the next Serve says which of the two counts
failed       what was tried has failed, and is tried again only by another order
lost         its actor has died, or does not answer: started again or killed next
===========  =====================================================================================

The state says what is when nothing is in flight; ``doing`` is what is in flight.
"""

from dataclasses import dataclass, field
from types import NoneType
from typing import Literal

from raylog.actors.control import Create, End, LogId, Move, Remove, Serve
from raylog.actors.errors import LogRefused
from raylog.actors.node.events import Served
from raylog.actors.node.instructions import (
    Adopt,
    Configure,
    Copy,
    Doom,
    DropCopy,
    EndLog,
    MakeFolder,
    PutAside,
    StartLog,
    WriteIdentity,
)
from raylog.storage.config import LogConfig
from raylog.storage.errors import RaylogError

State = Literal[
    "absent", "found", "serving", "copied", "closed", "whole", "moved", "failed", "lost"
]
Step = Literal["make", "open", "keep", "end", "finish", "adopt", "remove", "kill"]
Want = Create | Serve | Move | Remove | End
# What is in flight for a log, one at a time. A copy beside the living actor has a place of its own.
LogWork = (
    MakeFolder
    | Doom
    | PutAside
    | WriteIdentity
    | Copy
    | Adopt
    | DropCopy
    | StartLog
    | Configure
    | EndLog
)

# An actor of the log lives, or may live.
ALIVE: frozenset[State] = frozenset({"serving", "copied", "lost"})
# States of a move, each with the state that it falls back to when the move is not wanted any more.
WITHOUT_MOVE: dict[State, State] = {
    "copied": "serving",
    "closed": "found",
    "whole": "found",
    "moved": "found",
}
# state, what was ordered -> what is done next. Nothing where it is not in the table.
NEXT: dict[tuple[State, type[Want | None]], Step] = {
    ("absent", Create): "make",
    ("found", Serve): "open",
    ("found", Move): "open",
    ("found", Remove): "remove",
    ("serving", Serve): "keep",
    ("serving", Move): "keep",
    ("serving", Remove): "end",
    ("serving", End): "end",
    ("copied", Move): "end",
    ("closed", Move): "finish",
    ("whole", Move): "adopt",
    ("lost", Serve): "open",
    ("lost", Move): "open",
    ("lost", Remove): "kill",
    ("lost", End): "kill",
    ("lost", NoneType): "kill",
}
# state, what ended, whether well -> the state that follows. It stays where it is not in the table:
# a dir that failed or an order that came meanwhile has changed it already.
AFTER: dict[tuple[State, type[LogWork], bool], State] = {
    ("absent", MakeFolder, True): "found",
    ("found", StartLog, True): "serving",
    ("found", StartLog, False): "failed",
    ("lost", StartLog, True): "serving",
    ("lost", StartLog, False): "failed",
    ("serving", Copy, True): "copied",
    ("serving", EndLog, True): "found",
    ("serving", EndLog, False): "lost",
    ("copied", EndLog, True): "closed",
    ("copied", EndLog, False): "lost",
    ("closed", Copy, True): "whole",
    ("closed", Copy, False): "found",
    ("whole", Adopt, True): "moved",
    ("whole", Adopt, False): "found",
}

# A log whose opening was refused with one of these is as it was.
UNCHANGED = frozenset(
    {
        "CorruptCheckpoint",
        "FlushedRecordsMissing",
        "LogMissing",
        "LogShorterThanFlushed",
        "TopicIdUnreadable",
    }
)


@dataclass(slots=True)
class CopyBeside:
    """A copy that is being made while the log's actor serves."""

    token: int
    source_id: str
    target_id: str
    is_given_up: bool = False


@dataclass(slots=True, kw_only=True)
class NodeLog:
    """One log on a node: what is known of it, what is ordered, and what is in flight."""

    id: LogId
    state: State = "absent"
    want: Want | None = None
    doing: LogWork | None = None
    # The log dirs that have a folder of its name, also those that are offline.
    folders: set[str] = field(default_factory=set)
    # Of these, the ones that an orderly stop left, and those that have not been opened since.
    clean: set[str] = field(default_factory=set)
    unopened: set[str] = field(default_factory=set)
    # The dirs that have a copy, whole or not, and those whose folder is to be set aside.
    copies: set[str] = field(default_factory=set)
    asides: set[str] = field(default_factory=set)
    # The copies that could not be removed; that is tried again with the next Tick.
    undropped: set[str] = field(default_factory=set)
    copying: CopyBeside | None = None
    # Where its actor serves, or served last; None before and after.
    home: str | None = None
    served: Served | None = None
    # The newest config that was ordered, or that its actor told.
    config: LogConfig | None = None
    config_version: int = -1
    # Of its creation: the dirs where that has failed.
    tried: set[str] = field(default_factory=set)
    # Why something has failed; it is not tried again before another order comes.
    problem: RaylogError | None = None
    # Why it was not opened the last time; until it serves.
    opening_problem: RaylogError | None = None
    is_identity_lost: bool = False
    # Whether the Controller has ordered or confirmed in this life what is wanted: else an actor was
    # adopted.
    is_ordered: bool = False
    # Whether what is being opened was left by an orderly stop.
    is_opened_clean: bool = False
    # Its actor has died, or was killed, while it was being started.
    is_doubtful: bool = False
    # An order to move it counts only if it was made from this report or a later one. -1: any does,
    # also one that was made before the Controller has heard of this life.
    first_report: int = -1

    @property
    def has_actor(self) -> bool:
        """Whether an actor of it lives, may live, or is being started or ended."""
        return self.state in ALIVE or isinstance(self.doing, StartLog | Configure | EndLog)

    @property
    def wanted_dir(self) -> str | None:
        """The dir from which it is to be served."""
        return self.want.directory_id if isinstance(self.want, Serve | Move) else None

    @property
    def is_to_be_made(self) -> bool:
        return isinstance(self.want, Create)

    @property
    def moved_to(self) -> str | None:
        """The dir with the whole copy, once its log is moved."""
        if self.state != "moved":
            return None
        assert isinstance(self.want, Move), "a log is moved unasked"
        return self.want.target_id

    @property
    def order_of_actor(self) -> Serve | None:
        """What its actor shall obey, by a word of this life; None where it shall not serve."""
        is_to_serve = self.is_ordered and isinstance(self.want, Serve | Move)
        is_closing = isinstance(self.doing, EndLog) or self.state in ("closed", "whole", "moved")
        directory_id = self.wanted_dir
        if directory_id is None or self.config is None or not is_to_serve or is_closing:
            return None
        return Serve(
            log=self.id,
            directory_id=directory_id,
            config=self.config,
            config_version=self.config_version,
        )

    @property
    def next_step(self) -> Step | None:
        return NEXT.get((self.state, type(self.want)))

    def follow(self, work: LogWork, is_well: bool) -> None:
        """Go to the state that follows from what has ended."""
        self.state = AFTER.get((self.state, type(work), is_well), self.state)

    def leave_move(self) -> None:
        """Go back to the state that the log has without a move."""
        self.state = WITHOUT_MOVE.get(self.state, self.state)

    def learn_config(self, config: LogConfig, version: int) -> None:
        if version >= self.config_version:
            self.config, self.config_version = config, version

    def settle(self) -> None:
        """Tell found from absent; a folder that is being made is not there yet."""
        if isinstance(self.doing, MakeFolder):
            return
        if self.state == "found" and not self.folders:
            self.state = "absent"
        elif self.state == "absent" and self.folders:
            self.state = "found"
        if self.state in ("found", "absent"):
            self.home = self.served = None


def is_unchanged(error: RaylogError) -> bool:
    """Whether a log that was not opened is as it was."""
    name = error.error if isinstance(error, LogRefused) else type(error).__name__
    return name in UNCHANGED
