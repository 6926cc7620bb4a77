"""The highest epoch of a Controller that a log dir has seen: the file ``controller-epoch``.

Each Controller has a higher epoch than the one before. A node that has obeyed one refuses the
orders of every older one, and this file lets it do so after a restart, too.

::

    0                  version
    17 3f2a9c01        the epoch, and the CRC-32C of its digits

The file has a CRC because nothing else would tell a digit that was damaged. With a lower epoch the
node would obey a Controller that was replaced, with a higher one it would obey none.
"""

import os

from crc32c import crc32c

from raylog.storage.errors import CorruptCheckpoint
from raylog.storage.files import FileSystem, write_atomically
from raylog.storage.limits import MAX_INT

CONTROLLER_EPOCH = "controller-epoch"
NO_EPOCH = -1
_VERSION = b"0"


def read_controller_epoch(fs: FileSystem, log_dir: str) -> int:
    """The epoch, -1 if there is no file. Raises CorruptCheckpoint if the file cannot be read."""
    path = os.path.join(log_dir, CONTROLLER_EPOCH)
    if not fs.exists(path):
        return NO_EPOCH
    content = fs.read_file(path)
    version, _, rest = content.partition(b"\n")
    if version != _VERSION:
        raise CorruptCheckpoint(path, f"its version is {version[:20]!r}, not {_VERSION!r}")
    digits = rest.partition(b" ")[0]
    if not digits.isdigit() or len(digits) > len(str(MAX_INT)) or content != _encode(int(digits)):
        raise CorruptCheckpoint(path, "the epoch or its CRC is wrong")
    return int(digits)


def write_controller_epoch(fs: FileSystem, log_dir: str, epoch: int) -> None:
    """Replace the file; it is on the disk when this returns."""
    assert 0 <= epoch <= MAX_INT, "an epoch is a number of 31 bits"
    write_atomically(fs, os.path.join(log_dir, CONTROLLER_EPOCH), _encode(epoch))


def _encode(epoch: int) -> bytes:
    digits = str(epoch).encode()
    return b"%b\n%b %08x\n" % (_VERSION, digits, crc32c(digits))
