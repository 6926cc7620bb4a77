"""What docs/OPERATIONS.md says of backups, done as it stands there: on one node, with two log dirs.

The script and the commands are those of the page. With two nodes:
``tests/nodes/test_restore_page.py``.
"""

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import ray

import raylog
from raylog.actors.runtime.handles import find
from raylog.actors.runtime.names import CONTROLLER, NAMESPACE
from raylog.cluster.broker import Broker
from raylog.storage.files import RealFileSystem
from raylog.storage.testing.waiting import wait_for
from raylog.storage.tools.verify import verify_folder
from tests.harness.faults import send, strays, values
from tests.harness.operations_page import Operator

pytestmark = pytest.mark.timeout(400)

PARTITIONS = 4
WITHIN_S = 90


@pytest.fixture
def operator(local_ray: None, tmp_path: Path) -> Iterator[Operator]:
    data = tmp_path / "data"
    data.mkdir()
    made = Operator(data, tmp_path / "backup", ray.get_runtime_context().gcs_address)
    assert made.start().returncode == 0
    yield made
    if find(CONTROLLER, NAMESPACE) is not None:
        raylog.connect().stop()


class Producing:
    """Numbered records come to each partition of a topic, until it is left."""

    def __init__(self, topic: str) -> None:
        self.acknowledged = 0  # in each partition
        self._topic = topic
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._produce)

    def _produce(self) -> None:
        with raylog.connect().producer() as producer:
            while not self._is_over.is_set():
                for partition in range(PARTITIONS):
                    for number in range(self.acknowledged, self.acknowledged + 100):
                        producer.send(
                            self._topic, b"%08d" % number + b"x" * 1000, partition=partition
                        )
                producer.flush()
                self.acknowledged += 100

    def __enter__(self) -> "Producing":
        self._thread.start()
        wait_for(lambda: self.acknowledged >= 2000, WITHIN_S, "records come")
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()


def numbers(broker: Broker, topic: str, partition: int) -> list[int]:
    records = broker.consumer(topic, from_="earliest", to="latest", partitions=[partition])
    return [int((record.value or b"")[:8]) for record in records]


def in_dir(broker: Broker, topic: str) -> dict[int, str]:
    """The name of the log dir of each partition of a topic."""
    found = broker.describe_topic(topic).partitions
    return {entry.partition: Path(str(entry.folder)).parent.name for entry in found}


def create_in(operator: Operator, number: int, name: str) -> None:
    """A topic whose only partition lies in this log dir."""
    broker = raylog.connect()
    broker.create_topic(name, partitions=1)
    path = operator.log_dirs[number]
    if in_dir(broker, name)[0] != path.name:
        broker.move_partition(name, 0, str(path))
    send(broker, name, b"of " + name.encode())


def back_up_while_producing(operator: Operator) -> tuple[int, int]:
    """Returns how many records a partition of "kept" had before, and after."""
    broker = raylog.connect()
    config = {"segment.bytes": 1 << 20, "retention.ms": -1}
    broker.create_topic("kept", partitions=PARTITIONS, config=config)
    with Producing("kept") as producing:
        before = producing.acknowledged
        operator.back_up()
    after = producing.acknowledged
    for folder in operator.backup.glob("raylog-*/kept-*"):
        *sealed, _active = verify_folder(RealFileSystem(), str(folder))
        assert sealed != []
        assert [problem for report in sealed for problem in report.problems] == []
    return before, after


def serves(broker: Broker, what: str, is_so: Callable[[Broker], bool]) -> None:
    wait_for(lambda: is_so(broker), WITHIN_S, what)


def findings(broker: Broker) -> str:
    return "\n".join(f"{found.subject}: {found.what}" for found in broker.health())


