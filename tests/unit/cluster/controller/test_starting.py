"""What a Controller leaves at Ray's head when it begins over its metadata."""

from collections.abc import Callable, Iterator

import pytest

from raylog.actors.errors import NotLeader
from raylog.actors.levels import CHAINED_LEVEL
from raylog.cluster.controller.instructions import AskWhether
from raylog.cluster.controller.metadata_log import MetadataLog
from raylog.cluster.controller.records import CopiesRecord, LevelRecord, Record
from raylog.cluster.controller.snapshots import snapshot_of
from raylog.cluster.controller.starting import begin_witness, tell_and_ask
from raylog.cluster.controller.witness import Mark
from raylog.storage.testing.clock import ManualClock
from raylog.storage.testing.memory import MemoryFileSystem
from tests.harness.metadata_pushes import CLUSTER, NEWER_LEVELS, began, topic
from tests.harness.notes import FakeNotes

NAMESPACE = "ns"
COPIES = CopiesRecord(nodes=("a", "b"), directories=("dir-a", "dir-b"))


class Disk:
    """The metadata of Controllers, one after the other."""

    def __init__(self) -> None:
        self.fs = MemoryFileSystem()
        self.fs.make_dir("/disk")
        self.log = self._opened(CLUSTER)

    def _opened(self, new_cluster: str = "") -> MetadataLog:
        return MetadataLog(
            self.fs, ManualClock(), "/disk/log", new_cluster=new_cluster, levels=NEWER_LEVELS
        )

    def writes(self, *records: Record) -> None:
        self.log.append(records)
        for record in records:
            self.log.desired.apply(record)

    def opens_again(self) -> MetadataLog:
        self.log.close()
        self.log = self._opened()
        return self.log


@pytest.fixture
def disk() -> Iterator[Disk]:
    made = Disk()
    yield made
    made.log.close()


@pytest.fixture
def notes() -> FakeNotes:
    return FakeNotes()


def marks(notes: FakeNotes, disk: Disk, is_controller: Callable[[], bool]) -> list[Mark]:
    return begin_witness(notes, NAMESPACE, disk.log, is_controller).marks()


def yes() -> bool:
    return True


def test_a_life_leaves_the_epoch_the_cluster_and_the_last_record_of_who_is_in_sync(
    disk: Disk, notes: FakeNotes
) -> None:
    disk.writes(began(4), COPIES)
    copies_at = disk.log.end - 1
    disk.writes(topic("t"))
    disk.opens_again()
    wanted = Mark(epoch=4, asked_at=copies_at, cluster_id=CLUSTER)
    assert marks(notes, disk, yes) == [wanted]
    assert marks(notes, disk, yes) == [wanted], "that of the life before is settled"


def test_it_does_so_where_only_a_snapshot_has_that_record(disk: Disk, notes: FakeNotes) -> None:
    disk.writes(LevelRecord(level=CHAINED_LEVEL, release="1.0.0"), began(4), COPIES)
    copies_at = disk.log.end - 1
    for name in "tu":
        disk.writes(topic(name))
        history = disk.opens_again().history()
        disk.log.save(snapshot_of(disk.log.desired, history.point()))
    assert disk.opens_again().start > copies_at
    assert marks(notes, disk, yes) == [Mark(epoch=4, asked_at=copies_at, cluster_id=CLUSTER)]


def test_a_process_that_ray_does_not_take_for_its_controller_does_not_begin(
    disk: Disk, notes: FakeNotes
) -> None:
    with pytest.raises(NotLeader, match="Ray does not take this process for its Controller"):
        begin_witness(notes, NAMESPACE, disk.log, lambda: False)
    assert notes.values == {}


def test_while_ray_does_not_answer_it_begins_and_notes_later_whom_it_leaves_out(
    disk: Disk, notes: FakeNotes
) -> None:
    disk.writes(began(4))
    disk.opens_again()
    notes.is_away = True
    witness = begin_witness(notes, NAMESPACE, disk.log, yes)
    with pytest.raises(ConnectionError):
        witness.ask(40)
    notes.is_away = False
    witness.ask(41)
    assert witness.marks() == [Mark(epoch=4, asked_at=41, cluster_id=CLUSTER)]


def test_ray_knows_of_a_copy_that_is_to_be_left_out_before_it_is_asked_and_that_it_was_not(
    disk: Disk, notes: FakeNotes
) -> None:
    witness = begin_witness(notes, NAMESPACE, disk.log, yes)
    seen: list[int] = []

    def is_asked() -> bool:
        seen.append(witness.marks()[0].asked_at)
        return True

    before, end = witness.marks()[0].asked_at, disk.log.end
    assert tell_and_ask(witness, disk.log, AskWhether(leaves_out=True), is_asked)
    assert tell_and_ask(witness, disk.log, AskWhether(), is_asked)
    assert tell_and_ask(witness, disk.log, AskWhether(copies_at=-1), is_asked)
    assert seen == [before, end, end, end]
    assert witness.marks()[0].asked_at == -1


def test_a_process_that_was_replaced_takes_nothing_back(disk: Disk, notes: FakeNotes) -> None:
    witness = begin_witness(notes, NAMESPACE, disk.log, yes)
    answers = iter([True, False])  # it is replaced meanwhile
    assert not tell_and_ask(witness, disk.log, AskWhether(leaves_out=True), lambda: next(answers))
    assert not tell_and_ask(witness, disk.log, AskWhether(copies_at=-1), lambda: False)
    assert witness.marks()[0].asked_at == disk.log.end


def test_a_process_that_was_replaced_leaves_no_note(disk: Disk, notes: FakeNotes) -> None:
    """It would speak against the copies of its successor, which nobody could begin over then."""
    witness = begin_witness(notes, NAMESPACE, disk.log, yes)
    before = witness.marks()
    assert not tell_and_ask(witness, disk.log, AskWhether(leaves_out=True), lambda: False)
    assert witness.marks() == before
