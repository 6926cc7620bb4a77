"""Who may look at what raylog makes on a disk: its own user, and nobody else.

Records are as secret as their topic's readers want them to be, and nothing in a log dir is for
another user. So every folder and file gets its permissions when it is made, from here, whatever the
process's umask allows. What exists keeps the permissions that it has: somebody may have given them
on purpose.
"""

import os
from stat import S_IMODE

# A umask takes away from these and never adds.
FILE_MODE = 0o600
DIR_MODE = 0o700
_OF_OTHERS = 0o077


def make_private_dirs(path: str) -> None:
    """Make a folder and its missing parents; fine if it is there. Raises OSError.

    ``os.makedirs`` gives its mode to the last folder only.
    """
    if os.path.isdir(path):
        return
    parent = os.path.dirname(os.path.abspath(path))
    make_private_dirs(parent)
    try:
        os.mkdir(path, DIR_MODE)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


def open_private(path: str, flags: int) -> int:
    """A descriptor; a file that this makes is private. For ``open(opener=...)``, too."""
    return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)


def is_private(mode: int) -> bool:
    """Whether permissions, ``st_mode``, give nothing to anyone but the owner."""
    return not S_IMODE(mode) & _OF_OTHERS
