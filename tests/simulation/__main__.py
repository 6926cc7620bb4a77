"""Run simulated clusters: ``python -m tests.simulation --seeds 100`` or ``--minutes 5``."""

import argparse
import os
import sys
import time
import traceback
from collections import Counter

from tests.simulation.hunt import hunt_all
from tests.simulation.world import World


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev simulate", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--seeds", type=int, default=None, help="how many (default 200)")
    parser.add_argument("--minutes", type=float, default=None, help="until so many are over")
    parser.add_argument("--trace", action="store_true", help="print what happened at the end")
    parser.add_argument("--mutants", action="store_true", help="find the planted errors instead")
    given = parser.parse_args()
    if given.mutants:
        return hunt_all()
    count = given.seeds if given.seeds or given.minutes else 200
    began_s, seed, events, failed = time.monotonic(), given.seed, 0, []
    situations: Counter[str] = Counter()
    while count is None or seed < given.seed + count:
        if given.minutes and time.monotonic() - began_s > given.minutes * 60:
            break
        world = World(seed)
        try:
            world.run()
        except Exception as error:
            failed.append(seed)
            print(f"seed {seed}: {type(error).__name__}: {error}")
            if given.trace:
                print(*world.clockwork.trace, sep="\n")
                traceback.print_exc()
        events += world.clockwork.events
        situations += world.truth.situations
        seed += 1
    seconds = time.monotonic() - began_s
    for name, times in sorted(situations.items()):
        print(f"{times:8}  {name}")
    print(f"{seed - given.seed} seeds, {events} events, {events / seconds:,.0f} a second")
    if failed:
        print(f"failed: {' '.join(map(str, failed))}; repeat one with --seed N --seeds 1 --trace")
    return 1 if failed else 0


def fix_hashes() -> None:
    """The order of sets of strings is another in each process, unless the seed of hashes is given:
    then a seed gives the same run each time."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])


if __name__ == "__main__":
    fix_hashes()
    sys.exit(main())
