"""Open files of the system: closed with their last reference, and a bounded number kept open.

A file that nobody changes has no descriptor of its own: those that were read last share a bounded
number (:class:`SealedFiles`). So the number that a log needs does not grow with the number of its
segments (docs/OPERATIONS.md, Open files).
"""

import ctypes
import errno
import mmap
import os
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import TypeVar
from weakref import finalize

from raylog.storage.disk_errors import storage_error
from raylog.storage.permissions import open_private

Answer = TypeVar("Answer")

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_MAP_FAILED = ctypes.c_void_p(-1).value
# Files of one file system that are held open only to be read again: more than a fetch touches.
MAX_SEALED_OPEN = 64
# Sealed files that may wait for their flush, each with a descriptor of its own; then sealing waits.
MAX_UNFLUSHED = 32


class Descriptor:
    """A file that the system has open. It is closed when the last reference to this goes.

    So nobody reads by a number that the system has given to another file meanwhile.
    """

    __slots__ = ("inode", "is_writable", "number", "path", "size_bytes")

    def __init__(self, path: str, flags: int) -> None:
        """Open ``path``; raises OSError."""
        self.number = -1
        self.number = open_private(path, flags)
        self.path = path
        self.is_writable = flags & os.O_ACCMODE != os.O_RDONLY
        status = os.fstat(self.number)
        self.inode = status.st_ino
        self.size_bytes = status.st_size  # when it was opened

    def fileno(self) -> int:
        return self.number

    def read(self, size_bytes: int, position: int) -> bytes:
        try:
            return os.pread(self.number, size_bytes, position)
        except OSError as error:
            raise storage_error(self.path, error) from error

    def read_into(self, buffer: bytearray | memoryview, position: int) -> int:
        try:
            return os.preadv(self.number, (buffer,), position)
        except OSError as error:
            raise storage_error(self.path, error) from error

    def __del__(self, _close: Callable[[int], None] = os.close) -> None:
        if self.number >= 0:
            # What a file promises, its flush has answered for.
            with suppress(OSError):
                _close(self.number)


class SealedFiles:
    """The descriptors of files that are only read: those used last, up to a bound.

    Threads share it without a lock: each step is one call of an ``OrderedDict``, whole under the
    GIL. Two threads that open the same file at once keep one of the two descriptors.
    """

    def __init__(self, max_open: int, max_unflushed: int) -> None:
        self._max_open, self._max_unflushed = max_open, max_unflushed
        self._open: OrderedDict[int, Descriptor] = OrderedDict()
        self._unflushed: set[int] = set()
        self._numbers = count()

    def new_number(self) -> int:
        """What a file is called here."""
        return next(self._numbers)

    def get(self, number: int) -> Descriptor | None:
        """The open descriptor of a file, which is now the one used last."""
        descriptor = self._open.get(number)
        if descriptor is not None:
            with suppress(KeyError):  # it was dropped meanwhile
                self._open.move_to_end(number)
        return descriptor

    def keep(self, number: int, descriptor: Descriptor) -> Descriptor:
        """Keep a descriptor, or answer with the one that is kept already."""
        kept = self._open.setdefault(number, descriptor)
        while len(self._open) > self._max_open:
            self._drop_oldest()
        return kept

    def forget(self, number: int) -> None:
        """The file is writable again, or closed."""
        self._open.pop(number, None)
        self._unflushed.discard(number)

    def making_room(self, work: Callable[[], Answer]) -> Answer:
        """What ``work`` answers; again without the kept descriptors if it finds none left."""
        try:
            return work()
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._open:
                raise
        while self._open:
            self._drop_oldest()
        return work()

    def _drop_oldest(self) -> None:
        with suppress(KeyError):  # another thread has emptied it
            self._open.popitem(last=False)

    def await_flush(self, number: int) -> None:
        """Count a sealed file whose own descriptor stays open until it is flushed."""
        self._unflushed.add(number)

    def was_flushed(self, number: int) -> None:
        self._unflushed.discard(number)

    @property
    def has_too_many_unflushed(self) -> bool:
        return len(self._unflushed) >= self._max_unflushed


def map_file(number: int, size_bytes: int) -> memoryview:
    """Map a file for reading, until the last reference to the view goes. Raises OSError.

    Python's own ``mmap`` keeps a descriptor for each map.
    """
    address = _LIBC.mmap(None, size_bytes, mmap.PROT_READ, mmap.MAP_SHARED, number, 0)
    if address == _MAP_FAILED:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    content = (ctypes.c_ubyte * size_bytes).from_address(address)
    finalize(content, _LIBC.munmap, address, size_bytes).atexit = False
    return memoryview(content).cast("B").toreadonly()
