"""The Controller's log: what it replays, and that it does not go on after a failed fsync."""

from functools import partial

import pytest

from raylog.cluster.controller.metadata import (
    Topic,
    producer_ids_record,
    topic_record,
    topic_removed_record,
)
from raylog.cluster.controller.metadata_log import MetadataLog
from raylog.storage.errors import DiskFull, LogMissing, StorageError, UndoFailed
from raylog.storage.log import Log
from raylog.storage.state.properties import MetaProperties, random_id, write_meta
from raylog.storage.testing.clock import ManualClock
from raylog.storage.testing.memory import MemoryFile, MemoryFileSystem

TOPIC = Topic("t", "id", {"retention.ms": -1}, ("dir-a", "dir-b"), version=3)
CLUSTER = random_id()


def opened(fs: MemoryFileSystem) -> MetadataLog:
    return MetadataLog(fs, ManualClock(), "/disk/log")


@pytest.fixture
def fs() -> MemoryFileSystem:
    made = MemoryFileSystem()
    made.make_dir("/disk")
    return made


def test_the_state_is_what_was_appended_after_any_reopening(fs: MemoryFileSystem) -> None:
    log = opened(fs)
    cluster_id = log.state.cluster_id
    log.append(topic_record(TOPIC), topic_record(TOPIC._replace(name="gone")))
    log.append(topic_removed_record("gone"), producer_ids_record(1000))
    log.close()
    state = opened(fs).state
    assert (state.cluster_id, state.topics, state.next_producer_id) == (
        cluster_id,
        {"t": TOPIC},
        1000,
    )


def test_a_topic_of_a_log_without_versions_has_the_first(fs: MemoryFileSystem) -> None:
    log = opened(fs)
    record = topic_record(TOPIC)
    del record["version"]
    log.append(record)
    assert log.state.topics == {"t": TOPIC._replace(version=0)}


def test_after_a_failed_fsync_nothing_is_retried(
    fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(fs)

    def failing(*_: object) -> None:
        raise StorageError("/disk/log", "I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(Log, "flush", failing)
        with pytest.raises(StorageError):
            log.append(topic_record(TOPIC))
    with pytest.raises(StorageError, match="I/O error"):
        log.append(producer_ids_record(1000))
    assert log.state.topics == {}
    assert log.state.next_producer_id == 0
    log.close()


def test_nothing_is_begun_where_a_log_must_be(fs: MemoryFileSystem) -> None:
    with pytest.raises(LogMissing):
        MetadataLog(fs, ManualClock(), "/disk/log", must_exist=True)
    assert not fs.exists("/disk/log")
    opened(fs).close()
    MetadataLog(fs, ManualClock(), "/disk/log", must_exist=True).close()


def test_nothing_is_begun_in_a_log_dir_of_a_cluster(fs: MemoryFileSystem) -> None:
    fs.make_dir("/disk/log")
    write_meta(fs, "/disk/log", MetaProperties(CLUSTER, 1, random_id()))
    with pytest.raises(LogMissing, match=CLUSTER):
        opened(fs)
    assert fs.list_dir("/disk/log") == ["meta.properties"]


def test_it_opens_on_a_full_disk_and_is_written_when_there_is_room(fs: MemoryFileSystem) -> None:
    log = opened(fs)
    log.append(topic_record(TOPIC))
    log.close()
    with fs.failing(DiskFull, "append"):
        again = opened(fs)
        assert again.state.topics == {"t": TOPIC}
        for _ in range(2):
            with pytest.raises(DiskFull):
                again.append(producer_ids_record(1000))
        assert not again.has_failed
    again.append(producer_ids_record(2000))
    again.close()
    assert opened(fs).state.next_producer_id == 2000


def test_after_a_write_that_could_not_be_undone_nothing_is_written_behind_it(
    fs: MemoryFileSystem,
) -> None:
    log = opened(fs)
    torn = partial(UndoFailed, "/disk/log")

    def failing(*_: object) -> None:
        raise torn("the disk is gone")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryFile, "append", failing)
        with pytest.raises(UndoFailed):
            log.append(topic_record(TOPIC))
    assert log.has_failed
    with pytest.raises(UndoFailed):
        log.append(producer_ids_record(1000))
    log.close()
    assert opened(fs).state.topics == {}
