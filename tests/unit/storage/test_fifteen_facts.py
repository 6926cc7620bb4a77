"""The facts of Kafka's storage that are easiest to get wrong, one test each, numbered as in section
15 of the fact sheet that docs/CONFORMANCE.md stands on."""

from zlib import crc32 as crc32_of_zip

import pytest
from crc32c import crc32c

from raylog.storage.cleaner.cleanable import Cleanable, cleanable, facts_of
from raylog.storage.cleaner.cleaner import Buffers, clean
from raylog.storage.errors import OutOfOrderSequence
from raylog.storage.indexes.offset_index import OffsetIndex
from raylog.storage.indexes.time_index import TimeIndex
from raylog.storage.log import Log
from raylog.storage.log_dir import CheckpointedOffsets, LogDir
from raylog.storage.names import TopicPartition
from raylog.storage.records.batch import iter_batches, read_header, stamp
from raylog.storage.records.decode import decode_records
from raylog.storage.records.encode import encode_records
from raylog.storage.records.layout import HEADER_SIZE
from raylog.storage.records.legacy import encode_legacy
from raylog.storage.state.epochs import LeaderEpochs
from raylog.storage.state.producers import ProducerStates
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
from raylog.storage.testing.memory import MemoryFileSystem


def entries(disk: Disk, name: str, kind: type[OffsetIndex | TimeIndex]) -> list[tuple[int, ...]]:
    """What stands in an index file, relative offsets as they are."""
    return list(kind.entry.iter_unpack(disk.read(name)))


def compact(disk: Disk, log: Log, bound: int | None = None) -> None:
    """One round over all sealed segments, or those below ``bound``."""
    end = log.segments[-1].base_offset if bound is None else bound
    buffers = Buffers(dedupe_bytes=1 << 16, load_factor=0.9, chunk_bytes=4096)
    clean(
        disk.fs,
        disk.clock,
        log,
        Cleanable(first_dirty_offset=0, bound=end, clean_bytes=0, cleanable_bytes=1),
        buffers,
    )


def test_fact_1_an_index_entry_pairs_the_last_offset_of_a_batch_with_the_position_where_it_starts(
    disk: Disk,
) -> None:
    log = disk.open(index_interval_bytes=0)
    for _ in range(3):
        log.append(batch_of_size(300, count=10))
    log.close()
    assert entries(disk, "00000000000000000000.index", OffsetIndex) == [(19, 300), (29, 600)]
    assert log.segments[0].offset_index.lookup(18).position == 0, (
        "19 leads no offset of its own batch there"
    )


def test_fact_2_the_interval_is_compared_before_the_batch_counts_and_anew_after_reopening(
    disk: Disk,
) -> None:
    log = disk.open(index_interval_bytes=200)
    for _ in range(4):
        log.append(batch_of_size(100))
    assert len(log.segments[0].offset_index) == 1, (
        "300 > 200 before the fourth; 200 > 200 is not, before the third"
    )
    log.close()
    log = disk.open(index_interval_bytes=200)
    for _ in range(3):
        log.append(batch_of_size(100))
    assert len(log.segments[0].offset_index) == 1
    log.append(batch_of_size(100))
    assert len(log.segments[0].offset_index) == 2


def test_fact_3_a_time_entry_has_a_batchs_last_offset_and_the_last_slot_is_kept() -> None:
    fs = MemoryFileSystem()
    index = TimeIndex(fs, "/0.timeindex", 0, 3 * 12)
    index.create()
    index.maybe_append(T0, 9)
    index.maybe_append(T0, 19)
    assert (len(index), index.is_full) == (1, False)
    index.maybe_append(T0 + 1, 29)
    assert index.is_full, "one slot early: the seal's entry must fit"
    index.maybe_append(T0 + 2, 39)
    assert [tuple(index[n]) for n in range(3)] == [(T0, 9), (T0 + 1, 29), (T0 + 2, 39)]


def test_fact_4_a_roll_by_time_compares_the_records_times_and_no_idle_segment_rolls(
    disk: Disk,
) -> None:
    log = disk.open(segment_ms=1000, message_timestamp_after_max_ms=2**63 - 1)
    log.append(batch(timestamp=T0))
    disk.clock.advance(10**9)
    log.append(batch(timestamp=T0 + 1000))
    log.flush_due()
    assert len(log.segments) == 1
    disk.clock.advance(-(10**9))
    log.append(batch(timestamp=T0 + 1001))
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_fact_5_a_v2_crc_is_castagnolis_from_byte_21_and_offset_length_and_epoch_are_outside() -> (
    None
):
    made = batch(3)
    crc = read_header(made).crc
    assert crc == crc32c(bytes(made[21:])) != crc32_of_zip(bytes(made[21:]))
    stamp(made, 10**12, 77)
    assert read_header(made).crc == crc == crc32c(bytes(made[21:]))


