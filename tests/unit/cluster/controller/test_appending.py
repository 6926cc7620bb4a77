"""The thread that writes: one append after another, and each failure is told as what it is."""

from collections.abc import Sequence

from raylog.cluster.controller.appending import Appender
from raylog.cluster.controller.events import Appended, AppendFailed
from raylog.cluster.controller.instructions import Append
from raylog.cluster.controller.records import ClusterRecord, Record
from raylog.storage.errors import DiskFull, StorageError

RECORD = ClusterRecord(cluster_id="c")


class Disk:
    """Fails with each of ``errors`` in turn, then writes."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.written: list[Record] = []

    def append(self, records: Sequence[Record]) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.written += records


def test_appends_are_written_in_their_order_and_all_before_the_end() -> None:
    disk = Disk()
    events: list[Appended | AppendFailed] = []
    appender = Appender(disk, events.append)
    for token in (1, 2, 3):
        appender.append(Append(token=token, records=(RECORD,)))
    appender.start()
    assert appender.stop(60)
    assert events == [Appended(token=1), Appended(token=2), Appended(token=3)]
    assert disk.written == [RECORD] * 3


def test_a_failure_is_told_by_its_name_and_one_without_a_name_leaves_all_unknown() -> None:
    full = DiskFull("/disk")
    appender = Appender(Disk(full, KeyError("a bug")), lambda _: None)
    append = Append(token=1, records=(RECORD,))
    assert appender.write(append) == AppendFailed(token=1, error=full)
    failed = appender.write(append)
    assert isinstance(failed, AppendFailed)
    assert type(failed.error) is StorageError
    assert appender.write(append) == Appended(token=1)
