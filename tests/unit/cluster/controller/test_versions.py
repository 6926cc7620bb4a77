"""The Controller's word on config versions, up to the partition that obeys it: without Ray."""

import random

import pytest

from raylog.actors.errors import ConfigUnconfirmed
from raylog.actors.messages import REMOVED, Confirmed, NodeState
from raylog.actors.node.confirmations import CONFIRMED_FOR_MS, Confirmations
from raylog.actors.partition.partition import Partition
from raylog.actors.partition.removal import permit
from raylog.cluster.controller import versions
from raylog.cluster.controller.metadata import Topic
from raylog.cluster.controller.versions import (
    CONFIRMATION_S,
    MARGIN_S,
    Confirming,
    TopicVersions,
)
from raylog.storage.config import LogConfig
from raylog.storage.testing.clock import ManualClock
from raylog.storage.testing.logs import PARTITION, TOPIC_ID, Disk, batch

HOUR_MS = 3_600_000


def topic(topic_id: str, version: int) -> Topic:
    return Topic(f"name-of-{topic_id}", topic_id, {}, ("dir",), version)


def heard(revision: int, controller: str = "c1") -> NodeState:
    return NodeState("life", (), number=7, controller=controller, revision=revision)


def test_a_log_manager_is_told_what_has_changed_since_its_last_answer() -> None:
    told = TopicVersions("c1")
    told.update([topic("a", 0), topic("b", 4)])
    first = told.message_after(None)
    assert (first.since, first.revision, first.number) == (0, 2, 0)
    assert dict(first.topics) == {"a": 0, "b": 4}
    assert told.message_after(heard(2)).topics == ()
    told.update([topic("a", 1), topic("c", 0)])
    message = told.message_after(heard(2))
    assert (message.life, message.number, message.since, message.revision) == ("life", 7, 2, 5)
    assert dict(message.topics) == {"a": 1, "b": REMOVED, "c": 0}
    assert dict(told.message_after(None).topics) == {"a": 1, "c": 0}


def test_whoever_heard_of_another_controller_is_told_everything() -> None:
    told = TopicVersions("c2")
    told.update([topic("a", 3)])
    message = told.message_after(heard(1, controller="c1"))
    assert (message.since, message.topics) == (0, (("a", 3),))


def test_of_topics_that_are_gone_not_all_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "REMOVED_AT_MOST", 2)
    told = TopicVersions("c1")
    told.update([topic(name, 0) for name in "abcd"])
    told.update([topic("d", 0)])
    assert told.message_after(heard(4)).since == 0, "it is told everything"
    assert told.message_after(heard(4)).topics == (("d", 0),)
    assert told.message_after(heard(7)).topics == ()


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_lost_or_late_a_log_manager_knows_what_its_controller_has_said(
    seed: int,
) -> None:
    chance, lives = random.Random(seed), 1
    told, node = TopicVersions("c1"), Confirmations("n", "life-1")
    desired: dict[str, int] = {}
    answered, now_ms = node.answer((), 0), 0
    late = [told.message_after(None)]
    for _ in range(200):
        now_ms += chance.randrange(1000)
        match chance.randrange(6):
            case 0:
                desired[chance.choice("abcd")] = chance.randrange(100)
            case 1:
                desired.pop(chance.choice("abcd"), None)
            case 2:
                lives += 1
                told = TopicVersions(f"c{lives}")
            case 3:
                lives += 1
                node = Confirmations("n", f"life-{lives}")
                answered = node.answer((), now_ms)
            case 4:
                node.hear(chance.choice(late))
        told.update([topic(*item) for item in desired.items()])
        late = [*late[-3:], told.message_after(answered)]
        if chance.random() < 0.7:
            node.hear(late[-1])
            node.validate()
        answered = node.answer((), now_ms)
    for _ in range(2):
        node.hear(told.message_after(node.answer((), now_ms)))
    confirmed = {name: node.of(name, now_ms) for name in "abcd"}
    assert {name: right.version for name, right in confirmed.items() if right} == desired


