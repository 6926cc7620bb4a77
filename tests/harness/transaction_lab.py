"""Producers of transactions over real coordinators and partitions, and a way that does as told.

The processes are those of ``together.py``. A producer has no thread: whatever waits for it does
what is due meanwhile, and its clock goes on when it pauses.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from random import Random
from typing import Any

from raylog.actors.errors import ActorAway, UnknownTopicOrPartition
from raylog.actors.plane.apis.cluster import FIND_COORDINATOR
from raylog.actors.plane.apis.transactions import LIST_TRANSACTIONS
from raylog.actors.plane.errors import PeerAway
from raylog.cluster.client.connection import (
    ApiRequest,
    PartitionMetadata,
    ProduceAnswer,
    ProduceRequest,
    TopicMetadata,
)
from raylog.cluster.client.producer import Producer
from raylog.cluster.client.producer.delivery import Delivery
from raylog.cluster.client.sockets import wire
from raylog.storage.buffers import Buffer
from raylog.storage.errors import RaylogError
from raylog.storage.names import TopicPartition
from raylog.storage.records.batch import iter_batches
from raylog.storage.records.decode import decode_records
from raylog.storage.schemas.types import Value
from raylog.storage.testing.logs import TOPIC_ID
from raylog.storage.testing.waiting import wait_for
from tests.harness.futures import future_of
from tests.unit.actors.coordinators.test_group_coordinator import Place
from tests.unit.actors.plane.together import COORDINATOR, FIRST, SECOND, Cluster

MAX_BYTES = 1_048_588
LOST, UNANSWERED = "lost", "unanswered"
STEP_S = 0.001


class Way:
    """A ``connection.Connection``. ``faults``: of the next requests, by the name of their API.

    A request that is LOST does not arrive; the answer of one that is UNANSWERED does not; a number
    is the code that it is answered with, and it does not arrive.
    """

    namespace, max_in_flight = "transactions", 5

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.faults: defaultdict[str, list[str | int]] = defaultdict(list)
        self.asked: list[str] = []  # the names of APIs
        self.forgotten: list[str] = []  # topics whose processes are looked up afresh
        self.weather: Random | None = None  # some of all get lost
        self.late: list[ProduceRequest] | None = None  # where it is a list, they arrive later

    def _fault(self, api: str) -> str | int | None:
        self.asked.append(api)
        if self.faults[api]:
            return self.faults[api].pop(0)
        if self.weather is not None and self.weather.random() < 0.1:
            return self.weather.choice((LOST, UNANSWERED))
        return None

    def produce(self, request: ProduceRequest, *, timeout_s: float) -> "Future[ProduceAnswer]":
        partition = TopicPartition(request.topic, request.partition)
        if self.late is not None:
            self.late.append(request)
            return future_of(ActorAway(str(partition), "it has ended the connection"))
        frame = wire.produce_request(request, 0)
        read = wire.produce_answer
        fault = self._fault("Produce")
        return self._carry(fault, partition, frame, lambda told: read(told, str(partition)))

    def arrive(self) -> None:
        """What was late arrives now."""
        late, self.late = self.late or [], None
        for request in late:
            self.produce(request, timeout_s=1)

    def ask(self, request: ApiRequest, *, timeout_s: float) -> "Future[Value]":
        if request.api is FIND_COORDINATOR:
            self.asked.append(request.api.name)
            (key,) = request.body["coordinatorKeys"]
            return future_of({"coordinators": [{"key": key, "errorMessage": "it is made"}]})
        partition = TopicPartition(request.topic, request.partition)
        frame = wire.request_frame(request.api, 0, request.body)
        api = request.api
        fault = self._fault(api.name)
        if isinstance(fault, int):
            return future_of(_with_code(request, fault))
        return self._carry(fault, partition, frame, lambda told: wire.answer_body(api, told))

    def _carry(
        self,
        fault: str | int | None,
        partition: TopicPartition,
        frame: Iterable[Buffer],
        read: Callable[[memoryview], Any],
    ) -> "Future[Any]":
        away = ActorAway(str(partition), "it has ended the connection")
        if fault == LOST:
            return future_of(away)
        try:
            answer = read(self._arrive(partition, frame))
        except PeerAway:
            return future_of(away)
        except RaylogError as error:
            answer = error
        return future_of(away if fault == UNANSWERED else answer)

    def _arrive(self, partition: TopicPartition, frame: Iterable[Buffer]) -> memoryview:
        process = self.cluster.processes.get(partition)
        if process is None or process.is_away or partition.topic not in self.cluster.topics:
            raise PeerAway(str(partition), "it is away")
        pieces: Any = process.door([bytearray(b"".join(frame))[4:]], Place())  # type: ignore[arg-type]
        return memoryview(b"".join(pieces))[4:]

    def metadata(self, topic: str, *, timeout_s: float) -> "Future[TopicMetadata]":
        known = self.cluster.topics.get(topic)
        if known is None:
            return future_of(UnknownTopicOrPartition(topic, None, "there is none"))
        parts = tuple(PartitionMetadata(n, 0, None) for n in range(known.partitions))
        return future_of(TopicMetadata(topic, TOPIC_ID, parts, MAX_BYTES))

    def list_topics(self, *, timeout_s: float) -> "Future[list[str]]":
        return future_of(sorted(self.cluster.topics))

    def forget(self, topic: str, partition: int) -> None:
        self.forgotten.append(topic)

    def new_producer_id(self, *, timeout_s: float) -> "Future[int]":
        raise AssertionError("coordinators give producers of transactions their ids")

    fetch = list_offset = new_producer_id  # type: ignore[assignment]


def _with_code(request: ApiRequest, code: int) -> Value:
    """An answer that says nothing but the code."""
    if "topics" not in request.body:
        return {"errorCode": code}
    return {
        "topics": [
            {
                "name": topic["name"],
                "partitions": [
                    {"partitionIndex": part["partitionIndex"], "errorCode": code}
                    for part in topic["partitions"]
                ],
            }
            for topic in request.body["topics"]
        ]
    }


class Lab:
    """Producers of one cluster. Their clock passes while they wait."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.cluster.clock.ms = time.time_ns() // 1_000_000  # as of the records' timestamps
        self.cluster.serves()
        self.way = Way(self.cluster)
        self.now_s = 1000.0
        self.producers: list[Producer] = []
        self.pauses: list[float] = []

    def producer(self, transactional_id: str = "writer", **settings: Any) -> Producer:
        """One that has not taken its id."""
        settings = {"linger_ms": 0, "retry_backoff_ms": 1, "retry_backoff_max_ms": 1, **settings}
        producer = Producer(
            self.way,  # type: ignore[arg-type]
            clock=lambda: self.now_s,
            is_threaded=False,
            transactional_id=transactional_id,
            **settings,
        )
        sender = producer._sender

        def wait(deliveries: Iterable[Delivery], timeout_s: float) -> bool:
            ends_s, left = self.now_s + timeout_s, list(deliveries)
            while not all(one.has_told for one in left):
                if not sender.step():
                    if self.now_s >= ends_s:
                        return False
                    self.now_s += STEP_S
            return True

        sender.wait = wait  # type: ignore[method-assign]
        sender.pause = self.pause  # type: ignore[method-assign]
        self.producers.append(producer)
        return producer

    def ready(self, transactional_id: str = "writer", **settings: Any) -> Producer:
        producer = self.producer(transactional_id, **settings)
        producer.init_transactions()
        return producer

    def pause(self, seconds: float) -> None:
        """Markers, which threads of their own write, have the time that they need."""
        self.pauses.append(seconds)
        self.now_s += seconds
        if not any(process.is_away for process in self.cluster.processes.values()):
            wait_for(lambda: not self._decided())

    def _decided(self) -> list[Value]:
        """The transactions whose markers are on their way."""
        filters: Value = {
            "stateFilters": ["PrepareCommit", "PrepareAbort"],
            "producerIdFilters": [],
            "durationFilter": -1,
        }
        try:
            told = self.cluster.ask(COORDINATOR, LIST_TRANSACTIONS, 1, filters)
        except PeerAway:
            return []
        return list(told["transactionStates"])

    def close(self) -> None:
        for producer in self.producers:
            producer._sender.stop()
            producer._sender.take_failures()
        self.cluster.close()

    def committed(self, partition: TopicPartition = FIRST) -> list[bytes]:
        """What a reader of committed records sees now."""
        log = self.cluster.processes[partition].partition
        found = log.fetch(0, max_bytes=1 << 24, isolation="committed")
        if found.records is None:
            return []
        records: Any = found.records
        values: list[bytes] = []
        marks = sorted(found.aborted or (), key=lambda mark: mark[1])
        ending: set[int] = set()  # producers that are within a transaction that was aborted
        for position, header in iter_batches(records):
            while marks and marks[0][1] <= header.base_offset:
                ending.add(marks.pop(0)[0])
            if header.is_control:
                ending.discard(header.producer_id)
            elif header.producer_id not in ending:
                batch = records[position : position + header.size_bytes]
                values += [record.value or b"" for record in decode_records(batch)]
        return values

    def all_committed(self) -> list[bytes]:
        return self.committed(FIRST) + self.committed(SECOND)
