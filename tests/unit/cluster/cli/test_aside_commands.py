"""``raylog log aside`` and ``accept-loss``: what they say, what they refuse, and that it helps."""

import json
import re
import shlex
from pathlib import Path

import pytest

from raylog.actors.partition.opening import asides_in
from raylog.cluster.health.facts import Facts
from raylog.cluster.health.findings import findings
from raylog.storage.errors import LogShorterThanFlushed
from raylog.storage.log import Log
from raylog.storage.state.checkpoints import RECOVERY_POINTS, write_offsets
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
from tests.harness.statuses import serving_status

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
        f"{damaged}\t{TAIL}\t500\t16\t20\t4\tno",
        f"{damaged}\t{SEGMENT}\t500\t20\t25\t5\tno",
    ]
    header = "folder\tname\tbytes\tfirst offset\tend offset\tbatches\tin the log"
    assert aside("list", str(damaged)).lines() == [header, *rows]
    assert aside("list", str(damaged.parent)).lines() == [header, *rows]
    document = json.loads(aside("list", "--format", "json", str(damaged)).stdout)
    assert [entry["name"] for entry in document["asides"]] == [TAIL, SEGMENT]
    assert [entry["is_in_log"] for entry in document["asides"]] == [False, False]


def test_asides_whose_log_is_gone_are_listed_too(damaged: Path) -> None:
    for path in damaged.glob("*.log"):
        path.unlink()
    rows = [line.split("\t")[1] for line in aside("list", str(damaged)).lines()[1:]]
    assert rows == [TAIL, SEGMENT]


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
    assert f"{TAIL} stays: in 100 bytes of it no good batch was found" in done.stderr
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
        f"{TAIL} has 500 bytes, offsets 16 to 19; the log does not have these records",
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
    "command",
    [("aside", "restore"), ("aside", "drop"), ("aside", "drop", "--yes"), ("accept-loss",)],
)
def test_what_is_no_partition_is_refused(disk: Path, command: tuple[str, ...]) -> None:
    disk.mkdir()
    (disk / "file-0").touch()
    name = () if command[0] == "accept-loss" else (TAIL,)
    for path, why in (
        (disk, "its name is not <topic>-<partition>"),
        (disk / "t-0", "the folder does not exist"),
        (disk / "file-0", "this is a file, not a folder"),
    ):
        done = run_here("log", *command, str(path), *name)
        assert done.returncode == 1
        assert done.stderr.startswith(f"error: {path}: {why}; nothing was changed. Check the path")
    assert [path.name for path in disk.iterdir()] == ["file-0"]


def test_a_folder_without_a_log_has_not_lost_nothing(disk: Path) -> None:
    (disk / "t-0").mkdir(parents=True)
    done = run_here("log", "accept-loss", str(disk / "t-0"))
    assert (done.returncode, done.stdout) == (1, "")
    assert "it has no .log file; nothing was changed" in done.stderr


def test_a_restored_file_is_known_as_such_until_it_is_dropped(damaged: Path) -> None:
    aside("restore", str(damaged), TAIL, "--allow-gap")
    again = aside("restore", str(damaged), TAIL, "--allow-gap")
    assert again.returncode == 1
    assert "the log has its good batches already; nothing was changed" in again.stderr
    restart(damaged.parent)
    rows = [line.split("\t")[1:] for line in aside("list", str(damaged)).lines()[1:]]
    assert rows == [
        [TAIL, "500", "16", "20", "4", "yes"],
        [SEGMENT, "500", "20", "25", "5", "no"],
    ]
    asked = aside("drop", str(damaged), TAIL)
    assert "offsets 16 to 19; the log has these records" in asked.stderr


def test_health_tells_no_record_of_a_restored_file_as_missing(damaged: Path) -> None:
    aside("restore", str(damaged), TAIL, "--allow-gap")
    aside("restore", str(damaged), SEGMENT)
    asides, gap = findings(told(damaged, restart(damaged.parent)))
    assert f"{TAIL} (500 bytes; its good batches are in the log again)" in asides.what
    assert "offsets 16" not in asides.what
    assert "offsets 15 to 15" in gap.what


# -- lost records ----------------------------------------------------------------------------------


@pytest.fixture
def shorter(folder: Path) -> Path:
    """A partition whose last segment is gone, with a recovery point of 25."""
    for path in folder.glob("00000000000000000020.*"):
        path.unlink()
    (folder.parent / ".kafka_cleanshutdown").unlink()
    return folder


