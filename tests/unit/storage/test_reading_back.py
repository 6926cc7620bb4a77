"""A folder is read back from its disk, not from the system's copy of it."""

import subprocess
import sys
from pathlib import Path

import pytest

from raylog.storage.errors import StorageError
from raylog.storage.files import RealFileSystem
from raylog.storage.reading_back import drop_caches
from raylog.storage.testing.memory import MemoryFileSystem
from raylog.storage.testing.waiting import DEADLINE_S


@pytest.fixture
def fs() -> MemoryFileSystem:
    memory = MemoryFileSystem()
    memory.make_dir("/logs/t-0")
    memory.write_file("/logs/t-0/a", b"abc")
    memory.write_file("/logs/t-0/b", b"")
    return memory


def failed(path: str) -> StorageError:
    return StorageError(path, "Input/output error")


def test_what_a_failed_flush_has_not_written_is_not_read(fs: MemoryFileSystem) -> None:
    file = fs.open("/logs/t-0/a")
    file.append([b"def"])
    with fs.failing(failed, "flush"), pytest.raises(StorageError):
        file.flush()
    assert fs.read_file("/logs/t-0/a") == b"abcdef", "the system's copy"
    drop_caches(fs, "/logs/t-0")
    assert fs.read_file("/logs/t-0/a") == b"abc\0\0\0"


def test_what_waits_for_a_flush_is_flushed_with_its_name(fs: MemoryFileSystem) -> None:
    fs.write_file("/logs/t-0/c", b"new", flush=False)
    fs.make_dir("/logs/t-0/folder")
    drop_caches(fs, "/logs/t-0")
    fs.sync_dir("/logs")
    fs.sync_dir("/")
    after = fs.crash("flushed", names="flushed")
    assert after.read_file("/logs/t-0/c") == b"new"
    assert after.is_dir("/logs/t-0/folder")


def test_a_disk_that_cannot_flush_has_failed(fs: MemoryFileSystem) -> None:
    with fs.failing(failed, "flush"), pytest.raises(StorageError) as raised:
        drop_caches(fs, "/logs/t-0")
    assert raised.value.is_disk_failure


def test_the_files_of_a_real_folder_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    drop_caches(RealFileSystem(), str(tmp_path))
    assert (tmp_path / "a").read_bytes() == b"abc"


LOCKS = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
"""


def test_the_lock_of_a_log_dir_is_kept(tmp_path: Path) -> None:
    """Whoever closes any descriptor of a file gives up the process's POSIX lock on it."""
    fs, path = RealFileSystem(), str(tmp_path / ".lock")
    lock = fs.lock(path)
    drop_caches(fs, str(tmp_path))
    locks = [sys.executable, "-c", LOCKS, path]
    done = subprocess.run(locks, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert "BlockingIOError" in done.stderr
    lock.release()
