"""What the Controller sends to the copies of the metadata: a line to each node, with its thread.

It is apart from the line for orders (``managers.py``), so neither waits for the other. Pushes to
several nodes go beside each other: a record that counts has waited for the slowest copy in sync,
and not for one after the other. The batches are read from the Controller's log when they are sent,
so what waits for a node takes no memory. So is its newest snapshot, for a copy that has an older
one. One that lacks records which are in the snapshot only is pushed to from the snapshot's end on.
A snapshot is checked before it is sent: where the Controller's own disk has damaged it, its machine
is told (``SnapshotDamaged``) and makes another one. A copy that can go on without it does.

::

    push(Push) --> line of a node --reads--> MetadataLog
                        |  one call under way --> LogManager
                        +--> Kept, or PushFailed: there is always one of them, unless another push
                             has come meanwhile, or the line is stopped
                        +--> SnapshotDamaged, before one of them
"""

import logging
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import Protocol

from raylog.actors.control import MetadataKept, MetadataPush
from raylog.actors.events import warn
from raylog.actors.metadata_history import HistoryPoint
from raylog.cluster.controller.events import Kept, PushFailed, SnapshotDamaged, Whether
from raylog.cluster.controller.instructions import AskWhether, Push
from raylog.storage.errors import OutOfResources, RaylogError

logger = logging.getLogger(__name__)

# The batches of one push; at least one, however large it is.
PUSH_BYTES = 1 << 20
# Why a copy gets nothing for a moment.
LACKS_SNAPSHOT = (
    "it lacks records that only the Controller's newest snapshot has, and that one is damaged; it "
    "gets the next one, which the Controller makes"
)


class CopyHolders(Protocol):
    """The way to the LogManagers' copies. Each method waits, and raises why it failed."""

    def push(self, node: str, push: MetadataPush, given_up: "Future[None]") -> MetadataKept | None:
        """Send it, and return the answer; None where nobody needs it any more."""


class BatchLog(Protocol):
    """Where the batches are read (``MetadataLog``); any thread may do that."""

    def batches(self, first: int, end: int, most_bytes: int) -> tuple[bytes, ...]:
        """Whole batches from the record ``first`` on, and before ``end``."""

    @property
    def start(self) -> int:
        """The number of the first record that it has itself."""

    @property
    def newest(self) -> HistoryPoint | None:
        """The end of its newest snapshot; None where it has none."""

    def snapshot_file(self, of: HistoryPoint) -> bytes:
        """The file of this snapshot. Raises why it cannot be read."""


def message_of(
    push: Push, cluster_id: str, log: BatchLog, damaged: Callable[[SnapshotDamaged], None]
) -> MetadataPush | None:
    """What to send now; None where that takes a snapshot that is damaged.

    ``damaged``: is told of that. Raises StorageError.
    """
    base, digest, content = push.base, push.digest, b""
    newest = log.newest
    if newest is not None:
        is_lacking = base < log.start or (base > 0 and not digest)
        if is_lacking:
            base, digest = newest.end, newest.digest
        if is_lacking or push.snapshot_end < newest.end <= base:
            found = _snapshot_file(log, newest)
            if isinstance(found, SnapshotDamaged):
                damaged(found)
                if is_lacking:
                    return None
            else:
                content = found
    return MetadataPush(
        cluster_id=cluster_id,
        controller_epoch=push.epoch,
        base=base,
        digest=digest,
        batches=log.batches(base, push.end, PUSH_BYTES),
        life=push.heard_life,
        heard=push.heard,
        snapshot=content,
    )


def _snapshot_file(log: BatchLog, of: HistoryPoint) -> bytes | SnapshotDamaged:
    """Raises OutOfResources."""
    try:
        return log.snapshot_file(of)
    except OutOfResources:
        raise
    except RaylogError as error:
        return SnapshotDamaged(end=of.end, why=error.problem)


