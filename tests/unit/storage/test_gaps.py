"""Whether a gap between two segments is a loss, and what is told of one within a segment."""

from collections.abc import Callable

import pytest

from raylog.storage import recovery
from raylog.storage.asides import list_asides
from raylog.storage.gaps import Gaps, Recovered
from raylog.storage.log import Log
from raylog.storage.state.checkpoints import CLEANER_OFFSETS, write_offsets
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import FOLDER, PARTITION, Disk, batch, flip, offsets_of
from tests.harness.small_logs import FIRST, SECOND, SMALL, THIRD, fill

DENSE = Recovered(cut_bytes=0, next_offset=10, is_dense=True)


@pytest.mark.parametrize(
    ("segment", "compacted_to", "is_compacted", "is_loss"),
    [
        (DENSE, None, False, True),
        (DENSE, None, True, False),
        (DENSE, 0, False, True),
        (DENSE, 0, True, True),
        (DENSE, 10, True, True),
        (DENSE, 11, True, False),
        (DENSE, 11, False, False),
        (DENSE._replace(is_dense=False), 0, True, False),
        (DENSE._replace(next_offset=20), None, False, False),
    ],
)
def test_a_gap_is_a_loss_unless_it_may_be_compactions(
    disk: Disk, segment: Recovered, compacted_to: int | None, is_compacted: bool, is_loss: bool
) -> None:
    if compacted_to is not None:
        write_offsets(disk.fs, f"/logs/{CLEANER_OFFSETS}", {PARTITION: compacted_to})
    gaps = Gaps(disk.fs, FOLDER, is_compacted=is_compacted)
    assert gaps.is_loss(segment, 20) == is_loss


def test_a_gap_where_retention_renamed_a_segment_is_no_loss(disk: Disk) -> None:
    disk.write(f"{10:020d}.log.deleted", b"")
    assert not Gaps(disk.fs, FOLDER, is_compacted=False).is_loss(DENSE, 20)


def test_a_checkpoint_that_cannot_be_read_makes_no_gap_a_loss(disk: Disk) -> None:
    disk.fs.write_file(f"/logs/{CLEANER_OFFSETS}", b"garbage")
    assert not Gaps(disk.fs, FOLDER, is_compacted=False).is_loss(DENSE, 20)


def test_a_compacted_folder_of_kafka_with_an_emptied_segment_keeps_all_records(disk: Disk) -> None:
    """No cleaner checkpoint, no gap within a segment, and not closed in order: 31 of 31."""
    disk.write(f"{0:020d}.log", bytes(batch(10)))
    disk.write(f"{10:020d}.log", b"")
    disk.write(f"{20:020d}.log", bytes(batch(10, base_offset=20)))
    disk.write(f"{30:020d}.log", bytes(batch(11, base_offset=30, timestamp=T0)))
    log = disk.open(is_clean=False, cleanup_policy="compact")
    assert offsets_of(log) == [*range(10), *range(20, 41)]
    assert [m.kind for m in log.mended if m.kind in ("cut", "set_aside")] == []


def test_the_same_folder_of_a_topic_that_is_not_compacted_loses_nothing_for_good(
    disk: Disk,
) -> None:
    disk.write(f"{0:020d}.log", bytes(batch(10)))
    disk.write(f"{10:020d}.log", b"")
    disk.write(f"{20:020d}.log", bytes(batch(10, base_offset=20)))
    log = disk.open(is_clean=False)
    assert offsets_of(log) == list(range(10))
    assert disk.names(".aside-0") == [f"{20:020d}.log.aside-0"]


# -- within a segment ------------------------------------------------------------------------------

OFFSET_BYTE = 6  # the second of a batch's base offset from behind: a flip adds 256 or more


def gaps_told(log: Log) -> list[tuple[str, int, int]]:
    told = [entry for entry in log.mended if entry.kind == "gap"]
    return [(entry.file, entry.first_offset, entry.end_offset) for entry in told]


