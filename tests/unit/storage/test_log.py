"""A log: append, read, roll, flush, times, retention, and what it refuses."""

from typing import Any

import pytest

from raylog.storage.errors import (
    CorruptRecord,
    InvalidRecord,
    InvalidTimestamp,
    OffsetOutOfRange,
    OutOfResources,
    RecordBatchTooLarge,
    RecordTooLarge,
    StorageError,
    UnsupportedCompressionType,
)
from raylog.storage.indexes.time_index import TimestampOffset
from raylog.storage.readable import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)
from raylog.storage.records.batch import read_header, seal
from raylog.storage.records.encode import encode_records
from raylog.storage.state.producers import ProducerExpiration
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import (
    FOLDER,
    Disk,
    batch,
    batch_of_size,
    flip,
    of_producer,
    offsets_of,
    records_of,
)
from raylog.storage.testing.memory import MemoryFile, MemoryFileSystem


def resealed(records: bytearray, **fields: int) -> bytearray:
    """The batch with fields of its header changed, and the right CRC for them."""
    return seal(bytearray(records), read_header(records)._replace(**fields))


# -- append and read -------------------------------------------------------------------------------


def test_records_get_offsets_in_order_and_come_back(disk: Disk) -> None:
    log = disk.open()
    answers = [log.append(batch(count, value=b"%d" % count)) for count in (1, 3, 2)]
    assert [(answer.base_offset, answer.last_offset) for answer in answers] == [
        (0, 0),
        (1, 3),
        (4, 5),
    ]
    assert log.log_end_offset == log.high_watermark == 6
    assert [(record.offset, record.value) for record in records_of(log)] == [
        (0, b"1"), (1, b"3"), (2, b"3"), (3, b"3"), (4, b"2"), (5, b"2")
    ]  # fmt: skip
    assert not answers[0].is_duplicate


def test_a_batch_is_stamped_with_offset_and_leader_epoch_and_else_written_as_it_came(
    disk: Disk,
) -> None:
    log = disk.open()
    log.append(batch())
    sent = batch(2, compression_type="zstd")
    log.append(memoryview(bytes(sent)), leader_epoch=7)
    found = log.read(1, 1 << 20)
    written = found.read()
    header = read_header(written)
    assert (header.base_offset, header.leader_epoch) == (1, 7)
    assert written[16:] == sent[16:]


def test_an_empty_log_reads_as_its_end(disk: Disk) -> None:
    log = disk.open()
    assert not log.read(0, 100).size_bytes
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (0, 0, 0)


@pytest.mark.parametrize("offset", [-1, 5, 11, 2**62])
def test_an_offset_out_of_range_is_told_with_both_bounds(disk: Disk, offset: int) -> None:
    disk.open().append(batch(10))
    log = disk.open(is_clean=False, log_start_offset=6)
    with pytest.raises(
        OffsetOutOfRange, match=rf"orders-0: offset {offset} is out of range.*\[6, 10\)"
    ):
        log.read(offset, 100)


@pytest.mark.parametrize("max_bytes", [0, 1, 99, 100, 250, 10**6])
def test_reads_give_whole_batches_and_one_at_least(disk: Disk, max_bytes: int) -> None:
    log = disk.open(segment_bytes=350, index_interval_bytes=100)
    for _ in range(10):
        log.append(batch_of_size(100, 3))
    assert len(log.segments) == 4
    for offset in range(30):
        found = log.read(offset, max_bytes)
        assert found.position % 100 == found.size_bytes % 100 == 0
        assert found.size_bytes in (
            100,
            max_bytes // 100 * 100,
            found.size_bytes if max_bytes > 300 else 0,
        )
    assert offsets_of(log, max_bytes=max_bytes) == list(range(30))


def test_a_read_tells_where_the_bytes_lie(disk: Disk) -> None:
    log = disk.open(segment_bytes=250)
    for _ in range(3):
        log.append(batch_of_size(100, 2))
    found = log.read(4, 1000)
    assert found.path == disk.path("00000000000000000004.log")
    assert (found.position, found.size_bytes) == (0, 100)


