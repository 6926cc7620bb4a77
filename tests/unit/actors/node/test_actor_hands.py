"""Each instruction for a LogActor ends with one Finished, whatever happens."""

import threading
from collections.abc import Callable
from queue import SimpleQueue

import pytest

from raylog.actors.control import LogId
from raylog.actors.errors import NotLeader, WorkFailed
from raylog.actors.node.actor_hands import SETTLE_S, STARTS_AT_ONCE, ActorHands
from raylog.actors.node.events import Event, Finished, Served
from raylog.actors.node.instructions import Configure, EndLog, KillActor, StartLog
from raylog.actors.node.log_actors import served_of
from raylog.actors.node.log_start import END_PATIENCE_S, NodeFacts
from raylog.actors.partition.spec import LogSpec
from raylog.storage.config import LogConfig
from raylog.storage.errors import CorruptCheckpoint, LogMissing
from raylog.storage.names import TopicPartition
from raylog.storage.state.producers import ProducerExpiration
from raylog.storage.testing.waiting import wait_for
from tests.harness.log_actors import (
    ELSEWHERE,
    HERE,
    ORDERS,
    OTHERS,
    A,
    B,
    FakeDisk,
    FakeLog,
    FakeLogActors,
    QuickTimer,
    says,
    through,
)

PARTITION = ORDERS.partition


class Hands:
    """Hands over actors without Ray, and what they told."""

    def __init__(
        self, actors: FakeLogActors | None = None, timer: QuickTimer | None = None
    ) -> None:
        self.actors, self.disk = actors or FakeLogActors(), FakeDisk()
        self.timer = timer or QuickTimer()
        self.told: SimpleQueue[Event] = SimpleQueue()
        self.hands = self.made(self.told.put)

    def made(self, tell: Callable[[Event], object]) -> ActorHands:
        return ActorHands(
            self.actors,
            self.disk,
            NodeFacts(
                namespace="raylog",
                node="n1",
                node_id=HERE,
                producer_expiration=ProducerExpiration(after_ms=86_400_000),
            ),
            controller_epoch=lambda: 4,
            tell=tell,
            timer=self.timer,
        )

    def finished(self) -> Finished:
        event = self.told.get(timeout=10)
        assert isinstance(event, Finished)
        return event

    def start(self, token: int = 1, log: LogId = ORDERS, directory_id: str = A) -> None:
        self.hands.carry_out(
            StartLog(
                token=token,
                log=log,
                directory_id=directory_id,
                config=LogConfig(),
                config_version=0,
                is_clean=False,
                is_first=True,
            )
        )


def test_a_log_is_started_configured_and_ended() -> None:
    node = Hands()
    node.start()
    first = node.finished()
    assert isinstance(first.result, Served)
    node.hands.carry_out(Configure(token=2, log=ORDERS, config=LogConfig(), config_version=3))
    second = node.finished()
    assert isinstance(second.result, Served)
    assert (second.token, second.result.config_version) == (2, 3)
    node.hands.carry_out(EndLog(token=3, log=ORDERS))
    assert node.finished() == Finished(token=3)
    assert node.actors.living == {}
    assert node.disk.calls[-1] == ("offsets", ORDERS)


def test_a_log_that_is_not_served_here_is_not_configured() -> None:
    node = Hands()
    node.hands.carry_out(Configure(token=2, log=ORDERS, config=LogConfig(), config_version=3))
    assert isinstance(node.finished().error, NotLeader)


def test_an_adopted_log_is_configured() -> None:
    node = Hands()
    node.actors.living[PARTITION] = FakeLog(said=says())
    node.hands.adopt([served_of(says())])
    assert ("opened", PARTITION) in node.disk.calls, "it is not waited for at the start"
    node.hands.carry_out(Configure(token=2, log=ORDERS, config=LogConfig(), config_version=3))
    assert node.finished().error is None
    assert node.hands.touched() == {ORDERS}


def test_what_is_gone_is_ended_already() -> None:
    node = Hands()
    node.hands.carry_out(EndLog(token=1, log=ORDERS))
    node.hands.carry_out(KillActor(token=2, partition=PARTITION))
    finished = sorted((node.finished() for _ in range(2)), key=lambda event: event.token)
    assert finished == [Finished(token=1), Finished(token=2)]


@pytest.mark.parametrize("other", [None, OTHERS])
def test_the_end_of_a_move_is_an_error_where_no_actor_has_closed_the_log(
    other: LogId | None,
) -> None:
    """It died, and the copy would be opened as clean: what it has half written would stay."""
    node = Hands()
    if other is not None:
        node.actors.living[PARTITION] = FakeLog(said=says(other))
    node.hands.carry_out(EndLog(token=1, log=ORDERS, must_close=True))
    assert isinstance(node.finished().error, NotLeader)


