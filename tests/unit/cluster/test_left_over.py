"""What a failed creation or deletion has left is removed, if not at once then later; no Ray."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from raylog.actors.messages import NotLeader
from raylog.cluster import topics
from raylog.cluster.metadata import Topic
from raylog.cluster.topics import Home, Topics
from raylog.storage.config import BrokerConfig
from raylog.storage.names import TopicPartition

PARTITION = TopicPartition("half-made", 0)
TOPIC = Topic("half-made", "its-id", {}, ())


class Manager:
    """A LogManager that does not answer at first."""

    def __init__(self) -> None:
        self.answers: list[Any] = [NotLeader("n1", "it is being started"), None]
        self.asked: list[tuple[TopicPartition, str]] = []
        self.delete_partition = SimpleNamespace(remote=self._delete)

    def _delete(self, partition: TopicPartition, topic_id: str) -> Any:
        self.asked.append((partition, topic_id))
        return self.answers[len(self.asked) - 1]


@pytest.fixture
def controller(monkeypatch: pytest.MonkeyPatch) -> Topics:
    monkeypatch.setattr(topics, "answer_of", lambda reference, *_: reference)
    return Topics("test", BrokerConfig.parse({}))


def test_what_could_not_be_removed_is_removed_by_the_watch_once(controller: Topics) -> None:
    manager = Manager()
    controller._managers["n1"] = manager
    controller._unmake_partitions(TOPIC, [Home(PARTITION, "n1", manager)])
    assert manager.asked == [(PARTITION, "its-id")]
    for _ in range(2):
        controller._remove_left_over()
    assert manager.asked == [(PARTITION, "its-id")] * 2


def test_a_node_that_is_away_is_asked_when_it_is_back(controller: Topics) -> None:
    manager = Manager()
    manager.answers = [None]
    controller._unmake_partitions(TOPIC, [Home(PARTITION, "n1", manager)])
    assert manager.asked == []
    controller._managers["n1"] = manager
    controller._remove_left_over()
    assert manager.asked == [(PARTITION, "its-id")]


def test_a_deletion_that_does_not_reach_the_disk_tells_it_and_is_seen_through_by_the_watch(
    controller: Topics,
) -> None:
    manager = Manager()
    controller._managers["n1"] = manager
    controller._placement.node_of["its-dir"] = "n1"
    topic = TOPIC._replace(directories=("its-dir",))
    state = SimpleNamespace(topics={topic.name: topic})
    controller._metadata = cast(Any, SimpleNamespace(state=state, append=lambda _: state.topics.clear()))
    with pytest.raises(NotLeader):
        controller.delete_topic(topic.name)
    assert controller.list_topics() == []
    controller._remove_left_over()
    assert manager.asked == [(PARTITION, "its-id")] * 2
