"""Every Python block of docs/SPARK.md runs, in order, in one namespace; and Spark's block of the
README."""

import re
from pathlib import Path
from typing import Any

import pytest

import raylog
from tests.harness.paths import DOCS, ROOT

pytestmark = pytest.mark.timeout(300)

SPARK_PAGE = DOCS / "SPARK.md"


def test_the_examples_run(spark: Any, broker: Any, topics: Any, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", SPARK_PAGE.read_text(), re.DOTALL)
    # The fixtures have started, and will stop, what the first and last block do.
    assert "raylog.start(" in blocks[0]
    assert "broker.stop()" in blocks[-1]
    broker.create_topic("flights", 2)
    for partition in (0, 1):
        topics.append("flights", partition, 10)
    names = {
        "raylog": raylog,
        "spark": spark,
        "broker": broker,
        "checkpoint": str(tmp_path / "checkpoint"),
    }
    for block in blocks[1:-1]:
        exec(compile(block, str(SPARK_PAGE), "exec"), names)
    assert spark.table("counts").count() > 0


def test_the_readmes_pipeline_runs(spark: Any, broker: Any, topics: Any, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (block,) = [block for block in blocks if "raylog.spark.session(" in block]
    # The fixtures have started, and will stop, what these lines do.
    ours = ("raylog.spark.session(", "raylog.spark.stop(", "broker.stop()")
    lines = [line for line in block.splitlines() if not any(each in line for each in ours)]
    text = "\n".join(lines).replace("/tmp/checkpoint", str(tmp_path / "checkpoint"))
    text = text.replace('"flights"', f'"{topics.create()}"')
    exec(compile(text, "README.md", "exec"), {"raylog": raylog, "spark": spark, "broker": broker})
    assert "shouted" in broker.list_topics()
    broker.delete_topic("shouted")
