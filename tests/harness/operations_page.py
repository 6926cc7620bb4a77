"""docs/OPERATIONS.md as an operator follows it: its script and its commands, out of the page.

Nothing of the page is repeated here: a test fails if the page changes into what does not work.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.harness.paths import DOCS
from tests.harness.shell import Done

PAGE = (DOCS / "OPERATIONS.md").read_text()
TIMEOUT_S = 240


def section(title: str) -> str:
    """What stands under a heading, up to the next heading of any level."""
    found: list[str] = []
    is_within = is_code = False
    for line in PAGE.splitlines(keepends=True):
        is_code ^= line.startswith("```")
        if not is_code and line.startswith("#"):
            is_within = line.strip("# \n") == title
        elif is_within:
            found.append(line)
    assert found, f"the page has no heading {title!r}"
    return "".join(found)


def blocks(title: str, language: str = "sh") -> list[str]:
    """The blocks of code under a heading."""
    return re.findall(rf"^```{language}\n(.*?)^```", section(title), re.DOTALL | re.MULTILINE)


def backup_script() -> str:
    """The script that copies a log dir."""
    (found,) = blocks("Backup", "bash")
    return found


def with_paths(block: str, paths: Mapping[str, str]) -> str:
    """A block with other words in the place of some of the page's, all of which it must have."""
    assert [words for words in paths if words not in block] == [], block
    longest_first = sorted(paths, key=len, reverse=True)
    pattern = "|".join(map(re.escape, longest_first))
    return re.sub(pattern, lambda found: paths[found[0]], block)


def run_block(block: str, **environment: str) -> Done:
    """Run a block in a shell that has the `raylog` command, and ends at the first that fails."""
    commands = Path(sys.executable).parent
    path = f"{commands}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", block],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env={**os.environ, "PATH": path, **environment},
    )
    return Done(done.returncode, done.stdout, done.stderr)


class Operator:
    """Who follows the page on a machine: its log dirs are below ``data``, copies below ``backup``.

    Commands find the Ray cluster at ``address``. The page's log dirs are ``raylog-0`` and
    ``raylog-1``, of which the first one has the metadata.
    """

    def __init__(self, data: Path, backup: Path, address: str) -> None:
        self.data, self.backup = data, backup
        self._address = address

    @property
    def log_dirs(self) -> list[Path]:
        return [self.data / "raylog-0", self.data / "raylog-1"]

    def raylog(self, *arguments: str) -> Done:
        return run_block(shlex.join(["raylog", *arguments]), RAY_ADDRESS=self._address)

    @property
    def options(self) -> list[str]:
        """That name the log dirs, of a command."""
        return [word for path in self.log_dirs for word in ("--log-dir", str(path))]

    def start(self) -> Done:
        return self.raylog("start", *self.options)

    def back_up(self) -> None:
        """Run the script of the page for both log dirs."""
        back_up(self.log_dirs, self.backup, self.backup.parent)

    def follow(
        self,
        title: str,
        number: int = 0,
        *,
        swapped: bool = False,
        words: Mapping[str, str] | None = None,
    ) -> Done:
        """Do what the ``number``-th block under a heading says.

        ``swapped``: to the first log dir what it says of the second one. ``words``: what stands
        there for other words.
        """
        block = with_paths(
            blocks(title)[number], {**(words or {}), "/data/raylog-": f"{self.data}/raylog-"}
        )
        block = block.replace("/backup/raylog-", f"{self.backup}/raylog-")
        if swapped:
            numbers = {"0": "1", "1": "0"}
            block = re.sub(r"(?<=/raylog-)[01]", lambda found: numbers[found[0]], block)
        return run_block(block, RAY_ADDRESS=self._address)


def backup_command(folder: Path) -> list[str]:
    """The command that runs the script, which is written into ``folder``."""
    path = folder / "backup.sh"
    path.write_text(backup_script())
    return ["bash", str(path)]


def back_up(log_dirs: Sequence[Path], copies: Path, folder: Path) -> list[Path]:
    """Run the script for each log dir; returns the copies, which lie below ``copies``."""
    made = []
    copies.mkdir(parents=True, exist_ok=True)
    for log_dir in log_dirs:
        copy = copies / log_dir.name
        subprocess.run(
            [*backup_command(folder), str(log_dir), str(copy)], check=True, timeout=TIMEOUT_S
        )
        made.append(copy)
    return made