def test_reads_in_gaps_go_on_behind_them(disk: Disk) -> None:
    """As compaction leaves them: inside of a segment, at its end, at the log's end."""
    content = [batch(2, base_offset=0), batch(2, base_offset=5)]
    disk.write("00000000000000000000.log", b"".join(content))
    disk.write("00000000000000000010.log", bytes(batch(1, base_offset=12)))
    disk.write("00000000000000000020.log", b"")
    log = disk.open()
    assert offsets_of(log) == [0, 1, 5, 6, 12]
    for offset, first in {2: 5, 4: 5, 7: 12, 9: 12, 10: 12, 11: 12}.items():
        assert offsets_of(log, offset)[0] == first
    assert log.log_end_offset == 20
    assert not log.read(13, 100).size_bytes
    assert log.append(batch()).base_offset == 20
    assert offsets_of(log, 13) == [20]


# -- roll ------------------------------------------------------------------------------------------


def test_a_full_segment_rolls_and_is_named_by_its_first_offset(disk: Disk) -> None:
    log = disk.open(segment_bytes=200)
    for _ in range(5):
        log.append(batch_of_size(100, 2))
    assert [segment.base_offset for segment in log.segments] == [0, 4, 8]
    assert disk.names(".log") == [f"{base:020d}.log" for base in (0, 4, 8)]
    assert disk.names(".snapshot") == [
        "00000000000000000004.snapshot",
        "00000000000000000008.snapshot",
    ]


def test_a_roll_of_an_empty_segment_is_none(disk: Disk) -> None:
    log = disk.open()
    log.roll()
    assert len(log.segments) == 1
    log.append(batch())
    log.roll()
    log.roll()
    assert [segment.base_offset for segment in log.segments] == [0, 1]
    assert log.append(batch()).base_offset == 1


def test_an_index_of_one_entry_rolls_at_every_batch_and_nothing_else_breaks(disk: Disk) -> None:
    log = disk.open(segment_index_bytes=12)
    for _ in range(5):
        log.append(batch())
    assert offsets_of(log) == [0, 1, 2, 3, 4]
    log.close()
    assert offsets_of(disk.open()) == [0, 1, 2, 3, 4]


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (b"", CorruptRecord),
        (b"\2" * 60, CorruptRecord),
        (bytes(batch())[:-1], CorruptRecord),
        (bytes(batch()) + b"\0", InvalidRecord),
        (bytes(batch()) * 2, InvalidRecord),
        (flip(70)(bytes(batch(3, value=b"value"))), CorruptRecord),
        (flip(16)(bytes(batch())), CorruptRecord),
        (bytes(batch())[:16] + b"\1" + bytes(batch())[17:], CorruptRecord),
        (bytes(batch())[:16] + b"\0" + bytes(batch())[17:], CorruptRecord),
        (resealed(batch(3), count=2), InvalidRecord),
        (resealed(batch(3), last_offset_delta=3), InvalidRecord),
        (resealed(batch(1), count=0, last_offset_delta=-1), InvalidRecord),
        (resealed(batch(), attributes=5), UnsupportedCompressionType),
        (resealed(batch(), attributes=7), UnsupportedCompressionType),
        (resealed(batch(), attributes=0x10), InvalidRecord),
        (resealed(batch(), attributes=0x20), InvalidRecord),
        (resealed(batch(), attributes=0x40), InvalidRecord),
        (batch(timestamp=T0 + 3_600_001), InvalidTimestamp),
        (batch_of_size(1_048_589), RecordTooLarge),
        (resealed(of_producer(0), base_sequence=-1), InvalidRecord),
        ("text", InvalidRecord),
        (None, InvalidRecord),
        ([1, 2], InvalidRecord),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_what_is_no_batch_for_this_log_is_refused_and_nothing_is_written(
    disk: Disk, records: Any, error: type[Exception]
) -> None:
    log = disk.open()
    operations = disk.fs.operations
    with pytest.raises(error):
        log.append(records)
    assert (log.log_end_offset, log.size_bytes, disk.fs.operations) == (0, 0, operations)
    assert log.append(batch()).base_offset == 0


