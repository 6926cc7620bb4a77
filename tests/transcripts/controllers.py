"""What the transcripts of the Controller's machine have in common."""

from raylog.cluster.controller.commands import (
    AlterTopic,
    CreateTopic,
)
from raylog.storage.errors import (
    DiskFull,
    RaylogError,
)
from tests.harness.control_nodes import PerfectNode, log_id
from tests.harness.controller_play import Play, answer_line

LOG = log_id("t", 0)
FULL = DiskFull("/a1")


def node_a() -> PerfectNode:
    return PerfectNode("a", "a1", "a2")


def node_b() -> PerfectNode:
    return PerfectNode("b", "b1", "b2")


def answer_of(play: Play) -> str:
    answer = play.answer
    assert answer is not None, "it is not answered"
    return answer_line(answer)


def create(name: str = "t", partitions: int = 1) -> CreateTopic:
    return CreateTopic(name=name, topic_id=f"id-{name}", partitions=partitions)


def error_of(play: Play) -> RaylogError:
    """With what the last request was answered."""
    assert play.answer is not None, "it was not answered"
    assert play.answer.error is not None
    return play.answer.error


def alter(value: int = 5) -> AlterTopic:
    return AlterTopic(name="t", changes={"retention.ms": value})
