"""A lock that another process is about to give up is waited for, but not for ever."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from raylog.actors.partition.locking import LOCK_PATIENCE_S, lock_patiently
from raylog.storage.errors import LogLocked
from raylog.storage.file_lock import RealLock
from raylog.storage.lock_holders import holder_of
from raylog.storage.log_dir import LOCK_FILE


class Time:
    """Passes by sleeping only."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def clock(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Lock:
    """Free at the try of this number."""

    def __init__(self, free_at: int) -> None:
        self.free_at, self.tries = free_at, 0

    def take(self) -> str:
        self.tries += 1
        if self.tries < self.free_at:
            raise LogLocked("/disk/t-0")
        return "the lock"


def test_a_lock_that_is_free_is_taken_without_waiting() -> None:
    time = Time()
    assert lock_patiently(Lock(free_at=1).take, time.clock, time.sleep) == "the lock"
    assert time.now_s == 100.0


def test_a_lock_that_is_free_at_the_third_try_is_taken() -> None:
    time, lock = Time(), Lock(free_at=3)
    assert lock_patiently(lock.take, time.clock, time.sleep) == "the lock"
    assert lock.tries == 3


def test_a_lock_that_stays_locked_is_an_error_after_the_patience() -> None:
    time = Time()
    with pytest.raises(LogLocked):
        lock_patiently(Lock(free_at=1_000_000).take, time.clock, time.sleep)
    assert LOCK_PATIENCE_S <= time.now_s - 100.0 < LOCK_PATIENCE_S + 1


def test_a_lock_that_stays_locked_names_the_process_that_has_it(tmp_path: Path) -> None:
    take = (
        "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX); "
        "print('locked', flush=True); sys.stdin.read()"
    )
    time, folder = Time(), str(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", take, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(
            LogLocked, match=rf"is locked by process {holder.pid} \(.+\) on machine"
        ):
            lock_patiently(lambda: RealLock(folder, is_file=False), time.clock, time.sleep)
        holder.communicate()
    assert holder_of(folder) == ""


def test_the_process_that_has_a_log_dirs_lock_is_named_too(tmp_path: Path) -> None:
    lock = RealLock(str(tmp_path / LOCK_FILE), is_file=True)
    assert holder_of(str(tmp_path)).startswith(f"process {os.getpid()} (")
    lock.release()


def test_who_waits_for_a_lock_or_has_that_of_another_disk_is_not_named(tmp_path: Path) -> None:
    inode, proc = os.stat(tmp_path).st_ino, tmp_path / "proc"
    proc.mkdir()
    (proc / "locks").write_text(
        f"1: -> FLOCK  ADVISORY  WRITE {os.getpid()} fe:00:{inode} 0 EOF\n"
        f"2: FLOCK  ADVISORY  WRITE 0 fe:00:{inode} 0 EOF\n"
        f"3: FLOCK  ADVISORY  WRITE 4711 00:2f:{inode} 0 EOF\n"
    )
    (proc / "4711" / "fd").mkdir(parents=True)
    assert holder_of(str(tmp_path), str(proc)) == ""


def test_another_error_is_raised_at_once() -> None:
    def take() -> None:
        raise OSError("no such folder")

    time = Time()
    with pytest.raises(OSError, match="no such folder"):
        lock_patiently(take, time.clock, time.sleep)
    assert time.now_s == 100.0
