"""Whether a gap between two segments is a loss."""

import pytest

from raylog.storage.gaps import Gaps, Recovered
from raylog.storage.state.checkpoints import CLEANER_OFFSETS, write_offsets
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import FOLDER, PARTITION, Disk, batch, offsets_of

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
