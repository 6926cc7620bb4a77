"""The way of a cleaned segment into its log, broken off at every step: Kafka's table of crash
points.

Two segments of one record each, "a" at 0 and again at 1, are cleaned to one segment that has only
the second.
"""

import pytest

from raylog.storage.cleaner.cleanable import Cleanable
from raylog.storage.cleaner.cleaner import Buffers, clean
from raylog.storage.config import LogConfig
from raylog.storage.errors import CleaningAborted, StorageError, UndoFailed
from raylog.storage.log import Log
from raylog.storage.records.encode import encode_records
from raylog.storage.recovery import check_indexes
from raylog.storage.segment import SUFFIXES
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import Disk, offsets_of, records_of
from raylog.storage.testing.memory import MemoryFileSystem

ROOMY = Buffers(dedupe_bytes=1 << 12, load_factor=0.9, chunk_bytes=4096)
ZERO, ONE, TWO = (f"{base:020d}" for base in (0, 1, 2))


def filled(disk: Disk) -> Log:
    log = disk.open()
    for value in (b"1", b"2", b"3"):
        log.append(encode_records([(T0, b"a", value, ())]))
        log.roll()
    return log


def cleaned(disk: Disk) -> dict[str, bytes]:
    """The files of the cleaned segment of 0 and 1, without their folder."""
    other = Disk()
    compact(other, filled(other), bound=2)
    return {suffix: other.read(ZERO + suffix) for suffix in SUFFIXES[:3]}


def compact(disk: Disk, log: Log, bound: int | None = None) -> None:
    end = log.segments[-1].base_offset if bound is None else bound
    clean(
        disk.fs,
        disk.clock,
        log,
        Cleanable(first_dirty_offset=0, bound=end, clean_bytes=0, cleanable_bytes=1),
        ROOMY,
    )


def add(disk: Disk, files: dict[str, bytes], suffix: str) -> None:
    for own, content in files.items():
        disk.write(ZERO + own + suffix, content)


def doom(disk: Disk, *stems: str) -> None:
    for stem in stems:
        for name in disk.names():
            if name.startswith(stem) and name.endswith(SUFFIXES):
                disk.fs.rename(disk.path(name), disk.path(name + ".deleted"))


def check(disk: Disk, expected: list[int]) -> None:
    """The log opens with these offsets, nothing of the compaction is left, and the next one
    works."""
    for name in disk.names(".snapshot"):
        disk.fs.remove(disk.path(name))
    log = disk.open(is_clean=False)
    assert offsets_of(log) == expected
    assert [name for name in disk.names() if name.endswith((".swap", ".cleaned", ".deleted"))] == []
    for segment in log.segments:
        check_indexes(segment)
    compact(disk, log)
    assert [(record.offset, record.value) for record in records_of(log)] == [(2, b"3")]


@pytest.mark.parametrize("written", [1, 2, 3])
def test_before_any_swap_the_old_segments_stay(disk: Disk, written: int) -> None:
    filled(disk).close()
    add(disk, dict(list(cleaned(disk).items())[:written]), ".cleaned")
    check(disk, [0, 1, 2])


@pytest.mark.parametrize("renamed", [[0], [1], [2], [0, 1], [0, 2], [1, 2]])
def test_while_any_cleaned_is_left_the_swaps_beside_it_are_undone(
    disk: Disk, renamed: list[int]
) -> None:
    filled(disk).close()
    for number, (own, content) in enumerate(cleaned(disk).items()):
        disk.write(ZERO + own + (".swap" if number in renamed else ".cleaned"), content)
    check(disk, [0, 1, 2])


@pytest.mark.parametrize("doomed", [[], [ZERO], [ONE], [ZERO, ONE]])
def test_once_all_are_swaps_the_old_segments_go(disk: Disk, doomed: list[str]) -> None:
    filled(disk).close()
    doom(disk, *doomed)
    add(disk, cleaned(disk), ".swap")
    check(disk, [1, 2])


@pytest.mark.parametrize("done", [[".index"], [".timeindex"], [".index", ".timeindex"]])
def test_swaps_that_have_lost_their_suffix_in_part_are_finished(
    disk: Disk, done: list[str]
) -> None:
    """The .log is the last to lose it, so its sources are known as long as one of the names is not
    right."""
    filled(disk).close()
    doom(disk, ZERO, ONE)
    for own, content in cleaned(disk).items():
        disk.write(ZERO + own + ("" if own in done else ".swap"), content)
    check(disk, [1, 2])


def test_after_all_renames_only_the_deleted_are_left(disk: Disk) -> None:
    filled(disk).close()
    doom(disk, ZERO, ONE)
    add(disk, cleaned(disk), "")
    check(disk, [1, 2])


