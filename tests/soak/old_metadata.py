"""An older copy of the metadata in the place of the newest one, as when an old disk comes back.

The copies of the other nodes have what it lacks, so nothing may be lost by it. The Controller must
not notice the change while it writes: it is stopped before, and ended behind it. While it stands
still the others are looked at. One that was silent for 10 seconds may be about to be left out: then
nobody could know whether the Controller has gone on without it, and the next one would refuse to
begin, rightly.
"""

import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from raylog.cluster.controller.copies import Copy, SurveyedDir
from raylog.cluster.controller.witness import Mark, is_settled, of_cluster
from raylog.storage.log_dir import METADATA_PARTITION


class OldMetadata:
    """One copy of the metadata. ``folder``: where it is kept; not in a log dir."""

    def __init__(self, folder: Path) -> None:
        self._copy = folder
        self.is_used = False

    @property
    def is_there(self) -> bool:
        return self._copy.is_dir()

    def take(self, log_dirs: Sequence[str]) -> bool:
        """Copy what lies in these log dirs, whoever writes it; False if it could not be read whole.

        The one from before is kept then.
        """
        source = newest_metadata(log_dirs)
        if source is None:
            return False
        new = self._copy.with_name(f"{self._copy.name}.new")
        try:
            shutil.copytree(source, new)
        except OSError:  # a file was renamed meanwhile
            shutil.rmtree(new, ignore_errors=True)
            return False
        shutil.rmtree(self._copy, ignore_errors=True)
        new.rename(self._copy)
        self.is_used = False
        return True

    def put_in_place(
        self,
        log_dirs: Sequence[str],
        *,
        stop: Callable[[], object],
        have_others_all: Callable[[], bool],
        go_on: Callable[[], object],
        end: Callable[[], object],
    ) -> Path | None:
        """Replace what lies in these log dirs; returns where, or None if nothing is done.

        ``stop``, ``go_on`` and ``end``: the process that writes there. ``have_others_all``: whether
        the other nodes surely have what it has written. That is asked while it stands still.
        """
        place = newest_metadata(log_dirs)
        if place is None:
            return None
        beside = place.parent.parent  # on the same disk, so that a rename is enough
        newest, old = beside / "newest-metadata", beside / "old-metadata"
        shutil.copytree(self._copy, old)
        stop()
        if not have_others_all():
            go_on()
            shutil.rmtree(old)
            return None
        try:
            place.rename(newest)
            old.rename(place)
        finally:
            end()
        shutil.rmtree(newest)
        self.is_used = True
        return place


def have_all(dirs: Iterable[SurveyedDir], marks: Sequence[Mark], nodes: int) -> bool:
    """Whether the newest copies of so many nodes are the same, and none is being left out.

    ``marks``: what the Controllers have told Ray, as in ``witness.py``.
    """
    newest: dict[str, Copy] = {}
    for entry in dirs:
        before = newest.get(entry.node)
        if entry.copy is not None and (before is None or _age(before) < _age(entry.copy)):
            newest[entry.node] = entry.copy
    copies = list(newest.values())
    return len(copies) == nodes and all(
        copy.is_same(copies[0])
        and is_settled(of_cluster(marks, copy.cluster_id), copy.controller_epoch, copy.copies_at)
        for copy in copies
    )


def _age(copy: Copy) -> tuple[int, int]:
    return copy.controller_epoch, copy.end


def newest_metadata(log_dirs: Sequence[str]) -> Path | None:
    """The folder that was written last. A dir that was away may have one of long ago."""
    folders = [Path(log_dir) / str(METADATA_PARTITION) for log_dir in log_dirs]
    return max((one for one in folders if one.is_dir()), key=_written_at, default=None)


def _written_at(folder: Path) -> float:
    return max((path.stat().st_mtime for path in folder.glob("*.log")), default=0.0)
