"""Ray calls: to the Controller, and to the LogActors for what does not go by socket.

What Ray asks of it:

- An actor that is being started again refuses calls at once; one that hangs answers nothing, and
  Ray says nothing of it. So the deadlines are kept here (``deadlines.py``).
- To look for an actor is to wait for Ray's head, so it is done in the background (``lookup.py``).
  A request to a partition that is not known here leaves behind it. Where no actor serves the
  partition it fails at once; the Controller is asked why, and the next one hears its answer.
"""

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from raylog.actors.errors import ForkedProcess, NotLeader, RequestTimedOut
from raylog.actors.messages import DataAddress
from raylog.actors.runtime.calls import CALL_TIMEOUT_S, Call, named_error
from raylog.actors.runtime.clusters import check_not_forked
from raylog.actors.runtime.nodes import broker_id, own_node_id
from raylog.actors.runtime.stubs import LogActorStub
from raylog.cluster.client.background import BACKGROUND, Work
from raylog.cluster.client.commanding import PATIENCE_S, Command, Commanding
from raylog.cluster.client.connection import TopicMetadata
from raylog.cluster.client.deadlines import DEADLINES, Deadlines, end, fail
from raylog.cluster.client.lookup import Lookup
from raylog.cluster.controller.stub import ControllerStub
from raylog.storage.errors import RaylogError
from raylog.storage.names import TopicPartition

Actor = TypeVar("Actor")
Answer = TypeVar("Answer")
Asking = Callable[[Actor], Call[Any]]


