"""``./dev mutants [FILES...]``: plant small errors in the storage, and see whether tests notice.

The mutants are drawn by a seed, which is printed. Each is planted in a throw-away copy of the
project; the tests that run its lines follow, fastest first. Those that the fast tests let live are
suspects: the slow ones follow, and those in processes and threads of their own. The results go to
``mutants-output/``, a line each; the same command goes on where it was interrupted.
``tests/mutants/equivalents.txt`` has the mutants that nobody can see. The first run makes a map of
tests and lines, which takes some minutes; it is made again after a change. How to read the report:
docs/TESTING.md.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.harness.paths import ROOT
from tests.mutants.report import KILLED, Result, read_equivalents, summary, with_equivalents
from tests.mutants.run import all_mutants, draw, map_tests, minutes, run_all
from tests.mutants.tree import copy_tree

DEFAULT = (
    "log",
    "log_end",
    "log_offsets",
    "flushing",
    "snapshots",
    "doomed",
    "truncation",
    "swap",
    "segment",
    "loader",
    "cutting",
    "epoch_recovery",
    "index_recovery",
    "producer_recovery",
    "files",
    "rolling",
    "recovery",
    "readable",
    "appending",
    "writer",
)
EQUIVALENTS = Path(__file__).with_name("equivalents.txt")
OUTPUT = ROOT / "mutants-output"


def default_files() -> list[str]:
    files = [ROOT / "storage" / f"{name}.py" for name in DEFAULT]
    files += sorted((ROOT / "storage" / "cleaner").glob("*.py"))
    return [str(file.relative_to(ROOT)) for file in files if file.exists()]


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev mutants", description=__doc__)
    parser.add_argument("files", nargs="*", metavar="FILE", help="default: the storage's core")
    parser.add_argument("--seed", type=int, help="default: a random one")
    parser.add_argument("--count", type=int, default=200, help="how many to plant; 0: all")
    parser.add_argument("--jobs", type=int, default=1, help="how many at once, each with a core")
    parser.add_argument(
        "--again", action="store_true", help="run those that lived again, after a test was added"
    )
    parser.add_argument("--list", action="store_true", help="print the mutants and plant none")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.randrange(1, 1 << 31)
    files = arguments.files or default_files()
    with tempfile.TemporaryDirectory(prefix="raylog-mutants-") as folder:
        return plant(arguments, seed, files, copy_tree(Path(folder)))


def plant(arguments: argparse.Namespace, seed: int, files: list[str], tree: Path) -> int:
    """Draw, plant and report; 1 if one lives. ``tree``: a copy of the project."""
    every = all_mutants(tree, files)
    drawn = draw(every, seed, arguments.count)
    print(f"seed {seed}: {len(drawn)} of {len(every)} mutants of {len(files)} files", flush=True)
    if arguments.list:
        for planted in drawn:
            print(f"\n{planted.key}")
        return 0
    OUTPUT.mkdir(exist_ok=True)
    target = OUTPUT / f"seed-{seed}.jsonl"
    drawn_keys = {planted.key for planted in drawn}
    done = {each.key: each for each in _read(target) if each.key in drawn_keys}
    if arguments.again:
        done = {key: each for key, each in done.items() if each.outcome in KILLED}
    todo = [planted for planted in drawn if planted.key not in done]
    began = time.monotonic()
    known = map_tests(sorted({*default_files(), *files}), tree, OUTPUT)
    print(f"map of {len(known)} tests: {minutes(time.monotonic() - began)}", flush=True)
    reasons = read_equivalents(EQUIVALENTS.read_text())
    began = time.monotonic()
    with target.open("a") as file:
        for result in run_all(todo, known, tree, arguments.jobs, reasons):
            if result.outcome != "suspect":
                done[result.key] = result
                print(json.dumps(result._asdict()), file=file, flush=True)
            print_progress(result, f"{len(done)}/{len(drawn)}")
    results = with_equivalents(done.values(), reasons)
    print(f"\n{minutes(time.monotonic() - began)}, seed {seed}")
    print("\n".join(summary(sorted(results, key=lambda result: result.place))))
    return int(any(result.outcome in ("living", "unreached") for result in results))


def print_progress(result: Result, number: str) -> None:
    print(f"{number} {result.outcome:9} {result.seconds:5.1f} s {result.place}")
    if result.outcome not in KILLED:
        print(result.key)
    sys.stdout.flush()


def _read(path: Path) -> list[Result]:
    if not path.exists():
        return []
    return [Result(**json.loads(line)) for line in path.read_text().splitlines()]


if __name__ == "__main__":
    sys.exit(main())
