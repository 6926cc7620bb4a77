"""What a consumer does next: a pure machine. Events and the time in, instructions out.

Each partition has two places in the log::

    position                         fetch_at
       |                                |
    ---+-----------+--------------------+--------------------
       | being     | fetched, and       | on its way, or
       | handed out| not looked at yet  | the next to be asked for

``position`` is the offset behind the record that was handed out last: what a user saves, and where
a reader goes on after a crash. ``fetch_at`` runs ahead of it: while the user works on one answer
the next fetch is on its way, for every partition. Two answers a partition are kept, of a size that
bounds all of them together.

A seek forgets what was fetched, and the number of the request: an answer to a number that is not
known any more is dropped. Where retention, or a topic that was made again, has taken the offset
away, ``auto.offset.reset`` says where to go on, once everything before it was handed out.

**A log that lost its end** (a power loss) and has grown again has other records at offsets that
were read. So every fetch carries the leader epoch of the newest batch that was fetched; the log,
which never gives an epoch out twice, answers where it parts from that (KIP-320). What was fetched
and not handed out is fetched anew then. If records were handed out that are gone, the partition
goes back to where they began; with ``auto.offset.reset=none`` LogTruncation is raised.

**A reader with an end** that the log had, and has lost, ends where the log does now; with
``auto.offset.reset=none`` OffsetOutOfRange is raised.

Who carries out instructions, and what a ``Chunk`` holds, is the shell's business (``fetcher.py``).
"""

import re
from collections.abc import Callable, Iterable, Mapping
from random import Random

