"""How a log's actor is started, or found, until it serves."""

import pytest

from raylog.actors.control import LogId
from raylog.actors.errors import NotLeader, RequestTimedOut
from raylog.actors.listeners import ON_LOOPBACK, Listener
from raylog.actors.messages import MendedTotal, OpeningReport
from raylog.actors.node.instructions import StartLog
from raylog.actors.node.log_start import Effort, LogStart, NodeFacts
from raylog.actors.node_messages import LifeState
from raylog.storage.config import LogConfig
from raylog.storage.errors import LogMissing
from raylog.storage.state.producers import ProducerExpiration
from tests.harness.log_actors import (
    AWAY,
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
    folder_of,
    says,
    through,
)

PARTITION = ORDERS.partition
LISTENERS = (ON_LOOPBACK, Listener(name="OTHER", distance=1_000), Listener(name="THIRD"))
FACTS = NodeFacts(
    namespace="raylog",
    listeners=LISTENERS,
    node="n1",
    node_id=HERE,
    producer_expiration=ProducerExpiration(after_ms=86_400_000),
)
MISSING = LogMissing("/dir-a/orders-0", "it is gone")


class Start:
    """A StartLog of orders-0, carried out."""

    def __init__(self, *, is_clean: bool = True, version: int = 2) -> None:
        self.actors, self.disk, self.timer = FakeLogActors(), FakeDisk(), QuickTimer()
        self.effort = Effort(token=1, partition=PARTITION)
        self.work = StartLog(
            token=1,
            log=ORDERS,
            directory_id=A,
            config=LogConfig(),
            config_version=version,
            is_clean=is_clean,
            is_first=True,
        )

    def lives(self, log: FakeLog) -> "Start":
        self.actors.living[PARTITION] = log
        return self

    def run(self) -> int:
        """Returns the config version that is served."""
        start = LogStart(
            self.work,
            self.effort,
            actors=self.actors,
            disk=self.disk,
            facts=FACTS,
            timer=self.timer,
            controller_epoch=4,
        )
        served = start.run()
        assert (served.log, served.directory_id, served.log_end_offset) == (ORDERS, A, 7)
        return served.config_version


def test_an_actor_is_made_with_all_that_it_must_know() -> None:
    start = Start()
    assert start.run() == 2
    (spec,) = start.actors.made
    assert (spec.log, spec.directory_id, spec.folder) == (ORDERS, A, folder_of(A, PARTITION))
    assert (spec.is_clean, spec.recovery_point, spec.log_start_offset) == (True, 3, 1)
    assert (spec.namespace, spec.node, spec.controller_epoch) == ("raylog", "n1", 4)
    assert (spec.listener, *spec.further_listeners) == LISTENERS
    assert start.disk.calls == [("began", ORDERS), ("offsets", ORDERS)]


def test_an_opening_may_take_hours() -> None:
    start = Start()
    hours: list[LifeState] = ["opening"] * 20_000
    start.actors.next = [through(*hours, "serving")]
    start.run()
    assert start.timer.now_s() > 4 * 3600


def test_an_actor_that_lives_here_is_kept_and_told_a_newer_config() -> None:
    start = Start().lives(FakeLog(said=says(config_version=1)))
    assert start.run() == 2
    assert start.actors.made == []


def test_an_actor_with_a_newer_config_keeps_it() -> None:
    assert Start().lives(FakeLog(said=says(config_version=5))).run() == 5


def test_an_actor_that_waits_for_its_config_is_told() -> None:
    start = Start().lives(FakeLog(said=says(), states=["learning"]))
    assert start.run() == 2
    assert [order.config_version for order in start.actors.learned] == [2]
    assert start.actors.killed == []


@pytest.mark.parametrize(
    "said", [says(OTHERS), says(directory_id=B), says(folder="/elsewhere"), says(node_id=AWAY)]
)
def test_an_actor_that_serves_something_else_is_replaced_and_not_believed_clean(
    said: object,
) -> None:
    start = Start().lives(FakeLog(said=said))  # type: ignore[arg-type]
    start.run()
    assert start.actors.killed == [PARTITION]
    assert [spec.is_clean for spec in start.actors.made] == [False]


def test_an_actor_of_another_node_that_is_up_is_left_alone() -> None:
    start = Start().lives(FakeLog(said=says(node_id=ELSEWHERE)))
    with pytest.raises(NotLeader, match="another node"):
        start.run()
    assert start.actors.killed == []


