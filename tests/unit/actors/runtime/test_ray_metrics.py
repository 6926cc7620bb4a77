"""Each kind of metric becomes Ray's class of it; the classes are fakes."""

from types import SimpleNamespace
from typing import Any

import pytest

from raylog.actors.metrics import BOUNDARIES, METRICS, Metric
from raylog.actors.runtime import ray_metrics
from raylog.actors.runtime.ray_metrics import ray_metric


@pytest.fixture(autouse=True)
def rays_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they are made with is their value."""

    def of(kind: str) -> Any:
        return lambda *arguments: (kind, *arguments)

    fakes = SimpleNamespace(Counter=of("counter"), Gauge=of("gauge"), Histogram=of("histogram"))
    monkeypatch.setattr(ray_metrics, "metrics", fakes)


@pytest.mark.parametrize("kind", ["counter", "gauge"])
def test_a_counter_and_a_gauge_have_their_text_and_tags(kind: Any) -> None:
    metric = Metric("raylog_x", kind, "bytes", ("topic",), "What it counts.")
    assert ray_metric(metric) == (kind, "raylog_x", "What it counts.", ("topic",))


def test_a_histogram_has_boundaries_too() -> None:
    metric = Metric("raylog_x_seconds", "histogram", "s", ("topic",), "How long it takes.")
    assert ray_metric(metric) == (
        "histogram",
        "raylog_x_seconds",
        "How long it takes.",
        BOUNDARIES,
        ("topic",),
    )


def test_every_metric_of_the_list_becomes_its_kind() -> None:
    assert {metric.kind for metric in METRICS} == {"counter", "gauge", "histogram"}
    assert [ray_metric(metric)[0] for metric in METRICS] == [metric.kind for metric in METRICS]
