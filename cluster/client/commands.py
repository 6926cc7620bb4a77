"""What is asked of the Controller, each so that it can be repeated: see ``commanding.py``.

A creation is known by the topic's id, which is chosen here, and a deletion by the id of the topic
that it means. All others do no harm when they come twice.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from raylog.actors.runtime.calls import Call
from raylog.cluster.client.commanding import PATIENCE_S, Command
from raylog.cluster.client.connection import TopicMetadata
from raylog.cluster.client.repeating import then
from raylog.cluster.controller.describe import TopicDescription
from raylog.cluster.controller.stub import ControllerStub
from raylog.storage.state.properties import random_id

if TYPE_CHECKING:
    from raylog.cluster.client.ray_connection import RayConnection

Answer = TypeVar("Answer")


def creating(
    topic: str, partitions: int | None, config: Mapping[str, Any], *, validate_only: bool = False
) -> Command[TopicDescription]:
    """Make a topic."""
    topic_id = random_id()

    def command(controller: ControllerStub, is_repeated: bool) -> Call[TopicDescription]:
        return controller.create_topic(topic, partitions, config, validate_only, topic_id)

    return command


def extending(topic: str, total: int, *, validate_only: bool = False) -> Command[TopicDescription]:
    """Extend a topic to ``total`` partitions."""

    def command(controller: ControllerStub, is_repeated: bool) -> Call[TopicDescription]:
        return controller.add_partitions(topic, total, validate_only, is_repeated)

    return command


def altering(
    topic: str, changes: Mapping[str, Any], delete: list[str], *, validate_only: bool = False
) -> Command[TopicDescription]:
    """Change a topic's config."""

    def command(controller: ControllerStub, is_repeated: bool) -> Call[TopicDescription]:
        return controller.alter_topic_config(topic, changes, delete, validate_only)

    return command


def delete_topic(
    connection: "RayConnection", topic: str, timeout_s: float, *, patience_s: float = PATIENCE_S
) -> "Future[None]":
    """Delete the topic that has this name now, and none that is made of this name later."""
    what = f"deleting {topic}"
    ends_at = connection.deadlines.now() + timeout_s

    def delete(found: TopicMetadata) -> "Future[None]":
        def command(controller: ControllerStub, is_repeated: bool) -> Call[None]:
            return controller.delete_topic(topic, found.topic_id, is_repeated)

        left_s = max(ends_at - connection.deadlines.now(), 0.0)
        return connection.command(what, left_s, command, patience_s=patience_s)

    look_up = asking(partial(ControllerStub.topic_metadata, topic=topic))
    found = connection.command(what, timeout_s, look_up, patience_s=patience_s, is_read=True)
    return then(found, delete)


def asking(ask: Callable[[ControllerStub], Call[Answer]]) -> Command[Answer]:
    """What changes nothing, or does no harm when it comes twice. ``ask``: makes the call."""

    def command(controller: ControllerStub, is_repeated: bool) -> Call[Answer]:
        return ask(controller)

    return command
