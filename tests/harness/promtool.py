"""Prometheus' ``promtool``, which checks and runs alert rules.

It is the one in ``RAYLOG_PROMTOOL``, or on the PATH, or in the user's cache. Otherwise it is taken
from Debian's package ``prometheus`` (19 MB) once, and kept in ``~/.cache/raylog/promtool``. The
package is unpacked there, and not installed. Where none of this works, :class:`NotHere` says what
is missing, and the tests are skipped with that word.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

DOWNLOAD_TIMEOUT_S = 240
RUN_TIMEOUT_S = 120


class NotHere(Exception):
    """promtool cannot be had on this machine; the text says what to install."""


def find_promtool() -> str:
    """The path of promtool, fetched if there is none. Raises NotHere."""
    given = os.environ.get("RAYLOG_PROMTOOL") or shutil.which("promtool")
    if given:
        return given
    kept = Path.home() / ".cache" / "raylog" / "promtool" / "promtool"
    if not kept.exists():
        _fetch(kept)
    return str(kept)


def _fetch(kept: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise NotHere("there is no promtool, and no apt-get to fetch it: install Prometheus")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        _run(["apt-get", "download", "prometheus"], Path(folder))
        packages = list(Path(folder).glob("prometheus_*.deb"))
        if not packages:
            raise NotHere("apt-get has downloaded no package: install Prometheus")
        _run(["dpkg-deb", "--extract", str(packages[0]), folder], Path(folder))
        kept.parent.mkdir(parents=True, exist_ok=True)
        # In one step: another run may fetch it at the same time.
        with tempfile.NamedTemporaryFile(dir=kept.parent, delete=False) as new:
            new.write((Path(folder) / "usr" / "bin" / "promtool").read_bytes())
        os.chmod(new.name, 0o755)
        os.replace(new.name, kept)


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, timeout=DOWNLOAD_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotHere(f"promtool could not be fetched: {error}") from error
    if done.returncode:
        why = done.stderr.decode().strip() or "no reason was given"
        raise NotHere(f"promtool could not be fetched ({' '.join(command)}): {why}")
