"""Which log is compacted, from where to where, and when: Kafka's LogCleanerManager, over facts."""

import pytest

from raylog.storage.cleaner.cleanable import (
    Cleanable,
    LogFacts,
    SegmentTimes,
    cleanable,
    facts_of,
    filthiest,
    first_dirty_offset,
    is_due,
)
from raylog.storage.config import LogConfig
from raylog.storage.records.encode import encode_records
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import Disk, of_producer

COMPACT = LogConfig(cleanup_policy="compact")


def facts(*times: int, first: int = 0, stable: int | None = None) -> LogFacts:
    """Segments of 10 offsets and 100 bytes; each one's records have this time."""
    segments = [
        SegmentTimes(
            base_offset=first + 10 * n, size_bytes=100, largest_timestamp=time, first_timestamp=time
        )
        for n, time in enumerate(times)
    ]
    end = first + 10 * len(times)
    return LogFacts(
        segments=segments,
        log_end_offset=end,
        last_stable_offset=end if stable is None else stable,
    )


@pytest.mark.parametrize(
    ("checkpoint", "expected"), [(None, 5), (4, 5), (5, 5), (17, 17), (35, 35), (36, 5), (2**40, 5)]
)
def test_a_checkpoint_out_of_the_log_begins_at_the_first_segment(
    checkpoint: int | None, expected: int
) -> None:
    assert first_dirty_offset(checkpoint, facts(0, 0, 0, first=5)) == expected


def test_the_active_segment_is_never_touched() -> None:
    assert cleanable(facts(T0, T0, T0), None, COMPACT, T0) == Cleanable(0, 20, 0, 200)
    assert cleanable(facts(T0), None, COMPACT, T0) == Cleanable(0, 0, 0, 0)


def test_clean_bytes_lie_before_the_checkpoint_and_a_segment_across_it_counts_twice() -> None:
    found = cleanable(facts(T0, T0, T0, T0), 10, COMPACT, T0)
    assert (found.clean_bytes, found.cleanable_bytes) == (100, 200)
    assert found.dirty_ratio == pytest.approx(2 / 3)
    found = cleanable(facts(T0, T0, T0, T0), 15, COMPACT, T0)
    assert (found.first_dirty_offset, found.clean_bytes, found.cleanable_bytes) == (15, 200, 200)


@pytest.mark.parametrize(
    ("stable", "bound"), [(40, 30), (30, 30), (29, 20), (20, 20), (10, 10), (9, 0), (0, 0)]
)
def test_no_segment_with_records_of_an_undecided_transaction_is_touched(
    stable: int, bound: int
) -> None:
    found = cleanable(facts(T0, T0, T0, T0, stable=stable), None, COMPACT, T0)
    assert (found.bound, found.cleanable_bytes) == (bound, 10 * bound)


@pytest.mark.parametrize(("age_ms", "bound"), [(999, 10), (1000, 30), (10**9, 30)])
def test_young_records_end_the_cleanable_section(age_ms: int, bound: int) -> None:
    config = LogConfig(min_compaction_lag_ms=1000)
    times = (T0 - 5000, T0 - age_ms, T0 - 5000, T0)
    assert cleanable(facts(*times), None, config, T0).bound == bound


def test_a_young_segment_before_the_checkpoint_does_not_matter() -> None:
    config = LogConfig(min_compaction_lag_ms=1000)
    assert cleanable(facts(T0, T0 - 5000, T0), 10, config, T0) == Cleanable(10, 20, 100, 100)


def test_a_log_start_offset_within_a_segment_is_no_first_dirty_offset(disk: Disk) -> None:
    """A crash may take it back: the records below it are compacted like all others."""
    log = disk.open()
    log.append(of_producer(0, 2))
    log.roll()
    log.delete_records(1)
    found = cleanable(facts_of(log), None, COMPACT, T0)
    assert (found.first_dirty_offset, found.bound) == (0, 2)


@pytest.mark.parametrize(("checkpoint", "due"), [(0, True), (10, True), (20, False), (30, False)])
def test_a_log_is_due_above_its_dirty_ratio_not_at_it(checkpoint: int, due: bool) -> None:
    found = cleanable(facts(T0, T0, T0, T0, T0), checkpoint, COMPACT, T0)
    assert is_due(found, COMPACT) == due, f"a ratio of {found.dirty_ratio}"


@pytest.mark.parametrize(("age_ms", "due"), [(999, False), (1000, False), (1001, True)])
def test_a_log_is_due_when_a_dirty_record_is_too_old_however_few_there_are(
    age_ms: int, due: bool
) -> None:
    config = LogConfig(max_compaction_lag_ms=1000)
    log = facts(T0 - 10**6, T0 - 10**6, T0 - 10**6, T0 - age_ms, T0)
    found = cleanable(log, 30, config, T0)
    assert (found.overdue_ms, found.dirty_ratio) == (age_ms - 1000 if due else 0, 0.25)
    assert is_due(found, config) == due


def test_records_without_a_time_are_never_too_old() -> None:
    config = LogConfig(max_compaction_lag_ms=1000)
    assert cleanable(facts(-1, -1, T0), 0, config, T0).overdue_ms == 0
    assert cleanable(facts(0, 0, T0), 0, config, T0).overdue_ms == 0
    assert cleanable(facts(1, -1, T0), 0, config, T0).overdue_ms == T0 - 1001


def test_the_filthiest_log_comes_first() -> None:
    due = {
        "a": Cleanable(0, 9, 50, 50),
        "b": Cleanable(0, 9, 10, 90),
        "c": Cleanable(0, 9, 90, 10, 500),
    }
    assert filthiest(due) == "b"
    assert filthiest({}) is None


def test_facts_are_read_from_a_log(disk: Disk) -> None:
    log = disk.open()
    log.append(encode_records([(T0 + 5, b"a", b"1", ()), (T0, b"b", b"1", ())]))
    log.roll()
    log.append(of_producer(0, transactional=True, timestamp=T0 + 9))
    log.delete_records(1)
    told = facts_of(log)
    assert [(s.base_offset, s.largest_timestamp, s.first_timestamp) for s in told.segments] == [
        (0, T0 + 5, T0 + 5), (2, -1, -1)
    ]  # fmt: skip
    assert [s.size_bytes for s in told.segments] == [s.size for s in log.segments]
    assert told[1:] == (3, 2)
