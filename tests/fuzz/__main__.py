"""``./dev fuzz [NAMES] [--seconds N]``: mutated bytes for everything that reads bytes.

Atheris mutates files that Kafka wrote (``seeds.py``), and keeps inputs that reach new lines of
raylog's Python. It cannot see into the compiled kernel, which is built without its instrumentation.
So it follows the lines of the pure-Python twin, which gets the same inputs; the two must agree.
Each target (``targets.py``) runs in a process of its own, for its share of the seconds. A finding
is printed as hex, with the command that repeats it; it becomes a unit test.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

DEFAULT_SECONDS = 20
MAX_INPUT_BYTES = 4096
MAX_INPUT_SECONDS = 20  # longer is an endless loop
MAX_MEMORY_MB = 2048


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev fuzz", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="targets; default: all")
    parser.add_argument("--seconds", type=float, default=DEFAULT_SECONDS, help="in all")
    parser.add_argument(
        "--replay", metavar="HEX", help="run one input through one target, without atheris"
    )
    parser.add_argument(
        "--corpus",
        type=Path,
        help="folder where interesting inputs are kept; the run begins with them",
    )
    arguments = parser.parse_args()
    from tests.fuzz.targets import KERNELS, TARGETS, limit_bombs

    unknown = set(arguments.names) - set(TARGETS)
    if unknown:
        parser.error(f"no target {sorted(unknown)[0]!r}: there are {', '.join(TARGETS)}")
    names = arguments.names or list(TARGETS)
    if arguments.replay is not None:
        limit_bombs()
        for name in names:
            TARGETS[name](bytes.fromhex(arguments.replay))
        return 0
    if find_spec("atheris") is None:
        print(
            "atheris is missing: it is published for Linux on x86_64 alone; there run ./dev setup"
        )
        return 2 if platform.machine() == "x86_64" else 0
    print(f"kernels: {', '.join(ops.KERNEL for ops in KERNELS)}")
    seconds = max(int(arguments.seconds / len(names)), 1)
    finds = sum(not fuzz(name, seconds, arguments.corpus) for name in names)
    print(f"{finds} finds" if finds else "no finds")
    return min(finds, 1)


def fuzz(name: str, seconds: int, corpus: Path | None) -> bool:
    """Run one target; whether nothing was found."""
    with tempfile.TemporaryDirectory(prefix="raylog-fuzz-") as folder:
        kept = corpus / name if corpus else Path(folder) / "corpus"
        kept.mkdir(parents=True, exist_ok=True)
        found = Path(folder) / "find-"
        command = [
            *(sys.executable, "-m", "tests.fuzz.one", name, str(kept), str(seconds), str(found)),
            *(str(limit) for limit in (MAX_INPUT_BYTES, MAX_INPUT_SECONDS, MAX_MEMORY_MB)),
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, env=os.environ | {"PYTHONHASHSEED": "0"}
        )
        lines = [line for line in done.stderr.splitlines() if "DONE" in line or "Done" in line]
        print(
            f"{name:12}", lines[-1].strip() if lines else f"exit code {done.returncode}", flush=True
        )
        inputs = sorted(Path(folder).glob("find-*"))
        if done.returncode == 0 and not inputs:
            return True
        said = [line for line in done.stderr.splitlines() if line.startswith(("==", "SUMMARY"))]
        print(done.stdout[-3000:], *said, sep="\n")
        for path in inputs:
            content = path.read_bytes().hex() or '""'
            print(f"\n{path.name}: repeat it with\n    ./dev fuzz {name} --replay {content}\n")
        return False


if __name__ == "__main__":
    sys.exit(main())
