"""The process of a LogActor on this node, which may hang: whether it runs, and its end.

Ray ends an actor by asking its process, and so not one that stands still. Such a one has the files
of its log open, and goes on to write when it wakes. Linux tells of a process in ``/proc/PID``; when
it began tells it from a later one of the same number. Ray may tell the number of an actor that has
ended, while its raylet hangs, and somebody else may have that number: the process must call itself
what the actor does.
"""

import os
import signal
from contextlib import suppress
from typing import NamedTuple

# Of the fields behind the name, which is in brackets and may have any character.
_STATE, _BEGAN = 0, 19
_ENDED = ("Z", "X")  # it has closed its files, and waits for its parent to hear of it


class LogProcess(NamedTuple):
    """A process, and when it began, in ticks since the machine's start."""

    pid: int
    began: int


def process_at(pid: int, title: str, proc: str = "/proc") -> LogProcess | None:
    """The process of this number; None where there is none that calls itself ``title...``."""
    fields = _fields(pid, proc)
    if fields is None or not _title(pid, proc).startswith(title):
        return None
    return LogProcess(pid, int(fields[_BEGAN]))


def is_running(process: LogProcess, proc: str = "/proc") -> bool:
    """Whether it has not ended yet."""
    fields = _fields(process.pid, proc)
    if fields is None or int(fields[_BEGAN]) != process.began:
        return False
    return fields[_STATE] not in _ENDED


def end_at_once(process: LogProcess) -> None:
    """End it, also where it stands still; fine if it has ended. One that waits for a disk stays."""
    if is_running(process):
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


def _title(pid: int, proc: str) -> str:
    """What it was started as, or has called itself since; empty for one that has ended."""
    try:
        with open(
            os.path.join(proc, str(pid), "cmdline"), encoding="utf-8", errors="replace"
        ) as of:
            return of.read()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _fields(pid: int, proc: str) -> list[str] | None:
    try:
        with open(os.path.join(proc, str(pid), "stat"), encoding="ascii", errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