def test_an_append_over_a_segments_size_is_refused(disk: Disk) -> None:
    log = disk.open(segment_bytes=100)
    log.append(batch_of_size(100))
    with pytest.raises(RecordBatchTooLarge, match=r"101 bytes exceeds segment\.bytes=100"):
        log.append(batch_of_size(101))


def test_timestamps_may_be_as_old_as_they_like_and_as_new_as_the_topic_says(disk: Disk) -> None:
    log = disk.open(message_timestamp_after_max_ms=1000)
    log.append(batch(timestamp=0))
    log.append(batch(timestamp=-1))
    log.append(batch(timestamp=T0 + 1000))
    with pytest.raises(InvalidTimestamp, match=r"message\.timestamp\.after\.max\.ms=1000"):
        log.append(batch(timestamp=T0 + 1001))


# -- LogAppendTime ---------------------------------------------------------------------------------


def test_a_topic_of_append_time_stamps_the_batch(disk: Disk) -> None:
    log = disk.open(message_timestamp_type="LogAppendTime")
    disk.clock.advance(5)
    answer = log.append(batch(2, timestamp=T0 - 10**9, step_ms=7, compression_type="lz4"))
    assert answer.log_append_time == T0 + 5
    assert [record.timestamp for record in records_of(log)] == [T0 + 5, T0 + 5]
    found = log.read(0, 1000)
    assert read_header(found.read()).timestamp_type == "LogAppendTime"
    assert log.offset_for_timestamp(T0 + 5) == TimestampOffset(T0 + 5, 0)
    assert log.offset_for_timestamp(T0 + 6) is None
    log.append(batch(timestamp=T0 + 10**12))  # the future of a clock that is not asked


def test_a_topic_of_create_time_takes_the_stamp_off(disk: Disk) -> None:
    log = disk.open()
    log.append(batch(2, timestamp=T0, step_ms=1, log_append_time=T0 + 3))
    assert [record.timestamp for record in records_of(log)] == [T0, T0 + 1]


def test_a_duplicate_is_answered_with_its_first_append_time(disk: Disk) -> None:
    log = disk.open(message_timestamp_type="LogAppendTime")
    first = log.append(of_producer(0))
    disk.clock.advance(50)
    again = log.append(of_producer(0))
    assert (again.log_append_time, again.is_duplicate) == (first.log_append_time, True)
    log.close()
    assert (
        disk.open(message_timestamp_type="LogAppendTime").append(of_producer(0)).log_append_time
        == T0
    )


# -- times -----------------------------------------------------------------------------------------


