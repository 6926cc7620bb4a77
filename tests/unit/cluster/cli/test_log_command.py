"""``raylog log``: a shell's way to a partition's files, without a broker and without Ray."""

import errno
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import msgpack
import pytest

from raylog.actors.metadata_snapshot import DAMAGED_TODO, VERSION
from raylog.cluster.controller.metadata_log import MetadataLog
from raylog.cluster.controller.records import NodeRecord
from raylog.storage.files import RealFileSystem
from raylog.storage.log_dir import METADATA_PARTITION
from raylog.storage.records.encode import encode_records
from raylog.storage.testing.clock import ManualClock
from raylog.storage.tools import verify
from tests.harness.metadata_snapshots import save_snapshot
from tests.harness.paths import GOLDEN
from tests.harness.shell import Done, run_here

LOG_DIR = GOLDEN / "kafka-3.9-kraft-clean"
GOLDEN_FOLDER = str(LOG_DIR / "g-none-0")
GOLDEN_SEGMENT = f"{GOLDEN_FOLDER}/00000000000000000000.log"


@pytest.fixture
def segment(tmp_path: Path) -> str:
    """A .log file of two records, ``key-n`` and ``value-n``."""
    rows = [(1700000000000 + n, b"key-%d" % n, b"value-%d" % n, ()) for n in range(2)]
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(encode_records(rows))
    return str(path)


def raylog_log(*arguments: str) -> Done:
    """A ``raylog log`` command."""
    return run_here("log", *arguments)


def test_a_dump_is_kafkas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(LOG_DIR)
    expected = (GOLDEN / "dumps" / "kafka-3.9-kraft-clean.txnlog.txt").read_text()
    files = [
        line.removeprefix("Dumping ")
        for line in expected.splitlines()
        if line.startswith("Dumping ")
    ]
    done = raylog_log("dump", "--transaction-log-decoder", "--files", ",".join(files))
    assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")


def test_no_command_of_log_imports_ray_or_spark() -> None:
    check = (
        "import sys; from raylog.cluster.cli.main import app\n"
        "for words in sys.argv[1:]: app(words.split(), standalone_mode=False)\n"
        "print('imported', *sorted({'ray', 'pyspark'} & set(sys.modules)))"
    )
    commands = [
        f"log dump --print-data-log --files {GOLDEN_SEGMENT}",
        f"log verify {LOG_DIR / 'g-none-0'}",
        f"log aside list {LOG_DIR / 'g-none-0'}",
    ]
    found = subprocess.run(
        [sys.executable, "-c", check, *commands], capture_output=True, text=True, timeout=60
    )
    assert found.stdout.splitlines()[-1] == "imported", found.stdout + found.stderr


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ((), None),
        (("--deep-iteration",), "headerKeys: []"),
        (("--print-data-log",), "headerKeys: [] key: "),
        (("--value-decoder", "bytes"), " payload: 76616c75652d"),
        (
            ("--value-decoder-class", "org.apache.kafka.tools.api.DefaultDecoder"),
            " payload: 76616c75652d",
        ),
        (("--key-decoder", "bytes"), "key: 6b65792d"),
        (("--offsets-decoder",), "Unknown record type "),
        (("--cluster-metadata-decoder",), "payload: Error at 0, skipping."),
        (("--skip-record-metadata", "--print-data-log"), "| key: "),
    ],
)
def test_a_decoder_asks_for_records_and_their_content(
    segment: str, options: tuple[str, ...], line: str | None
) -> None:
    status, out, err = raylog_log("dump", "--files", segment, *options)
    assert (status, err) == (0, "")
    records = [found for found in out.splitlines() if found.startswith("|")]
    assert bool(records) == (line is not None)
    assert line is None or line in records[0]


def test_options_reach_the_tool(segment: str) -> None:
    index = str(LOG_DIR / "g-none-0" / "00000000000000000000.index")
    beginning = raylog_log("dump", "--files", segment, "--max-bytes", "60")
    assert len(beginning.lines()) == 2
    checked = raylog_log("dump", "--files", index, "--index-sanity-check")
    assert "passed sanity check." in checked.stdout
    verified = raylog_log("dump", "--files", index, "--verify-index-only")
    assert verified.stdout == f"Dumping {index}\n"
    too_small = raylog_log("dump", "--files", index, "--max-message-size", "80")
    assert too_small.returncode == 1


def test_a_file_that_cannot_be_dumped_is_one_line_and_exit_status_1(
    segment: str, tmp_path: Path
) -> None:
    missing = str(tmp_path / "00000000000000000001.log")
    status, out, err = raylog_log("dump", "--files", f"{missing},{segment}")
    assert status == 1
    assert err.splitlines() == [
        f"error: {missing}: No such file or directory; give a file that exists and that this "
        "user may read"
    ]
    assert f"Dumping {segment}\nLog starting offset: 0\nbaseOffset: 0 " in out


