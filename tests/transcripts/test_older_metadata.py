"""Metadata from the past, as transcripts: the Controller decides nothing, unless it is accepted.

The lines are explained in ``tests/harness/controller_play.py``.
"""

import pytest

from raylog.actors.control import End
from raylog.actors.errors import OlderMetadata
from raylog.actors.metadata_history import ERA_EPOCHS, MetadataHistory, era_of
from raylog.cluster.controller.commands import (
    AllocateProducerId,
    AlterTopic,
    Command,
    CreateTopic,
    DeleteTopic,
)
from raylog.cluster.controller.events import Refused, Reported, Silent
from raylog.cluster.controller.records import ClusterRecord, ControllerRecord, encode
from raylog.storage.errors import DiskFull
from tests.harness.control_nodes import PerfectNode, entry, is_as_desired, log_id
from tests.harness.controller_play import Play, begun

LATE_MS = 11_000  # a node that is silent for so long is not waited for


def nodes() -> tuple[PerfectNode, PerfectNode]:
    return PerfectNode("a", "a1"), PerfectNode("b", "b1")


def rolled_back() -> tuple[Play, list[bytes]]:
    """A cluster with a topic of which its metadata knows nothing, nor of two Controllers; and the
    metadata that was lost."""
    play = begun(*nodes())
    backup = list(play.disk)
    for _ in range(2):
        play.begin()
        play.settle()
    play.create("t", 2)
    lost, play.disk = play.disk, backup
    return play, lost


CREATE = CreateTopic(name="u", topic_id="id-u", partitions=1)


def refusal(play: Play, command: Command = CREATE) -> OlderMetadata:
    """The error with which a command is answered at once."""
    play.asks(command)
    assert play.answer is not None, "it was not answered"
    assert isinstance(play.answer.error, OlderMetadata)
    return play.answer.error


def test_a_controller_over_older_metadata_decides_nothing_and_writes_nothing() -> None:
    play, _ = rolled_back()
    before = list(play.disk)
    serving = [dict(node.serving) for node in play.nodes.values()]
    play.begin()
    play.sees()
    assert play.reports("a") == ["note older-metadata"]
    play.settle(60_000)
    assert play.disk == before
    assert play.mail == {}
    assert [node.serving for node in play.nodes.values()] == serving
    assert "/metadata of node a" in str(refusal(play))
    assert "epoch 3 is known to node a (/a1)" in str(refusal(play))


def test_each_refusal_has_an_error_of_its_own() -> None:
    """The Controller lives on, and an error keeps the frames of everybody who has raised it."""
    play, _ = rolled_back()
    play.begin()
    play.settle()
    errors = [refusal(play), refusal(play), play.machine.doubt]
    assert len({id(error) for error in errors}) == 3
    assert len({str(error) for error in errors}) == 1


def test_a_full_disk_is_no_failure_of_older_metadata() -> None:
    play = begun(*nodes())
    play.asks(CREATE)
    play.does(Refused(node="b", controller_epoch=9))
    assert "note metadata-failed" not in play.append_fails(DiskFull("/a1"))


def test_however_often_it_is_started_again_it_refuses() -> None:
    play, _ = rolled_back()
    for _ in range(5):
        play.begin()
        play.settle(LATE_MS)
        refusal(play)


def test_the_newer_metadata_goes_on_when_it_is_back() -> None:
    play, lost = rolled_back()
    play.begin()
    play.settle(LATE_MS)
    play.disk = lost
    play.begin()
    play.settle()
    assert sorted(play.states()) == ["t-0", "t-1"]
    assert is_as_desired(play.desired, play.nodes.values())


