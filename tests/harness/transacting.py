"""A broker with transactions, for who administers them, in a time that a test moves.

Partitions are those of ``consuming.py``, and each partition of ``__transaction_state`` has the real
machine (``playing.py``). Requests and answers go as bytes through the doors that clients ask by
socket. Markers arrive while time passes.
"""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from raylog.actors.coordinators.homes import partition_of
from raylog.actors.coordinators.transactions.coordinator import TransactionCoordinator
from raylog.actors.coordinators.transactions.machine import Marked
from raylog.actors.coordinators.transactions.messages import (
    AddPartitionsAnswer,
    AddPartitionsRequest,
    EndAnswer,
    EndRequest,
    InitAnswer,
    InitRequest,
    Owner,
    PrepareAnswer,
    PrepareRequest,
)
from raylog.actors.partition.partition import Partition
from raylog.actors.partition.transaction_end import TransactionEnd
from raylog.actors.plane.apis.records import DESCRIBE_PRODUCERS
from raylog.actors.plane.apis.transactions import DESCRIBE_TRANSACTIONS, WRITE_TXN_MARKERS
from raylog.actors.plane.frames import parse
from raylog.actors.plane.hosts import Host, Hosts
from raylog.actors.plane.peers.peers import Topic
from raylog.actors.plane.producers import describe_producers
from raylog.actors.plane.transactions.door import answer_transaction_request, write_markers
from raylog.actors.plane.transactions.service import Transactions as Service
from raylog.actors.plane.transactions.verifying import Verifier
from raylog.cluster.client.connection import ApiRequest
from raylog.cluster.client.sockets import wire
from raylog.cluster.client.transactions import Transactions
from raylog.storage.names import TRANSACTION_STATE, TopicPartition
from raylog.storage.schemas.types import Value
from raylog.storage.testing.logs import TOPIC_ID, of_producer
from tests.harness.consuming import FakeConnection, ManualWaiter
from tests.harness.futures import future_of
from tests.unit.actors.coordinators.test_group_coordinator import Place
from tests.unit.actors.coordinators.transactions.playing import WALL_MS, Coordinator

COORDINATORS = 2
TIMEOUT_MS = 60_000


class TransactionBroker(FakeConnection):
    """See the module's head."""

    def __init__(self, **topics: int) -> None:
        super().__init__(**topics)
        self.coordinators: list[Coordinator] = []
        self.codes: dict[str, list[int]] = {}  # by the API's name: error codes that it answers next
        self.first: dict[str, Callable[[], object]] = {}  # happens once, before the API is answered
        self.holds_markers = False
        self.asked: list[tuple[str, TopicPartition]] = []

    def transactions(self, timeout_s: float = 60.0) -> Transactions:
        waiter = ManualWaiter(self)
        return Transactions(self, timeout_s=timeout_s, waiter=waiter, clock=self)  # type: ignore[arg-type]

    def now_ms(self) -> int:
        """Of the wall's clock."""
        return WALL_MS + round(self.now_s * 1000)

    def pass_time(self, seconds: float) -> None:
        before_s = self.now_s
        super().pass_time(seconds)
        for coordinator in self.coordinators:
            coordinator.wait(round((self.now_s - before_s) * 1000))
        if not self.holds_markers:
            self.deliver_markers()

    def deliver_markers(self) -> None:
        for coordinator in self.coordinators:
            for markers, partition in list(coordinator.markers):
                end = TransactionEnd(markers.producer_id, markers.epoch, markers.is_commit, 0)
                self.partition(partition).end_transaction(end)
                coordinator.markers.remove((markers, partition))
                coordinator.do(Marked(markers, partition))

    def partition(self, partition: TopicPartition) -> Partition:
        return self.topics[partition.topic][partition.partition].partition

    def stable(self, partition: TopicPartition) -> tuple[int, int]:
        """The last stable offset, behind which readers of committed records wait; and the end."""
        log = self.partition(partition).log
        return log.last_stable_offset, log.log_end_offset

    # -- who writes --------------------------------------------------------------------------------

    def coordinator_of(self, transactional_id: str) -> Coordinator:
        if not self.coordinators:
            self.create(TRANSACTION_STATE, COORDINATORS)
            self.coordinators = [Coordinator() for _ in range(COORDINATORS)]
            for number, coordinator in enumerate(self.coordinators):
                coordinator.now_ms = round(self.now_s * 1000)
                coordinator.fresh_id = 1000 * (number + 1) - 1
        return self.coordinators[partition_of(transactional_id, COORDINATORS)]

    def producer(self, transactional_id: str) -> "TransactionalProducer":
        """One that has its id."""
        coordinator = self.coordinator_of(transactional_id)
        answer = coordinator.ask(
            InitRequest(Owner(transactional_id, -1, -1), TIMEOUT_MS), InitAnswer
        )
        assert answer.error_code == 0, answer
        return TransactionalProducer(
            self, Owner(transactional_id, answer.producer_id, answer.epoch)
        )

    def append(
        self, partition: TopicPartition, producer_id: int, *, epoch: int = 0, sequence: int = 0
    ) -> None:
        """A batch of a transaction, of which no coordinator is asked."""
        target = self.partition(partition)
        records = of_producer(
            sequence,
            producer=producer_id,
            epoch=epoch,
            transactional=True,
            timestamp=self.now_ms(),
        )
        verification = target.verifications.begin(producer_id, epoch)
        verification.grant()
        target.append(records)
        target.verifications.end(verification)

    # -- the connection ----------------------------------------------------------------------------

    def ask(self, request: ApiRequest, *, timeout_s: float) -> "Future[Any]":
        place = TopicPartition(request.topic, request.partition)
        name = request.api.name
        self.asked.append((name, place))
        happens = self.first.pop(name, None)
        if happens is not None:
            happens()
        if self.codes.get(name):
            return future_of(_with_code(request, self.codes[name].pop(0)))
        frame = memoryview(b"".join(wire.request_frame(request.api, 0, request.body)))[4:]
        return future_of(wire.answer_body(request.api, self._answer(place, frame, request)[4:]))

    def _answer(self, place: TopicPartition, frame: memoryview, request: ApiRequest) -> memoryview:
        parsed = parse(frame)
        if request.api is DESCRIBE_PRODUCERS:
            return memoryview(describe_producers(parsed, self._hosts(place)))
        if request.api is WRITE_TXN_MARKERS:
            return memoryview(write_markers(parsed, self._hosts(place), None, Place()))  # type: ignore[arg-type]
        assert place.topic == TRANSACTION_STATE
        coordinator: TransactionCoordinator = _Asked(self.coordinators[place.partition])  # type: ignore[assignment]
        service = Service(self, Verifier(self), coordinator, place.partition)  # type: ignore[arg-type]
        return memoryview(answer_transaction_request(parsed, service))

    def _hosts(self, place: TopicPartition) -> Hosts:
        partition = self.partition(place)
        remove = partition.delete_records
        return Hosts([Host(place.topic, bytes(16), place.partition, partition, remove)])

    def topic(self, name: str) -> Topic | None:
        """As ``peers.py``."""
        return Topic(TOPIC_ID, len(self.topics[name])) if name in self.topics else None