def test_a_loss_is_shown_and_accepted_only_with_a_word(shorter: Path) -> None:
    lost = "offsets 20 to 24 were on the disk and are missing from the log"
    asked = run_here("log", "accept-loss", str(shorter))
    assert asked.returncode == 1
    assert asked.stderr.splitlines() == [
        lost,
        "no file of this folder has a good batch of them",
        "nothing was changed; give --yes",
    ]
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
        "no record below the recovery point, offset 25, was found to be missing: there is no loss "
        f"to accept, and nothing was changed. To check every record: raylog log verify {folder}"
    ]
    assert not (folder / "accepted-losses").exists()


def test_without_a_recovery_point_nobody_says_that_nothing_is_lost(folder: Path) -> None:
    crash(folder.parent)
    (line,) = run_here("log", "accept-loss", str(folder), "--yes").lines()
    assert "so it cannot be known whether one is missing; nothing was changed" in line


@pytest.fixture
def rotten(folder: Path) -> Path:
    """A partition with a damage below its recovery point, 17: 15 is bad, 16 to 24 are good."""
    content = bytearray((folder / SECOND).read_bytes())
    content[5 * BATCH_BYTES + 70] ^= 1
    (folder / SECOND).write_bytes(content)
    crash(folder.parent)
    write_offsets(FS, str(folder.parent / RECOVERY_POINTS), {PARTITION: 17})
    return folder


def test_a_loss_says_which_files_still_have_records_and_how_to_keep_them(rotten: Path) -> None:
    asked = run_here("log", "accept-loss", str(rotten))
    lost, second, third, repair, before = asked.stderr.splitlines()[:-1]
    assert lost == "offsets 15 to 16 were on the disk and are missing from the log"
    assert second == f"{SECOND} has good batches, offsets 16 to 19"
    assert third == f"{THIRD} has good batches, offsets 20 to 24"
    command = shlex.split(repair.partition(": ")[2])
    assert command == ["raylog", "log", "repair", "--drop-segments", str(rotten)]
    assert "before the broker starts" in before
    assert run_here(*command[1:]).returncode == 0
    assert aside("restore", str(rotten), TAIL, "--allow-gap").returncode == 0
    assert aside("restore", str(rotten), SEGMENT).returncode == 0
    assert reread(rotten.parent) == [*range(15), *range(16, 25)]


@pytest.mark.parametrize("suffix", [".deleted", ".tmp", ".cleaned", ".bak"])
def test_a_loss_says_how_a_segment_that_somebody_renamed_gets_its_name_back(
    folder: Path, suffix: str
) -> None:
    renamed = folder / f"{SECOND}{suffix}"
    (folder / SECOND).rename(renamed)
    _, has, back, _ = run_here("log", "accept-loss", str(folder)).stderr.splitlines()
    assert has == f"{SECOND}{suffix} has good batches, offsets 10 to 19"
    command = shlex.split(back.partition(": ")[2])
    assert command == ["mv", str(renamed), str(folder / SECOND)]
    Path(command[1]).rename(command[2])
    assert reread(folder.parent) == [*range(25)]


def test_no_file_is_to_take_the_name_of_one_that_is_there(folder: Path) -> None:
    (folder / f"{SECOND}.deleted").write_bytes((folder / SECOND).read_bytes())
    (folder / SECOND).write_bytes(b"")
    told = run_here("log", "accept-loss", str(folder)).stderr
    assert f"{SECOND}.deleted has good batches, offsets 10 to 19" in told
    assert "mv " not in told


def test_an_emptied_segment_hides_no_segment_behind_it(folder: Path) -> None:
    """Those stay in the log: there is nothing to set aside."""
    (folder / SECOND).write_bytes(b"")
    (folder.parent / ".kafka_cleanshutdown").unlink()
    lost = "offsets 10 to 19 were on the disk and are missing from the log"
    assert run_here("log", "accept-loss", str(folder)).stderr.splitlines() == [
        lost,
        "no file of this folder has a good batch of them",
        "nothing was changed; give --yes",
    ]
    assert run_here("log", "accept-loss", str(folder), "--yes").returncode == 0
    assert reread(folder.parent) == [*range(10), *range(20, 25)]


