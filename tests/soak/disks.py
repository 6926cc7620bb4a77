"""Disks that can be filled and lost, without anything of raylog's being replaced.

**Full** is really full: a file system in memory lies over the disks of some nodes, and is made as
small as what it holds. So the kernel itself answers "no space left" in the middle of writes, and
whoever is faster gets the last pages. The file system is mounted in a mount namespace of this
program, which nobody else sees and which ends with its last process. Root may have one, and on many
systems every user, as root of a user namespace. Where neither is allowed there is no disk to fill.

**Lost** is a log dir that is renamed, with a file in its place, so that nobody makes a new one
there. Who has files open goes on writing to them, as on a disk whose mount point has vanished; all
that needs a name fails.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

# Set in a program that has its own mounts.
OWN_MOUNTS = "RAYLOG_SOAK_OWN_MOUNTS"
NAMESPACES = (["unshare", "--mount"], ["unshare", "--user", "--map-root-user", "--mount"])
# Far more than a run writes to one node; memory is used for what is written.
ROOM_BYTES = 4 << 30
PAGE_BYTES = 4096
# A disk that grows is tried with more and more room to spare.
SHRINK_ATTEMPTS, SPARE_BYTES = 50, 1 << 16
GONE = "-gone"


def own_mounts() -> list[str] | None:
    """The command that runs another with mounts of its own; None where this user may not."""
    for command in NAMESPACES:
        mount = [*command, "mount", "-t", "tmpfs", "tmpfs", "/tmp"]
        with suppress(FileNotFoundError):
            if subprocess.run(mount, capture_output=True, check=False).returncode == 0:
                return command
    return None


def begin_with_own_mounts(arguments: Sequence[str]) -> None:
    """Begin this program once more, with mounts of its own; return where that is not possible."""
    if OWN_MOUNTS in os.environ:
        return
    command = own_mounts()
    if command is not None:
        sys.stdout.flush()
        again = [*command, sys.executable, "-m", "tests.soak", *arguments]
        os.execvpe(again[0], again, os.environ | {OWN_MOUNTS: "1"})


class SmallDisk:
    """A file system in memory over a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._ballast = folder, folder / "ballast"
        folder.mkdir(parents=True)
        _run("mount", "-t", "tmpfs", "-o", f"size={ROOM_BYTES}", "tmpfs", str(folder))

    def fill(self) -> None:
        """When this returns not a page is left, but for what is removed meanwhile."""
        self._shrink()
        with self._ballast.open("wb", buffering=0) as file, suppress(OSError):
            while file.write(b"x" * PAGE_BYTES):
                pass

    def _shrink(self) -> None:
        """Leave hardly any room. It may grow between the look and the mount."""
        for attempt in range(SHRINK_ATTEMPTS):
            if self._resize(self._used_bytes() + attempt * SPARE_BYTES):
                return
        raise RuntimeError(f"{self._folder} grows too fast to be filled")

    def make_room(self) -> None:
        assert self._resize(ROOM_BYTES), "a file system can grow"
        self._ballast.unlink(missing_ok=True)

    def keep(self) -> None:
        """Unmount it; its contents are in the folder then."""
        copy = self._folder.with_name(f"{self._folder.name}-copy")
        shutil.copytree(self._folder, copy, symlinks=True)
        _run("umount", "--lazy", str(self._folder))
        self._folder.rmdir()
        copy.rename(self._folder)

    def _used_bytes(self) -> int:
        found = os.statvfs(self._folder)
        used_bytes = (found.f_blocks - found.f_bfree) * found.f_frsize
        return max(used_bytes, PAGE_BYTES)  # a size of 0 is none

    def _resize(self, size_bytes: int) -> bool:
        """False if it holds more than that."""
        command = ["mount", "-o", f"remount,size={size_bytes}", str(self._folder)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


@contextmanager
def small_disks(disks: Path, names: Sequence[str]) -> Iterator[dict[str, SmallDisk]]:
    """Disks that can be filled, by name; none where this program has no mounts of its own.

    At the end their contents lie in plain folders.
    """
    made: dict[str, SmallDisk] = {}
    with ExitStack() as stack:
        for name in names if OWN_MOUNTS in os.environ else ():
            made[name] = SmallDisk(disks / name)
            stack.callback(made[name].keep)
        yield made


def take_away(log_dir: Path) -> None:
    """The disk of a log dir is lost."""
    log_dir.rename(_gone(log_dir))
    log_dir.touch()  # an empty file: the disk around it may be full


def put_back(log_dir: Path) -> None:
    """It is there again, as it was, and with what was written to its open files."""
    log_dir.unlink()
    _gone(log_dir).rename(log_dir)


def _gone(log_dir: Path) -> Path:
    return log_dir.with_name(log_dir.name + GONE)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
