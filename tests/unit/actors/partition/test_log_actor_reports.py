"""A LogActor's word to its LogManager of a disk that failed: whatever Ray answers, the actor's
upkeep goes on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray

from raylog.actors.messages import OpeningReport
from raylog.actors.partition import log_actor
from raylog.actors.partition.life import Created, Opened, Tick
from raylog.actors.partition.log_actor import LogActorImpl, LogSpec
from raylog.actors.partition.log_opening import OpenedLog, _offset_in_checkpoint
from raylog.actors.partition.manager_link import ManagerLink
from raylog.actors.partition.partition import Partition
from raylog.storage.config import LogConfig
from raylog.storage.errors import DiskFull, StorageError
from raylog.storage.state.checkpoints import LOG_START_OFFSETS, RECOVERY_POINTS
from raylog.storage.state.producers import ProducerExpiration
from raylog.storage.testing.logs import FOLDER, PARTITION, TOPIC_ID, Disk, batch

SPEC = LogSpec(
    partition=PARTITION,
    topic_id=TOPIC_ID,
    folder=FOLDER,
    config=LogConfig(),
    is_clean=False,
    producer_expiration=ProducerExpiration(1000),
    node="n1",
)
FAILURE = StorageError(FOLDER, "Input/output error")


def failing(*_: Any) -> Any:
    raise RuntimeError("the GCS does not answer")


class LogManager:
    """A handle's one method, which answers at once."""

    def __init__(self) -> None:
        self.reports: list[Any] = []
        self.failed = self

    def remote(self, *arguments: Any) -> None:
        self.reports.append(arguments)


class Ended(BaseException):
    """In the place of the process's end."""


def actor_of(partition: Partition) -> LogActorImpl:
    """An actor that serves."""
    actor = LogActorImpl.__new__(LogActorImpl)
    actor._begin(SPEC, is_restart=False)
    actor._opened = OpenedLog(partition, OpeningReport(), Disk().fs.lock("/"))
    for event in (Created(), Opened()):
        actor._life.handle(event, 0)
    return actor


def failed_partition(error: Callable[[str], StorageError]) -> Partition:
    disk = Disk()
    partition = Partition(disk.open(), disk.clock)
    partition.append(batch())
    with disk.fs.failing(error, "flush"), pytest.raises(StorageError):
        partition.flush()
    return partition


@pytest.fixture
def log_manager(monkeypatch: pytest.MonkeyPatch) -> LogManager:
    manager = LogManager()
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "get_actor", lambda *_, **__: manager)
    monkeypatch.setattr(ray, "get", lambda *_, **__: None)
    return manager


@pytest.mark.parametrize("broken", ["get_actor", "get"])
def test_an_error_of_rays_own_is_a_report_that_was_not_heard(
    broken: str, log_manager: LogManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, broken, failing)
    assert not ManagerLink(SPEC).report(FAILURE)


def test_a_failure_is_reported_until_it_is_heard_and_the_log_says_it_once(
    log_manager: LogManager, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    actor = actor_of(failed_partition(lambda path: StorageError(path, "Input/output error")))
    with monkeypatch.context() as patch, caplog.at_level("WARNING"):
        patch.setattr(ray, "is_initialized", lambda: True)
        patch.setattr(ray, "get_actor", failing)
        for _ in range(3):
            actor._handle(Tick())
    assert len(caplog.records) == 1
    for _ in range(2):
        actor._handle(Tick())
    assert len(log_manager.reports) == 1


def test_a_partition_that_is_offline_for_no_disks_fault_ends_its_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    actor = actor_of(failed_partition(DiskFull))
    assert actor._partition.is_stuck

    def end() -> None:
        raise Ended

    monkeypatch.setattr(log_actor, "_exit", end)
    monkeypatch.setattr(log_actor, "UPKEEP_INTERVAL_S", 0)
    with pytest.raises(Ended):
        actor._keep_up()


def test_of_a_damaged_checkpoint_of_log_starts_the_whole_lines_are_used(tmp_path: Path) -> None:
    for name in (LOG_START_OFFSETS, RECOVERY_POINTS):
        (tmp_path / name).write_text(f"0\n9\n{PARTITION.topic} {PARTITION.partition} 4\n")
    assert _offset_in_checkpoint(str(tmp_path), LOG_START_OFFSETS, PARTITION) == 4
    assert _offset_in_checkpoint(str(tmp_path), RECOVERY_POINTS, PARTITION) == 0
