"""The life of a LogActor, as a pure machine: learn the config, open the log, serve, end.

The LogActor (``log_actor.py``) is the shell: it tells this machine what happened, and executes what
the machine instructs. The machine has no lock, thread or clock: the time is an argument, in ms that
never go back.

::

    Created ----------------------------> opening --Opened--> serving --DiskFailed--> offline
    Restarted --> learning --Learned-------^  |                  |                       |
                   ^    |                     | Refused          | Stuck, Closed         |
                   +----+ NotLearned, Tick    v                  v                       |
                                            ended <--Distrusted (from every state) <-----+

========  ==========================================================================================
state     what the actor does
========  ==========================================================================================
learning  Ray has started it again with the arguments of its first start, whose config may be old.
          It asks its LogManager for the config, with a backoff while that is silent or does not
          know. Requests are refused with NotLeader.
opening   the log is recovered and opened; requests are refused with NotLeader
serving   requests are served, upkeep is done at each tick
offline   its disk has failed. It tells the LogManager, again and again until that has heard.
ended     the log is closed, or could not be opened, or the process ends
========  ==========================================================================================

A first start brings a config that is fresh: its LogManager has just been told it. What keeps its
log from being opened is raised by the actor's constructor, since the LogManager learns it that way.
So is what a restart meets while its constructor runs. After that there is nobody to raise it to:
the actor ends for good, and the LogManager makes another, whose constructor raises it.

An event that the table of transitions does not have for a state is ignored: it is an answer that
comes too late.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

from raylog.actors.messages import Configured
from raylog.storage.errors import RaylogError, StorageError

State = Literal["new", "learning", "opening", "serving", "offline", "ended"]

# The constructor asks once, and waits so long: callers wait with it. Later nobody waits.
FIRST_ASK_TIMEOUT_MS = 1000
ASK_TIMEOUT_MS = 5000
# Between two questions for the config: twice as long each time.
FIRST_DELAY_MS = 1000
LONGEST_DELAY_MS = 8000


# -- events ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Created:
    """The constructor of a first start runs."""


@dataclass(frozen=True, slots=True)
class Restarted:
    """The constructor of a restart by Ray runs."""


@dataclass(frozen=True, slots=True)
class Constructed:
    """The constructor is about to return."""


@dataclass(frozen=True, slots=True)
class Learned:
    """The LogManager has said what config the log obeys now."""

    configured: Configured


@dataclass(frozen=True, slots=True)
class NotLearned:
    """The LogManager was silent, or does not know the config yet."""

    why: str


@dataclass(frozen=True, slots=True)
class Opened:
    """The log is open."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The log could not be opened."""

    error: RaylogError


@dataclass(frozen=True, slots=True)
class DiskFailed:
    """The disk has failed while the log was open."""

    error: StorageError


@dataclass(frozen=True, slots=True)
class Stuck:
    """The log is offline for a reason other than its disk: opening it again fixes it."""


@dataclass(frozen=True, slots=True)
class Heard:
    """The LogManager has heard of the disk's failure."""


@dataclass(frozen=True, slots=True)
class NotHeard:
    """The LogManager has not heard of it."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The log was closed in order."""


@dataclass(frozen=True, slots=True)
class Distrusted:
    """An error that is not raylog's: the state of the process cannot be trusted."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event = (
    Created
    | Restarted
    | Constructed
    | Learned
    | NotLearned
    | Opened
    | Refused
    | DiskFailed
    | Stuck
    | Heard
    | NotHeard
    | Closed
    | Distrusted
    | Tick
)


# -- instructions ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AskConfig:
    """Ask the LogManager for the config; answer with Learned or NotLearned."""

    timeout_ms: int


@dataclass(frozen=True, slots=True)
class OpenLog:
    """Open the log; answer with Opened or Refused. None: with the config of the first start."""

    configured: Configured | None


@dataclass(frozen=True, slots=True)
class Report:
    """Tell the LogManager that the disk has failed; answer with Heard or NotHeard.

    ``is_loud``: a report that nobody hears is worth a line in the log.
    """

    error: StorageError
    is_loud: bool


@dataclass(frozen=True, slots=True)
class Raise:
    """Raise this out of the constructor: the actor is dead then."""

    error: RaylogError


@dataclass(frozen=True, slots=True)
class EndForGood:
    """End this actor so that Ray does not start it again."""

    error: RaylogError


@dataclass(frozen=True, slots=True)
class EndProcess:
    """End this process at once; Ray starts another, which recovers the log."""

    is_error: bool  # an error that is not raylog's is being handled


@dataclass(frozen=True, slots=True)
class LookAfter:
    """Look what state the log is in, do upkeep, export metrics."""


@dataclass(frozen=True, slots=True)
class Note:
    """A line for the actor's log."""

    name: str
    fields: Mapping[str, Any]


