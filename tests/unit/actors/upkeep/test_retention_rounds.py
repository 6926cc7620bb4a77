"""A node's retention without Ray: which logs are asked, what is counted, what a failure does."""

from collections.abc import Sequence

import pytest

from raylog.actors.errors import NotLeader
from raylog.actors.messages import Hosted, RemovedSegments
from raylog.actors.upkeep.retention import Retention
from raylog.storage.config import LogConfig
from raylog.storage.names import TopicPartition
from raylog.storage.testing.clock import T0, ManualClock

A, B, COMPACTED = TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("c", 0)


class Node:
    """A node whose logs answer what they are told to."""

    def __init__(self) -> None:
        self.hosts = [A, B]
        self.answers: dict[TopicPartition, RemovedSegments | Exception] = {}

    def hosted(self) -> list[Hosted]:
        compacted = Hosted(COMPACTED, "id", "/c-0", LogConfig(cleanup_policy="compact,delete"))
        return [compacted, *(Hosted(one, "id", f"/{one}", LogConfig()) for one in self.hosts)]

    def delete_old_segments(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, RemovedSegments | Exception]:
        return {one: self.answers.get(one, RemovedSegments(0, 0, 0.5)) for one in partitions}


def test_logs_that_are_not_compacted_are_asked_and_what_went_is_added_up() -> None:
    node = Node()
    retention = Retention(node, "n1", ManualClock())
    node.answers[A] = RemovedSegments(2, 100, 0.5)
    for _ in range(2):
        retention.round()
    first, second = retention.status()
    assert first == ("a-0", "n1", 2, 100, 0.5, T0, 4, 200, None)
    assert second == ("b-0", "n1", 0, 0, 0.5, T0, 0, 0, None)
    assert retention.numbers() == {
        "raylog_retention_segments_deleted": 4,
        "raylog_retention_bytes_deleted": 200,
        "raylog_retention_busy_seconds": 2.0,
        "raylog_retention_last_round_seconds": T0 / 1000,
    }
    node.hosts.remove(A)
    retention.round()
    assert [one.partition for one in retention.status()] == ["b-0"]


def test_a_log_whose_retention_fails_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    node, clock = Node(), ManualClock()
    retention = Retention(node, "n1", clock)
    retention.round()
    node.answers[A] = NotLeader("a-0", "it moves")
    with caplog.at_level("WARNING"):
        for _ in range(3):
            clock.advance(1000)
            retention.round()
    assert len(caplog.records) == 1
    assert "it moves" in (retention.status()[0].problem or "")
    node.answers.clear()
    retention.round()
    assert retention.status()[0].problem is None