def test_another_logs_actor_is_not_closed() -> None:
    node = Hands()
    node.actors.living[PARTITION] = FakeLog(said=says(OTHERS))
    node.hands.carry_out(EndLog(token=1, log=ORDERS))
    assert node.finished() == Finished(token=1)
    assert node.actors.killed == []


def test_a_log_that_cannot_be_closed_is_an_error_and_its_actor_may_live() -> None:
    node = Hands()
    failure = LogMissing("/dir-a/orders-0", "it is gone")
    node.actors.living[PARTITION] = FakeLog(said=says(), close_error=failure)
    node.hands.carry_out(EndLog(token=1, log=ORDERS))
    assert node.finished() == Finished(token=1, error=failure)
    assert node.actors.killed == []


def test_an_actor_of_another_node_is_not_killed() -> None:
    node = Hands()
    node.actors.living[PARTITION] = FakeLog(said=says(node_id=ELSEWHERE))
    node.hands.carry_out(KillActor(token=1, partition=PARTITION))
    assert node.finished() == Finished(token=1)
    assert node.actors.killed == []


def test_an_actor_that_does_not_end_is_an_error() -> None:
    node = Hands()
    node.actors.living[PARTITION] = FakeLog(said=says())
    node.actors.immortal.add(PARTITION)
    node.hands.carry_out(KillActor(token=1, partition=PARTITION))
    assert isinstance(node.finished().error, NotLeader)


def test_a_process_that_stands_still_is_ended_after_a_while() -> None:
    """Ray has let its name go. It would go on to write, to a disk that is taken out."""
    node = Hands()
    node.actors.living[PARTITION] = FakeLog(said=says(), is_silent=True)
    node.actors.standing_still.add(PARTITION)
    node.hands.carry_out(KillActor(token=1, partition=PARTITION))
    assert node.finished() == Finished(token=1)
    assert node.actors.standing_still == set()
    assert node.timer.now_s() >= END_PATIENCE_S


def test_a_process_that_cannot_be_ended_is_remembered_until_it_has_ended() -> None:
    node = Hands()
    node.actors.living[PARTITION] = FakeLog(said=says(), is_silent=True)
    node.actors.standing_still.add(PARTITION)
    node.actors.waits_for_disk = True
    node.hands.carry_out(KillActor(token=1, partition=PARTITION))
    error = node.finished().error
    assert isinstance(error, NotLeader)
    assert "process 4711 of its previous LogActor has not ended" in str(error)
    assert PARTITION not in node.actors.living, "its name is free"
    node.hands.carry_out(KillActor(token=2, partition=PARTITION))
    assert isinstance(node.finished().error, NotLeader)
    node.actors.standing_still.clear()
    node.hands.carry_out(KillActor(token=3, partition=PARTITION))
    assert node.finished() == Finished(token=3)


def test_the_process_of_a_log_that_was_closed_is_not_waited_for() -> None:
    node = Hands()
    node.start()
    node.finished()
    node.actors.standing_still.add(PARTITION)
    node.hands.carry_out(EndLog(token=3, log=ORDERS))
    assert node.finished() == Finished(token=3)


def test_a_kill_ends_an_opening_that_is_under_way() -> None:
    node = Hands()
    node.actors.next = [through("opening")]
    node.start(token=1)
    wait_for(lambda: PARTITION in node.actors.living)
    node.hands.carry_out(KillActor(token=2, partition=PARTITION))
    finished = {event.token: event.error for event in (node.finished(), node.finished())}
    assert isinstance(finished[1], NotLeader)
    assert finished[2] is None
    assert node.actors.living == {}
    assert len(node.actors.made) == 1


def test_an_error_that_nobody_is_prepared_for_is_a_failed_work() -> None:
    node = Hands()

    def broken(spec: LogSpec) -> FakeLog:
        raise ZeroDivisionError("a mistake of ours")

    node.actors.next = [broken]
    node.start()
    error = node.finished().error
    assert isinstance(error, WorkFailed)
    assert "a mistake of ours" in str(error)


def test_a_log_that_was_refused_unchanged_is_as_an_orderly_stop_left_it() -> None:
    node = Hands()
    corrupt = CorruptCheckpoint("/dir-a/recovery-point-offset-checkpoint", "it is short")
    node.actors.next = [through("ended", problem=corrupt)]
    node.start()
    assert node.finished().error == corrupt
    assert node.hands.touched() == set()
    node.start()
    node.finished()
    assert node.hands.touched() == {ORDERS}


