"""What users ask, judged: from the state of the moment to records, or a named error.

A command is judged when its turn to be appended comes, not when it was asked. None of these
functions changes anything: the records are what changes.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from raylog.actors.control import LogId, Report
from raylog.actors.errors import (
    InternalTopic,
    InvalidRequest,
    MoveRunning,
    NoLogDirs,
    NotLeader,
    TooManyPartitions,
    TopicBusy,
    TopicCollides,
    TopicExists,
    UnknownLogDir,
    UnknownTopicOrPartition,
    UpgradeRefused,
)
from raylog.actors.levels import LEVELS, USERS_LEVEL, Levels
from raylog.actors.listeners import PLAINTEXT
from raylog.actors.node.broker_config import BrokerConfig
from raylog.cluster.controller.commands import (
    AddPartitions,
    AllocateProducerId,
    AlterTopic,
    ApplyConfig,
    CancelMove,
    Command,
    CreateTopic,
    DeleteTopic,
    DeleteUser,
    DrainNode,
    FinalizeUpgrade,
    LogDirOnline,
    LogDirOut,
    MovePartition,
    PutUser,
    StartNode,
    StopNode,
    wanted_state,
)
from raylog.cluster.controller.config_changes import (
    ConfigChange,
    changes,
    check_applicable,
    parsed_for,
)
from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.displaced import displacing, why_several
from raylog.cluster.controller.leaving_dirs import TAKEN_OFFLINE
from raylog.cluster.controller.observed import Observed
from raylog.cluster.controller.producer_ids import next_producer_ids
from raylog.cluster.controller.records import (
    BrokerConfigRecord,
    DirRecord,
    LevelRecord,
    PartitionRecord,
    Record,
    TopicRecord,
    TopicRemovedRecord,
    UserRecord,
    UserRemovedRecord,
)
from raylog.cluster.controller.settings import altered, conflict, topic_overrides
from raylog.cluster.controller.spread import Homes, is_usable, short_key
from raylog.cluster.controller.upgrade import releases_of, why_not_ready
from raylog.storage.config import LogConfig, attribute_of
from raylog.storage.errors import InvalidConfig, InvalidPartitions, InvalidTopic, LogDirOffline
from raylog.storage.log_dir import METADATA_PARTITION
from raylog.storage.names import (
    INTERNAL_TOPICS,
    TopicPartition,
    check_topic_name,
    collision_key,
)
from raylog.storage.wire import RELEASE

# No sum of the nodes' room allows more in one topic: it is more likely a mistake than a wish.
MAX_PARTITIONS = 10_000
MAX_USER_NAME = 128


class Judging:
    """The commands, over the state of one moment. Each returns records, or raises RaylogError."""

    def __init__(
        self,
        desired: Desired,
        observed: Mapping[str, Observed],
        now_ms: int,
        config: BrokerConfig,
        start: str = "",
        levels: Levels = LEVELS,
        metadata_dir: str = "",
    ) -> None:
        """``config``: the broker's; ``start``: the id of its start.

        ``levels``: those that this raylog knows. ``metadata_dir``: the id of the log dir in which
        the Controller has the metadata.
        """
        self._desired, self._observed = desired, observed
        self._now_ms, self._config, self._start = now_ms, config, start
        self._levels = levels
        self._metadata_dir = metadata_dir

    def records(self, command: Command) -> tuple[Record, ...]:
        """What the command changes; empty where everything is so already.

        Raises InvalidTopic, InvalidPartitions, InvalidConfig, UnknownConfigKey, InvalidRequest,
        TopicExists, TopicBusy, UnknownTopicOrPartition, MoveRunning, NotLeader, NoLogDirs,
        LogDirOffline, TooManyPartitions or UpgradeRefused.
        """
        match command:
            case CreateTopic():
                return self._create_topic(command)
            case AddPartitions():
                return self._add_partitions(command)
            case AlterTopic():
                return self._alter_topic(command)
            case DeleteTopic():
                return self._delete_topic(command)
            case MovePartition():
                return self._move_partition(command)
            case CancelMove():
                return self._cancel_move(command)
            case LogDirOnline():
                return self._log_dir_online(command)
            case LogDirOut():
                return self._log_dir_out(command)
            case DrainNode() | StopNode() | StartNode():
                return self._operate(command)
            case ApplyConfig():
                return self._apply_config(command)
            case AllocateProducerId():
                return (next_producer_ids(self._desired),)
            case FinalizeUpgrade():
                return self._finalize(command)
            case PutUser():
                return self._put_user(command)
            case DeleteUser():
                return self._delete_user(command)

    # -- topics ------------------------------------------------------------------------------------

    def _create_topic(self, command: CreateTopic) -> tuple[Record, ...]:
        count = self._config.num_partitions if command.partitions is None else command.partitions
        check_not_metadata(command.name)
        if self._is_made(command):
            return ()
        if self._desired.logs_of(command.topic_id):
            raise TopicBusy(command.name, "removed, since it could not be created")
        if self._desired.was_removed(command.topic_id):
            why = "this request has made it, and it was removed since"
            raise UnknownTopicOrPartition(command.name, None, why)
        check_topic_name(command.name)
        check_partitions(count, least=1)
        topic = TopicRecord(
            name=command.name,
            topic_id=command.topic_id,
            config=self._checked(topic_overrides(command.config)),
            version=self._desired.version_after(-1),
        )
        self._check_free(command.name)
        return (topic, *self._new_partitions(topic, 0, count))

    def _is_made(self, command: CreateTopic) -> bool:
        """Whether the command comes again, and has taken effect."""
        topic = self._desired.topics.get(command.topic_id)
        return topic is not None and topic.name == command.name

    def _check_free(self, name: str) -> None:
        key = collision_key(name)
        for topic in self._desired.topics.values():
            if topic.name == name:
                raise TopicExists(name, topic.name)
            if collision_key(topic.name) == key:
                raise TopicCollides(name, topic.name)

    def _add_partitions(self, command: AddPartitions) -> tuple[Record, ...]:
        check_not_metadata(command.name)
        if command.name in INTERNAL_TOPICS:  # a group's partition is by their number
            raise InternalTopic(command.name)
        topic = self._topic_meant(command)
        if len(self._desired.logs_of(topic.topic_id)) > len(self._live(topic)):
            what = "cleaned up after partitions that could not be added"
            raise TopicBusy(command.name, what)
        count = len(self._live(topic))
        if command.is_repeated and command.total == count:
            return ()
        check_partitions(command.total, least=count + 1)
        self._check_opens(topic)
        return self._new_partitions(topic, count, command.total - count)

    def _new_partitions(
        self, topic: TopicRecord, first: int, count: int
    ) -> tuple[PartitionRecord, ...]:
        homes = Homes(self._desired, self._observed, self._now_ms)
        if not homes.counts:
            raise NoLogDirs("; ".join(homes.problems) or "no node takes part")
        room = homes.total_room
        if room is not None and count > room:
            raise TooManyPartitions(topic.name, count, room, homes.rooms_in_words())
        made: list[PartitionRecord] = []
        for number in range(first, first + count):
            node = homes.take()
            assert node is not None, "there was room for all"
            kafka_id = self._desired.next_kafka_id + len(made)
            partition = PartitionRecord(
                log=LogId(partition=TopicPartition(topic.name, number), topic_id=topic.topic_id),
                state="creating",
                node=node,
                kafka_id=kafka_id,
            )
            made.append(partition)
        return tuple(made)

    def _alter_topic(self, command: AlterTopic) -> tuple[Record, ...]:
        topic = self._topic(command.name)
        own = {} if command.replaces else topic.config
        now = LogConfig.unchecked(own, self._config.topic_defaults)
        lists = {
            change.key: change.applied(getattr(now, attribute_of(change.key)))
            for change in command.lists
        }
        config = self._checked(altered(own, {**command.changes, **lists}, command.delete))
        version = self._desired.version_after(self._desired.config_version(topic.topic_id))
        return (replace(topic, config=config, version=version),)

    def _delete_topic(self, command: DeleteTopic) -> tuple[Record, ...]:
        if command.is_repeated and not self._is_there(command):
            return ()
        topic = self._topic_meant(command)
        return (
            *removing(self._desired, self._live(topic)),
            TopicRemovedRecord(topic_id=topic.topic_id),
        )

    def _is_there(self, command: DeleteTopic) -> bool:
        topic = self._desired.topic_named(command.name)
        return topic is not None and command.topic_id in (None, topic.topic_id)

    def _checked(self, config: dict[str, Any]) -> dict[str, Any]:
        """``config``, if a topic can have it."""
        LogConfig.parse(config, self._config.topic_defaults)
        return config

    def _check_opens(self, topic: TopicRecord) -> None:
        """Raise TopicConfigConflict where no log is opened with the topic's config."""
        problem = conflict(topic.name, topic.config, self._config.topic_defaults)
        if problem is not None:
            raise problem

    def _topic(self, name: str) -> TopicRecord:
        topic = self._desired.topic_named(name)
        if topic is None:
            raise UnknownTopicOrPartition(name, None, "the topic does not exist")
        return topic

    def _topic_meant(self, command: AddPartitions | DeleteTopic) -> TopicRecord:
        topic = self._topic(command.name)
        if command.topic_id not in (None, topic.topic_id):
            raise UnknownTopicOrPartition(command.name, None, "it is another one by now")
        return topic

    def _live(self, topic: TopicRecord) -> list[LogId]:
        return self._desired.live_logs_of(topic.topic_id)

    # -- moves and log dirs ------------------------------------------------------------------------

    def _partition(self, name: str, number: int) -> PartitionRecord:
        logs = self._live(self._topic(name))
        if not isinstance(number, int) or not 0 <= number < len(logs):
            raise UnknownTopicOrPartition(name, number, f"the topic has {len(logs)} partitions")
        return self._desired.partitions[logs[number]]

    def _move_partition(self, command: MovePartition) -> tuple[Record, ...]:
        check_not_metadata(command.name)
        record = self._partition(command.name, command.number)
        if record.state == "creating":
            raise NotLeader(str(record.log.partition), "it is being created")
        self._check_opens(self._desired.topics[record.log.topic_id])
        target = self._target(record, command.log_dir)
        if target == (record.target or record.directory):
            return ()
        if record.state == "moving":
            path = self._desired.dirs[record.target or ""].path
            raise MoveRunning(str(record.log.partition), path)
        return (replace(record, state="moving", target=target),)

    def _target(self, record: PartitionRecord, log_dir: str) -> str:
        """The id of the log dir of the partition's node that a caller means by a path or an id."""
        node = self._desired.node_of(record.log)
        if node is None or node not in self._observed:
            raise NotLeader(str(record.log.partition), "its node is away")
        own = self._desired.dirs_of(node)
        usable = [entry for entry in own if entry.state == "online"]
        for entry in usable:
            if is_meant(entry, log_dir):
                return entry.directory_id
        listed = ", ".join(f"{entry.path} ({entry.directory_id})" for entry in usable)
        why = f"is not a usable log dir of the partition's node; usable: {listed}"
        raise InvalidRequest("log_dir", log_dir, why)

    def _cancel_move(self, command: CancelMove) -> tuple[Record, ...]:
        record = self._partition(command.name, command.number)
        if record.state != "moving":
            return ()
        return (replace(record, state="online", target=None),)

    def _log_dir_online(self, command: LogDirOnline) -> tuple[Record, ...]:
        meant = self.log_dir(command)
        self._check_identified(meant)
        returning = replace(meant, state="returning", is_ordered=False)
        return (returning,) if meant.state == "offline" else ()

    def _log_dir_out(self, command: LogDirOut) -> tuple[Record, ...]:
        meant = self.log_dir(command)
        if meant.state == "offline":
            return ()
        why = self._why_not_out(meant)
        if why:
            raise InvalidRequest("log_dir", meant.path, why)
        life = self._life_of(meant.node)
        offline = replace(meant, state="offline", why=TAKEN_OFFLINE, life=life, is_ordered=True)
        return (offline,)

    def _why_not_out(self, meant: DirRecord) -> str:
        """Why a log dir cannot be taken out of use beside a living broker; empty where it can."""
        node, seen = short_key(meant.node), self._observed.get(meant.node)
        if meant.directory_id == self._metadata_dir:
            return (
                "has the cluster's metadata, which the Controller on this node writes; `raylog "
                "stop` closes it with everything else, and `raylog start` goes on"
            )
        if self._desired.is_stopped(meant.node):
            return f"is not in use: its node {node} is stopped, until `raylog node start {node}`"
        if seen is None or seen.report is None:
            return f"is not in use: its node {node} does not run, or has just begun"
        if not self._others_online(meant, seen.report):
            return (
                f"is the only log dir of node {node} that is online; `raylog node stop {node}` "
                f"closes it, and `raylog node start {node}` brings it back"
            )
        return ""

    def _life_of(self, node: str) -> str:
        report = self._observed[node].report
        assert report is not None, "its log dir is in use"
        return report.life

    def _others_online(self, meant: DirRecord, report: Report) -> bool:
        """Whether the node has another log dir in use."""
        return any(
            is_usable(self._desired, meant.node, entry)
            for entry in report.dirs
            if entry.directory_id != meant.directory_id
        )

    def _check_identified(self, meant: DirRecord) -> None:
        """Raise LogDirOffline where the node started without the dir, and does not know its id.

        The node looks at the dir again when it is asked to, and when it starts.
        """
        seen = self._observed.get(meant.node)
        for entry in () if seen is None or seen.report is None else seen.report.dirs:
            if entry.directory_id is None and is_meant(meant, entry.path):
                raise LogDirOffline(entry.path, entry.why)

    def log_dir(self, command: LogDirOnline | LogDirOut) -> DirRecord:
        """The log dir that a caller means. Raises UnknownLogDir; InvalidRequest for several."""
        meant = [
            entry
            for entry in self._desired.dirs.values()
            if is_meant(entry, command.log_dir) and command.node in (None, entry.node)
        ]
        if not meant:
            state = "offline" if isinstance(command, LogDirOnline) else "online"
            known = ", ".join(
                f"{entry.path} of node {short_key(entry.node)}"
                for entry in self._desired.dirs.values()
                if entry.state == state
            )
            whose = "a node" if command.node is None else f"node {short_key(command.node)}"
            why = f"is not a log dir of {whose}; {state} are: {known or 'none'}"
            raise UnknownLogDir("log_dir", command.log_dir, why)
        if len(meant) > 1 and len({entry.node for entry in meant}) == 1:
            return self._in_place(command, meant)
        if len(meant) > 1:
            ids = ", ".join(f"{e.directory_id} of node {short_key(e.node)}" for e in meant)
            why = (
                f"is the path of several log dirs ({ids}); give the directory id of one of them, "
                "or its node"
            )
            raise InvalidRequest("log_dir", command.log_dir, why)
        return meant[0]

    def _in_place(self, command: LogDirOnline | LogDirOut, meant: list[DirRecord]) -> DirRecord:
        """The one of several log dirs, which were at one path of a node, that is there now.

        A node says which it is when it begins, and when it has looked, as ``command.node`` tells.
        Where it uses one since it began, another one may be there by now. What is to be taken out
        of use is the one that it uses.
        """
        here = [e for e in meant if displacing(self._desired, self._observed, e) is None]
        is_sure = isinstance(command, LogDirOut) or command.node is not None
        if len(here) == 1 and (is_sure or here[0].state != "online"):
            return here[0]
        raise InvalidRequest("log_dir", command.log_dir, why_several(meant))

    # -- the broker's config ----------------------------------------------------------------------

    def changes(self, command: ApplyConfig) -> tuple[ConfigChange, ...]:
        """What the command would change. Raises InvalidConfig."""
        return changes(self._config, parsed_for(self._config, command.config))

    def _apply_config(self, command: ApplyConfig) -> tuple[Record, ...]:
        config = parsed_for(self._config, command.config)
        if config == self._config:
            return ()
        self._check_version(command.if_version)
        check_applicable(changes(self._config, config))
        self._check_listener(config)
        for topic in self._desired.topics.values():
            self._check_topic(topic, config)
        version = self._desired.next_broker_version()
        return (BrokerConfigRecord(config=config, version=version, start=self._start),)

    def _check_listener(self, config: BrokerConfig) -> None:
        """Raise InvalidConfig for what an older raylog, which may read it, cannot."""
        level = self._desired.level
        is_plain = all(one.protocol == one.name == PLAINTEXT for one in config.listeners_at(""))
        if level < USERS_LEVEL and not is_plain:
            why = f"needs a cluster of level {USERS_LEVEL}: `raylog upgrade finalize` raises it"
            raise InvalidConfig("listeners", config.listeners, why)

    def _check_version(self, if_version: int | None) -> None:
        """Raise InvalidRequest where another config counts than who asks has seen."""
        if if_version not in (None, self._desired.broker_version):
            why = "is not the one that counts: another was applied meanwhile; compare again"
            raise InvalidRequest("the version of the broker's config", if_version, why)

    @staticmethod
    def _check_topic(topic: TopicRecord, config: BrokerConfig) -> None:
        """Raise InvalidConfig where a topic's own config does not go with this one."""
        try:
            LogConfig.parse(topic.config, config.topic_defaults)
        except InvalidConfig as error:
            key, value, why = error.args
            raise InvalidConfig(key, value, f"{why}, for topic {topic.name}") from error

    # -- nodes -------------------------------------------------------------------------------------

    def _operate(self, command: DrainNode | StopNode | StartNode) -> tuple[Record, ...]:
        record = self._desired.nodes.get(command.node)
        if record is None:
            known = ", ".join(short_key(key) for key in self._desired.nodes)
            why = f"is not a node that takes part; those are: {known or 'none'}"
            raise InvalidRequest("node", command.node, why)
        if isinstance(command, DrainNode) and record.state == "stopped":
            name = short_key(command.node)
            why = f"is stopped, and gets no partition; `raylog node start {name}` starts it"
            raise InvalidRequest("node", command.node, why)
        wanted = replace(record, state=wanted_state(command))
        return () if wanted == record else (wanted,)

    # -- users -------------------------------------------------------------------------------------

    def _put_user(self, command: PutUser) -> tuple[Record, ...]:
        check_user_name(command.name)
        level = self._desired.level
        if level < USERS_LEVEL:
            why = (
                f"cannot be kept: the cluster is of level {level}, and users need {USERS_LEVEL}; "
                "`raylog upgrade finalize` raises it once every node runs this release"
            )
            raise InvalidRequest("user", command.name, why)
        user = UserRecord(name=command.name, verifiers=tuple(command.verifiers))
        return () if self._desired.users.get(user.name) == user else (user,)

    def _delete_user(self, command: DeleteUser) -> tuple[Record, ...]:
        if command.name in self._desired.users:
            return (UserRemovedRecord(name=command.name),)
        if command.is_repeated:
            return ()
        known = ", ".join(sorted(self._desired.users)) or "none"
        raise InvalidRequest("user", command.name, f"is not known; users are: {known}")

    # -- upgrades ----------------------------------------------------------------------------------

    def _finalize(self, command: FinalizeUpgrade) -> tuple[Record, ...]:
        level, wanted = self._desired.level, command.level
        if wanted == level:
            return ()
        if not level < wanted <= self._levels.newest:
            why = (
                f"its Controller runs raylog {RELEASE}, which knows levels up to "
                f"{self._levels.newest}, and no level is ever lowered"
            )
            raise UpgradeRefused(level, wanted, why)
        nodes = releases_of(self._desired, self._observed, self._now_ms)
        why = why_not_ready(nodes, wanted, command.without)
        if why:
            raise UpgradeRefused(level, wanted, why)
        return (LevelRecord(level=wanted, release=RELEASE),)


