"""What is known of a broker (``Facts``), and what follows from it (``Finding``)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from raylog.actors.messages import (
    CompactionStatus,
    LogDirStatus,
    PartitionStatus,
    Recovering,
    RetentionStatus,
)
from raylog.cluster.controller.describe import PartitionDescription, TopicDescription
from raylog.cluster.controller.node_states import NodeDescription

ERROR, WARNING, INFO = "error", "warning", "info"
# Partitions that one finding names at most.
NAMED_AT_MOST = 5


class Finding(NamedTuple):
    """One problem.

    Severity ``error``: records cannot be written or read, or deleted ones can be read again.
    ``warning``: this will happen soon, the broker is slower than it should be, or somebody has to
    decide. ``info``: nothing is wrong.
    """

    severity: str
    subject: str
    what: str
    todo: str


@dataclass(frozen=True)
class Facts:
    """The state of a broker.

    ``silent_...``: who did not answer in time -> why, if it is known.
    """

    cluster_id: str = ""
    controller_problem: str | None = None
    # What the Controller says of itself: ``asking.Lookups.problems``.
    problems: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, str | None] = field(default_factory=dict)
    # The same nodes, as an operator sees them.
    node_list: Sequence[NodeDescription] = ()
    silent_nodes: Mapping[str, str] = field(default_factory=dict)
    log_dirs: Sequence[LogDirStatus] = ()
    topics: Sequence[TopicDescription] = ()
    partitions: Sequence[PartitionStatus] = ()
    silent_partitions: Mapping[str, str] = field(default_factory=dict)
    compaction: Sequence[CompactionStatus] = ()
    retention: Sequence[RetentionStatus] = ()
    recovering: Sequence[Recovering] = ()
    silent_upkeep: Mapping[str, str] = field(default_factory=dict)
    retention_interval_ms: int = 0
    now_ms: int = 0

    def stopped_nodes(self) -> list[NodeDescription]:
        """Those that an operator has stopped: nothing is wrong with them."""
        return [node for node in self.node_list if node.state in ("stopping", "stopped")]

    def described(self) -> Iterator[tuple[str, PartitionDescription]]:
        """All partitions that the metadata lists, with their names."""
        for topic in self.topics:
            for partition in topic.partitions:
                yield f"{topic.name}-{partition.partition}", partition


def named(names: Iterable[str]) -> str:
    """``t-0, t-1 and 3 more``."""
    listed = list(names)
    left = len(listed) - NAMED_AT_MOST
    return (
        ", ".join(listed) if left <= 0 else ", ".join(listed[:NAMED_AT_MOST]) + f" and {left} more"
    )