def test_a_log_that_may_have_been_written_to_before_it_was_refused_is_touched() -> None:
    corrupt = CorruptCheckpoint("/dir-a/recovery-point-offset-checkpoint", "it is short")
    node = Hands()
    node.actors.next = [through("ended"), through("ended", problem=corrupt)]
    node.start(token=1)
    assert node.finished().error == corrupt
    assert node.hands.touched() == {ORDERS}, "the first actor may have served it"
    again = Hands()
    again.start(token=1)
    again.finished()
    again.hands.carry_out(KillActor(token=2, partition=PARTITION))
    again.finished()
    again.actors.next = [through("ended", problem=corrupt)]
    again.start(token=3)
    assert again.finished().error == corrupt
    assert again.hands.touched() == {ORDERS}, "it was served before"


def test_the_end_cancels_what_is_under_way_and_names_it() -> None:
    node = Hands()
    node.actors.next = [through("opening")]
    node.start()
    wait_for(lambda: PARTITION in node.actors.living)
    assert node.hands.stop() == {PARTITION}
    assert isinstance(node.finished().error, NotLeader)
    assert node.actors.killed == []  # the LogManager ends it


class OpensMeanwhile(QuickTimer):
    """A start goes on when the end waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_ending = threading.Event()

    def wait(self, ended: threading.Event, seconds: float) -> bool:
        if seconds != SETTLE_S:
            return self.is_ending.wait(10) and ended.is_set()
        self.is_ending.set()
        return ended.wait(10)


def test_the_end_waits_for_an_opening_that_takes_moments() -> None:
    """Else its actor is killed, and the stop of the broker counts as not clean."""
    node = Hands(timer=OpensMeanwhile())
    node.actors.next = [through("opening", "serving")]
    node.start()
    wait_for(lambda: PARTITION in node.actors.living)
    assert node.hands.stop() == set()
    assert isinstance(node.finished().result, Served)


def test_the_end_misses_no_start_that_ends_at_that_moment() -> None:
    """It is told before the end returns, or named by it: else nobody closes that log."""
    node = Hands()
    stopped: list[set[TopicPartition]] = []
    told = threading.Event()

    def tell(event: Event) -> None:
        stopper = threading.Thread(target=lambda: stopped.append(node.hands.stop()))
        stopper.start()
        stopper.join(10)
        node.told.put(event)
        told.set()

    node.hands = node.made(tell)
    node.start()
    assert told.wait(10)
    assert stopped == [{PARTITION}]


def test_after_the_end_nothing_is_begun() -> None:
    node = Hands()
    node.hands.stop()
    node.start()
    assert isinstance(node.finished().error, NotLeader)
    assert node.actors.made == []


def test_nothing_is_kept_of_a_log_that_is_gone() -> None:
    node = Hands()
    node.start()
    node.finished()
    node.hands.forget(ORDERS)
    assert node.hands.touched() == set()
    node.hands.carry_out(Configure(token=2, log=ORDERS, config=LogConfig(), config_version=3))
    assert isinstance(node.finished().error, NotLeader), "nor its home"


class GatedActors(FakeLogActors):
    """Whose start waits for a gate."""

    def __init__(self, gate: threading.Event) -> None:
        super().__init__()
        self.began = threading.Event()
        self._gate = gate

    def start(self, spec: LogSpec) -> None:
        self.began.set()
        assert self._gate.wait(10)
        super().start(spec)


def test_a_kill_waits_until_an_actor_is_started_and_ends_that() -> None:
    gate = threading.Event()
    actors = GatedActors(gate)
    node = Hands(actors)
    node.start(token=1)
    assert actors.began.wait(10)
    node.hands.carry_out(KillActor(token=2, partition=PARTITION))
    gate.set()
    tokens = {node.finished().token, node.finished().token}
    assert tokens == {1, 2}
    assert actors.living == {}


class HangingStarts(FakeLogActors):
    """Whose actors of the topic ``hangs`` do not start before the gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()

    def start(self, spec: LogSpec) -> None:
        if spec.partition.topic == "hangs":
            assert self.gate.wait(10)
        super().start(spec)


def test_the_logs_of_a_disk_that_hangs_do_not_hold_up_those_of_another() -> None:
    actors = HangingStarts()
    node = Hands(actors)
    for number in range(STARTS_AT_ONCE + 1):
        log = LogId(partition=TopicPartition("hangs", number), topic_id="id-hangs")
        node.start(token=number, log=log)
    node.start(token=1000, directory_id=B)
    assert node.finished().token == 1000
    actors.gate.set()
    assert {node.finished().token for _ in range(STARTS_AT_ONCE + 1)} == {*range(65)}
