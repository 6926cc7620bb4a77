"""What raylog's clients stand on: sockets to LogActors, and Ray for what concerns the cluster.

::

    produce, fetch, list_offset
      on this machine    the LogActor's Unix socket, whose name is known (``local_logs.py``)
      on another one     TCP, at an address that the LogActor tells by Ray (``remote_logs.py``)
      nobody serves      Ray says so, and the Controller why (``ray_connection.py``)
    metadata, producer ids, names of topics
                         the Controller, by Ray
    without Ray          both from a LogManager, by socket (``socket_cluster.py``)

A Ray call takes about a millisecond, and a request by socket a fifth of it. Requests to a partition
go in the order in which they were asked for, and are answered in that order; so several may be on
their way at once. Those that wait for an address keep their order, too.
"""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from raylog.actors.errors import ActorAway, ForkedProcess, RequestTimedOut
from raylog.actors.messages import DataAddress
from raylog.actors.plane.apis.api import Api
from raylog.actors.runtime.clusters import check_not_forked
from raylog.cluster.client.buffers import Buffers
from raylog.cluster.client.connection import (
    ApiRequest,
    FetchAnswer,
    FetchRequest,
    OffsetAnswer,
    OffsetRequest,
    ProduceAnswer,
    ProduceRequest,
    TopicMetadata,
)
from raylog.cluster.client.deadlines import Deadlines, end, fail
from raylog.cluster.client.sockets import wire
from raylog.cluster.client.sockets.channel import Channel
from raylog.cluster.client.sockets.channels import Channels, Key
from raylog.cluster.client.sockets.local_logs import LocalLogs
from raylog.cluster.client.sockets.reactor import Reactor
from raylog.cluster.client.sockets.remote_logs import RemoteLogs
from raylog.storage.buffers import Buffer
from raylog.storage.errors import RaylogError
from raylog.storage.names import TopicPartition
from raylog.storage.schemas.types import Value

_BUFFERS: Final = Buffers()
_REACTOR: Final = Reactor()
# By ``broker_id``. All connections of a process share them: each channel is a thread of a
# LogActor, which has places for a thousand.
_LOCAL: Final[dict[str, LocalLogs]] = {}
_REMOTE: Final = RemoteLogs(_REACTOR, _BUFFERS)
# A process that is forked off has none of its parent's threads.
os.register_at_fork(after_in_child=_REACTOR.start_anew)

Request: TypeAlias = ProduceRequest | FetchRequest | OffsetRequest | ApiRequest


def logs_of(broker: str) -> LocalLogs:
    """The LogActors of a broker on this machine: the same for the whole process."""
    return _LOCAL.setdefault(broker, LocalLogs(broker, _REACTOR, _BUFFERS))


class Logs(Protocol):
    """LogActors that are reached in one way."""

    channels: Channels

    def failed(self, key: Key, channel: Channel, *, hangs: bool) -> None:
        """A request got no answer by this channel; ``hangs``: since its time was up."""


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


def _form_of(api: Api) -> _Form:
    return _Form(
        lambda request, correlation_id: wire.request_frame(api, correlation_id, request.body),
        lambda frame, _: wire.answer_body(api, frame),
        is_read=False,
    )


class _Asking(NamedTuple):
    """A request, and the future that its answer ends."""

    request: Request
    form: _Form
    may_wait: bool
    future: "Future[Any]"

    @property
    def key(self) -> Key:
        return self.request.topic_id, self.request.partition

    @property
    def partition(self) -> TopicPartition:
        return TopicPartition(self.request.topic, self.request.partition)


class Cluster(Protocol):
    """Who knows a cluster, and where its partitions are served: see ``ray_connection.py``."""

    namespace: str
    deadlines: Deadlines

    def broker_id(self, cluster_id: str) -> str:
        """What the names of its sockets on this machine begin with; empty where nobody knows."""

    def data_address(
        self, partition: TopicPartition, topic_id: str, *, timeout_s: float
    ) -> "Future[DataAddress]":
        """Where the LogActor of a partition listens; without a token, it asks for none."""

    def metadata(self, topic: str, *, timeout_s: float) -> "Future[TopicMetadata]":
        """See ``connection.Connection``, and so are the others."""

    def list_topics(self, *, timeout_s: float) -> "Future[list[str]]": ...

    def new_producer_id(self, *, timeout_s: float) -> "Future[int]": ...

    def forget(self, topic: str, partition: int) -> None: ...


OfCluster = TypeVar("OfCluster", bound=Cluster)


