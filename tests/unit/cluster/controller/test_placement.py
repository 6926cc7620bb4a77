"""The map of partitions: what to open, what is missing, what to open again."""

from collections import Counter
from collections.abc import Callable

import pytest

from raylog.actors.errors import NotLeader, UnknownTopicOrPartition
from raylog.actors.messages import Found, Placed
from raylog.actors.runtime.names import Node
from raylog.cluster.controller.metadata import Topic
from raylog.cluster.controller.placement import Placement, Wanted, members, wanted_of
from raylog.storage.errors import LogMissing, StorageError, TopicIdUnreadable
from raylog.storage.names import TopicPartition

TOPIC = Topic("t", "id-t", {}, ("dir-a", "dir-b"))
WANTED = wanted_of([TOPIC])
ON_A, ON_B = WANTED
ACTORS = {"Log:t-0", "Log:t-1"}


def found(one: Wanted, topic_id: str = "id-t") -> Found:
    return Found(one.partition, topic_id, one.directory_id)


def place(one: Wanted, node_id: str) -> Placed:
    return Placed(node_id, one.directory_id, f"/{one.partition}")


def join(placement: Placement, node_id: str, one: Wanted, *entries: Found) -> list[Wanted]:
    return placement.joined(node_id, {one.directory_id: "/disk"}, entries, WANTED)


def both_open(clock: Callable[[], float] = float) -> Placement:
    placement = Placement(clock)
    for node_id, one in (("node-1", ON_A), ("node-2", ON_B)):
        join(placement, node_id, one, found(one))
        placement.opened(one.partition, place(one, node_id))
    return placement


def test_a_joining_node_opens_what_lies_on_its_disks_and_belongs_to_a_topic() -> None:
    stray = Found(TopicPartition("other", 0), "id-o", "dir-a")
    assert join(Placement(), "node-1", ON_A, found(ON_A), stray) == [ON_A]


def test_a_folder_of_an_older_topic_of_the_same_name_is_missing_data() -> None:
    placement = Placement()
    assert join(placement, "node-1", ON_A, found(ON_A, "id-old")) == []
    assert isinstance(placement.explain(TOPIC, 0), LogMissing)


def test_a_folder_that_does_not_say_whose_it_is_stays_and_its_owner_is_told_how_to_say_it() -> None:
    now_s = 0.0
    placement = Placement(lambda: now_s)
    unread = Found(ON_A.partition, None, ON_A.directory_id)
    assert join(placement, "node-1", ON_A, unread) == []
    assert isinstance(placement.explain(TOPIC, 0), TopicIdUnreadable)
    description = placement.describe(TOPIC).partitions[0]
    assert "/disk/t-0/partition.metadata is missing or damaged" in (description.problem or "")
    assert "topic_id: id-t" in (description.todo or "")
    assert "delete the topic" not in f"{description.problem} {description.todo}"
    now_s = 1000.0
    assert placement.lost(WANTED, set()) == [ON_A], "it opens when the file is back"


def test_a_problem_and_what_to_do_about_it_are_told_apart() -> None:
    placement = both_open()
    placement.failed(ON_A.partition, LogMissing("/disk/t-0", "it has no .log file"))
    description = placement.describe(TOPIC).partitions[0]
    assert description.problem == "/disk/t-0: it has no .log file"
    assert (description.todo or "").startswith("mount its disk, or ")


def test_a_missing_log_is_not_looked_for_again_until_its_node_joins_with_its_folder() -> None:
    placement = Placement()
    join(placement, "node-1", ON_A)
    assert isinstance(placement.explain(TOPIC, 0), LogMissing)
    assert "does not exist" in (placement.describe(TOPIC).partitions[0].problem or "")
    assert placement.lost(WANTED, set()) == []
    placement.left("node-1")
    assert isinstance(placement.explain(TOPIC, 0), NotLeader)
    assert join(placement, "node-2", ON_A, found(ON_A)) == [ON_A]
    assert placement.lost(WANTED, set()) == [ON_A]
    placement.opened(ON_A.partition, place(ON_A, "node-2"))
    assert placement.explain(TOPIC, 0) is None


def test_a_node_that_left_takes_its_partitions_along_and_no_others() -> None:
    placement = both_open()
    placement.left("node-2")
    assert placement.explain(TOPIC, 0) is None
    assert "dir-b is away" in str(placement.explain(TOPIC, 1))
    assert [one.node_id for one in placement.describe(TOPIC).partitions] == ["node-1", None]
    assert placement.lost(WANTED, set()) == [ON_A]


def test_lost_is_what_has_no_actor_or_could_not_be_opened() -> None:
    now_s = 0
    placement = both_open(lambda: now_s)
    assert placement.lost(WANTED, ACTORS) == []
    assert placement.lost(WANTED, {"Log:t-0"}) == [ON_B]
    placement.failed(ON_A.partition, StorageError("/disk", "I/O error"))
    assert placement.lost(WANTED, ACTORS) == [], "a try costs a process"
    now_s = 1
    assert placement.lost(WANTED, ACTORS) == [ON_A]
    assert "I/O error" in str(placement.explain(TOPIC, 0))
    placement.opened(ON_A.partition, place(ON_A, "node-1"))
    assert placement.lost(WANTED, ACTORS) == []


