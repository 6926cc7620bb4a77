"""The map of partitions: what to open, what is a stray, what is missing, what to open again."""

from raylog.actors.messages import NotLeader, UnknownTopicOrPartition
from raylog.actors.node_dirs import Found, Placed
from raylog.cluster.metadata import Topic
from raylog.cluster.placement import Placement, Wanted, wanted_of
from raylog.storage.errors import LogMissing, StorageError
from raylog.storage.names import TopicPartition

TOPIC = Topic("t", "id-t", {}, ("dir-a", "dir-b"))
WANTED = wanted_of([TOPIC])
ON_A, ON_B = WANTED
ACTORS = {"Log:t-0", "Log:t-1"}


def found(one: Wanted, topic_id: str = "id-t") -> Found:
    return Found(one.partition, topic_id, one.directory_id)


def place(one: Wanted, node_id: str) -> Placed:
    return Placed(node_id, one.directory_id, f"/{one.partition}")


def join(
    placement: Placement, node_id: str, one: Wanted, *entries: Found
) -> tuple[list[Wanted], list[Found]]:
    return placement.joined(node_id, {one.directory_id: "/disk"}, entries, WANTED)


def both_open() -> Placement:
    placement = Placement()
    for node_id, one in (("node-1", ON_A), ("node-2", ON_B)):
        join(placement, node_id, one, found(one))
        placement.opened(one.partition, place(one, node_id))
    return placement


def test_a_joining_node_opens_what_lies_on_its_disks_and_belongs_to_a_topic() -> None:
    stray = Found(TopicPartition("other", 0), "id-o", "dir-a")
    assert join(Placement(), "node-1", ON_A, found(ON_A), stray) == ([ON_A], [stray])


def test_a_folder_of_an_older_topic_of_the_same_name_is_a_stray_elsewhere_and_missing_data_here() -> None:
    assert join(Placement(), "node-1", ON_A, Found(ON_B.partition, "id-old", "dir-a"), found(ON_A)) == (
        [ON_A],
        [Found(ON_B.partition, "id-old", "dir-a")],
    )
    placement = Placement()
    assert join(placement, "node-1", ON_A, found(ON_A, "id-old")) == ([], [])
    assert isinstance(placement.explain(TOPIC, 0), LogMissing)


def test_a_missing_log_is_not_looked_for_again_until_its_node_joins_with_its_folder() -> None:
    placement = Placement()
    join(placement, "node-1", ON_A)
    assert isinstance(placement.explain(TOPIC, 0), LogMissing)
    assert "gone" in (placement.describe(TOPIC).partitions[0].problem or "")
    assert placement.lost(WANTED, set()) == []
    placement.left("node-1")
    assert isinstance(placement.explain(TOPIC, 0), NotLeader)
    assert join(placement, "node-2", ON_A, found(ON_A)) == ([ON_A], [])
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
    placement = both_open()
    assert placement.lost(WANTED, ACTORS) == []
    assert placement.lost(WANTED, {"Log:t-0"}) == [ON_B]
    placement.failed(ON_A.partition, StorageError("/disk", "I/O error"))
    assert placement.lost(WANTED, ACTORS) == [ON_A]
    assert "I/O error" in str(placement.explain(TOPIC, 0))
    placement.opened(ON_A.partition, place(ON_A, "node-1"))
    assert placement.lost(WANTED, ACTORS) == []


def test_a_partition_is_outdated_until_it_obeys_its_topics_config_of_now() -> None:
    placement, altered = both_open(), TOPIC._replace(version=2)
    assert placement.outdated(WANTED) == []
    assert placement.outdated(wanted_of([altered])) == wanted_of([altered])
    placement.configured(ON_A.partition, altered)
    assert [one.partition for one in placement.outdated(wanted_of([altered]))] == [ON_B.partition]
    placement.configured(ON_A.partition, TOPIC._replace(version=1))  # an answer that comes late
    placement.left("node-2")  # it is told when it is opened again
    assert placement.outdated(wanted_of([altered])) == []
    join(placement, "node-2", ON_B, found(ON_B))
    placement.opened(ON_B.partition, place(ON_B, "node-2"), altered.version)
    assert placement.outdated(wanted_of([altered])) == []


def test_a_deleted_topic_leaves_no_trace() -> None:
    placement = both_open()
    placement.forget(TOPIC)
    assert placement.spread(2) == ["node-1", "node-2"]
    assert "being opened" in str(placement.explain(TOPIC, 0))


def test_new_partitions_go_where_the_fewest_are() -> None:
    placement = both_open()
    assert placement.spread(4) == ["node-1", "node-2", "node-1", "node-2"]
    placement.forget(Topic("t", "id-t", {}, ("dir-a",)))
    assert placement.spread(3) == ["node-1", "node-1", "node-2"]


def test_a_partition_that_is_not_there_is_named() -> None:
    for number in (2, -1, "0"):
        assert isinstance(both_open().explain(TOPIC, number), UnknownTopicOrPartition)
