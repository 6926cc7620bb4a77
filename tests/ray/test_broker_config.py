"""Another config of the broker while it serves; the rules without Ray are in tests/transcripts."""

import os
import signal
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

import raylog
from raylog.actors.runtime.handles import find
from raylog.actors.runtime.names import log_manager_name
from raylog.actors.runtime.nodes import own_node_id
from raylog.cluster.broker import Broker
from raylog.storage.errors import InvalidConfig
from raylog.storage.testing.waiting import wait_for
from tests.harness.shell import run_process

HOUR_MS = 3_600_000
DEADLINE_S = 60.0


@pytest.fixture
def broker(local_ray: None, log_dir: str) -> Iterator[Broker]:
    running = raylog.start([log_dir], namespace=f"config-{uuid.uuid4().hex[:8]}")
    running.create_topic("orders", 2)
    yield running
    assert running.stop(), "the broker stops in order"


def pid_of_manager(broker: Broker) -> int:
    manager: Any = find(log_manager_name(own_node_id()), broker.namespace)
    return int(ray.get(manager.__ray_call__.remote(lambda _: os.getpid()), timeout=30))


def life_of_node(broker: Broker) -> str:
    (node,) = broker.describe_nodes()
    return node.life


def retention_of_orders(broker: Broker) -> int:
    entries = {entry.name: entry.value for entry in broker.topic_config("orders")}
    return int(entries["retention.ms"])


def obeys(broker: Broker) -> bool:
    """Whether every node and partition obeys the config of now."""
    whys = [finding.what for finding in broker.health()]
    is_old = any("older config" in why for why in whys)
    return not is_old and broker.describe_topic("orders").outdated == ()


def test_defaults_of_topics_are_taken_at_once(broker: Broker) -> None:
    before = pid_of_manager(broker)
    applied = broker.apply_config({"log.retention.ms": HOUR_MS})
    assert [(change.key, change.new, change.how) for change in applied.changes] == [
        ("log.retention.ms", HOUR_MS, "at once")
    ]
    assert not applied.behind
    assert retention_of_orders(broker) == HOUR_MS
    assert broker.describe_topic("orders").outdated == ()
    assert pid_of_manager(broker) == before


def test_a_key_of_the_start_replaces_the_log_manager_while_a_producer_goes_on(
    broker: Broker,
) -> None:
    life = life_of_node(broker)
    is_over = threading.Event()
    receipts: list[Any] = []

    def send() -> None:
        with broker.producer() as producer:
            while not is_over.wait(0.05):
                receipts.append(producer.send("orders", value=b"x"))

    sender = threading.Thread(target=send)
    sender.start()
    wait_for(lambda: len(receipts) > 0, DEADLINE_S, "the producer has begun")
    try:
        applied = broker.apply_config({"producer.id.expiration.ms": HOUR_MS})
    finally:
        is_over.set()
        sender.join()
    assert [change.how for change in applied.changes] == ["node by node"]
    assert not applied.behind
    assert life_of_node(broker) != life
    for receipt in receipts:
        receipt.result(DEADLINE_S)


def test_what_cannot_be_changed_is_refused_with_the_rest(broker: Broker, log_dir: str) -> None:
    config = {"log.dirs": [log_dir + "-other"], "log.retention.ms": HOUR_MS}
    with pytest.raises(InvalidConfig, match=r"log\.dirs"):
        broker.apply_config(config)
    assert retention_of_orders(broker) != HOUR_MS


def test_a_log_manager_that_ray_starts_again_obeys_the_new_config(broker: Broker) -> None:
    broker.apply_config({"log.retention.ms": HOUR_MS})
    life = life_of_node(broker)
    os.kill(pid_of_manager(broker), signal.SIGKILL)
    wait_for(lambda: life_of_node(broker) not in ("", life), DEADLINE_S, "it is back")
    wait_for(lambda: obeys(broker), DEADLINE_S, "it obeys the present config")
    assert retention_of_orders(broker) == HOUR_MS


def test_the_command_shows_what_differs_and_applies_it(broker: Broker, tmp_path: Path) -> None:
    config = tmp_path / "broker.yaml"
    config.write_text(f"log.retention.ms: {HOUR_MS}\n")
    where = ("--address", broker.address, "--namespace", broker.namespace)
    command = ("start", "--config", str(config), *where)
    shown = run_process(*command, environment=os.environ)
    assert shown.returncode == 1, shown.stderr
    assert shown.stdout.splitlines()[1:] == [
        f"log.retention.ms\t604800000\t{HOUR_MS}\tat once",
        "nothing was changed: --apply gives the broker this config",
    ]
    assert retention_of_orders(broker) != HOUR_MS
    done = run_process(*command, "--apply", environment=os.environ)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "applied"
    assert retention_of_orders(broker) == HOUR_MS
    again = run_process(*command, environment=os.environ)
    assert again.returncode == 0, again.stderr
    assert again.stdout == "the broker runs with this config; nothing differs\n"