def test_a_decoder_that_does_not_exist_is_wrong_use(segment: str) -> None:
    status, _, err = raylog_log("dump", "--files", segment, "--value-decoder", "yaml")
    assert status == 2
    assert "unknown decoder 'yaml'" in " ".join(err.split())
    assert raylog_log("dump").returncode == 2


# -- verify and repair -----------------------------------------------------------------------------


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Two partitions that a Kafka wrote."""
    for name in ("g-txn-0", "g-none-0"):
        shutil.copytree(LOG_DIR / name, tmp_path / "logs" / name)
    return tmp_path / "logs"


def test_verify_tells_a_line_for_each_segment(log_dir: Path) -> None:
    status, out, err = raylog_log("verify", str(log_dir / "g-txn-0"))
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        f"ok  {log_dir}/g-txn-0/00000000000000000000: offsets 0-340, 62 batches, 16289 bytes",
        f"ok  {log_dir}/g-txn-0/00000000000000000341: offsets 341-395, 10 batches, 2695 bytes",
    ]


def test_verify_takes_a_whole_log_dir_and_says_what_to_do(log_dir: Path) -> None:
    index = log_dir / "g-none-0" / "00000000000000000400.index"
    index.write_bytes(b"\xff" + index.read_bytes()[1:])
    status, out, _ = raylog_log("verify", str(log_dir))
    assert status == 1
    assert len(out.splitlines()) == 8
    (bad,) = [line for line in out.splitlines() if not line.startswith("ok  ")]
    assert bad.startswith(
        f"BAD {log_dir}/g-none-0/00000000000000000400: 00000000000000000400.index: "
    )
    assert bad.endswith(f": raylog log repair {log_dir}/g-none-0")


@pytest.fixture
def metadata(tmp_path: Path) -> Path:
    """The folder of the metadata, with two snapshots; the log begins where the older one ends."""
    fs, log_dir = RealFileSystem(), str(tmp_path)
    MetadataLog(fs, ManualClock(), log_dir, new_cluster="cluster-1").close()
    for number in range(2):
        log = MetadataLog(fs, ManualClock(), log_dir)
        log.append([NodeRecord(key=f"n{number}", kafka_id=number, port=0)])
        log.close()
        save_snapshot(fs, log_dir)
    return tmp_path / str(METADATA_PARTITION)


def snapshots_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name.endswith(".checkpoint"))


def test_verify_checks_the_snapshots_of_the_metadata_too(metadata: Path) -> None:
    status, out, err = raylog_log("verify", str(metadata.parent))
    assert (status, err) == (0, "")
    shown = [line for line in out.splitlines() if ".checkpoint" in line]
    assert [line.partition(":")[0] for line in shown] == [
        f"ok  {path}" for path in snapshots_in(metadata)
    ]
    assert re.search(r": a snapshot of \d+ records, \d+ bytes", shown[0])


@pytest.mark.parametrize("which", [0, 1], ids=["the older one", "the newest"])
def test_verify_names_a_damaged_snapshot_and_that_the_other_one_is_enough(
    metadata: Path, which: int
) -> None:
    damaged = snapshots_in(metadata)[which]
    damaged.write_bytes(damaged.read_bytes()[:-1])
    status, out, err = raylog_log("verify", str(metadata))
    assert (status, err) == (1, "")
    (bad,) = [line for line in out.splitlines() if not line.startswith("ok  ")]
    assert bad == f"BAD {damaged}: its first record batch is damaged or cut off: {DAMAGED_TODO}"


def test_verify_says_to_restore_the_folder_where_no_snapshot_is_whole(metadata: Path) -> None:
    for path in snapshots_in(metadata):
        path.write_bytes(b"damaged")
    status, out, _ = raylog_log("verify", str(metadata))
    assert status == 1
    bad = [line for line in out.splitlines() if line.startswith("BAD")]
    assert len(bad) == 2
    for line in bad:
        assert line.endswith(
            "no snapshot that can be read reaches the log's beginning; restore the folder from a "
            "copy (docs/OPERATIONS.md, Damaged metadata)"
        )


def test_verify_calls_a_snapshot_of_a_newer_raylog_no_damage(metadata: Path) -> None:
    newest = snapshots_in(metadata)[1]
    header = msgpack.packb({"kind": "snapshot", "v": VERSION + 1})
    newest.write_bytes(encode_records([(0, None, header, ())]))
    status, out, _ = raylog_log("verify", str(metadata))
    assert status == 0
    (told,) = [line for line in out.splitlines() if str(newest) in line]
    assert told.startswith(f"ok  {newest}: not checked: a newer raylog wrote a 'snapshot' record")


def test_verify_of_what_is_no_partition_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "t-0").mkdir()
    whys = {
        "t-0": "it has neither .log files nor folders of partitions",
        "none": "the folder does not exist",
        "file": "this is a file, not a folder",
    }
    paths = [str(tmp_path / name) for name in whys]
    for command in ("verify", "aside list"):
        for path, why in zip(paths, whys.values(), strict=True):
            status, out, err = raylog_log(*command.split(), path)
            assert (status, out) == (1, "")
            assert err.startswith(f"error: {path}: {why}; nothing was changed. Check the path: ")
    status, _, err = raylog_log("verify", *paths, GOLDEN_FOLDER)
    assert (status, len(err.splitlines())) == (1, 3), "one line each, and then the next one"


def test_a_folder_without_rights_is_one_line_that_says_whose_rights_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> list[str]:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "listdir", refuse)
    for command in ("verify", "aside list"):
        done = raylog_log(*command.split(), str(tmp_path))
        assert (done.returncode, done.stderr) == (
            1,
            f"error: {tmp_path}: Permission denied; give the broker's user the right to read and "
            "write it, and run tools as this user\n",
        )


def test_a_printed_command_can_be_pasted_whatever_the_path_is(log_dir: Path) -> None:
    disk = log_dir.parent / "it's  my disk"
    log_dir.rename(disk)
    folder = disk / "g-txn-0"
    with (folder / "00000000000000000341.log").open("ab") as file:
        file.write(b"x" * 40)
    _, out, _ = raylog_log("verify", str(folder))
    *_, command = out.splitlines()[1].split(": ")
    words = shlex.split(command)
    assert words == ["raylog", "log", "repair", str(folder)]
    repaired = raylog_log(*words[2:])
    *_, command = repaired.lines()[-1].split(": ")
    assert shlex.split(command) == ["raylog", "log", "aside", "list", str(folder)]
    aside = "00000000000000000341.log.aside-0"
    listed = raylog_log(*shlex.split(command)[2:])
    assert listed.lines()[1:] == [f"{folder}\t{aside}\t40\t-1\t-1\t0\t-"]


def test_an_error_shows_a_path_as_it_is(tmp_path: Path) -> None:
    done = raylog_log("repair", str(tmp_path / "two  spaces-0"))
    assert f"{tmp_path}/two  spaces-0: the folder does not exist" in done.stderr


def test_an_error_is_one_line_whatever_the_path_is(tmp_path: Path) -> None:
    done = raylog_log("repair", str(tmp_path / "two\n\n lines-0"))
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert f"{tmp_path}/two lines-0: the folder does not exist" in done.stderr


def test_repair_says_that_zero_bytes_are_not_kept(log_dir: Path) -> None:
    folder = log_dir / "g-txn-0"
    with (folder / "00000000000000000341.log").open("ab") as file:
        file.write(bytes(40))
    done = raylog_log("repair", str(folder))
    assert done.lines()[1:] == [
        "00000000000000000341.log: cut 40 bytes, all zero",
        "indexes and snapshot rebuilt; the log ends at offset 396",
    ]


def test_repair_says_what_it_could_not_repair(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = log_dir / "g-txn-0"
    with (folder / "00000000000000000341.log").open("ab") as file:
        file.write(bytes(40))
    found = verify.verify_folder(RealFileSystem(), str(folder))
    monkeypatch.setattr(verify, "verify_folder", lambda *_, **__: found)
    status, _, err = raylog_log("repair", str(folder))
    assert status == 1
    assert err.startswith("error: still wrong: 00000000000000000341.log: ")


def test_repair_says_where_the_copy_is_and_what_went(log_dir: Path) -> None:
    folder = log_dir / "g-txn-0"
    with (folder / "00000000000000000341.log").open("ab") as file:
        file.write(b"x" * 40)
    status, out, err = raylog_log("repair", str(folder))
    assert (status, err) == (0, "")
    copied, cut, made, kept = out.splitlines()
    copy = Path(copied.removeprefix("copied to "))
    assert (copy / "00000000000000000341.log").stat().st_size == 2695 + 40
    aside = "00000000000000000341.log.aside-0"
    assert cut == f"00000000000000000341.log: cut 40 bytes, kept as {aside}"
    assert kept.endswith(f"before the broker starts: raylog log aside list {folder}")
    assert made.endswith("the log ends at offset 396")
    assert raylog_log("verify", str(folder)).returncode == 0
    assert (
        raylog_log("repair", str(folder)).stdout
        == "the files agree with each other, and nothing was changed\n"
    )


def test_repair_under_a_running_broker_is_refused(log_dir: Path) -> None:
    lock = RealFileSystem().lock(str(log_dir / ".lock"))
    done = raylog_log("repair", str(log_dir / "g-txn-0"))
    lock.release()
    assert done.returncode == 1
    assert done.stderr == (
        f"error: {log_dir} is locked by another process; stop the broker that uses it (`raylog "
        "stop`, with --namespace if it has another one), or wait until the tool that works on it "
        "has ended\n"
    )
