"""The LogActor executes what its life's machine instructs. Without Ray."""

from typing import Any

import pytest

from raylog.actors.errors import ConfigUnconfirmed, NotLeader
from raylog.actors.messages import Configured, Confirmed, OpeningReport, Serving
from raylog.actors.partition import log_actor
from raylog.actors.partition.life import Constructed, Restarted, Tick
from raylog.actors.partition.log_actor import LogActorImpl, LogSpec
from raylog.actors.partition.log_opening import OpenedLog
from raylog.actors.partition.partition import Partition
from raylog.storage.config import LogConfig
from raylog.storage.errors import LogClosed, LogMissing, RaylogError
from raylog.storage.state.producers import ProducerExpiration
from raylog.storage.testing.clock import ManualClock
from raylog.storage.testing.logs import FOLDER, PARTITION, TOPIC_ID, Disk, batch

SPEC = LogSpec(
    partition=PARTITION,
    topic_id=TOPIC_ID,
    folder=FOLDER,
    config=LogConfig(retention_ms=1),
    is_clean=False,
    producer_expiration=ProducerExpiration(1000),
    node="n1",
)
ALTERED = Configured(LogConfig(retention_ms=-1), 2)
MISSING = LogMissing(FOLDER, "the folder does not exist")


class Manager:
    """A LogManager as its LogActor sees it."""

    def __init__(self) -> None:
        self.config: Configured | RaylogError = NotLeader("LogManager:n1", "it hangs")
        self.rights: list[Confirmed | None] = []
        self.asked = 0

    def ask_config(self, timeout_s: float) -> Configured:
        self.asked += 1
        if isinstance(self.config, RaylogError):
            raise self.config
        return self.config

    def confirmed(self) -> Confirmed | None:
        return self.rights.pop(0) if len(self.rights) > 1 else self.rights[0]

    def tell_progress(self, _: Any) -> None:
        raise AssertionError("nothing is recovered here")


class Actor:
    """A LogActor that Ray has started again, on a disk in memory."""

    def __init__(self, patch: pytest.MonkeyPatch, disk: Disk) -> None:
        self.disk, self.manager = disk, Manager()
        self.problem: RaylogError | None = None
        self.opened: list[LogSpec] = []
        self.ended = 0
        patch.setattr(log_actor, "own_node_id", lambda: "here")
        patch.setattr(log_actor, "open_partition", self._open)
        patch.setattr(log_actor, "end_own_actor", self._end)
        self.impl = LogActorImpl.__new__(LogActorImpl)
        self.impl._begin(SPEC, is_restart=True)
        self.clock = ManualClock(0)
        self.impl._clock = self.clock  # type: ignore[assignment]
        self.impl._manager = self.manager  # type: ignore[assignment]

    def _open(self, spec: LogSpec, *_: Any, is_restart: bool) -> OpenedLog:
        assert is_restart
        self.opened.append(spec)
        if self.problem is not None:
            raise self.problem
        partition = Partition(self.disk.open(), self.disk.clock, spec.config_version)
        return OpenedLog(partition, OpeningReport(), self.disk.fs.lock(FOLDER))

    def _end(self) -> None:
        self.ended += 1

    def construct(self) -> None:
        self.impl._handle(Restarted())
        self.impl._handle(Constructed())

    def tick(self) -> None:
        self.clock.advance(10_000)
        self.impl._handle(Tick())


@pytest.fixture
def actor(monkeypatch: pytest.MonkeyPatch, disk: Disk) -> Actor:
    return Actor(monkeypatch, disk)


def test_a_restart_serves_with_the_config_that_it_has_learned(actor: Actor) -> None:
    actor.manager.config = ALTERED
    actor.construct()
    [spec] = actor.opened
    assert (spec.config, spec.config_version) == ALTERED
    assert actor.impl.serving() == Serving(TOPIC_ID, FOLDER, "here", OpeningReport())
    assert actor.impl.append(batch()).base_offset == 0


