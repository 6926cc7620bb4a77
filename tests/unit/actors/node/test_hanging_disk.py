"""A disk that hangs holds up no other dir of its node, and what waits for it ends right."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from raylog.actors.node.instructions import Doom, MakeFolder, ReadDir, WriteEpoch
from raylog.storage.errors import LogLocked
from raylog.storage.state.checkpoints import RECOVERY_POINTS
from raylog.storage.state.properties import CLEAN_SHUTDOWN
from raylog.storage.testing.waiting import DEADLINE_S, wait_for
from tests.unit.actors.node.disks import (
    LATER_LOG,
    LOG,
    OFFSETS,
    ORDERS,
    OTHER_LOG,
    A,
    B,
    Disks,
    HangingFileSystem,
)

Work = Callable[[Disks, str], object]


def give_up(disks: Disks, here: str) -> None:
    disks.work.close_dir(here)
    disks.work.unlock_dir(here)


WORKS: dict[str, Work] = {
    "look": lambda disks, here: disks.work.check(here),
    "identities": lambda disks, here: disks.work.lost_identities(here),
    "recovery points": lambda disks, here: disks.work.write_recovery_points(here),
    "starts": lambda disks, here: disks.work.write_log_start_offsets(here),
    "cleaned": lambda disks, here: disks.work.record_cleaner_offset(LOG, here, 5),
    "begins": lambda disks, here: disks.work.record_log_start(LOG, here, OFFSETS),
    "settled": lambda disks, here: disks.work.settle_losses(LOG, here, OFFSETS),
    "make": lambda disks, here: disks.work.carry_out(
        MakeFolder(token=1, log=OTHER_LOG, directory_id=here)
    ),
    "doom": lambda disks, here: disks.work.carry_out(Doom(token=1, log=LOG, directory_id=here)),
    "epoch": lambda disks, here: disks.work.carry_out(
        WriteEpoch(token=1, controller_epoch=7, directory_id=here)
    ),
    "unlock": lambda disks, here: give_up(disks, here),
    "read back": lambda disks, here: disks.work.carry_out(ReadDir(token=1, directory_id=here)),
}


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as executor:
        yield executor


@pytest.fixture
def fs() -> HangingFileSystem:
    return HangingFileSystem()


def started(fs: HangingFileSystem, timeout_s: float = 10.0) -> Disks:
    """Two dirs with a log in each, with offsets."""
    disks = Disks(fs, timeout_s=timeout_s).start()
    for log, path in ((LOG, A), (OTHER_LOG, B)):
        disks.make(log, path)
        disks.work.began_opening(log, disks.id_of(path))
        disks.work.record_offsets(log, disks.id_of(path), OFFSETS)
    return disks


@pytest.mark.parametrize("work", WORKS)
def test_a_disk_that_hangs_holds_up_no_other_dir_and_no_look_into_memory(
    work: str, fs: HangingFileSystem, pool: ThreadPoolExecutor
) -> None:
    disks = started(fs)
    here, home = disks.id_of(A), disks.id_of(B)
    fs.hang(A)
    stuck = pool.submit(WORKS[work], disks, here)
    assert fs.has_begun.wait(DEADLINE_S)

    def go_on() -> None:
        disks.work.began_opening(OTHER_LOG, home)
        disks.work.record_offsets(OTHER_LOG, home, OFFSETS)
        disks.work.record_offsets(LOG, here, OFFSETS)
        disks.work.write_recovery_points(home)
        disks.work.cleaner_offsets()
        disks.work.online()
        assert disks.work.check(home) is None
        disks.doom(OTHER_LOG, B)
        disks.make(OTHER_LOG, B)

    try:
        pool.submit(go_on).result(DEADLINE_S)
    finally:
        fs.let_go()
    stuck.result(DEADLINE_S)


def test_a_log_that_leaves_while_a_checkpoint_is_being_written_is_out_of_it(
    fs: HangingFileSystem, pool: ThreadPoolExecutor
) -> None:
    """Its offsets were taken down before: one that comes under its name must not begin there."""
    disks = started(fs)
    here = disks.id_of(A)
    fs.hang(f"{A}/{RECOVERY_POINTS}")
    writing = pool.submit(disks.work.write_recovery_points, here)
    assert fs.has_begun.wait(DEADLINE_S)

    disks.doom()
    make = MakeFolder(token=1, log=LATER_LOG, directory_id=here)
    made = pool.submit(disks.work.carry_out, make)
    assert not fs.exists(f"{A}/{ORDERS}"), "it waits for the checkpoint"
    fs.let_go()
    writing.result(DEADLINE_S)
    made.result(DEADLINE_S)
    assert disks.checkpoint() == {}
    assert fs.is_dir(f"{A}/{ORDERS}")


def test_a_dir_that_hangs_is_closed_when_nobody_writes_to_it_any_more(
    fs: HangingFileSystem, pool: ThreadPoolExecutor
) -> None:
    """What is written after the unlocking would be another process's file."""
    disks = started(fs)
    here = disks.id_of(A)
    fs.hang(f"{A}/{RECOVERY_POINTS}")
    writing = pool.submit(disks.work.write_recovery_points, here)
    assert fs.has_begun.wait(DEADLINE_S)
    closed = pool.submit(disks.work.close_dir, here)
    wait_for(lambda: disks.work.online() == [disks.id_of(B)])
    with pytest.raises(LogLocked):  # it is not unlocked yet
        disks.work.carry_out(ReadDir(token=1, directory_id=here))
    assert not closed.done()
    fs.let_go()
    for future in (writing, closed):
        future.result(DEADLINE_S)
    disks.work.carry_out(ReadDir(token=2, directory_id=here))


def test_the_end_waits_for_no_disk_for_ever(
    fs: HangingFileSystem, pool: ThreadPoolExecutor
) -> None:
    disks = started(fs, timeout_s=0.05)
    fs.hang(f"{A}/{RECOVERY_POINTS}")
    writing = pool.submit(disks.work.write_recovery_points, disks.id_of(A))
    assert fs.has_begun.wait(DEADLINE_S)
    assert not disks.work.unlock({LOG: OFFSETS, OTHER_LOG: OFFSETS}, set())
    assert not fs.exists(f"{A}/{CLEAN_SHUTDOWN}")
    assert fs.exists(f"{B}/{CLEAN_SHUTDOWN}")
    fs.let_go()
    writing.result(DEADLINE_S)
    wait_for(lambda: fs.exists(f"{A}/{CLEAN_SHUTDOWN}"))
