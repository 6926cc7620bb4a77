"""The consumer's machine against a log that answers at random.

Whatever the order of answers, errors, seeks, pauses, interrupts, retention and losses of the log's
end: from the position on every record is handed out once, in order, and none is skipped but by a
reset. A record that took the place of one that was handed out is handed out, too.
"""

from collections import deque
from random import Random
from typing import Any

import pytest

from raylog.actors.errors import NotLeader, TooManyPolls
from raylog.cluster.client.consumer.config import ConsumerConfig
from raylog.cluster.client.consumer.instructions import (
    Fetch,
    Forget,
    Learn,
    LookUp,
    Reset,
    When,
)
from raylog.cluster.client.consumer.machine import Machine
from raylog.storage.errors import LogTruncation, OffsetOutOfRange, SegmentDeleted
from raylog.storage.names import TopicPartition
from raylog.storage.readable import EARLIEST, LATEST
from raylog.storage.state.epochs import EpochEnd

PARTITIONS = [TopicPartition("t", number) for number in range(3)]


class Chunk:
    def __init__(self, offsets: list[int], epochs: list[int] | None = None) -> None:
        self.offsets, self.epochs = deque(offsets), deque(epochs or [0] * len(offsets))
        self.size_bytes = len(offsets)


class World:
    """A machine, three logs, and what a user sees."""

    def __init__(self, seed: int, policy: str) -> None:
        self.random = Random(seed)
        self.policy = policy
        # where each partition goes on after each of its resets, until that is seen
        self.resets: dict[TopicPartition, list[int]] = {each: [] for each in PARTITIONS}
        self.has_faults = True
        self.now = 0.0
        self.machine = Machine(ConsumerConfig(auto_offset_reset=policy), self.random)
        self.starts = dict.fromkeys(PARTITIONS, 0)
        self.ends = dict.fromkeys(PARTITIONS, 5)
        self.epoch = 0  # that appends
        # the leader epoch of each record, by offset
        self.epochs: dict[TopicPartition, list[int]] = {each: [0] * 5 for each in PARTITIONS}
        # what the user has, since he chose a place: the leader epoch of each record, by offset
        self.has: dict[TopicPartition, dict[int, int]] = {each: {} for each in PARTITIONS}
        self.expected: dict[TopicPartition, int | None] = dict.fromkeys(PARTITIONS, 0)
        self.requests: list[Any] = []
        self.seen: dict[TopicPartition, list[int]] = {each: [] for each in PARTITIONS}
        self.machine.assign(dict.fromkeys(PARTITIONS, 0))

    def step(self) -> None:
        self.random.choice(
            [
                *[self.ask, self.take] * 2,
                *[self.answer] * 3,
                *[self.append, self.retain, self.seek, self.pause, self.wait, self.interrupt],
                self.truncated,
            ]
        )()

    def ask(self) -> None:
        made = self.machine.instructions(self.now)
        self.requests += [each for each in made if not isinstance(each, Forget)]
        wanted = [each for each in self.requests if isinstance(each, Fetch | LookUp)]
        on_their_way = [each.partition for each in wanted if self.machine.is_wanted(each.number)]
        assert len(on_their_way) == len(set(on_their_way)), "one request a partition"

    def answer(self) -> None:
        if not self.requests:
            return
        at = self.random.randrange(len(self.requests))
        request = self.requests.pop(at)
        if isinstance(request, Learn):
            self.machine.learned("t", "id", len(PARTITIONS), self.now)
        elif self.has_faults and self.random.random() < 0.25:
            error = self.random.choice(
                [NotLeader("t", "away"), TooManyPolls("t", 1), SegmentDeleted("/t")]
            )
            self.machine.failed(request.number, error, self.now)
        elif isinstance(request, LookUp):
            edges = {EARLIEST: self.starts, LATEST: self.ends}
            offset = edges[request.timestamp][request.partition]
            self.reset(request, offset)
            epochs = self.epochs[request.partition]
            epoch = epochs[offset] if offset < len(epochs) else self.epoch
            self.machine.looked_up(request.number, offset, epoch)
        else:
            self.fetch(request)

    def fetch(self, request: Fetch) -> None:
        start, end = self.starts[request.partition], self.ends[request.partition]
        common = self.common(request, end)
        if request.offset >= start and common is not None:
            told = len(self.machine.resets)
            self.machine.diverged(request.number, common, start, end, self.epoch)
            if len(self.machine.resets) > told:
                self.resets[request.partition].append(common.offset)
        elif not start <= request.offset <= end:
            error = OffsetOutOfRange(str(request.partition), request.offset, start, end)
            self.machine.failed(request.number, error, self.now)
        elif request.offset == end:
            self.machine.found_nothing(request.number, end)
        else:
            behind = self.random.randint(request.offset + 1, end)
            epochs = self.epochs[request.partition][request.offset : behind]
            chunk = Chunk(list(range(request.offset, behind)), epochs)
            self.machine.fetched(request.number, chunk, behind, epochs[-1], end)

    def common(self, request: Fetch, end: int) -> EpochEnd | None:
        """Where the log parts from what was fetched; None if it does not."""
        epochs, last = self.epochs[request.partition], request.last_fetched_epoch
        if last < 0:
            return None
        common_end = next((at for at, epoch in enumerate(epochs) if epoch > last), end)
        not_newer = [epoch for epoch in [*epochs, self.epoch] if epoch <= last]
        common = EpochEnd(max(not_newer, default=last), common_end)
        return common if common.epoch < last or common.offset < request.offset else None

    def reset(self, request: LookUp, offset: int) -> None:
        """The user is told where the partition goes on."""
        if self.machine.is_wanted(request.number):
            self.resets[request.partition].append(offset)

    def take(self) -> None:
        """As the shell hands out: one record, or all of a chunk."""
        each = self.machine.next_ready()
        if each is None:
            return
        assert not each.is_paused
        if not each.chunks:
            error = self.machine.take_error(each)
            assert isinstance(error, OffsetOutOfRange)
            assert self.policy == "none"
            if isinstance(error, LogTruncation):
                self.go_back(each.partition, error.diverging_offset)
            else:
                self.jump(each.partition, self.starts[each.partition])
            return
        chunk = each.chunks[0]
        assert isinstance(chunk, Chunk)
        partition = each.partition
        expected, seen = self.expected[partition], list(self.seen[partition])
        resets, has = list(self.resets[partition]), dict(self.has[partition])
        self.machine.note(each)
        self.random.choice([self.take_one, self.take_all])(each, chunk)
        if self.random.random() < 0.9:
            self.machine.keep()
            return
        # the call was interrupted, or cancelled: nobody got them
        self.expected[partition], self.seen[partition] = expected, seen
        self.resets[partition], self.has[partition] = resets, has
        self.random.choice([self.machine.take_back, self.machine.begin_again])()

    def interrupt(self) -> None:
        """A call that hands nothing out was interrupted; answers to its requests still come."""
        if self.random.random() < 0.2:
            self.machine.begin_again()

    def take_one(self, each: Any, chunk: Chunk) -> None:
        self.see(each.partition, chunk)
        next_offset = self.seen[each.partition][-1] + 1
        self.machine.handed_out(each, next_offset, is_done=not chunk.offsets)

    def take_all(self, each: Any, chunk: Chunk) -> None:
        while chunk.offsets:
            self.see(each.partition, chunk)
        self.machine.handed_out(each, self.seen[each.partition][-1] + 1, is_done=True)

    def see(self, partition: TopicPartition, chunk: Chunk) -> None:
        offset, expected = chunk.offsets.popleft(), self.expected[partition]
        while offset != expected and self.resets[partition]:
            expected = self.resets[partition].pop(0)
        assert offset == expected, f"{partition}: {offset} instead of {expected}"
        self.expected[partition] = offset + 1
        self.seen[partition].append(offset)
        self.has[partition][offset] = chunk.epochs.popleft()

    def jump(self, partition: TopicPartition, offset: int) -> None:
        """The user chooses another place."""
        self.has[partition].clear()
        self.go_back(partition, offset)

    def go_back(self, partition: TopicPartition, offset: int) -> None:
        self.machine.seek(partition, offset)
        self.expected[partition] = offset
        self.resets[partition].clear()

    def append(self) -> None:
        partition = self.random.choice(PARTITIONS)
        count = self.random.randint(1, 5)
        self.ends[partition] += count
        self.epochs[partition] += [self.epoch] * count

    def truncated(self) -> None:
        """A log lost its end, if that was not flushed, and is opened again."""
        partition = self.random.choice(PARTITIONS)
        self.epoch += 1
        if self.random.random() < 0.5:
            start, end = self.starts[partition], self.ends[partition]
            self.ends[partition] = self.random.randint(max(start, end - 8), end)
            del self.epochs[partition][self.ends[partition] :]

    def retain(self) -> None:
        partition = self.random.choice(PARTITIONS)
        self.starts[partition] = self.random.randint(self.starts[partition], self.ends[partition])

    def seek(self) -> None:
        if self.random.random() < 0.3:
            partition = self.random.choice(PARTITIONS)
            self.jump(partition, self.random.randint(0, self.ends[partition]))

    def pause(self) -> None:
        partition = self.random.choice(PARTITIONS)
        self.random.choice([self.machine.pause, self.machine.resume])(partition)

    def wait(self) -> None:
        self.now += self.random.random()

    def finish(self) -> None:
        """With nothing in the way, everything comes."""
        self.has_faults = False
        for partition in PARTITIONS:
            self.machine.resume(partition)
        for _ in range(3000):
            self.now += 2
            self.ask()
            self.answer()
            self.take()
            if all(self.is_complete(partition) for partition in PARTITIONS):
                return
        raise AssertionError("a partition has come to a stop")

    def is_complete(self, partition: TopicPartition) -> bool:
        """Whether the user has what the log has, as far as it goes back."""
        start, end = self.starts[partition], self.ends[partition]
        has = [self.has[partition].get(offset) for offset in range(start, end)]
        pairs = zip(has, self.epochs[partition][start:end], strict=True)
        is_same = all(mine is None or mine == its for mine, its in pairs)
        return is_same and self.machine.assigned[partition].position == end


