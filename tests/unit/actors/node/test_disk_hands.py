"""Work on disks runs beside other work, and ends with one Finished."""

import threading
from queue import SimpleQueue

from raylog.actors.control import DirReport, LogId
from raylog.actors.errors import WorkFailed
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node.dirs import Found
from raylog.actors.node.disk_hands import WORKS_AT_ONCE, DiskHands
from raylog.actors.node.disk_work import DiskInstruction
from raylog.actors.node.events import DirsRead, Event, Finished
from raylog.actors.node.instructions import (
    CloseDir,
    Copy,
    Doom,
    GiveUpCopy,
    MakeFolder,
    ReadDir,
    RetireDir,
    UnlockDir,
    WriteEpoch,
)
from raylog.storage.errors import NoRoom
from raylog.storage.testing.waiting import wait_for
from tests.harness.log_actors import ORDERS, A, B

FOUND = Found(
    dirs=(DirReport(directory_id=A, path="/a", state="online", is_read_back=True),),
    folders=(),
    controller_epoch=3,
)
FULL = NoRoom("/a", 10, 5)


class FakeWorker:
    """Does nothing; in the dir A only when the gate is open."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.closing = threading.Event()
        self.closing.set()
        self.calls: list[object] = []
        self.error: Exception | None = None

    def carry_out(self, work: DiskInstruction) -> Found | None:
        self.calls.append(work)
        if getattr(work, "directory_id", A) == A:
            assert self.gate.wait(10)
        if self.error is not None:
            raise self.error
        match work:
            case ReadDir():
                return FOUND
            case _:
                return None

    def obey(self, config: BrokerConfig) -> None:
        self.calls.append(config)

    def withdraw(self, directory_id: str) -> None:
        self.calls.append(("withdraw", directory_id))

    def close_dir(self, directory_id: str) -> None:
        assert self.closing.wait(10)
        self.calls.append(("close", directory_id))

    def unlock_dir(self, directory_id: str) -> None:
        self.calls.append(("unlock", directory_id))

    def forget(self, log: LogId) -> None:
        self.calls.append(("forget", log))

    def give_up_copy(self, copy_token: int) -> None:
        self.calls.append(("give up", copy_token))


class Hands:
    def __init__(self) -> None:
        self.worker = FakeWorker()
        self.told: SimpleQueue[Event] = SimpleQueue()
        self.hands = DiskHands(self.worker, self.told.put, self._leave_copy)

    def _leave_copy(self, directory_id: str) -> None:
        self.worker.calls.append(("leave the copy", directory_id))

    def next(self) -> Event:
        return self.told.get(timeout=10)


def make(token: int, directory_id: str = A) -> MakeFolder:
    return MakeFolder(token=token, log=ORDERS, directory_id=directory_id)


def test_work_is_done_and_told() -> None:
    node = Hands()
    node.hands.carry_out(make(1))
    assert node.next() == Finished(token=1)


def test_a_dir_that_hangs_keeps_no_other_from_taking_an_epoch() -> None:
    node = Hands()
    node.worker.gate.clear()
    node.hands.carry_out(WriteEpoch(token=1, controller_epoch=3, directory_id=A))
    node.hands.carry_out(WriteEpoch(token=2, controller_epoch=3, directory_id=B))
    assert node.next() == Finished(token=2)
    node.worker.gate.set()
    assert node.next() == Finished(token=1)


def test_what_a_dir_holds_is_told_before_its_reading_has_ended() -> None:
    node = Hands()
    node.hands.carry_out(ReadDir(token=1, directory_id=A))
    assert node.next() == DirsRead(dirs=FOUND.dirs, folders=(), controller_epoch=3)
    assert node.next() == Finished(token=1)


def test_the_copy_of_the_metadata_leaves_a_dir_before_that_is_unlocked() -> None:
    """And nobody begins one there meanwhile: the dir is not in use any more."""
    node = Hands()
    retire = RetireDir(token=1, directory_id=A, clean=frozenset())
    node.hands.carry_out(retire)
    assert node.next() == Finished(token=1)
    assert node.worker.calls == [("withdraw", A), ("leave the copy", A), retire]


def test_an_error_is_told() -> None:
    node = Hands()
    node.worker.error = FULL
    node.hands.carry_out(make(1))
    assert node.next() == Finished(token=1, error=FULL)


def test_an_error_that_nobody_is_prepared_for_is_a_failed_work() -> None:
    node = Hands()
    node.worker.error = ZeroDivisionError("a mistake of ours")
    node.hands.carry_out(make(1))
    finished = node.next()
    assert isinstance(finished, Finished)
    assert isinstance(finished.error, WorkFailed)


def test_a_disk_that_hangs_holds_up_only_itself() -> None:
    node = Hands()
    node.worker.gate.clear()
    for token in range(WORKS_AT_ONCE + 3):
        node.hands.carry_out(make(token))
    node.hands.carry_out(make(100, B))
    assert node.next() == Finished(token=100)
    node.worker.gate.set()
    tokens = {event.token for _ in range(7) if isinstance(event := node.next(), Finished)}
    assert tokens == set(range(7))


def test_the_last_round_of_a_copy_does_not_wait_for_other_copies() -> None:
    node = Hands()
    node.worker.gate.clear()
    for token in range(10):
        copy = Copy(token=token, log=ORDERS, directory_id=A, target_id=B, is_last=False)
        node.hands.carry_out(copy)
    last = Copy(token=100, log=ORDERS, directory_id=B, target_id=B, is_last=True)
    node.hands.carry_out(last)
    assert node.next() == Finished(token=100)
    node.hands.give_up_copy(GiveUpCopy(log=ORDERS, copy_token=7))
    wait_for(lambda: ("give up", 7) in node.worker.calls)
    node.worker.gate.set()


def test_a_dir_is_closed_before_it_is_read_again() -> None:
    node = Hands()
    node.worker.closing.clear()
    node.hands.close_dir(CloseDir(directory_id=A))
    node.hands.unlock_dir(UnlockDir(directory_id=A))
    node.hands.carry_out(ReadDir(token=1, directory_id=A))
    node.hands.carry_out(make(2, B))
    assert node.next() == Finished(token=2)
    node.worker.calls.clear()
    node.worker.closing.set()
    node.next(), node.next()
    assert node.worker.calls == [("close", A), ("unlock", A), ReadDir(token=1, directory_id=A)]


def test_a_dir_is_closed_though_work_hangs_in_it() -> None:
    node = Hands()
    node.worker.gate.clear()
    for token in range(10):
        node.hands.carry_out(Doom(token=token, log=ORDERS, directory_id=A))
    node.hands.close_dir(CloseDir(directory_id=A))
    wait_for(lambda: ("close", A) in node.worker.calls)
    node.worker.gate.set()
