"""Keeps the screen for the demo: what Ray, Spark and their JVMs print goes to a file.

JVMs write to the file descriptors 1 and 2, which no Python redirection reaches, so the descriptors
themselves are turned to the file, and the demo prints to a copy of the old one.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO


@contextmanager
def quiet(noise: Path) -> Iterator[TextIO]:
    """A stream to the real standard output; all other output, also of children, goes to a file
    meanwhile."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = {1: os.dup(1), 2: os.dup(2)}
    target = os.open(noise, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    screen = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    try:
        for descriptor in saved:
            os.dup2(target, descriptor)
        yield screen
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        with suppress(BrokenPipeError):
            screen.close()
        for descriptor, original in saved.items():
            os.dup2(original, descriptor)
            os.close(original)
        os.close(target)
