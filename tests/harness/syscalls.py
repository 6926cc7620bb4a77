"""What a process tells the kernel about its files, and rules for the order of it.

``strace`` writes down the system calls of a Python module (:func:`trace`). They are translated to
events with the names of files below a root, whatever call the code took for them::

    create write cut sync sync_dir drop rename remove make_dir

``drop`` is the advice to forget a file's pages in memory, which changes nothing on the disk.

A rule speaks of events by patterns (``"rename *.swap -> *.log"``) and of nothing else, so a test
says what must come before what, and not which calls there are. :class:`Unsynced` follows what a
loss of power could still take: contents since the last ``sync`` of a file, names since the last
``sync_dir`` of a folder. A file keeps its state when it is renamed.

The traced process says where an operation begins and returns by :func:`mark`: it removes a file
that is not there, which changes nothing and is in the transcript.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from tests.harness.paths import ROOT

MARKS = "/raylog-marks/"
TIMEOUT_S = 120
MISSING = (
    "strace is missing, which shows what reaches the kernel: install it (Debian, Ubuntu: "
    "apt-get install strace)"
)
# "?": not every machine has the call.
CALLS = (
    "?open,?creat,openat,write,writev,pwrite64,pwritev,?pwritev2,sendfile,?copy_file_range,"
    "fsync,fdatasync,fadvise64,?rename,renameat,renameat2,?unlink,unlinkat,?rmdir,?truncate,ftruncate,"
    "?mkdir,mkdirat"
)
_WRITES = {"write", "writev", "pwrite64", "pwritev", "pwritev2", "sendfile", "copy_file_range"}
_LINE = re.compile(r"^(?:\d+ +)?(\w+)\((.*)\) += (-?\d+|\?)")
_UNFINISHED = re.compile(r"^(\d+) +(.*) <unfinished \.\.\.>$")
_RESUMED = re.compile(r"^(\d+) +<\.\.\. \w+ resumed>(.*)$")
_DESCRIPTOR = re.compile(r"\d+<([^>]*)>")
_PATH = re.compile(r'"([^"]*)"')


class Event(NamedTuple):
    """One change of a file or folder, or a mark. Names are relative to the root."""

    verb: str
    name: str
    target: str = ""  # of a rename

    def __str__(self) -> str:
        arrow = f" -> {self.target}" if self.target else ""
        return f"{self.verb} {self.name}{arrow}"

    def matches(self, pattern: str) -> bool:
        return fnmatchcase(str(self), pattern)


# -- in the traced process -------------------------------------------------------------------------


def mark(text: str) -> None:
    """Put a line into the transcript."""
    with suppress(FileNotFoundError):
        os.unlink(MARKS + text)


# -- tracing ---------------------------------------------------------------------------------------


def problem() -> str | None:
    """Why system calls cannot be traced here; None if they can."""
    strace = shutil.which("strace")
    if strace is None:
        return MISSING
    tried = subprocess.run([strace, "-o", "/dev/null", "true"], capture_output=True, text=True)
    if tried.returncode:
        return f"strace may not trace here: {tried.stderr.strip()}"
    return None


def trace(module: str, arguments: Sequence[str], root: Path) -> list[Event]:
    """Run a Python module under strace; returns what it did below ``root``, and its marks."""
    transcript = root / "strace.txt"
    command = [sys.executable, "-m", module, *arguments]
    strace = ["strace", "-f", "-y", "-s", "0", "--seccomp-bpf", "-e", f"trace={CALLS}"]
    done = subprocess.run(
        [*strace, "-o", str(transcript), *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    return list(events(transcript.read_text().splitlines(), str(root.resolve())))


def events(lines: Iterable[str], root: str) -> Iterator[Event]:
    """The changes below ``root`` in a transcript of strace."""
    translator = _Translator(root)
    for line in _whole(lines):
        yield from translator.translate(line)


def _whole(lines: Iterable[str]) -> Iterator[str]:
    """The calls, each in one line: threads interrupt each other's."""
    begun: dict[str, str] = {}
    for line in lines:
        if unfinished := _UNFINISHED.match(line):
            begun[unfinished[1]] = unfinished[2]
        elif resumed := _RESUMED.match(line):
            yield f"{resumed[1]} {begun.pop(resumed[1], '')}{resumed[2]}"
        else:
            yield line


