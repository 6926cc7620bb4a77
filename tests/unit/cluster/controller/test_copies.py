"""Which copy of the metadata counts, and where a cluster may begin."""

import itertools
from dataclasses import replace

import pytest

from raylog.actors.errors import (
    MetadataIncomplete,
    MetadataInDoubt,
    MetadataMissing,
    MetadataUnreadable,
    NewerMetadata,
    OlderMetadata,
    SeveralClusters,
)
from raylog.actors.metadata_history import DIGEST_BYTES, ERA_EPOCHS, EpochStart
from raylog.cluster.controller.copies import (
    Copy,
    Home,
    SurveyedDir,
    check_not_newer,
    choose,
)
from raylog.storage.errors import LogLocked, LogMissing


def copy(records: str, epoch: int = 1, cluster_id: str = "cluster-1") -> Copy:
    """A copy with a record for each letter."""
    digests = b"".join(letter.encode() * DIGEST_BYTES for letter in records)
    return Copy(cluster_id=cluster_id, controller_epoch=epoch, digests=digests)


def empty(node: str, path: str = "/disk") -> SurveyedDir:
    return SurveyedDir(node_id=node, path=path)


def member(node: str, path: str = "/disk") -> SurveyedDir:
    """A log dir of a cluster, without metadata."""
    return SurveyedDir(node_id=node, path=path, cluster_id="cluster-1")


def holder(node: str, has: Copy, path: str = "/disk") -> SurveyedDir:
    return replace(member(node, path), has_metadata=True, copy=has)


def unreadable(node: str) -> SurveyedDir:
    return SurveyedDir(node_id=node, path="/disk", problem="EIO")


def home(*dirs: SurveyedDir, own: str = "a", new_cluster: bool = False) -> Home:
    return choose(dirs, own, new_id="new", new_cluster=new_cluster)


def test_a_new_cluster_begins_in_the_first_log_dir_of_the_node_that_is_asked() -> None:
    found = home(empty("a"), empty("b", "/b-1"), empty("b", "/b-2"), own="b")
    assert found == Home(node_id="b", log_dir="/b-1", new_cluster="new")


@pytest.mark.parametrize("own", ["a", "c", "d"])
def test_a_cluster_goes_on_where_its_metadata_is_whoever_asks(own: str) -> None:
    dirs = [empty("a"), member("c"), member("d", "/1"), holder("d", copy("xy"), "/2")]
    assert home(*dirs, own=own) == Home(node_id="d", log_dir="/2")
    assert home(*dirs, own=own, new_cluster=True) == Home(node_id="d", log_dir="/2")


def test_of_two_copies_the_one_counts_that_went_on() -> None:
    older, newer = holder("a", copy("xy", 1)), holder("b", copy("xyz", 2))
    assert home(older, newer).node_id == "b"
    assert home(newer, older, own="b").node_id == "b"


def test_one_disk_that_several_nodes_see_is_opened_by_the_one_that_asks() -> None:
    same = [holder(node, copy("xy")) for node in "abc"]
    assert home(*same, own="b").node_id == "b"
    assert home(*same, own="x").node_id == "a"


def test_copies_that_have_gone_on_apart_are_refused_and_both_are_shown() -> None:
    one, other = holder("a", copy("xy", 3)), holder("b", copy("xz", 4), "/other")
    for new_cluster in (False, True):
        with pytest.raises(MetadataInDoubt, match=r"/disk of node a.*/other of node b"):
            home(one, other, new_cluster=new_cluster)


def test_copies_in_doubt_are_told_apart_by_their_topics() -> None:
    full = holder("a", replace(copy("xyz", 3), topics=12))
    bare = holder("b", copy("u", 1), "/other")
    with pytest.raises(MetadataInDoubt) as raised:
        home(full, bare)
    assert "/disk of node a: 12 topics, 3 records, Controller epoch 3" in str(raised.value)
    assert "/other of node b: 0 topics, 1 records" in str(raised.value)
    assert "knows your topics" in raised.value.advice
    assert "delete nothing" in raised.value.advice


