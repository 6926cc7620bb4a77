"""Where the clients come from: PyPI, npm, the Go module proxy, Maven Central, Debian.

Each is installed once, into a folder of the user's cache,
``~/.cache/raylog/clients/<name>-<hash>``: the hash is of all that says what is installed. It is
made beside it and renamed, so it is whole or not there. Whether a client can be had is found by
trying, within a deadline; where not, :class:`NotHere` says what is missing, and the client's tests
are skipped with that word.
"""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.kafka.distribution import NotHere, find_kafka

PROGRAMS = Path(__file__).with_name("programs")
# The slowest, two programs in Go, takes a minute on two free cores.
INSTALL_S = 600.0
# A short life on a small machine; log4j, which writes to standard output, is silent.
JAVA_FLAGS = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dlog4j2.level=OFF",
)
WORDS = 300  # of what an installer has said


def python(*packages: str, wheels_only: bool = True) -> Path:
    """The interpreter of an environment with these packages of PyPI."""
    kinds = ["--only-binary=:all:"] if wheels_only else []

    def install(folder: Path) -> None:
        _run([sys.executable, "-m", "venv", str(folder)], "python's venv")
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        _run([*pip, "--disable-pip-version-check", *kinds, *packages], "PyPI")

    return _kept("python", packages, install) / "bin" / "python"


def node(name: str, *packages: str, **environment: str) -> tuple[str, Path]:
    """node, and the ``node_modules`` with these packages of npm, built in that environment."""
    for tool in ("node", "npm"):
        _need(tool, "nodejs and npm")

    def install(folder: Path) -> None:
        (folder / "package.json").write_text('{"private": true}')
        command = ["npm", "install", "--no-audit", "--no-fund", *packages]
        _run([*_with(environment), *command], "npm", folder)

    parts = (*packages, *environment.values())
    return _need("node", "nodejs"), _kept(name, parts, install) / "node_modules"


def _with(environment: Mapping[str, str]) -> list[str]:
    """How a command begins that is run with these variables."""
    return ["/usr/bin/env", *(f"{name}={value}" for name, value in environment.items())]


def go(program: str) -> Path:
    """The compiled program of that folder. ``go.mod`` pins the versions."""
    tool = _need("go", "golang")
    sources = PROGRAMS / "go"
    parts = [path.read_text() for path in sorted(sources.rglob("*.*")) if path.is_file()]

    def install(folder: Path) -> None:
        command = [tool, "build", "-mod=mod", "-o", str(folder), f"./{program}"]
        # In a copy: -mod=mod may write into go.sum.
        with tempfile.TemporaryDirectory() as copy:
            shutil.copytree(sources, copy, dirs_exist_ok=True)
            _run(command, "the Go module proxy", Path(copy))

    return _kept(f"go-{program}", parts, install) / program


def kcat() -> tuple[Path, Path]:
    """kcat, and the folder of its libraries: the system's, or Debian's packages unpacked."""
    tool = shutil.which("kcat")
    if tool is not None:
        return Path(tool), Path("/nonexistent")
    for needed in ("apt-get", "dpkg-deb"):
        _need(needed, "kcat")
    packages = ("kcat", "librdkafka1", "libyajl2")

    def install(folder: Path) -> None:
        _run(["apt-get", "download", *packages], "Debian", folder)
        for package in sorted(folder.glob("*.deb")):
            _run(["dpkg-deb", "--extract", str(package), str(folder)], "Debian")

    folder = _kept("kcat", packages, install)
    [library] = folder.glob("usr/lib/*/librdkafka.so.1")
    return folder / "usr" / "bin" / "kcat", library.parent


def java(version: str) -> list[str]:
    """The command line of the program in Java, with the jars of that version of Kafka."""
    javac = _need("javac", "openjdk-17-jdk-headless")
    kafka = find_kafka(version)
    source = PROGRAMS / "java" / "Deeds.java"

    def install(folder: Path) -> None:
        _run([javac, "-cp", f"{kafka.jars}/*", "-d", str(folder), str(source)], "javac")

    classes = _kept(f"java-{version}", [source.read_text()], install)
    path = f"{classes}{os.pathsep}{kafka.jars}/*"
    return [kafka.java, *JAVA_FLAGS, "-cp", path]


def spark_connector() -> tuple[str, Path]:
    """The version of Spark's connector for Kafka, and its jars. ``pom.xml`` pins them."""
    mvn = _need("mvn", "maven")
    pom = PROGRAMS / "spark" / "pom.xml"
    version = re.search(r"<spark.version>(.+)</spark.version>", pom.read_text())
    assert version is not None

    def install(folder: Path) -> None:
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
        command = [mvn, "-q", "-B", "-f", str(pom), *goal, f"-DoutputDirectory={folder}"]
        _run(command, "Maven Central")

    return version[1], _kept("spark-connector", [pom.read_text()], install)


def _kept(name: str, parts: Sequence[str], install: Callable[[Path], None]) -> Path:
    """The folder that ``install`` fills, unless it was filled before. Raises NotHere."""
    digest = hashlib.sha256("\0".join([sys.version, *parts]).encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "raylog" / "clients" / f"{name}-{digest}"
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{name}-"))
    try:
        install(fresh)
        _take(fresh, folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return folder


def _take(fresh: Path, folder: Path) -> None:
    """All of it or nothing; another run may have been first."""
    try:
        fresh.rename(folder)
    except OSError:
        if not folder.exists():
            raise


def _need(tool: str, package: str) -> str:
    found = shutil.which(tool)
    if found is None:
        raise NotHere(f"there is no {tool}: install {package}")
    return found


def _run(command: Sequence[str], source: str, cwd: Path | None = None) -> None:
    with subprocess.Popen(
        command,
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # it ends with all that it has started, as compilers
    ) as process:
        try:
            said, _ = process.communicate(timeout=INSTALL_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise NotHere(f"{source} gave nothing within {INSTALL_S:.0f} s") from None
        except BaseException:  # as of Ctrl-C, which a session of its own does not get
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        words = " ".join(said.decode(errors="replace").split())
        raise NotHere(f"{source} did not give it: {words[-WORDS:]}")
