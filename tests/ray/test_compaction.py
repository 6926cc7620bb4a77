"""Compacted topics end to end: the CompactionActor beside producers and readers, killed, refused,
and told apart."""

import os
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.exceptions import RayError

import raylog
from raylog.actors.messages import CompactionStatus
from raylog.actors.runtime.handles import find, running
from raylog.actors.runtime.names import COMPACTION, log_manager_name
from raylog.actors.runtime.nodes import own_node_id
from raylog.cluster.broker import Broker
from raylog.storage.errors import PolicyViolation
from raylog.storage.files import ReadOnlyFileSystem
from raylog.storage.names import TopicPartition
from raylog.storage.testing.waiting import wait_for
from raylog.storage.tools.verify import verify_folder

KEYS = 50
RECORDS_AT_ONCE = 250  # some 3 KB: several batches a segment
DEADLINE_S = 90
AHEAD = 20_000  # records
COMPACTED: dict[str, Any] = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": 16 << 10,
    "min.cleanable.dirty.ratio": 0.01,
    "file.delete.delay.ms": 200,
}


@pytest.fixture(scope="module")
def broker(local_ray: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    log_dirs = [str(tmp_path_factory.mktemp("log") / name) for name in "ab"]
    config = {
        "log.cleaner.backoff.ms": 50,
        "log.cleaner.dedupe.buffer.size": 1 << 20,
        "log.retention.check.interval.ms": 200,
    }
    started = raylog.start(log_dirs, config=config, namespace=f"test-{uuid.uuid4().hex[:8]}")
    yield started
    assert started.stop(), "the broker stops in order"


@pytest.fixture
def topic(broker: Broker) -> str:
    return made(broker)


def made(broker: Broker, **config: Any) -> str:
    name = f"topic-{uuid.uuid4().hex[:8]}"
    settings = {key.replace("_", "."): value for key, value in config.items()}
    broker.create_topic(name, 1, {**COMPACTED, **settings})
    return name


class Writer:
    """Keyed records, numbered, and what each key has last."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._producer = broker.producer(linger_ms=1)
        self._topic, self.number, self.last = topic, 0, dict[bytes, bytes]()

    def write(self, count: int) -> None:
        """``count`` records, acknowledged when this returns."""
        for number in range(self.number, self.number + count):
            key, value = b"%d" % (number * 7 % KEYS), b"%d" % number
            self._producer.send(self._topic, value, key=key)
            self.last[key] = value
            if number % RECORDS_AT_ONCE == 0:
                self._producer.flush()
        self._producer.flush()
        self.number += count


def records(broker: Broker, topic: str) -> list[Any]:
    return list(broker.consumer(topic, from_="earliest", to="latest"))


def last_values(broker: Broker, topic: str) -> dict[bytes, bytes]:
    return {record.key: record.value for record in records(broker, topic)}


def told(broker: Broker, topic: str) -> CompactionStatus | None:
    return next((one for one in broker.compaction() if one.partition == f"{topic}-0"), None)


def is_clean_up_to(broker: Broker, topic: str, offset: int) -> bool:
    one = told(broker, topic)
    return one is not None and one.last_round is not None and one.last_round.end_offset >= offset


def compactor(broker: Broker) -> Any:
    (name,) = [name for name in running(broker.namespace) if name.startswith(COMPACTION)]
    return find(name, broker.namespace)


def status(broker: Broker, topic: str) -> Any:
    return ray.get(broker.partition(topic, 0).status.remote(), timeout=60)


def ask(broker: Broker, topic: str, method: str, *arguments: Any) -> Any:
    return ray.get(getattr(broker.partition(topic, 0), method).remote(*arguments), timeout=60)


def check_folder(folder: str) -> None:
    """No file disagrees with another."""
    reports = verify_folder(ReadOnlyFileSystem(), folder)
    assert [problem for report in reports for problem in report.problems] == []


def cleaner_offsets(broker: Broker) -> dict[TopicPartition, int]:
    manager = find(log_manager_name(own_node_id()), broker.namespace)
    assert manager is not None
    found: dict[TopicPartition, int] = ray.get(manager.cleaner_offsets.remote(), timeout=60)
    return found


def test_every_key_keeps_its_last_value_while_appends_and_reads_go_on(
    broker: Broker, topic: str
) -> None:
    writer = Writer(broker, topic)
    for _ in range(5):
        writer.write(2000)
        assert last_values(broker, topic) == writer.last
    ask(broker, topic, "roll")
    wait_for(
        lambda: is_clean_up_to(broker, topic, 10_000), DEADLINE_S, "all is compacted", poll_s=0.1
    )
    found = records(broker, topic)
    assert {record.key: record.value for record in found} == writer.last
    assert len(found) < 2 * KEYS
    assert [record.offset for record in found] == sorted(record.offset for record in found)
    assert cleaner_offsets(broker)[TopicPartition(topic, 0)] == 10_000
    one = told(broker, topic)
    assert one is not None
    assert one.last_round is not None
    assert one.last_round.bytes_after < one.last_round.bytes_before
    assert one.last_round.records_dropped > 0
    assert (one.is_running, one.uncleanable, one.problem, one.overdue_ms) == (False, None, None, 0)
    check_folder(status(broker, topic).folder)


def test_a_compaction_actor_that_is_killed_at_every_step_of_its_rounds_loses_nothing(
    broker: Broker, topic: str
) -> None:
    writer, stop = Writer(broker, topic), threading.Event()

    def write() -> None:
        """As fast as it goes, but no more ahead of the rounds than one can take in time."""
        while not stop.is_set():
            writer.write(500)
            ahead = writer.number - AHEAD
            while ahead > 0 and not stop.is_set() and not is_clean_up_to(broker, topic, ahead):
                stop.wait(0.05)

    thread = threading.Thread(target=write)
    thread.start()
    pids = []
    try:
        for step in (
            "map",
            "rewrite",
            "before the swap",
            "after the swap",
            "before the checkpoint",
        ):
            pids.append(pid_of_compactor(broker))
            ray.get(compactor(broker).__ray_call__.remote(dies_at(step)), timeout=60)
            wait_for(
                lambda: pid_of_compactor(broker) != pids[-1], DEADLINE_S, f"it is killed: {step}"
            )
    finally:
        stop.set()
        thread.join(timeout=DEADLINE_S)
    assert not thread.is_alive()
    assert len({*pids}) == 5, "each time another process"
    assert last_values(broker, topic) == writer.last
    ask(broker, topic, "roll")
    wait_for(
        lambda: is_clean_up_to(broker, topic, writer.number), DEADLINE_S, "compacted", poll_s=0.1
    )
    assert last_values(broker, topic) == writer.last
    folder = status(broker, topic).folder
    check_folder(folder)
    assert [path.name for path in Path(folder).glob("*.cleaned")] == []


def dies_at(step: str) -> Callable[[Any], None]:
    """What makes the CompactionActor end itself by SIGKILL when its next round comes there."""

    def arm(actor: Any) -> None:
        from raylog.actors.upkeep.node_logs import LogCalls, NodeLogs
        from raylog.storage.cleaner.rewrite import CleanedSegment

        def die(*_: Any) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        replace = LogCalls.replace_segments

        def die_after(*arguments: Any) -> None:
            replace(*arguments)
            die()

        owner, name, instead = {
            "map": (actor._compactor, "_pace", die),
            "rewrite": (CleanedSegment, "finish", die),
            "before the swap": (LogCalls, "replace_segments", die),
            "after the swap": (LogCalls, "replace_segments", die_after),
            "before the checkpoint": (NodeLogs, "record_cleaner_offset", die),
        }[step]
        setattr(owner, name, instead)

    return arm


def pid_of_compactor(broker: Broker) -> int:
    pids: list[int] = []

    def answers() -> bool:
        try:
            actor = compactor(broker)
            pids.append(ray.get(actor.__ray_call__.remote(lambda _: os.getpid()), timeout=60))
        except (RayError, ValueError):
            return False  # it is being started
        return True

    wait_for(answers, DEADLINE_S, "the CompactionActor runs", poll_s=0.05)
    return pids[-1]


def test_a_log_that_cannot_be_compacted_is_told_and_the_others_go_on(
    broker: Broker, topic: str
) -> None:
    spoiled, writer = made(broker), Writer(broker, topic)
    pid = pid_of_compactor(broker)
    os.kill(pid, signal.SIGSTOP)
    try:
        Writer(broker, spoiled).write(500)
        ask(broker, spoiled, "roll")
        segment = Path(status(broker, spoiled).folder, f"{0:020d}.log")
        with segment.open("r+b") as file:
            file.seek(200)
            byte = file.read(1)
            file.seek(200)
            file.write(bytes([byte[0] ^ 1]))
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_for(
        lambda: (one := told(broker, spoiled)) and one.uncleanable, DEADLINE_S, "it is given up"
    )
    why = told(broker, spoiled).uncleanable  # type: ignore[union-attr]
    assert "corrupt record batch" in why  # type: ignore[operator]
    writer.write(3000)
    ask(broker, topic, "roll")
    wait_for(
        lambda: is_clean_up_to(broker, topic, 3000),
        DEADLINE_S,
        "the other is compacted",
        poll_s=0.1,
    )
    assert last_values(broker, topic) == writer.last
    one = told(broker, spoiled)
    assert one is not None
    assert (one.uncleanable, one.is_running, one.last_round) == (why, False, None)
    broker.delete_topic(spoiled)
    wait_for(lambda: told(broker, spoiled) is None, DEADLINE_S, "it is forgotten", poll_s=0.1)


def test_compact_and_delete_together(broker: Broker) -> None:
    topic = made(broker, cleanup_policy="compact,delete", retention_ms=1000)
    writer = Writer(broker, topic)
    writer.write(3000)
    ask(broker, topic, "roll")
    wait_for(
        lambda: ask(broker, topic, "offsets").log_start_offset == 3000,
        DEADLINE_S,
        "all is too old",
        poll_s=0.1,
    )
    assert records(broker, topic) == []
    # The round tells what it has done when it has looked at all partitions.
    wait_for(
        lambda: any(
            one.total_segments and one.total_bytes
            for one in broker.retention()
            if one.partition == f"{topic}-0"
        ),
        DEADLINE_S,
        "retention has told of it",
        poll_s=0.1,
    )
    writer.write(10)
    assert len(records(broker, topic)) == 10


def test_a_policy_that_changes_takes_a_log_in_and_out_of_compaction(broker: Broker) -> None:
    topic = made(broker, cleanup_policy="delete")
    writer = Writer(broker, topic)
    writer.write(1000)
    broker.alter_topic_config(topic, {"cleanup.policy": "compact"})
    ask(broker, topic, "roll")
    wait_for(lambda: is_clean_up_to(broker, topic, 1000), DEADLINE_S, "it is compacted", poll_s=0.1)
    broker.alter_topic_config(topic, {"cleanup.policy": "delete"})
    wait_for(
        lambda: told(broker, topic) is None, DEADLINE_S, "compaction has let it go", poll_s=0.1
    )
    assert last_values(broker, topic) == writer.last


def test_a_compacted_log_goes_on_at_its_checkpoint_after_a_restart(
    broker: Broker, topic: str
) -> None:
    writer = Writer(broker, topic)
    writer.write(3000)
    ask(broker, topic, "roll")
    wait_for(lambda: is_clean_up_to(broker, topic, 3000), DEADLINE_S, "compacted", poll_s=0.1)
    os.kill(status(broker, topic).pid, signal.SIGKILL)
    os.kill(pid_of_compactor(broker), signal.SIGKILL)
    writer.write(1000)
    ask_again(lambda: ask(broker, topic, "roll"))
    wait_for(lambda: is_clean_up_to(broker, topic, 4000), DEADLINE_S, "the rest, too", poll_s=0.1)
    one = told(broker, topic)
    assert one is not None
    assert one.first_dirty_offset >= 3000, "not from the start again"
    assert last_values(broker, topic) == writer.last


def ask_again(call: Callable[[], Any]) -> None:
    def succeeds() -> bool:
        try:
            call()
        except RayError:
            return False
        return True

    wait_for(succeeds, DEADLINE_S, "the LogActor answers", poll_s=0.1)


def test_records_are_deleted_up_to_an_offset_and_retention_takes_their_segments(
    broker: Broker,
) -> None:
    topic = made(broker, cleanup_policy="delete")
    Writer(broker, topic).write(2000)
    assert broker.delete_records(topic, 0, 1500) == 1500
    assert broker.delete_records(topic, 0, 100) == 1500
    assert records(broker, topic)[0].offset == 1500
    wait_for(
        lambda: [
            one
            for one in broker.retention()
            if one.partition == f"{topic}-0" and one.total_segments
        ],
        DEADLINE_S,
        "retention has removed whole segments",
        poll_s=0.1,
    )
    assert broker.delete_records(topic, 0) == 2000
    compacted = made(broker)
    with pytest.raises(PolicyViolation, match="keeps the last record"):
        broker.delete_records(compacted, 0, 0)
