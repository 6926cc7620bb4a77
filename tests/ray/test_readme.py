"""The README's Python is run as it stands (Spark's part: tests/spark)."""

import re
from pathlib import Path
from typing import Any

from tests.harness.paths import ROOT

README = ROOT / "README.md"


def test_the_readmes_python_runs(local_ray: None, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    plain = [block for block in blocks if "spark" not in block]
    assert len(plain) == 3
    names: dict[str, Any] = {}
    try:
        for block in plain:
            exec(
                compile(block.replace("raylog-data", str(tmp_path / "log")), str(README), "exec"),
                names,
            )
        assert b"value" in names["table"].column("value").to_pylist()
    finally:
        if "broker" in names:
            names["broker"].stop()
