"""A process of the broker is killed while a client writes or reads: nothing is lost, and nothing is
there twice."""

from pathlib import Path

import pytest

from raylog.actors.runtime.names import CONTROLLER, log_actor_name, log_manager_name
from raylog.actors.runtime.nodes import own_node
from raylog.cluster.broker import Broker
from raylog.storage.names import TopicPartition
from tests.clients.program import Lacks, Program, Record, from_json
from tests.clients.table import Client
from tests.clients.topics import Topic, in_order
from tests.harness.faults import kill, pid_of, wait_for_another

pytestmark = pytest.mark.timeout(600)

# Records that are acknowledged before the process is killed, and after there is another one.
BEFORE, BEHIND = 500, 500


def kill_process(broker: Broker, name: str) -> None:
    """SIGKILL to the process of an actor; returns when there is another one."""
    pid = pid_of(broker, name)
    kill(pid)
    wait_for_another(broker, name, pid)


def leader(topic: Topic) -> str:
    """The name of the actor that leads partition 0."""
    return log_actor_name(TopicPartition(topic.name, 0))


@pytest.mark.parametrize("who", ["leader", "LogManager", "Controller"])
def test_who_writes_while_a_process_is_killed_loses_nothing_and_repeats_nothing(
    program: Program, broker: Broker, topic: Topic, flag: Path, who: str
) -> None:
    names = {
        "leader": leader(topic),
        "LogManager": log_manager_name(own_node().key),
        "Controller": CONTROLLER,
    }
    starts = topic.ends()
    program.begin("stream", topic=topic.name, partitions=topic.partitions, until=str(flag))
    program.reach(BEFORE)
    kill_process(broker, names[who])
    # The program's lines that nobody has read yet are of earlier records: count from the log.
    written = sum(topic.ends().values()) - sum(starts.values())
    program.reach(written + BEHIND)
    flag.touch()
    told = program.answer()
    assert told["failures"] == []
    found = topic.read(starts)
    numbers = [int(record.value or b"-1") for record in found]
    assert sorted(numbers) == list(range(told["acknowledged"]))
    for partition in range(topic.partitions):
        own = [number for number in numbers if number % topic.partitions == partition]
        assert own == sorted(own), "in the order in which they were sent"


def test_who_reads_from_a_leader_that_is_killed_reads_every_record_once(
    program: Program, client: Client, broker: Broker, topic: Topic
) -> None:
    starts = topic.ends()
    first_ms = topic.newest_ms(0)
    written = topic.write(record(number, first_ms) for number in range(BEFORE))
    wanted = {"topic": topic.name, "places": starts, "count": BEFORE + BEHIND}
    program.begin("consume", **wanted)
    try:
        program.reach(BEFORE)
    except Lacks as why:
        pytest.skip(f"{client.name}: {why}")
    kill_process(broker, leader(topic))
    written += topic.write(record(number, first_ms) for number in range(BEFORE, BEFORE + BEHIND))
    told = program.answer()
    assert in_order([from_json(one) for one in told["records"]]) == in_order(written)


def record(number: int, first_ms: int) -> Record:
    return Record(number % 2, b"key", b"%d" % number, first_ms + number)
