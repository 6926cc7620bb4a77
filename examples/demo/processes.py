"""Who is still running? Every process that the demo starts, directly or not, carries a mark.

Ray's and Spark's processes leave their parents, so asking for children finds too few. The mark is
in the environment, which all inherit. Needs Linux's /proc; elsewhere nothing is found and
``can_tell`` says so.
"""

import os
import signal
import time
from pathlib import Path

MARK = "RAYLOG_DEMO_RUN"
PROC = Path("/proc")


def mark() -> str:
    """Mark this process's future children; returns the mark."""
    os.environ[MARK] = f"{os.getpid()}-{time.time_ns()}"
    return os.environ[MARK]


def can_tell() -> bool:
    return (PROC / "self" / "environ").exists()


def marked(value: str) -> dict[int, str]:
    """Process id -> command, of every living process with this mark, other than this one."""
    wanted = f"{MARK}={value}".encode()
    found = {}
    for entry in PROC.iterdir() if PROC.is_dir() else ():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                command = (
                    (entry / "cmdline")
                    .read_bytes()
                    .replace(b"\0", b" ")
                    .decode(errors="replace")
                    .strip()
                )
                found[int(entry.name)] = command
        except OSError:  # it ended while we looked, or is another user's
            continue
    return found


def end_the_rest(value: str, patience_s: float = 15.0) -> dict[int, str]:
    """Kill marked processes that are there after a while, and return them; Ray's need a moment to
    end."""
    deadline = time.monotonic() + patience_s
    while (left := marked(value)) and time.monotonic() < deadline:
        time.sleep(0.2)
    for process in left:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return left
