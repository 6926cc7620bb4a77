"""Log dirs that a config adds: refused where a node could not begin with them."""

import pytest

from raylog.actors.node.broker_config import BrokerConfig
from raylog.cluster.controller.added_dirs import added, check_usable
from raylog.cluster.controller.copies import SurveyedDir
from raylog.storage.errors import InvalidConfig

NODE = "0" * 56


def config(*log_dirs: str) -> BrokerConfig:
    return BrokerConfig.parse({"log.dirs": list(log_dirs)})


def test_only_what_comes_behind_the_list_is_added() -> None:
    assert added(config("/a"), config("/a", "/b")) == ("/b",)
    assert added(config("/a"), config("/a")) == ()
    assert added(config("/a", "/b"), config("/a")) == ()
    assert added(config("/a"), config("/b", "/a")) == ()


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (SurveyedDir(node_id=NODE, path="/b", problem="it is a file"), "it is a file"),
        (SurveyedDir(node_id=NODE, path="/b", is_locked=True), "another process uses it"),
        (SurveyedDir(node_id=NODE, path="/b", cluster_id="other"), "belongs to the cluster other"),
    ],
)
def test_what_a_node_cannot_begin_with_is_refused_with_its_reason(
    entry: SurveyedDir, why: str
) -> None:
    with pytest.raises(InvalidConfig, match=f"/b of node 00000000: .*{why}.*nothing was changed"):
        check_usable(["/b"], [entry], "own", set())


def test_a_new_folder_and_one_of_this_cluster_can_be_used() -> None:
    new = SurveyedDir(node_id=NODE, path="/b")
    own = SurveyedDir(node_id="1" * 56, path="/b", cluster_id="own")
    check_usable(["/b"], [new, own], "own", set())


def test_the_log_dirs_of_before_are_not_judged() -> None:
    check_usable(["/b"], [SurveyedDir(node_id=NODE, path="/a", is_locked=True)], "own", set())


def test_a_path_that_the_node_uses_already_is_not_judged() -> None:
    used = SurveyedDir(node_id=NODE, path="/b", is_locked=True)
    check_usable(["/b"], [used], "own", {(NODE, "/b")})
