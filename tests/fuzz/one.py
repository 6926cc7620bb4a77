"""One target under atheris, in a process of its own: ``atheris.Fuzz`` never returns.

Started by ``tests/fuzz/__main__.py``, which says what the arguments are.
"""

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["raylog.storage", "raylog.actors.plane"]):
    from tests.fuzz.targets import TARGETS, limit_bombs

from tests.fuzz.seeds import seeds


def main() -> None:
    limit_bombs()
    name, corpus, seconds, found, max_bytes, max_seconds, max_memory_mb = sys.argv[1:]
    for number, seed in enumerate(seeds(name)):
        Path(corpus, f"seed-{number}").write_bytes(seed)
    options = [
        f"-max_total_time={seconds}",
        f"-artifact_prefix={found}",
        f"-max_len={max_bytes}",
        f"-timeout={max_seconds}",
        f"-rss_limit_mb={max_memory_mb}",
    ]
    atheris.Setup([sys.argv[0], *options, corpus], TARGETS[name])
    atheris.Fuzz()


main()
