"""Durations as users of the command line write them: ``15m``, ``90s``, ``500ms``; ``0`` is none."""

import re
from typing import Final

import typer

UNITS_MS: Final = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
UNIT: Final = "ms|s|m|min|h|d|w"  # of a regular expression
# 30,000 years: no number of a request overflows.
_MAX_MS: Final = 10**15
_DURATION: Final = re.compile(rf"(\d+)({UNIT})", re.ASCII)


def duration_ms(option: str, text: str) -> int:
    """What a duration means, in ms. Raises BadParameter."""
    if text == "0":
        return 0
    found = _DURATION.fullmatch(text)
    length_ms = -1 if found is None else int(found[1]) * UNITS_MS[found[2]]
    if not 0 <= length_ms <= _MAX_MS:
        why = "is no duration: use a number with a unit (ms, s, m, h, d, w), such as 15m"
        raise typer.BadParameter(f"{option} {text!r} {why}")
    return length_ms
