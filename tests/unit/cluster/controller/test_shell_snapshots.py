"""A whole Controller that makes snapshots of its metadata; without Ray."""

from collections.abc import Iterator

import pytest

from raylog.actors.metadata_snapshot import CHECKPOINT_SUFFIX
from raylog.storage.errors import DiskFull
from raylog.storage.names import LOG_SUFFIX, segment_file
from tests.harness.control_nodes import PerfectNode
from tests.harness.controller_shells import LOG_DIR, ShellPlay

FOLDER = f"{LOG_DIR}/__cluster_metadata-0"
TOPICS = [f"t{number}" for number in range(8)]


@pytest.fixture
def play() -> Iterator[ShellPlay]:
    """A Controller that makes one each few records."""
    nodes = PerfectNode("a", "dir-a"), PerfectNode("b", "dir-b")
    config = {"metadata.log.max.record.bytes.between.snapshots": 1_000}
    made = ShellPlay(*nodes, config=config)
    made.begin()
    yield made
    made.end()


def snapshots(play: ShellPlay) -> list[str]:
    """Their files, the oldest first."""
    names = sorted(play.fs.list_dir(FOLDER))
    return [f"{FOLDER}/{name}" for name in names if name.endswith(CHECKPOINT_SUFFIX)]


def creates(play: ShellPlay) -> None:
    for name in TOPICS:
        play.shell.commanding.create_topic(name, 2, {})
    play.is_soon(lambda: len(snapshots(play)) == 2, "two are kept")


def test_a_controller_makes_snapshots_and_the_next_one_goes_on_behind_them(play: ShellPlay) -> None:
    creates(play)
    assert segment_file(0, LOG_SUFFIX) not in play.fs.list_dir(FOLDER)
    play.end()
    play.start_again()
    play.begin()
    assert play.shell.lookups.list_topics() == TOPICS
    assert play.shell.lookups.problems() == {}


def test_a_damaged_one_is_told_and_stays_until_two_more_are_made(play: ShellPlay) -> None:
    creates(play)
    play.end()
    before, damaged = snapshots(play)
    play.fs.write_file(damaged, b"no snapshot")
    play.start_again()
    play.begin()
    commanding, lookups = play.shell.commanding, play.shell.lookups
    assert lookups.list_topics() == TOPICS
    assert damaged in lookups.problems()["damaged metadata snapshot"]
    play.is_soon(lambda: len(snapshots(play)) == 3, "another one is made")
    assert snapshots(play)[:2] == [before, damaged], "the one before was the only one"
    for name in TOPICS:
        commanding.delete_topic(name)
    play.is_soon(lambda: damaged not in snapshots(play), "it is needed no more")
    play.is_soon(lambda: lookups.problems() == {}, "nothing is told of it")


def test_one_that_a_full_disk_cannot_take_is_told_and_holds_nothing_up(play: ShellPlay) -> None:
    with play.fs.failing(DiskFull, "rename"):
        play.shell.commanding.create_topic("t", 8, {})
        play.is_soon(lambda: "metadata snapshot" in play.shell.lookups.problems(), "it is told")
    play.shell.commanding.create_topic("u", 2, {})
    assert play.failures == []
