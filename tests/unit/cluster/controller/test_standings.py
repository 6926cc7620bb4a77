"""How the copies of the metadata stand, and from which one a person lets a cluster go on."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from raylog.actors.errors import InvalidRequest, OlderMetadata, SeveralClusters
from raylog.actors.metadata_history import DIGEST_BYTES, ERA_EPOCHS
from raylog.cluster.controller.copies import Copy, SurveyedDir, choose
from raylog.cluster.controller.standings import Standing, restoration, standings


def copy(
    records: str, epoch: int = 1, in_sync: str = "ab", controller: str = "a", ruled_from: int = 0
) -> Copy:
    return Copy(
        cluster_id="cluster-1",
        controller_epoch=epoch,
        digests=b"".join(letter.encode() * DIGEST_BYTES for letter in records),
        topics=len(records),
        controller=controller,
        controller_dir=f"dir-{controller}",
        in_sync={f"dir-{node}": node for node in in_sync},
        ruled_from=ruled_from,
    )


def keeper(node: str, has: Copy | None, problem: str = "") -> SurveyedDir:
    return SurveyedDir(
        node_id=f"ray-{node}",
        path=f"/{node}",
        node=node,
        cluster_id="cluster-1",
        directory_id=f"dir-{node}",
        has_metadata=True,
        copy=has,
        problem=problem,
    )


def by_node(*dirs: SurveyedDir) -> dict[str, Standing]:
    return {entry.node: entry for entry in standings(dirs)}


def test_every_copy_says_how_far_it_is_and_the_newest_is_first() -> None:
    dirs = [
        keeper("c", copy("x")),
        keeper("a", copy("xyz", 2)),
        keeper("b", copy("xyz", 2)),
        keeper("d", copy("xww", 1)),
        keeper("e", None, "EIO"),
        SurveyedDir(node_id="ray-f", path="/f", node="f"),
    ]
    assert [entry.node for entry in standings(dirs)] == ["a", "b", "d", "c", "e"]
    found = by_node(*dirs)
    states = {node: (entry.state, entry.behind) for node, entry in found.items()}
    assert states == {
        "a": ("newest", 0),
        "b": ("newest", 0),
        "c": ("behind", 2),
        "d": ("outdated", 2),
        "e": ("unreadable", -1),
    }
    assert {node for node, entry in found.items() if entry.is_in_sync} == {"a", "b"}
    assert found["e"].problem == "EIO"


def test_a_copy_in_sync_that_was_not_found_is_missed_and_one_that_parted_is_apart() -> None:
    found = by_node(keeper("a", copy("xyz", 2, "abm")), keeper("b", copy("xyw", 2, "abm")))
    assert found["m"] == Standing(node="m", path="", state="missed", is_in_sync=None)
    assert found["b"].state == "apart"


def test_of_two_that_have_gone_on_apart_nobody_knows_what_is_missing_in_them() -> None:
    """One may have been made anew from the folders, when the other one was away."""
    made_anew = copy("vw", ERA_EPOCHS, in_sync="a")
    found = by_node(keeper("a", made_anew), keeper("b", copy("xyz", 2, in_sync="b")))
    standing = {node: (entry.state, entry.is_in_sync) for node, entry in found.items()}
    assert standing == {"a": ("newest", None), "b": ("apart", None)}


def test_a_copy_in_sync_that_was_not_found_has_every_change() -> None:
    found = by_node(keeper("a", copy("xyz", 2, "am")))
    assert found["m"] == Standing(node="m", path="", state="missed", is_in_sync=True)


def test_without_any_copy_there_is_none_to_show() -> None:
    assert standings([SurveyedDir(node_id="ray-f", path="/f", node="f")]) == []


@pytest.mark.parametrize("source", ["b", "ray-b", "/b"])
def test_a_copy_that_lacks_what_a_lost_node_had_is_restored_by_an_explicit_word(
    source: str,
) -> None:
    lost = replace(keeper("b", copy("xyz", 3)), obeyed_epoch=5, promised_epoch=6)
    found = restoration([lost], source)
    assert found.source == lost
    assert found.epoch == ERA_EPOCHS
    assert found.lacks == ("what only node a may have",)
    assert found.is_needed


def test_what_comes_back_after_a_restore_takes_nothing_back_however_often_it_began_alone() -> None:
    found = restoration([keeper("a", copy("xy", 1))], "a")
    back = keeper("b", copy("xyw", 5))
    restored = keeper("a", copy("xyz", found.epoch + 1))
    assert choose([back, restored], "ray-b", new_id="new").node_id == "ray-a"
    again = restoration([keeper("a", copy("xyz", found.epoch + 3))], "a")
    assert again.epoch == 2 * ERA_EPOCHS


def test_what_the_other_copies_have_and_the_chosen_one_lacks_is_said() -> None:
    dirs = [keeper("a", copy("xyzw", 3)), keeper("b", copy("xy", 2))]
    assert restoration(dirs, "b").lacks == ("/a of node ray-a has 2 records that it lacks",)
    assert restoration(dirs, "b").parted == (), "the next epoch outranks it"


def test_a_copy_that_is_whole_needs_no_word() -> None:
    dirs = [keeper("a", copy("xyz", 3)), keeper("b", copy("xy", 2))]
    assert not restoration(dirs, "a").is_needed


def test_copies_that_parted_before_anybody_kept_any_are_to_be_set_aside() -> None:
    one = keeper("a", replace(copy("xyz", 3), in_sync=None, ruled_from=-1))
    other = keeper("b", replace(copy("xww", 3), in_sync=None, ruled_from=-1))
    assert restoration([one, other], "a").parted == (other,)


def test_a_damaged_copy_may_have_more_where_nobody_says_who_is_in_sync() -> None:
    one = keeper("a", replace(copy("xyz", 3), in_sync=None, ruled_from=-1))
    found = restoration([one, keeper("b", None, "EIO")], "a")
    assert found.lacks == ("what is only in /b of node ray-b: EIO",)


ONE, OTHER = "5f1" + "0" * 53, "5f2" + "0" * 53


@pytest.mark.parametrize("source", ["5f100000", "5f10000000", ONE, "/a"])
def test_a_copy_is_named_by_the_beginning_of_its_nodes_id(source: str) -> None:
    one = replace(keeper("a", copy("xyz", 3)), node=ONE, node_id="7a" * 28)
    other = replace(keeper("b", copy("xy", 2)), node="disk-1", node_id=OTHER)
    assert restoration([one, other], source).source == one
    assert restoration([one, other], OTHER[:8]).source == other
    assert restoration([one, other], "disk-1").source == other


def test_the_beginning_of_several_nodes_ids_is_refused_with_their_names() -> None:
    """Whole ids, where their beginnings are the same."""
    first, second = "5f" * 27 + "a1", "5f" * 27 + "a2"
    one = replace(keeper("a", copy("xyz", 3)), node=first, node_id=first)
    other = replace(keeper("b", copy("xy", 2)), node=second, node_id=second)
    with pytest.raises(InvalidRequest, match=rf"several nodes; .* {first}:/a, {second}:/b"):
        restoration([one, other], "5f5f5f5f")
    labelled = replace(other, node="disk-1")
    with pytest.raises(InvalidRequest, match=r"several nodes; .* 5f5f5f5f:/a, disk-1:/b"):
        restoration([one, labelled], "5f5f5f5f")


def test_an_unreadable_copy_of_a_label_is_not_replaced_by_one_of_an_id_that_begins_so() -> None:
    damaged = replace(keeper("b", None, "EIO"), node_id="77" * 28)
    other = replace(keeper("c", copy("xyz")), node_id="b3" + "0" * 54)
    with pytest.raises(InvalidRequest, match=r"'b' names no readable copy .* there are: c:/c"):
        restoration([damaged, other], "b")
    long = replace(damaged, node="b3000000")
    with pytest.raises(InvalidRequest, match="names no readable copy"):
        restoration([long, other], "b3000000")


def test_less_than_the_short_id_names_no_node() -> None:
    """Where the node of that label is away, nothing of it was looked at."""
    other = replace(keeper("c", copy("xyz")), node=ONE, node_id=ONE)
    with pytest.raises(InvalidRequest, match=r"names no readable copy .* there are: 5f100000:/c"):
        restoration([other], "5f10000")


def test_a_path_with_an_unreadable_copy_on_another_node_is_refused() -> None:
    readable = keeper("a", copy("xyz"))
    unreadable = replace(keeper("b", None, "EIO"), path="/a")
    with pytest.raises(InvalidRequest, match=r"several nodes; .* a:/a, b:/a"):
        restoration([readable, unreadable], "/a")
    empty = SurveyedDir(node_id="ray-b", path="/a", node="b")
    assert restoration([readable, empty], "/a").source == readable


def test_a_label_is_not_taken_for_the_beginning_of_an_id() -> None:
    one = replace(keeper("a", copy("xyz", 3)), node="5f", node_id="7a" * 28)
    other = replace(keeper("b", copy("xy", 2)), node=OTHER, node_id=OTHER)
    assert restoration([one, other], "5f").source == one


def test_the_only_copy_that_anybody_knows_of_has_every_change() -> None:
    """Nobody has written down who is in sync, as on a cluster of one node."""
    alone = keeper("a", replace(copy("xyz", 3), in_sync=None, ruled_from=-1))
    assert [entry.is_in_sync for entry in standings([alone])] == [True]
    assert not by_node(alone, keeper("b", None, "EIO"))["a"].is_in_sync


@pytest.mark.parametrize(
    "knows",
    [
        lambda entry, epoch: replace(entry, obeyed_epoch=epoch),
        lambda entry, epoch: replace(entry, promised_epoch=epoch),
    ],
    ids=["obeyed", "promised"],
)
def test_where_a_log_dir_knows_of_a_newer_controller_nobody_can_say_who_has_every_change(
    knows: Callable[[SurveyedDir, int], SurveyedDir],
) -> None:
    """An old backup was put back, and what it says of who is in sync is old."""
    alone = keeper("a", replace(copy("xyz", 3), in_sync=None, ruled_from=-1))
    assert by_node(knows(alone, 3))["a"].is_in_sync
    assert by_node(knows(alone, 4))["a"].is_in_sync is None
    both = keeper("a", copy("xyz", 3, "abm")), knows(keeper("b", None, "EIO"), 4)
    found = by_node(*both)
    assert [found[node].is_in_sync for node in "abm"] == [None, None, None]
    other = SurveyedDir(node_id="f", path="/f", node="f", cluster_id="other", obeyed_epoch=9)
    assert by_node(alone, other)["a"].is_in_sync, "of another cluster"


@pytest.mark.parametrize(
    ("epoch", "is_known"), [(3, True), (ERA_EPOCHS, False), (ERA_EPOCHS + 1, True)]
)
def test_what_a_command_has_just_made_or_chosen_is_not_said_to_have_every_change(
    epoch: int, is_known: bool
) -> None:
    (entry,) = standings([keeper("a", copy("xyz", epoch, "a"))])
    assert entry.is_in_sync is (True if is_known else None)


def test_a_backup_in_the_place_of_a_copy_in_sync_is_not_said_to_have_every_change() -> None:
    found = by_node(keeper("a", copy("xyz", 9)), keeper("b", copy("x", 5)))
    assert (found["a"].is_in_sync, found["b"].is_in_sync) == (True, None)


def test_what_names_no_copy_or_several_is_refused_with_what_there_is() -> None:
    dirs = [keeper("a", copy("xyz")), keeper("b", None, "EIO")]
    for source in ("b", "nobody", ""):
        with pytest.raises(InvalidRequest, match="there are: a:/a"):
            restoration(dirs, source)
    same = [keeper("a", copy("x")), replace(keeper("b", copy("x")), path="/a")]
    with pytest.raises(InvalidRequest, match="several nodes; name the node"):
        restoration(same, "/a")
    with pytest.raises(InvalidRequest, match="log-dirs identify"):
        restoration([replace(dirs[0], directory_id=None)], "a")


def test_a_node_is_enough_of_a_name_for_its_two_copies_and_the_newest_of_them_is_meant() -> None:
    newer, older = keeper("a", copy("xyz", 2)), keeper("a", copy("xy", 1))
    older = replace(older, path="/a-2", directory_id="dir-a-2")
    assert restoration([older, newer], "a").source == newer


def test_what_a_start_refuses_as_older_lacks_something() -> None:
    dirs = [replace(keeper("a", copy("xyz")), obeyed_epoch=5), keeper("b", copy("xyz"))]
    with pytest.raises(OlderMetadata):
        choose(dirs, "ray-a", new_id="")
    assert restoration(dirs, "a").lacks == (
        "what a later Controller has changed, which a log dir has obeyed",
    )


def test_the_metadata_of_another_cluster_is_not_set_aside() -> None:
    """A disk of another cluster is mounted: a start refuses that, and so does this."""
    other = replace(copy("uvw", in_sync="b", controller="b"), cluster_id="cluster-2")
    dirs = [
        keeper("a", copy("xyz", in_sync="a")),
        replace(keeper("b", other), cluster_id="cluster-2"),
    ]
    for go_on in (lambda: choose(dirs, "ray-a", new_id=""), lambda: restoration(dirs, "a")):
        with pytest.raises(SeveralClusters):
            go_on()
