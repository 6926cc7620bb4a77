"""The log dirs of one node: which of them are in use, and what was found in them. Knows no Ray.

::

    configured --open--> in use --close_dir--> closed --unlock_dir--> not in use
              |   |        ^                                              |
              |   |        +------------------read_back-------------------+
       silent |   | cannot be used
              |   v
              | not in use, as long as another dir can be used
              |   ^
              v   | cannot be used
            not in use, until its disk answers, or somebody has it looked at again --> in use

    in use --withdraw--> withdrawn --retire: checkpoints, marker--> not in use

Nothing is written to a dir that is closed, but its lock is kept: its LogActors may still write to
it. A dir that is not in use is not locked by this node, and nothing is written to it; but one that
has lost its identity is locked, so that nobody gives it one beside a running broker. Whether a dir
is online, the machine says; here it is only done. What is in a dir: ``online_dir.py``.

Each method may wait for the disk of the dir that it is about, and holds up no other dir.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from raylog.actors.control import DirReport
from raylog.actors.events import event
from raylog.actors.messages import LogDirStatus
from raylog.actors.node.dir_openings import (
    PATIENCE_S,
    Beside,
    Openings,
    Outcome,
    Refused,
    outcome_of,
)
from raylog.actors.node.events import Folder
from raylog.actors.node.online_dir import OnlineDir
from raylog.storage.clock import Clock
from raylog.storage.errors import (
    CorruptCheckpoint,
    DuplicateLogDir,
    IdentityMissing,
    InvalidLogDir,
    LogDirOffline,
    OutOfResources,
    RaylogError,
    StorageError,
)
from raylog.storage.files import FileSystem, Lock
from raylog.storage.log_dir import LOCK_FILE, LogDir, check_there
from raylog.storage.names import TopicPartition
from raylog.storage.reading_back import drop_caches
from raylog.storage.state.properties import read_meta

logger = logging.getLogger(__name__)

SILENT = "its disk has not answered since the node began"
WAIT = (
    "wait: it is used as soon as its disk answers. If it stays offline, check whether the disk "
    "hangs (dmesg on that machine)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Log dirs that were read, and what lies in them.

    ``controller_epoch``: the highest that one of them has; -1 for none.
    """

    dirs: tuple[DirReport, ...]
    folders: tuple[Folder, ...] = ()
    controller_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Unusable:
    """A log dir that could not be taken into use. ``directory_id``: None where nobody knows.

    ``advice``: what to do about it; empty where its disk has failed.
    """

    path: str
    directory_id: str | None
    why: str
    advice: str


def ignore(found: Found) -> None:
    """Where nobody waits for a dir that is late."""


