"""Real clients of Kafka's protocol on one raylog broker; they take it for a Kafka cluster.

Each client has a program in its own language (``program.py`` says what they talk), and all do the
same (``table.py`` lists them). raylog's own consumer and producer are the other side.
``./dev test --clients`` runs the suite. A client whose tool or registry is not to be had is skipped
by its name, with the reason.
"""

import uuid
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import raylog
from raylog.cluster.broker import Broker
from tests.clients.program import Program
from tests.clients.table import CLIENTS, KAFKA_3, Client
from tests.clients.topics import NARROW, WIDE, Topic
from tests.harness import clusters
from tests.harness.librdkafka import Librdkafka
from tests.kafka.distribution import Kafka, NotHere, find_kafka

# Apart from the ports of other suites' brokers, and from the default.
LISTENERS = "PLAINTEXT://127.0.0.1:26500"


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker. Tests write old records: retention leaves them alone."""
    config = {"listeners": LISTENERS, "log.retention.ms": -1, "log.cleaner.backoff.ms": 100}
    folder = str(tmp_path_factory.mktemp("raylog") / "logs")
    with clusters.local_ray():
        running = raylog.start([folder], config=config, namespace=f"clients-{uuid.uuid4().hex[:8]}")
        try:
            yield running
        finally:
            assert running.stop(), "the broker stops in order"


@pytest.fixture(scope="session")
def wide(broker: Broker) -> Topic:
    """The topic with 16 partitions, of all clients."""
    return made(broker, "wide", WIDE)


@pytest.fixture(scope="session")
def topic(broker: Broker) -> Topic:
    """The topic with two partitions, of all clients."""
    return made(broker, "narrow", NARROW)


def made(broker: Broker, name: str, partitions: int) -> Topic:
    """A new topic, once each partition has told where it listens."""
    broker.create_topic(name, partitions=partitions)
    topic = Topic(broker, name, partitions)
    topic.wait_for_leaders(Librdkafka(broker))
    return topic


@pytest.fixture(scope="session", params=CLIENTS)
def client(request: pytest.FixtureRequest) -> Client:
    """Each client in turn; skipped where it is not to be had."""
    found = CLIENTS[request.param]
    missing = reason_of_absence(found.name)
    if missing is not None:
        pytest.skip(f"{found.name}: {missing}")
    return found


@cache
def reason_of_absence(name: str) -> str | None:
    """Install it, once."""
    try:
        CLIENTS[name].command()
    except NotHere as missing:
        return str(missing)
    return None


@pytest.fixture(scope="session")
def programs() -> Iterator[dict[str, Program]]:
    """The programs that run, by client."""
    running: dict[str, Program] = {}
    yield running
    for program in running.values():
        program.close()


@pytest.fixture
def program(
    client: Client,
    broker: Broker,
    programs: dict[str, Program],
    tmp_path_factory: pytest.TempPathFactory,
) -> Program:
    """The client's program: the one of the test before, unless it has ended."""
    running = programs.get(client.name)
    if running is not None and running.is_alive:
        return running
    for name in list(programs):
        programs.pop(name).close()
    errors = tmp_path_factory.mktemp(client.name) / "errors.txt"
    command = [*client.command(), broker.bootstrap_servers]
    programs[client.name] = Program(command, errors)
    return programs[client.name]


@pytest.fixture(scope="session")
def kafka_3() -> Kafka:
    """The jars of Kafka 3.9, fetched the first time."""
    try:
        return find_kafka(KAFKA_3)
    except NotHere as missing:
        pytest.skip(f"Kafka {KAFKA_3}: {missing}")


@pytest.fixture
def flag(tmp_path: Path) -> Path:
    """A file that is not there yet: a stream ends when it is."""
    return tmp_path / "enough"
