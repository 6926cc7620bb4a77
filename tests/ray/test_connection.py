"""What clients stand on, against live partitions; and processes that are not connected to Ray."""

import os
import pickle
import signal
import subprocess
import sys

import pytest

import raylog
from raylog.actors.errors import (
    FencedLeaderEpoch,
    NotLeader,
    RequestTimedOut,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from raylog.cluster.broker import Broker
from raylog.cluster.client.buffers import Buffers
from raylog.cluster.client.connection import (
    FetchRequest,
    OffsetAnswer,
    OffsetRequest,
    ProduceAnswer,
    ProduceRequest,
    TopicMetadata,
)
from raylog.cluster.client.socket_connection import SocketConnection
from raylog.cluster.client.sockets.channels import Key
from raylog.cluster.client.sockets.local_logs import LocalLogs
from raylog.cluster.client.sockets.reactor import Reactor
from raylog.storage.records.decode import decode_records
from raylog.storage.records.encode import encode_records
from raylog.storage.testing.waiting import wait_for

T0 = 1_700_000_000_000
TIMEOUT_S = 30.0
# More than a socket takes at once.
LARGE = os.urandom(300_000)


@pytest.fixture
def connection(broker: Broker) -> SocketConnection:
    return broker.client_connection()


@pytest.fixture
def known(connection: SocketConnection, topic: str) -> TopicMetadata:
    return connection.metadata(topic, timeout_s=TIMEOUT_S).result()


def produce(known: TopicMetadata, value: bytes) -> ProduceRequest:
    batch = encode_records([(T0, None, value, [])])
    return ProduceRequest(known.topic, known.topic_id, 0, batch)


def fetch(known: TopicMetadata, offset: int = 0, max_wait_ms: int = 0) -> FetchRequest:
    return FetchRequest(known.topic, known.topic_id, 0, -1, offset, 8 << 20, 1, max_wait_ms)


def test_what_is_produced_is_fetched(connection: SocketConnection, known: TopicMetadata) -> None:
    assert len(known.partitions) == 2
    assert known.partitions[0].node_id
    for value in (b"small", LARGE):
        connection.produce(produce(known, value), timeout_s=TIMEOUT_S).result()
    answer = connection.fetch(fetch(known), timeout_s=TIMEOUT_S).result()
    content = answer.read()
    assert content is not None
    assert [record.value for record in decode_records(content)] == [b"small", LARGE]
    assert (answer.high_watermark, answer.log_start_offset) == (2, 0)
    end = OffsetRequest(known.topic, known.topic_id, 0, -1, -1)
    found = connection.list_offset(end, timeout_s=TIMEOUT_S).result()
    assert found == OffsetAnswer(offset=2, timestamp=-1, leader_epoch=0)


class NoLogs(LocalLogs):
    """No LogActor is on this machine."""

    def _connect(self, key: Key, has_ended: bool) -> None:
        return None


def test_partitions_of_other_machines_are_asked_by_tcp(
    broker: Broker, known: TopicMetadata
) -> None:
    """As they cannot be found by name: their LogActors tell where they listen, and a token."""
    nowhere = NoLogs("any", Reactor(), Buffers())
    remote = SocketConnection(broker.connection(), logs_of=lambda _: nowhere)
    remote.metadata(known.topic, timeout_s=TIMEOUT_S).result()
    produced = [
        remote.produce(produce(known, value), timeout_s=TIMEOUT_S) for value in (b"1", LARGE, b"3")
    ]
    assert [one.result(TIMEOUT_S).base_offset for one in produced] == [0, 1, 2]
    content = remote.fetch(fetch(known), timeout_s=TIMEOUT_S).result().read()
    assert content is not None
    assert [record.value for record in decode_records(content)] == [b"1", LARGE, b"3"]
    waiting = remote.fetch(fetch(known, 3, max_wait_ms=60_000), timeout_s=70.0)
    [pid] = [status.pid for status in broker.status() if status.partition == f"{known.topic}-0"]
    os.kill(pid, signal.SIGKILL)
    assert isinstance(waiting.exception(TIMEOUT_S), NotLeader)

    def is_back() -> bool:
        remote.forget(known.topic, 0)
        return remote.produce(produce(known, b"4"), timeout_s=TIMEOUT_S).exception() is None

    wait_for(is_back, 60.0, "its next process is found")


def test_a_request_ends_in_time_though_nobody_answers(
    connection: SocketConnection, known: TopicMetadata
) -> None:
    waiting = connection.fetch(fetch(known, max_wait_ms=60_000), timeout_s=0.2)
    with pytest.raises(RequestTimedOut):
        waiting.result(TIMEOUT_S)


def test_a_topic_that_was_made_again_is_neither_written_nor_read_by_who_knew_the_old(
    broker: Broker, connection: SocketConnection, known: TopicMetadata
) -> None:
    connection.produce(produce(known, b"old"), timeout_s=TIMEOUT_S).result()
    broker.delete_topic(known.topic)
    broker.create_topic(known.topic, partitions=1)
    connection.forget(known.topic, 0)
    end = OffsetRequest(known.topic, known.topic_id, 0, -1, -1)
    for future in (
        connection.produce(produce(known, b"old"), timeout_s=TIMEOUT_S),
        connection.fetch(fetch(known), timeout_s=TIMEOUT_S),
        connection.list_offset(end, timeout_s=TIMEOUT_S),
    ):
        assert isinstance(future.exception(TIMEOUT_S), UnknownTopicId)
    now = connection.metadata(known.topic, timeout_s=TIMEOUT_S).result()
    assert (now.topic_id != known.topic_id, len(now.partitions)) == (True, 1)
    answer = connection.produce(produce(now, b"new"), timeout_s=TIMEOUT_S).result()
    assert answer.base_offset == 0


def test_a_partition_whose_process_dies_is_told_and_serves_again(
    broker: Broker, connection: SocketConnection, known: TopicMetadata
) -> None:
    connection.produce(produce(known, b"1"), timeout_s=TIMEOUT_S).result()
    [pid] = [status.pid for status in broker.status() if status.partition == f"{known.topic}-0"]
    os.kill(pid, signal.SIGKILL)

    answers: list[ProduceAnswer] = []

    def is_answered() -> bool:
        future = connection.produce(produce(known, b"2"), timeout_s=TIMEOUT_S)
        error = future.exception()
        assert error is None or isinstance(error, NotLeader), error
        if error is None:
            answers.append(future.result())
        connection.forget(known.topic, 0)
        return error is None

    wait_for(is_answered)
    [again] = answers
    assert again.base_offset == 1
    fenced = fetch(known)._replace(leader_epoch=0)
    refusal = connection.fetch(fenced, timeout_s=TIMEOUT_S).exception()
    assert isinstance(refusal, FencedLeaderEpoch)


def test_what_does_not_exist_is_told_by_name(
    connection: SocketConnection, known: TopicMetadata
) -> None:
    unknown = connection.metadata("no-such-topic", timeout_s=TIMEOUT_S)
    assert isinstance(unknown.exception(), UnknownTopicOrPartition)
    request = produce(known, b"x")._replace(partition=7)
    future = connection.produce(request, timeout_s=TIMEOUT_S)
    assert isinstance(future.exception(), NotLeader | UnknownTopicOrPartition)


# -- who connects, and who stops -------------------------------------------------------------------


def in_another_process(broker: Broker, use: str) -> "subprocess.CompletedProcess[str]":
    """What a process prints that has a pickled broker, and is not connected to Ray."""
    program = f"import pickle, ray\nbroker = pickle.loads({pickle.dumps(broker)!r})\n{use}\n"
    environ = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=environ,
    )


def test_a_pickled_broker_works_in_a_process_without_ray(broker: Broker, topic: str) -> None:
    ended = in_another_process(broker, f"with broker: print({topic!r} in broker.list_topics())")
    assert ended.stdout == "True\n", ended.stderr
    assert topic in broker.list_topics(), "the copy has not stopped it"


def test_where_there_is_no_ray_a_broker_says_so_and_starts_none() -> None:
    use = (
        "try:\n    broker.list_topics()\n"
        "except Exception as error:\n    print(type(error).__name__, ray.is_initialized())"
    )
    for first in ("", "import raylog\nbroker = raylog.Broker('none')\n"):
        ended = in_another_process(Broker("none", "127.0.0.1:1"), first + use)
        assert ended.stdout == "RayNotFound False\n", ended.stderr


def test_who_connects_does_not_stop_the_broker_for_everybody(broker: Broker, topic: str) -> None:
    with raylog.connect(namespace=broker.namespace) as connected:
        assert topic in connected.list_topics()
    assert topic in broker.list_topics()
