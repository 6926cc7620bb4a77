"""What raylog makes in a log dir belongs to its user alone; what was there is left as it was."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from raylog.cluster.controller.metadata_log import MetadataLog
from raylog.cluster.controller.reserve import METADATA_RESERVE, Reserve
from raylog.storage.cleaner.cleanable import Cleanable
from raylog.storage.cleaner.cleaner import Buffers, clean
from raylog.storage.clock import SystemClock
from raylog.storage.files import FileSystem, RealFileSystem, write_atomically
from raylog.storage.loader import create_log
from raylog.storage.log import Log
from raylog.storage.log_dir import LOCK_FILE, LogDir
from raylog.storage.mirror import Mirror
from raylog.storage.records.control import Marker, encode_marker
from raylog.storage.state.controller_epoch import write_controller_epoch
from raylog.storage.state.properties import CLEAN_SHUTDOWN, random_id
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import TOPIC_ID, of_producer
from raylog.storage.testing.memory import MemoryFileSystem
from raylog.storage.tools.repair import repair_folder
from raylog.storage.validation import COORDINATOR
from tests.harness.real_dirs import PARTITION, append, open_partition, start, stop

ROOMY = Buffers(dedupe_bytes=1 << 16, load_factor=0.9, chunk_bytes=4096)
# Of every kind of file that a partition's folder or a log dir has; by the end of its name.
KINDS = (
    ".log",
    ".index",
    ".timeindex",
    ".txnindex",
    ".snapshot",
    ".deleted",
    ".aside-0",
    "leader-epoch-checkpoint",
    "partition.metadata",
    "meta.properties",
    "recovery-point-offset-checkpoint",
    "controller-epoch",
    METADATA_RESERVE,
    LOCK_FILE,
)


@pytest.fixture(params=[0o000, 0o077], ids=["umask 000", "umask 077"])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(root: Path) -> dict[str, int]:
    """The permissions of a folder and of all that is in it, by path."""
    found = {str(root): root.stat().st_mode & 0o7777}
    for path in root.rglob("*"):
        found[str(path.relative_to(root))] = path.stat().st_mode & 0o7777
    return found


def not_private(root: Path) -> dict[str, str]:
    """What others may look at, or the owner may not."""
    wrong = {}
    for name, mode in modes(root).items():
        if mode != (0o700 if (root / name).is_dir() else 0o600):
            wrong[name] = oct(mode)
    return wrong


def abort(log: Log) -> None:
    """A transaction that is aborted, which makes a transaction index."""
    log.append(of_producer(0, 1, producer=1, epoch=0, transactional=True))
    marker = encode_marker(Marker(True, 0, T0), producer_id=1, producer_epoch=0)
    log.append(marker, origin=COORDINATOR)


def compact(fs: FileSystem, log: Log) -> None:
    end = log.segments[-1].base_offset
    whole = Cleanable(first_dirty_offset=0, bound=end, clean_bytes=0, cleanable_bytes=1)
    clean(fs, SystemClock(), log, whole, ROOMY)


def damage_end(folder: Path) -> None:
    """Damage the last batch: a repair copies the folder, and sets the batch aside."""
    last = max(folder.glob("*.log"))
    with last.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\xff")


def test_all_that_a_broker_makes_is_its_users_alone(tmp_path: Path, umask: int) -> None:
    fs, root = RealFileSystem(), tmp_path / "log-dir"
    MetadataLog(fs, SystemClock(), str(root), new_cluster="a cluster").close()
    Reserve(fs, str(root)).make()
    log_dir = start(root)
    write_controller_epoch(fs, str(root), 3)
    create_log(fs, log_dir.folder(PARTITION), TOPIC_ID)
    log = open_partition(log_dir)
    log.epochs.assign(0, 0)
    append(log, 25)
    abort(log)
    log.roll()
    append(log, 5)
    compact(fs, log)
    Mirror(fs, SystemClock(), log_dir.folder(PARTITION), str(root / "copy")).round(is_last=True)
    seen = {**modes(root)}
    assert not_private(root) == {}
    stop(log_dir, log)
    assert not_private(root) == {}
    damage_end(root / str(PARTITION))
    seen.update(modes(root))
    repair_folder(fs, SystemClock(), str(root / str(PARTITION)))
    assert not_private(root) == {}
    seen.update(modes(root))
    missing = [kind for kind in (*KINDS, CLEAN_SHUTDOWN) if not any(n.endswith(kind) for n in seen)]
    assert missing == [], f"the test made none of these; it made {sorted(seen)}"


def test_folders_and_files_that_exist_keep_their_permissions(tmp_path: Path) -> None:
    fs, root = RealFileSystem(), tmp_path / "log-dir"
    root.mkdir(mode=0o750)
    root.chmod(0o750)
    file = root / "old"
    file.touch()
    file.chmod(0o640)
    fs.make_dir(str(root))
    fs.open(str(file), create=True).close()
    fs.write_file(str(file), b"new")
    assert (root.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o750, 0o640)


def test_parents_that_are_made_on_the_way_are_private_too(tmp_path: Path, umask: int) -> None:
    RealFileSystem().make_dir(str(tmp_path / "a" / "b" / "c"))
    assert not_private(tmp_path / "a") == {}


@pytest.mark.parametrize(
    ("mode", "is_private"),
    [(0o700, True), (0o600, True), (0o750, False), (0o701, False), (0o755, False)],
)
def test_whether_others_may_look_into_a_folder(tmp_path: Path, mode: int, is_private: bool) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(mode)
    assert RealFileSystem().is_private(str(folder)) is is_private


def test_a_folder_in_memory_is_private_unless_a_test_says_otherwise() -> None:
    fs = MemoryFileSystem()
    fs.make_dir("/disk")
    assert fs.is_private("/disk")
    fs.shared.add("/disk")
    assert not fs.is_private("/disk")


def test_a_file_that_replaces_another_is_private(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "checkpoint"
    path.touch(mode=0o644)
    write_atomically(RealFileSystem(), str(path), b"content")
    assert path.stat().st_mode & 0o7777 == 0o600


def test_a_log_dir_of_kafka_goes_on_with_its_permissions(tmp_path: Path) -> None:
    root = tmp_path / "kafka"
    root.mkdir()
    root.chmod(0o755)
    log_dir = LogDir(RealFileSystem(), str(root), random_id(), 1)
    log_dir.close(clean=True)
    assert root.stat().st_mode & 0o777 == 0o755
