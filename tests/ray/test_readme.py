"""What the README tells a person to paste runs as it stands (Spark's block: tests/spark)."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import ray

from tests.harness.paths import ROOT

README = ROOT / "README.md"
OTHER_DRIVER = "raylog.connect()"
TIMEOUT_S = 120

pytestmark = pytest.mark.timeout(240)


def python_blocks() -> list[str]:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    return [block for block in blocks if "spark" not in block]


def shell_lines() -> list[str]:
    """The commands of the README's block of the command line."""
    lines = [line.strip() for line in README.read_text().splitlines() if line.startswith("    ")]
    first = next(n for n, line in enumerate(lines) if line.startswith("raylog start"))
    commands = []
    for line in lines[first:]:
        if not re.search(r"\braylog [a-z]", line):
            break
        commands.append(line)
    return commands


def test_the_readmes_python_runs(
    local_ray: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    here = [block for block in python_blocks() if OTHER_DRIVER not in block]
    [elsewhere] = [block for block in python_blocks() if OTHER_DRIVER in block]
    try:
        for block in here:
            exec(compile(block, str(README), "exec"), names)
        address = ray.get_runtime_context().gcs_address
        in_another_process(elsewhere + "\nprint(table.column('value').to_pylist())", address)
    finally:
        if "broker" in names:
            names["broker"].stop()


def in_another_process(code: str, address: str) -> None:
    environment = {**os.environ, "RAY_ADDRESS": address, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    assert "b'value'" in done.stdout


def test_the_readmes_commands_run(local_ray: None, tmp_path: Path) -> None:
    """On the Ray that runs, where ``raylog start`` returns."""
    tools = Path(sys.executable).parent
    environment = {
        **os.environ,
        "RAY_ADDRESS": ray.get_runtime_context().gcs_address,
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
    }

    def run(command: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env=environment,
            cwd=tmp_path,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    commands = shell_lines()
    assert len(commands) == 6
    try:
        printed = {command: run(command) for command in commands}
    finally:
        run("raylog stop")
    [consumed] = [out for command, out in printed.items() if command.startswith("raylog consume")]
    assert consumed == "hello\n"


def test_the_quick_start_runs() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "quickstart.py")],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    assert "straight to the actor" in done.stdout
