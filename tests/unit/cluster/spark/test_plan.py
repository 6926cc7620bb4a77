"""Planning: how ranges are cut, how a limit is shared, how a stream moves on, what counts as
lost."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.cluster.spark.errors import DataLoss
from raylog.cluster.spark.plan import (
    Edge,
    Pace,
    Range,
    clip_ranges,
    from_json,
    lag,
    limit_offsets,
    next_offsets,
    share,
    split_ranges,
    stream_ranges,
    to_json,
)

A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)
partitions = st.tuples(st.sampled_from("abc"), st.integers(0, 5))
ranges_of = st.builds(
    lambda tps: [Range(t, p, start, start + size) for (t, p), (start, size) in sorted(tps.items())],
    st.dictionaries(
        partitions, st.tuples(st.integers(0, 10**6), st.integers(0, 10**9)), max_size=8
    ),
)


def covered(ranges: Any) -> Any:
    """The ranges with touching neighbours joined."""
    joined: list[Range] = []
    for r in sorted(ranges):
        if joined and joined[-1][:2] == r[:2] and joined[-1].end == r.start:
            joined[-1] = joined[-1]._replace(end=r.end)
        else:
            joined.append(r)
    return joined


@given(ranges_of, st.none() | st.integers(1, 50))
def test_splitting_keeps_every_offset_once_and_leaves_no_empty_task(
    ranges: Any, min_partitions: Any
) -> None:
    tasks = split_ranges(ranges, min_partitions)
    assert covered(tasks) == [r for r in ranges if r.end > r.start]
    assert all(task.end > task.start for task in tasks)


@pytest.mark.parametrize(
    ("sizes", "min_partitions", "tasks"),
    [
        ([100, 100], None, [1, 1]),
        ([100, 100], 2, [1, 1]),
        ([100, 100, 100], 2, [1, 1, 1]),
        ([100, 100], 4, [2, 2]),
        ([300, 100], 4, [3, 1]),
        ([1_000_000, 1], 10, [10, 1]),
        ([3], 10, [3]),
        ([0, 100], 2, [2]),
    ],
)
def test_min_partitions_cuts_large_ranges_in_proportion(
    sizes: Any, min_partitions: Any, tasks: Any
) -> None:
    found = split_ranges([Range("t", p, 0, size) for p, size in enumerate(sizes)], min_partitions)
    assert [sum(r.partition == p for r in found) for p, size in enumerate(sizes) if size] == tasks


@given(
    st.dictionaries(partitions, st.tuples(st.integers(0, 99), st.integers(0, 200)), max_size=4),
    st.none() | st.integers(1, 20),
    st.integers(1, 50),
)
def test_no_task_has_more_records_than_it_may(
    sizes: Any, min_partitions: Any, max_records: Any
) -> None:
    wanted = [Range(t, p, start, start + size) for (t, p), (start, size) in sorted(sizes.items())]
    tasks = split_ranges(wanted, min_partitions, max_records)
    assert covered(tasks) == [r for r in wanted if r.end > r.start]
    assert all(0 < task.end - task.start <= max_records for task in tasks)


@pytest.mark.parametrize(
    ("sizes", "min_partitions", "max_records", "tasks"),
    [
        ([100, 5], None, 100, [1, 1]),
        ([101, 5], None, 100, [2, 1]),
        ([1000], None, 300, [4]),
        ([1000], 2, 300, [4]),
        ([1000], 8, 300, [8]),
    ],
)
def test_large_ranges_are_cut_until_no_task_is_too_large_and_there_are_enough(
    sizes: Any, min_partitions: Any, max_records: Any, tasks: Any
) -> None:
    wanted = [Range("t", p, 0, size) for p, size in enumerate(sizes)]
    found = split_ranges(wanted, min_partitions, max_records)
    assert [sum(r.partition == p for r in found) for p in range(len(sizes))] == tasks


def test_a_micro_batch_waits_for_enough_records_but_not_for_ever() -> None:
    pace = Pace(min_offsets=10, max_delay_s=60)
    assert not pace.waits({A0: 0}, {A0: 3}, now_s=1000), "the first one after a start never waits"
    assert pace.waits({A0: 3}, {A0: 12}, now_s=1001)
    assert not pace.waits({A0: 3}, {A0: 13}, now_s=1002)
    assert pace.waits({A0: 13}, {A0: 14}, now_s=1061)
    assert not pace.waits({A0: 13}, {A0: 14}, now_s=1062), "a minute after the last one"
    assert pace.waits({A0: 14}, {A0: 14, A1: 9}, now_s=1063)
    assert not pace.waits({A0: 14}, {A0: 14, A1: 10}, now_s=1064), "a new partition counts from 0"


def test_without_a_minimum_no_micro_batch_waits() -> None:
    pace = Pace(min_offsets=None, max_delay_s=60)
    assert not any(pace.waits({A0: 0}, {A0: 1}, now_s=now) for now in range(3))


def test_a_query_with_nothing_to_read_keeps_its_turn() -> None:
    """Else the turn after a start would be used up before the first record arrives."""
    pace = Pace(min_offsets=10, max_delay_s=60)
    assert not pace.waits({A0: 5}, {A0: 5}, now_s=0)
    assert not pace.waits({A0: 5}, {A0: 6}, now_s=1)


def test_lag_is_what_each_partition_has_left() -> None:
    assert lag({A0: 3, A1: 9}, {A0: 10, A1: 9, B0: 4}) == {A0: 7, A1: 0, B0: 4}
    assert lag({A0: 3, B0: 7}, {A0: 2}) == {A0: 0}, "gone, and set back"


@given(st.dictionaries(partitions, st.integers(1, 10**12), min_size=1), st.data())
def test_a_limit_is_shared_exactly_and_no_share_is_over_its_backlog(
    backlog: Any, data: Any
) -> None:
    total = sum(backlog.values())
    if total < 2:
        return
    limit = data.draw(st.integers(1, total - 1))
    taken = share(dict(sorted(backlog.items())), limit, turn=data.draw(st.integers(0, 100)))
    assert sum(taken.values()) == limit
    assert all(0 <= taken[tp] <= backlog[tp] for tp in backlog)
    if limit >= len(backlog):
        assert min(taken.values()) >= 1, "a small backlog must not starve"


def test_a_limit_is_shared_in_proportion_to_the_backlog() -> None:
    assert share({A0: 900, A1: 90, B0: 10}, 100) == {A0: 88, A1: 10, B0: 2}
    assert share({A0: 1000, A1: 1000}, 101) == {A0: 51, A1: 50}


def test_partitions_take_turns_when_there_are_more_of_them_than_offsets() -> None:
    start, latest = {A0: 0, A1: 0, B0: 0}, {A0: 4, A1: 4, B0: 4}
    seen = []
    while start != latest:
        end = limit_offsets(start, latest, 2)
        seen.append([tp for tp in latest if end[tp] > start[tp]])
        start = end
    assert seen == [[A0, A1], [A0, B0], [A1, B0]] * 2


def test_a_limit_over_the_backlog_takes_it_all_and_a_new_partition_counts_from_zero() -> None:
    assert limit_offsets({A0: 5}, {A0: 8, A1: 2}, 5) == {A0: 8, A1: 2}
    assert limit_offsets({A0: 5}, {A0: 8, A1: 2}, 2) == {A0: 6, A1: 1}
    assert limit_offsets({A0: 5}, {A0: 5}, 2) == {A0: 5}


@given(st.dictionaries(partitions, st.integers(0, 2**63 - 1)))
def test_a_position_survives_sparks_json(offsets: Any) -> None:
    assert from_json(json.loads(json.dumps(to_json(offsets)))) == offsets


def test_a_position_is_written_as_sparks_kafka_source_writes_it() -> None:
    assert json.dumps(to_json({A1: 2, B0: 3, A0: 1})) == '{"a": {"0": 1, "1": 2}, "b": {"0": 3}}'


def test_a_stream_goes_to_the_end_of_each_partition_and_takes_new_ones_up() -> None:
    end, lost = next_offsets({A0: 3}, {A0: 9, A1: 4})
    assert end == {A0: 9, A1: 4}
    assert lost == []
    assert stream_ranges({A0: 3}, end, {A0: Edge(0, 9), A1: Edge(0, 4)}) == (
        [Range("a", 0, 3, 9), Range("a", 1, 0, 4)],
        [],
    )


def test_available_now_stops_at_its_target_and_leaves_later_partitions_alone() -> None:
    target = {A0: 5}
    assert next_offsets({A0: 3}, {A0: 9, A1: 4}, target) == ({A0: 5}, [])
    assert next_offsets({A0: 7}, {A0: 9}, target) == ({A0: 7}, []), "never backwards"


def test_a_partition_that_is_gone_or_made_anew_is_lost_and_set_back() -> None:
    end, lost = next_offsets({A0: 9, B0: 4}, {A0: 2})
    assert end == {A0: 2}
    assert [(each.partition, each.why[:20]) for each in lost] == [
        (B0, "the partition does not exist any more"[:20]),
        (A0, "the log ends at 2, b"),
    ]


@pytest.mark.parametrize(
    ("wanted", "edge", "kept", "lost"),
    [
        ((5, 9), Edge(0, 20), [(5, 9)], []),
        ((5, 9), Edge(7, 20), [(7, 9)], [(5, 7)]),
        ((5, 9), Edge(10, 20), [], [(5, 9)]),
        ((5, 9), Edge(0, 7), [(5, 7)], [(7, 9)]),
        ((5, 9), Edge(0, 3), [], [(5, 9)]),
        ((5, 9), None, [], [(5, 9)]),
        ((5, 5), None, [], []),
    ],
)
def test_offsets_outside_of_the_log_are_cut_off_and_reported(
    wanted: Any, edge: Any, kept: Any, lost: Any
) -> None:
    found, missing = clip_ranges([Range(*A0, *wanted)], {A0: edge} if edge else {})
    assert [(r.start, r.end) for r in found] == kept
    assert [(each.start, each.end) for each in missing] == lost


def test_a_loss_becomes_an_error_that_names_partition_offsets_and_the_way_out() -> None:
    _, lost = clip_ranges([Range(*A0, 5, 9)], {A0: Edge(7, 20)})
    error = lost[0].error()
    assert isinstance(error, DataLoss)
    assert "a-0: offsets [5, 7)" in str(error)
    assert "failOnDataLoss=false" in str(error)


def test_the_advice_of_a_loss_fits_a_partition_that_was_deleted_too() -> None:
    _, lost = next_offsets({B0: 4}, {})
    error = lost[0].error()
    assert error.problem.endswith("the partition does not exist any more")
    assert error.advice.startswith("if retention deleted them, raise it;")


def test_a_topic_made_anew_is_said_to_be_read_from_its_present_end() -> None:
    _, lost = next_offsets({A0: 9}, {A0: 2})
    assert "failOnDataLoss=false continues at 2" in lost[0].why