@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
def test_every_record_is_handed_out_once_in_order(policy: str) -> None:
    for seed in range(150):
        world = World(seed, policy)
        try:
            for _ in range(300):
                world.step()
            world.finish()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_at_most_two_answers_are_kept() -> None:
    machine = Machine(ConsumerConfig())
    machine.assign({PARTITIONS[0]: 0})
    machine.instructions(0)
    machine.learned("t", "id", 1, 0)
    for number in (0, 1):
        (fetch,) = machine.instructions(0)
        assert isinstance(fetch, Fetch)
        machine.fetched(fetch.number, Chunk([number]), number + 1, 0, 9)
    assert machine.instructions(0) == []
    each = machine.next_ready()
    assert each is not None
    machine.handed_out(each, 1, is_done=True)
    (fetch,) = machine.instructions(0)
    assert isinstance(fetch, Fetch)
    assert fetch.offset == 2


def test_it_wakes_when_a_backoff_is_over_and_backs_off_longer_each_time() -> None:
    machine = Machine(ConsumerConfig(), Random(1))
    machine.assign({PARTITIONS[0]: 0})
    machine.instructions(0)
    machine.learned("t", "id", 1, 0)
    now, waits = 0.0, []
    for _ in range(7):
        (fetch,) = [made for made in machine.instructions(now) if not isinstance(made, Forget)]
        assert isinstance(fetch, Fetch)
        machine.failed(fetch.number, NotLeader("t-0", "away"), now)
        waits.append(machine.wakes_at() - now)
        assert [m for m in machine.instructions(now) if not isinstance(m, Forget)] == []
        now = machine.wakes_at()
    for wait, nominal in zip(waits, [0.1, 0.2, 0.4, 0.8, 1, 1, 1], strict=True):
        assert 0.8 * nominal <= wait <= 1.2 * nominal


