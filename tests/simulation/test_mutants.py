"""The planted errors fit the sources of today; ``./dev simulate --mutants`` looks for them all."""

import os
import subprocess
import sys

import pytest

from tests.harness.paths import ROOT
from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.planted import mutated

AN_EARLY_SEED = 70


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.what)
def test_the_error_can_be_planted(mutant: Mutant) -> None:
    path, source = mutated(mutant.module, (mutant.old, mutant.new), *mutant.also)
    compile(source, path, "exec")
    for module, old, new in mutant.beside:
        path, source = mutated(module, (old, new))
        compile(source, path, "exec")


def test_what_is_not_there_once_is_no_place_for_an_error() -> None:
    with pytest.raises(ValueError, match="0 times"):
        mutated(MUTANTS[0].module, ("nothing of the kind", ""))


@pytest.mark.parametrize(
    "index", [index for index, mutant in enumerate(MUTANTS) if mutant.seed < AN_EARLY_SEED]
)
def test_the_simulation_finds_what_is_planted(index: int) -> None:
    """Those that an early seed finds: if not its own seed any more, one of the others."""
    seed = str(MUTANTS[index].seed)
    command = [sys.executable, "-m", "tests.simulation.hunt", str(index), seed]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    ended = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment
    )
    assert ended.returncode == 0, MUTANTS[index].what + ended.stdout + ended.stderr
    assert ended.stdout.startswith("seed ")
