"""What opening did is told once for each thing, and progress at most each few seconds."""

import logging
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import pytest

from raylog.actors.control import LogId
from raylog.actors.messages import AsideFile, MendedTotal
from raylog.actors.partition import log_opening, manager_link, opening
from raylog.actors.partition.log_opening import OpenedLog, open_partition
from raylog.actors.partition.manager_link import ManagerLink
from raylog.actors.partition.opening import (
    LISTED_AT_MOST,
    PROGRESS_INTERVAL_MS,
    ProgressTeller,
    asides_in,
    log_mended,
    report_of,
)
from raylog.actors.partition.spec import LogSpec
from raylog.actors.runtime.stubs import LogManagerStub
from raylog.storage.config import LogConfig
from raylog.storage.errors import LogShorterThanFlushed
from raylog.storage.files import RealFileSystem
from raylog.storage.names import TopicPartition
from raylog.storage.records.layout import HEADER_SIZE
from raylog.storage.report import Mended, Progress
from raylog.storage.state.producers import ProducerExpiration
from raylog.storage.testing.clock import ManualClock
from raylog.storage.testing.logs import FOLDER, TOPIC_ID, Disk, batch, flip
from tests.harness.futures import future_of, futures_are_references
from tests.harness.real_dirs import PARTITION, append, make, start

NAME = "00000000000000000042.log.aside-0"
OF_FIRST = "00000000000000000000.log.aside-0"
KEPT = Mended("set_aside", "00000000000000000042.log", 100, 42, 50, "a gap before it", NAME)
REBUILT = Mended("rebuilt", "00000000000000000000.index", 8, -1, -1, "it was missing")


def test_a_report_lists_what_may_hold_records_and_counts_everything() -> None:
    report = report_of([REBUILT] * 3000 + [KEPT] * 30, [AsideFile(NAME, 100)])
    assert report.records == (KEPT,) * LISTED_AT_MOST
    assert report.totals == (
        MendedTotal("set_aside", 30, 3000),
        MendedTotal("rebuilt", 3000, 24_000),
    )
    assert report.asides == (AsideFile(NAME, 100),)


def test_each_thing_that_opening_did_is_one_event_and_a_warning_where_records_left_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        log_mended("t-0", [KEPT, REBUILT])
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    first: object = caplog.records[0].msg
    assert first == {"event": "log-mended", "partition": "t-0", **KEPT._asdict()}


def aside_of(disk: Disk, content: bytes) -> AsideFile:
    disk.write(OF_FIRST, content)
    (aside,) = asides_in(disk.fs, FOLDER)
    return aside


def test_an_aside_is_told_with_its_offsets_or_as_a_write_that_was_not_finished() -> None:
    disk = Disk()
    log = disk.open()
    log.append(batch(count=3))
    log.close()
    whole = disk.read("00000000000000000000.log")
    assert aside_of(disk, whole) == AsideFile(OF_FIRST, len(whole), 0, 3, is_in_log=True)
    for size_bytes in (1, HEADER_SIZE - 1, HEADER_SIZE, len(whole) - 1):
        assert aside_of(disk, whole[:size_bytes]) == AsideFile(
            OF_FIRST, size_bytes, is_unfinished=True
        )
    damaged = flip(len(whole) - 1)(whole)
    assert aside_of(disk, damaged) == AsideFile(OF_FIRST, len(whole)), (
        "it may have been acknowledged"
    )
    assert aside_of(disk, b"x" * 100) == AsideFile(OF_FIRST, 100)


def test_asides_that_take_long_to_read_are_told_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk()
    disk.write(NAME, b"x" * 10)
    monkeypatch.setattr(opening, "LOOKED_INTO_BYTES", 9)
    assert asides_in(disk.fs, FOLDER) == [AsideFile(NAME, 10)]


def test_progress_is_told_at_most_once_in_an_interval_and_not_of_a_short_recovery() -> None:
    clock, told = ManualClock(), list[Progress]()
    teller = ProgressTeller("t-0", clock, told.append)
    for done in range(10):
        teller(Progress(done, 10, 0, 1))
        clock.advance(PROGRESS_INTERVAL_MS // 10)
    assert told == []
    assert not teller.has_told
    for done in range(30):
        teller(Progress(done, 30, 0, 1))
        clock.advance(PROGRESS_INTERVAL_MS // 10)
    assert [progress.bytes_done for progress in told] == [0, 10, 20]
    assert teller.has_told


def test_a_clock_that_was_set_back_does_not_silence_it() -> None:
    clock, told = ManualClock(), list[Progress]()
    teller = ProgressTeller("t-0", clock, told.append)
    clock.advance(-3_600_000)
    teller(Progress(1, 10, 0, 1))
    assert len(told) == 1


class LogManager:
    """A handle that hears of recoveries."""

    def __init__(self) -> None:
        self.heard: list[Progress | None] = []
        self.recovering = SimpleNamespace(remote=self._hear)

    def _hear(self, partition: TopicPartition, progress: Progress | None) -> "Future[None]":
        assert partition == PARTITION
        self.heard.append(progress)
        return future_of(None)


def opening_of(folder: Path, patch: pytest.MonkeyPatch, manager: LogManager) -> LogSpec:
    """What a LogActor is told that opens this folder, and is in no hurry."""
    futures_are_references(patch)
    patch.setattr(opening, "PROGRESS_INTERVAL_MS", 0)
    patch.setattr(manager_link, "find_log_manager", lambda *_: LogManagerStub(manager, "n1"))
    return LogSpec(
        log=LogId(partition=PARTITION, topic_id=TOPIC_ID),
        directory_id="dir",
        folder=str(folder),
        config=LogConfig(),
        is_clean=False,
        producer_expiration=ProducerExpiration(1000),
        node="n1",
    )


def opened(spec: LogSpec) -> OpenedLog:
    return open_partition(spec, ManagerLink(spec).tell_progress, is_restart=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A partition of one segment with ten batches."""
    log_dir = start(tmp_path / "logs")
    log = make(log_dir)
    append(log, 10)
    log.close()
    log_dir.close(clean=False)
    return tmp_path / "logs" / str(PARTITION)


def test_a_log_actor_tells_its_log_manager_of_progress_and_of_the_end(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = LogManager()
    spec = opening_of(folder, monkeypatch, manager)
    partition, report, lock = opened(spec)
    assert partition.log.log_end_offset == 10
    assert manager.heard == [Progress(1000, 1000, 1, 1), None]
    assert report.asides == ()
    lock.release()


def test_an_opening_that_fails_has_an_end_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, progress: Callable[[Progress], None], **__: object) -> None:
        progress(Progress(1, 10, 0, 1))
        raise LogShorterThanFlushed(str(folder), 5, 7)

    manager = LogManager()
    spec = opening_of(folder, monkeypatch, manager)
    monkeypatch.setattr(log_opening, "open_log", failing)
    with pytest.raises(LogShorterThanFlushed):
        opened(spec)
    assert manager.heard == [Progress(1, 10, 0, 1), None]
    RealFileSystem().lock(spec.folder).release()


def test_a_log_manager_that_cannot_be_told_does_not_stop_a_recovery(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise RuntimeError("the GCS does not answer")

    spec = opening_of(folder, monkeypatch, LogManager())
    monkeypatch.setattr(manager_link, "find_log_manager", failing)
    assert opened(spec).partition.log.log_end_offset == 10
