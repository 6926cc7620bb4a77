"""What a cluster shall be: the fold of the metadata log's records, and nothing else.

Replaying the records gives it again, so a new Controller knows everything that the one before had
promised, also what was only begun::

    creating, no directory --> creating, directory --> online <--> moving
           |                        |                    |           |
           +------------------------+---------+----------+-----------+
                                              v
                                           removing --> (gone)

What *is*, the LogManagers report (``observed.py``); what follows from the two, ``plan.py`` says.
"""

from dataclasses import dataclass, field, replace

from raylog.actors.control import LogId
from raylog.actors.levels import FIRST_LEVEL
from raylog.actors.listeners import FIRST_PORT, LAST_PORT
from raylog.cluster.controller.records import (
    BrokerConfigRecord,
    ClusterRecord,
    ControllerRecord,
    CopiesRecord,
    DirRecord,
    LevelRecord,
    NodeRecord,
    NodeState,
    OldTopicRecord,
    OldTopicRemovedRecord,
    PartitionRecord,
    PartitionRemovedRecord,
    ProducerIdsRecord,
    Record,
    StoppedRecord,
    TopicRecord,
    TopicRemovedRecord,
    UserRecord,
    UserRemovedRecord,
)
from raylog.storage.names import TopicPartition

# Producer ids and config versions of one Controller's epoch are told from those of all others by
# the bits above: what a lost history gave is never given again for something else.
EPOCH_SHIFT = 40
VERSION_SHIFT = 32
# The ids of so many removed topics are known: a creation whose answer was lost is repeated within
# minutes.
MOST_REMOVED_IDS = 10_000


