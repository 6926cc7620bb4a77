"""Compaction of a log: what stays of it, and what a reader finds."""

from typing import Any

import pytest

from raylog.storage.cleaner.cleanable import Cleanable
from raylog.storage.cleaner.cleaner import MIN_CHUNK_BYTES, Buffers, Cleaned, clean
from raylog.storage.cleaner.offset_map import SLOT_BYTES
from raylog.storage.errors import CleaningAborted, CorruptRecord, StorageError
from raylog.storage.log import Log
from raylog.storage.records.batch import BatchHeader, iter_batches
from raylog.storage.records.compression import CODECS
from raylog.storage.records.encode import encode_records
from raylog.storage.recovery import check_indexes
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import Disk, flip, offsets_of, records_of

DAY = 86_400_000
ROOMY = Buffers(dedupe_bytes=1 << 16, load_factor=0.9, chunk_bytes=4096)


def put(log: Log, *pairs: tuple[str | None, str | None], roll: bool = False, **fields: Any) -> int:
    """Append one batch of (key, value) pairs; returns its base offset."""
    timestamp = fields.pop("timestamp", T0)
    rows = [(timestamp + n, _bytes(key), _bytes(value), ()) for n, (key, value) in enumerate(pairs)]
    answer = log.append(encode_records(rows, **fields))
    if roll:
        log.roll()
    return answer.base_offset


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def compact(
    disk: Disk,
    log: Log,
    first_dirty: int = 0,
    bound: int | None = None,
    buffers: Buffers = ROOMY,
    **arguments: Any,
) -> Cleaned:
    """One round over all sealed segments, or up to ``bound``."""
    end = log.segments[-1].base_offset if bound is None else bound
    return clean(
        disk.fs,
        disk.clock,
        log,
        Cleanable(first_dirty_offset=first_dirty, bound=end, clean_bytes=0, cleanable_bytes=1),
        buffers,
        **arguments,
    )


def content(log: Log) -> list[tuple[int, str | None, str | None]]:
    """(offset, key, value) of all records."""
    return [(record.offset, _text(record.key), _text(record.value)) for record in records_of(log)]


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode()


def headers(disk: Disk) -> list[BatchHeader]:
    """Of all batches on the disk."""
    return [header for name in disk.names(".log") for _, header in iter_batches(disk.read(name))]


# -- records ---------------------------------------------------------------------------------------


def test_the_last_record_of_every_key_stays_where_it_was(disk: Disk) -> None:
    log = disk.open()
    put(log, ("a", "1"), ("b", "1"), ("a", "2"))
    put(log, ("c", "1"), ("b", "2"), roll=True)
    put(log, ("c", "2"))
    done = compact(disk, log)
    assert content(log) == [(2, "a", "2"), (3, "c", "1"), (4, "b", "2"), (5, "c", "2")]
    assert (done.end_offset, done.records_read, done.records_kept) == (5, 5, 3)
    assert (log.log_start_offset, log.log_end_offset) == (0, 6)
    assert [(header.base_offset, header.last_offset, header.count) for header in headers(disk)] == [
        (0, 2, 1), (3, 4, 2), (5, 5, 1)
    ]  # fmt: skip


def test_a_read_at_an_offset_that_is_gone_goes_on_behind_it(disk: Disk) -> None:
    log = disk.open()
    for number in range(10):
        put(log, ("a", str(number)))
    log.roll()
    put(log, ("b", "1"))
    compact(disk, log)
    for offset in range(11):
        assert offsets_of(log, offset)[0] == max(offset, 9)


def test_a_batch_of_which_all_stays_is_copied_as_it_is(disk: Disk) -> None:
    log = disk.open()
    put(log, ("a", "1"), ("b", "1"), compression_type="zstd", level=19)
    put(log, ("c", "1"), ("c", "2"), roll=True)
    before = disk.read("00000000000000000000.log")
    compact(disk, log)
    after = disk.read("00000000000000000000.log")
    size = headers(disk)[0].size_bytes
    assert after[:size] == before[:size]
    assert after != before


