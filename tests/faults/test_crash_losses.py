"""A loss is accepted, the log opened, its checkpoint written, the acceptance dropped: stopped at
each file operation, with every loss of power, and done again.

- The log opens if the acceptance is on the disk, and is refused by name if it is not; a refusal
  changes nothing.
- In the end the log is the one that an undisturbed run gives. Nothing else is lost, and what was
  lost is told.
- So it is with two faults: a stop, an error of the disk or a full disk, then another at the next
  start.
- The same records, written again and lost again, are refused.
"""

from collections.abc import Callable
from contextlib import suppress

import pytest

from raylog.storage.errors import (
    DiskFull,
    FlushedRecordsMissing,
    LogShorterThanFlushed,
    RaylogError,
    StorageError,
)
from raylog.storage.log import Log
from raylog.storage.losses import accept_losses, drop_settled
from raylog.storage.state.checkpoints import (
    ACCEPTED_LOSSES,
    RECOVERY_POINTS,
    read_losses,
    read_offsets,
    write_offsets,
)
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import FOLDER, PARTITION, Disk, batch_of_size, flip, offsets_of
from raylog.storage.testing.memory import Fault, MemoryFileSystem, Stopped
from tests.harness.small_logs import CRASHES, SECOND, SMALL, THIRD

CHECKPOINT = f"/logs/{RECOVERY_POINTS}"


def lose_the_end(disk: Disk) -> None:
    disk.damage(THIRD, lambda content: content[:500])


def rot_at_the_end(disk: Disk) -> None:
    disk.damage(THIRD, flip(520))


def lose_a_segment(disk: Disk) -> None:
    for name in disk.names():
        if name.startswith(SECOND[:20]):
            disk.fs.remove(disk.path(name))


def lose_a_log(disk: Disk) -> None:
    disk.fs.remove(disk.path(SECOND))


def lose_both(disk: Disk) -> None:
    lose_a_log(disk)
    lose_the_end(disk)


# By name: the damage, whether the broker had stopped in order, and the offsets that are left.
SCENES: dict[str, tuple[Callable[[Disk], None], bool, list[int]]] = {
    "the end": (lose_the_end, False, [*range(50)]),
    "the end, found when it was stopped in order": (lose_the_end, True, [*range(50)]),
    "a batch that rotted": (rot_at_the_end, False, [*range(50)]),
    "a segment": (lose_a_segment, False, [*range(20), *range(40, 60)]),
    "a log with its indexes left": (lose_a_log, True, [*range(20), *range(40, 60)]),
    "both": (lose_both, False, [*range(20), *range(40, 50)]),
}


def scene(name: str) -> MemoryFileSystem:
    """The disk that a start finds: three segments of ten batches, all flushed, and the damage."""
    disk = Disk()
    log = disk.open(**SMALL)
    for number in range(30):
        log.append(batch_of_size(100, 2, T0 + number), leader_epoch=0)
    log.close()
    write_offsets(disk.fs, CHECKPOINT, {PARTITION: 60})
    SCENES[name][0](disk)
    disk.fs.sync_dir(FOLDER)
    return disk.fs.crash()


def start(fs: MemoryFileSystem, name: str) -> Log:
    """As a broker does it: lock the log dir, open, write the checkpoint, forget what is settled."""
    fs.sync_dir("/logs")  # LogDir does it
    recovery_point = read_offsets(fs, CHECKPOINT)[PARTITION]
    log = Disk(fs).open(is_clean=SCENES[name][1], recovery_point=recovery_point, **SMALL)
    if any(mended.kind == "lost" for mended in log.mended):
        write_offsets(fs, CHECKPOINT, {PARTITION: log.recovery_point})
        drop_settled(fs, FOLDER, log.log_end_offset)
    return log


def contents(fs: MemoryFileSystem) -> dict[str, bytes]:
    """All files but those of writes that were interrupted."""
    names = [name for name in fs.list_dir(FOLDER) if not name.endswith(".tmp")]
    return {name: fs.read_file(f"{FOLDER}/{name}") for name in names}