@pytest.mark.parametrize("entry", [empty("b"), member("b"), unreadable("b")])
def test_no_cluster_begins_beside_a_log_dir_that_another_process_uses(entry: SurveyedDir) -> None:
    """Nor is the metadata missing: that process may have it in a log dir that is not given here."""
    locked = replace(entry, is_locked=True)
    for new_cluster in (False, True):
        with pytest.raises(LogLocked, match=r"/disk of node b.*`raylog stop`"):
            home(empty("a"), member("a", "/2"), locked, new_cluster=new_cluster)


def test_a_cluster_goes_on_beside_its_own_log_managers() -> None:
    """Its Controller is gone; they live on, and have the log dirs locked."""
    own = [replace(holder("a", copy("xy")), is_locked=True), replace(member("b"), is_locked=True)]
    assert home(*own) == Home(node_id="a", log_dir="/disk")


def test_metadata_that_cannot_be_read_is_said_though_its_log_managers_live() -> None:
    unread = replace(unreadable("a"), has_metadata=True, is_locked=True)
    with pytest.raises(MetadataUnreadable):
        home(unread)
    with pytest.raises(LogLocked):
        home(unread, new_cluster=True)


def test_a_copy_that_cannot_be_read_may_be_the_newer_one() -> None:
    unread = replace(unreadable("b"), has_metadata=True)
    with pytest.raises(MetadataInDoubt, match="EIO"):
        home(holder("a", copy("xy")), unread)


def test_a_disk_without_known_metadata_that_cannot_be_read_does_not_matter() -> None:
    assert home(holder("a", copy("xy")), unreadable("b")).node_id == "a"


def test_metadata_is_refused_where_a_log_dir_has_obeyed_a_newer_controller() -> None:
    """Both are shown. Where somebody accepts it, it counts, and the next epoch is higher."""
    old = replace(holder("a", copy("xy", 5)), obeyed_epoch=5)
    newer = replace(member("b", "/other"), obeyed_epoch=7)
    for new_cluster in (False, True):
        with pytest.raises(OlderMetadata, match=r"/disk of node a.* 5,.*7 .*/other of node b"):
            home(old, newer, new_cluster=new_cluster)
    accepted = choose((old, newer), "a", new_id="new", older_metadata=True)
    assert accepted == Home(node_id="a", log_dir="/disk", least_epoch=7, is_older_accepted=True)
    assert accepted.accepts_older


def test_the_log_dir_with_the_metadata_may_itself_know_a_newer_controller() -> None:
    with pytest.raises(OlderMetadata, match="--older-metadata"):
        home(replace(holder("a", copy("xy", 5)), obeyed_epoch=6))


def test_the_newest_copy_is_compared_and_no_other_cluster() -> None:
    older, newer = holder("a", copy("xy", 1)), holder("b", copy("xyz", 7))
    assert home(older, replace(newer, obeyed_epoch=7)).node_id == "b"
    other = replace(member("c"), cluster_id="cluster-2", obeyed_epoch=9)
    assert home(replace(newer, obeyed_epoch=7), other).node_id == "b"


def test_a_cluster_that_begins_over_log_dirs_outranks_the_controllers_that_they_know() -> None:
    begun = home(empty("a"), replace(member("b"), obeyed_epoch=7), new_cluster=True)
    assert (begun.least_epoch, begun.accepts_older) == (ERA_EPOCHS, True)
    unknown = home(empty("a"), member("b"), new_cluster=True)
    assert unknown.least_epoch == ERA_EPOCHS, "its copy may come back"


def test_what_a_person_has_given_up_is_told_from_the_end_of_a_lost_controller() -> None:
    lost, next_one = copy("xyw", 2), copy("xyz", 3)
    assert not lost.was_given_up_for(next_one)
    restored = copy("xyz", ERA_EPOCHS)
    assert lost.was_given_up_for(restored)
    assert not copy("xy", 2).was_given_up_for(restored), "it is only behind"


def test_the_controllers_of_another_cluster_are_not_outranked() -> None:
    other = replace(member("b"), cluster_id="cluster-2", obeyed_epoch=9)
    assert home(replace(holder("a", copy("xy", 7)), obeyed_epoch=7), other).least_epoch == 7


