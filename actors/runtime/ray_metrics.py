"""Ray's own metric for each line of ``actors/metrics.py``."""

from typing import Any

from ray.util import metrics

from raylog.actors.metrics import BOUNDARIES, Metric


def ray_metric(metric: Metric) -> Any:
    """Ray's counter, gauge or histogram. The agent of the node hands its numbers to Prometheus."""
    if metric.kind == "histogram":
        return metrics.Histogram(metric.name, metric.doc, BOUNDARIES, metric.tags)
    kind = metrics.Counter if metric.kind == "counter" else metrics.Gauge
    return kind(metric.name, metric.doc, metric.tags)
