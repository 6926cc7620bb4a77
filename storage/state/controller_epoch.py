"""The highest epoch of a Controller that a log dir has seen: the file ``controller-epoch``.

Each Controller has a higher epoch than the one before. A node that has obeyed one refuses the
orders of every older one, and this file lets it do so after a restart, too.

::

    0                  version
    17 3f2a9c01        the epoch, and the CRC-32C of its digits

On a full disk there is no room for another file. There the epoch is appended to this one, which
needs none, since a file has whole blocks::

    0
    17 3f2a9c01
    18 c61b02aa        the last line counts; the first may be all there is, and must be whole

A crash may cut off what is appended, or leave zeros in its place. Then nobody has obeyed it yet.

The file has a CRC because nothing else would tell a digit that was damaged. With a lower epoch the
node would obey a Controller that was replaced, with a higher one it would obey none.
"""

import os
import re

from crc32c import crc32c

from raylog.storage.errors import CorruptCheckpoint, DiskFull
from raylog.storage.files import FileSystem, write_atomically
from raylog.storage.limits import MAX_INT

CONTROLLER_EPOCH = "controller-epoch"
NO_EPOCH = -1
_VERSION = b"0"
# The beginning of a line, and zeros where the file has grown and its bytes are not on the disk.
_CUT_OFF = re.compile(rb"([0-9]+( [0-9a-f]{0,8})?)?\0*")


def read_controller_epoch(fs: FileSystem, log_dir: str) -> int:
    """The epoch, -1 if there is no file. Raises CorruptCheckpoint if the file cannot be read."""
    path = os.path.join(log_dir, CONTROLLER_EPOCH)
    if not fs.exists(path):
        return NO_EPOCH
    return _read(path, fs.read_file(path))[0]


def _read(path: str, content: bytes) -> tuple[int, int]:
    """The epoch of the last whole line, and where that line ends."""
    version, *lines = content.split(b"\n")
    if version != _VERSION:
        raise CorruptCheckpoint(path, f"its version is {version[:20]!r}, not {_VERSION!r}")
    epoch, end = NO_EPOCH, len(version) + 1
    for line in lines[:-1]:
        digits = line.partition(b" ")[0]
        is_number = digits.isdigit() and len(digits) <= len(str(MAX_INT))
        if not is_number or line + b"\n" != _line(int(digits)) or int(digits) <= epoch:
            raise CorruptCheckpoint(path, "the epoch or its CRC is wrong")
        epoch, end = int(digits), end + len(line) + 1
    if epoch == NO_EPOCH or not _CUT_OFF.fullmatch(lines[-1]):
        raise CorruptCheckpoint(path, "the epoch is missing, or what follows it is none")
    return epoch, end


def write_controller_epoch(fs: FileSystem, log_dir: str, epoch: int) -> None:
    """Write an epoch that is higher than that of the file; it is on the disk when this returns.

    Raises DiskFull only where there is no file yet, or it has filled its block.
    """
    assert 0 <= epoch <= MAX_INT, "an epoch is a number of 31 bits"
    path = os.path.join(log_dir, CONTROLLER_EPOCH)
    try:
        write_atomically(fs, path, _VERSION + b"\n" + _line(epoch))
    except DiskFull:
        if not fs.exists(path):
            raise
        _append(fs, path, epoch)


def _append(fs: FileSystem, path: str, epoch: int) -> None:
    _, end = _read(path, fs.read_file(path))
    file = fs.open(path)
    try:
        if file.size > end:
            file.truncate(end)
        file.append([_line(epoch)])
        file.flush()
    finally:
        file.close()


def _line(epoch: int) -> bytes:
    digits = str(epoch).encode()
    return b"%b %08x\n" % (digits, crc32c(digits))