@pytest.mark.parametrize("codec", CODECS)
def test_rebuilt_batches_keep_codec_times_and_headers(disk: Disk, codec: str) -> None:
    log = disk.open()
    rows = [
        (T0 + 7 * n, b"k%d" % (n % 3), b"value %d" % n * 20, (("h", b"%d" % n),)) for n in range(9)
    ]
    log.append(encode_records(rows, compression_type=codec), leader_epoch=4)
    log.roll()
    compact(disk, log)
    (header,) = headers(disk)
    assert (header.base_offset, header.last_offset, header.count) == (0, 8, 3)
    assert (header.leader_epoch, header.codec) == (4, CODECS[codec])
    assert (header.base_timestamp, header.max_timestamp) == (T0 + 42, T0 + 56)
    assert [(r.offset, r.timestamp, r.value, r.headers[0].value) for r in records_of(log)] == [
        (n, T0 + 7 * n, b"value %d" % n * 20, b"%d" % n) for n in (6, 7, 8)
    ]


def test_the_time_of_appending_stays(disk: Disk) -> None:
    log = disk.open(message_timestamp_type="LogAppendTime")
    put(log, ("a", "1"), ("a", "2"), ("b", None), roll=True)
    disk.clock.advance(5)
    compact(disk, log)
    assert [(r.offset, r.timestamp) for r in records_of(log)] == [(1, T0), (2, T0)]
    assert headers(disk)[0].timestamp_type == "LogAppendTime"


def test_records_without_a_key_go_and_are_counted(disk: Disk) -> None:
    log = disk.open()
    put(log, (None, "1"), ("a", "1"), (None, None))
    put(log, (None, "2"), roll=True)
    put(log, (None, "3"))
    done = compact(disk, log)
    assert content(log) == [(1, "a", "1"), (4, None, "3")]
    assert done.records_without_key == 3


def test_an_empty_key_is_a_key(disk: Disk) -> None:
    log = disk.open()
    put(log, ("", "1"), ("", "2"), ("a", ""), roll=True)
    compact(disk, log)
    assert content(log) == [(1, "", "2"), (2, "a", "")]


def test_the_active_segment_and_what_lies_behind_the_bound_is_not_touched(disk: Disk) -> None:
    log = disk.open()
    for number in range(5):
        put(log, ("a", str(number)), roll=True)
    put(log, ("a", "5"))
    before = [disk.read(name) for name in disk.names(".log")[2:]]
    compact(disk, log, bound=2)
    assert content(log) == [
        (1, "a", "1"),
        (2, "a", "2"),
        (3, "a", "3"),
        (4, "a", "4"),
        (5, "a", "5"),
    ]
    assert [disk.read(name) for name in disk.names(".log")[1:]] == before


def test_a_second_round_begins_where_the_first_ended_and_cleans_what_lies_before(
    disk: Disk,
) -> None:
    log = disk.open()
    put(log, ("a", "1"), ("b", "1"), roll=True)
    end = compact(disk, log).end_offset
    put(log, ("b", "2"), ("c", "1"), roll=True)
    done = compact(disk, log, first_dirty=end)
    assert (done.map_records_read, done.map_keys, done.end_offset) == (2, 2, 4)
    assert content(log) == [(0, "a", "1"), (2, "b", "2"), (3, "c", "1")]
    before = {name: disk.read(name) for name in disk.names(".log")}
    compact(disk, log)
    assert {name: disk.read(name) for name in disk.names(".log")} == before


def test_large_batches_are_read_whole_whatever_the_chunk(disk: Disk) -> None:
    log = disk.open()
    put(log, ("a", "x" * 10_000))
    put(log, ("b", "y" * 50_000), ("a", "2"))
    put(log, ("c", "z" * 4000), roll=True)
    compact(disk, log, buffers=ROOMY._replace(chunk_bytes=200))
    assert [(offset, key) for offset, key, _ in content(log)] == [(1, "b"), (2, "a"), (3, "c")]


# -- tombstones ------------------------------------------------------------------------------------


