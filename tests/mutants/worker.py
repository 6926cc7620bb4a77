"""Plants errors, one at a time, in a process that has imported the tests already.

It runs in a copy of the tree, and reads one order a line::

    {"path": "storage/log.py", "source": "...", "tests": ["tests/...::test_x"], "seconds": 60}

For each it writes the source to the copy and forks. The child gives every function of the file the
code that the new source has, and runs the tests. So nothing is imported again, and a process that a
test starts imports the error from the copy. Code outside of functions cannot be exchanged: with
``"afresh": true`` the tests run in a new process. The answer is one line::

    {"outcome": "killed", "by": "tests/...::test_x"}      or "timeout", "living", "error"
"""

import gc
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

MEMORY_BYTES = 8 << 30  # an error may be a loop that allocates
POLL_S = 0.01
CLOCK_PER_PROCESSOR = 10  # who waits for ever uses no processor
FEW_SCHEDULES = "5"  # of each pair in test_interleavings.py: it runs for every mutant that lives
SAME_SCHEDULES = "1"  # a seed: the same mutants live again
NOT_EXCHANGED, NOT_RUN = 90, 91  # exit statuses that pytest does not have
QUIET = ("-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=no")


class FirstFailure:
    """Notes which test failed first."""

    def __init__(self, target: Path) -> None:
        self._target = target

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self._target.exists():
            self._target.write_text(report.nodeid)


def all_functions() -> list[FunctionType]:
    return [each for each in gc.get_objects() if isinstance(each, FunctionType)]


def exchange(functions: Iterable[FunctionType], path: str, source: str) -> None:
    """Give the functions of a file the code of another source with as many lines."""
    own = [each for each in functions if each.__code__.co_filename.endswith("/" + path)]
    if not own:
        return  # no test imports the file
    codes = dict(_codes(compile(source, own[0].__code__.co_filename, "exec")))
    for function in own:
        old = function.__code__
        function.__code__ = codes.get((old.co_qualname, old.co_firstlineno), old)


def _codes(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    yield (code.co_qualname, code.co_firstlineno), code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def run(order: dict[str, Any], functions: Iterable[FunctionType]) -> dict[str, str]:
    path = Path(order["path"])
    before, noted = path.read_text(), Path("first-failure").absolute()
    noted.unlink(missing_ok=True)
    path.write_text(order["source"])
    try:
        code: int | None = NOT_EXCHANGED
        if not order["afresh"]:
            code = _wait(_forked(order, functions, noted), order["seconds"])
        if code == NOT_EXCHANGED:
            code = _wait(_afresh(order), order["seconds"])
    finally:
        path.write_text(before)
    return {"outcome": outcome_of(code), "by": noted.read_text() if noted.exists() else ""}


def outcome_of(code: int | None) -> str:
    """What the end of pytest, or the signal that ended it, says. None: it did not end."""
    if code in (None, signal.SIGXCPU):
        return "timeout"
    if code in (NOT_RUN, pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED):
        return "error"
    return "killed" if code else "living"


def _forked(order: dict[str, Any], functions: Iterable[FunctionType], noted: Path) -> int:
    child = os.fork()
    if child:
        return child
    code = NOT_RUN
    try:
        os.setsid()
        _limit(order["seconds"])
        _silence()
        try:
            exchange(functions, order["path"], order["source"])
        except ValueError:  # a closure holds other names now
            os._exit(NOT_EXCHANGED)
        code = int(pytest.main([*order["tests"], *QUIET], plugins=[FirstFailure(noted)]))
    finally:
        os._exit(code)


def _limit(seconds: float) -> None:
    """By seconds of the processor, not of the clock: a busy machine kills no mutant."""
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 1))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def _silence() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)


def _afresh(order: dict[str, Any]) -> int:
    command = [sys.executable, "-m", "pytest", *order["tests"], *QUIET]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=lambda: _limit(order["seconds"]),
    ).pid


def _wait(child: int, seconds: float) -> int | None:
    """The exit code; None if it took too long. All that it started ends with it."""
    deadline = time.monotonic() + seconds * CLOCK_PER_PROCESSOR
    code = None
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = abs(os.waitstatus_to_exitcode(status))
            break
        time.sleep(POLL_S)
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        pass
    if code is None:
        os.waitpid(child, 0)
    return code


def main() -> None:
    os.environ.setdefault("RAYLOG_SCHEDULES", FEW_SCHEDULES)
    os.environ.setdefault("RAYLOG_SEED", SAME_SCHEDULES)
    answers = os.fdopen(os.dup(1), "w")
    orders = os.fdopen(os.dup(0))
    _silence()
    code = pytest.main(["--collect-only", *QUIET, *sys.argv[1:]])
    functions = all_functions()
    gc.freeze()  # a child does not touch, and so not copy, what is there
    print(json.dumps({"outcome": "ready", "by": str(int(code))}), file=answers, flush=True)
    for line in orders:
        print(json.dumps(run(json.loads(line), functions)), file=answers, flush=True)


if __name__ == "__main__":
    main()
