"""What each LogManager is to know of the cluster, made of what the Controller knows.

Each state of it has a number, and what changes is remembered with the number of its change. So a
LogManager that has any of the last states is sent the difference (``actors/cluster_image.py``).
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from raylog.actors.cluster_image import (
    Endpoint,
    ImageUpdate,
    NodeEntry,
    PartitionEntry,
    TopicEntry,
    UserEntry,
)
from raylog.actors.control import Report
from raylog.cluster.controller.describe import Snapshot, serving
from raylog.cluster.controller.desired import Desired, port_of
from raylog.cluster.controller.node_states import keys_of
from raylog.cluster.controller.observed import Observed
from raylog.cluster.controller.records import NodeRecord, PartitionRecord, TopicRecord

# So many topics that are gone are remembered; who has an older state is sent everything.
REMOVED: Final = 1000


class _Seen(NamedTuple):
    """What of a node's report the image depends on."""

    report: Report
    is_ending: bool
    served: frozenset[tuple[object, ...]]


class Imaging:
    """See the module's head. For one thread, and for one epoch of the Controller.

    ``number``: of the present state; 0 before the first.
    """

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.number = 0
        self._snapshot = Snapshot(desired=Desired())  # of the present state
        self._seen: dict[str, _Seen] = {}
        self._nodes: tuple[NodeEntry, ...] = ()
        self._topics: dict[str, TopicEntry] = {}  # by id, here and below
        self._changed: dict[str, int] = {}  # the number of the last change
        self._users: tuple[UserEntry, ...] = ()
        self._users_changed = 0
        self._removed: deque[tuple[int, str]] = deque(maxlen=REMOVED)

    def look(self, snapshot: Snapshot) -> None:
        """Take in what the Controller knows now."""
        seen = {
            key: self._seen_of(key, one, one.report)
            for key, one in snapshot.observed.items()
            if one.report is not None
        }
        has_changed = _told(seen) != _told(self._seen)
        self._seen = seen
        is_same = snapshot.desired is self._snapshot.desired
        if has_changed or not is_same or not self.number:
            self._take(snapshot)

    def _seen_of(self, key: str, one: Observed, report: Report) -> _Seen:
        before = self._seen.get(key)
        if before is not None and before.report is report:
            return before._replace(is_ending=one.may_end)
        served = frozenset(
            # The epoch is another one wherever it is opened anew.
            (entry.log, entry.leader_epoch, entry.port)
            for entry in report.logs
            if entry.state == "serving"
        )
        return _Seen(report, one.may_end, served)

    def _take(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        desired = snapshot.desired
        first = snapshot.config.first_port
        there = keys_of(snapshot)  # the others are gone for good
        nodes = tuple(
            _node_entry(record, first) for key, record in desired.nodes.items() if key in there
        )
        topics = {
            topic.topic_id: _topic_entry(snapshot, topic) for topic in desired.topics.values()
        }
        users = tuple(
            UserEntry(name, record.verifiers) for name, record in sorted(desired.users.items())
        )
        if self.number and (nodes, topics, users) == (self._nodes, self._topics, self._users):
            return
        self.number += 1
        if users != self._users:
            self._users, self._users_changed = users, self.number
        for topic_id in self._topics.keys() - topics.keys():
            self._removed.append((self.number, topic_id))
        self._changed = {
            topic_id: self._changed[topic_id]
            if entry == self._topics.get(topic_id)
            else self.number
            for topic_id, entry in topics.items()
        }
        self._nodes, self._topics = nodes, topics

    def update_after(self, base: int) -> ImageUpdate:
        """What a LogManager lacks that has the state ``base``, of this epoch; 0 for none."""
        is_all_remembered = len(self._removed) < REMOVED or base >= self._removed[0][0]
        base = base if is_all_remembered else 0
        return ImageUpdate(
            controller_epoch=self.epoch,
            base=base,
            number=self.number,
            cluster_id=self._snapshot.desired.cluster_id,
            controller=self._snapshot.controller,
            nodes=self._nodes,
            topics=tuple(
                entry for topic_id, entry in self._topics.items() if self._changed[topic_id] > base
            ),
            removed=tuple(topic_id for number, topic_id in self._removed if number > base > 0),
            users=self._users if self._users_changed > base or not base else None,
        )


def _told(seen: Mapping[str, _Seen]) -> dict[str, tuple[object, ...]]:
    return {key: (one.is_ending, one.served) for key, one in seen.items()}


def _node_entry(record: NodeRecord, first_port: int) -> NodeEntry:
    port = _kept(record.port, first_port)
    endpoint = Endpoint(record.kafka_id, port or port_of(record.kafka_id, first_port))
    return NodeEntry(record.key, endpoint, record.host if port else "")


def _kept(port: int, first_port: int) -> int:
    """The port where a process has listened; 0 where it shall have another one from now on."""
    return port if port >= first_port else 0


def _is_displaced(node: NodeRecord | None, first_port: int) -> bool:
    """Whether somebody else had the port that was for a node.

    It may be another broker with the same ``listeners``. So a new partition gets any free port
    there: the one that is for it would be that of a partition of the other, whose clients would
    come to this broker in a moment in which their own process is away.
    """
    if node is None:
        return False
    port = _kept(node.port, first_port)
    return port not in (0, port_of(node.kafka_id, first_port))


def _topic_entry(snapshot: Snapshot, topic: TopicRecord) -> TopicEntry:
    desired = snapshot.desired
    records = [desired.partitions[log] for log in desired.live_logs_of(topic.topic_id)]
    return TopicEntry(topic.name, topic.topic_id, tuple(_partition_entries(snapshot, records)))


def _partition_entries(
    snapshot: Snapshot, records: Iterable[PartitionRecord]
) -> Iterator[PartitionEntry]:
    first_port, nodes = snapshot.config.first_port, snapshot.desired.nodes
    for record in records:
        node = snapshot.desired.node_of(record.log) or ""
        entry = serving(snapshot, record)
        # As its LogActor says itself: the recorded one may be somebody else's now.
        port = 0 if entry is None else entry.port
        last_port = port or _kept(record.port, first_port)
        given = (
            0
            if _is_displaced(nodes.get(node), first_port)
            else port_of(record.kafka_id, first_port)
        )
        yield PartitionEntry(
            number=record.log.partition.partition,
            endpoint=Endpoint(record.kafka_id, last_port or given),
            node=node,
            leader_epoch=-1 if entry is None else entry.leader_epoch,
            is_online=port != 0,
            has_listened=last_port != 0,
        )
