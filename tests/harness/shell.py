"""The ``raylog`` command, in this process or in a process of its own.

A test of what the command answers runs it in this process. A test of the process (signals, closed
pipes, the entry point) starts one.
"""

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import NamedTuple
from unittest.mock import patch

from raylog.cluster.cli.main import main

RAYLOG = [sys.executable, "-m", "raylog"]
TIMEOUT_S = 60


class Done(NamedTuple):
    """How a command has ended, and what it has printed."""

    returncode: int
    stdout: str
    stderr: str

    def lines(self) -> list[str]:
        """What was printed, by a command that succeeded."""
        assert self.returncode == 0, self.stderr
        return self.stdout.splitlines()

    def without_waiting(self) -> "Done":
        """The same, but for the lines that say what was waited for: a busy machine has some."""
        lines = self.stderr.splitlines(keepends=True)
        told = [line for line in lines if not line.startswith("waiting: ")]
        return self._replace(stderr="".join(told))


def run_here(*arguments: str, stdin: str = "") -> Done:
    """``raylog ARGUMENTS`` in this process, from its entry point on.

    Its standard streams are files: a command may ask for their numbers.
    """
    with (
        tempfile.TemporaryFile("w+") as source,
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
    ):
        source.write(stdin)
        source.seek(0)
        with (
            patch.object(sys, "argv", ["raylog", *arguments]),
            patch.object(sys, "stdin", source),
            patch.object(sys, "stdout", out),
            patch.object(sys, "stderr", err),
        ):
            code = _exit_status()
        out.seek(0)
        err.seek(0)
        return Done(code, out.read(), err.read())


def _exit_status() -> int:
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def run_process(*arguments: str, environment: Mapping[str, str], stdin: str = "") -> Done:
    """``raylog ARGUMENTS`` in a process of its own."""
    done = subprocess.run(
        [*RAYLOG, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=environment,
    )
    return Done(done.returncode, done.stdout, done.stderr)