class _Translator:
    """From calls to events. Knows the names that are there, since opening may create or cut."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._files: set[str] = set()
        self._folders: set[str] = {"."}

    def translate(self, line: str) -> Iterator[Event]:
        parsed = _LINE.match(line)
        if parsed is None:
            return
        call, arguments, answer = parsed.groups()
        paths = _PATH.findall(arguments)
        if paths and paths[0].startswith(MARKS):
            yield Event("mark", paths[0].removeprefix(MARKS))
            return
        if answer.startswith("-") or answer == "?":
            return
        descriptor = _DESCRIPTOR.match(arguments)
        names = [self._name(path) for path in paths]
        if descriptor is not None:
            names.insert(0, self._name(descriptor[1]))
        if names and names[0] is not None:
            yield from self._event(call, arguments, [name for name in names if name is not None])

    def _name(self, path: str) -> str | None:
        path = path.removesuffix(" (deleted)")
        if path == self._root:
            return "."
        if not path.startswith(self._root + "/"):
            return None
        return path[len(self._root) + 1 :]

    def _event(self, call: str, arguments: str, names: list[str]) -> Iterator[Event]:
        name = names[0]
        if call in _WRITES:
            yield Event("write", name)
        elif call in ("fsync", "fdatasync"):
            yield Event("sync_dir" if name in self._folders else "sync", name)
        elif call == "fadvise64" and "0, 0, POSIX_FADV_DONTNEED" in arguments:
            yield Event("drop", name)
        elif call in ("open", "openat", "creat"):
            yield from self._opened(call, arguments, name)
        elif call in ("truncate", "ftruncate"):
            yield Event("cut", name)
        elif call.startswith("rename"):
            self._renamed(name, names[1])
            yield Event("rename", name, names[1])
        elif call in ("unlink", "unlinkat", "rmdir"):
            self._files.discard(name)
            self._folders.discard(name)
            yield Event("remove", name)
        elif call in ("mkdir", "mkdirat"):
            self._folders.add(name)
            yield Event("make_dir", name)

    def _opened(self, call: str, arguments: str, name: str) -> Iterator[Event]:
        if "O_CREAT" not in arguments and "O_TRUNC" not in arguments and call != "creat":
            return
        if name not in self._files:
            self._files.add(name)
            yield Event("create", name)
        elif "O_TRUNC" in arguments or call == "creat":
            yield Event("cut", name)

    def _renamed(self, name: str, target: str) -> None:
        for names in (self._files, self._folders):
            moved = {each for each in names if each == name or each.startswith(name + "/")}
            names -= moved
            names |= {target + each.removeprefix(name) for each in moved}


# -- what a loss of power could take ---------------------------------------------------------------


@dataclass
class Unsynced:
    """The changes that are not on the disk for sure."""

    contents: dict[str, Event] = field(default_factory=dict)  # by file
    names: dict[str, list[Event]] = field(default_factory=dict)  # by folder
    _empty: set[str] = field(default_factory=set)  # files that were never written

    def follow(self, event: Event) -> None:
        """Take one event into account."""
        if event.verb == "sync":
            self.contents.pop(event.name, None)
        elif event.verb == "sync_dir":
            self.names.pop(event.name, None)
        elif event.verb == "write" or (event.verb == "cut" and event.name not in self._empty):
            self._empty.discard(event.name)
            self.contents[event.name] = event
        elif event.verb in ("create", "make_dir"):
            self._empty.add(event.name)
            self._note(event, event.name)
        elif event.verb == "remove":
            self._forget(event.name)
            self._note(event, event.name)
        elif event.verb == "rename":
            self._forget(event.target)
            self._move(event.name, event.target)
            self._note(event, event.name)
            if os.path.dirname(event.target) != os.path.dirname(event.name):
                self._note(event, event.target)

    def changes(self) -> list[Event]:
        """All that could be lost."""
        return [
            *self.contents.values(),
            *(event for noted in self.names.values() for event in noted),
        ]

    def _note(self, event: Event, name: str) -> None:
        self.names.setdefault(os.path.dirname(name) or ".", []).append(event)

    def _forget(self, name: str) -> None:
        self.contents.pop(name, None)
        self.names.pop(name, None)
        self._empty.discard(name)

    def _move(self, name: str, target: str) -> None:
        def moved(each: str) -> str:
            is_inside = each == name or each.startswith(name + "/")
            return target + each.removeprefix(name) if is_inside else each

        self.contents = {
            moved(each): event._replace(name=moved(event.name))
            for each, event in self.contents.items()
        }
        self.names = {moved(folder): noted for folder, noted in self.names.items()}
        self._empty = {moved(each) for each in self._empty}


# -- rules -----------------------------------------------------------------------------------------


class Before(NamedTuple):
    """All events like ``first`` come before all like ``then``; both occur."""

    first: str
    then: str


class Between(NamedTuple):
    """Behind the last event like ``first`` and before the first like ``then`` is a ``barrier``."""

    first: str
    barrier: str
    then: str


class Has(NamedTuple):
    """The operation has such an event."""

    event: str


class Never(NamedTuple):
    """The operation has no such event."""

    event: str


Rule = Before | Between | Has | Never


def broken(rules: Sequence[Rule], transcript: Sequence[Event]) -> list[str]:
    """The rules that a transcript breaks, as sentences."""
    return [said for rule in rules if (said := _broken(rule, transcript)) is not None]


def _broken(rule: Rule, transcript: Sequence[Event]) -> str | None:
    if isinstance(rule, Has):
        return None if _at(rule.event, transcript) else f"no {rule.event}"
    if isinstance(rule, Never):
        return f"there is a {rule.event}" if _at(rule.event, transcript) else None
    firsts, thens = _at(rule.first, transcript), _at(rule.then, transcript)
    if not firsts or not thens:
        return f"no {rule.then if firsts else rule.first}"
    if firsts[-1] > thens[0]:
        return f"{transcript[thens[0]]} comes before {transcript[firsts[-1]]}"
    if isinstance(rule, Between):
        barriers = _at(rule.barrier, transcript[firsts[-1] : thens[0]])
        if not barriers:
            place = f"{transcript[firsts[-1]]} and {transcript[thens[0]]}"
            return f"no {rule.barrier} between {place}"
    return None


def _at(pattern: str, transcript: Sequence[Event]) -> list[int]:
    return [number for number, event in enumerate(transcript) if event.matches(pattern)]


def left_unsynced(
    transcript: Sequence[Event], marks: tuple[str, str], may: Sequence[str] = ()
) -> list[str]:
    """What an operation leaves to be lost when it returns, and what it renames unsynced.

    ``marks``: of its begin and its return. ``may``: patterns of events for which that is right.
    """
    begin, end = (transcript.index(Event("mark", text)) for text in marks)
    state, problems = Unsynced(), list[str]()
    for number, event in enumerate(transcript[:end]):
        if number > begin and event.verb == "rename":
            unsynced = state.contents.get(event.name)
            if unsynced is not None and not _may(unsynced, may) and not _may(event, may):
                problems.append(f"{event}: its content is not on the disk")
        state.follow(event)
    left = [event for event in state.changes() if not _may(event, may)]
    return problems + [f"not on the disk at the return: {event}" for event in left]


def _may(event: Event, patterns: Sequence[str]) -> bool:
    return any(event.matches(pattern) for pattern in patterns)