@pytest.mark.parametrize("is_known", [False, True])
def test_a_node_that_tells_it_late_ends_what_the_controller_does(is_known: bool) -> None:
    """The epoch of the lost Controller is higher, or just the one that this one has now."""
    play, _ = rolled_back()
    play.nodes["a"].epoch, play.nodes["b"].epoch = 1, 2 if is_known else 3
    play.silent.add("b")
    play.begin()
    play.settle(LATE_MS)
    assert play.desired.controller_epoch == 2
    play.asks(CREATE)
    assert "note older-metadata" in play.reports("b")
    play.settle()
    assert play.answer is not None
    assert isinstance(play.answer.error, OlderMetadata)


@pytest.mark.parametrize(
    "command",
    [
        CREATE,
        AlterTopic(name="t", changes={"retention.ms": 5}),
        DeleteTopic(name="t"),
        AllocateProducerId(),
    ],
)
def test_what_is_being_appended_when_it_is_found_out_is_refused(command: Command) -> None:
    play = begun(*nodes())
    play.create("t")
    play.asks(command)
    play.does(Refused(node="b", controller_epoch=9))
    play.appended()
    assert play.answer is not None
    assert isinstance(play.answer.error, OlderMetadata)
    assert play.passes(60_000) == []


def test_an_epoch_that_the_log_dirs_know_is_never_given_again() -> None:
    """Nobody reports it: the log dir that knows it cannot be used any more."""
    play, _ = rolled_back()
    for node in play.nodes.values():
        node.epoch = 1
    play.begin(accepts_older=True, least_epoch=3)
    play.settle()
    assert play.desired.controller_epoch == ERA_EPOCHS


@pytest.mark.parametrize("least_epoch", [-1, 3])
def test_who_goes_on_with_older_metadata_begins_an_era_that_the_lost_one_never_reaches(
    least_epoch: int,
) -> None:
    """The lost one may have gone on alone, beyond what any log dir in reach has obeyed."""
    play, lost = rolled_back()
    play.begin(accepts_older=True, least_epoch=least_epoch)
    play.settle()
    assert play.desired.controller_epoch == ERA_EPOCHS
    newer = MetadataHistory(play.disk).latest_epoch
    assert era_of(newer) > era_of(MetadataHistory(lost).latest_epoch + 100)
    play.nodes["c"] = PerfectNode("c", "c1")
    play.nodes["c"].epoch = 2 * ERA_EPOCHS + 7  # as of another one that was given up
    play.settle()
    assert play.desired.controller_epoch == 3 * ERA_EPOCHS
    play.create("u")


def test_who_accepts_metadata_that_is_not_older_begins_the_next_epoch() -> None:
    play = begun(*nodes())
    play.begin(accepts_older=True, least_epoch=1)
    play.settle()
    assert play.desired.controller_epoch == 2


def test_a_refusal_by_the_epoch_of_the_controller_before_says_nothing() -> None:
    """Of orders that its own predecessor had sent, and that came late."""
    play = begun(*nodes())
    play.begin()
    play.sees()
    play.does(Refused(node="b", controller_epoch=1))
    play.settle()
    assert play.machine.doubt is None
    assert play.desired.controller_epoch == 2


def test_a_node_that_refused_to_take_part_and_came_back_is_heard_again() -> None:
    play = Play(*nodes())
    play.sees()
    play.does(Silent(node="b", is_refused=True))
    play.away.add("b")
    play.sees()
    play.away.clear()
    play.sees()
    assert play.reports("a") == [], "b may know of another Controller"
    assert play.reports("b") == ["append: controller 1"]


def test_a_controller_in_charge_begins_a_higher_epoch_without_waiting_for_a_new_node() -> None:
    play = begun(*nodes(), accepts_older=True)
    play.nodes["c"] = PerfectNode("c", "c1")
    play.sees()
    play.nodes["b"].epoch = 9
    assert f"append: controller {ERA_EPOCHS}" in play.reports("b")


