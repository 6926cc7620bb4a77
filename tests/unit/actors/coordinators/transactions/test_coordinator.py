"""The shell of the coordinator of transactions: what comes before what, and what it survives."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from raylog.actors.coordinators.coordinator_log import PartitionLog, ReadBatch
from raylog.actors.coordinators.log_record import LogRecord
from raylog.actors.coordinators.refusals import NotServed
from raylog.actors.coordinators.transactions import coordinator as coordinator_module
from raylog.actors.coordinators.transactions.config import TransactionConfig
from raylog.actors.coordinators.transactions.coordinator import (
    CoordinatorLog,
    TransactionCoordinator,
)
from raylog.actors.coordinators.transactions.messages import (
    AddPartitionsAnswer,
    AddPartitionsRequest,
    EndAnswer,
    EndRequest,
    InitAnswer,
    InitRequest,
    ListAnswer,
    ListRequest,
    Owner,
)
from raylog.actors.coordinators.transactions.turn import SendMarkers
from raylog.actors.partition.partition import Partition
from raylog.storage.clock import SteadyClock
from raylog.storage.errors import (
    CorruptRecord,
    DiskFull,
    OutOfResources,
    RaylogError,
    StorageError,
)
from raylog.storage.records.record import Record
from raylog.storage.testing.clock import ManualClock
from raylog.storage.testing.logs import Disk
from raylog.storage.testing.waiting import wait_for
from tests.unit.actors.coordinators.transactions.playing import FIRST, ID, SECOND

QUICK = TransactionConfig(abort_interval_ms=10)


class Notes:
    """A log and a sender that write down what is asked of them, in its order.

    ``problem``: what an append raises; ``settle_problem`` and ``flush_problem``: what waiting for
    the disk does. ``flushes``: all of them, also those that failed.
    """

    def __init__(self, *batches: ReadBatch, problem: Exception | None = None) -> None:
        self.said: list[str] = []
        self.sent: list[SendMarkers] = []
        self.problem: RaylogError | None = None
        self.settle_problem: RaylogError | None = None
        self.flush_problem: RaylogError | None = None
        self.flushes = 0
        self.end_offset = self.settled = 0
        self._batches, self._read_problem = batches, problem

    def append(self, records: Sequence[LogRecord], now_ms: int) -> int:
        if self.problem is not None:
            raise self.problem
        self.said.append("append")
        self.end_offset += 1
        return 0

    @property
    def is_settled(self) -> bool:
        return self.settled >= self.end_offset

    def settle(self, up_to: int) -> None:
        if self.settle_problem is not None:
            raise self.settle_problem
        if up_to > self.settled:
            self.said.append("settle")
            self.settled = up_to

    def flush(self, up_to: int) -> None:
        self.flushes += 1
        if self.flush_problem is not None:
            raise self.flush_problem
        self.said.append("flush")

    def read(self) -> Iterator[ReadBatch]:
        yield from self._batches
        if self._read_problem is not None:
            raise self._read_problem

    def send(self, markers: SendMarkers) -> None:
        self.said.append("send")
        self.sent.append(markers)


class Failures(list[BaseException]):
    def __call__(self, error: BaseException) -> None:
        self.append(error)


@pytest.fixture
def failures() -> Iterator[Failures]:
    found = Failures()
    yield found
    assert not found


def begun(
    log: CoordinatorLog,
    notes: Notes,
    failures: Failures,
    fresh: Callable[[], int] = lambda: 1_000,
    wall: ManualClock | None = None,
    config: TransactionConfig = QUICK,
) -> TransactionCoordinator:
    clock = wall or ManualClock()
    coordinator = TransactionCoordinator(
        "state-0", log, SteadyClock(), clock, config, notes, fresh, failures
    )
    coordinator.begin()
    return coordinator


def serving(coordinator: TransactionCoordinator) -> TransactionCoordinator:
    wait_for(lambda: isinstance(coordinator.ask(ListRequest()), ListAnswer))
    return coordinator


def owner_of(coordinator: TransactionCoordinator) -> Owner:
    answer = coordinator.ask(InitRequest(Owner(ID, -1, -1), 1_000))
    assert isinstance(answer, InitAnswer), answer
    assert answer.error_code == 0
    return Owner(ID, answer.producer_id, answer.epoch)


def add(coordinator: TransactionCoordinator, owner: Owner) -> None:
    answer = coordinator.ask(AddPartitionsRequest(owner, (FIRST, SECOND), 1))
    assert answer == AddPartitionsAnswer(0)


def test_a_decision_is_on_the_disk_before_a_marker_leaves(failures: Failures) -> None:
    notes = Notes()
    coordinator = serving(begun(notes, notes, failures))
    owner = owner_of(coordinator)
    add(coordinator, owner)
    notes.said.clear()
    assert coordinator.ask(EndRequest(owner, True, 1)) == EndAnswer(0, owner.producer_id, 0)
    assert notes.said == ["append", "settle", "flush", "send"]
    coordinator.stop()


def test_what_is_not_on_the_disk_sends_no_marker(
    failures: Failures, caplog: pytest.LogCaptureFixture
) -> None:
    notes = Notes()
    coordinator = serving(begun(notes, notes, failures))
    owner = owner_of(coordinator)
    add(coordinator, owner)
    notes.flush_problem = StorageError("/log", "the disk is broken")
    assert coordinator.ask(EndRequest(owner, True, 1)) == NotServed(16)
    assert notes.sent == []
    assert "coordinator-not-settled" in caplog.text
    coordinator.stop()


def test_an_answer_is_given_when_what_it_tells_is_on_the_disk(failures: Failures) -> None:
    """A partition that is let in by what a power loss forgets would never get its marker."""
    notes = Notes()
    coordinator = serving(begun(notes, notes, failures))
    owner = owner_of(coordinator)
    notes.settle_problem = OutOfResources("/log", "no descriptor is left")
    for _ in range(2):
        answer = coordinator.ask(AddPartitionsRequest(owner, (FIRST, SECOND), 1))
        assert isinstance(answer, NotServed)
    assert isinstance(coordinator.ask(ListRequest()), NotServed), "also what changes nothing"
    notes.settle_problem = None
    assert coordinator.ask(AddPartitionsRequest(owner, (FIRST, SECOND), 1)).error_code == 0  # type: ignore[union-attr]
    coordinator.stop()


def test_who_waits_for_the_disk_keeps_nobody_from_writing(failures: Failures) -> None:
    first_waits, may_go_on = threading.Event(), threading.Event()

    class Slow(Notes):
        def settle(self, up_to: int) -> None:
            if up_to == 1 and not first_waits.is_set():
                first_waits.set()
                assert may_go_on.wait(60)
            super().settle(up_to)

    notes = Slow()
    coordinator = serving(begun(notes, notes, failures))
    with ThreadPoolExecutor() as pool:
        first = pool.submit(owner_of, coordinator)
        assert first_waits.wait(60)
        other = coordinator.ask(InitRequest(Owner("other", -1, -1), 1_000))
        assert isinstance(other, InitAnswer)
        assert not first.done()
        may_go_on.set()
        assert first.result(60).transactional_id == ID
    coordinator.stop()


def test_what_nobody_waits_for_is_on_the_disk_after_a_moment(
    failures: Failures, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record that all markers are written: without it they are sent once more."""
    monkeypatch.setattr(coordinator_module, "SETTLE_AFTER_S", 0.01)
    notes = Notes()
    coordinator = serving(begun(notes, notes, failures))
    owner = owner_of(coordinator)
    add(coordinator, owner)
    coordinator.ask(EndRequest(owner, True, 1))
    notes.settle_problem = OutOfResources("/log", "no descriptor is left")
    for partition in (FIRST, SECOND):
        coordinator.marked(notes.sent[0], partition)
    assert not notes.is_settled
    notes.settle_problem = None
    wait_for(lambda: notes.is_settled)
    coordinator.stop()


