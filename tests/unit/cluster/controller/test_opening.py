"""What the Controller has opened: what the metadata wants then, by one at a time; no Ray."""

from collections import Counter
from typing import Any

import pytest

from raylog.actors.errors import NotLeader
from raylog.actors.messages import Found, Placed
from raylog.actors.runtime.calls import Call
from raylog.cluster.controller.controller_actor import ControllerImpl
from raylog.cluster.controller.placement import Wanted, wanted_of
from raylog.storage.errors import RaylogError, StorageError
from raylog.storage.names import TopicPartition
from tests.harness.futures import future_of
from tests.unit.cluster.controller.controllers import Cluster, Manager


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster(monkeypatch)
    made.controller._open_metadata()
    made.topic("t", "dir-a", "dir-a")
    return made


def bring(cluster: Cluster, manager: Manager, *directories: str) -> Manager:
    """A node with these log dirs is there."""
    controller = cluster.controller
    controller._managers["node"] = manager.stub()
    controller._placement.joined("node", dict.fromkeys(directories or ("dir-a",), "/disk"), (), ())
    return manager


def wanted(cluster: Cluster) -> list[Wanted]:
    return wanted_of(cluster.topics.values())


def move(cluster: Cluster, directory_id: str) -> None:
    """A move of t-0 is committed."""
    topic = cluster.topics["t"]
    cluster.topics["t"] = topic._replace(
        directories=(directory_id, *topic.directories[1:]), version=3
    )


def asked(manager: Manager) -> list[tuple[int, str]]:
    """Partition and log dir of each that it was told to open."""
    return [(arguments[0].partition, arguments[4]) for arguments in manager.asked("open_partition")]


def explained(controller: ControllerImpl) -> list[str]:
    return [str(controller.explain("t", number)) for number in (0, 1)]


def test_what_was_wanted_before_a_move_was_committed_is_not_opened_where_it_was(
    cluster: Cluster,
) -> None:
    manager, before = bring(cluster, Manager("dir-a"), "dir-a", "dir-b"), wanted(cluster)
    move(cluster, "dir-b")
    controller = cluster.controller
    assert [claim.wanted.partition.partition for claim in controller._claim(before)] == [1]
    assert [claim.wanted.directory_id for claim in controller._claim(wanted(cluster))] == ["dir-b"]
    assert asked(manager) == []


def test_what_waits_for_its_turn_while_it_is_moved_or_deleted_is_not_opened_at_all(
    cluster: Cluster,
) -> None:
    manager = bring(cluster, Manager("dir-a"), "dir-a", "dir-b")
    cluster.topic("gone", "dir-a")
    controller = cluster.controller
    claims = controller._claim(wanted(cluster))
    move(cluster, "dir-b")
    del cluster.topics["gone"]
    begun = controller._begin(claims)
    assert asked(manager) == [(1, "dir-a")]
    assert [claim.wanted.topic.version for claim in begun.values()] == [3], "with the config of now"
    assert [argument[3] for argument in manager.asked("open_partition")] == [3]
    assert len(controller._claim(wanted(cluster))) == 1, "what was not opened is free again"


def test_an_answer_of_before_a_move_says_nothing_of_the_partition(cluster: Cluster) -> None:
    manager = bring(cluster, Manager("dir-a"), "dir-a", "dir-b")
    manager.answers["open_partition"] = StorageError("/disk", "it was closed")
    controller = cluster.controller
    [claim, _] = controller._claim(wanted(cluster))
    move(cluster, "dir-b")
    controller._record_opening(claim, StorageError("/disk", "it was closed"))
    assert "being opened" in explained(controller)[0]


def test_a_config_that_the_brokers_own_does_not_allow_any_more_keeps_no_other_closed(
    cluster: Cluster,
) -> None:
    manager = bring(cluster, Manager("dir-a"))
    manager.answers["open_partition"] = Placed("node", "dir-a", "/dir-a/t")
    good = cluster.topics.pop("t")
    cluster.topics["bad"] = cluster.topic("bad", "dir-a")._replace(config={"retention.ms": "soon"})
    cluster.topics["t"] = good
    controller = cluster.controller
    claims = controller._claim(wanted(cluster))
    controller._open(claims)
    assert "retention.ms" in str(controller.explain("bad", 0))
    assert explained(controller) == ["None", "None"]
    assert len(asked(manager)) == 2


def test_a_claim_on_a_topic_that_is_gone_does_not_count_for_its_successor(cluster: Cluster) -> None:
    bring(cluster, Manager("dir-a"))
    controller = cluster.controller
    assert len(controller._claim(wanted(cluster))) == 2
    cluster.topics["t"] = cluster.topics["t"]._replace(topic_id="its successor's")
    assert len(controller._claim(wanted(cluster))) == 2


