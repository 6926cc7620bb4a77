"""A connection of Ray calls: to the LogActors for data, to the Controller for the rest.

What Ray asks of it:

- A call takes about a millisecond whatever it carries. Up to 90 KB travel inside of it; more goes
  through the object store, for another millisecond. So a request carries a whole batch.
- LogActors have several threads, which do not keep the order of calls: ``max_in_flight`` is 1.
- An actor that is being started again refuses calls at once; one that hangs answers nothing, and
  Ray says nothing of it. So the deadlines are kept here (``deadlines.py``).
- To look for an actor is to wait for Ray's head, so it is done in the background (``lookup.py``).
  A request to a partition that is not known here leaves behind it. Where no actor serves the
  partition it fails at once; the Controller is asked why, and the next one hears its answer.

A fetch tells which node it comes from. On the partition's own node it is answered with where the
batches lie, and ``FetchAnswer.read`` reads the segment's file. The bytes are the caller's for as
long as it refers to them; their buffer is used again after that (``buffers.py``).
"""

import os
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

import numpy as np

from raylog.actors.errors import ForkedProcess, NotLeader, RequestTimedOut
from raylog.actors.messages import FetchResult
from raylog.actors.runtime.calls import CALL_TIMEOUT_S, Call, named_error
from raylog.actors.runtime.clusters import check_not_forked
from raylog.actors.runtime.nodes import own_node_id
from raylog.actors.runtime.stubs import LogActorStub
from raylog.cluster.client.background import Background, Work
from raylog.cluster.client.buffers import Buffers
from raylog.cluster.client.commanding import PATIENCE_S, Command, Commanding
from raylog.cluster.client.connection import (
    FetchAnswer,
    FetchRequest,
    OffsetAnswer,
    OffsetRequest,
    ProduceAnswer,
    ProduceRequest,
    TopicMetadata,
)
from raylog.cluster.client.deadlines import Deadlines, end, fail
from raylog.cluster.client.lookup import Lookup
from raylog.cluster.client.segment_files import SegmentFiles
from raylog.cluster.controller.stub import ControllerStub
from raylog.storage.buffers import Buffer
from raylog.storage.errors import RaylogError, SegmentDeleted
from raylog.storage.names import TopicPartition
from raylog.storage.records.scan import epoch_at

Actor = TypeVar("Actor")
Answer = TypeVar("Answer")
Asking = Callable[[Actor], Call[Any]]

# Ray puts an argument into the object store beyond 100 KB, its own few KB counted.
INLINE_BYTES = 90_000
# A file that could not be read here is not tried again for so many fetches, doubled each time.
MOST_FETCHES_BY_CALL = 1024

_BACKGROUND = Background()
_DEADLINES = Deadlines()
BUFFERS = Buffers()
_FILES = SegmentFiles(BUFFERS)
# A process that is forked off has none of its parent's threads.
os.register_at_fork(after_in_child=_BACKGROUND.start_anew)
os.register_at_fork(after_in_child=_DEADLINES.start_anew)


class RayFetchAnswer:
    """See ``connection.FetchAnswer``."""

    __slots__ = (
        "_connection",
        "_partition",
        "_result",
        "aborted",
        "diverging",
        "end_offset",
        "high_watermark",
        "last_stable_offset",
        "leader_epoch",
        "log_start_offset",
    )

    def __init__(
        self, connection: "RayConnection", partition: TopicPartition, result: FetchResult
    ) -> None:
        self.high_watermark = result.high_watermark
        self.log_start_offset = result.log_start_offset
        self.end_offset = result.end_offset
        self.last_stable_offset = result.last_stable_offset
        self.aborted = result.aborted
        self.leader_epoch, self.diverging = result.leader_epoch, result.diverging
        self._connection, self._partition, self._result = connection, partition, result

    def read(self) -> Buffer | None:
        """The batches, for as long as anything refers to them.

        Raises SegmentDeleted where they cannot be read from this node any more.
        """
        if self._result.location is not None:
            return self._connection.read(self._partition, self._result)
        if self._result.records is None:
            return None
        return memoryview(self._result.records)  # type: ignore[arg-type]


