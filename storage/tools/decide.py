"""What a person decides about records that recovery could not keep in a log: with the locks held.

The decisions themselves are in ``asides.py`` and ``losses.py``. What is added here is the care of a
tool that is run by hand: nobody serves the partition meanwhile, and the next start does not take
the log dir for one that was left in order, since a log in it has changed.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from raylog.storage.asides import (
    Aside,
    aside_names,
    drop_aside,
    find_aside,
    good_batches,
    restore_aside,
)
from raylog.storage.files import FileSystem
from raylog.storage.limits import MAX_LONG
from raylog.storage.losses import checkpointed, find_losses, write_accepted
from raylog.storage.names import (
    LOG_SUFFIX,
    aside_number,
    base_offsets,
    offset_of,
    segment_file,
)
from raylog.storage.report import Mended
from raylog.storage.state.checkpoints import RECOVERY_POINTS
from raylog.storage.state.properties import CLEAN_SHUTDOWN
from raylog.storage.tools.folders import check_has_log, locked, partition_folder

Answer = TypeVar("Answer")


class Kept(NamedTuple):
    """A file with good batches of offsets that the log does not have."""

    name: str
    first_offset: int
    end_offset: int


class Loss(NamedTuple):
    """What a log lacks of what was flushed."""

    recovery_point: int  # of the log dir's checkpoint; 0 if it has none
    lost: tuple[Mended, ...]  # below the recovery point, by offset
    kept: tuple[Kept, ...]  # the files of the folder that have some of it, or what comes behind


def restore(fs: FileSystem, folder: str, name: str, *, allow_gap: bool) -> Aside:
    """Put an aside back. Raises LogLocked, and what ``restore_aside`` raises."""

    def work() -> Aside:
        find_aside(fs, folder, name)
        _open_as_after_a_crash(fs, folder)  # first: a crash may come before the next line is done
        return restore_aside(fs, folder, name, allow_gap=allow_gap)

    return _offline(fs, folder, work)


def look(fs: FileSystem, folder: str, name: str) -> Aside:
    """What an aside holds. Raises NotAPartitionFolder, or AsideRefused if there is none."""
    return find_aside(fs, partition_folder(fs, folder), name)


def drop(fs: FileSystem, folder: str, name: str) -> Aside:
    """Remove an aside. Raises LogLocked, and what ``drop_aside`` raises."""
    return _offline(fs, folder, lambda: drop_aside(fs, folder, name))


def look_for_loss(fs: FileSystem, folder: str, *, is_compacted: bool) -> Loss:
    """What a log has lost; nothing is changed.

    Raises LogLocked, NotAPartitionFolder or CorruptCheckpoint.
    """

    def work() -> Loss:
        check_has_log(fs, folder)
        lost = find_losses(fs, folder, is_compacted=is_compacted)
        return Loss(
            recovery_point=checkpointed(fs, folder, RECOVERY_POINTS),
            lost=tuple(lost),
            kept=tuple(_kept(fs, folder, lost)),
        )

    return _offline(fs, folder, work)


def accept(fs: FileSystem, folder: str, *, is_compacted: bool) -> None:
    """Let a log open without what it has lost. Raises as ``look_for_loss``."""

    def work() -> None:
        lost = find_losses(fs, folder, is_compacted=is_compacted)  # the marker says which
        # After an orderly stop no CRC is looked at: what is damaged would stay in the log.
        _open_as_after_a_crash(fs, folder)
        write_accepted(fs, folder, lost)

    _offline(fs, folder, work)


def _kept(fs: FileSystem, folder: str, losses: Sequence[Mended]) -> Iterator[Kept]:
    """The files with good batches that the log does not have: of a gap, or behind its end.

    A gap ends where a segment begins. The end is in the file that its loss names.
    """
    names = fs.list_dir(folder)
    bases = base_offsets(names)
    logs = [segment_file(base, LOG_SUFFIX) for base in bases]
    # Somebody may have renamed one, to whatever name.
    renamed = [name for name in names if LOG_SUFFIX + "." in name and aside_number(name) is None]
    wanted = [
        (lost.first_offset, lost.end_offset if lost.end_offset in bases else MAX_LONG)
        for lost in losses
    ]
    for name in (*logs, *renamed, *aside_names(fs, folder)):
        base_offset = offset_of(name)
        if base_offset is None:
            continue
        file = fs.open(os.path.join(folder, name))
        try:
            behind = [
                header
                for _, header in good_batches(file, base_offset)
                if any(first <= header.base_offset < end for first, end in wanted)
            ]
        finally:
            file.close()
        if behind:
            yield Kept(name, behind[0].base_offset, behind[-1].next_offset)


def _offline(fs: FileSystem, folder: str, work: Callable[[], Answer]) -> Answer:
    with locked(fs, partition_folder(fs, folder)):
        return work()


def _open_as_after_a_crash(fs: FileSystem, folder: str) -> None:
    log_dir = os.path.dirname(os.path.abspath(folder))
    fs.remove(os.path.join(log_dir, CLEAN_SHUTDOWN))
    fs.sync_dir(log_dir)
