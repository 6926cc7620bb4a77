"""A topic's config changes while it serves, and stays changed whoever is killed; partitions are
added."""

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
import ray

import raylog
from raylog.actors.errors import UnknownTopicOrPartition
from raylog.actors.runtime.handles import find
from raylog.actors.runtime.names import CONTROLLER, log_actor_name, log_manager_name
from raylog.actors.runtime.nodes import own_node_id
from raylog.cluster.broker import Broker
from raylog.storage.errors import InvalidConfig, InvalidPartitions, RaylogError, RecordTooLarge
from raylog.storage.names import TopicPartition
from raylog.storage.testing.logs import batch_of_size
from raylog.storage.testing.waiting import wait_for


def refuses(broker: Broker, topic: str, partition: int, size_bytes: int) -> bool:
    """Whether the partition refuses a batch of so many bytes, once it answers."""

    def asked() -> bool | None:
        try:
            broker.forget(topic, partition)
            ray.get(
                broker.partition(topic, partition).append.remote(bytes(batch_of_size(size_bytes)))
            )
        except RecordTooLarge:
            return True
        except (RaylogError, ray.exceptions.RayActorError):
            return None
        return False

    answers: list[bool | None] = [None]

    def answered() -> bool:
        answers[0] = asked()
        return answers[0] is not None

    wait_for(answered, 60, f"{topic}-{partition} answers")
    return bool(answers[0])


def pid_of(broker: Broker, topic: str, partition: int) -> int:
    return int(ray.get(broker.partition(topic, partition).status.remote(), timeout=30).pid)


def entry(broker: Broker, topic: str, name: str) -> tuple[Any, str]:
    return next((value, source) for key, value, source in broker.topic_config(topic) if key == name)


def test_a_changed_config_counts_at_once_in_the_actors_that_run(broker: Broker, topic: str) -> None:
    pids = [pid_of(broker, topic, n) for n in range(2)]
    described = broker.alter_topic_config(topic, {"max.message.bytes": "500", "retention.ms": 7})
    assert described.config == {"max.message.bytes": 500, "retention.ms": 7}
    assert [refuses(broker, topic, n, 501) for n in range(2)] == [True, True]
    assert entry(broker, topic, "max.message.bytes") == (500, "topic")
    assert broker.alter_topic_config(topic, delete=["max.message.bytes"]).config == {
        "retention.ms": 7
    }
    assert [refuses(broker, topic, n, 501) for n in range(2)] == [False, False]
    assert entry(broker, topic, "max.message.bytes")[1] == "default"
    assert [pid_of(broker, topic, n) for n in range(2)] == pids


def test_what_cannot_be_changes_nothing(broker: Broker, topic: str) -> None:
    for changes in ({"max.message.bytes": -1, "retention.ms": 7}, {"no.such.key": 1}):
        with pytest.raises(InvalidConfig):
            broker.alter_topic_config(topic, changes)
    with pytest.raises(UnknownTopicOrPartition):
        broker.alter_topic_config("nowhere", {"retention.ms": 7})
    assert broker.describe_topic(topic).config == {}


def killed(broker: Broker, topic: str, name: str) -> None:
    ray.kill(find(name, broker.namespace), no_restart=False)


def log_actor(broker: Broker, topic: str) -> None:
    os.kill(pid_of(broker, topic, 0), signal.SIGKILL)


def log_actor_for_good(broker: Broker, topic: str) -> None:
    ray.kill(find(log_actor_name(TopicPartition(topic, 0)), broker.namespace), no_restart=True)


def log_manager(broker: Broker, topic: str) -> None:
    killed(broker, topic, log_manager_name(own_node_id()))


def both(broker: Broker, topic: str) -> None:
    log_manager(broker, topic)
    log_actor(broker, topic)


def controller(broker: Broker, topic: str) -> None:
    killed(broker, topic, CONTROLLER)


@pytest.mark.parametrize("kill", [log_actor, log_actor_for_good, log_manager, both, controller])
def test_a_changed_config_outlives_whoever_is_killed(
    broker: Broker, topic: str, kill: Callable[[Broker, str], None]
) -> None:
    broker.alter_topic_config(topic, {"max.message.bytes": 500})
    kill(broker, topic)
    wait_for(lambda: refuses(broker, topic, 0, 501), 60, "it counts again")

    def altered() -> bool:
        try:
            return bool(broker.alter_topic_config(topic, {"max.message.bytes": 600}))
        except RaylogError:
            return False

    wait_for(altered, 60, "it can be changed again")
    wait_for(lambda: not refuses(broker, topic, 0, 501), 60, "the new one counts")


def test_of_many_changes_at_once_all_partitions_obey_the_last(broker: Broker, topic: str) -> None:
    sizes = range(500, 508)
    threads = [
        threading.Thread(
            target=broker.alter_topic_config, args=(topic, {"max.message.bytes": size})
        )
        for size in sizes
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    last = broker.describe_topic(topic).config["max.message.bytes"]
    assert last in sizes
    for partition in range(2):
        wait_for(lambda n=partition: refuses(broker, topic, n, last + 1), 60, "the last counts")  # type: ignore[misc]
        assert not refuses(broker, topic, partition, last)


# -- partitions that are added ---------------------------------------------------------------------


def test_partitions_are_added_and_clients_that_run_use_them(broker: Broker, topic: str) -> None:
    broker.alter_topic_config(topic, {"max.message.bytes": 500})
    elsewhere = raylog.connect(namespace=broker.namespace)
    with broker.producer() as producer, broker.consumer(topic) as consumer:
        producer.send(topic, b"1", partition=1).result()
        described = elsewhere.add_partitions(topic, 4)
        assert [place.problem for place in described.partitions] == [None] * 4
        producer.send(topic, b"2", partition=3).result()
        seen: list[tuple[int, bytes | None]] = []

        def has_come() -> bool:
            seen.extend((record.partition, record.value) for record in consumer.poll())
            return len(seen) > 1

        wait_for(has_come, 60, "both records")
    assert sorted(seen) == [(1, b"1"), (3, b"2")]
    assert refuses(broker, topic, 3, 501), "they have the topic's config"


@pytest.mark.parametrize("total", [2, 1, 0, 10_001, "3", True])
def test_a_number_of_partitions_that_cannot_be_changes_nothing(
    broker: Broker, topic: str, total: Any
) -> None:
    with pytest.raises(InvalidPartitions, match="from 3 to 10000"):
        broker.add_partitions(topic, total)
    assert len(broker.describe_topic(topic).partitions) == 2
