"""The command line, as far as it goes without a broker."""

import os
import signal
import subprocess
import sys

import pytest

from tests.harness.shell import run_here, run_process


def test_help_is_quick_because_it_imports_neither_ray_nor_arrow() -> None:
    check = (
        "import sys, raylog.cluster.cli.main; print(*sorted({'ray', 'pyarrow', 'numpy'} & "
        "set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, timeout=60
    )
    assert found.stdout.strip() == "", found.stdout
    assert "consume" in run_here("--help").stdout


def test_python_m_raylog_tells_its_version() -> None:
    from raylog import __version__

    done = run_process("--version", environment=os.environ)
    assert done.lines() == [f"raylog {__version__}"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("frobnicate",),
        ("topic", "create"),
        ("topic", "create", "t", "--partitions", "many"),
        ("topic", "create", "t", "--config", "segment.bytes"),
        ("consume", "t", "--format", "xml"),
        ("status", "--format", "text"),
        ("config", "get"),
        ("topic", "trim", "t"),
        ("topic", "trim", "t", "--before", "-1"),
        ("topic", "trim", "t", "--before", "yesterday"),
        ("config", "set", "t"),
        ("config", "set", "t", "retention.ms"),
        ("config", "set", "t", "retention.ms=1", "--delete", "retention.ms"),
        ("consume",),
        ("consume", "t", "--from", "-5"),
        ("consume", "t", "--from", "5", "--last", "1"),
        ("consume", "t", "--to", "latest", "--exit"),
        ("consume", "t", "--format", "json", "--with-key"),
        ("consume", "t", "--format", "json", "--null-value", "NULL"),
        ("consume", "^t", "u"),
        ("consume", "^("),
        ("produce", "t", "--key", "k", "--key-separator", ":"),
        ("produce", "t", "--key-separator", ""),
        ("produce", "t", "--format", "json", "--key", "k"),
        ("produce", "t", "--format", "json", "--null-value", ""),
        ("produce", "t", "--ignore-partition"),
        ("produce", "t", "--header", "=x"),
        ("produce", "t", "--timestamp", "5"),
        ("produce", "t", "--file", "/no/such/file"),
    ],
)
def test_wrong_use_is_exit_status_2_and_no_traceback(arguments: tuple[str, ...]) -> None:
    done = run_here(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


AT_EXIT = "atexit.register(os.kill, os.getpid(), signal.SIGINT)"
AT_IMPORT = """
class Interrupted:
    def find_spec(self, name, *_):
        if name == "raylog.cluster.cli.consume":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupted())
"""


@pytest.mark.parametrize("moment", [AT_EXIT, AT_IMPORT], ids=["at the end", "at the beginning"])
def test_ctrl_c_outside_of_the_command_ends_it_without_a_traceback(moment: str) -> None:
    program = (
        "import atexit, os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"{moment}\n"
        "sys.argv = ['raylog', '--version']\n"
        "from raylog.__main__ import main\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_at_the_very_end_ends_a_command_with_all_of_its_output_and_no_traceback(
    number: int,
) -> None:
    program = (
        "import atexit, signal, sys\n"
        "from raylog.__main__ import main\n"
        "from raylog.cluster.cli import main as commands, interrupts\n"
        "def command():\n"
        "    interrupts.end_on_sigterm()\n"
        "    signal.signal(signal.SIGHUP, signal.default_int_handler)\n"
        "    print('done')\n"
        "commands.main = command\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"atexit.register(signal.raise_signal, {number})\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (-number, "done\n", "")


def test_a_signal_that_the_shell_has_ignored_is_so_at_the_end_too() -> None:
    program = (
        "import atexit, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "atexit.register(signal.raise_signal, signal.SIGINT)\n"
        "sys.argv = ['raylog', '--version']\n"
        "from raylog.__main__ import main\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_shell_completes_commands_and_options() -> None:
    asked = {**os.environ, "_RAYLOG_COMPLETE": "complete_bash", "COMP_WORDS": "raylog topic tr"}
    program = "import sys; sys.argv = ['raylog']; from raylog.cluster.cli.main import main; main()"
    found = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        env={**asked, "COMP_CWORD": "2"},
    )
    assert found.stdout.split() == ["trim"], found.stderr


def test_no_ray_at_an_address_is_one_line() -> None:
    done = run_here("topic", "list", "--address", "127.0.0.1:1")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1
