"""``__transaction_state`` between a real Kafka and raylog: each goes on with the other's ids.

::

    Kafka    a producer commits a transaction, and leaves another one open
    raylog   knows both; aborts the open one; another id begins one, and prepares it
    Kafka    its producers take all ids over, and readers of committed records see what they should
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from raylog.actors.coordinators.coordinator_log import PartitionLog
from raylog.actors.coordinators.refusals import NotServed
from raylog.actors.coordinators.transactions.config import TransactionConfig
from raylog.actors.coordinators.transactions.coordinator import TransactionCoordinator
from raylog.actors.coordinators.transactions.messages import (
    AddPartitionsAnswer,
    AddPartitionsRequest,
    DescribeAnswer,
    DescribeRequest,
    InitAnswer,
    InitRequest,
    ListAnswer,
    ListRequest,
    Owner,
    PrepareAnswer,
    PrepareRequest,
)
from raylog.actors.coordinators.transactions.turn import SendMarkers
from raylog.actors.partition.partition import Partition
from raylog.actors.partition.transaction_end import TransactionEnd
from raylog.storage.clock import SteadyClock, SystemClock
from raylog.storage.names import TopicPartition as Place
from raylog.storage.testing.waiting import wait_for
from tests.kafka.broker import KafkaBroker
from tests.kafka.clients import create_topics
from tests.kafka.distribution import Kafka
from tests.kafka.taking_over import TakenOver

pytestmark = pytest.mark.timeout(400)  # the first may fetch Kafka, and starts it
TOPIC = "orders"
TIMEOUT_S = 60.0
PLACE = Place(TOPIC, 0)


@pytest.fixture(scope="module")
def broker(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    made = KafkaBroker(kafka, tmp_path_factory.mktemp("transactions"))
    made.start()
    yield made
    made.kill()


@dataclass
class Marking:
    """Writes the markers of one partition, when it is told to."""

    partition: Partition
    epoch: int
    waiting: list[SendMarkers]

    def send(self, markers: SendMarkers) -> None:
        self.waiting.append(markers)

    def write(self, coordinator: TransactionCoordinator) -> None:
        while self.waiting:
            markers = self.waiting.pop(0)
            assert markers.partitions == (PLACE,)
            end = TransactionEnd(markers.producer_id, markers.epoch, markers.is_commit, self.epoch)
            self.partition.end_transaction(end)
            coordinator.marked(markers, PLACE)


def producer(broker: KafkaBroker, transactional_id: str) -> Producer:
    made = Producer({"bootstrap.servers": broker.address, "transactional.id": transactional_id})
    made.init_transactions(TIMEOUT_S)
    return made


def write(made: Producer, value: bytes) -> None:
    made.begin_transaction()
    made.produce(TOPIC, value, partition=0)
    assert made.flush(TIMEOUT_S) == 0


def committed(broker: KafkaBroker, count: int) -> list[bytes]:
    settings: dict[str, Any] = {
        "bootstrap.servers": broker.address,
        "group.id": "none",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[bytes] = []

    def has_all() -> bool:
        for message in consumer.consume(10, 0.5):
            value = message.value()
            if message.error() is None and value is not None:
                found.append(value)
        return len(found) >= count

    wait_for(has_all, TIMEOUT_S, f"{count} records")
    consumer.close()
    return found


def ids() -> Iterator[int]:
    yield from range(1_000_000, 1_000_100)


def ask(coordinator: TransactionCoordinator, request: Any, kind: type) -> Any:
    answer = coordinator.ask(request)
    assert isinstance(answer, kind), answer
    return answer


def test_each_goes_on_with_the_others_transactional_ids(broker: KafkaBroker) -> None:
    create_topics(broker.address, {TOPIC: {}})
    first = producer(broker, "committed")
    write(first, b"first")
    first.commit_transaction(TIMEOUT_S)
    second = producer(broker, "open")
    write(second, b"lost")
    broker.stop()

    with_raylog = TakenOver(broker.log_dir, broker.meta)
    log = with_raylog.open("__transaction_state", cleanup_policy="compact")
    partition, orders = Partition(log, SystemClock()), with_raylog.open(TOPIC)
    marking = Marking(Partition(orders, SystemClock()), partition.leader_epoch, [])
    failures: list[BaseException] = []
    fresh = ids()
    coordinator = TransactionCoordinator(
        "__transaction_state-0",
        PartitionLog(partition),
        SteadyClock(),
        SystemClock(),
        TransactionConfig(),
        marking,
        lambda: next(fresh),
        failures.append,
    )
    coordinator.begin()
    wait_for(lambda: not isinstance(coordinator.ask(ListRequest()), NotServed))
    listed = ask(coordinator, ListRequest(), ListAnswer).transactions
    states = {one.transactional_id: one.state for one in listed}
    assert states == {"committed": "CompleteCommit", "open": "Ongoing"}
    (opened,) = ask(coordinator, DescribeRequest(("open",)), DescribeAnswer).transactions
    assert opened.partitions == (PLACE,)

    taken = InitRequest(Owner("open", -1, -1), 60_000)
    assert ask(coordinator, taken, InitAnswer).error_code == 51
    marking.write(coordinator)
    assert ask(coordinator, taken, InitAnswer).epoch == opened.epoch + 2
    asked = InitRequest(Owner("prepared", -1, -1), 60_000)
    owner = Owner("prepared", ask(coordinator, asked, InitAnswer).producer_id, 0)
    added = AddPartitionsRequest(owner, (PLACE,), 2)
    assert ask(coordinator, added, AddPartitionsAnswer).error_code == 0
    assert ask(coordinator, PrepareRequest(owner), PrepareAnswer).error_code == 0
    coordinator.stop()
    assert not failures
    marking.partition.close()
    partition.close()
    with_raylog.close(log, orders)

    broker.start()
    for name in ("committed", "open", "prepared"):
        again = producer(broker, name)
        write(again, name.encode())
        again.commit_transaction(TIMEOUT_S)
    assert committed(broker, 4) == [b"first", b"committed", b"open", b"prepared"]
