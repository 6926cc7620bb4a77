"""Opens the log dirs of a node beside each other, so that a disk that hangs holds up only its own.

::

    begun --+--> answered in time ----> the node begins with it
            |
            +--> silent --> answered late ----> told to ``late``

The node begins when every dir has answered, or after PATIENCE_S where one of them can be used. A
disk that hangs says nothing, so nothing follows from it: its dir is taken in when it answers.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from raylog.actors.node.online_dir import OnlineDir
from raylog.actors.node.workers import work_failed
from raylog.storage.errors import OutOfResources, RaylogError
from raylog.storage.files import Lock

# For the identity of a dir, and a small file of each partition in it.
PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A log dir that cannot be used: why, and what is known of it all the same.

    ``directory_id``: None where it could not be read, or where another cluster or process has the
    dir. ``lock``: of one that has lost its identity.
    """

    problem: RaylogError
    directory_id: str | None = None
    lock: Lock | None = None

    def let_go(self) -> None:
        """Unlock the dir."""
        if self.lock is not None:
            self.lock.release()


Outcome = OnlineDir | Refused
# Does the jobs, each of a dir, and returns when all have ended. It may return earlier if some take
# too long, and the given function says that what has ended is enough; those go on.
Beside = Callable[[Mapping[str, Callable[[], None]], Callable[[], bool]], None]


def outcome_of(open_dir: Callable[[str], Outcome], path: str) -> Outcome:
    """Open a dir. Somebody waits for an answer, so an error that has no name is one, too."""
    try:
        return open_dir(path)
    except Exception as error:  # our mistake
        return Refused(problem=work_failed(f"opening {path}", error))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What became of the dirs by the time when the node begins; in the order of their paths."""

    opened: tuple[OnlineDir, ...]
    refused: Mapping[str, Refused]
    silent: tuple[str, ...]

    def let_go(self) -> None:
        """Unlock all of them."""
        for dir in self.opened:
            dir.let_go()
        for refused in self.refused.values():
            refused.let_go()


class Openings:
    """The log dirs of one start of a node."""

    def __init__(
        self,
        paths: Sequence[str],
        *,
        open_dir: Callable[[str], Outcome],
        is_fatal: Callable[[RaylogError], bool],
        late: Callable[[str, Outcome], None],
    ) -> None:
        """``open_dir``: may wait for the disk; it is called once for each path, in some thread.

        ``is_fatal``: whether no other dir matters after this error. ``late``: told, in the thread
        of the dir, of one that answers after ``run`` has returned.
        """
        self._paths, self._open_dir = tuple(paths), open_dir
        self._is_fatal, self._late = is_fatal, late
        self._memory = threading.Lock()
        self._outcomes: dict[str, Outcome] = {}
        self._is_running = True

    def run(self, beside: Beside) -> Answers:
        """Open them. Raises OutOfResources where a thread cannot be started."""
        try:
            beside({path: self._job(path) for path in self._paths}, self._is_enough)
        except RaylogError:
            self._answers().let_go()
            raise
        return self._answers()

    def _answers(self) -> Answers:
        """What is known now; who answers from now on is late."""
        with self._memory:
            self._is_running = False
            outcomes = dict(self._outcomes)
        opened: list[OnlineDir] = []
        refused: dict[str, Refused] = {}
        for path in self._paths:
            outcome = outcomes.get(path)
            if isinstance(outcome, OnlineDir):
                opened.append(outcome)
            elif outcome is not None:
                refused[path] = outcome
        silent = tuple(path for path in self._paths if path not in outcomes)
        return Answers(opened=tuple(opened), refused=refused, silent=silent)

    def _is_enough(self) -> bool:
        """Whether the node can begin, or can never, whatever those say that are silent."""
        with self._memory:
            return any(
                isinstance(outcome, OnlineDir) or self._is_fatal(outcome.problem)
                for outcome in self._outcomes.values()
            )

    def _job(self, path: str) -> Callable[[], None]:
        return lambda: self._open(path)

    def _open(self, path: str) -> None:
        outcome = outcome_of(self._open_dir, path)
        with self._memory:
            self._outcomes[path] = outcome
            is_late = not self._is_running
        if is_late:
            self._late(path, outcome)


def in_threads(patience_s: float = PATIENCE_S) -> Beside:
    """Each in a thread of its own; those that take longer than ``patience_s`` may go on."""

    def beside(jobs: Mapping[str, Callable[[], None]], is_enough: Callable[[], bool]) -> None:
        ended = threading.Condition()
        running = set(jobs)

        def do(path: str) -> None:
            try:
                jobs[path]()
            finally:
                with ended:
                    running.discard(path)
                    ended.notify_all()

        for path in jobs:
            thread = threading.Thread(target=do, args=[path], name=f"open-{path}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                raise OutOfResources(path, str(error)) from error
        deadline_s = time.monotonic() + patience_s
        with ended:
            while running:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0 and is_enough():
                    return
                ended.wait(left_s if left_s > 0 else None)

    return beside
