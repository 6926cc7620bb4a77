"""A LogActor without a broker around it: what it says, obeys and refuses, and how it ends.

Most have no LogManager. Where there is one, it is an actor that only writes down what it is told.
"""

import os
import signal
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray

from raylog.actors.control import Confirmed, LogId
from raylog.actors.errors import ConfigUnconfirmed, NotLeader, UnsupportedVersion
from raylog.actors.node_messages import VERSION, LogOrder, LogSays
from raylog.actors.partition.log_actor import OPTIONS, LogActor, LogActorImpl
from raylog.actors.partition.spec import LogSpec
from raylog.actors.runtime.calls import Call
from raylog.actors.runtime.handles import create, kill, running
from raylog.actors.runtime.names import log_actor_name
from raylog.actors.runtime.nodes import own_node, own_node_id
from raylog.storage.clock import SteadyClock
from raylog.storage.config import LogConfig
from raylog.storage.errors import RaylogError, RecordTooLarge, StorageError
from raylog.storage.files import RealFile, RealFileSystem
from raylog.storage.loader import create_log
from raylog.storage.names import TopicPartition
from raylog.storage.records.decode import decode_records
from raylog.storage.records.encode import encode_records
from raylog.storage.state.producers import ProducerExpiration
from raylog.storage.state.properties import random_id
from raylog.storage.testing.logs import batch_of_size
from raylog.storage.testing.waiting import wait_for
from tests.harness.recorders import recording_log_manager

LOG = LogId(partition=TopicPartition("orders", 0), topic_id=random_id())
ANOTHER = LogId(partition=LOG.partition, topic_id=random_id())
DIRECTORY_ID = random_id()
EPOCH = 3
DEADLINE_S = 60.0
SMALL = LogConfig(max_message_bytes=500)
LARGE = 501
HOUR_MS = 3_600_000


class OneLog:
    """A log on the disk, and the LogActors that are made for it, in a namespace of their own."""

    def __init__(self, root: Path) -> None:
        self.namespace = f"log-{uuid.uuid4().hex[:8]}"
        self.folder = root / str(LOG.partition)
        create_log(RealFileSystem(), str(self.folder), LOG.topic_id)
        self.manager: Any = None
        self.actor: Any = None

    def spec(self, **facts: Any) -> LogSpec:
        spec = LogSpec(
            log=LOG,
            directory_id=DIRECTORY_ID,
            folder=str(self.folder),
            config=LogConfig(),
            config_version=1,
            controller_epoch=EPOCH,
            is_clean=False,
            recovery_point=0,
            log_start_offset=0,
            producer_expiration=ProducerExpiration(1000),
            namespace=self.namespace,
            node="",
        )
        return replace(spec, **facts)

    def begin(self, *, actor: Any = LogActor, **facts: Any) -> None:
        """Start the actor; it is ``self.actor``."""
        name = log_actor_name(LOG.partition)
        self.actor = create(actor, name, self.namespace, own_node(), self.spec(**facts))

    def begin_with_manager(self, **facts: Any) -> None:
        """The same, below a LogManager that knows nothing; it is ``self.manager``."""
        self.manager = recording_log_manager(self.namespace)
        self.begin(node=own_node().key, **facts)

    def another(self) -> Any:
        """The handle of a second LogActor for the same folder."""
        return LogActor.remote(self.spec())

    def end(self) -> None:
        for name in running(self.namespace):
            kill(name, self.namespace)
        wait_for(lambda: not running(self.namespace), DEADLINE_S, "all actors have ended")

    def files(self) -> list[str]:
        """What lies beside the folder and in it, without the lock file."""
        names = [path.name for path in self.folder.parent.rglob("*")]
        return sorted(name for name in names if name != ".lock")

    # -- questions ---------------------------------------------------------------------------------

    def ask(self, method: str, *arguments: Any) -> Any:
        return Call(getattr(self.actor, method).remote(*arguments), method).get(DEADLINE_S)

    def says(self) -> LogSays:
        says = self.ask("says")
        assert isinstance(says, LogSays)
        return says

    def wait_until(self, state: str) -> LogSays:
        return wait_until(self.actor, state)

    def append(self, value: bytes = b"x") -> int:
        """One record; returns its offset."""
        return int(self.ask("append", records(value)).base_offset)

    def pid(self) -> int:
        return int(ray.get(self.actor.__ray_call__.remote(lambda _: os.getpid()), timeout=60))

    def kill_process(self) -> None:
        """SIGKILL; returns when Ray has begun the next one."""
        before = self.pid()
        os.kill(before, signal.SIGKILL)

        def is_another() -> bool:
            try:
                return self.pid() != before
            except ray.exceptions.RayError:
                return False

        wait_for(is_another, DEADLINE_S, "another process", poll_s=0.1)


