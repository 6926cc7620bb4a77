"""Whose fault an error is: for every call of the system that storage makes, and what it answers.

A failed disk takes all partitions of its log dir offline, so nothing else may be taken for one.
"""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from raylog.actors.partition.partition import Partition
from raylog.storage import files
from raylog.storage.clock import Clock
from raylog.storage.config import LogConfig
from raylog.storage.errors import (
    DiskFull,
    FileGone,
    LogLocked,
    OutOfResources,
    RaylogError,
    SegmentDeleted,
    StorageError,
    TemporaryFileLost,
    UndoFailed,
    UndoInterrupted,
)
from raylog.storage.files import RealFileSystem, write_atomically
from raylog.storage.loader import create_log, open_log
from raylog.storage.names import TopicPartition
from raylog.storage.records import kernel
from raylog.storage.state.producers import ProducerExpiration
from raylog.storage.testing.clock import ManualClock
from raylog.storage.testing.logs import batch_of_size, offsets_of

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR)
OF_THE_DISK = (errno.EIO, errno.EROFS, errno.ENXIO, errno.EUCLEAN)
ANSWERS = (*NO_ROOM, *SHORTAGES, *OF_THE_DISK)


class Place:
    """A folder with some files, some open and some not."""

    def __init__(self, folder: Path) -> None:
        self.fs = RealFileSystem(max_sealed=0)
        self.folder = str(folder)
        self.path = str(folder / "f")
        self.target = str(folder / "g")
        (folder / "sub").mkdir()
        (folder / "sub" / "file").write_bytes(b"x")
        self.file = self.fs.open(self.path, create=True)
        self.file.append([b"abcd"])
        self.sealed = self.fs.open(self.path)

    def append(self) -> None:
        self.file.append_stamped(b"x", b"?y")

    def append_several(self) -> None:
        self.file.append([b"x", b"y"])

    def copy(self, *, flush: bool = False) -> None:
        self.fs.copy_file(self.path, self.target, lambda _: None, flush=flush)


# What is asked, and the function of the system that fails meanwhile.
CALLS: dict[str, tuple[str, Callable[[Place], object]]] = {
    "open": ("open", lambda place: place.fs.open(place.path)),
    "create": ("open", lambda place: place.fs.open(place.target, create=True)),
    "open again to read": ("open", lambda place: place.sealed.read(1, 0)),
    "open again to write": ("open", lambda place: place.sealed.append([b"x"])),
    "open a folder to sync it": ("open", lambda place: place.fs.sync_dir(place.folder)),
    "read": ("pread", lambda place: place.file.read(1, 0)),
    "read into": ("preadv", lambda place: place.file.read_into(bytearray(1), 0)),
    "map": ("map_file", lambda place: place.file.view()),
    "append": ("write_stamped", lambda place: place.append()),
    "append several": ("writev", lambda place: place.append_several()),
    "truncate": ("ftruncate", lambda place: place.file.truncate(1)),
    "seal": ("open", lambda place: place.file.seal()),
    "list": ("listdir", lambda place: place.fs.list_dir(place.folder)),
    "exists": ("stat", lambda place: place.fs.exists(place.path)),
    "is_dir": ("stat", lambda place: place.fs.is_dir(place.path)),
    "stat": ("stat", lambda place: place.fs.stat(place.path)),
    "mtime": ("stat", lambda place: place.fs.mtime_ms(place.path)),
    "set mtime": ("utime", lambda place: place.fs.set_mtime_ms(place.path, 1)),
    "room": ("statvfs", lambda place: place.fs.room(place.folder)),
    "make a folder": ("mkdir", lambda place: place.fs.make_dir(place.target)),
    "remove": ("unlink", lambda place: place.fs.remove(place.path)),
    "remove an open file": ("unlink", lambda place: place.file.remove()),
    "remove a folder": ("scandir", lambda place: place.fs.remove_dir(place.folder)),
    "rename": ("replace", lambda place: place.fs.rename(place.path, place.target)),
    "rename an open file": ("replace", lambda place: place.file.rename(place.target)),
    "copy": ("sendfile", lambda place: place.copy()),
    "lock": ("open", lambda place: place.fs.lock(place.target)),
}
# Where those functions are that are not in ``os``.
OWNERS: dict[str, ModuleType] = {"map_file": files, "write_stamped": kernel.ops}
SYNCS: dict[str, tuple[str, Callable[[Place], object]]] = {
    "flush": ("fdatasync", lambda place: place.file.flush()),
    "sync a folder": ("fsync", lambda place: place.fs.sync_dir(place.folder)),
    "write a file": ("fsync", lambda place: place.fs.write_file(place.target, b"x")),
    "copy and flush": ("fsync", lambda place: place.copy(flush=True)),
    "write atomically": ("fsync", lambda place: write_atomically(place.fs, place.target, b"x")),
}

