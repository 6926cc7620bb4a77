"""What follows from what shall be and what is: orders for the nodes, and records of what is done.

``plan`` is a function of the two and has no memory: a new Controller that has read the records and
heard the nodes goes on where the one before ended. Records are steps that have come true, or were
found to be impossible; they count when they are in the metadata log, and only then do orders
follow from them. When an order is sent again is not decided here (``telling.py``).

====================  ===========================================  ===========================
the record says       the node reports                             so
====================  ===========================================  ===========================
creating, no dir      nothing of it                                Create
creating, no dir      its folder in a log dir                      record: creating in that dir
creating, no dir      it failed, or the node is silent or gone     record: another node, if there is
creating in a dir     it serves                                    record: online
creating, online      found, failed, an older config, a problem    Serve
creating, online      nothing of it                                nothing: it is missing
any of these          a newer config than there is                 record: a newer one
online, moving        it serves in another dir of the node         record: online in that dir
moving                anything of it                               Move; Serve where elsewhere
moving                moved, and no order is under way             record: online in the target
moving                a problem, or the target is not usable       record: online where it was
removing              its folder                                   Remove
removing              nothing, and no order is under way           record: it is removed
removing, no dir      its node left, and its dirs are others' now  record: it is removed
no such log           it serves it                                 End
no such log           its folder, and nobody serves it             SetAside
node: stopped         anything                                     Stop, and nothing else
broker-config         another digest                               ObeyConfig, or Stop in its turn
node, partition       another host or port                         record: that host or port
====================  ===========================================  ===========================

Nothing follows from the report of a node that does not obey this Controller yet, nor for what lies
in a log dir that is recorded as another node's while that node is there: one is a copy.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count

from raylog.actors.control import (
    Create,
    DirReport,
    End,
    KeepOut,
    LogId,
    LogReport,
    Move,
    ObeyConfig,
    Order,
    ReadBack,
    Remove,
    Report,
    Serve,
    SetAside,
    Stop,
)
from raylog.actors.node.broker_config import BrokerConfig
from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.leaving_dirs import TAKEN_OFFLINE
from raylog.cluster.controller.observed import Observed
from raylog.cluster.controller.records import (
    DirRecord,
    NodeRecord,
    PartitionRecord,
    PartitionRemovedRecord,
    Record,
    TopicRecord,
)
from raylog.cluster.controller.rolling import Digests, is_old_at_once
from raylog.cluster.controller.spread import Homes, is_usable
from raylog.storage.config import LogConfig
from raylog.storage.errors import InvalidConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """``orders``: by node, for each that obeys this Controller; the same ones until they are done.

    ``doubts``: by node, what it serves though it shall not, or not so, and no order follows.
    ``records``: what to append; they touch each log and each topic once.
    """

    orders: Mapping[str, tuple[Order, ...]]
    doubts: Mapping[str, frozenset[LogId]]
    records: tuple[Record, ...]


class Configs:
    """The configs of the topics, each parsed once for each version. ``defaults``: the broker's."""

    def __init__(self, defaults: LogConfig) -> None:
        self._defaults = defaults
        self._parsed: dict[str, tuple[int, LogConfig | None]] = {}

    def use(self, defaults: LogConfig) -> None:
        """The broker's config is another one."""
        self._defaults = defaults
        self._parsed.clear()

    def of(self, topic: TopicRecord) -> LogConfig | None:
        """The topic's config; None where the broker's own keys made it impossible since.

        No log of the topic is opened then; ``settings.conflict`` says why.
        """
        version, config = self._parsed.get(topic.topic_id, (-1, None))
        if version != topic.version:
            try:
                config = LogConfig.parse(topic.config, self._defaults)
            except InvalidConfig:
                config = None
            self._parsed[topic.topic_id] = (topic.version, config)
        return config

    def forget(self, topic_id: str) -> None:
        """The topic is gone."""
        self._parsed.pop(topic_id, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPlan:
    """The broker's config, and the node that is replaced now since it cannot take it; or empty."""

    config: BrokerConfig
    digests: Digests
    replaced: str = ""


def plan(
    desired: Desired,
    observed: Mapping[str, Observed],
    now_ms: int,
    configs: Configs,
    nodes: Iterable[str] | None = None,
    broker: BrokerPlan | None = None,
) -> Plan:
    """What to do now. ``nodes``: only these; None: all. ``broker``: None: nothing differs."""
    kafka_ids = count(desired.next_kafka_id)
    orders: dict[str, tuple[Order, ...]] = {}
    doubts: dict[str, frozenset[LogId]] = {}
    records: list[Record] = []
    for key in sorted(observed if nodes is None else nodes):
        seen = observed.get(key)
        if seen is None or seen.report is None or not seen.obeys(desired.controller_epoch):
            continue
        if desired.is_stopped(key) or (broker is not None and key == broker.replaced):
            orders[key], doubts[key] = (Stop(),), frozenset(seen.logs)
            continue
        of_node = _NodePlan(desired, observed, seen, seen.report, configs, now_ms)
        of_node.make(kafka_ids)
        is_old = broker is not None and is_old_at_once(seen, broker.digests)
        first = (ObeyConfig(config=broker.config),) if broker is not None and is_old else ()
        orders[key] = (*first, *of_node.orders)
        doubts[key] = frozenset(of_node.doubts)
        records += of_node.records
    records += _other_homes(desired, observed, now_ms)
    records += _gone_with_their_node(desired, observed, now_ms)
    return Plan(orders=orders, doubts=doubts, records=_each_once(records))


def _each_once(records: Iterable[Record]) -> tuple[Record, ...]:
    """The records without those for a log or topic that another one touches: they follow later."""
    kept: dict[object, Record] = {}
    for record in records:
        key: object = record
        if isinstance(record, PartitionRecord | PartitionRemovedRecord):
            key = record.log
        elif isinstance(record, TopicRecord):
            key = record.topic_id
        elif isinstance(record, DirRecord):
            key = record.directory_id, DirRecord
        kept.setdefault(key, record)
    return tuple(kept.values())


def _other_homes(
    desired: Desired, observed: Mapping[str, Observed], now_ms: int
) -> Iterator[Record]:
    """Other nodes for logs whose node does not make them; none where no other can."""
    homes: Homes | None = None
    for node in sorted(desired.nodes_to_make_logs()):
        seen = observed.get(node)
        is_away = seen is None or seen.is_ended or seen.is_suspect(now_ms)
        failed = set() if seen is None or seen.report is None else not_made(seen.report)
        for log in desired.logs_without_dir(node):
            record = desired.partitions[log]
            if record.state != "creating" or not (is_away or log in failed):
                continue
            homes = homes or Homes(desired, observed, now_ms)
            left = (*record.left, node)
            home = homes.take(avoid=left)
            if home is not None:
                yield replace(record, node=home, left=left)


def not_made(report: Report) -> set[LogId]:
    """The logs whose folder a node could not make."""
    failed = set()
    for entry in report.logs:
        if entry.log is not None and entry.state == "failed" and not entry.directory_id:
            failed.add(entry.log)
    return failed


def _gone_with_their_node(
    desired: Desired, observed: Mapping[str, Observed], now_ms: int
) -> Iterator[Record]:
    """Logs to be removed whose node no plan is made for, because it has no log dir any more."""
    for node in sorted(desired.nodes_to_make_logs()):
        if not _has_no_dirs(node, desired, observed):
            continue
        for log in desired.logs_without_dir(node):
            record = desired.partitions[log]
            if record.state == "removing" and _is_gone(record, desired, observed, now_ms):
                yield PartitionRemovedRecord(log=log)


def _is_gone(
    record: PartitionRecord, desired: Desired, observed: Mapping[str, Observed], now_ms: int
) -> bool:
    """Whether no node has anything of a log, and none is about to."""
    if _is_reported(record.log, desired, observed, now_ms):
        return False
    own = desired.node_of(record.log)
    return all(
        node is not None and _has_nothing(node, record, desired, observed, now_ms)
        for node in {own, *record.left}
    )


def _has_nothing(
    node: str,
    record: PartitionRecord,
    desired: Desired,
    observed: Mapping[str, Observed],
    now_ms: int,
) -> bool:
    """By a word of now: what a silent node said last may be of a machine that has another key."""
    if _has_no_dirs(node, desired, observed):
        return True
    seen = observed.get(node)
    if seen is None or seen.report is None or not seen.obeys(desired.controller_epoch):
        return False
    if record.log in seen.under_way or seen.is_suspect(now_ms):
        return False
    online = {entry.directory_id for entry in seen.report.dirs if entry.state == "online"}
    if record.directory is not None and node == desired.node_of(record.log):
        dirs = {record.directory, record.target or record.directory}
    else:
        dirs = {entry.directory_id or entry.path for entry in seen.report.dirs}
    if not dirs <= online:
        return False
    return all(entry.log != record.log for entry in seen.report.logs)


def _has_no_dirs(node: str, desired: Desired, observed: Mapping[str, Observed]) -> bool:
    """Whether all log dirs that a node had are other nodes' now, and it has none instead.

    A machine that Ray calls by another id since its start leaves its old key behind like that.
    """
    seen = observed.get(node)
    return (seen is None or seen.report is None) and not desired.dirs_of(node)


def _is_reported(
    log: LogId, desired: Desired, observed: Mapping[str, Observed], now_ms: int
) -> bool:
    """Whether something of a log lies in a log dir of any node.

    What a move has left may lie on a disk that another node has since. A copy of a disk does not
    count.
    """
    for node, seen in observed.items():
        for entry in seen.logs.get(log, ()):
            if entry.directory_id and not _is_copied(
                entry.directory_id, node, desired, observed, now_ms
            ):
                return True
    return False


def _is_copied(
    directory_id: str, node: str, desired: Desired, observed: Mapping[str, Observed], now_ms: int
) -> bool:
    """Whether a log dir that a node reports is recorded as another's, which has it.

    That one must have said so since the node began: it may be the same machine, which has another
    key since its start, and Ray may still show the key before.
    """
    record = desired.dirs.get(directory_id)
    if record is None or record.node == node:
        return False
    owner = observed.get(record.node)
    if owner is None or owner.report is None or owner.is_suspect(now_ms):
        return False
    if owner.heard_ms < observed[node].began_ms:
        return False
    return any(entry.directory_id == directory_id for entry in owner.report.dirs)


def _is_kept_open(record: DirRecord, entry: DirReport) -> bool:
    """Whether a node does not know yet that an operator wants a log dir to stay offline.

    It may be reading the logs back, or try that again.
    """
    return record.is_ordered and not entry.is_taken_offline


class _NodePlan:
    """The plan for one node that obeys this Controller."""

    def __init__(
        self,
        desired: Desired,
        observed: Mapping[str, Observed],
        seen: Observed,
        report: Report,
        configs: Configs,
        now_ms: int,
    ) -> None:
        self.orders: list[Order] = []
        self.doubts: set[LogId] = set()
        self.records: list[Record] = []
        self._desired, self._observed = desired, observed
        self._seen, self._report, self._node = seen, report, report.node
        self._configs, self._now_ms = configs, now_ms
        self._dirs = {entry.directory_id: entry for entry in report.dirs if entry.directory_id}
        own = {record.directory_id for record in desired.dirs_of(self._node)}
        # What is reported of each log, and of each partition's name; not of other nodes' log dirs.
        self._entries: dict[LogId, list[LogReport]] = {}
        self._of_name: dict[object, list[LogReport]] = {}
        self._own = [
            entry for entry in report.logs if entry.directory_id in own or not entry.directory_id
        ]
        for entry in self._own:
            self._of_name.setdefault(entry.partition, []).append(entry)
            if entry.log is not None:
                self._entries.setdefault(entry.log, []).append(entry)

    def make(self, kafka_ids: Iterator[int]) -> None:
        if self._node not in self._desired.nodes:
            heir = self._heir() or NodeRecord(key=self._node, kafka_id=next(kafka_ids))
            self.records.append(heir)
        for directory_id, reported in self._dirs.items():
            self._plan_dir(directory_id, reported)
        for log in self._desired.logs_without_dir(self._node):
            self._plan_log(self._desired.partitions[log])
        for record in self._desired.dirs_of(self._node):
            for log in self._desired.logs_in(record.directory_id):
                self._plan_log(self._desired.partitions[log])
        for log in self._desired.logs_left_at(self._node):
            self._plan_left(self._desired.partitions[log])
        for log in self._entries:
            if log in self._desired.partitions:
                self._plan_folders_of(self._desired.partitions[log])
        for log in self._entries:
            self._plan_end(log)
        for entry in self._own:
            self._plan_stray(entry)
        self._plan_addresses()
        named = {getattr(order, "log", None) for order in self.orders}
        for entry in self._report.logs:
            if entry.log is not None and entry.log not in named and not self._is_right(entry):
                self.doubts.add(entry.log)

    def _heir(self) -> NodeRecord | None:
        """This node with the number and the port of one that is gone, and whose log dirs it has.

        A machine without a label is another node whenever Ray starts anew there, and clients shall
        find it where it was.
        """
        recorded = (self._desired.dirs.get(directory_id) for directory_id in self._dirs)
        for key in dict.fromkeys(record.node for record in recorded if record is not None):
            gone = self._desired.nodes.get(key)
            if gone is None or key in self._observed:
                continue
            if all(record.directory_id in self._dirs for record in self._desired.dirs_of(key)):
                return NodeRecord(key=self._node, kafka_id=gone.kafka_id, port=gone.port)
        return None

    def _is_right(self, entry: LogReport) -> bool:
        """Whether a log is served as it shall be, or nobody serves it."""
        if entry.state in ("found", "failed"):
            return True
        record = self._desired.partitions.get(entry.log) if entry.log is not None else None
        if record is None or record.state not in ("creating", "online"):
            return False
        if entry.directory_id != record.directory or not self._is_usable(record.directory):
            return False
        return entry.config_version == self._desired.config_version(record.log.topic_id)

    def _plan_addresses(self) -> None:
        """Where clients find the processes: as these say themselves."""
        node = self._desired.nodes.get(self._node)
        if node is not None and self._report.host:
            there = replace(node, host=self._report.host, port=self._report.port)
            if there != node:
                self.records.append(there)
        for entry in self._own:
            record = None if entry.log is None else self._desired.partitions.get(entry.log)
            if record is None or record.state == "removing" or entry.port in (0, record.port):
                continue
            if self._desired.node_of(record.log) == self._node:
                self.records.append(replace(record, port=entry.port))

    # -- log dirs ----------------------------------------------------------------------------------

    def _plan_dir(self, directory_id: str, entry: DirReport) -> None:
        record = self._desired.dirs.get(directory_id)
        if record is None:
            first = DirRecord(
                directory_id=directory_id, node=self._node, path=entry.path, state="online"
            )
            self.records.append(self._offline(first, entry) if entry.state == "offline" else first)
            return
        if record.node != self._node and self._is_elsewhere(record):
            return
        if (record.node, record.path) != (self._node, entry.path):
            self.records.append(replace(record, node=self._node, path=entry.path))
            return
        self._plan_own_dir(record, entry)

    def _plan_own_dir(self, record: DirRecord, entry: DirReport) -> None:
        is_online = entry.state == "online"
        match record.state:
            case "online" | "draining" if not is_online:
                self.records.append(self._offline(record, entry))
            case "offline" if is_online and self._is_fresh_start(record):
                # Used again when it has read the logs back.
                self.records.append(replace(record, state="returning", is_ordered=False))
            case "offline" if is_online or _is_kept_open(record, entry):
                self._keep_out(record)
            case "returning" if is_online and entry.is_read_back and self._is_settled(record):
                self.records.append(replace(record, state="online", why="", life=""))
            case "returning":
                self.orders.append(ReadBack(directory_id=record.directory_id))

    def _keep_out(self, record: DirRecord) -> None:
        """One that an operator takes offline keeps its copy of the metadata while records wait
        for that; so the dir with the Controller's own stays open, wherever that has begun since."""
        if record.is_ordered and record.directory_id in self._desired.copy_dirs:
            return
        order = KeepOut(
            directory_id=record.directory_id, why=record.why, in_order=record.is_ordered
        )
        self.orders.append(order)

    def _is_settled(self, record: DirRecord) -> bool:
        """Whether the report knows of all orders about a dir.

        One that does not was made before the order to keep the dir out was obeyed.
        """
        return record.directory_id not in self._seen.under_way

    def _is_fresh_start(self, record: DirRecord) -> bool:
        """Whether the LogManager was started anew since it reported the dir offline.

        One that Ray started in the place of a killed one is no new start.
        """
        return self._report.life != record.life and not self._report.is_restarted

    def _offline(self, record: DirRecord, entry: DirReport) -> DirRecord:
        """Metadata that is older than an operator's word has it from the dir's node."""
        is_ordered = entry.is_taken_offline
        why = TAKEN_OFFLINE if is_ordered else entry.why
        life = self._report.life
        return replace(record, state="offline", why=why, life=life, is_ordered=is_ordered)

    def _is_elsewhere(self, record: DirRecord) -> bool:
        """Whether the node that a log dir is recorded at has it, or may have it."""
        other = self._observed.get(record.node)
        if other is None or other.is_ended:
            return False
        if other.report is None or not other.obeys(self._desired.controller_epoch):
            return True
        return any(entry.directory_id == record.directory_id for entry in other.report.dirs)

    def _is_usable(self, directory_id: str | None) -> bool:
        entry = self._dirs.get(directory_id or "")
        return entry is not None and is_usable(self._desired, self._node, entry)

    # -- logs --------------------------------------------------------------------------------------

    def _plan_log(self, record: PartitionRecord) -> None:
        match record.state:
            case "creating" if record.directory is None:
                self._plan_folder(record)
            case "creating" | "online":
                self._plan_serving(record)
            case "moving":
                self._plan_move(record)
            case "removing" if _is_gone(record, self._desired, self._observed, self._now_ms):
                self.records.append(PartitionRemovedRecord(log=record.log))

    def _plan_folder(self, record: PartitionRecord) -> None:
        for entry in self._entries.get(record.log, ()):
            if entry.directory_id:
                if self._is_usable(entry.directory_id):
                    self.records.append(replace(record, directory=entry.directory_id))
                return
        is_in_the_way = any(
            entry.log != record.log and entry.directory_id
            for entry in self._of_name.get(record.log.partition, ())
        )
        if not is_in_the_way:
            self.orders.append(Create(log=record.log))

    def _plan_serving(self, record: PartitionRecord) -> None:
        if not self._is_usable(record.directory):
            return
        entries = self._entries.get(record.log, [])
        here = next((entry for entry in entries if entry.directory_id == record.directory), None)
        if record.state == "online" and self._plan_place(record, entries):
            return
        is_alone = all(entry is here for entry in entries)
        topic = self._desired.topics[record.log.topic_id]
        wanted = self._desired.config_version(topic.topic_id)
        if here is not None and here.state == "serving":
            if record.state == "creating":
                port = here.port or record.port
                self.records.append(replace(record, state="online", port=port))
            if here.config_version > wanted:
                # The metadata was rolled back: what it says now becomes the newest version.
                version = self._desired.version_after(here.config_version)
                self.records.append(replace(topic, version=version))
            is_fine = here.problem is None and is_alone
            if here.config_version >= wanted and is_fine:
                return
        elif here is not None and here.state in ("opening", "closing"):
            return
        if entries:  # also where only another dir of the node has it, which was its dir until now
            self._order_serve(record)

    def _plan_place(self, record: PartitionRecord, entries: Iterable[LogReport]) -> bool:
        """Whether the log is served from another log dir of its node than the recorded one.

        The metadata was rolled back, to before a move, or before its end: the living actor's word
        counts. What lies in the recorded dir is what the log was before.
        """
        if record.log in self._seen.under_way:
            return False
        for entry in entries:
            is_elsewhere = entry.directory_id != record.directory
            if entry.state == "serving" and is_elsewhere and self._is_usable(entry.directory_id):
                moved = replace(record, state="online", directory=entry.directory_id, target=None)
                self.records.append(moved)
                return True
        return False

    def _order_serve(self, record: PartitionRecord) -> None:
        config = self._config_of(record.log)
        if config is not None and record.directory is not None:
            order = Serve(
                log=record.log,
                directory_id=record.directory,
                config=config,
                config_version=self._desired.config_version(record.log.topic_id),
            )
            self.orders.append(order)

    def _plan_move(self, record: PartitionRecord) -> None:
        entries = self._entries.get(record.log, ())
        here = next((entry for entry in entries if entry.directory_id == record.directory), None)
        is_settled = record.log not in self._seen.under_way
        is_serving = here is not None and here.state == "serving"
        is_failed = is_serving and here is not None and here.problem is not None
        if (is_failed and is_settled) or not self._is_usable(record.target):
            self.records.append(replace(record, state="online", target=None))
            return
        if not entries or not self._is_usable(record.directory):
            return
        if self._plan_place(record, entries):
            return
        if here is None:  # the end of the move before is not done yet
            self._order_serve(record)
            return
        if here.state == "moved" and here.moved_to == record.target and is_settled:
            moved = replace(record, state="online", directory=record.target, target=None)
            self.records.append(moved)
            return
        config = self._config_of(record.log)
        if config is not None and record.directory is not None and record.target is not None:
            order = Move(
                log=record.log,
                directory_id=record.directory,
                target_id=record.target,
                config=config,
                config_version=self._desired.config_version(record.log.topic_id),
            )
            self.orders.append(order)

    def _plan_left(self, record: PartitionRecord) -> None:
        """A log that this node was to make earlier."""
        if record.state == "removing" and _is_gone(
            record, self._desired, self._observed, self._now_ms
        ):
            self.records.append(PartitionRemovedRecord(log=record.log))

    def _plan_folders_of(self, record: PartitionRecord) -> None:
        """Remove what lies here of a log that is being removed, or that another node makes now."""
        is_elsewhere = self._desired.node_of(record.log) != self._node
        is_left = self._node in record.left and is_elsewhere
        if record.state == "removing" or is_left:
            self.orders.append(Remove(log=record.log))

    def _config_of(self, log: LogId) -> LogConfig | None:
        return self._configs.of(self._desired.topics[log.topic_id])

    # -- folders that nobody wants -----------------------------------------------------------------

    def _plan_end(self, log: LogId) -> None:
        """Nobody serves on what no record knows: the metadata is older, and it is accepted."""
        if log in self._desired.partitions:
            return
        states = {entry.state for entry in self._entries[log]}
        if states & {"opening", "serving", "moved"}:
            self.orders.append(End(log=log))

    def _plan_stray(self, entry: LogReport) -> None:
        if entry.state not in ("found", "failed") or not entry.directory_id:
            return
        if entry.log is None:
            is_stray = not self._is_wanted_name(entry)
        else:
            is_stray = self._is_unwanted(entry.log)
        if is_stray:
            order = SetAside(
                partition=entry.partition,
                topic_id=entry.topic_id,
                directory_id=entry.directory_id,
            )
            self.orders.append(order)

    def _is_wanted_name(self, entry: LogReport) -> bool:
        """Whether a partition of this name shall be in this log dir, or may."""
        topic = self._desired.topic_named(entry.partition.topic)
        if topic is None:
            return False
        log = LogId(partition=entry.partition, topic_id=topic.topic_id)
        record = self._desired.partitions.get(log)
        return record is not None and entry.directory_id in (record.directory, record.target)

    def _is_unwanted(self, log: LogId) -> bool:
        record = self._desired.partitions.get(log)
        if record is None:
            return True
        # What lies in another log dir of its own node is what a move has left: Serve drops it.
        is_handled = record.state == "removing" or self._node in record.left
        return not is_handled and self._desired.node_of(log) != self._node
