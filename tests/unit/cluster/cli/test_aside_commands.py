"""``raylog log aside`` and ``accept-loss``: what they say, what they refuse, and that it helps."""

import json
import re
import shlex
from pathlib import Path

import pytest

from raylog.actors.messages import PartitionOffsets, PartitionStatus
from raylog.actors.partition.opening import asides_in, report_of
from raylog.cluster.health.facts import Facts
from raylog.cluster.health.findings import findings
from raylog.storage.errors import LogShorterThanFlushed
from raylog.storage.log import Log
from raylog.storage.testing.logs import offsets_of
from tests.harness.real_dirs import (
    BATCH_BYTES,
    FS,
    PARTITION,
    append,
    checkpoint,
    make,
    open_partition,
    start,
    stop,
)
from tests.harness.shell import Done, run_here

# The log has 25 batches of one record: 10, 10 and 5 in a segment.
FIRST, SECOND, THIRD = (f"{base:020}.log" for base in (0, 10, 20))
TAIL, SEGMENT = f"{SECOND}.aside-0", f"{THIRD}.aside-0"


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    return tmp_path / "logs"


@pytest.fixture
def folder(disk: Path) -> Path:
    """A partition that a broker left in order."""
    log_dir = start(disk)
    log = make(log_dir)
    append(log, 25)
    stop(log_dir, log)
    return disk / str(PARTITION)


def crash(disk: Path) -> None:
    """As if the broker had not stopped in order, and had flushed nothing."""
    (disk / ".kafka_cleanshutdown").unlink()
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (disk / name).unlink()


def restart(disk: Path) -> Log:
    """Start, open the partition and stop; returns the log as it was opened."""
    log_dir = start(disk)
    try:
        log = open_partition(log_dir)
        checkpoint(log_dir, log)
        log.close()
    finally:
        log_dir.close(clean=False)
    return log


def reread(disk: Path) -> list[int]:
    """The offsets that a reader finds after a start."""
    log_dir = start(disk)
    log = open_partition(log_dir)
    found = offsets_of(log)
    stop(log_dir, log)
    return found


@pytest.fixture
def damaged(folder: Path) -> Path:
    """The same, after a crash and a damage to offset 15: 15 to 24 are set aside."""
    content = bytearray((folder / SECOND).read_bytes())
    content[5 * BATCH_BYTES + 70] ^= 1
    (folder / SECOND).write_bytes(content)
    crash(folder.parent)
    assert restart(folder.parent).log_end_offset == 15
    return folder


def aside(*arguments: str) -> Done:
    return run_here("log", "aside", *arguments)


def test_the_list_tells_files_and_offsets_of_a_folder_or_of_a_log_dir(damaged: Path) -> None:
    rows = [
        f"{damaged}\t{TAIL}\t500\t16\t20\t4",
        f"{damaged}\t{SEGMENT}\t500\t20\t25\t5",
    ]
    header = "folder\tname\tbytes\tfirst offset\tend offset\tbatches"
    assert aside("list", str(damaged)).lines() == [header, *rows]
    assert aside("list", str(damaged.parent)).lines() == [header, *rows]
    document = json.loads(aside("list", "--format", "json", str(damaged)).stdout)
    assert [entry["name"] for entry in document["asides"]] == [TAIL, SEGMENT]


def test_a_list_of_nothing_says_so(folder: Path) -> None:
    done = aside("list", str(folder))
    assert (done.returncode, done.stderr) == (0, "nothing is set aside\n")


def test_the_list_needs_no_lock_and_changes_nothing(damaged: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in damaged.parent.rglob("*")}
    log_dir = start(damaged.parent)
    assert aside("list", str(damaged)).returncode == 0
    log_dir.close(clean=False)
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_what_is_restored_is_in_the_log_and_what_was_damaged_stays(damaged: Path) -> None:
    done = aside("restore", str(damaged), TAIL, "--allow-gap")
    assert done.lines() == [f"{TAIL}: offsets 16 to 19 are in the log again"]
    assert f"{TAIL} stays: 100 bytes of it are no good batch" in done.stderr
    assert aside("restore", str(damaged), SEGMENT).stderr == ""
    assert not (damaged / SEGMENT).exists()
    left = [*range(15), *range(16, 25)]
    assert reread(damaged.parent) == left
    crash(damaged.parent)
    assert reread(damaged.parent) == left, "the gap is no loss to the next recovery"


