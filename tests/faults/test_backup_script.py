"""The backup script of docs/OPERATIONS.md, and what happens in the middle of it.

A command of the script is stopped until the test has done what shall happen there.
"""

import os
import re
import resource
import shlex
import shutil
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from raylog.cluster.controller.metadata_log import MetadataLog
from raylog.cluster.controller.records import TopicRecord
from raylog.storage.cleaner.cleanable import Cleanable
from raylog.storage.cleaner.cleaner import Buffers, clean
from raylog.storage.clock import SystemClock
from raylog.storage.config import LogConfig
from raylog.storage.errors import IdentityMissing
from raylog.storage.loader import create_log, open_log
from raylog.storage.log import Log
from raylog.storage.log_dir import LogDir
from raylog.storage.names import TopicPartition
from raylog.storage.records.encode import encode_records
from raylog.storage.state.properties import META_PROPERTIES, random_id
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import TOPIC_ID, offsets_of
from raylog.storage.tools.verify import verify_folder
from tests.harness.metadata_snapshots import save_snapshot
from tests.harness.operations_page import (
    backup_command,
    backup_script,
    blocks,
    run_block,
    section,
    with_paths,
)
from tests.harness.real_dirs import (
    FS,
    PARTITION,
    append,
    checkpoint,
    make,
    open_partition,
    start,
    stop,
)

TIMEOUT_S = 240
LINKS = ".backup"
OTHER = TopicPartition("trains", 7)
COMPACTED = TopicPartition("compacted", 0)
Result = subprocess.CompletedProcess[str]


class Script:
    """The script, and where its commands are stopped or have another effect."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._bin = folder, folder / "bin"
        self._bin.mkdir()
        self._environment = {**os.environ, "PATH": f"{self._bin}:{os.environ['PATH']}"}

    def replace(self, command: str, text: str) -> None:
        """Have a command do this instead, in the words of ``sh``."""
        path = self._bin / command
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def stop_before(self, command: str, words: str) -> None:
        """Stop once, before the command is run with these words among its arguments."""
        paths = [self._folder / name for name in ("reached", "go-on", "once")]
        reached, go_on, once = (shlex.quote(str(path)) for path in paths)
        for path in paths[:2]:
            os.mkfifo(path)
        self.replace(
            command,
            f'case "$*" in *{shlex.quote(words)}*)\n'
            f"    if mkdir {once} 2>/dev/null; then echo >{reached}; read _ <{go_on}; fi\n"
            "esac\n"
            f'exec {shutil.which(command)} "$@"',
        )

    def begin(self, log_dir: Path, copy: Path, file_bytes: int = -1) -> "subprocess.Popen[str]":
        """``file_bytes``: no file becomes larger than this."""
        return subprocess.Popen(
            [*backup_command(self._folder), str(log_dir), str(copy)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment,
            start_new_session=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, -1)),
        )

    def reach(self) -> None:
        """Wait until it has stopped."""
        (self._folder / "reached").read_text()

    def go_on(self) -> None:
        (self._folder / "go-on").write_text("\n")

    def end(self, running: "subprocess.Popen[str]") -> Result:
        try:
            out, err = running.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.communicate()
            raise
        return Result(running.args, running.returncode, out, err)

    def run(
        self, log_dir: Path, copy: Path, meanwhile: Callable[[], object] | None = None
    ) -> Result:
        """``meanwhile``: is done where the script stops."""
        running = self.begin(log_dir, copy)
        if meanwhile is not None:
            self.reach()
            meanwhile()
            self.go_on()
        return self.end(running)


class Served:
    """A log dir with two partitions: a log of three segments, and an empty one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log_dir: LogDir = start(path)
        self.log: Log = make(self.log_dir)
        self.log.reconfigure(replace(self.log.config, retention_ms=-1))
        append(self.log, 25)
        create_log(FS, self.log_dir.folder(OTHER), TOPIC_ID)
        checkpoint(self.log_dir, self.log)

    def delete_first_segments(self) -> None:
        """As a trim and a round of retention do."""
        with self.log.locks.old, self.log.locks.flush:
            self.log.delete_records(20)
            assert self.log.delete_old_segments() == 2


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path / "log dir")
    yield served
    stop(served.log_dir, served.log)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    (tmp_path / "all copies").mkdir()
    return tmp_path / "all copies" / "of today"


def opened(path: Path) -> list[int]:
    """The offsets of the log in a copy, as the next broker finds them; it stops in order."""
    log_dir = start(path)
    log = open_partition(log_dir)
    found = offsets_of(log)
    stop(log_dir, log)
    return found


