"""Checkpoint files and the small identity files, to the byte."""

import uuid
from typing import Any

import pytest

from raylog.storage.errors import CorruptCheckpoint, DiskFull
from raylog.storage.files import write_atomically
from raylog.storage.names import TopicPartition
from raylog.storage.state.checkpoints import read_epochs, read_offsets, write_epochs, write_offsets
from raylog.storage.state.properties import (
    MetaProperties,
    id_text,
    id_uuid,
    random_id,
    read_meta,
    read_topic_id,
    write_meta,
    write_topic_id,
)
from raylog.storage.testing.memory import MemoryFileSystem, Stopped

OFFSETS = {TopicPartition("orders", 1): 998, TopicPartition("orders", 0): 10432}


@pytest.fixture
def fs() -> MemoryFileSystem:
    return MemoryFileSystem()


def test_offsets_are_written_as_kafka_does(fs: MemoryFileSystem) -> None:
    write_offsets(fs, "/c", OFFSETS)
    assert fs.read_file("/c") == b"0\n2\norders 0 10432\norders 1 998\n"
    assert read_offsets(fs, "/c") == OFFSETS


def test_epochs_are_written_as_kafka_does(fs: MemoryFileSystem) -> None:
    write_epochs(fs, "/e", [(0, 0), (3, 1520)])
    assert fs.read_file("/e") == b"0\n2\n0 0\n3 1520\n"
    assert read_epochs(fs, "/e") == [(0, 0), (3, 1520)]


@pytest.mark.parametrize("content", [b"", b"0", b"0\n", b"0\n0\n"])
def test_a_checkpoint_without_entries_is_empty(fs: MemoryFileSystem, content: bytes) -> None:
    fs.write_file("/c", content)
    assert read_offsets(fs, "/c") == {}
    assert read_epochs(fs, "/c") == []


def test_a_checkpoint_that_is_not_there_is_empty(fs: MemoryFileSystem) -> None:
    assert read_offsets(fs, "/c") == {}


def test_fields_are_split_at_any_run_of_blanks(fs: MemoryFileSystem) -> None:
    fs.write_file("/c", b"0\r\n1\r\norders \t 0   7\r\n")
    assert read_offsets(fs, "/c") == {TopicPartition("orders", 0): 7}


@pytest.mark.parametrize(
    "content",
    [
        b"1\n0\n",
        b"1\n",
        b"x",
        b"0\n2\norders 0 1\n",
        b"0\n1\norders 0\n",
        b"0\n1\norders 0 1 2\n",
        b"0\n1\norders x 1\n",
        b"0\n1\norders 0 1\n\n",
        b"0\nx\norders 0 1\n",
        b"0\n1\n\xff\xff 0 1\n",
        b"\0" * 40,
    ],
)
def test_a_corrupt_checkpoint_is_named(fs: MemoryFileSystem, content: bytes) -> None:
    fs.write_file("/logs", content)
    with pytest.raises(CorruptCheckpoint, match="/logs: "):
        read_offsets(fs, "/logs")


@pytest.mark.parametrize("epochs", [[(1, 0), (1, 5)], [(2, 0), (1, 5)], [(1, 5), (2, 4)]])
def test_epochs_that_do_not_rise_are_corrupt(
    fs: MemoryFileSystem, epochs: list[tuple[int, int]]
) -> None:
    write_epochs(fs, "/e", epochs)
    with pytest.raises(CorruptCheckpoint, match="must rise"):
        read_epochs(fs, "/e")


def test_a_crash_at_any_moment_leaves_the_old_checkpoint_or_the_new(fs: MemoryFileSystem) -> None:
    write_offsets(fs, "/c", OFFSETS)
    seen = set()
    for stop in range(fs.operations, fs.operations + 8):
        attempt = fs.crash()
        attempt.stop_at(stop - fs.operations)
        try:
            write_offsets(attempt, "/c", {})
        except Stopped:
            pass
        for number in range(20):
            after = attempt.crash("torn", names="torn", seed=number)
            seen.add(len(read_offsets(after, "/c")))
    assert seen == {0, 2}


