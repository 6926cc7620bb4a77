"""Options of the Spark source: Spark's names and meanings, and every mistake refused by name."""

import json
import pickle
from typing import Any

import pytest

from raylog.cluster.client.connection import READ_COMMITTED, READ_UNCOMMITTED
from raylog.cluster.spark import errors
from raylog.cluster.spark.errors import InvalidSparkOption
from raylog.cluster.spark.options import EARLIEST, LATEST, NAMES, Bound, parse
from raylog.storage.errors import RaylogError


def batch(**options: Any) -> Any:
    return parse({"subscribe": "flights", **options}, "batch")


def stream(**options: Any) -> Any:
    return parse({"subscribe": "flights", **options}, "stream")


def test_defaults_are_those_of_sparks_kafka_source() -> None:
    assert batch().starting == Bound("offset", EARLIEST, option="startingOffsets")
    assert batch().ending == Bound("offset", LATEST, option="endingOffsets")
    assert stream().starting.everywhere == LATEST
    assert batch().fail_on_data_loss
    assert not batch().include_headers
    assert stream().max_offsets_per_trigger is None
    assert stream().min_offsets_per_trigger is None
    assert stream().max_trigger_delay_ms == 15 * 60_000
    assert batch().max_records_per_partition is None
    assert batch().min_partitions is None
    assert batch().isolation == stream().isolation == READ_UNCOMMITTED


def test_keys_are_taken_in_any_case_since_spark_lowers_them() -> None:
    options = parse(
        {"SUBSCRIBEPATTERN": "fl.*", "includeheaders": "TRUE", "minpartitions": "4"}, "batch"
    )
    assert options.selection.pattern == "fl.*"
    assert options.include_headers
    assert options.min_partitions == 4


def test_every_documented_name_is_understood() -> None:
    values = {"subscribe": "t", "startingOffsets": "earliest", "endingOffsets": "latest"}
    numbers = ["startingTimestamp", "endingTimestamp", "maxOffsetsPerTrigger", "minPartitions"]
    numbers += ["maxBytesPerBatch", "minOffsetsPerTrigger", "maxRecordsPerPartition"]
    values |= dict.fromkeys(numbers, "1") | {"maxTriggerDelay": "1s"}
    values |= dict.fromkeys(("failOnDataLoss", "includeHeaders"), "false")
    values |= {
        "startingOffsetsByTimestamp": '{"t": {"0": 1}}',
        "endingOffsetsByTimestamp": '{"t": {"0": 2}}',
    }
    values |= {"startingOffsetsByTimestampStrategy": "latest", "address": "a:1", "namespace": "n"}
    values |= {"isolationLevel": "read_committed"}
    assert set(NAMES) - set(values) == {"assign", "subscribePattern"}
    parse(values, "batch")


@pytest.mark.parametrize("key", ["isolationLevel", "isolationlevel", "kafka.isolation.level"])
@pytest.mark.parametrize("mode", ["batch", "stream"])
def test_committed_records_alone_are_asked_for_in_the_connectors_spelling_too(
    key: str, mode: Any
) -> None:
    def level(value: str) -> int:
        return parse({"subscribe": "flights", key: value}, mode).isolation

    assert level("read_committed") == level(" Read_Committed ") == READ_COMMITTED
    assert level("read_uncommitted") == READ_UNCOMMITTED


def test_one_isolation_level_may_be_given_in_both_spellings() -> None:
    both = {"isolationLevel": "read_committed", "kafka.isolation.level": "READ_COMMITTED"}
    assert batch(**both).isolation == READ_COMMITTED


@pytest.mark.parametrize(
    ("given", "topics"),
    [("a", ("a",)), ("a,b", ("a", "b")), (" a , b ,a,", ("a", "b")), ("x.y-z_1", ("x.y-z_1",))],
)
def test_subscribe_names_topics_with_commas_between_them(given: Any, topics: Any) -> None:
    assert parse({"subscribe": given}, "batch").selection.topics == topics


def test_assign_names_partitions_as_json() -> None:
    selection = parse({"assign": '{"a": [1, 0], "b": [2]}'}, "batch").selection
    assert selection.partitions == (("a", 0), ("a", 1), ("b", 2))