@pytest.mark.parametrize(
    ("name", "change", "gap", "read"),
    [
        (THIRD, flip(900 + OFFSET_BYTE), (58, 58 + 256), [*range(58), 314, 315]),
        (THIRD, lambda log: log[:500] + log[600:], (50, 52), [*range(50), *range(52, 60)]),
        (SECOND, lambda log: log[100:], (20, 22), [*range(20), *range(22, 60)]),
        (
            FIRST,
            lambda log: log[:100] + log[200:400] + log[600:],
            (2, 12),
            [0, 1, *range(4, 8), *range(12, 60)],
        ),
    ],
)
def test_offsets_that_are_missing_where_nothing_was_compacted_are_told(
    disk: Disk,
    name: str,
    change: Callable[[bytes], bytes],
    gap: tuple[int, int],
    read: list[int],
) -> None:
    """No record leaves the log for it: the batches around the gap are good."""
    fill(disk)
    disk.damage(name, change)
    log = disk.open(is_clean=False, **SMALL)
    assert gaps_told(log) == [(name, *gap)]
    assert offsets_of(log) == read
    assert disk.names(".aside-0") == []


def test_offsets_that_are_missing_below_the_log_start_are_not_told(disk: Disk) -> None:
    fill(disk)
    disk.damage(THIRD, lambda log: log[:500] + log[600:])
    log = disk.open(is_clean=False, log_start_offset=52, **SMALL)
    assert gaps_told(log) == []
    log = disk.open(is_clean=False, log_start_offset=51, **SMALL)
    assert gaps_told(log) == [(THIRD, 50, 52)]


@pytest.mark.parametrize("why", ["compacted now", "listed", "unreadable", "records removed"])
def test_a_gap_that_compaction_may_have_left_within_a_segment_is_not_told(
    disk: Disk, why: str
) -> None:
    """Kafka's followers copy gaps behind their own cleaner's offset, too."""
    if why == "listed":
        write_offsets(disk.fs, f"/logs/{CLEANER_OFFSETS}", {PARTITION: 20})
    if why == "unreadable":
        disk.fs.write_file(f"/logs/{CLEANER_OFFSETS}", b"garbage")
    last = batch(2, base_offset=20, offsets=[20, 22]) if why == "records removed" else batch(2)
    disk.write(FIRST, bytes(batch(2)) + bytes(batch(2, base_offset=18)) + bytes(last))
    policy = "compact" if why == "compacted now" else "delete"
    log = disk.open(is_clean=False, cleanup_policy=policy)
    assert gaps_told(log) == []


def test_of_a_gap_behind_the_compacted_part_only_that_is_told(disk: Disk) -> None:
    """Compaction was there once, and the topic is not compacted any more."""
    write_offsets(disk.fs, f"/logs/{CLEANER_OFFSETS}", {PARTITION: 12})
    disk.write(FIRST, bytes(batch(2)) + bytes(batch(2, base_offset=18)))
    assert gaps_told(disk.open(is_clean=False)) == [(FIRST, 12, 18)]


@pytest.mark.parametrize("piece_bytes", [1 << 20, 100, 250, 300])
def test_a_batch_whose_offset_was_raised_is_cut_off_and_not_those_behind_it(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    """The batches behind it follow those before it. They can be restored."""
    monkeypatch.setattr(recovery, "PIECE_BYTES", piece_bytes)
    fill(disk)
    disk.damage(THIRD, flip(500 + OFFSET_BYTE))
    log = disk.open(is_clean=False, **SMALL)
    assert offsets_of(log) == list(range(50))
    (aside,) = list_asides(disk.fs, FOLDER)
    assert (aside.first_offset, aside.end_offset, aside.batches) == (52, 60, 4)


@pytest.mark.parametrize(
    ("change", "gap"),
    [
        (flip(900 + OFFSET_BYTE), (58, 58 + 256)),
        (lambda log: log[:500] + log[600:], (50, 52)),
    ],
)
def test_where_a_start_after_an_orderly_stop_reads_the_whole_segment_gaps_are_told(
    disk: Disk, change: Callable[[bytes], bytes], gap: tuple[int, int]
) -> None:
    """An index that does not agree is why it does; to make it again must not hide the reason."""
    fill(disk)
    disk.damage(THIRD, change)
    log = disk.open(recovery_point=60, **SMALL)
    assert gaps_told(log) == [(THIRD, *gap)]
    assert [mended.file for mended in log.mended if mended.kind == "rebuilt"] != []