def test_a_replaced_config_ends_with_the_last_word_before_the_change() -> None:
    confirming = Confirming(now_s=100.0)
    assert confirming.over_s("unknown", 500.0) == 100.0 + CONFIRMATION_S, "of the life before"
    confirming.told(["a", "b"], 300.0)
    confirming.told(["b"], 600.0)
    assert confirming.over_s("a", 500.0) == 300.0 + CONFIRMATION_S
    assert confirming.over_s("b", 500.0) == 500.0 + CONFIRMATION_S, "it was told the new one"
    assert CONFIRMATION_S == CONFIRMED_FOR_MS / 1000 + MARGIN_S


class Broken:
    """A Controller, a LogManager and a partition, which speak with each other as a test says."""

    def __init__(self, disk: Disk) -> None:
        self.disk, self.clock = disk, ManualClock(0)
        self.version = 1
        self.controller = TopicVersions("c1")
        self.manager = Confirmations("n1", "life-1")
        self.state = self.manager.answer((), 0)
        log = disk.open(segment_bytes=200, retention_ms=HOUR_MS)
        self.partition = Partition(log, disk.clock, self.version)
        for _ in range(6):
            self.partition.append(batch())
        disk.clock.advance(2 * HOUR_MS)

    def exchange(self) -> None:
        self.controller.update([topic(TOPIC_ID, self.version)])
        self.manager.hear(self.controller.message_after(self.state))
        self.state = self.manager.answer((), self.clock.now_ms())

    def right(self) -> Confirmed | None:
        return self.manager.of(TOPIC_ID, self.clock.now_ms())

    def retention(self, right: Confirmed | None) -> int:
        may_remove = permit(PARTITION, TOPIC_ID, right, self.clock)
        return self.partition.delete_old_segments(may_remove).segments


def test_under_a_config_that_is_confirmed_retention_removes(disk: Disk) -> None:
    parts = Broken(disk)
    parts.exchange()
    assert parts.retention(parts.right()) > 0


def test_after_a_changed_config_has_been_answered_nothing_is_removed_under_the_one_before(
    disk: Disk,
) -> None:
    """The LogManager stands still, so the partition never hears of the change."""
    parts = Broken(disk)
    parts.exchange()
    in_flight = parts.right()  # a RetentionActor has it
    parts.controller.update([topic(TOPIC_ID, 1)])
    queued = parts.controller.message_after(parts.state)  # at the LogManager that stands still
    parts.version = 2  # the change; its answer comes no earlier than this:
    parts.clock.advance(int(CONFIRMATION_S * 1000))
    assert in_flight is not None
    with pytest.raises(ConfigUnconfirmed):
        parts.retention(in_flight)
    parts.manager.hear(queued)  # it goes on
    with pytest.raises(ConfigUnconfirmed):
        parts.retention(parts.right())
    parts.state = parts.manager.answer((), parts.clock.now_ms())
    parts.exchange()
    right = parts.right()
    assert right is not None
    assert right.version == 2
    with pytest.raises(ConfigUnconfirmed, match="obeys version 1"):
        parts.retention(right)
    parts.partition.reconfigure(LogConfig(segment_bytes=200, retention_ms=-1), 2)
    assert parts.retention(right) == 0
    assert parts.partition.offsets().log_start_offset == 0


def test_without_a_controller_nothing_is_removed(disk: Disk) -> None:
    parts = Broken(disk)
    parts.exchange()
    parts.clock.advance(CONFIRMED_FOR_MS)
    with pytest.raises(ConfigUnconfirmed):
        parts.retention(parts.right())
    assert parts.partition.offsets().log_start_offset == 0


def test_a_log_manager_that_ray_has_started_again_confirms_nothing_by_itself(disk: Disk) -> None:
    parts = Broken(disk)
    parts.exchange()
    parts.manager = Confirmations("n1", "life-2")
    parts.exchange()  # the Controller has not noticed yet
    assert parts.right() is None
    parts.exchange()
    assert parts.retention(parts.right()) > 0
