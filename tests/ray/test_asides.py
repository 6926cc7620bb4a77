"""A damaged batch with records behind it: recovery keeps them, health tells it, a command brings
them back. Records that are lost: a command accepts it, once."""

import os
import signal
import uuid
from pathlib import Path

import pytest
import ray

import raylog
from raylog.actors.runtime.stubs import find_log_actor
from raylog.cluster.broker import Broker
from raylog.cluster.health.facts import Finding
from raylog.storage.names import TopicPartition
from raylog.storage.records.scan import scan_batches
from raylog.storage.testing.waiting import wait_for
from tests.harness.shell import run_here

TOPIC = TopicPartition("t", 0)
BATCHES = 10
DAMAGED = 6
FILE = "00000000000000000000.log"
ASIDE = f"{FILE}.aside-0"


@pytest.fixture
def namespace(local_ray: None) -> str:
    return f"test-{uuid.uuid4().hex[:8]}"


def values(broker: Broker) -> list[int]:
    return [
        int(record.value or b"") for record in broker.consumer("t", from_="earliest", to="latest")
    ]


def pid_of(broker: Broker) -> int:
    return int(ray.get(broker.partition("t", 0).status.remote(), timeout=30).pid)


def asides_told(broker: Broker) -> list[Finding]:
    return [finding for finding in broker.health() if ASIDE in finding.what]


@pytest.mark.timeout(240)
def test_what_recovery_set_aside_is_told_and_a_command_brings_it_back(
    namespace: str, log_dir: str
) -> None:
    broker = raylog.start([log_dir], namespace=namespace)
    broker.create_topic("t", partitions=1)
    with broker.producer() as producer:
        for number in range(BATCHES):
            producer.send("t", b"%d" % number).result()
    folder = Path(log_dir) / str(TOPIC)
    first_pid = pid_of(broker)
    damage_batch(folder / FILE, DAMAGED)
    os.kill(first_pid, signal.SIGKILL)
    wait_for(lambda: len(asides_told(broker)) == 1, 60, "health tells of the aside")

    [finding] = asides_told(broker)
    assert (finding.severity, finding.subject) == ("warning", "t-0")
    assert "offsets 7 to 9" in finding.what
    assert values(broker) == list(range(DAMAGED))
    [status] = broker.status()
    assert [(entry.kind, entry.kept_as) for entry in status.report.records] == [("cut", ASIDE)]
    assert "event=log-mended" in log_of(pid_of(broker))
    assert said_report(broker) == status.report, "what its LogManager is told has it, too"
    assert broker.stop()

    assert run_here("log", "aside", "restore", str(folder), ASIDE, "--allow-gap").lines() == [
        f"{ASIDE}: offsets 7 to 9 are in the log again"
    ]
    again = raylog.start([log_dir], namespace=namespace)
    assert values(again) == [number for number in range(BATCHES) if number != DAMAGED]
    assert len(asides_told(again)) == 1, "its damaged batch is kept until somebody drops it"
    assert again.stop()
    assert run_here("log", "aside", "drop", str(folder), ASIDE, "--yes").returncode == 0
    last = raylog.start([log_dir], namespace=namespace)
    wait_for(lambda: last.health() == [], 60, "nothing is wrong")
    assert last.stop()


@pytest.mark.timeout(240)
def test_an_accepted_loss_is_settled_when_the_partition_serves(
    namespace: str, log_dir: str
) -> None:
    broker = raylog.start([log_dir], namespace=namespace)
    broker.create_topic("t", partitions=1)
    with broker.producer() as producer:
        for number in range(BATCHES):
            producer.send("t", b"%d" % number).result()
    assert broker.stop()
    folder = Path(log_dir) / str(TOPIC)
    content = (folder / FILE).read_bytes()
    (folder / FILE).write_bytes(content[: int(scan_batches(content).rows[DAMAGED, 0])])
    assert run_here("log", "accept-loss", str(folder), "--yes").returncode == 0

    again = raylog.start([log_dir], namespace=namespace)
    assert values(again) == list(range(DAMAGED))
    checkpoint = Path(log_dir) / "recovery-point-offset-checkpoint"
    assert f"t 0 {DAMAGED}" in checkpoint.read_text().splitlines()
    assert (folder / "accepted-losses").read_text() == "0\n0\n"
    assert ["were on the disk are lost" in finding.what for finding in again.health()] == [True]
    assert again.stop()


@pytest.mark.timeout(240)
def test_a_log_that_is_refused_after_an_orderly_stop_stays_refused_until_it_is_mended(
    namespace: str, log_dir: str
) -> None:
    """The LogManager tries again by itself; that must not count as the start after a crash."""
    broker = raylog.start([log_dir], namespace=namespace)
    broker.create_topic("t", partitions=1, config={"segment.bytes": 1 << 20})
    with broker.producer() as producer:
        for number in range(BATCHES):
            producer.send("t", (b"%d" % number).rjust(300_000)).result()
    assert broker.stop()
    folder = Path(log_dir) / str(TOPIC)
    renamed = (folder / FILE).rename(folder / f"{FILE}.deleted")

    again = raylog.start([log_dir], namespace=namespace)
    wait_for(
        lambda: refusals(folder) >= 3,
        120,
        "the LogManager has tried again, and again",
        poll_s=0.5,
    )
    [finding] = again.health()
    assert (finding.severity, "are missing in the log" in finding.what) == ("error", True)
    assert again.stop()
    assert (Path(log_dir) / ".kafka_cleanshutdown").exists()
    renamed.rename(folder / FILE)
    last = raylog.start([log_dir], namespace=namespace)
    assert values(last) == list(range(BATCHES))
    wait_for(lambda: last.health() == [], 60, "nothing is wrong")
    assert last.stop()


def damage_batch(path: Path, number: int) -> None:
    """Flip a bit in the records of a batch."""
    positions = scan_batches(path.read_bytes()).rows[:, 0]
    with path.open("r+b") as file:
        file.seek(int(positions[number]) + 65)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))


def log_of(pid: int) -> str:
    logs = Path(ray._private.worker._global_node.get_session_dir_path()) / "logs"
    return "".join(path.read_text() for path in logs.glob(f"worker-*-{pid}.err"))


def refusals(folder: Path) -> int:
    """How many LogActors did not open the log."""
    logs = Path(ray._private.worker._global_node.get_session_dir_path()) / "logs"
    lines = [line for path in logs.glob("worker-*.err") for line in path.read_text().splitlines()]
    return sum("event=log-refused" in line and str(folder) in line for line in lines)


def said_report(broker: Broker) -> object:
    """What the LogActor tells its LogManager."""
    log = find_log_actor(TOPIC, broker.namespace)
    assert log is not None
    return log.says().get(60).opening