def test_a_crash_at_any_step_of_taking_charge_is_no_older_metadata() -> None:
    play = begun(*nodes())
    for fails in (False, True) * 3:
        play.begin()
        play.sees()
        play.reports("a")
        play.reports("b")
        if fails:
            play.append_fails(DiskFull("/a1"))
        else:
            play.appended()
            play.obeys("a")  # and b was told as well, which it hears later
        play.begin()
        if not fails:
            play.nodes["b"].epoch = play.nodes["a"].epoch
        play.settle()
        assert play.machine.doubt is None
    play.create("t")


def test_disks_that_move_to_another_node_know_this_controller_and_no_lost_one() -> None:
    """A node without a label has another key when it comes back, and its disks have the epoch."""
    play = begun(*nodes())
    play.create("t", 2)
    old = play.nodes["b"]
    play.away.add("b")
    play.settle()
    new = play.nodes["c"] = PerfectNode("c", "b1")
    new.epoch = old.epoch
    new.logs = {key: entry(*key, "found", topic_id=key[0].topic_id) for key in old.logs}
    play.settle()
    assert play.machine.doubt is None
    assert play.desired.dirs["b1"].node == "c"
    play.create("u", 2)
    assert is_as_desired(play.desired, [play.nodes["a"], new])


def test_disks_may_report_from_another_node_before_anybody_has_seen_that() -> None:
    play = begun(*nodes())
    new = PerfectNode("c", "b1")
    new.epoch = play.desired.controller_epoch
    assert play.does(Reported(report=new.report())) == []
    assert play.machine.doubt is None
    play.away.add("b")
    play.nodes["c"] = new
    play.settle()
    assert play.desired.dirs["b1"].node == "c"


def test_a_new_node_with_the_epoch_on_dirs_that_were_never_told_knows_another_controller() -> None:
    play = begun(*nodes())
    stranger = play.nodes["c"] = PerfectNode("c", "c1")
    stranger.epoch = play.desired.controller_epoch
    play.settle()
    assert play.machine.doubt is not None


def test_what_accepted_metadata_does_not_know_is_ended_and_set_aside_and_its_name_is_free() -> None:
    play, _ = rolled_back()
    log = log_id("t", 0)
    play.begin(accepts_older=True)
    play.until(lambda: play.nodes["a"].epoch == play.desired.controller_epoch > 3)
    assert "tell a: end t-0" in play.reports("a") or play.mail["a"].orders == (End(log=log),)
    assert play.obeys("a") == ["tell a: set aside t-0 in a1"]
    play.create("t", 2)
    (stray,) = play.nodes["a"].set_aside
    assert (stray.partition, stray.topic_id) == (log.partition, log.topic_id)
    assert play.nodes["a"].removed == play.nodes["b"].removed == []
    assert is_as_desired(play.desired, play.nodes.values())


def test_a_log_that_is_served_and_in_no_record_is_in_nobodys_way() -> None:
    play = begun(*nodes())
    stranger = log_id("t", 0, "id-lost")
    for node, place in (("a", "a1"), ("b", "b1")):
        play.nodes[node].logs[stranger, place] = entry(stranger, place)
        play.reports(node)
    play.create("t", 2)
    assert is_as_desired(play.desired, play.nodes.values())


def test_older_metadata_that_is_accepted_goes_on_and_later_controllers_do_too() -> None:
    play, _ = rolled_back()
    play.begin(accepts_older=True)
    play.settle()
    assert play.desired.controller_epoch > 3
    play.begin()
    play.settle()
    assert play.machine.doubt is None


def test_a_new_cluster_that_was_cut_off_at_its_beginning_goes_on_without_a_word() -> None:
    """Its first batch has the epoch that the log dirs know, and the second was never written."""
    play, _ = rolled_back()
    play.disk = [
        encode(ClusterRecord(cluster_id="c")),
        encode(ControllerRecord(epoch=3, node="")),
    ]
    play.begin()
    play.settle()
    assert play.machine.doubt is None
    assert play.desired.controller_epoch == 4
    play.create("u", 2)
