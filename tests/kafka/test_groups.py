"""``__consumer_offsets`` between a real Kafka and raylog: each goes on with the other's groups.

::

    Kafka    a consumer commits; transactions commit offsets, and abort some
    raylog   reads the groups; a member joins, is assigned, commits
    Kafka    tells what raylog committed, and its group; a consumer goes on from there
"""

import threading
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition

from raylog.actors.coordinators.coordinator_log import PartitionLog
from raylog.actors.coordinators.group_config import GroupConfig
from raylog.actors.coordinators.group_coordinator import GroupCoordinator
from raylog.actors.coordinators.group_messages import (
    CommitAnswer,
    CommitRequest,
    FetchOffsetsAnswer,
    FetchOffsetsRequest,
    Identity,
    JoinAnswer,
    JoinRequest,
    ListGroupsAnswer,
    ListGroupsRequest,
    OffsetToCommit,
    Protocol,
    SyncAnswer,
    SyncRequest,
)
from raylog.actors.coordinators.refusals import NotServed
from raylog.actors.partition.partition import Partition
from raylog.storage.clock import SteadyClock, SystemClock
from raylog.storage.names import TopicPartition as Place
from raylog.storage.schemas.consumer_protocol import ASSIGNMENT, SUBSCRIPTION
from raylog.storage.testing.waiting import wait_for
from tests.kafka.broker import KafkaBroker
from tests.kafka.clients import admin, create_topics
from tests.kafka.distribution import Kafka
from tests.kafka.taking_over import TakenOver

pytestmark = pytest.mark.timeout(400)  # the first may fetch Kafka, and starts it
TOPIC = "orders"
TIMEOUT_S = 60.0
HALF, IN_TRANSACTION, BY_RAYLOG = 50, 70, 90


class Desk:
    """Where a request waits for its answer."""

    def __init__(self) -> None:
        self._bell = threading.Event()

    def prepare(self) -> None:
        self._bell.clear()

    def wake(self) -> None:
        self._bell.set()

    def wait(self, timeout_ms: int) -> Literal["woken"]:
        assert self._bell.wait(TIMEOUT_S)
        return "woken"


