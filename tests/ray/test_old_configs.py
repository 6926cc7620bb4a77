"""Nothing is removed under a config that was replaced, whoever stands still or is killed.

The rules without Ray: ``tests/transcripts/test_node_machine.py``.
"""

import os
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

import raylog
from raylog.actors.control import Confirmed, LogId
from raylog.actors.errors import ConfigUnconfirmed, NotLeader
from raylog.actors.runtime.calls import named_error
from raylog.actors.runtime.handles import find
from raylog.actors.runtime.names import log_actor_name, log_manager_name
from raylog.actors.runtime.nodes import own_node_id
from raylog.cluster.broker import Broker
from raylog.storage.clock import SteadyClock
from raylog.storage.files import RealFileSystem
from raylog.storage.names import TopicPartition
from raylog.storage.records.encode import encode_records
from raylog.storage.testing.waiting import wait_for
from tests.harness.control_nodes import version_of

HOUR_MS = 3_600_000
PARTITION = TopicPartition("orders", 0)
DEADLINE_S = 60.0


@pytest.fixture
def broker(local_ray: None, log_dir: str) -> Iterator[Broker]:
    namespace = f"old-{uuid.uuid4().hex[:8]}"
    running = raylog.start(
        [log_dir], namespace=namespace, config={"log.retention.check.interval.ms": 500}
    )
    running.create_topic(PARTITION.topic, 1, {"retention.ms": HOUR_MS})
    yield running
    running.stop()


def ask(broker: Broker, method: str, *arguments: Any) -> Any:
    """What the LogActor answers, or its error by raylog's name."""
    log = find(log_actor_name(PARTITION), broker.namespace)
    try:
        return ray.get(getattr(log, method).remote(*arguments), timeout=30)
    except Exception as error:
        raise named_error(error, str(PARTITION)) from error


def append_old_records(broker: Broker) -> None:
    """Two segments of records that are two hours old."""
    old_ms = int(time.time() * 1000) - 2 * HOUR_MS
    for value in (b"0", b"1"):
        ask(broker, "append", bytes(encode_records([(old_ms, None, value, ())])))
        ask(broker, "roll")


def pid_of_manager(broker: Broker) -> int:
    manager: Any = find(log_manager_name(own_node_id()), broker.namespace)
    return int(ray.get(manager.__ray_call__.remote(lambda _: os.getpid()), timeout=30))


def is_waiting_for_its_config(broker: Broker) -> bool:
    try:
        ask(broker, "append", bytes(encode_records([(0, None, b"refused", ())])))
    except NotLeader as error:
        return "waits for its LogManager" in str(error)
    return False


def has_rounds_without_problems(broker: Broker, since_ms: int) -> bool:
    return any(
        status.problem is None and status.when_ms > since_ms
        for status in broker.retention()
        if status.partition == str(PARTITION)
    )


def log_start_offset(broker: Broker) -> int:
    return int(ask(broker, "offsets").log_start_offset)


@pytest.mark.long
def test_a_new_life_of_a_partition_removes_nothing_under_the_config_of_its_first_start(
    broker: Broker,
) -> None:
    """Number 1 of issue 12: the LogManager hangs while the config changes and the LogActor dies."""
    pid = pid_of_manager(broker)
    os.kill(pid, signal.SIGSTOP)
    try:
        altered = broker.alter_topic_config(PARTITION.topic, {"retention.ms": -1})
        assert altered.config == {"retention.ms": -1}, "the change stays"
        assert altered.outdated == (0,), "and who does not obey it is named"
        append_old_records(broker)
        now_ms = SteadyClock().now_ms()
        log = LogId(partition=PARTITION, topic_id=altered.topic_id)
        replaced = Confirmed(log=log, config_version=version_of(1), until_ms=now_ms)
        with pytest.raises(ConfigUnconfirmed, match="too old"):
            ask(broker, "delete_old_segments", replaced)
        os.kill(ask(broker, "status").pid, signal.SIGKILL)
        wait_for(lambda: is_waiting_for_its_config(broker), DEADLINE_S, "it waits for its config")
        for method in ("fetch", "delete_records"):
            with pytest.raises(NotLeader, match="waits for its LogManager"):
                ask(broker, method, 0)
    finally:
        os.kill(pid, signal.SIGCONT)
    went_on_ms = int(time.time() * 1000)
    wait_for(
        lambda: has_rounds_without_problems(broker, went_on_ms),
        DEADLINE_S,
        "retention goes on, under the config of now",
    )
    assert log_start_offset(broker) == 0
    assert broker.describe_topic(PARTITION.topic).outdated == ()
    again = broker.alter_topic_config(PARTITION.topic, {"retention.ms": HOUR_MS})
    assert again.outdated == ()
    wait_for(lambda: log_start_offset(broker) == 2, DEADLINE_S, "the old config would remove them")


def test_a_new_life_that_cannot_open_its_log_is_told_of_and_serves_when_it_can(
    broker: Broker, log_dir: str
) -> None:
    """It has learned its config after its constructor, which had nobody to raise the error to."""
    append_old_records(broker)
    log_pid, manager_pid = ask(broker, "status").pid, pid_of_manager(broker)
    os.kill(manager_pid, signal.SIGSTOP)
    try:
        os.kill(log_pid, signal.SIGKILL)
        wait_for(lambda: is_waiting_for_its_config(broker), DEADLINE_S, "it waits for its config")
        lock = RealFileSystem().lock(str(Path(log_dir, str(PARTITION))))
    finally:
        os.kill(manager_pid, signal.SIGCONT)

    def problem() -> str:
        return broker.describe_topic(PARTITION.topic).partitions[0].problem or ""

    try:
        wait_for(
            lambda: "is locked by" in problem(),
            DEADLINE_S,
            "the topic says what is wrong",
            poll_s=0.1,
        )
    finally:
        lock.release()
    wait_for(lambda: not problem(), DEADLINE_S, "it serves again", poll_s=0.1)
    assert ask(broker, "offsets").log_end_offset == 2


def test_records_of_a_topic_that_was_just_made_can_be_deleted_at_once(broker: Broker) -> None:
    append_old_records(broker)
    deleted = broker.admin().delete_records({(PARTITION.topic, 0): 1})
    assert deleted[PARTITION].result(DEADLINE_S) == 1
