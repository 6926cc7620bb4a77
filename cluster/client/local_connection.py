"""A connection that goes by socket to the LogActors of this machine, and by Ray to the others.

A Ray call takes about a millisecond, and a request by socket a fifth of it. The name of a
partition's socket is known (``plane/addresses.py``), so nobody is asked for it: a request either
finds its socket at once, or goes by Ray, which also knows why nobody serves. What concerns the
cluster goes to the Controller, by Ray; its answers tell the cluster's id, which is in the names.

A socket that does not answer in time, or ends before it has answered anything, is avoided for a
while: its process may hang, and Ray may have begun another.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from raylog.actors.errors import ActorAway, RequestTimedOut
from raylog.actors.runtime.clusters import is_forked
from raylog.cluster.client.connection import (
    FetchAnswer,
    FetchRequest,
    OffsetAnswer,
    OffsetRequest,
    ProduceAnswer,
    ProduceRequest,
    TopicMetadata,
)
from raylog.cluster.client.deadlines import end, fail
from raylog.cluster.client.ray_connection import BUFFERS, RayConnection
from raylog.cluster.client.sockets import wire
from raylog.cluster.client.sockets.channel import Channel
from raylog.cluster.client.sockets.local_logs import Key, LocalLogs
from raylog.cluster.client.sockets.reactor import Reactor
from raylog.storage.buffers import Buffer
from raylog.storage.errors import RaylogError
from raylog.storage.names import TopicPartition

# A socket that did not answer in time is not used for so long.
AVOID_S: Final = 10.0

_REACTOR: Final = Reactor()
# By the cluster's id. All connections of a process share them: each channel is a thread of a
# LogActor, which has places for a thousand.
_LOGS: Final[dict[str, LocalLogs]] = {}
# A process that is forked off has none of its parent's threads.
os.register_at_fork(after_in_child=_REACTOR.start_anew)
os.register_at_fork(after_in_child=_LOGS.clear)

Request: TypeAlias = ProduceRequest | FetchRequest | OffsetRequest


def logs_of(cluster_id: str) -> LocalLogs:
    """The LogActors of a cluster on this machine: the same for the whole process."""
    return _LOGS.setdefault(cluster_id, LocalLogs(cluster_id, _REACTOR, BUFFERS))


class _Form(NamedTuple):
    """How a kind of request goes by socket."""

    # Of a request, with a correlation id: the pieces of its frame.
    write: Callable[[Any, int], Sequence[Buffer]]
    # Of an answer's frame and the partition's name. Raises what is answered, and ValueError.
    read: Callable[[memoryview, str], Any]
    is_read: bool


_PRODUCE: Final = _Form(wire.produce_request, wire.produce_answer, is_read=False)
_FETCH: Final = _Form(wire.fetch_request, wire.fetch_answer, is_read=True)
_LIST_OFFSET: Final = _Form(wire.offset_request, wire.offset_answer, is_read=True)


class LocalConnection:
    """See ``connection.Connection``."""

    max_in_flight = 1

    def __init__(
        self,
        by_ray: RayConnection,
        *,
        logs_of: Callable[[str], LocalLogs] = logs_of,
    ) -> None:
        """``by_ray``: for all that is not on this machine. ``logs_of``: those of a cluster."""
        self.namespace = by_ray.namespace
        self._by_ray, self._logs_of = by_ray, logs_of
        self._logs: LocalLogs | None = None  # None: the cluster's id is not known

    def __reduce__(self) -> Any:
        return (LocalConnection, (self._by_ray,))

    # -- requests to partitions --------------------------------------------------------------------

    def produce(self, request: ProduceRequest, *, timeout_s: float) -> "Future[ProduceAnswer]":
        """See ``connection.Connection``."""
        by_socket = self._ask(request, timeout_s, _PRODUCE)
        return by_socket or self._by_ray.produce(request, timeout_s=timeout_s)

    def fetch(self, request: FetchRequest, *, timeout_s: float) -> "Future[FetchAnswer]":
        """See ``connection.Connection``."""
        by_socket = self._ask(request, timeout_s, _FETCH, may_wait=request.max_wait_ms > 0)
        return by_socket or self._by_ray.fetch(request, timeout_s=timeout_s)

    def list_offset(self, request: OffsetRequest, *, timeout_s: float) -> "Future[OffsetAnswer]":
        """See ``connection.Connection``."""
        by_socket = self._ask(request, timeout_s, _LIST_OFFSET)
        return by_socket or self._by_ray.list_offset(request, timeout_s=timeout_s)

    def forget(self, topic: str, partition: int) -> None:
        """See ``connection.Connection``."""
        self._by_ray.forget(topic, partition)

    # -- requests to the Controller ----------------------------------------------------------------

    def metadata(self, topic: str, *, timeout_s: float) -> "Future[TopicMetadata]":
        """See ``connection.Connection``."""
        asked = self._by_ray.metadata(topic, timeout_s=timeout_s)
        asked.add_done_callback(self._learn_cluster)
        return asked

    def list_topics(self, *, timeout_s: float) -> "Future[list[str]]":
        """See ``connection.Connection``."""
        return self._by_ray.list_topics(timeout_s=timeout_s)

    def new_producer_id(self, *, timeout_s: float) -> "Future[int]":
        """See ``connection.Connection``."""
        return self._by_ray.new_producer_id(timeout_s=timeout_s)

    # -- sockets -----------------------------------------------------------------------------------

    def _learn_cluster(self, done: "Future[TopicMetadata]") -> None:
        cluster_id = "" if done.exception() is not None else done.result().cluster_id
        if cluster_id:
            self._logs = self._logs_of(cluster_id)

    def _ask(
        self, request: Request, timeout_s: float, form: _Form, *, may_wait: bool = False
    ) -> "Future[Any] | None":
        """Ask by socket; None where that is not possible, and nothing was sent."""
        logs = self._logs
        if logs is None or is_forked():
            return None
        key = request.topic_id, request.partition
        channel = logs.take(key) if may_wait else logs.direct(key)
        if channel is None:
            return None
        what = str(TopicPartition(request.topic, request.partition))
        future: Future[Any] = Future()
        is_sent = channel.ask(
            partial(form.write, request),
            partial(_answered, future, form.read, what),
            lambda why: fail(future, ActorAway(what, why)),
        )
        if may_wait:
            future.add_done_callback(lambda _: logs.give_back(key, channel))
        if not is_sent:
            future.cancel()
            return None
        future.add_done_callback(partial(_avoid_who_hangs, logs, key, channel))
        self._by_ray.deadlines.watch(future, what, timeout_s, is_read=form.is_read)
        return future


def _answered(
    future: "Future[Any]",
    read: Callable[[memoryview, str], Any],
    what: str,
    frame: memoryview,
) -> None:
    """An answer is here. Raises ValueError where it is none."""
    try:
        end(future, read(frame, what))
    except RaylogError as error:
        fail(future, error)


def _avoid_who_hangs(logs: LocalLogs, key: Key, channel: Channel, done: "Future[Any]") -> None:
    """What has no answer holds up what is behind it: end its channel.

    One that ends before it has answered anything would do so again.
    """
    if done.cancelled() or isinstance(done.exception(), RequestTimedOut):
        channel.end()
        logs.avoid(key, AVOID_S)
    elif not channel.has_answered:
        logs.avoid(key, AVOID_S)
