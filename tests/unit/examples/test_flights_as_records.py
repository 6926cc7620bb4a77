"""Flights become records: JSON that says what the row says, keyed by carrier, in the order of
departure."""

import json

import pandas as pd
import pyarrow as pa
import pytest

from examples.demo.source import Flights, partitions_of, to_flights
from raylog.storage.records.murmur2 import partition_for_key

ROW = {
    "year": 2013,
    "month": 1,
    "day": 1,
    "dep_time": 517.0,
    "dep_delay": 2.0,
    "carrier": "UA",
    "tailnum": "N14228",
    "hour": 5,
    "minute": 15,
    "time_hour": "2013-01-01T10:00:00Z",
}


@pytest.fixture
def flights() -> Flights:
    cancelled = {
        **ROW,
        "dep_time": None,
        "dep_delay": None,
        "carrier": "AA",
        "tailnum": None,
        "minute": 14,
    }
    return to_flights(pd.DataFrame([ROW, cancelled]))


def test_the_timestamp_is_the_scheduled_departure_in_utc(flights: Flights) -> None:
    assert flights.table.column("timestamp").to_pylist() == [1_357_035_240_000, 1_357_035_300_000]


def test_records_are_in_the_order_of_departure(flights: Flights) -> None:
    assert flights.table.column("key").to_pylist() == [b"AA", b"UA"]
    assert flights.frame["carrier"].tolist() == ["AA", "UA"]


def test_the_value_is_the_row_with_whole_numbers_and_nulls(flights: Flights) -> None:
    cancelled, flown = map(json.loads, flights.table.column("value").to_pylist())
    assert flown == {**ROW, "dep_time": 517, "dep_delay": 2}
    assert isinstance(flown["dep_time"], int)
    assert cancelled["dep_time"] is None
    assert cancelled["tailnum"] is None


def test_size_counts_keys_and_values(flights: Flights) -> None:
    rows = flights.table.to_pylist()
    assert flights.size_bytes == sum(len(row["key"]) + len(row["value"]) for row in rows)


def test_partitions_are_those_of_the_producer() -> None:
    keys = pa.chunked_array([[b"UA", b"AA"], [b"UA"]])
    assert partitions_of(keys, 4).to_pylist() == [
        partition_for_key(key, 4) for key in (b"UA", b"AA", b"UA")
    ]
