"""The shell of the coordinator of groups, over a partition in memory."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Literal

import pytest

from raylog.actors.coordinators import group_coordinator
from raylog.actors.coordinators.coordinator_log import PartitionLog, ReadBatch
from raylog.actors.coordinators.group_config import GroupConfig
from raylog.actors.coordinators.group_coordinator import (
    CoordinatorLog,
    GroupCoordinator,
)
from raylog.actors.coordinators.group_messages import (
    CommitAnswer,
    CommitRequest,
    FetchOffsetsAnswer,
    FetchOffsetsRequest,
    JoinAnswer,
    ListGroupsAnswer,
    ListGroupsRequest,
    OffsetToCommit,
    SyncAnswer,
    SyncRequest,
)
from raylog.actors.coordinators.group_records import offset_key
from raylog.actors.coordinators.log_record import LogRecord, Producer
from raylog.actors.coordinators.refusals import NotServed
from raylog.actors.metrics import Exporter, Metric
from raylog.actors.partition.partition import Partition
from raylog.actors.partition.transaction_end import TransactionEnd
from raylog.storage.clock import SteadyClock
from raylog.storage.errors import CorruptRecord, DiskFull, RaylogError, StorageError
from raylog.storage.records.record import Record
from raylog.storage.testing.logs import Disk
from raylog.storage.testing.waiting import wait_for
from tests.harness.coordinating import GROUP, Client
from tests.unit.actors.coordinators.test_committing import FIRST, NOBODY, SECOND

QUICK = GroupConfig(initial_rebalance_delay_ms=0)


class Place:
    """Where a request waits; ``leave`` is its peer's end."""

    def __init__(self) -> None:
        self._bell = threading.Event()
        self._has_gone = False
        self.waits = threading.Event()

    def prepare(self) -> None:
        self._bell.clear()

    def wake(self) -> None:
        self._bell.set()

    def wait(self, timeout_ms: int) -> Literal["woken", "peer is gone"]:
        self.waits.set()
        assert self._bell.wait(timeout_ms / 1000), "nobody wakes it"
        return "peer is gone" if self._has_gone else "woken"

    def has_peer_gone(self) -> bool:
        return self._has_gone

    def go_silently(self) -> None:
        """It is noticed with the answer."""
        self._has_gone = True

    def leave(self) -> None:
        self._has_gone = True
        self._bell.set()


class Failures(list[BaseException]):
    def __call__(self, error: BaseException) -> None:
        self.append(error)


@pytest.fixture
def failures() -> Iterator[Failures]:
    found = Failures()
    yield found
    assert not found


def begun(disk: Disk, failures: Failures, log: CoordinatorLog | None = None) -> GroupCoordinator:
    if log is None:
        log = PartitionLog(Partition(disk.open(), disk.clock))
    coordinator = GroupCoordinator("offsets-0", log, SteadyClock(), disk.clock, QUICK, failures)
    coordinator.begin()
    return coordinator


def once_loaded(coordinator: GroupCoordinator) -> GroupCoordinator:
    def is_loaded() -> bool:
        return not isinstance(coordinator.ask(ListGroupsRequest(), Place()), NotServed)

    wait_for(is_loaded)
    return coordinator


def commit(coordinator: GroupCoordinator, offset: int) -> object:
    request = CommitRequest(NOBODY, (OffsetToCommit(FIRST, offset),))
    return coordinator.ask(request, Place())


def committed(coordinator: GroupCoordinator) -> object:
    answer = coordinator.ask(FetchOffsetsRequest(GROUP, (FIRST,)), Place())
    assert isinstance(answer, FetchOffsetsAnswer)
    return answer.offsets[0].offset


def test_what_is_committed_is_in_the_log_and_read_by_the_next_life(
    disk: Disk, failures: Failures
) -> None:
    first = once_loaded(begun(disk, failures))
    for offset in range(100):
        assert commit(first, offset) == CommitAnswer((0,))
    assert committed(first) == 99
    first.stop()
    second = once_loaded(begun(disk, failures))
    assert committed(second) == 99
    second.stop()


class Broken:
    """A log of one batch that cannot be read, and that refuses all others while it is ``full``.

    ``settle_problem``: what is raised where something waits for the disk.
    """

    def __init__(self, *batches: ReadBatch, problem: Exception | None = None) -> None:
        self._batches, self._problem = batches, problem
        self.full = False
        self.settle_problem: RaylogError | None = None
        self.end_offset = self.settled = 0

    @property
    def is_settled(self) -> bool:
        return self.settled >= self.end_offset

    def settle(self, up_to: int) -> None:
        if self.settle_problem is not None:
            raise self.settle_problem
        self.settled = max(self.settled, up_to)

    def append(
        self, records: Sequence[LogRecord], now_ms: int, producer: Producer | None = None
    ) -> int:
        if self.full:
            raise DiskFull("/log")
        self.end_offset += 1
        return 7

    def end(self, end: TransactionEnd) -> None:
        raise AssertionError

    def read(self) -> Iterator[ReadBatch]:
        yield from self._batches
        if self._problem is not None:
            raise self._problem


