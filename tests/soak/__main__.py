"""``./dev soak [--minutes 20] [--seed N] [--short]``: run a broker under load, kill its
processes and nodes at random, and check all records.

The exit code is 1 if the checker finds a problem. Then the folder of the run stays, with the
history, all logs and the disks. ``--keep`` always keeps it. ``--check FOLDER`` checks the history
of an earlier run.
"""

import argparse
import os
import random
import shutil
import sys
import time
import traceback
from pathlib import Path

from tests.soak.disks import OWN_MOUNTS, begin_with_own_mounts
from tests.soak.report import report
from tests.soak.schedule import LONGEST_PAUSE_S, digest, schedule

OUTPUT = Path("soak-output")
# All kinds of faults but the loss of the head come within these minutes of this seed.
SHORT_MINUTES, SHORT_SEED = 0.85, 81321
SHORT_PAUSE_S = 5.0
DEFAULT_MINUTES, DEFAULT_RATE = 20.0, 2000.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev soak", description=__doc__)
    parser.add_argument(
        "--minutes",
        type=float,
        default=DEFAULT_MINUTES,
        help="minutes of faults; start and check take more time",
    )
    parser.add_argument(
        "--seed", type=int, help="seed of the faults and the load; default: a random one"
    )
    parser.add_argument(
        "--short",
        action="store_true",
        help=f"{SHORT_MINUTES:g} minutes with seed {SHORT_SEED} and pauses of at most "
        f"{SHORT_PAUSE_S:g} seconds (a raylet: twice that), as CI runs it",
    )
    parser.add_argument(
        "--rate", type=float, default=DEFAULT_RATE, help="approximate number of records per second"
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep the folder even if no problem was found"
    )
    parser.add_argument(
        "--check", type=Path, metavar="FOLDER", help="check the history of an earlier run"
    )
    arguments = parser.parse_args()
    if arguments.check:
        return report(arguments.check, None)
    begin_with_own_mounts(sys.argv[1:])
    minutes = SHORT_MINUTES if arguments.short else arguments.minutes
    seed = arguments.seed
    if seed is None:
        seed = SHORT_SEED if arguments.short else random.SystemRandom().randrange(10**6)
    longest_pause_s = SHORT_PAUSE_S if arguments.short else LONGEST_PAUSE_S
    planned = schedule(seed, minutes * 60, longest_pause_s=longest_pause_s)
    folder = (OUTPUT / time.strftime(f"%Y%m%d-%H%M%S-seed-{seed}")).absolute()
    folder.mkdir(parents=True)
    print(f"seed {seed}: {len(planned)} faults in {minutes:g} minutes, schedule {digest(planned)}")
    print(f"history and logs: {folder}", flush=True)
    if OWN_MOUNTS not in os.environ:
        print(
            "no disk is filled: this user may not mount a file system (see `unshare`)", flush=True
        )
    from tests.soak.run import run

    outcome = run(folder, seed, planned, arguments.rate)
    code = report(folder, outcome)
    if not code and not arguments.keep:
        shutil.rmtree(folder)
    return code


if __name__ == "__main__":
    try:
        status = main()
    except BaseException:  # Ctrl-C too
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # Some thread may wait for a broker that is gone, for as long as its patience lasts.
    os._exit(status)
