"""Snapshots of the metadata: when one is made, of what, and what comes of a failure.

The lines are explained in ``tests/harness/controller_play.py``.
"""

from raylog.actors.node.broker_config import BrokerConfig
from raylog.cluster.controller.commands import AllocateProducerId, ApplyConfig, FinalizeUpgrade
from raylog.cluster.controller.events import SnapshotDamaged
from raylog.cluster.controller.observed import SUSPECT_MS
from raylog.cluster.controller.pushing import LACKS_SNAPSHOT
from raylog.cluster.controller.saving import RETRY_MS
from raylog.storage.errors import DiskFull
from tests.harness.control_nodes import PerfectNode
from tests.harness.controller_play import Play
from tests.transcripts.controllers import answer_of, create, node_a, node_b

KEY = "metadata.log.max.record.bytes.between.snapshots"
FEW_RECORDS = 400  # in bytes
FULL = DiskFull("/a1")


def play_of(*nodes: PerfectNode, most_bytes: int = FEW_RECORDS, level: int = 2) -> Play:
    """A Controller that all nodes obey, whose copies of the metadata are in sync."""
    play = Play(*nodes)
    play.config = BrokerConfig.parse({KEY: most_bytes})
    play.followed = {node.key for node in nodes[1:]}
    play.begin()
    play.settle()
    if level == 2:
        play.asks(FinalizeUpgrade(level=2))
        play.settle()
    return play


def is_wanted(lines: list[str]) -> bool:
    return any(line.startswith("make a snapshot") for line in lines)


def ends(play: Play) -> list[int]:
    """How many records each snapshot on the disk is of."""
    return [snapshot.point.end for snapshot in play.snapshots]


def test_one_is_made_when_the_records_have_grown_by_so_much_again() -> None:
    play = play_of(node_a())
    for name in "abcdef":
        play.create(name)
    first, second = ends(play)
    assert 0 < first < second <= len(play.disk)
    grown = sum(map(len, play.disk[first:second]))
    assert FEW_RECORDS <= grown < 3 * FEW_RECORDS


def test_none_is_made_at_the_first_level_since_its_raylog_could_not_read_one() -> None:
    play = play_of(node_a(), level=1)
    play.create("t")
    assert play.snapshots == []
    play.asks(FinalizeUpgrade(level=2))
    play.settle()
    assert len(play.snapshots) == 1


def test_another_limit_holds_at_once() -> None:
    play = play_of(node_a(), most_bytes=1 << 20)
    play.create("t")
    assert play.snapshots == []
    play.asks(ApplyConfig(config={KEY: FEW_RECORDS}))
    play.settle()
    assert len(play.snapshots) == 1


def test_it_is_of_records_that_count_and_comes_before_what_is_appended_next() -> None:
    play = play_of(node_a(), node_b(), most_bytes=1)
    play.asks(AllocateProducerId())
    assert play.asks(create()) == []  # one append at a time
    assert not is_wanted(play.appended()), "the copy does not have it yet"
    answer, snapshot, append, *_ = play.keeps("b")
    assert answer.startswith("answer 2: ")
    assert snapshot == f"make a snapshot of {len(play.disk)}"
    assert append.startswith("append: topic t"), "it does not wait for the snapshot"
    assert play.makes_snapshot() == ["note metadata-snapshot-made"]
    play.settle()
    assert answer_of(play) == "t"


def test_one_that_fails_is_told_and_tried_again_and_all_goes_on() -> None:
    play = play_of(node_a(), most_bytes=1)
    before = ends(play)
    play.asks(AllocateProducerId())
    assert is_wanted(play.appended())
    assert play.makes_snapshot(FULL) == ["note metadata-snapshot-failed"]
    assert play.machine.saving.problem == FULL
    play.create("t")
    assert ends(play) == before
    play.settle(RETRY_MS)
    assert play.machine.saving.problem is None
    assert ends(play) != before


def test_a_damaged_one_is_told_and_another_is_made_at_once() -> None:
    play = play_of(node_a(), most_bytes=1 << 20)
    play.begin(damaged_snapshots=("250.checkpoint: damaged",))
    play.sees()
    assert play.machine.saving.damaged == ("250.checkpoint: damaged",)
    play.reports("a")
    assert is_wanted(play.appended())
    play.makes_snapshot(damaged=("250.checkpoint: damaged",))
    assert play.machine.saving.damaged == ("250.checkpoint: damaged",), "it lies there"
    play.settle()
    assert play.saving is None


def test_one_that_is_damaged_later_is_told_and_a_copy_gets_the_next_one() -> None:
    play = play_of(node_a(), node_b(), most_bytes=1)
    play.followed.discard("b")
    play.settle(SUSPECT_MS + 1_000)
    play.create("t")
    play.copy_begins("b", "b2")  # on a new disk
    damaged = play.snapshots[-1]
    play.damaged.append(damaged)
    play.settle(RETRY_MS)
    assert play.saving is None, "nobody has looked"
    play.followed.add("b")
    play.until(lambda: play.saving is not None)
    (why,) = play.machine.saving.damaged
    assert damaged.id.file_name in why
    (_, copy) = play.machine.copies
    assert copy.problem == LACKS_SNAPSHOT, "it is not to blame"
    play.settle()
    assert play.machine.saving.damaged == ()
    assert play.copy_of("b").status().end == len(play.disk)
    assert play.desired.copies == ("a", "b")


def test_one_that_a_bad_disk_damages_again_is_made_again_after_a_minute() -> None:
    play = play_of(node_a(), node_b(), most_bytes=1)
    play.create("t")
    newest = play.snapshots[-1]
    play.damaged.append(newest)
    for _ in range(10):
        play.does(SnapshotDamaged(end=newest.point.end, why="it is damaged"))
        play.passes()
        assert play.saving is None, "it was made just now"
    play.passes(RETRY_MS)
    assert play.saving is not None
    play.makes_snapshot()
    play.does(SnapshotDamaged(end=newest.point.end - 1, why="an older one is damaged"))
    assert play.machine.saving.damaged == (), "nobody needs it"


def test_the_next_controller_goes_on_behind_it_and_so_does_a_copy_that_is_behind() -> None:
    play = play_of(node_a(), node_b())
    play.followed.discard("b")
    play.settle(SUSPECT_MS + 1_000)
    for name in "abcdef":
        play.create(name)
    first, _ = ends(play)
    assert play.copy_of("b").status().end < first
    topics = dict(play.desired.topics)
    play.begin()
    play.followed.add("b")
    play.settle()
    assert play.desired.topics == topics
    assert play.copy_of("b").status().end == len(play.disk)
    assert play.desired.copies == ("a", "b")
