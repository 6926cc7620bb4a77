"""Answers what concerns the cluster, in the process that knows its image: the node's LogManager."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

from raylog.actors.coordinators.codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    NOT_COORDINATOR,
)
from raylog.actors.coordinators.group_config import OFFSETS_TOPIC, OffsetsTopic
from raylog.actors.coordinators.transactions.config import STATE_TOPIC, StateTopic
from raylog.actors.messages import LogDirStatus
from raylog.actors.plane import describing
from raylog.actors.plane.admin import ADMIN_APIS, fault_of, refused, timeout_s
from raylog.actors.plane.apis.api import Api
from raylog.actors.plane.apis.cluster import (
    DESCRIBE_CLUSTER,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_TOPIC_PARTITIONS,
    FIND_COORDINATOR,
    LIST_PARTITION_REASSIGNMENTS,
    METADATA,
)
from raylog.actors.plane.apis.configs import DESCRIBE_CONFIGS
from raylog.actors.plane.apis.records import INIT_PRODUCER_ID
from raylog.actors.plane.codes import (
    INVALID_REQUEST,
)
from raylog.actors.plane.disks import of_node
from raylog.actors.plane.errors import ClusterUnknown, UnsupportedRequest
from raylog.actors.plane.frames import Request, answer, read_body
from raylog.actors.plane.groups.finding import CoordinatorFinder
from raylog.actors.plane.image import ClusterImage
from raylog.actors.plane.parking import Parking
from raylog.actors.plane.sending import Piece
from raylog.storage.errors import RaylogError
from raylog.storage.schemas.types import Value

_NONE: Final = -1  # of producer ids and epochs
_Answering: TypeAlias = Callable[[int, Value, ClusterImage], Value]
_ANSWERS: Final[Mapping[Api, _Answering]] = {
    METADATA: describing.metadata,
    DESCRIBE_CLUSTER: describing.cluster,
    DESCRIBE_TOPIC_PARTITIONS: lambda _, body, image: describing.topic_partitions(body, image),
    LIST_PARTITION_REASSIGNMENTS: lambda *_: describing.reassignments(),
}


class Commands(Protocol):
    """What only the Controller can do. Raises RaylogError where it is away."""

    def allocate_producer_id(self) -> int:
        """A producer id that nobody has had."""

    def answer_command(self, frame: bytes, timeout_s: float) -> bytes:
        """The frame that answers one of ADMIN_APIS that changes something."""

    def answer_lookup(self, frame: bytes, timeout_s: float) -> bytes:
        """The frame that answers one of them that changes nothing."""


class ClusterDoor:
    """See the module's head. ``image`` is replaced by whoever hears of a newer one."""

    def __init__(
        self,
        commands: Commands,
        log_dirs: Callable[[], Sequence[LogDirStatus]],
        image: ClusterImage | None = None,
        offsets_topic: OffsetsTopic = OFFSETS_TOPIC,
        state_topic: StateTopic = STATE_TOPIC,
    ) -> None:
        """``log_dirs``: those of the node. ``image``: None while nobody has told it.

        ``offsets_topic``, ``state_topic``: how the topics of groups and of transactions are made.
        """
        self.image, self._commands, self._log_dirs = image, commands, log_dirs
        self._coordinators = CoordinatorFinder(commands, offsets_topic, state_topic)

    def __call__(self, request: Request, parking: Parking) -> Sequence[Piece]:
        """The answer to a request. Raises MalformedRequest, UnsupportedRequest, ClusterUnknown.

        ``parking``: not used, since nothing here waits without a deadline.
        """
        if request.api is INIT_PRODUCER_ID:
            return [answer(request, self._producer_id(read_body(request)))]
        if request.api is DESCRIBE_LOG_DIRS:
            return [of_node(request, self._log_dirs())]
        if request.api in ADMIN_APIS:
            return [self._passed_on(request)]
        answering = _ANSWERS.get(request.api)
        if request.api is FIND_COORDINATOR:
            answering = self._coordinators.answer
        if answering is None:
            raise UnsupportedRequest(request.api.name, request.version, request.correlation_id)
        body = read_body(request)
        image = self.image
        if image is None:
            raise ClusterUnknown(request.api.name)
        return [answer(request, answering(request.version, body, image))]

    def _passed_on(self, request: Request) -> bytes:
        """What the Controller answers, or the answer that says why it does not."""
        body = read_body(request)
        is_lookup = request.api is DESCRIBE_CONFIGS
        ask = self._commands.answer_lookup if is_lookup else self._commands.answer_command
        try:
            return ask(bytes(request.frame), timeout_s(body))
        except RaylogError as error:
            fault = fault_of(error)
        return answer(request, refused(request.api, request.version, body, fault))

    def _producer_id(self, body: Value) -> Value:
        """A new id, of the epoch 0; one that the producer has is given up, as Kafka does it.

        Who has a transactional id asks its coordinator, and this is none.
        """
        has_id, has_epoch = body["producerId"] != _NONE, body["producerEpoch"] != _NONE
        if has_id != has_epoch or body["transactionalId"] == "":
            return _no_producer_id(INVALID_REQUEST)
        if body["transactionalId"] is not None:
            return _no_producer_id(NOT_COORDINATOR)
        try:
            producer_id = self._commands.allocate_producer_id()
        except RaylogError:
            return _no_producer_id(COORDINATOR_LOAD_IN_PROGRESS)
        return {"throttleTimeMs": 0, "errorCode": 0, "producerId": producer_id, "producerEpoch": 0}


def _no_producer_id(error_code: int) -> Value:
    return {"throttleTimeMs": 0, "errorCode": error_code, "producerId": -1, "producerEpoch": -1}