class TransactionalProducer:
    """By version 1 of transactions."""

    def __init__(self, broker: TransactionBroker, owner: Owner) -> None:
        self.broker, self.owner = broker, owner
        self.coordinator = broker.coordinator_of(owner.transactional_id)
        self._sequences: dict[TopicPartition, int] = {}

    def write(self, *partitions: TopicPartition) -> None:
        """A batch in each; the transaction begins with the first."""
        request = AddPartitionsRequest(self.owner, partitions, 1)
        assert self.coordinator.ask(request, AddPartitionsAnswer).error_code == 0
        for each in partitions:
            sequence = self._sequences.get(each, 0)
            _, producer_id, epoch = self.owner
            self.broker.append(each, producer_id, epoch=epoch, sequence=sequence)
            self._sequences[each] = sequence + 1

    def end(self, *, is_commit: bool = True) -> int:
        return self.coordinator.ask(EndRequest(self.owner, is_commit, 1), EndAnswer).error_code

    def prepare(self) -> None:
        answer = self.coordinator.ask(PrepareRequest(self.owner), PrepareAnswer)
        assert answer.error_code == 0


class _Asked:
    """The machine, as the door asks it."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    def ask(self, request: Any) -> Any:
        return self._coordinator.ask(request, object)  # type: ignore[type-var]


def _with_code(request: ApiRequest, code: int) -> Value:
    """An answer that says nothing but the code."""
    if request.api is DESCRIBE_TRANSACTIONS:
        states = [
            {"errorCode": code, "transactionalId": name}
            for name in request.body["transactionalIds"]
        ]
        return {"transactionStates": states}
    if request.api is DESCRIBE_PRODUCERS:
        return {"topics": _parts(request.body["topics"], code, activeProducers=[])}
    if request.api is WRITE_TXN_MARKERS:
        return {
            "markers": [
                {"producerId": one["producerId"], "topics": _parts(one["topics"], code)}
                for one in request.body["markers"]
            ]
        }
    return {"errorCode": code, "transactionStates": [], "producerId": -1, "producerEpoch": -1}


def _parts(topics: list[Any], code: int, **others: Any) -> list[Value]:
    return [
        {
            "name": topic["name"],
            "partitions": [
                {"partitionIndex": number, "errorCode": code, **others}
                for number in topic["partitionIndexes"]
            ],
        }
        for topic in topics
    ]
