"""Every Python block of docs/SPARK.md runs, in order, in one namespace."""

import re
from pathlib import Path
from typing import Any

import pytest

import raylog
from tests.harness.paths import DOCS

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
