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

On the partition's own node a fetch is answered with where the batches lie, and ``FetchAnswer.read``
reads the segment's file. The bytes are the caller's for as long as it refers to them; their buffer
is used again after that (``segment_files.py``).
"""

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

import numpy as np

from raylog.actors.errors import NotLeader, RequestTimedOut
from raylog.actors.messages import AppendResult, FetchResult
from raylog.actors.messages import FetchRequest as FetchMessage
from raylog.actors.runtime.calls import CALL_TIMEOUT_S, Call, named_error
from raylog.actors.runtime.nodes import own_node_id
from raylog.actors.runtime.stubs import LogActorStub
from raylog.cluster.client.background import Background, Work
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
from raylog.storage.indexes.time_index import TimestampOffset
from raylog.storage.names import TopicPartition

Actor = TypeVar("Actor")
Answer = TypeVar("Answer")
Asking = Callable[[Actor], Call[Any]]

# Ray puts an argument into the object store beyond 100 KB, its own few KB counted.
INLINE_BYTES = 90_000
# A file that could not be read here is not tried again for so many fetches, doubled each time.
MOST_FETCHES_BY_CALL = 1024

_BACKGROUND = Background()
_DEADLINES = Deadlines()
_FILES = SegmentFiles()


class RayFetchAnswer:
    """See ``connection.FetchAnswer``."""

    __slots__ = ("_connection", "_partition", "_result", "high_watermark", "log_start_offset")

    def __init__(
        self, connection: "RayConnection", partition: TopicPartition, result: FetchResult
    ) -> None:
        self.high_watermark = result.high_watermark
        self.log_start_offset = result.log_start_offset
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
        *,
        run: Callable[[Work], None] = _BACKGROUND.run,
        deadlines: Deadlines = _DEADLINES,
        files: SegmentFiles = _FILES,
    ) -> None:
        """``run``: does work that may wait. It, the deadlines and the files are the process's."""
        self.namespace = namespace
        self._deadlines, self._files = deadlines, files
        self._lookup = Lookup(namespace, run)
        self._nodes: dict[TopicPartition, str | None] = {}
        # why nobody served a partition, as the Controller said when it was asked last
        self._reasons: dict[TopicPartition, RaylogError] = {}
        self._explaining: set[TopicPartition] = set()
        # how many of its fetches go by call, after a file could not be read
        self._by_call: dict[TopicPartition, int] = {}
        self._failed_reads: dict[TopicPartition, int] = {}

    # -- requests to partitions --------------------------------------------------------------------

    def produce(self, request: ProduceRequest, *, timeout_s: float) -> "Future[ProduceAnswer]":
        """See ``connection.Connection``."""
        partition = TopicPartition(request.topic, request.partition)
        payload = _payload(request.records)
        return self._ask_partition(
            partition, timeout_s, lambda actor: actor.append(payload), _produce_answer
        )

    def fetch(self, request: FetchRequest, *, timeout_s: float) -> "Future[FetchAnswer]":
        """See ``connection.Connection``."""
        partition = TopicPartition(request.topic, request.partition)
        message = FetchMessage(
            offset=request.offset,
            max_bytes=request.max_bytes,
            min_bytes=request.min_bytes,
            max_wait_ms=request.max_wait_ms,
            locate=self._is_local(partition),
        ).encode()

        def ask(actor: LogActorStub) -> Call[FetchResult | bytes]:
            if request.max_wait_ms:
                return actor.poll_request(message)
            return actor.fetch_request(message)

        return self._ask_partition(
            partition, timeout_s, ask, partial(self._fetch_answer, partition)
        )

    def list_offset(self, request: OffsetRequest, *, timeout_s: float) -> "Future[OffsetAnswer]":
        """See ``connection.Connection``."""
        return self._ask_partition(
            TopicPartition(request.topic, request.partition),
            timeout_s,
            lambda actor: actor.offset_for_timestamp(request.timestamp),
            _offset_answer,
        )

    def forget(self, topic: str, partition: int) -> None:
        """See ``connection.Connection``."""
        key = TopicPartition(topic, partition)
        self._lookup.forget(key)
        self._nodes.pop(key, None)
        self._by_call.pop(key, None)
        self._failed_reads.pop(key, None)

    # -- requests to the Controller ----------------------------------------------------------------

    def metadata(self, topic: str, *, timeout_s: float) -> "Future[TopicMetadata]":
        """See ``connection.Connection``."""
        return self._ask_controller(
            f"the metadata of {topic}",
            timeout_s,
            lambda controller: controller.topic_metadata(topic),
            self._learn,
        )

    def new_producer_id(self, *, timeout_s: float) -> "Future[int]":
        """See ``connection.Connection``."""
        return self._ask_controller(
            "a producer id", timeout_s, ControllerStub.allocate_producer_id, int
        )

    # -- reading on the partition's own node -------------------------------------------------------

    def read(self, partition: TopicPartition, result: FetchResult) -> Buffer:
        """The bytes at a location. Raises SegmentDeleted; the next fetch goes by call then."""
        assert result.location is not None
        try:
            content = self._files.read(result.location)
        except SegmentDeleted:
            failed = min(2 * self._failed_reads.get(partition, 0) or 1, MOST_FETCHES_BY_CALL)
            self._failed_reads[partition] = self._by_call[partition] = failed
            raise
        self._failed_reads.pop(partition, None)
        return content

    def _is_local(self, partition: TopicPartition) -> bool:
        """Whether the answer may say where the batches lie; False while that is not known."""
        left = self._by_call.get(partition, 0)
        if left:
            self._by_call[partition] = left - 1
            return False
        node_id = self._nodes.get(partition)
        return node_id is not None and node_id == own_node_id()

    # -- calls -------------------------------------------------------------------------------------

    def _ask_partition(
        self,
        partition: TopicPartition,
        timeout_s: float,
        ask: Asking[LogActorStub],
        answer_of: Callable[[Any], Answer],
    ) -> "Future[Answer]":
        future = self._future(str(partition), timeout_s)
        use = partial(_send, future, ask, answer_of)
        self._lookup.log_actor(partition, use, partial(self._not_served, partition, future))
        return future

    def _ask_controller(
        self,
        what: str,
        timeout_s: float,
        ask: Asking[ControllerStub],
        answer_of: Callable[[Any], Answer],
    ) -> "Future[Answer]":
        future = self._future(what, timeout_s)
        future.add_done_callback(self._controller_answered)
        self._lookup.controller(partial(_send, future, ask, answer_of), partial(fail, future))
        return future

    def _controller_answered(self, done: "Future[Any]") -> None:
        if isinstance(done.exception(), NotLeader | RequestTimedOut):
            self._lookup.forget_controller()

    def _future(self, what: str, timeout_s: float) -> "Future[Any]":
        future: Future[Any] = Future()
        self._deadlines.watch(future, what, timeout_s)
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
        explanation = self._ask_controller(
            f"looking for {partition}",
            CALL_TIMEOUT_S,
            lambda controller: controller.explain(partition),
            lambda reason: reason,
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

    def _learn(self, metadata: TopicMetadata) -> TopicMetadata:
        for entry in metadata.partitions:
            self._nodes[TopicPartition(metadata.topic, entry.partition)] = entry.node_id
        return metadata

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


def _payload(records: Buffer) -> Any:
    """Bytes travel in the call; an array goes to the object store uncopied by pickle."""
    return bytes(records) if len(records) <= INLINE_BYTES else np.frombuffer(records, np.uint8)


def _produce_answer(result: AppendResult) -> ProduceAnswer:
    return ProduceAnswer(
        base_offset=result.base_offset,
        log_append_time=result.log_append_time,
        log_start_offset=result.log_start_offset,
        leader_epoch=result.leader_epoch,
        is_duplicate=result.is_duplicate,
    )


def _offset_answer(place: TimestampOffset | None) -> OffsetAnswer:
    if place is None:
        return OffsetAnswer(offset=-1, timestamp=-1, leader_epoch=-1)
    return OffsetAnswer(offset=place.offset, timestamp=place.timestamp, leader_epoch=-1)
