"""Where the Controller starts, by what lies on the nodes' disks."""

import pytest

from raylog.actors.errors import SeveralClusters
from raylog.cluster.controller.home import FirstLogDir, choose
from raylog.storage.errors import LogMissing

FRESH, OTHER_FRESH = FirstLogDir("a", "/a", None, False), FirstLogDir("b", "/b", None, False)
MEMBER = FirstLogDir("c", "/c", "cluster-1", False)
HOME = FirstLogDir("d", "/d", "cluster-1", True)
FOREIGN = FirstLogDir("e", "/e", "cluster-2", True)
# a first start that ended before the dir was identified
CUT_OFF = FirstLogDir("f", "/f", None, True)


def test_a_new_cluster_begins_where_it_is_asked_for() -> None:
    assert choose([FRESH, OTHER_FRESH], "b") == "b"


@pytest.mark.parametrize("own", ["a", "c", "d"])
def test_a_cluster_goes_on_where_its_metadata_is_whoever_asks(own: str) -> None:
    assert choose([FRESH, MEMBER, HOME], own) == "d"


def test_one_disk_that_several_nodes_see_is_opened_by_the_one_that_asks() -> None:
    same = [FirstLogDir(node, "/shared", "cluster-1", True) for node in "abc"]
    assert choose(same, "b") == "b"
    assert choose(same, "x") == "a"


def test_a_second_cluster_is_refused_and_both_are_named() -> None:
    for other in (FOREIGN, CUT_OFF):
        with pytest.raises(
            SeveralClusters, match=f"cluster-1 in /d of node d.*{other.path}|{other.path}.*/d"
        ):
            choose([FRESH, HOME, other], "a")


def test_no_empty_cluster_begins_beside_disks_whose_metadata_is_away() -> None:
    for own in ("a", "c"):
        with pytest.raises(LogMissing, match="cluster-1"):
            choose([FRESH, MEMBER], own)