def test_a_time_behind_the_last_record_is_the_end() -> None:
    machine = Machine(ConsumerConfig())
    machine.assign({PARTITIONS[0]: When(10**15)})
    machine.instructions(0)
    machine.learned("t", "id", 1, 0)
    (first,) = machine.instructions(0)
    assert isinstance(first, LookUp)
    machine.looked_up(first.number, -1)
    (second,) = machine.instructions(0)
    assert isinstance(second, LookUp)
    assert second.timestamp == LATEST
    machine.looked_up(second.number, 7)
    assert machine.assigned[PARTITIONS[0]].position == 7


def reading(policy: str) -> Machine:
    """A machine that reads one partition from 0 on."""
    machine = Machine(ConsumerConfig(auto_offset_reset=policy))
    machine.assign({PARTITIONS[0]: 0})
    machine.instructions(0)
    machine.learned("t", "id", 1, 0)
    return machine


def asked(machine: Machine) -> Fetch:
    (fetch,) = machine.instructions(0)
    assert isinstance(fetch, Fetch)
    return fetch


def read_up_to(machine: Machine, end: int, epoch: int) -> None:
    """One answer is fetched, and handed out."""
    machine.fetched(asked(machine).number, Chunk([end - 1]), end, epoch, end)
    each = machine.next_ready()
    assert each is not None
    machine.handed_out(each, end, is_done=True)