def test_after_a_restore_the_next_start_is_as_after_a_crash(damaged: Path) -> None:
    reread(damaged.parent)
    assert (damaged.parent / ".kafka_cleanshutdown").exists()
    assert aside("restore", str(damaged), TAIL, "--allow-gap").returncode == 0
    assert not (damaged.parent / ".kafka_cleanshutdown").exists()


def test_a_segment_behind_a_hole_that_was_filled_again_is_restored(folder: Path) -> None:
    copy = (folder / SECOND).read_bytes()
    (folder / SECOND).write_bytes(copy[: 5 * BATCH_BYTES])
    crash(folder.parent)
    assert restart(folder.parent).log_end_offset == 15
    (folder / SECOND).write_bytes(copy)  # from a copy, while the broker is stopped
    assert aside("restore", str(folder), SEGMENT).lines() == [
        f"{SEGMENT}: offsets 20 to 24 are in the log again"
    ]
    assert reread(folder.parent) == list(range(25))


def test_a_restore_is_refused_where_offsets_would_be_missing_or_are_taken(damaged: Path) -> None:
    gap = aside("restore", str(damaged), SEGMENT)
    assert gap.returncode == 1
    assert gap.stderr.startswith(f"error: {damaged}/{SEGMENT}: it begins at offset 20, but the log")
    log_dir = start(damaged.parent)
    log = open_partition(log_dir)
    append(log, 6)
    stop(log_dir, log)
    taken = aside("restore", str(damaged), SEGMENT)
    assert taken.returncode == 1
    assert "other records up to 21" in taken.stderr
    assert reread(damaged.parent) == list(range(21))


def test_records_whose_offsets_are_taken_can_still_be_read(damaged: Path, tmp_path: Path) -> None:
    """As docs/OPERATIONS.md says."""
    copy = tmp_path / THIRD
    copy.write_bytes((damaged / SEGMENT).read_bytes())
    dumped = run_here("log", "dump", "--print-data-log", "--files", str(copy))
    assert len([line for line in dumped.lines() if line.startswith("| offset: ")]) == 5


def test_a_drop_needs_a_word_and_removes_one_file(damaged: Path) -> None:
    refused = aside("drop", str(damaged), TAIL)
    assert refused.returncode == 1
    assert refused.stderr.splitlines() == [
        f"{TAIL} has 500 bytes, offsets 16 to 19",
        "nothing was changed; give --yes",
    ]
    assert (damaged / TAIL).exists()
    assert aside("drop", str(damaged), TAIL, "--yes").lines() == [f"{TAIL}: removed, 500 bytes"]
    assert [path.name for path in damaged.glob("*aside*")] == [SEGMENT]


@pytest.mark.parametrize("command", [("restore",), ("drop", "--yes")])
def test_a_file_that_is_not_there_is_one_line(damaged: Path, command: tuple[str, ...]) -> None:
    done = aside(*command, str(damaged), "../flights-0/" + TAIL)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "there is no such file set aside" in done.stderr


@pytest.mark.parametrize(
    "command",
    [("aside", "restore"), ("aside", "drop", "--yes"), ("accept-loss", "--yes")],
    ids=["restore", "drop", "accept-loss"],
)
def test_under_a_running_broker_everything_is_refused(
    damaged: Path, command: tuple[str, ...]
) -> None:
    name = () if command[0] == "accept-loss" else (TAIL,)
    for locked in (damaged.parent / ".lock", damaged):
        lock = FS.lock(str(locked))
        done = run_here("log", *command, str(damaged), *name)
        lock.release()
        assert done.returncode == 1
        assert "is locked by another process; stop the broker that uses it" in done.stderr
    assert (damaged / TAIL).exists()


