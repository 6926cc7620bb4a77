"""The node's copy of the metadata: in which log dir it lies, and that its disk holds up nobody.

The copy is in the log dir that has such a folder already, or else in the first one that is online.
Of several, the one counts that has come furthest. When its log dir goes offline, the copy goes with
it, and the next request begins one in another log dir.

Each log dir has a thread of its own, and a request waits for it only for a while. While a disk
hangs nothing more is asked of it: the answer names the problem, and the rest of the LogManager goes
on. No Ray.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, TypeVar

from raylog.actors.control import MetadataKept, MetadataPush
from raylog.actors.errors import NotLeader, RequestTimedOut
from raylog.actors.node.metadata_copy import MetadataCopy
from raylog.actors.node.workers import Workers
from raylog.storage.errors import RaylogError

# A healthy disk takes milliseconds. The Controller drops a copy that is silent for 10 s.
PATIENCE_S = 5.0

Answer = TypeVar("Answer")


class _Hand:
    """The copy in one log dir, and the one thread that touches it."""

    def __init__(self, directory_id: str, copy: MetadataCopy) -> None:
        self.directory_id = directory_id
        self._copy, self._workers = copy, Workers("metadata-copy", 1)
        self._last: Future[Any] | None = None  # of what was asked last

    def begin(self, work: Callable[[MetadataCopy], Answer]) -> "Future[Answer]":
        """Have this done, behind what was asked before. Raises RuntimeError without a thread."""
        answer: Future[Answer] = Future()

        def do() -> None:
            try:
                answer.set_result(work(self._copy))
            except BaseException as error:
                answer.set_exception(error)

        self._workers.run(do)
        self._last = answer
        return answer

    @property
    def is_free(self) -> bool:
        """Whether all that was asked is done."""
        return self._last is None or self._last.done()


class MetadataKeeper:
    """See the module's head. Safe for threads: one request at a time.

    ``online``: the ids of the log dirs that can be used, in their order. ``copy_in``: the copy in
    one of them. ``nothing``: what is kept where there is none.
    """

    def __init__(
        self,
        online: Callable[[], Sequence[str]],
        copy_in: Callable[[str], MetadataCopy],
        nothing: MetadataKept,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._online, self._copy_in, self._nothing = online, copy_in, nothing
        self._patience_s = patience_s
        self._asking = threading.Lock()
        self._hands: dict[str, _Hand] = {}  # of the log dirs that were ever asked
        self._hand: _Hand | None = None  # that has the copy
        self._is_stopped = False

    # -- requests ----------------------------------------------------------------------------------

    def status(self) -> MetadataKept:
        """What the copy has."""
        return self._kept(MetadataCopy.status)

    def promise(self, epoch: int) -> MetadataKept:
        """See ``MetadataCopy.promise``."""
        return self._kept(lambda copy: copy.promise(epoch))

    def push(self, push: MetadataPush) -> MetadataKept:
        """See ``MetadataCopy.take``. Raises UnsupportedVersion."""
        return self._kept(lambda copy: copy.take(push))

    def read(self, first: int, most_bytes: int) -> tuple[bytes, ...]:
        """See ``MetadataCopy.read``. Raises also NotLeader and RequestTimedOut."""
        with self._alone():
            return self._ask(self._chosen(), lambda copy: copy.read(first, most_bytes))

    def release(self) -> None:
        """Close and unlock the copy, for a Controller that begins on this node.

        Raises as ``read``: then it may be locked still.
        """
        with self._alone():
            if self._hand is not None:
                self._ask(self._hand, MetadataCopy.release)

    def leave(self, directory_id: str) -> None:
        """Close the copy in a log dir that is not online any more; fine if there is none.

        Where its disk hangs it may be locked still.
        """
        with suppress(RaylogError), self._alone(even_if_stopped=True):
            hand = self._hands.get(directory_id)
            if hand is not None:
                if hand is self._hand:
                    self._hand = None
                self._ask(hand, MetadataCopy.release)

    def stop(self) -> None:
        """Close the copy for good, unless its disk hangs."""
        self._is_stopped = True
        with suppress(RaylogError), self._alone(even_if_stopped=True):
            if self._hand is not None:
                self._ask(self._hand, MetadataCopy.release)

    # -- its parts ---------------------------------------------------------------------------------

    def _kept(self, work: Callable[[MetadataCopy], MetadataKept]) -> MetadataKept:
        try:
            with self._alone():
                return self._ask(self._chosen(), work)
        except (NotLeader, RequestTimedOut) as error:
            return replace(self._nothing, problem=str(error))

    @contextmanager
    def _alone(self, *, even_if_stopped: bool = False) -> Iterator[None]:
        if not self._asking.acquire(timeout=self._patience_s):
            raise self._hangs()
        try:
            if self._is_stopped and not even_if_stopped:
                raise NotLeader(self._nothing.node, "its LogManager is stopping")
            yield
        finally:
            self._asking.release()

    def _chosen(self) -> _Hand:
        """The log dir of the copy. Raises NotLeader where none is online."""
        online = list(self._online())
        if self._hand is not None and self._hand.directory_id in online:
            return self._hand
        if self._hand is not None:
            self._give_up(self._hand)
        if not online:
            raise NotLeader(self._nothing.node, "none of its log dirs is online")
        self._hand = self._best([self._hand_of(directory_id) for directory_id in online])
        return self._hand

    def _hand_of(self, directory_id: str) -> _Hand:
        if directory_id not in self._hands:
            self._hands[directory_id] = _Hand(directory_id, self._copy_in(directory_id))
        return self._hands[directory_id]

    def _give_up(self, hand: _Hand) -> None:
        """Its log dir is offline. Nobody waits: its disk may hang."""
        self._hand = None
        with suppress(RuntimeError):  # no more threads: the lock stays until the process ends
            hand.begin(MetadataCopy.release)

    def _best(self, hands: Sequence[_Hand]) -> _Hand:
        """The log dir whose copy has come furthest; the first one where there is no copy."""
        found: list[tuple[int, int, _Hand]] = []
        for hand in hands:
            with suppress(RequestTimedOut):
                kept = self._ask(hand, MetadataCopy.status)
                found.append((kept.controller_epoch, kept.end, hand))
        if not found:
            raise self._hangs()
        furthest = max(found, key=lambda entry: entry[:2])[-1]
        for _, _, hand in found:
            if hand is not furthest:
                self._ask(hand, MetadataCopy.release)
        return furthest

    def _ask(self, hand: _Hand, work: Callable[[MetadataCopy], Answer]) -> Answer:
        if not hand.is_free:
            raise self._hangs()
        try:
            return hand.begin(work).result(self._patience_s)
        except TimeoutError:
            raise self._hangs() from None
        except RuntimeError as error:  # no more threads
            raise NotLeader(self._nothing.node, str(error)) from error

    def _hangs(self) -> RequestTimedOut:
        what = f"the disk of the copy of the metadata on node {self._nothing.node}"
        return RequestTimedOut(what, round(self._patience_s * 1000))
