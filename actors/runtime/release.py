"""Whether this process runs the raylog that is installed on its node.

Ray may give a new actor a process that has run a task before, and so has imported raylog. Where
another release was installed since, the actor would be one of the old release for as long as it
lives. Such a process ends, and Ray starts the actor in another one, which imports raylog anew.
"""

import os
from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple


class Stamp(NamedTuple):
    """What tells one installation of the package from the next."""

    inode: int
    modified_ns: int


def stamp_of(path: str) -> Stamp | None:
    """None where the file cannot be read: it is being replaced."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return Stamp(found.st_ino, found.st_mtime_ns)


# The package's head names every module for type checkers: an import of it would be a circle.
PACKAGE = str(import_module("raylog").__file__)
_AT_IMPORT = stamp_of(PACKAGE)


def is_replaced(before: Stamp | None, now: Stamp | None) -> bool:
    """Whether another raylog is installed now."""
    return before is not None and now is not None and before != now


def end_if_replaced(end: Callable[[int], object] = os._exit) -> None:
    """End this process where another raylog was installed since it has imported raylog."""
    if is_replaced(_AT_IMPORT, stamp_of(PACKAGE)):
        end(1)
