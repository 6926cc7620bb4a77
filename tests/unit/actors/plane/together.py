"""Processes of partitions that ask each other, in one process and without sockets.

Each has a door of its own, and is asked by frames, as by a socket. A process that is away answers
nobody.
"""

from typing import Any

from raylog.actors.coordinators.coordinator_log import PartitionLog
from raylog.actors.coordinators.group_config import GroupConfig
from raylog.actors.coordinators.group_coordinator import GroupCoordinator
from raylog.actors.coordinators.transactions.config import TransactionConfig
from raylog.actors.coordinators.transactions.coordinator import TransactionCoordinator
from raylog.actors.partition.partition import Partition
from raylog.actors.plane.apis.api import Api
from raylog.actors.plane.apis.groups import LIST_GROUPS
from raylog.actors.plane.apis.transactions import LIST_TRANSACTIONS
from raylog.actors.plane.door import Door
from raylog.actors.plane.errors import PeerAway
from raylog.actors.plane.frames import read_answer, request_frame
from raylog.actors.plane.hosts import Host, Hosts
from raylog.actors.plane.peers.peers import Topic
from raylog.actors.plane.transactions.markers import MarkerSender
from raylog.actors.plane.transactions.service import Transactions
from raylog.actors.plane.transactions.verifying import Verifier
from raylog.storage.clock import SteadyClock
from raylog.storage.config import LogConfig
from raylog.storage.loader import create_log, open_log
from raylog.storage.names import CONSUMER_OFFSETS, TRANSACTION_STATE, TopicPartition
from raylog.storage.schemas.types import Value
from raylog.storage.state.properties import id_uuid
from raylog.storage.testing.clock import ManualClock
from raylog.storage.testing.logs import TOPIC_ID
from raylog.storage.testing.memory import MemoryFileSystem
from raylog.storage.testing.waiting import wait_for
from tests.unit.actors.coordinators.test_group_coordinator import Place

ORDERS = "orders"
COORDINATOR = TopicPartition(TRANSACTION_STATE, 0)
OFFSETS = TopicPartition(CONSUMER_OFFSETS, 0)
FIRST, SECOND = TopicPartition(ORDERS, 0), TopicPartition(ORDERS, 1)


class Process:
    """Of one partition. ``is_away``: it answers nobody."""

    def __init__(self, cluster: "Cluster", name: TopicPartition) -> None:
        self.name, self.cluster, self.is_away = name, cluster, False
        self.groups: GroupCoordinator | None = None
        self.sender: MarkerSender | None = None
        self.coordinator: TransactionCoordinator | None = None
        self.start()

    def start(self) -> None:
        """Open the log, and serve."""
        fs, cluster = self.cluster.fs, self.cluster
        folder = f"/logs/{self.name}"
        log = open_log(fs, cluster.clock, folder, self.name, LogConfig(), is_clean=True)
        self.partition = Partition(log, cluster.clock)
        hosts = Hosts(
            [
                Host(
                    self.name.topic,
                    id_uuid(TOPIC_ID).bytes,
                    self.name.partition,
                    self.partition,
                    self.partition.delete_records,
                )
            ]
        )
        transactions = Transactions(cluster, cluster.verifier)
        if self.name == OFFSETS:
            self.groups = GroupCoordinator(
                str(self.name),
                PartitionLog(self.partition),
                SteadyClock(),
                cluster.clock,
                GroupConfig(),
                cluster.failures.append,
            )
            self.groups.begin()
        if self.name == COORDINATOR:
            self.sender = MarkerSender(
                cluster, self.partition.leader_epoch, cluster.failures.append
            )
            self.coordinator = TransactionCoordinator(
                str(self.name),
                PartitionLog(self.partition),
                cluster.steady,
                cluster.clock,
                TransactionConfig(abort_interval_ms=50),
                self.sender,
                cluster.producer_id,
                cluster.failures.append,
            )
            self.sender.begin(self.coordinator.marked)
            self.coordinator.begin()
            transactions = transactions._replace(coordinator=self.coordinator)
        self.door = Door(lambda request, parking: [], hosts, self.groups, transactions)

    def stop(self) -> None:
        for part in (self.groups, self.coordinator, self.sender):
            if part is not None:
                part.stop()
        self.partition.close()

    def restart(self) -> None:
        """Another process takes its place."""
        self.stop()
        self.start()


class Cluster:
    """A topic of two partitions, and both coordinators. Its own peers, too: see ``peers.py``."""

    def __init__(self) -> None:
        self.fs, self.clock, self.steady = MemoryFileSystem(), ManualClock(), SteadyClock()
        self.fs.make_dir("/logs")
        self.failures: list[BaseException] = []
        self.next_id = 1_000
        self.verifier = Verifier(self, pause=lambda _: None)
        self.topics = {
            ORDERS: Topic(TOPIC_ID, 2),
            CONSUMER_OFFSETS: Topic(TOPIC_ID, 1),
            TRANSACTION_STATE: Topic(TOPIC_ID, 1),
        }
        self.is_manager_away = False
        self.processes: dict[TopicPartition, Process] = {}
        for name in (FIRST, SECOND, OFFSETS, COORDINATOR):
            create_log(self.fs, f"/logs/{name}", TOPIC_ID)
            self.processes[name] = Process(self, name)

    def close(self) -> None:
        for process in self.processes.values():
            process.stop()
        assert not self.failures

    # -- as peers ----------------------------------------------------------------------------------

    def topic(self, name: str) -> Topic | None:
        if self.is_manager_away:
            raise PeerAway("manager", "it is away")
        return self.topics.get(name)

    def forget(self, name: str) -> None:
        pass

    def missing(self, partitions: list[TopicPartition]) -> set[TopicPartition]:
        found = set()
        for one in partitions:
            topic = self.topic(one.topic)
            if topic is None or not 0 <= one.partition < topic.partitions:
                found.add(one)
        return found

    def producer_id(self) -> int:
        if self.is_manager_away:
            raise PeerAway("manager", "it is away")
        self.next_id += 1
        return self.next_id

    def ask(self, partition: TopicPartition, api: Api, version: int, body: Value) -> Value:
        process = self.processes.get(partition)
        if process is None or process.is_away or partition.topic not in self.topics:
            raise PeerAway(str(partition), "it is away")
        frame = bytearray(request_frame(api, version, body))
        pieces: Any = process.door([frame], Place())  # type: ignore[arg-type]
        return read_answer(api, version, b"".join(pieces))

    def serves(self) -> None:
        """Return when both coordinators have read their logs."""
        groups: Value = {"statesFilter": [], "typesFilter": []}
        filters: Value = {"stateFilters": [], "producerIdFilters": [], "durationFilter": -1}
        wait_for(lambda: self.ask(OFFSETS, LIST_GROUPS, 5, groups)["errorCode"] == 0)
        wait_for(lambda: self.ask(COORDINATOR, LIST_TRANSACTIONS, 1, filters)["errorCode"] == 0)
