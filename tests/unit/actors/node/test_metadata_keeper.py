"""The node's copy of the metadata among its log dirs: which one has it, and disks that hang."""

import pytest

from raylog.actors.control import MetadataKept
from raylog.actors.errors import RequestTimedOut
from raylog.actors.node.metadata_keeper import MetadataKeeper
from raylog.storage.testing.waiting import wait_for
from tests.harness.metadata_pushes import Pushing, began, topic
from tests.unit.actors.node.disks import CLUSTER, A, B, Disks, HangingFileSystem

FOLDER = "__cluster_metadata-0"
HISTORY = Pushing(began(1), topic("t"), topic("u"), cluster_id=CLUSTER)
OLDER = Pushing(began(1), topic("t"), cluster_id=CLUSTER)


def keeper_of(disks: Disks, patience_s: float = 10.0) -> MetadataKeeper:
    return MetadataKeeper(
        disks.work.online,
        lambda directory_id: disks.work.metadata_copy(
            directory_id, node="b", life="life", steady=disks.clock
        ),
        MetadataKept(node="b", life="life"),
        patience_s,
    )


def put(disks: Disks, path: str, history: Pushing) -> None:
    copy = disks.work.metadata_copy(disks.id_of(path), node="b", life="before", steady=disks.clock)
    copy.take(history.push())
    copy.release()


def test_the_first_log_dir_gets_the_copy() -> None:
    disks = Disks().start()
    kept = keeper_of(disks).push(HISTORY.push())
    assert (kept.directory_id, kept.end, kept.life) == (disks.id_of(A), 4, "life")
    assert not disks.fs.exists(f"{B}/{FOLDER}")


def test_the_log_dir_that_has_a_copy_keeps_it() -> None:
    disks = Disks().start()
    put(disks, B, OLDER)
    keeper = keeper_of(disks)
    assert keeper.status().directory_id == disks.id_of(B)
    assert keeper.push(HISTORY.push(3)).end == 4
    assert [len(batch) > 0 for batch in keeper.read(2, 1 << 20)] == [True, True]
    assert not disks.fs.exists(f"{A}/{FOLDER}")


def test_of_two_copies_the_one_counts_that_has_come_further() -> None:
    disks = Disks().start()
    put(disks, A, OLDER)
    put(disks, B, HISTORY)
    assert keeper_of(disks).promise(4).directory_id == disks.id_of(B)
    disks.fs.lock(f"{A}/{FOLDER}").release()  # nobody has the other one


def test_a_log_dir_that_goes_offline_takes_its_copy_with_it() -> None:
    disks = Disks().start()
    keeper = keeper_of(disks)
    keeper.push(HISTORY.push())
    disks.work.close_dir(disks.id_of(A))
    kept = keeper.status()
    assert (kept.directory_id, kept.end, kept.problem) == (disks.id_of(B), 0, "")
    assert keeper.push(HISTORY.push()).end == 4
    disks.work.close_dir(disks.id_of(B))
    assert "none of its log dirs is online" in keeper.status().problem


def test_a_log_dir_that_is_taken_out_of_use_has_no_open_copy() -> None:
    """Its disk may be unmounted then."""
    disks = Disks().start()
    keeper = keeper_of(disks)
    keeper.push(HISTORY.push())
    disks.work.withdraw(disks.id_of(A))
    keeper.leave(disks.id_of(A))
    keeper.leave(disks.id_of(B))  # which has none
    disks.fs.lock(f"{A}/{FOLDER}").release()
    assert keeper.push(HISTORY.push()).directory_id == disks.id_of(B)


def test_a_disk_that_hangs_is_a_problem_and_another_log_dir_goes_on() -> None:
    fs = HangingFileSystem()
    disks = Disks(fs).start()
    keeper = keeper_of(disks, patience_s=0.05)
    keeper.push(HISTORY.push(0, 3))
    fs.hang(f"{A}/{FOLDER}")
    assert "no answer within 50 ms" in keeper.push(HISTORY.push(3)).problem
    with pytest.raises(RequestTimedOut):
        keeper.read(0, 1)
    with pytest.raises(RequestTimedOut):
        keeper.release()
    before = fs.operations
    assert keeper.promise(9).problem
    assert fs.operations == before, "nothing more is asked of it"
    disks.work.close_dir(disks.id_of(A))
    assert keeper.push(HISTORY.push()).directory_id == disks.id_of(B)
    fs.let_go()


def test_a_disk_that_hung_is_asked_again_when_it_is_back() -> None:
    fs = HangingFileSystem()
    disks = Disks(fs).start()
    keeper = keeper_of(disks, patience_s=0.05)
    keeper.push(HISTORY.push(0, 3))
    fs.hang(f"{A}/{FOLDER}")
    assert keeper.push(HISTORY.push(3)).problem
    fs.let_go()
    wait_for(lambda: not keeper.status().problem, what="the disk answers")
    assert keeper.status().end == 4, "what it was told before it hung"


def test_a_released_copy_is_unlocked_and_opened_again_on_demand() -> None:
    disks = Disks().start()
    keeper = keeper_of(disks)
    keeper.push(HISTORY.push())
    keeper.release()
    lock = disks.fs.lock(f"{A}/{FOLDER}")
    assert "locked" in keeper.status().problem
    lock.release()
    assert keeper.status().end == 4


def test_after_the_end_the_copy_is_closed_and_nothing_is_taken() -> None:
    disks = Disks().start()
    keeper = keeper_of(disks)
    keeper.push(HISTORY.push(0, 3))
    keeper.stop()
    assert "is stopping" in keeper.push(HISTORY.push(3)).problem
    disks.fs.lock(f"{A}/{FOLDER}").release()
