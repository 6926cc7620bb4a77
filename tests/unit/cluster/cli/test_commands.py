"""The command line, as far as it goes without a broker."""

import subprocess
import sys

import pytest


def raylog(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "raylog", *arguments], capture_output=True, text=True, timeout=60
    )


def test_help_is_quick_because_it_imports_neither_ray_nor_arrow() -> None:
    check = (
        "import sys, raylog.cluster.cli.main; print(*sorted({'ray', 'pyarrow', 'numpy'} & "
        "set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, timeout=60
    )
    assert found.stdout.strip() == "", found.stdout
    assert "consume" in raylog("--help").stdout


def test_it_tells_its_version() -> None:
    from raylog import __version__

    assert raylog("--version").stdout == f"raylog {__version__}\n"


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
    done = raylog(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_no_ray_at_an_address_is_one_line() -> None:
    done = raylog("topic", "list", "--address", "127.0.0.1:1")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1