@pytest.mark.parametrize("is_stopped", [pytest.param(True, marks=pytest.mark.long), False])
def test_one_log_dir_of_several_is_restored(operator: Operator, is_stopped: bool) -> None:
    """With the broker stopped, or while it serves and the log dir is offline."""
    before, after = back_up_while_producing(operator)
    broker = raylog.connect()
    create_in(operator, 1, "created-later")
    shutil.rmtree(operator.log_dirs[1])
    operator.log_dirs[1].mkdir()
    if is_stopped:
        done = operator.follow("Restore", 0)
        assert "runs on the Ray cluster" in done.stdout, done.stderr
        broker = raylog.connect()
    else:
        serves(broker, "it is offline", lambda _: "offline" in findings(broker))
        done = operator.follow("Restore", 1)
        assert done.returncode == 1
        told = done.without_waiting().stderr
        assert told.startswith("created-later-0 does not serve: "), done.stderr
    serves(
        broker,
        "only what was created later is missing",
        lambda _: [found.subject for found in broker.health()] == ["created-later-0"],
    )
    dirs = in_dir(broker, "kept")
    assert set(dirs.values()) == {"raylog-0", "raylog-1"}
    for partition, name in dirs.items():
        found = numbers(broker, "kept", partition)
        assert found == list(range(len(found)))
        assert (before if name == "raylog-1" else after) <= len(found) <= after
        send(broker, "kept", b"%08d" % len(found), partition=partition)
        assert numbers(broker, "kept", partition) == [*found, len(found)]


def test_a_partition_that_was_deleted_after_the_copy_is_set_aside(operator: Operator) -> None:
    create_in(operator, 1, "deleted")
    operator.back_up()
    raylog.connect().delete_topic("deleted")
    done = operator.follow("Restore", 0)
    assert "runs on the Ray cluster" in done.stdout, done.stderr
    broker = raylog.connect()
    serves(broker, "it is set aside", lambda _: len(strays(operator.log_dirs[1])) == 1)
    assert broker.list_topics() == []
    assert "folders that belong to no partition" in findings(broker)


def test_older_metadata_is_refused_and_accepted_and_what_it_lacks_is_adopted(
    operator: Operator,
) -> None:
    before, after = back_up_while_producing(operator)
    assert operator.raylog("stop").returncode == 0
    assert operator.start().returncode == 0
    create_in(operator, 1, "orders")
    done = operator.follow("Restore", 0, swapped=True)
    assert done.returncode == 1
    assert "--older-metadata" in done.stderr
    assert str(operator.log_dirs[0]) in done.stderr
    assert [strays(path) for path in operator.log_dirs] == [[], []], "nothing was changed"

    done = operator.follow("Older metadata")
    assert "runs on the Ray cluster" in done.stdout, done.stderr
    broker = raylog.connect()
    assert broker.list_topics() == ["kept"]
    serves(broker, "it is open", lambda broker: "being" not in findings(broker))
    for partition, name in in_dir(broker, "kept").items():
        found = numbers(broker, "kept", partition)
        assert found == list(range(len(found)))
        assert (before if name == "raylog-0" else after) <= len(found) <= after
    serves(broker, "it is set aside", lambda _: len(strays(operator.log_dirs[1])) == 1)
    (stray,) = strays(operator.log_dirs[1])

    both = " ".join(f"--log-dir {path}" for path in operator.log_dirs)
    adopted = operator.follow(
        "Folders that were set aside",
        words={
            "--log-dir /data/raylog-0": both,
            "/data/raylog-0/orders-0.0123456789abcdef0123456789abcdef-stray": (
                f"{operator.log_dirs[1]}/{stray}"
            ),
        },
    )
    assert adopted.returncode == 0, adopted.stderr
    broker = raylog.connect()
    assert broker.list_topics() == ["kept", "orders"]
    assert values(broker, "orders") == [b"of orders"]
    serves(broker, "it is healthy", lambda broker: broker.health() == [])


@pytest.mark.long
def test_all_log_dirs_are_restored(operator: Operator) -> None:
    before, after = back_up_while_producing(operator)
    cluster_id = raylog.connect().cluster_id()
    assert operator.raylog("stop").returncode == 0
    assert operator.start().returncode == 0
    create_in(operator, 1, "created-later")
    done = operator.follow("Restore", 2)
    assert "runs on the Ray cluster" in done.stdout, done.stderr
    broker = raylog.connect()
    assert broker.cluster_id() == cluster_id
    assert broker.list_topics() == ["kept"]
    serves(broker, "it is healthy", lambda broker: broker.health() == [])
    for partition in range(PARTITIONS):
        found = numbers(broker, "kept", partition)
        assert found == list(range(len(found)))
        assert before <= len(found) <= after
