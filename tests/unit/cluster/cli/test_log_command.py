"""``raylog log``: a shell's way to a partition's files, without a broker and without Ray."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from raylog.storage.files import RealFileSystem
from raylog.storage.records.encode import encode_records
from tests.harness.paths import GOLDEN
from tests.harness.shell import Done, run_here

LOG_DIR = GOLDEN / "kafka-3.9-kraft-clean"
GOLDEN_SEGMENT = str(LOG_DIR / "g-none-0" / "00000000000000000000.log")


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


def test_verify_of_what_is_no_partition_is_an_error(tmp_path: Path) -> None:
    status, _, err = raylog_log("verify", str(tmp_path), str(tmp_path / "none"))
    assert status == 1
    assert [line.split(": ")[0] for line in err.splitlines()] == ["error", "error"]


def test_repair_says_where_the_copy_is_and_what_went(log_dir: Path) -> None:
    folder = log_dir / "g-txn-0"
    with (folder / "00000000000000000341.log").open("ab") as file:
        file.write(b"x" * 40)
    status, out, err = raylog_log("repair", str(folder))
    assert (status, err) == (0, "")
    copied, cut, made = out.splitlines()
    copy = Path(copied.removeprefix("copied to "))
    assert (copy / "00000000000000000341.log").stat().st_size == 2695 + 40
    assert cut == "00000000000000000341.log: cut 40 bytes"
    assert made.endswith("the log ends at offset 396")
    assert raylog_log("verify", str(folder)).returncode == 0
    assert raylog_log("repair", str(folder)).stdout == "nothing is wrong, and nothing was changed\n"


def test_repair_under_a_running_broker_is_refused(log_dir: Path) -> None:
    lock = RealFileSystem().lock(str(log_dir / ".lock"))
    done = raylog_log("repair", str(log_dir / "g-txn-0"))
    lock.release()
    assert done.returncode == 1
    assert done.stderr == (
        f"error: {log_dir} is locked by another process; stop the broker that uses it, or use "
        "another folder\n"
    )