def test_a_time_leads_to_the_first_record_at_or_after_it(disk: Disk) -> None:
    log = disk.open(segment_bytes=250, index_interval_bytes=0)
    for number in range(12):
        log.append(batch_of_size(100, timestamp=10 * number))
    assert len(log.segments) == 6
    for timestamp in range(111):
        expected = -(-timestamp // 10)
        assert log.offset_for_timestamp(timestamp) == TimestampOffset(10 * expected, expected)
    assert log.offset_for_timestamp(111) is None


def test_special_times(disk: Disk) -> None:
    log = disk.open(segment_bytes=250)
    assert (
        log.offset_for_timestamp(LATEST)
        == log.offset_for_timestamp(EARLIEST)
        == TimestampOffset(-1, 0)
    )
    assert log.offset_for_timestamp(MAX_TIMESTAMP) is None
    assert log.offset_for_timestamp(0) is None
    log.append(batch(timestamp=0))
    assert log.offset_for_timestamp(MAX_TIMESTAMP) == TimestampOffset(0, 0)
    log.truncate_to(0)
    for timestamp in (5, 9, 9, 3):
        log.append(batch_of_size(100, timestamp=timestamp))
    assert log.offset_for_timestamp(LATEST) == TimestampOffset(-1, 4)
    assert log.offset_for_timestamp(EARLIEST) == TimestampOffset(-1, 0)
    assert log.offset_for_timestamp(MAX_TIMESTAMP) == TimestampOffset(9, 1)
    log.delete_records(3)
    assert log.offset_for_timestamp(EARLIEST_LOCAL) == TimestampOffset(-1, 3)
    assert (
        log.offset_for_timestamp(LATEST_TIERED)
        is log.offset_for_timestamp(EARLIEST_PENDING_UPLOAD)
        is None
    )


def test_a_segment_whose_late_records_are_early_does_not_hide_the_next(disk: Disk) -> None:
    disk.open(segment_bytes=250).close()
    log = disk.open(segment_bytes=250)
    for timestamp in (100, 5, 50, 60, 200):
        log.append(batch_of_size(100, timestamp=timestamp))
    assert log.offset_for_timestamp(55) == TimestampOffset(100, 0)
    assert log.offset_for_timestamp(101) == TimestampOffset(200, 4)
    log.close()
    moved = disk.open(log_start_offset=1)
    assert moved.offset_for_timestamp(55) == TimestampOffset(60, 3)
    assert moved.offset_for_timestamp(EARLIEST) == TimestampOffset(-1, 1)


def test_records_without_timestamps_are_found_by_none(disk: Disk) -> None:
    log = disk.open()
    log.append(batch(timestamp=-1))
    assert log.offset_for_timestamp(MAX_TIMESTAMP) is None
    assert log.offset_for_timestamp(0) is None


# -- flush -----------------------------------------------------------------------------------------


def test_a_flush_moves_the_recovery_point_and_survives_power(disk: Disk) -> None:
    log = disk.open(segment_bytes=250)
    for _ in range(5):
        log.append(batch_of_size(100))
    log.flush()
    assert log.recovery_point == 5
    log.append(batch_of_size(100))
    after = Disk(disk.fs.crash("flushed", names="flushed"))
    assert offsets_of(after.open(is_clean=False, recovery_point=5)) == [0, 1, 2, 3, 4]
    operations = disk.fs.operations
    log.flush(3)
    assert (log.recovery_point, disk.fs.operations) == (5, operations)


def test_a_flush_below_a_new_segment_syncs_no_folder(disk: Disk) -> None:
    log = disk.open()
    log.append(batch())
    log.flush()
    log.append(batch())
    log.roll()
    begin = disk.fs.operations
    log.flush_due()
    assert log.recovery_point == 2
    assert [done for done in disk.fs.log[begin:] if "sync_dir" in done] == []
    log.append(batch())
    log.flush()
    assert [done for done in disk.fs.log[begin:] if "sync_dir" in done] == [f"sync_dir {FOLDER}"]


def test_upkeep_flushes_sealed_segments_and_the_active_one_when_its_time_has_come(
    disk: Disk,
) -> None:
    log = disk.open(segment_bytes=250, flush_ms=1000)
    for _ in range(5):
        log.append(batch_of_size(100))
    log.flush_due()
    assert log.recovery_point == 4
    disk.clock.advance(1000)
    log.flush_due()
    assert log.recovery_point == 5


# -- retention -------------------------------------------------------------------------------------


def test_old_segments_go_in_two_steps_and_readers_of_them_can_finish(disk: Disk) -> None:
    log = disk.open(segment_bytes=250, retention_ms=1000, file_delete_delay_ms=500)
    for number in range(5):
        log.append(batch_of_size(100, timestamp=T0 + 600 * number))
    found = log.read(0, 1000)
    disk.clock.advance(600 + 1001)
    assert log.delete_old_segments() == 1
    assert (log.log_start_offset, log.recovery_point) == (2, 2)
    assert disk.names(".deleted") == [
        f"00000000000000000000.{kind}.deleted" for kind in ("index", "log", "timeindex")
    ]
    assert len(found.read()) == 200
    with pytest.raises(OffsetOutOfRange):
        log.read(1, 100)
    assert offsets_of(log) == [2, 3, 4]
    disk.clock.advance(499)
    log.purge_deleted()
    assert len(disk.names(".deleted")) == 3
    disk.clock.advance(1)
    log.purge_deleted()
    assert disk.names(".deleted") == []
    assert disk.names(".snapshot") == [
        "00000000000000000002.snapshot",
        "00000000000000000004.snapshot",
    ]


@pytest.mark.parametrize("failing", range(12))
def test_a_deletion_that_fails_is_tried_again_and_holds_up_no_other(
    disk: Disk, failing: int
) -> None:
    log = disk.open(segment_bytes=100, retention_bytes=0, file_delete_delay_ms=500)
    for _ in range(5):
        log.append(batch_of_size(100))
    assert log.delete_old_segments() == 5
    disk.clock.advance(500)
    before = disk.fs.operations
    disk.fs.fail_at(before + failing, lambda path: StorageError(path, "Input/output error"))
    with pytest.raises(StorageError, match="Input/output error"):
        log.purge_deleted()
    left = disk.names(".deleted")
    assert 1 <= len(left) <= 3
    assert len({name.partition(".")[0] for name in left}) == 1
    log.purge_deleted()
    assert disk.names(".deleted") == left, "it waits for as long again"
    disk.clock.advance(500)
    log.purge_deleted()
    assert disk.names(".deleted") == []


def test_retention_removes_the_snapshot_of_a_close_within_a_segment(disk: Disk) -> None:
    log = disk.open(retention_ms=1000)
    log.append(batch(1))
    log.close()
    assert disk.names(".snapshot") == ["00000000000000000001.snapshot"]
    log = disk.open(retention_ms=1000)
    log.append(batch(1))
    log.roll()
    log.append(batch(1, timestamp=T0 + 1001))
    disk.clock.advance(1001)
    assert log.delete_old_segments() == 1
    assert disk.names(".snapshot") == ["00000000000000000002.snapshot"]


def test_kafkas_scenario_of_three_segments(disk: Disk) -> None:
    """Timestamps now+100, now, now+100; retention 900 ms; 901 ms later; log start offset 1
    (13.6)."""
    log = disk.open(retention_ms=900)
    for timestamp in (T0 + 100, T0, T0 + 100):
        log.append(batch(timestamp=timestamp))
        log.roll()
    log.delete_records(1)
    disk.clock.advance(901)
    assert log.delete_old_segments() == 2
    assert log.delete_old_segments() == 0
    assert offsets_of(log) == [2]


def test_when_all_is_old_a_new_empty_segment_stays(disk: Disk) -> None:
    log = disk.open(retention_ms=10)
    log.append(batch(3))
    disk.clock.advance(11)
    assert log.delete_old_segments() == 1
    assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (3, 3, 1)
    assert log.delete_old_segments() == 0
    assert log.append(batch(timestamp=T0 + 11)).base_offset == 3
    assert offsets_of(log) == [3]


@pytest.mark.parametrize(
    ("config", "lag_ms"),
    [
        ({"retention_ms": 900}, 100),
        ({"retention_ms": 1100}, 0),
        ({"retention_ms": 0}, 1000),
        ({"retention_ms": -1}, 0),
        ({"retention_ms": 900, "cleanup_policy": "compact"}, 0),
    ],
)
def test_retention_lags_by_what_the_oldest_segment_is_older_than_allowed(
    disk: Disk, config: dict[str, Any], lag_ms: int
) -> None:
    log = disk.open(**config)
    assert log.retention_lag_ms() == 0
    log.append(encode_records([(T0, b"k", b"v", ())]))
    disk.clock.advance(1000)
    assert log.retention_lag_ms() == lag_ms


def test_what_retention_left_is_there_after_a_loss_of_power(disk: Disk) -> None:
    """The new start is written down by others: the segment that begins there must be on disk
    before."""
    log = disk.open(retention_ms=10)
    log.append(batch(3))
    disk.clock.advance(11)
    log.delete_old_segments()
    after = Disk(disk.fs.crash("flushed", names="flushed"))
    again = after.open(
        is_clean=False, recovery_point=log.recovery_point, log_start_offset=log.log_start_offset
    )
    assert (again.log_start_offset, again.log_end_offset) == (3, 3)


def test_a_start_that_retention_moved_does_not_move_back_with_a_lost_checkpoint(disk: Disk) -> None:
    log = disk.open(segment_bytes=250, retention_bytes=200)
    for _ in range(5):
        log.append(batch_of_size(100))
    log.flush()
    assert log.delete_old_segments() == 1
    after = Disk(disk.fs.crash("flushed", names="flushed"))
    again = after.open(is_clean=False, recovery_point=log.recovery_point)
    assert (again.log_start_offset, offsets_of(again)) == (2, [2, 3, 4])


def test_epochs_follow_the_start(disk: Disk) -> None:
    log = disk.open(segment_bytes=100, retention_bytes=100)
    for epoch in range(3):
        log.epochs.assign(epoch, log.log_end_offset)
        log.append(batch_of_size(100))
    log.delete_old_segments()
    assert log.epochs.entries == ((2, 2),)


def test_a_start_that_was_asked_for_lies_in_a_log_that_survives_power(disk: Disk) -> None:
    log = disk.open()
    for _ in range(3):
        log.append(batch(5))
    log.delete_records(12)
    after = Disk(disk.fs.crash("flushed", names="flushed"))
    assert offsets_of(after.open(is_clean=False, log_start_offset=log.log_start_offset)) == [
        12,
        13,
        14,
    ]


@pytest.mark.parametrize("offset", [-2, 16])
def test_records_are_deleted_up_to_the_end_at_most_and_the_error_names_the_range(
    disk: Disk, offset: int
) -> None:
    log = disk.open()
    log.append(batch(15))
    assert [log.delete_records(before) for before in (5, 4, 5)] == [5, 5, 5]
    wanted = (
        rf"offset {offset} is out of range: the log holds \[5, 15\); use an offset from 5 to 15"
    )
    with pytest.raises(OffsetOutOfRange, match=wanted):
        log.delete_records(offset)
    assert [log.delete_records(before) for before in (15, -1)] == [15, 15]


def test_a_newer_epoch_of_an_append_begins_at_the_logs_end(disk: Disk) -> None:
    log = disk.open()
    for epoch in (3, 3, 7):
        log.append(batch(2), leader_epoch=epoch)
    assert [*log.epochs.entries] == [(3, 0), (7, 4)]
    log.truncate_to(4)
    assert [*log.epochs.entries] == [(3, 0)]
    log.append(batch(), leader_epoch=7)
    assert [log.epoch_at(offset) for offset in (3, 4)] == [3, 7]


def test_snapshots_that_a_flush_could_not_open_are_flushed_by_the_next(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = disk.open(segment_bytes=150)
    for sequence in range(5):
        log.append(of_producer(sequence))
    opened = MemoryFileSystem.open

    def shortage(fs: MemoryFileSystem, path: str, *, create: bool = False) -> MemoryFile:
        if path.endswith(".snapshot"):
            raise OutOfResources(path, "no file descriptor left")
        return opened(fs, path, create=create)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryFileSystem, "open", shortage)
        with pytest.raises(OutOfResources):
            log.flush()
    log.flush()
    flushed = {line.rpartition("/")[2] for line in disk.fs.log if line.startswith("flush ")}
    assert len(disk.names(".snapshot")) == 2
    assert {*disk.names(".snapshot")} <= flushed


def test_a_snapshot_of_a_roll_is_on_the_disk_after_the_next_flush(disk: Disk) -> None:
    log = disk.open()
    log.append(of_producer(0))
    log.roll()
    log.append(batch())
    log.flush()
    name = f"{1:020d}.snapshot"
    written = disk.read(name)
    assert disk.fs.crash("flushed", names="flushed").read_file(disk.path(name)) == written


def test_a_clock_that_is_set_back_does_not_put_off_a_flush(disk: Disk) -> None:
    log = disk.open(flush_ms=1000)
    disk.clock.advance(-3_600_000)
    log.append(batch())
    assert log.next_due_ms(ProducerExpiration(1 << 40)) <= disk.clock.now_ms() + 1000
    log.flush_due()
    assert log.recovery_point == 1