@pytest.mark.parametrize("name", SCENES)
def test_wherever_an_acceptance_is_stopped_the_log_is_refused_or_the_one_that_was_accepted(
    name: str,
) -> None:
    found, left = scene(name), SCENES[name][2]
    whole = found.crash()
    lost = {(entry.first_offset, entry.end_offset) for entry in accept_losses(whole, FOLDER)}
    accepted_at = whole.operations
    assert offsets_of(start(whole, name)) == left
    for stop in range(whole.operations + 1):
        for survives, names, seed in CRASHES:
            fs = found.crash()
            fs.stop_at(stop)
            with suppress(Stopped):
                accept_losses(fs, FOLDER)
                start(fs, name)
            fs = fs.crash(survives, names=names, seed=seed + stop)
            where = f"stop {stop}, {survives}/{names}"
            before = contents(fs)
            try:
                log = start(fs, name)
            except (LogShorterThanFlushed, FlushedRecordsMissing):
                assert stop < accepted_at, where
                assert contents(fs) == before, where
                accept_losses(fs, FOLDER)
                log = start(fs, name)
            assert offsets_of(log) == left, where
            again = [(m.first_offset, m.end_offset) for m in log.mended if m.kind == "lost"]
            assert {*again} <= lost, where
            assert {*again} == lost or stop > accepted_at, where


@pytest.mark.parametrize("name", ["the end", "a batch that rotted", "both"])
def test_wherever_it_is_stopped_the_same_loss_again_is_another_one(name: str) -> None:
    found, left = scene(name), SCENES[name][2]
    whole = found.crash()
    accept_losses(whole, FOLDER)
    accepted_at = whole.operations
    start(whole, name)
    for stop in range(accepted_at + 1, whole.operations + 1):
        for survives, names, seed in CRASHES:
            fs = found.crash()
            fs.stop_at(stop)
            with suppress(Stopped):
                accept_losses(fs, FOLDER)
                start(fs, name)
            disk = Disk(fs.crash(survives, names=names, seed=seed + stop))
            log = start(disk.fs, name)
            assert offsets_of(log) == left
            for number in range(5):
                log.append(batch_of_size(100, 2, T0 + number), leader_epoch=1)
            log.close()
            write_offsets(disk.fs, CHECKPOINT, {PARTITION: 60})
            assert (50, 60) not in read_losses(disk.fs, f"{FOLDER}/{ACCEPTED_LOSSES}")
            lose_the_end(disk)
            with pytest.raises(LogShorterThanFlushed):
                start(disk.fs, name)


def broken(path: str) -> StorageError:
    return StorageError(path, "Input/output error")


FIRST_FAULTS: list[Fault | None] = [None, broken, DiskFull]  # None: the process is stopped


def attempt(
    fs: MemoryFileSystem, name: str, at: int, fault: Fault | None, *, accepts: bool
) -> None:
    """Accept and start, with a fault at one operation."""
    if fault is None:
        fs.stop_at(at)
    else:
        fs.fail_at(at, fault)
    with suppress(Stopped, RaylogError):
        if accepts:
            accept_losses(fs, FOLDER)
        start(fs, name)


@pytest.mark.parametrize("fault", FIRST_FAULTS, ids=["stop", "broken disk", "full disk"])
@pytest.mark.parametrize("name", SCENES)
def test_two_faults_lose_nothing_else_and_leave_a_log_that_can_be_accepted(
    name: str, fault: Fault | None
) -> None:
    found, left = scene(name), SCENES[name][2]
    whole = found.crash()
    accept_losses(whole, FOLDER)
    start(whole, name)
    steps = whole.operations
    number = 0
    for first in range(steps):
        for second in range(first % 3, steps, 3):
            survives, names, seed = CRASHES[number % len(CRASHES)]
            number += 1
            fs = found.crash()
            attempt(fs, name, first, fault, accepts=True)
            fs = fs.crash(survives, names=names, seed=seed + number)
            attempt(fs, name, second, FIRST_FAULTS[number % 3], accepts=False)
            fs = fs.crash(survives, names=names, seed=seed + number)
            accept_losses(fs, FOLDER)
            log = start(fs, name)
            where = f"{first}, then {second}, {survives}/{names}"
            assert offsets_of(log) == left, where
            log.close()
            after = fs.crash("flushed", names="flushed")
            assert offsets_of(start(after, name)) == left, where
