"""What opening a log did to its files, and what it met: nothing that recovery does is silent."""

import os
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from raylog.storage.files import FileSystem
from raylog.storage.wire import message

# How often a long recovery tells how far it has come.
PROGRESS_BYTES = 64 << 20

# cut: bytes behind the last good batch were taken off a segment (they are kept aside)
# set_aside: a whole segment was taken out of the log, and is kept under a name of its own
# rebuilt: an index or another file that the log can make again was made again
# removed: a file that holds no record of its own was removed
# lost: fsynced records are missing, and somebody accepted it
# gap: offsets are missing between records, and what is on the disk does not tell why
# damaged: a sealed segment has a batch that is not good, at which a rebuild of the producers ended
Kind = Literal["cut", "set_aside", "rebuilt", "removed", "lost", "gap", "damaged"]


@message
class Mended(NamedTuple):
    """One thing that opening a log did."""

    kind: Kind
    file: str  # its name in the partition's folder
    size_bytes: int
    first_offset: int  # of the records that it may hold; -1 where there are none
    end_offset: int  # behind the last of them; -1 where there are none
    why: str
    kept_as: str = ""  # the name that the bytes have now, where they are kept


@message
class Progress(NamedTuple):
    """How far the recovery of one log has come: of what it must read, how much it has read."""

    bytes_done: int
    bytes_total: int
    segments_done: int
    segments_total: int


OnProgress: TypeAlias = Callable[[Progress], None]


class Report:
    """What opening has done so far."""

    def __init__(self, fs: FileSystem, folder: str) -> None:
        self.mended: list[Mended] = []
        self._fs, self._folder = fs, folder

    def add(
        self,
        kind: Kind,
        file: str,
        why: str,
        *,
        size_bytes: int | None = None,
        offsets: tuple[int, int] = (-1, -1),
        kept_as: str = "",
    ) -> None:
        """One more thing was done. ``size_bytes``: default is the file's size now."""
        if size_bytes is None:
            stat = self._fs.stat(os.path.join(self._folder, file))
            size_bytes = stat.size_bytes if stat else 0
        self.mended.append(
            Mended(
                kind=kind,
                file=file,
                size_bytes=size_bytes,
                first_offset=offsets[0],
                end_offset=offsets[1],
                why=why,
                kept_as=kept_as,
            )
        )

    def remove(self, name: str, why: str) -> None:
        """Remove a file that holds no record of its own, and tell it."""
        path = os.path.join(self._folder, name)
        stat = self._fs.stat(path)
        if stat is None:
            return
        self._fs.remove(path)
        self.add("removed", name, why, size_bytes=stat.size_bytes)


class Meter:
    """Tells how far the recovery of some segments has come, after each and about each 64 MB."""

    def __init__(self, sizes_bytes: Sequence[int], progress: OnProgress) -> None:
        self._sizes = list(sizes_bytes)
        self._progress = progress
        self._segments_done = 0
        self._told_bytes = 0

    def read_up_to(self, position: int) -> None:
        """The segment was read up to a position."""
        bytes_done = sum(self._sizes[: self._segments_done]) + position
        if bytes_done - self._told_bytes >= PROGRESS_BYTES:
            self._tell(bytes_done)

    def segment_done(self) -> None:
        """The segment was checked."""
        self._segments_done += 1
        self._tell(sum(self._sizes[: self._segments_done]))

    def _tell(self, bytes_done: int) -> None:
        self._told_bytes = bytes_done
        self._progress(
            Progress(
                bytes_done=bytes_done,
                bytes_total=sum(self._sizes),
                segments_done=self._segments_done,
                segments_total=len(self._sizes),
            )
        )
