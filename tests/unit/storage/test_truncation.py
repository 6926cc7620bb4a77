"""Cutting a log: at its end by truncation, at its start by the deletion of records."""

import pytest

from raylog.storage.errors import DiskFull, OffsetOutOfRange, PolicyViolation, UndoFailed
from raylog.storage.log import Log
from raylog.storage.readable import COMMITTED
from raylog.storage.records.control import Marker, encode_marker
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import Disk, batch, batch_of_size, of_producer, offsets_of
from raylog.storage.validation import COORDINATOR
from tests.harness.interleaving import Meeting, Schedule, schedules


def filled(disk: Disk) -> Log:
    """Offsets 0 ... 11 in batches of two, two batches a segment."""
    log = disk.open()
    for number in range(6):
        if number in (2, 4):
            log.roll()
        log.append(of_producer(2 * number, 2), leader_epoch=number // 2)
    return log


@pytest.mark.parametrize(
    ("offset", "left", "segments"),
    [
        (12, 12, 3),
        (11, 10, 3),
        (10, 10, 3),
        (8, 8, 3),
        (7, 6, 2),
        (5, 4, 2),
        (4, 4, 2),
        (1, 0, 1),
        (0, 0, 1),
    ],
)
def test_whole_batches_go_from_the_one_that_holds_the_offset(
    disk: Disk, offset: int, left: int, segments: int
) -> None:
    log = filled(disk)
    assert log.truncate_to(offset) == (offset < 12)
    assert offsets_of(log) == list(range(left))
    assert log.log_end_offset == offset
    assert len(log.segments) == segments
    assert log.append(batch()).base_offset == offset
    assert offsets_of(log) == [*range(left), offset]


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_truncated_log_opens_as_it_was_cut(disk: Disk, is_clean: bool) -> None:
    log = filled(disk)
    log.truncate_to(6)
    if is_clean:
        log.close()
    again = disk.open(is_clean=is_clean)
    assert offsets_of(again) == list(range(6))
    assert again.append(of_producer(6)).base_offset == 6


def test_producers_and_epochs_go_back_with_the_end(disk: Disk) -> None:
    log = filled(disk)
    log.epochs.assign(0, 0)
    log.epochs.assign(1, 4)
    log.epochs.assign(2, 8)
    log.truncate_to(6)
    assert log.epochs.latest == 1
    assert log.append(of_producer(4, 2)).is_duplicate
    assert not log.append(of_producer(6, 2)).is_duplicate
    assert disk.names(".snapshot") == ["00000000000000000004.snapshot"]


def test_an_epoch_without_records_goes_where_nothing_else_is_cut(disk: Disk) -> None:
    log = filled(disk)
    log.epochs.assign(3, 12)
    assert not log.truncate_to(12)
    assert log.epochs.latest == 2


def test_no_snapshot_of_what_lies_before_the_start_is_kept(disk: Disk) -> None:
    log = filled(disk)
    log.delete_records(4)
    log.truncate_to(6)
    assert disk.names(".snapshot") == []


def test_the_indexes_forget_what_was_cut(disk: Disk) -> None:
    log = disk.open(index_interval_bytes=0)
    for number in range(10):
        log.append(batch(timestamp=1000 + number))
    log.truncate_to(5)
    assert len(log.segments[0].offset_index) == 4
    assert log.segments[0].max_timestamp == (1004, 4)
    assert log.offset_for_timestamp(1005) is None
    log.append(batch(timestamp=2000))
    assert log.offset_for_timestamp(1500) == (2000, 5)


def test_truncation_below_the_first_segment_leaves_an_empty_log_there(disk: Disk) -> None:
    log = filled(disk)
    log.delete_records(8)
    assert log.delete_old_segments() == 2
    log.truncate_to(3)
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)
    assert log.append(batch()).base_offset == 3
    log.close()
    assert offsets_of(disk.open()) == [3]


def test_a_log_that_goes_on_behind_its_end_is_readable_from_there(disk: Disk) -> None:
    log = filled(disk)
    log.truncate_fully(50)
    assert (log.log_start_offset, log.high_watermark, log.recovery_point) == (50, 50, 50)
    assert log.delete_records() == 50
    assert log.append(batch()).base_offset == 50
    assert offsets_of(log) == [50]


def test_a_cut_that_could_not_lower_the_checkpoints_holds_no_recovery_point_back(
    disk: Disk,
) -> None:
    log = filled(disk)

    def lower(_: int) -> None:
        raise DiskFull("/logs/recovery-point-offset-checkpoint.tmp")

    for cut in (log.truncate_to, log.truncate_fully):
        with pytest.raises(DiskFull):
            cut(1, lower)
    with pytest.raises(DiskFull):
        log.truncate_fully(50, lower)
    log.flush()
    assert (log.recovery_point, offsets_of(log)) == (12, list(range(12)))


@pytest.mark.parametrize("has_snapshot", [True, False])
def test_a_producer_is_known_whose_last_batch_holds_the_start(
    disk: Disk, has_snapshot: bool
) -> None:
    log = disk.open()
    log.append(of_producer(0, 3))
    log.delete_records(2)
    if has_snapshot:
        log.roll()
        log.flush()
    again = disk.open(is_clean=False, recovery_point=2, log_start_offset=2)
    answer = again.append(of_producer(0, 3))
    assert (answer.base_offset, answer.is_duplicate) == (0, True)
    assert again.append(of_producer(3)).base_offset == 3


