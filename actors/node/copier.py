"""How a log is copied to another of the node's log dirs, at first while its actor serves it.

::

    source                          target
    orders-0/      --- rounds --->  orders-0.<id>-future/   Copy: the LogActor goes on appending
    orders-0/  (closed) --last--->  orders-0.<id>-future/   the last Copy: nobody serves
    orders-0/                       orders-0/               Adopt: the copy gets the log's name

A crash before the adoption leaves a ``-future`` folder, which nobody goes on with. The rounds keep
to a rate, that of all copies of the node together. The last one does not: callers wait for the log.

Not its job: what is done when (the machine), closing the log (who has the actors), what is copied
(``storage/mirror.py``).
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from raylog.actors.control import LogId
from raylog.actors.errors import NotLeader
from raylog.actors.events import event
from raylog.actors.node.instructions import Copy
from raylog.actors.node.online_dir import CopyFolder, OnlineDir
from raylog.storage.clock import Clock
from raylog.storage.errors import DiskFull
from raylog.storage.files import FileSystem, Lock
from raylog.storage.mirror import Mirror
from raylog.storage.throttle import Throttle

logger = logging.getLogger(__name__)

# The most that is left for the last round, in which the log does not serve.
SMALL_BYTES = 16 << 20
# Where appends are faster than copies, the rest never gets small, and the last round takes longer.
MAX_ROUNDS = 20
# Of a node. More would not be faster: they share a few disks.
COPIES_AT_ONCE = 4


@dataclass(slots=True, kw_only=True)
class _Copying:
    """A copy from its first round to its last.

    ``token``: of the Copy that runs now, or ran last. ``rounds``: how many there were so far.
    """

    source: OnlineDir
    target: OnlineDir
    folder: CopyFolder
    token: int
    is_last: bool
    mirror: Mirror
    rounds: int = 0


class Copier:
    """See the module's head."""

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        *,
        bytes_per_second: float,
        roll: Callable[[LogId], None],
        lock_folder: Callable[[str], Lock],
        now_s: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        """``roll``: have the log's actor begin a new segment. See ``DiskWork``."""
        self._fs, self._clock, self._roll, self._lock_folder = fs, clock, roll, lock_folder
        self._now_s = now_s
        self._throttle = Throttle(bytes_per_second, now_s, sleep)
        self._throttling = threading.Lock()
        self._changed = threading.Condition()
        self._running = 0  # copies that have a turn
        self._given_up: set[int] = set()  # tokens
        self._copyings: dict[tuple[LogId, str], _Copying] = {}  # by log and target

    def set_rate(self, bytes_per_second: float) -> None:
        """Copy at this rate from now on, all copies together."""
        self._throttle.rate = bytes_per_second

    def give_up(self, token: int) -> None:
        """Have the Copy with this token end soon; fine if it has ended, or has not begun."""
        with self._changed:
            self._given_up.add(token)
            self._changed.notify_all()

    def forget(self, log: LogId, target_id: str) -> None:
        """The log's copy in this dir is adopted, or unwanted."""
        with self._changed:
            self._copyings.pop((log, target_id), None)

    # -- while the log is served -------------------------------------------------------------------

    def copy(self, work: Copy, source: OnlineDir, target: OnlineDir) -> None:
        """Copy in rounds until little is left.

        The log rolls before each, so that the segment that grows meanwhile is small. On a full disk
        it can neither roll nor grow. Raises NoRoom, InvalidLogDir, StorageError, and NotLeader if
        it is given up.
        """
        with self._turn(work):
            copying = self._begin(work, source, target)
            copying.mirror.check_room()
            for _ in range(MAX_ROUNDS):
                self._check_wanted(copying)
                with suppress(DiskFull):
                    self._roll(work.log)
                copying.rounds += 1
                if copying.mirror.round() <= SMALL_BYTES:
                    return

    @contextmanager
    def _turn(self, work: Copy) -> Iterator[None]:
        with self._changed:
            while self._running >= COPIES_AT_ONCE and work.token not in self._given_up:
                self._changed.wait()
            self._running += 1
        try:
            self._raise_if_given_up(work.log, work.token)
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._given_up.discard(work.token)
                self._changed.notify_all()

    # -- when it is closed -------------------------------------------------------------------------

    def finish(self, work: Copy, source: OnlineDir, target: OnlineDir) -> None:
        """Copy what is left of a log that was closed; afterwards the copy is whole.

        Raises LogLocked where a process still has the log, StorageError, InvalidLogDir.
        """
        begin_s = self._now_s()
        copying = self._begin(work, source, target)
        lock = self._lock_folder(source.folder(work.log.partition))
        try:
            copying.mirror.round(is_last=True)
        finally:
            lock.release()
        copying.folder.is_whole = True
        event(
            logger,
            "partition-copied",
            partition=work.log.partition,
            source=source.path,
            target=target.path,
            rounds=copying.rounds + 1,
            closed_seconds=self._now_s() - begin_s,
        )

    # -- both --------------------------------------------------------------------------------------

    def _begin(self, work: Copy, source: OnlineDir, target: OnlineDir) -> _Copying:
        """Begin a copy, or go on with the one of this log between these dirs."""
        folder = target.begin_copy(work.log)
        key = (work.log, target.directory_id)
        with self._changed:
            copying = self._copyings.get(key)
            is_known = copying is not None and (
                (copying.source, copying.target, copying.folder) == (source, target, folder)
            )
            if copying is None or not is_known:
                copying = self._new(work, source, target, folder)
                self._copyings[key] = copying
            copying.token, copying.is_last = work.token, work.is_last
            return copying

    def _new(
        self, work: Copy, source: OnlineDir, target: OnlineDir, folder: CopyFolder
    ) -> _Copying:
        def pace(size_bytes: int) -> None:
            self._check_wanted(copying)
            if not copying.is_last:
                with self._throttling:
                    self._throttle(size_bytes)

        source_folder = source.folder(work.log.partition)
        mirror = Mirror(self._fs, self._clock, source_folder, folder.path, pace)
        copying = _Copying(
            source=source,
            target=target,
            folder=folder,
            token=work.token,
            is_last=work.is_last,
            mirror=mirror,
        )
        return copying

    def _check_wanted(self, copying: _Copying) -> None:
        partition = copying.folder.partition
        if copying.source.is_closed or copying.target.is_closed:
            raise NotLeader(str(partition), "a log dir of its move is not in use any more")
        if copying.token in self._given_up:
            raise NotLeader(str(partition), "its move was given up")

    def _raise_if_given_up(self, log: LogId, token: int) -> None:
        if token in self._given_up:
            raise NotLeader(str(log.partition), "its move was given up")