def check_user_name(name: str) -> None:
    """Raise InvalidRequest for what is no user's name."""
    is_text = isinstance(name, str) and bool(name.strip()) and name.isprintable()
    if not is_text or len(name) > MAX_USER_NAME:
        why = f"must be printable text of at most {MAX_USER_NAME} characters"
        raise InvalidRequest("user", name, why)


def check_not_metadata(name: str) -> None:
    """Raise InvalidTopic for the metadata's name: a partition would take its folder."""
    if name == METADATA_PARTITION.topic:
        raise InvalidTopic(name, "is the metadata's own")


def check_partitions(partitions: object, least: int) -> None:
    """Raise InvalidPartitions unless a topic can have so many partitions, at least ``least``."""
    is_whole = isinstance(partitions, int) and not isinstance(partitions, bool)
    if not is_whole or not least <= partitions <= MAX_PARTITIONS:  # type: ignore[operator]
        raise InvalidPartitions(partitions, least, MAX_PARTITIONS)


def removing(desired: Desired, logs: Iterable[LogId]) -> tuple[PartitionRecord, ...]:
    """The records by which the logs are removed, wherever they lie."""
    return tuple(replace(desired.partitions[log], state="removing") for log in logs)


def is_meant(entry: DirRecord, log_dir: str) -> bool:
    """Whether a log dir has this path, or this directory id."""
    if log_dir == entry.directory_id:
        return True
    return os.path.normpath(log_dir) == os.path.normpath(entry.path)