def records(value: bytes = b"x", timestamp_ms: int | None = None) -> bytes:
    when_ms = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
    return bytes(encode_records([(when_ms, None, value, ())]))


def wait_until(actor: Any, state: str) -> LogSays:
    """What an actor says when it has come to a state."""
    said: list[LogSays] = []

    def is_there() -> bool:
        try:
            said.append(Call(actor.says.remote(), "says").get(DEADLINE_S))
        except RaylogError:  # Ray starts it again just now
            return False
        return said[-1].state == state

    wait_for(is_there, DEADLINE_S, f"it is {state}", poll_s=0.05)
    return said[-1]


def order(**facts: Any) -> LogOrder:
    """An order that the actor obeys unless ``facts`` say otherwise."""
    obeyed = LogOrder(
        log=LOG,
        directory_id=DIRECTORY_ID,
        config=SMALL,
        config_version=2,
        controller_epoch=EPOCH,
    )
    return replace(obeyed, **facts)


@pytest.fixture
def log(local_ray: None, tmp_path: Path) -> Iterator[OneLog]:
    made = OneLog(tmp_path)
    yield made
    made.end()


# -- serving ---------------------------------------------------------------------------------------


def test_it_says_what_it_serves_and_is_written_and_read(log: OneLog) -> None:
    log.begin()
    said = log.wait_until("serving")
    assert (said.log, said.directory_id, said.folder) == (LOG, DIRECTORY_ID, str(log.folder))
    assert (said.node_id, said.problem) == (own_node_id(), None)
    assert (said.config, said.config_version) == (LogConfig(), 1)
    assert (said.controller_epoch, said.leader_epoch) == (EPOCH, 0)
    assert log.append(b"one") == 0
    assert log.append(b"two") == 1
    found = decode_records(log.ask("fetch", 0).records)
    assert [record.value for record in found] == [b"one", b"two"]

    def has_told_its_end() -> bool:
        offsets = log.says().offsets
        return offsets is not None and offsets.log_end_offset == 2

    wait_for(has_told_its_end, DEADLINE_S, "it says its log end offset", poll_s=0.05)


def test_its_offsets_are_those_that_its_log_manager_has_read(log: OneLog) -> None:
    log.begin()
    log.wait_until("serving")
    for _ in range(3):
        log.append()
    log.ask("close")
    log.end()
    log.begin(is_clean=True, recovery_point=3, log_start_offset=2)
    assert log.wait_until("serving").offsets == (2, 3, 3, 3)


def test_without_a_log_manager_records_are_deleted_under_its_own_config(log: OneLog) -> None:
    log.begin()
    log.wait_until("serving")
    log.append()
    assert log.ask("delete_records", 1) == 1


# -- orders ----------------------------------------------------------------------------------------


def test_a_newer_config_counts_from_the_next_append_on(log: OneLog) -> None:
    log.begin()
    log.wait_until("serving")
    said = log.ask("reconfigure", order(controller_epoch=EPOCH + 1))
    assert (said.config, said.config_version) == (SMALL, 2)
    assert said.controller_epoch == EPOCH + 1
    assert log.says().config_version == 2
    with pytest.raises(RecordTooLarge):
        log.ask("append", bytes(batch_of_size(LARGE)))


