"""Act 2: every flight twice: record by record into ``flights``, as Arrow columns into
``flights-arrow``.

Both end in the same bytes: v2 record batches of Kafka's format, encoded once, here, in compiled
code. ``send`` costs one Python call a record; ``send_arrow`` makes no Python object a record. The
time includes the last acknowledgement (``close`` waits for it); preparing the JSON is not in it.
"""

import itertools
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa

from examples.demo.act1_start import PARTITIONS
from examples.demo.stage import Demo, Stopwatch, bandwidth, megabytes, rate

# How often the bar moves: rows between two steps.
SEND_STEP = 5_000
ARROW_STEP = 50_000


def run(demo: Demo) -> None:
    stage, flights = demo.stage, demo.flights
    count, size_bytes = flights.table.num_rows, flights.size_bytes
    stage.act(2, f"Producing {count:,} flights ({megabytes(size_bytes)} of JSON and keys), twice")
    seconds = {
        "send": send_rows(demo, "flights"),
        "send_arrow": send_columns(demo, "flights-arrow"),
    }
    for name, took in seconds.items():
        stage.say(
            f"{name:<10}  {rate(count, took):>11} records, {bandwidth(size_bytes, took):>8}, "
            f"{took:.2f} s"
        )
    stage.report.table(
        ("call", "records", "MB", "s", "records/s", "MB/s"),
        [
            (f"`{n}`", count, size_bytes / 1e6, s, int(count / s), size_bytes / 1e6 / s)
            for n, s in seconds.items()
        ],
    )
    stage.report.text(
        "The time is from the first call to the last acknowledgement. An acknowledged record is in "
        "the page cache of the partition's node. One producer with default settings (idempotent, "
        "no compression). 1 MB is 10^6 bytes of keys and values."
    )
    partitions = itertools.product(("flights", "flights-arrow"), range(PARTITIONS))
    totals = Counter[str]()
    ends = demo.running_broker.admin().list_offsets(dict.fromkeys(partitions, "latest"))
    for partition, end in ends.items():
        totals[partition.topic] += end.result().offset
    stage.check(
        set(totals.values()) == {count},
        f"both topics end at {count:,} records in {PARTITIONS} partitions",
    )


def send_rows(demo: Demo, topic: str) -> float:
    """One ``send`` a record; returns the seconds."""
    rows = list(
        zip(
            *(
                demo.flights.table.column(name).to_pylist()
                for name in ("value", "key", "timestamp")
            ),
            strict=True,
        )
    )
    with demo.stage.progress("send", len(rows)) as done:
        watch = Stopwatch()
        with demo.running_broker.producer() as producer:
            send = producer.send
            for start in range(0, len(rows), SEND_STEP):
                step = rows[start : start + SEND_STEP]
                for value, key, timestamp in step:
                    send(topic, value, key=key, timestamp=timestamp)
                done(len(step))
        return watch.seconds


def send_columns(demo: Demo, topic: str) -> float:
    """One ``send_arrow`` a slice of the table (one for all would do, but the bar would not
    move)."""
    table = demo.flights.table
    with demo.stage.progress("send_arrow", table.num_rows) as done:
        watch = Stopwatch()
        with demo.running_broker.producer() as producer:
            for part in slices(table, ARROW_STEP):
                done(producer.send_arrow(topic, part).num_rows)
        return watch.seconds


def slices(table: pa.Table, rows: int) -> Iterator[pa.Table]:
    return (table.slice(start, rows) for start in range(0, table.num_rows, rows))
