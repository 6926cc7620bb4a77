"""Bytes and numbers as Java turns them into text, where Python does it a little differently."""

import codecs
from decimal import Decimal
from typing import Final

_ERRORS: Final = "raylog.java"


def utf8_text(content: bytes) -> str:
    """UTF-8 as text; what is none becomes U+FFFD, once for a whole surrogate."""
    return content.decode(errors=_ERRORS)


def _replace(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    end = error.end
    first, *rest = error.object[error.start : error.start + 3]
    if first == 0xED and rest and 0xA0 <= rest[0] <= 0xBF:
        end = error.start + (3 if len(rest) == 2 and 0x80 <= rest[1] <= 0xBF else 2)
    return "\N{REPLACEMENT CHARACTER}", end


codecs.register_error(_ERRORS, _replace)


def double_text(value: float) -> str:
    """As ``Double.toString``: plain from 0.001 up to ten million, else like 1.5E7.

    NaN and the infinities are in quotes.
    """
    if value != value or value in (float("inf"), float("-inf")):
        return {"inf": '"Infinity"', "-inf": '"-Infinity"'}.get(str(value), '"NaN"')
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    first, *rest = map(str, digits)
    return f"{'-' if sign else ''}{first}.{''.join(rest) or '0'}E{len(rest) + int(exponent)}"