@dataclass(slots=True)
class Desired:
    """The fold. Only ``apply`` changes it.

    ``copies``: the keys of the nodes whose copies of the metadata have every record that counts,
    that of the Controller included; none where nobody has written it down, so that the Controller's
    is the only one. ``copy_dirs``: the ids of their log dirs, in that order. ``is_all_stopped``:
    whether the last record says that the broker was stopped in order. ``broker``: the broker's
    config; None while it is that of its start. ``level``: what the cluster may write
    (``actors/levels.py``). ``controller``: of the last Controller; None before the first.
    """

    cluster_id: str = ""
    level: int = FIRST_LEVEL
    controller: ControllerRecord | None = None
    copies: tuple[str, ...] = ()
    copy_dirs: tuple[str, ...] = ()
    is_all_stopped: bool = False
    broker: BrokerConfigRecord | None = None
    next_producer_id: int = 0
    next_kafka_id: int = 0
    nodes: dict[str, NodeRecord] = field(default_factory=dict)  # by their key
    dirs: dict[str, DirRecord] = field(default_factory=dict)  # by their id
    topics: dict[str, TopicRecord] = field(default_factory=dict)  # by their id
    partitions: dict[LogId, PartitionRecord] = field(default_factory=dict)
    users: dict[str, UserRecord] = field(default_factory=dict)  # by their name
    # the ids of the topics that were removed last, the oldest first
    _removed: dict[str, None] = field(default_factory=dict)
    # indexes: a name's topic id; a topic's logs; a log dir's logs; a node's logs without a dir, and
    # those that it was to make earlier
    _names: dict[str, str] = field(default_factory=dict)
    _of_topic: dict[str, dict[int, LogId]] = field(default_factory=dict)
    _of_dir: dict[str, dict[LogId, None]] = field(default_factory=dict)
    _of_node: dict[str, dict[LogId, None]] = field(default_factory=dict)
    _left_at: dict[str, dict[LogId, None]] = field(default_factory=dict)

    # -- the fold ----------------------------------------------------------------------------------

    def apply(self, record: Record) -> None:
        """Take one record in."""
        self.is_all_stopped = isinstance(record, StoppedRecord)
        match record:
            case ClusterRecord():
                self.cluster_id = record.cluster_id
            case ControllerRecord():
                self.controller = record
            case NodeRecord():
                self._apply_node(record)
                self.next_kafka_id = max(self.next_kafka_id, record.kafka_id + 1)
            case DirRecord():
                self.dirs[record.directory_id] = record
            case TopicRecord():
                self._apply_topic(record)
            case PartitionRecord():
                self._apply_partition(record)
            case PartitionRemovedRecord():
                self._forget(record.log)
            case TopicRemovedRecord():
                self._forget_topic(record.topic_id)
            case ProducerIdsRecord():
                self.next_producer_id = record.next_id
            case CopiesRecord():
                self.copies, self.copy_dirs = record.nodes, record.directories
            case BrokerConfigRecord():
                self.broker = record
            case LevelRecord():
                self.level = record.level
            case UserRecord():
                self.users[record.name] = record
            case UserRemovedRecord():
                self.users.pop(record.name, None)
            case OldTopicRecord():
                self._apply_old_topic(record)
            case OldTopicRemovedRecord():
                self._apply_old_removal(record)

    def _apply_node(self, record: NodeRecord) -> None:
        """The node whose number another one gets is gone."""
        for other in list(self.nodes.values()):
            if other.kafka_id == record.kafka_id and other.key != record.key:
                del self.nodes[other.key]
        self.nodes[record.key] = record

    def _apply_topic(self, record: TopicRecord) -> None:
        self.topics[record.topic_id] = record
        self._names[record.name] = record.topic_id

    def _apply_partition(self, record: PartitionRecord) -> None:
        log = record.log
        if log in self.partitions:
            self._unplace(self.partitions[log])
        self.partitions[log] = record
        self._of_topic.setdefault(log.topic_id, {})[log.partition.partition] = log
        self._place_of(record).setdefault(log)
        for node in record.left:
            self._left_at.setdefault(node, {}).setdefault(log)
        self.next_kafka_id = max(self.next_kafka_id, record.kafka_id + 1)

    def _forget(self, log: LogId) -> None:
        record = self.partitions.pop(log, None)
        if record is None:
            return
        self._unplace(record)
        numbers = self._of_topic[log.topic_id]
        del numbers[log.partition.partition]
        if not numbers:
            del self._of_topic[log.topic_id]

    def _forget_topic(self, topic_id: str) -> None:
        topic = self.topics.pop(topic_id, None)
        self._removed[topic_id] = None
        if len(self._removed) > MOST_REMOVED_IDS:
            del self._removed[next(iter(self._removed))]
        if topic is not None and self._names.get(topic.name) == topic_id:
            del self._names[topic.name]

    def _apply_old_topic(self, record: OldTopicRecord) -> None:
        """A topic of version 1: all of its partitions serve, on nodes that nobody wrote down."""
        topic = record.topic
        self._apply_topic(topic)
        for number, directory in enumerate(record.directories):
            log = LogId(partition=TopicPartition(topic.name, number), topic_id=topic.topic_id)
            known = self.partitions.get(log)
            if known is None:
                kafka_id = self.next_kafka_id
                known = PartitionRecord(log=log, state="online", kafka_id=kafka_id)
            self._apply_partition(replace(known, directory=directory))

    def _apply_old_removal(self, record: OldTopicRemovedRecord) -> None:
        """A topic of version 1 that is gone: what was left of it then is set aside when found."""
        topic_id = self._names.get(record.name)
        if topic_id is None:
            return
        for log in self.logs_of(topic_id):
            self._forget(log)
        self._forget_topic(topic_id)

    def _place_of(self, record: PartitionRecord) -> dict[LogId, None]:
        if record.directory is None:
            return self._of_node.setdefault(record.node, {})
        return self._of_dir.setdefault(record.directory, {})

    def _unplace(self, record: PartitionRecord) -> None:
        del self._place_of(record)[record.log]
        for node in record.left:
            del self._left_at[node][record.log]

    # -- questions ---------------------------------------------------------------------------------

    @property
    def controller_epoch(self) -> int:
        """Of the last Controller; 0 before the first."""
        return 0 if self.controller is None else self.controller.epoch

    @property
    def removed_topics(self) -> tuple[str, ...]:
        """The ids of the topics that were removed last, the oldest first."""
        return tuple(self._removed)

    def first_producer_id(self) -> int:
        """A producer id from which on none is in use, in whichever history of the metadata."""
        return max(self.next_producer_id, self.controller_epoch << EPOCH_SHIFT)

    def version_after(self, version: int) -> int:
        """A version of a topic's config that is higher, and that no other config ever had."""
        return max(version + 1, self.controller_epoch << VERSION_SHIFT)

    def config_version(self, topic_id: str) -> int:
        """The version of what a topic obeys: its own config over that of the broker."""
        version = self.topics[topic_id].version
        return version if self.broker is None else max(version, self.broker.version)

    @property
    def broker_version(self) -> int:
        """Of the broker's config that counts; -1 where no record has one."""
        return -1 if self.broker is None else self.broker.version

    def next_broker_version(self) -> int:
        """A version for another config of the broker: higher than all that were given."""
        versions = [topic.version for topic in self.topics.values()]
        if self.broker is not None:
            versions.append(self.broker.version)
        return self.version_after(max(versions, default=-1))

    def copy(self) -> "Desired":
        """The same, for others to read while this one goes on changing."""
        return replace(
            self,
            nodes=dict(self.nodes),
            dirs=dict(self.dirs),
            topics=dict(self.topics),
            partitions=dict(self.partitions),
            users=dict(self.users),
            _removed=dict(self._removed),
            _names=dict(self._names),
            _of_topic={key: dict(value) for key, value in self._of_topic.items()},
            _of_dir={key: dict(value) for key, value in self._of_dir.items()},
            _of_node={key: dict(value) for key, value in self._of_node.items()},
            _left_at={key: dict(value) for key, value in self._left_at.items()},
        )

    def topic_named(self, name: str) -> TopicRecord | None:
        topic_id = self._names.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def was_removed(self, topic_id: str) -> bool:
        """Whether a topic had this id and is removed; of old ones nobody knows it any more."""
        return topic_id in self._removed

    def logs_of(self, topic_id: str) -> list[LogId]:
        """The topic's logs in the order of their numbers, those included that are being removed."""
        return [log for _, log in sorted(self._of_topic.get(topic_id, {}).items())]

    def live_logs_of(self, topic_id: str) -> list[LogId]:
        """The topic's logs in the order of their numbers, without those that are being removed."""
        logs = self.logs_of(topic_id)
        return [log for log in logs if self.partitions[log].state != "removing"]

    def logs_in(self, directory_id: str) -> list[LogId]:
        """The logs that are bound to a log dir."""
        return list(self._of_dir.get(directory_id, ()))

    def logs_without_dir(self, node: str) -> list[LogId]:
        """The logs that a node shall make, and whose log dir is not known yet."""
        return list(self._of_node.get(node, ()))

    def logs_left_at(self, node: str) -> list[LogId]:
        """The logs that a node was to make before another one was chosen."""
        return list(self._left_at.get(node, ()))

    def nodes_to_make_logs(self) -> list[str]:
        """The nodes that shall make logs."""
        return [node for node, logs in self._of_node.items() if logs]

    def node_of(self, log: LogId) -> str | None:
        """The key of the node that has a log, or shall make it; None for a dir nobody has seen."""
        record = self.partitions[log]
        if record.directory is None:
            return record.node
        directory = self.dirs.get(record.directory)
        return None if directory is None else directory.node

    def dirs_of(self, node: str) -> list[DirRecord]:
        return [record for record in self.dirs.values() if record.node == node]

    def dir_at(self, node: str, path: str) -> str:
        """The id of a node's log dir, as it was recorded last; empty where it was not."""
        ids = [record.directory_id for record in self.dirs_of(node) if record.path == path]
        return ids[0] if len(ids) == 1 else ""

    def logs_at(self, node: str) -> list[LogId]:
        """The logs that a node has or shall make."""
        logs = self.logs_without_dir(node)
        for record in self.dirs_of(node):
            logs += self.logs_in(record.directory_id)
        return logs

    def state_of(self, node: str) -> NodeState:
        """What an operator wants of a node; ``online`` for one that nobody has written down."""
        record = self.nodes.get(node)
        return "online" if record is None else record.state

    def is_stopped(self, node: str | None) -> bool:
        """Whether a node shall not run, until somebody starts it."""
        return node is not None and self.state_of(node) == "stopped"

    def is_taken_offline(self, directory_id: str) -> bool:
        """Whether an operator has taken a log dir out of use."""
        record = self.dirs.get(directory_id)
        return record is not None and record.state == "offline" and record.is_ordered

    def is_missed(self, node: str) -> bool:
        """Whether anything is recorded to a node, so that it counts while it is away."""
        if self.state_of(node) != "online":
            return True
        return bool(self.dirs_of(node) or self.logs_without_dir(node))

    def keeps_copy(self, node: str) -> bool:
        """Whether records count only when a copy of the metadata on this node has them."""
        for directory_id, key in zip(self.copy_dirs, self.copies, strict=True):
            directory = self.dirs.get(directory_id)  # a node may have another key by now
            if node == (key if directory is None else directory.node):
                return True
        return False

    # -- promises ----------------------------------------------------------------------------------

    def validate(self) -> None:
        """Assert what holds after every record of a whole append."""
        for log, record in self.partitions.items():
            self._validate_partition(log, record)
        for name, topic_id in self._names.items():
            assert self.topics[topic_id].name == name, name
        assert len(self._names) == len(self.topics)
        placed = [log for logs in (*self._of_dir.values(), *self._of_node.values()) for log in logs]
        assert len(placed) == len(self.partitions)
        assert set(placed) == set(self.partitions)
        assert len(set(self.copies)) == len(self.copies) == len(self.copy_dirs)
        ids = [record.kafka_id for record in self.nodes.values()]
        ids += [record.kafka_id for record in self.partitions.values()]
        assert len(set(ids)) == len(ids), "a Kafka id was given twice"
        assert all(kafka_id < self.next_kafka_id for kafka_id in ids)

    def _validate_partition(self, log: LogId, record: PartitionRecord) -> None:
        assert record.log == log
        topic = self.topics.get(log.topic_id)
        assert topic is not None or record.state == "removing", f"{log}: its topic is gone"
        assert topic is None or topic.name == log.partition.topic, log
        assert self._of_topic[log.topic_id][log.partition.partition] == log
        if record.state in ("online", "moving"):
            assert record.directory is not None, f"{log} is {record.state} nowhere"
        if record.state == "moving":
            assert record.target not in (None, record.directory), f"{log} moves to itself"
        if record.state in ("creating", "online"):
            assert record.target is None, f"{log} is {record.state} and has a target"
        assert record.directory is not None or record.node, f"{log} is nowhere"


def port_of(kafka_id: int, first_port: int = FIRST_PORT) -> int:
    """The port that is for a Kafka id; 0 (any free one) where the ports are used up."""
    port = first_port + kafka_id
    return port if port <= LAST_PORT else 0
