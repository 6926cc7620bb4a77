"""How much is looked at while somebody waits for another config of the broker."""

import pytest

from raylog.actors.control import LogId
from raylog.cluster.controller import waiting
from raylog.cluster.controller.commands import ApplyConfig
from raylog.cluster.controller.waiting import View
from tests.harness.controller_play import Play
from tests.transcripts.controllers import node_a
from tests.transcripts.test_broker_config import AT_ONCE, answered, serving

PARTITIONS = 50


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[LogId]:
    """The partitions that are looked at, one after the other."""
    seen: list[LogId] = []
    why_behind = waiting.why_behind

    def look(log: LogId, version: int, view: View) -> str:
        seen.append(log)
        return why_behind(log, version, view)

    monkeypatch.setattr(waiting, "why_behind", look)
    return seen


def test_at_most_events_one_partition_is_looked_at_and_not_all(looked: list[LogId]) -> None:
    play = serving(node_a())
    play.create("u", partitions=PARTITIONS)
    play.asks(ApplyConfig(config=AT_ONCE))
    play.appended()
    play.nodes["a"].obey(play.mail.pop("a"))
    play.nodes["a"].is_opening = True  # its LogActors open their logs again
    looked.clear()
    for _ in range(20):
        play.passes(1_000)
        play.reports("a")
    assert play.answer is None
    assert len(looked) < 2 * PARTITIONS + 40
    play.nodes["a"].is_opening = False
    play.settle()
    assert not answered(play).behind


def test_without_an_old_node_or_partition_it_is_answered_at_once(looked: list[LogId]) -> None:
    play: Play = serving(node_a())
    play.asks(ApplyConfig(config={}))
    assert not answered(play).behind
    assert len(looked) == 2