@pytest.mark.parametrize(
    ("given", "bound"),
    [
        ({"startingOffsets": "earliest"}, Bound("offset", EARLIEST, (), "startingOffsets")),
        ({"startingOffsets": "EARLIEST"}, Bound("offset", EARLIEST, (), "startingOffsets")),
        (
            {"startingOffsets": '{"f": {"0": 5, "1": -2, "2": 0}}'},
            Bound(
                "offset", None, ((("f", 0), 5), (("f", 1), -2), (("f", 2), 0)), "startingOffsets"
            ),
        ),
        (
            {"startingTimestamp": "1700000000000"},
            Bound("timestamp", 1700000000000, (), "startingTimestamp"),
        ),
        (
            {"startingOffsetsByTimestamp": '{"f": {"0": 17}}'},
            Bound("timestamp", None, ((("f", 0), 17),), "startingOffsetsByTimestamp"),
        ),
    ],
)
def test_a_start_is_a_word_a_time_or_json(given: Any, bound: Any) -> None:
    assert batch(**given).starting == bound


def test_one_time_for_all_wins_over_times_by_partition_and_these_over_offsets() -> None:
    three = {
        "startingOffsets": "earliest",
        "startingOffsetsByTimestamp": '{"f": {"0": 1}}',
        "startingTimestamp": "2",
    }
    assert batch(**three).starting.option == "startingTimestamp"
    del three["startingTimestamp"]
    assert batch(**three).starting.option == "startingOffsetsByTimestamp"


