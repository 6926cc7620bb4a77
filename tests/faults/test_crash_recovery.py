"""Recovery, stopped at each of its file operations, with every loss of power; then recovery again.

However often it is stopped, and whatever of its work survives:

- every byte that was in the log's files before, and may be of a record, is in them or in exactly
  one aside at the end;
- the log is the one that an undisturbed recovery gives;
- what a recovery did is told: each name that is new, gone or has other bytes is in its report.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from raylog.storage.asides import aside_names
from raylog.storage.log import Log
from raylog.storage.state.checkpoints import LEADER_EPOCHS
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import (
    FOLDER,
    Disk,
    batch_of_size,
    flip,
    of_producer,
    offsets_of,
)
from raylog.storage.testing.memory import MemoryFileSystem, Stopped
from tests.harness.small_logs import CRASHES, SECOND, SMALL

BATCH_BYTES = 100
FOURTH = f"{60:020d}.log"


def cut_second(disk: Disk) -> None:
    disk.damage(SECOND, lambda content: content[:450])


def rot_second(disk: Disk) -> None:
    disk.damage(SECOND, flip(320))


def tear_the_end(disk: Disk) -> None:
    disk.damage(FOURTH, lambda content: content[:230] + b"\0" * 70)


def lose_a_tail(disk: Disk) -> None:
    disk.damage(SECOND, lambda content: content[:400])


def nothing(disk: Disk) -> None:
    disk.write("00000000000000000007.index", b"x" * 16)


# By name: the damage, where the log starts, whether it is compacted.
SCENES: dict[str, tuple[Callable[[Disk], None], int, bool]] = {
    "a segment that was cut": (cut_second, 0, False),
    "a batch that rotted": (rot_second, 0, False),
    "a batch that rotted on a compacted topic": (rot_second, 0, True),
    "a torn end": (tear_the_end, 0, False),
    "a tail that was lost": (lose_a_tail, 0, False),
    "a log that ends before its start": (rot_second, 50, False),
    "nothing": (nothing, 0, False),
}


def scene(name: str) -> MemoryFileSystem:
    """The disk that a recovery finds."""
    disk = Disk()
    log = disk.open(**SMALL)
    log.epochs.assign(0, 0)
    for number in range(35):
        if number % 4:
            records = batch_of_size(BATCH_BYTES, 2, T0 + number)
        else:
            records = of_producer(number // 2, 2, value=b"%09d" % number, timestamp=T0 + number)
            assert len(records) < BATCH_BYTES
        log.append(records)
    log.flush()
    SCENES[name][0](disk)
    return disk.fs.crash()


def recover(fs: MemoryFileSystem, name: str) -> Log:
    _, start, is_compacted = SCENES[name]
    policy = "compact" if is_compacted else "delete"
    return Disk(fs).open(is_clean=False, log_start_offset=start, cleanup_policy=policy, **SMALL)


def facts(log: Log) -> tuple[Any, ...]:
    """What must be the same; an empty log may have forgotten its epochs."""
    return offsets_of(log), log.log_end_offset, log.size_bytes and log.epochs.entries


def contents(fs: MemoryFileSystem) -> dict[str, bytes]:
    return {name: fs.read_file(f"{FOLDER}/{name}") for name in fs.list_dir(FOLDER)}


def pieces(files: dict[str, bytes]) -> Iterator[bytes]:
    """Every forty bytes of what may be records; each is there once."""
    for name, content in files.items():
        if name.endswith(".log"):
            for at in range(0, len(content) - 40, 40):
                piece = content[at : at + 40]
                if any(piece):
                    yield piece


def check_kept(before: dict[str, bytes], fs: MemoryFileSystem) -> None:
    after = {name: content for name, content in contents(fs).items() if ".log" in name}
    # A piece may lie on both sides of a cut: the two are put together again in either order.
    joined = b"".join(after[name] for name in sorted(after))
    joined += b"".join(after[name] for name in sorted(after, reverse=True))
    for piece in pieces(before):
        assert piece in joined, "a byte that may be a record's is gone"
    logs = [content for name, content in before.items() if name.endswith(".log")]
    assert sum(map(len, after.values())) <= sum(map(len, logs)), "something is kept twice"


def check_told(before: dict[str, bytes], fs: MemoryFileSystem, log: Log) -> None:
    after = contents(fs)
    told = {mended.file for mended in log.mended}
    kept = {mended.kept_as for mended in log.mended}
    for name in before.keys() - after.keys():
        assert name in told, f"{name} is gone, and nobody was told"
    for name, content in after.items():
        if name not in before:
            is_segment = log.segments[-1].size == 0 and name.startswith(
                f"{log.segments[-1].base_offset:020d}"
            )
            assert name in kept | told or is_segment, f"{name} is new, and nobody was told"
        elif content != before[name] and name != LEADER_EPOCHS:  # it ends where the log ends
            assert name in told, f"{name} was changed, and nobody was told"


@pytest.mark.parametrize("name", SCENES)
def test_a_recovery_that_is_stopped_anywhere_loses_nothing_and_keeps_nothing_twice(
    name: str,
) -> None:
    found = scene(name)
    before = contents(found)
    whole = found.crash()
    log = recover(whole, name)
    wanted = facts(log)
    check_kept(before, whole)
    check_told(before, whole, log)
    operations = whole.operations
    assert operations > 5
    for stop in range(operations + 1):
        for survives, names, seed in CRASHES:
            attempt = found.crash()
            attempt.stop_at(stop)
            try:
                recover(attempt, name)
            except Stopped:
                pass
            once = attempt.crash(survives, names=names, seed=seed + stop)
            where = f"stop {stop}, {survives}/{names}: {attempt.log[-3:]}"
            middle = contents(once)
            again = recover(once, name)
            assert facts(again) == wanted, where
            check_kept(before, once)
            check_told(middle, once, again)


@pytest.mark.parametrize("name", ["a batch that rotted", "a log that ends before its start"])
def test_a_recovery_may_be_stopped_twice(name: str) -> None:
    found = scene(name)
    before = contents(found)
    whole = found.crash()
    log = recover(whole, name)
    wanted = facts(log)
    for stop in range(0, whole.operations, 3):
        for second in range(0, whole.operations, 5):
            attempt = found.crash()
            for at, survives in ((stop, "all"), (second, "flushed")):
                attempt.stop_at(at)
                try:
                    recover(attempt, name)
                except Stopped:
                    pass
                attempt = attempt.crash(survives, names=survives)  # type: ignore[arg-type]
            again = recover(attempt, name)
            assert facts(again) == wanted, (stop, second)
            check_kept(before, attempt)


def test_the_second_recovery_has_nothing_left_to_do() -> None:
    for name in SCENES:
        fs = scene(name)
        recover(fs, name)
        names = aside_names(fs, FOLDER)
        after = {**contents(fs), LEADER_EPOCHS: b""}  # an epoch without a batch is dropped
        assert recover(fs, name).mended == ()
        assert {**contents(fs), LEADER_EPOCHS: b""} == after
        assert aside_names(fs, FOLDER) == names
