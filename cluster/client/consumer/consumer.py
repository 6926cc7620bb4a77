"""The consumer: partitions, a position in each, records or tables out.

What to do next is the machine's business (``machine.py``), asking and decoding the fetcher's
(``fetcher.py``), and who reads what the group's (``group/``). Here is what users call, and the only
place that waits.

Without a ``group.id`` nothing is committed: the position is the consumer's own, to read
(``position``), to keep, and to set (``seek``).
"""

import functools
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from datetime import datetime
from functools import partial
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import pyarrow as pa

from raylog.actors.errors import (
    ConsumerWokenUp,
    InvalidRequest,
    NothingAssigned,
    ReadTimedOut,
    UnknownTopicOrPartition,
)
from raylog.actors.runtime.clusters import check_not_forked
from raylog.cluster.client.added_partitions import hear_of_partitions
from raylog.cluster.client.columns import SCHEMA, to_table
from raylog.cluster.client.connection import GroupConnection
from raylog.cluster.client.consumer.access import Access
from raylog.cluster.client.consumer.asking import Asking
from raylog.cluster.client.consumer.assigned import Assigned
from raylog.cluster.client.consumer.config import ConsumerConfig, without_group
from raylog.cluster.client.consumer.fetcher import Fetcher
from raylog.cluster.client.consumer.group.given import offsets_of
from raylog.cluster.client.consumer.group.group import (
    Group,
    Listener,
    Listeners,
    Offsets,
    committed_start,
)
from raylog.cluster.client.consumer.group.messages import GroupMetadata, OffsetAndMetadata
from raylog.cluster.client.consumer.group.reader import MachineReader
from raylog.cluster.client.consumer.instructions import OffsetAndEpoch, Start, When
from raylog.cluster.client.consumer.iteration import Iteration
from raylog.cluster.client.consumer.machine import Machine
from raylog.cluster.client.consumer.places import (
    Offset,
    Place,
    Places,
    check_places,
    ends,
    offset_of,
    partition_of,
    saved_offset,
    starts,
    timestamp_of,
)
from raylog.cluster.client.consumer.topics import Topics, names_or_pattern
from raylog.cluster.client.consumer.waiter import Waiter
from raylog.storage.errors import InvalidConfig, RaylogError
from raylog.storage.names import TopicPartition
from raylog.storage.readable import EARLIEST, LATEST
from raylog.storage.records.record import ConsumerRecord

logger = logging.getLogger(__name__)

Partition = tuple[str, int]  # a topic and a partition of it: also a TopicPartition
P = ParamSpec("P")
T = TypeVar("T")
POLL_TIMEOUT_MS = 1000


def _exclusive(
    method: "Callable[Concatenate[Consumer, P], T]",
) -> "Callable[Concatenate[Consumer, P], T]":
    """For one thread at a time, of a consumer that is open: see ``access.py``."""

    @functools.wraps(method)
    def call(self: "Consumer", *args: P.args, **kwargs: P.kwargs) -> T:
        return self._access.call(partial(method, self, *args, **kwargs))

    return call  # type: ignore[return-value]