class _Line:
    def __init__(
        self,
        node: str,
        cluster_id: str,
        log: BatchLog,
        holders: CopyHolders,
        put: Callable[[Kept | PushFailed | SnapshotDamaged], None],
    ) -> None:
        self.node = node
        self._cluster_id, self._log, self._holders, self._put = cluster_id, log, holders, put
        self._changed = threading.Condition()
        self._is_stopped = False
        self._next: Push | None = None
        self._given_up: Future[None] = Future()  # ends the wait for the answer of the present call
        self._thread = threading.Thread(target=self._run, name=f"copy-{node}", daemon=True)
        self._thread.start()

    def push(self, push: Push) -> None:
        """Send this, in the place of what is under way: the life that it went to has ended."""
        with self._changed:
            self._next = push
            self._give_up()

    def stop(self) -> None:
        with self._changed:
            self._is_stopped = True
            self._give_up()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _give_up(self) -> None:
        if not self._given_up.done():
            self._given_up.set_result(None)
        self._changed.notify_all()

    def _run(self) -> None:
        while (work := self._next_push()) is not None:
            push, given_up = work
            event = self._send(push, given_up)
            if event is not None:
                self._put(event)

    def _next_push(self) -> "tuple[Push, Future[None]] | None":
        with self._changed:
            while self._next is None and not self._is_stopped:
                self._changed.wait()
            push, self._next = self._next, None
            if self._is_stopped or push is None:
                return None
            self._given_up = Future()
            return push, self._given_up

    def _send(self, push: Push, given_up: "Future[None]") -> Kept | PushFailed | None:
        try:
            message = message_of(push, self._cluster_id, self._log, self._put)
            if message is None:
                return PushFailed(token=push.token, node=push.node, why=LACKS_SNAPSHOT)
            kept = self._holders.push(self.node, message, given_up)
        except RaylogError as error:
            return PushFailed(token=push.token, node=push.node, why=str(error))
        except Exception as error:
            warn(logger, "push-failed", trace=True, node=push.node, why=error)
            return PushFailed(token=push.token, node=push.node, why=repr(error))
        return None if kept is None else Kept(token=push.token, node=push.node, kept=kept)


class Pushing:
    """A line to each node that was ever pushed to. Safe for threads; nothing here waits."""

    def __init__(
        self,
        cluster_id: str,
        log: BatchLog,
        holders: CopyHolders,
        is_controller: Callable[[AskWhether], bool],
        put: Callable[[Kept | PushFailed | SnapshotDamaged | Whether], None],
    ) -> None:
        """``is_controller``: asks Ray whether this process still is it; may wait, and raise.

        It also has Ray's head know what the question says of copies that are left out.
        """
        self._cluster_id, self._log, self._holders = cluster_id, log, holders
        self._is_controller, self._put = is_controller, put
        self._lock = threading.Lock()  # of what is below; held for moments
        self._lines: dict[str, _Line] = {}
        self._is_stopped = False

    def push(self, push: Push) -> None:
        """Returns at once."""
        line = self._line(push.node)
        if line is not None:
            line.push(push)

    def ask_whether(self, question: AskWhether) -> None:
        """Ask Ray; returns at once."""
        try:
            threading.Thread(
                target=self._ask, args=(question,), name="whether", daemon=True
            ).start()
        except RuntimeError:  # no more threads: it is asked again
            self._put(Whether(is_still=None))

    def _ask(self, question: AskWhether) -> None:
        is_still = None
        try:
            is_still = self._is_controller(question)
        except Exception as error:
            warn(logger, "ray-does-not-answer", why=error)
        self._put(Whether(is_still=is_still))

    def keep(self, nodes: Collection[str]) -> None:
        """Only these nodes are there now."""
        with self._lock:
            gone = [line for node, line in self._lines.items() if node not in nodes]
            for line in gone:
                del self._lines[line.node]
        for line in gone:
            line.stop()

    def stop(self, timeout_s: float) -> None:
        """Push nothing any more; waits for the threads, ``timeout_s`` in all."""
        with self._lock:
            self._is_stopped = True
            lines = list(self._lines.values())
        for line in lines:
            line.stop()
        for line in lines:
            line.join(timeout_s / len(lines))

    def _line(self, node: str) -> _Line | None:
        with self._lock:
            if self._is_stopped:
                return None
            if node not in self._lines:
                self._lines[node] = _Line(
                    node, self._cluster_id, self._log, self._holders, self._put
                )
            return self._lines[node]