def test_the_log_of_a_swap_alone_tells_what_it_replaces(disk: Disk) -> None:
    """Its indexes have lost their suffix, and of the sources only one new name survived."""
    filled(disk).close()
    doom(disk, ZERO)
    for own, content in cleaned(disk).items():
        disk.write(ZERO + own + (".swap" if own == ".log" else ""), content)
    check(disk, [1, 2])


def test_an_index_of_a_swap_alone_replaces_nothing(disk: Disk) -> None:
    """Its .log lost the suffix last, but that was on the disk first."""
    filled(disk).close()
    doom(disk, ZERO, ONE)
    for own, content in cleaned(disk).items():
        disk.write(ZERO + own + (".swap" if own == ".index" else ""), content)
    check(disk, [1, 2])


def test_a_swap_below_the_lowest_cleaned_belongs_to_a_finished_run(disk: Disk) -> None:
    filled(disk).close()
    add(disk, cleaned(disk), ".swap")
    disk.write(TWO + ".log.cleaned", b"")
    check(disk, [1, 2])


# -- what happens to the log meanwhile -------------------------------------------------------------


def test_a_truncation_ends_the_round_even_where_the_segments_look_the_same(disk: Disk) -> None:
    log = filled(disk)
    truncated: list[bool] = []

    def pace(_: int) -> None:
        if not truncated:
            truncated.append(log.truncate_to(1))
            for value in (b"4", b"5"):
                log.append(encode_records([(T0, b"b", value, ())]))
                log.roll()

    with pytest.raises(CleaningAborted):
        clean(
            disk.fs,
            disk.clock,
            log,
            Cleanable(first_dirty_offset=0, bound=3, clean_bytes=0, cleanable_bytes=1),
            ROOMY,
            pace=pace,
        )
    assert [(record.offset, record.value) for record in records_of(log)] == [
        (0, b"1"),
        (1, b"4"),
        (2, b"5"),
    ]
    assert disk.names(".cleaned") == disk.names(".swap") == []


def test_segments_that_are_not_the_logs_own_are_not_replaced(disk: Disk) -> None:
    log = filled(disk)
    old, active = [segment.id for segment in log.segments[:2]], log.segments[-1].id
    begun = log.begin_round()
    with pytest.raises(CleaningAborted, match="retention deleted"):
        log.replace_segments([active], begun)
    with pytest.raises(CleaningAborted, match="retention deleted"):
        log.replace_segments([old[0]._replace(inode=-1)], begun)
    for others in ([], old[::-1]):
        with pytest.raises(CleaningAborted, match="not adjacent"):
            log.replace_segments(others, begun)
    compact(disk, log)
    with pytest.raises(CleaningAborted, match="another compaction"):
        log.replace_segments(old, begun)
    with pytest.raises(CleaningAborted, match="retention deleted"):
        log.replace_segments(old, log.begin_round())
    assert offsets_of(log) == [2]


def test_a_disk_that_fails_in_the_swap_takes_the_log_offline_and_the_next_start_finishes_it(
    disk: Disk,
) -> None:
    log = filled(disk)
    log.flush()
    with (
        disk.fs.failing(lambda path: StorageError(path, "Input/output error"), "sync_dir"),
        pytest.raises(UndoFailed, match="Input/output"),
    ):
        compact(disk, log)
    check(Disk(disk.fs.crash()), [2])


def test_a_reader_of_an_index_that_was_never_looked_at_before_the_swap_finds_the_old_one(
    disk: Disk,
) -> None:
    log = disk.open(index_interval_bytes=0)
    for number in range(8):
        log.append(encode_records([(T0, b"%d" % (number % 2), b"v", ())]))
    log.roll()
    log.close()
    log = disk.open(is_clean=True, index_interval_bytes=0)
    old = log.segments[0]
    compact(disk, log)
    assert [old.find_batch(offset) is not None for offset in range(9)] == [True] * 8 + [False]
    assert len(old.offset_index) == 7
    assert offsets_of(log) == [6, 7]


def test_a_purge_leaves_the_segments_alone_that_a_swap_has_not_taken_out_yet(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(disk)
    log.reconfigure(LogConfig(cleanup_policy="compact", file_delete_delay_ms=0))
    seen: list[list[int]] = []
    sync_dir = MemoryFileSystem.sync_dir

    def purge_and_read(fs: MemoryFileSystem, path: str) -> None:
        log.purge_deleted()
        seen.append(offsets_of(log))
        sync_dir(fs, path)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryFileSystem, "sync_dir", purge_and_read)
        compact(disk, log)
    assert len(seen) >= 3
    assert all(offsets == [0, 1, 2] for offsets in seen)
    log.purge_deleted()
    assert disk.names(".deleted") == []
