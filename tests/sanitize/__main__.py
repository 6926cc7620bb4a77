"""``./dev sanitize [ARGS OF PYTEST]``: tests and fuzzing over a kernel that checks its memory.

These are the kernel's tests, and a short run of the fuzzer. The kernel is compiled a second time,
with AddressSanitizer and UndefinedBehaviorSanitizer, in a copy of the sources in a temporary
folder; the installed one stays as it is. The first access outside of an object, or the first
undefined operation, then ends the process with a report.

Python itself is not instrumented, so the sanitizer's library is loaded before it, and Python's and
Arrow's own allocators, which would hide the bounds of an object, give way to ``malloc``.
"""

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
COPIED = ("raylog", "storage", "actors", "cluster", "tests", "pyproject.toml")
LIBRARIES = ("libasan.so", "libubsan.so", "libstdc++.so")
# The tests of the twin in Python would check nothing.
TESTS = ("tests/unit/storage/records", "-k", "not pure")
FUZZ_TARGETS = ("headers", "records", "sealed", "messages", "logs")
FUZZ_SECONDS = 15
SANITIZE = (
    *("-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined"),
    *("-fno-sanitize-recover=all", "-fno-wrapv", "-DPy_LIMITED_API=0x030B0000"),
)
# A read behind an object of the heap: if it is not reported, nothing is.
CANARY = """
#include <stdlib.h>
int canary(int size) {
    volatile char *bytes = malloc(size);
    int behind = bytes[size];
    free((void *)bytes);
    return behind;
}
"""


class Unusable(Exception):
    """This machine, or its compiler, cannot check anything."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev sanitize", description=__doc__)
    parser.add_argument("--seconds", type=int, default=FUZZ_SECONDS, help="of fuzzing")
    arguments, tests = parser.parse_known_args()
    try:
        libraries = [library(name) for name in LIBRARIES]
        with tempfile.TemporaryDirectory(prefix="raylog-sanitize-") as folder:
            return check(Path(folder), libraries, tests or TESTS, arguments.seconds)
    except Unusable as error:
        print(f"sanitize: {error}", file=sys.stderr)
        return 2


def compiler() -> str:
    return os.environ.get("CC", "gcc")


def library(name: str) -> str:
    """The path of one of the compiler's libraries."""
    if shutil.which(compiler()) is None:
        raise Unusable(f"{compiler()} is missing: install gcc, or set CC")
    asked = [compiler(), f"-print-file-name={name}"]
    path = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    if not os.path.isabs(path):
        raise Unusable(
            f"{name} is missing: install the sanitizers of {compiler()} (Debian, Ubuntu: "
            "apt-get install gcc g++; Fedora: dnf install libasan libubsan libstdc++)"
        )
    return path


def check(folder: Path, libraries: Sequence[str], tests: Sequence[str], seconds: int) -> int:
    environment = os.environ | {
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "PYTHONPATH": str(folder),
    }
    build(folder)
    prove(folder, environment)
    for command in (
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *tests],
        [sys.executable, "-m", "tests.fuzz", *FUZZ_TARGETS, "--seconds", str(seconds)],
    ):
        if status := subprocess.run(command, cwd=folder, env=environment).returncode:
            return status
    return 0


def build(folder: Path) -> None:
    """The sources, and the kernel compiled among them."""
    ignored = shutil.ignore_patterns("*.so", "_kernel.c", "__pycache__")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(ROOT / name, folder)
    kernel = folder / "storage/records/_kernel"
    source = "raylog/storage/records/_kernel.pyx"
    run(folder, sys.executable, "-m", "cython", "-3", source, "-o", f"{kernel}.c")
    shared_library(folder, Path(f"{kernel}.c"), Path(f"{kernel}.abi3.so"))


def shared_library(folder: Path, source: Path, made: Path) -> None:
    include = sysconfig.get_path("include")
    options = [*SANITIZE, "-shared", "-fPIC", f"-I{include}", str(source), "-o", str(made)]
    run(folder, compiler(), *options)


def run(folder: Path, *command: str) -> None:
    if subprocess.run(command, cwd=folder).returncode:
        raise Unusable(f"it failed: {' '.join(command)}")


def prove(folder: Path, environment: dict[str, str]) -> None:
    """Raises unless a planted error is reported, and the kernel under test is the one built."""
    source, made = folder / "canary.c", folder / "canary.so"
    source.write_text(CANARY)
    shared_library(folder, source, made)
    call = f"import ctypes; ctypes.CDLL({str(made)!r}).canary(7)"
    done = subprocess.run(
        [sys.executable, "-c", call], env=environment, capture_output=True, text=True
    )
    if done.returncode == 0 or "heap-buffer-overflow" not in done.stderr:
        raise Unusable(f"a planted error was not reported: {done.stderr[-2000:]}")
    asked = "from raylog.storage.records import _kernel; print(_kernel.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", asked], cwd=folder, env=environment, capture_output=True, text=True
    )
    if not done.stdout.startswith(str(folder)):
        raise Unusable(f"the kernel that was built is not loaded: {done.stdout}{done.stderr}")


if __name__ == "__main__":
    sys.exit(main())
