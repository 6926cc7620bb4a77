"""The alert rules for Prometheus speak of metrics that there are, and fire when they should."""

import importlib.util
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from raylog.actors.metrics import METRICS, Metric
from raylog.cluster.health.log_dirs import FULL, NEARLY_FULL
from tests.harness.paths import ROOT
from tests.harness.promtool import RUN_TIMEOUT_S, NotHere, find_promtool

FOLDER = ROOT / "configs" / "prometheus"
RULES_FILE, TESTS_FILE = FOLDER / "raylog_alerts.yaml", FOLDER / "raylog_alerts_test.yaml"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(RULES_FILE.read_text())["groups"] for rule in group["rules"]
]
BY_ALERT = {rule["alert"]: rule for rule in RULES}
# Prometheus makes this one itself.
OF_PROMETHEUS = {"up"}
# Tags that Ray or Prometheus add.
ADDED = {"SessionName", "NodeAddress", "WorkerId", "le", "job", "ip"}


def exported() -> dict[str, Metric]:
    """What Prometheus has of raylog: a histogram is three."""
    names = {metric.exported_name: metric for metric in METRICS if metric.kind != "histogram"}
    for metric in METRICS:
        if metric.kind == "histogram":
            names |= {metric.exported_name + end: metric for end in ("_bucket", "_sum", "_count")}
    return names


def names_in(expression: str) -> set[str]:
    """The metrics that an expression reads: what is left without labels, functions and numbers."""
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", " ", expression)
    bare = re.sub(r"\b(by|on)\s*\([^)]*\)", " ", bare)
    words = re.findall(r"\b[a-zA-Z_]\w*\b(?!\s*\()", bare)
    return set(words) - {"and", "or", "unless", "sum", "max", "min", "count"}


def labels_in(expression: str) -> set[str]:
    grouped = re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", expression)
    selected = re.findall(r"(\w+)\s*[=!]~?\s*\"", expression)
    return {label.strip() for part in grouped for label in part.split(",")} - {""} | set(selected)


def gauges_of_ray() -> set[str]:
    """What each node's agent of the installed Ray exports, by its source."""
    spec = importlib.util.find_spec("ray")
    assert spec is not None
    assert spec.origin is not None
    agent = Path(spec.origin).parent / "dashboard" / "modules" / "reporter" / "reporter_agent.py"
    return {f"ray_{name}" for name in re.findall(r'"(\w+)": Gauge\(', agent.read_text())}


def anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


def fired() -> Iterator[str]:
    """The alerts of which a unit test says that they fire."""
    for case in yaml.safe_load(TESTS_FILE.read_text())["tests"]:
        for check in case["promql_expr_test"]:
            if not check["exp_samples"]:
                continue
            said = check["expr"] + "".join(sample["labels"] for sample in check["exp_samples"])
            yield from re.findall(r'alertname="(\w+)"', said)


@pytest.mark.parametrize("alert", BY_ALERT)
def test_an_alert_reads_metrics_that_there_are_by_labels_that_they_have(alert: str) -> None:
    expression, known = BY_ALERT[alert]["expr"], exported()
    names = names_in(expression)
    assert names
    assert names - set(known) - OF_PROMETHEUS <= gauges_of_ray()
    of_raylog = [known[name] for name in names & set(known)]
    tags = {tag for metric in of_raylog for tag in metric.tags}
    assert labels_in(expression) <= tags | ADDED


@pytest.mark.parametrize("alert", BY_ALERT)
def test_counters_and_histograms_are_read_as_rates(alert: str) -> None:
    expression, known = BY_ALERT[alert]["expr"], exported()
    for name in names_in(expression) & set(known):
        rises = known[name].kind in ("counter", "histogram")
        assert (f"rate({name}" in expression) == rises


@pytest.mark.parametrize("alert", BY_ALERT)
def test_an_alert_says_what_is_wrong_what_to_do_and_where_to_read_more(alert: str) -> None:
    rule = BY_ALERT[alert]
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert set(rule["annotations"]) == {"summary", "do", "runbook"}
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert anchor in anchors(ROOT / page)
    used = re.findall(r"\$labels\.(\w+)", str(rule["annotations"]))
    assert set(used) <= labels_in(rule["expr"]) | {"instance", "node", "log_dir"}


def test_no_alert_has_the_name_of_another() -> None:
    assert len(BY_ALERT) == len(RULES)


def test_each_alert_has_a_unit_test_in_which_it_fires() -> None:
    assert set(BY_ALERT) == set(fired())


def test_a_disk_is_full_where_health_says_so() -> None:
    assert BY_ALERT["RaylogDiskNearlyFull"]["expr"].endswith(f" < {NEARLY_FULL:g}")
    assert BY_ALERT["RaylogDiskFull"]["expr"].endswith(f" < {FULL:g}")


@pytest.fixture(scope="module")
def promtool() -> str:
    try:
        return find_promtool()
    except NotHere as error:
        pytest.skip(str(error))


def promtool_says(promtool: str, word: str, file: Path) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [promtool, word, "rules", str(file)],
        capture_output=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize("arguments", [("check", RULES_FILE), ("test", TESTS_FILE)])
def test_prometheus_takes_the_rules_and_their_unit_tests_pass(
    promtool: str, arguments: tuple[str, Path]
) -> None:
    done = promtool_says(promtool, *arguments)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()


@pytest.mark.timeout(600)
def test_the_unit_tests_notice_alerts_that_never_fire(promtool: str, tmp_path: Path) -> None:
    rules = [{**rule, "expr": "vector(0) > 1"} for rule in RULES]
    planted = {"groups": [{"name": "raylog", "rules": rules}]}
    (tmp_path / RULES_FILE.name).write_text(yaml.safe_dump(planted))
    (tmp_path / TESTS_FILE.name).write_text(TESTS_FILE.read_text())
    done = promtool_says(promtool, "test", tmp_path / TESTS_FILE.name)
    missed = set(re.findall(r"\b(Ray\w+)", (done.stdout + done.stderr).decode()))
    assert done.returncode == 1
    assert set(BY_ALERT) <= missed
