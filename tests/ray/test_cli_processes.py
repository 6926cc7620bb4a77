"""The command line as processes: ``raylog start`` in the foreground on a Ray of its own, signals,
closed pipes, exit statuses."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from raylog.actors.known_brokers import BrokerFiles
from tests.harness.clusters import short_folder
from tests.harness.shell import RAYLOG, Done, run_process

pytestmark = pytest.mark.timeout(240)

START_TIMEOUT_S = 90


class Foreground:
    """``raylog start`` in the foreground on a Ray of its own, though others run here; and other
    commands with its address."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.start()

    def start(self) -> None:
        environment = {
            **os.environ,
            "RAY_TMPDIR": str(self.folder / "ray"),
            "PYTHONUNBUFFERED": "1",
        }
        environment.pop("RAY_ADDRESS", None)
        self.process = subprocess.Popen(
            [*RAYLOG, "start", "--address", "local", "--log-dir", str(self.folder / "log")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            # The background jobs of a shell, which tests may be, ignore it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        self.environment = {**os.environ, "RAY_ADDRESS": self._address()}

    def _address(self) -> str:
        """Where it says that it runs."""
        killer = threading.Timer(START_TIMEOUT_S, self.process.kill)
        killer.start()
        assert self.process.stdout is not None
        seen = []
        for line in self.process.stdout:
            seen.append(line)
            found = re.search(r"runs on Ray, started here, at (\S+)", line)
            if found:
                killer.cancel()
                return found[1]
        raise AssertionError("".join(seen))

    def __call__(self, *arguments: str, stdin: str = "") -> Done:
        done = run_process(*arguments, environment=self.environment, stdin=stdin)
        return done.without_waiting()

    def lines(self, *arguments: str) -> list[str]:
        return self(*arguments).lines()


@pytest.fixture(scope="module")
def raylog() -> Iterator[Foreground]:
    with short_folder() as folder:
        running = Foreground(folder)
        try:
            yield running
            address = running.environment["RAY_ADDRESS"]
            assert len(BrokerFiles().find("raylog", address)) == 1
            assert running("stop").stdout == "stopped\n"
            assert BrokerFiles().find("raylog", address) == []
            assert running.process.wait(timeout=60) == 0
        finally:
            running.process.terminate()


def test_a_process_reads_prints_and_exits_as_a_shell_expects(raylog: Foreground) -> None:
    created = raylog("topic", "create", "t", "--partitions", "2")
    assert created == (0, "created t with 2 partitions\n", "")
    sent = raylog("produce", "t", "--key-separator", ":", stdin="a:1\nb:2\nno key\n")
    assert sent == (0, "", "3 records acknowledged\n")
    found = raylog("consume", "t", "--from", "earliest", "--to", "latest", "--with-key")
    assert sorted(found.lines()) == ["\tno key", "a\t1", "b\t2"]
    assert found.stderr == ""
    failed = raylog("topic", "describe", "nowhere")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.startswith("error: ")
    assert len(failed.stderr.splitlines()) == 1


def test_a_second_start_is_refused_and_says_what_to_do(raylog: Foreground) -> None:
    done = raylog("start", "--log-dir", str(raylog.folder / "other"))
    assert done.returncode == 1
    assert done.stderr.startswith("error: a broker already runs in namespace 'raylog'")
    assert not (raylog.folder / "other").exists()


def without_ray(raylog: Foreground) -> dict[str, str]:
    """An environment of a process that fails where it needs Ray."""
    folder = raylog.folder / "no-ray"
    folder.mkdir(exist_ok=True)
    (folder / "ray.py").write_text("raise ImportError('there shall be no Ray')")
    return {**raylog.environment, "PYTHONPATH": str(folder)}


def test_topics_are_listed_without_ray(raylog: Foreground) -> None:
    raylog.lines("topic", "create", "listed", "--partitions", "2")
    raylog("produce", "listed", stdin="one\ntwo\n")
    lines = run_process("topic", "list", environment=without_ray(raylog)).lines()
    assert re.fullmatch(r"listed\t2\t2\t[1-9][0-9]*", lines[1])
    failed = run_process("topic", "describe", "listed", environment=without_ray(raylog))
    assert "there shall be no Ray" in failed.stderr, "the test tests nothing"


def test_an_address_is_enough_to_produce_and_consume(raylog: Foreground) -> None:
    raylog.lines("topic", "create", "by-address")
    servers = json.loads(raylog("status", "--format", "json").stdout)["bootstrap_servers"]
    environment = {**os.environ, "RAY_ADDRESS": "127.0.0.1:1", "RAYLOG_BOOTSTRAP_SERVERS": servers}
    sent = run_process("produce", "by-address", environment=environment, stdin="one\ntwo\n")
    assert (sent.returncode, sent.stderr) == (0, "2 records acknowledged\n")
    read = run_process("consume", "by-address", "--exit", environment=environment)
    assert read.lines() == ["one", "two"]
    missing = run_process("consume", "nobody", "--exit", environment=environment)
    assert missing.returncode == 1
    assert missing.stderr.startswith("error: topic 'nobody': the topic does not exist")


def test_consume_ends_when_its_reader_has_seen_enough_though_nothing_more_comes(
    raylog: Foreground,
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


def test_a_signal_ends_produce_and_consume_with_whole_lines_and_their_exit_status(
    raylog: Foreground,
) -> None:
    raylog.lines("topic", "create", "signals")
    streams = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
        "env": raylog.environment,
        "preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    }
    producing = subprocess.Popen([*RAYLOG, "produce", "signals", "-v"], **streams)  # type: ignore[call-overload]
    producing.stdin.write("one\ntwo\nunfin")
    producing.stdin.flush()
    shown = [producing.stdout.readline() for _ in range(3)]
    assert shown == ["line\tpartition\toffset\n", "1\t0\t0\n", "2\t0\t1\n"]
    producing.send_signal(signal.SIGTERM)
    assert producing.communicate("ished\n", timeout=60) == ("", "2 records acknowledged\n")
    assert producing.returncode == 143
    consuming = subprocess.Popen([*RAYLOG, "consume", "signals", "--last", "9"], **streams)  # type: ignore[call-overload]
    assert [consuming.stdout.readline() for _ in range(2)] == ["one\n", "two\n"]
    consuming.send_signal(signal.SIGINT)
    assert consuming.communicate(timeout=60) == ("", "")
    assert consuming.returncode == 130


def test_without_an_address_the_broker_is_found_among_the_rays_of_this_machine(
    raylog: Foreground,
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


def test_ctrl_c_stops_it_in_order_and_the_next_start_finds_the_topic(raylog: Foreground) -> None:
    raylog.lines("topic", "create", "kept")
    (line,) = (line for line in raylog.lines("status") if line.startswith("kept-0"))
    os.kill(int(line.split("\t")[7]), signal.SIGKILL)
    raylog.lines("topic", "trim", "kept", "--before", "latest")  # which waits until it is back
    raylog.process.send_signal(signal.SIGINT)
    output = raylog.process.communicate(timeout=90)[0]
    assert raylog.process.returncode == 0, output
    assert "troubleshoot" not in output, "Ray's paragraphs about dead workers"
    assert "Ray: A worker died" in output
    assert output.splitlines()[-1] == "stopped"
    assert (raylog.folder / "log" / ".kafka_cleanshutdown").exists()
    raylog.start()
    assert "kept" in raylog.lines("topic", "list", "--names")