WRONG = [
    ({"subscrib": "f"}, "batch", "subscrib", "did you mean subscribe"),
    (
        {"subscribe": "f", "maxoffsetpertrigger": "1"},
        "batch",
        "maxoffsetpertrigger",
        "maxOffsetsPerTrigger",
    ),
    ({"subscribe": "f", "zzz": "1"}, "batch", "zzz", "the options are"),
    (
        {"subscribe": "f", "kafka.bootstrap.servers": "h:1"},
        "batch",
        "kafka.bootstrap.servers",
        "remove the option",
    ),
    (
        {"subscribe": "f", "kafka.isolation": "read_committed"},
        "batch",
        "kafka.isolation",
        "remove the option",
    ),
    (
        {"subscribe": "f", "isolationLevel": "committed"},
        "stream",
        "isolationLevel",
        "use read_uncommitted or read_committed",
    ),
    (
        {"subscribe": "f", "kafka.isolation.level": "1"},
        "batch",
        "kafka.isolation.level",
        "use read_uncommitted or read_committed",
    ),
    (
        {
            "subscribe": "f",
            "isolationLevel": "read_uncommitted",
            "kafka.isolation.level": "read_committed",
        },
        "batch",
        "kafka.isolation.level",
        "isolationLevel=read_uncommitted says something else; remove one of them",
    ),
    ({"path": "/x"}, "batch", "path", "subscribe"),
    ({}, "batch", "subscribe", "exactly one"),
    ({"subscribe": "f", "assign": "{}"}, "batch", "assign", "exactly one"),
    ({"subscribe": " , "}, "batch", "subscribe", "at least one"),
    ({"subscribePattern": "("}, "batch", "subscribePattern", "regular expression"),
    ({"assign": "f"}, "batch", "assign", "JSON"),
    ({"assign": "[1]"}, "batch", "assign", "JSON"),
    ({"assign": "{}"}, "batch", "assign", "no partition"),
    ({"assign": '{"f": 0}'}, "batch", "assign", "JSON like"),
    ({"assign": '{"f": [-1]}'}, "batch", "assign", "JSON like"),
    ({"assign": '{"f": [true]}'}, "batch", "assign", "JSON like"),
    (
        {"subscribe": "f", "startingOffsets": "first"},
        "batch",
        "startingOffsets",
        "earliest, latest",
    ),
    (
        {"subscribe": "f", "startingOffsets": '{"f": {"0": -3}}'},
        "batch",
        "startingOffsets",
        "-2 for earliest",
    ),
    (
        {"subscribe": "f", "startingOffsets": '{"f": {"x": 1}}'},
        "batch",
        "startingOffsets",
        "JSON like",
    ),
    ({"subscribe": "f", "startingOffsets": '{"f": [0]}'}, "batch", "startingOffsets", "JSON like"),
    ({"subscribe": "f", "startingOffsets": "latest"}, "batch", "startingOffsets", "read nothing"),
    ({"subscribe": "f", "endingOffsets": "earliest"}, "batch", "endingOffsets", "read nothing"),
    (
        {"subscribe": "f", "endingOffsets": '{"f": {"0": -2}}'},
        "batch",
        "endingOffsets",
        "reads nothing",
    ),
    ({"subscribe": "f", "endingOffsets": "latest"}, "stream", "endingOffsets", "spark.read"),
    ({"subscribe": "f", "endingTimestamp": "1"}, "stream", "endingTimestamp", "spark.read"),
    ({"subscribe": "f", "pushFilters": "true"}, "batch", "pushFilters", "startingOffsets"),
    (
        {"subscribe": "f", "startingOffsets": '{"f": {"0": 5, "1": -1}}'},
        "batch",
        "startingOffsets",
        "f-1 would start at its end (-1)",
    ),
    (
        {
            "subscribe": "f",
            "startingOffsets": '{"f": {"0": 0, "1": 7}}',
            "endingOffsets": '{"f": {"0": 5, "1": 6}}',
        },
        "batch",
        "startingOffsets",
        "f-1 would start at 7 and end at 6",
    ),
    (
        {
            "subscribe": "f",
            "startingOffsetsByTimestamp": '{"f": {"0": 9}}',
            "endingOffsetsByTimestamp": '{"f": {"0": 8}}',
        },
        "batch",
        "startingOffsetsByTimestamp",
        "f-0 would start at 9 and end at 8",
    ),
    (
        {"subscribe": "f", "startingTimestamp": "9", "endingTimestamp": "8"},
        "batch",
        "startingTimestamp",
        "the query would start at 9 and end at 8",
    ),
    (
        {"subscribe": "f", "minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "9"},
        "stream",
        "minOffsetsPerTrigger",
        "more than maxOffsetsPerTrigger=9",
    ),
    ({"subscribe": "f", "maxTriggerDelay": "soon"}, "stream", "maxTriggerDelay", "like 30s"),
    (
        {"subscribe": "f", "maxRecordsPerPartition": "0"},
        "batch",
        "maxRecordsPerPartition",
        "1 or more",
    ),
    (
        {"subscribe": "f", "startingTimestamp": "yesterday"},
        "batch",
        "startingTimestamp",
        "milliseconds",
    ),
    (
        {"subscribe": "f", "startingOffsetsByTimestamp": '{"f": {"0": -1}}'},
        "batch",
        "startingOffsetsBy",
        "times",
    ),
    (
        {"subscribe": "f", "startingOffsetsByTimestampStrategy": "skip"},
        "batch",
        "Strategy",
        "error or latest",
    ),
    (
        {"subscribe": "f", "maxOffsetsPerTrigger": "0"},
        "stream",
        "maxOffsetsPerTrigger",
        "1 or more",
    ),
    ({"subscribe": "f", "minPartitions": "-1"}, "batch", "minPartitions", "1 or more"),
    ({"subscribe": "f", "failOnDataLoss": "yes"}, "batch", "failOnDataLoss", "true or false"),
]


@pytest.mark.parametrize(
    ("given", "mode", "option", "advice"), WRONG, ids=lambda v: json.dumps(v)[:40]
)
def test_a_wrong_option_is_refused_by_name_with_what_to_do(
    given: Any, mode: Any, option: Any, advice: Any
) -> None:
    with pytest.raises(InvalidSparkOption) as refused:
        parse(given, mode)
    assert option in str(refused.value)
    assert advice in str(refused.value)


@pytest.mark.parametrize(
    ("given", "ms"),
    [
        ("100", 100),
        ("0", 0),
        ("5000us", 5),
        ("250ms", 250),
        ("10s", 10_000),
        ("15m", 900_000),
        ("2 min", 120_000),
        ("1h", 3_600_000),
        ("1d", 86_400_000),
    ],
)
def test_a_delay_is_written_as_spark_writes_times(given: str, ms: int) -> None:
    assert stream(maxTriggerDelay=given).max_trigger_delay_ms == ms


def test_a_start_that_equals_the_end_reads_nothing_and_is_no_error() -> None:
    each = '{"f": {"0": 5}}'
    assert batch(startingOffsets=each, endingOffsets=each).starting.each == ((("f", 0), 5),)
    assert batch(startingOffsets=each, endingOffsets='{"f": {"0": -1}}').ending.each[0][1] == -1


@pytest.mark.parametrize(
    "kind", [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, RaylogError)]
)
def test_every_error_survives_pickling_with_its_sentence(kind: type[RaylogError]) -> None:
    error = kind(*[f"<{field}>" for field in kind.fields])
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert all(f"<{field}>" in str(error) for field in kind.fields)
