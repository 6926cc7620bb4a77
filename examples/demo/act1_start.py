"""Act 1: start Ray and the broker on two log dirs, create the topics, fill the small ones.

The broker is a set of Ray actors: one Controller, one LogManager for each node, one LogActor a
partition. With ``--nodes 2`` there are two Ray nodes, each with two log dirs of its own.
"""

import os
from pathlib import Path

from examples.demo.digest import expected_digests
from examples.demo.source import REFERENCES, load_reference
from examples.demo.stage import Demo, Stopwatch
from raylog.cluster.admin import NewTopic

PARTITIONS = 4
# Ages are counted from the records' timestamps, which are of 2013. With Kafka's default of seven
# days a segment would end after a week of flights, and the next retention would delete it.
KEEP = {"retention.ms": -1, "segment.ms": 100 * 365 * 24 * 3600 * 1000}
# Small, so that the last act has several segments of a partition to show.
SEGMENT_BYTES, QUICK_SEGMENT_BYTES = 8 << 20, 2 << 20


def run(demo: Demo) -> None:
    stage = demo.stage
    stage.act(1, f"A broker inside Ray, on {demo.cluster.place}")
    watch = Stopwatch()
    with stage.progress("starting Ray and the broker"):
        demo.broker = demo.cluster.start()
    stage.say(f"Ray and a broker on {demo.cluster.place} started in {watch.seconds:.1f} s")
    _create_flights(demo)
    _fill_references(demo)
    demo.expected = expected_digests(demo.flights.table, PARTITIONS)


def _create_flights(demo: Demo) -> None:
    stage, broker = demo.stage, demo.running_broker
    config = {**KEEP, "segment.bytes": QUICK_SEGMENT_BYTES if demo.is_quick else SEGMENT_BYTES}
    watch = Stopwatch()
    created = {}
    with stage.progress("creating topics", 2) as done:
        for topic in ("flights", "flights-arrow"):
            futures = broker.admin().create_topics([NewTopic(topic, PARTITIONS, config)])
            created[topic] = futures[topic].result()
            done(1)
    stage.say(
        f"created the topics flights and flights-arrow with {PARTITIONS} partitions each, in "
        f"{watch.seconds:.1f} s; each partition is an actor"
    )
    stage.say("retention.ms=-1: the records are of 2013; the default retention would delete them")
    by_dir: dict[str, list[str]] = {}
    for partition in created["flights"].partitions:
        folder = Path(partition.folder or "")
        by_dir.setdefault(os.path.relpath(folder.parent, demo.data), []).append(folder.name)
    where = "; ".join(f"{name}: {', '.join(found)}" for name, found in sorted(by_dir.items()))
    nodes = {partition.node_id for partition in created["flights"].partitions}
    stage.check(
        len(by_dir) == len(demo.cluster.log_dirs) and len(nodes) == demo.cluster.node_count,
        f"the partitions are spread over {demo.cluster.place}: {where}",
    )


def _fill_references(demo: Demo) -> None:
    """The reference tables: one partition each, keyed by what flights refer to them with."""
    stage, broker = demo.stage, demo.running_broker
    created = broker.admin().create_topics([NewTopic(name, 1, KEEP) for name in REFERENCES])
    sent = {}
    with stage.progress("reference tables", len(REFERENCES)) as done, broker.producer() as producer:
        for name in REFERENCES:
            created[name].result()
            sent[name] = producer.send_arrow(name, load_reference(name))
            done(1)
    ends = broker.admin().list_offsets({(name, 0): "latest" for name in REFERENCES})
    counts = ", ".join(f"{name} {table.num_rows:,}" for name, table in sent.items())
    stage.check(
        all(end.result().offset == sent[key.topic].num_rows for key, end in ends.items()),
        f"the reference tables are topics: {counts}",
    )