APPENDS = ("append", "append several")


def blamed(call: str, answer: int) -> type[StorageError]:
    """The table of the module's head of ``disk_errors.py``."""
    if call in SYNCS:
        return StorageError
    if answer in NO_ROOM:
        return DiskFull
    if answer in SHORTAGES:
        return OutOfResources
    return StorageError


@contextmanager
def answering(name: str, answer: int, after: int = 0) -> Iterator[list[str]]:
    """Let a function of the system fail, each time from the call number ``after`` on.

    Gives the list of the calls that failed.
    """
    module: Any = OWNERS.get(name, os)
    real = getattr(module, name)
    good_calls = iter(range(after))
    failed: list[str] = []

    def call(*args: Any, **options: Any) -> Any:
        if next(good_calls, None) is not None:
            return real(*args, **options)
        failed.append(name)
        raise OSError(answer, os.strerror(answer))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, name, call)
        yield failed


@pytest.mark.parametrize(("call", "answer"), [*product([*CALLS, *SYNCS], ANSWERS)])
def test_the_call_decides_whose_fault_an_error_is(tmp_path: Path, call: str, answer: int) -> None:
    place = Place(tmp_path)
    name, work = (CALLS | SYNCS)[call]
    with answering(name, answer) as failed, pytest.raises(StorageError) as raised:
        work(place)
    error, kind = raised.value, blamed(call, answer)
    assert type(error) is kind
    assert error.is_disk_failure == (kind is StorageError)
    assert error.retriable
    assert len(failed) == 1, "nothing is tried again by itself"


@pytest.mark.parametrize(("call", "answer"), [*product(APPENDS, ANSWERS)])
def test_a_write_that_fails_is_undone_and_so_are_shortages(
    tmp_path: Path, call: str, answer: int
) -> None:
    place = Place(tmp_path)
    name, work = CALLS[call]
    with answering(name, answer), pytest.raises(blamed(call, answer)):
        work(place)
    assert (place.file.size, Path(place.path).read_bytes()) == (4, b"abcd")
    work(place)
    assert Path(place.path).read_bytes() == b"abcdxy"


@pytest.mark.parametrize(("call", "answer"), [*product(APPENDS, ANSWERS)])
def test_an_undo_that_fails_blames_the_disk_only_for_its_own(
    tmp_path: Path, call: str, answer: int
) -> None:
    place = Place(tmp_path)
    name, work = CALLS[call]
    full, failing = answering(name, errno.ENOSPC), answering("ftruncate", answer)
    with full, failing, pytest.raises(UndoFailed) as raised:
        work(place)
    is_disk = answer in OF_THE_DISK
    assert type(raised.value) is (UndoFailed if is_disk else UndoInterrupted)
    assert raised.value.is_disk_failure == is_disk


