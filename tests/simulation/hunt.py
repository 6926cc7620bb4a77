"""Run the simulation with each planted error: ``./dev simulate --mutants``.

Each error has a process of its own, ``python -m tests.simulation.hunt NUMBER``, which plants it
before it imports the machines.
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from tests.simulation.mutants import MOST_SEEDS, MUTANTS, Mutant
from tests.simulation.planted import plant

AT_ONCE = 2
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


def hunt(mutant: Mutant) -> int:
    """Run seeds until one fails; returns CAUGHT if one did."""
    plant(mutant.module, mutant.old, mutant.new)
    from tests.simulation.world import World

    for seed in range(MOST_SEEDS):
        try:
            World(seed).run()
        except Exception as error:
            why = str(error) or "an assertion of a machine"
            print(f"seed {seed:3}: {why[:120]}")
            return CAUGHT
    print(f"not found in {MOST_SEEDS} seeds")
    return BLIND


if __name__ == "__main__":
    sys.exit(hunt(MUTANTS[int(sys.argv[1])]))