@pytest.mark.parametrize("policy", ["earliest", "latest"])
def test_a_log_that_lost_its_end_is_read_from_there(policy: str) -> None:
    machine = reading(policy)
    read_up_to(machine, 10, epoch=3)
    fetch = asked(machine)
    assert (fetch.offset, fetch.last_fetched_epoch) == (10, 3)
    machine.diverged(fetch.number, EpochEnd(2, 6), 0, 14, 9)
    (reset,) = machine.resets
    assert isinstance(reset, Reset)
    assert (reset.offset, reset.place) == (10, "offset 6")
    assert isinstance(reset.why, LogTruncation)
    fetch = asked(machine)
    assert (fetch.offset, fetch.last_fetched_epoch) == (6, 2)
    assert machine.assigned[PARTITIONS[0]].position == 6


def test_without_a_reset_a_lost_end_is_an_error_and_the_position_stays() -> None:
    machine = reading("none")
    read_up_to(machine, 10, epoch=3)
    machine.diverged(asked(machine).number, EpochEnd(2, 6), 0, 14, 9)
    assert machine.instructions(0) == []
    each = machine.next_ready()
    assert each is not None
    assert machine.take_error(each).args == ("t-0", 10, 0, 14, 6)
    fetch = asked(machine)
    assert (fetch.offset, fetch.last_fetched_epoch) == (10, 3), "it is found again"
    assert machine.resets == []
    machine.seek(PARTITIONS[0], 6)
    fetch = asked(machine)
    assert (fetch.offset, fetch.last_fetched_epoch) == (6, -1)


@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
def test_what_was_fetched_is_fetched_anew_where_the_log_lost_its_end(policy: str) -> None:
    machine = reading(policy)
    read_up_to(machine, 5, epoch=3)
    machine.fetched(asked(machine).number, Chunk([9]), 10, 4, 10)
    fetch = asked(machine)
    assert (fetch.offset, fetch.last_fetched_epoch) == (10, 4)
    machine.diverged(fetch.number, EpochEnd(3, 6), 0, 14, 9)
    assert machine.next_ready() is None
    fetch = asked(machine)
    assert (fetch.offset, fetch.last_fetched_epoch) == (5, 4)
    machine.diverged(fetch.number, EpochEnd(3, 6), 0, 14, 9)
    fetch = asked(machine)
    assert (fetch.offset, fetch.last_fetched_epoch) == (5, 3)
    assert machine.resets == [], "what was handed out is there"


def test_what_comes_again_is_asked_for_with_its_epoch() -> None:
    machine = reading("earliest")
    machine.fetched(asked(machine).number, Chunk([9]), 10, 4, 10)
    each = machine.next_ready()
    assert each is not None
    machine.note(each)
    machine.handed_out(each, 10, is_done=True)
    machine.diverged(asked(machine).number, EpochEnd(2, 6), 0, 14, 9)
    machine.take_back()
    fetch = asked(machine)
    assert (fetch.offset, fetch.last_fetched_epoch) == (0, 4)
    machine.fetched(fetch.number, Chunk([9]), 10, 5, 10)
    machine.fetch_again(each)
    fetch = asked(machine)
    assert (fetch.offset, fetch.last_fetched_epoch) == (0, 5)
