"""From options to offsets, against a catalog that is a dictionary."""

from collections import namedtuple
from typing import Any

import pytest

from raylog.actors.errors import NotLeader, RequestTimedOut, UnknownTopicOrPartition
from raylog.cluster.client.connection import READ_COMMITTED, READ_UNCOMMITTED
from raylog.cluster.spark.errors import InvalidSparkOption
from raylog.cluster.spark.options import parse
from raylog.cluster.spark.plan import Edge, Range, undecided
from raylog.cluster.spark.resolve import (
    batch_ranges,
    edges,
    list_offsets,
    partitions,
    readable_ends,
    require_topic,
    required_partitions,
)

Topic = namedtuple("Topic", "partitions")
Partition = namedtuple("Partition", "partition")


class Catalog:
    """Partitions as (first offset, times of the records from there on).

    ``stable``: last stable offsets, of partitions with an open transaction.
    """

    def __init__(self, **topics: Any) -> None:
        self.topics = topics
        self.stable: dict[Any, int] = {}

    def list_topics(self) -> Any:
        return sorted(self.topics)

    def describe_topic(self, topic: Any) -> Any:
        if topic not in self.topics:
            raise UnknownTopicOrPartition(topic, 0, "no such topic")
        return Topic(tuple(Partition(p) for p in range(len(self.topics[topic]))))

    def forget(self, topic: str, partition: int) -> None:
        raise AssertionError("not after an answer")

    def list_offsets(self, wanted: Any, *, isolation: int = READ_UNCOMMITTED) -> Any:
        return {tp: self._offset(tp[0], tp[1], at, isolation) for tp, at in wanted.items()}

    def _offset(self, topic: Any, partition: Any, at: Any, isolation: int) -> Any:
        first, times = self.topics[topic][partition]
        if isolation == READ_COMMITTED and (topic, partition) in self.stable:
            times = times[: self.stable[topic, partition] - first]
        if at == -2:
            return first
        if at == -1:
            return first + len(times)
        return next((first + i for i, time in enumerate(times) if time >= at), None)


class Unsteady(Catalog):
    """Raises the errors given, one a call, then answers."""

    def __init__(self, errors: list[Exception], **topics: Any) -> None:
        super().__init__(**topics)
        self.errors = errors
        self.forgotten: list[Any] = []

    def list_offsets(self, wanted: Any, *, isolation: int = READ_UNCOMMITTED) -> Any:
        if self.errors:
            raise self.errors.pop(0)
        return super().list_offsets(wanted, isolation=isolation)

    def forget(self, topic: str, partition: int) -> None:
        self.forgotten.append((topic, partition))


CATALOG = Catalog(
    flights=[(0, [10, 20, 30, 40]), (5, [10, 20])],
    flagged=[(0, [10])],
    empty=[(0, [])],
)


def ranges(**options: Any) -> Any:
    found, lost, _ = batch_ranges(CATALOG, parse({"subscribe": "flights", **options}, "batch"))
    assert lost == []
    return {(r.topic, r.partition): (r.start, r.end) for r in found}


def test_a_batch_reads_from_the_earliest_to_the_latest_offset() -> None:
    assert ranges() == {("flights", 0): (0, 4), ("flights", 1): (5, 7)}
    assert ranges(subscribe="empty") == {}


def test_a_pattern_selects_topics_that_it_matches_as_a_whole() -> None:
    selection = parse({"subscribePattern": "fl.*s"}, "batch").selection
    assert partitions(CATALOG, selection) == [("flights", 0), ("flights", 1)]
    assert partitions(CATALOG, parse({"subscribePattern": "light"}, "batch").selection) == []


def test_assign_selects_partitions() -> None:
    options = parse({"assign": '{"flights": [1]}'}, "batch")
    assert batch_ranges(CATALOG, options).ranges == [Range("flights", 1, 5, 7)]


@pytest.mark.parametrize(
    "given",
    [{"subscribe": "flights,nope"}, {"assign": '{"flights": [9]}'}, {"assign": '{"nope": [0]}'}],
)
def test_what_is_named_must_exist_and_the_error_lists_what_does(given: Any) -> None:
    selection = parse(given, "batch").selection
    with pytest.raises(
        InvalidSparkOption, match=r"does not exist; the topics are: empty, flagged, flights"
    ):
        required_partitions(CATALOG, selection)


def test_the_topic_of_a_write_must_exist_and_the_error_lists_what_does() -> None:
    require_topic(CATALOG, "flights")
    with pytest.raises(
        InvalidSparkOption, match=r"topic='nope': does not exist; the topics are: empty, flagged"
    ):
        require_topic(CATALOG, "nope")


