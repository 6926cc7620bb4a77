"""docs/METRICS.md and the Grafana dashboard speak of the metrics that there are."""

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

from raylog.actors.metrics import METRICS, Metric
from raylog.cluster.cli.metrics_doc import page
from tests.harness.paths import ROOT

DASHBOARD: dict[str, Any] = json.loads((ROOT / "configs" / "grafana" / "raylog.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
OF_RAY = {"SessionName", "NodeAddress", "WorkerId", "le"}


def exported() -> dict[str, Metric]:
    """What Prometheus has: a histogram is three."""
    names = {metric.exported_name: metric for metric in METRICS if metric.kind != "histogram"}
    for metric in METRICS:
        if metric.kind == "histogram":
            names |= {metric.exported_name + end: metric for end in ("_bucket", "_sum", "_count")}
    return names


def expressions() -> Iterator[str]:
    for panel in PANELS:
        yield from (target["expr"] for target in panel["targets"])
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]


def names_in(expression: str) -> set[str]:
    return set(re.findall(r"\bray_raylog_\w+", expression))


def labels_in(expression: str) -> set[str]:
    grouped = re.findall(r"\bby \(([^)]*)\)", expression)
    selected = re.findall(r"(\w+)\s*[=!]~?\s*\"", expression)
    return {label.strip() for part in grouped for label in part.split(",")} | set(selected)


def test_the_page_is_that_of_the_list() -> None:
    assert (ROOT / "docs" / "METRICS.md").read_text() == page()
    for metric in METRICS:
        assert page().count(f"| `{metric.exported_name}` |") == 1


def test_every_metric_of_the_dashboard_is_in_the_list_and_has_the_labels_that_are_asked_for() -> (
    None
):
    known = exported()
    for expression in expressions():
        names = names_in(expression)
        assert names, expression
        assert names <= set(known), expression
        tags = {tag for name in names for tag in known[name].tags}
        assert labels_in(expression) <= {*tags, *OF_RAY}, expression


def test_counters_are_shown_as_rates_and_nothing_else_is() -> None:
    known = exported()
    for expression in expressions():
        for name in names_in(expression):
            rises = known[name].kind in ("counter", "histogram")
            assert (f"rate({name}" in expression) == rises, expression


def test_every_metric_is_on_the_dashboard() -> None:
    shown = {exported()[name].name for expression in expressions() for name in names_in(expression)}
    assert {metric.name for metric in METRICS} - shown == set()


def test_grafana_finds_what_it_needs() -> None:
    assert {"uid", "title", "schemaVersion", "panels", "templating", "time"} <= set(DASHBOARD)
    assert "id" not in DASHBOARD, "an id belongs to one Grafana"
    (source,) = (one for one in DASHBOARD["templating"]["list"] if one["type"] == "datasource")
    assert (source["name"], source["query"]) == ("datasource", "prometheus")
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in PANELS:
        assert panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        references = [target["refId"] for target in panel["targets"]]
        assert references
        assert len(set(references)) == len(references)


def test_variables_that_expressions_use_are_there() -> None:
    defined = {variable["name"] for variable in DASHBOARD["templating"]["list"]} | {
        "__rate_interval"
    }
    for expression in expressions():
        assert set(re.findall(r"\$(\w+)", expression)) <= defined, expression


def test_panels_do_not_overlap() -> None:
    boxes = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    assert all(box["x"] + box["w"] <= 24 for box in boxes)
    for one, other in itertools.combinations(boxes, 2):
        apart_x = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        apart_y = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert apart_x or apart_y, (one, other)