def test_a_full_disk_leaves_the_old_file_and_nothing_beside_it(fs: MemoryFileSystem) -> None:
    write_atomically(fs, "/c", b"old")
    fs.fail_at(fs.operations + 1, DiskFull)
    with pytest.raises(DiskFull):
        write_atomically(fs, "/c", b"new")
    assert fs.list_dir("/") == ["c"]
    assert fs.read_file("/c") == b"old"


# -- identity --------------------------------------------------------------------------------------

META = MetaProperties("uHx_mWK3Sji2MLBMLyjjfg", 3, "7AYb80xjaRsOgecNp41_gw")


def test_meta_properties_are_kafkas_version_1(fs: MemoryFileSystem) -> None:
    write_meta(fs, "/", META)
    lines = fs.read_file("/meta.properties").decode().splitlines()
    assert [line[:1] for line in lines[:2]] == ["#", "#"]
    assert lines[2:] == [
        "version=1",
        "cluster.id=uHx_mWK3Sji2MLBMLyjjfg",
        "node.id=3",
        "directory.id=7AYb80xjaRsOgecNp41_gw",
    ]
    assert read_meta(fs, "/") == META


def test_a_log_dir_without_meta_properties_has_none(fs: MemoryFileSystem) -> None:
    assert read_meta(fs, "/") is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"version=1\ncluster.id=x\nnode.id=1\n",
        b"version=1\ncluster.id=x\nnode.id=one\ndirectory.id=7AYb80xjaRsOgecNp41_gw\n",
        b"version=1\ncluster.id=x\nnode.id=1\ndirectory.id=short\n",
        b"version=0\nbroker.id=1\n",
        b"\xff\xfe\x00",
    ],
)
def test_corrupt_meta_properties_are_named(fs: MemoryFileSystem, content: bytes) -> None:
    fs.write_file("/meta.properties", content)
    with pytest.raises(CorruptCheckpoint, match=r"meta\.properties"):
        read_meta(fs, "/")


def test_partition_metadata_is_written_as_kafka_does(fs: MemoryFileSystem) -> None:
    write_topic_id(fs, "/", "5eGdu6PVSRS-s9xHKXlyPg")
    assert fs.read_file("/partition.metadata") == b"version: 0\ntopic_id: 5eGdu6PVSRS-s9xHKXlyPg"
    assert read_topic_id(fs, "/") == "5eGdu6PVSRS-s9xHKXlyPg"


def test_a_folder_without_partition_metadata_has_no_topic_id(fs: MemoryFileSystem) -> None:
    assert read_topic_id(fs, "/") is None


@pytest.mark.parametrize(
    "content", [b"", b"version: 0\n", b"version: 0\ntopic_id: x", b"\xff", b"topic_id"]
)
def test_corrupt_partition_metadata_is_named(fs: MemoryFileSystem, content: bytes) -> None:
    fs.write_file("/partition.metadata", content)
    with pytest.raises(CorruptCheckpoint, match=r"partition\.metadata"):
        read_topic_id(fs, "/")


def test_ids_are_uuids_in_kafkas_spelling(monkeypatch: pytest.MonkeyPatch) -> None:
    value = uuid.UUID("b87c7f99-62b7-4a38-b630-b04c2f28e37e")
    assert id_text(value) == "uHx_mWK3Sji2MLBMLyjjfg"
    assert id_uuid("uHx_mWK3Sji2MLBMLyjjfg") == value
    with pytest.raises(ValueError, match="is no id"):  # the last character has four bits too many
        id_uuid("uHx_mWK3Sji2MLBMLyjjfh")
    drawn: list[Any] = [uuid.UUID(int=0xF8 << 120), value]  # the first would begin with a dash
    monkeypatch.setattr("uuid.uuid4", lambda: drawn.pop(0))
    assert random_id() == id_text(value)
