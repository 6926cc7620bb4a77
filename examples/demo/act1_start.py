"""Act 1: start Ray and the broker on two log dirs, create the topics, fill the small ones.

The broker is a set of Ray actors: one Controller, one LogManager for this node, one LogActor a
partition.
"""

from pathlib import Path

import raylog
from examples.demo.digest import expected_digests
from examples.demo.source import REFERENCES, load_reference
from examples.demo.stage import Demo, Stopwatch

PARTITIONS = 4
# Ages are counted from the records' timestamps, which are of 2013. With Kafka's default of seven
# days a segment would end after a week of flights, and the next retention would delete it.
KEEP = {"retention.ms": -1, "segment.ms": 100 * 365 * 24 * 3600 * 1000}
# Small, so that the last act has several segments of a partition to show.
SEGMENT_BYTES, QUICK_SEGMENT_BYTES = 8 << 20, 2 << 20


def run(demo: Demo) -> None:
    stage = demo.stage
    stage.act(1, "A broker inside Ray, on two log dirs")
    watch = Stopwatch()
    with stage.progress("starting Ray and the broker"):
        demo.broker = raylog.start(demo.log_dirs, ray_options=demo.ray_options)
    stage.say(f"raylog.start() started Ray and a broker on two log dirs in {watch.seconds:.1f} s")
    _create_flights(demo)
    _fill_references(demo)
    demo.expected = expected_digests(demo.flights.table, PARTITIONS)


def _create_flights(demo: Demo) -> None:
    stage, broker = demo.stage, demo.running_broker
    config = {**KEEP, "segment.bytes": QUICK_SEGMENT_BYTES if demo.is_quick else SEGMENT_BYTES}
    watch = Stopwatch()
    with stage.progress("creating topics", 2) as done:
        for topic in ("flights", "flights-arrow"):
            broker.create_topic(topic, PARTITIONS, config)
            done(1)
    stage.say(
        f"created the topics flights and flights-arrow with {PARTITIONS} partitions each, in "
        f"{watch.seconds / 2:.1f} s per topic; each partition is an actor"
    )
    stage.say("retention.ms=-1: the records are of 2013; the default retention would delete them")
    folders = [
        Path(partition.folder or "") for partition in broker.describe_topic("flights").partitions
    ]
    by_dir: dict[str, list[str]] = {}
    for folder in folders:
        by_dir.setdefault(folder.parent.name, []).append(folder.name)
    where = "; ".join(f"{name}: {', '.join(found)}" for name, found in sorted(by_dir.items()))
    stage.check(len(by_dir) == 2, f"the partitions are spread over both log dirs: {where}")


def _fill_references(demo: Demo) -> None:
    """The reference tables: one partition each, keyed by what flights refer to them with."""
    stage, broker = demo.stage, demo.running_broker
    sizes = {}
    with stage.progress("reference tables", len(REFERENCES)) as done, broker.producer() as producer:
        for name in REFERENCES:
            broker.create_topic(name, 1, KEEP)
            sizes[name] = producer.send_arrow(name, load_reference(name)).num_rows
            done(1)
    ends = broker.list_offsets({(name, 0): -1 for name in REFERENCES})
    counts = ", ".join(f"{name} {rows:,}" for name, rows in sizes.items())
    stage.check(
        all(ends[name, 0] == rows for name, rows in sizes.items()),
        f"the reference tables are topics: {counts}",
    )