def test_a_tombstone_stays_for_its_time_and_is_gone_in_the_round_after(disk: Disk) -> None:
    log = disk.open(delete_retention_ms=1000)
    put(log, ("a", "1"), ("b", "1"))
    put(log, ("a", None), ("b", "2"), timestamp=T0 + 3, roll=True)
    compact(disk, log)
    assert content(log) == [(2, "a", None), (3, "b", "2")]
    (header,) = headers(disk)
    assert header.delete_horizon_ms == header.base_timestamp == T0 + 1000
    assert [record.timestamp for record in records_of(log)] == [T0 + 3, T0 + 4]
    assert header.max_timestamp == T0 + 4

    disk.clock.advance(999)
    compact(disk, log, first_dirty=4)
    assert content(log) == [(2, "a", None), (3, "b", "2")]
    assert headers(disk)[0].delete_horizon_ms == T0 + 1000, "the first horizon counts"

    disk.clock.advance(1)
    compact(disk, log, first_dirty=4)
    assert content(log) == [(3, "b", "2")]
    assert headers(disk)[0].delete_horizon_ms == T0 + 1000
    assert records_of(log)[0].timestamp == T0 + 4


def test_a_tombstone_needs_two_rounds_even_without_retention(disk: Disk) -> None:
    log = disk.open(delete_retention_ms=0)
    put(log, ("a", "1"), roll=True)
    put(log, ("a", None), ("b", "1"), roll=True)
    compact(disk, log)
    assert content(log) == [(1, "a", None), (2, "b", "1")]
    compact(disk, log)
    assert content(log) == [(2, "b", "1")]


def test_a_tombstone_that_a_later_value_replaces_goes_at_once(disk: Disk) -> None:
    log = disk.open()
    put(log, ("a", None), ("a", "2"), roll=True)
    compact(disk, log)
    assert content(log) == [(1, "a", "2")]
    assert headers(disk)[0].delete_horizon_ms is None


def test_a_log_of_tombstones_ends_as_one_empty_batch(disk: Disk) -> None:
    log = disk.open(delete_retention_ms=0)
    put(log, ("a", None))
    put(log, ("b", None), roll=True)
    compact(disk, log)
    compact(disk, log)
    assert content(log) == []
    (header,) = headers(disk)
    assert (header.base_offset, header.last_offset, header.count, header.base_timestamp) == (
        1,
        1,
        0,
        -1,
    )
    assert header.attributes == 0, "an empty batch has no horizon"
    log.close()
    assert disk.open().log_end_offset == 2


# -- producers -------------------------------------------------------------------------------------


def put_by(log: Log, producer: int, sequence: int, key: str, value: str = "v") -> int:
    return put(log, (key, value), producer_id=producer, producer_epoch=0, base_sequence=sequence)


def test_kafkas_scenario_clean(disk: Disk) -> None:
    """13.6: batches of offsets 0 (no producer), 1 (P1 s0), 2 (P2 s0), 3 (P3 s0), 4 (P2 s1)."""
    log = disk.open()
    put(log, ("0", "v"))
    for producer, sequence, key in ((1, 0, "0"), (2, 0, "0"), (3, 0, "0"), (2, 1, "1")):
        put_by(log, producer, sequence, key)
    log.roll()
    compact(disk, log)
    assert [(header.last_offset, header.count) for header in headers(disk)] == [
        (1, 0),
        (3, 1),
        (4, 1),
    ]
    assert offsets_of(log) == [3, 4]
    for again in ("before", "after the next start"):
        for producer, sequence, offset in ((1, 0, 1), (2, 1, 4), (3, 0, 3)):
            rows = [(T0, b"0", b"v", ())]
            answer = log.append(
                encode_records(rows, producer_id=producer, producer_epoch=0, base_sequence=sequence)
            )
            assert (answer.base_offset, answer.is_duplicate) == (offset, True), again
        for name in disk.names(".snapshot"):
            disk.fs.remove(disk.path(name))
        disk.fs = disk.fs.crash()
        log = disk.open(is_clean=False)


def test_the_sequence_of_a_producer_that_came_back_is_kept_and_the_old_one_goes(disk: Disk) -> None:
    log = disk.open()
    put_by(log, 1, 0, "a")
    put(log, ("a", "2"), ("z", "1"), roll=True)
    compact(disk, log)
    assert [(header.last_offset, header.count) for header in headers(disk)] == [(0, 0), (2, 2)]
    put_by(log, 1, 1, "b")
    log.roll()
    compact(disk, log)
    assert [(header.last_offset, header.count) for header in headers(disk)] == [(2, 2), (3, 1)]


