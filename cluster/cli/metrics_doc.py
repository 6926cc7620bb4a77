"""Prints docs/METRICS.md from the list of ``raylog.actors.metrics``.

Run it as ``python -m raylog.cluster.cli.metrics_doc``.
"""

from raylog.actors.metrics import BOUNDARIES, METRICS, Metric

_HEAD = """# Metrics

raylog's actors measure through Ray's own metrics: Ray gathers them on every node, and Prometheus
reads them there, beside Ray's own. [OPERATIONS.md](OPERATIONS.md#monitoring) says how, and how to
load the dashboard, [configs/grafana/raylog.json](../configs/grafana/raylog.json). This page is
generated: `python -m raylog.cluster.cli.metrics_doc > docs/METRICS.md`.

Names are as Prometheus sees them: Ray puts `ray_` before each name and `_total` behind a counter's.
A histogram has `_bucket`, `_sum` and `_count`. Ray adds tags of its own to those listed here
(`NodeAddress`, `SessionName`, `WorkerId`).

"""
# Of what carries the name of a node; all else is a partition's.
_GROUPS = (
    ("Nodes and disks", "From each node's LogManager.", ("raylog_partitions", "raylog_log_dir")),
    ("Compaction", "From each node's CompactionActor.", ("raylog_compaction_",)),
    (
        "Retention",
        (
            "From each node's RetentionActor; the counters from its CompactionActor, too, for "
            "compacted logs."
        ),
        ("raylog_retention_",),
    ),
)


def page() -> str:
    """The whole page."""
    of_nodes = [metric for metric in METRICS if "node" in metric.tags]
    of_partitions = [metric for metric in METRICS if metric not in of_nodes]
    parts = [_section("Partitions", "From each partition's LogActor.", of_partitions)]
    for title, whose, prefixes in _GROUPS:
        parts.append(
            _section(
                title, whose, [metric for metric in of_nodes if metric.name.startswith(prefixes)]
            )
        )
    limits = ", ".join(f"{limit:g}" for limit in BOUNDARIES)
    return _HEAD + "\n".join(parts) + f"\nHistograms have the bounds {limits} (seconds).\n"


def _section(title: str, whose: str, metrics: list[Metric]) -> str:
    rows = [
        f"| `{metric.exported_name}` | {metric.kind} | {metric.unit} "
        f"| {', '.join(metric.tags)} | {metric.doc} |"
        for metric in metrics
    ]
    head = "| name | kind | unit | tags | what |\n| --- | --- | --- | --- | --- |\n"
    return f"## {title}\n\n{whose}\n\n{head}" + "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(page(), end="")