@pytest.mark.parametrize(
    "late",
    [
        {"config_version": 0},
        {"controller_epoch": EPOCH - 1},
        {"controller_epoch": EPOCH - 1, "config_version": 9},
    ],
    ids=["an older config", "an older Controller", "a newer config of an older Controller"],
)
def test_an_order_that_comes_late_changes_nothing(log: OneLog, late: dict[str, Any]) -> None:
    log.begin()
    log.wait_until("serving")
    said = log.ask("reconfigure", order(**late))
    assert (said.config, said.config_version) == (LogConfig(), 1)
    assert log.says().config_version == 1
    log.ask("append", bytes(batch_of_size(LARGE)))


@pytest.mark.parametrize("method", ["reconfigure", "learn"])
@pytest.mark.parametrize(
    "others", [{"log": ANOTHER}, {"directory_id": "another"}], ids=["topic", "log dir"]
)
def test_an_order_for_another_log_is_refused(
    log: OneLog, method: str, others: dict[str, Any]
) -> None:
    log.begin()
    log.wait_until("serving")
    with pytest.raises(NotLeader):
        log.ask(method, order(**others))
    assert log.says().config_version == 1


def test_an_order_of_a_newer_raylog_is_refused_by_name(log: OneLog) -> None:
    log.begin()
    log.wait_until("serving")
    with pytest.raises(UnsupportedVersion):
        log.ask("reconfigure", order(version=VERSION + 1))


# -- a restart by Ray ------------------------------------------------------------------------------


def test_a_restarted_one_serves_nothing_before_it_has_learned_its_config(log: OneLog) -> None:
    log.begin_with_manager()
    log.wait_until("serving")
    log.append(b"0")
    log.kill_process()
    said = log.wait_until("learning")
    assert (said.config, said.leader_epoch, said.offsets) == (None, -1, None)
    for call in (("append", records()), ("fetch", 0), ("offsets",), ("status",)):
        with pytest.raises(NotLeader, match="waits for its LogManager"):
            log.ask(*call)
    said = log.ask("learn", order())
    assert said.state in ("opening", "serving"), "it answers at once"
    said = log.wait_until("serving")
    assert (said.config, said.config_version, said.leader_epoch) == (SMALL, 2, 1)
    with pytest.raises(RecordTooLarge):
        log.ask("append", bytes(batch_of_size(LARGE)))
    assert log.append(b"1") == 1


def test_a_restarted_one_asks_its_log_manager_until_that_knows(log: OneLog) -> None:
    log.begin_with_manager()
    log.wait_until("serving")
    log.kill_process()
    log.wait_until("learning")
    ray.get(log.manager.know.remote(order()), timeout=DEADLINE_S)
    assert log.wait_until("serving").config_version == 2


def test_without_a_log_manager_a_restarted_one_serves_as_before(log: OneLog) -> None:
    log.begin(is_clean=True)
    log.wait_until("serving")
    log.append(b"0")
    log.kill_process()
    said = log.wait_until("serving")
    assert (said.config_version, said.leader_epoch) == (1, 1)
    assert log.append(b"1") == 1


# -- the right to remove ---------------------------------------------------------------------------


def old_segments(log: OneLog) -> None:
    """Two segments of records that are two hours old."""
    old_ms = int(time.time() * 1000) - 2 * HOUR_MS
    for value in (b"0", b"1"):
        log.ask("append", records(value, old_ms))
        log.ask("roll")


def right(version: int = 1, log: LogId = LOG, for_ms: int = 60_000) -> Confirmed:
    return Confirmed(log=log, config_version=version, until_ms=SteadyClock().now_ms() + for_ms)


def test_nothing_is_removed_but_with_the_right_to_the_config_that_it_obeys(log: OneLog) -> None:
    log.begin_with_manager(config=LogConfig(retention_ms=HOUR_MS))
    log.wait_until("serving")
    old_segments(log)
    for wrong in (right(version=2), right(log=ANOTHER), right(for_ms=0)):
        with pytest.raises(ConfigUnconfirmed):
            log.ask("delete_old_segments", wrong)
    assert log.ask("offsets").log_start_offset == 0
    assert log.ask("delete_old_segments", right()).segments == 2
    assert log.ask("offsets").log_start_offset == 2


def test_records_are_deleted_once_its_log_manager_has_the_right(log: OneLog) -> None:
    log.begin_with_manager()
    log.wait_until("serving")
    log.append()
    deleting: Call[int] = Call(log.actor.delete_records.remote(1), "delete_records")
    ray.get(log.manager.confirm.remote(right()), timeout=DEADLINE_S)
    assert deleting.get(DEADLINE_S) == 1


