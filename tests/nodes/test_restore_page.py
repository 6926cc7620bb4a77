"""The metadata's log dir is restored on a cluster of two nodes, as docs/OPERATIONS.md says."""

import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import raylog
from raylog.actors.runtime.handles import find
from raylog.actors.runtime.names import CONTROLLER, NAMESPACE
from raylog.cluster.broker import Broker
from raylog.storage.testing.waiting import wait_for
from tests.harness.copies import in_sync
from tests.harness.faults import send, strays
from tests.harness.operations_page import Operator

pytestmark = pytest.mark.timeout(600)

WITHIN_S = 90
LOG_DIRS = ("raylog-0", "raylog-1")


@pytest.fixture(scope="module")
def nodes(start_nodes: Callable[..., Any]) -> Any:
    started = start_nodes(dirs_a_node=LOG_DIRS)
    started.add("one")
    return started


def operator_of_head(nodes: Any, backup: Path) -> Operator:
    """Who works on the head's machine."""
    return Operator(Path(nodes.log_dirs("head")[0]).parent, backup, nodes.address)


@pytest.fixture
def operator(nodes: Any, tmp_path: Path) -> Iterator[Operator]:
    """Where a broker runs over log dirs that were empty."""
    for disk in ("head", "one"):
        for path in map(Path, nodes.log_dirs(disk)):
            shutil.rmtree(path, ignore_errors=True)
    made = operator_of_head(nodes, tmp_path / "backup")
    done = made.start()
    assert done.returncode == 0, done.stderr
    yield made
    if find(CONTROLLER, NAMESPACE) is not None:
        raylog.connect().stop()


def wait_until_in_sync(broker: Broker) -> None:
    wait_for(lambda: in_sync(broker) == 2, WITHIN_S, "two copies are in sync", poll_s=0.1)


def create(broker: Broker, name: str) -> None:
    """A topic with a partition in each log dir, and a record in each."""
    broker.create_topic(name, partitions=4)
    for partition in range(4):
        send(broker, name, b"%d" % partition, partition=partition)


def folders(broker: Broker, name: str) -> dict[int, Path]:
    return {
        entry.partition: Path(str(entry.folder)) for entry in broker.describe_topic(name).partitions
    }


def contents(broker: Broker, name: str, partitions: Iterable[int]) -> list[bytes]:
    found = broker.consumer(name, from_="earliest", to="latest", partitions=list(partitions))
    return sorted(record.value or b"" for record in found)


@pytest.mark.long
def test_the_newer_copy_of_the_other_node_counts_and_no_topic_is_lost(operator: Operator) -> None:
    broker = raylog.connect()
    wait_until_in_sync(broker)
    create(broker, "kept")
    operator.back_up()
    assert operator.raylog("stop").returncode == 0
    assert operator.start().returncode == 0
    broker = raylog.connect()
    wait_until_in_sync(broker)
    create(broker, "later")
    home = operator.log_dirs[0]
    lost = [number for number, path in folders(broker, "later").items() if path.parent == home]
    assert lost != []

    done = operator.follow("Restore", 0, swapped=True)
    assert "runs on the Ray cluster" in done.stdout, done.stderr
    broker = raylog.connect()
    assert broker.list_topics() == ["kept", "later"]
    wait_until_in_sync(broker)
    assert contents(broker, "kept", range(4)) == [b"0", b"1", b"2", b"3"]
    rest = [number for number in range(4) if number not in lost]
    assert contents(broker, "later", rest) == [b"%d" % number for number in rest]
    names = {f"later-{number}" for number in lost}
    wait_for(
        lambda: {name for found in broker.health() for name in found.subject.split(", ")} == names,
        WITHIN_S,
        "only what was created after the copy is missing",
    )
    assert not any(strays(path) for path in operator.log_dirs)


def test_after_a_crash_that_took_the_controllers_disk_the_operator_decides(
    operator: Operator, nodes: Any
) -> None:
    """Nobody knows whether the Controller has gone on alone, and the backup does not hide that."""
    broker = raylog.connect()
    wait_until_in_sync(broker)
    create(broker, "kept")
    operator.back_up()
    create(broker, "later")
    wait_until_in_sync(broker)
    nodes.end()
    nodes.begin()
    nodes.add("one")
    operator = operator_of_head(nodes, operator.backup)

    done = operator.follow("Restore", 0, swapped=True, words={"raylog stop\n": ""})
    assert done.returncode == 1
    source = re.findall(r"`raylog metadata restore --from (\S+)`", done.stderr)
    restored = operator.raylog("metadata", "restore", "--from", *source, *operator.options)
    assert "goes on from the copy" in restored.stdout, restored.stderr
    assert "may be missing: " in restored.stderr
    done = operator.start()
    assert done.returncode == 0, done.stderr
    broker = raylog.connect()
    assert broker.list_topics() == ["kept", "later"]
    wait_until_in_sync(broker)
    assert contents(broker, "kept", range(4)) == [b"0", b"1", b"2", b"3"]
