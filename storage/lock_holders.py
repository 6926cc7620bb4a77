"""Which process has a lock that nobody else gets: for people, who may have to end it.

Linux lists every lock with its owner's pid and the file's inode in ``/proc/locks``::

    1: FLOCK  ADVISORY  WRITE 4711 fe:00:131 0 EOF

An inode's number may be on several disks, and some file systems (btrfs, overlayfs) show another
device there than ``stat`` does. So the process must have this file open, too. Nothing is known of a
process of another container, or of another user.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress

from raylog.storage.log_dir import LOCK_FILE


def holder_of(path: str, proc: str = "/proc") -> str:
    """The process that has the lock of a folder or a log dir, in words; empty for none known.

    ``proc``: Linux's.
    """
    for locked in (path, os.path.join(path, LOCK_FILE)):
        with suppress(OSError):
            wanted = os.stat(locked)
            with open(os.path.join(proc, "locks"), encoding="ascii") as locks:
                pids = list(_owners(locks, wanted.st_ino))
            for pid in pids:
                if _has_open(os.path.join(proc, str(pid), "fd"), wanted):
                    return f"process {pid} ({_name(proc, pid)}) on machine {os.uname().nodename}"
    return ""


def _owners(locks: Iterable[str], inode: int) -> Iterator[int]:
    """The pids of who has a lock of an inode; not of who waits for one (``1: -> FLOCK ...``)."""
    for line in locks:
        words = line.split()
        if len(words) < 6 or words[1] != "FLOCK" or not words[5].endswith(f":{inode}"):
            continue
        pid = int(words[4])
        if pid > 0:  # else it is in another container
            yield pid


def _has_open(descriptors: str, wanted: os.stat_result) -> bool:
    for name in os.listdir(descriptors):
        with suppress(OSError):  # it is closed by now
            if os.path.samestat(os.stat(os.path.join(descriptors, name)), wanted):
                return True
    return False


def _name(proc: str, pid: int) -> str:
    """What a process calls itself: ``ray::LogManager`` for that of an actor."""
    with open(os.path.join(proc, str(pid), "cmdline"), "rb") as file:
        title = file.read().split(b"\0")[0]
    return title.decode(errors="replace").strip()
