"""What a member's machine says: instructions to its shell, and changes for its reader."""

from typing import NamedTuple

from raylog.actors.plane.apis.api import Api
from raylog.storage.names import TopicPartition
from raylog.storage.schemas.types import Value

NO_MEMBER = ""
NO_GENERATION = -1


class OffsetAndMetadata(NamedTuple):
    """A committed place: the next offset to read, with a text of the user's.

    ``leader_epoch``: of the records before it (KIP-320); -1: not known.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class GroupMetadata(NamedTuple):
    """Who a consumer is in its group: as requests of a member carry it."""

    group_id: str
    generation: int = NO_GENERATION
    member_id: str = NO_MEMBER
    instance_id: str | None = None


# -- instructions ----------------------------------------------------------------------------------


class Ask(NamedTuple):
    """Ask the coordinator. The answer is an event with the same ``number``."""

    number: int
    api: Api
    body: Value
    timeout_s: float
    waits: bool = False  # its answer comes when other members have come, too


class Learn(NamedTuple):
    """Ask how many partitions a topic has."""

    topic: str


class ListTopics(NamedTuple):
    """Ask which topics there are."""


class ForgetCoordinator(NamedTuple):
    """Look up afresh who coordinates the group."""


Instruction = Ask | Learn | ListTopics | ForgetCoordinator


# -- what the reader is to do ----------------------------------------------------------------------


class Revoke(NamedTuple):
    """Stop reading these; ``is_lost``: others may read them already."""

    partitions: tuple[TopicPartition, ...]
    generation: int
    is_lost: bool = False


class Assign(NamedTuple):
    """Read these, too, from where the group stands."""

    partitions: tuple[TopicPartition, ...]
    generation: int


Change = Revoke | Assign
