"""Commands wait for nodes that are about to take part, and answers name who lags behind."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from raylog.actors.control import LogId
from raylog.actors.errors import InvalidRequest, NoLogDirs, NotLeader, RequestTimedOut
from raylog.cluster.controller.asking import NODE_PATIENCE_S, Commanding
from raylog.cluster.controller.commands import CreateTopic
from raylog.cluster.controller.describe import Snapshot
from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.events import Asked
from raylog.cluster.controller.instructions import Altered, Answer, Behind
from raylog.cluster.controller.observed import Observed
from raylog.cluster.controller.records import (
    NodeRecord,
    PartitionRecord,
    TopicRecord,
    TopicRemovedRecord,
)
from raylog.cluster.controller.requests import Requests
from raylog.storage.errors import LogLocked, RaylogError
from raylog.storage.names import TopicPartition

TOPIC = TopicRecord(name="t", topic_id="id-t", config={}, version=1)


class Desk:
    """Where commands arrive; ``answer`` says what each gets. Its time passes in sleeps."""

    def __init__(self, answer: Callable[[Asked], Answer]) -> None:
        self.now_s = 0.0
        self.asked = 0
        self.problems: dict[str, RaylogError] = {}
        self.snapshot = Snapshot(desired=Desired(), observed={"a": Observed(heard_ms=0)})
        self._answer = answer
        self._requests = Requests()
        self.commanding = Commanding(
            self._put,
            self._requests,
            lambda: self.snapshot,
            lambda: self.problems,
            clock=lambda: self.now_s,
            sleep=self._sleep,
        )

    def _put(self, event: Asked) -> None:
        self.asked += 1
        answer = self._answer(event)
        request = event.request if answer.request >= 0 else answer.request
        self._requests.answer(Answer(request=request, value=answer.value, error=answer.error))

    def _sleep(self, seconds: float) -> None:
        self.now_s += seconds


def refused(event: Asked | None = None) -> Answer:
    return Answer(request=0, error=NoLogDirs("nobody is there"))


def test_a_creation_waits_a_while_for_a_node_that_is_about_to_take_part() -> None:
    desk = Desk(refused)
    with pytest.raises(NoLogDirs):
        desk.commanding.create_topic("t", 1, {})
    assert NODE_PATIENCE_S <= desk.now_s < NODE_PATIENCE_S + 1


def test_a_creation_that_was_undone_is_tried_again_as_another_topic() -> None:
    """The Controller makes no topic of an id that was removed."""
    desired = Desired()
    ids: list[str] = []

    def answer(event: Asked) -> Answer:
        assert isinstance(event.command, CreateTopic)
        ids.append(event.command.topic_id)
        if len(ids) == 2:  # it was written this time, and undone
            desired.apply(TopicRemovedRecord(topic_id=ids[1]))
        return refused()

    desk = Desk(answer)
    desk.snapshot = replace(desk.snapshot, desired=desired)
    with pytest.raises(NoLogDirs):
        desk.commanding.create_topic("t", 1, {}, topic_id="id")
    assert ids[:2] == ["id", "id"]
    assert "id" not in ids[2:]
    assert len(set(ids[2:])) == 1


def test_a_creation_does_not_wait_where_it_is_known_why_no_node_takes_part() -> None:
    desk = Desk(refused)
    desk.problems = {"a": LogLocked("/data")}
    with pytest.raises(NoLogDirs):
        desk.commanding.create_topic("t", 1, {})
    assert (desk.asked, desk.now_s) == (1, 0.0)


@pytest.mark.parametrize(
    "problem", [NotLeader("LogManager:a", "it died"), RequestTimedOut("the orders", 1)]
)
def test_a_creation_waits_for_a_log_manager_that_is_started_again(problem: RaylogError) -> None:
    """The last call to it failed since it was killed; nothing keeps its next life from obeying."""
    desk = Desk(refused)
    desk.problems = {"a": problem}
    with pytest.raises(NoLogDirs):
        desk.commanding.create_topic("t", 1, {})
    assert NODE_PATIENCE_S <= desk.now_s < NODE_PATIENCE_S + 1


def test_a_client_that_waits_no_longer_holds_no_thread() -> None:
    """What it has asked for may be done yet."""
    desk = Desk(lambda _: Answer(request=-1))  # nobody's answer
    with pytest.raises(RequestTimedOut) as raised:
        desk.commanding.within(0.001).delete_topic("t")
    assert (desk.asked, raised.value.timeout_ms) == (1, 1)


def test_a_change_names_those_that_lagged_and_those_that_do_not_serve_any_more() -> None:
    logs = [
        LogId(partition=TopicPartition("t", number), topic_id=TOPIC.topic_id) for number in (0, 1)
    ]
    behind = Behind(partition=TopicPartition("t", 0), why="its node is silent")
    answer = Answer(request=0, value=Altered(topic=TOPIC, behind=(behind,)))
    desk = Desk(lambda _: answer)
    desired = Desired()
    desired.apply(TOPIC)
    for log in logs:
        desired.apply(PartitionRecord(log=log, state="creating"))
    desk.snapshot = Snapshot(desired=desired)
    described = desk.commanding.alter_topic_config("t", {}, [])
    assert described.outdated == (0, 1)


def test_an_order_for_a_node_that_is_none_is_refused_and_says_where_they_are_listed() -> None:
    desk = Desk(refused)
    gone = NodeRecord(key="5f" * 28, kafka_id=0, port=0)
    desk.snapshot.desired.apply(gone)
    for order in (desk.commanding.drain_node, desk.commanding.stop_node):
        with pytest.raises(InvalidRequest) as raised:
            order(gone.key)
        assert str(raised.value) == (
            f"node={gone.key!r} is no node of this broker, or the beginning of several ids; its "
            "nodes are: a. See `raylog node list`"
        )
    assert desk.asked == 0


@pytest.mark.parametrize("name", ["5f" * 28, "5f5f5f5f"])
def test_a_start_of_a_node_that_only_its_order_kept_known_may_be_repeated(name: str) -> None:
    """After the first nothing keeps it known; the second is answered as the first."""
    gone = NodeRecord(key="5f" * 28, kafka_id=0, port=0, state="stopped")
    desk = Desk(lambda event: Answer(request=0, value=started(event)))

    def started(event: Asked) -> NodeRecord:
        online = replace(gone, state="online")
        desk.snapshot.desired.apply(online)
        return online

    desk.snapshot.desired.apply(gone)
    first = desk.commanding.start_node(name)
    assert (first.node, first.state) == (gone.key, "away")
    assert desk.commanding.start_node(name) == first
    assert desk.commanding.drain_node(name, is_undone=True) == first


def test_a_start_of_a_node_that_was_never_there_is_refused() -> None:
    desk = Desk(refused)
    with pytest.raises(InvalidRequest, match="is no node of this broker"):
        desk.commanding.start_node("5f" * 28)
    assert desk.asked == 0
