"""Sends the markers of ended transactions to the partitions, until each is done.

The markers for one partition go together, in one request, and no second one is under way meanwhile.
What fails is sent again, after longer and longer pauses: a partition comes back, or is moved. One
whose topic is gone, or was made anew with fewer partitions, needs no marker. A partition that hangs
holds up a thread for as long as it is waited for, and none of the others but by that.
"""

import heapq
import logging
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from raylog.actors.coordinators.codes import INVALID_PRODUCER_EPOCH, NONE
from raylog.actors.coordinators.transactions.transaction import VERSION_2
from raylog.actors.coordinators.transactions.turn import SendMarkers
from raylog.actors.events import event, warn
from raylog.actors.plane.apis.api import Api
from raylog.actors.plane.apis.transactions import WRITE_TXN_MARKERS
from raylog.actors.plane.errors import PeerAway
from raylog.actors.plane.peers.peers import Topic
from raylog.storage.names import TopicPartition
from raylog.storage.schemas.types import Value

logger = logging.getLogger(__name__)

THREADS: Final = 4
# In one request.
MOST_MARKERS: Final = 200
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 1.0
# One line of the log says that a partition does not take its markers, after so many tries.
LOUD_AFTER: Final = 10
_VERSION: Final = WRITE_TXN_MARKERS.last_version


class Asking(Protocol):
    """``peers.py``."""

    def topic(self, name: str) -> Topic | None: ...
    def forget(self, name: str) -> None: ...
    def ask(self, partition: TopicPartition, api: Api, version: int, body: Value) -> Value: ...


class MarkerSender:
    """See the module's head. Any thread."""

    def __init__(
        self,
        peers: Asking,
        coordinator_epoch: int,
        on_failure: Callable[[BaseException], object],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """``on_failure``: hears of an error that is not raylog's."""
        self._peers, self._coordinator_epoch = peers, coordinator_epoch
        self._on_failure, self._now_s = on_failure, now_s
        self._on_marked: Callable[[SendMarkers, TopicPartition], None] = lambda *_: None
        self._changed = threading.Condition()
        self._waiting: dict[TopicPartition, list[SendMarkers]] = {}
        self._due: list[tuple[float, TopicPartition]] = []
        self._tries: dict[TopicPartition, int] = {}
        self._threads = 0
        self._idle = 0  # of them
        self._is_stopped = False

    def begin(self, on_marked: Callable[[SendMarkers, TopicPartition], None]) -> None:
        """``on_marked``: hears of each partition that has its marker, or needs none any more."""
        self._on_marked = on_marked

    def send(self, markers: SendMarkers) -> None:
        """Send them to all their partitions; returns at once."""
        with self._changed:
            for partition in markers.partitions:
                self._add(partition, [markers], self._now_s())
            self._start_threads(len(self._due) - self._idle)
            self._changed.notify_all()

    def _start_threads(self, wanted: int) -> None:
        """So many more, as far as there may be more. With the lock held."""
        for _ in range(min(wanted, THREADS - self._threads)):
            self._threads += 1
            name = f"markers {self._threads}"
            threading.Thread(target=self._run, name=name, daemon=True).start()

    def stop(self) -> None:
        """Send nothing any more."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def _add(self, partition: TopicPartition, some: list[SendMarkers], due_s: float) -> None:
        """With the lock held. What waits for a partition is due once."""
        waiting = self._waiting.get(partition)
        if waiting is not None:
            waiting += some
            return
        self._waiting[partition] = some
        if partition not in self._tries:  # else it comes back when its request is answered
            self._tries[partition] = 0
            heapq.heappush(self._due, (due_s, partition))

    # -- its threads -------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while True:
                partition = self._next()
                if partition is None:
                    return
                self._send_to(partition)
        except BaseException as error:
            self._on_failure(error)
            raise

    def _next(self) -> TopicPartition | None:
        """A partition that is due, when there is one; None at the end."""
        with self._changed:
            while not self._is_stopped:
                left_s = self._due[0][0] - self._now_s() if self._due else None
                if left_s is not None and left_s <= 0:
                    return heapq.heappop(self._due)[1]
                self._idle += 1
                self._changed.wait(left_s)
                self._idle -= 1
        return None

    def _send_to(self, partition: TopicPartition) -> None:
        with self._changed:
            some = self._waiting.pop(partition)
            now, later = some[:MOST_MARKERS], some[MOST_MARKERS:]
        undone, why = self._ask(partition, now)
        for markers in now:
            if markers not in undone:
                self._on_marked(markers, partition)
        with self._changed:
            came = self._waiting.pop(partition, [])
            before = self._tries.pop(partition)
            tries = before + 1 if undone else 0
            left = undone + later + came
            if not left:
                return
            self._waiting[partition], self._tries[partition] = left, tries
            pause_s = min(FIRST_PAUSE_S * 2 ** min(tries, 10), LONGEST_PAUSE_S) if tries else 0.0
            heapq.heappush(self._due, (self._now_s() + pause_s, partition))
            self._changed.notify_all()
        if tries == LOUD_AFTER:
            warn(logger, "markers-not-written", partition=partition, why=why, todo="see its log")

    def _ask(
        self, partition: TopicPartition, some: list[SendMarkers]
    ) -> tuple[list[SendMarkers], str]:
        """Those that are not done yet, and why."""
        body = {"markers": [self._marker(partition, markers) for markers in some]}
        try:
            told = self._peers.ask(partition, WRITE_TXN_MARKERS, _VERSION, body)
        except PeerAway as error:
            if self._is_gone(partition):
                event(logger, "markers-not-needed", partition=partition, why="it is gone")
                return [], ""
            return some, str(error)
        codes = {one["producerId"]: _code(one) for one in told["markers"]}
        undone = []
        for markers in some:
            code = codes.get(markers.producer_id, -1)
            if code == INVALID_PRODUCER_EPOCH:
                # A newer epoch is there: this transaction has ended in the partition before.
                warn(logger, "marker-too-old", partition=partition, id=markers.transactional_id)
            elif code != NONE:
                undone.append(markers)
        return undone, f"error {max(codes.values(), default=-1)}"

    def _marker(self, partition: TopicPartition, markers: SendMarkers) -> Value:
        return {
            "producerId": markers.producer_id,
            "producerEpoch": markers.epoch,
            "transactionResult": markers.is_commit,
            "topics": [{"name": partition.topic, "partitionIndexes": [partition.partition]}],
            "coordinatorEpoch": self._coordinator_epoch,
            "transactionVersion": VERSION_2 if markers.version >= VERSION_2 else 0,
        }

    def _is_gone(self, partition: TopicPartition) -> bool:
        self._peers.forget(partition.topic)
        try:
            topic = self._peers.topic(partition.topic)
        except PeerAway:
            return False
        if topic is None:
            return True
        return 0 < topic.partitions <= partition.partition  # 0: it is being made


def _code(marker: Value) -> int:
    """Of the one partition that was asked."""
    codes = [part["errorCode"] for topic in marker["topics"] for part in topic["partitions"]]
    return int(codes[0]) if len(codes) == 1 else -1
