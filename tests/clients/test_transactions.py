"""What each client copies in transactions, as a member of a group: each record exactly once."""

import uuid
from collections.abc import Iterator

import pytest

from raylog.cluster.broker import Broker
from raylog.storage.testing.waiting import wait_for
from tests.clients.conftest import made
from tests.clients.program import Program
from tests.clients.table import Client
from tests.clients.test_deeds import asked
from tests.clients.topics import NARROW, Topic

pytestmark = pytest.mark.timeout(600)

COMMITTED = 40
MARKERS_S = 60.0


@pytest.fixture
def source(broker: Broker) -> Iterator[Topic]:
    """Records of raylog's own transactions: some are committed, some are not."""
    topic = made(broker, f"source-{uuid.uuid4().hex[:8]}", NARROW)
    with broker.producer(transactional_id=topic.name) as producer:
        producer.init_transactions()
        for first in range(0, COMMITTED, 10):
            producer.begin_transaction()
            for number in range(first, first + 10):
                producer.send(topic.name, b"%d" % number, partition=number % NARROW)
            producer.commit_transaction()
            producer.begin_transaction()
            for number in range(NARROW):
                producer.send(topic.name, b"source's aborted", partition=number).result()
            producer.abort_transaction()
    yield topic
    broker.delete_topic(topic.name)


@pytest.fixture
def target(broker: Broker) -> Iterator[Topic]:
    topic = made(broker, f"target-{uuid.uuid4().hex[:8]}", NARROW)
    yield topic
    broker.delete_topic(topic.name)


def values(broker: Broker, topic: Topic, isolation_level: str) -> list[bytes]:
    table = broker.read_table(topic.name, isolation_level=isolation_level)
    return sorted(table.column("value").to_pylist())


def test_it_copies_each_record_once(
    program: Program, client: Client, broker: Broker, source: Topic, target: Topic
) -> None:
    name = f"{client.name}-{uuid.uuid4().hex[:8]}"
    told = asked(
        program,
        client,
        "copy",
        source=source.name,
        target=target.name,
        group=name,
        id=name,
        count=COMMITTED,
    )
    assert told["copied"] == COMMITTED
    transactions = broker.transactions()
    wait_for(
        lambda: transactions.describe(name).state == "CompleteCommit", MARKERS_S, "all has ended"
    )
    wanted = sorted(b"%d" % number for number in range(COMMITTED))
    assert values(broker, target, "read_committed") == wanted
    assert values(broker, target, "read_uncommitted") == sorted([*wanted, b"aborted"])
    with broker.consumer(source.name, group_id=name, isolation_level="read_committed") as left:
        assert left.poll(3000) == [], "the group has read all"
