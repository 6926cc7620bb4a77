"""When a changed config is answered, and whom the answer names. Without Ray."""

from concurrent.futures import Future
from typing import Any

import pytest

from raylog.actors.errors import LogRefused, NotLeader, UnknownTopicOrPartition
from raylog.actors.messages import NodeState, Placed
from raylog.cluster.controller import topics, versions
from raylog.cluster.controller.versions import Confirming
from raylog.storage.names import TopicPartition
from raylog.storage.testing.waiting import wait_for
from tests.unit.cluster.controller.controllers import Cluster, Manager, found

DEADLINE_S = 20


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A confirmation is over at once, and no time passes between two looks."""
    for module in (topics, versions):
        monkeypatch.setattr(module, "CONFIRMATION_S", 0)
    monkeypatch.setattr(topics, "REPORT_INTERVAL_S", 0)
    return Cluster(monkeypatch)


def confirmed_for_ever(patch: pytest.MonkeyPatch) -> None:
    for module in (topics, versions):
        patch.setattr(module, "CONFIRMATION_S", 3600)


def serving(cluster: Cluster, *, partitions: int = 2) -> Manager:
    """A node that serves a topic "t"."""
    topic = cluster.topic("t", *["dir-a"] * partitions)
    manager = Manager("dir-a", *(found(topic, number) for number in range(partitions)))
    manager.answers["open_partition"] = Placed("node-a", "dir-a", "/dir-a/t")
    cluster.controller._open_metadata()
    cluster.comes("node-a", manager)
    cluster.controller._watch_once()
    cluster.controller._jobs.wait()
    return manager


def alter(cluster: Cluster) -> Any:
    return cluster.controller.alter_topic_config("t", {"retention.ms": -1}, ())


def test_the_answer_comes_when_every_partition_reports_the_version(cluster: Cluster) -> None:
    manager = serving(cluster)
    manager.answers["reconfigure"] = 1
    described = alter(cluster)
    assert (described.config, described.outdated) == ({"retention.ms": -1}, ())
    assert [arguments[3] for arguments in manager.asked("reconfigure")] == [1, 1]


@pytest.mark.parametrize(
    "answer", [NotLeader("t-1", "it is starting"), 0, Future()], ids=["away", "older", "hangs"]
)
def test_who_does_not_report_it_is_named_and_the_change_stays(
    cluster: Cluster, answer: Any
) -> None:
    manager = serving(cluster)
    called = manager._called
    manager.answers["reconfigure"] = 1

    def of_second(name: str, arguments: tuple[Any, ...]) -> Any:
        if name != "reconfigure" or arguments[0].partition == 0:
            return called(name, arguments)
        if isinstance(answer, Future):
            return answer
        manager.answers["reconfigure"] = answer
        outcome = called(name, arguments)
        manager.answers["reconfigure"] = 1
        return outcome

    manager._called = of_second  # type: ignore[method-assign]
    described = alter(cluster)
    assert (described.config, described.outdated) == ({"retention.ms": -1}, (1,))
    assert cluster.topics["t"].version == 1


def test_who_may_still_have_the_right_to_remove_records_is_waited_for(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    confirmed_for_ever(monkeypatch)
    manager = serving(cluster, partitions=1)
    called = manager._called

    def at_the_third_time(name: str, arguments: tuple[Any, ...]) -> Any:
        tries = len(manager.asked("reconfigure"))
        manager.answers["reconfigure"] = 1 if tries == 2 else NotLeader("t-0", "it is starting")
        return called(name, arguments)

    manager._called = at_the_third_time  # type: ignore[method-assign]
    assert alter(cluster).outdated == ()
    assert len(manager.asked("reconfigure")) == 3


def test_a_partition_that_nobody_can_serve_is_named_at_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    confirmed_for_ever(monkeypatch)
    manager = serving(cluster)
    manager.answers["reconfigure"] = 1
    refused = LogRefused("t-1", "LogMissing", "it is gone", "mount the disk")
    cluster.controller._placement.failed(TopicPartition("t", 1), refused)
    assert alter(cluster).outdated == (1,)


def test_a_topic_that_is_deleted_while_its_change_is_seen_through_is_said_to_be_gone(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    confirmed_for_ever(monkeypatch)
    serving(cluster).answers["reconfigure"] = NotLeader("t", "it is starting")
    calls = []

    def deleted(*_: Any) -> None:
        calls.append(1)
        if len(calls) == 3:
            del cluster.topics["t"]

    monkeypatch.setattr(cluster.controller, "_configure", deleted)
    with pytest.raises(UnknownTopicOrPartition, match="deleted"):
        alter(cluster)


def test_each_look_of_the_watch_confirms_what_the_metadata_says_after_the_answer_before(
    cluster: Cluster,
) -> None:
    manager, controller = serving(cluster, partitions=1), cluster.controller
    life = manager.asked("state")[0][0].controller

    def look(number: int, revision: int) -> Any:
        manager.answers["state"] = NodeState(
            "life-1", (), number=number, controller=life, revision=revision
        )
        controller._watch_once()
        wait_for(lambda: not controller._state_calls, DEADLINE_S, "it has answered")
        return manager.asked("state")[-1][0]

    first = look(number=2, revision=1)
    assert (first.since, first.topics) == (0, (("id-t", 0),))
    second = look(number=3, revision=1)
    assert (second.life, second.number, second.since, second.topics) == ("life-1", 2, 1, ())
    cluster.topics["t"] = cluster.topics["t"]._replace(version=1)
    third = look(number=4, revision=2)
    assert (third.number, third.since, third.topics) == (3, 1, (("id-t", 1),))


def test_a_look_at_a_log_manager_is_the_last_moment_that_it_was_told_of_an_older_config(
    cluster: Cluster,
) -> None:
    serving(cluster)
    confirming = cluster.controller._confirming = Confirming(now_s=0.0)
    assert confirming.over_s("dir-a", changed_s=float("inf")) == 0
    cluster.controller._watch_once()
    assert confirming.over_s("dir-a", changed_s=float("inf")) > 0