class RayConnection:
    """A broker's actors. Safe for threads; no call waits, and none raises."""

    def __init__(
        self,
        namespace: str,
        address: str | None = None,
        *,
        run: Callable[[Work], None] = BACKGROUND.run,
        deadlines: Deadlines = DEADLINES,
    ) -> None:
        """``address``: of the Ray cluster, which is joined on first use where the process is not.

        ``run``: does work that may wait. It and the deadlines are the process's.
        """
        self.namespace, self.address = namespace, address
        self.deadlines = deadlines
        self._lookup = Lookup(namespace, address, run)
        self._topics: dict[str, TopicMetadata] = {}  # as the Controller described them last
        # why nobody served a partition, as the Controller said when it was asked last
        self._reasons: dict[TopicPartition, RaylogError] = {}
        self._explaining: set[TopicPartition] = set()

    def __reduce__(self) -> Any:
        return (RayConnection, (self.namespace, self.address))

    # -- requests to partitions --------------------------------------------------------------------

    def ask_partition(
        self,
        partition: TopicPartition,
        timeout_s: float,
        ask: Callable[[LogActorStub], Call[Answer]],
        *,
        is_read: bool = False,
    ) -> "Future[Answer]":
        """Ask the LogActor of a partition. See ``Deadlines.watch``."""
        future = self._future(str(partition), timeout_s, is_read=is_read)
        if future.done():
            return future
        not_served = partial(self._not_served, partition, future)
        self._lookup.log_actor(partition, partial(_send, future, ask), not_served)
        return future

    def data_address(
        self, partition: TopicPartition, topic_id: str, *, timeout_s: float
    ) -> "Future[DataAddress]":
        """Where the LogActor of a partition listens: see ``LogActorImpl.data_address``."""

        def ask(actor: LogActorStub) -> Call[DataAddress]:
            return actor.data_address(topic_id, own_node_id())

        return self.ask_partition(partition, timeout_s, ask, is_read=True)

    def broker_id(self, cluster_id: str) -> str:
        """What the names of its sockets begin with."""
        return broker_id(cluster_id, self.namespace)

    def forget(self, topic: str, partition: int) -> None:
        """See ``connection.Connection``."""
        self._lookup.forget(TopicPartition(topic, partition))

    # -- requests to the Controller ----------------------------------------------------------------

    def metadata(self, topic: str, *, timeout_s: float) -> "Future[TopicMetadata]":
        """See ``connection.Connection``."""
        asked = self.ask_controller(
            f"the metadata of {topic}",
            timeout_s,
            lambda controller: controller.topic_metadata(topic),
            is_read=True,
        )
        answer: Future[TopicMetadata] = Future()
        asked.add_done_callback(lambda done: self._remember(topic, done, answer))
        return answer

    def _remember(
        self, topic: str, asked: "Future[TopicMetadata]", answer: "Future[TopicMetadata]"
    ) -> None:
        """Answer what the Controller says; while it is away, what it said last."""
        error = asked.exception()
        if error is None:
            self._topics[topic] = asked.result()
        elif not isinstance(error, NotLeader | RequestTimedOut):
            self._topics.pop(topic, None)
        known = self._topics.get(topic)
        if known is None:
            answer.set_exception(error)
        else:
            answer.set_result(known)

    def list_topics(self, *, timeout_s: float) -> "Future[list[str]]":
        """See ``connection.Connection``."""
        return self.ask_controller(
            "the names of topics", timeout_s, ControllerStub.list_topics, is_read=True
        )

    def new_producer_id(self, *, timeout_s: float) -> "Future[int]":
        """See ``connection.Connection``."""
        return self.ask_controller("a producer id", timeout_s, ControllerStub.allocate_producer_id)

    def ask_controller(
        self,
        what: str,
        timeout_s: float,
        ask: Callable[[ControllerStub], Call[Answer]],
        *,
        is_read: bool = False,
    ) -> "Future[Answer]":
        """Ask the Controller; ``what`` it is for, as errors say it. See ``Deadlines.watch``."""
        future = self._future(what, timeout_s, is_read=is_read)
        if future.done():
            return future
        future.add_done_callback(self._controller_answered)
        self._lookup.controller(partial(_send, future, ask), partial(fail, future))
        return future

    def command(
        self,
        what: str,
        timeout_s: float,
        command: Command[Answer],
        *,
        patience_s: float = PATIENCE_S,
    ) -> "Future[Answer]":
        """As ``ask_controller``, and again while the Controller is away: see ``commanding.py``."""
        commanding = Commanding(
            self.ask_controller,
            self.deadlines,
            command,
            what=what,
            timeout_s=timeout_s,
            patience_s=patience_s,
        )
        return commanding.begin()

    def _controller_answered(self, done: "Future[Any]") -> None:
        if isinstance(done.exception(), NotLeader | RequestTimedOut):
            self._lookup.forget_controller()

    def _future(self, what: str, timeout_s: float, *, is_read: bool) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            check_not_forked()
        except ForkedProcess as error:
            future.set_exception(error)
            return future
        self.deadlines.watch(future, what, timeout_s, is_read=is_read)
        return future

    def _not_served(
        self, partition: TopicPartition, future: "Future[Any]", error: BaseException
    ) -> None:
        """No actor serves a partition: fail at once, and have the Controller say why."""
        if isinstance(error, NotLeader):
            self._explain(partition)
            error = self._reasons.get(partition, error)
        fail(future, error)

    def _explain(self, partition: TopicPartition) -> None:
        if partition in self._explaining:
            return
        self._explaining.add(partition)
        explanation = self.ask_controller(
            f"looking for {partition}",
            CALL_TIMEOUT_S,
            lambda controller: controller.explain(partition),
        )
        explanation.add_done_callback(partial(self._explained, partition))

    def _explained(self, partition: TopicPartition, done: "Future[RaylogError | None]") -> None:
        self._explaining.discard(partition)
        reason = None if done.exception() is not None else done.result()
        if reason is None:
            self._reasons.pop(partition, None)
        else:
            self._reasons[partition] = reason


def _send(future: "Future[Any]", ask: Asking[Actor], actor: Actor) -> None:
    """Make a call whose answer ends ``future``; unless it has ended while the actor was sought."""
    if future.done():
        return
    try:
        call = ask(actor)
        call.future().add_done_callback(partial(_settle, future, call.what))
    except Exception as error:  # whatever Ray raises: a call never does, its future fails
        fail(future, named_error(error, "the request"))


def _settle(future: "Future[Any]", what: str, done: "Future[Any]") -> None:
    error = done.exception()
    if error is not None:
        fail(future, named_error(error, what))
    else:
        end(future, done.result())