def test_fact_6_inner_offsets_of_version_1_count_back_from_the_wrappers_last() -> None:
    rows = [(T0 + n, None, b"%d" % n) for n in range(3)]
    wrapper = encode_legacy(rows, magic=1, base_offset=40, compression_type="gzip")
    assert read_header(wrapper).last_offset == 42
    assert [(record.offset, record.timestamp) for record in decode_records(wrapper)] == [
        (40, T0), (41, T0 + 1), (42, T0 + 2)
    ]  # fmt: skip
    wrapper[:8] = (99).to_bytes(8)  # as a leader does
    assert [record.offset for record in decode_records(wrapper)] == [97, 98, 99]
    late = encode_legacy(rows, magic=1, compression_type="gzip", log_append_time=T0 + 70)
    assert {record.timestamp for record in decode_records(late)} == {T0 + 70}


def test_fact_7_the_delete_horizon_stands_in_the_base_timestamp_and_tombstones_need_two_rounds(
    disk: Disk,
) -> None:
    log = disk.open(delete_retention_ms=1000)
    log.append(encode_records([(T0 + 5, b"a", None, ()), (T0 + 9, b"b", b"kept", ())]))
    log.roll()
    compact(disk, log)
    (_, header), *_ = iter_batches(disk.read("00000000000000000000.log"))
    assert (header.delete_horizon_ms, header.base_timestamp) == (T0 + 1000, T0 + 1000)
    assert [(record.key, record.timestamp) for record in records_of(log)] == [
        (b"a", T0 + 5),
        (b"b", T0 + 9),
    ]
    disk.clock.advance(1000)
    compact(disk, log)
    assert [(record.key, record.timestamp) for record in records_of(log)] == [(b"b", T0 + 9)]


def test_fact_8_compaction_keeps_offsets_and_sequences_and_stops_before_the_undecided(
    disk: Disk,
) -> None:
    log = disk.open()
    for producer, key, value in ((1, b"a", b"old"), (2, b"a", b"new")):
        rows = [(T0, key, value, ())]
        log.append(encode_records(rows, producer_id=producer, producer_epoch=0, base_sequence=0))
        log.roll()
    log.append(of_producer(0, producer=3, transactional=True))
    log.roll()
    log.append(batch())
    compact(disk, log, bound=cleanable(facts_of(log), None, log.config, T0).bound)
    kept = [header for name in disk.names(".log") for _, header in iter_batches(disk.read(name))]
    assert [(header.base_offset, header.last_sequence, header.count) for header in kept[:2]] == [
        (0, 0, 0),
        (1, 0, 1),
    ]
    assert kept[0].size_bytes == HEADER_SIZE == 61
    assert [header.base_offset for header in kept[2:]] == [2, 3], (
        "an open transaction ends what may be touched"
    )


def test_fact_9_size_retention_never_goes_below_its_limit_and_the_order_is_start_size_time(
    disk: Disk,
) -> None:
    log = disk.open(segment_bytes=100, retention_bytes=250, retention_ms=-1, file_delete_delay_ms=0)
    for _ in range(5):
        log.append(batch_of_size(100))
    log.delete_records(1)
    assert log.delete_old_segments() == 2, (
        "one below the start; of 400 bytes one more, since 300 - 100 < 250"
    )
    assert (log.size_bytes, log.log_start_offset) == (300, 2)
    assert log.delete_old_segments() == 0


def test_fact_10_opening_looks_at_no_flushed_batch_and_only_a_missing_index_is_made_again(
    disk: Disk,
) -> None:
    log = disk.open(segment_bytes=300, index_interval_bytes=0)
    for _ in range(9):
        log.append(batch_of_size(100))
    log.close()
    disk.damage("00000000000000000000.log", flip(250))
    disk.fs.remove(disk.path("00000000000000000003.index"))
    opened = disk.open(is_clean=False, recovery_point=6, segment_bytes=300, index_interval_bytes=0)
    assert opened.log_end_offset == 9, "what lies below the recovery point is not read"
    assert entries(disk, "00000000000000000003.index", OffsetIndex) == [(1, 100), (2, 200)]