@pytest.mark.parametrize(
    "command", [("aside", "restore"), ("aside", "drop", "--yes"), ("accept-loss",)]
)
def test_what_is_no_partition_is_refused(disk: Path, command: tuple[str, ...]) -> None:
    disk.mkdir()
    name = () if command[0] == "accept-loss" else (TAIL,)
    why = "this is not a partition's folder; its name must be <topic>-<partition>"
    for path, told in ((disk, why), (disk / "t-0", "the folder does not exist")):
        done = run_here("log", *command, str(path), *name)
        assert done.returncode == 1
        assert done.stderr == f"error: {path}: {told}; nothing was changed\n"
    assert list(disk.iterdir()) == []


# -- lost records ----------------------------------------------------------------------------------


@pytest.fixture
def shorter(folder: Path) -> Path:
    """A partition whose last segment is gone, with a recovery point of 25."""
    for path in folder.glob("00000000000000000020.*"):
        path.unlink()
    (folder.parent / ".kafka_cleanshutdown").unlink()
    return folder


def test_a_loss_is_shown_and_accepted_only_with_a_word(shorter: Path) -> None:
    lost = "offsets 20 to 24 were on the disk and are missing"
    asked = run_here("log", "accept-loss", str(shorter))
    assert asked.returncode == 1
    assert asked.stderr.splitlines() == [lost, "nothing was changed; give --yes"]
    with pytest.raises(LogShorterThanFlushed):
        restart(shorter.parent)
    accepted = run_here("log", "accept-loss", str(shorter), "--yes")
    assert accepted.lines() == [
        f"{lost}; the loss is accepted, and the log opens when the broker starts"
    ]
    log = restart(shorter.parent)
    lost_ranges = [
        (entry.first_offset, entry.end_offset) for entry in log.mended if entry.kind == "lost"
    ]
    assert lost_ranges == [(20, 25)]


def test_where_nothing_is_lost_nothing_is_accepted(folder: Path) -> None:
    done = run_here("log", "accept-loss", str(folder), "--yes")
    assert done.lines() == [
        "found no missing records below the recovery point; nothing was changed"
    ]
    assert not (folder / "accepted-losses").exists()


# -- advice is followed ----------------------------------------------------------------------------


def commands_in(advice: str) -> list[list[str]]:
    """The commands of a piece of advice, as a shell would take them."""
    return [shlex.split(text) for text in re.findall(r"`raylog (log [^`]*)`", advice)]


def told(folder: Path, log: Log) -> Facts:
    """What health sees of a partition that was opened."""
    status = PartitionStatus(
        partition=str(PARTITION),
        folder=str(folder),
        pid=1,
        kernel="compiled",
        leader_epoch=0,
        offsets=PartitionOffsets(0, 0, 0, 0),
        size_bytes=0,
        segments=1,
        is_offline=False,
        report=report_of(log.mended, asides_in(FS, str(folder))),
    )
    return Facts(partitions=[status])


def test_the_advice_on_an_aside_works_until_health_is_content(damaged: Path) -> None:
    for _ in range(2):
        (finding,) = findings(told(damaged, restart(damaged.parent)))
        listing, _, dropping = commands_in(finding.todo)
        assert run_here(*listing).returncode == 0
        assert run_here(*dropping, "--yes").returncode == 0
    assert findings(told(damaged, restart(damaged.parent))) == []


def test_an_aside_stays_a_warning_after_further_starts(damaged: Path) -> None:
    for _ in range(3):
        (finding,) = findings(told(damaged, restart(damaged.parent)))
        assert f"{TAIL} (500 bytes, offsets 16 to 19)" in finding.what
        assert f"{SEGMENT} (500 bytes, offsets 20 to 24)" in finding.what


def test_the_advice_of_an_error_on_lost_records_works(shorter: Path) -> None:
    with pytest.raises(LogShorterThanFlushed) as refused:
        restart(shorter.parent)
    (command,) = commands_in(refused.value.advice)
    assert run_here(*command, "--yes").returncode == 0
    assert restart(shorter.parent).log_end_offset == 20


def test_a_person_at_a_terminal_is_asked(damaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raylog.cluster.cli.asides.is_terminal", lambda: True)
    no = run_here("log", "aside", "drop", str(damaged), TAIL, stdin="n\n")
    assert (no.returncode, (damaged / TAIL).exists()) == (1, True)
    yes = run_here("log", "aside", "drop", str(damaged), TAIL, stdin="y\n")
    assert (yes.returncode, (damaged / TAIL).exists()) == (0, False)