def test_a_decision_that_could_not_be_flushed_is_flushed_later(
    failures: Failures, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(coordinator_module, "SETTLE_AFTER_S", 0.01)
    notes = Notes()
    coordinator = serving(begun(notes, notes, failures))
    owner = owner_of(coordinator)
    add(coordinator, owner)
    notes.flush_problem = OutOfResources("/log", "no descriptor is left")
    coordinator.ask(EndRequest(owner, True, 1))
    wait_for(lambda: notes.flushes >= 3, what="it tries again")
    assert notes.sent == []
    assert caplog.text.count("coordinator-not-settled") == 1
    notes.flush_problem = None
    wait_for(lambda: len(notes.sent) == 1)
    assert notes.said[-2:] == ["flush", "send"]
    coordinator.stop()


def test_news_do_not_put_off_what_nobody_waits_for(
    failures: Failures, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_module, "SETTLE_AFTER_S", 0.2)
    notes = Notes()
    coordinator = serving(begun(notes, notes, failures, config=TransactionConfig()))
    owner = owner_of(coordinator)
    add(coordinator, owner)
    coordinator.ask(EndRequest(owner, True, 1))
    for partition in (FIRST, SECOND):
        coordinator.marked(notes.sent[0], partition)

    def is_settled_though_there_are_news() -> bool:
        coordinator.marked(notes.sent[0], FIRST)  # it has it
        return notes.is_settled

    wait_for(is_settled_though_there_are_news, poll_s=0.01)
    coordinator.stop()


def test_markers_that_could_not_leave_are_tried_again_without_an_alarm(
    failures: Failures, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread may have begun to rest while they were being tried."""
    monkeypatch.setattr(coordinator_module, "SETTLE_AFTER_S", 0.01)
    monkeypatch.setattr(coordinator_module, "LONGEST_SLEEP_S", 100_000.0)
    config = TransactionConfig(abort_interval_ms=10**8, expiry_interval_ms=10**8)
    notes = Notes()
    coordinator = serving(begun(notes, notes, failures, config=config))
    owner = owner_of(coordinator)
    add(coordinator, owner)
    notes.flush_problem = OutOfResources("/log", "no descriptor is left")
    coordinator.ask(EndRequest(owner, True, 1))
    notes.flush_problem = None
    wait_for(lambda: len(notes.sent) == 1)
    coordinator.stop()


def test_what_it_has_answered_is_known_by_the_next_life(disk: Disk, failures: Failures) -> None:
    notes = Notes()
    first = serving(
        begun(PartitionLog(Partition(disk.open(), disk.clock)), notes, failures, wall=disk.clock)
    )
    owner = owner_of(first)
    add(first, owner)
    first.ask(EndRequest(owner, True, 1))
    first.marked(notes.sent[0], FIRST)
    first.stop()
    again = Notes()
    second = serving(
        begun(PartitionLog(Partition(disk.open(), disk.clock)), again, failures, wall=disk.clock)
    )
    assert [one.partitions for one in again.sent] == [(FIRST, SECOND)]
    assert second.ask(EndRequest(owner, True, 1)) == EndAnswer(51)
    for partition in (FIRST, SECOND):
        second.marked(again.sent[0], partition)
    assert second.ask(EndRequest(owner, True, 1)).error_code == 0  # type: ignore[union-attr]
    second.stop()


def test_a_refused_record_is_told_by_what_clients_understand(
    failures: Failures, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "raylog")
    notes = Notes()
    coordinator = serving(begun(notes, notes, failures))
    owner = owner_of(coordinator)
    notes.problem = DiskFull("/log")
    for _ in range(2):
        answer = coordinator.ask(AddPartitionsRequest(owner, (FIRST,), 1))
        assert answer == AddPartitionsAnswer(16)
    notes.problem = None
    add(coordinator, owner)
    said = [record.msg["event"] for record in caplog.records if isinstance(record.msg, dict)]
    assert said.count("coordinator-append-failed") == 1
    assert said.count("coordinator-appends-again") == 1
    coordinator.stop()


def test_without_a_fresh_producer_id_clients_wait(failures: Failures) -> None:
    def none() -> int:
        raise DiskFull("/metadata")

    notes = Notes()
    coordinator = serving(begun(notes, notes, failures, none))
    assert coordinator.ask(InitRequest(Owner(ID, -1, -1), 1_000)) == NotServed(14)
    coordinator.stop()


def test_a_log_that_cannot_be_read_serves_nobody(failures: Failures) -> None:
    keyless = ReadBatch(None, None, [Record(0, 0, None, b"?")])
    for notes in (Notes(problem=CorruptRecord("/log", "lies")), Notes(keyless)):
        coordinator = begun(notes, notes, failures)
        wait_for(partial(_is_down, coordinator))


def _is_down(coordinator: TransactionCoordinator) -> bool:
    return coordinator.ask(ListRequest()) == NotServed(15)


def test_who_was_stopped_answers_nothing_and_takes_no_news(failures: Failures) -> None:
    notes = Notes()
    coordinator = serving(begun(notes, notes, failures))
    owner = owner_of(coordinator)
    add(coordinator, owner)
    coordinator.ask(EndRequest(owner, True, 1))
    coordinator.stop()
    notes.said.clear()
    for partition in (FIRST, SECOND):
        coordinator.marked(notes.sent[0], partition)
    assert notes.said == []
    assert coordinator.ask(ListRequest()) == NotServed(15)


def test_who_was_stopped_while_it_read_its_log_never_serves(failures: Failures) -> None:
    reads, may_end = threading.Event(), threading.Event()

    class Slow(Notes):
        def read(self) -> Iterator[ReadBatch]:
            reads.set()
            assert may_end.wait(10)
            yield from super().read()

    notes = Slow()
    coordinator = begun(notes, notes, failures)
    assert reads.wait(10)
    assert coordinator.ask(ListRequest()) == NotServed(14)
    coordinator.stop()
    may_end.set()
    name = "coordinator of state-0"
    wait_for(lambda: name not in {thread.name for thread in threading.enumerate()})
    assert coordinator.ask(ListRequest()) == NotServed(15)


def test_its_thread_aborts_what_is_open_for_too_long(failures: Failures) -> None:
    notes, wall = Notes(), ManualClock()
    coordinator = serving(begun(notes, notes, failures, wall=wall))
    add(coordinator, owner_of(coordinator))
    wall.advance(1_001)
    wait_for(lambda: len(notes.sent) == 1)
    assert not notes.sent[0].is_commit
    coordinator.stop()
