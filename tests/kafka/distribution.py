"""Apache Kafka's jars, taken from Maven Central once and kept in the user's cache, and the java
that runs them.

``pom.xml`` beside this file pins the version and says why. The jars (45 MB) go to
``~/.cache/raylog/kafka-<version>``; ``RAYLOG_KAFKA_JARS`` names another folder, and one that has
jars in it is used as it is, so a machine without the network can bring its own. Where Java, mvn or
Maven Central is not to be had, :class:`NotHere` says what is missing and the tests are skipped with
that word.
"""

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

POM = Path(__file__).with_name("pom.xml")
JAVA_NEEDED = 17  # by the brokers of Kafka 4
DOWNLOAD_TIMEOUT_S = 240
TOOL_TIMEOUT_S = 60


class NotHere(Exception):
    """Kafka cannot be had on this machine; the text says what to install."""


@dataclass(frozen=True)
class Kafka:
    """The jars and the java."""

    java: str
    jars: Path

    def command(
        self, main: str, *arguments: str, heap: str = "-Xmx128m", **properties: str
    ) -> list[str]:
        """The command line of one of Kafka's programs; ``properties`` are its JVM's."""
        settings = [f"-D{name.replace('_', '.')}={value}" for name, value in properties.items()]
        quick = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]  # a short life on a small machine
        return [self.java, heap, *quick, *settings, "-cp", f"{self.jars}/*", main, *arguments]

    def run(self, main: str, *arguments: str, cwd: Path | None = None) -> str:
        """What a tool prints, both streams; AssertionError if it fails."""
        done = subprocess.run(
            self.command(main, *arguments),
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TOOL_TIMEOUT_S,
            check=False,
        )
        text = done.stdout.decode()
        assert done.returncode == 0, f"{main} {' '.join(arguments)}\n{text}"
        return text


def find_kafka(version: str | None = None) -> Kafka:
    """Kafka of the pinned version, or of another one, fetched if it is not in the cache.

    Raises NotHere.
    """
    return Kafka(_java(), _jars(version))


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(os.path.join(home, "bin", "java") if home else "java")
    if java is None:
        raise NotHere(
            f"Kafka needs Java {JAVA_NEEDED}, and there is no java: install openjdk-17-jre-headless"
        )
    done = subprocess.run(
        [java, "-version"], capture_output=True, timeout=TOOL_TIMEOUT_S, check=False
    )
    found = re.search(r'version "(\d+)', done.stderr.decode())
    if found is None or int(found[1]) < JAVA_NEEDED:
        raise NotHere(
            f"Kafka needs Java {JAVA_NEEDED}, and {java} is {found[1] if found else 'none'}"
        )
    return java


def _jars(version: str | None) -> Path:
    """``RAYLOG_KAFKA_JARS`` is of the pinned version alone."""
    folder = _cache() / f"kafka-{version or _version()}"
    if version is None:
        folder = Path(os.environ.get("RAYLOG_KAFKA_JARS") or folder)
    folder = folder.absolute()
    if any(folder.glob("*.jar")):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".kafka-") as fresh:
        _download(Path(fresh), version or _version())
        try:
            os.rename(fresh, folder)  # all of it or nothing
        except OSError:
            if not any(folder.glob("*.jar")):  # another run may have been first
                raise
    return folder


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "raylog"


def _version() -> str:
    found = re.search(r"<kafka.version>(.+)</kafka.version>", POM.read_text())
    assert found
    return found[1]


def _download(folder: Path, version: str) -> None:
    mvn = shutil.which("mvn")
    if mvn is None:
        raise NotHere("Kafka's jars come from Maven Central, and there is no mvn: install maven")
    command = [
        mvn,
        "-q",
        "-B",
        "-f",
        str(POM),
        "dependency:copy-dependencies",
        "-DincludeScope=runtime",
    ]
    try:
        done = subprocess.run(
            [*command, f"-Dkafka.version={version}", f"-DoutputDirectory={folder}"],
            capture_output=True,
            timeout=DOWNLOAD_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotHere(f"Maven Central gave no Kafka within {DOWNLOAD_TIMEOUT_S} s") from None
    if done.returncode:
        said = next(
            (line for line in done.stdout.decode().splitlines() if "ERROR" in line),
            "no reason given",
        )
        raise NotHere(f"mvn could not get Kafka's jars from Maven Central: {said}")
