"""Answers what concerns the cluster, in the process that knows its image: the node's LogManager."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

from raylog.actors.plane import describing
from raylog.actors.plane.apis.api import Api
from raylog.actors.plane.apis.cluster import (
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC_PARTITIONS,
    FIND_COORDINATOR,
    LIST_PARTITION_REASSIGNMENTS,
    METADATA,
)
from raylog.actors.plane.apis.records import INIT_PRODUCER_ID
from raylog.actors.plane.codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    INVALID_REQUEST,
)
from raylog.actors.plane.errors import ClusterUnknown, UnsupportedRequest
from raylog.actors.plane.frames import Request, answer, read_body
from raylog.actors.plane.image import ClusterImage
from raylog.actors.plane.sending import Piece
from raylog.storage.errors import RaylogError
from raylog.storage.schemas.types import Value

_Answering: TypeAlias = Callable[[int, Value, ClusterImage], Value]
_ANSWERS: Final[Mapping[Api, _Answering]] = {
    METADATA: describing.metadata,
    DESCRIBE_CLUSTER: describing.cluster,
    DESCRIBE_TOPIC_PARTITIONS: lambda _, body, image: describing.topic_partitions(body, image),
    FIND_COORDINATOR: lambda version, body, _: describing.coordinator(version, body),
    LIST_PARTITION_REASSIGNMENTS: lambda *_: describing.reassignments(),
}


class Commands(Protocol):
    """What only the Controller can do. Raises RaylogError where it is away."""

    def allocate_producer_id(self) -> int:
        """A producer id that nobody has had."""


class ClusterDoor:
    """See the module's head. ``image`` is replaced by whoever hears of a newer one."""

    def __init__(self, commands: Commands, image: ClusterImage | None = None) -> None:
        """``image``: None while nobody has told it."""
        self.image, self._commands = image, commands

    def __call__(self, request: Request) -> Sequence[Piece]:
        """The answer to a request. Raises MalformedRequest, UnsupportedRequest, ClusterUnknown."""
        if request.api is INIT_PRODUCER_ID:
            return [answer(request, self._producer_id(read_body(request)))]
        answering = _ANSWERS.get(request.api)
        if answering is None:
            raise UnsupportedRequest(request.api.name, request.version, request.correlation_id)
        body = read_body(request)
        image = self.image
        if image is None:
            raise ClusterUnknown(request.api.name)
        return [answer(request, answering(request.version, body, image))]

    def _producer_id(self, body: Value) -> Value:
        """A new id, of the epoch 0; one that the producer has is given up, as Kafka does it.

        There are no transactions: such a producer asks again, and goes on asking.
        """
        has_id, has_epoch = body["producerId"] >= 0, body["producerEpoch"] >= 0
        if has_id != has_epoch or body["transactionalId"] == "":
            return _no_producer_id(INVALID_REQUEST)
        if body["transactionalId"] is not None:
            return _no_producer_id(COORDINATOR_NOT_AVAILABLE)
        try:
            producer_id = self._commands.allocate_producer_id()
        except RaylogError:
            return _no_producer_id(COORDINATOR_LOAD_IN_PROGRESS)
        return {"throttleTimeMs": 0, "errorCode": 0, "producerId": producer_id, "producerEpoch": 0}


def _no_producer_id(error_code: int) -> Value:
    return {"throttleTimeMs": 0, "errorCode": error_code, "producerId": -1, "producerEpoch": -1}
