"""Metadata that is made anew from the folders of the log dirs."""

from dataclasses import replace

import pytest

from raylog.actors.control import LogId
from raylog.actors.errors import InvalidRequest, SeveralClusters, UnsupportedLevel
from raylog.actors.levels import Levels
from raylog.actors.metadata_history import ERA_EPOCHS
from raylog.cluster.controller.desired import VERSION_SHIFT, Desired
from raylog.cluster.controller.rebuilding import FoundDir, FoundFolder, Rebuilt, rebuilt
from raylog.cluster.controller.records import decode, encode
from raylog.storage.config import LogConfig
from raylog.storage.names import TopicPartition


def folder(name: str, topic_id: str | None = None) -> FoundFolder:
    topic, _, number = name.rpartition("-")
    return FoundFolder(
        partition=TopicPartition(topic, int(number)), topic_id=topic_id or f"id-{topic}"
    )


def log_dir(node: str, *names: str, epoch: int = 3) -> FoundDir:
    return FoundDir(
        node=node,
        node_id=f"ray-{node}",
        path=f"/{node}",
        cluster_id="cluster-1",
        directory_id=f"dir-{node}",
        obeyed_epoch=epoch,
        folders=tuple(map(folder, names)),
    )


def fold(made: Rebuilt) -> Desired:
    desired = Desired()
    for record in made.records:
        desired.apply(record)
    desired.validate()
    return desired


def test_topics_partitions_and_their_log_dirs_are_known_again() -> None:
    dirs = [log_dir("a", "t-0", "u-0"), log_dir("b", "t-1", epoch=7)]
    made = rebuilt(dirs, "ray-b")
    desired = fold(made)
    assert (made.topics, made.partitions, made.made) == (2, 3, ())
    assert (desired.cluster_id, desired.controller_epoch) == ("cluster-1", ERA_EPOCHS)
    places = {str(log.partition): record for log, record in desired.partitions.items()}
    assert {name: record.directory for name, record in places.items()} == {
        "t-0": "dir-a",
        "t-1": "dir-b",
        "u-0": "dir-a",
    }
    assert all(record.state == "online" for record in places.values())
    topic = desired.topic_named("t")
    assert topic is not None
    assert topic.topic_id == "id-t"
    config = LogConfig.parse(topic.config, LogConfig(retention_ms=1000, retention_bytes=1))
    assert (config.retention_ms, config.retention_bytes) == (-1, -1), "nothing is removed"
    assert topic.version == ERA_EPOCHS << VERSION_SHIFT, "higher than any that was obeyed"
    assert set(desired.dirs) == {"dir-a", "dir-b"}


def test_it_goes_to_the_node_that_asks_and_is_the_only_copy() -> None:
    dirs = [log_dir("a", "t-0"), log_dir("b")]
    for own, target in (("ray-b", "b"), ("ray-x", "a")):
        made = rebuilt(dirs, own)
        assert made.target.node == target
        assert fold(made).copy_dirs == (f"dir-{target}",)


def test_a_log_dir_that_belongs_to_nobody_does_not_matter() -> None:
    made = rebuilt([FoundDir(node="x", node_id="ray-x", path="/x"), log_dir("a", "t-0")], "ray-x")
    assert made.target.node == "a"


def test_partitions_that_are_missing_are_named_and_begin_empty_only_by_an_explicit_word() -> None:
    dirs = [log_dir("a", "t-1", "t-3")]
    with pytest.raises(InvalidRequest, match=r"'t-0, t-2' are not in any log dir.*--make-missing"):
        rebuilt(dirs, "ray-a")
    made = rebuilt(dirs, "ray-a", make_missing=True)
    assert made.made == (TopicPartition("t", 0), TopicPartition("t", 2))
    assert made.partitions == 4
    log = LogId(partition=TopicPartition("t", 2), topic_id="id-t")
    record = fold(made).partitions[log]
    assert (record.state, record.node, record.directory) == ("creating", "a", None)


@pytest.mark.parametrize(
    ("one", "other", "what"),
    [
        (folder("t-0"), folder("t-0"), "the same partition"),
        (folder("t-0"), folder("t-0", "id-other"), "two topics of one name"),
        (folder("t-0"), folder("t-1", "id-other"), "two topics of one name"),
    ],
)
def test_folders_of_which_nobody_knows_which_one_counts_are_refused_and_both_are_named(
    one: FoundFolder, other: FoundFolder, what: str
) -> None:
    dirs = [replace(log_dir("a"), folders=(one,)), replace(log_dir("b"), folders=(other,))]
    with pytest.raises(InvalidRequest, match=f"/a/t-0 of node a, /b/t-. of node b.* {what}"):
        rebuilt(dirs, "ray-a")


def test_what_cannot_be_read_is_refused_since_it_may_have_partitions() -> None:
    with pytest.raises(InvalidRequest, match=r"/b of node b.*EIO"):
        rebuilt([log_dir("a", "t-0"), replace(log_dir("b"), problem="EIO")], "ray-a")
    nameless = replace(log_dir("a"), folders=(replace(folder("t-0"), topic_id=None),))
    with pytest.raises(InvalidRequest, match=r"/a/t-0 .*partition\.metadata"):
        rebuilt([nameless], "ray-a")
    with pytest.raises(InvalidRequest, match=r"/a/t-0 .*meta\.properties"):
        rebuilt([replace(log_dir("a", "t-0"), directory_id=None, cluster_id=None)], "ray-a")
    with pytest.raises(InvalidRequest, match=r"/x of node x.*do not belong to a cluster"):
        rebuilt([FoundDir(node="x", node_id="ray-x", path="/x")], "ray-x")


def test_a_node_that_has_not_all_of_its_log_dirs_is_refused_since_a_disk_may_not_be_mounted() -> (
    None
):
    own = log_dir("a", "t-0")
    away = FoundDir(node="a", node_id="ray-a", path="/mnt/a2")
    with pytest.raises(InvalidRequest, match=r"/mnt/a2 of node a.*mounted"):
        rebuilt([own, away], "ray-a")


def test_a_node_without_a_log_dir_of_the_cluster_is_named() -> None:
    """Its disks may all be away, or it is new."""
    other = FoundDir(node="b", node_id="ray-b", path="/a")
    assert rebuilt([log_dir("a", "t-0"), other], "ray-a").without == ("b",)
    assert rebuilt([log_dir("a", "t-0")], "ray-a").without == ()


def test_log_dirs_of_two_clusters_are_refused() -> None:
    with pytest.raises(SeveralClusters, match=r"cluster-1 in /a.*cluster-2 in /b"):
        rebuilt([log_dir("a", "t-0"), replace(log_dir("b"), cluster_id="cluster-2")], "ray-a")


def test_what_is_made_anew_is_of_the_newest_level_since_nobody_knows_the_one_that_it_had() -> None:
    old, new = Levels(1, 1), Levels(1, 2)
    made = rebuilt([log_dir("a", "t-0")], "ray-a", levels=new)
    assert fold(made).level == 2
    first, second = made.records[:2]
    assert decode(encode(first), old) == first
    with pytest.raises(UnsupportedLevel):  # before anything else that it may not know
        decode(encode(second), old)
    assert fold(rebuilt([log_dir("a", "t-0")], "ray-a", levels=old)).level == 1
