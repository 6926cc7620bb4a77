"""librdkafka, by which most programs use Kafka, on a broker: it knows nothing of Ray or raylog."""

import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from raylog.actors.runtime.names import CONTROLLER, log_actor_name, log_manager_name
from raylog.actors.runtime.nodes import own_node
from raylog.cluster.broker import Broker
from raylog.storage.names import TopicPartition as Partition
from raylog.storage.testing.waiting import wait_for
from tests.harness.faults import kill, pid_of, wait_for_another
from tests.harness.librdkafka import DEADLINE_S, PARTITIONS, Librdkafka, once_all_listen, running

BATCH = 50


class Writer:
    """Produces numbers all the time; what was acknowledged, and what failed."""

    def __init__(self, kafka: Librdkafka, topic: str) -> None:
        self._producer, self._topic = kafka.producer(), topic
        self.acknowledged: set[bytes] = set()
        self.failed: list[Any] = []
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._enough.is_set():
            self._producer.produce(
                self._topic, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._ended
            )
            number += 1
            if number % BATCH == 0:
                self._producer.flush(DEADLINE_S)

    def _ended(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append(error)
        else:
            self.acknowledged.add(message.value())

    def write(self, count: int = 500) -> None:
        """Return when so many more are acknowledged."""
        wanted = len(self.acknowledged) + count
        wait_for(lambda: len(self.acknowledged) >= wanted, DEADLINE_S, "more is acknowledged")

    def stop(self) -> None:
        self._enough.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()


@pytest.fixture
def dirs(tmp_path: Path) -> list[str]:
    return [str(tmp_path / name) for name in "ab"]


@pytest.fixture
def broker(local_ray: None, dirs: list[str]) -> Iterator[Broker]:
    with running(dirs, f"kafka-{uuid.uuid4().hex[:8]}") as one:
        one.create_topic("orders", partitions=PARTITIONS)
        yield one


@pytest.fixture
def kafka(broker: Broker) -> Librdkafka:
    return once_all_listen(broker)


def survives(broker: Broker, kafka: Librdkafka, disturb: Callable[[], object]) -> None:
    """Whatever is done meanwhile: all that was acknowledged is there, once and in order."""
    writer = Writer(kafka, "orders")
    writer.write()
    disturb()
    writer.write()
    writer.stop()
    assert writer.failed == []
    values = kafka.values("orders", len(writer.acknowledged))
    assert len(values) == len(set(values))
    assert set(values) == writer.acknowledged
    for number in range(PARTITIONS):
        own = [int(value) for value in values if int(value) % PARTITIONS == number]
        assert own == sorted(own)


def test_each_partition_has_a_leader_of_its_own(
    kafka: Librdkafka,
) -> None:
    leaders = kafka.leaders("orders")
    assert leaders.keys() == {0, 1}
    assert len(set(leaders.values())) == PARTITIONS
    assert set(leaders.values()) <= kafka.brokers().keys()


def test_what_raylogs_clients_write_it_reads_and_the_other_way_round(
    broker: Broker, kafka: Librdkafka
) -> None:
    with broker.producer() as producer:
        producer.send("orders", b"from raylog", partition=0)
    theirs = kafka.producer()
    theirs.produce("orders", b"from librdkafka", partition=1)
    assert theirs.flush(DEADLINE_S) == 0
    assert kafka.values("orders", 2) == [b"from raylog", b"from librdkafka"]
    read = broker.consumer("orders", from_="earliest", to="latest")
    assert sorted(record.value or b"" for record in read) == [b"from librdkafka", b"from raylog"]


@pytest.mark.parametrize("who", ["a LogActor", "the LogManager", "the Controller"])
def test_a_killed_process_loses_nothing_and_repeats_nothing(
    broker: Broker, kafka: Librdkafka, who: str
) -> None:
    names = {
        "a LogActor": log_actor_name(Partition("orders", 0)),
        "the LogManager": log_manager_name(own_node().key),
        "the Controller": CONTROLLER,
    }
    before = kafka.brokers()

    def kill_it() -> None:
        pid = pid_of(broker, names[who])
        kill(pid)
        wait_for_another(broker, names[who], pid)

    survives(broker, kafka, kill_it)

    def all_are_there() -> bool:
        """And the process of ``__consumer_offsets``, which comes with the first consumer."""
        return before.items() <= kafka.brokers().items()

    wait_for(all_are_there, DEADLINE_S, "all are where they were")


def test_a_partition_that_moves_to_another_log_dir_goes_on(
    broker: Broker, kafka: Librdkafka, dirs: list[str]
) -> None:
    (first,) = [one for one in broker.describe_topic("orders").partitions if one.partition == 0]
    other = next(path for path in dirs if not str(first.folder).startswith(path))
    survives(broker, kafka, lambda: broker.move_partition("orders", 0, other))


def test_the_addresses_are_the_same_after_a_restart_of_the_broker(
    local_ray: None, dirs: list[str]
) -> None:
    namespace = f"kafka-{uuid.uuid4().hex[:8]}"
    with running(dirs, namespace) as broker:
        broker.create_topic("orders", partitions=PARTITIONS)
        before = once_all_listen(broker).brokers()
        servers = broker.bootstrap_servers
    with running(dirs, namespace) as broker:
        assert once_all_listen(broker).brokers() == before
        assert broker.bootstrap_servers == servers


def test_two_brokers_on_one_machine_do_not_share_a_port(
    broker: Broker, kafka: Librdkafka, tmp_path: Path
) -> None:
    """The second one's ports are taken: it listens elsewhere, and never tells the first one's."""
    ours = set(kafka.brokers().values())
    with running([str(tmp_path / "c")], f"kafka-{uuid.uuid4().hex[:8]}") as other:
        other.create_topic("orders", partitions=PARTITIONS)
        assert not ours & set(Librdkafka(other).brokers().values()), "at no time"
        theirs = once_all_listen(other)
        assert not ours & set(theirs.brokers().values())
        producer = theirs.producer()
        producer.produce("orders", b"to the other one", partition=0)
        assert producer.flush(DEADLINE_S) == 0
        assert theirs.values("orders", 1) == [b"to the other one"]
    assert set(kafka.brokers().values()) == ours
