"""A node's retention without Ray: which logs are asked, what is counted, what a failure does."""

import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest

from raylog.actors.errors import NotLeader
from raylog.actors.messages import RemovedSegments
from raylog.actors.node_messages import UpkeepOrder
from raylog.actors.upkeep.retention import Retention
from raylog.storage.config import LogConfig
from raylog.storage.names import TopicPartition
from raylog.storage.testing.clock import T0, ManualClock
from tests.harness.upkeep import ordered_log, upkeep_order

A, B, COMPACTED = TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("c", 0)


class Node:
    """A node whose logs answer what they are told to."""

    def __init__(self) -> None:
        self.answers: dict[TopicPartition, RemovedSegments | Exception] = {}

    def delete_old_segments(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, RemovedSegments | Exception]:
        return {one: self.answers.get(one, RemovedSegments(0, 0, 0.5)) for one in partitions}


def order_of(*partitions: TopicPartition) -> UpkeepOrder:
    """An order that names a compacted log, too."""
    compacted = ordered_log(COMPACTED, LogConfig(cleanup_policy="compact,delete"))
    return upkeep_order([compacted, *(ordered_log(one, LogConfig()) for one in partitions)])


def test_logs_that_are_not_compacted_are_asked_and_what_went_is_added_up() -> None:
    node, clock = Node(), ManualClock()
    retention = Retention(node, "n1", clock)
    node.answers[A] = RemovedSegments(2, 100, 0.5)
    for _ in range(2):
        retention.round(order_of(A, B))
    first, second = retention.status()
    assert first == ("a-0", "n1", 2, 100, 0.5, T0, 4, 200, None)
    assert second == ("b-0", "n1", 0, 0, 0.5, T0, 0, 0, None)
    assert retention.numbers() == {
        "raylog_retention_segments_deleted": 4,
        "raylog_retention_bytes_deleted": 200,
        "raylog_retention_busy_seconds": 2.0,
        "raylog_retention_last_round_seconds": T0 / 1000,
    }
    left_alone = frozenset({ordered_log(A, LogConfig()).log})
    retention.round(replace(order_of(B), others=left_alone))
    assert [one.partition for one in retention.status()] == ["a-0", "b-0"], "it comes back"
    retention.round(order_of(B))
    assert [one.partition for one in retention.status()] == ["b-0"]


def test_a_log_whose_retention_fails_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    node, clock = Node(), ManualClock()
    retention = Retention(node, "n1", clock)
    retention.round(order_of(A, B))
    node.answers[A] = NotLeader("a-0", "it moves")
    with caplog.at_level("WARNING"):
        for _ in range(3):
            clock.advance(1000)
            retention.round(order_of(A, B))
    assert len(caplog.records) == 1
    assert "it moves" in (retention.status()[0].problem or "")
    node.answers.clear()
    retention.round(order_of(A, B))
    assert retention.status()[0].problem is None


def test_its_status_may_be_asked_while_rounds_come_and_logs_go() -> None:
    retention = Retention(Node(), "n1", ManualClock())
    many = [TopicPartition("many", number) for number in range(300)]
    ended = threading.Event()
    problems: list[Exception] = []

    def ask() -> None:
        while not ended.is_set():
            try:
                retention.status()
            except Exception as error:
                problems.append(error)
                return

    asking = threading.Thread(target=ask)
    asking.start()
    for _ in range(30):
        retention.round(order_of(*many))
        retention.round(order_of(A))
    ended.set()
    asking.join()
    assert problems == []