def test_a_temporary_file_that_somebody_removes_is_nobodys_disk(tmp_path: Path) -> None:
    place = Place(tmp_path)
    real = os.replace

    def replace(source: str, target: str) -> None:
        os.unlink(source)
        real(source, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", replace)
        with pytest.raises(TemporaryFileLost) as raised:
            write_atomically(place.fs, place.target, b"x")
    assert not raised.value.is_disk_failure


@pytest.mark.parametrize("call", CALLS)
def test_a_file_that_is_gone_is_nobodys_disk(tmp_path: Path, call: str) -> None:
    """Where it is not an answer of its own: that it is not there, or was deleted."""
    place = Place(tmp_path)
    name, work = CALLS[call]
    with answering(name, errno.ENOENT):
        raised = error_of(lambda: work(place))
    assert isinstance(raised, FileGone | SegmentDeleted | LogLocked | None)
    assert not getattr(raised, "is_disk_failure", False)


def error_of(work: Callable[[], object]) -> RaylogError | None:
    try:
        work()
    except RaylogError as error:
        return error
    return None


def test_a_shortage_says_what_to_do(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with answering("open", errno.EMFILE), pytest.raises(OutOfResources, match="ulimit -n"):
        place.fs.open(place.path)


# -- a partition -----------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """What an error did to a partition."""

    error: type[StorageError] | None
    is_offline: bool
    is_disk: bool


PARTITION = TopicPartition("orders", 0)
# Batches of 100 bytes with a record each; and how many of them retention keeps.
APPENDED, KEPT = 18, 12
CONFIG = LogConfig(
    segment_bytes=400,
    index_interval_bytes=0,
    retention_bytes=1200,
    retention_ms=-1,
    file_delete_delay_ms=0,
)
WORKS: dict[str, Callable[[Partition], object]] = {
    "append": lambda partition: partition.append(batch_of_size(100)),
    "roll": lambda partition: partition.append(batch_of_size(400)),
    "flush": lambda partition: partition.flush(),
    "maintain": lambda partition: partition.maintain(ProducerExpiration(10**9)),
    "retain": lambda partition: partition.delete_old_segments(),
    "read": lambda partition: partition.fetch(0),
}
FUNCTIONS = (
    "open",
    "write_stamped",
    "writev",
    "ftruncate",
    "fdatasync",
    "fsync",
    "replace",
    "unlink",
    "stat",
)


def opened(folder: Path, clock: Clock) -> Partition:
    """The partition as after a start, with a file system that keeps hardly anything open."""
    fs = RealFileSystem(max_sealed=1)
    return Partition(open_log(fs, clock, str(folder), PARTITION, CONFIG), clock)


def filled(folder: Path, clock: Clock) -> Partition:
    create_log(RealFileSystem(), str(folder), "5eGdu6PVSRS-s9xHKXlyPg")
    partition = opened(folder, clock)
    for _ in range(APPENDED):
        partition.append(batch_of_size(100))
    return partition


def outcome_of(partition: Partition, work: str, function: str, answer: int, after: int) -> Outcome:
    error: type[StorageError] | None = None
    with answering(function, answer, after) as failed:
        try:
            WORKS[work](partition)
        except StorageError as raised:
            error = type(raised)
        if not failed:
            raise LookupError("no call is left to fail")
    return Outcome(error, partition.is_offline, partition.disk_failure is not None)


@pytest.mark.parametrize(("work", "function"), [*product(WORKS, FUNCTIONS)])
def test_a_shortage_never_takes_a_disk_offline_and_nothing_is_lost(
    tmp_path: Path, work: str, function: str
) -> None:
    """Whichever call of an operation meets it, from there on every time."""
    clock = ManualClock()
    is_sync = function in ("fsync", "fdatasync")
    for after in range(30):
        folder = tmp_path / str(after) / "orders-0"
        folder.parent.mkdir()
        partition = filled(folder, clock)
        try:
            outcome = outcome_of(partition, work, function, errno.ENOMEM, after)
        except LookupError:
            break
        assert outcome.is_disk == is_sync
        if outcome.error is OutOfResources:
            assert not outcome.is_offline
        if outcome.is_offline and not is_sync:
            assert outcome.error in (UndoInterrupted, OutOfResources)
        again = partition if not outcome.is_offline else opened(folder, clock)
        WORKS[work](again)
        left = offsets_of(again.log)
        assert left == list(range(again.log.log_start_offset, again.log.log_end_offset))
        assert len(left) >= KEPT
        assert again.log.log_end_offset >= APPENDED
    else:
        raise AssertionError("it makes more calls than that")


def test_a_partition_whose_folder_is_gone_is_opened_again_and_no_disk_is_blamed(
    tmp_path: Path,
) -> None:
    partition = filled(tmp_path / "orders-0", ManualClock())
    shutil.rmtree(partition.log.folder)
    with pytest.raises(FileGone):
        partition.roll()
    assert partition.is_stuck
    assert partition.disk_failure is None
