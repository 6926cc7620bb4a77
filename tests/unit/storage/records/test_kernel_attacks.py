"""No object and no number of a caller ends the process: each attack runs in one of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from raylog.storage.records import kernel

ATTACKS = Path(__file__).with_name("attacks.py")


def names() -> list[str]:
    lines = ATTACKS.read_text().splitlines()
    ends = "() -> None:"
    return [line[4 : -len(ends)] for line in lines if line.startswith("def ") and ends in line]


@pytest.mark.parametrize("attack", names())
def test_the_process_lives_and_the_answer_has_a_name(attack: str) -> None:
    pure = {"RAYLOG_PURE_PYTHON": "1"} if kernel.ops.KERNEL == "pure Python" else {}
    done = subprocess.run(
        [sys.executable, ATTACKS, attack], env=os.environ | pure, capture_output=True, text=True
    )
    assert done.returncode == 0, f"exit status {done.returncode}: {done.stderr[-3000:]}"