def test_fact_11_recovery_begins_at_the_recovery_points_segment_and_a_bad_batch_ends_the_log(
    disk: Disk,
) -> None:
    log = disk.open(segment_bytes=300)
    for _ in range(9):
        log.append(batch_of_size(100))
    log.close()
    disk.damage("00000000000000000003.log", flip(199))
    opened = disk.open(is_clean=False, recovery_point=4, segment_bytes=300)
    assert offsets_of(opened) == [0, 1, 2, 3]
    assert [segment.base_offset for segment in opened.segments] == [0, 3]
    assert opened.recovery_point == 4
    assert disk.open(is_clean=False, recovery_point=2, segment_bytes=300).recovery_point == 2


def test_fact_12_the_clean_marker_is_gone_before_a_log_is_opened_and_is_each_log_dirs_own() -> None:
    """Kafka lists a log start only inside of its first segment. We list each above 0: by it a log
    that lost its data is told from one that never had any."""
    fs = MemoryFileSystem()
    dirs = {name: LogDir(fs, f"/{name}", "cluster", 1) for name in ("one", "two")}
    assert not any(each.was_clean for each in dirs.values())
    moved, whole = TopicPartition("moved", 0), TopicPartition("whole", 0)
    dirs["one"].write_offsets(
        {moved: CheckpointedOffsets(9, 5, 9), whole: CheckpointedOffsets(9, 0, 9)}
    )
    assert fs.read_file("/one/log-start-offset-checkpoint") == b"0\n1\nmoved 0 5\n"
    dirs["one"].close(clean=True)
    dirs["two"].close(clean=False)
    assert [LogDir(fs, f"/{name}", "cluster", 1).was_clean for name in dirs] == [True, False]
    assert not fs.exists("/one/.kafka_cleanshutdown")


def test_fact_13_a_snapshot_keeps_one_batch_a_producer_and_sequences_start_and_wrap_by_rule(
    disk: Disk,
) -> None:
    log = disk.open()
    log.append(of_producer(100))  # an unknown producer may begin anywhere
    log.append(of_producer(101))
    with pytest.raises(OutOfOrderSequence):
        log.append(of_producer(1, epoch=1))  # a new epoch begins at 0
    log.append(of_producer(0, epoch=1))
    log.append(of_producer(2**31 - 1, producer=8))
    log.append(of_producer(0, producer=8))  # wrapped
    log.close()
    states = ProducerStates("orders-0")
    states.load_newest(disk.fs, FOLDER, 5, T0)
    assert len(disk.read("00000000000000000005.snapshot")) == 10 + 2 * 46
    again = disk.open()
    assert again.append(of_producer(0, producer=8)).is_duplicate
    # Kafka has forgotten this one. Here it is read back from the log (``replay.look_back``).
    assert again.append(of_producer(2**31 - 1, producer=8)).is_duplicate


def test_fact_14_a_cleaned_segment_becomes_a_swap_and_what_an_unfinished_one_left_is_dropped(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group of segments becomes one here, so that the order among several is the loader's
    business alone."""
    log = disk.open(segment_bytes=200, internal_segment_bytes=200)
    for n in range(6):
        log.append(encode_records([(T0, b"%d" % n, b"x" * 100, ())]))
    log.roll()
    renamed: list[tuple[int, str]] = []
    rename = disk.fs.rename

    def note(source: str, target: str) -> None:
        name = source.rpartition("/")[2]
        if name.endswith((".log.cleaned", ".log.swap")):
            renamed.append((int(name[:20]), name[20:]))
        rename(source, target)

    monkeypatch.setattr(disk.fs, "rename", note)
    compact(disk, log)
    bases = sorted({base for base, _ in renamed})
    assert len(bases) > 1
    assert renamed == [(base, suffix) for base in bases for suffix in (".log.cleaned", ".log.swap")]
    log.close()
    disk.write(f"{bases[0]:020d}.index.cleaned", b"")
    disk.write(f"{bases[1]:020d}.log.swap", b"not finished")
    assert offsets_of(disk.open(is_clean=False)) == [0, 1, 2, 3, 4, 5]
    assert disk.names(".swap") == disk.names(".cleaned") == []


def test_fact_15_an_epoch_removes_what_it_contradicts_and_one_below_the_first_echoes_itself() -> (
    None
):
    fs = MemoryFileSystem()
    epochs = LeaderEpochs(fs, "/")
    for entry in ((1, 4), (2, 6), (3, 9), (2, 8)):
        epochs.assign(*entry)
    survived = LeaderEpochs(fs.crash("flushed", names="flushed"), "/")
    assert survived.entries == epochs.entries == ((1, 4), (2, 8))
    assert epochs.end_offset_for(0, 20) == (0, 4)