class Consumer:
    """Reads topics, or partitions of them.

    ``from_``: where to begin: "earliest", "latest", a datetime, ms since the epoch, or a dict with
    a place for each (topic, partition), in which an integer is an offset; :meth:`positions` makes
    such a dict. Without it ``auto.offset.reset`` says, which is "latest" unless given. ``to``: None
    to read for ever, or where to stop, in the same words; a partition that a dict leaves out stops
    at its end. ``partitions``: only these of each topic. ``config``: Kafka's keys, see
    ``config.py`` and docs/CLIENTS.md.

    A position whose record has gone, because retention was faster or because the topic was deleted
    and made again, goes on as ``auto.offset.reset`` says: "earliest", "latest", or "none", which
    raises. Without that setting it is "earliest" where ``from_`` is given and is not "latest". Each
    such reset is logged as a warning.

    Partitions that are added to topics later are read from their beginning on, within
    ``metadata.max.age.ms``; not with ``to`` or ``partitions``, or after :meth:`assign`.

    With a ``group.id`` it is a member of a group, which shares the partitions of the topics among
    its members, and begins where the group has committed; ``from_`` and ``auto.offset.reset`` say
    where it begins else. It commits what was handed out every ``auto.commit.interval.ms``, in the
    next poll, before a partition goes to another member, and when it is closed; but not when a
    ``with`` block ends by an error: those records come again. See docs/CLIENTS.md.

    One thread at a time: a second one gets ConsumerBusy. Only :meth:`wakeup` and :meth:`close` are
    for any thread. A consumer is not pickled: make one where it is used, of a broker, which is.
    """

    def __init__(
        self,
        connection: GroupConnection,
        *topics: str,
        from_: Places = None,
        to: Places = None,
        partitions: Iterable[int] | None = None,
        _waiter: Waiter | None = None,
        _reads_ranges: bool = False,
        **config: Any,
    ) -> None:
        """``_reads_ranges``: the ends are in the logs now; else a log may still reach its end."""
        check_not_forked()  # its answers would pass for ones that come later
        self._config = ConsumerConfig.of(config).with_start(from_)
        self._connection, self._given_config = connection, config
        self._waiter = _waiter or Waiter()
        self._is_woken = False
        self._machine = Machine(self._config, reads_ranges=_reads_ranges)
        self._fetcher = Fetcher(connection, self._machine, self._waiter.now, self._waiter.wake)
        self._iteration = Iteration(self._fetcher)
        self._access = Access(self._machine.keep, self._begin_again)
        self._commits_at_close = True
        self._group: Group | None = None
        if self._config.group_id is not None:
            reader = MachineReader(self, self._machine, self._iteration)
            self._group = Group(connection, self._config, self._waiter, reader)
        hear_of_partitions(self)
        if partitions is not None:
            numbers = [offset_of(number, "partitions") for number in partitions]
            self.assign([(topic, n) for topic in topics for n in numbers], from_=from_, to=to)
        elif topics:
            self.subscribe(topics[0] if len(topics) == 1 else topics, from_=from_, to=to)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        self._commits_at_close = error is None
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError(
            "a Consumer cannot be pickled: pass the broker, or an address, and make one there; "
            "positions() and from_=positions carry its places over"
        )

    # -- what is read ------------------------------------------------------------------------------

    @property
    def assignment(self) -> list[TopicPartition]:
        return list(self._machine.assigned)

    @_exclusive
    def assign(
        self, partitions: Iterable[Partition], *, from_: Places = None, to: Places = None
    ) -> None:
        """Read these partitions, in the place of those before."""
        wanted = [partition_of(each) for each in partitions]
        check_places(wanted, from_, to)
        self._give_up()
        self._assign(wanted, from_, to)

    @_exclusive
    def incremental_assign(
        self, partitions: Iterable[Partition], *, from_: Places = None, to: Places = None
    ) -> None:
        """Read these partitions, too; the others go on where they are, also if this raises."""
        wanted = [partition_of(each) for each in partitions]
        check_places(wanted, from_, to)
        self._check_not_member()
        self._iteration.set_aside()
        self._assign(wanted, from_, to)

    @_exclusive
    def incremental_unassign(self, partitions: Iterable[Partition]) -> None:
        """Read these partitions no more."""
        self._check_not_member()
        self._iteration.set_aside()
        self._machine.unassign([self._of(partition).partition for partition in partitions])

    def _check_not_member(self) -> None:
        if self._is_member:
            why = "its group assigns them; pause() them, or make a consumer without group.id"
            raise InvalidRequest("partitions", self._config.group_id, why)

    def _assign(self, wanted: list[TopicPartition], from_: Places, to: Places) -> None:
        start_of, end_of = self._starts(wanted, from_), ends(to)
        given_ends = {each: end for each in wanted if (end := end_of(each)) is not None}
        self._machine.assign({each: start_of(each) for each in wanted}, given_ends)
        try:
            self._settle(wanted)
        except BaseException:
            self._machine.unassign(wanted)
            raise

    def _starts(
        self, wanted: Collection[TopicPartition], from_: Places
    ) -> Callable[[TopicPartition], Start | None]:
        """Where each begins: where the group stands, else as the user says."""
        start_of = starts(from_)
        if self._group is None or not wanted:
            return start_of
        self._group.begin(wanted)
        known = self._committed(self._group, wanted)
        return lambda each: committed_start(known, each) or start_of(each)

    @_exclusive
    def subscribe(
        self,
        topics: Topics,
        *,
        from_: Places = None,
        to: Places = None,
        on_assign: Listener | None = None,
        on_revoke: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        """Read all partitions of these topics, or of those that match, in the place of before.

        ``topics``: a name, several, or a pattern: a compiled one, or a string that begins with ^.
        Partitions that are added to them, and topics that match and are made later, are read from
        their beginning on, within ``metadata.max.age.ms``; not with ``to``.

        With a ``group.id`` the group's members share the partitions. The functions are called
        within a later poll, each with this consumer and the partitions that are added
        (``on_assign``), are given up (``on_revoke``: they may be committed there), or were lost,
        since the group took this member for dead (``on_lost``; without it ``on_revoke`` is called).
        """
        listeners = Listeners(on_assign, on_revoke, on_lost)
        if self._group is not None:
            self._join(self._group, topics, from_, to, listeners)
            return
        if listeners != Listeners():
            raise InvalidRequest("on_assign", topics, "needs a group.id: nobody else assigns")
        names, pattern = names_or_pattern(topics)
        self._iteration.set_aside()
        start_of, end_of = starts(from_), ends(to)
        self._machine.subscribe(names, pattern, start_of, None if to is None else end_of)
        try:
            self._settle(self._machine.assigned)
            check_places(self._machine.assigned, from_, to)
        except BaseException:
            self._machine.unsubscribe()
            raise

    def _join(
        self, group: Group, topics: Topics, from_: Places, to: Places, listeners: Listeners
    ) -> None:
        """Be a member, once the topics are known to be there."""
        if to is not None:
            raise InvalidRequest("to", to, "a group reads for ever; leave it or group.id out")
        self._iteration.set_aside()
        if not group.is_subscribed:
            self._machine.unsubscribe()
        group.subscribe(topics, from_, listeners)
        try:
            self._wait_for(group.knows_topics, wakes_at=group.wakes_at)
        except BaseException:
            self._give_up()
            raise

    @_exclusive
    def unsubscribe(self) -> None:
        """Read nothing. A member commits as when it is closed, and leaves its group."""
        self._give_up()

    def _give_up(self) -> None:
        self._iteration.set_aside()
        try:
            if self._group is not None:
                self._group.leave(commits=True)
        finally:
            self._machine.unsubscribe()

    @property
    def _is_member(self) -> bool:
        return self._group is not None and self._group.is_subscribed

    def _settle(self, partitions: Collection[TopicPartition]) -> None:
        """Wait until the partitions and their positions are known; raise if one is not there."""
        self._wait_for(lambda: self._machine.is_settled or bool(self._machine.troubles))
        if self._machine.troubles:
            raise self._machine.troubles.pop()
        for each in self._machine.assigned.values():
            if each.partition in partitions and isinstance(each.error, UnknownTopicOrPartition):
                raise each.error

    # -- positions ---------------------------------------------------------------------------------

    @_exclusive
    def position(self, topic: str, partition: int) -> int:
        """The offset behind the record that was handed out last: where to go on after a crash."""
        return self._position(self._of((topic, partition)))

    @_exclusive
    def positions(self) -> dict[TopicPartition, OffsetAndEpoch]:
        """All positions, each with a leader epoch: to be kept, and given back as ``from_``.

        By the epoch a log that has lost records before a position is known by it (KIP-320), also
        when it has grown again. They can be pickled; in JSON a place is a list of two integers,
        which ``from_`` and :meth:`seek` take.
        """
        return {
            partition: OffsetAndEpoch(self._position(each), each.fetched_epoch)
            for partition, each in list(self._machine.assigned.items())
        }

    def _position(self, each: Assigned) -> int:
        if (yielded := self._iteration.position(each)) is not None:
            return yielded
        self._wait_for(lambda: each.position is not None or each.error is not None)
        if each.position is None:
            raise self._machine.take_error(each)
        return each.position

    @_exclusive
    def seek(self, topic: str, partition: int, offset: Offset) -> None:
        """Go on at ``offset``. What was fetched of the partition is forgotten.

        Where the log does not have it, ``auto.offset.reset`` says what the next poll does.
        ``offset``: also with its leader epoch, as :meth:`positions` gives it.
        """
        each = self._of((topic, partition))
        place = saved_offset(offset)
        self._iteration.set_aside()
        self._machine.seek(each.partition, place)

    def seek_to_beginning(self, *partitions: Partition) -> None:
        """Go on at the oldest records of these partitions, or of all."""
        self._seek_all(partitions, When(EARLIEST))

    def seek_to_end(self, *partitions: Partition) -> None:
        """Go on behind the newest records of these partitions, or of all."""
        self._seek_all(partitions, When(LATEST))

    def seek_to_time(self, timestamp: int | datetime) -> None:
        """Go on, in every partition, at the first record at or after ``timestamp``.

        At the end of a partition that has none.
        """
        self._seek_all((), When(timestamp_of(timestamp, "timestamp")))

    @_exclusive
    def seek_to_committed(self, *partitions: Partition) -> None:
        """Go on where the group stands in these partitions, or in all: what was read since then
        is read again, as after a transaction that was aborted.

        Where it has committed nothing: where this consumer began, or was sent by a seek. Raises
        RequestTimedOut after ``default.api.timeout.ms``.
        """
        group = self._of_group("seek_to_committed")
        chosen = [self._of(each).partition for each in partitions] or self.assignment
        known = self._committed(group, chosen) if chosen else {}
        group.forget_stored(chosen)
        self._iteration.set_aside()
        for partition in chosen:
            each = self._machine.assigned.get(partition)
            if each is None:  # it was taken away meanwhile
                continue
            place = committed_start(known, partition) or each.began_at
            if place is not None:  # else nothing of it was read
                self._machine.seek(partition, place)

    @_exclusive
    def _seek_all(self, partitions: Collection[Partition], place: When) -> None:
        chosen = [self._of(each).partition for each in partitions] or self.assignment
        self._iteration.set_aside()
        for partition in chosen:
            self._machine.seek(partition, place)

    @_exclusive
    def pause(self, *partitions: Partition) -> None:
        """Hand out nothing of these partitions until :meth:`resume`; they keep their places."""
        chosen = [self._of(each).partition for each in partitions]
        self._iteration.set_aside()
        for partition in chosen:
            self._machine.pause(partition)

    @_exclusive
    def resume(self, *partitions: Partition) -> None:
        """Hand out these partitions' records again; without any: of all that are paused."""
        for partition in [self._of(each).partition for each in partitions] or self.paused:
            self._machine.resume(partition)

    @property
    def paused(self) -> list[TopicPartition]:
        return [each.partition for each in self._machine.assigned.values() if each.is_paused]

    @_exclusive
    def lag(self, topic: str, partition: int) -> int | None:
        """How many offsets are behind the position, by the last fetch; None before the first.

        For a reader of committed records: up to the first transaction that is open.
        """
        each = self._of((topic, partition))
        if each.readable_end < 0 or each.position is None:
            return None
        return max(each.readable_end - self.position(topic, partition), 0)

    def _of(self, partition: Partition) -> Assigned:
        wanted = partition_of(partition)
        try:
            return self._machine.assigned[wanted]
        except KeyError:
            raise UnknownTopicOrPartition(*wanted, "it is not assigned to this consumer") from None

    # -- records -----------------------------------------------------------------------------------

    @property
    def is_at_end(self) -> bool:
        """Whether everything up to ``to`` was handed out."""
        if self._iteration.has_records or self._is_member:
            return False
        return all(each.is_at_end for each in self._machine.assigned.values())

    @_exclusive
    def poll(
        self, timeout_ms: int = POLL_TIMEOUT_MS, max_records: int | None = None
    ) -> list[ConsumerRecord]:
        """The next records, of one or more partitions; none if none comes in time.

        At most ``max_records``, by default ``max.poll.records``, of at most ``max.poll.bytes``; the
        rest comes with the next poll. A partition that is away is asked again while the others go
        on; after ``request.timeout.ms`` without it this raises why. After an error no position has
        moved, and the next poll goes on there.
        """
        most = at_most("max_records", max_records, self._config.max_poll_records)
        self._iteration.set_aside()
        polled: list[ConsumerRecord] = []
        self._wait_for(lambda: self._poll(polled, most), timeout_ms / 1000, is_poll=True)
        return polled

    def _poll(self, polled: list[ConsumerRecord], most: int) -> bool:
        """Whether there is something to return."""
        left_bytes = self._config.max_poll_bytes
        while len(polled) < most and left_bytes > 0:
            take = partial(self._fetcher.take_rows, most - len(polled), left_bytes)
            taken = self._next(bool(polled), take)
            if taken is None:
                break
            polled += taken.rows
            left_bytes -= taken.size_bytes
            self._machine.note(taken.each)
            self._fetcher.hand_out(taken)
        return bool(polled) or self._is_finished()

    def _next(self, has_some: bool, take: Callable[[], T | None]) -> T | None:
        """The next records; None where there are none now.

        An error waits for the next poll where this one has some to return: they are not taken
        again.
        """
        if has_some and not self._fetcher.has_records:
            return None
        try:
            return take()
        except RaylogError:
            if has_some:
                return None  # it is fetched again, and found again
            raise

    def poll_one(self, timeout_ms: int = POLL_TIMEOUT_MS) -> ConsumerRecord | None:
        """The next record; None if none comes in time."""
        polled = self.poll(timeout_ms, 1)
        return polled[0] if polled else None

    @_exclusive
    def poll_arrow(
        self, timeout_ms: int = POLL_TIMEOUT_MS, max_bytes: int | None = None
    ) -> pa.Table:
        """As ``poll``, as a table of at most ``max_bytes``, by default ``max.poll.bytes``.

        Its columns are key, value, topic, partition, offset, timestamp, timestampType, headers. It
        is a part of what is there: ``read_table`` reads a whole range.
        """
        most = at_most("max_bytes", max_bytes, self._config.max_poll_bytes)
        self._iteration.set_aside()
        batches: list[pa.RecordBatch] = []
        self._wait_for(lambda: self._poll_arrow(batches, most), timeout_ms / 1000, is_poll=True)
        return pa.Table.from_batches(batches, schema=SCHEMA)

    def _poll_arrow(self, batches: list[pa.RecordBatch], left_bytes: int) -> bool:
        while left_bytes > 0:
            taken = self._next(bool(batches), partial(self._fetcher.take_table, left_bytes))
            if taken is None:
                break
            each, batch = taken
            batches.append(to_table(batch, *each.partition))
            left_bytes -= batch.nbytes
        return bool(batches) or self._is_finished()

    @_exclusive
    def next_batch(self, max_bytes: int, timeout_s: float | None = None) -> pa.RecordBatch | None:
        """As ``poll_arrow``, of one partition, as ``decode_table`` makes it.

        None at the end, or where nothing came in ``timeout_s``; without it this waits for ever.
        """
        self._iteration.set_aside()
        batch: pa.RecordBatch | None = None

        def take() -> bool:
            nonlocal batch
            taken = self._fetcher.take_table(max_bytes)
            if taken is not None:
                batch = taken[1]
            return taken is not None or self._is_finished()

        self._wait_for(take, timeout_s, is_poll=True)
        return batch

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Record by record, until the end if ``to`` is given, else for ever.

        The position is behind the record that was yielded last.
        """
        while True:
            yield from self._iteration.rest()
            if not self._take_more():
                return

    @_exclusive
    def _take_more(self) -> bool:
        """Records for an iteration, which has yielded those before; False at the end."""
        if self._iteration.is_untouched:
            return self._iteration.begin()
        self._iteration.hand_out()
        self._wait_for(partial(self._take_some, self._config.max_poll_records), is_poll=True)
        return self._iteration.begin()

    def _take_some(self, most: int) -> bool:
        """Take records of one partition out; they are handed out later."""
        return self._iteration.take(most, self._config.max_poll_bytes) or self._is_finished()

    def _begin_again(self) -> None:
        """A call was interrupted, at any line: positions stay where the user knows them.

        What the call has taken out comes again, and what was on its way is asked for again.
        """
        self._iteration.set_aside()
        self._fetcher.begin_again()
        if self._group is not None:
            self._group.begin_again()

    def _is_finished(self) -> bool:
        """Whether no record can come any more."""
        return not self._machine.is_growing and not self._is_member and self.is_at_end

    def read_table(
        self,
        topic: str,
        from_: Places = "earliest",
        to: Places = "latest",
        partitions: Iterable[int] | None = None,
    ) -> pa.Table:
        """A range of a topic at once, whole, whatever this consumer reads else.

        Ordered by offset within each partition. All of it is in memory: for more, ``poll_arrow``.
        What is not there yet, or is part of an open transaction where ``isolation.level`` is
        read_committed, is waited for; the log says so.
        """
        if to is None:
            raise InvalidRequest("to", to, "must say where the table ends")
        with Consumer(
            self._connection,
            topic,
            from_=from_,
            to=to,
            partitions=partitions,
            _waiter=self._waiter.another(),
            _reads_ranges=True,
            **without_group(self._given_config),
        ) as reader:
            tables: list[pa.Table] = []
            is_told = False
            while not reader.is_at_end:
                tables.append(reader.poll_arrow())
                if not is_told and not tables[-1].num_rows:
                    is_told = reader._tell_what_is_waited_for()
            return pa.concat_tables(tables) if tables else SCHEMA.empty_table()

    def _tell_what_is_waited_for(self) -> bool:
        """Log which partitions have nothing to read before their end; whether there is one."""
        waiting = [
            each
            for each in self._machine.assigned.values()
            if each.position is not None and each.position == each.readable_end
            if not each.is_at_end
        ]
        for each in waiting:
            logger.warning(
                "%s: the read waits at offset %d for what comes before %s: nothing is written "
                "there yet, or a transaction is open (`raylog txn list --state ongoing`)",
                each.partition,
                each.position,
                each.end,
            )
        return bool(waiting)

    # -- what the group has read -------------------------------------------------------------------

    @_exclusive
    def commit(self, offsets: Offsets = None) -> dict[TopicPartition, OffsetAndMetadata]:
        """Commit, and wait for it: where this consumer stands, or ``offsets``.

        ``offsets``: records, each of which stands for the place behind it, or a dict with a place
        for each (topic, partition): an offset, a pair of an offset and a leader epoch, or an
        OffsetAndMetadata. Returns what was committed. Where the consumer is in a loop over its
        records, it stands behind the one that was yielded last.

        Raises CommitFailed where others have the partitions by now, RebalanceInProgress (poll, and
        commit again), RequestTimedOut after ``default.api.timeout.ms``.
        """
        group = self._of_group("commit")
        commit = group.repeated_commit(self._to_commit(group, offsets))
        self._wait_for(commit.has_ended, wakes_at=commit.wakes_at)
        committed = commit.result()
        group.note(committed)
        return committed

    @_exclusive
    def commit_async(
        self, offsets: Offsets = None
    ) -> "Future[dict[TopicPartition, OffsetAndMetadata]]":
        """As ``commit``, without waiting, and sent once: the future has the error, if any.

        Commits that are sent one after the other take effect in this order.
        """
        group = self._of_group("commit_async")
        return group.commit_once(self._to_commit(group, offsets))

    @_exclusive
    def committed(
        self, partitions: Iterable[Partition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Where the group stands in these partitions, or in all that this consumer reads.

        None where it has committed nothing.
        """
        group = self._of_group("committed")
        chosen = self.assignment if partitions is None else map(partition_of, partitions)
        wanted = list(dict.fromkeys(chosen))
        known = self._committed(group, wanted) if wanted else {}
        return {each: known.get(each) for each in wanted}

    def _committed(
        self, group: Group, wanted: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        asked = group.ask_committed(wanted)
        self._wait_for(asked.has_ended, wakes_at=asked.wakes_at)
        return asked.result()

    @_exclusive
    def store_offsets(self, offsets: Offsets) -> None:
        """Have the next commit without offsets, also the one by itself, commit these.

        With ``enable.auto.offset.store=False``: nothing else is committed then. ``offsets``: as of
        :meth:`commit`, of partitions that this consumer reads.
        """
        group = self._of_group("store_offsets")
        if self._config.enable_auto_offset_store:
            why = "must be False: else what is handed out is stored"
            raise InvalidConfig("enable.auto.offset.store", True, why)
        wanted = offsets_of(offsets or {})
        group.store({self._of(partition).partition: at for partition, at in wanted.items()})

    @_exclusive
    def group_metadata(self) -> GroupMetadata:
        """Who this consumer is in its group: for ``send_offsets_to_transaction``.

        Of a consumer that was expelled it is who it was, until a poll joins again. So what it read
        before cannot be committed, by which others read it twice.
        """
        return self._of_group("group_metadata").metadata

    def _to_commit(self, group: Group, offsets: Offsets) -> Mapping[TopicPartition, Any]:
        return group.to_commit() if offsets is None else offsets_of(offsets)

    def _of_group(self, what: str) -> Group:
        if self._group is None:
            raise InvalidRequest(what, None, "needs a group: make the consumer with a group.id")
        return self._group

    # -- questions ---------------------------------------------------------------------------------

    @_exclusive
    def offsets_for_times(
        self, times: Mapping[Partition, int | datetime]
    ) -> dict[TopicPartition, int | None]:
        """The offset of the first record at or after each time; None where there is none."""
        wanted = {
            partition_of(partition): timestamp_of(when, "times")
            for partition, when in times.items()
        }
        return {each: None if at < 0 else at for each, at in self._ask(wanted).items()}

    def beginning_offsets(self, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        """The first offset that each partition has."""
        return self._edges(partitions, EARLIEST)

    def end_offsets(self, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        """The offset that each partition's next record gets."""
        return self._edges(partitions, LATEST)

    @_exclusive
    def _edges(self, partitions: Iterable[Partition], edge: int) -> dict[TopicPartition, int]:
        return self._ask({partition_of(each): edge for each in partitions})

    def _ask(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        asking = Asking(self._connection, wanted, self._config, self._waiter)
        self._wait_for(asking.has_ended, wakes_at=asking.wakes_at)
        return asking.offsets()

    # -- waiting -----------------------------------------------------------------------------------

    def _wait_for(
        self,
        is_there: Callable[[], bool],
        timeout_s: float | None = None,
        *,
        is_poll: bool = False,
        wakes_at: Callable[[], float] = lambda: float("inf"),
    ) -> None:
        for seconds in self.waits(is_there, timeout_s, is_poll=is_poll, wakes_at=wakes_at):
            self._waiter.wait(seconds)

    def waits(
        self,
        is_there: Callable[[], bool],
        timeout_s: float | None = None,
        *,
        is_poll: bool = False,
        wakes_at: Callable[[], float] = lambda: float("inf"),
    ) -> Iterator[float]:
        """Carry on until ``is_there()``; yields how long to wait, unless something ends before.

        ``timeout_s``: return then; without it, but for an iteration's wait, raise ReadTimedOut
        after ``default.api.timeout.ms``. ``is_poll``: it needs something to read.
        """
        limit_s = self._config.default_api_timeout_ms / 1000
        if is_poll:
            self._check_assigned()
            limit_s = float("inf") if timeout_s is None else timeout_s
        deadline = self._waiter.now() + limit_s
        while True:
            may_read = self._group.advance() if is_poll and self._group is not None else True
            self._fetcher.advance()
            if may_read and is_there():
                self._fetcher.advance()  # the next fetches are on their way while the user works
                self._tell_resets()
                return
            self._tell_resets()
            self._access.check_open()
            if self._is_woken:
                self._is_woken = False
                raise ConsumerWokenUp()
            now = self._waiter.now()
            if now >= deadline:
                break
            yield max(min(deadline, self._wakes_at(is_poll), wakes_at()) - now, 0)
        if not is_poll:
            raise ReadTimedOut("the consumer's positions", int(limit_s * 1000))

    def _wakes_at(self, is_poll: bool) -> float:
        if is_poll and self._group is not None:
            return min(self._machine.wakes_at(), self._group.wakes_at())
        return self._machine.wakes_at()

    def _check_assigned(self) -> None:
        is_subscribed = self._machine.is_subscribed or self._is_member
        if not self._machine.assigned and not is_subscribed:
            raise NothingAssigned()

    def _tell_resets(self) -> None:
        who = f"consumer {self._config.client_id}: " if self._config.client_id else ""
        for reset in self._machine.resets:
            logger.warning("%s%s", who, reset)
        self._machine.resets.clear()

    def wakeup(self) -> None:
        """Have this wait, or the next one, raise ConsumerWokenUp. For any thread."""
        self._is_woken = True
        self._waiter.wake()

    def close(self) -> None:
        """Forget everything; what is called afterwards raises ConsumerClosed. Twice is once.

        A member commits what was handed out, if it commits by itself, and leaves its group: it
        waits for that 15 seconds at most. For any thread: a call of another one that waits ends
        with ConsumerClosed.
        """
        self._access.close(self._waiter.wake, self._forget)

    def _forget(self) -> None:
        commits, self._commits_at_close = self._commits_at_close, False
        self._iteration.set_aside()
        try:
            if self._group is not None:
                self._group.leave(commits=commits)
        finally:
            self._machine.unsubscribe()
            self._fetcher.give_up()

    def tell(self, namespace: str, topic: str, partitions: int) -> None:
        """Somebody in this process has added partitions; called in any thread."""
        if namespace == getattr(self._connection, "namespace", None):
            self._machine.refresh(topic)
            if self._group is not None:
                self._group.refresh(topic)
            self._waiter.wake()


def at_most(argument: str, wanted: int | None, default: int) -> int:
    """A bound that a user gives. Raises InvalidRequest."""
    if wanted is None:
        return default
    if wanted < 1:
        raise InvalidRequest(argument, wanted, "must be 1 or more")
    return wanted


__all__ = ["Consumer", "ConsumerRecord", "OffsetAndMetadata", "Place", "Places"]
