"""Writing a lost meta.properties again: the ids that the dir had, or nothing."""

from typing import Any

import pytest

from raylog.storage.errors import (
    CorruptCheckpoint,
    IdentityMissing,
    InvalidLogDir,
    LogLocked,
    RepairRefused,
    StorageError,
)
from raylog.storage.log_dir import LogDir
from raylog.storage.state.properties import MetaProperties, random_id, read_meta
from raylog.storage.testing.memory import MemoryFileSystem
from raylog.storage.tools.identify import identify

CLUSTER, NODE = "uHx_mWK3Sji2MLBMLyjjfg", 3
A, B = "/disk/a", "/disk/b"


@pytest.fixture
def fs() -> MemoryFileSystem:
    """Two log dirs of a node, with a partition in each."""
    memory = MemoryFileSystem()
    for path in (A, B):
        memory.make_dir(path)
        LogDir(memory, path, CLUSTER, NODE).close(clean=True)
        memory.make_dir(f"{path}/orders-0")
    memory.sync_dir("/")
    memory.sync_dir("/disk")
    return memory


def lose(fs: MemoryFileSystem) -> str:
    """The identity of A is lost; returns its directory id."""
    meta = read_meta(fs, A)
    assert meta is not None
    fs.remove(f"{A}/meta.properties")
    return meta.directory_id


def test_a_dir_gets_its_identity_back_and_can_be_used(fs: MemoryFileSystem) -> None:
    directory_id = lose(fs)
    with pytest.raises(IdentityMissing):
        LogDir(fs, A, CLUSTER, NODE)
    meta = identify(fs, A, directory_id, like=B)
    assert meta == MetaProperties(CLUSTER, NODE, directory_id)
    fs = fs.crash("flushed", names="flushed")
    assert read_meta(fs, A) == meta, "it is on the disk"


def test_the_cluster_and_the_node_can_be_given(fs: MemoryFileSystem) -> None:
    directory_id = lose(fs)
    identify(fs, A, directory_id, cluster_id=CLUSTER, node_id=NODE)
    log_dir = LogDir(fs, A, CLUSTER, NODE)
    assert (log_dir.directory_id, log_dir.was_clean) == (directory_id, True)


@pytest.mark.parametrize(
    "options", [{}, {"cluster_id": CLUSTER}, {"node_id": NODE}, {"like": "/disk"}]
)
def test_what_is_not_known_is_not_made_up(fs: MemoryFileSystem, options: dict[str, Any]) -> None:
    directory_id = lose(fs)
    with pytest.raises(RepairRefused):
        identify(fs, A, directory_id, **options)
    assert read_meta(fs, A) is None


@pytest.mark.parametrize("directory_id", ["", "abc", "not an id, of 22 chars"])
def test_a_directory_id_is_a_uuid(fs: MemoryFileSystem, directory_id: str) -> None:
    lose(fs)
    with pytest.raises(RepairRefused, match="is no directory id"):
        identify(fs, A, directory_id, like=B)


def test_the_id_of_the_other_log_dir_is_refused(fs: MemoryFileSystem) -> None:
    lose(fs)
    other = read_meta(fs, B)
    assert other is not None
    with pytest.raises(RepairRefused, match=f"is the directory id of {B}"):
        identify(fs, A, other.directory_id, like=B)
    assert read_meta(fs, A) is None


def test_an_identity_that_is_there_stays(fs: MemoryFileSystem) -> None:
    before = fs.read_file(f"{A}/meta.properties")
    with pytest.raises(RepairRefused, match=r"it has a meta\.properties"):
        identify(fs, A, random_id(), like=B)
    assert fs.read_file(f"{A}/meta.properties") == before


def test_a_damaged_one_is_kept_aside(fs: MemoryFileSystem) -> None:
    directory_id = lose(fs)
    fs.write_file(f"{A}/meta.properties", b"nonsense")
    identify(fs, A, directory_id, like=B)
    assert LogDir(fs, A, CLUSTER, NODE).directory_id == directory_id
    assert fs.read_file(f"{A}/meta.properties.corrupt") == b"nonsense"


def test_nothing_is_written_from_a_damaged_other_dir(fs: MemoryFileSystem) -> None:
    directory_id = lose(fs)
    fs.write_file(f"{B}/meta.properties", b"nonsense")
    with pytest.raises(CorruptCheckpoint):
        identify(fs, A, directory_id, like=B)


def test_a_dir_that_a_broker_uses_is_left_alone(fs: MemoryFileSystem) -> None:
    log_dir = LogDir(fs, A, CLUSTER, NODE)
    directory_id = lose(fs)
    with pytest.raises(LogLocked):
        identify(fs, A, directory_id, like=B)
    with pytest.raises(StorageError, match=r"meta\.properties is gone.*raylog log-dirs identify"):
        log_dir.close(clean=True)
    log_dir.close(clean=False)
    identify(fs, A, directory_id, like=B)


def test_beside_a_broker_that_has_the_nodes_other_log_dir_nothing_is_written(
    fs: MemoryFileSystem,
) -> None:
    directory_id = lose(fs)
    served = LogDir(fs, B, CLUSTER, NODE)
    with pytest.raises(LogLocked, match=rf"{B} is locked.*raylog stop"):
        identify(fs, A, directory_id, like=B)
    assert read_meta(fs, A) is None
    served.close(clean=True)
    identify(fs, A, directory_id, like=B)


def test_what_is_missing_is_named_as_the_command_takes_it(fs: MemoryFileSystem) -> None:
    with pytest.raises(RepairRefused, match=r"--like DIR.*--cluster-id ID --node-id N"):
        identify(fs, A, lose(fs), cluster_id=CLUSTER)


def test_a_path_that_is_no_folder_is_refused(fs: MemoryFileSystem) -> None:
    with pytest.raises(InvalidLogDir, match="this is no folder"):
        identify(fs, "/disk/none", random_id(), like=B)
