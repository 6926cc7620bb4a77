"""Faults of a running broker's actors, and what a test asks of them; all by the public surface.

An actor is found by its name, killed by SIGKILL (Ray starts it again) or for good (Ray does not),
and stopped by SIGSTOP.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from raylog.actors.runtime.handles import find
from raylog.cluster.broker import Broker
from raylog.storage.errors import RaylogError
from raylog.storage.names import DELETE_DIR_SUFFIX, STRAY_DIR_SUFFIX
from raylog.storage.testing.waiting import wait_for
from tests.harness.nodes import send_signal

ANSWER_S = 30.0
# A machine that does much else takes its time to start an actor.
DEADLINE_S = 120.0
HOUR_MS = 3_600_000


def pid_of(broker: Broker, name: str) -> int:
    """The process of a named actor that answers. Raises RayError where it does not."""
    actor: Any = find(name, broker.namespace)
    assert actor is not None, f"{name} runs"
    return int(ray.get(actor.__ray_call__.remote(lambda _: os.getpid()), timeout=ANSWER_S))


def kill(*pids: int) -> None:
    """SIGKILL, one right behind the other."""
    for pid in pids:
        send_signal(pid, signal.SIGKILL)


def kill_for_good(broker: Broker, name: str) -> None:
    """Ray does not start it again."""
    ray.kill(find(name, broker.namespace), no_restart=True)


def stands_still(pid: int) -> bool:
    """Whether all threads of a process do: one that runs goes on for a moment on a busy machine."""
    for stat in Path("/proc", str(pid), "task").glob("*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            if stat.read_text().rpartition(")")[2].split()[0] not in "TtZX":
                return False
    return True


@contextmanager
def hanging(*pids: int) -> Iterator[None]:
    """These processes stand still meanwhile."""
    for pid in pids:
        send_signal(pid, signal.SIGSTOP)
    wait_for(lambda: all(map(stands_still, pids)), DEADLINE_S, "all of its threads stand still")
    try:
        yield
    finally:
        for pid in pids:
            send_signal(pid, signal.SIGCONT)


def is_another(broker: Broker, name: str, pid: int) -> bool:
    """Whether another process than ``pid`` answers under that name."""
    if find(name, broker.namespace) is None:
        return False
    try:
        return pid_of(broker, name) != pid
    except RayError:
        return False


def wait_for_another(broker: Broker, name: str, pid: int) -> None:
    wait_for(lambda: is_another(broker, name, pid), DEADLINE_S, f"{name} is started again")


def holds(question: Callable[[], object]) -> bool:
    """Whether it is answered, and with something true; no named error is raised for it."""
    try:
        return bool(question())
    except RaylogError:
        return False


def wait_until(question: Callable[[], object], what: str) -> None:
    """As ``wait_for``; a named error is no answer yet."""
    wait_for(lambda: holds(question), DEADLINE_S, what, poll_s=0.01)


def send(broker: Broker, topic: str, *values: bytes, partition: int = 0, age_ms: int = 0) -> None:
    """Records of that age, one a batch, all acknowledged."""
    created_ms = int(time.time() * 1000) - age_ms
    with broker.producer(linger_ms=0, delivery_timeout_ms=120_000) as producer:
        for value in values:
            sent = producer.send(topic, value, partition=partition, timestamp=created_ms)
            sent.result(DEADLINE_S)


def values(broker: Broker, topic: str) -> list[bytes | None]:
    with broker.consumer(topic, from_="earliest", to="latest") as consumer:
        return [record.value for record in consumer]


def start_offset(broker: Broker, topic: str) -> int:
    return broker.list_offsets({(topic, 0): -2})[(topic, 0)] or 0


def folders_of(log_dir: str | Path, topic: str) -> list[str]:
    """The names of a topic's folders, but for those that wait to be deleted."""
    found = sorted(path.name for path in Path(log_dir).iterdir())
    return [
        name
        for name in found
        if name.startswith(f"{topic}-") and not name.endswith(DELETE_DIR_SUFFIX)
    ]


def strays(log_dir: str | Path) -> list[str]:
    return sorted(
        path.name for path in Path(log_dir).iterdir() if path.name.endswith(STRAY_DIR_SUFFIX)
    )