class SocketConnection(Generic[OfCluster]):
    """See ``connection.Connection``."""

    max_in_flight = 5  # as many as a log remembers of each producer, to know what was sent twice

    def __init__(
        self,
        cluster: OfCluster,
        *,
        logs_of: Callable[[str], LocalLogs] = logs_of,
        remote: RemoteLogs = _REMOTE,
    ) -> None:
        """``logs_of``: those of a broker here."""
        self.namespace = cluster.namespace
        self.cluster, self._logs_of, self._remote = cluster, logs_of, remote
        self._local: LocalLogs | None = None  # None: the cluster's id is not known
        self._lock = threading.Lock()
        # Requests that wait until the address of their partition is known, in order.
        self._waiting: dict[Key, list[_Asking]] = {}

    def __reduce__(self) -> Any:
        return (SocketConnection, (self.cluster,))

    # -- requests to partitions --------------------------------------------------------------------

    def produce(self, request: ProduceRequest, *, timeout_s: float) -> "Future[ProduceAnswer]":
        """See ``connection.Connection``."""
        return self._ask(request, timeout_s, _PRODUCE)

    def fetch(self, request: FetchRequest, *, timeout_s: float) -> "Future[FetchAnswer]":
        """See ``connection.Connection``."""
        return self._ask(request, timeout_s, _FETCH, may_wait=request.max_wait_ms > 0)

    def list_offset(self, request: OffsetRequest, *, timeout_s: float) -> "Future[OffsetAnswer]":
        """See ``connection.Connection``."""
        return self._ask(request, timeout_s, _LIST_OFFSET)

    def ask(self, request: ApiRequest, *, timeout_s: float) -> "Future[Value]":
        """See ``connection.Connection``."""
        form = _form_of(request.api)
        return self._ask(request, timeout_s, form, may_wait=request.may_wait)

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        """See ``connection.Connection``."""
        self.cluster.deadlines.call_later(seconds, call)

    def forget(self, topic: str, partition: int) -> None:
        """See ``connection.Connection``."""
        self.cluster.forget(topic, partition)

    # -- requests to the Controller ----------------------------------------------------------------

    def metadata(self, topic: str, *, timeout_s: float) -> "Future[TopicMetadata]":
        """See ``connection.Connection``."""
        asked = self.cluster.metadata(topic, timeout_s=timeout_s)
        asked.add_done_callback(self._learn_cluster)
        return asked

    def list_topics(self, *, timeout_s: float) -> "Future[list[str]]":
        """See ``connection.Connection``."""
        return self.cluster.list_topics(timeout_s=timeout_s)

    def new_producer_id(self, *, timeout_s: float) -> "Future[int]":
        """See ``connection.Connection``."""
        return self.cluster.new_producer_id(timeout_s=timeout_s)

    # -- sockets -----------------------------------------------------------------------------------

    def _learn_cluster(self, done: "Future[TopicMetadata]") -> None:
        cluster_id = "" if done.exception() is not None else done.result().cluster_id
        broker = self.cluster.broker_id(cluster_id) if cluster_id else ""
        if broker:
            self._local = self._logs_of(broker)

    def _ask(
        self, request: Request, timeout_s: float, form: _Form, *, may_wait: bool = False
    ) -> "Future[Any]":
        future: Future[Any] = Future()
        asking = _Asking(request, form, may_wait, future)
        try:
            check_not_forked()
        except ForkedProcess as error:
            future.set_exception(error)
            return future
        self.cluster.deadlines.watch(future, str(asking.partition), timeout_s, is_read=form.is_read)
        with self._lock:
            waiting = self._waiting.get(asking.key)
            if waiting is None and self._send(asking):
                return future
            self._waiting.setdefault(asking.key, []).append(asking)
        if waiting is None:
            self._find(asking, timeout_s)
        return future

    def _send(self, asking: _Asking) -> bool:
        """Whether there is a channel for it, by which it is sent now. The lock is held.

        It is the Unix socket, unless requests are on their way by TCP: it might overtake them.
        """
        ways: list[Logs] = [] if self._local is None else [self._local]
        if self._remote.knows(asking.key):
            at = 0 if self._remote.channels.is_busy(asking.key) else len(ways)
            ways.insert(at, self._remote)
        return any(_sent(asking, way) for way in ways)

    def _find(self, asking: _Asking, timeout_s: float) -> None:
        """Ask where a LogActor listens; what waits for it is sent then."""
        asked = self.cluster.data_address(
            asking.partition, asking.request.topic_id, timeout_s=timeout_s
        )
        asked.add_done_callback(partial(self._found, asking.key))

    def _found(self, key: Key, done: "Future[DataAddress]") -> None:
        """A LogActor serves and can be reached, or not: send what waits for it, or say why not."""
        error = done.exception()
        with self._lock:
            waiting = [one for one in self._waiting.pop(key) if not one.future.done()]
            if error is None:
                waiting = self._sent_to(done.result(), key, waiting)
        for asking in waiting:
            fail(asking.future, error or _nobody_there(asking, done.result()))

    def _sent_to(self, address: DataAddress, key: Key, waiting: list[_Asking]) -> list[_Asking]:
        """Send these to who serves the partition; returns those that could not be."""
        if self._local is not None:
            self._local.look_again(key)
        for number, asking in enumerate(waiting):
            if self._send(asking):
                continue
            self._remote.learn(key, address)
            if not self._send(asking):
                return waiting[number:]
        return []


def _nobody_there(asking: _Asking, address: DataAddress) -> ActorAway:
    why = f"nobody listens at {address.host}:{address.port}, where it said that it does"
    return ActorAway(str(asking.partition), why)


def _sent(asking: _Asking, logs: Logs) -> bool:
    """Send a request by a channel of these, if there is one."""
    key, future, what = asking.key, asking.future, str(asking.partition)
    channels = logs.channels
    channel = channels.take(key) if asking.may_wait else channels.direct(key)
    if channel is None:
        return False
    is_sent = channel.ask(
        partial(asking.form.write, asking.request),
        partial(_answered, future, asking.form.read, what),
        lambda why: fail(future, ActorAway(what, why)),
    )
    if not is_sent:
        return False
    # First: a channel that ends must not be given back as one that others can use.
    future.add_done_callback(partial(_note_failure, logs, key, channel))
    if asking.may_wait:
        future.add_done_callback(lambda _: channels.give_back(key, channel))
    return True


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


def _note_failure(logs: Logs, key: Key, channel: Channel, done: "Future[Any]") -> None:
    """What has no answer holds up what is behind it: end its channel."""
    if done.cancelled():  # nobody waits for it any more, which says nothing of the LogActor
        channel.end()
        return
    hangs = isinstance(done.exception(), RequestTimedOut)
    if hangs:
        channel.end()
    if hangs or channel.has_ended:
        logs.failed(key, channel, hangs=hangs)
