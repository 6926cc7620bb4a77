"""How a client reaches a partition: one small interface, for Ray calls now and a socket later.

Ray's costs decide the sizes: a call is about a millisecond whatever it carries, up to 90 KB go
inside it, and more goes through the object store for another millisecond. So a request carries a
whole batch.
"""

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from raylog.actors.messages import AppendResult
from raylog.actors.runtime.calls import named_error
from raylog.storage.buffers import Buffer

if TYPE_CHECKING:
    from raylog.cluster.broker import Broker

# Ray puts an argument into the object store beyond 100 KB, its own few KB counted.
INLINE_BYTES = 90_000


class Transport(Protocol):
    """Sends encoded batches to partitions."""

    def append(self, topic: str, partition: int, batch: Buffer) -> "Future[AppendResult]":
        """The future acknowledgement; it fails with raylog's errors.

        May raise them at once, too, but never waits: the batches of all partitions go through one
        thread.
        """

    def forget(self, topic: str, partition: int) -> None:
        """Look the partition up afresh: its actor did not answer."""


class RayTransport:
    """Ray calls to the LogActors."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    def append(self, topic: str, partition: int, batch: Buffer) -> "Future[AppendResult]":
        # one that is away holds up no other
        log_actor = self._broker.log_actor(topic, partition, timeout_s=0)
        # Bytes travel in the call; an array goes to the object store uncopied by pickle.
        payload = bytes(batch) if len(batch) <= INLINE_BYTES else np.frombuffer(batch, np.uint8)
        answer: Future[AppendResult] = Future()
        call = log_actor.append(payload)
        call.future().add_done_callback(lambda done: _settle(done, answer, call.what))
        return answer

    def forget(self, topic: str, partition: int) -> None:
        self._broker.forget(topic, partition)


def _settle(done: "Future[Any]", answer: "Future[AppendResult]", what: str) -> None:
    error = done.exception()
    if error is None:
        answer.set_result(done.result())
    else:
        answer.set_exception(named_error(error, what))
