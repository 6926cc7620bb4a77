"""What a failed creation or deletion has left is removed, if not at once then later; no Ray."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from raylog.actors.errors import NoLogDirs, NotLeader, TopicBusy
from raylog.actors.messages import Found
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.runtime.stubs import LogManagerStub
from raylog.cluster.controller import state as controller_state
from raylog.cluster.controller import topics
from raylog.cluster.controller.metadata import Topic
from raylog.cluster.controller.state import LeftOver
from raylog.cluster.controller.topics import Home, Topics
from raylog.storage.names import TopicPartition
from tests.harness.futures import future_of, futures_are_references
from tests.unit.cluster.controller.controllers import Cluster
from tests.unit.cluster.controller.controllers import Manager as Watched

PARTITION, OTHER = TopicPartition("half-made", 0), TopicPartition("other", 0)
TOPIC = Topic("half-made", "its-id", {}, ())


class Manager:
    """A LogManager that does not answer at first."""

    def __init__(self) -> None:
        self.answers: list[Any] = [NotLeader("n1", "it is starting"), None]
        self.asked: list[tuple[TopicPartition, str]] = []
        self.delete_partition = SimpleNamespace(remote=self._delete)

    def _delete(self, partition: TopicPartition, topic_id: str) -> Any:
        self.asked.append((partition, topic_id))
        return future_of(self.answers[len(self.asked) - 1])

    def stub(self) -> LogManagerStub:
        return LogManagerStub(self, "n1")


@pytest.fixture
def controller(monkeypatch: pytest.MonkeyPatch) -> Topics:
    futures_are_references(monkeypatch)
    monkeypatch.setattr(topics, "kill", lambda *_: None)  # the real one would start a Ray
    return Topics("test", BrokerConfig.parse({}))


def test_what_could_not_be_removed_is_removed_by_the_watch_once(controller: Topics) -> None:
    manager = Manager()
    controller._managers["n1"] = manager.stub()
    controller._unmake_partitions(TOPIC, [Home(PARTITION, "n1", manager.stub())])
    assert manager.asked == [(PARTITION, "its-id")]
    for _ in range(2):
        controller._remove_left_over()
    assert manager.asked == [(PARTITION, "its-id")] * 2


def test_a_node_that_is_away_is_asked_when_it_is_back(controller: Topics) -> None:
    manager = Manager()
    manager.answers = [None]
    controller._unmake_partitions(TOPIC, [Home(PARTITION, "n1", manager.stub())])
    assert manager.asked == []
    controller._managers["n1"] = manager.stub()
    controller._remove_left_over()
    assert manager.asked == [(PARTITION, "its-id")]


def test_a_deletion_that_does_not_reach_the_disk_tells_it_and_is_seen_through_by_the_watch(
    controller: Topics,
) -> None:
    manager = Manager()
    controller._managers["n1"] = manager.stub()
    controller._placement.node_of["its-dir"] = "n1"
    topic = TOPIC._replace(directories=("its-dir",))
    state = SimpleNamespace(topics={topic.name: topic})
    controller._metadata = cast(
        Any, SimpleNamespace(state=state, append=lambda _: state.topics.clear())
    )
    with pytest.raises(NotLeader):
        controller.delete_topic(topic.name)
    assert controller.list_topics() == []
    controller._remove_left_over()
    assert manager.asked == [(PARTITION, "its-id")] * 2


def test_a_folder_that_turns_up_on_another_node_is_removed_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node without a label comes back under a new id."""
    cluster = Cluster(monkeypatch)
    again = Watched(
        "its-dir", Found(PARTITION, "its-id", "its-dir"), Found(OTHER, "no-ones", "its-dir")
    )
    watching = cluster.controller
    watching._open_metadata()
    watching._unmake_partitions(TOPIC, [Home(PARTITION, "old-id", again.stub())])
    cluster.comes("new-id", again)
    for _ in range(2):
        watching._watch_once()
        watching._jobs.wait()
    assert again.asked("delete_partition") == [(PARTITION, "its-id")]
    assert [arguments[0] for arguments in again.asked("set_aside")] == [OTHER]
    watching._watch_once()
    watching._jobs.wait()
    assert len(again.asked("delete_partition")) == 1
    assert watching._left_over == {}


def test_what_is_waited_for_in_vain_does_not_grow_for_ever(
    controller: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_state, "MAX_LEFT_OVER", 3)
    homes = [
        Home(TopicPartition("half-made", number), "gone-for-good", Manager().stub())
        for number in range(5)
    ]
    controller._unmake_partitions(TOPIC, homes)
    kept = [left_over.partition.partition for left_over in controller._left_over.values()]
    assert kept == [2, 3, 4]


def test_an_answer_of_a_node_where_the_folder_is_no_more_leaves_it_to_be_removed(
    controller: Topics,
) -> None:
    before = LeftOver(PARTITION, "its-id", "old-id")
    controller._note_left_over(before._replace(node="new-id"))
    controller._removed(before)
    controller._not_removed(before, NotLeader("n1", "it died"))
    assert list(controller._left_over.values()) == [before._replace(node="new-id")]


def test_what_is_left_over_is_removed_before_the_name_is_used_again(controller: Topics) -> None:
    """Its folder would be in the way.

    And a later removal would take a partition that is added: the topic's id is the same.
    """
    manager = Manager()
    manager.answers = [NotLeader("n1", "it is starting")] * 3 + [None]
    controller._managers["n1"] = manager.stub()
    controller._metadata = cast(
        Any, SimpleNamespace(state=SimpleNamespace(topics={TOPIC.name: TOPIC}))
    )
    controller._unmake_partitions(TOPIC, [Home(PARTITION, "n1", manager.stub())])
    with pytest.raises(TopicBusy, match="it is starting"):
        controller.add_partitions(TOPIC.name, 1)
    controller._state.topics.clear()
    with pytest.raises(TopicBusy, match="it is starting"):
        controller.create_topic(TOPIC.name, 1, {})
    with pytest.raises(NoLogDirs):  # it goes on
        controller.create_topic(TOPIC.name, 1, {})
    assert len(manager.asked) == 4


def test_what_a_running_change_makes_or_removes_is_not_removed_by_the_watch(
    controller: Topics,
) -> None:
    manager = Manager()
    controller._managers["n1"] = manager.stub()
    controller._note_left_over(LeftOver(PARTITION, "its-id", "n1"))
    with controller._reserve(TOPIC.name, "deleted"):
        controller._remove_left_over()
        assert manager.asked == []
    controller._remove_left_over()
    assert len(manager.asked) == 1