# -- what cannot be opened -------------------------------------------------------------------------


def test_a_second_one_for_the_same_folder_says_that_it_is_locked(log: OneLog) -> None:
    log.begin()
    log.wait_until("serving")
    second = log.another()
    said = wait_until(second, "ended")
    assert type(said.problem).__name__ == "LogLocked"
    with pytest.raises(NotLeader, match="could not be opened"):
        Call(second.append.remote(records()), "append").get(DEADLINE_S)
    assert log.append() == 0, "the first goes on"


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ("missing", "LogMissing"),
        ("another topic's", "LogMissing"),
        ("unreadable", "TopicIdUnreadable"),
    ],
)
def test_a_folder_that_is_not_its_own_is_refused_and_not_touched(
    log: OneLog, damage: str, problem: str
) -> None:
    elsewhere = log.folder.with_name("elsewhere")
    if damage == "unreadable":
        (log.folder / "partition.metadata").write_bytes(b"spoiled")
    else:
        log.folder.rename(elsewhere)
    if damage == "another topic's":
        create_log(RealFileSystem(), str(log.folder), ANOTHER.topic_id)
    before = log.files()
    log.begin()
    said = log.wait_until("ended")
    assert type(said.problem).__name__ == problem
    assert (said.offsets, said.leader_epoch) == (None, -1)
    assert log.files() == before


@pytest.mark.long
@pytest.mark.timeout(180)
def test_one_that_could_not_open_its_log_ends_for_good_after_a_while(log: OneLog) -> None:
    (log.folder / "partition.metadata").write_bytes(b"spoiled")
    log.begin()
    log.wait_until("ended")
    assert running(log.namespace), "its LogManager can still read why"
    wait_for(lambda: not running(log.namespace), 90, "it has ended", poll_s=0.2)


# -- the end ---------------------------------------------------------------------------------------


def test_a_closed_one_gives_the_folder_to_the_next(log: OneLog) -> None:
    log.begin()
    log.wait_until("serving")
    log.append()
    assert log.ask("close") == (0, 1, 1, 1)
    assert log.says().state == "ended"
    with pytest.raises(RaylogError):
        log.append()
    second = log.another()
    assert wait_until(second, "serving").leader_epoch == 1
    ray.kill(second)


class FailingImpl(LogActorImpl):
    """A LogActor whose disk fails each flush while a file ``broken`` lies beside the folder."""

    def __init__(self, spec: LogSpec) -> None:
        flush = RealFile.flush
        broken = Path(spec.folder).with_name("broken")

        def may_fail(file: RealFile) -> None:
            if broken.exists():
                raise StorageError(spec.folder, "Input/output error")
            flush(file)

        RealFile.flush = may_fail  # type: ignore[assignment, method-assign]
        super().__init__(spec)


@pytest.mark.parametrize("is_open", [True, False], ids=["serves", "is opened"])
def test_a_disk_that_fails_is_told_to_the_log_manager_until_it_has_heard(
    log: OneLog, is_open: bool
) -> None:
    broken = log.folder.with_name("broken")
    if not is_open:
        broken.touch()
    log.begin(actor=ray.remote(**OPTIONS)(FailingImpl), node=own_node().key)
    if is_open:
        log.wait_until("serving")
        log.append()
        broken.touch()
        with pytest.raises(StorageError):
            log.ask("flush")
    said = log.wait_until("offline" if is_open else "ended")
    assert isinstance(said.problem, StorageError)
    with pytest.raises(RaylogError):
        log.append()
    manager = recording_log_manager(log.namespace)  # it was away until now
    failures: list[tuple[LogId, StorageError]] = []

    def is_heard() -> bool:
        failures.extend(ray.get(manager.failures.remote(), timeout=DEADLINE_S))
        return bool(failures)

    wait_for(is_heard, DEADLINE_S, "the LogManager has heard", poll_s=0.1)
    failed, error = failures[0]
    assert failed == LOG
    assert "Input/output error" in str(error)
