"""The Controller's watch waits for nobody: what takes long is done beside it; no Ray."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from raylog.actors.errors import NotLeader
from raylog.actors.messages import Found, NodeState, Placed
from raylog.actors.runtime.calls import CALL_TIMEOUT_S, Call
from raylog.actors.runtime.names import log_actor_name, log_manager_name
from raylog.actors.runtime.stubs import LogManagerStub
from raylog.cluster.controller import state as controller_state
from raylog.storage.errors import InvalidLogDir, StorageError
from raylog.storage.names import TopicPartition
from raylog.storage.testing.waiting import DEADLINE_S, wait_for
from tests.harness.futures import Timeline, future_of, futures_are_references
from tests.unit.cluster.controller.controllers import Cluster, Manager, found


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    made = Cluster(monkeypatch)
    yield made
    made.controller.shutdown()


def is_told_to_open(manager: Manager) -> bool:
    return bool(manager.opening)


def being_opened(cluster: Cluster) -> Manager:
    """A node has come, and its partition a-0 is being opened."""
    manager = Manager("dir-a", found(cluster.topic("a", "dir-a")))
    cluster.controller._open_metadata()
    cluster.comes("node-a", manager)
    cluster.controller._watch_once()
    wait_for(lambda: is_told_to_open(manager), DEADLINE_S, "it is opened")
    return manager


def serves(cluster: Cluster, topic: str) -> bool:
    return cluster.controller.explain(topic, 0) is None


def test_a_start_returns_when_all_that_is_there_is_opened(cluster: Cluster) -> None:
    here, there = (
        Manager("dir-a", found(cluster.topic("a", "dir-a"))),
        Manager("dir-b", found(cluster.topic("b", "dir-b"))),
    )
    cluster.comes("node-a", here)
    cluster.comes("node-b", there)
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(cluster.controller.start)
        wait_for(lambda: is_told_to_open(here), DEADLINE_S, "the own node's partition is opened")
        here.opened()
        wait_for(lambda: is_told_to_open(there), DEADLINE_S, "the other node's partition is opened")
        assert not starting.done()
        there.opened()
        assert starting.result(DEADLINE_S) == "cluster"
    assert serves(cluster, "a")
    assert serves(cluster, "b")


def test_strays_are_out_of_the_way_before_a_node_takes_part(cluster: Cluster) -> None:
    stray = Found(TopicPartition("old", 0), "id-old", "dir-a")
    manager, seen = Manager("dir-a", stray), []
    called = manager._called

    def watched(name: str, arguments: tuple[object, ...]) -> object:
        if name == "set_aside":
            seen.append((arguments, cluster.controller.nodes()))
        return called(name, arguments)

    manager._called = watched  # type: ignore[assignment]
    cluster.comes("node-a", manager)
    cluster.controller.start()
    assert seen == [(tuple(stray), {})]
    assert cluster.controller.nodes() == {"node-a": None}


def test_on_the_copy_of_another_nodes_disk_nothing_is_set_aside(cluster: Cluster) -> None:
    copy = Manager("dir-a", Found(TopicPartition("old", 0), "id-old", "dir-a"))
    cluster.comes("node-a", Manager("dir-a"))
    cluster.comes("node-b", copy)
    cluster.controller.start()
    assert "copy" in str(cluster.controller.nodes()["node-b"])
    assert copy.asked("set_aside") == []


def test_a_node_that_opens_for_minutes_holds_up_neither_a_death_nor_a_return(
    cluster: Cluster,
) -> None:
    slow, quick, again = (
        Manager("dir-a", found(cluster.topic("a", "dir-a"))),
        Manager("dir-b"),
        Manager("dir-b"),
    )
    controller = cluster.controller
    controller._open_metadata()
    cluster.comes("node-a", slow)
    cluster.comes("node-b", quick)
    controller._watch_once()
    wait_for(
        lambda: is_told_to_open(slow) and len(controller.nodes()) == 2,
        DEADLINE_S,
        "both have joined",
    )
    cluster.goes("node-b")
    controller._watch_once()
    assert controller.nodes() == {"node-a": None}
    cluster.topic("b", "dir-b")
    again.answers["found"] = [found(cluster.topics["b"])]
    cluster.comes("node-c", again)
    controller._watch_once()
    wait_for(lambda: is_told_to_open(again), DEADLINE_S, "its partition is opened")
    again.opened()
    wait_for(lambda: serves(cluster, "b"), DEADLINE_S, "it serves")
    for _ in range(3):
        controller._watch_once()
    assert len(slow.asked("open_partition")) == 1, "what is being opened is not lost"
    slow.opened()
    wait_for(lambda: serves(cluster, "a"), DEADLINE_S, "the slow one serves")


def test_a_node_that_does_not_answer_when_it_joins_holds_up_nobody(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, reached, go_on = Manager("dir-old"), threading.Event(), threading.Event()
    controller = cluster.controller
    look = type(controller)._look_through

    def held(self: object, node: object, manager: LogManagerStub) -> object:
        if manager.handle is hangs:
            reached.set()
            assert go_on.wait(DEADLINE_S)
        return look(self, node, manager)  # type: ignore[arg-type]

    monkeypatch.setattr(type(controller), "_look_through", held)
    controller._open_metadata()
    cluster.comes("node-a", hangs)
    cluster.comes("node-b", Manager("dir-b"))
    controller._watch_once()
    assert reached.wait(DEADLINE_S)
    wait_for(lambda: controller.nodes() == {"node-b": None}, DEADLINE_S, "the other has joined")
    cluster.goes("node-a")
    controller._watch_once()
    cluster.comes("node-a", Manager("dir-a"))
    controller._watch_once()
    wait_for(lambda: "node-a" in controller.nodes(), DEADLINE_S, "it has joined in its next life")
    go_on.set()
    controller._jobs.wait()
    assert controller.nodes() == {"node-a": None, "node-b": None}, (
        "the end of its last life changes nothing"
    )
    assert sorted(controller._placement.node_of) == ["dir-a", "dir-b"]
    assert log_manager_name("node-a") in cluster.actors


def test_a_node_that_cannot_join_tells_why_until_it_has_and_is_asked_less_and_less_often(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = Manager("dir-a"), Manager("dir-a")
    bad.answers["start"] = InvalidLogDir("/disk", "is a file")
    controller, now_s = cluster.controller, 0.0
    monkeypatch.setattr(controller._joins, "_clock", lambda: now_s)
    controller._open_metadata()
    cluster.comes("node-a", bad, bad, good)
    for seconds in (0.0, 0.5, 1.0, 1.5, 2.5):
        now_s = seconds
        controller._watch_once()
        controller._jobs.wait()
        assert "is a file" in str(controller.nodes()["node-a"])
        assert log_manager_name("node-a") not in cluster.actors
    assert len(bad.asked("start")) == 2
    now_s = 3.0
    controller._watch_once()
    controller._jobs.wait()
    assert controller.nodes() == {"node-a": None}
    controller._watch_once()
    assert controller.nodes() == {"node-a": None}


def test_a_partition_that_cannot_be_opened_is_tried_again_later_each_time(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, now_s = Manager("dir-a", found(cluster.topic("a", "dir-a"))), 0
    manager.answers["open_partition"] = StorageError("/disk", "I/O error")
    controller = cluster.controller
    monkeypatch.setattr(controller._placement._openings, "_clock", lambda: now_s)
    controller._open_metadata()
    cluster.comes("node-a", manager)
    tries = []
    for seconds in range(200):
        now_s = seconds
        controller._watch_once()
        controller._jobs.wait()
        tries.append(len(manager.asked("open_partition")))
    assert [now_s for now_s in range(1, 200) if tries[now_s] > tries[now_s - 1]] == [
        1,
        3,
        7,
        15,
        31,
        63,
        123,
        183,
    ]
    del manager.answers["open_partition"]
    cluster.goes("node-a")
    controller._watch_once()
    cluster.comes("node-a", manager)
    controller._watch_once()
    wait_for(
        lambda: is_told_to_open(manager), DEADLINE_S, "it is opened at once where its node is back"
    )
    manager.opened()
    controller._jobs.wait()


def test_a_killed_actor_is_opened_once_by_the_next_looks(cluster: Cluster) -> None:
    manager, controller = being_opened(cluster), cluster.controller
    manager.opened()
    controller._jobs.wait()
    assert serves(cluster, "a")
    cluster.actors.remove(log_actor_name(TopicPartition("a", 0)))
    for _ in range(2):
        controller._watch_once()
    wait_for(lambda: is_told_to_open(manager), DEADLINE_S, "it is opened again")
    assert len(manager.asked("open_partition")) == 2
    manager.opened()
    controller._jobs.wait()
    controller._watch_once()
    assert len(manager.asked("open_partition")) == 2


def test_a_stop_while_nodes_join_leaves_no_thread_and_no_claim(cluster: Cluster) -> None:
    manager, controller = being_opened(cluster), cluster.controller
    [(_, call)] = manager.opening
    call.set_exception(NotLeader("a-0", "its actor died"))  # as calls end whose actor is killed
    assert controller.shutdown()
    assert controller._jobs._running() == []
    assert controller._claimed == {}


def test_partitions_that_hang_cost_the_time_of_one(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = Manager(
        "dir-a",
        *(found(cluster.topic("a", "dir-a", "dir-a", "dir-a"), number) for number in range(3)),
    )
    manager.answers["open_partition"] = Placed("node-a", "dir-a", "/dir-a/a")
    waited_s: list[float] = []

    def nobody_answers(
        calls: list[object], num_returns: int, timeout: float
    ) -> tuple[list[object], list[object]]:
        waited_s.append(timeout)
        return [], calls

    controller = cluster.controller
    controller._open_metadata()
    cluster.comes("node-a", manager)
    controller._watch_once()
    controller._jobs.wait()
    cluster.topics["a"] = cluster.topics["a"]._replace(version=1)
    monkeypatch.setattr("ray.wait", nobody_answers)
    controller._configure()
    assert len(manager.asked("reconfigure")) == 3
    assert sum(waited_s) == controller_state.PATIENCE_S > CALL_TIMEOUT_S
    assert len(controller._placement.outdated(controller._wanted())) == 3, "they are told again"


def test_what_answers_late_does_not_make_others_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """One answer each 25 seconds: nobody hangs."""
    timeline = Timeline(monkeypatch)
    seconds = {"a": 25, "b": 50, "c": 75}
    calls = {name: Call[str](timeline.ends_at(at, name), "it") for name, at in seconds.items()}
    assert controller_state.gather_patiently(calls).answers == {"a": "a", "b": "b", "c": "c"}
    assert timeline.now_s == 75


def test_an_error_without_a_name_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    futures_are_references(monkeypatch)
    fault, error = KeyError("a fault"), NotLeader("a", "it died")
    calls = {"a": Call[int](future_of(error), "a"), "b": Call[int](future_of(fault), "b")}
    with pytest.raises(KeyError):
        controller_state.gather_patiently(calls)
    del calls["b"]
    assert controller_state.gather_patiently(calls).errors == {"a": error}
    with pytest.raises(NotLeader):
        controller_state.all_answers(calls)


def test_a_log_manager_that_was_started_again_is_told_what_to_open(cluster: Cluster) -> None:
    first, again = (Manager("dir-a", found(cluster.topic("a", "dir-a"))) for _ in range(2))
    controller = cluster.controller
    controller._open_metadata()
    cluster.comes("node-a", first, again)
    controller._watch_once()
    wait_for(lambda: is_told_to_open(first), DEADLINE_S, "it is opened")
    first.answers["state"] = NodeState("life-2", ())
    controller._watch_once()
    wait_for(
        lambda: is_told_to_open(again),
        60,
        "its next life opens it, though the last has not answered",
    )
    again.opened()
    wait_for(lambda: serves(cluster, "a"), DEADLINE_S, "it serves")
    first.opened()
    controller._jobs.wait()
    assert serves(cluster, "a")


def test_a_topic_waits_for_a_log_manager_that_is_started_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was refused: no LogManager was running on any node, for half a second."""
    being_opened(cluster).opened()
    wait_for(lambda: serves(cluster, "a"), DEADLINE_S, "it serves")
    node_of, waits = cluster.controller._placement.node_of, 0

    def comes_back(_: float) -> bool:
        nonlocal waits
        waits += 1
        cluster.controller._placement.node_of = node_of
        return False

    cluster.controller._placement.node_of = {}
    monkeypatch.setattr(cluster.controller._stopped, "wait", comes_back)
    made = cluster.controller.create_topic("b", 1, {}, validate_only=True)
    assert (made.name, waits) == ("b", 1)


