"""The command line, as far as it goes without a broker."""

import os
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
        ("topic", "delete-records", "t", "0"),
        ("topic", "delete-records", "t", "0", "--before", "-1"),
        ("config", "set", "t"),
        ("config", "set", "t", "retention.ms"),
    ],
)
def test_wrong_use_is_exit_status_2_and_no_traceback(arguments: tuple[str, ...]) -> None:
    done = run_here(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_no_ray_at_an_address_is_one_line() -> None:
    done = run_here("topic", "list", "--address", "127.0.0.1:1")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1