def test_a_second_cluster_is_refused_and_both_are_named() -> None:
    other = holder("b", copy("z", cluster_id="cluster-2"), "/other")
    with pytest.raises(SeveralClusters, match=r"cluster-1 in /disk.*cluster-2 in /other"):
        home(holder("a", copy("xy")), other)


@pytest.mark.parametrize(
    "doubt",
    [
        member("b"),
        unreadable("b"),
        replace(unreadable("b"), has_metadata=True, cluster_id="cluster-1"),
    ],
)
def test_where_there_is_a_doubt_only_an_explicit_word_begins_a_cluster(doubt: SurveyedDir) -> None:
    for own in ("a", "b"):
        with pytest.raises(LogMissing, match="/disk"):
            home(empty("a"), doubt, own=own)
    begun = home(empty("a"), doubt, new_cluster=True)
    assert (begun.node_id, begun.log_dir) == ("a", "/disk")


def test_where_the_metadata_is_nowhere_both_ways_are_named() -> None:
    with pytest.raises(MetadataMissing, match=r"/disk of node b.*cluster cluster-1") as missing:
        home(empty("a"), member("b"))
    put_back, _, begin_anew = missing.value.advice.partition("Only if it is lost for good")
    assert "mount its disk" in put_back
    assert "copy" in put_back
    assert "`raylog start --new-cluster`" in begin_anew
    assert "renamed -stray" in begin_anew


def test_metadata_that_cannot_be_read_is_not_given_up() -> None:
    unread = replace(unreadable("b"), has_metadata=True, cluster_id="cluster-1")
    with pytest.raises(MetadataUnreadable, match="/disk/__cluster_metadata-0") as unreadable_error:
        home(empty("a"), unread)
    assert "--new-cluster" not in unreadable_error.value.advice
    assert "Do not remove" in unreadable_error.value.advice


def test_a_cluster_that_begins_over_log_dirs_has_their_id() -> None:
    assert home(empty("a"), member("b"), new_cluster=True).new_cluster == "cluster-1"
    other = replace(member("c"), cluster_id="cluster-2")
    assert home(empty("a"), member("b"), other, new_cluster=True).new_cluster == "new"


def test_a_first_start_that_was_cut_off_is_no_cluster() -> None:
    cut_off = SurveyedDir(node_id="a", path="/disk", has_metadata=True, copy=copy("", 0, ""))
    assert home(cut_off) == Home(node_id="a", log_dir="/disk", new_cluster="new")
    with pytest.raises(LogMissing):
        home(cut_off, member("b"))


# -- copies that the LogManagers keep ------------------------------------------------------------


def kept(
    records: str,
    epoch: int = 1,
    *,
    in_sync: tuple[str, ...] = ("b",),
    controller: str = "a",
    is_stopped: bool = False,
) -> Copy:
    """A copy whose first record says who is in sync, beside its Controller."""
    return replace(
        copy(records, epoch),
        controller=controller,
        controller_dir=f"dir-{controller}",
        in_sync={f"dir-{node}": node for node in (controller, *in_sync)},
        ruled_from=0,
        is_stopped=is_stopped,
    )


def keeper(node: str, has: Copy) -> SurveyedDir:
    return replace(holder(f"ray-{node}", has), node=node, directory_id=f"dir-{node}")


def damaged(node: str) -> SurveyedDir:
    return replace(keeper(node, kept("x")), copy=None, problem="EIO")


def test_the_newest_copy_is_that_of_the_highest_epoch_and_then_the_longest() -> None:
    dirs = [
        keeper("a", kept("xyzzy", 3)),
        keeper("c", kept("xyw", 4, in_sync=("c",), controller="b")),
        keeper("b", kept("xywv", 4, in_sync=("c",), controller="b")),
    ]
    assert home(*dirs, own="ray-a").node_id == "ray-b"


def test_what_differs_in_a_lower_epoch_was_never_committed_and_is_no_doubt() -> None:
    back = keeper("a", kept("xyzzy", 3))
    went_on = keeper("b", kept("xyw", 4, in_sync=(), controller="b"))
    assert home(back, went_on, own="ray-a").node_id == "ray-b"


