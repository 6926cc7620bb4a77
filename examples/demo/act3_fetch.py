"""Act 3: read it all back, and find one day by its time.

``flights`` is read as any Ray task can: by calls to the partitions' actors. ``flights-arrow`` is
read by a consumer. On the partition's own node it maps the segment files and decodes from the page
cache; from another node it gets the batches through Ray. Both are compared with the source by a
digest that covers keys, values, timestamps and their order (``digest.py``).
"""

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pyarrow.compute as pc
import ray

from examples.demo.act1_start import PARTITIONS
from examples.demo.digest import Digest, agree, digest_of
from examples.demo.stage import Demo, Stopwatch, bandwidth, rate
from raylog.storage.records.decode import decode_table

Records = list[pa.RecordBatch]

FETCH_BYTES = 4 << 20
DAY = datetime(2013, 7, 4, tzinfo=timezone(timedelta(hours=-4), "New York"))
NEXT_DAY = DAY + timedelta(days=1)


def run(demo: Demo) -> None:
    stage = demo.stage
    stage.act(3, "Reading back: with actor handles, with a consumer, and one day by its time")
    count, size_bytes = demo.flights.table.num_rows, demo.flights.size_bytes
    ways = {
        ("flights", "with fetch() on the actors' handles"): read_by_handles,
        ("flights-arrow", "with a consumer, by poll_arrow()"): read_by_consumer,
    }
    for (topic, way), read in ways.items():
        seconds = []
        for _ in range(2):
            watch = Stopwatch()
            found = read(demo, topic)
            seconds.append(watch.seconds)  # without the digests
        first, again = (f"{rate(count, took)}, {bandwidth(size_bytes, took)}" for took in seconds)
        stage.say(f"{way}: {first}; the second time: {again}")
        compare(demo, topic, [digest_of(records) for records in found])
    stage.report.text(
        "The time ends when the last record is in an Arrow column. The handles read one actor "
        "after the other, in fetches of 4 MB. The consumer has a long poll at every actor. The "
        "first time includes the lookup of the actors and the mapping of files. The digests are "
        "not included."
    )
    _one_day(demo)


def compare(demo: Demo, topic: str, found: list[Digest]) -> None:
    counts = " + ".join(f"{digest.count:,}" for digest in found)
    demo.stage.check(
        [digest.count for digest in found] == [digest.count for digest in demo.expected],
        f"{topic}: {counts} records",
    )
    demo.stage.check(
        agree(found, demo.expected),
        (
            f"{topic}: keys, values, times and order are equal to the source (SHA-256 "
            f"{found[0].hexdigest()[:8]}...)"
        ),
    )


def fetch_all(demo: Demo, topic: str, partition: int) -> Iterator[pa.RecordBatch]:
    """The records of one partition, by calls to its actor: whole Kafka batches come, Arrow columns
    leave."""
    handle = demo.running_broker.partition(topic, partition)
    start = 0
    while True:
        answer = ray.get(handle.fetch.remote(start, FETCH_BYTES))
        if answer.records is None:  # the log's end
            return
        # The first batch may begin before `start`: the decoder skips what is below it.
        records = decode_table(answer.records, start_offset=start)
        yield records
        start = records.column("offset")[-1].as_py() + 1


def read_by_handles(demo: Demo, topic: str) -> list[Records]:
    """The records of each partition, by calls to its actor."""
    found: list[Records] = [[] for _ in range(PARTITIONS)]
    with demo.stage.progress("fetch", demo.flights.table.num_rows) as done:
        for number, batches in enumerate(found):
            for records in fetch_all(demo, topic, number):
                batches.append(records)
                done(records.num_rows)
    return found


def read_by_consumer(demo: Demo, topic: str) -> list[Records]:
    """The records of each partition, by a consumer of the whole topic: each poll gives a part."""
    found: list[Records] = [[] for _ in range(PARTITIONS)]
    with (
        demo.stage.progress("consume", demo.flights.table.num_rows) as done,
        demo.running_broker.consumer(topic, from_="earliest", to="latest") as consumer,
    ):
        while not consumer.is_at_end:
            table = consumer.poll_arrow()
            for records in table.to_batches():  # of one partition each
                found[records.column("partition")[0].as_py()].append(records)
            done(table.num_rows)
    return found


def _one_day(demo: Demo) -> None:
    """Each partition finds its first offset at two times: what lies between is the day."""
    watch = Stopwatch()
    day = demo.running_broker.read_table("flights", from_=DAY, to=NEXT_DAY)
    took = watch.seconds
    wanted = count_of_day(demo.flights.table.column("timestamp"))
    demo.stage.check(
        day.num_rows == count_of_day(day.column("timestamp")) == wanted > 0,
        (
            f"{DAY:%-d %B %Y}: read_table found {day.num_rows} flights by time in "
            f"{took * 1000:.0f} ms; the source has {wanted}"
        ),
    )


def count_of_day(times: pa.ChunkedArray) -> int:
    """How many of the times lie in the day; they are timestamps, or ms as numbers."""
    milliseconds = pa.timestamp("ms", "UTC")
    start, end = (pa.scalar(day, milliseconds) for day in (DAY, NEXT_DAY))
    moments = times.cast(milliseconds)
    is_in_day = pc.and_(pc.greater_equal(moments, start), pc.less(moments, end))
    return int(pc.sum(is_in_day).as_py() or 0)
