"""Places in a topic as users of the command line write them.

=========================== ====================================================
``earliest``, ``beginning`` the first record that is there
``latest``, ``end``         behind the last record that is there
``42``                      the offset 42, in each partition
``2026-11-22T08:30``        the first record at or after a time; UTC without a zone
``-1h``                     likewise, an hour ago; also ms, s, m, d, w
``@1795242042203``          likewise, in ms since the epoch
=========================== ====================================================
"""

import re
import time
from collections.abc import Callable
from datetime import datetime
from typing import Final, NamedTuple

import typer

from raylog.cluster.cli.durations import UNIT, UNITS_MS
from raylog.cluster.client.times import milliseconds
from raylog.storage.limits import MAX_LONG

_WORDS: Final = {
    "earliest": "earliest",
    "beginning": "earliest",
    "latest": "latest",
    "end": "latest",
}
_AGO: Final = re.compile(rf"-(\d+)({UNIT})", re.ASCII)


class Offset(NamedTuple):
    """The same offset in each partition."""

    offset: int


Place = Offset | str | int  # "earliest" or "latest"; ms since the epoch


def now_ms() -> int:
    return int(time.time() * 1000)


def place_of(option: str, text: str, now: Callable[[], int] = now_ms) -> Place:
    """What a place means. Raises BadParameter."""
    if text in _WORDS:
        return _WORDS[text]
    if text.isascii() and text.isdigit() and int(text) <= MAX_LONG:
        return Offset(int(text))
    moment = time_of(text, now)
    if moment is not None:
        return moment
    if re.fullmatch(r"-\d+", text):
        if option == "--before":
            why = f"{option} {text}: an offset is 0 or more; a time ago has a unit, as {text}h"
            raise typer.BadParameter(why)
        raise typer.BadParameter(f"{option} {text}: use --last {text[1:]}, or a time as {text}h")
    raise typer.BadParameter(
        f"{option} {text!r} is no place in a topic: use earliest, latest, an offset, a time "
        "(2026-11-22T08:30Z), a time ago (-1h), or @MS for ms since the epoch"
    )


def time_of(text: str, now: Callable[[], int] = now_ms) -> int | None:
    """Milliseconds since the epoch; None if this is no time since 1970."""
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return max(now() - int(ago[1]) * UNITS_MS[ago[2]], 0)
    if text.startswith("@"):
        digits = text[1:]
        is_number = digits.isascii() and digits.isdigit() and int(digits) <= MAX_LONG
        return int(digits) if is_number else None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    since = milliseconds(moment)
    return since if since >= 0 else None