def asked_for_their_state(cluster: Cluster, **states: Any) -> None:
    """These nodes have joined. ``states``: node -> the call that its LogManager answers with."""
    controller = cluster.controller
    for key, call in states.items():
        answers = iter(call)
        handle = SimpleNamespace(
            state=SimpleNamespace(remote=lambda _, answers=answers: next(answers))
        )
        controller._managers[key] = LogManagerStub(handle, key)
        controller._lives[key] = "life-1"


SAME, ANOTHER = NodeState("life-1", ()), NodeState("life-2", ())


def test_the_watch_waits_for_every_log_manager_until_its_time_is_up_not_for_the_first(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeline = Timeline(monkeypatch)
    quick, slow = timeline.ends_at(0.5, ANOTHER), timeline.ends_at(1.5, ANOTHER)
    late = timeline.ends_at(3, ANOTHER)
    again = future_of(SAME)
    asked_for_their_state(cluster, quick=[quick, again], slow=[slow, again], late=[late])
    assert cluster.controller._begun_again() == {"quick", "slow"}
    assert timeline.now_s == 2
    assert cluster.controller._begun_again() == {"late"}, "it is not asked a second time"


def test_an_error_without_a_name_stops_one_look_of_the_watch_not_all(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeline = Timeline(monkeypatch)
    states = [timeline.ends_at(1, KeyError("a bug")), timeline.ends_at(2, SAME)]
    others = [timeline.ends_at(1, ANOTHER), timeline.ends_at(2, ANOTHER)]
    asked_for_their_state(cluster, faulty=states, other=others)
    with pytest.raises(KeyError):
        cluster.controller._begun_again()
    assert cluster.controller._begun_again() == {"other"}