from raylog.actors.errors import (
    THROTTLED,
    NoOffsetForPartition,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from raylog.cluster.client.consumer.assigned import Assigned, Topic
from raylog.cluster.client.consumer.config import ConsumerConfig
from raylog.cluster.client.consumer.instructions import (
    Chunk,
    Fetch,
    Forget,
    Instruction,
    Learn,
    ListTopics,
    LookUp,
    Reset,
    Shortened,
    Start,
    When,
)
from raylog.cluster.client.patience import backoff_s, may_pass
from raylog.storage.errors import (
    LogTruncation,
    OffsetOutOfRange,
    SegmentDeleted,
)
from raylog.storage.names import TopicPartition
from raylog.storage.readable import EARLIEST, LATEST
from raylog.storage.state.epochs import NO_EPOCH, EpochEnd

# Answers of one partition that are kept: one is handed out while the next one comes.
MOST_CHUNKS = 2
# A smaller fetch costs more than its records are worth.
LEAST_FETCH_BYTES = 64 << 10


class Machine:
    """The partitions of one consumer."""

    def __init__(
        self, config: ConsumerConfig, random: Random | None = None, *, reads_ranges: bool = False
    ) -> None:
        """``reads_ranges``: the ends are in the logs now; else a log may still reach its end."""
        self.config, self._reads_ranges = config, reads_ranges
        self.assigned: dict[TopicPartition, Assigned] = {}
        self.resets: list[Reset | Shortened] = []  # taken by the shell
        self.troubles: list[Exception] = []  # of no partition; raised by the shell
        self._random = random or Random()
        self._topics: dict[str, Topic] = {}
        self._requests: dict[int, Assigned] = {}
        self._last_number = 0
        self._ready: dict[Assigned, None] = {}  # something is there to hand out, in turn
        self._to_ask: dict[Assigned, None] = {}  # one may be asked now or later
        self._forget: list[TopicPartition] = []
        self._before: dict[Assigned, tuple[int | None, int]] = {}  # see ``note``
        self._start_of: Callable[[TopicPartition], Start | None] = lambda _: None
        self._end_of: Callable[[TopicPartition], Start | None] | None = None
        self._pattern: re.Pattern[str] | None = None
        self._list = Topic(is_followed=False, is_new=False)  # when to list topics

    # -- what the user wants -----------------------------------------------------------------------

    @property
    def is_subscribed(self) -> bool:
        return self._pattern is not None or any(t.is_followed for t in self._topics.values())

    @property
    def is_growing(self) -> bool:
        """Whether partitions may come that are not known yet."""
        return self.is_subscribed and self._end_of is None

    @property
    def is_settled(self) -> bool:
        """Whether every partition is known, with its position."""
        if self._pattern is not None and self._list.topic_id is None:
            return False
        if any(topic.is_followed and topic.topic_id is None for topic in self._topics.values()):
            return False
        return all(
            each.error is not None or (each.position is not None and not isinstance(each.end, When))
            for each in self.assigned.values()
        )

    def unsubscribe(self) -> None:
        """Read nothing."""
        self._drop(list(self.assigned))
        self._topics.clear()
        self._pattern = None
        self._start_of, self._end_of = lambda _: None, None

    def assign(
        self,
        starts: Mapping[TopicPartition, Start | None],
        ends: Mapping[TopicPartition, Start] | None = None,
    ) -> None:
        """Read these partitions, too. None as a start: where auto.offset.reset says."""
        for partition, start in starts.items():
            if partition.topic not in self._topics:
                self._topics[partition.topic] = Topic(is_followed=False, is_new=False)
            self._drop([partition])
            self._add(partition, start, (ends or {}).get(partition))

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these no more. A topic of which nothing is left is no concern."""
        gone = list(partitions)
        self._drop(gone)
        left = {each.topic for each in self.assigned}
        for name in {each.topic for each in gone} - left:
            topic = self._topics.get(name)
            if topic is not None and not topic.is_followed:
                del self._topics[name]

    def subscribe(
        self,
        topics: Iterable[str],
        pattern: re.Pattern[str] | None,
        start_of: Callable[[TopicPartition], Start | None],
        end_of: Callable[[TopicPartition], Start | None] | None,
    ) -> None:
        """Read all partitions of these topics, or of those with a matching name.

        ``end_of``: where they end; then none that comes later is read.
        """
        self.unsubscribe()
        self._start_of, self._end_of = start_of, end_of
        self._pattern = pattern
        self._list = Topic(is_followed=False, is_new=False)
        for topic in topics:
            self._topics[topic] = Topic(is_followed=True, is_new=False)

    def seek(self, partition: TopicPartition, place: Start) -> None:
        each = self.assigned[partition]
        self._requests.pop(each.asked, None)
        each.go_to(place)
        each.began_at = each.position
        each.retry_at, each.failures, each.failing_since = 0.0, 0, None
        self._changed(each)

    def pause(self, partition: TopicPartition) -> None:
        self.assigned[partition].is_paused = True
        self._changed(self.assigned[partition])

    def resume(self, partition: TopicPartition) -> None:
        self.assigned[partition].is_paused = False
        self._changed(self.assigned[partition])

    def refresh(self, topic: str) -> None:
        """What is known of a topic may be old."""
        if topic in self._topics and not self._topics[topic].is_asked:
            self._topics[topic].due_at = 0.0

    # -- what was handed out -----------------------------------------------------------------------

    def next_ready(self) -> Assigned | None:
        """The partition whose turn it is: it has a chunk, or an error to raise."""
        return next(iter(self._ready), None)

    def handed_out(self, each: Assigned, next_offset: int, *, is_done: bool) -> None:
        """The records of its first chunk before ``next_offset`` were; ``is_done``: all of them."""
        each.position = next_offset
        if is_done:
            each.chunks.popleft()
            self._ready.pop(each, None)  # the others' turn
            if not each.chunks and each.seeking is None and each.fetch_at is not None:
                each.position = each.fetch_at = max(next_offset, each.fetch_at)
            self._changed(each)

    def note(self, each: Assigned) -> None:
        """What is handed out of it now comes again, unless ``keep`` says that the user has it."""
        self._before.setdefault(each, (each.position, each.fetched_epoch))

    def keep(self) -> None:
        """The user has what was handed out."""
        self._before.clear()

    def take_back(self) -> None:
        """Nobody got what was handed out since ``keep``: go back to before it."""
        for each, (position, epoch) in self._before.items():
            if self.assigned.get(each.partition) is each:
                self._go_back(each, position, epoch)
        self._before.clear()

    def begin_again(self) -> None:
        """An event was interrupted, at any line of this: ask again for all that may be on its way.

        Answers to what was asked before are dropped. What was fetched is kept.
        """
        self.take_back()
        self._requests.clear()
        self._ready.clear()
        self._to_ask.clear()
        for topic in (*self._topics.values(), self._list):
            topic.is_asked, topic.due_at = False, 0.0
        for each in self.assigned.values():
            each.asked = 0
            if each.fetch_at is None and each.seeking is None and each.error is None:
                each.go_to(each.position)
            self._changed(each)

    def pass_turn(self, each: Assigned) -> None:
        """The other partitions are handed out before this one."""
        self._ready[each] = self._ready.pop(each)

    def take_error(self, each: Assigned) -> Exception:
        """The error of a partition, to be raised; it is asked again then, if it can be."""
        error = each.error
        assert error is not None
        self._ready.pop(each, None)  # the others' turn
        if each.seeking is not None or each.fetch_at is not None:
            each.error = None
        self._changed(each)
        return error

    def fetch_again(self, each: Assigned) -> None:
        """What was fetched is damaged: fetch it anew, from the position on."""
        self._go_back(each, each.position, each.fetched_epoch)

    def _go_back(self, each: Assigned, position: int | None, fetched_epoch: int) -> None:
        self._requests.pop(each.asked, None)
        each.go_to(position, fetched_epoch)
        self._changed(each)

    # -- instructions ------------------------------------------------------------------------------

    def instructions(self, now: float) -> list[Instruction]:
        """What is to be done now."""
        made: list[Instruction] = [Forget(partition) for partition in self._forget]
        self._forget.clear()
        if self._pattern is not None and not self._list.is_asked and self._list.due_at <= now:
            self._list.is_asked = True
            made.append(ListTopics())
        for name, topic in self._topics.items():
            if not topic.is_asked and topic.due_at <= now:
                topic.is_asked = True
                made.append(Learn(name))
        for each in list(self._to_ask):
            if each.retry_at <= now and self._topics[each.partition.topic].topic_id is not None:
                del self._to_ask[each]
                made.append(self._ask(each))
        return made

    def wakes_at(self) -> float:
        """When there may be something to do that no answer tells."""
        topics = [*self._topics.values(), *([self._list] if self._pattern else [])]
        times = [topic.due_at for topic in topics if not topic.is_asked]
        times += [
            each.retry_at
            for each in self._to_ask
            if self._topics[each.partition.topic].topic_id is not None
        ]
        return min(times, default=float("inf"))

    def _ask(self, each: Assigned) -> Instruction:
        self._last_number += 1
        each.asked = self._last_number
        self._requests[each.asked] = each
        topic_id = self._topics[each.partition.topic].topic_id or ""
        place = each.end if isinstance(each.end, When) else each.seeking
        if place is not None:
            return LookUp(each.asked, each.partition, topic_id, place.timestamp)
        assert each.fetch_at is not None
        wait_ms = 0 if each.is_refused else self.config.fetch_max_wait_ms
        return Fetch(
            number=each.asked,
            partition=each.partition,
            topic_id=topic_id,
            offset=each.fetch_at,
            max_bytes=self._fetch_bytes(),
            max_wait_ms=wait_ms,
            last_fetched_epoch=each.fetched_epoch,
        )

    def _fetch_bytes(self) -> int:
        """So many that all partitions' answers together keep to the bound."""
        share = self.config.queued_max_bytes // (MOST_CHUNKS * max(len(self.assigned), 1))
        return min(self.config.partition_fetch_bytes, max(share, LEAST_FETCH_BYTES))

    # -- answers -----------------------------------------------------------------------------------

    def fetched(
        self, number: int, chunk: Chunk, behind: int, epoch: int, readable_end: int
    ) -> None:
        """Batches came, the last one of this leader epoch; the next ones begin at ``behind``."""
        each = self._answered(number)
        if each is not None:
            each.readable_end = readable_end
            each.has_answered = True
            if not each.is_fetched:
                each.chunks.append(chunk)
                each.fetched_epoch = epoch  # first: for an older place it is right, too
                each.fetch_at = behind
            self._changed(each)

    def found_nothing(self, number: int, readable_end: int) -> None:
        """No record came in time."""
        each = self._answered(number)
        if each is not None:
            each.readable_end = readable_end
            each.has_answered = True
            self._changed(each)

    def log_ends(self, partition: TopicPartition, log_start: int, high_watermark: int) -> None:
        """Where the log ended at an answer. One that lost ``end`` may never have it again."""
        each = self.assigned[partition]
        if not isinstance(each.end, int):
            return
        if high_watermark >= each.end:
            each.had_end = True
            return
        if not each.had_end:
            return
        lost = OffsetOutOfRange(str(partition), each.end, log_start, high_watermark)
        if self.config.reset == "none":
            each.error = lost
        else:
            self.resets.append(Shortened(partition, each.end, high_watermark, lost))
            each.end = high_watermark
        self._changed(each)

    def diverged(
        self, number: int, common: EpochEnd, log_start: int, high_watermark: int, log_epoch: int
    ) -> None:
        """The log parts from what was fetched; up to ``common`` it holds the same.

        The offset is the right one: only one log writes, so only its end can have changed. Where
        nothing was read behind it, only the epoch is too new, and the next answer tells more. A log
        that is opened has a new epoch, ``log_epoch``; where that is the fetched one, nothing can
        have been lost: it is another log.
        """
        each = self._answered(number)
        if each is None:
            return
        assert each.fetch_at is not None
        each.readable_end = high_watermark
        if each.chunks:
            self._go_back(each, each.position, each.fetched_epoch)
            return
        if common.offset >= each.fetch_at:
            each.fetched_epoch = common.epoch
            self._changed(each)
            return
        bounds = (str(each.partition), each.fetch_at, log_start, high_watermark)
        if log_epoch == each.fetched_epoch:
            self._reset(each, OffsetOutOfRange(*bounds))
            self._changed(each)
            return
        lost = LogTruncation(*bounds, common.offset)
        if self.config.reset == "none":
            each.error = lost
            self._changed(each)
            return
        self.resets.append(Reset(each.partition, each.fetch_at, f"offset {common.offset}", lost))
        self._go_back(each, common.offset, common.epoch)

    def looked_up(self, number: int, offset: int, epoch: int = NO_EPOCH) -> None:
        """The offset of a time, and its leader epoch; -1: no record is that new."""
        each = self._answered(number)
        if each is None:
            return
        place: int | When = When(LATEST) if offset < 0 else offset
        if isinstance(each.end, When):
            each.is_edge = each.end.timestamp == LATEST
            each.end, each.had_end = place, True
        elif isinstance(place, When):
            each.seeking = place
        else:
            each.seeking, each.fetched_epoch, each.fetch_at = None, epoch, place
            if not each.chunks:
                each.position = place
                if each.began_at is None:
                    each.began_at = place
        self._changed(each)

    def failed(self, number: int, error: Exception, now: float) -> None:
        """A fetch or a look-up failed."""
        each = self._requests.pop(number, None)
        if each is None:
            return
        each.asked = 0
        if isinstance(error, OffsetOutOfRange):
            self._reset(each, error)
        elif isinstance(error, THROTTLED):
            each.is_refused = True
            self._back_off(each, now)
        elif may_pass(error):
            self._passes(each, error, now)
        else:
            each.error = error
        self._changed(each)

    def is_wanted(self, number: int) -> bool:
        """Whether an answer to this request is of any use."""
        return number in self._requests

    def _answered(self, number: int) -> Assigned | None:
        each = self._requests.pop(number, None)
        if each is not None:
            each.asked, each.failures, each.failing_since = 0, 0, None
            each.is_refused = False
        return each

    def _passes(self, each: Assigned, error: Exception, now: float) -> None:
        """Ask again in a moment; name what lasts."""
        if isinstance(error, UnknownTopicId):
            self.refresh(each.partition.topic)
        elif not isinstance(error, SegmentDeleted):
            self._forget.append(each.partition)
        if each.failures or not isinstance(error, SegmentDeleted):
            self._back_off(each, now)
        each.failures += 1
        if each.failing_since is None:
            each.failing_since = now
        elif now - each.failing_since > self.config.request_timeout_s:
            each.failing_since, each.error = None, error

    def _back_off(self, each: Assigned, now: float) -> None:
        each.retry_at = now + self._backoff_s(each.failures)

    def _backoff_s(self, failures: int) -> float:
        first, most = self.config.retry_backoff_s, self.config.retry_backoff_max_s
        return backoff_s(failures, first, most, self._random)

    def _reset(self, each: Assigned, why: Exception) -> None:
        """The offset is not there: go on where auto.offset.reset says."""
        policy = self.config.reset
        if policy == "none":
            each.error = why
            return
        place = "the beginning" if policy == "earliest" else "the end"
        self.resets.append(Reset(each.partition, each.fetch_at or 0, place, why))
        each.seeking = When(EARLIEST if policy == "earliest" else LATEST)

    # -- topics ------------------------------------------------------------------------------------

    def learned(self, name: str, topic_id: str, partitions: int, now: float) -> None:
        """A topic's metadata."""
        topic = self._topics.get(name)
        if topic is None:
            return
        is_other = topic.topic_id is not None and topic.topic_id != topic_id
        before = 0 if topic.topic_id is None or is_other else topic.partitions
        is_first = topic.topic_id is None
        for each in [each for each in self.assigned.values() if each.partition.topic == name]:
            if is_other:
                self._start_over(each, topic.topic_id or "", topic_id)
            if each.partition.partition >= partitions:
                self._leave(each, topic, partitions)
        if topic.is_followed:
            self._follow(name, topic, range(before, partitions), is_first=is_first)
        topic.is_asked, topic.failures, topic.failing_since = False, 0, None
        topic.due_at = now + (self.config.metadata_max_age_s if topic.is_followed else float("inf"))
        # last: where this is interrupted, it is done again as a whole
        topic.topic_id, topic.partitions = topic_id, partitions
        for each in self.assigned.values():
            self._changed(each)

    def _start_over(self, each: Assigned, old_id: str, new_id: str) -> None:
        """Its topic was deleted and made again: no offset of before means anything now."""
        self._requests.pop(each.asked, None)
        lost = each.fetch_at
        each.go_to(lost)
        if isinstance(each.end, int):
            each.end = When(LATEST)
        self._reset(each, UnknownTopicId(str(each.partition), old_id, new_id))
        each.fetch_at = None  # without a reset the error stays, until a seek
        if each.seeking is not None:
            each.position = None

    def _leave(self, each: Assigned, topic: Topic, partitions: int) -> None:
        """The topic has no such partition."""
        if topic.is_followed:
            self._drop([each.partition])
        else:
            why = f"it has {partitions} partitions, counted from 0"
            each.error = UnknownTopicOrPartition(*each.partition, why)

    def _follow(self, name: str, topic: Topic, numbers: range, *, is_first: bool) -> None:
        """Read the partitions of a topic: the first ones from the start, added ones whole."""
        for partition in (TopicPartition(name, number) for number in numbers):
            if partition in self.assigned:
                continue
            if is_first and not topic.is_new:
                end = None if self._end_of is None else self._end_of(partition)
                self._add(partition, self._start_of(partition), end)
            elif self._end_of is None:
                self._add(partition, When(EARLIEST), None)

    def not_learned(self, name: str, error: Exception, now: float) -> None:
        """A topic's metadata did not come."""
        topic = self._topics.get(name)
        if topic is None:
            return
        self._put_off(topic, error, now)
        if not isinstance(error, UnknownTopicOrPartition):
            return
        mine = [each for each in self.assigned.values() if each.partition.topic == name]
        if self._pattern is not None:
            self._drop([each.partition for each in mine])
            del self._topics[name]  # it may come back
            return
        if not mine:
            self.troubles.append(error)
        for each in mine:
            each.error = error
            self._changed(each)

    def _put_off(self, topic: Topic, error: Exception, now: float) -> None:
        """Ask again in a moment; name what lasts, where nothing is known without an answer."""
        topic.is_asked = False
        topic.due_at = now + self._backoff_s(topic.failures)
        topic.failures += 1
        if topic.failing_since is None:
            topic.failing_since = now
        elif now - topic.failing_since > self.config.request_timeout_s:
            topic.failing_since = now
            if topic.topic_id is None:
                self.troubles.append(error)

    def listed(self, names: Iterable[str], now: float) -> None:
        """The topics that there are."""
        is_first = self._list.topic_id is None
        self._list.is_asked, self._list.failures, self._list.failing_since = False, 0, None
        self._list.due_at, self._list.topic_id = now + self.config.metadata_max_age_s, ""
        if self._pattern is None:
            return
        for name in names:
            if name not in self._topics and self._pattern.search(name):
                self._topics[name] = Topic(is_followed=True, is_new=not is_first)

    def not_listed(self, error: Exception, now: float) -> None:
        self._put_off(self._list, error, now)

    # -- partitions --------------------------------------------------------------------------------

    def _add(self, partition: TopicPartition, start: Start | None, end: Start | None) -> None:
        if start is None:
            start = {"earliest": When(EARLIEST), "latest": When(LATEST)}.get(self.config.reset)
        each = Assigned(partition, start, end, had_end=self._reads_ranges)
        if start is None:
            each.error = NoOffsetForPartition(str(partition))
        self.assigned[partition] = each
        self._changed(each)

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            each = self.assigned.pop(partition, None)
            if each is not None:
                self._requests.pop(each.asked, None)
                self._ready.pop(each, None)
                self._to_ask.pop(each, None)

    def _changed(self, each: Assigned) -> None:
        """Put it where it belongs: to those that are ready, and to those that are to be asked."""
        if self.assigned.get(each.partition) is not each:
            return  # it was left
        if each.is_paused or not (each.chunks or each.error):
            self._ready.pop(each, None)
        else:
            self._ready[each] = None
        if self._may_ask(each):
            self._to_ask[each] = None
        else:
            self._to_ask.pop(each, None)

    @staticmethod
    def _may_ask(each: Assigned) -> bool:
        if each.asked or each.error is not None:
            return False
        if each.seeking is not None or isinstance(each.end, When):
            return True
        if each.is_paused or each.fetch_at is None or each.is_fetched:
            return False
        return len(each.chunks) < MOST_CHUNKS
