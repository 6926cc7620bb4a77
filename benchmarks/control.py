"""How long control takes: creating a topic, starting a broker over folders, failover after a kill.

=================== ============================================ ==================================
what                measured                                     beside
=================== ============================================ ==================================
creation            16 partitions in one topic                   16 bare Ray actors
start               a broker over the folders of N partitions,   N bare Ray actors
                    until each partition has answered
LogActor killed     until the next append is acknowledged        a bare Ray actor, killed: until it
                                                                 answers again
LogManager killed   until a topic of one partition is created    such a creation with nobody killed
Controller killed   until a look-up is answered                  a bare Ray actor, killed
Controller killed   until a topic of one partition is created    such a creation with nobody killed
=================== ============================================ ==================================

A bare actor's process has imported what a LogActor's has, and does nothing. Kills are SIGKILL.

The folders are written by the storage alone, as a broker that was stopped left them, with metadata
in the records' first version, which every raylog reads.
"""

import importlib
import os
import signal
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgpack
import ray

import raylog
from benchmarks.measure import Figure, alternate, seconds
from raylog.actors.errors import TopicExists, UnknownTopicOrPartition
from raylog.actors.runtime.handles import find
from raylog.actors.runtime.names import CONTROLLER, log_actor_name, log_manager_name
from raylog.actors.runtime.nodes import own_node
from raylog.cluster.broker import Broker
from raylog.cluster.client.producer import Producer
from raylog.storage.clock import SystemClock
from raylog.storage.config import LogConfig
from raylog.storage.errors import RaylogError
from raylog.storage.files import RealFileSystem
from raylog.storage.loader import create_log, open_log
from raylog.storage.log_dir import METADATA_PARTITION
from raylog.storage.names import TopicPartition
from raylog.storage.records.encode import encode_records
from raylog.storage.state.properties import CLEAN_SHUTDOWN, MetaProperties, random_id, write_meta
from raylog.storage.testing.waiting import wait_for
from tests.harness.clusters import local_ray

Answer = TypeVar("Answer")

CREATED_PARTITIONS = 16
STARTED_PARTITIONS, QUICK_STARTED_PARTITIONS = 200, 40
ROUNDS, QUICK_ROUNDS = 5, 2
STARTED, SERVED = "started", "served"
LOG_ACTOR_MODULE = "raylog.actors.partition.log_actor"
# The actors of a machine that does much else come late; only a broker that is stuck takes so long.
DEADLINE_S = 1800.0
RETRY_S = 0.01


class BareImpl:
    """A process as a LogActor's, with nothing to do."""

    def __init__(self) -> None:
        importlib.import_module(LOG_ACTOR_MODULE)

    def pid(self) -> int:
        return os.getpid()


Bare = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=0)(BareImpl)


def run(quick: bool = False) -> list[dict[str, Any]]:
    rounds = QUICK_ROUNDS if quick else ROUNDS
    partitions = QUICK_STARTED_PARTITIONS if quick else STARTED_PARTITIONS
    with local_ray() as folder:
        started = _start(str(folder / "prepared"), partitions)
        with raylog.start([str(folder / "log")], namespace=_namespace()) as broker:
            return [_creation(broker, rounds), started, *_failover(broker, rounds)]


def _namespace() -> str:
    return f"bench-{uuid.uuid4().hex[:8]}"


def _seconds_figure(name: str, value: float, limit_name: str, limit_value: float) -> dict[str, Any]:
    return Figure(name, value, "s", limit_name, limit_value, value / limit_value, "").as_dict()


# -- creation --------------------------------------------------------------------------------------


def _creation(broker: Broker, rounds: int) -> dict[str, Any]:
    ours, bare = alternate(
        rounds,
        lambda: _create_and_delete(broker, CREATED_PARTITIONS),
        lambda: _start_bare(CREATED_PARTITIONS),
    )
    name = f"creating a topic of {CREATED_PARTITIONS} partitions"
    return _seconds_figure(name, ours, f"{CREATED_PARTITIONS} bare Ray actors", bare)


def _create_and_delete(broker: Broker, partitions: int) -> float:
    """Seconds of the creation alone."""
    name = f"created-{uuid.uuid4().hex[:8]}"
    taken_s = seconds(lambda: broker.create_topic(name, partitions))
    broker.delete_topic(name)
    return taken_s


def _start_bare(count: int) -> float:
    """Seconds until as many bare actors have answered; they are ended."""
    actors: list[Any] = []

    def start() -> None:
        actors.extend(Bare.remote() for _ in range(count))
        ray.get([actor.pid.remote() for actor in actors])

    taken_s = seconds(start)
    for actor in actors:
        ray.kill(actor)
    return taken_s


# -- start -----------------------------------------------------------------------------------------


def _start(log_dir: str, partitions: int) -> dict[str, Any]:
    """Once: hundreds of processes take minutes."""
    prepare(log_dir, partitions)
    began = time.perf_counter()
    with raylog.start([log_dir], namespace=_namespace()) as broker:
        _repeat(lambda: _ask_all(broker, partitions))
        ours = time.perf_counter() - began
    bare = _start_bare(partitions)
    name = f"starting over the folders of {partitions} partitions"
    return _seconds_figure(name, ours, f"{partitions} bare Ray actors", bare)