class RayConnection:
    """See ``connection.Connection``."""

    max_in_flight = 1

    def __init__(
        self,
        namespace: str,
        address: str | None = None,
        *,
        run: Callable[[Work], None] = _BACKGROUND.run,
        deadlines: Deadlines = _DEADLINES,
        files: SegmentFiles = _FILES,
    ) -> None:
        """``address``: of the Ray cluster, which is joined on first use where the process is not.

        ``run``: does work that may wait. It, the deadlines and the files are the process's.
        """
        self.namespace, self.address = namespace, address
        self.deadlines, self._files = deadlines, files
        self._lookup = Lookup(namespace, address, run)
        self._topics: dict[str, TopicMetadata] = {}  # as the Controller described them last
        # why nobody served a partition, as the Controller said when it was asked last
        self._reasons: dict[TopicPartition, RaylogError] = {}
        self._explaining: set[TopicPartition] = set()
        # how many of its fetches go by call, after a file could not be read
        self._by_call: dict[TopicPartition, int] = {}
        self._failed_reads: dict[TopicPartition, int] = {}

    def __reduce__(self) -> Any:
        return (RayConnection, (self.namespace, self.address))

    # -- requests to partitions --------------------------------------------------------------------

    def produce(self, request: ProduceRequest, *, timeout_s: float) -> "Future[ProduceAnswer]":
        """See ``connection.Connection``."""
        partition = TopicPartition(request.topic, request.partition)
        is_small = len(request.records) <= INLINE_BYTES
        message = request.encode(with_records=is_small)
        # An array goes to the object store uncopied by pickle.
        large = None if is_small else np.frombuffer(request.records, np.uint8)
        return self._ask_partition(
            partition, timeout_s, lambda actor: actor.produce(message, large), ProduceAnswer.decode
        )

    def fetch(self, request: FetchRequest, *, timeout_s: float) -> "Future[FetchAnswer]":
        """See ``connection.Connection``."""
        partition = TopicPartition(request.topic, request.partition)
        may_read_files = self._may_read_files(partition)

        def ask(actor: LogActorStub) -> Call[FetchResult | bytes]:
            message = request.encode(own_node_id() if may_read_files else "")
            if request.max_wait_ms:
                return actor.poll_batches(message)
            return actor.fetch_batches(message)

        return self._ask_partition(
            partition, timeout_s, ask, partial(self._fetch_answer, partition), is_read=True
        )

    def list_offset(self, request: OffsetRequest, *, timeout_s: float) -> "Future[OffsetAnswer]":
        """See ``connection.Connection``."""
        message = request.encode()
        return self._ask_partition(
            TopicPartition(request.topic, request.partition),
            timeout_s,
            lambda actor: actor.list_offset(message),
            OffsetAnswer.decode,
            is_read=True,
        )

    def forget(self, topic: str, partition: int) -> None:
        """See ``connection.Connection``."""
        key = TopicPartition(topic, partition)
        self._lookup.forget(key)
        self._by_call.pop(key, None)
        self._failed_reads.pop(key, None)

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

    # -- reading on the partition's own node -------------------------------------------------------

    def read(self, partition: TopicPartition, result: FetchResult) -> Buffer:
        """The bytes at a location. Raises SegmentDeleted; the next fetch goes by call then."""
        assert result.location is not None
        try:
            content = self._files.read(result.location)
            if epoch_at(content) > result.leader_epoch:
                # The log was opened again, and written anew there, since the actor has looked.
                raise SegmentDeleted(result.location.path)
        except SegmentDeleted:
            failed = min(2 * self._failed_reads.get(partition, 0) or 1, MOST_FETCHES_BY_CALL)
            self._failed_reads[partition] = self._by_call[partition] = failed
            raise
        self._failed_reads.pop(partition, None)
        return content

    def _may_read_files(self, partition: TopicPartition) -> bool:
        """False for a while after one of its files could not be read here."""
        left = self._by_call.get(partition, 0)
        if left:
            self._by_call[partition] = left - 1
        return not left

    # -- calls -------------------------------------------------------------------------------------

    def ask_partition(
        self,
        partition: TopicPartition,
        timeout_s: float,
        ask: Callable[[LogActorStub], Call[Answer]],
    ) -> "Future[Answer]":
        """Ask the LogActor of a partition."""
        return self._ask_partition(partition, timeout_s, ask, _as_it_is)

    def _ask_partition(
        self,
        partition: TopicPartition,
        timeout_s: float,
        ask: Asking[LogActorStub],
        answer_of: Callable[[Any], Answer],
        *,
        is_read: bool = False,
    ) -> "Future[Answer]":
        future = self._future(str(partition), timeout_s, is_read=is_read)
        if future.done():
            return future
        use = partial(_send, future, ask, answer_of)
        self._lookup.log_actor(partition, use, partial(self._not_served, partition, future))
        return future

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
        self._lookup.controller(partial(_send, future, ask, _as_it_is), partial(fail, future))
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

    # -- answers -----------------------------------------------------------------------------------

    def _fetch_answer(
        self, partition: TopicPartition, answer: FetchResult | bytes
    ) -> RayFetchAnswer:
        result = FetchResult.decode(answer) if isinstance(answer, bytes) else answer
        return RayFetchAnswer(self, partition, result)


def _send(
    future: "Future[Any]", ask: Asking[Actor], answer_of: Callable[[Any], Any], actor: Actor
) -> None:
    """Make a call whose answer ends ``future``; unless it has ended while the actor was sought."""
    if future.done():
        return
    try:
        call = ask(actor)
        call.future().add_done_callback(partial(_settle, future, call.what, answer_of))
    except Exception as error:  # whatever Ray raises: a call never does, its future fails
        fail(future, named_error(error, "the request"))


def _settle(
    future: "Future[Any]", what: str, answer_of: Callable[[Any], Any], done: "Future[Any]"
) -> None:
    error = done.exception()
    if error is not None:
        fail(future, named_error(error, what))
        return
    try:
        end(future, answer_of(done.result()))
    except Exception as fault:  # else nobody would ever hear of it
        fail(future, fault)


def _as_it_is(answer: Answer) -> Answer:
    return answer
