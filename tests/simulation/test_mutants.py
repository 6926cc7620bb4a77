"""The planted errors fit the sources of today; ``./dev simulate --mutants`` looks for them all."""

import subprocess
import sys

import pytest

from tests.harness.paths import ROOT
from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.planted import mutated


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.what)
def test_the_error_can_be_planted(mutant: Mutant) -> None:
    path, source = mutated(mutant.module, mutant.old, mutant.new)
    compile(source, path, "exec")


def test_what_is_not_there_once_is_no_place_for_an_error() -> None:
    with pytest.raises(ValueError, match="0 times"):
        mutated(MUTANTS[0].module, "nothing of the kind", "")


def test_the_simulation_finds_a_planted_error() -> None:
    what = "an epoch is obeyed that no log dir has"
    index = next(index for index, mutant in enumerate(MUTANTS) if mutant.what == what)
    command = [sys.executable, "-m", "tests.simulation.hunt", str(index)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.startswith("seed ")