def _ask_all(broker: Broker, partitions: int) -> None:
    broker.list_offsets({(STARTED, number): -1 for number in range(partitions)})


def prepare(log_dir: str, partitions: int) -> None:
    """A log dir as a broker left it that was stopped in order: with its identity, the cluster's
    metadata, and the folders of a topic whose partitions are empty."""
    fs = RealFileSystem()
    cluster_id, directory_id, topic_id = random_id(), random_id(), random_id()
    fs.make_dir(log_dir)
    write_meta(fs, log_dir, MetaProperties(cluster_id, 1, directory_id))
    topic = {
        "kind": "topic",
        "v": 1,
        "name": STARTED,
        "id": topic_id,
        "config": {},
        "directories": [directory_id] * partitions,
    }
    _write_metadata(fs, log_dir, [{"kind": "cluster", "v": 1, "id": cluster_id}, topic])
    for number in range(partitions):
        create_log(fs, os.path.join(log_dir, str(TopicPartition(STARTED, number))), topic_id)
    Path(log_dir, CLEAN_SHUTDOWN).touch()


def _write_metadata(fs: RealFileSystem, log_dir: str, records: list[dict[str, Any]]) -> None:
    clock, folder = SystemClock(), os.path.join(log_dir, str(METADATA_PARTITION))
    create_log(fs, folder, random_id())
    log = open_log(fs, clock, folder, METADATA_PARTITION, LogConfig(retention_ms=-1))
    log.epochs.assign(log.epochs.next, log.log_end_offset)
    values = [bytes(msgpack.packb(record)) for record in records]
    log.append(encode_records([(clock.now_ms(), None, value, ()) for value in values]))
    log.close()


# -- failover --------------------------------------------------------------------------------------


def _failover(broker: Broker, rounds: int) -> list[dict[str, Any]]:
    broker.create_topic(SERVED, 1)
    manager = log_manager_name(own_node().key)
    bare = Bare.remote()
    log_actor = log_actor_name(TopicPartition(SERVED, 0))
    with broker.producer(linger_ms=0) as producer:
        append, look_up, restart = alternate(
            rounds,
            lambda: _after_kill(broker, log_actor, lambda: _append(producer)),
            lambda: _after_kill(broker, CONTROLLER, broker.list_topics),
            lambda: _restart_bare(bare),
        )
    ray.kill(bare)
    without_manager, without_controller, undisturbed = alternate(
        rounds,
        lambda: _creation_after_kill(broker, manager),
        lambda: _creation_after_kill(broker, CONTROLLER),
        lambda: _create_and_delete(broker, 1),
    )
    restarted, nobody = "a bare Ray actor's restart", "a creation, nobody killed"
    return [
        _seconds_figure("LogActor killed: until an append", append, restarted, restart),
        _seconds_figure(
            "LogManager killed: until a creation", without_manager, nobody, undisturbed
        ),
        _seconds_figure("Controller killed: until a look-up", look_up, restarted, restart),
        _seconds_figure(
            "Controller killed: until a creation", without_controller, nobody, undisturbed
        ),
    ]


def _append(producer: Producer) -> None:
    producer.send(SERVED, b"x", partition=0).result()


def _after_kill(broker: Broker, name: str, work: Callable[[], object]) -> float:
    """Seconds from an actor's kill until ``work`` succeeds, which is begun again as often as it
    fails."""
    _kill_process(find(name, broker.namespace))
    return seconds(lambda: _repeat(work))


def _creation_after_kill(broker: Broker, name: str) -> float:
    topic = f"failover-{uuid.uuid4().hex[:8]}"

    def create() -> None:
        with suppress(TopicExists):  # an earlier attempt has made it, whose answer was lost
            broker.create_topic(topic, 1)

    def delete() -> None:
        with suppress(UnknownTopicOrPartition):
            broker.delete_topic(topic)

    taken_s = _after_kill(broker, name, create)
    _repeat(delete)
    return taken_s


def _restart_bare(bare: Any) -> float:
    _kill_process(bare)
    return seconds(lambda: _repeat(lambda: ray.get(bare.pid.remote())))


def _kill_process(actor: Any) -> None:
    pid = ray.get(actor.__ray_call__.remote(lambda _: os.getpid()))
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: _has_ended(pid), DEADLINE_S, "the process has ended", poll_s=0.0001)


def _has_ended(pid: int) -> bool:
    """Also a zombie, which its parent has not yet heard of."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rsplit(")", 1)[1].split()[0] in "ZX"


def _repeat(work: Callable[[], Answer]) -> Answer:
    """What ``work`` returns, once it fails no more."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            return work()
        except (RaylogError, ray.exceptions.RayError):
            if time.monotonic() > deadline:
                raise
        time.sleep(RETRY_S)
