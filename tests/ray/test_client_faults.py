"""Clients whose partitions hang or are away: in time, by name, and without holding up the
others."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import ray

from raylog.actors.errors import NotLeader, ProduceFailed, RequestTimedOut
from raylog.actors.runtime.handles import find
from raylog.actors.runtime.names import CONTROLLER, log_actor_name
from raylog.cluster.admin import NewTopic
from raylog.cluster.broker import Broker
from raylog.storage.names import TopicPartition
from raylog.storage.readable import LATEST
from raylog.storage.testing.waiting import wait_for
from tests.harness.faults import hanging


@contextmanager
def controller_restarting(broker: Broker) -> Iterator[Broker]:
    """A broker that knows nothing yet, while the Controller is away; it is back afterwards."""
    ray.kill(find(CONTROLLER, broker.namespace), no_restart=False)
    yield Broker(broker.namespace)

    def is_back() -> bool:
        try:
            return bool(broker.cluster_id())
        except NotLeader:
            return False

    wait_for(is_back, 60, "the Controller is back")


def pid_of(broker: Broker, topic: str, partition: int) -> int:
    return int(ray.get(broker.partition(topic, partition).status.remote(), timeout=30).pid)


def test_a_partition_that_hangs_fails_its_records_in_time_and_holds_up_no_other(
    broker: Broker, topic: str
) -> None:
    consumer = broker.consumer(topic, from_="earliest")
    producer = broker.producer(linger_ms=0, delivery_timeout_ms=2000)
    producer.send(topic, b"first", partition=0).result()
    with hanging(pid_of(broker, topic, 0)):
        hung = producer.send(topic, b"hung", partition=0)
        assert producer.send(topic, b"other", partition=1).result().offset == 0
        assert not hung.done()
        seen: set[bytes | None] = set()
        while b"other" not in seen:
            seen |= {record.value for record in consumer.poll(1000)}
        with pytest.raises(ProduceFailed) as failed:
            hung.result(timeout=30)
        assert isinstance(failed.value.cause, RequestTimedOut)  # type: ignore[attr-defined]
    with broker.producer() as another:
        another.send(topic, b"next", partition=0).result()
    producer.send(topic, b"last", partition=0).result()
    producer.close()
    found = [r.value for r in broker.consumer(topic, from_="earliest", to="latest", partitions=[0])]
    without = [value for value in found if value != b"hung"]
    assert without == [b"first", b"next", b"last"]
    assert len(found) - len(without) <= 1, "its fate was unknown, but it is not there twice"


def test_a_running_partition_is_reached_while_the_controller_restarts(
    broker: Broker, topic: str
) -> None:
    with broker.producer() as producer:
        producer.send(topic, b"x", partition=0).result()
    with controller_restarting(broker) as fresh:
        assert fresh.list_offsets({(topic, 0): LATEST}) == {(topic, 0): 1}


def test_offsets_are_answered_across_the_loss_of_controller_and_partition(
    broker: Broker, topic: str
) -> None:
    with broker.producer() as producer:
        producer.send(topic, b"x", partition=0).result()
    ray.kill(find(log_actor_name(TopicPartition(topic, 0)), broker.namespace), no_restart=True)
    with controller_restarting(broker) as fresh:
        assert fresh.list_offsets({(topic, n): LATEST for n in (0, 1)}) == {
            (topic, 0): 1,
            (topic, 1): 0,
        }


def test_topics_are_made_changed_and_deleted_while_the_controller_restarts(broker: Broker) -> None:
    with controller_restarting(broker) as fresh:
        assert len(fresh.create_topic("across", 2).partitions) == 2
    with controller_restarting(broker) as fresh:
        assert len(fresh.add_partitions("across", 3).partitions) == 3
    with controller_restarting(broker) as fresh, fresh.producer() as producer:
        assert producer.send("across", b"x", partition=2).result().offset == 0
    with controller_restarting(broker) as fresh:
        fresh.delete_topic("across")
    assert "across" not in broker.list_topics()


def test_a_request_whose_answer_is_lost_takes_effect_once(broker: Broker) -> None:
    admin = broker.admin()
    names = [f"lost-{number}" for number in range(3)]
    made = admin.create_topics([NewTopic(name, 1) for name in names])
    wait_for(lambda: set(names) <= set(broker.list_topics()), what="their records are written")
    with controller_restarting(broker):
        topic_ids = {made[name].result(60).topic_id for name in names}
    assert {broker.describe_topic(name).topic_id for name in names} == topic_ids
    deleted = admin.delete_topics(names)
    with controller_restarting(broker):
        for name in names:
            deleted[name].result(60)
    assert not set(names) & set(broker.list_topics())