class NodeDirs:
    """See the module's head."""

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        *,
        lock_dir: Callable[[str], LogDir],
        lock_folder: Callable[[str], Lock],
        delete_delay_ms: int,
        beside: Beside,
    ) -> None:
        """``lock_dir``, ``lock_folder``: take a lock, and wait a little for it; LogLocked.

        ``beside``: how the dirs are opened.
        """
        self._fs, self._clock, self._delete_delay_ms = fs, clock, delete_delay_ms
        self._lock_dir, self._lock_folder = lock_dir, lock_folder
        self._beside = beside
        self._opening = threading.Lock()  # held while the node begins: who is late waits for it
        self._memory = threading.Lock()
        self._online: dict[str, OnlineDir] = {}
        self._closed: dict[str, OnlineDir] = {}  # and not unlocked yet
        self._withdrawn: dict[str, OnlineDir] = {}  # and not closed in order yet
        self._retired: set[str] = set()  # those that were
        self._paths: dict[str, str] = {}  # of every dir that is known by its id
        self._unusable: dict[str, Unusable] = {}  # by path
        # Of dirs that have lost their identity: who gives it back must stop the broker first.
        self._nameless: dict[str, Lock] = {}  # by path
        self._silent: set[str] = set()  # paths of dirs that have not answered
        self._has_ended = False

    def set_delete_delay(self, delay_ms: int) -> None:
        """Keep the folders of logs that are removed from now on for so long."""
        with self._memory:
            self._delete_delay_ms = delay_ms
            for dir in self._online.values():
                dir.delete_delay_ms = delay_ms

    # -- start and end -----------------------------------------------------------------------------

    def open(self, paths: Sequence[str], late: Callable[[Found], object] = ignore) -> Found:
        """Take the dirs into use. One that cannot be used is offline, if another can be used.

        So is one that does not answer in time. ``late``: told, in another thread, what was found
        in it when it does.

        Raises DuplicateLogDir, LogLocked, InconsistentClusterId, IdentityMissing, OutOfResources,
        or why the first cannot be used where none can; no dir is locked then, nor later.
        """
        assert not self._online, "the dirs are opened once"
        for number, path in enumerate(paths):
            if path in paths[:number]:
                raise DuplicateLogDir(path, path, "are the same folder")
        with self._opening:
            openings = Openings(
                paths,
                open_dir=partial(self._open_dir, {}),
                is_fatal=is_fatal,
                late=partial(self._answered_late, late),
            )
            answers = openings.run(self._beside)
            try:
                for refused in answers.refused.values():
                    if is_fatal(refused.problem) or not answers.opened:
                        raise refused.problem
                self._take_into_use(answers.opened)
            except RaylogError:
                answers.let_go()
                raise
            for path, refused in answers.refused.items():
                self._note_unusable(path, refused)
            for path in answers.silent:
                self._note_silent(path)
            return self._found(answers.opened, self.unusable())

    def _open_dir(self, path_by_real_path: dict[str, str], path: str) -> Outcome:
        """Open a dir, in a thread that may wait for its disk: nobody reads it for the start later.

        ``path_by_real_path``: of the dirs that are being opened.
        """
        try:
            return self._lock_and_look(path_by_real_path, path)
        except RaylogError as problem:
            return self._refused(path, problem)

    def _lock_and_look(self, path_by_real_path: dict[str, str], path: str) -> OnlineDir:
        """Lock a dir, and look through it. After an error it is unlocked, as it was."""
        real_path = self._fs.real_path(path)
        with self._memory:
            twin = path_by_real_path.setdefault(real_path, path)
        if twin != path:
            raise DuplicateLogDir(path, twin, "are the same folder")
        log_dir = self._lock_dir(path)
        try:
            return self._look_through(log_dir)
        except RaylogError:
            let_go(log_dir)
            raise

    def _answered_late(self, late: Callable[[Found], object], path: str, outcome: Outcome) -> None:
        """A dir answers after the node has begun, or after it could not begin.

        It is taken into use in one step: who ends the node meets it before or after that.
        """
        twin = None
        with self._opening, self._memory:
            # Its reading back may have used it meanwhile: see ``look_again``.
            is_wanted = path in self._silent and path not in self._paths.values()
            self._silent.discard(path)
            if is_wanted and isinstance(outcome, OnlineDir):
                # Also of a dir that has failed since: a copy must not take its place.
                twin = self._paths.get(outcome.directory_id)
                if twin is None:
                    self._use([outcome])
        if not is_wanted:
            outcome.let_go()
            return
        if isinstance(outcome, OnlineDir):
            if twin is None:
                late(self._found([outcome]))
                return
            outcome.let_go()
            copy = DuplicateLogDir(path, twin, "have the same directory.id")
            outcome = Refused(problem=copy)
        self._note_unusable(path, outcome)
        late(self._found([], [dir for dir in self.unusable() if dir.path == path]))

    def look_again(self, path: str, late: Callable[[Found], object]) -> str:
        """Look afresh at a dir that could not be used; another may be in its place by now.

        Returns why it still cannot be used; empty where it is used. One that is being looked at is
        left alone. A disk that hangs is waited for only PATIENCE_S. ``late``: as of ``open``.
        Raises OutOfResources, with nothing changed, where no thread can be started.
        """
        with self._memory:
            before = self._unusable.get(path)
            if before is None:
                return ""
            if path in self._silent or self._has_ended:
                return before.why
            self._silent.add(path)
        job = partial(self._look, late, path)
        look = threading.Thread(target=job, name=f"open-{path}", daemon=True)
        try:
            look.start()
        except RuntimeError as error:
            with self._memory:
                self._silent.discard(path)
            raise OutOfResources(path, str(error)) from error
        look.join(PATIENCE_S)
        with self._memory:
            after = self._unusable.get(path)
        return "" if after is None else after.why

    def _look(self, late: Callable[[Found], object], path: str) -> None:
        """Open a dir that could not be used; what is found there is no copy of what was there."""
        with self._memory:
            lock = self._nameless.pop(path, None)
            before = self._unusable.get(path)
            if before is not None and before.directory_id is not None:
                self._paths.pop(before.directory_id, None)
        if lock is not None:
            lock.release()
        self._answered_late(late, path, outcome_of(partial(self._open_dir, {}), path))

    def _look_through(self, log_dir: LogDir) -> OnlineDir:
        return OnlineDir(
            self._fs,
            self._clock,
            log_dir,
            delete_delay_ms=self._delete_delay_ms,
            lock_folder=self._lock_folder,
        )

    def _take_into_use(self, dirs: Iterable[OnlineDir]) -> None:
        """Raises DuplicateLogDir where one is a copy of another; none is in use then."""
        with self._memory:
            self._use(dirs)

    def _use(self, dirs: Iterable[OnlineDir]) -> None:
        """As ``_take_into_use``; the memory's lock is held."""
        used = dict(self._online)
        for dir in dirs:
            twin = used.setdefault(dir.directory_id, dir)
            if twin is not dir:
                raise DuplicateLogDir(dir.path, twin.path, "have the same directory.id")
        for dir in dirs:
            self._online[dir.directory_id] = dir
            self._paths[dir.directory_id] = dir.path
            self._retired.discard(dir.directory_id)
            self._unusable.pop(dir.path, None)

    def _refused(self, path: str, problem: RaylogError) -> Refused:
        """What can be read of a dir that cannot be used; one without identity is locked.

        One that another cluster or process has is no dir of this node, whatever its id.
        """
        directory_id, lock = None, None
        if not is_fatal(problem):
            with suppress(RaylogError):
                meta = read_meta(self._fs, path)
                directory_id = None if meta is None else meta.directory_id
        if isinstance(problem, IdentityMissing):
            with suppress(RaylogError):  # its identity is being written right now
                lock = self._lock_folder(os.path.join(path, LOCK_FILE))
        return Refused(problem=problem, directory_id=directory_id, lock=lock)

    def _note_unusable(self, path: str, refused: Refused) -> None:
        problem = refused.problem
        with self._memory:
            is_copy = refused.directory_id in self._paths
            directory_id = None if is_copy else refused.directory_id
            self._unusable[path] = Unusable(
                path=path,
                directory_id=directory_id,
                why=problem.problem,
                advice="" if isinstance(problem, StorageError) else problem.advice,
            )
            if directory_id is not None:
                self._paths[directory_id] = path
        if refused.lock is not None:
            self._keep_nameless(path, refused.lock)
        event(logger, "log-dir-offline", level=logging.ERROR, log_dir=path, why=problem.problem)

    def _keep_nameless(self, path: str, lock: Lock) -> None:
        """Keep the lock of a dir without identity, until it is looked at again or the node ends."""
        with self._memory:
            has_ended = self._has_ended
            if not has_ended:
                self._nameless[path] = lock
        if has_ended:
            lock.release()

    def _note_silent(self, path: str) -> None:
        """Only its path is known of the dir: who asks for more waits for its disk."""
        with self._memory:
            self._silent.add(path)
            self._unusable[path] = Unusable(path=path, directory_id=None, why=SILENT, advice=WAIT)
        event(logger, "log-dir-silent", level=logging.ERROR, log_dir=path, why=SILENT)

    def _found(
        self,
        dirs: Sequence[OnlineDir],
        unusable: Iterable[Unusable] = (),
        *,
        is_read_back: bool = False,
    ) -> Found:
        online = [dir.report(is_read_back=is_read_back) for dir in dirs]
        offline = [
            DirReport(directory_id=dir.directory_id, path=dir.path, state="offline", why=dir.why)
            for dir in unusable
        ]
        return Found(
            dirs=(*online, *offline),
            folders=tuple(folder for dir in dirs for folder in dir.folders()),
            controller_epoch=max((dir.controller_epoch for dir in dirs), default=-1),
        )

    def let_go(self) -> None:
        """Unlock the dirs as they were found: a start ends before anything was done."""
        for dir in self.take_all():
            dir.let_go()

    def take_all(self) -> list[OnlineDir]:
        """The dirs in use; from now on none is. Who takes them closes them.

        Those that are closed are unlocked. One that has not answered yet is unlocked when it does.
        """
        with self._memory:
            self._has_ended = True
            self._silent.clear()
            dirs = list(self._online.values())
            self._online.clear()
            closed = list(self._closed)
            nameless = list(self._nameless.values())
            self._nameless.clear()
        for directory_id in closed:
            self.unlock_dir(directory_id)
        for lock in nameless:
            lock.release()
        return dirs

    # -- which dirs --------------------------------------------------------------------------------

    def dirs(self) -> list[OnlineDir]:
        """The dirs in use."""
        with self._memory:
            return list(self._online.values())

    def get(self, directory_id: str) -> OnlineDir | None:
        """A dir in use, by its id."""
        with self._memory:
            return self._online.get(directory_id)

    def online(self, directory_id: str) -> OnlineDir:
        """A dir in use. Raises LogDirOffline, or InvalidLogDir where this node has no such dir."""
        dir = self.get(directory_id)
        if dir is None:
            raise LogDirOffline(self.path(directory_id), "it is not in use now")
        return dir

    def path(self, directory_id: str) -> str:
        """Where a dir is, or was. Raises InvalidLogDir."""
        with self._memory:
            path = self._paths.get(directory_id)
            known = dict(self._paths)
        if path is None:
            why = f"this node has no such log dir; its log dirs are {known}"
            raise InvalidLogDir(directory_id, why)
        return path

    def is_whole(self) -> bool:
        """Whether each dir that is known by its id is in use, and each dir has answered.

        Those do not count that were taken out of use in order.
        """
        with self._memory:
            return not self._silent and self._paths.keys() - self._retired == self._online.keys()

    def unusable(self) -> list[Unusable]:
        """The dirs that could not be taken into use."""
        with self._memory:
            return list(self._unusable.values())

    def disk_failure(self, error: StorageError) -> StorageError | None:
        """Why the dir must go offline in which this error was met; None if its disk is fine.

        A file that is gone says nothing, unless its whole dir is gone with it.
        """
        for dir in self.dirs():
            if f"{error.path}/".startswith(f"{dir.path}/"):
                return dir.disk_failure(error)
        return error if error.is_disk_failure else None

    # -- out of use, and back ----------------------------------------------------------------------

    def close_dir(self, directory_id: str) -> None:
        """Write nothing more to a dir; fine if it is not in use.

        Returns when nobody writes to its files any more: who waits for the disk holds it up.
        """
        with self._memory:
            dir = self._online.pop(directory_id, None)
        if dir is None:
            return
        dir.close()
        with self._memory:
            self._closed[directory_id] = dir

    def unlock_dir(self, directory_id: str) -> None:
        """Unlock a dir that was closed; fine if it is unlocked."""
        with self._memory:
            dir = self._closed.pop(directory_id, None)
        if dir is not None:
            dir.give_lock_up()

    def withdraw(self, directory_id: str) -> None:
        """Begin nothing more in a dir that is closed in order next; fine if it is not in use."""
        with self._memory:
            dir = self._online.pop(directory_id, None)
            if dir is not None:
                self._withdrawn[directory_id] = dir

    def retire(self, directory_id: str, clean: Set[TopicPartition]) -> None:
        """Close a dir as an orderly end does, and unlock it; fine if it is not in use.

        ``clean``: the logs that were closed in order. Raises LogDirOffline where not all of it was
        in order; it is unlocked then, too.
        """
        self.withdraw(directory_id)
        with self._memory:
            dir = self._withdrawn.pop(directory_id, None)
        if dir is None:
            return
        if not dir.unlock({}, clean):
            raise LogDirOffline(dir.path, "it was not closed in order")
        with self._memory:
            self._retired.add(directory_id)

    def read_back(self, directory_id: str) -> Found:
        """Take a dir into use again, with its logs as they are on the disk itself.

        What a failed fsync left in the page cache is dropped. Raises why it cannot be used; then it
        is not in use.
        """
        path = self.path(directory_id)
        self.close_dir(directory_id)
        self.unlock_dir(directory_id)
        check_there(self._fs, path, directory_id)
        log_dir = self._lock_dir(path)
        try:
            for partition in log_dir.partitions():
                drop_caches(self._fs, log_dir.folder(partition))
            dir = self._look_through(log_dir)
        except RaylogError:
            let_go(log_dir)
            raise
        self._take_into_use([dir])
        return self._found([dir], is_read_back=True)

    # -- reports -----------------------------------------------------------------------------------

    def status(
        self, directory_id: str, node_id: str, opening: Set[TopicPartition] | None = None
    ) -> LogDirStatus:
        """What a dir holds. It looks at every file. ``opening``: as of ``OnlineDir.progress``."""
        dir = self.get(directory_id)
        if dir is not None:
            return dir.status(node_id, opening)
        path = self.path(directory_id)
        for unusable in self.unusable():
            if unusable.path == path:
                why, advice = unusable.why, unusable.advice
                return LogDirStatus.offline(node_id, path, directory_id, why, advice)
        return LogDirStatus.offline(node_id, path, directory_id, "it is not in use now")