def test_a_full_truncation_to_the_same_base_keeps_the_old_file_apart(disk: Disk) -> None:
    log = disk.open()
    log.append(batch())
    log.truncate_fully(0)
    assert offsets_of(log) == []
    log.append(batch())
    disk.clock.advance(log.config.file_delete_delay_ms)
    log.purge_deleted()
    assert offsets_of(log) == [0]
    log.close()
    assert offsets_of(disk.open()) == [0]


def test_an_end_below_zero_is_refused(disk: Disk) -> None:
    with pytest.raises(OffsetOutOfRange):
        filled(disk).truncate_to(-1)


def test_a_recovery_point_behind_the_cut_comes_back(disk: Disk) -> None:
    log = filled(disk)
    log.flush()
    assert log.recovery_point == 12
    log.truncate_to(6)
    assert log.recovery_point == 6


# -- delete records --------------------------------------------------------------------------------


def test_deleted_records_are_out_of_range_at_once_and_their_segments_go_later(disk: Disk) -> None:
    log = filled(disk)
    assert log.delete_records(5) == 5
    with pytest.raises(OffsetOutOfRange):
        log.read(4, 1)
    assert offsets_of(log, 5) == list(range(5, 12))
    assert len(log.segments) == 3
    assert log.delete_old_segments() == 1
    assert log.log_start_offset == 5
    assert log.delete_records(3) == 5, "the start never goes back"


def test_all_records_may_be_deleted_but_none_beyond_the_high_watermark(disk: Disk) -> None:
    log = filled(disk)
    for offset in (13, -2):
        with pytest.raises(OffsetOutOfRange, match=r"\[0, 12\)"):
            log.delete_records(offset)
    assert log.delete_records() == 12
    assert offsets_of(log) == []


def test_a_compacted_topic_keeps_its_records(disk: Disk) -> None:
    with pytest.raises(PolicyViolation, match="write tombstones"):
        disk.open(cleanup_policy="compact").delete_records(0)


def test_a_deleted_start_is_kept_by_the_checkpoint(disk: Disk) -> None:
    log = filled(disk)
    log.delete_records(5)
    log.close()
    assert offsets_of(disk.open(log_start_offset=5)) == list(range(5, 12))


def test_a_snapshot_of_a_history_that_was_cut_is_gone(disk: Disk) -> None:
    filled(disk).close()
    log = disk.open()
    log.truncate_to(10)
    assert disk.names(".snapshot") == [
        "00000000000000000004.snapshot",
        "00000000000000000008.snapshot",
    ]


def test_an_emptied_segment_is_as_old_as_its_emptying(disk: Disk) -> None:
    log = disk.open(segment_ms=1000)
    log.append(batch())
    disk.clock.advance(5000)
    log.truncate_to(0)
    disk.clock.advance(900)
    for _ in range(2):
        log.append(batch(timestamp=-1))
    assert len(log.segments) == 1
    disk.clock.advance(200)
    log.append(batch(timestamp=-1))
    assert len(log.segments) == 2


def test_a_truncation_that_fails_half_way_stops_the_log() -> None:
    """Files of both ends lie there: a second attempt would find nothing to cut, and go on."""
    failures = 0
    for fault in range(40):
        disk = Disk()
        log = disk.open(segment_bytes=200, index_interval_bytes=0)
        for _ in range(6):
            log.append(batch_of_size(150))
        log.flush()
        disk.fs.fail_at(disk.fs.operations + fault, DiskFull)
        try:
            log.truncate_to(2)
        except UndoFailed:
            failures += 1
        if disk.fs.operations <= fault:
            break
    assert failures > 5


# -- readers beside a truncation -------------------------------------------------------------------

FILES = ["/log.py", "/readable.py", "/segment.py", "/replay.py"]


def test_nobody_reads_what_was_aborted_while_its_marker_is_cut_away() -> None:
    marker = encode_marker(Marker(True, 0, T0), producer_id=7, producer_epoch=0)

    def meet(schedule: Schedule) -> list[int]:
        log = Disk().open()
        log.append(of_producer(0, 2, transactional=True))
        log.append(marker, origin=COORDINATOR)
        log.append(batch())

        def read() -> bool:
            found = log.read(0, 1000, COMMITTED)
            return not found.size_bytes or [entry.producer_id for entry in found.aborted] == [7]

        outcome = Meeting(FILES, schedule).run(read, lambda: log.truncate_to(2))
        assert outcome.errors == [None, None], (schedule, outcome.places)
        assert outcome.answers[0], (schedule, outcome.places)
        assert log.last_stable_offset == 0
        return outcome.lines

    lines = meet(Schedule())
    for schedule in schedules(lines, pre_emptions=1):
        meet(schedule)
    for schedule in schedules(lines, stride=7):
        meet(schedule)


def test_a_look_up_by_time_fails_at_no_old_bound() -> None:
    def meet(schedule: Schedule) -> list[int]:
        log = Disk().open()
        for number in range(3):
            log.append(batch(timestamp=T0 + number))

        def cut_and_append() -> None:
            log.truncate_to(1)
            log.append(batch(timestamp=T0 + 2, value=bytes(200)))

        def look() -> object:
            return log.offset_for_timestamp(T0 + 2)

        outcome = Meeting(FILES, schedule).run(look, cut_and_append)
        assert outcome.errors == [None, None], (schedule, outcome.places)
        assert outcome.answers[0] in (None, (T0 + 2, 2), (T0 + 2, 1)), (schedule, outcome.places)
        return outcome.lines

    for schedule in schedules(meet(Schedule()), pre_emptions=1):
        meet(schedule)