def test_paths_may_have_spaces(script: Script, served: Served, copy: Path) -> None:
    done = script.run(served.path, copy)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert opened(copy) == list(range(25))


def test_it_says_how_it_is_used(tmp_path: Path) -> None:
    done = subprocess.run(
        backup_command(tmp_path), capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 2
    assert "backup.sh LOG_DIR NEW_FOLDER" in done.stderr


def test_what_is_no_log_dir_is_refused_at_once(script: Script, copy: Path, tmp_path: Path) -> None:
    """Its disk may not be mounted."""
    (tmp_path / "empty").mkdir()
    done = script.run(tmp_path / "empty", copy)
    assert done.returncode == 1
    assert "meta.properties" in done.stderr
    assert not copy.exists()


def test_a_copy_is_readable_by_the_brokers_user_alone(
    script: Script, served: Served, copy: Path
) -> None:
    assert script.run(served.path, copy).returncode == 0
    paths = [copy, *copy.rglob("*")]
    others = [path for path in paths if stat.S_IMODE(path.stat().st_mode) & 0o077]
    assert others == []
    assert {path.stat().st_uid for path in paths} == {served.path.stat().st_uid}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files to another user")
def test_a_copy_that_root_makes_belongs_to_the_brokers_user(
    script: Script, served: Served, copy: Path
) -> None:
    for path in (served.path, *served.path.rglob("*")):
        os.chown(path, 12345, 12345)
    assert script.run(served.path, copy).returncode == 0
    assert {path.stat().st_uid for path in (copy, *copy.rglob("*"))} == {12345}


def test_the_check_of_the_page_finds_a_whole_copy_good(
    script: Script, served: Served, copy: Path
) -> None:
    assert script.run(served.path, copy).returncode == 0
    (check,) = blocks("Backup")
    check = with_paths(check, {"/backup/raylog-0": shlex.quote(str(copy))})
    assert run_block(check).returncode == 0
    (copy / str(PARTITION) / f"{0:020d}.log").write_bytes(b"damaged")
    assert run_block(check).returncode == 1


def test_a_copy_goes_into_a_new_disk_that_is_mounted(
    script: Script, served: Served, copy: Path, tmp_path: Path
) -> None:
    """A mount point cannot be moved away."""
    assert script.run(served.path, copy).returncode == 0
    disk = tmp_path / "disk"
    (disk / "lost+found").mkdir(parents=True)
    (command,) = re.findall(r"`(cp -a \S+/\. \S+)`", section("Restore"))
    paths = {"/backup/raylog-1": shlex.quote(str(copy)), "/data/raylog-1": str(disk)}
    assert run_block(with_paths(command, paths)).returncode == 0
    assert opened(disk) == list(range(25))


# -- one run and the next --------------------------------------------------------------------------


def test_a_copy_is_not_made_over_another_one(script: Script, served: Served, copy: Path) -> None:
    """Once, the second run copied into the folders of the first, and seemed to have succeeded."""
    assert script.run(served.path, copy).returncode == 0
    before = sorted(copy.rglob("*"))
    append(served.log, 20)
    done = script.run(served.path, copy)
    assert done.returncode == 1
    assert str(copy) in done.stderr
    assert sorted(copy.rglob("*")) == before


def test_two_runs_at_once_do_not_mix(script: Script, served: Served, copy: Path) -> None:
    second = copy.with_name("second")
    script.stop_before("cp", f"{LINKS} {copy}/{PARTITION}")
    first = script.begin(served.path, copy)
    script.reach()
    refused = script.run(served.path, second)
    assert refused.returncode == 1
    assert "another run" in refused.stderr
    assert not second.exists()
    script.go_on()
    assert script.end(first).returncode == 0
    assert opened(copy) == list(range(25))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_is_interrupted_leaves_nothing_in_the_log_dir(
    script: Script, served: Served, copy: Path, number: signal.Signals
) -> None:
    script.stop_before("cp", f"{LINKS} {copy}/{PARTITION}")
    running = script.begin(served.path, copy)
    script.reach()
    os.killpg(running.pid, number)
    assert script.end(running).returncode != 0
    assert not (served.path / LINKS).exists()
    assert not (copy / META_PROPERTIES).exists()


def test_what_a_killed_run_leaves_is_nobodys_partition_and_goes_with_the_next_run(
    script: Script, served: Served, copy: Path
) -> None:
    script.stop_before("cp", f"{LINKS} {copy}/{PARTITION}")
    running = script.begin(served.path, copy)
    script.reach()
    os.killpg(running.pid, signal.SIGKILL)
    script.end(running)
    assert list((served.path / LINKS).glob("*.log")) != []
    listing = served.log_dir.listing()
    assert listing.unknown == [LINKS]
    assert sorted(listing.partitions) == [PARTITION, OTHER]
    again = copy.with_name("again")
    assert script.run(served.path, again).returncode == 0
    assert not (served.path / LINKS).exists()
    assert opened(again) == list(range(25))


def test_a_copy_that_was_cut_off_is_no_log_dir(script: Script, served: Served, copy: Path) -> None:
    """Its disk is full: a broker must not take what is there for all there was."""
    append(served.log, 40)
    done = script.end(script.begin(served.path, copy, file_bytes=900))
    assert done.returncode not in (0, 3)
    assert not (served.path / LINKS).exists()
    with pytest.raises(IdentityMissing):
        start(copy)


# -- meanwhile in the log dir ----------------------------------------------------------------------


@pytest.mark.parametrize("command", ["ls", "cp"])
def test_a_partition_that_is_deleted_meanwhile_is_left_out(
    script: Script, served: Served, copy: Path, command: str
) -> None:
    """Once, the script tried for ever to copy it."""
    deleted = TopicPartition("deleted", 0)
    create_log(FS, served.log_dir.folder(deleted), TOPIC_ID)
    script.stop_before(command, f"{deleted}")
    done = script.run(served.path, copy, lambda: served.log_dir.doom(deleted))
    assert (done.returncode, done.stderr) == (0, "")
    assert not (copy / str(deleted)).exists()
    assert opened(copy) == list(range(25))


def test_snapshots_of_the_metadata_that_are_made_meanwhile_are_copied_with_what_follows(
    script: Script, served: Served, copy: Path
) -> None:
    path = str(served.path)
    MetadataLog(FS, SystemClock(), path, new_cluster=random_id()).close()

    def saves() -> None:
        """Twice, so that what was listed before is removed."""
        for number in range(2):
            log = MetadataLog(FS, SystemClock(), path)
            log.append([TopicRecord(name=f"t{number}", topic_id=f"id{number}", config={})])
            log.close()
            save_snapshot(FS, path)

    saves()
    script.stop_before("cp", "__cluster_metadata-0")
    assert script.run(served.path, copy, saves).returncode == 0
    log = MetadataLog(FS, SystemClock(), str(copy))
    assert log.start > 0, "it begins behind a snapshot"
    assert sorted(log.desired.topics) == ["id0", "id1"]
    log.close()


def test_a_partition_that_never_holds_still_is_named_and_the_others_are_copied(
    script: Script, served: Served, copy: Path
) -> None:
    """As one whose compaction has found the disk full in its last step."""
    create_log(FS, served.log_dir.folder(COMPACTED), TOPIC_ID)
    stuck = served.path / str(COMPACTED)
    (stuck / f"{0:020d}.log.swap").touch()
    script.replace("sleep", "")
    done = script.run(served.path, copy)
    assert done.returncode == 3
    assert str(stuck) in done.stderr
    assert not (copy / str(COMPACTED)).exists()
    assert not (served.path / LINKS).exists()
    assert opened(copy) == list(range(25))


def test_a_folder_that_cannot_be_linked_is_named_with_the_reason(
    script: Script, served: Served, copy: Path
) -> None:
    """As where it is a link to another file system."""
    script.replace("sleep", "")
    script.replace(
        "cp",
        f'case "$1 $2" in *l*{OTHER}*) echo "cp: Invalid cross-device link" >&2; exit 1; esac\n'
        f'exec {shutil.which("cp")} "$@"',
    )
    done = script.run(served.path, copy)
    assert done.returncode == 3
    assert f"{served.path}/{OTHER}" in done.stderr
    assert "Invalid cross-device link" in done.stderr
    assert opened(copy) == list(range(25))


def test_segments_that_come_and_go_while_they_are_linked_leave_a_whole_log(
    script: Script, served: Served, copy: Path
) -> None:
    def rolls_and_retention() -> None:
        append(served.log, 20)
        served.delete_first_segments()

    script.stop_before("cp", f"{PARTITION}/ {served.path}/{LINKS}")
    done = script.run(served.path, copy, rolls_and_retention)
    assert (done.returncode, done.stderr) == (0, "")
    assert opened(copy) == list(range(20, 45))
    assert list(copy.rglob("*.deleted")) == []


def test_retention_and_appends_while_the_bytes_are_copied_take_nothing_away(
    script: Script, served: Served, copy: Path
) -> None:
    def rolls_and_retention() -> None:
        append(served.log, 20)
        served.delete_first_segments()
        with served.log.locks.old:
            served.log.purge_deleted()

    script.stop_before("cp", f"{LINKS} {copy}/{PARTITION}")
    done = script.run(served.path, copy, rolls_and_retention)
    assert (done.returncode, done.stderr) == (0, "")
    found = opened(copy)
    assert found == list(range(len(found)))
    assert len(found) >= 25


def compacted(log_dir: LogDir) -> Log:
    """A log of three segments with two keys."""
    create_log(FS, log_dir.folder(COMPACTED), TOPIC_ID)
    log = open_log(
        FS,
        SystemClock(),
        log_dir.folder(COMPACTED),
        COMPACTED,
        LogConfig(segment_bytes=400, cleanup_policy="compact", file_delete_delay_ms=0),
        topic_id=TOPIC_ID,
        is_clean=True,
        recovery_point=0,
        log_start_offset=0,
    )
    for number in range(15):
        log.append(encode_records([(T0 + number, b"key-%d" % (number % 2), b"v" * 50, ())]))
    return log


def compact(log: Log) -> None:
    """A round over all sealed segments."""
    bound = log.segments[-1].base_offset
    section = Cleanable(first_dirty_offset=0, bound=bound, clean_bytes=0, cleanable_bytes=1)
    clean(FS, SystemClock(), log, section, Buffers(1 << 12, 0.9, 4096))


def test_a_compaction_that_swaps_segments_while_they_are_linked_leaves_a_whole_log(
    script: Script, served: Served, copy: Path
) -> None:
    log = compacted(served.log_dir)
    script.stop_before("cp", f"{COMPACTED}/ {served.path}/{LINKS}")
    done = script.run(served.path, copy, lambda: compact(log))
    expected = offsets_of(log)
    log.close()
    assert (done.returncode, done.stderr) == (0, "")
    *sealed, _active = verify_folder(FS, str(copy / str(COMPACTED)))
    assert [problem for report in sealed for problem in report.problems] == []
    log_dir = start(copy)
    again = open_log(
        FS,
        SystemClock(),
        log_dir.folder(COMPACTED),
        COMPACTED,
        LogConfig(cleanup_policy="compact"),
        topic_id=TOPIC_ID,
        is_clean=False,
        recovery_point=0,
        log_start_offset=0,
    )
    assert offsets_of(again) == expected
    again.close()
    log_dir.close(clean=True)


def test_gaps_that_compaction_has_left_are_no_loss_in_the_copy(
    script: Script, served: Served, copy: Path
) -> None:
    """Kafka's empties whole segments; a topic may since have another policy.

    Once, recovery cut the restored log at the first such gap: nothing said how far compaction
    had come.
    """
    served.log_dir.write_cleaner_offsets({PARTITION: 20})
    stop(served.log_dir, served.log)
    for path in (served.path / str(PARTITION)).glob(f"{10:020d}.*"):
        path.unlink()
    served.log_dir = start(served.path)
    served.log = open_partition(served.log_dir)
    expected = [*range(10), *range(20, 25)]
    assert offsets_of(served.log) == expected
    assert script.run(served.path, copy).returncode == 0
    assert opened(copy) == expected


@pytest.mark.skipif(shutil.which("rsync") is None, reason="needs rsync")
def test_with_rsync_files_that_did_not_change_are_shared_with_the_last_copy(
    script: Script, served: Served, copy: Path
) -> None:
    """The line of the page in the place of the script's own."""
    assert script.run(served.path, copy).returncode == 0
    append(served.log, 20)
    again = copy.with_name("again")
    (line,) = blocks("Other ways to copy", "text")
    line = with_paths(line, {"/backup/last": str(copy)})
    (own,) = re.findall(r"^ *cp -a \"\$links\".*\n", backup_script(), re.MULTILINE)
    path = copy.parent.parent / "incremental.sh"
    path.write_text(backup_script().replace(own, line))
    subprocess.run(["bash", str(path), str(served.path), str(again)], check=True, timeout=TIMEOUT_S)
    first = f"{PARTITION}/{0:020d}.log"
    assert (again / first).stat().st_ino == (copy / first).stat().st_ino
    assert opened(again) == list(range(45))
    assert opened(copy) == list(range(25))
