"""A Controller, made in the test's own process with real LogManagers: what it answers while it
works, and how little of a failure it leaves."""

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
import ray

from raylog.actors.errors import BrokerRunning, NotLeader, RequestTimedOut, TopicBusy
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.runtime.calls import Call
from raylog.actors.runtime.handles import find, running
from raylog.actors.runtime.names import Node, log_actor_name, log_manager_name
from raylog.actors.runtime.nodes import own_node_id
from raylog.cluster.controller import controller_actor as controller_module
from raylog.cluster.controller.controller_actor import ControllerImpl
from raylog.cluster.controller.jobs import Jobs
from raylog.cluster.controller.metadata import Topic, topic_removed_record
from raylog.cluster.controller.opening import Claim
from raylog.cluster.controller.placement import wanted_of
from raylog.cluster.controller.state import LeftOver
from raylog.storage.errors import InvalidConfig, LogMissing, RaylogError
from raylog.storage.names import DELETE_DIR_SUFFIX, TopicPartition
from raylog.storage.testing.waiting import wait_for

get = Call.get
PROMPT_S = 10.0  # an answer that waits for another actor here would wait for ever


class Broker:
    """A Controller's life in this process; another one on the same dirs can follow."""

    def __init__(self, log_dir: str) -> None:
        self.log_dir, self.namespace = Path(log_dir), f"broker-{uuid.uuid4().hex[:8]}"
        self.controller = self.another()

    def another(self) -> ControllerImpl:
        config = BrokerConfig.parse({"log.dirs": [str(self.log_dir)]})
        return ControllerImpl(self.namespace, config)

    def folders(self) -> list[str]:
        """The partitions' folders, without those that wait to be removed."""
        found = sorted(path.name for path in self.log_dir.iterdir() if path.is_dir())
        return [
            name
            for name in found
            if name != "__cluster_metadata-0" and not name.endswith(DELETE_DIR_SUFFIX)
        ]

    def nothing_runs(self) -> bool:
        return not running(self.namespace)


@pytest.fixture
def broker(local_ray: None, log_dir: str) -> Iterator[Broker]:
    made = Broker(log_dir)
    made.controller.start()
    yield made
    made.controller.shutdown()
    wait_for(made.nothing_runs, 30, "all actors have ended")


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


class Held:
    """Answers to the Controller, held back from the moment that they are waited for until
    ``release``."""

    def __init__(self, patch: pytest.MonkeyPatch, prefix: str) -> None:
        self.reached, self._released = Event(), Event()

        def held(call: Call[Any], timeout_s: float = 30.0) -> Any:
            if call.what.startswith(prefix):
                self.reached.set()
                assert self._released.wait(60)
            return get(call, timeout_s)

        patch.setattr(Call, "get", held)

    def release(self) -> None:
        self._released.set()


def failing(patch: pytest.MonkeyPatch, prefix: str, error: BaseException) -> None:
    """The Controller's waiting for such an answer ends with ``error``."""

    def fail(call: Call[Any], timeout_s: float = 30.0) -> Any:
        if call.what.startswith(prefix):
            raise error
        return get(call, timeout_s)

    patch.setattr(Call, "get", fail)


# -- the lock --------------------------------------------------------------------------------------


def look_ups(controller: ControllerImpl, pool: ThreadPoolExecutor) -> list[Any]:
    questions: list[Callable[[], Any]] = [
        controller.list_topics,
        lambda: controller.explain("old", 0),
        lambda: controller.describe_topic("old").name,
        controller.nodes,
    ]
    return [pool.submit(question).result(PROMPT_S) for question in questions]