def test_an_actor_of_another_node_is_left_alone_while_it_learns_to_serve_this_log() -> None:
    start = Start().lives(FakeLog(said=says(node_id=ELSEWHERE), states=["learning"]))
    with pytest.raises(NotLeader, match="another node"):
        start.run()
    assert start.actors.killed == []


def test_one_that_waits_elsewhere_for_another_topics_log_is_replaced() -> None:
    """Its topic was deleted while Ray started it again: nobody orders anything of it any more."""
    gone = LogId(partition=PARTITION, topic_id="another")
    start = Start().lives(FakeLog(said=says(gone, node_id=ELSEWHERE), states=["learning"]))
    start.run()
    assert start.actors.killed == [PARTITION]


def test_an_actor_of_a_node_that_is_away_is_replaced_after_ten_seconds() -> None:
    start = Start().lives(FakeLog(said=says(node_id=AWAY), is_silent=True))
    start.run()
    assert 10 <= start.timer.now_s() < 15


def test_an_actor_that_does_not_end_is_given_up_after_thirty_seconds() -> None:
    start = Start().lives(FakeLog(said=says(node_id=AWAY)))
    start.actors.immortal.add(PARTITION)
    with pytest.raises(NotLeader, match="still ending"):
        start.run()
    assert start.actors.made == []


def test_a_new_actor_is_given_time_to_begin() -> None:
    start = Start()

    def slow(spec: object) -> FakeLog:
        return FakeLog(said=says(), is_silent=True)

    start.actors.next = [slow]
    start.run()
    assert start.timer.now_s() > 600
    assert [spec.is_clean for spec in start.actors.made] == [True, False]


def test_what_keeps_a_log_from_being_opened_is_the_error_and_no_actor_lives() -> None:
    start = Start()
    start.actors.next = [through("opening", "ended", problem=MISSING)]
    with pytest.raises(LogMissing):
        start.run()
    assert start.actors.living == {}


def test_an_old_refusal_is_not_believed() -> None:
    start = Start().lives(FakeLog(said=says(problem=MISSING), states=["ended"]))
    assert start.run() == 2


def test_an_actor_that_ends_again_and_again_is_given_up() -> None:
    start = Start()
    start.actors.next = [through("ended"), through("ended"), through("ended")]
    with pytest.raises(NotLeader):
        start.run()
    assert len(start.actors.made) == 3
    assert start.actors.living == {}


def test_who_is_cancelled_starts_no_actor_and_kills_none() -> None:
    start = Start()
    start.effort.cancelled.set()
    with pytest.raises(NotLeader, match="was ended"):
        start.run()
    assert (start.actors.made, start.actors.killed) == ([], [])


def test_losses_that_were_accepted_are_settled() -> None:
    start = Start()
    lost = OpeningReport(totals=(MendedTotal("lost", 1, 100),))
    start.actors.next = [through("serving", opening=lost)]
    start.run()
    assert ("losses", ORDERS) in start.disk.calls


def test_a_silence_while_a_log_opens_is_forgiven() -> None:
    start = Start()
    log = FakeLog(said=says(config_version=2), states=["opening", "opening", "serving"])
    asked = []

    class Hesitant(FakeLog):
        def says(self) -> object:  # type: ignore[override]
            asked.append(1)
            if len(asked) == 2:
                raise RequestTimedOut("says", 10_000)
            return log.says()

    start.actors.next = [lambda spec: Hesitant(said=says())]
    assert start.run() == 2
    assert len(start.actors.made) == 1


def test_an_actor_that_answers_now_and_then_is_not_replaced() -> None:
    """Each answer begins the patience anew."""
    start = Start()

    class Stuttering(FakeLog):
        def says(self) -> object:  # type: ignore[override]
            self.is_silent = not self.is_silent
            return super().says()

    states: list[LifeState] = ["opening"] * 50
    start.lives(Stuttering(said=says(config_version=2), states=[*states, "serving"]))
    start.run()
    assert start.timer.now_s() > 50
    assert start.actors.killed == []


def test_an_actor_that_opens_its_log_with_an_older_config_learns_the_newer_one() -> None:
    opening: list[LifeState] = ["opening", "opening", "serving"]
    start = Start().lives(FakeLog(said=says(config_version=1), states=opening))
    assert start.run() == 2
    assert [order.config_version for order in start.actors.learned] == [2]
