"""Ends that are not in order, and what the next start finds: a full disk, an interrupted start, two
killed at once."""

from pathlib import Path
from typing import Any

import pytest
import ray

import raylog
from raylog.actors.errors import BrokerNotFound, RequestTimedOut
from raylog.actors.runtime.calls import Call
from raylog.actors.runtime.handles import find, running
from raylog.actors.runtime.names import CONTROLLER, log_actor_name, log_manager_name
from raylog.actors.runtime.nodes import own_node_id
from raylog.cluster.broker import Broker
from raylog.storage.errors import RaylogError
from raylog.storage.names import TopicPartition
from raylog.storage.state.checkpoints import RECOVERY_POINTS
from raylog.storage.state.properties import CLEAN_SHUTDOWN
from raylog.storage.testing.waiting import wait_for
from tests.harness.faults import hanging, pid_of


def values(broker: Broker, topic: str) -> list[bytes | None]:
    return [record.value for record in broker.consumer(topic, from_="earliest", to="latest")]


def test_after_a_stop_that_could_not_write_its_checkpoints_the_next_start_serves(
    local_ray: None, tmp_path: Path
) -> None:
    first = raylog.start([str(tmp_path / "log")], namespace="full")
    first.create_topic("t")
    with first.producer() as producer:
        producer.send("t", b"1").result()
    checkpoint = tmp_path / "log" / RECOVERY_POINTS
    checkpoint.unlink(missing_ok=True)
    checkpoint.mkdir()  # no file can be renamed to it
    assert not first.stop()
    checkpoint.rmdir()
    second = raylog.start([str(tmp_path / "log")], namespace="full")
    with second.producer() as producer:
        producer.send("t", b"2").result()
    assert values(second, "t") == [b"1", b"2"]
    assert second.stop()


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), RequestTimedOut("starting", 1)], ids=["^C", "late"]
)
def test_a_start_that_is_given_up_leaves_nothing_and_can_be_repeated(
    local_ray: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    log_dir = str(tmp_path / "log")
    first = raylog.start([log_dir], namespace="given-up")
    first.create_topic("t")
    assert first.stop()

    get = Call.get

    def given_up(call: Call[Any], timeout_s: float = 30.0) -> Any:
        if call.what == "starting the broker":
            # Somewhere in the middle: the LogManager is there.
            wait_for(lambda: find(log_manager_name(own_node_id()), "given-up"), 60, "a LogManager")
            raise error
        return get(call, timeout_s)

    with monkeypatch.context() as patch:
        patch.setattr(Call, "get", given_up)
        with pytest.raises(type(error)):
            raylog.start([log_dir], namespace="given-up")
    wait_for(lambda: not running("given-up"), 60, "every actor has ended")
    with pytest.raises(BrokerNotFound):
        raylog.connect(namespace="given-up")
    second = raylog.start([log_dir], namespace="given-up")
    with second.producer() as producer:
        assert producer.send("t", b"1").result().offset == 0
    assert second.stop()


def test_a_controller_and_a_log_manager_killed_together_come_back(
    broker: Broker, topic: str
) -> None:
    pids = {one.partition: one.pid for one in broker.status()}
    ray.kill(find(log_manager_name(own_node_id()), broker.namespace), no_restart=True)
    ray.kill(find(CONTROLLER, broker.namespace), no_restart=False)

    def serves() -> bool:
        try:
            broker.forget(topic, 0)
            return broker.partition(topic, 0) is not None and list(broker.nodes().values()) == [
                None
            ]
        except RaylogError:
            return False

    wait_for(serves, 60, "the partition can be looked up")
    wait_for(
        lambda: {one.partition: one.pid for one in broker.status()} == pids,
        60,
        "its actors lived on",
    )
    assert find(log_actor_name(TopicPartition(topic, 1)), broker.namespace) is not None

    def creates() -> bool:
        """The Controller that was asked before may have been the one that was being killed."""
        name = f"{topic}-after"
        try:
            if name not in broker.list_topics():
                broker.create_topic(name)
            return broker.describe_topic(name).partitions[0].problem is None
        except RaylogError:
            return False

    wait_for(creates, 60, "a topic can be created")


@pytest.mark.long
def test_a_stop_closes_every_log_in_order_though_the_controller_hangs(
    local_ray: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = raylog.start([str(tmp_path / "log")], namespace="hangs")
    first.create_topic("t")
    with first.producer() as producer:
        producer.send("t", b"1").result()
    with hanging(pid_of(first, CONTROLLER)):
        assert first.stop()
        wait_for(lambda: not running("hangs"), 60, "every actor has ended")
    assert (tmp_path / "log" / CLEAN_SHUTDOWN).exists()
    assert any("its process is ended" in message for message in caplog.messages)
    second = raylog.start([str(tmp_path / "log")], namespace="hangs")
    assert values(second, "t") == [b"1"]
    assert second.stop()