def test_offsets_in_json_can_say_earliest_and_latest() -> None:
    assert ranges(
        startingOffsets='{"flights": {"0": 2, "1": -2}}',
        endingOffsets='{"flights": {"0": 3, "1": -1}}',
    ) == {("flights", 0): (2, 3), ("flights", 1): (5, 7)}


def test_json_must_name_exactly_the_partitions_that_are_read() -> None:
    for wrong in (
        '{"flights": {"0": 2}}',
        '{"flights": {"0": 2, "1": 5, "2": 0}}',
        '{"other": {"0": 1}}',
    ):
        with pytest.raises(InvalidSparkOption, match="exactly the partitions"):
            ranges(startingOffsets=wrong)


def test_an_error_shows_offsets_as_the_option_takes_them() -> None:
    with pytest.raises(InvalidSparkOption, match=r"""startingOffsets='{"flights": {"0": 2}}':"""):
        ranges(startingOffsets='{"flights": {"0": 2}}')


def test_times_choose_the_first_record_at_or_after_them() -> None:
    assert ranges(startingTimestamp="20") == {("flights", 0): (1, 4), ("flights", 1): (6, 7)}
    assert ranges(startingTimestamp="11", endingTimestamp="31") == {
        ("flights", 0): (1, 3),
        ("flights", 1): (6, 7),
    }
    by_partition = '{"flights": {"0": 30, "1": 0}}'
    assert ranges(startingOffsetsByTimestamp=by_partition) == {
        ("flights", 0): (2, 4),
        ("flights", 1): (5, 7),
    }
    assert ranges(endingOffsetsByTimestamp=by_partition) == {("flights", 0): (0, 2)}


def test_a_start_time_after_all_records_is_an_error_or_the_latest_offset() -> None:
    with pytest.raises(InvalidSparkOption, match="flights-1 has no record at or after this time"):
        ranges(startingTimestamp="25")
    assert ranges(startingTimestamp="25", startingOffsetsByTimestampStrategy="latest") == {
        ("flights", 0): (2, 4)
    }


def test_explicit_offsets_outside_of_the_log_are_lost() -> None:
    options = parse(
        {"subscribe": "flights", "startingOffsets": '{"flights": {"0": 0, "1": 3}}'},
        "batch",
    )
    found, lost, _ = batch_ranges(CATALOG, options)
    assert found == [Range("flights", 0, 0, 4), Range("flights", 1, 5, 7)]
    assert [(each.partition, each.start, each.end) for each in lost] == [(("flights", 1), 3, 5)]


def test_a_start_after_the_end_is_refused() -> None:
    with pytest.raises(InvalidSparkOption, match="flights-0 would start at 3 and end at 1"):
        ranges(startingOffsets='{"flights": {"0": 3, "1": -2}}', endingTimestamp="20")
    with pytest.raises(InvalidSparkOption, match="flights-1 would start at 7 and end at 6"):
        ranges(
            startingOffsetsByTimestamp='{"flights": {"0": 10, "1": 30}}',
            startingOffsetsByTimestampStrategy="latest",
            endingOffsets='{"flights": {"0": 4, "1": 6}}',
        )


def test_a_start_behind_the_log_is_a_loss_and_not_an_empty_answer() -> None:
    beyond = {"subscribe": "flights", "startingOffsets": '{"flights": {"0": 9, "1": 5}}'}
    found, lost, _ = batch_ranges(CATALOG, parse(beyond, "batch"))
    assert found == [Range("flights", 1, 5, 7)]
    assert [(each.partition, each.start, each.end) for each in lost] == [(("flights", 0), 4, 9)]
    assert "the log ends at 4" in lost[0].why


def test_a_log_that_now_starts_behind_the_end_has_nothing_left_and_lost_nothing() -> None:
    """``earliest`` is what there is: nobody asked for the offsets before it."""
    assert ranges(endingOffsets='{"flights": {"0": 2, "1": 3}}') == {("flights", 0): (0, 2)}


def test_planning_outlives_the_restart_of_a_partition() -> None:
    passing: list[Exception] = [NotLeader("t-0", "restarting"), RequestTimedOut("t-0", 30_000)]
    unsteady = Unsteady(passing, t=[(0, [10])])
    assert list_offsets(unsteady, {("t", 0): -1}) == {("t", 0): 1}
    assert unsteady.forgotten == [("t", 0)] * 2


def test_planning_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raylog.cluster.spark.resolve.PATIENCE_S", -1)
    with pytest.raises(NotLeader):
        list_offsets(Unsteady([NotLeader("t-0", "its node is away")], t=[(0, [])]), {("t", 0): -1})