def test_what_differed_before_anybody_kept_copies_is_a_doubt_in_whichever_epoch() -> None:
    back = keeper("a", kept("xyzzy", 3))
    went_on = keeper("b", replace(kept("xyw", 4, in_sync=(), controller="b"), ruled_from=2))
    with pytest.raises(MetadataInDoubt, match=r"node ray-a.*node ray-b"):
        home(back, went_on, own="ray-a")


def test_copies_that_differ_in_one_epoch_are_in_doubt_and_both_are_shown() -> None:
    with pytest.raises(MetadataInDoubt, match=r"node ray-a.*node ray-b"):
        home(keeper("a", kept("xyz", 3)), keeper("b", kept("xyw", 3)), own="ray-a")


def test_a_copy_begins_where_all_that_are_in_sync_were_found() -> None:
    dirs = [keeper("b", kept("xyz")), keeper("a", kept("xyzw"))]
    assert home(*dirs, own="ray-b").node_id == "ray-a"
    assert home(*dirs, damaged("c"), own="ray-c").node_id == "ray-a", "it was not in sync"


def test_no_copy_begins_while_one_in_sync_is_missed_and_the_refusal_says_what_to_do() -> None:
    alone = keeper("a", kept("xyz", in_sync=("b", "c")))
    with pytest.raises(MetadataIncomplete) as raised:
        home(alone, keeper("c", kept("xyz", in_sync=("b", "c"))), own="ray-a")
    assert "/disk of node ray-a: 0 topics, 3 records" in str(raised.value)
    assert raised.value.missed == "node b"
    assert "`raylog metadata restore --from a`" in str(raised.value)


def test_no_copy_begins_while_that_of_the_lost_controller_is_missed() -> None:
    """It may have left out the others, and gone on alone."""
    with pytest.raises(MetadataIncomplete, match="node a "):
        home(keeper("b", kept("xyz")), own="ray-b")


@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize("controller_dir", ["dir-a", ""])
def test_a_backup_in_the_place_of_the_lost_controllers_copy_is_not_that_copy(
    is_last: bool, controller_dir: str
) -> None:
    """That one had all that any copy has of its epoch, and maybe more: it could go on alone.

    A cluster's first Controller begins before its log dir has an id.
    """
    restored = replace(keeper("a", kept("xy")), is_last=is_last)
    newest = replace(kept("xyz", in_sync=("a", "b")), controller_dir=controller_dir)
    with pytest.raises(MetadataIncomplete, match="an older state of it lies there") as raised:
        home(restored, keeper("b", newest), own="ray-a")
    assert "/disk of node ray-a" in raised.value.missed
    assert "`raylog metadata restore --from b`" in str(raised.value)


def test_an_older_copy_of_the_controllers_disk_does_not_hide_the_disk_itself() -> None:
    """Somebody has put a backup of one node's log dir on another one."""
    dirs = [keeper("a", kept("xyz")), replace(keeper("a", kept("xy")), node_id="ray-c")]
    assert home(*dirs, keeper("b", kept("xyz")), own="ray-a").node_id == "ray-a"


def test_a_backup_in_the_place_of_the_controllers_copy_is_fine_after_an_orderly_stop() -> None:
    stopped = keeper("b", kept("xyz", is_stopped=True))
    assert home(keeper("a", kept("xy")), stopped, own="ray-a").node_id == "ray-b"


def test_a_damaged_copy_in_sync_is_missed_and_named_with_its_disk() -> None:
    with pytest.raises(MetadataIncomplete, match="/disk of node ray-a: unreadable, EIO"):
        home(keeper("b", kept("xyz")), damaged("a"), own="ray-b")


def test_after_an_orderly_stop_any_whole_copy_may_begin() -> None:
    stopped = keeper("b", kept("xyz", is_stopped=True))
    assert home(stopped, own="ray-b").node_id == "ray-b"
    assert home(stopped, damaged("a"), own="ray-a").node_id == "ray-b"


