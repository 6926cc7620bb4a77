"""Answers what concerns the cluster, in the process that knows its image: the node's LogManager."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from raylog.actors.plane import describing
from raylog.actors.plane.apis.api import Api
from raylog.actors.plane.apis.cluster import (
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC_PARTITIONS,
    FIND_COORDINATOR,
    LIST_PARTITION_REASSIGNMENTS,
    METADATA,
)
from raylog.actors.plane.errors import UnsupportedRequest
from raylog.actors.plane.frames import Request, answer, read_body
from raylog.actors.plane.image import ClusterImage
from raylog.actors.plane.sending import Piece
from raylog.storage.schemas.types import Value

_Answering: TypeAlias = Callable[[int, Value, ClusterImage], Value]
_ANSWERS: Final[Mapping[Api, _Answering]] = {
    METADATA: describing.metadata,
    DESCRIBE_CLUSTER: describing.cluster,
    DESCRIBE_TOPIC_PARTITIONS: lambda _, body, image: describing.topic_partitions(body, image),
    FIND_COORDINATOR: lambda version, body, _: describing.coordinator(version, body),
    LIST_PARTITION_REASSIGNMENTS: lambda *_: describing.reassignments(),
}


class ClusterDoor:
    """See the module's head. ``image`` is replaced by whoever hears of a newer one."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image

    def __call__(self, request: Request) -> Sequence[Piece]:
        """The answer to a request. Raises MalformedRequest, and UnsupportedRequest."""
        answering = _ANSWERS.get(request.api)
        if answering is None:
            raise UnsupportedRequest(request.api.name, request.version, request.correlation_id)
        body = read_body(request)
        return [answer(request, answering(request.version, body, self.image))]
