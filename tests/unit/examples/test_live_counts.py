"""The live writer's batches hold its records, and what it wrote is known from the number alone."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import raylog
from examples.demo import act5_stream
from examples.demo.act5_stream import (
    Look,
    batches_of,
    looks_hold,
    wait_until_counted,
    written,
)
from examples.demo.stage import NotInTime
from raylog.storage.records.murmur2 import partition_for_key

TABLE = pa.table(
    {
        "timestamp": pa.array([1, 2, 3, 4, 5], pa.int64()),
        "key": pa.array([b"UA", b"AA", b"UA", b"DL", b"B6"], pa.binary()),
        "value": pa.array([b"a", b"b", b"c", b"d", b"e"], pa.binary()),
    }
)


def rows_of(batch: Any) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(row.timestamp, row.key, row.value) for row in raylog.decode_records(batch)]


def test_each_record_is_in_the_batch_of_its_keys_partition_in_order() -> None:
    batches = batches_of(TABLE, 2)
    for number, batch in batches.items():
        assert rows_of(batch) == [
            (row["timestamp"], row["key"], row["value"])
            for row in TABLE.to_pylist()
            if partition_for_key(row["key"], 2) == number
        ]
    assert sum(len(rows_of(batch)) for batch in batches.values()) == TABLE.num_rows


def test_what_was_written_is_known_from_the_number_of_records() -> None:
    assert written(TABLE, 0) == Counter()
    assert written(TABLE, 3) == Counter({"UA": 2, "AA": 1})
    assert written(TABLE, 12) == Counter({"UA": 5, "AA": 3, "DL": 2, "B6": 2})


GOOD = Look(acknowledged_before=10, counted=12, streamed=8, acknowledged_after=14, has_gaps=False)


def test_looks_hold_where_the_count_is_between_what_was_acknowledged() -> None:
    assert all(looks_hold([GOOD, GOOD]).values())


def test_each_untrue_look_breaks_one_claim() -> None:
    def broken(**change: Any) -> int:
        claims = looks_hold([GOOD, GOOD._replace(**change)])
        return sum(not holds for holds in claims.values())

    assert broken(counted=9) == 1, "an acknowledged record was not counted"
    assert broken(counted=15) == 1, "a record was counted that nobody wrote"
    assert broken(has_gaps=True) == 1
    assert broken(streamed=7) == 1, "the stream's count went down"
    assert broken(streamed=15) == 1, "the stream counted a record that nobody wrote"
    assert broken(acknowledged_before=12, acknowledged_after=12) == 1, "nothing was appended"


def test_one_look_is_not_enough() -> None:
    assert not all(looks_hold([GOOD]).values())


def test_a_stream_that_is_too_slow_says_how_far_it_has_read_and_not_that_records_are_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(act5_stream, "COUNT_TIMEOUT_S", 0.0)
    monkeypatch.setattr(act5_stream, "streamed", lambda _: Counter({"UA": 7_000}))
    query: Any = SimpleNamespace(exception=lambda: None)
    spark: Any = None
    with pytest.raises(NotInTime, match=r"has read 7,000 of 9,500 records .* 2,500 are not read"):
        wait_until_counted(query, spark, 9_500)


def test_an_end_that_fails_does_not_take_the_place_of_what_ended_the_act(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stop() -> None:
        raise ConnectionError("the JVM does not answer")

    ended: list[Any] = []
    monkeypatch.setattr("ray.kill", ended.append)
    act5_stream._end(SimpleNamespace(stop=stop), "the writer")
    assert ended == ["the writer"]