def test_an_orderly_stop_is_not_believed_where_ray_knows_that_the_copy_was_left_out_since() -> None:
    stopped = replace(keeper("b", kept("xyz", is_stopped=True)), is_begun_over=True)
    with pytest.raises(MetadataIncomplete, match="node a "):
        home(replace(stopped, is_left_out=True), own="ray-b")
    assert home(stopped, own="ray-b").node_id == "ray-b", "nothing counts without this copy"


def test_a_copy_that_was_not_in_sync_at_a_stop_needs_that_no_controller_has_begun_since() -> None:
    """Nobody asks Ray before it goes on without such a copy."""
    follower = keeper("c", kept("xyz", is_stopped=True))
    assert home(follower, own="ray-c").node_id == "ray-c"
    with pytest.raises(MetadataIncomplete, match="node a; node b "):
        home(replace(follower, is_begun_over=True), own="ray-c")


def test_fenced_copies_begin_without_the_lost_controller() -> None:
    """All of them: the lost Controller could leave out one with what the other one acknowledges."""
    dirs = [replace(keeper(node, kept("xyz", in_sync=("b", "c"))), is_fenced=True) for node in "bc"]
    assert home(*dirs, own="ray-b").node_id == "ray-b"
    with pytest.raises(MetadataIncomplete, match="node a; node c "):
        home(dirs[0], own="ray-b")
    with pytest.raises(MetadataIncomplete, match="node a "):
        home(dirs[0], replace(dirs[1], is_fenced=False), own="ray-b")


def test_a_controller_whose_copies_all_left_is_missed_whoever_is_fenced() -> None:
    left = replace(keeper("b", kept("xyz", in_sync=())), is_fenced=True)
    with pytest.raises(MetadataIncomplete, match="node a "):
        home(left, own="ray-b")


def test_nodes_without_labels_are_known_by_their_log_dirs_after_a_start_of_ray() -> None:
    dirs = [replace(keeper(node, kept("xyz")), node=f"ray-{node}") for node in "ab"]
    assert home(*dirs, own="ray-a").node_id == "ray-a"
    with pytest.raises(MetadataIncomplete, match="--from ray-a"):
        home(dirs[0], own="ray-a")


def test_a_controller_that_ended_before_it_was_in_sync_is_missed_by_its_log_dir() -> None:
    """It had brought the metadata to another node, and may have gone on there alone."""
    brought = replace(kept("xyz", 2), controller="c", controller_dir="dir-c")
    others = [keeper("a", brought), keeper("b", brought)]
    with pytest.raises(MetadataIncomplete, match="node c "):
        home(*others, own="ray-a")
    assert home(*others, keeper("c", brought), own="ray-c").node_id == "ray-c"


def test_a_first_controller_whose_log_dir_had_no_id_yet_is_not_missed() -> None:
    young = replace(kept("x"), in_sync={}, controller_dir="")
    assert home(keeper("a", young), own="ray-a").node_id == "ray-a"


def test_the_next_epoch_is_higher_than_every_one_that_a_copy_has_promised() -> None:
    promised = replace(keeper("b", kept("xyz", 3)), promised_epoch=9)
    found = home(keeper("a", kept("xyz", 3)), promised, own="ray-a")
    assert found == Home(node_id="ray-a", log_dir="/disk", least_epoch=9)


# -- copies that begin behind a snapshot -----------------------------------------------------------


def cut(whole: Copy, first: int) -> Copy:
    """The same copy with a snapshot in the place of its first records."""
    return replace(
        whole,
        first=first,
        first_digest=whole.digest_at(first),
        digests=whole.digests[first * DIGEST_BYTES :],
    )


def of_epochs(whole: Copy, *epochs: tuple[int, int]) -> Copy:
    return replace(whole, epochs=tuple(EpochStart(*entry) for entry in epochs))


def snapshots_of(whole: Copy) -> list[Copy]:
    return [cut(whole, first) for first in range(whole.end + 1)]


