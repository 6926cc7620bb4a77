"""Run the simulation with each planted error: ``./dev simulate --mutants``.

Each error has a process of its own, ``python -m tests.simulation.hunt INDEX``, which plants it
before it imports the machines, and looks for the first seed that fails. With ``SEED`` behind it,
it looks at that seed, and then at the first FEW_SEEDS: each change of a machine changes what
happens in each seed, so that another one may be the first that finds the error.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.simulation.mutants import MOST_SEEDS, MUTANTS, Mutant
from tests.simulation.planted import plant

AT_ONCE = 2
FEW_SEEDS = 100
CAUGHT, BLIND = 0, 1


def hunt_all() -> int:
    """Print the table; returns 1 if one was not found, else 0."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = pool.map(_hunt_in_process, range(len(MUTANTS)))
        is_all = True
        for mutant, (code, said) in zip(MUTANTS, found, strict=True):
            is_all = is_all and code == CAUGHT
            print(f"{mutant.number:3}  {mutant.what:62}  {said}", flush=True)
    return CAUGHT if is_all else BLIND


def _hunt_in_process(index: int) -> tuple[int, str]:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.simulation.hunt", str(index)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    said = ended.stdout.strip() or ended.stderr.strip()[-2_000:]
    return ended.returncode, said


def hunt(mutant: Mutant, seeds: Sequence[int]) -> int:
    """Run these seeds until one fails; returns CAUGHT if one did."""
    plant(mutant.module, (mutant.old, mutant.new), *mutant.also)
    for module, old, new in mutant.beside:
        plant(module, (old, new))
    from tests.simulation.world import World

    for seed in seeds:
        try:
            World(seed).run()
        except Exception as error:
            why = str(error) or "an assertion of a machine"
            print(f"seed {seed:3}: {why[:120]}")
            return CAUGHT
    print(f"not found in {len(seeds)} seeds")
    return BLIND


if __name__ == "__main__":
    index, *known = map(int, sys.argv[1:])
    seeds = [*known, *range(FEW_SEEDS)] if known else range(MOST_SEEDS)
    sys.exit(hunt(MUTANTS[index], seeds))
