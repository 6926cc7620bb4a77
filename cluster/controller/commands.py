"""What users ask of the Controller, as values. What becomes of it, ``judging.py`` says."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from raylog.actors.plane.sasl.scram import Verifier
from raylog.cluster.controller.records import NodeState


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopic:
    """``topic_id``: a random one that the caller has chosen; ``partitions``: None for the broker's
    num.partitions.

    Where a topic has this name and this id, the command is repeated, since its answer was lost.
    Where a topic with this id was removed, too: nothing is made then.
    """

    name: str
    topic_id: str
    partitions: int | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """Extend a topic to ``total`` partitions.

    ``topic_id``: of the topic that is meant; None: whichever has the name. ``is_repeated``: an
    answer to this was lost, so the topic may have ``total`` of them already.
    """

    name: str
    total: int
    topic_id: str | None = None
    validate_only: bool = False
    is_repeated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ListChange:
    """Put ``entries`` behind those of a key that is a list, or take them out."""

    key: str
    entries: tuple[str, ...]
    takes_out: bool

    def applied(self, now: str) -> str:
        """The list that comes of the one that is now; its entries are parted by commas."""
        old = now.split(",")
        if self.takes_out:
            return ",".join(entry for entry in old if entry not in self.entries)
        return ",".join([*old, *(entry for entry in self.entries if entry not in old)])


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTopic:
    """Set keys of a topic's config, and give others the broker's value again.

    ``lists``: of the lists as they are when this is judged, so none of two changes is lost.
    ``replaces``: all that ``changes`` does not set has the broker's value again.
    """

    name: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    delete: tuple[str, ...] = ()
    lists: tuple[ListChange, ...] = ()
    validate_only: bool = False
    replaces: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopic:
    """Remove a topic and its records.

    ``topic_id``: of the topic that is meant; None: whichever has the name. ``is_repeated``: an
    answer to this was lost, so the topic may be gone already.
    """

    name: str
    topic_id: str | None = None
    is_repeated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePartition:
    """Move a partition to another log dir of its node. ``log_dir``: a path or a directory id."""

    name: str
    number: int
    log_dir: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelMove:
    """Leave a partition that is being moved where it is."""

    name: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirOnline:
    """Use a log dir again that was offline. ``log_dir``: a path or a directory id.

    ``node``: the key of its node; None where only one node has such a log dir.
    """

    log_dir: str
    node: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirOut:
    """Take a log dir out of use in order, until ``LogDirOnline``. The fields are as of that."""

    log_dir: str
    node: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainNode:
    """Give a node no new partition; ``is_undone``: give it some again. ``node``: its key."""

    node: str
    is_undone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StopNode:
    """Close what a node has in order, and have nothing run there. ``node``: its key."""

    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartNode:
    """Use a node again that was stopped or drained. ``node``: its key."""

    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyConfig:
    """Have the broker obey this config from now on, the whole of it; keys that it lacks have
    Kafka's defaults, but for the log dirs. ``if_version``: of the config that must count until
    then; None for any."""

    config: Mapping[str, Any] = field(default_factory=dict)
    validate_only: bool = False
    if_version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateProducerId:
    """A producer id that nobody has had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalizeUpgrade:
    """Have the cluster write a newer level. ``without``: keys of nodes that do not report.

    These do not come back, or with a raylog that knows the level: another one is refused.
    """

    level: int
    without: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class PutUser:
    """Let somebody in by SASL who proves that he knows a password; one who is known gets this one.

    ``verifiers``: what is kept of it, for each mechanism.
    """

    name: str
    verifiers: tuple[Verifier, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteUser:
    """Let a user in no more. ``is_repeated``: an answer to this was lost, so he may be gone."""

    name: str
    is_repeated: bool = False


Command = (
    CreateTopic
    | AddPartitions
    | AlterTopic
    | DeleteTopic
    | MovePartition
    | CancelMove
    | LogDirOnline
    | LogDirOut
    | DrainNode
    | StopNode
    | StartNode
    | ApplyConfig
    | AllocateProducerId
    | FinalizeUpgrade
    | PutUser
    | DeleteUser
)


def wanted_state(command: DrainNode | StopNode | StartNode) -> NodeState:
    """What a node shall be."""
    match command:
        case DrainNode(is_undone=False):
            return "draining"
        case StopNode():
            return "stopped"
        case _:
            return "online"