def test_what_failed_is_tried_at_once_where_it_was_opened_since_or_its_node_has_joined_again() -> (
    None
):
    placement = both_open()  # where no time passes
    for _ in range(2):
        placement.failed(ON_A.partition, StorageError("/disk", "I/O error"))
        placement.failed(ON_B.partition, StorageError("/disk", "I/O error"))
    placement.opened(ON_A.partition, place(ON_A, "node-1"))
    assert placement.lost(WANTED, {"Log:t-1"}) == [ON_A]
    placement.left("node-2")
    assert join(placement, "node-2", ON_B, found(ON_B)) == [ON_B]
    assert placement.lost(WANTED, ACTORS) == [ON_B]
    placement.failed(ON_B.partition, StorageError("/disk", "I/O error"))
    placement.forget(TOPIC)
    assert placement.lost(WANTED, set()) == [ON_A, ON_B]


def test_a_partition_is_outdated_until_it_obeys_its_topics_config_of_now() -> None:
    placement, altered = both_open(), TOPIC._replace(version=2)
    assert placement.outdated(WANTED) == []
    assert placement.outdated(wanted_of([altered])) == wanted_of([altered])
    placement.configured(ON_A.partition, altered.version)
    assert [one.partition for one in placement.outdated(wanted_of([altered]))] == [ON_B.partition]
    placement.configured(ON_A.partition, 1)  # an answer that comes late
    placement.left("node-2")  # it is told when it is opened again
    assert placement.outdated(wanted_of([altered])) == []
    join(placement, "node-2", ON_B, found(ON_B))
    placement.opened(ON_B.partition, place(ON_B, "node-2"), altered.version)
    assert placement.outdated(wanted_of([altered])) == []


def test_a_deleted_topic_leaves_no_trace() -> None:
    placement = both_open()
    placement.forget(TOPIC)
    assert placement.outdated(wanted_of([TOPIC._replace(version=1)])) == []
    assert "being opened" in str(placement.explain(TOPIC, 0))


# -- where new partitions go -----------------------------------------------------------------------


def topic_on(*directories: str) -> list[Wanted]:
    return wanted_of([Topic("u", "id-u", {}, directories)])


def with_dirs(**nodes: list[str]) -> Placement:
    placement = Placement()
    for node, directories in nodes.items():
        placement.joined(node, dict.fromkeys(directories, "/disk"), (), ())
    return placement


def test_new_partitions_go_where_the_fewest_are() -> None:
    placement = both_open()
    assert placement.spread(4, WANTED) == ["node-1", "node-2", "node-1", "node-2"]
    assert placement.spread(3, topic_on("dir-b")) == ["node-1", "node-1", "node-2"]


def test_a_node_that_joins_later_is_filled_up_first() -> None:
    placement = with_dirs(a=["a-1", "a-2"], b=["b-1"])
    wanted = topic_on(*placement_dirs(placement.spread(6, ())))
    assert Counter(placement.node_of[one.directory_id] for one in wanted) == {"a": 3, "b": 3}
    placement.joined("c", {"c-1": "/disk"}, (), ())
    assert placement.spread(5, wanted) == ["c", "c", "c", "a", "b"]


def placement_dirs(nodes: list[str]) -> list[str]:
    return [f"{node}-1" for node in nodes]


def test_partitions_that_do_not_serve_count_and_those_that_are_being_made() -> None:
    placement = with_dirs(a=["a-1"], b=["b-1"])
    assert placement.spread(2, topic_on("a-1", "a-1")) == ["b", "b"]
    assert placement.spread(2, (), being_made=["a", "a", "gone"]) == ["b", "b"]


def test_a_node_that_is_away_gets_none_and_its_partitions_do_not_count() -> None:
    placement = with_dirs(a=["a-1"], b=["b-1"])
    placement.left("b")
    assert placement.spread(2, topic_on("b-1", "b-1")) == ["a", "a"]


def test_a_log_dir_that_another_node_has_brought_is_foreign() -> None:
    placement = with_dirs(a=["one", "two"])
    assert placement.foreign("b", {"two": "/copy", "three": "/own"}) == ["/copy"]
    assert placement.foreign("a", {"one": "/disk", "two": "/disk"}) == []


# -- nodes -----------------------------------------------------------------------------------------

PLAIN, OTHER = Node("id-1"), Node("id-2")
FIRST, SECOND = Node("id-3", "disk", is_alone=False), Node("id-4", "disk", is_alone=False)


def test_nodes_are_known_by_their_label_or_their_id() -> None:
    labelled = Node("id-3", "disk")
    assert members([PLAIN, OTHER, labelled], {}) == (
        {"id-1": PLAIN, "id-2": OTHER, "disk": labelled},
        {},
    )


@pytest.mark.parametrize(
    ("in_use", "chosen", "refused"),
    [({}, FIRST, SECOND), ({"disk": SECOND}, SECOND, FIRST), ({"disk": FIRST}, FIRST, SECOND)],
)
def test_of_two_nodes_with_one_label_the_second_takes_no_part(
    in_use: dict[str, Node], chosen: Node, refused: Node
) -> None:
    found, problems = members([PLAIN, FIRST, SECOND], in_use)
    assert found == {"id-1": PLAIN, "disk": chosen}
    assert list(problems) == [refused.node_id]
    assert "its own label" in problems[refused.node_id]


def test_a_partition_that_is_not_there_is_named() -> None:
    for number in (2, -1, "0"):
        assert isinstance(both_open().explain(TOPIC, number), UnknownTopicOrPartition)