def test_a_snapshot_in_the_place_of_records_changes_no_comparison() -> None:
    """Each pair below parts where an epoch begins, as all copies of one cluster do."""
    first = ((1, 1), (2, 3))
    newest = of_epochs(copy("abcdefg", 3), *first, (3, 5))
    others = [
        newest,
        of_epochs(copy("abcdef", 3), *first, (3, 5)),
        of_epochs(copy("abcde", 2), *first),
        of_epochs(copy("abcdexy", 2), *first),
        of_epochs(copy("abcd", 2), *first),
        of_epochs(copy("ab"), *first[:1]),
        of_epochs(copy("abx"), *first[:1]),
        of_epochs(copy("abcdxyzz", 4), *first, (4, 4)),
    ]
    for one, other in itertools.product(others, others):
        # What is in a snapshot was committed, so it is in every copy that counts.
        shared = one.common_end(other)
        for mine, theirs in itertools.product(snapshots_of(one), snapshots_of(other)):
            if max(mine.first, theirs.first) > shared:
                continue
            assert mine.common_end(theirs) == shared
            assert mine.begins_with(theirs) == one.begins_with(other)
            assert mine.is_same(theirs) == one.is_same(other)
            assert mine.is_past_of(theirs) == one.is_past_of(other)


def test_a_copy_that_ends_before_the_snapshot_of_the_newest_is_older_and_no_doubt() -> None:
    newest = cut(of_epochs(copy("abcdefg", 3), (1, 1), (3, 5)), 6)
    behind = of_epochs(copy("abc", 1), (1, 1))
    assert home(holder("b", behind), holder("a", newest), own="b").node_id == "a"


def test_a_copy_that_has_gone_on_apart_before_the_snapshot_is_in_doubt() -> None:
    newest = cut(of_epochs(copy("abcdefg", 3), (1, 1), (3, 3)), 6)
    apart = of_epochs(copy("abcxy", 1), (1, 1))
    with pytest.raises(MetadataInDoubt):
        home(holder("b", apart), holder("a", newest), own="b")


def test_copies_with_snapshots_that_differ_in_one_epoch_are_in_doubt() -> None:
    one = cut(of_epochs(copy("abcde", 1), (1, 1)), 3)
    other = cut(of_epochs(copy("xyzvw", 1), (1, 1)), 3)
    with pytest.raises(MetadataInDoubt):
        home(holder("b", one), holder("a", other), own="b")


def test_metadata_of_a_newer_raylog_is_refused_with_its_place_whatever_lies_beside_it() -> None:
    newer = replace(damaged("b"), is_of_newer=True, problem="level 9")
    check_not_newer([keeper("a", kept("xyz")), damaged("b")])
    with pytest.raises(NewerMetadata, match=r"/disk of node ray-b.*level 9"):
        check_not_newer([keeper("a", kept("xyz")), newer])


def test_copies_whose_snapshots_differ_share_no_more_than_what_the_snapshots_stand_for() -> None:
    """Two Controllers that had one epoch: where each began says nothing of it."""
    whole = replace(copy("uvxyz"), epochs=(EpochStart(1, 0),))
    other = replace(copy("yz"), first=3, first_digest=b"?" * DIGEST_BYTES, epochs=whole.epochs)
    assert other.common_end(whole) == whole.common_end(other) == 3


def test_a_fenced_copy_that_never_heard_the_last_controller_proves_nothing() -> None:
    best = keeper("c", kept("xyz", 3))
    behind = replace(keeper("b", kept("xy", 2)), is_fenced=True, is_settled=True)
    with pytest.raises(MetadataIncomplete, match="node a "):
        home(best, behind, own="ray-c")
    assert home(best, replace(behind, copy=best.copy), own="ray-c").node_id == "ray-c"


def test_a_copy_that_is_behind_on_the_controllers_node_is_no_backup_in_another_log_dir() -> None:
    """Only where the Controller had its own metadata must all be that any copy has."""
    newest = replace(kept("xyz", 3), in_sync={"dir-b": "b", "dir-a-1": "a"})
    behind = replace(keeper("a", replace(newest, digests=copy("xy").digests)), path="/disk-1")
    dirs = [keeper("b", newest), keeper("a", newest), replace(behind, directory_id="dir-a-1")]
    assert home(*dirs, own="ray-b").node_id == "ray-b"
