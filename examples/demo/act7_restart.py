"""Act 7: stop everything, look at the files, start again on the same dirs.

Ray ends with the broker and keeps nothing: all that a new Ray knows of topics and records comes
from the log dirs. What is in them is what Kafka puts there.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import raylog
from examples.demo.act1_start import PARTITIONS
from examples.demo.digest import agree, digest_of
from examples.demo.stage import Demo, Stopwatch

# What each kind of file is, and who writes it when.
ORIGINS = {
    ".log": "the records: v2 batches, as the producers sent them",
    ".index": "offset -> position, one entry per 4 KB, at most one per batch",
    ".timeindex": "timestamp -> offset, as often",
    ".snapshot": "last sequences of producers, written at each roll and stop",
    "leader-epoch-checkpoint": "first offset of each leader epoch; each start begins one",
    "partition.metadata": "topic id, written when the topic is created",
    "meta.properties": "cluster id and directory id",
    "recovery-point-offset-checkpoint": "recovery points: below them, all is fsynced",
    "log-start-offset-checkpoint": "log start offsets that are not the base of the first segment",
    "replication-offset-checkpoint": "high watermarks",
    "cleaner-offset-checkpoint": "up to where each log is compacted",
    ".kafka_cleanshutdown": "the log dir was closed in order: no recovery is needed",
    ".lock": "locked while a broker uses the log dir",
}


def run(demo: Demo) -> None:
    stage = demo.stage
    stage.act(7, "Stop, look at the files, start again on the same log dirs")
    before = ends_of_topics(demo)
    largest = before["flights"].index(max(before["flights"]))
    folder = Path(str(demo.running_broker.describe_topic("flights").partitions[largest].folder))
    watch = Stopwatch()
    with stage.progress("stopping"):
        stop_spark(demo)
        clean = stop_broker(demo)
    stage.check(
        clean, f"all logs were flushed and closed in order, and Ray ended: {watch.seconds:.1f} s"
    )
    _show_tree(demo, folder)
    watch = Stopwatch()
    with stage.progress("starting again"):
        demo.broker = demo.cluster.start()
    stage.say(f"started a new Ray and a new broker on the same log dirs in {watch.seconds:.1f} s")
    after = ends_of_topics(demo)
    total = sum(end for ends in after.values() for end in ends)
    stage.check(before == after, f"all {len(after)} topics and {total:,} records are there")
    for topic in ("flights", "flights-arrow"):
        read = partial(demo.running_broker.read_table, topic)
        digests = [digest_of([read(partitions=[number])]) for number in range(PARTITIONS)]
        stage.check(
            agree(digests, demo.expected), f"{topic}: the digests are still equal to the source"
        )


def stop_spark(demo: Demo) -> None:
    """Spark first: it lives on Ray."""
    spark, demo.spark = demo.spark, None
    if spark is not None:
        raylog.spark.stop(spark)


def stop_broker(demo: Demo) -> bool:
    """The broker, and Ray with it; returns whether all was clean."""
    broker, demo.broker = demo.broker, None
    is_clean = broker is None or broker.stop()
    demo.cluster.end()
    return is_clean


def ends_of_topics(demo: Demo) -> dict[str, list[int]]:
    """Topic -> the end offsets of its partitions."""
    admin = demo.running_broker.admin()
    topics = admin.describe_topics(admin.list_topics().result())
    partitions = [
        (topic, partition.partition)
        for topic, described in topics.items()
        for partition in described.result().partitions
    ]
    ends: dict[str, list[int]] = {}
    for partition, end in admin.list_offsets(dict.fromkeys(partitions, "latest")).items():
        ends.setdefault(partition.topic, []).append(end.result().offset)
    return ends


def _show_tree(demo: Demo, folder: Path) -> None:
    lines = [
        f"{folder.parent.name}/",
        *describe_files(folder.parent, "  "),
        f"  {folder.name}/",
        *describe_files(folder, "    "),
    ]
    for line in lines:
        demo.stage.line(f"   {line}")
    demo.stage.report.code("\n".join(lines))


def describe_files(folder: Path, indent: str) -> Iterator[str]:
    """The files of a folder with sizes; one line for each kind of file, with the size of all."""
    seen: dict[str, list[Path]] = {}
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        kind = path.suffix if path.name[0].isdigit() else path.name
        seen.setdefault(kind, []).append(path)
    for kind, paths in seen.items():
        size = sum(path.stat().st_size for path in paths)
        name = paths[0].name + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")
        yield f"{indent}{name:<{46 - len(indent)}} {size:>12,} B  {ORIGINS.get(kind, '')}"