def test_a_batch_that_ends_the_round_stays_even_empty(disk: Disk) -> None:
    log = disk.open()
    put(log, ("a", "1"))
    put(log, (None, "1"), compression_type="lz4", roll=True)
    compact(disk, log)
    assert [(header.last_offset, header.count, header.codec) for header in headers(disk)] == [
        (0, 1, 0), (1, 0, 0)
    ]  # fmt: skip
    put(log, ("b", "1"), roll=True)
    compact(disk, log, first_dirty=2)
    assert [(header.last_offset, header.count) for header in headers(disk)] == [(0, 1), (2, 1)]


def test_compactions_share_their_buffers_and_write_with_half_of_one() -> None:
    shared = Buffers.share(threads=2, dedupe_bytes=1000, load_factor=0.9, io_bytes=100_000)
    assert shared == Buffers(dedupe_bytes=500, load_factor=0.9, chunk_bytes=25_000)
    tiny = Buffers.share(threads=8, dedupe_bytes=1000, load_factor=0.9, io_bytes=100)
    assert tiny.chunk_bytes == MIN_CHUNK_BYTES


# -- a map that is full ----------------------------------------------------------------------------


def test_a_full_map_ends_the_round_in_the_middle_and_the_next_goes_on(disk: Disk) -> None:
    log = disk.open()
    for number in range(30):
        put(log, (f"k{number % 12}", str(number)), (f"l{number % 5}", str(number)))
    log.roll()
    few = Buffers(dedupe_bytes=SLOT_BYTES * 10, load_factor=0.5, chunk_bytes=4096)
    first_dirty, rounds = 0, []
    while first_dirty < 60:
        done = compact(disk, log, first_dirty, buffers=few)
        assert done.end_offset > first_dirty
        assert done.map_keys <= 5
        first_dirty = done.end_offset
        rounds.append(first_dirty)
        expected = {f"k{n % 12}": str(n) for n in range(30)} | {
            f"l{n % 5}": str(n) for n in range(30)
        }
        assert {key: value for _, key, value in content(log)} == expected
    assert rounds[0] == 5, "in the middle of the third batch"
    assert len(rounds) > 4
    assert len(content(log)) == 17


def test_a_map_of_one_key_knows_the_log_up_to_that_key(disk: Disk) -> None:
    log = disk.open()
    put(log, ("a", "1"), ("b", "1"), ("c", "1"))
    put(log, ("b", "2"), roll=True)
    one = Buffers(dedupe_bytes=SLOT_BYTES * 2, load_factor=0.5, chunk_bytes=4096)
    assert compact(disk, log, buffers=one).end_offset == 1
    assert [key for _, key, _ in content(log)] == ["a", "b", "c", "b"]


def test_a_full_map_knows_the_records_without_a_key_behind_its_last_one(disk: Disk) -> None:
    log = disk.open()
    put(log, ("a", "1"))
    put(log, (None, "1"))
    put(log, ("b", "1"), roll=True)
    one = Buffers(dedupe_bytes=SLOT_BYTES * 2, load_factor=0.5, chunk_bytes=4096)
    assert compact(disk, log, buffers=one).end_offset == 2


def test_what_lies_behind_the_map_stays_even_a_tombstone(disk: Disk) -> None:
    log = disk.open(delete_retention_ms=0)
    put(log, ("a", "1"), ("b", "1"), ("a", None), roll=True)
    two = Buffers(dedupe_bytes=SLOT_BYTES * 3, load_factor=0.7, chunk_bytes=4096)
    assert compact(disk, log, buffers=two).end_offset == 2
    assert content(log) == [(0, "a", "1"), (1, "b", "1"), (2, "a", None)]
    assert headers(disk)[0].delete_horizon_ms is not None
    assert compact(disk, log, first_dirty=2, buffers=two).end_offset == 3
    assert content(log) == [(1, "b", "1")]


# -- segments --------------------------------------------------------------------------------------