def test_who_accepts_a_loss_by_damaged_bytes_gets_rid_of_them(folder: Path) -> None:
    """An orderly stop would else hide them from the next start, and its loss comes back later."""
    content = bytearray((folder / THIRD).read_bytes())
    content[3 * BATCH_BYTES + 70] ^= 1
    (folder / THIRD).write_bytes(content)
    accepted = run_here("log", "accept-loss", str(folder), "--yes").lines()
    assert accepted[-1].startswith("offsets 23 to 24 were on the disk and are missing")
    assert reread(folder.parent) == list(range(23))
    assert (folder / f"{THIRD}.aside-0").stat().st_size == 2 * BATCH_BYTES


def test_what_is_set_aside_already_is_not_to_be_set_aside(damaged: Path) -> None:
    write_offsets(FS, str(damaged.parent / RECOVERY_POINTS), {PARTITION: 25})
    lost, *kept, before, _ = run_here("log", "accept-loss", str(damaged)).stderr.splitlines()
    assert lost.startswith("offsets 15 to 24 were on the disk")
    assert kept == [
        f"{TAIL} has good batches, offsets 16 to 19",
        f"{SEGMENT} has good batches, offsets 20 to 24",
    ]
    assert before.startswith("before the broker starts, `raylog log aside restore` puts back")


def test_damage_in_the_last_segment_alone_is_repaired_without_more_words(folder: Path) -> None:
    content = bytearray((folder / THIRD).read_bytes())
    content[2 * BATCH_BYTES + 70] ^= 1
    (folder / THIRD).write_bytes(content)
    (folder.parent / ".kafka_cleanshutdown").unlink()
    asked = run_here("log", "accept-loss", str(folder)).stderr.splitlines()
    assert asked[1] == f"{THIRD} has good batches, offsets 23 to 24"
    assert asked[2].endswith(f": raylog log repair {folder}")
    assert run_here("log", "repair", str(folder)).returncode == 0


def test_files_behind_a_gap_do_not_have_what_is_missing_in_it(folder: Path) -> None:
    for path in folder.glob(f"{SECOND[:20]}.*"):
        path.unlink()
    (folder.parent / ".kafka_cleanshutdown").unlink()
    lost, kept, _ = run_here("log", "accept-loss", str(folder)).stderr.splitlines()
    assert lost.startswith("offsets 10 to 19 were on the disk")
    assert kept == "no file of this folder has a good batch of them"


def test_a_repair_says_what_was_lost_and_that_this_is_accepted(rotten: Path) -> None:
    repaired = run_here("log", "repair", "--drop-segments", str(rotten)).lines()
    assert f"{THIRD}: set aside, kept as {SEGMENT}" in repaired
    assert (
        "offsets 15 to 16 were on the disk and are not in the log any more; the loss is accepted"
        in repaired
    )


def test_a_repair_of_a_log_that_lacks_a_file_does_not_say_that_all_is_well(shorter: Path) -> None:
    (shorter / f"{25:020}.snapshot").unlink(missing_ok=True)
    done = run_here("log", "repair", str(shorter))
    assert done.returncode == 1
    assert done.stdout == "the files agree with each other, and nothing was changed\n"
    assert "the log does not open: offsets 20 to 24 were on the disk and are missing" in done.stderr
    assert done.stderr.endswith(f": raylog log accept-loss {shorter}\n")


# -- advice is followed ----------------------------------------------------------------------------


def commands_in(advice: str) -> list[list[str]]:
    """The commands of a piece of advice, as a shell would take them."""
    return [shlex.split(text) for text in re.findall(r"`raylog (log [^`]*)`", advice)]


def told(folder: Path, log: Log) -> Facts:
    """What health sees of a partition that was opened."""
    asides = asides_in(FS, str(folder))
    status = serving_status(
        *log.mended, asides=asides, partition=str(PARTITION), folder=str(folder)
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


def test_the_commands_of_an_error_take_any_path() -> None:
    path = "/my disk/it's/t-0"
    for command in commands_in(LogShorterThanFlushed(path, 10, 12).advice):
        assert command[-1] == path


def test_a_person_at_a_terminal_is_asked(damaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raylog.cluster.cli.asides.is_terminal", lambda: True)
    no = run_here("log", "aside", "drop", str(damaged), TAIL, stdin="n\n")
    assert (no.returncode, (damaged / TAIL).exists()) == (1, True)
    yes = run_here("log", "aside", "drop", str(damaged), TAIL, stdin="y\n")
    assert (yes.returncode, (damaged / TAIL).exists()) == (0, False)