def test_a_folder_is_no_stray_while_it_is_wanted_or_its_topic_is_made_or_it_is_moved(
    cluster: Cluster,
) -> None:
    controller = cluster.controller
    wanted_, old, made, moved = (
        Found(TopicPartition("t", 0), "id-t", "dir-a"),
        Found(TopicPartition("t", 0), "id-t", "dir-b"),
        Found(TopicPartition("new", 0), "id-new", "dir-a"),
        Found(TopicPartition("moved", 0), "id-moved", "dir-b"),
    )
    controller._reserved |= {"t": "deleted", "new": "created", "moved": "moved"}
    controller._topics_being_made.add("id-new")
    controller._moving[moved.partition] = "node"
    assert controller._strays("node", [wanted_, old, made, moved]) == {old}


def test_a_folder_that_does_not_say_whose_it_is_is_a_stray_only_where_no_topic_wants_one(
    cluster: Cluster,
) -> None:
    bring(cluster, Manager("dir-a"))
    bound = Found(wanted(cluster)[0].partition, None, wanted(cluster)[0].directory_id)
    elsewhere, unknown = (
        bound._replace(directory_id="dir-z"),
        bound._replace(partition=TopicPartition("unknown", 0)),
    )
    strays = cluster.controller._strays("node", [bound, elsewhere, unknown])
    assert strays == {elsewhere, unknown}


def test_a_partition_is_opened_by_one_at_a_time_and_not_moved_meanwhile(cluster: Cluster) -> None:
    manager = bring(cluster, Manager("dir-a"))
    manager.answers["start"] = {"dir-a": "/a", "dir-b": "/b"}
    controller = cluster.controller
    claims = controller._claim(wanted(cluster))
    assert controller._claim(wanted(cluster)) == []
    with pytest.raises(NotLeader, match="being opened"):
        controller.move_partition("t", 0, "/b")
    assert manager.asked("move_partition") == []
    manager.answers["open_partition"] = StorageError("/disk", "I/O error")
    controller._open(claims)
    assert len(controller._claim(wanted(cluster))) == 2


def test_a_node_that_left_and_came_back_is_told_anew_and_its_old_answers_count_for_nothing(
    cluster: Cluster,
) -> None:
    bring(cluster, Manager("dir-a"))
    controller = cluster.controller
    old = controller._claim(wanted(cluster))
    controller._leave("node")
    again = bring(cluster, Manager("dir-a"))
    new = controller._claim(wanted(cluster))
    assert [claim.manager.handle for claim in new] == [again, again]
    controller._open(old)
    assert asked(again) == []
    controller._record_opening(old[0], StorageError("/disk", "of its last life"))
    assert "being opened" in explained(controller)[0]
    assert controller._claim(wanted(cluster)) == [], "the claims of now hold"


def test_a_log_dir_that_went_offline_meanwhile_has_no_partition_opened(cluster: Cluster) -> None:
    manager = bring(cluster, Manager("dir-a"))
    controller = cluster.controller
    claims = controller._claim(wanted(cluster))
    del controller._placement.node_of["dir-a"]
    controller._open(claims)
    assert asked(manager) == []


@pytest.mark.parametrize(
    ("answer", "says"),
    [(StorageError("/disk", "I/O error"), "I/O error"), (ValueError("a fault"), "a fault")],
)
def test_what_one_partition_fails_with_is_told_and_holds_up_no_other(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, answer: BaseException, says: str
) -> None:
    manager = bring(cluster, Manager("dir-a"))
    controller = cluster.controller
    opening = controller._opening

    def one_fails(told: Any, partition: TopicPartition, *rest: Any) -> Any:
        call = opening(told, partition, *rest)
        if partition.partition == 0:
            call.reference.set_exception(answer)
            manager.opening.pop()
        else:
            manager.opened()
        return call

    monkeypatch.setattr(controller, "_opening", one_fails)
    controller._open(controller._claim(wanted(cluster)))
    assert says in explained(controller)[0]
    assert explained(controller)[1] == "None"


def test_of_a_log_dir_no_more_are_opened_at_once_than_it_opens_at_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring(cluster, Manager("dir-a"), "dir-a", "dir-b")
    cluster.topic("t", *["dir-a"] * 5, "dir-b")
    controller, opening, most = cluster.controller, Counter[str](), Counter[str]()
    at_once = controller._config.num_recovery_threads_per_data_dir

    def counted(_: Any, __: Any, ___: Any, directory_id: str) -> Any:
        opening[directory_id] += 1
        most[directory_id] = max(most[directory_id], opening[directory_id])
        return Call(future_of(None), "it")

    monkeypatch.setattr(controller, "_opening", counted)
    for claim, _ in controller._in_turns(controller._claim(wanted(cluster))):
        opening[claim.wanted.directory_id] -= 1
    assert most == {"dir-a": at_once, "dir-b": 1}


def test_no_error_of_raylogs_is_lost(cluster: Cluster) -> None:
    bring(cluster, Manager("dir-a"))
    controller = cluster.controller
    [claim, _] = controller._claim(wanted(cluster))
    error: RaylogError = StorageError("/disk", "I/O error")
    controller._record_opening(claim, error)
    assert controller.explain("t", 0) is error
