"""Metadata from the past, as transcripts: the Controller decides nothing, unless it is accepted.

The lines are explained in ``tests/harness/controller_play.py``.
"""

import pytest

from raylog.actors.control import End
from raylog.actors.errors import OlderMetadata
from raylog.cluster.controller.commands import (
    AllocateProducerId,
    AlterTopic,
    Command,
    CreateTopic,
    DeleteTopic,
)
from raylog.cluster.controller.events import Refused
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
