"""Which LogActors a life of a LogManager takes over."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from raylog.actors.control import DirReport
from raylog.actors.node.dirs import Found
from raylog.actors.node.events import Folder, Started
from raylog.actors.node.log_actors import served_of
from raylog.actors.node.starting import started
from raylog.actors.node_messages import LogSays
from tests.harness.log_actors import (
    ELSEWHERE,
    HERE,
    ORDERS,
    OTHERS,
    A,
    B,
    FakeDisk,
    FakeLog,
    FakeLogActors,
    says,
)

FOLDER = Folder(partition=ORDERS.partition, topic_id=ORDERS.topic_id, directory_id=A)
OFFLINE = DirReport(directory_id=B, path="/b", state="offline", why="EIO")


def start(
    said: LogSays,
    *folders: Folder,
    is_restarted: bool = True,
    silent: bool = False,
    others: Sequence[DirReport] = (OFFLINE,),
) -> Started:
    actors = FakeLogActors()
    actors.living[said.log.partition] = FakeLog(said=said, states=[said.state], is_silent=silent)
    found = Found(
        dirs=(DirReport(directory_id=A, path="/a", state="online"), *others),
        folders=folders or (FOLDER,),
        controller_epoch=6,
    )
    return started(
        found,
        disk=FakeDisk(),
        actors=actors,
        node_id=HERE,
        upkeep=("retention",),
        room=9,
        is_restarted=is_restarted,
    )


def test_an_actor_that_serves_a_folder_of_this_node_is_adopted() -> None:
    first = start(says())
    assert first.served == (served_of(says()),)
    assert first.strangers == ()
    assert (first.controller_epoch, first.room, first.upkeep) == (6, 9, ("retention",))
    assert first.is_restarted


@pytest.mark.parametrize(
    "said",
    [
        says(state="ended"),
        says(state="offline"),
        says(directory_id=B),
        says(folder="/a/another"),
        says(OTHERS.__class__(partition=ORDERS.partition, topic_id="another")),
    ],
)
def test_one_that_serves_nothing_of_this_node_is_a_stranger(said: LogSays) -> None:
    first = start(said)
    assert (first.served, first.strangers) == ((), (ORDERS.partition,))


@pytest.mark.parametrize("said", [says(state="opening"), says(state="learning")])
def test_one_that_opens_its_log_is_left_alone(said: LogSays) -> None:
    first = start(said)
    assert (first.served, first.strangers) == ((), ())


def test_one_that_serves_from_a_dir_that_cannot_be_used_is_a_stranger() -> None:
    """Another broker may take the dir, since this one does not have its lock."""
    other = Folder(partition=OTHERS.partition, topic_id=OTHERS.topic_id, directory_id=A)
    first = start(says(directory_id=B), other)
    assert (first.served, first.strangers) == ((), (ORDERS.partition,))


def test_one_of_another_node_is_left_alone() -> None:
    first = start(says(node_id=ELSEWHERE))
    assert (first.served, first.strangers) == ((), ())


def test_one_that_is_silent_is_left_alone() -> None:
    first = start(says(), silent=True)
    assert (first.served, first.strangers) == ((), ())


def test_one_whose_folder_is_damaged_is_adopted() -> None:
    damaged = Folder(partition=ORDERS.partition, topic_id=None, directory_id=A)
    assert start(says(), damaged).served == (served_of(says()),)


@pytest.mark.parametrize("is_restarted", [True, False])
def test_at_a_fresh_start_what_is_opened_is_read_from_the_disk(is_restarted: bool) -> None:
    online, offline = start(says(), is_restarted=is_restarted).dirs
    assert online.is_read_back is not is_restarted
    assert offline == OFFLINE


@pytest.mark.parametrize("directory_id", [A, B])
def test_a_copy_is_nothing_that_an_actor_may_serve(directory_id: str) -> None:
    copy = replace(FOLDER, is_copy=True)
    first = start(says(directory_id=directory_id), copy, others=())
    assert (first.served, first.strangers) == ((), (ORDERS.partition,))


def test_one_that_serves_from_a_dir_in_whose_place_a_new_one_lies_is_a_stranger() -> None:
    """A mount was lost: every path has a log dir that is online, and one of them is new."""
    new = DirReport(directory_id="dir-new", path="/b", state="online")
    other = Folder(partition=OTHERS.partition, topic_id=OTHERS.topic_id, directory_id=A)
    first = start(says(directory_id=B), other, others=(new,))
    assert (first.served, first.strangers) == ((), (ORDERS.partition,))
