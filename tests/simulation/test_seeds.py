"""Whole clusters from the first seeds; ``./dev simulate`` runs as many as you like."""

import subprocess
import sys

from tests.harness.paths import ROOT

SEEDS = 20


def test_the_first_seeds_keep_every_promise() -> None:
    """In a process of its own, since the order of sets of strings is another in each process."""
    command = [sys.executable, "-m", "tests.simulation", "--seeds", str(SEEDS), "--trace"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-20_000:] + ended.stderr
    assert f"{SEEDS} seeds" in ended.stdout
