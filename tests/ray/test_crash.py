"""Processes are killed with SIGKILL while they work; nothing acknowledged is lost, nothing is there
twice."""

import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import ray

import raylog
from raylog.actors.runtime.handles import find
from raylog.actors.runtime.names import CONTROLLER, log_actor_name, log_manager_name
from raylog.cluster.broker import Broker
from raylog.cluster.client.consumer.consumer import Consumer
from raylog.storage.errors import LogLocked, LogTruncation, RaylogError
from raylog.storage.names import TopicPartition
from raylog.storage.records.batch import read_header
from raylog.storage.records.record import ConsumerRecord
from raylog.storage.testing.waiting import wait_for
from tests.harness.bare_logs import bare_spec, settled


def pid_of(broker: Broker, topic: str, partition: int) -> int:
    return int(ray.get(broker.partition(topic, partition).status.remote(), timeout=30).pid)


def values(broker: Broker, topic: str) -> list[int]:
    return [
        int(record.value or b"") for record in broker.consumer(topic, from_="earliest", to="latest")
    ]


def test_a_log_actor_killed_while_producing_loses_nothing_and_repeats_nothing(
    broker: Broker, topic: str
) -> None:
    acknowledged: list[int] = []

    def has_come(count: int) -> bool:
        return len(acknowledged) >= count

    stop = threading.Event()

    def produce() -> None:
        with broker.producer(linger_ms=1) as producer:
            number = 0
            while not stop.is_set():
                sent = [
                    (n, producer.send(topic, b"%d" % n, partition=0))
                    for n in range(number, number + 500)
                ]
                number += 500
                for n, one in sent:
                    one.result()
                    acknowledged.append(n)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        for _ in range(3):
            reached = len(acknowledged) + 2000
            wait_for(partial(has_come, reached), 60, "more acknowledgements")
            os.kill(pid_of(broker, topic, 0), signal.SIGKILL)
    finally:
        stop.set()
        thread.join(timeout=60)
    assert not thread.is_alive()
    found = values(broker, topic)
    assert found == sorted(found), "in order"
    assert len(found) == len(set(found)), "nothing twice"
    assert set(acknowledged) <= set(found), "nothing acknowledged is missing"


def test_each_life_of_a_log_has_its_own_leader_epoch(broker: Broker, topic: str) -> None:
    with broker.producer() as producer:
        first = producer.send(topic, b"1", partition=0).result()
        epoch = ray.get(broker.partition(topic, 0).status.remote()).leader_epoch
        os.kill(pid_of(broker, topic, 0), signal.SIGKILL)
        second = producer.send(topic, b"2", partition=0).result()
    assert (first.offset, second.offset) == (0, 1)
    assert ray.get(broker.partition(topic, 0).status.remote()).leader_epoch == epoch + 1


def test_a_consumer_reads_on_across_a_restart(broker: Broker, topic: str) -> None:
    consumer = broker.consumer(topic, from_="earliest", partitions=[0])
    with broker.producer() as producer:
        producer.send(topic, b"1", partition=0).result()
        seen = [record.value for record in consumer.poll(20_000)]
        os.kill(pid_of(broker, topic, 0), signal.SIGKILL)
        producer.send(topic, b"2", partition=0).result()
    deadline = time.monotonic() + 60
    while len(seen) < 2 and time.monotonic() < deadline:
        seen += [record.value for record in consumer.poll(1000)]
    assert seen == [b"1", b"2"]


def test_a_consumer_notices_a_log_that_lost_its_end(broker: Broker, topic: str) -> None:
    consumer = broker.consumer(topic, from_="earliest", partitions=[0])
    strict = broker.consumer(topic, from_={(topic, 0): 0}, partitions=[0], auto_offset_reset="none")

    def send(*values: bytes) -> None:
        with broker.producer() as producer:
            for value in values:
                producer.send(topic, value, partition=0).result()

    def poll(some: Consumer, count: int) -> list[tuple[int, bytes | None]]:
        found: list[ConsumerRecord] = []
        deadline = time.monotonic() + 60
        while len(found) < count and time.monotonic() < deadline:
            found += some.poll(1000)
        return [(record.offset, record.value) for record in found]

    send(b"kept", b"lost", b"lost")
    for each in (consumer, strict):
        assert len(poll(each, 3)) == 3
    status = ray.get(broker.partition(topic, 0).status.remote(), timeout=30)
    file = Path(status.folder) / "00000000000000000000.log"
    os.kill(status.pid, signal.SIGSTOP)  # it must not write, nor be started again, before the cut
    os.truncate(file, read_header(file.read_bytes()).size_bytes)
    os.kill(status.pid, signal.SIGKILL)
    send(b"new", b"new", b"new")
    expected = [(1, b"new"), (2, b"new"), (3, b"new")]
    assert poll(consumer, 3) == expected
    with pytest.raises(LogTruncation) as raised:
        poll(strict, 3)
    assert (raised.value.offset, raised.value.diverging_offset) == (3, 1)
    strict.seek(topic, 0, 1)
    assert poll(strict, 3) == expected


def test_a_second_writer_cannot_open_the_folder(broker: Broker, topic: str) -> None:
    from raylog.actors.partition.log_actor import LogActor

    described = broker.describe_topic(topic)
    folder = described.partitions[0].folder or ""
    spec = bare_spec(TopicPartition(topic, 0), described.topic_id, folder)
    intruder = LogActor.remote(spec)  # type: ignore[attr-defined]
    assert isinstance(settled(intruder).problem, LogLocked)