def test_a_log_that_cannot_be_read_serves_nobody(disk: Disk, failures: Failures) -> None:
    keyless = ReadBatch(None, None, [Record(0, 0, None, b"?")])
    for log in (Broken(problem=CorruptRecord("/log", "lies")), Broken(keyless)):
        coordinator = begun(disk, failures, log)
        wait_for(partial(_is_down, coordinator))


def _is_down(coordinator: GroupCoordinator) -> bool:
    return commit(coordinator, 1) == NotServed(15)


def test_a_refused_commit_is_told_by_what_clients_understand_and_a_later_one_is_taken(
    disk: Disk, failures: Failures, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "raylog")
    log = Broken()
    coordinator = once_loaded(begun(disk, failures, log))
    log.full = True
    for _ in range(3):
        assert commit(coordinator, 1) == CommitAnswer((16,)), "a full disk: it is looked for again"
    log.full = False
    assert commit(coordinator, 2) == CommitAnswer((0,))
    assert committed(coordinator) == 2
    said = [record.msg["event"] for record in caplog.records if isinstance(record.msg, dict)]
    assert said.count("coordinator-append-failed") == 1
    assert said.count("coordinator-appends-again") == 1
    coordinator.stop()


def test_an_answer_is_given_when_what_it_tells_is_on_the_disk(
    disk: Disk, failures: Failures, caplog: pytest.LogCaptureFixture
) -> None:
    log = Broken()
    coordinator = once_loaded(begun(disk, failures, log))
    log.settle_problem = StorageError("/log", "the disk is broken")
    assert commit(coordinator, 1) == NotServed(16)
    asked = coordinator.ask(FetchOffsetsRequest(GROUP, (FIRST,)), Place())
    assert asked == NotServed(16), "also what changes nothing"
    assert caplog.text.count("coordinator-not-settled") == 1
    log.settle_problem = None
    assert committed(coordinator) == 1
    coordinator.stop()


def test_who_waits_for_the_disk_keeps_nobody_from_writing(disk: Disk, failures: Failures) -> None:
    both_wrote, first_waits = threading.Event(), threading.Event()

    class Slow(Broken):
        def settle(self, up_to: int) -> None:
            if up_to == 1:
                first_waits.set()
                assert both_wrote.wait(60)
            super().settle(up_to)

    log = Slow()
    coordinator = once_loaded(begun(disk, failures, log))
    with ThreadPoolExecutor() as pool:
        first = pool.submit(commit, coordinator, 1)
        assert first_waits.wait(60)
        assert commit(coordinator, 2) == CommitAnswer((0,))
        assert not first.done()
        both_wrote.set()
        assert first.result(60) == CommitAnswer((0,))
    coordinator.stop()


def test_what_nobody_waits_for_is_on_the_disk_after_a_moment(
    disk: Disk, failures: Failures, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_coordinator, "SETTLE_AFTER_S", 0.01)
    monkeypatch.setattr(group_coordinator, "LONGEST_SLEEP_S", 100_000.0)
    log = Broken()
    coordinator = once_loaded(begun(disk, failures, log))
    log.settle_problem = DiskFull("/log")
    commit(coordinator, 1)
    assert not log.is_settled
    log.settle_problem = None
    wait_for(lambda: log.is_settled)
    coordinator.stop()


def test_a_member_waits_until_the_others_have_joined(disk: Disk, failures: Failures) -> None:
    coordinator = once_loaded(begun(disk, failures))
    with ThreadPoolExecutor() as pool:
        first = _stable(coordinator)
        bob = Client("bob")
        place = Place()
        waiting = _joining(coordinator, pool, bob, place)
        assert not waiting.done()
        answer = coordinator.ask(first.join_request(), Place())
        assert isinstance(answer, JoinAnswer)
        other = waiting.result(60)
        assert isinstance(other, JoinAnswer)
        assert (answer.generation, other.generation) == (2, 2)
    coordinator.stop()


def _stable(coordinator: GroupCoordinator) -> Client:
    ann = Client("ann")
    told = coordinator.ask(ann.join_request(), Place())
    assert isinstance(told, JoinAnswer)
    ann.member_id = told.member_id
    joined = coordinator.ask(ann.join_request(), Place())
    assert isinstance(joined, JoinAnswer)
    ann.generation = joined.generation
    request = SyncRequest(ann.who, None, None, {ann.member_id: b"all"})
    assert isinstance(coordinator.ask(request, Place()), SyncAnswer)
    return ann


