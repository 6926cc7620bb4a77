"""Chooses the tests of each mutant, and has the workers run them."""

import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any, NamedTuple

from tests.mutants.operators import Mutant, mutants_of, with_keys
from tests.mutants.recording import FILES, MAP
from tests.mutants.report import KILLED, Result

# Which tests look at the storage.
SUITES = ("tests/unit/storage", "tests/unit/actors", "tests/faults")
# Run for every mutant that the others let live: they start processes, or trace threads, whose
# lines the map does not have.
LAST = ("tests/faults/test_syscalls.py", "tests/faults/test_interleavings.py")
LAST_SECONDS = 120.0
# The tests of one mutant take at most so long by the map, fastest first.
MOST_SECONDS = 60.0
# Of these, so many seconds come first, for all mutants: most are killed there.
FAST_SECONDS = 8.0
# A run that takes so much longer than the map says hangs: seconds of the processor against those of
# a clock, and without the tracer of the map.
SLOWER, GRACE_SECONDS = 2.0, 10.0
# Where a line outside of functions is changed, every test of its file may notice.
START_SECONDS = 3.0


class Known(NamedTuple):
    """What the map says of a test."""

    seconds: float
    lines: Mapping[str, frozenset[int]]


class Planted(NamedTuple):
    """A mutant with what is needed to run it."""

    key: str
    mutant: Mutant
    source: str  # of the file, with the error


def all_mutants(tree: Path, files: Iterable[str]) -> list[Planted]:
    planted = []
    for path in files:
        source = (tree / path).read_text()
        for key, mutant in with_keys(mutants_of(source, path), source):
            planted.append(Planted(key, mutant, mutant.apply(source)))
    return planted


def draw(every: Sequence[Planted], seed: int, count: int) -> list[Planted]:
    """So many of them, 0 for all, in an order by the seed.

    A change of the source changes the draw only where it adds and removes mutants.
    """

    def rank(planted: Planted) -> bytes:
        return hashlib.sha256(f"{seed} {planted.key}".encode()).digest()

    return sorted(every, key=rank)[: count or None]


def choose_tests(
    mutant: Mutant, known: Mapping[str, Known], most_seconds: float = MOST_SECONDS
) -> list[str]:
    """The tests that run its lines, fastest first, as many as the time allows."""
    wanted = frozenset(range(mutant.line, mutant.end_line + 1))
    touching = [
        (facts.seconds, test)
        for test, facts in known.items()
        if _touches(facts.lines.get(mutant.path, frozenset()), wanted, mutant)
        and not test.startswith(LAST)
    ]
    chosen, total = list[str](), 0.0
    for seconds, test in sorted(touching):
        total += seconds
        if total > most_seconds and chosen:
            break
        chosen.append(test)
    return chosen


def _touches(lines: frozenset[int], wanted: frozenset[int], mutant: Mutant) -> bool:
    if not mutant.function:
        return bool(lines)
    return not lines.isdisjoint(wanted)


# -- the map ---------------------------------------------------------------------------------------


def map_tests(files: Sequence[str], tree: Path, cache: Path) -> dict[str, Known]:
    """Which tests run which lines. Made again if a file of the project has changed."""
    target = cache / f"map-{_fingerprint(tree, files)}.json"
    if not target.exists():
        cache.mkdir(parents=True, exist_ok=True)
        partial = target.with_suffix(".tmp")
        environment = {FILES: " ".join(files), MAP: str(partial.absolute())}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.mutants.recording"]
        ignored = [f"--ignore={path}" for path in LAST]
        done = subprocess.run(
            [*command, *SUITES, *ignored, "-p", "no:cacheprovider", "-W", "ignore"],
            cwd=tree,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            text=True,
        )
        if not partial.exists():
            raise SystemExit(f"{done.stdout}\nthe tests cannot be run")
        if done.returncode:
            failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
            print("\n".join([*failed, "these fail without a mutant, and are left out"]))
        partial.rename(target)
    tests = json.loads(target.read_text())
    return {
        test: Known(
            facts["seconds"], {file: frozenset(lines) for file, lines in facts["lines"].items()}
        )
        for test, facts in tests.items()
    }


def _fingerprint(tree: Path, files: Sequence[str]) -> str:
    digest = hashlib.sha256(repr(files).encode())
    for folder in ("storage", "actors", "tests"):
        for path in sorted((tree / folder).rglob("*.py")):
            if "/mutants/" not in str(path):
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


# -- running ---------------------------------------------------------------------------------------


