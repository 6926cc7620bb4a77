"""Records as a DataFrame through Ray's object store: no Python worker, decoded in Spark's JVM.

::

    Ray task on the partition's node         object store                Spark's executors
    read_range -> Arrow batches       ->     IPC stream, bytes     ->    ArrowStreamReader -> rows
                                             BLOCK_BYTES each

A frame is a snapshot: all records of the given offsets are in the object store (which spills to
disk) while the frame lives. For more data than that, or for a stream, use ``format("raylog")``.

**Who keeps the blocks.** RayDP hands Spark only their ids, so something here must keep the
references. The frame does, and so does every frame made from it (``select``, ``filter``, ...): all
have the frame's session object, which is a copy made to keep them. A join keeps its left side only,
a temporary view keeps nothing: keep the frame itself in a variable until the last action.
"""

import copy
import json
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from raylog.cluster.spark import columns, resolve
from raylog.cluster.spark.errors import SparkUnavailable
from raylog.cluster.spark.options import Options, parse
from raylog.cluster.spark.plan import Range, split_ranges
from raylog.cluster.spark.reading import read, report, report_undecided
from raylog.cluster.spark.session import require_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from raylog.cluster.broker import Broker

# One block is one task of Spark: worth its 10 ms, and small enough for a small executor.
BLOCK_BYTES = 32 << 20
# Decoding tasks ask Ray for no CPU (Spark may hold all), so their number is bounded here: each
# holds a block or two.
TASKS_IN_FLIGHT_MAX = 4


def frame(
    spark: "SparkSession",
    broker: "Broker",
    topic_or_topics: str | Sequence[str],
    *,
    starting_offsets: str | dict[str, dict[int, int]] = "earliest",
    ending_offsets: str | dict[str, dict[int, int]] = "latest",
    include_headers: bool = False,
    isolation_level: str = "read_uncommitted",
) -> "DataFrame":
    """The records of topics as a frame with the schema of ``format("raylog")``, empty if they are.

    Offsets are as in the options startingOffsets and endingOffsets: a word, or
    ``{topic: {partition: offset}}`` with -2 for earliest and -1 for latest. ``isolation_level`` is
    the option isolationLevel. ``spark`` must be a session of ``raylog.spark.session``.
    """
    require_spark()
    import ray
    from raydp.spark.dataset import ray_dataset_to_spark_dataframe

    if not spark.sparkContext.master.startswith("ray"):
        how = "create one, or read with format('raylog'), which works in every Spark session"
        raise SparkUnavailable("a session of raylog.spark.session() for frames", how)
    topics = [topic_or_topics] if isinstance(topic_or_topics, str) else topic_or_topics
    options = parse(
        {
            "subscribe": ",".join(topics),
            "startingOffsets": _text(starting_offsets),
            "endingOffsets": _text(ending_offsets),
            "includeHeaders": str(include_headers),
            "isolationLevel": isolation_level,
            "address": broker.address,
            "namespace": broker.namespace,
        },
        "batch",
    )
    planned = resolve.batch_ranges(broker, options)
    report(planned.lost, options.fail_on_data_loss)
    report_undecided(planned.undecided)
    schema = columns.schema(columns.names(include_headers))
    # RayDP chooses its path by the first block: an empty one is free and serves an empty topic.
    blocks = [
        ray.put(ipc_block(schema, [])),
        *_blocks(broker, options, split_ranges(planned.ranges, None), schema),
    ]
    return ray_dataset_to_spark_dataframe(_keeping(spark, blocks), schema, blocks)


def ipc_block(schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> bytes:
    """Batches as one Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def pack(batches: Iterator[pa.RecordBatch], schema: pa.Schema, block_bytes: int) -> Iterator[bytes]:
    """Batches in IPC streams of about ``block_bytes``."""
    batches_of_block: list[pa.RecordBatch] = []
    size = 0
    for batch in chain.from_iterable(columns.bounded(whole, block_bytes) for whole in batches):
        if batches_of_block and size + batch.nbytes > block_bytes:
            yield ipc_block(schema, batches_of_block)
            batches_of_block, size = [], 0
        batches_of_block.append(batch)
        size += batch.nbytes
    if batches_of_block:
        yield ipc_block(schema, batches_of_block)


def _decode(
    options: Options, wanted: Range, schema: pa.Schema, block_bytes: int
) -> Iterator[bytes]:
    """The body of a Ray task: a range as blocks."""
    yield from pack(read(options, wanted, schema.names), schema, block_bytes)


def _blocks(
    broker: "Broker", options: Options, ranges: list[Range], schema: pa.Schema
) -> list[Any]:
    """The blocks of all ranges, in order: a task on each partition's node decodes them."""
    nodes = _nodes(broker, {r.topic for r in ranges})
    waiting = list(reversed(ranges))
    running: dict[Any, Range] = {}
    blocks: dict[Range, list[Any]] = {}
    while waiting or running:
        while waiting and len(running) < TASKS_IN_FLIGHT_MAX:
            started = _start(options, waiting[-1], schema, nodes)
            running[started.completed()] = waiting[-1]
            blocks[waiting.pop()] = started
        _finish_one(running)
    return [block for r in ranges for block in blocks[r]]


def _start(
    options: Options, wanted: Range, schema: pa.Schema, nodes: dict[tuple[str, int], str | None]
) -> Any:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    node = nodes.get((wanted.topic, wanted.partition))
    place = NodeAffinitySchedulingStrategy(node, soft=True) if node else "DEFAULT"
    task = ray.remote(num_cpus=0, num_returns="streaming", scheduling_strategy=place)(_decode)
    return task.remote(options, wanted, schema, BLOCK_BYTES)


def _finish_one(running: dict[Any, Range]) -> None:
    import ray

    done, _ = ray.wait(list(running), num_returns=1)
    running.pop(done[0])
    ray.get(done[0])  # raises what the task raised


def _nodes(broker: "Broker", topics: set[str]) -> dict[tuple[str, int], str | None]:
    described = [(topic, broker.describe_topic(topic)) for topic in sorted(topics)]
    return {(topic, p.partition): p.node_id for topic, about in described for p in about.partitions}


def _keeping(spark: "SparkSession", blocks: list[Any]) -> "SparkSession":
    keeper = copy.copy(spark)
    keeper._raylog_blocks = blocks  # type: ignore[attr-defined]
    return keeper


def _text(offsets: str | dict[str, dict[int, int]]) -> str:
    return offsets if isinstance(offsets, str) else json.dumps(offsets)
