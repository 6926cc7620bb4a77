"""The thread that writes: one append after another, and each failure is told as what it is."""

from collections.abc import Sequence

from raylog.actors.metadata_history import HistoryPoint
from raylog.actors.metadata_snapshot import MetadataSnapshot
from raylog.cluster.controller.appending import Appender, Done
from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.events import Appended, AppendFailed, ReserveMade, SnapshotMade
from raylog.cluster.controller.instructions import Append, MakeReserve, MakeSnapshot
from raylog.cluster.controller.records import ClusterRecord, Record
from raylog.storage.errors import DiskFull, StorageError

RECORD = ClusterRecord(cluster_id="c")
FULL = DiskFull("/disk")
SNAPSHOT = MakeSnapshot(desired=Desired(next_kafka_id=7), point=HistoryPoint("c", 3, b"digest"))


class Disk:
    """Fails with each of ``errors`` in turn, then writes. ``shortage``: why it used the reserve."""

    def __init__(self, *errors: Exception, shortage: DiskFull | None = None) -> None:
        self.errors, self.shortage = list(errors), shortage
        self.written: list[Record] = []
        self.may_use_reserve: list[bool] = []
        self.saved: list[MetadataSnapshot] = []

    def append(
        self, records: Sequence[Record], *, may_use_reserve: bool = False
    ) -> DiskFull | None:
        self._fail()
        self.written += records
        self.may_use_reserve.append(may_use_reserve)
        return self.shortage if may_use_reserve else None

    def make_reserve(self) -> None:
        self._fail()

    def save(self, snapshot: MetadataSnapshot) -> tuple[str, ...]:
        self._fail()
        self.saved.append(snapshot)
        return ("an old one",)

    def _fail(self) -> None:
        if self.errors:
            raise self.errors.pop(0)


def test_what_is_asked_is_done_in_its_order_and_all_before_the_end() -> None:
    disk = Disk()
    events: list[Done] = []
    appender = Appender(disk, events.append)
    for token in (1, 2):
        appender.do(Append(token=token, records=(RECORD,)))
    appender.do(MakeReserve())
    appender.do(SNAPSHOT)
    appender.do(Append(token=3, records=(RECORD,)))
    appender.start()
    assert appender.stop(60)
    assert appender.stop(60), "it may be asked again"
    assert events == [
        Appended(token=1),
        Appended(token=2),
        ReserveMade(),
        SnapshotMade(damaged=("an old one",)),
        Appended(token=3),
    ]
    assert disk.written == [RECORD] * 3


def test_only_a_record_that_may_use_the_reserve_does() -> None:
    disk = Disk(shortage=FULL)
    appender = Appender(disk, lambda _: None)
    for may in (False, True):
        appender.write(Append(token=1, records=(RECORD,), may_use_reserve=may))
    assert disk.may_use_reserve == [False, True]


def test_a_failure_is_told_by_its_name_and_one_without_a_name_leaves_all_unknown() -> None:
    appender = Appender(Disk(FULL, KeyError("a bug")), lambda _: None)
    append = Append(token=1, records=(RECORD,))
    assert appender.write(append) == AppendFailed(token=1, error=FULL)
    failed = appender.write(append)
    assert isinstance(failed, AppendFailed)
    assert type(failed.error) is StorageError
    assert appender.write(append) == Appended(token=1)


def test_it_is_told_when_the_reserve_was_used_and_why_it_could_not_be_made() -> None:
    appender = Appender(Disk(FULL, KeyError("a bug"), shortage=FULL), lambda _: None)
    assert appender.reserve() == ReserveMade(problem=FULL)
    assert type(appender.reserve().problem) is StorageError
    assert appender.reserve() == ReserveMade()
    append = Append(token=1, records=(RECORD,), may_use_reserve=True)
    assert appender.write(append) == Appended(token=1, shortage=FULL)


def test_a_snapshot_is_of_the_fold_that_was_given_and_a_failure_says_why() -> None:
    disk = Disk(FULL, KeyError("a bug"))
    appender = Appender(disk, lambda _: None)
    assert appender.snapshot(SNAPSHOT) == SnapshotMade(problem=FULL)
    assert type(appender.snapshot(SNAPSHOT).problem) is StorageError
    assert appender.snapshot(SNAPSHOT) == SnapshotMade(damaged=("an old one",))
    (saved,) = disk.saved
    assert (saved.point, saved.next_kafka_id) == (SNAPSHOT.point, 7)
