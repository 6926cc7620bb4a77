"""The command line against a broker that ``raylog start`` runs in the foreground, as a person would
use it."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

START_TIMEOUT_S = 90
RAYLOG = [sys.executable, "-m", "raylog"]


class Shell:
    """Runs ``raylog`` with the address of the one broker."""

    def __init__(self, address: str) -> None:
        self.environment = {**os.environ, "RAY_ADDRESS": address}

    def __call__(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*RAYLOG, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            env=self.environment,
        )

    def lines(self, *arguments: str, stdin: str = "") -> list[str]:
        done = self(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()


def start(folder: Path, *arguments: str) -> tuple["subprocess.Popen[str]", str]:
    """``raylog start`` in the foreground on a Ray of its own, though others run here; its process
    and address."""
    environment = {**os.environ, "RAY_TMPDIR": str(folder / "ray"), "PYTHONUNBUFFERED": "1"}
    environment.pop("RAY_ADDRESS", None)
    process = subprocess.Popen(
        [*RAYLOG, "start", "--address", "local", "--log-dir", str(folder / "log"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        # The background jobs of a shell, which tests may be, ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    killer = threading.Timer(START_TIMEOUT_S, process.kill)
    killer.start()
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        found = re.search(r"runs on Ray, started here, at (\S+)", line)
        if found:
            killer.cancel()
            return process, found[1]
    raise AssertionError("".join(seen))


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="rl-", dir="/tmp"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="module")
def raylog(folder: Path) -> Iterator[Shell]:
    process, address = start(folder, "--log-dir", str(folder / "log-2"))
    shell = Shell(address)
    try:
        yield shell
        assert shell("stop").stdout == "stopped\n"
        assert process.wait(timeout=60) == 0
    finally:
        process.terminate()


@pytest.mark.timeout(240)
def test_a_topics_life(raylog: Shell) -> None:
    assert raylog.lines(
        "topic", "create", "t", "--partitions", "2", "--config", "retention.ms=-1"
    ) == ["created t with 2 partitions"]
    assert "t" in raylog.lines("topic", "list")
    described = raylog.lines("topic", "describe", "t")
    assert "retention.ms=-1" in described[0]
    assert [line.split("\t")[0] for line in described[1:]] == ["partition", "0", "1"]
    sent = raylog("produce", "t", "--key-separator", ":", stdin="a:1\nb:2\nno key\n")
    assert sent.stderr == "3 records acknowledged\n"
    found = [
        json.loads(line)
        for line in raylog.lines(
            "consume", "t", "--from", "earliest", "--to", "latest", "--format", "json"
        )
    ]
    assert sorted((one["key"] or "", one["value"]) for one in found) == [
        ("", "no key"),
        ("a", "1"),
        ("b", "2"),
    ]
    assert len(raylog.lines("consume", "t", "--from", "earliest", "--max", "2")) == 2
    assert "t-1" in "\n".join(raylog.lines("status"))
    assert raylog.lines("topic", "delete", "t") == ["deleted t"]
    assert "t" not in raylog.lines("topic", "list")


@pytest.mark.timeout(240)
def test_the_same_as_json(raylog: Shell) -> None:
    def document(*arguments: str) -> Any:
        return json.loads("\n".join(raylog.lines(*arguments, "--format", "json")))

    raylog.lines("topic", "create", "j", "--config", "retention.ms=-1")
    assert "j" in document("topic", "list")["topics"]
    described = document("topic", "describe", "j")
    assert (described["name"], described["config"]) == ("j", {"retention.ms": -1})
    status = document("status")
    assert status["partitions_serving"] == status["partitions_wanted"] == len(status["partitions"])
    assert status["findings"] == []
    (one,) = (one for one in status["partitions"] if one["partition"] == "j-0")
    assert (one["offsets"]["log_end_offset"], one["size_bytes"]) == (0, 0)
    assert document("health") == {"healthy": True, "findings": []}
    raylog.lines("topic", "delete", "j")


@pytest.mark.timeout(240)
def test_a_topics_configuration_is_shown_and_changed_and_it_gets_more_partitions(
    raylog: Shell,
) -> None:
    def shown(*arguments: str) -> list[list[str]]:
        return [line.split("\t") for line in raylog.lines("config", "get", *arguments)]

    raylog.lines("topic", "create", "c", "--config", "retention.ms=-1")
    assert shown("c", "retention.ms", "preallocate") == [
        ["key", "value", "set by"],
        ["retention.ms", "-1", "topic"],
        ["preallocate", "false", "default"],
    ]
    assert raylog.lines(
        "config", "set", "c", "segment.bytes=2000000", "--delete", "retention.ms"
    ) == ["c: segment.bytes=2000000"]
    assert ["segment.bytes", "2000000", "topic"] in shown("c")
    assert ["retention.ms", "604800000", "default"] in shown("c")
    assert ["num.partitions", "1", "default"] in shown("--broker")
    document = json.loads(
        "\n".join(raylog.lines("config", "get", "c", "segment.bytes", "--format", "json"))
    )
    assert document["config"] == [{"name": "segment.bytes", "value": 2000000, "source": "topic"}]
    assert raylog.lines("topic", "add-partitions", "c", "3") == ["c has 3 partitions"]
    raylog.lines("topic", "delete", "c")


@pytest.mark.timeout(240)
def test_records_are_deleted_and_upkeep_is_shown(raylog: Shell) -> None:
    raylog.lines("topic", "create", "d")
    raylog("produce", "d", stdin="one\ntwo\nthree\n")
    delete = ("topic", "delete-records", "d", "0", "--before")
    assert raylog.lines(*delete, "2") == ["d-0 begins at offset 2"]
    assert raylog.lines("consume", "d", "--from", "earliest", "--to", "latest") == ["three"]
    assert "out of range" in raylog(*delete, "9").stderr
    assert raylog.lines(*delete, "latest") == ["d-0 begins at offset 3"]
    raylog.lines("topic", "create", "k", "--config", "cleanup.policy=compact")
    for verb in ("compaction", "retention"):
        header = raylog.lines(verb)[0].split("\t")
        assert header[0] == "partition"
        assert isinstance(json.loads("\n".join(raylog.lines(verb, "--format", "json")))[verb], list)
    raylog.lines("topic", "delete", "d")
    raylog.lines("topic", "delete", "k")


@pytest.mark.timeout(240)
def test_log_dirs_are_shown_and_a_partition_is_moved_between_them(
    folder: Path, raylog: Shell
) -> None:
    raylog.lines("topic", "create", "m")
    raylog("produce", "m", stdin="one\n")
    (dirs,) = json.loads("\n".join(raylog.lines("log-dirs", "--format", "json"))).values()
    assert [(one["path"], one["is_online"]) for one in dirs] == [
        (str(folder / "log"), True),
        (str(folder / "log-2"), True),
    ]
    lines = [line.split("\t") for line in raylog.lines("log-dirs")]
    assert lines[0][:4] == ["node", "log dir", "state", "partitions"]
    assert [line[2] for line in lines[1:]] == ["online", "online"]
    for target in (dirs[0]["path"], dirs[1]["directory_id"]):
        moved = raylog.lines("partition", "move", "m", "0", target)
    assert moved == [f"m-0 is in {folder / 'log-2' / 'm-0'}"]
    assert raylog.lines("consume", "m", "--from", "earliest", "--to", "latest") == ["one"]
    assert "none that" in raylog("partition", "move", "m", "0", "/nowhere").stderr
    raylog.lines("topic", "delete", "m")


@pytest.mark.timeout(240)
def test_health_tells_within_seconds_of_a_partition_whose_process_is_stuck(raylog: Shell) -> None:
    raylog.lines("topic", "create", "stuck")
    well = raylog("health")
    assert (well.returncode, well.stdout, well.stderr) == (0, "", "all is well\n")
    (line,) = (line for line in raylog.lines("status") if line.startswith("stuck-0"))
    pid = int(line.split("\t")[7])
    os.kill(pid, signal.SIGSTOP)
    try:
        found = raylog("health")
        assert found.returncode == 1
        severity, subject, what, _todo = found.stdout.rstrip("\n").split("\t")
        assert (severity, subject) == ("error", "stuck-0")
        assert "no answer" in what
        shown = raylog("status")
        assert "stuck-0" not in shown.stdout
        assert "error: stuck-0: no answer" in shown.stderr
    finally:
        os.kill(pid, signal.SIGCONT)
    assert raylog("health").returncode == 0
    raylog.lines("topic", "delete", "stuck")


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("topic", "describe", "nowhere"), "no such topic"),
        (("topic", "create", "a/b"), "topic name 'a/b'"),
        (("topic", "create", "t", "--config", "segment.byte=1"), "similar keys are segment.bytes"),
        (("config", "get", "nowhere"), "no such topic"),
        (("config", "get", "--broker", "retention.ms"), "unknown key"),
        (("config", "set", "nowhere", "retention.ms=1"), "no such topic"),
        (("topic", "add-partitions", "nowhere", "3"), "no such topic"),
        (("produce", "nowhere"), "no such topic"),
        (("consume", "nowhere"), "no such topic"),
        (("status", "--namespace", "other"), "no raylog broker runs in namespace 'other'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_goes_wrong_is_one_line(raylog: Shell, arguments: tuple[str, ...], says: str) -> None:
    done = raylog(*arguments)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.timeout(240)
def test_a_second_start_is_refused_and_says_what_to_do(folder: Path, raylog: Shell) -> None:
    done = raylog("start", "--log-dir", str(folder / "other"))
    assert done.returncode == 1
    assert done.stderr.startswith("error: a broker already runs in namespace 'raylog'")
    assert not (folder / "other").exists()


@pytest.mark.timeout(240)
def test_produce_names_the_line_that_is_refused_and_keeps_those_before(raylog: Shell) -> None:
    raylog.lines("topic", "create", "lines")
    done = raylog("produce", "lines", stdin="one\n" + "x" * 2_000_000 + "\n")
    assert done.returncode == 1
    assert done.stderr.startswith("error: line 2 was refused")
    assert raylog.lines("consume", "lines", "--from", "earliest", "--to", "latest") == ["one"]


@pytest.mark.timeout(240)
def test_consume_ends_when_its_reader_has_seen_enough_though_nothing_more_comes(
    raylog: Shell,
) -> None:
    raylog.lines("topic", "create", "head")
    assert raylog("produce", "head", stdin="first\nsecond\n").returncode == 0
    consuming = subprocess.Popen(
        [*RAYLOG, "consume", "head", "--from", "earliest"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=raylog.environment,
    )
    assert consuming.stdout is not None
    assert consuming.stderr is not None
    assert consuming.stdout.readline() == "first\n"
    consuming.stdout.close()
    assert consuming.wait(timeout=60) == 0
    assert consuming.stderr.read() == ""
    consuming.stderr.close()


@pytest.mark.timeout(240)
def test_without_an_address_the_broker_is_found_among_the_rays_of_this_machine(
    raylog: Shell,
) -> None:
    code = (  # of all the clusters that run here, only ours and a dead one
        "import sys, ray._private.services as services\n"
        "all_of = services._find_address_from_flag\n"
        "ours = {sys.argv.pop(1), '127.0.0.1:1'}\n"
        "services._find_address_from_flag = lambda flag: ours if flag == '--gcs-address' else "
        "all_of(flag)\n"
        "from raylog.cluster.cli.main import main; main()"
    )
    environment = {name: text for name, text in raylog.environment.items() if name != "RAY_ADDRESS"}
    command = [sys.executable, "-c", code, raylog.environment["RAY_ADDRESS"], "topic", "list"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "\n".join(raylog.lines("topic", "list")) + "\n"


@pytest.mark.timeout(240)
def test_ctrl_c_stops_it_in_order_and_the_next_start_finds_the_topic(
    folder: Path, raylog: Shell
) -> None:
    own = folder / "second"
    own.mkdir()
    process, address = start(own)
    Shell(address).lines("topic", "create", "kept")
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=90)[0]
    assert process.returncode == 0, output
    assert output.splitlines()[-1] == "stopped"
    assert (own / "log" / ".kafka_cleanshutdown").exists()
    process, address = start(own)
    try:
        assert Shell(address).lines("topic", "list") == ["kept"]
    finally:
        assert Shell(address)("stop").returncode == 0
        process.communicate(timeout=90)
