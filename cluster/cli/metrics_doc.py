"""Prints docs/METRICS.md from the list of ``raylog.actors.metrics``.

Run it as ``python -m raylog.cluster.cli.metrics_doc``.
"""

from raylog.actors.metrics import BOUNDARIES, METRICS, OF_BROKER, Metric

_HEAD = """# Metrics

raylog's actors report through Ray's metrics: Ray collects them on every node, and Prometheus reads
them there, together with Ray's own metrics. [OPERATIONS.md](OPERATIONS.md#monitoring) explains how
to set this up, and how to load the dashboard,
[configs/grafana/raylog.json](../configs/grafana/raylog.json), and the alert rules,
[configs/prometheus/raylog_alerts.yaml](../configs/prometheus/raylog_alerts.yaml). This page is
generated:
`python -m raylog.cluster.cli.metrics_doc > docs/METRICS.md`.

The names here are those that Prometheus sees: Ray puts `ray_` before each name and `_total` after
a counter's name. A histogram has `_bucket`, `_sum` and `_count`. Ray adds the tags `NodeAddress`,
`SessionName` and `WorkerId` to those listed here.

"""
# Groups of the metrics that have the tag "node". All others belong to the broker, or partitions.
_GROUPS = (
    (
        "Nodes and disks",
        "From each node's LogManager.",
        ("raylog_partitions", "raylog_log_dir", "raylog_node_socket"),
    ),
    ("Compaction", "From each node's CompactionActor.", ("raylog_compaction_",)),
    (
        "Retention",
        (
            "From each node's RetentionActor. For compacted logs, the counters come from its "
            "CompactionActor."
        ),
        ("raylog_retention_",),
    ),
)

_LAG = """
How far a group is behind, in offsets, is the difference of two metrics, as the dashboard shows it:

```
max by (SessionName, topic, partition) (ray_raylog_log_end_offset)
- on (SessionName, topic, partition) group_right
max by (SessionName, topic, partition, group) (ray_raylog_group_committed_offset)
```
"""


def page() -> str:
    """The whole page."""
    of_nodes = [metric for metric in METRICS if "node" in metric.tags]
    of_brokers = [metric for metric in METRICS if metric.tags == OF_BROKER]
    of_groups = [metric for metric in METRICS if "group" in metric.tags]
    others = (*of_nodes, *of_brokers, *of_groups)
    of_partitions = [metric for metric in METRICS if metric not in others]
    parts = [
        _section("Partitions", "From each partition's LogActor.", of_partitions),
        _section(
            "Groups", "From the LogActor that coordinates the group. Lag: see below.", of_groups
        ),
        _section("The broker", "From its Controller.", of_brokers),
    ]
    for title, whose, prefixes in _GROUPS:
        parts.append(
            _section(
                title, whose, [metric for metric in of_nodes if metric.name.startswith(prefixes)]
            )
        )
    limits = ", ".join(f"{limit:g}" for limit in BOUNDARIES)
    return (
        _HEAD
        + "\n".join(parts)
        + _LAG
        + f"\nThe histograms have these bucket bounds, in seconds: {limits}.\n"
    )


def _section(title: str, whose: str, metrics: list[Metric]) -> str:
    rows = [
        f"| `{metric.exported_name}` | {metric.kind} | {metric.unit} "
        f"| {', '.join(metric.tags)} | {metric.doc} |"
        for metric in metrics
    ]
    head = "| name | kind | unit | tags | meaning |\n| --- | --- | --- | --- | --- |\n"
    return f"## {title}\n\n{whose}\n\n{head}" + "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(page(), end="")
