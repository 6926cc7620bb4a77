"""What a person decides about records that recovery could not keep in a log: with the locks held.

The decisions themselves are in ``asides.py`` and ``losses.py``. What is added here is the care of a
tool that is run by hand: nobody serves the partition meanwhile, and the next start does not take
the log dir for one that was left in order, since a log in it has changed.
"""

import os
from collections.abc import Callable
from typing import TypeVar

from raylog.storage.asides import Aside, drop_aside, list_asides, restore_aside
from raylog.storage.errors import AsideRefused
from raylog.storage.files import FileSystem
from raylog.storage.losses import accept_losses, find_losses
from raylog.storage.names import parse_folder
from raylog.storage.report import Mended
from raylog.storage.state.properties import CLEAN_SHUTDOWN
from raylog.storage.tools.folders import locked

Answer = TypeVar("Answer")


def restore(fs: FileSystem, folder: str, name: str, *, allow_gap: bool) -> Aside:
    """Put an aside back. Raises LogLocked, and what ``restore_aside`` raises."""

    def work() -> Aside:
        look(fs, folder, name)
        _open_as_after_a_crash(fs, folder)  # first: a crash may come before the next line is done
        return restore_aside(fs, folder, name, allow_gap=allow_gap)

    return _offline(fs, folder, work)


def look(fs: FileSystem, folder: str, name: str) -> Aside:
    """What an aside holds. Raises AsideRefused if there is none."""
    for aside in list_asides(fs, folder):
        if aside.name == name:
            return aside
    raise AsideRefused(os.path.join(folder, name), "there is no such file set aside")


def drop(fs: FileSystem, folder: str, name: str) -> Aside:
    """Remove an aside. Raises LogLocked, and what ``drop_aside`` raises."""
    return _offline(fs, folder, lambda: drop_aside(fs, folder, name))


def accept(fs: FileSystem, folder: str, *, is_compacted: bool, is_sure: bool) -> list[Mended]:
    """What a log has lost. With ``is_sure``, the log may open without it.

    Raises LogLocked, AsideRefused, LogMissing or CorruptCheckpoint.
    """

    def work() -> list[Mended]:
        if not is_sure:
            return find_losses(fs, folder, is_compacted=is_compacted)
        return accept_losses(fs, folder, is_compacted=is_compacted)

    return _offline(fs, folder, work)


def _offline(fs: FileSystem, folder: str, work: Callable[[], Answer]) -> Answer:
    folder = os.path.abspath(folder)
    if parse_folder(os.path.basename(folder)) is None:
        raise AsideRefused(
            folder, "this is not a partition's folder; its name must be <topic>-<partition>"
        )
    if not fs.is_dir(folder):
        raise AsideRefused(folder, "the folder does not exist")
    with locked(fs, folder):
        return work()


def _open_as_after_a_crash(fs: FileSystem, folder: str) -> None:
    log_dir = os.path.dirname(os.path.abspath(folder))
    fs.remove(os.path.join(log_dir, CLEAN_SHUTDOWN))
    fs.sync_dir(log_dir)
