"""What is asked of the Controller, and which of it is asked again when a call was lost.

=====================  ============================================  ==============================
request                known again by                                after a lost call
=====================  ============================================  ==============================
a creation             the topic's id, which is chosen here          repeated
deletion, extension    the id of the topic that has the name when    repeated
                       it is asked, which is looked up first
a question             (it changes nothing)                          repeated
drain, stop or start   nothing: it says what the node shall be       repeated
of a node
all others             nothing: others may have changed the same     not repeated: AnswerLost
                       in between
=====================  ============================================  ==============================

See ``commanding.py``.
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
from raylog.cluster.controller.judging import check_not_metadata
from raylog.cluster.controller.stub import ControllerStub
from raylog.storage.errors import InvalidTopic
from raylog.storage.state.properties import random_id

if TYPE_CHECKING:
    from raylog.cluster.client.ray_connection import RayConnection

Answer = TypeVar("Answer")


def creating(
    topic: str, partitions: int | None, config: Mapping[str, Any], *, validate_only: bool = False
) -> Command[TopicDescription]:
    """Make a topic."""
    topic_id = random_id()

    def call(controller: ControllerStub, is_repeated: bool) -> Call[TopicDescription]:
        return controller.create_topic(topic, partitions, config, validate_only, topic_id)

    return Command(call=call, is_read=validate_only)


def altering(
    topic: str, changes: Mapping[str, Any], delete: list[str], *, validate_only: bool = False
) -> Command[TopicDescription]:
    """Change a topic's config."""

    def call(controller: ControllerStub) -> Call[TopicDescription]:
        return controller.alter_topic_config(topic, changes, delete, validate_only)

    return asking(call) if validate_only else once(call, look_at=f"raylog config get {topic}")


def add_partitions(
    connection: "RayConnection",
    topic: str,
    total: int,
    timeout_s: float,
    *,
    patience_s: float = PATIENCE_S,
    validate_only: bool = False,
) -> "Future[TopicDescription]":
    """Extend the topic that has this name now to ``total`` partitions.

    The metadata is refused as the Controller does: by its name a look-up finds no topic.
    """
    try:
        check_not_metadata(topic)
    except InvalidTopic as error:
        refused: Future[TopicDescription] = Future()
        refused.set_exception(error)
        return refused

    def extending(topic_id: str) -> Command[TopicDescription]:
        def call(controller: ControllerStub, is_repeated: bool) -> Call[TopicDescription]:
            return controller.add_partitions(topic, total, validate_only, topic_id, is_repeated)

        return Command(call=call, is_read=validate_only)

    return _by_id(
        connection, topic, extending, f"extending {topic}", timeout_s, patience_s=patience_s
    )


def delete_topic(
    connection: "RayConnection", topic: str, timeout_s: float, *, patience_s: float = PATIENCE_S
) -> "Future[None]":
    """Delete the topic that has this name now, and none that is made of this name later."""

    def deleting(topic_id: str) -> Command[None]:
        def call(controller: ControllerStub, is_repeated: bool) -> Call[None]:
            return controller.delete_topic(topic, topic_id, is_repeated)

        return Command(call=call)

    return _by_id(
        connection, topic, deleting, f"deleting {topic}", timeout_s, patience_s=patience_s
    )


def _by_id(
    connection: "RayConnection",
    topic: str,
    command_of: Callable[[str], Command[Answer]],
    what: str,
    timeout_s: float,
    *,
    patience_s: float,
) -> "Future[Answer]":
    """Look up the id that the topic has now, and send the command for this id."""
    ends_at = connection.deadlines.now() + timeout_s

    def go_on(found: TopicMetadata) -> "Future[Answer]":
        left_s = max(ends_at - connection.deadlines.now(), 0.0)
        command = command_of(found.topic_id)
        return connection.command(what, left_s, command, patience_s=patience_s)

    look_up = asking(partial(ControllerStub.topic_metadata, topic=topic))
    return then(connection.command(what, timeout_s, look_up, patience_s=patience_s), go_on)


def asking(ask: Callable[[ControllerStub], Call[Answer]]) -> Command[Answer]:
    """What changes nothing. ``ask``: makes the call."""
    return Command(call=lambda controller, _: ask(controller), is_read=True)


def shall_be(ask: Callable[[ControllerStub], Call[Answer]]) -> Command[Answer]:
    """What says how something shall be: asked twice it is the same."""
    return Command(call=lambda controller, _: ask(controller))


def once(ask: Callable[[ControllerStub], Call[Answer]], *, look_at: str) -> Command[Answer]:
    """A change that is not repeated. ``look_at``: the command line that shows what became of it."""
    return Command(call=lambda controller, _: ask(controller), look_at=look_at)
