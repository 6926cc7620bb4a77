"""After a loss was accepted and the log has opened, all that is in the folder agrees."""

from collections.abc import Callable

import pytest

from raylog.storage.losses import accept_losses
from raylog.storage.state.checkpoints import ACCEPTED_LOSSES, RECOVERY_POINTS, write_offsets
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import FOLDER, PARTITION, Disk, of_producer, offsets_of
from raylog.storage.tools.verify import verify_folder
from tests.harness.small_logs import FIRST, SECOND, SMALL, THIRD

RECORDS = 60


def fill(disk: Disk) -> None:
    """Two records a batch of one producer, closed."""
    log = disk.open(**SMALL)
    log.epochs.assign(0, 0)
    for first in range(0, RECORDS, 2):
        records = of_producer(
            sequence=first, producer=7, count=2, timestamp=T0 + 1000 * first, value=b"v" * 15
        )
        log.append(records, leader_epoch=0)
    log.close()
    write_offsets(disk.fs, f"/logs/{RECOVERY_POINTS}", {PARTITION: RECORDS})


def problems(disk: Disk) -> list[str]:
    return [str(p) for report in verify_folder(disk.fs, FOLDER) for p in report.problems]


def remove(disk: Disk, *names: str) -> None:
    for name in names:
        disk.fs.remove(disk.path(name))


LOSSES: dict[str, Callable[[Disk], None]] = {
    "a segment that was cut": lambda disk: disk.damage(SECOND, lambda log: log[: len(log) // 2]),
    "a segment that was emptied": lambda disk: disk.damage(SECOND, lambda log: b""),
    "the first segment, emptied": lambda disk: disk.damage(FIRST, lambda log: b""),
    "a segment that is gone": lambda disk: remove(disk, SECOND),
    "the end": lambda disk: disk.damage(THIRD, lambda log: log[: len(log) // 2]),
}


@pytest.mark.parametrize("is_clean", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_log_whose_loss_was_accepted_is_in_order_when_it_has_opened(
    disk: Disk, loss: str, is_clean: bool
) -> None:
    fill(disk)
    assert disk.names(".log") == [FIRST, SECOND, THIRD]
    assert problems(disk) == []
    LOSSES[loss](disk)
    (lost,) = accept_losses(disk.fs, FOLDER)
    log = disk.open(is_clean=is_clean, recovery_point=RECORDS, **SMALL)
    left = [n for n in range(RECORDS) if not lost.first_offset <= n < lost.end_offset]
    assert offsets_of(log) == left
    log.close()
    assert problems(disk) == []
    again = disk.open(is_clean=True, recovery_point=log.recovery_point, **SMALL)
    assert [m for m in again.mended if m.kind == "rebuilt"] == []
    again.close()
    assert problems(disk) == []


def test_the_indexes_before_an_accepted_gap_are_made_again_and_told(disk: Disk) -> None:
    fill(disk)
    LOSSES["a segment that was cut"](disk)
    accept_losses(disk.fs, FOLDER)
    log = disk.open(is_clean=False, recovery_point=RECORDS, **SMALL)
    rebuilt = [(m.file, m.why) for m in log.mended if m.kind == "rebuilt"]
    why = "records that it knew of are lost, and the loss was accepted"
    names = [SECOND.replace(".log", suffix) for suffix in (".index", ".timeindex")]
    assert rebuilt == [(name, why) for name in names]


def test_what_a_snapshot_knows_of_a_loss_is_a_problem_until_the_loss_is_accepted(
    disk: Disk,
) -> None:
    """It stays: the producers' next sequences are right by it."""
    fill(disk)
    LOSSES["a segment that was cut"](disk)
    snapshot = THIRD.replace(".log", ".snapshot")
    assert [line for line in problems(disk) if line.startswith(snapshot)]
    accept_losses(disk.fs, FOLDER)
    assert [line for line in problems(disk) if line.startswith(snapshot)] == []


def test_a_damaged_file_of_accepted_losses_is_no_problem_of_a_whole_log(disk: Disk) -> None:
    fill(disk)
    disk.write(ACCEPTED_LOSSES, b"garbage")
    assert problems(disk) == []
