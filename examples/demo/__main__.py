"""``python -m examples.demo``: command line, environment, output folder; ``play.py`` does the
rest."""

import argparse
import fcntl
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# The folder that a run makes and the next one deletes: log dirs, logs, Spark's checkpoint.
DATA = "raylog-demo-data"
# With "0", Ray binds to 127.0.0.1 on every system, not only on those of the name.
LOOPBACK_VARIABLE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 if every check held, 1 if one did not or something broke, 130 after Ctrl-C."""
    wanted = arguments(argv)
    prepare_environment()
    # Only now: what follows imports Ray, whose processes get this environment.
    from examples.demo.play import Wanted, play
    from examples.demo.quiet import quiet

    if not wanted.no_spark and (why := why_no_spark()):
        print(f"{why}\nor run the demo without Spark: ./dev demo --no-spark", file=sys.stderr)
        return 1
    asked = Wanted(wanted.quick, with_spark=not wanted.no_spark, node_count=wanted.nodes)
    output = wanted.output.absolute()
    try:
        with alone_in(output):
            prepare_output(output)
            with quiet(output / DATA / "logs" / "console.log") as screen:
                return play(screen, output, output / DATA, asked)
    except BlockingIOError:
        print(
            f"another demo writes to {output}: wait for its end, or give this one --output DIR",
            file=sys.stderr,
        )
        return 1


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev demo", description="Run raylog end to end on real data, and check every result."
    )
    parser.add_argument(
        "--quick", action="store_true", help="use the 29,425 flights of July, not the whole year"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("demo-output"),
        metavar="DIR",
        help="folder for the report, the picture and the data; default: %(default)s",
    )
    parser.add_argument(
        "--no-spark", action="store_true", help="skip acts 4 and 5, which need Java"
    )
    parser.add_argument(
        "--nodes",
        type=int,
        choices=(1, 2),
        default=1,
        help="2: two Ray nodes on this machine, one of which is killed; default: %(default)s",
    )
    return parser.parse_args(argv)


def prepare_environment() -> None:
    """Ray's workers must find the demo's modules; and the demo starts a Ray of its own, whatever
    runs. Its servers listen to this machine alone."""
    paths = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    os.environ.pop("RAY_ADDRESS", None)
    os.environ[LOOPBACK_VARIABLE] = "0"
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def why_no_spark() -> str | None:
    """What Spark lacks here, before two minutes are spent on finding out."""
    from raylog.cluster.spark.session import require_spark
    from raylog.errors import RaylogError

    try:
        require_spark()
    except RaylogError as error:
        return str(error)
    return None


@contextmanager
def alone_in(output: Path) -> Iterator[None]:
    """The output folder, locked. Raises BlockingIOError while another demo has it.

    The lock is the folder's own, and ends with the process.
    """
    output.mkdir(parents=True, exist_ok=True)
    folder = os.open(output, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(folder)


def prepare_output(output: Path) -> None:
    """Remove the data of an earlier run; nothing else in the folder is touched."""
    shutil.rmtree(output / DATA, ignore_errors=True)
    (output / DATA / "logs").mkdir(parents=True)


if __name__ == "__main__":
    sys.exit(main())