def test_an_actor_that_stands_still_keeps_its_log_and_goes_on(broker: Broker, topic: str) -> None:
    from raylog.actors.partition.log_actor import LogActor

    described = broker.describe_topic(topic)
    folder = described.partitions[0].folder or ""
    spec = bare_spec(TopicPartition(topic, 0), described.topic_id, folder)
    pid = pid_of(broker, topic, 0)
    with broker.producer() as producer:
        producer.send(topic, b"0", partition=0).result()
        os.kill(pid, signal.SIGSTOP)
        try:
            waiting = [producer.send(topic, b"%d" % n, partition=0) for n in range(1, 100)]
            intruder = LogActor.remote(spec)  # type: ignore[attr-defined]
            assert isinstance(settled(intruder).problem, LogLocked)
            assert not waiting[0].done()
        finally:
            os.kill(pid, signal.SIGCONT)
        assert [one.result().offset for one in waiting] == list(range(1, 100))
    assert values(broker, topic) == list(range(100))
    assert pid_of(broker, topic, 0) == pid


@pytest.mark.parametrize(
    "name", [log_manager_name, lambda _: CONTROLLER], ids=["LogManager", "Controller"]
)
def test_topics_are_made_whole_or_not_at_all_while_their_maker_is_killed(
    broker: Broker, name: Callable[[str], str], request: pytest.FixtureRequest
) -> None:
    prefix, made, stop = f"made-{len(request.node.name)}", list[str](), threading.Event()

    def make() -> None:
        for number in range(1000):
            if stop.is_set():
                return
            try:
                broker.create_topic(f"{prefix}-{number}", partitions=2)
                made.append(f"{prefix}-{number}")
            except RaylogError:
                pass  # it is named, and the next one may go through

    thread = threading.Thread(target=make)
    thread.start()
    try:
        for _ in range(2):
            reached = len(made) + 1
            wait_for(lambda reached=reached: len(made) >= reached, 60, "another topic")  # type: ignore[misc]
            handle: Any = find(name(ray.get_runtime_context().get_node_id()), broker.namespace)
            os.kill(
                ray.get(handle.__ray_call__.remote(lambda _: os.getpid()), timeout=30),
                signal.SIGKILL,
            )
    finally:
        stop.set()
        thread.join(120)
    assert not thread.is_alive()

    def all_serve() -> bool:
        try:
            described = [broker.describe_topic(topic) for topic in broker.list_topics()]
        except RaylogError:
            return False
        return not [place for topic in described for place in topic.partitions if place.problem]

    wait_for(all_serve, 60, "every topic that is listed serves")
    listed = {topic for topic in broker.list_topics() if topic.startswith(prefix)}
    assert {*made} <= listed
    with broker.producer() as producer:
        for topic in listed:
            for partition in range(2):
                producer.send(topic, b"1", partition=partition)


def test_an_actor_killed_for_good_is_started_again(broker: Broker, topic: str) -> None:
    with broker.producer() as producer:
        producer.send(topic, b"1", partition=0).result()
    ray.kill(find(log_actor_name(TopicPartition(topic, 0)), broker.namespace), no_restart=True)
    with broker.producer() as producer:
        assert producer.send(topic, b"2", partition=0).result().offset == 1


def test_log_manager_and_controller_come_back_and_go_on(broker: Broker, topic: str) -> None:
    before = broker.list_topics()
    for name in (log_manager_name(ray.get_runtime_context().get_node_id()), CONTROLLER):
        ray.kill(find(name, broker.namespace), no_restart=False)
        again = f"after-{name[:3].lower()}"

        def created(again: str = again) -> bool:
            try:
                return again in broker.list_topics() or bool(broker.create_topic(again))
            except RaylogError:
                return False

        wait_for(created, 60, f"a topic can be created after {name} was killed")
    assert set(before) < set(broker.list_topics())
    with broker.producer() as producer:
        producer.send(topic, b"1", partition=0).result()


def test_deleted_records_stay_deleted_though_all_processes_are_killed(
    local_ray: None, tmp_path: Path
) -> None:
    first = raylog.start([str(tmp_path / "a")], namespace="crash-3")
    first.create_topic("survivor")
    with first.producer() as producer:
        for n in range(10):
            producer.send("survivor", b"%d" % n)
    assert first.delete_records("survivor", 0, 4) == 4
    for name in (
        CONTROLLER,
        log_manager_name(ray.get_runtime_context().get_node_id()),
        log_actor_name(TopicPartition("survivor", 0)),
    ):
        ray.kill(find(name, "crash-3"), no_restart=True)
    second = raylog.start([str(tmp_path / "a")], namespace="crash-4")
    try:
        assert values(second, "survivor") == list(range(4, 10))
    finally:
        second.stop()


def test_a_broker_whose_processes_were_all_killed_finds_everything_again(
    local_ray: None, tmp_path: Path
) -> None:
    first = raylog.start([str(tmp_path / "a")], namespace="crash-1")
    first.create_topic("survivor")
    with first.producer() as producer:
        for n in range(1000):
            producer.send("survivor", b"%d" % n)
    for name in (
        CONTROLLER,
        log_manager_name(ray.get_runtime_context().get_node_id()),
        log_actor_name(TopicPartition("survivor", 0)),
    ):
        ray.kill(find(name, "crash-1"), no_restart=True)
    second = raylog.start([str(tmp_path / "a")], namespace="crash-2")
    try:
        assert values(second, "survivor") == list(range(1000))
    finally:
        second.stop()