Instruction = AskConfig | OpenLog | Report | Raise | EndForGood | EndProcess | LookAfter | Note


# -- the machine -----------------------------------------------------------------------------------

TRANSITIONS: Final[Mapping[tuple[State, type[Event]], State]] = MappingProxyType(
    {
        ("new", Created): "opening",
        ("new", Restarted): "learning",
        ("learning", Learned): "opening",
        ("learning", NotLearned): "learning",
        ("learning", Tick): "learning",
        ("opening", Opened): "serving",
        ("opening", Refused): "ended",
        ("serving", Tick): "serving",
        ("serving", DiskFailed): "offline",
        ("serving", Stuck): "ended",
        ("serving", Closed): "ended",
        ("offline", Heard): "offline",
        ("offline", NotHeard): "offline",
        ("offline", Tick): "offline",
        ("ended", Tick): "ended",
        ("new", Distrusted): "ended",
        ("learning", Distrusted): "ended",
        ("opening", Distrusted): "ended",
        ("serving", Distrusted): "ended",
        ("offline", Distrusted): "ended",
    }
)


class Life:
    """See the module's head. Not safe for threads: the shell calls it with a lock held."""

    def __init__(self) -> None:
        self.state: State = "new"
        self._is_constructing = True
        self._delay_ms = FIRST_DELAY_MS
        self._ask_at_ms: int | None = None  # None while a question is under way
        self._why_not_learned = ""
        self._failure: StorageError | None = None  # of the disk
        self._is_heard = False
        self._is_silent = False  # a report has failed, so that the next ones are not logged
        self._refusal: RaylogError | None = None

    def handle(self, event: Event, now_ms: int) -> list[Instruction]:
        """What to do about an event, in this order."""
        if isinstance(event, Constructed):
            self._is_constructing = False
            return []
        before = self.state
        after = TRANSITIONS.get((before, type(event)))
        if after is None:
            return []
        self.state = after
        match event:
            case Created():
                return [OpenLog(None)]
            case Restarted():
                return [AskConfig(FIRST_ASK_TIMEOUT_MS)]
            case Learned():
                return [OpenLog(event.configured)]
            case NotLearned():
                return self._ask_later(event.why, now_ms)
            case Refused():
                return self._refused(event.error)
            case DiskFailed():
                return self._disk_failed(event.error)
            case Heard() | NotHeard():
                self._is_heard = isinstance(event, Heard)
                self._is_silent = not self._is_heard
                return []
            case Stuck() | Distrusted():
                return [EndProcess(is_error=isinstance(event, Distrusted))]
            case Tick():
                return self._tick(now_ms)
            case _:
                return []

    def _ask_later(self, why: str, now_ms: int) -> list[Instruction]:
        self._ask_at_ms = now_ms + self._delay_ms
        self._delay_ms = min(2 * self._delay_ms, LONGEST_DELAY_MS)
        is_news, self._why_not_learned = why != self._why_not_learned, why
        return [Note("config-unknown", {"why": why})] if is_news else []

    def _refused(self, error: RaylogError) -> list[Instruction]:
        self._refusal = error
        instructions: list[Instruction] = []
        if isinstance(error, StorageError) and error.is_disk_failure:
            instructions.append(Report(error, is_loud=True))
        end = Raise(error) if self._is_constructing else EndForGood(error)
        return [*instructions, end]

    def _disk_failed(self, error: StorageError) -> list[Instruction]:
        self._failure = error
        return [Report(error, is_loud=True)]

    def _tick(self, now_ms: int) -> list[Instruction]:
        match self.state:
            case "learning":
                if self._ask_at_ms is None or now_ms < self._ask_at_ms:
                    return []
                self._ask_at_ms = None
                return [AskConfig(ASK_TIMEOUT_MS)]
            case "serving":
                return [LookAfter()]
            case "offline":
                assert self._failure is not None, "offline is what follows a disk's failure"
                if self._is_heard:
                    return [LookAfter()]
                return [Report(self._failure, is_loud=not self._is_silent)]
            case _:
                # Ray's head may not have heard that this actor is to end.
                return [] if self._refusal is None else [EndForGood(self._refusal)]

    @property
    def why_not_serving(self) -> str:
        """What a request is told while there is no open log."""
        if self.state == "learning":
            waits = "it was started again, and waits for its LogManager to tell it the topic's"
            why = f" ({self._why_not_learned})" if self._why_not_learned else ""
            return f"{waits} present config{why}"
        if self._refusal is not None:
            return f"its log could not be opened: {self._refusal.problem}"
        return "its log is being opened"

    def validate(self) -> None:
        """Assert what the machine promises to itself."""
        assert (self.state == "offline") <= (self._failure is not None)
        assert (self._refusal is not None) <= (self.state == "ended")
        assert self._ask_at_ms is None or self._why_not_learned
