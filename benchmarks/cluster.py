"""What crosses a process: a fetch and an append, by socket and by Ray, send, send_arrow, beside a
Ray call that does nothing and Ray's queue."""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import ray
from ray.util.queue import Queue

import raylog
from benchmarks.measure import alternate, rate, seconds
from raylog.actors.known_brokers import BrokerFiles
from raylog.actors.runtime.clusters import own_address
from raylog.actors.runtime.names import NAMESPACE
from raylog.cluster.broker import Broker
from raylog.cluster.client.connection import FetchRequest, ProduceRequest
from raylog.cluster.client.producer import Producer
from raylog.storage.records.encode import encode_records
from tests.harness.clusters import local_ray
from tests.harness.shell import RAYLOG

MB = 1 << 20


class NothingImpl:
    """The least that a Ray actor with threads can do."""

    def nothing(self) -> None:
        return None


Nothing = ray.remote(num_cpus=0, max_concurrency=4)(NothingImpl)


def run(quick: bool = False) -> list[dict[str, Any]]:
    with local_ray() as folder, raylog.start([f"{folder}/log"]) as broker:
        return [*_fetch(broker, quick), *_send(broker, quick), *_topic_list(quick)]


def _fetch(broker: Broker, quick: bool) -> list[dict[str, Any]]:
    broker.create_topic("fetched")
    with broker.producer() as producer:
        producer.send_arrow(
            "fetched", pa.table({"value": pa.array([b"x" * 1000] * 8000, pa.binary())})
        )
    by_socket, actor = broker.client_connection(), broker.log_actor("fetched", 0)
    topic_id = by_socket.metadata("fetched", timeout_s=30).result().topic_id
    request = FetchRequest("fetched", topic_id, 0, leader_epoch=-1, offset=0, max_bytes=MB)
    batch = encode_records([(0, None, bytes(1000), ())])
    nothing = Nothing.remote()
    calls = 200 if quick else 1000

    def fetch() -> None:
        found = by_socket.fetch(request, timeout_s=30).result().read()
        assert found is not None
        assert len(found) > 900_000

    def fetch_by_ray() -> None:
        assert actor.fetch(0, MB).get(30).high_watermark >= 8000  # `produce` adds to it

    def produce() -> None:
        request = ProduceRequest("fetched", topic_id, 0, batch)
        by_socket.produce(request, timeout_s=30).result()

    def produce_by_ray() -> None:
        actor.append(batch).get(30)

    socket, ray_call, least, produced, produced_by_ray = alternate(
        5,
        lambda: _median_ms(fetch, calls),
        lambda: _median_ms(fetch_by_ray, calls),
        lambda: _median_ms(lambda: _call(nothing), calls),
        lambda: _median_ms(produce, calls),
        lambda: _median_ms(produce_by_ray, calls),
    )
    do_nothing = "a Ray call that does nothing"
    return [
        rate("fetch of 1 MB by socket", socket, "ms", do_nothing, least, "at most 1"),
        rate("fetch of 1 MB by Ray", ray_call, "ms", do_nothing, least),
        rate("produce of 1 KB by socket", produced, "ms", do_nothing, least, "at most 0.4"),
        rate("produce of 1 KB by Ray", produced_by_ray, "ms", do_nothing, least),
    ]


def _call(actor: Any) -> None:
    ray.get(actor.nothing.remote())


def _median_ms(work: Callable[[], object], calls: int) -> float:
    return statistics.median(seconds(work) for _ in range(calls)) * 1000


def _send(broker: Broker, quick: bool) -> list[dict[str, Any]]:
    rows = 200_000 if quick else 600_000
    arrow_rows = rows * 5
    values = [b"%0100d" % n for n in range(rows)]
    table = pa.table({"value": pa.array(values * (arrow_rows // rows), pa.binary())})
    rounds = 3 if quick else 5
    send, columns, queue = alternate(
        rounds,
        lambda: rows / _in_new_topic(broker, lambda producer: _send_rows(producer, values)),
        lambda: (
            arrow_rows / _in_new_topic(broker, lambda producer: producer.send_arrow("sent", table))
        ),
        lambda: _through_queue(values[: rows // 50]),
    )
    peer = "ray.util.queue.Queue, put_nowait_batch of 100"
    return [
        rate("send, 100-byte records", send, "records/s", peer, queue, "300,000/s"),
        rate("send_arrow, 100-byte records", columns, "records/s", peer, queue, "3,000,000/s"),
    ]


def _in_new_topic(broker: Broker, send: Callable[[Producer], object]) -> float:
    """Seconds until all that ``send`` sends is acknowledged.

    The topic goes again, and its pages with it: a virtual machine takes ten times as long to write
    to memory that it has never touched, and a topic that only grows would measure that.
    """
    broker.create_topic("sent", partitions=4)
    with broker.producer() as producer:
        started = time.perf_counter()
        send(producer)
        producer.flush()
        taken = time.perf_counter() - started
    broker.delete_topic("sent")
    return taken


def _send_rows(producer: Producer, values: list[bytes]) -> None:
    send = producer.send
    for value in values:
        send("sent", value)


def _through_queue(values: list[bytes]) -> float:
    """Records/s into Ray's own queue: an actor that keeps Python objects in memory."""
    queue = Queue(actor_options={"num_cpus": 0})
    started = time.perf_counter()
    for start in range(0, len(values), 100):
        queue.put_nowait_batch(values[start : start + 100])
    taken = time.perf_counter() - started
    queue.shutdown(force=True)
    return len(values) / taken


def _topic_list(quick: bool) -> list[dict[str, Any]]:
    """``raylog topic list`` as a process, by socket and by Ray."""
    address = own_address()
    files = BrokerFiles()
    (known,) = files.find(NAMESPACE, address)
    command = [*RAYLOG, "topic", "list", "--address", address]

    def by_ray() -> None:
        files.remove(known)
        try:
            _run(command)
        finally:
            files.write(known)

    times = 2 if quick else 5
    by_socket, joined, least = alternate(
        3,
        lambda: _median_ms(lambda: _run(command), times),
        lambda: _median_ms(by_ray, times),
        lambda: _median_ms(lambda: _run([sys.executable, "-c", "pass"]), times),
    )
    nothing = "a Python that does nothing"
    return [
        rate("raylog topic list by socket", by_socket, "ms", nothing, least, "400 ms"),
        rate("raylog topic list by Ray", joined, "ms", nothing, least),
    ]


def _run(command: Sequence[str]) -> None:
    subprocess.run(command, check=True, capture_output=True)