def test_a_topic_deleted_while_it_is_planned_is_left_out() -> None:
    gone = UnknownTopicOrPartition("gone", 0, "there is no such topic")
    unsteady = Unsteady([gone], t=[(0, [10])])
    assert edges(unsteady, [("gone", 0), ("t", 0)]) == {("t", 0): Edge(0, 1)}
    assert list_offsets(Unsteady([gone]), {("gone", 0): -1}) == {}
    fewer = Unsteady([UnknownTopicOrPartition("t", 1, "it has one partition")], t=[(0, [10])])
    assert list_offsets(fewer, {("t", 0): -1, ("t", 1): -1}) == {("t", 0): 1}
    with pytest.raises(UnknownTopicOrPartition):
        list_offsets(Unsteady([gone]), {("t", 0): -1})


# -- committed records -----------------------------------------------------------------------------


def with_open_transactions() -> Catalog:
    """Partition 0 has offsets 0-3, open from 2 on; partition 1 has 5-6, and nothing open."""
    catalog = Catalog(t=[(0, [10, 20, 30, 40]), (5, [10, 20])])
    catalog.stable = {("t", 0): 2}
    return catalog


def planned(**options: str) -> Any:
    given = {"subscribe": "t", "isolationLevel": "read_committed", **options}
    return batch_ranges(with_open_transactions(), parse(given, "batch"))


def test_a_batch_of_committed_records_ends_at_the_last_stable_offsets() -> None:
    assert planned() == ([Range("t", 0, 0, 2), Range("t", 1, 5, 7)], [], [])
    latest = planned(endingOffsets='{"t": {"0": -1, "1": -1}}')
    assert latest.ranges == [Range("t", 0, 0, 2), Range("t", 1, 5, 7)]
    every = planned(isolationLevel="read_uncommitted")
    assert every.ranges == [Range("t", 0, 0, 4), Range("t", 1, 5, 7)]


def test_times_find_no_record_that_is_not_decided() -> None:
    assert planned(endingTimestamp="40").ranges == [Range("t", 0, 0, 2), Range("t", 1, 5, 7)]
    at_latest = {"startingTimestamp": "30", "startingOffsetsByTimestampStrategy": "latest"}
    assert planned(**at_latest) == ([], [], [])
    with pytest.raises(InvalidSparkOption, match="t-0 has no record at or after this time"):
        planned(startingTimestamp="30")


def test_an_end_behind_the_last_stable_offset_is_kept_and_said_to_wait() -> None:
    ends = planned(endingOffsets='{"t": {"0": 3, "1": 6}}')
    assert ends.ranges == [Range("t", 0, 0, 3), Range("t", 1, 5, 6)]
    assert ends.lost == []
    assert ends.undecided == [Range("t", 0, 2, 3)]
    both = planned(
        startingOffsets='{"t": {"0": 3, "1": 5}}', endingOffsets='{"t": {"0": 9, "1": 6}}'
    )
    assert both.ranges == [Range("t", 0, 3, 4), Range("t", 1, 5, 6)]
    assert [(each.start, each.end) for each in both.lost] == [(4, 9)], "the log ends at 4"
    assert both.undecided == [Range("t", 0, 3, 4)]


def test_a_start_behind_the_last_stable_offset_has_lost_nothing() -> None:
    start = '{"t": {"0": 3, "1": 6}}'
    assert planned(startingOffsets=start) == ([Range("t", 1, 6, 7)], [], [])
    assert planned(startingOffsets=start, endingTimestamp="99") == ([Range("t", 1, 6, 7)], [], [])
    behind = planned(startingOffsets='{"t": {"0": 9, "1": 6}}')
    assert [(each.start, each.end) for each in behind.lost] == [(4, 9)]


def test_what_a_reader_of_all_records_plans_is_never_undecided() -> None:
    assert undecided([Range("t", 0, 0, 9)], {("t", 0): Edge(0, 9)}) == []
    assert undecided([Range("t", 0, 0, 9)], {}) == []


def test_a_reader_that_stands_behind_the_last_stable_offset_stays_there() -> None:
    catalog, wanted = with_open_transactions(), [("t", 0), ("t", 1)]

    def ends(isolation: int, **at: int) -> Any:
        places = {("t", int(number[1:])): offset for number, offset in at.items()}
        return readable_ends(catalog, wanted, isolation, places)

    assert ends(READ_UNCOMMITTED, p0=1) == {("t", 0): 4, ("t", 1): 7}
    assert ends(READ_COMMITTED, p0=1) == {("t", 0): 2, ("t", 1): 7}
    assert ends(READ_COMMITTED, p0=3, p1=5) == {("t", 0): 3, ("t", 1): 7}
    assert ends(READ_COMMITTED, p0=9) == {("t", 0): 4, ("t", 1): 7}, "behind the log, too"