def is_fatal(problem: RaylogError) -> bool:
    """Whether the node cannot begin, whatever its other dirs are like."""
    if isinstance(problem, OutOfResources):
        return True  # of this process, not of the dir
    return not isinstance(problem, InvalidLogDir | CorruptCheckpoint | StorageError)


def let_go(log_dir: LogDir) -> None:
    """Unlock a dir as it was found."""
    try:
        log_dir.close(clean=log_dir.was_clean)
    except StorageError:
        log_dir.close(clean=False)


def in_time(work: Mapping[str, Callable[[], None]], timeout_s: float) -> dict[str, str]:
    """Do the work of each dir in a thread of its own; returns why, for those that could not.

    One that has not ended in time counts as one that could not; its thread goes on.
    """
    problems: dict[str, str] = {}
    ended: set[str] = set()
    memory = threading.Lock()

    def do(key: str, job: Callable[[], None]) -> None:
        problem = None
        try:
            job()
        except RaylogError as error:
            problem = error.problem
        with memory:
            ended.add(key)
            if problem is not None:
                problems[key] = problem

    threads = [
        threading.Thread(target=do, args=item, name=f"dir-{item[0]}", daemon=True)
        for item in work.items()
    ]
    for thread in threads:
        thread.start()
    deadline_s = time.monotonic() + timeout_s
    for thread in threads:
        thread.join(max(0.0, deadline_s - time.monotonic()))
    with memory:
        late = dict.fromkeys(work.keys() - ended, f"it did not answer within {timeout_s:g} s")
        return {**problems, **late}