def test_small_segments_become_one_and_their_files_go_after_the_delay(disk: Disk) -> None:
    log = disk.open(segment_bytes=400, file_delete_delay_ms=500)
    for number in range(12):
        put(log, (f"k{number % 4}", "x" * 100))
    old, found = log.segments, log.read(0, 10**6)
    assert len(old) == 6
    compact(disk, log)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4, 6, 8, 10]
    compact(disk, log, first_dirty=10)
    assert [segment.base_offset for segment in log.segments] == [0, 6, 8, 10]
    assert offsets_of(log) == [6, 7, 8, 9, 10, 11]
    assert len(found.read()) == found.size_bytes, "a reader of an old segment can finish"
    assert disk.names(".snapshot") == [f"{base:020d}.snapshot" for base in (10,)], (
        "those of segments that were swapped are gone"
    )
    disk.clock.advance(500)
    log.purge_deleted()
    assert disk.names(".deleted") == []
    log.close()
    again = disk.open(segment_bytes=400)
    for segment in again.segments:
        check_indexes(segment)
    assert offsets_of(again) == [6, 7, 8, 9, 10, 11]


def test_an_empty_segment_between_others_is_no_trouble(disk: Disk) -> None:
    for base, records in ((0, [("a", "1")]), (10, []), (20, [("a", "2"), ("b", "1")]), (30, [])):
        rows = [(T0, key.encode(), value.encode(), ()) for key, value in records]
        disk.write(f"{base:020d}.log", bytes(encode_records(rows, base_offset=base)))
    log = disk.open(cleanup_policy="compact")
    compact(disk, log)
    assert content(log) == [(20, "a", "2"), (21, "b", "1")]
    assert [segment.base_offset for segment in log.segments] == [0, 30]
    compact(disk, log)
    assert log.log_end_offset == 30


def test_every_segment_ends_where_its_sources_ended(disk: Disk) -> None:
    """Else a gap between two segments could be a lost tail, and recovery could not tell which files
    to drop."""
    log = disk.open(segment_bytes=250)
    for number in range(9):
        put_by(log, 7, number, "a", "x" * 100)
    assert [segment.base_offset for segment in log.segments] == list(range(9))
    done = compact(disk, log)
    assert done.bytes_written == sum(segment.size for segment in log.segments[:-1])
    ends = [[header for _, header in segment.batches()][-1] for segment in log.segments]
    assert [end.last_offset for end in ends] == list(range(9))
    assert [(end.producer_id, end.max_timestamp) for end in ends[:6]] == [(-1, -1)] * 6
    assert [(end.producer_epoch, end.base_sequence, end.count) for end in ends[:6]] == [
        (-1, -1, 0)
    ] * 6
    again = Disk(disk.fs.crash())
    assert offsets_of(again.open(is_clean=False, segment_bytes=250)) == [7, 8]


def test_a_cleaned_segment_keeps_the_age_of_its_last_source(disk: Disk) -> None:
    log = disk.open()
    put(log, ("a", "1"), timestamp=-1, roll=True)
    disk.fs.now_ms += 5000
    put(log, ("b", "1"), timestamp=T0, roll=True)
    disk.fs.now_ms += 5000
    compact(disk, log)
    assert disk.fs.mtime_ms(disk.path("00000000000000000000.log")) == T0 + 5000


def test_time_and_offset_lookups_agree_with_what_is_left(disk: Disk) -> None:
    log = disk.open(index_interval_bytes=100)
    for number in range(60):
        put(log, (f"k{number % 40}", str(number)), timestamp=T0 + 10 * number)
    log.roll()
    compact(disk, log)
    for again in (log, None):
        if again is None:
            log.close()
            again = disk.open(index_interval_bytes=100)
        check_indexes(again.segments[0])
        assert len(again.segments[0].offset_index) > 5
        for number in range(60):
            found = again.offset_for_timestamp(T0 + 10 * number)
            assert found is not None
            assert found.offset == max(number, 20)
            assert offsets_of(again, number)[0] == max(number, 20)


# -- what goes wrong -------------------------------------------------------------------------------


