"""What raylog measures, and how it gets into Ray's metrics, which Prometheus reads.

``METRICS`` is the one list: tests compare ``docs/METRICS.md`` and the dashboard with it. Ray puts
``ray_`` before each name and ``_total`` after a counter's name, and adds the tags NodeAddress,
WorkerId and SessionName.

The hot path makes no call to Ray, because such a call costs 3 µs. Actors count in plain numbers.
An :class:`Exporter` turns them into Ray's metrics every few seconds, for an idle partition every 15
seconds: Ray forgets a gauge that is not set again within two or three of its reports (10 s apart).
This module does not import Ray: ``runtime/ray_metrics.py`` makes the metrics of the list in Ray.

**To see them**, install ``ray[default]`` (``pip install '.[metrics]'``) on each node of the Ray
cluster. Without it the numbers are counted, but not shown anywhere. Ray serves them at
``http://<node>:<MetricsExportPort>/metrics`` (``ray start --metrics-export-port``; otherwise a free
port, which ``ray.nodes()`` shows).
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

from raylog.actors.events import warn

logger = logging.getLogger(__name__)

Kind = Literal["counter", "gauge", "histogram"]
EXPORT_INTERVAL_S, IDLE_EXPORT_INTERVAL_S = 5.0, 15.0
OF_PARTITION = ("topic", "partition")
OF_GROUP = ("group", *OF_PARTITION)
OF_ERROR = (*OF_PARTITION, "error")
OF_KIND = (*OF_PARTITION, "kind")
OF_NODE = ("node",)
OF_DIR = ("node", "log_dir")
OF_BROKER = ("namespace",)
# Seconds. An append by Ray call is served in about 0.0001; a flush of a busy disk takes a second.
BOUNDARIES = [
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    10.0,
]


class Metric(NamedTuple):
    """One line of the list. ``unit`` is "" of plain counts."""

    name: str
    kind: Kind
    unit: str
    tags: tuple[str, ...]
    doc: str

    @property
    def exported_name(self) -> str:
        """As Prometheus sees it."""
        return f"ray_{self.name}" + ("_total" if self.kind == "counter" else "")


def _counter(name: str, doc: str, *, tags: tuple[str, ...], unit: str = "") -> Metric:
    return Metric(name=name, kind="counter", unit=unit, tags=tags, doc=doc)


def _gauge(name: str, doc: str, *, tags: tuple[str, ...], unit: str = "") -> Metric:
    return Metric(name=name, kind="gauge", unit=unit, tags=tags, doc=doc)


def _histogram(name: str, doc: str, *, tags: tuple[str, ...], unit: str) -> Metric:
    return Metric(name=name, kind="histogram", unit=unit, tags=tags, doc=doc)


def _of_sockets(name: str, tags: tuple[str, ...]) -> tuple[Metric, ...]:
    """What the sockets of a process count. ``name``: the beginning of each name."""
    of_api, of_error = (*tags, "api"), (*tags, "error")
    return (
        _counter(f"{name}_requests", "Requests of Kafka's protocol, by API.", tags=of_api),
        _counter(
            f"{name}_request_seconds",
            "Time from a request's last byte to its answer's last byte, parked fetches included.",
            tags=of_api,
            unit="s",
        ),
        _counter(f"{name}_request_bytes", "Bytes of requests.", tags=of_api, unit="bytes"),
        _counter(f"{name}_answer_bytes", "Bytes of answers.", tags=of_api, unit="bytes"),
        _counter(
            f"{name}_connections_ended",
            "Connections that ended for a reason, by Kafka's name of the error.",
            tags=of_error,
        ),
        _gauge(f"{name}_connections", "Connections that are open.", tags=tags),
        _gauge(
            f"{name}_requests_bytes_held", "Bytes of requests in hand.", tags=tags, unit="bytes"
        ),
        _gauge(f"{name}_requests_waiting", "Requests that wait for room.", tags=tags),
    )


METRICS = (
    # of each partition, from its LogActor
    _counter("raylog_bytes_in", "Bytes of appended batches.", tags=OF_PARTITION, unit="bytes"),
    _counter("raylog_records_in", "Appended records.", tags=OF_PARTITION),
    _counter(
        "raylog_bytes_out",
        "Bytes of batches that fetches returned, or located.",
        tags=OF_PARTITION,
        unit="bytes",
    ),
    _counter(
        "raylog_duplicates",
        "Batches that a producer sent again and that were not written twice.",
        tags=OF_PARTITION,
    ),
    _counter(
        "raylog_append_errors", "Failed appends, by Kafka's name of the error.", tags=OF_ERROR
    ),
    _counter("raylog_fetch_errors", "Failed fetches, by Kafka's name of the error.", tags=OF_ERROR),
    _histogram(
        "raylog_append_seconds",
        "Duration of an append in its actor, up to the acknowledgement.",
        tags=OF_PARTITION,
        unit="s",
    ),
    _histogram(
        "raylog_fetch_seconds",
        "Duration of a fetch in its actor, without the time it was parked.",
        tags=OF_PARTITION,
        unit="s",
    ),
    _histogram(
        "raylog_fsync_seconds",
        "Duration of a flush of the log. Its count is the number of fsyncs.",
        tags=OF_PARTITION,
        unit="s",
    ),
    _gauge(
        "raylog_in_flight_bytes",
        "Bytes of appends that are not answered yet.",
        tags=OF_PARTITION,
        unit="bytes",
    ),
    _gauge("raylog_parked_polls", "Fetches that wait for records.", tags=OF_PARTITION),
    _gauge("raylog_log_size_bytes", "Size of the log's segments.", tags=OF_PARTITION, unit="bytes"),
    _gauge("raylog_log_segments", "Number of segments of the log.", tags=OF_PARTITION),
    _gauge(
        "raylog_log_start_offset",
        "Log start offset: the first offset that can be read.",
        tags=OF_PARTITION,
    ),
    _gauge(
        "raylog_log_end_offset", "Log end offset: the offset of the next record.", tags=OF_PARTITION
    ),
    _gauge("raylog_unflushed_records", "Records after the recovery point.", tags=OF_PARTITION),
    _gauge("raylog_offline", "1 if the partition is offline, 0 if it serves.", tags=OF_PARTITION),
    _gauge(
        "raylog_retention_lag_seconds",
        "Time since the oldest segment passed its retention time.",
        tags=OF_PARTITION,
        unit="s",
    ),
    # Gauges: a counter that is there from its first sample on has no rate.
    _gauge(
        "raylog_mended_files",
        "What the last opening of the log did to files: cut, set_aside, rebuilt, removed, lost, "
        "gap, damaged.",
        tags=OF_KIND,
    ),
    _gauge(
        "raylog_mended_bytes",
        "Bytes that the last opening of the log cut, set aside, rebuilt or removed, by kind.",
        tags=OF_KIND,
        unit="bytes",
    ),
    _gauge(
        "raylog_asides",
        "Files that recovery set aside and that nobody has restored or dropped yet.",
        tags=OF_PARTITION,
    ),
    _gauge(
        "raylog_asides_to_decide",
        "Of these files, those that may hold records: somebody has to restore or drop them.",
        tags=OF_PARTITION,
    ),
    _gauge(
        "raylog_aside_bytes",
        "Size of all files that were set aside.",
        tags=OF_PARTITION,
        unit="bytes",
    ),
    *_of_sockets("raylog_socket", OF_PARTITION),
    # of each group, from the LogActor that coordinates it
    _gauge(
        "raylog_group_members",
        "Members of the group of consumers. The topic and partition are those of its coordinator.",
        tags=OF_GROUP,
    ),
    _gauge(
        "raylog_group_committed_offset",
        "The next offset that the group will read of the partition. Of at most 2,000 in a process.",
        tags=OF_GROUP,
    ),
    # of each node, from its LogManager
    *_of_sockets("raylog_node_socket", OF_NODE),
    _gauge("raylog_partitions", "Partitions that the node serves.", tags=OF_NODE),
    _gauge(
        "raylog_partitions_offline",
        "Partitions whose log dir failed while they were served.",
        tags=OF_NODE,
    ),
    _gauge(
        "raylog_partitions_to_load",
        "Partitions that the node found at its start and still has to open.",
        tags=OF_NODE,
    ),
    _gauge("raylog_log_dirs_offline", "Log dirs that failed.", tags=OF_NODE),
    _gauge(
        "raylog_log_dir_usable_bytes",
        "Free space of the log dir's file system.",
        tags=OF_DIR,
        unit="bytes",
    ),
    _gauge(
        "raylog_log_dir_size_bytes",
        "Size of the partitions in the log dir.",
        tags=OF_DIR,
        unit="bytes",
    ),
    _gauge(
        "raylog_log_dir_total_bytes",
        "Size of the log dir's file system.",
        tags=OF_DIR,
        unit="bytes",
    ),
    # of the broker, from its Controller
    _gauge(
        "raylog_controller_epoch",
        "Epoch of the Controller. It rises with each life of a Controller.",
        tags=OF_BROKER,
    ),
    _gauge(
        "raylog_partitions_away",
        "Partitions that no node serves or opens, also those of nodes that are away.",
        tags=OF_BROKER,
    ),
    _gauge(
        "raylog_partitions_opening",
        "Partitions that are being created or opened.",
        tags=OF_BROKER,
    ),
    _gauge(
        "raylog_nodes_silent",
        "Nodes whose LogManager has not reported for 10 s.",
        tags=OF_BROKER,
    ),
    _gauge(
        "raylog_nodes_without_upkeep",
        "Nodes on which an actor of retention or compaction has been missing for 30 s.",
        tags=OF_BROKER,
    ),
    _gauge(
        "raylog_log_dirs_suspect",
        "Log dirs that are online and take no orders, because their disk does not answer.",
        tags=OF_BROKER,
    ),
    _gauge(
        "raylog_metadata_failed",
        "1 if a write of the metadata has failed, so that nothing can be changed.",
        tags=OF_BROKER,
    ),
    _gauge(
        "raylog_metadata_older",
        "1 if the metadata is older than what nodes have obeyed, so that nothing is decided.",
        tags=OF_BROKER,
    ),
    _gauge(
        "raylog_metadata_reserve_missing",
        "1 if the metadata's reserve of room is not whole.",
        tags=OF_BROKER,
    ),
    # of each node, from its CompactionActor
    _counter("raylog_compaction_rounds", "Completed rounds of compaction.", tags=OF_NODE),
    _counter(
        "raylog_compaction_bytes_read", "Bytes that compaction read.", tags=OF_NODE, unit="bytes"
    ),
    _counter(
        "raylog_compaction_bytes_written",
        "Bytes that compaction wrote.",
        tags=OF_NODE,
        unit="bytes",
    ),
    _counter("raylog_compaction_records_dropped", "Records that compaction removed.", tags=OF_NODE),
    _counter(
        "raylog_compaction_busy_seconds", "Time that compaction worked.", tags=OF_NODE, unit="s"
    ),
    _gauge(
        "raylog_compaction_max_dirty_ratio",
        "Dirty ratio of the dirtiest log, 0 to 1.",
        tags=OF_NODE,
    ),
    _gauge(
        "raylog_compaction_lag_seconds",
        "Time by which the most overdue log exceeds max.compaction.lag.ms.",
        tags=OF_NODE,
        unit="s",
    ),
    _gauge(
        "raylog_compaction_uncleanable",
        "Logs that compaction leaves alone because it failed on them.",
        tags=OF_NODE,
    ),
    _gauge(
        "raylog_compaction_last_round_seconds",
        "Unix time of the end of the last round, if there was one.",
        tags=OF_NODE,
        unit="s",
    ),
    # of a node, from its RetentionActor; counts of compacted logs also from its CompactionActor
    _counter("raylog_retention_segments_deleted", "Segments that retention deleted.", tags=OF_NODE),
    _counter(
        "raylog_retention_bytes_deleted",
        "Bytes of segments that retention deleted.",
        tags=OF_NODE,
        unit="bytes",
    ),
    _counter(
        "raylog_retention_busy_seconds",
        "Time that rounds of retention took.",
        tags=OF_NODE,
        unit="s",
    ),
    _gauge(
        "raylog_retention_last_round_seconds",
        "Unix time of the end of the last round.",
        tags=OF_NODE,
        unit="s",
    ),
)

BY_NAME = {metric.name: metric for metric in METRICS}


class Exporter:
    """Turns plain numbers into metrics. One thread at a time."""

    def __init__(self, make: Callable[[Metric], Any], **tags: object) -> None:
        """``make``: makes a metric that can be set; ``runtime/ray_metrics.py`` makes Ray's.

        ``tags``: of everything that this exports.
        """
        self._make = make
        self._tags = {name: str(value) for name, value in tags.items()}
        self._made: dict[str, Any] = {}
        self._totals: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}

    def add(self, name: str, grown: float, **tags: str) -> None:
        """Add to a counter what it has grown by."""
        if grown > 0:
            self._metric(name, "counter").inc(grown, {**self._tags, **tags})

    def total(self, name: str, total: float, **tags: str) -> None:
        """Set a counter to its total since this process began."""
        key = (name, tuple(sorted(tags.items())))
        grown = total - self._totals.get(key, 0)
        self._totals[key] = max(total, self._totals.get(key, 0))
        self.add(name, grown, **tags)

    def gauge(self, name: str, value: float, **tags: str) -> None:
        self._metric(name, "gauge").set(value, {**self._tags, **tags})

    def numbers(self, values: Mapping[str, float]) -> None:
        """Export metrics by name: gauges, and the totals of counters."""
        for name, value in values.items():
            (self.total if BY_NAME[name].kind == "counter" else self.gauge)(name, value)

    def observe(self, name: str, values: Iterable[float], **tags: str) -> None:
        """Values of a histogram."""
        histogram, all_tags = self._metric(name, "histogram"), {**self._tags, **tags}
        for value in values:
            histogram.observe(value, all_tags)

    def _metric(self, name: str, kind: Kind) -> Any:
        if name not in self._made:
            assert BY_NAME[name].kind == kind, f"{name} is a {BY_NAME[name].kind}"
            self._made[name] = self._make(BY_NAME[name])
        return self._made[name]


def export_for_ever(exporter: Exporter, numbers: Callable[[], Mapping[str, float]]) -> None:
    """Export what an actor of a node counts, every few seconds: the work of a thread."""
    while True:
        time.sleep(EXPORT_INTERVAL_S)
        try:
            exporter.numbers(numbers())
        except Exception:  # whatever Ray raises: metrics are not worth the actor
            warn(logger, "metrics-failed", trace=True)
