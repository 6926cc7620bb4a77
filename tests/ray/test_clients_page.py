"""The Python of docs/CLIENTS.md is run as it stands, and its dump is what the command prints."""

import re
from pathlib import Path
from typing import Any

import pytest

import raylog
from tests.harness.paths import ROOT
from tests.harness.shell import run_here

PAGE = (ROOT / "docs" / "CLIENTS.md").read_text()


def test_the_pages_python_runs(
    local_ray: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a block writes a file
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) > 4
    names: dict[str, Any] = {}
    with raylog.start(["raylog-data"]) as broker:
        broker.create_topic("flights", partitions=1)
        for block in blocks:
            exec(compile(block, "CLIENTS.md", "exec"), names)
        said = run_here("log", "dump", "--files", "raylog-data/batches-0/00000000000000000000.log")
        shown = re.findall(r"^ +(baseOffset.*count: \d+)$", PAGE, re.MULTILINE)
        assert len(shown) == 4
        assert re.findall(r"baseOffset.*?count: \d+", said.stdout) == shown