@pytest.mark.parametrize("step", ["creating new", "opening new"])
def test_look_ups_are_answered_while_a_topic_is_made_and_its_name_is_taken(
    broker: Broker, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    controller = broker.controller
    controller.create_topic("old", 1, {})
    held = Held(monkeypatch, step)
    making = pool.submit(controller.create_topic, "new", 2, {})
    assert held.reached.wait(60)
    try:
        assert look_ups(controller, pool) == [["old"], None, "old", {own_node_id(): None}]
        with pytest.raises(TopicBusy):
            pool.submit(controller.create_topic, "new", 1, {}).result(PROMPT_S)
    finally:
        held.release()
    assert len(making.result(60).partitions) == 2
    assert controller.list_topics() == ["new", "old"]


def test_look_ups_are_answered_while_a_topic_is_deleted_and_its_name_is_taken_until_then(
    broker: Broker, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = broker.controller
    controller.create_topic("old", 1, {})
    controller.create_topic("gone", 1, {})
    held = Held(monkeypatch, "removing gone")
    deleting = pool.submit(controller.delete_topic, "gone")
    assert held.reached.wait(60)
    try:
        assert look_ups(controller, pool) == [["old"], None, "old", {own_node_id(): None}]
        with pytest.raises(TopicBusy):
            pool.submit(controller.create_topic, "gone", 1, {}).result(PROMPT_S)
    finally:
        held.release()
    deleting.result(60)
    assert controller.create_topic("gone", 1, {}).name == "gone"


def test_look_ups_are_refused_at_once_while_the_broker_stops(
    broker: Broker, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = broker.controller
    controller.create_topic("old", 1, {})
    held = Held(monkeypatch, "stopping LogManager")
    stopping = pool.submit(controller.shutdown)
    assert held.reached.wait(60)
    try:
        for question in (controller.list_topics, lambda: controller.explain("old", 0)):
            with pytest.raises(NotLeader, match="starting or stopping"):
                pool.submit(question).result(PROMPT_S)
    finally:
        held.release()
    assert stopping.result(60)


def test_a_topic_that_is_gone_when_its_opening_is_answered_leaves_no_trace(broker: Broker) -> None:
    directory_id = next(iter(broker.controller._placement.node_of))
    ghost = Topic("ghost", "id", {}, (directory_id,))
    [wanted] = wanted_of([ghost])
    [manager] = broker.controller._managers.values()
    claim = Claim(wanted, manager)
    broker.controller._record_opening(claim, LogMissing("/ghost-0", "gone"))
    assert not isinstance(broker.controller._placement.explain(ghost, 0), LogMissing)


def test_a_node_that_does_not_answer_is_left_out_of_the_log_dirs(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [one.path for one in broker.controller.log_dirs()] == [str(broker.log_dir)]
    failing(monkeypatch, "the log dirs", RequestTimedOut("the log dirs", 30_000))
    assert broker.controller.log_dirs() == []


# -- topics ----------------------------------------------------------------------------------------


def test_a_topic_whose_partition_cannot_be_opened_is_refused_and_leaves_nothing(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening = broker.controller._opening

    def one_fails(manager: Any, partition: TopicPartition, topic: Topic, directory_id: str) -> Any:
        other = topic._replace(topic_id="another") if partition.partition == 1 else topic
        return opening(manager, partition, other, directory_id)

    with monkeypatch.context() as patch:
        patch.setattr(broker.controller, "_opening", one_fails)
        with pytest.raises(RaylogError, match="belongs to topic id"):
            broker.controller.create_topic("half", 3, {})
    assert broker.controller.list_topics() == []
    assert broker.folders() == []
    wait_for(
        lambda: not [name for name in running(broker.namespace) if name.startswith("Log:")],
        30,
        "no LogActor is left",
    )
    assert broker.controller.create_topic("half", 3, {}).partitions[1].problem is None


def test_partitions_that_cannot_be_opened_are_not_added_and_leave_nothing(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.controller.create_topic("t", 1, {})
    with monkeypatch.context() as patch:
        failing(patch, "opening t", RequestTimedOut("opening t", 1))
        with pytest.raises(RequestTimedOut):
            broker.controller.add_partitions("t", 3)
    assert broker.folders() == ["t-0"]
    assert len(broker.controller.describe_topic("t").partitions) == 1
    assert broker.controller.add_partitions("t", 3).partitions[2].problem is None


def test_a_topic_that_is_extended_can_be_configured_meanwhile_but_not_deleted(
    broker: Broker, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = broker.controller
    controller.create_topic("t", 1, {})
    held = Held(monkeypatch, "opening t")
    extending = pool.submit(controller.add_partitions, "t", 3)
    assert held.reached.wait(60)
    try:
        with pytest.raises(TopicBusy, match="extended"):
            controller.delete_topic("t")
        altered = pool.submit(controller.alter_topic_config, "t", {"retention.ms": 5}, ())
        assert altered.result(PROMPT_S).config == {"retention.ms": 5}
    finally:
        held.release()
    assert extending.result(60).config == {"retention.ms": 5}
    controller._configure()
    assert controller._placement.outdated(controller._wanted()) == []


def test_a_config_that_was_written_down_but_not_told_is_told_by_the_next_life(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = broker.controller
    controller.create_topic("t", 1, {})
    monkeypatch.setattr(ControllerImpl, "_see_through", lambda *_: None)
    monkeypatch.setattr(ControllerImpl, "_configure", lambda _: None)
    controller.alter_topic_config("t", {"max.message.bytes": 77}, ())
    manager: Any = find(log_manager_name(own_node_id()), broker.namespace)
    topic_id = controller.describe_topic("t").topic_id

    def told() -> Any:
        asked = manager.config_of.remote(TopicPartition("t", 0), topic_id)
        return ray.get(asked, timeout=30).config

    assert told().max_message_bytes != 77
    controller._stopped.set()  # killed: nothing is closed in order, and the actors live on
    assert controller._metadata is not None
    controller._metadata.close()
    monkeypatch.undo()
    broker.controller = broker.another()
    broker.controller.start()
    assert told().max_message_bytes == 77


def test_a_config_value_of_numpys_is_kept_as_the_number_that_it_is(broker: Broker) -> None:
    described = broker.controller.create_topic("numbers", 1, {"retention.ms": np.int64(5000)})
    assert described.config == {"retention.ms": 5000}
    assert type(described.config["retention.ms"]) is int
    with pytest.raises(InvalidConfig, match=r"retention\.ms"):
        broker.controller.create_topic("odd", 1, {"retention.ms": object()})
    assert broker.folders() == ["numbers-0"]


# -- starting --------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["LogManager", "looking through", "the watch", "waiting for all"])
def test_a_start_that_fails_or_is_interrupted_leaves_nothing_running(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    broker.controller.create_topic("kept", 1, {})
    broker.controller.shutdown()
    with monkeypatch.context() as patch:
        if step == "the watch":
            patch.setattr(ControllerImpl, "_watch_once", lambda _: failing_now(KeyboardInterrupt()))
        elif step == "waiting for all":
            wait = Jobs.wait
            patch.setattr(
                Jobs,
                "wait",
                lambda self, s=None: wait(self, s) if s else failing_now(KeyboardInterrupt()),
            )
        else:
            failing(patch, step, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            broker.another().start()
    wait_for(broker.nothing_runs, 60, "all actors have ended")
    broker.controller = broker.another()
    broker.controller.start()
    assert broker.controller.explain("kept", 0) is None


def failing_now(error: BaseException) -> None:
    raise error


def test_a_second_start_is_refused_and_the_first_goes_on(broker: Broker) -> None:
    with pytest.raises(BrokerRunning):
        broker.controller.start()
    assert broker.controller.create_topic("t", 1, {}).partitions[0].problem is None


def test_a_restarted_controller_survives_a_join_that_fails(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.controller.create_topic("kept", 1, {})
    broker.controller.shutdown()
    look, failures = (
        ControllerImpl._look_through,
        [NotLeader("x", "dying"), ValueError("Ray's own")],
    )

    def sometimes(controller: ControllerImpl, node: Node, manager: Any) -> Any:
        if failures:
            raise failures.pop()
        return look(controller, node, manager)

    monkeypatch.setattr(ControllerImpl, "_look_through", sometimes)
    monkeypatch.setattr(controller_module, "is_restarted", lambda: True)
    broker.controller = broker.another()
    wait_for(lambda: broker.controller._metadata, 60, "the metadata is open")
    assert broker.controller.list_topics() == ["kept"]
    wait_for(lambda: broker.controller.explain("kept", 0) is None, 60, "its partition serves")
    assert broker.controller.nodes() == {own_node_id(): None}


def test_what_a_deletion_has_left_over_is_removed_and_no_stray(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.controller.create_topic("gone", 1, {})
    topic_id = broker.controller._topic("gone").topic_id
    broker.controller.shutdown()
    assert broker.folders() == ["gone-0"]
    broker.controller = again = broker.another()

    def deleted() -> None:
        ControllerImpl._open_metadata(again)
        again._log.append(topic_removed_record("gone"))

    monkeypatch.setattr(again, "_open_metadata", deleted)
    again._note_left_over(LeftOver(TopicPartition("gone", 0), topic_id, "its node's last id"))
    again.start()
    assert broker.folders() == []


# -- watching --------------------------------------------------------------------------------------


def pids(broker: Broker) -> list[int]:
    """Of the LogActors that the LogManager knows."""
    manager: Any = find(log_manager_name(own_node_id()), broker.namespace)
    actors: list[Any] = [
        find(log_actor_name(one.partition), broker.namespace)
        for one in ray.get(manager.hosted.remote(), timeout=30)
    ]
    return [ray.get(actor.status.remote(), timeout=30).pid for actor in actors]


def test_a_log_manager_killed_for_good_is_replaced_and_its_actors_live_on(broker: Broker) -> None:
    broker.controller.create_topic("t", 1, {})
    [pid] = pids(broker)
    name = log_manager_name(own_node_id())
    before = find(name, broker.namespace)
    ray.kill(before, no_restart=True)
    wait_for(lambda: find(name, broker.namespace) not in (None, before), 60, "another LogManager")
    wait_for(
        lambda: broker.controller.nodes() == {own_node_id(): None}, 60, "the node has joined again"
    )
    wait_for(lambda: pids(broker) == [pid], 60, "its actor is adopted")
    assert broker.controller.create_topic("u", 1, {}).partitions[0].problem is None


def test_a_missing_log_is_served_again_when_its_folder_is_back_and_its_node_joins(
    broker: Broker, tmp_path: Path
) -> None:
    folder = Path(broker.controller.create_topic("t", 1, {}).partitions[0].folder or "")
    broker.controller.shutdown()
    folder.rename(tmp_path / "elsewhere")
    broker.controller = broker.another()
    broker.controller.start()
    assert isinstance(broker.controller.explain("t", 0), LogMissing)
    (tmp_path / "elsewhere").rename(folder)
    ray.kill(find(log_manager_name(own_node_id()), broker.namespace), no_restart=True)
    wait_for(lambda: broker.controller.explain("t", 0) is None, 60, "the partition serves again")
    assert find(log_actor_name(TopicPartition("t", 0)), broker.namespace) is not None
