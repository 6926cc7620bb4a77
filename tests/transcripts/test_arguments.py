"""Arguments of another type than they should be, as a program may give them to ``Broker``."""

import pytest

from raylog.actors.errors import InvalidRequest
from raylog.cluster.controller.commands import (
    AlterTopic,
    Command,
    CreateTopic,
    LogDirOnline,
    LogDirOut,
    MovePartition,
)
from tests.harness.controller_play import begun
from tests.transcripts.controllers import node_a, node_b


@pytest.mark.parametrize(
    "command",
    [
        CreateTopic(name="u", topic_id="id-u", partitions=1, config={5: 1}),  # type: ignore[dict-item]
        AlterTopic(name="t", changes={5: 1}),  # type: ignore[dict-item]
        MovePartition(name="t", number=0, log_dir=None),  # type: ignore[arg-type]
        LogDirOut(log_dir=2),  # type: ignore[arg-type]
        LogDirOnline(log_dir=2),  # type: ignore[arg-type]
    ],
    ids=lambda command: type(command).__name__,
)
def test_an_argument_of_another_type_is_refused_and_ends_no_controller(command: Command) -> None:
    play = begun(node_a(), node_b())
    play.create("t", 2)
    play.asks(command)
    assert play.answer is not None
    assert isinstance(play.answer.error, InvalidRequest)
    play.create("goes-on", 1)