@pytest.fixture(scope="module")
def broker(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    made = KafkaBroker(kafka, tmp_path_factory.mktemp("groups"))
    made.start()
    yield made
    made.kill()


def member(broker: KafkaBroker, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )


def read_by_group(broker: KafkaBroker, group: str, count: int) -> list[int]:
    """The offsets of so many records that a member of a group reads and commits."""
    consumer = member(broker, group)
    found: list[int] = []
    consumer.subscribe([TOPIC])

    def has_all() -> bool:
        for message in consumer.consume(count - len(found), 0.2):
            assert message.error() is None
            found.append(message.offset() or 0)
        return len(found) == count

    wait_for(has_all, TIMEOUT_S, f"{count} records for {group}")
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def commit_in_transaction(broker: KafkaBroker, offset: int, *, commit: bool) -> None:
    settings = {"bootstrap.servers": broker.address, "transactional.id": "t"}
    producer, consumer = Producer(settings), member(broker, "transactional")
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    wanted = [TopicPartition(TOPIC, 0, offset)]
    producer.send_offsets_to_transaction(wanted, consumer.consumer_group_metadata(), TIMEOUT_S)
    if commit:
        producer.commit_transaction(TIMEOUT_S)
    else:
        producer.abort_transaction(TIMEOUT_S)
    consumer.close()


def committed_by_kafka(broker: KafkaBroker, group: str) -> int:
    client, request = admin(broker.address), [ConsumerGroupTopicPartitions(group)]
    found = client.list_consumer_group_offsets(request)[group].result(TIMEOUT_S)
    (one,) = list(found.topic_partitions or [])
    return int(one.offset)


def ask(coordinator: GroupCoordinator, request: Any, kind: type) -> Any:
    answer = coordinator.ask(request, Desk())
    assert isinstance(answer, kind), answer
    return answer


def test_each_goes_on_with_the_others_groups(broker: KafkaBroker) -> None:
    create_topics(broker.address, {TOPIC: {}})
    producer = Producer({"bootstrap.servers": broker.address})
    for number in range(100):
        producer.produce(TOPIC, str(number).encode(), partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    assert read_by_group(broker, "readers", HALF) == list(range(HALF))
    commit_in_transaction(broker, IN_TRANSACTION, commit=True)
    commit_in_transaction(broker, 99, commit=False)
    assert committed_by_kafka(broker, "transactional") == IN_TRANSACTION
    broker.stop()

    with_raylog = TakenOver(broker.log_dir, broker.meta)
    log = with_raylog.open("__consumer_offsets", cleanup_policy="compact")
    partition = Partition(log, SystemClock())
    failures: list[BaseException] = []
    coordinator = GroupCoordinator(
        "__consumer_offsets-0",
        PartitionLog(partition),
        SteadyClock(),
        SystemClock(),
        GroupConfig(initial_rebalance_delay_ms=0),
        failures.append,
    )
    coordinator.begin()
    wait_for(lambda: not isinstance(coordinator.ask(ListGroupsRequest(), Desk()), NotServed))
    listed = ask(coordinator, ListGroupsRequest(), ListGroupsAnswer).groups
    assert {(one.group, one.state) for one in listed} >= {
        ("readers", "Empty"),
        ("transactional", "Empty"),
    }
    place = Place(TOPIC, 0)
    for group, offset in (("readers", HALF), ("transactional", IN_TRANSACTION)):
        (found,) = ask(
            coordinator, FetchOffsetsRequest(group, (place,)), FetchOffsetsAnswer
        ).offsets
        assert found.offset == offset
    join_and_commit(coordinator, "of raylog", place)
    coordinator.stop()
    assert not failures
    partition.close()
    with_raylog.close(log)

    broker.start()
    assert committed_by_kafka(broker, "readers") == HALF
    assert committed_by_kafka(broker, "of raylog") == BY_RAYLOG
    admins = admin(broker.address)
    group = admins.describe_consumer_groups(["of raylog"])["of raylog"].result(TIMEOUT_S)
    assert str(group.state).endswith("STABLE")
    (one,) = group.members
    assert (one.client_id, one.host) == ("by hand", "/127.0.0.1")
    assert [part.topic for part in one.assignment.topic_partitions] == [TOPIC]
    assert read_by_group(broker, "readers", 100 - HALF) == list(range(HALF, 100))


def join_and_commit(coordinator: GroupCoordinator, group: str, place: Place) -> None:
    """A member joins, assigns itself a partition, and commits; it does not leave."""
    subscription = {"topics": [place.topic], "userData": None, "ownedPartitions": []}
    metadata = SUBSCRIPTION.write_versioned(subscription, 1)
    request = JoinRequest(
        who=Identity(group, ""),
        client_id="by hand",
        client_host="/127.0.0.1",
        session_timeout_ms=1_800_000,  # Kafka still waits for it later
        rebalance_timeout_ms=1_800_000,
        protocol_type="consumer",
        protocols=(Protocol("range", metadata),),
        fresh_id="1",
    )
    told = ask(coordinator, request, JoinAnswer)
    assert told.error_code == 79
    again = request._replace(who=Identity(group, told.member_id))
    joined = ask(coordinator, again, JoinAnswer)
    who = Identity(group, joined.member_id, None, joined.generation)
    value = {
        "assignedPartitions": [{"topic": place.topic, "partitions": [place.partition]}],
        "userData": None,
    }
    assignments = {joined.member_id: ASSIGNMENT.write_versioned(value, 1)}
    synced = ask(coordinator, SyncRequest(who, "consumer", "range", assignments), SyncAnswer)
    assert synced.error_code == 0
    commit = CommitRequest(who, (OffsetToCommit(place, BY_RAYLOG),))
    assert ask(coordinator, commit, CommitAnswer).error_codes == (0,)