def _joining(
    coordinator: GroupCoordinator, pool: ThreadPoolExecutor, member: Client, place: Place
) -> "Future[object]":
    """The answer to a member that waits for another one."""
    told = coordinator.ask(member.join_request(), place)
    assert isinstance(told, JoinAnswer)
    member.member_id = told.member_id
    waiting: Future[object] = pool.submit(coordinator.ask, member.join_request(), place)
    assert place.waits.wait(60)
    return waiting


def test_an_asker_that_has_gone_is_answered_nothing(disk: Disk, failures: Failures) -> None:
    coordinator = once_loaded(begun(disk, failures))
    with ThreadPoolExecutor() as pool:
        ann = _stable(coordinator)
        bob, place = Client("bob"), Place()
        waiting = _joining(coordinator, pool, bob, place)
        place.leave()
        assert waiting.result(60) is None
        answer = coordinator.ask(ann.join_request(), Place())
        assert isinstance(answer, JoinAnswer), "nobody is there to be told, and nothing fails"
    coordinator.stop()


def test_who_goes_as_the_answer_comes_is_answered_nothing(disk: Disk, failures: Failures) -> None:
    """The answer may not be on the disk."""
    coordinator = once_loaded(begun(disk, failures))
    with ThreadPoolExecutor() as pool:
        ann = _stable(coordinator)
        bob, place = Client("bob"), Place()
        waiting = _joining(coordinator, pool, bob, place)
        place.go_silently()
        assert isinstance(coordinator.ask(ann.join_request(), Place()), JoinAnswer)
        assert waiting.result(60) is None
    coordinator.stop()


def test_what_is_answered_is_fsynced_where_the_topic_asks_for_it(failures: Failures) -> None:
    disk = Disk()
    log = PartitionLog(Partition(disk.open(flush_messages=1), disk.clock))
    coordinator = once_loaded(begun(disk, failures, log))
    log.append([LogRecord(offset_key(GROUP, SECOND), None)], 0)
    assert not log.is_settled
    assert commit(coordinator, 1) == CommitAnswer((0,))
    assert log.is_settled
    assert coordinator.end_transaction(TransactionEnd(7, 0, True, 0)) is None
    assert log.is_settled, "a marker, too"
    coordinator.stop()


def test_a_session_ends_by_itself(
    disk: Disk, failures: Failures, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread, which sleeps until it is told of an alarm, rings it."""
    monkeypatch.setattr(group_coordinator, "LONGEST_SLEEP_S", 100_000.0)
    log = PartitionLog(Partition(disk.open(), disk.clock))
    config = GroupConfig(min_session_timeout_ms=1, initial_rebalance_delay_ms=0)
    coordinator = GroupCoordinator("offsets-0", log, SteadyClock(), disk.clock, config, failures)
    coordinator.begin()
    once_loaded(coordinator)
    ann = Client("ann", session_ms=200)
    wait_for(lambda: _joins(coordinator, ann))
    wait_for(lambda: _state(coordinator) == "Empty")
    coordinator.stop()


def _joins(coordinator: GroupCoordinator, member: Client) -> bool:
    """Whether it is a member; on a slow machine the id may be given up before it is used."""
    member.forgets()
    told = coordinator.ask(member.join_request(), Place())
    assert isinstance(told, JoinAnswer)
    member.member_id = told.member_id
    joined = coordinator.ask(member.join_request(), Place())
    assert isinstance(joined, JoinAnswer)
    return joined.error_code == 0


def _state(coordinator: GroupCoordinator) -> str:
    answer = coordinator.ask(ListGroupsRequest(), Place())
    assert isinstance(answer, ListGroupsAnswer)
    return answer.groups[0].state


def test_who_is_stopped_answers_nothing_more(disk: Disk, failures: Failures) -> None:
    coordinator = once_loaded(begun(disk, failures))
    coordinator.stop()
    assert commit(coordinator, 1) == NotServed(15)


def test_it_exports_where_the_groups_stand(
    disk: Disk, failures: Failures, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = once_loaded(begun(disk, failures))
    commit(coordinator, 7)
    shown: dict[tuple[str, ...], float] = {}

    class Shown:
        def __init__(self, metric: Metric) -> None:
            self.metric = metric

        def set(self, value: float, tags: dict[str, str]) -> None:
            assert set(tags) == set(self.metric.tags)
            shown[self.metric.name, *(tags[name] for name in self.metric.tags)] = value

    exporter = Exporter(Shown, topic="__consumer_offsets", partition=0)
    coordinator.export(exporter)
    where = (FIRST.topic, str(FIRST.partition))
    assert shown == {
        ("raylog_group_members", GROUP, "__consumer_offsets", "0"): 0,
        ("raylog_group_committed_offset", GROUP, *where): 7,
    }
    shown.clear()
    monkeypatch.setattr(group_coordinator, "MOST_EXPORTED", 0)
    coordinator.export(exporter)
    assert list(shown) == [("raylog_group_members", GROUP, "__consumer_offsets", "0")]
    shown.clear()
    coordinator.stop()
    coordinator.export(exporter)
    assert shown == {}
