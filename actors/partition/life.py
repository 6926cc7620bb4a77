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

A first start brings a config that is fresh: its LogManager has just been told it.

A log that could not be opened is refused: the actor keeps the reason for ``KEPT_MS``, so that its
LogManager can read it, and ends for good then. One that Ray has put on the wrong node is misplaced:
it ends for good at once, since it must not touch what lies there.

An event that the table of transitions does not have for a state is ignored: it is an answer that
comes too late.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from raylog.actors.node_messages import LifeState, LogOrder
from raylog.storage.errors import RaylogError, StorageError

State = LifeState

# Nobody waits for the answer: the actor may learn its order from its LogManager meanwhile.
ASK_TIMEOUT_MS = 5000
# Between two questions for the config: twice as long each time.
FIRST_DELAY_MS = 1000
LONGEST_DELAY_MS = 8000
# An actor that could not open its log keeps the reason for so long. Its LogManager looks often
# while it waits for a log to open; one that looks later makes the actor anew.
KEPT_MS = 30_000


# -- events ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Created:
    """A first start."""


@dataclass(frozen=True, slots=True)
class Restarted:
    """A restart by Ray."""


@dataclass(frozen=True, slots=True)
class Learned:
    """The LogManager has said what the log shall obey now."""

    order: LogOrder


@dataclass(frozen=True, slots=True)
class NotLearned:
    """The LogManager was silent, or does not know the log's order yet."""

    why: str


@dataclass(frozen=True, slots=True)
class Opened:
    """The log is open."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The log could not be opened."""

    error: RaylogError


@dataclass(frozen=True, slots=True)
class Misplaced:
    """The actor is on a node that is not its own."""

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
    | Learned
    | NotLearned
    | Opened
    | Refused
    | Misplaced
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
    """Ask the LogManager for the log's order; answer with Learned, NotLearned or Misplaced."""

    timeout_ms: int


@dataclass(frozen=True, slots=True)
class OpenLog:
    """Open the log beside all else; answer with Opened, Refused or Misplaced.

    ``order``: the one to obey; None: the one of the first start.
    """

    order: LogOrder | None


@dataclass(frozen=True, slots=True)
class Report:
    """Tell the LogManager that the disk has failed; answer with Heard or NotHeard.

    ``is_loud``: a report that nobody hears is worth a line in the log.
    """

    error: StorageError
    is_loud: bool


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


Instruction = AskConfig | OpenLog | Report | EndForGood | EndProcess | LookAfter | Note


# -- the machine -----------------------------------------------------------------------------------

TRANSITIONS: Final[Mapping[tuple[State, type[Event]], State]] = MappingProxyType(
    {
        ("new", Created): "opening",
        ("new", Restarted): "learning",
        ("learning", Learned): "opening",
        ("learning", NotLearned): "learning",
        ("learning", Tick): "learning",
        ("learning", Misplaced): "ended",
        ("opening", Opened): "serving",
        ("opening", Refused): "ended",
        ("opening", Misplaced): "ended",
        ("serving", Tick): "serving",
        ("serving", DiskFailed): "offline",
        ("serving", Stuck): "ended",
        ("serving", Closed): "ended",
        ("offline", Heard): "offline",
        ("offline", NotHeard): "offline",
        ("offline", Tick): "offline",
        ("ended", Heard): "ended",
        ("ended", NotHeard): "ended",
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
        self._delay_ms = FIRST_DELAY_MS
        self._ask_at_ms: int | None = None  # None while a question is under way
        self._why_not_learned = ""
        self._failure: StorageError | None = None  # of the disk
        self._is_heard = False
        self._is_silent = False  # a report has failed, so that the next ones are not logged
        self._refusal: RaylogError | None = None
        self._end_at_ms: int | None = None  # for good

    def handle(self, event: Event, now_ms: int) -> list[Instruction]:
        """What to do about an event, in this order."""
        before = self.state
        after = TRANSITIONS.get((before, type(event)))
        if after is None:
            return []
        self.state = after
        match event:
            case Created():
                return [OpenLog(None)]
            case Restarted():
                return [AskConfig(ASK_TIMEOUT_MS)]
            case Learned():
                return [OpenLog(event.order)]
            case NotLearned():
                return self._ask_later(event.why, now_ms)
            case Refused():
                return self._refused(event.error, now_ms)
            case Misplaced():
                self._refusal, self._end_at_ms = event.error, now_ms
                return [Note("log-refused", {"why": event.error}), EndForGood(event.error)]
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

    def _refused(self, error: RaylogError, now_ms: int) -> list[Instruction]:
        self._refusal = error
        self._end_at_ms = now_ms + KEPT_MS
        note = Note("log-refused", {"why": error})
        if isinstance(error, StorageError) and error.is_disk_failure:
            return [note, *self._disk_failed(error)]
        return [note]

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
                return self._report_again() or [LookAfter()]
            case _:
                return self._tick_of_the_ended(now_ms)

    def _tick_of_the_ended(self, now_ms: int) -> list[Instruction]:
        if self._refusal is None:
            return []
        assert self._end_at_ms is not None, "what is refused has an end"
        if now_ms >= self._end_at_ms:
            # Again at each tick: Ray's head may not have heard it.
            return [EndForGood(self._refusal)]
        return self._report_again()

    def _report_again(self) -> list[Instruction]:
        if self._failure is None or self._is_heard:
            return []
        return [Report(self._failure, is_loud=not self._is_silent)]

    @property
    def problem(self) -> RaylogError | None:
        """Why the log could not be opened, or why it is offline."""
        return self._refusal or self._failure

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
        assert (self._refusal is None) == (self._end_at_ms is None)
        assert (self._refusal is not None) <= (self.state == "ended")
        assert self._ask_at_ms is None or self._why_not_learned
