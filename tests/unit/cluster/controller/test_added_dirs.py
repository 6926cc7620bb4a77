"""Log dirs that a config adds: refused where a node could not begin with them."""

from pathlib import Path

import pytest

from raylog.actors.errors import RequestTimedOut
from raylog.actors.node.broker_config import BrokerConfig
from raylog.cluster.controller.added_dirs import added, check_usable
from raylog.cluster.controller.copies import SurveyedDir
from raylog.cluster.controller.surveying import Surveyor
from raylog.storage.errors import DuplicateLogDir, InvalidConfig
from raylog.storage.files import RealFileSystem
from raylog.storage.testing.memory import MemoryFileSystem
from tests.unit.actors.node.disks import CLUSTER, A, B, Disks

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
        check_usable(["/b"], [entry], {}, "own", set())


def test_a_new_folder_and_one_of_this_cluster_can_be_used() -> None:
    new = SurveyedDir(node_id=NODE, path="/b")
    own = SurveyedDir(node_id="1" * 56, path="/b", cluster_id="own")
    check_usable(["/b"], [new, own], {}, "own", set())


def test_the_log_dirs_of_before_are_not_judged() -> None:
    check_usable(["/b"], [SurveyedDir(node_id=NODE, path="/a", is_locked=True)], {}, "own", set())


def test_a_path_that_the_node_uses_already_is_not_judged() -> None:
    used = SurveyedDir(node_id=NODE, path="/b", is_locked=True)
    check_usable(["/b"], [used], {}, "own", {(NODE, "/b")})


def test_a_copy_of_a_log_dir_is_refused_since_no_node_begins_with_both() -> None:
    fs = MemoryFileSystem()
    Disks(fs).start(A, B).work.let_go()
    fs.make_dir("/disk/copy")
    fs.write_file("/disk/copy/meta.properties", fs.read_file(f"{A}/meta.properties"))
    found = Surveyor(fs).survey(NODE, [A, B, "/disk/copy"], tries_locks=True)
    with pytest.raises(InvalidConfig, match=rf"/disk/copy of node .* the directory\.id of {A}"):
        check_usable(["/disk/copy"], found, {}, CLUSTER, {(NODE, A), (NODE, B)})
    with pytest.raises(DuplicateLogDir):
        Disks(fs).open([A, B, "/disk/copy"])


def test_a_copy_of_another_nodes_log_dir_is_refused() -> None:
    theirs = SurveyedDir(node_id="1" * 56, path="/a", cluster_id="own", directory_id="d1")
    copy = SurveyedDir(node_id=NODE, path="/b", cluster_id="own", directory_id="d1")
    with pytest.raises(InvalidConfig, match=r"/b of node 00000000: .*/a of node 11111111"):
        check_usable(["/b"], [theirs, copy], {}, "own", {("1" * 56, "/a")})


def test_one_folder_by_two_paths_is_refused(tmp_path: Path) -> None:
    folder, link = tmp_path / "folder", tmp_path / "link"
    folder.mkdir()
    link.symlink_to(folder)
    paths = [str(folder), str(link)]
    found = Surveyor(RealFileSystem()).survey(NODE, paths, tries_locks=True)
    with pytest.raises(InvalidConfig, match="it is the same folder as"):
        check_usable(paths, found, {}, "own", set())


def test_the_same_path_of_two_nodes_is_two_folders() -> None:
    here = SurveyedDir(node_id=NODE, path="/b", real_path="/b")
    there = SurveyedDir(node_id="1" * 56, path="/b", real_path="/b")
    check_usable(["/b"], [here, there], {}, "own", set())


def test_nothing_is_added_while_a_node_does_not_say_whether_it_can_begin_with_it() -> None:
    errors = {"1" * 56: RequestTimedOut("looking at the log dirs", 15_000)}
    new = SurveyedDir(node_id=NODE, path="/b")
    with pytest.raises(InvalidConfig, match=r"node 11111111: .*looking.*nothing was changed"):
        check_usable(["/b"], [new], errors, "own", set())