def test_a_corrupt_batch_ends_the_round_and_nothing_is_changed(disk: Disk) -> None:
    log = disk.open()
    put(log, ("a", "1"), ("b", "2"))
    put(log, ("a", "2"), roll=True)
    disk.damage("00000000000000000000.log", flip(90))
    before = {name: disk.read(name) for name in disk.names(".log")}
    with pytest.raises(CorruptRecord):
        compact(disk, log)
    assert {name: disk.read(name) for name in disk.names(".log")} == before
    assert disk.names(".cleaned") == []


@pytest.mark.parametrize("position", [0, 7], ids=["far away", "as the one behind"])
def test_a_base_offset_that_lies_ends_the_round(disk: Disk, position: int) -> None:
    """No CRC covers it: the first value of a key would win over all that follow."""
    log = disk.open()
    put(log, ("a", "1"))
    put(log, ("a", "2"), roll=True)
    disk.damage("00000000000000000000.log", flip(position))
    with pytest.raises(CorruptRecord, match="offsets"):
        compact(disk, log)


@pytest.mark.parametrize(
    "size", [b"\xff\xff\xff\xff", b"\0\0\0\5", b"\x7f\xff\xff\xff", b"\0\0\1\0"]
)
def test_a_corrupt_size_is_no_endless_read(disk: Disk, size: bytes) -> None:
    log = disk.open()
    put(log, ("a", "1"))
    put(log, ("a", "2"), roll=True)
    first = headers(disk)[0].size_bytes
    path = "00000000000000000000.log"
    disk.damage(path, lambda content: content[: first + 8] + size + content[first + 12 :])
    with pytest.raises(CorruptRecord):
        compact(disk, log)


def test_a_disk_that_fails_while_it_is_written_leaves_the_log_as_it_was(disk: Disk) -> None:
    log = disk.open()
    put(log, ("a", "1"))
    put(log, ("a", "2"), roll=True)
    before = {name: disk.read(name) for name in disk.names(".log")}
    with (
        disk.fs.failing(lambda path: StorageError(path, "Input/output error"), "append"),
        pytest.raises(StorageError, match="Input/output"),
    ):
        compact(disk, log)
    assert {name: disk.read(name) for name in disk.names(".log")} == before
    assert disk.names(".cleaned") == []
    compact(disk, log)
    assert content(log) == [(1, "a", "2")]


@pytest.mark.parametrize("allowed", range(1, 12))
def test_whoever_paces_a_round_can_end_it(disk: Disk, allowed: int) -> None:
    class Enough(Exception):
        pass

    log = disk.open(segment_bytes=250)
    for _ in range(6):
        put(log, ("a", "x" * 100))
    seen: list[int] = []

    def pace(size_bytes: int) -> None:
        seen.append(size_bytes)
        if len(seen) == allowed:
            raise Enough

    if allowed == 11:
        compact(disk, log, pace=pace)
        assert len(seen) == 10
        assert offsets_of(log) == [4, 5]
        return
    with pytest.raises(Enough):
        compact(disk, log, pace=pace)
    assert all(size > 0 for size in seen)
    assert disk.names(".cleaned") == []
    assert offsets_of(log)[-2:] == [4, 5]


def test_sources_that_retention_takes_meanwhile_end_the_round_and_do_not_come_back(
    disk: Disk,
) -> None:
    log = disk.open(segment_bytes=250, retention_bytes=300, file_delete_delay_ms=0)
    for _ in range(6):
        put(log, ("a", "x" * 100))

    def pace(_: int) -> None:
        log.delete_old_segments()
        log.purge_deleted()

    with pytest.raises(CleaningAborted, match="deleted segments that it was reading"):
        compact(disk, log, pace=pace)
    assert offsets_of(log) == [4, 5]
    assert disk.names(".cleaned") == disk.names(".swap") == []


def test_appends_and_rolls_go_on_meanwhile(disk: Disk) -> None:
    log = disk.open(segment_bytes=300)
    for number in range(10):
        put(log, ("a", f"{number}" * 40))
    numbers = iter(range(10, 100))
    compact(disk, log, pace=lambda _: put(log, ("a", f"{next(numbers)}" * 20)) and None)
    last = next(numbers)
    assert offsets_of(log)[-1] == log.log_end_offset - 1 == last - 1
    assert offsets_of(log) == list(range(7, last))
    log.close()
    assert offsets_of(disk.open(segment_bytes=300)) == list(range(7, last))