class Worker:
    """A process in a copy of the tree of its own."""

    def __init__(self, tree: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.mutants.worker", *SUITES],
            cwd=tree,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def _answer(self) -> dict[str, str]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a worker has ended; see its errors above")
        return dict[str, str](json.loads(line))

    def run(self, planted: Planted, tests: Sequence[str], seconds: float) -> dict[str, str]:
        assert self._process.stdin is not None
        order: dict[str, Any] = {
            "path": planted.mutant.path,
            "source": planted.source,
            "tests": tests,
            "seconds": seconds,
            "afresh": not planted.mutant.function,
        }
        print(json.dumps(order), file=self._process.stdin, flush=True)
        answer = self._answer()
        if answer["outcome"] == "error":
            raise SystemExit(f"{planted.key}\nthese tests could not be run: {tests}")
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def run_fast(worker: Worker, planted: Planted, known: Mapping[str, Known]) -> Result:
    """What the fast tests say; if they let it live it is a suspect."""
    tests = choose_tests(planted.mutant, known, FAST_SECONDS)
    result = _run_tests(worker, planted, tests, known)
    return result if result.outcome in KILLED else result._replace(outcome="suspect")


def run_slow(worker: Worker, planted: Planted, known: Mapping[str, Known]) -> Result:
    """What becomes of a suspect."""
    fast = choose_tests(planted.mutant, known, FAST_SECONDS)
    every = choose_tests(planted.mutant, known)
    slow = [test for test in every if test not in fast]
    result = _run_tests(worker, planted, slow, known)
    if result.outcome in KILLED:
        return result
    last = _run(worker, planted, LAST, LAST_SECONDS)
    if last.outcome in KILLED or every:
        return last
    # where no other test comes, these are no proof that a test does
    return last._replace(outcome="unreached")


def _run_tests(
    worker: Worker, planted: Planted, tests: Sequence[str], known: Mapping[str, Known]
) -> Result:
    expected = sum(known[test].seconds for test in tests)
    return _run(worker, planted, tests, expected * SLOWER + GRACE_SECONDS)


def _run(worker: Worker, planted: Planted, tests: Sequence[str], seconds: float) -> Result:
    began = time.monotonic()
    answer = {"outcome": "living", "by": ""}
    if tests:
        answer = worker.run(planted, tests, seconds)
    return Result(
        key=planted.key,
        place=f"{planted.mutant.path}:{planted.mutant.line}",
        kind=planted.mutant.kind,
        outcome=answer["outcome"],  # type: ignore[arg-type]
        by=answer["by"],
        seconds=round(time.monotonic() - began, 1),
    )


def check_workers(
    free: Queue[Worker], tree: Path, planted: Planted, known: Mapping[str, Known]
) -> None:
    """Without an error all tests must pass, or a killed mutant would prove nothing."""
    worker = free.get()
    harmless = planted._replace(source=(tree / planted.mutant.path).read_text())
    fastest = sorted(known, key=lambda test: known[test].seconds)
    for tests in (fastest[: len(fastest) // 2], LAST):
        answer = worker.run(harmless, tests, LAST_SECONDS)
        if answer["outcome"] != "living":
            raise SystemExit(f"without a mutant: {answer['outcome']} by {answer['by']}")
    free.put(worker)


@contextmanager
def workers(tree: Path, count: int) -> Iterator[Queue[Worker]]:
    """So many workers, free for whoever takes one, each in a copy of ``tree``."""
    free: Queue[Worker] = Queue()
    with tempfile.TemporaryDirectory(prefix="raylog-mutants-") as folder:
        copies = [Path(folder) / str(number) for number in range(count)]
        for copy in copies:
            shutil.copytree(tree, copy, symlinks=True)
        started = [Worker(copy) for copy in copies]
        try:
            for worker in started:
                free.put(worker)
            yield free
        finally:
            for worker in started:
                worker.close()


def run_all(
    todo: Sequence[Planted],
    known: Mapping[str, Known],
    tree: Path,
    jobs: int,
    equivalents: Container[str],
) -> Iterator[Result]:
    """The results, as they come.

    First all mutants by their fast tests. Those that live are suspects, and come again when the
    slow tests and ``LAST`` have run. Known equivalents are spared these.
    """
    with workers(tree, jobs) as free, ThreadPoolExecutor(jobs) as pool:

        def take(run: Callable[..., Result], planted: Planted) -> Result:
            worker = free.get()
            try:
                return run(worker, planted, known)
            finally:
                free.put(worker)

        def all_of(run: Callable[..., Result], some: Iterable[Planted]) -> Iterator[Result]:
            futures = [pool.submit(take, run, planted) for planted in some]
            for future in as_completed(futures):
                yield future.result()

        if todo:
            check_workers(free, tree, todo[0], known)
        suspects = set[str]()
        for result in all_of(run_fast, todo):
            if result.outcome != "suspect":
                yield result
            elif result.key in equivalents:
                yield result._replace(outcome="living")
            else:
                suspects.add(result.key)
                yield result
        yield from all_of(run_slow, [planted for planted in todo if planted.key in suspects])


def minutes(seconds: float) -> str:
    return f"{math.ceil(seconds / 6) / 10:.1f} minutes"