def test_while_its_log_manager_hangs_every_request_is_refused_and_may_be_retried(
    actor: Actor,
) -> None:
    actor.construct()
    right = Confirmed(TOPIC_ID, 2, 10**12)
    refused: list[Any] = [
        lambda: actor.impl.append(batch()),
        lambda: actor.impl.fetch(0),
        lambda: actor.impl.offsets(),
        lambda: actor.impl.serving(),
        lambda: actor.impl.delete_old_segments(right),
        lambda: actor.impl.delete_records(0),
        lambda: actor.impl.close(),
    ]
    for call in refused:
        with pytest.raises(NotLeader, match=r"waits for its LogManager .*present config.*hangs"):
            call()
    assert (actor.opened, actor.manager.asked) == ([], 1)
    actor.tick()
    assert (actor.opened, actor.manager.asked) == ([], 2)
    actor.manager.config = ALTERED
    actor.tick()
    assert actor.impl.append(batch()).base_offset == 0


def test_a_log_manager_that_opens_it_need_not_be_asked(actor: Actor) -> None:
    actor.construct()
    serving = actor.impl.learn(*ALTERED)
    assert serving is not None
    assert serving.topic_id == TOPIC_ID
    assert actor.impl.learn(LogConfig(), 0) == serving, "it learns once"
    assert [spec.config_version for spec in actor.opened] == [2]


def test_what_keeps_the_log_from_being_opened_is_raised_while_the_constructor_runs(
    actor: Actor,
) -> None:
    actor.manager.config, actor.problem = ALTERED, MISSING
    with pytest.raises(LogMissing):
        actor.construct()
    assert actor.ended == 0


def test_later_it_ends_the_actor_for_good(actor: Actor) -> None:
    actor.construct()
    actor.problem = MISSING
    with pytest.raises(NotLeader, match="does not exist"):
        actor.impl.learn(*ALTERED)
    assert actor.ended == 1
    actor.tick()
    assert actor.ended == 2, "until it has ended"


def test_records_are_deleted_once_the_config_is_confirmed(
    actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    actor.manager.config = ALTERED
    actor.construct()
    actor.impl.append(batch())
    older, right = Confirmed(TOPIC_ID, 1, 10**12), Confirmed(TOPIC_ID, 2, 10**12)
    pauses: list[float] = []

    def later(seconds: float) -> None:
        pauses.append(seconds)
        actor.impl.append(batch())  # what comes meanwhile stays

    monkeypatch.setattr("time.sleep", later)
    actor.manager.rights = [None, older, right]
    assert actor.impl.delete_records(-1) == 1
    assert len(pauses) == 2
    monkeypatch.setattr(log_actor, "CONFIRMATION_PATIENCE_S", 0)
    actor.manager.rights = [None]
    with pytest.raises(ConfigUnconfirmed):
        actor.impl.delete_records(2)
    actor.impl._spec = SPEC._replace(node="")  # without a LogManager nobody else has a config
    assert actor.impl.delete_records(2) == 2


def test_the_upkeep_actors_right_is_compared_with_what_the_log_obeys(actor: Actor) -> None:
    actor.manager.config = ALTERED
    actor.construct()
    right = Confirmed(TOPIC_ID, 2, until_ms=5)
    assert actor.impl.delete_old_segments(right).segments == 0
    with pytest.raises(ConfigUnconfirmed):
        actor.impl.delete_old_segments(right._replace(version=1))
    view = actor.impl.cleaning_view(right)
    actor.clock.advance(5)
    with pytest.raises(ConfigUnconfirmed):
        actor.impl.cleaning_view(right)
    assert actor.impl.reconfigure(LogConfig(cleanup_policy="compact"), 3) == 3
    with pytest.raises(RaylogError, match="config has changed"):
        actor.impl.replace_segments([], view.round_id, right)


def test_after_an_orderly_end_it_serves_nothing_and_looks_after_nothing(actor: Actor) -> None:
    actor.manager.config = ALTERED
    actor.construct()
    assert actor.impl.close().log_end_offset == 0
    assert actor.impl.serving() is None
    assert actor.impl._life.state == "ended"
    actor.tick()
    with pytest.raises(LogClosed):
        actor.impl.append(batch())
