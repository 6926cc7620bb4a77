"""A round in another process: what it reads, what it leaves alone, and what the log refuses it."""

import pickle
from collections.abc import Sequence

import pytest

from raylog.storage.cleaner.cleanable import cleanable
from raylog.storage.cleaner.cleaner import Buffers, clean
from raylog.storage.cleaner.remote import LogView, RemoteLog, view_of
from raylog.storage.errors import CleaningAborted, StorageError
from raylog.storage.log import Log
from raylog.storage.records.encode import encode_records
from raylog.storage.segment import SegmentId
from raylog.storage.swap import RoundId
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import Disk, flip, offsets_of

ROOMY = Buffers(dedupe_bytes=1 << 12, load_factor=0.9, chunk_bytes=4096)


class LocalOwner:
    """The ``LogOwner`` of a log in the same process; what crosses it crosses a pickle."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def flush(self) -> None:
        self._log.flush()

    def check_unchanged(self, segments: Sequence[SegmentId], round_id: RoundId) -> None:
        self._log.check_unchanged(*pickle.loads(pickle.dumps((segments, round_id))))

    def replace_segments(self, old: Sequence[SegmentId], round_id: RoundId) -> None:
        self._log.replace_segments(*pickle.loads(pickle.dumps((old, round_id))))


def filled(disk: Disk) -> Log:
    """Three sealed segments: two keys, an idempotent producer, a deleted key."""
    log = disk.open(segment_bytes=400, index_interval_bytes=0, cleanup_policy="compact")
    for turn in range(3):
        for number in range(3):
            log.append(
                encode_records([(T0, b"%d" % (number % 2), b"%d" % turn, ()), (T0, b"x", None, ())])
            )
        log.append(
            encode_records(
                [(T0, b"p", b"v", ())], producer_id=7, producer_epoch=0, base_sequence=turn
            )
        )
        log.roll()
    return log


def seen(log: Log) -> LogView:
    view: LogView = pickle.loads(pickle.dumps(view_of(log, log.begin_round())))
    return view


def compact_from_afar(disk: Disk, log: Log, view: LogView | None = None) -> None:
    view = view or seen(log)
    remote = RemoteLog(disk.fs, view, LocalOwner(log))
    section = cleanable(view.facts, None, view.config, disk.clock.now_ms())
    clean(disk.fs, disk.clock, remote, section, ROOMY)
    remote.close()


def contents(disk: Disk) -> dict[str, bytes]:
    return {name: disk.read(name) for name in disk.names() if not name.endswith(".deleted")}


def test_it_leaves_the_same_bytes_as_a_round_in_the_logs_own_process() -> None:
    here, there = Disk(), Disk()
    log = filled(here)
    view = seen(log)
    clean(
        here.fs,
        here.clock,
        log,
        cleanable(view.facts, None, log.config, here.clock.now_ms()),
        ROOMY,
    )
    compact_from_afar(there, filled(there))
    assert contents(here) == contents(there)
    assert len(offsets_of(log)) < 12


def test_it_writes_cleaned_files_and_nothing_else(disk: Disk) -> None:
    log = filled(disk)
    log.flush()
    disk.damage(f"{0:020d}.index", flip(7))
    before, view = len(disk.fs.log), seen(log)

    class Silent(LocalOwner):
        def replace_segments(self, old: Sequence[SegmentId], round_id: RoundId) -> None:
            pass

    section = cleanable(view.facts, None, view.config, disk.clock.now_ms())
    clean(disk.fs, disk.clock, RemoteLog(disk.fs, view, Silent(log)), section, ROOMY)
    written = disk.fs.log[before:]
    assert written
    assert all(".cleaned" in operation for operation in written), written


def test_an_index_that_lies_is_scanned_past(disk: Disk) -> None:
    log = filled(disk)
    view = seen(log)
    disk.damage(f"{0:020d}.index", lambda content: content[:-1])
    remote = RemoteLog(disk.fs, view, LocalOwner(log))
    clean(disk.fs, disk.clock, remote, cleanable(view.facts, 3, view.config, T0), ROOMY)
    assert min(offsets_of(log)) > 3, "the keys of the first segment have come again behind it"


def test_segments_that_were_replaced_since_the_view_end_the_round(disk: Disk) -> None:
    log = filled(disk)
    view = seen(log)
    compact_from_afar(disk, log)
    before = contents(disk)
    with pytest.raises(CleaningAborted, match="another compaction has begun"):
        compact_from_afar(disk, log, view)
    assert contents(disk) == before


def test_segments_that_were_deleted_since_the_view_end_the_round(disk: Disk) -> None:
    log = disk.open(segment_bytes=100, cleanup_policy="compact,delete")
    for value in (b"1", b"2", b"3"):
        log.append(encode_records([(T0, b"a", value, ())]))
        log.roll()
    view = seen(log)
    log.delete_records(1)
    log.delete_old_segments()
    with pytest.raises(CleaningAborted, match="retention deleted"):
        compact_from_afar(disk, log, view)


def test_whether_segments_were_taken_meanwhile_is_asked_of_their_owner(disk: Disk) -> None:
    log = filled(disk)
    view = seen(log)
    remote = RemoteLog(disk.fs, view, LocalOwner(log))
    ids = [segment.id for segment in log.segments[:-1]]
    remote.check_unchanged(ids, view.round_id)
    log.begin_round()
    with pytest.raises(CleaningAborted, match="another compaction has begun"):
        remote.check_unchanged(ids, view.round_id)


def test_a_file_that_is_not_the_logs_own_is_not_read(disk: Disk) -> None:
    log = filled(disk)
    view = seen(log)
    name = f"{0:020d}.log"
    content = disk.read(name)
    disk.fs.rename(disk.path(name), disk.path("elsewhere"))
    disk.write(name, content)
    with pytest.raises(StorageError, match="not the file that the log has open"):
        compact_from_afar(disk, log, view)


def test_a_log_that_was_opened_again_knows_no_earlier_round(disk: Disk) -> None:
    log = filled(disk)
    view = seen(log)
    log.close()
    again = disk.open(segment_bytes=400, cleanup_policy="compact")
    with pytest.raises(CleaningAborted, match="opened again"):
        LocalOwner(again).replace_segments([again.segments[0].id], view.round_id)
